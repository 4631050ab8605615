/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of resources: how much of something clients have taken, and no more than there is. An
 * extension of yrmcds, with a protocol of its own (counter_protocol.c), off unless asked for.
 *
 * A counter has a name and a consumption. A client acquires some of it and says how much there is
 * in all; it gets them if the consumption stays within that, and releases them later. The counter
 * does not keep how much there is: each client says what it believes, so that it can be changed
 * without telling the server. What a client has acquired is a claim of its connection, and what is
 * claimed when the connection ends goes back: a client that dies takes nothing with it.
 *
 *     consumption of a counter = the sum of all claims on it
 *
 * A counter is made by the first who acquires it. With a consumption of 0 it is idle, and is kept
 * for the sake of its peak: the most that was consumed in the present interval, for who wants to
 * know how much would be enough. Idle counters of an earlier interval are dropped, a few by each
 * acquire(); those of the present one too, the oldest first, if there is no memory left.
 *
 * Intervals are numbered by the clock, and a counter's peak is that of the interval in which it was
 * last touched. So nothing happens when an interval ends: a peak of another interval is no peak,
 * and until somebody touches the counter its consumption is what it was.
 *
 * Limits: names have up to FW_COUNTERS_NAME_MAX bytes, so that a request fits where all requests
 * are read and a row of the dump where all replies are written. Counters and claims together take
 * no more than the memory that is configured; beyond it nothing new is acquired.
 *
 * Threads: any. One mutex of rank FW_RANK_COUNTERS, a leaf, for all of it: an operation is
 * two look-ups. Locks for parts of the table would let two localities in at a time, and make
 * dropping idle counters, the limit and the dump take them all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/list.h"

enum { FW_COUNTERS_NAME_MAX = 8192 };

struct fw_counters;

struct fw_counters_config {
    uint64_t memory;     /* Bytes for counters and claims; at least FW_COUNTERS_MEMORY_MIN. */
    uint32_t interval_s; /* At least 1. */
};
enum { FW_COUNTERS_MEMORY_MIN = 64 * 1024 };

/* What one connection has claimed; a member of what stands for the connection. */
struct fw_counters_client {
    struct fw_list claims; /* Under the mutex; but only its own connection adds to it. */
};

static inline void fw_counters_client_init(struct fw_counters_client *client)
{
    fw_list_init(&client->claims);
}

struct fw_counters_name {
    const char *bytes;
    size_t length; /* 1 to FW_COUNTERS_NAME_MAX. */
};

enum fw_counters_answer {
    FW_COUNTERS_OK,
    FW_COUNTERS_NOT_FOUND,
    FW_COUNTERS_NOT_AVAILABLE, /* It would be more than there is. */
    FW_COUNTERS_NOT_ACQUIRED,  /* The client has not that much. */
    FW_COUNTERS_NO_MEMORY,
};

/* `seed` is for hashes. 0 or -ENOMEM. */
FW_MUST_CHECK int fw_counters_create(struct fw_counters **counters,
                                     const struct fw_counters_config *config, uint64_t seed);
/* No client has a claim any more. NULL is nothing. */
void fw_counters_destroy(struct fw_counters *counters);

/* In all these, `now` is in seconds. The clocks of two callers may differ a little. */

/* Claims `count`, at least 1, of `total`, at least `count`. */
enum fw_counters_answer fw_counters_acquire(struct fw_counters *counters,
                                            struct fw_counters_client *client,
                                            const struct fw_counters_name *name, uint32_t count,
                                            uint32_t total, uint32_t now);

/* Gives `count` back, of what this client has claimed; 0 is nothing, of a counter that is there. */
enum fw_counters_answer fw_counters_release(struct fw_counters *counters,
                                            struct fw_counters_client *client,
                                            const struct fw_counters_name *name, uint32_t count,
                                            uint32_t now);

/* Gives all back. */
void fw_counters_release_all(struct fw_counters *counters, struct fw_counters_client *client,
                             uint32_t now);

enum fw_counters_answer fw_counters_get(struct fw_counters *counters,
                                        const struct fw_counters_name *name, uint32_t *consumption);

/* A counter as a visitor sees it. The name is lent. */
struct fw_counters_row {
    struct fw_counters_name name;
    uint32_t consumption;
    uint32_t peak;
};

/*
 * Shows the counters of one of the lists that all are in, under the mutex, and moves *cursor, which
 * begins with 0, to the next list. True: that was the last.
 */
bool fw_counters_visit(struct fw_counters *counters, uint64_t *cursor, uint32_t now,
                       void (*visit)(const struct fw_counters_row *row, void *context),
                       void *context);

struct fw_counters_stats {
    uint64_t counters;       /* Now. */
    uint64_t counters_made;  /* Ever. */
    uint64_t claims;         /* Now. */
    uint64_t memory_used;    /* Of memory_limit. */
    uint64_t memory_limit;   /* As configured. */
    uint64_t acquired_count; /* Times that something was acquired. */
    uint64_t refused_count;  /* Times that there was not enough. */
};
void fw_counters_stats(struct fw_counters *counters, struct fw_counters_stats *stats);
