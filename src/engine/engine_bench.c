/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine costs per step, beside libuv where it has something alike.
 *
 *   engine-tick         1,000 foms that yield in turn: a trip through the run-queue and one tick.
 *                       Peer: 1,000 idle handles of libuv, which call back once per loop each.
 *   engine-tick-cold    the same with so many foms that each is out of the caches when it is its
 *                       turn. Peer: as many idle handles.
 *   engine-goto         phases of one fom that follow each other without a trip through the queue.
 *   engine-wake         foms in a ring that wake each other: arm, signal, park, timer, tick. Peer:
 * the two atomic operations among these, as a limit. engine-wake-shared  the same through channels
 * that any thread may signal. engine-cross        wake-ups of foms of another core, which is busy,
 * 32 per tick. Peer: libuv's async handles, woken from another thread. engine-cross-single the
 * same, one in each tick. Peer: a bare word that two cores write in turn, there and back, the
 * fastest that a cache line can travel.
 *
 * The calling thread is the holder of core 0's turn and runs its real loop, with clock, mail and
 * epoll; so all that the engine does around the ticks is in the figures. Core 1 has a thread of its
 * own.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/thread.h"
#include "bench/halves.h"
#include "bench/harness.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "engine/word.h"

enum { WARM = 1000, COLD = 400 * 1000, RING = 64, BATCH = 32, TARGETS = 960, SPINS_MAX = 2000 };

static struct fw_domain *domain;
static struct fw_handler holder;
static cpu_set_t cores;

static uint64_t left; /* Operations still to be done. */

static struct fw_core *core_zero(void)
{
    return &domain->cores[0];
}

/* Has the loop end after this round. */
static void loop_end(void)
{
    atomic_store_explicit(&core_zero()->must_exit, true, memory_order_relaxed);
}

static void loop_run(void)
{
    atomic_store_explicit(&core_zero()->must_exit, false, memory_order_relaxed);
    fw_core_run(core_zero(), &holder);
}

/* ---- foms ---------------------------------------------------------------------------------- */

enum { STEP = FW_PHASE_FIRST, STEP_ELSE };

struct bench_fom {
    struct fw_fom fom;
    struct fw_clink clink;
    struct fw_channel channel;
    struct fw_channel *next;
    bool is_token_here;
    char pad[39];
};

static enum fw_step yield_tick(struct fw_fom *fom)
{
    if (left == 0) {
        loop_end();
        return fw_fom_finish(fom);
    }
    left--;
    return fw_fom_yield(fom, STEP);
}

static enum fw_step goto_tick(struct fw_fom *fom)
{
    if (left == 0) {
        loop_end();
        return fw_fom_finish(fom);
    }
    left--;
    return fw_fom_goto(fom, fom->phase == STEP ? STEP_ELSE : STEP);
}

/* Has the token: passes it on. Has it not: waits for it. */
static enum fw_step ring_tick(struct fw_fom *fom)
{
    struct bench_fom *self = FW_FOM_OF(fom, struct bench_fom);
    fw_fom_arm(fom, &self->clink, &self->channel);
    if (fw_fom_domain(fom)->state != FW_DOMAIN_NORMAL || left == 0) {
        (void)fw_channel_signal(self->next);
        loop_end();
        return fw_fom_finish(fom);
    }
    if (self->is_token_here) {
        left--;
        self->is_token_here = false;
        FW_CONTAINER_OF(self->next, struct bench_fom, channel)->is_token_here = true;
        (void)fw_channel_signal(self->next);
    }
    return fw_fom_wait(fom, STEP);
}

static const struct fw_phase phases[] = {
    {"STEP", FW_PHASE_BIT(STEP_ELSE) | FW_PHASE_BIT(FW_PHASE_FINISHED), true},
    {"STEP_ELSE", FW_PHASE_BIT(STEP) | FW_PHASE_BIT(FW_PHASE_FINISHED), true},
};

