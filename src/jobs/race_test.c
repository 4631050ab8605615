/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with many threads posting, running, rejoining and helping at once, nothing is lost, doubled
 * or seen too early; lanes hold at every moment; what a thread opens stays its own.
 * Method: real threads and many requests, for TSan and for what the simulator's one processor
 * cannot show. Sums and counts are compared; nothing is timed.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "support/jobs.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#if defined(SLOW_BUILD)
enum { MILLION = 50000 };
#else
enum { MILLION = 1000000 };
#endif

static struct fw_jobs_policy policy;

static int setup(void **state)
{
    (void)state;
    fw_jobs_policy_init(&policy);
    policy.workers = 4;
    policy.slots = 256;
    return 0;
}

/* J4: the system refuses a thread. Linked in place of pthread_create(). */
static int threads_allowed = -1;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    if (threads_allowed == 0) {
        return EAGAIN;
    }
    threads_allowed -= threads_allowed > 0 ? 1 : 0;
    return __real_pthread_create(thread, attributes, run, argument);
}

static void test_thread_refused(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_make(&policy);
    struct gate gate = {.is_open = true};
    struct gated request = {.gate = &gate};
    assert_int_equal(fw_jobs_post(jobs, &request.job, &gated_runnable, &gate, 0, FW_JOB_REJOINABLE),
                     0);
    for (int allowed = 0; allowed <= 4; allowed++) { /* The monitor, then each worker. */
        struct fw_jobs_reason reason;
        threads_allowed = allowed;
        assert_int_equal(fw_jobs_start(jobs, &reason), -EAGAIN);
        assert_non_null(strstr(reason.text, "cannot start"));
        assert_int_equal(atomic_load(&gate.arrived), 0);
    }
    threads_allowed = -1;
    assert_int_equal(fw_jobs_start(jobs, NULL), 0);
    assert_int_equal(rejoin_all(jobs, &gate), 1);
    jobs_end(jobs);
}

/* J8, J13 */
struct counted {
    struct fw_job job;
    _Atomic uint32_t runs;
    _Atomic uint32_t handed;
};
static struct counted *counted;
static struct fw_jobs *shared;

static void counted_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    atomic_fetch_add(&FW_CONTAINER_OF(job, struct counted, job)->runs, 1);
}
static struct fw_job_runnable counted_runnable = {.run = counted_run};

enum { COUNTED_POSTERS = 3, COUNTED_POLLERS = 2 };

static void counted_poster(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    for (size_t i = number; i < MILLION; i += COUNTED_POSTERS) {
        assert_int_equal(fw_jobs_post(shared, &counted[i].job, &counted_runnable, counted, 0,
                                      FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY),
                         0);
    }
}

static _Atomic uint32_t handed_total;

static void counted_poller(void *argument)
{
    (void)argument;
    struct fw_job *job;
    while (atomic_load(&handed_total) < MILLION) {
        if (fw_jobs_rejoin_wait(shared, counted, 0, 1000000, &job) == FW_REJOIN_RETURNED) {
            atomic_fetch_add(&FW_CONTAINER_OF(job, struct counted, job)->handed, 1);
            atomic_fetch_add(&handed_total, 1);
        }
    }
}

static void test_million_from_many(void **state)
{
    (void)state;
    shared = jobs_start(&policy);
    counted = calloc(MILLION, sizeof *counted);
    assert_non_null(counted);
    atomic_store(&handed_total, 0);
    struct fw_thread threads[COUNTED_POSTERS + COUNTED_POLLERS];
    for (uintptr_t i = 0; i < COUNTED_POSTERS + COUNTED_POLLERS; i++) {
        void (*run)(void *) = i < COUNTED_POSTERS ? counted_poster : counted_poller;
        assert_int_equal(fw_thread_create(&threads[i], "racer", run, (void *)i), 0);
    }
    for (size_t i = 0; i < COUNTED_POSTERS + COUNTED_POLLERS; i++) {
        fw_thread_join(&threads[i]);
    }
    for (size_t i = 0; i < MILLION; i++) {
        assert_int_equal(counted[i].runs, 1);
        assert_int_equal(counted[i].handed, 1);
    }
    struct fw_job *job;
    assert_int_equal(fw_jobs_rejoin(shared, counted, &job), FW_REJOIN_NONE_EXIST);
    free(counted);
    jobs_end(shared);
}

