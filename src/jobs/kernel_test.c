/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the kernel starts, stops, and accounts for every request; posting, rejoining and cancelling
 * answer as promised; requests run in the order and within the limits that they should.
 * Method: workers are held at a gate, so that what waits behind them is known exactly; for races
 * many threads post and rejoin at once (the simulator explores those step by step). No test looks
 * at a clock; what must happen is waited for.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/random.h"
#include "support/fail_memory.h"
#include "support/jobs.h"

static struct fw_jobs_policy policy;

static int setup(void **state)
{
    (void)state;
    fw_jobs_policy_init(&policy);
    policy.workers = 4;
    policy.slots = 100;
    policy.review_interval_ns = 1000000;
    return 0;
}

/* J1, J25 */
static void test_policy(void **state)
{
    (void)state;
    struct fw_jobs_reason reason;
    assert_int_equal(fw_jobs_policy_check(&policy, &reason), 0);
#define REFUSED(field, value, word)                                     \
    do {                                                                \
        struct fw_jobs_policy bad = policy;                             \
        bad.field = (value);                                            \
        assert_int_equal(fw_jobs_policy_check(&bad, &reason), -EINVAL); \
        assert_non_null(strstr(reason.text, word));                     \
        struct fw_jobs *none;                                           \
        assert_int_equal(fw_jobs_create(&none, &bad, NULL), -EINVAL);   \
    } while (0)
    REFUSED(workers, 0, "workers");
    REFUSED(workers, 500, "workers");
    REFUSED(slots, 0, "slots");
    REFUSED(slots, FW_JOBS_SLOTS_MAX + 1, "slots");
    REFUSED(owners, 0, "owners");
    REFUSED(owners, FW_JOBS_OWNERS_MAX + 1, "owners");
    REFUSED(mode, 8, "mode");
    REFUSED(workers_active, 5, "active");
    REFUSED(workers_active, 3, "need one each");
    REFUSED(boost, -1, "boost");
    REFUSED(boost, 1001, "boost");
    REFUSED(ageing_interval_ns, 0, "intervals");
    REFUSED(review_interval_ns, 999, "intervals");
    REFUSED(idle_spins, 2000000, "spins");
    REFUSED(hand, 0, "hand");
    REFUSED(hand, FW_JOBS_HAND_MAX + 1, "hand");
    REFUSED(lanes_used, 7, "lane 3");
    /* What could hang. */
    REFUSED(lane_percent[1], 0, "no share");
    REFUSED(lane_percent[1], 101, "percent");
    REFUSED(lane_percent[1], 100, "workers");
    REFUSED(slots, 3, "slots");
    REFUSED(lane_waits_for[2], 4, "their own lane");
    REFUSED(lane_waits_for[2], 2, "their own lane");
    REFUSED(mode, 0, "do not limit both");
    REFUSED(mode, FW_JOBS_LANES_WORKERS, "do not limit both");
    REFUSED(mode, FW_JOBS_LANES_SLOTS, "do not limit both");
#undef REFUSED
    policy.mode = FW_JOBS_UNCHECKED;
    assert_int_equal(fw_jobs_policy_check(&policy, &reason), 0);
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    assert_int_equal(fw_jobs_policy_check(&policy, &reason), 0);
}

/* J1: read back; J5: changed settings are adopted. */
static void test_settings(void **state)
{
    (void)state;
    struct fw_jobs_policy now;
    policy.ageing = true;
    policy.boost = 3;
    struct fw_jobs *jobs = jobs_start(&policy);
    fw_jobs_policy_get(jobs, &now);
    assert_int_equal(now.workers, 4);
    assert_int_equal(now.workers_active, 4);
    assert_int_equal(now.boost, 3);
    assert_true(now.ageing);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_WORKERS_ACTIVE, 3), -EINVAL);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_WORKERS_ACTIVE, 5), -EINVAL);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_AGEING_INTERVAL_NS, 0), -EINVAL);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_TIMING, 2), -EINVAL);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SETTINGS, 0), -EINVAL);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_AGEING_INTERVAL_NS, 5000), 0);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_TIMING, 1), 0);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_AUTONOMIC, 1), 0);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_REVIEW_INTERVAL_NS, 2000000), 0);
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_WORKERS_ACTIVE, 4), 0);
    struct fw_jobs_statistics statistics;
    do {
        pause_briefly();
        fw_jobs_statistics(jobs, &statistics);
    } while (statistics.adopted < 5);
    assert_true(statistics.reviews > 0);
    fw_jobs_policy_get(jobs, &now);
    assert_int_equal(now.ageing_interval_ns, 5000);
    assert_int_equal(now.review_interval_ns, 2000000);
    assert_true(now.timing && now.autonomic);
    jobs_end(jobs);
}

