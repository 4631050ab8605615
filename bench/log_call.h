/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a log call costs its caller, for any log: the same two threads, the same line, the same
 * pace.
 *
 * A server's thread logs now and then and otherwise works. So each thread logs a few lines at a
 * time, measures them, and is busy for a while before the next; it never sleeps, for a thread that
 * just woke pays for cold caches and not for the log. The time of a burst is divided by its lines.
 * Single calls are too short for the clock; their median is taken to be that of the bursts, of
 * which few contain the call that has to wake the writer or meets another process.
 */
#pragma once

#include <stdint.h>

enum { LOG_CALL_BURST = 20 };

/* Logs LOG_CALL_BURST lines: "request %u of %u took %lu us", numbers as given by the two. */
typedef void log_call_burst(uint32_t thread, uint32_t number);

/*
 * Runs two threads with `bursts` each, `pause_ns` apart, and prints one JSON object: `median`,
 * `p90` and `p99` of ns per call, `calls`. Returns the exit status.
 */
int log_call_measure(log_call_burst *burst, uint32_t bursts, int64_t pause_ns);