/* J8 from one thread, J38: all are posted before any is collected, far more than there are slots.
 */
static void test_post_all_then_collect(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_start(&policy);
    counted = calloc(MILLION, sizeof *counted);
    assert_non_null(counted);
    for (size_t i = 0; i < MILLION; i++) {
        assert_int_equal(fw_jobs_post(jobs, &counted[i].job, &counted_runnable, counted, 0,
                                      FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY),
                         0);
    }
    assert_int_equal(rejoin_all(jobs, counted), MILLION);
    for (size_t i = 0; i < MILLION; i++) {
        assert_int_equal(counted[i].runs, 1);
    }
    free(counted);
    jobs_end(jobs);
}

/* J16, J29: a tree of three levels, one runnable that posts to itself, with and without help. */
struct tree {
    struct fw_job job;
    struct fw_jobs *jobs;
    struct tree *children;
    uint32_t child_count;
    uint32_t lane;
    uint32_t rejoin_flags;
    uint64_t sum;
    atomic_bool ended;
};

static void tree_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    struct tree *tree = FW_CONTAINER_OF(job, struct tree, job);
    for (uint32_t i = 0; i < tree->child_count; i++) {
        struct tree *child = &tree->children[i];
        assert_int_equal(fw_jobs_post(tree->jobs, &child->job, runnable, tree, (int)child->lane,
                                      (3 - child->lane) | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY),
                         0);
    }
    struct fw_job *back;
    uint32_t returned = 0;
    while (fw_jobs_rejoin_wait(tree->jobs, tree, tree->rejoin_flags, FW_JOBS_FOREVER, &back) ==
           FW_REJOIN_RETURNED) {
        struct tree *child = FW_CONTAINER_OF(back, struct tree, job);
        assert_true(child->ended);
        tree->sum += child->sum;
        returned++;
    }
    assert_int_equal(returned, tree->child_count);
    tree->ended = true;
}
static struct fw_job_runnable tree_runnable = {.run = tree_run};

enum { FEEDERS = 10, UNITS = 20, PARTS = 10 };

static void tree_check(uint32_t rejoin_flags, bool expect_help)
{
    static struct tree feeders[FEEDERS], units[FEEDERS][UNITS], parts[FEEDERS][UNITS][PARTS];
    struct fw_jobs *jobs = jobs_start(&policy);
    uint64_t expected = 0;
    for (uint32_t f = 0; f < FEEDERS; f++) {
        for (uint32_t u = 0; u < UNITS; u++) {
            for (uint32_t p = 0; p < PARTS; p++) {
                uint64_t value = (f * UNITS + u) * PARTS + p;
                parts[f][u][p] = (struct tree){.jobs = jobs, .lane = 3, .sum = value};
                expected += value;
            }
            units[f][u] = (struct tree){.jobs = jobs,
                                        .lane = 2,
                                        .children = parts[f][u],
                                        .child_count = PARTS,
                                        .rejoin_flags = rejoin_flags};
        }
        feeders[f] = (struct tree){.jobs = jobs,
                                   .lane = 1,
                                   .children = units[f],
                                   .child_count = UNITS,
                                   .rejoin_flags = rejoin_flags};
    }
    uint64_t sum = 0;
    for (uint32_t f = 0; f < FEEDERS; f++) {
        assert_int_equal(fw_jobs_post(jobs, &feeders[f].job, &tree_runnable, &sum, 0,
                                      FW_JOB_FEEDER | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY),
                         0);
    }
    struct fw_job *back;
    while (fw_jobs_rejoin_wait(jobs, &sum, 0, FW_JOBS_FOREVER, &back) == FW_REJOIN_RETURNED) {
        sum += FW_CONTAINER_OF(back, struct tree, job)->sum;
    }
    assert_int_equal(sum, expected);
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    assert_true(expect_help == (statistics.helped > 0));
    jobs_end(jobs);
}

