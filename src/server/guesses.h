/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failed logins: how often one has failed of late, by address and by name, and how long the answer
 * to the next failure is to wait.
 *
 * The first failure is answered after FW_GUESS_DELAY_NS, each that follows after twice as long, up
 * to FW_GUESS_DELAY_MAX_NS; an address or name of which nothing was heard for FW_GUESS_FORGET_S
 * begins anew. Whichever of the two has failed more often counts. After FW_GUESS_CLOSE failures a
 * connection is closed. A thousand connections so try a hundred passwords a second; without that,
 * one of them tries 650,000.
 *
 * Only answers to failures wait, and only the connection that failed: nobody else is slower for
 * it, and who knows the password is let in at once. Else anyone could keep a user out by failing in
 * their name.
 *
 * Each address and each name has a word in a table of a fixed size, found by a hash with a secret
 * seed; what meets there replaces what was there before. An IPv6 address counts as its network of
 * 64 bits. Threads: any. A count that is lost because two cores wrote at the same time is no harm.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "io/address.h"
#include "io/clock.h"

enum {
    FW_GUESS_SLOTS = 1024, /* For addresses, and as many for names. */
    FW_GUESS_CLOSE = 6,
    FW_GUESS_FORGET_S = 600,
};
#define FW_GUESS_DELAY_NS     (100 * (int64_t)FW_NS_PER_MS)
#define FW_GUESS_DELAY_MAX_NS (10 * (int64_t)FW_NS_PER_S)

struct fw_guesses {
    uint64_t seed;
    _Atomic uint64_t addresses[FW_GUESS_SLOTS];
    _Atomic uint64_t names[FW_GUESS_SLOTS];
};

void fw_guesses_init(struct fw_guesses *guesses, uint64_t seed);

/* Notes a failure, now, and returns how many there were of late: for the delay, and for the log. */
uint32_t fw_guesses_note(struct fw_guesses *guesses, const struct fw_address *peer,
                         const char *name, int64_t now_ns);

/*
 * After a run of its session in which a login failed: notes and logs that, and says for how long
 * the answer waits (penalty_ms) and whether it is the last. On the connection's turn.
 */
struct fw_connection;
void fw_connection_penalise(struct fw_connection *connection);

/* Until when it does; 0: it need not, or the server ends. */
int64_t fw_connection_atoned_ns(const struct fw_connection *connection);

/* How long the answer to the failure of that number has to wait. */
int64_t fw_guess_delay_ns(uint32_t failures);
