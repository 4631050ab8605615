/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop that the holder of a core's turn runs.
 *
 *     round:  clock, timers, mail, some ticks, bells, safe point, then the outside:
 *             without waiting if foms are ready, else asleep until something happens.
 *
 * Everything that costs more than a tick (the clock, epoll) is done once per round; mail is sent
 * and received after each slice of its ticks. A core with nothing to do sleeps in its reactor's own
 * wait, and whoever has mail for it rings the bell, which wakes the reactor: one place to sleep and
 * one way to be woken, for sockets, timers, mail and returning threads alike.
 */
#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "io/clock.h"

enum { OVERFLOW_RETRY_NS = 1000 * 1000, DELAY_WEIGHT = 16 };
enum { ROUND_NS = 20 * 1000, ROUND_TICKS_MIN = 16, ROUND_TICKS_MAX = 1024, SLICE_TICKS = 64 };

/* Tells the watchdog of a fom that has been ready for too long, once until none is. */
static void observe_late(struct fw_core *core, const struct fw_fom *oldest, int64_t delay)
{
    if (FW_LIKELY(delay < core->domain->config.stall_ns)) {
        core->is_late = false;
        return;
    }
    struct fw_late_board *late = &core->late;
    /* Acquire, for the release of the watchdog, which has read what was there. */
    if (!core->is_late && !atomic_load_explicit(&late->is_full, memory_order_acquire)) {
        core->is_late = true;
        late->type = oldest->type;
        late->fom_id = oldest->id;
        late->phase = oldest->phase;
        late->duration_ns = delay;
        /* Release, for the acquire of the watchdog. */
        atomic_store_explicit(&late->is_full, true, memory_order_release);
    }
}

/* The time that foms at the head of the queue have waited for a tick, averaged over rounds. */
static void observe_delay(struct fw_core *core)
{
    int64_t delay = 0;
    const struct fw_fom *oldest = NULL;
    for (unsigned level = 0; level < FW_FOM_PRIORITIES; level++) {
        const struct fw_fom *fom = core->queue.levels[level].first;
        if (fom != NULL && core->now - fom->since > delay) {
            delay = core->now - fom->since;
            oldest = fom;
        }
    }
    core->queue_delay_ns += (delay - core->queue_delay_ns) / DELAY_WEIGHT;
    observe_late(core, oldest, delay);
}

/*
 * A round that is full should last about ROUND_NS, whatever a tick costs: shorter ones would waste
 * time on looks at the outside, longer ones keep the outside waiting.
 */
static void round_adapt(struct fw_core *core, int64_t now)
{
    int64_t lasted = now - core->now;
    if (lasted < ROUND_NS / 2 && core->round_ticks < ROUND_TICKS_MAX) {
        core->round_ticks *= 2;
    } else if (lasted > ROUND_NS && core->round_ticks > ROUND_TICKS_MIN) {
        core->round_ticks /= 2;
    }
}

/* Returns the round's number if it is measured, else 0. */
static uint64_t round_begin(struct fw_core *core)
{
    int64_t now = fw_clock_now_ns();
    if (core->queue.length > 0) {
        round_adapt(core, now); /* The last one was full, or this one will be. */
    }
    core->now = now;
    fw_trace_adopt(core);
    uint64_t sampled = fw_sample_begin(core);
    core->is_watched = core->is_observed || core->trace != NULL || sampled != 0;
    (void)fw_wheel_advance(&core->wheel, core->now);
    (void)fw_mail_receive(core);
    /* Acquire, for the release in domain.c: the state has changed before. */
    if (FW_UNLIKELY(atomic_load_explicit(&core->must_stir, memory_order_relaxed)) &&
        atomic_exchange_explicit(&core->must_stir, false, memory_order_acquire)) {
        fw_core_stir(core);
    }
    fw_core_take_permits(core);
    observe_delay(core);
    fw_balance_round(core);
    fw_counter_increment(&core->metrics->rounds);
    return sampled;
}

/* How long it took another thread to get this core, which slept, to its first tick. */
static void observe_wake(struct fw_core *core)
{
    core->was_woken = false;
    /* Relaxed: a figure. One that is from before this sleep was written late, for another. */
    int64_t woken_ns = atomic_load_explicit(&core->woken_ns, memory_order_relaxed);
    int64_t now = fw_clock_now_ns();
    if (woken_ns >= core->slept_ns && now >= woken_ns) {
        fw_histogram_record(&core->metrics->wake_latency, (uint64_t)(now - woken_ns));
    }
}

/*
 * The ticks of a round, in slices. What other cores have sent costs little to look at, so that is
 * done after each; and a thread that waits for its turn is not kept for a whole round. Neither is
 * the outside: how many ticks a round has was found with the foms of earlier ones, and those of
 * this one may be a hundred times as long, so the first slice is short and the clock is read.
 */