static void test_tree(void **state)
{
    (void)state;
    tree_check(0, false);
}

static void test_tree_with_help(void **state)
{
    (void)state;
    policy.timing = true;
    policy.ageing = true;
    policy.boosting = true;
    policy.boost = 2;
    policy.ageing_interval_ns = 1000;
    tree_check(FW_REJOIN_HELP, true);
}

/* J17: the one worker is held; a rejoin that helps runs what is its own, and no stranger's. */
static void test_help_own_only(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = FW_JOBS_UNCHECKED;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false}, open = {.is_open = true};
    struct gated held = {.gate = &gate}, mine = {.gate = &open}, theirs = {.gate = &open};
    assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, &held, 0, 0), 0);
    gate_await(&gate, 1);
    assert_int_equal(fw_jobs_post(jobs, &theirs.job, &gated_runnable, &theirs, 9, 0), 0);
    assert_int_equal(fw_jobs_post(jobs, &mine.job, &gated_runnable, &mine, 0, FW_JOB_REJOINABLE),
                     0);
    struct fw_job *back;
    assert_int_equal(fw_jobs_rejoin_wait(jobs, &mine, FW_REJOIN_HELP, FW_JOBS_FOREVER, &back),
                     FW_REJOIN_RETURNED);
    assert_ptr_equal(back, &mine.job);
    assert_int_equal(fw_job_state(&theirs.job), FW_JOB_READY);
    assert_int_equal(atomic_load(&open.arrived), 1);
    /* Where none of its own waits, neither: the one that is held runs. */
    assert_int_equal(fw_jobs_rejoin_wait(jobs, &held, FW_REJOIN_HELP, 1000, &back),
                     FW_REJOIN_NONE_READY);
    assert_int_equal(fw_job_state(&theirs.job), FW_JOB_READY);
    /* Without help it waits, and the time is over. */
    assert_int_equal(fw_jobs_rejoin_wait(jobs, &theirs, 0, 1000, &back), FW_REJOIN_NONE_READY);
    atomic_store(&gate.is_open, true);
    assert_int_equal(rejoin_all(jobs, &theirs), 0);
    jobs_end(jobs);
}

/* J25: a wait that the policy does not declare is refused, and does not hang. */
struct waiting {
    struct fw_job job;
    struct fw_jobs *jobs;
    struct gated before;
    struct gated child;
    uint32_t child_flags;
    enum fw_rejoin answer;
    int post_result;
};

static void waiting_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    struct waiting *waiting = FW_CONTAINER_OF(job, struct waiting, job);
    struct fw_job *back;
    gated_run(runnable, &waiting->before.job);
    waiting->post_result = fw_jobs_post(waiting->jobs, &waiting->child.job, &gated_runnable,
                                        waiting, 0, waiting->child_flags);
    waiting->answer = fw_jobs_rejoin_wait(waiting->jobs, waiting, 0, FW_JOBS_FOREVER, &back);
}
static struct fw_job_runnable waiting_runnable = {.run = waiting_run};

static uint32_t lane_flags(uint32_t lane)
{
    return 3 - lane;
}

/* Every lane waits for every lane: what is above it, and nothing else. */
static void test_undeclared_rejoin(void **state)
{
    (void)state;
    for (uint32_t pair = 0; pair < FW_JOBS_LANES * FW_JOBS_LANES; pair++) {
        uint32_t lane = pair / FW_JOBS_LANES, child_lane = pair % FW_JOBS_LANES;
        bool is_declared = child_lane > lane;
        struct fw_jobs *jobs = jobs_start(&policy);
        struct gate gate = {.is_open = is_declared}, open = {.is_open = true};
        struct waiting waiting = {.jobs = jobs,
                                  .before = {.gate = &open},
                                  .child = {.gate = &gate},
                                  .child_flags = lane_flags(child_lane)};
        assert_int_equal(fw_jobs_post(jobs, &waiting.job, &waiting_runnable, &gate, 0,
                                      lane_flags(lane) | FW_JOB_REJOINABLE),
                         0);
        assert_int_equal(rejoin_all(jobs, &gate), 1);
        assert_int_equal(waiting.post_result, 0);
        assert_int_equal(waiting.answer, is_declared ? FW_REJOIN_NONE_EXIST : FW_REJOIN_REFUSED);
        atomic_store(&gate.is_open, true);
        jobs_end(jobs);
    }
}

