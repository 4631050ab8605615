/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How foms and messages get to a core from other threads; private to the engine.
 *
 * From the holder of another core's turn by a ring of their own (base/spsc.h), without a lock or a
 * repeated atomic; the bell is rung at the end of the round, once for all that was pushed. From all
 * other threads (in brackets, job workers, foreign ones) through the inbox, a list of which the
 * receiver takes all at once; the bell is rung for each.
 *
 *     core 0 --ring--> core 2 <--ring-- core 1
 *                        ^
 *                        +---inbox--- anyone else
 *
 * Neither refuses: a wake-up that cannot be delivered would be lost. What a full ring does not take
 * stays with the sender, in order, and is tried again each round. The inbox links its mail through
 * the mail, and so has no limit but that of the foms. A bounded one with a lock was
 * rejected for that, and rings between all pairs of threads for their number.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "base/base.h"

struct fw_core;

/* The makers of the rings of `core`, which sends, and their end. */
FW_MUST_CHECK int fw_mail_init(struct fw_core *core);
void fw_mail_fini(struct fw_core *core);

/* Any thread: a fom that is READY and in no queue, or gone and on its way home; or a message. */
void fw_mail_send_fom(struct fw_core *to, struct fw_fom *fom);
void fw_mail_send_message(struct fw_core *to, struct fw_message *message);

/* The turn: takes in all that has come. Returns how many there were. */
uint32_t fw_mail_receive(struct fw_core *core);

/* The turn, at the end of a round: rings the bells. False: a full ring holds some back. */
bool fw_mail_flush(struct fw_core *core);

/* Makes a core look at its mail and its returning threads. Any thread. */
void fw_core_ring(struct fw_core *core);