/* J2 */
static void test_start_stop(void **state)
{
    (void)state;
    policy.workers = 5;
    struct fw_jobs_reason reason;
    for (int i = 0; i < 1000; i++) {
        struct fw_jobs *jobs = jobs_make(&policy);
        assert_int_equal(fw_jobs_start(jobs, &reason), 0);
        assert_int_equal(fw_jobs_start(jobs, &reason), -EALREADY);
        assert_non_null(strstr(reason.text, "before"));
        assert_int_equal(fw_jobs_stop(jobs, i % 2 == 0 ? FW_JOBS_DRAIN : FW_JOBS_ABANDON, NULL), 0);
        assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL), -EALREADY);
        fw_jobs_destroy(jobs);
    }
    struct fw_jobs *never = jobs_make(&policy);
    assert_int_equal(fw_jobs_stop(never, FW_JOBS_DRAIN, NULL), -EALREADY);
    fw_jobs_destroy(never);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct fw_jobs *jobs;
    struct fw_jobs_reason reason;
    for (int i = 0; i < 7; i++) {
        fail_memory_after(i);
        assert_int_equal(fw_jobs_create(&jobs, &policy, &reason), -ENOMEM);
        assert_non_null(strstr(reason.text, "no memory"));
    }
    fail_memory_after(1000);
    jobs = jobs_make(&policy);
    /* The owners' records are made when they are first needed. */
    struct gated request = {0};
    fail_memory_after(0);
    assert_int_equal(fw_jobs_post(jobs, &request.job, &gated_runnable, &request, 0, 0), -ENOMEM);
    assert_int_equal(fw_job_state(&request.job), FW_JOB_FREE);
    fail_memory_after(1000);
    fw_jobs_destroy(jobs);
}

/* J3 */
struct numbered {
    struct fw_job job;
    struct fw_jobs *jobs;
    _Atomic int thread; /* That ran it, */
    int poster;         /* and that posted it. */
};

static void numbered_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct numbered *numbered = FW_CONTAINER_OF(job, struct numbered, job);
    numbered->thread = fw_jobs_thread_id(numbered->jobs);
}
static struct fw_job_runnable numbered_runnable = {.run = numbered_run};

static void attached_run(void *argument)
{
    struct numbered *numbered = argument;
    struct fw_job *back;
    assert_int_equal(fw_jobs_thread_id(numbered->jobs), -ESRCH);
    assert_int_equal(fw_jobs_attach(numbered->jobs), 0);
    assert_int_equal(fw_jobs_attach(numbered->jobs), -EBUSY);
    numbered->poster = fw_jobs_thread_id(numbered->jobs);
    assert_true(numbered->poster >= FW_JOBS_THREAD_ATTACHED);
    assert_int_equal(fw_jobs_post(numbered->jobs, &numbered->job, &numbered_runnable, numbered, 0,
                                  FW_JOB_REJOINABLE),
                     0);
    assert_int_equal(fw_jobs_rejoin_wait(numbered->jobs, numbered, 0, FW_JOBS_FOREVER, &back),
                     FW_REJOIN_RETURNED);
    fw_jobs_detach(numbered->jobs);
    assert_int_equal(fw_jobs_thread_id(numbered->jobs), -ESRCH);
}

/* J3, J11 */
static void test_thread_numbers(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_start(&policy);
    assert_int_equal(fw_jobs_thread_id(jobs), FW_JOBS_THREAD_MAIN);
    struct numbered numbered[2] = {{.jobs = jobs}, {.jobs = jobs}};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(numbered); i++) {
        struct fw_thread thread;
        assert_int_equal(fw_thread_create(&thread, "foreign", attached_run, &numbered[i]), 0);
        fw_thread_join(&thread);
        assert_in_range(numbered[i].thread, 1, policy.workers);
    }
    assert_int_not_equal(numbered[0].poster, numbered[1].poster); /* No number is given twice. */
    jobs_end(jobs);
}

/* J7: the pool, then a lane. */
static void test_full(void **state)
{
    (void)state;
    policy.workers = 10;
    policy.lanes_used = 0xE;
    policy.lane_percent[0] = 0;
    struct fw_jobs *jobs = jobs_make(&policy); /* Not started: nothing leaves the pool. */
    static struct gated requests[200];
    struct gate gate = {.is_open = true};
    memset(requests, 0, sizeof requests);
    int next = 0, rc;
    const struct {
        uint32_t flags;
        int room;
        int full;
    } steps[] = {
        {FW_JOB_FEEDER, 20, -EBUSY}, {FW_JOB_UNIT, 20, -EBUSY},   {FW_JOB_PART, 60, -EAGAIN},
        {FW_JOB_UNIT, 0, -EAGAIN},   {FW_JOB_FEEDER, 0, -EAGAIN},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(steps); i++) {
        int taken = 0;
        do {
            requests[next].gate = &gate;
            rc = fw_jobs_post(jobs, &requests[next].job, &gated_runnable, requests, 0,
                              steps[i].flags | FW_JOB_REJOINABLE);
            taken += rc == 0 ? 1 : 0;
            next += rc == 0 ? 1 : 0;
        } while (rc == 0);
        assert_int_equal(rc, steps[i].full);
        assert_int_equal(taken, steps[i].room);
    }
    assert_int_equal(next, 100);
    assert_int_equal(
        fw_jobs_post(jobs, &requests[next].job, &gated_runnable, requests, 0, FW_JOB_SERVICE),
        -EINVAL); /* A lane that is not used. */
    assert_int_equal(fw_jobs_post(jobs, &requests[next].job, &gated_runnable, requests, 0, 1 << 8),
                     -EINVAL);
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    assert_int_equal(statistics.refused_lane, 2);
    assert_int_equal(statistics.refused_pool, 3);
    assert_int_equal(statistics.waiting[1], 20);
    assert_int_equal(statistics.waiting[3], 60);

    assert_int_equal(fw_jobs_start(jobs, NULL), 0);
    assert_int_equal(rejoin_all(jobs, requests), 100);
    jobs_end(jobs);
}