/* A feeder that is one of its owner's requests, beside units that it may wait for. */
static void test_a_request_does_not_wait_for_itself(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false}, open = {.is_open = true};
    struct waiting feeder = {.jobs = jobs,
                             .before = {.gate = &open},
                             .child = {.gate = &gate},
                             .child_flags = FW_JOB_UNIT};
    assert_int_equal(fw_jobs_post(jobs, &feeder.job, &waiting_runnable, &feeder, 0,
                                  FW_JOB_FEEDER | FW_JOB_REJOINABLE),
                     0);
    gate_await(&gate, 1);
    atomic_store(&gate.is_open, true);
    assert_int_equal(rejoin_all(jobs, &feeder), 1);
    assert_int_equal(feeder.answer, FW_REJOIN_REFUSED);
    jobs_end(jobs);
}

/* A unit that would have to wait for room among units. */
static void test_undeclared_post(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false}, before = {.is_open = false};
    struct waiting unit = {.jobs = jobs,
                           .before = {.gate = &before},
                           .child = {.gate = &gate},
                           .child_flags = FW_JOB_UNIT | FW_JOB_WAIT_IF_BUSY};
    assert_int_equal(fw_jobs_post(jobs, &unit.job, &waiting_runnable, &before, 0,
                                  FW_JOB_UNIT | FW_JOB_REJOINABLE),
                     0);
    gate_await(&before, 1);
    static struct gated fill[256];
    memset(fill, 0, sizeof fill);
    struct fw_jobs_statistics statistics;
    int filled = 0;
    do { /* Until the lane is full and all that can run of it does. */
        fill[filled].gate = &gate;
        int rc = fw_jobs_post(jobs, &fill[filled].job, &gated_runnable, fill, 0, FW_JOB_UNIT);
        filled += rc == 0 ? 1 : 0;
        assert_true(rc == 0 || rc == -EBUSY);
        fw_jobs_statistics(jobs, &statistics);
    } while (statistics.running[2] < 3 || statistics.refused_lane == 0 ||
             statistics.waiting[2] < 25 + 51 + 51);
    atomic_store(&before.is_open, true);
    assert_int_equal(rejoin_all(jobs, &before), 1);
    assert_int_equal(unit.post_result, -EDEADLK);
    assert_int_equal(unit.answer, FW_REJOIN_NONE_EXIST);
    atomic_store(&gate.is_open, true);
    jobs_end(jobs);
}

/*
 * J23: at every start of a request the sums over the lower lanes are within their limits. All lanes
 * are counted in one word, sixteen bits each: read one after the other they would be of different
 * moments, and their sum of none.
 */
enum { LANE_BITS = 16 };
static _Atomic uint64_t lanes_running;
static _Atomic uint32_t lane_violations;

static void laned_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    static const uint64_t limits[FW_JOBS_LANES] = {1, 3, 5, 10};
    uint64_t one = UINT64_C(1) << (LANE_BITS * fw_job_lane(job->flags));
    uint64_t running = atomic_fetch_add(&lanes_running, one) + one;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < FW_JOBS_LANES; k++) {
        sum += running >> (LANE_BITS * k) & UINT16_MAX;
        if (sum > limits[k]) {
            atomic_fetch_add(&lane_violations, 1);
        }
    }
    pause_briefly(); /* So that many run at the same time. */
    atomic_fetch_sub(&lanes_running, one);
}
static struct fw_job_runnable laned_runnable = {.run = laned_run};

