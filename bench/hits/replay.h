/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a trace to a server that speaks memcached's text protocol: a get for each request, and a
 * set after each miss, as an application does it that has a cache before a database.
 *
 * Gets are sent in batches, as one command each, and the sets after a batch with the next one;
 * a batch has no object twice, so that no answer depends on another of the same batch. In a trace
 * with a rate no batch is sent before its time, so that lifetimes mean what the trace says.
 *
 * Whatever goes wrong is said on standard error and ends the process.
 */
#pragma once

#include <stdint.h>

#include "bench/hits/trace.h"

/* How many of the requests from number `counted_from` on were hits. */
uint64_t fw_replay(const struct fw_trace *trace, const char *host, const char *port,
                   size_t counted_from);
