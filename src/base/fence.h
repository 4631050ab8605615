/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pair of fences, one of them nearly free.
 *
 * Two threads each write one word and then read the other's, and at least one must see what the
 * other wrote: the core of "I am inside" against "nobody may enter", of "there is work" against "I
 * go to sleep". It takes a sequentially consistent fence on both sides, some 9 ns each. Where one
 * side does it millions of times a second and the other now and then, the rare side can pay for
 * both: it asks the kernel (membarrier(2)) to run a fence on every core that runs a thread of this
 * process, and the frequent side only keeps its compiler from reordering.
 *
 *     often                                    seldom
 *     -----                                    ------
 *     write my word                            write my word
 *     fw_fence_light()                         fw_fence_heavy()
 *     read the other's                         read the other's
 *
 * Until fw_fence_prepare() has been called, and for ever where the kernel has no membarrier or a
 * sandbox forbids it, light is a true fence and the pair is right all the same. base/doorbell.h
 * uses fw_fence_full() on both sides: its receiver sleeps and wakes too often to interrupt others.
 *
 * In the simulator memory is sequentially consistent and both are nothing. Any thread may call
 * anything here.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/base.h"

/* Makes light() cheap if the kernel can. Once it is, it stays so; calling again is harmless. */
void fw_fence_prepare(void);

/* True from the moment that heavy() does the work of both. */
FW_INTERNAL extern atomic_bool fw_fence_is_asymmetric;

/*
 * Orders the caller's writes before its later reads. gcc warns that its thread sanitizer does not
 * see fences; nothing is published by this one.
 */
static inline void fw_fence_full(void)
{
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

static inline void fw_fence_light(void)
{
    /* Relaxed: true is only ever seen after the kernel has registered us. */
    if (FW_LIKELY(atomic_load_explicit(&fw_fence_is_asymmetric, memory_order_relaxed))) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        fw_fence_full();
    }
}

/* Costs a system call, and an interrupt of every other core that runs a thread of ours. */
void fw_fence_heavy(void);