/* A thread that posts with WAIT_IF_BUSY, and says when it is through. */
struct poster {
    struct fw_jobs *jobs;
    struct gated request;
    uint32_t flags;
    int result;
    atomic_bool through;
};

static void poster_run(void *argument)
{
    struct poster *poster = argument;
    poster->result = fw_jobs_post(poster->jobs, &poster->request.job, &gated_runnable, poster, 0,
                                  poster->flags | FW_JOB_WAIT_IF_BUSY | FW_JOB_REJOINABLE);
    atomic_store(&poster->through, true);
}

static void await_waited(struct fw_jobs *jobs, uint64_t count)
{
    struct fw_jobs_statistics statistics;
    do {
        pause_briefly();
        fw_jobs_statistics(jobs, &statistics);
    } while (statistics.waited < count);
}

/* J7: waits until there is a slot. */
static void test_wait_if_busy(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    policy.slots = 1;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false}, open = {.is_open = true};
    struct gated held = {.gate = &gate}, full = {.gate = &open};
    assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, &held, 0, FW_JOB_REJOINABLE),
                     0);
    gate_await(&gate, 1);
    assert_int_equal(fw_jobs_post(jobs, &full.job, &gated_runnable, &held, 0, FW_JOB_REJOINABLE),
                     0);
    struct poster posters[3];
    struct fw_thread threads[3];
    for (int i = 0; i < 3; i++) {
        posters[i] = (struct poster){.jobs = jobs, .request = {.gate = &open}};
        assert_int_equal(fw_thread_create(&threads[i], "poster", poster_run, &posters[i]), 0);
    }
    await_waited(jobs, 3);
    assert_false(posters[0].through || posters[1].through || posters[2].through);
    atomic_store(&gate.is_open, true);
    for (int i = 0; i < 3; i++) {
        fw_thread_join(&threads[i]);
        assert_int_equal(posters[i].result, 0);
        assert_int_equal(rejoin_all(jobs, &posters[i]), 1);
    }
    assert_int_equal(rejoin_all(jobs, &held), 2);
    jobs_end(jobs);
}

/* J9 */
static void test_states(void **state)
{
    (void)state;
    policy.workers = 4;
    struct fw_jobs *jobs = jobs_make(&policy);
    struct gate gate = {.is_open = false};
    struct gated request = {.gate = &gate};
    struct fw_job *back;
    assert_int_equal(fw_job_state(&request.job), FW_JOB_FREE);
    assert_int_equal(fw_jobs_post(jobs, &request.job, &gated_runnable, &gate, 0, FW_JOB_REJOINABLE),
                     0);
    assert_int_equal(fw_job_state(&request.job), FW_JOB_POSTED);
    expect_assert_failure(
        (void)(fw_jobs_post(jobs, &request.job, &gated_runnable, &gate, 0, 0) == 0));
    struct fw_jobs_owner_statistics statistics;
    assert_int_equal(fw_jobs_owner_statistics(jobs, &gate, &statistics), 0);
    assert_int_equal(fw_job_state(&request.job), FW_JOB_READY);
    assert_int_equal(statistics.waiting, 1);
    assert_int_equal(fw_jobs_start(jobs, NULL), 0);
    gate_await(&gate, 1);
    assert_int_equal(fw_job_state(&request.job), FW_JOB_BUSY);
    assert_int_equal(fw_jobs_rejoin(jobs, &gate, &back), FW_REJOIN_NONE_READY);
    atomic_store(&gate.is_open, true);
    while (fw_job_state(&request.job) != FW_JOB_DONE) {
        pause_briefly();
    }
    while (fw_jobs_rejoin(jobs, &gate, &back) != FW_REJOIN_RETURNED) {
        pause_briefly();
    }
    assert_ptr_equal(back, &request.job);
    assert_int_equal(fw_job_state(&request.job), FW_JOB_FREE);
    assert_int_equal(fw_jobs_rejoin(jobs, &gate, &back), FW_REJOIN_NONE_EXIST);
    assert_int_equal(fw_jobs_owner_statistics(jobs, &gate, &statistics), -ENOENT);
    jobs_end(jobs);
}

