/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One word by which all senders of one receiver learn whether it sleeps.
 *
 * A receiver has many queues: a ring for each sending locality (base/spsc.h) and an inbox for all
 * other threads. Whoever has pushed to any of them rings; ring() answers whether this
 * sender is the one that must wake the receiver. How it is woken is not the doorbell's business:
 * fw_unpark(), fw_reactor_wake().
 *
 *     sender                                   receiver
 *     ------                                   --------
 *     push a batch to a queue                  for (;;) {
 *     if (fw_doorbell_ring(bell)) {                empty all queues, work
 *         wake the receiver                        fw_doorbell_arm(bell)
 *     }                                            if all queues are still empty: sleep
 *                                                  fw_doorbell_disarm(bell)
 *                                              }
 *
 *              arm                         One arming is answered by at most one sender, so a
 *     AWAKE ---------> ARMED               receiver is woken once, however many send to it while
 *       ^                |                 it is on its way up. To a receiver that is awake the
 *       +----------------+                 bell costs a sender one fence per batch and no cache
 *        ring or disarm                    line, for its line stays shared while nobody writes it.
 *
 * Why no wake-up is lost. The sender writes its queue and then reads the word, the receiver writes
 * the word and then reads the queues. Release and acquire let each read overtake the write before
 * it, and then both could miss the other's; so a sequentially consistent fence stands between the
 * two in ring() and in arm(). Fences have one order. If the sender's comes first, the receiver's
 * look at the queues finds the message; if the receiver's does, the sender finds ARMED, or else
 * AWAKE again because another sender took the duty to wake since, and the receiver will look.
 *
 * Two things its users must bear. A wake may come when the receiver has already found the message
 * itself, so its next sleep may end early. And a sender that is preempted between ring() and the
 * wake delays it: the others have been told that the receiver is being woken.
 *
 * Why not an exchange by every sender, which would need no fence: the word's cache line would then
 * go round all sending cores with every batch, busy receiver or not. Why not membarrier(2) by the
 * receiver, which would save the senders the fence: it interrupts every core of the process each
 * time that a receiver runs out of work.
 *
 * Concurrency: ring() from any thread; arm() and disarm() from the receiver.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/fence.h"
#include "base/thread.h"

enum { FW_DOORBELL_AWAKE = 0, FW_DOORBELL_ARMED = 1 };

struct fw_doorbell {
    alignas(FW_CACHE_LINE) _Atomic uint32_t word; /* A cache line of its own. */
};

static inline void fw_doorbell_init(struct fw_doorbell *bell)
{
    atomic_init(&bell->word, FW_DOORBELL_AWAKE);
}

/*
 * For a sender, after it has pushed, once for all messages of a batch. True: the caller must wake
 * the receiver.
 */
FW_MUST_CHECK static inline bool fw_doorbell_ring(struct fw_doorbell *bell)
{
    FW_YIELD_POINT("doorbell: ring, pushed");
    fw_fence_full(); /* Pairs with the fence in arm(). */
    if (FW_LIKELY(atomic_load_explicit(&bell->word, memory_order_relaxed) == FW_DOORBELL_AWAKE)) {
        return false;
    }
    FW_YIELD_POINT("doorbell: ring, found it armed");
    /* Relaxed, as all here: the word only says who wakes. Of many senders one gets ARMED back. */
    return atomic_exchange_explicit(&bell->word, FW_DOORBELL_AWAKE, memory_order_relaxed) ==
           FW_DOORBELL_ARMED;
}

/* For the receiver, before it looks at its queues for the last time and sleeps. */
static inline void fw_doorbell_arm(struct fw_doorbell *bell)
{
    FW_ASSERT(atomic_load_explicit(&bell->word, memory_order_relaxed) == FW_DOORBELL_AWAKE);
    atomic_store_explicit(&bell->word, FW_DOORBELL_ARMED, memory_order_relaxed);
    fw_fence_full(); /* Pairs with the fence in ring(). */
    FW_YIELD_POINT("doorbell: armed");
}

/*
 * For the receiver, after each arm(): when it has slept, or found a message and does not need to.
 * True: a sender answered this arming; its wake has come or will.
 */
static inline bool fw_doorbell_disarm(struct fw_doorbell *bell)
{
    FW_YIELD_POINT("doorbell: disarm");
    return atomic_exchange_explicit(&bell->word, FW_DOORBELL_AWAKE, memory_order_relaxed) ==
           FW_DOORBELL_AWAKE;
}
