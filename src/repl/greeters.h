/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that have connected and are no slaves yet: they have not greeted, or not proved that they
 * know the secret.
 *
 * A place among the slaves (struct fw_repl_slot) is taken only by a peer that has done all of that.
 * Until then it has one of the places here, of which there are more, and which an unknown peer
 * cannot keep: each step of the greeting has a deadline (link.c), and when the places become few
 * the peers there make way for those who come. Of the machine that has the most places the oldest
 * peer goes. So a machine that opens connections without end displaces its own, and one slave of
 * another machine stays for as long as the greeting takes it.
 *
 *     NONE ──take()──► TAKEN ──settle()──► GREETING ──leave()──► NONE
 *
 * Why not one queue in order of arrival: a fast stranger would push a slave out before it has
 * proved anything. Why not a limit per machine: several slaves may come by one address, as behind a
 * gateway, and while there is room nobody has to be refused.
 *
 * Threads: take() is of the thread that runs the server; the rest of the peer's link, on its turn.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "io/address.h"

enum {
    FW_REPL_GREETERS_MAX = 32,
    FW_REPL_GREETERS_CALM = 24, /* From so many on each that comes displaces another. */
};

enum fw_repl_greeter_state {
    FW_REPL_GREETER_NONE,
    FW_REPL_GREETER_TAKEN,
    FW_REPL_GREETER_GREETING
};

struct fw_repl_greeter {
    _Atomic uint32_t state; /* enum fw_repl_greeter_state; released by who writes what follows. */
    atomic_bool must_go;    /* Written by take(). */
    uint64_t order;         /* In which they came; take()'s own. */
    struct fw_address machine; /* Without a port. Written by settle(). */
    struct fw_ticket ticket;
};

struct fw_repl_greeters {
    uint64_t next_order;
    struct fw_repl_greeter places[FW_REPL_GREETERS_MAX];
};

/*
 * A place for a peer that has just come; NULL: all are taken, by peers who are about to go. If one
 * has to go, *displaced is its ticket, to be woken, and *is_displacing true.
 */
struct fw_repl_greeter *fw_repl_greeters_take(struct fw_repl_greeters *greeters,
                                              bool *is_displacing, struct fw_ticket *displaced);

/* Says who it is, and how it is woken. */
void fw_repl_greeter_settle(struct fw_repl_greeter *greeter, const struct fw_address *peer,
                            struct fw_ticket ticket);

/* Does it have to make way for others? */
bool fw_repl_greeter_must_go(const struct fw_repl_greeter *greeter);

/* It is a slave now, or gone. */
void fw_repl_greeter_leave(struct fw_repl_greeter *greeter);