static void ticks_run(struct fw_core *core)
{
    uint32_t left = core->round_ticks;
    uint32_t slice_max = ROUND_TICKS_MIN;
    for (;;) {
        uint32_t slice = left < slice_max ? left : slice_max;
        fw_core_run_ticks(core, slice);
        left -= slice;
        slice_max = SLICE_TICKS;
        /* Relaxed: the loop looks again, with acquire. */
        bool is_wanted = atomic_load_explicit(&core->returning_count, memory_order_relaxed) > 0;
        if (left == 0 || is_wanted) {
            return;
        }
        (void)fw_mail_flush(core);
        if (fw_mail_receive(core) == 0 && core->queue.length == 0) {
            return;
        }
        if (fw_clock_now_ns() - core->now > ROUND_NS) {
            return;
        }
    }
}

static void round_run(struct fw_core *core)
{
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_ticks_begin(core);
    }
    if (FW_UNLIKELY(core->was_woken) && core->queue.length > 0) {
        observe_wake(core);
    }
    ticks_run(core);
    /* Relaxed, both: figures, the first for other cores to choose by. */
    atomic_store_explicit(&core->queue_length, core->queue.length, memory_order_relaxed);
    int64_t live = atomic_load_explicit(&core->live_count, memory_order_relaxed);
    fw_gauge_set(&core->metrics->run_queue, core->queue.length);
    fw_gauge_set(&core->metrics->foms_live, live);
}

/* Something that only the loop itself can see to. Acquire, for the releases of who asks. */
static bool is_interrupted(const struct fw_core *core)
{
    return atomic_load_explicit(&core->returning_count, memory_order_acquire) > 0 ||
           atomic_load_explicit(&core->must_exit, memory_order_acquire) ||
           atomic_load_explicit(&core->must_stir, memory_order_relaxed);
}

static int64_t sleep_limit(const struct fw_core *core, bool is_flushed)
{
    int64_t next = fw_wheel_next(&core->wheel);
    int64_t limit = next == FW_WHEEL_NEVER ? -1 : next - core->now;
    if (next != FW_WHEEL_NEVER && limit < 0) {
        limit = 0;
    }
    if (!is_flushed && (limit < 0 || limit > OVERFLOW_RETRY_NS)) {
        limit = OVERFLOW_RETRY_NS;
    }
    return limit;
}

/* Nothing is to be done before `limit_ns` has passed or somebody wakes this core. */
static void core_sleep(struct fw_core *core, struct fw_handler *handler, int64_t limit_ns)
{
    uint64_t begun = FW_UNLIKELY(core->is_watched) ? fw_clock_ticks() : 0;
    fw_counter_increment(&core->metrics->sleeps);
    fw_balance_asleep(core);
    fw_safety_offline(&handler->safety);
    /* That may have granted quiescence, and so have woken foms: of others, or of this core. */
    (void)fw_mail_flush(core);
    fw_reactor_wait(core->reactor, core->queue.length > 0 ? 0 : limit_ns);
    fw_safety_online(&handler->safety);
    core->now = fw_clock_now_ns();
    fw_balance_awake(core);
    if (FW_UNLIKELY(core->is_watched)) {
        core->sample.asleep += fw_clock_ticks() - begun;
        if (core->trace != NULL) {
            fw_trace_slept(core, begun);
        }
    }
}

static void look_outside(struct fw_core *core, struct fw_handler *handler, bool is_flushed)
{
    if (core->queue.length > 0) {
        fw_reactor_wait(core->reactor, 0);
    } else {
        core->slept_ns = core->now;
        core->was_woken = false;
        fw_doorbell_arm(&core->bell);
        fw_core_take_permits(core);
        bool has_work = fw_mail_receive(core) > 0 || core->queue.length > 0 || is_interrupted(core);
        int64_t limit = 0;
        if (!has_work) {
            core->now = fw_clock_now_ns();
            limit = sleep_limit(core, is_flushed);
        }
        if (limit == 0) {
            fw_reactor_wait(core->reactor, 0);
        } else {
            core_sleep(core, handler, limit);
        }
        if (fw_doorbell_disarm(&core->bell)) {
            fw_counter_increment(&core->metrics->woken);
            core->was_woken = limit != 0;
        }
    }
    (void)fw_reactor_dispatch(core->reactor);
}

void fw_core_run(struct fw_core *core, struct fw_handler *handler)
{
    for (;;) {
        uint64_t sampled = round_begin(core);
        round_run(core);
        bool is_flushed = fw_mail_flush(core);
        fw_safety_pass(&handler->safety);
        if (FW_UNLIKELY(is_interrupted(core)) &&
            !atomic_load_explicit(&core->must_stir, memory_order_relaxed)) {
            return;
        }
        look_outside(core, handler, is_flushed);
        if (FW_UNLIKELY(sampled != 0) && sampled == core->sample.round) {
            fw_sample_end(core);
        }
    }
}