/* J10: all combinations of the flags do what each says. */
static void test_flags(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = true};
    for (uint32_t flags = 0; flags <= FW_JOB_FLAGS; flags++) {
        struct gated request = {.gate = &gate};
        uint32_t before = atomic_load(&gate.arrived);
        assert_int_equal(fw_jobs_post(jobs, &request.job, &gated_runnable, &request, 7, flags), 0);
        bool rejoinable = (flags & FW_JOB_REJOINABLE) != 0;
        assert_int_equal(rejoin_all(jobs, &request), rejoinable ? 1 : 0);
        assert_int_equal(atomic_load(&gate.arrived), before + 1);
        assert_int_equal(fw_job_lane(flags), 3 - (flags & 3));
    }
    jobs_end(jobs);
}

/* J12: owners are compared, never followed. */
static void test_owners_are_addresses(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_make(&policy);
    struct gate gate = {.is_open = true};
    static struct gated requests[20];
    memset(requests, 0, sizeof requests);
    for (uintptr_t i = 0; i < 20; i++) {
        requests[i].gate = &gate;
        const void *owner = (const void *)(i / 2); /* NULL is one as any other. */
        assert_int_equal(
            fw_jobs_post(jobs, &requests[i].job, &gated_runnable, owner, 0, FW_JOB_REJOINABLE), 0);
    }
    assert_int_equal(fw_jobs_start(jobs, NULL), 0);
    struct fw_job *back;
    assert_int_equal(fw_jobs_rejoin(jobs, (const void *)UINTPTR_MAX, &back), FW_REJOIN_NONE_EXIST);
    for (uintptr_t i = 0; i < 10; i++) {
        assert_int_equal(rejoin_all(jobs, (const void *)i), 2);
    }
    jobs_end(jobs);
}

/* The number of owners has a limit, and they come back. */
static void test_owners_limit(void **state)
{
    (void)state;
    policy.owners = 3;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false};
    for (int round = 0; round < 3; round++) {
        struct gated requests[4] = {{.gate = &gate}, {.gate = &gate}, {.gate = &gate}};
        atomic_store(&gate.is_open, false);
        for (int i = 0; i < 4; i++) {
            int rc = fw_jobs_post(jobs, &requests[i].job, &gated_runnable, &requests[i], 0,
                                  FW_JOB_REJOINABLE);
            assert_int_equal(rc, i < 3 ? 0 : -ENOMEM);
        }
        atomic_store(&gate.is_open, true);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(rejoin_all(jobs, &requests[i]), 1);
        }
    }
    jobs_end(jobs);
}

/* Requests that note when they ran. */
struct noted {
    struct fw_job job;
    int number;
};
static int notes[1000];
static _Atomic uint32_t note_count;

static void noted_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    notes[atomic_fetch_add(&note_count, 1)] = FW_CONTAINER_OF(job, struct noted, job)->number;
}
static struct fw_job_runnable noted_runnable = {.run = noted_run};

/* J18: the worker is held while a hundred requests are posted; then they run in exact order. */
static void test_priority_order(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    policy.slots = 1000;
    static struct noted requests[1000];
    static int32_t priorities[1000];
    for (uint64_t seed = 1; seed < 5; seed++) {
        struct fw_random draw;
        fw_random_init(&draw, seed);
        struct fw_jobs *jobs = jobs_start(&policy);
        struct gate gate = {.is_open = false};
        struct gated held = {.gate = &gate};
        atomic_store(&note_count, 0);
        assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, &held, 0, 0), 0);
        gate_await(&gate, 1);
        for (int i = 0; i < 1000; i++) {
            priorities[i] = (int32_t)fw_random_below(&draw, 20) - 10;
            requests[i] = (struct noted){.number = i};
            uint32_t lane = (uint32_t)fw_random_below(&draw, 4);
            assert_int_equal(fw_jobs_post(jobs, &requests[i].job, &noted_runnable, &requests,
                                          priorities[i], lane),
                             0);
        }
        atomic_store(&gate.is_open, true);
        jobs_end(jobs);
        assert_int_equal(note_count, 1000);
        for (int i = 1; i < 1000; i++) {
            int before = notes[i - 1], after = notes[i];
            assert_true(priorities[before] > priorities[after] ||
                        (priorities[before] == priorities[after] && before < after));
        }
    }
}