static void test_lane_sums(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static const uint32_t hands[] = {1, 8};
    policy.workers = 10; /* Shares 1, 2, 2, 5. */
    for (size_t h = 0; h < FW_ARRAY_LENGTH(hands); h++) {
        policy.hand = hands[h];
        struct fw_jobs *jobs = jobs_start(&policy);
        struct fw_job *all = calloc(COUNT, sizeof *all);
        assert_non_null(all);
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t lane = (i * 2654435761U >> 16) % 4;
            assert_int_equal(fw_jobs_post(jobs, &all[i], &laned_runnable, all, (int32_t)(i % 7),
                                          lane | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY),
                             0);
        }
        assert_int_equal(rejoin_all(jobs, all), COUNT);
        assert_int_equal(atomic_load(&lane_violations), 0);
        free(all);
        jobs_end(jobs);
    }
}

/* J27, J28: handles. */
struct handle {
    pthread_t thread;
    bool open;
};
static _Atomic int handles_open;
static _Atomic uint32_t handle_errors;

static int handle_open(struct fw_job_native *native, void **handle)
{
    (void)native;
    struct handle *made = malloc(sizeof *made);
    assert_non_null(made);
    *made = (struct handle){.thread = pthread_self(), .open = true};
    atomic_fetch_add(&handles_open, 1);
    *handle = made;
    return 0;
}

static void handle_close(struct fw_job_native *native, void *handle)
{
    (void)native;
    struct handle *made = handle;
    if (!made->open || !pthread_equal(made->thread, pthread_self())) {
        atomic_fetch_add(&handle_errors, 1);
    }
    atomic_fetch_sub(&handles_open, 1);
    free(made);
}

static int handle_open_fails(struct fw_job_native *native, void **handle)
{
    (void)native;
    (void)handle;
    return -EIO;
}

static struct fw_job_native natives[FW_JOBS_HANDLES_MAX + 1];

struct user {
    struct fw_job job;
    struct gate *gate;
    int result;
};

static void user_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct user *user = FW_CONTAINER_OF(job, struct user, job);
    void *one, *again, *other;
    user->result = fw_jobs_handle(shared, &natives[0], &one);
    if (user->result != 0) {
        return;
    }
    assert_int_equal(fw_jobs_handle(shared, &natives[0], &again), 0);
    assert_ptr_equal(one, again);
    assert_int_equal(fw_jobs_handle(shared, &natives[1], &other), 0);
    assert_ptr_not_equal(one, other);
    assert_true(pthread_equal(((struct handle *)one)->thread, pthread_self()));
    if (user->gate != NULL) {
        struct gated gated = {.gate = user->gate};
        gated_run(NULL, &gated.job);
    }
}

static struct fw_job_runnable user_runnable = {.run = user_run};

static void natives_init(void)
{
    for (size_t i = 0; i < FW_ARRAY_LENGTH(natives); i++) {
        natives[i] = (struct fw_job_native){.open = handle_open, .close = handle_close};
    }
}

static void closer_run(void *argument)
{
    fw_jobs_native_close(shared, &natives[0]);
    atomic_store((atomic_bool *)argument, true);
}

static void test_handles(void **state)
{
    (void)state;
    natives_init();
    shared = jobs_start(&policy);
    static struct user users[500];
    for (int i = 0; i < 500; i++) {
        users[i] = (struct user){.gate = NULL};
        assert_int_equal(fw_jobs_post(shared, &users[i].job, &user_runnable, users, 0,
                                      FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY),
                         0);
    }
    assert_int_equal(rejoin_all(shared, users), 500);

    /* Who closes the native waits for a request that has it open. */
    struct gate gate = {.is_open = false};
    struct user user = {.gate = &gate}, late = {.gate = NULL};
    assert_int_equal(fw_jobs_post(shared, &user.job, &user_runnable, &user, 0, FW_JOB_REJOINABLE),
                     0);
    gate_await(&gate, 1);
    atomic_bool closed = false;
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "closer", closer_run, &closed), 0);
    do { /* Until the closing is seen. */
        assert_int_equal(
            fw_jobs_post(shared, &late.job, &user_runnable, &late, 0, FW_JOB_REJOINABLE), 0);
        assert_int_equal(rejoin_all(shared, &late), 1);
    } while (late.result == 0);
    assert_int_equal(late.result, -ESHUTDOWN);
    assert_false(closed);
    atomic_store(&gate.is_open, true);
    fw_thread_join(&thread);
    assert_true(closed);

    /* Outside a request a member's handles stay until the native is closed, or it detaches. */
    void *handle;
    natives_init();
    natives[2].open = handle_open_fails;
    assert_int_equal(fw_jobs_handle(shared, &natives[2], &handle), -EIO);
    natives[2].open = handle_open;
    for (size_t i = 0; i <= FW_JOBS_HANDLES_MAX; i++) {
        assert_int_equal(fw_jobs_handle(shared, &natives[i], &handle),
                         i < FW_JOBS_HANDLES_MAX ? 0 : -EMFILE);
    }
    fw_jobs_native_close(shared, &natives[3]);
    assert_int_equal(fw_jobs_stop(shared, FW_JOBS_DRAIN, NULL), 0);
    assert_int_equal(atomic_load(&handles_open), FW_JOBS_HANDLES_MAX - 1);
    fw_jobs_destroy(shared);
    assert_int_equal(atomic_load(&handles_open), 0);
    assert_int_equal(atomic_load(&handle_errors), 0);
}

