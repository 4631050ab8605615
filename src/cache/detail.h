/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `stats detail` counts: gets, hits, sets and deletes per prefix of the keys, which is what
 * stands before the first colon. Keys without one are not counted.
 *
 * It is off until somebody asks for it, and then costs a lock per command: it is for finding out
 * what an application does, not for leaving on. While it is off it costs one load.
 *
 * At most FW_DETAIL_PREFIXES_MAX prefixes are told apart; keys of further ones are counted nowhere.
 * memcached has no such limit, and so clients can fill its memory.
 *
 * Threads: any. Locks: one, of rank FW_RANK_DETAIL, a leaf.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/mutex.h"
#include "cache/item.h"

enum { FW_DETAIL_PREFIXES_MAX = 10000 };

enum { FW_DETAIL_BUCKETS = 4096 };

struct fw_detail_prefix;

/* Its members are detail.c's, but for the switch. */
struct fw_detail {
    /* Relaxed: who asks right after it was changed may see the old. */
    _Atomic bool is_on;
    struct fw_mutex lock; /* FW_RANK_DETAIL; guards all below. */
    uint64_t seed;        /* Of the hash: clients choose what is hashed. Constant. */
    uint32_t count;
    struct fw_detail_prefix *buckets[FW_DETAIL_BUCKETS];
};

enum fw_detail_event { FW_DETAIL_GET, FW_DETAIL_HIT, FW_DETAIL_SET, FW_DETAIL_DELETE };

FW_MUST_CHECK int fw_detail_create(struct fw_detail **detail, uint64_t seed);
void fw_detail_destroy(struct fw_detail *detail);

void fw_detail_enable(struct fw_detail *detail, bool is_on);
static inline bool fw_detail_is_on(const struct fw_detail *detail)
{
    return atomic_load_explicit(&detail->is_on, memory_order_relaxed);
}

/* FW_DETAIL_HIT counts a get that was a hit. Call it if fw_detail_is_on(). */
void fw_detail_count(struct fw_detail *detail, const struct fw_key *key,
                     enum fw_detail_event event);

/* Forgets all that was counted. */
void fw_detail_reset(struct fw_detail *detail);

/*
 * Shows some prefixes, each as the line of `stats detail dump` without what ends it, and says
 * whether others follow: whoever counts waits for the lock, so it is not kept for all of them.
 * *next is 0 at first.
 */
bool fw_detail_visit(struct fw_detail *detail, uint64_t *next,
                     void (*visit)(void *context, const char *line, size_t length), void *context);
