/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a slave does with what its master tells it: items come, go, and get the numbers and the CAS
 * that they have at the master.
 *
 * A message tells what is, not what was done, so applying one twice does no harm, and neither does
 * one that comes late as long as a newer one of the same key follows. What cannot be stored for
 * want of memory is removed: better a miss than an old value.
 *
 * Threads: those of the local.
 */
#pragma once

#include <stdint.h>

#include "cache/cache.h"
#include "repl/stream.h"

/*
 * How far ahead of the last number that a slave knows of it begins to count when it becomes master.
 * Numbers between the two may be those of writes that it never heard of, and CAS must not repeat:
 * it would take a master that nobody hears 19 hours at a million writes a second to give out so
 * many; and 4,096 masters may follow each other before numbers are used up.
 */
#define FW_REPL_NUMBERS_AHEAD (UINT64_C(1) << 36)

/* SetQ, DeleteQ, Touch, FlushQ and their like; others do nothing. Its value is all there. */
void fw_repl_apply(struct fw_cache_local *local, const struct fw_repl_message *message);

/* SetQ with a value that came to a body, whose reference is taken over. */
void fw_repl_apply_large(struct fw_cache_local *local, const struct fw_repl_message *message,
                         struct fw_body *body);