/* J28: a request that runs inside a rejoin closes what it opened, and not what its parent did. */
static void nested_child_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
    void *handle;
    assert_int_equal(fw_jobs_handle(shared, &natives[0], &handle), 0);
    assert_int_equal(atomic_load(&handles_open), 1); /* The parent's: it is the same thread. */
    assert_int_equal(fw_jobs_handle(shared, &natives[1], &handle), 0);
    assert_int_equal(atomic_load(&handles_open), 2);
}
static struct fw_job_runnable nested_child = {.run = nested_child_run};

static void nested_parent_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_job child = {0};
    struct fw_job *back;
    void *handle;
    assert_int_equal(fw_jobs_handle(shared, &natives[0], &handle), 0);
    assert_int_equal(fw_jobs_post(shared, &child, &nested_child, job, 0, FW_JOB_REJOINABLE), 0);
    assert_int_equal(fw_jobs_rejoin_wait(shared, job, FW_REJOIN_HELP, FW_JOBS_FOREVER, &back),
                     FW_REJOIN_RETURNED);
    assert_int_equal(atomic_load(&handles_open), 1);
}
static struct fw_job_runnable nested_parent = {.run = nested_parent_run};

static void test_nested_handles(void **state)
{
    (void)state;
    policy.workers = 1; /* So that the parent has to help. */
    policy.mode = FW_JOBS_UNCHECKED;
    natives_init();
    shared = jobs_start(&policy);
    struct fw_job parent = {0};
    assert_int_equal(fw_jobs_post(shared, &parent, &nested_parent, NULL, 0, FW_JOB_REJOINABLE), 0);
    assert_int_equal(rejoin_all(shared, NULL), 1);
    jobs_end(shared);
    assert_int_equal(atomic_load(&handles_open), 0);
}

/* J27: run, completed, to the owner, handles closed, and only then available. */
static char steps[8];
static _Atomic uint32_t step_count;
static struct fw_job ordered;

static void step(char name)
{
    steps[atomic_load(&step_count)] = name;
    atomic_fetch_add(&step_count, 1);
}

static void ordered_close(struct fw_job_native *native, void *handle)
{
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(shared, &statistics);
    /* It is finished, but its worker is not free. */
    step(fw_job_state(&ordered) == FW_JOB_DONE && statistics.running[3] == 1 ? 'h' : '?');
    handle_close(native, handle);
}

static void ordered_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    (void)job;
    void *handle;
    assert_int_equal(fw_jobs_handle(shared, &natives[0], &handle), 0);
    step('r');
}

static void ordered_completed(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    step(fw_job_state(job) == FW_JOB_BUSY ? 'c' : '?');
}

static void test_worker_order(void **state)
{
    (void)state;
    struct fw_job_runnable runnable = {.run = ordered_run, .completed = ordered_completed};
    natives_init();
    natives[0].close = ordered_close;
    shared = jobs_start(&policy);
    assert_int_equal(fw_jobs_post(shared, &ordered, &runnable, &ordered, 0, FW_JOB_REJOINABLE), 0);
    while (atomic_load(&step_count) < 3) {
        pause_briefly();
    }
    assert_string_equal(steps, "rch");
    assert_int_equal(rejoin_all(shared, &ordered), 1);
    jobs_end(shared);
}

