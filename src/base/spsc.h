/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded ring of pointers with one producer and one consumer.
 *
 * This is how one locality's turn sends to another's: each pair has a ring of its own, so neither
 * side waits for a lock or repeats an atomic operation. A full ring takes what fits and leaves the
 * rest with the sender; that is the back-pressure, nothing here waits for room. How a sleeping
 * receiver learns that its rings have filled is base/doorbell.h's business.
 *
 * A slot is its own flag: NULL means free. The producer looks at the slot it would fill, the
 * consumer at the one it would empty, and each keeps its position to itself. So nothing but the
 * messages moves between the cores: one cache line for every eight of them. A short answer is a
 * true one: the ring really was full, or empty, at that moment.
 *
 * Why not two shared counts, each side with a copy of the other's: that was measured too, with what
 * spsc_bench.c does. Every batch then moves a line for the count besides those of the messages, and
 * needs it first. Batches of 32 cost their sender 1.7 times as much, batches of four 1.6 times, and
 * a lone message takes 1.7 times as long to the other core and back.
 *
 * Ownership: the ring owns its slots, never the messages. A message is the sender's until push()
 * has counted it, and the receiver's once pop() returns it; in between nobody may touch it.
 *
 * Concurrency: one producer and one consumer at a time. Either role may pass to another thread with
 * something that orders their memory, as a hand-over of the turn does. init() and fini() while no
 * other thread can reach the ring.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/base.h"

enum { FW_SPSC_CAPACITY_MAX = 1 << 20 };

struct fw_spsc {
    /* Set by init(), constant until fini(). */
    _Atomic(void *) *slots;
    uint32_t capacity; /* A power of two. */

    alignas(FW_CACHE_LINE) uint64_t pushed; /* The producer's. 64 bits never wrap. */
    alignas(FW_CACHE_LINE) uint64_t popped; /* The consumer's. */
};

/*
 * Makes an empty ring of `capacity` messages. All memory is taken here and none later.
 * Returns 0, -ENOMEM, or -EINVAL unless capacity is a power of two in [2, FW_SPSC_CAPACITY_MAX].
 */
FW_MUST_CHECK int fw_spsc_init(struct fw_spsc *ring, uint32_t capacity);

/* Frees the slots. The ring must be empty: a message left inside would have no owner. */
void fw_spsc_fini(struct fw_spsc *ring);

/*
 * Appends the first of the `count` messages, none of them NULL, as many as there is room for, and
 * returns how many that was. Fewer than `count`: the ring was full after them.
 */
FW_MUST_CHECK uint32_t fw_spsc_push(struct fw_spsc *ring, void *const messages[], uint32_t count);

/*
 * Moves the oldest messages, at most `count_max`, into `messages` and returns how many. Fewer than
 * `count_max`: the ring was empty after them. They come in the order in which they were pushed, and
 * what one push() took appears at once.
 */
uint32_t fw_spsc_pop(struct fw_spsc *ring, void *messages[], uint32_t count_max);
