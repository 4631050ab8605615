/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine itself costs: rounds that are measured, and locks that had to be waited for.
 */
#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"
#include "io/clock.h"

enum { SAMPLE_EVERY = 64 };

uint64_t fw_sample_begin(struct fw_core *core)
{
    uint64_t number = fw_counter_get(&core->metrics->rounds) + 1; /* 0 stands for none. */
    if (FW_LIKELY(number % SAMPLE_EVERY != 1)) {
        core->sample.round = 0;
        return 0;
    }
    core->sample = (struct fw_sample){.round = number, .begun = fw_clock_ticks()};
    return number;
}

void fw_sample_end(struct fw_core *core)
{
    struct fw_sample *sample = &core->sample;
    uint64_t total = fw_clock_ticks() - sample->begun;
    /* A counter that jumped, because the thread went to another processor, tells nothing. */
    if (sample->asleep <= total && sample->in_ticks <= total - sample->asleep) {
        fw_counter_add(&core->metrics->sampled_cycles, total - sample->asleep);
        fw_counter_add(&core->metrics->sampled_tick_cycles, sample->in_ticks);
    }
    sample->round = 0;
}

/* The rare case of the two below. */
static void lock_contended(struct fw_mutex *lock, struct fw_domain *domain) FW_TSA_TRUSTED
{
    struct fw_core *self = fw_core_self();
    if (self == NULL || self->domain != domain) {
        fw_mutex_lock(lock);
        /* Relaxed: a figure. Atomic, because several threads may be here under several locks. */
        atomic_fetch_add_explicit(&domain->metrics->lock_waits.value, 1, memory_order_relaxed);
        return;
    }
    int64_t begun_ns = fw_clock_now_ns();
    fw_mutex_lock(lock);
    fw_counter_increment(&self->metrics->lock_waits);
    fw_histogram_record(&self->metrics->lock_wait, (uint64_t)(fw_clock_now_ns() - begun_ns));
}

FW_TSA_TRUSTED void fw_shared_lock(struct fw_mutex *lock)
{
    if (FW_UNLIKELY(!fw_mutex_trylock(lock))) {
        lock_contended(lock, FW_CONTAINER_OF(lock, struct fw_shared_lock, mutex)->domain);
    }
}

FW_TSA_TRUSTED void fw_core_lock(struct fw_core *core)
{
    if (FW_UNLIKELY(!fw_mutex_trylock(&core->lock))) {
        lock_contended(&core->lock, core->domain);
    }
}
