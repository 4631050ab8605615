/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a slave does with what its master tells it: items come, go, and get the numbers and the CAS
 * that they have at the master.
 *
 * A message tells what is, not what was done, so applying one twice does no harm, and neither does
 * one that comes late as long as a newer one of the same key follows. What cannot be stored for
 * want of memory is removed: better a miss than an old value; and that is told, since the copy is
 * not whole any more.
 *
 * Threads: those of the local.
 */
#pragma once

#include <stdint.h>

#include "base/base.h"
#include "cache/cache.h"
#include "repl/stream.h"

/*
 * How far ahead of the last number that a slave knows of it begins to count when it becomes master.
 *
 * Every mark says the next number of the master. What the master gave after the last mark that
 * arrived, the slave never heard of; but clients have been told those numbers as CAS. If the new
 * master gave one of them again, for the same key, a client's `cas` could succeed that must fail.
 * So the new master skips as many as the old one can have given in the time since, which is
 * `silence_ns`: since the last mark arrived, and for how long that may have been under way.
 *
 *     skipped = 2^30 + 2^24 for each second of silence
 *
 * 2^24 a second is more than any server writes: all writes of all threads take their number from
 * one counter in one cache line. The 2^30 are for clocks that stood still with their machine, and
 * for a master that goes on without its slaves when another was promoted: 18 minutes at a million
 * writes a second. (Only a lease makes sure that no such master answers: server/lease.h.)
 *
 * 2^48 numbers last for almost 200,000 takeovers after ten seconds each. A fixed 2^36, which needs
 * no clock, lasts for 4,096: eleven hours of a cluster that changes its mind every ten seconds.
 */
uint64_t fw_repl_numbers_ahead(int64_t silence_ns);

/*
 * SetQ, DeleteQ, Touch, FlushQ and their like; others do nothing. Its value is all there. Returns
 * 0, -ENOSPC: an item is missing now for want of memory; or -EPROTO: it makes no sense.
 */
FW_MUST_CHECK int fw_repl_apply(struct fw_cache_local *local,
                                const struct fw_repl_message *message);

/* SetQ with a value that came to a body, whose reference is taken over. 0 or -ENOSPC. */
FW_MUST_CHECK int fw_repl_apply_large(struct fw_cache_local *local,
                                      const struct fw_repl_message *message, struct fw_body *body);
