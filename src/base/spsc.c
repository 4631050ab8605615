/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spsc.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"

static_assert(offsetof(struct fw_spsc, pushed) / FW_CACHE_LINE !=
                  offsetof(struct fw_spsc, popped) / FW_CACHE_LINE,
              "producer and consumer must not share a cache line");

static _Atomic(void *) *spsc_slot(const struct fw_spsc *ring, uint64_t index)
{
    return &ring->slots[index & (ring->capacity - 1)];
}

int fw_spsc_init(struct fw_spsc *ring, uint32_t capacity)
{
    bool power_of_two = (capacity & (capacity - 1)) == 0;
    if (capacity < 2 || capacity > FW_SPSC_CAPACITY_MAX || !power_of_two) {
        return -EINVAL; /* Not an assertion: the capacity comes from the configuration file. */
    }
    /* Whole cache lines, so that no stranger's writes disturb the first and the last slots. */
    size_t size = capacity * sizeof *ring->slots;
    _Atomic(void *) *slots =
        aligned_alloc(FW_CACHE_LINE, size < FW_CACHE_LINE ? FW_CACHE_LINE : size);
    if (slots == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        atomic_init(&slots[i], NULL);
    }

    ring->slots = slots;
    ring->capacity = capacity;
    ring->pushed = 0;
    ring->popped = 0;
    return 0;
}

void fw_spsc_fini(struct fw_spsc *ring)
{
    FW_ASSERT(ring->slots != NULL);
    FW_ASSERT(ring->pushed == ring->popped);

    free(ring->slots);
    ring->slots = NULL; /* A later use fails its assertion. */
}

/*
 * How many of `count` slots from the producer's position on are free. They are freed in order, so
 * that if the last is free, all are; mostly this is one look at a slot the consumer left long ago.
 */
static uint32_t spsc_room(const struct fw_spsc *ring, uint32_t count)
{
    uint32_t room = count < ring->capacity ? count : ring->capacity;
    FW_YIELD_POINT("spsc: push looks for room");
    /* Acquire, for the release in pop(): the slots before it were freed before it was. */
    while (room > 0 && atomic_load_explicit(spsc_slot(ring, ring->pushed + room - 1),
                                            memory_order_acquire) != NULL) {
        room--;
    }
    return room;
}

uint32_t fw_spsc_push(struct fw_spsc *ring, void *const messages[], uint32_t count)
{
    FW_ASSERT(ring->slots != NULL);
    FW_ASSERT(messages != NULL);

    uint32_t taken = spsc_room(ring, count);
    uint64_t pushed = ring->pushed;
    /*
     * From the last to the first. The consumer waits at the first, so it sees the batch whole, and
     * does not take the cache lines away while they are being filled.
     */
    for (uint32_t i = taken; i > 0; i--) {
        FW_ASSERT(messages[i - 1] != NULL);
        FW_YIELD_POINT("spsc: push fills a slot");
        /* Release, for the acquire in pop(): who sees the pointer sees the message. */
        atomic_store_explicit(spsc_slot(ring, pushed + i - 1), messages[i - 1],
                              memory_order_release);
    }
    ring->pushed = pushed + taken;
    return taken;
}

uint32_t fw_spsc_pop(struct fw_spsc *ring, void *messages[], uint32_t count_max)
{
    FW_ASSERT(ring->slots != NULL);
    FW_ASSERT(messages != NULL);
    FW_ASSERT(count_max > 0);

    uint64_t popped = ring->popped;
    uint32_t count = 0;
    for (; count < count_max; count++) {
        _Atomic(void *) *slot = spsc_slot(ring, popped + count);
        FW_YIELD_POINT("spsc: pop looks at a slot");
        /* Acquire, for the release in push(). */
        void *message = atomic_load_explicit(slot, memory_order_acquire);
        if (message == NULL) {
            break;
        }
        messages[count] = message;
        /* Release, for the acquire in spsc_room(): it takes this slot's word for those before. */
        atomic_store_explicit(slot, NULL, memory_order_release);
    }
    ring->popped = popped + count;
    return count;
}