/* Block-enter lets another worker be active in the place of the one that blocks. */
struct blocking {
    struct fw_job job;
    struct gate *gate;
    bool bracket;
};

static void blocking_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    struct blocking *blocking = FW_CONTAINER_OF(job, struct blocking, job);
    struct gated gated = {.gate = blocking->gate};
    if (blocking->bracket) {
        fw_jobs_block_enter(shared);
    }
    gated_run(runnable, &gated.job);
    if (blocking->bracket) {
        fw_jobs_block_leave(shared);
    }
}
static struct fw_job_runnable blocking_runnable = {.run = blocking_run};

static void test_block_compensated(void **state)
{
    (void)state;
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    policy.workers = 3;
    policy.workers_active = 1;
    shared = jobs_start(&policy);
    struct gate gate = {.is_open = false}, open = {.is_open = true};
    struct blocking first = {.gate = &gate, .bracket = true}, second = first, third = first;
    struct gated other = {.gate = &open};
    third.bracket = false;
    assert_int_equal(fw_jobs_post(shared, &first.job, &blocking_runnable, &gate, 0, 4), 0);
    gate_await(&gate, 1);
    assert_int_equal(fw_jobs_post(shared, &second.job, &blocking_runnable, &gate, 0, 4), 0);
    gate_await(&gate, 2);
    assert_int_equal(fw_jobs_post(shared, &third.job, &blocking_runnable, &gate, 0, 4), 0);
    gate_await(&gate, 3);
    assert_int_equal(fw_jobs_post(shared, &other.job, &gated_runnable, &open, 0, 4), 0);
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(shared, &statistics);
    assert_int_equal(statistics.blocked, 2);
    assert_int_equal(statistics.active, 3);
    assert_int_equal(statistics.waiting[3], 1);
    atomic_store(&gate.is_open, true);
    assert_int_equal(rejoin_all(shared, &gate), 3);
    assert_int_equal(rejoin_all(shared, &open), 1);
    fw_jobs_statistics(shared, &statistics);
    assert_int_equal(statistics.blocked, 0);
    jobs_end(shared);
}

/* Two wait for the one request of an owner: one gets it, and the other learns that none exists. */
struct rejoiner {
    struct fw_jobs *jobs;
    const void *owner;
    enum fw_rejoin answer;
};

static void rejoiner_run(void *argument)
{
    struct rejoiner *rejoiner = argument;
    struct fw_job *job;
    rejoiner->answer =
        fw_jobs_rejoin_wait(rejoiner->jobs, rejoiner->owner, 0, FW_JOBS_FOREVER, &job);
}

static void test_two_wait_for_one(void **state)
{
    (void)state;
    struct fw_jobs *jobs = jobs_start(&policy);
    for (uint32_t flags = 0; flags <= FW_JOB_REJOINABLE; flags += FW_JOB_REJOINABLE) {
        struct gate gate = {.is_open = false};
        struct gated request = {.gate = &gate};
        assert_int_equal(fw_jobs_post(jobs, &request.job, &gated_runnable, &gate, 0, flags), 0);
        struct rejoiner rejoiners[2];
        struct fw_thread threads[2];
        for (int i = 0; i < 2; i++) {
            rejoiners[i] = (struct rejoiner){.jobs = jobs, .owner = &gate};
            assert_int_equal(fw_thread_create(&threads[i], "rejoiner", rejoiner_run, &rejoiners[i]),
                             0);
        }
        gate_await(&gate, 1);
        for (int i = 0; i < 200; i++) {
            pause_briefly(); /* So that they most likely wait; the answers do not depend on it. */
        }
        atomic_store(&gate.is_open, true);
        int returned = 0;
        for (int i = 0; i < 2; i++) {
            fw_thread_join(&threads[i]);
            returned += rejoiners[i].answer == FW_REJOIN_RETURNED ? 1 : 0;
            assert_true(rejoiners[i].answer == FW_REJOIN_RETURNED ||
                        rejoiners[i].answer == FW_REJOIN_NONE_EXIST);
        }
        assert_int_equal(returned, flags == FW_JOB_REJOINABLE ? 1 : 0);
    }
    jobs_end(jobs);
}

