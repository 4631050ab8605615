/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for bodies: values too large for a record.
 *
 * A body has a *run* of pages to itself. Runs come in sizes of quarter powers of two, so that at
 * most a fifth of one is unused, and each size has a region of addresses of its own, large enough
 * for the whole limit: a run never changes its size, so nothing is ever fragmented, whatever sizes
 * come. It is memory that moves between the sizes, not addresses: a run that is given back to the
 * system leaves only its addresses behind, and those cost nothing. (Only where `ulimit -v` bounds
 * them the regions are smaller.)
 *
 * A run that was freed is kept for the next body of its size for a while, since pages that are
 * there already are worth a few microseconds; these stay charged, are at most a part of the limit,
 * and go first when memory is short.
 *
 * Threads: any, also to free a body that another made. The lock is held for a few instructions and
 * never while the system is asked for something, but for addresses that were never used.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "cache/budget.h"
#include "cache/item.h"
#include "io/range.h"

enum {
    FW_BODY_SIZES = 69,
    FW_BODY_KEPT_SHARE = 64, /* Of free runs one part in so many of the limit is kept. */
};

/* The longest value that can have a body. */
#define FW_BODY_LENGTH_MAX (UINT32_C(1) << 30)

struct fw_run_kept {
    struct fw_run_kept *next;
};

struct fw_run_size {
    uint64_t fresh;           /* Runs from here on were never used. */
    struct fw_run_kept *kept; /* Free with their memory, the last freed first; linked inside. */
    uint32_t *released;       /* Free without: a stack of their numbers. */
    uint64_t released_count;
};

struct fw_bodies {
    struct fw_range runs;     /* One region of `region` bytes for each size. */
    struct fw_range released; /* The stacks. */
    struct fw_budget *budget;
    uint64_t region;
    size_t unit;
    struct fw_mutex lock;        /* FW_RANK_TABLE_BODIES. Guards all below. */
    _Atomic uint64_t kept_bytes; /* Written under the lock; read by those who clean ahead. */
    bool is_kept_used;           /* One was taken since fw_bodies_release_unused(). */
    struct fw_run_size sizes[FW_BODY_SIZES];
};

FW_MUST_CHECK int fw_bodies_init(struct fw_bodies *bodies, struct fw_budget *budget,
                                 uint64_t memory_max, struct fw_reason *reason);
void fw_bodies_fini(struct fw_bodies *bodies);

/* How much memory a body of that length takes. */
uint64_t fw_bodies_size(const struct fw_bodies *bodies, uint32_t length);

/* With one reference, or NULL: it is not within the budget. */
struct fw_body *fw_bodies_take(struct fw_bodies *bodies, uint32_t length);

/* The last reference is gone. */
void fw_bodies_free(struct fw_bodies *bodies, struct fw_body *body);

/* Gives one kept run back to the budget. False: none is kept. */
bool fw_bodies_release(struct fw_bodies *bodies);

/* The same for who asks now and then: not if one was taken since. */
bool fw_bodies_release_unused(struct fw_bodies *bodies);
