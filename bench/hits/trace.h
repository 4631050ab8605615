/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces: who asks for what, in which order, as arrays.
 *
 * Objects are numbers. How long an object's value is and how long it lives depend on its number
 * alone, so that a trace is a list of numbers, the same in every run, and can be replayed to a
 * server as often as one likes. Synthetic traces have names; fw_trace_names lists them:
 *
 *     zipf-0.6 ... zipf-1.2   popularity falls with rank to that power; the usual cache
 *     one-hit                 as zipf-0.9, and every second request is for an object that never
 *                             comes again
 *     scan                    as zipf-0.9, and now and then a scan over many objects in a row
 *     loop                    round and round over all objects: what LRU can do nothing with
 *     shift                   as zipf-0.9, and every tenth of the trace other objects are popular
 *     sizes                   as zipf-0.9, values from 50 bytes to 40 KiB
 *     expiry                  as zipf-0.9, two thirds of the objects live for a few seconds only
 *
 * A trace of one's own is a text with a line per request: key, bytes of the value and, if it
 * expires, seconds, separated by spaces.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FW_TRACE_KEY_SIZE = 20 };

struct fw_trace_object {
    uint32_t value_size;
    uint32_t lifetime; /* Seconds; 0: for ever. */
};

struct fw_trace {
    uint32_t *requests; /* Numbers of objects. */
    size_t request_count;
    struct fw_trace_object *objects;
    size_t object_count; /* Those that are asked for, numbered from 0. */
    uint64_t rate;       /* Requests a second, for traces in which time matters; else 0. */
};

extern const char *const fw_trace_names[]; /* NULL at the end. */

/* Ends the process if there is no such trace. */
void fw_trace_make(struct fw_trace *trace, const char *name, size_t objects, size_t requests,
                   uint64_t seed);

/* Reads a text. Ends the process, with the line, if it cannot be read. */
void fw_trace_read(struct fw_trace *trace, const char *path);
void fw_trace_free(struct fw_trace *trace);

/* All objects of the trace together, if each takes `overhead` bytes beside its key and value. */
uint64_t fw_trace_footprint(const struct fw_trace *trace, uint32_t overhead);