/* Limited waits, as requests have them: each starts a timer. */
static const struct fw_phase limited_phases[] = {
    {"STEP", FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

#define BENCH_TYPE(type_name, type_phases, function)                                              \
    {                                                                                             \
        .name = (type_name), .size = sizeof(struct bench_fom), .limit_count = COLD + 1000,        \
        .phases = (type_phases), .phase_count = FW_ARRAY_LENGTH(type_phases), .tick = (function), \
    }

static const struct fw_fom_type yield_type = BENCH_TYPE("yield", phases, yield_tick);
static const struct fw_fom_type goto_type = BENCH_TYPE("goto", phases, goto_tick);
static const struct fw_fom_type ring_type = BENCH_TYPE("ring", limited_phases, ring_tick);

static struct bench_fom *make(const struct fw_fom_type *type, uint32_t locality)
{
    struct fw_fom *fom;
    int rc = fw_fom_create(&fom, domain, type, fw_domain_locality(domain, locality));
    FW_ASSERT(rc == 0);
    return FW_FOM_OF(fom, struct bench_fom);
}

/* Lets the foms that are left come to their ends. */
static void drain(void)
{
    while (atomic_load(&core_zero()->live_count) > 0) {
        loop_end();
        fw_core_run(core_zero(), &holder);
    }
}

/* `state` is how many foms. */
static void yield_run(void *state, uint64_t count)
{
    size_t foms = *(const size_t *)state;
    for (size_t i = 0; i < foms; i++) {
        fw_fom_start(&make(&yield_type, 0)->fom);
    }
    left = count;
    loop_run();
    drain();
}

static void goto_run(void *state, uint64_t count)
{
    (void)state;
    left = count;
    fw_fom_start(&make(&goto_type, 0)->fom);
    loop_run();
    drain();
}

/* `state`: whether channels are shared. */
static void ring_run(void *state, uint64_t count)
{
    bool is_shared = *(const bool *)state;
    struct bench_fom *foms[RING];
    for (int i = 0; i < RING; i++) {
        foms[i] = make(&ring_type, 0);
        if (is_shared) {
            fw_channel_init_shared(&foms[i]->channel, domain);
        } else {
            fw_channel_init(&foms[i]->channel);
        }
    }
    for (int i = 0; i < RING; i++) {
        foms[i]->next = &foms[(i + 1) % RING]->channel;
        fw_fom_start(&foms[i]->fom);
    }
    foms[0]->is_token_here = true;
    left = count;
    loop_run();
    drain();
}

/* ---- across -------------------------------------------------------------------------------- */

/* Of core 1: parked, woken by core 0, counts. */
struct target_fom {
    struct fw_fom fom;
    struct fw_ticket *own;
};

static uint64_t target_ticks;         /* Core 1's. */
static _Atomic uint64_t remote_ticks; /* The same, for core 0 to read. */
static uint64_t sent;                 /* To be compared with it. */
static atomic_bool remote_stop;
static struct fw_ticket targets[TARGETS];
static _Atomic uint32_t target_count;

static enum fw_step target_tick(struct fw_fom *fom)
{
    struct target_fom *self = FW_FOM_OF(fom, struct target_fom);
    if (self->own->fom == NULL) {
        *self->own = fw_fom_ticket(fom);
        atomic_fetch_add(&target_count, 1);
    }
    if (atomic_load_explicit(&remote_stop, memory_order_relaxed)) {
        return fw_fom_finish(fom);
    }
    /* Told now and then: else it would be the count that is measured, going to and fro. */
    if (++target_ticks % BATCH == 0) {
        atomic_store_explicit(&remote_ticks, target_ticks, memory_order_relaxed);
    }
    return fw_fom_wait(fom, STEP);
}

/* Keeps a core awake. */
static enum fw_step busy_tick(struct fw_fom *fom)
{
    return atomic_load_explicit(&remote_stop, memory_order_relaxed) ? fw_fom_finish(fom)
                                                                    : fw_fom_yield(fom, STEP);
}

/*
 * Of core 0: wakes up to `most` targets in each tick, one after the other, and none that has not
 * had its tick since: what is counted is wake-ups that a tick has answered.
 */
static enum fw_step wake_targets(struct fw_fom *fom, uint32_t most)
{
    uint64_t answered = atomic_load_explicit(&remote_ticks, memory_order_relaxed);
    for (uint32_t i = 0; i < most && left > 0 && sent - answered < TARGETS; i++) {
        fw_ticket_wake(targets[sent % TARGETS]);
        sent++;
        left--;
    }
    if (left == 0) {
        loop_end();
        return fw_fom_finish(fom);
    }
    return fw_fom_yield(fom, STEP);
}

static enum fw_step batch_tick(struct fw_fom *fom)
{
    return wake_targets(fom, BATCH);
}

static enum fw_step single_tick(struct fw_fom *fom)
{
    return wake_targets(fom, 1);
}

/* The memory of those of the last run may still be on its way back to the core that made them. */
#define TARGET_TYPE(type_name, function)                                                    \
    {                                                                                       \
        .name = (type_name), .size = sizeof(struct target_fom), .limit_count = 2 * TARGETS, \
        .phases = phases, .phase_count = FW_ARRAY_LENGTH(phases), .tick = (function)        \
    }

static const struct fw_fom_type target_type = TARGET_TYPE("target", target_tick);
static const struct fw_fom_type busy_type = TARGET_TYPE("busy", busy_tick);
static const struct fw_fom_type batch_type = TARGET_TYPE("batch", batch_tick);
static const struct fw_fom_type single_type = TARGET_TYPE("single", single_tick);

static struct target_fom *make_target(const struct fw_fom_type *type, uint32_t locality)
{
    struct fw_fom *fom;
    int rc = fw_fom_create(&fom, domain, type, fw_domain_locality(domain, locality));
    FW_ASSERT(rc == 0);
    return FW_FOM_OF(fom, struct target_fom);
}

/* Core 0's loop for a moment, so that what it has sent goes out and what came is taken in. */
static void loop_once(void)
{
    loop_end();
    fw_core_run(core_zero(), &holder);
}

static void remote_begin(uint32_t count)
{
    memset(targets, 0, sizeof targets);
    atomic_store(&target_count, 0);
    atomic_store(&remote_stop, false);
    target_ticks = 0;
    atomic_store(&remote_ticks, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct target_fom *target = make_target(&target_type, 1);
        target->own = &targets[i];
        fw_fom_start(&target->fom);
    }
    fw_fom_start(&make_target(&busy_type, 1)->fom);
    while (atomic_load(&target_count) < count) {
        loop_once();
    }
    sent =
        atomic_load(&remote_ticks); /* Each has had one tick, and all of them make whole BATCHes. */
}

static void remote_end(uint32_t count)
{
    atomic_store(&remote_stop, true);
    for (uint32_t i = 0; i < count; i++) {
        fw_ticket_wake(targets[i]);
    }
    while (atomic_load(&core_zero()->live_count) + atomic_load(&domain->cores[1].live_count) > 0) {
        loop_once();
    }
}

/* `state` is the type of the waker. */
static void cross_run(void *state, uint64_t count)
{
    const struct fw_fom_type *const *type = state;
    remote_begin(TARGETS);
    left = count;
    fw_fom_start(&make_target(*type, 0)->fom);
    loop_run();
    remote_end(TARGETS);
}

/* ---- peers --------------------------------------------------------------------------------- */

static void idle_called(uv_idle_t *handle)
{
    if (left == 0 || --left == 0) {
        uv_stop(handle->loop);
    }
}

static void uv_idle_run(void *state, uint64_t count)
{
    size_t handles = *(const size_t *)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    uv_idle_t *idle = calloc(handles, sizeof *idle);
    for (size_t i = 0; i < handles; i++) {
        uv_idle_init(&loop, &idle[i]);
        uv_idle_start(&idle[i], idle_called);
    }
    left = count;
    uv_run(&loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < handles; i++) {
        uv_close((uv_handle_t *)&idle[i], NULL);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    free(idle);
}

static void call_run(void *state, uint64_t count)
{
    (void)state;
    for (uint64_t i = 0; i < count; i++) {
        fw_bench_use(i);
    }
}

/* What a wake-up and a park cannot do without. */
static void swap_run(void *state, uint64_t count)
{
    (void)state;
    static _Atomic uint64_t word;
    for (uint64_t i = 0; i < 2 * count; i++) {
        uint64_t seen = atomic_load_explicit(&word, memory_order_relaxed);
        (void)atomic_compare_exchange_strong(&word, &seen, seen + 1);
    }
}

static struct {
    uv_loop_t loop;
    uv_async_t handles[BATCH];
    _Atomic uint64_t called;
    atomic_bool stop;
} uv_other;

static void async_called(uv_async_t *handle)
{
    (void)handle;
    uint64_t called = atomic_load_explicit(&uv_other.called, memory_order_relaxed);
    atomic_store_explicit(&uv_other.called, called + 1, memory_order_relaxed);
}

static void async_busy(uv_idle_t *handle)
{
    if (atomic_load_explicit(&uv_other.stop, memory_order_relaxed)) {
        uv_stop(handle->loop);
    }
}

static void uv_other_run(void *argument)
{
    (void)argument;
    fw_bench_take_half(&cores, true);
    uv_run(&uv_other.loop, UV_RUN_DEFAULT);
}

/* A handle is sent to again when it was called: libuv merges what comes before. */
static void uv_async_run(void *state, uint64_t count)
{
    (void)state;
    uv_loop_init(&uv_other.loop);
    atomic_store(&uv_other.called, 0);
    atomic_store(&uv_other.stop, false);
    uv_idle_t busy;
    uv_idle_init(&uv_other.loop, &busy);
    uv_idle_start(&busy, async_busy);
    for (int i = 0; i < BATCH; i++) {
        uv_async_init(&uv_other.loop, &uv_other.handles[i], async_called);
    }
    struct fw_thread thread;
    int rc = fw_thread_create(&thread, "libuv", uv_other_run, NULL);
    FW_ASSERT(rc == 0);
    for (uint64_t done = 0; done < count; done += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            uv_async_send(&uv_other.handles[i]);
        }
        for (uint32_t spins = 0; atomic_load(&uv_other.called) < done + BATCH; spins++) {
            if (spins > SPINS_MAX) {
                (void)sched_yield();
            }
        }
    }
    atomic_store(&uv_other.stop, true);
    fw_thread_join(&thread);
    uv_close((uv_handle_t *)&busy, NULL);
    for (int i = 0; i < BATCH; i++) {
        uv_close((uv_handle_t *)&uv_other.handles[i], NULL);
    }
    uv_run(&uv_other.loop, UV_RUN_DEFAULT);
    uv_loop_close(&uv_other.loop);
}

static struct {
    alignas(FW_CACHE_LINE) _Atomic uint64_t word;
    uint64_t count;
} bare;

static void bare_await(uint64_t value)
{
    for (uint32_t spins = 0; atomic_load_explicit(&bare.word, memory_order_acquire) != value;) {
        if (++spins > SPINS_MAX) {
            spins = 0;
            (void)sched_yield();
        }
    }
}

static void bare_other(void *argument)
{
    (void)argument;
    fw_bench_take_half(&cores, true);
    for (uint64_t i = 0; i < bare.count; i++) {
        bare_await(2 * i + 1);
        atomic_store_explicit(&bare.word, 2 * i + 2, memory_order_release);
    }
}

static void bare_run(void *state, uint64_t count)
{
    (void)state;
    atomic_store(&bare.word, 0);
    bare.count = count;
    struct fw_thread thread;
    int rc = fw_thread_create(&thread, "other", bare_other, NULL);
    FW_ASSERT(rc == 0);
    for (uint64_t i = 0; i < count; i++) {
        atomic_store_explicit(&bare.word, 2 * i + 1, memory_order_release);
        bare_await(2 * i + 2);
    }
    fw_thread_join(&thread);
}

/* ---- all together -------------------------------------------------------------------------- */

static void domain_make(void)
{
    static const struct fw_fom_type *const types[] = {
        &yield_type, &goto_type, &ring_type, &target_type, &busy_type, &batch_type, &single_type};
    struct fw_domain_config config = {.locality_count = 2, .is_pinned = true};
    int rc = fw_domain_create(&domain, &config);
    FW_ASSERT(rc == 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(types); i++) {
        rc = fw_domain_add_type(domain, types[i]);
        FW_ASSERT(rc == 0);
    }
    atomic_store(&domain->state, FW_DOMAIN_NORMAL);
    rc = fw_core_add_handler(&domain->cores[1]);
    FW_ASSERT(rc == 0);
    holder.core = core_zero();
    fw_participant_attach(&holder.safety, domain);
    fw_safety_online(&holder.safety);
    fw_thread_self()->turn = core_zero();
    fw_thread_self()->handler = &holder;
    core_zero()->holder = &holder;
}

int main(int argc, char **argv)
{
    static size_t warm = WARM;
    static size_t cold = COLD;
    static bool local = false;
    static bool shared = true;
    (void)sched_getaffinity(0, sizeof cores, &cores);
    domain_make(); /* Before this thread is bound: then the domain would know only its CPUs. */
    fw_bench_take_half(&cores, false);
    static const struct fw_fom_type *batched = &batch_type;
    static const struct fw_fom_type *single = &single_type;
    const struct fw_bench benches[] = {
        {"engine-tick",
         "ns per tick",
         {"1,000 foms that yield", yield_run, &warm},
         {"libuv, 1,000 idle handles", uv_idle_run, &warm},
         1.0,
         2000000,
         35},
        {"engine-tick-cold",
         "ns per tick",
         {"400,000 foms that yield", yield_run, &cold},
         {"libuv, 400,000 idle handles", uv_idle_run, &cold},
         1.5,
         4000000,
         0},
        {"engine-goto",
         "ns per phase",
         {"one fom, phase after phase", goto_run, NULL},
         {"an empty loop", call_run, NULL},
         100,
         2000000,
         35},
        {"engine-wake",
         "ns per wake-up",
         {"a ring of 64 foms", ring_run, &local},
         {"two compare-and-swaps", swap_run, NULL},
         10,
         1000000,
         60},
        {"engine-wake-shared",
         "ns per wake-up",
         {"a ring, shared channels", ring_run, &shared},
         {"two compare-and-swaps", swap_run, NULL},
         20,
         1000000,
         0},
        {"engine-cross",
         "ns per wake-up",
         {"foms of a busy core", cross_run, &batched},
         {"libuv, 32 async handles", uv_async_run, NULL},
         0.2,
         1000000,
         60},
        {"engine-cross-single",
         "ns per wake-up",
         {"one at a time", cross_run, &single},
         {"a bare cache line, and back", bare_run, NULL},
         2.0,
         500000,
         0},
    };
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