/* J21, J22: lanes limit what runs; who is held back is passed over, and comes when it can. */
static void test_lanes_on_workers(void **state)
{
    (void)state;
    policy.workers = 10;
    policy.lanes_used = 0xE;
    policy.lane_percent[0] = 0;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate units = {.is_open = false}, feeders = {.is_open = false}, parts = {.is_open = true};
    struct gated unit[6], feeder[3], part = {.gate = &parts};
    for (int i = 0; i < 6; i++) {
        unit[i] = (struct gated){.gate = &units};
        assert_int_equal(fw_jobs_post(jobs, &unit[i].job, &gated_runnable, &units, 5,
                                      FW_JOB_UNIT | FW_JOB_REJOINABLE),
                         0);
    }
    gate_await(&units, 4);
    for (int i = 0; i < 3; i++) {
        feeder[i] = (struct gated){.gate = &feeders};
        assert_int_equal(fw_jobs_post(jobs, &feeder[i].job, &gated_runnable, &feeders, 9,
                                      FW_JOB_FEEDER | FW_JOB_REJOINABLE),
                         0);
    }
    /* Less urgent than all that is held back, but its lane has room. */
    assert_int_equal(fw_jobs_post(jobs, &part.job, &gated_runnable, &parts, -9, FW_JOB_REJOINABLE),
                     0);
    assert_int_equal(rejoin_all(jobs, &parts), 1);
    assert_int_equal(atomic_load(&units.arrived), 4);
    assert_int_equal(atomic_load(&feeders.arrived), 0);
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    assert_int_equal(statistics.running[2], 4);
    assert_int_equal(statistics.waiting[2], 2);
    assert_int_equal(statistics.waiting[1], 3);

    atomic_store(&units.is_open, true);
    gate_await(&feeders, 2); /* They are more urgent than the two units that are left. */
    assert_int_equal(rejoin_all(jobs, &units), 6);
    assert_int_equal(atomic_load(&feeders.arrived), 2);
    atomic_store(&feeders.is_open, true);
    assert_int_equal(rejoin_all(jobs, &feeders), 3);
    jobs_end(jobs);
}

/* J26: a slot is free once its request runs. */
static void test_slot_freed_at_dispatch(void **state)
{
    (void)state;
    policy.workers = 4;
    policy.slots = 4;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false};
    struct gated requests[9];
    for (int i = 0; i < 9; i++) {
        requests[i] = (struct gated){.gate = &gate};
        int rc = fw_jobs_post(jobs, &requests[i].job, &gated_runnable, &gate, 0, FW_JOB_REJOINABLE);
        assert_int_equal(rc, i < 8 ? 0 : -EAGAIN); /* Four run, four wait. */
        if (i < 4) {
            gate_await(&gate, (uint32_t)i + 1); /* J26: there is an idle worker for each. */
        }
    }
    atomic_store(&gate.is_open, true);
    assert_int_equal(rejoin_all(jobs, &gate), 8);
    jobs_end(jobs);
}

/* J17: cancel. */
static _Atomic uint32_t completed_count;
static _Atomic uint32_t completed_cancelled;

static void completed_note(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    atomic_fetch_add(&completed_count, 1);
    if (fw_job_was_cancelled(job)) {
        atomic_fetch_add(&completed_cancelled, 1);
    }
}
static struct fw_job_runnable completing_runnable = {.run = gated_run, .completed = completed_note};

static void until_cancelled_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct numbered *numbered = FW_CONTAINER_OF(job, struct numbered, job);
    assert_false(fw_jobs_is_cancelled(numbered->jobs));
    numbered->thread = 1;
    while (!fw_jobs_is_cancelled(numbered->jobs)) {
        pause_briefly();
    }
}
static struct fw_job_runnable until_cancelled = {.run = until_cancelled_run};

/* What a worker has in hand goes before what comes later, however urgent, and can be cancelled. */
static void test_hand(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    policy.hand = 3;
    for (int cancel = 0; cancel <= 1; cancel++) {
        struct fw_jobs *jobs = jobs_start(&policy);
        struct gate gates[2] = {{.is_open = false}, {.is_open = false}};
        struct gated held[2] = {{.gate = &gates[0]}, {.gate = &gates[1]}};
        struct noted requests[4];
        atomic_store(&note_count, 0);
        assert_int_equal(fw_jobs_post(jobs, &held[0].job, &gated_runnable, held, 0, 0), 0);
        gate_await(&gates[0], 1);
        assert_int_equal(fw_jobs_post(jobs, &held[1].job, &gated_runnable, held, 0, 0), 0);
        for (int i = 0; i < 3; i++) {
            requests[i] = (struct noted){.number = i};
            assert_int_equal(fw_jobs_post(jobs, &requests[i].job, &noted_runnable, requests, 0, 0),
                             0);
        }
        atomic_store(&gates[0].is_open, true);
        gate_await(&gates[1], 1); /* It runs, and two of the three are in the worker's hand. */
        requests[3] = (struct noted){.number = 3};
        assert_int_equal(fw_jobs_post(jobs, &requests[3].job, &noted_runnable, &gates, 9, 0), 0);
        if (cancel == 1) {
            struct fw_jobs_owner_statistics statistics;
            assert_int_equal(fw_jobs_owner_statistics(jobs, requests, &statistics), 0);
            assert_int_equal(statistics.waiting, 3);
            assert_int_equal(statistics.dispatched, 0);
            assert_int_equal(fw_jobs_cancel(jobs, requests), 3);
        }
        atomic_store(&gates[1].is_open, true);
        struct fw_jobs_account account;
        assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, &account), 0);
        fw_jobs_destroy(jobs);
        assert_int_equal(account.run, cancel == 1 ? 3 : 6);
        assert_int_equal(note_count, cancel == 1 ? 1 : 4);
        static const int order[] = {0, 1, 3, 2};
        for (int i = 0; i < 4 && cancel == 0; i++) {
            assert_int_equal(notes[i], order[i]);
        }
    }
}

