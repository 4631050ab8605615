/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secret that master and slaves share: how each proves to the other that it knows it.
 *
 *     slave                                                  master
 *       HELLO  ─────────────────────────────────────────────►
 *       ◄───────────────────────── CHALLENGE: 16 random bytes
 *       PROOF: 16 random bytes of its own, and a MAC  ───────►  refused unless it is right
 *       ◄────────────────────────────────────── PROOF: a MAC
 *       refused unless it is right  ◄──────────  HELLO answer
 *
 * A MAC is the HMAC-SHA-256, with the secret as key, of the role, the master's bytes and the
 * slave's. Both are new each time, so what somebody has overheard proves nothing the next time; and
 * since the role is in it nobody can be sent his own proof. The master is asked too, or who stands
 * at its address could tell slaves what they have.
 *
 * This keeps strangers out; it hides nothing. What goes over the link can be read and changed by
 * who is between the two: that is for the network (WireGuard, IPsec) to prevent.
 *
 * Ownership: the struct is part of struct fw_repl, constant once read. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/hmac.h"

enum {
    FW_REPL_SECRET_MIN = 16,
    FW_REPL_SECRET_MAX = 1024,
    FW_REPL_NONCE = 16,
    FW_REPL_SLAVE_PROOF = FW_REPL_NONCE + FW_HMAC_SIZE,
    FW_REPL_MASTER_PROOF = FW_HMAC_SIZE,
};

struct fw_repl_secret {
    size_t length; /* 0: there is none, and nobody has to prove anything. */
    char bytes[FW_REPL_SECRET_MAX];
};

/*
 * Reads it from a file, which is refused if everyone may read it: all but a newline at its end.
 * Returns 0 or a negative errno with the reason; also if this machine cannot compute proofs.
 */
FW_MUST_CHECK int fw_repl_secret_read(struct fw_repl_secret *secret, const char *path,
                                      struct fw_reason *reason);

/* Random bytes that were never used before. Returns 0 or a negative errno. */
FW_MUST_CHECK int fw_repl_nonce(char nonce[static FW_REPL_NONCE]);

enum fw_repl_prover { FW_REPL_SLAVE_PROVES, FW_REPL_MASTER_PROVES };

/* The MAC of who proves. Returns 0 or a negative errno. */
FW_MUST_CHECK int fw_repl_prove(const struct fw_repl_secret *secret, enum fw_repl_prover prover,
                                const char master[static FW_REPL_NONCE],
                                const char slave[static FW_REPL_NONCE],
                                char mac[static FW_HMAC_SIZE]);

/* Is the MAC that somebody sent the right one? */
bool fw_repl_is_proven(const struct fw_repl_secret *secret, enum fw_repl_prover prover,
                       const char master[static FW_REPL_NONCE],
                       const char slave[static FW_REPL_NONCE], const char mac[static FW_HMAC_SIZE]);