/* J31: what is timed shows per lane, class and owner; off, nothing is. */
static void test_latencies(void **state)
{
    (void)state;
    for (int timing = 0; timing < 2; timing++) {
        policy.timing = timing == 1;
        struct fw_jobs *jobs = jobs_start(&policy);
        struct gate gate = {.is_open = true};
        struct gated requests[4];
        const int32_t priorities[4] = {-5, 0, 9, 10};
        for (uint32_t i = 0; i < 4; i++) {
            requests[i] = (struct gated){.gate = &gate};
            assert_int_equal(fw_jobs_post(jobs, &requests[i].job, &gated_runnable, requests,
                                          priorities[i], i | FW_JOB_REJOINABLE),
                             0);
        }
        struct fw_jobs_owner_statistics owner;
        while (fw_jobs_owner_statistics(jobs, requests, &owner) == 0 && owner.done < 4) {
            pause_briefly();
        }
        assert_int_equal(owner.dispatched, 4);
        assert_int_equal(owner.waiting, 0);
        assert_int_equal(owner.wait_ns > 0, timing);
        assert_int_equal(owner.run_ns > 0, timing);
        assert_int_equal(rejoin_all(jobs, requests), 4);
        assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL), 0);
        struct fw_jobs_statistics statistics;
        fw_jobs_statistics(jobs, &statistics);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(statistics.wait_lane[i].count, timing);
            assert_int_equal(statistics.run_lane[i].count, timing);
            assert_int_equal(statistics.wait_class[i].count, timing);
        }
        assert_int_equal(statistics.run, 4);
        assert_int_equal(statistics.posted, 4);
        fw_jobs_destroy(jobs);
    }
}

/* Owners of requests that nobody rejoins are forgotten when the last one is over. */
static void test_owners_forgotten(void **state)
{
    (void)state;
    policy.owners = 2;
    struct fw_jobs *jobs = jobs_start(&policy);
    static struct counted requests[200];
    memset(requests, 0, sizeof requests);
    struct fw_job *back;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(
            fw_jobs_post(jobs, &requests[i].job, &counted_runnable, &requests[i], 0, 0), 0);
        while (atomic_load(&requests[i].runs) == 0) {
            pause_briefly();
        }
        if (i % 2 == 0) { /* Often it is gone; while it is not, the other record is free. */
            while (fw_jobs_rejoin(jobs, &requests[i], &back) != FW_REJOIN_NONE_EXIST) {
                pause_briefly();
            }
        }
        struct fw_jobs_owner_statistics statistics;
        while (fw_jobs_owner_statistics(jobs, &requests[i], &statistics) == 0) {
            pause_briefly();
        }
    }
    jobs_end(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_thread_refused, setup),
        cmocka_unit_test_setup(test_million_from_many, setup),
        cmocka_unit_test_setup(test_post_all_then_collect, setup),
        cmocka_unit_test_setup(test_tree, setup),
        cmocka_unit_test_setup(test_tree_with_help, setup),
        cmocka_unit_test_setup(test_help_own_only, setup),
        cmocka_unit_test_setup(test_undeclared_rejoin, setup),
        cmocka_unit_test_setup(test_a_request_does_not_wait_for_itself, setup),
        cmocka_unit_test_setup(test_undeclared_post, setup),
        cmocka_unit_test_setup(test_lane_sums, setup),
        cmocka_unit_test_setup(test_handles, setup),
        cmocka_unit_test_setup(test_nested_handles, setup),
        cmocka_unit_test_setup(test_worker_order, setup),
        cmocka_unit_test_setup(test_block_compensated, setup),
        cmocka_unit_test_setup(test_two_wait_for_one, setup),
        cmocka_unit_test_setup(test_latencies, setup),
        cmocka_unit_test_setup(test_owners_forgotten, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