/* A limit that is lowered holds at once, also for what a worker has in hand. */
static void test_hand_and_limits(void **state)
{
    (void)state;
    policy.workers = 2;
    policy.mode = FW_JOBS_UNCHECKED;
    policy.hand = 4;
    policy.review_interval_ns = 1000000;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gates[3] = {{.is_open = false}, {.is_open = false}, {.is_open = false}};
    struct gated held[3] = {{.gate = &gates[0]}, {.gate = &gates[1]}, {.gate = &gates[2]}};
    struct noted requests[3];
    struct fw_jobs_statistics statistics;
    atomic_store(&note_count, 0);
    for (int i = 0; i < 2; i++) { /* Both workers are busy, */
        assert_int_equal(fw_jobs_post(jobs, &held[i].job, &gated_runnable, held, 0, 0), 0);
        gate_await(&gates[i], 1);
    }
    assert_int_equal(fw_jobs_post(jobs, &held[2].job, &gated_runnable, held, 9, 0), 0);
    for (int i = 0; i < 3; i++) {
        requests[i] = (struct noted){.number = i};
        assert_int_equal(fw_jobs_post(jobs, &requests[i].job, &noted_runnable, requests, 0, 0), 0);
    }
    atomic_store(&gates[1].is_open, true);
    gate_await(&gates[2], 1); /* and one of them has two requests in hand. */
    assert_int_equal(fw_jobs_set(jobs, FW_JOBS_SET_WORKERS_ACTIVE, 1), 0);
    do {
        pause_briefly();
        fw_jobs_statistics(jobs, &statistics);
    } while (statistics.adopted == 0);
    atomic_store(&gates[2].is_open, true);
    do {
        pause_briefly();
        fw_jobs_statistics(jobs, &statistics);
    } while (statistics.run < 2);
    assert_int_equal(atomic_load(&note_count), 0); /* The other one is the only one that may. */
    atomic_store(&gates[0].is_open, true);
    jobs_end(jobs);
    assert_int_equal(atomic_load(&note_count), 3);
}

static void test_cancel(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false};
    struct gated held = {.gate = &gate}, requests[10], other = {.gate = &gate};
    atomic_store(&completed_count, 0);
    atomic_store(&completed_cancelled, 0);
    assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, &held, 0, 0), 0);
    gate_await(&gate, 1);
    for (uint32_t i = 0; i < 10; i++) {
        requests[i] = (struct gated){.gate = &gate};
        assert_int_equal(fw_jobs_post(jobs, &requests[i].job, &completing_runnable, requests,
                                      (int32_t)i % 3, i % 2 == 0 ? FW_JOB_REJOINABLE : 0),
                         0);
    }
    assert_int_equal(
        fw_jobs_post(jobs, &other.job, &completing_runnable, &other, 0, FW_JOB_REJOINABLE), 0);
    assert_int_equal(fw_jobs_cancel(jobs, &completed_count), 0);
    assert_int_equal(fw_jobs_cancel(jobs, requests), 10);
    assert_int_equal(atomic_load(&completed_cancelled), 10);
    struct fw_job *back;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(fw_jobs_rejoin(jobs, requests, &back), FW_REJOIN_RETURNED);
        assert_ptr_equal(back, &requests[2 * i].job); /* In the order of posting. */
        assert_true(fw_job_was_cancelled(back));
    }
    assert_int_equal(fw_jobs_rejoin(jobs, requests, &back), FW_REJOIN_NONE_EXIST);
    atomic_store(&gate.is_open, true);
    assert_int_equal(fw_jobs_rejoin_wait(jobs, &other, 0, FW_JOBS_FOREVER, &back),
                     FW_REJOIN_RETURNED);
    assert_false(fw_job_was_cancelled(back));
    assert_int_equal(atomic_load(&gate.arrived), 2);
    /* A cancelled request can be posted again, and runs. */
    assert_int_equal(
        fw_jobs_post(jobs, &requests[0].job, &completing_runnable, requests, 0, FW_JOB_REJOINABLE),
        0);
    assert_int_equal(rejoin_all(jobs, requests), 1);
    assert_false(fw_job_was_cancelled(&requests[0].job));

    /* One that runs is told. */
    struct numbered running = {.jobs = jobs};
    assert_int_equal(
        fw_jobs_post(jobs, &running.job, &until_cancelled, &running, 0, FW_JOB_REJOINABLE), 0);
    while (atomic_load(&running.thread) == 0) {
        pause_briefly();
    }
    assert_int_equal(fw_jobs_cancel(jobs, &running), 0);
    assert_int_equal(rejoin_all(jobs, &running), 1);
    assert_false(fw_jobs_is_cancelled(jobs));
    jobs_end(jobs);
}

