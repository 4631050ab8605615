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
 * trace_file.c reads those of others, with a line per request, in any of these forms:
 *
 *     key bytes [seconds]     separated by spaces: the value's size, and how long it lives
 *     time,id,bytes[,...]     seconds, any name of the object, its size: as libCacheSim reads them
 *     time,key,key bytes,value bytes,client,operation,seconds
 *                             as Twitter published those of its caches
 *
 * The first line that is neither empty nor a comment (#) decides which of them it is; one of names
 * before the second or third is passed over. In Twitter's, get and gets are the requests. A value
 * is stored here after a miss, so the other operations only tell how large a value is and how
 * long it lives; a key that is never asked for takes no room.
 *
 * Lifetimes are in the trace's own seconds. A trace of a day is not replayed in a day: it is
 * compressed to FW_TRACE_RATE requests a second, and lifetimes with it, so that as many requests
 * come before an object expires as did then. Without times a lifetime is in seconds of the replay.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_TRACE_KEY_SIZE = 20,
    FW_TRACE_RATE = 200000,                    /* Requests a second, where time matters. */
    FW_TRACE_VALUE_MAX = 1024 * 1024 - 1024,   /* What servers take; larger ones are cut to it. */
    FW_TRACE_LIFETIME_MAX = 30 * 24 * 60 * 60, /* To servers, more is a date. */
};

struct fw_trace_object {
    uint32_t value_size;
    uint32_t lifetime; /* Seconds; 0: for ever. */
};

struct fw_trace {
    uint32_t *requests; /* Numbers of objects. */
    size_t request_count;
    struct fw_trace_object *objects;
    size_t object_count; /* Those that are asked for, numbered from 0. */
    size_t cut_count;    /* Objects larger than FW_TRACE_VALUE_MAX in the file. */
    uint64_t rate;       /* Requests a second, for traces in which time matters; else 0. */
};

extern const char *const fw_trace_names[]; /* NULL at the end. */

/* Ends the process if there is no such trace. */
void fw_trace_make(struct fw_trace *trace, const char *name, size_t objects, size_t requests,
                   uint64_t seed);

/*
 * Reads a file. Returns 0, or a negative errno with the reason: which line, and what is wrong with
 * it.
 */
FW_MUST_CHECK int fw_trace_read(struct fw_trace *trace, const char *path, struct fw_reason *reason);
void fw_trace_free(struct fw_trace *trace);

/* All objects of the trace together, if each takes `overhead` bytes beside its key and value. */
uint64_t fw_trace_footprint(const struct fw_trace *trace, uint32_t overhead);
