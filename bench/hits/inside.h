/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a trace to the table itself, in this process: what replay.h does without a server, in a
 * few seconds, and the same in every run. For trying out policies.
 *
 * Time passes by requests: as many a second as the trace says, or else FW_INSIDE_RATE, about what a
 * server takes from replay.h. The table is swept as the server's sweeper does it when there is
 * nothing to reclaim: a round in 2 seconds, the next in 4, and so on up to 64. It raises no ages.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bench/hits/trace.h"

enum { FW_INSIDE_RATE = 400000 };

/* How many of the requests from number `counted_from` on were hits, with `memory` bytes. */
uint64_t fw_replay_inside(const struct fw_trace *trace, uint64_t memory, size_t counted_from);