/* J30 */
static void test_abandon(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct numbered running = {.jobs = jobs};
    struct gate gate = {.is_open = true};
    struct gated requests[5], late = {.gate = &gate};
    assert_int_equal(
        fw_jobs_post(jobs, &running.job, &until_cancelled, &running, 0, FW_JOB_REJOINABLE), 0);
    while (atomic_load(&running.thread) == 0) {
        pause_briefly();
    }
    for (int i = 0; i < 5; i++) {
        requests[i] = (struct gated){.gate = &gate};
        assert_int_equal(fw_jobs_post(jobs, &requests[i].job, &gated_runnable, requests, 0,
                                      i < 3 ? FW_JOB_REJOINABLE : 0),
                         0);
    }
    struct fw_jobs_account account;
    assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_ABANDON, &account), 0);
    assert_int_equal(account.posted, 6);
    assert_int_equal(account.run, 1);
    assert_int_equal(account.cancelled, 5);
    assert_int_equal(account.unclaimed, 4);
    assert_int_equal(atomic_load(&gate.arrived), 0);
    assert_int_equal(fw_jobs_post(jobs, &late.job, &gated_runnable, &late, 0, 0), -ESHUTDOWN);
    assert_int_equal(rejoin_all(jobs, requests), 3);
    fw_jobs_destroy(jobs);
}

/* J30: draining runs all, children included; who waits for a slot from outside is refused. */
struct parent {
    struct fw_job job;
    struct fw_jobs *jobs;
    struct gated gated;
    struct gated child;
};

static void parent_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    struct parent *parent = FW_CONTAINER_OF(job, struct parent, job);
    gated_run(runnable, &parent->gated.job);
    assert_int_equal(fw_jobs_post(parent->jobs, &parent->child.job, &gated_runnable, parent, 0,
                                  FW_JOB_WAIT_IF_BUSY),
                     0);
}
static struct fw_job_runnable parent_runnable = {.run = parent_run};

/* Opens the gate once the kernel has begun to stop. */
static void opener_run(void *argument)
{
    struct poster *poster = argument;
    while (fw_jobs_post(poster->jobs, &poster->request.job, &gated_runnable, poster, 0, 0) !=
           -ESHUTDOWN) {
        pause_briefly(); /* The pool is full. */
    }
    atomic_store(&poster->request.gate->is_open, true);
}

static void test_drain(void **state)
{
    (void)state;
    policy.workers = 2;
    policy.slots = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false};
    struct gated held = {.gate = &gate}, full = {.gate = &gate};
    struct parent parent = {.jobs = jobs, .gated = {.gate = &gate}, .child = {.gate = &gate}};
    assert_int_equal(fw_jobs_post(jobs, &parent.job, &parent_runnable, NULL, 0, 0), 0);
    gate_await(&gate, 1);
    assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, NULL, 0, 0), 0);
    gate_await(&gate, 2);
    assert_int_equal(fw_jobs_post(jobs, &full.job, &gated_runnable, NULL, 0, 0), 0);
    struct poster waiter = {.jobs = jobs, .request = {.gate = &gate}};
    struct poster opener = {.jobs = jobs, .request = {.gate = &gate}};
    struct fw_thread threads[2];
    assert_int_equal(fw_thread_create(&threads[0], "poster", poster_run, &waiter), 0);
    await_waited(jobs, 1);
    assert_int_equal(fw_thread_create(&threads[1], "opener", opener_run, &opener), 0);
    struct fw_jobs_account account;
    assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, &account), 0);
    fw_thread_join(&threads[0]);
    fw_thread_join(&threads[1]);
    assert_int_equal(waiter.result, -ESHUTDOWN);
    assert_int_equal(account.posted, 4);
    assert_int_equal(account.run, 4);
    assert_int_equal(account.cancelled, 0);
    assert_int_equal(account.unclaimed, 0);
    assert_int_equal(atomic_load(&gate.arrived), 4);
    fw_jobs_destroy(jobs);
}

/* A slot that its waiter cannot use after all goes to the next, and not at the next occasion. */
static void test_slot_not_used_after_all(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.slots = 1;
    policy.owners = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate first = {.is_open = false}, second = {.is_open = false};
    struct poster posters[2] = {{.jobs = jobs, .request = {.gate = &second}},
                                {.jobs = jobs, .request = {.gate = &second}}};
    struct gated held = {.gate = &first}, full = {.gate = &second};
    const void *owner = &posters[1]; /* The only one that there may be. */
    assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, owner, 0, 0), 0);
    gate_await(&first, 1);
    assert_int_equal(fw_jobs_post(jobs, &full.job, &gated_runnable, owner, 0, 0), 0);
    struct fw_thread threads[2];
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "poster", poster_run, &posters[i]), 0);
        await_waited(jobs, i + 1);
    }
    atomic_store(&first.is_open, true); /* Which frees the slot; nothing else ends. */
    fw_thread_join(&threads[0]);
    fw_thread_join(&threads[1]);
    assert_int_equal(posters[0].result, -ENOMEM);
    assert_int_equal(posters[1].result, 0);
    atomic_store(&second.is_open, true);
    assert_int_equal(rejoin_all(jobs, owner), 1);
    jobs_end(jobs);
}

/* J30: who waits for a slot inside a request when draining begins gets it. */
struct family {
    struct fw_job job;
    struct fw_jobs *jobs;
    struct gated children[2];
    int results[2];
};

static void family_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct family *family = FW_CONTAINER_OF(job, struct family, job);
    for (int i = 0; i < 2; i++) {
        family->results[i] = fw_jobs_post(family->jobs, &family->children[i].job, &gated_runnable,
                                          family, 0, FW_JOB_WAIT_IF_BUSY);
    }
}
static struct fw_job_runnable family_runnable = {.run = family_run};

static void test_drain_while_a_worker_waits(void **state)
{
    (void)state;
    policy.workers = 2;
    policy.slots = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false};
    struct gated held = {.gate = &gate};
    struct family family = {.jobs = jobs, .children = {{.gate = &gate}, {.gate = &gate}}};
    assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, NULL, 0, 0), 0);
    gate_await(&gate, 1);
    assert_int_equal(fw_jobs_post(jobs, &family.job, &family_runnable, NULL, 0, 0), 0);
    await_waited(jobs, 1); /* The second child, while the first one has the slot. */
    struct poster opener = {.jobs = jobs, .request = {.gate = &gate}};
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "opener", opener_run, &opener), 0);
    struct fw_jobs_account account;
    assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, &account), 0);
    fw_thread_join(&thread);
    assert_int_equal(family.results[0], 0);
    assert_int_equal(family.results[1], 0);
    assert_int_equal(account.run, 4);
    fw_jobs_destroy(jobs);
}

/* What a trace has seen of each lane. */
struct traced {
    uint32_t began[FW_JOBS_LANES];
    uint32_t ended[FW_JOBS_LANES];
    int64_t last_ns;
};

static void traced_count(const struct fw_jobs_event *event, void *context)
{
    struct traced *traced = context;
    bool is_service = event->lane == 0 && event->is_begin; /* They come before all others. */
    assert_true(is_service || event->time_ns >= traced->last_ns);
    assert_true(event->thread >= 1 && event->thread <= 4);
    assert_string_equal(event->name, event->lane == 3 ? "part" : "request");
    traced->last_ns = is_service ? 0 : event->time_ns;
    traced->began[event->lane] += event->is_begin ? 1 : 0;
    traced->ended[event->lane] += event->is_begin ? 0 : 1;
}

static void traced_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
}

static void test_trace(void **state)
{
    (void)state;
    static struct fw_job_runnable plain = {.run = traced_run};
    static struct fw_job_runnable part = {.run = traced_run, .name = "part"};
    static const uint32_t counts[FW_JOBS_LANES] = {1, 2, 3, 4};
    for (int is_traced = 0; is_traced < 2; is_traced++) {
        struct fw_jobs *jobs;
        struct fw_job requests[10] = {0};
        struct traced traced = {.last_ns = 0};
        uint32_t posted = 0;
        policy.trace = is_traced != 0;
        assert_int_equal(fw_jobs_create(&jobs, &policy, NULL), 0);
        assert_int_equal(fw_jobs_start(jobs, NULL), 0);
        for (uint32_t lane = 0; lane < FW_JOBS_LANES; lane++) {
            for (uint32_t i = 0; i < counts[lane]; i++) {
                assert_int_equal(fw_jobs_post(jobs, &requests[posted++], lane == 3 ? &part : &plain,
                                              NULL, 0, 3 - lane),
                                 0);
            }
        }
        assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL), 0);
        fw_jobs_trace_visit(jobs, traced_count, &traced);
        for (uint32_t lane = 0; lane < FW_JOBS_LANES; lane++) {
            assert_int_equal(traced.began[lane], is_traced ? counts[lane] : 0);
            assert_int_equal(traced.ended[lane], is_traced ? counts[lane] : 0);
        }
        fw_jobs_destroy(jobs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_policy, setup),
        cmocka_unit_test_setup(test_settings, setup),
        cmocka_unit_test_setup(test_start_stop, setup),
        cmocka_unit_test_setup(test_no_memory, setup),
        cmocka_unit_test_setup(test_trace, setup),
        cmocka_unit_test_setup(test_thread_numbers, setup),
        cmocka_unit_test_setup(test_full, setup),
        cmocka_unit_test_setup(test_wait_if_busy, setup),
        cmocka_unit_test_setup(test_states, setup),
        cmocka_unit_test_setup(test_flags, setup),
        cmocka_unit_test_setup(test_owners_are_addresses, setup),
        cmocka_unit_test_setup(test_owners_limit, setup),
        cmocka_unit_test_setup(test_priority_order, setup),
        cmocka_unit_test_setup(test_lanes_on_workers, setup),
        cmocka_unit_test_setup(test_slot_freed_at_dispatch, setup),
        cmocka_unit_test_setup(test_hand, setup),
        cmocka_unit_test_setup(test_hand_and_limits, setup),
        cmocka_unit_test_setup(test_cancel, setup),
        cmocka_unit_test_setup(test_abandon, setup),
        cmocka_unit_test_setup(test_drain, setup),
        cmocka_unit_test_setup(test_drain_while_a_worker_waits, setup),
        cmocka_unit_test_setup(test_slot_not_used_after_all, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
