/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job kernel under every order of steps that the seeds find.
 *
 * jobs-race: threads post trees of requests, several poll the same owners, one cancels, and the
 * kernel is drained or abandoned at some moment. Each request must be run or cancelled once, handed
 * back once if it is to be rejoined, and never run after "none exist" was said of its owner, and at
 * no moment do the lanes hold more workers than they may. A lost wake-up is a wait that does not
 * end.
 *
 * jobs-hang: feeders wait for units that wait for parts, on few threads and with few slots. Without
 * lanes, and with lanes on threads alone, all are stuck; with lanes on both all end. In virtual
 * time that is exact: nothing else happens in the hour for which the feeders are awaited.
 *
 * jobs-order: one worker, and threads that post with random priorities. Whatever had been posted
 * when the worker ended its last request must not be passed over for something less urgent.
 *
 * jobs-relaxed: workers take several requests at once, or one, in strict order. All but one worker
 * get a request that ends when all short ones have run; so whatever waits, or another has in hand,
 * must be got by who is idle.
 *
 * jobs-slots: requests that end only when as many have been posted as there is room for by then. A
 * slot is free once its request has begun, also one that a worker had in hand, and who waits for
 * room is told so while all workers are busy.
 *
 * jobs-planted-*: mistakes made on purpose with the kernel's own parts.
 */
#include <errno.h>
#include <string.h>

#include <fairway/jobs.h>

#include "base/assert.h"
#include "base/doorbell.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "jobs/cmls.h"
#include "jobs/kernel.h"
#include "jobs/owner.h"
#include "simulate/scenarios.h"

enum { POSTERS = 3, ROUNDS = 3, REQUESTS_MAX = 400, DEPTH_MAX = 2 };

struct family { /* An owner, and what the scenario knows of it. */
    uint32_t running;
    bool closed; /* "None exist" was said. */
};

struct request {
    struct fw_job job;
    struct family family; /* Of its own children. */
    struct family *parent;
    uint32_t depth;
    uint32_t flags;
    bool posted;
    uint32_t run_count;
    uint32_t cancelled_count;
    uint32_t handed_count;
};

static struct {
    struct fw_jobs *jobs;
    struct fw_job_runnable runnable;
    struct request requests[REQUESTS_MAX];
    uint32_t request_count;
    struct family families[POSTERS][ROUNDS];
    struct family *polled[POSTERS]; /* What a second thread polls too. */
    uint32_t posters_left;
    struct fw_cmls limits;
    uint32_t lanes[FW_JOBS_LANES]; /* Requests that run on the share of their lane. */
} world;

static int post_new(struct family *family, uint32_t depth, uint32_t lane_least)
{
    if (world.request_count == REQUESTS_MAX) {
        return -ENOMEM;
    }
    struct request *request = &world.requests[world.request_count++];
    request->parent = family;
    request->depth = depth;
    uint32_t lane = (uint32_t)sim_between(lane_least, 3);
    request->flags = 3 - lane;
    request->flags |= sim_chance(4) ? 0 : FW_JOB_REJOINABLE;
    request->flags |= sim_chance(3) ? FW_JOB_BOOST : 0;
    request->flags |= sim_chance(2) ? FW_JOB_WAIT_IF_BUSY : 0;
    int32_t priority = (int32_t)sim_between(-3, 3);
    request->posted = true; /* It may run before the post returns. */
    int rc =
        fw_jobs_post(world.jobs, &request->job, &world.runnable, family, priority, request->flags);
    if (rc != 0) {
        request->posted = false;
        SIM_EXPECT(rc == -EAGAIN || rc == -EBUSY || rc == -ESHUTDOWN || rc == -EDEADLK);
    }
    return rc;
}

static void handed_back(struct fw_job *job, const struct family *family)
{
    struct request *request = FW_CONTAINER_OF(job, struct request, job);
    SIM_EXPECT(request->parent == family);
    SIM_EXPECT((request->flags & FW_JOB_REJOINABLE) != 0);
    SIM_EXPECT(request->run_count + request->cancelled_count == 1);
    request->handed_count++;
    SIM_EXPECT(request->handed_count == 1);
}

/* Until none exists. */
static void collect(struct family *family, uint32_t rejoin_flags)
{
    for (;;) {
        struct fw_job *job;
        int64_t timeout_ns = sim_chance(4) ? 50 * SIM_US : 3600 * SIM_S;
        enum fw_rejoin answer =
            fw_jobs_rejoin_wait(world.jobs, family, rejoin_flags, timeout_ns, &job);
        if (answer == FW_REJOIN_RETURNED) {
            handed_back(job, family);
        } else if (answer == FW_REJOIN_NONE_EXIST) {
            SIM_EXPECT(family->running == 0);
            family->closed = true; /* Nobody outside posts any more. */
            return;
        } else {
            SIM_EXPECT(answer == FW_REJOIN_NONE_READY);
            SIM_EXPECT(timeout_ns < SIM_S); /* Else somebody was not woken for an hour. */
        }
    }
}

/* It begins or ends. One that runs inside a rejoin does so on the share of who waits. */
static void lanes_count(const struct request *request, uint32_t change)
{
    const struct fw_jobs_member *self = fw_jobs_self(world.jobs);
    if (self->depth > 1 || self->id >= FW_JOBS_THREAD_MONITOR) {
        return;
    }
    world.lanes[fw_job_lane(request->flags)] += change;
    uint32_t sum = 0;
    for (uint32_t k = 0; k < FW_JOBS_LANES; k++) {
        sum += world.lanes[k];
        SIM_EXPECT(sum <= world.limits.sums[k]);
    }
}

static void request_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct request *request = FW_CONTAINER_OF(job, struct request, job);
    SIM_EXPECT(request->posted && !request->parent->closed);
    lanes_count(request, 1);
    request->parent->running++;
    request->run_count++;
    if (request->depth < DEPTH_MAX && sim_chance(3)) {
        /* A sibling; below its own lane the parent might not be allowed to wait for it. */
        (void)post_new(request->parent, request->depth + 1, fw_job_lane(request->flags));
    }
    if (sim_chance(2)) {
        sim_sleep(sim_between(1, 40) * SIM_US);
    }
    if (sim_chance(6)) {
        fw_jobs_block_enter(world.jobs);
        sim_sleep(sim_between(1, 40) * SIM_US);
        fw_jobs_block_leave(world.jobs);
    }
    uint32_t lane = fw_job_lane(request->flags);
    if (lane < 3 && request->depth < DEPTH_MAX && sim_chance(2)) {
        int64_t children = sim_between(1, 3);
        for (int64_t i = 0; i < children; i++) {
            (void)post_new(&request->family, request->depth + 1, lane + 1);
        }
        collect(&request->family, sim_chance(2) ? FW_REJOIN_HELP : 0);
    }
    request->parent->running--;
    lanes_count(request, UINT32_MAX);
}

static void request_completed(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct request *request = FW_CONTAINER_OF(job, struct request, job);
    if (fw_job_was_cancelled(job)) {
        request->cancelled_count++;
    }
    SIM_EXPECT(request->run_count + request->cancelled_count == 1);
}

static void poster_run(void *argument)
{
    uint32_t number = (uint32_t)(uintptr_t)argument;
    bool attach = sim_chance(2);
    if (attach) {
        int rc = fw_jobs_attach(world.jobs);
        SIM_EXPECT(rc == 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct family *family = &world.families[number][round];
        int64_t count = sim_between(1, 6);
        for (int64_t i = 0; i < count; i++) {
            (void)post_new(family, 0, 0);
            if (sim_chance(4)) {
                sim_sleep(sim_between(1, 30) * SIM_US);
            }
        }
        world.polled[number] = family;
        collect(family, attach && sim_chance(2) ? FW_REJOIN_HELP : 0);
        world.polled[number] = NULL;
    }
    world.posters_left--;
    if (attach) {
        fw_jobs_detach(world.jobs);
    }
}

/* Rejoins and cancels here and there, until all posters are through. */
static void meddler_run(void *argument)
{
    (void)argument;
    while (world.posters_left > 0) {
        struct family *family = world.polled[sim_between(0, POSTERS - 1)];
        struct fw_job *job;
        if (family != NULL && fw_jobs_rejoin(world.jobs, family, &job) == FW_REJOIN_RETURNED) {
            handed_back(job, family);
        }
        if (family != NULL && sim_chance(20)) {
            (void)fw_jobs_cancel(world.jobs, family);
        }
        if (family != NULL && sim_chance(4)) {
            collect(family, 0);
        }
        sim_sleep(sim_between(1, 60) * SIM_US);
    }
}

static void policy_draw(struct fw_jobs_policy *policy)
{
    fw_jobs_policy_init(policy);
    policy->workers = (uint32_t)sim_between(4, 6);
    policy->slots = (uint32_t)sim_between(5, 12);
    policy->lane_percent[0] = 20;
    policy->ageing = sim_chance(2);
    policy->boosting = sim_chance(2);
    policy->boost = (int32_t)sim_between(0, 3);
    policy->ageing_interval_ns = sim_between(1, 30) * SIM_US;
    policy->review_interval_ns = sim_between(20, 2000) * SIM_US;
    policy->idle_spins = (uint32_t)sim_between(0, 2);
    policy->timing = sim_chance(2);
    policy->workers_active = sim_chance(2) ? 4 : 0;
    policy->hand = sim_chance(2) ? (uint32_t)sim_between(2, 6) : 1;
}

static void account_check(const struct fw_jobs_account *account)
{
    uint64_t posted = 0, run = 0, cancelled = 0, unclaimed = 0;
    for (uint32_t i = 0; i < world.request_count; i++) {
        const struct request *request = &world.requests[i];
        bool rejoinable = (request->flags & FW_JOB_REJOINABLE) != 0;
        SIM_EXPECT(request->run_count + request->cancelled_count == (request->posted ? 1 : 0));
        posted += request->posted ? 1 : 0;
        run += request->run_count;
        cancelled += request->cancelled_count;
        unclaimed += request->posted && rejoinable && request->handed_count == 0 ? 1 : 0;
    }
    SIM_EXPECT(account->posted == posted);
    SIM_EXPECT(account->run == run);
    SIM_EXPECT(account->cancelled == cancelled);
    SIM_EXPECT(unclaimed == 0); /* By now; at the stop some may not have been collected. */
}

static void race_is_late(void *context, uint64_t number)
{
    (void)context;
    (void)number;
    sim_fail("a thousand times longer than it takes: somebody waits for nothing");
}

static void race_run(void)
{
    memset(&world, 0, sizeof world);
    sim_at(SIM_S, race_is_late, NULL, 0);
    struct fw_jobs_policy policy;
    policy_draw(&policy);
    world.runnable = (struct fw_job_runnable){.run = request_run, .completed = request_completed};
    world.posters_left = POSTERS;
    int rc = fw_cmls_init(&world.limits, policy.workers, policy.lane_percent, true);
    SIM_EXPECT(rc == 0);
    rc = fw_jobs_create(&world.jobs, &policy, NULL);
    SIM_EXPECT(rc == 0);
    struct fw_thread threads[POSTERS + 1];
    bool start_late = sim_chance(2);
    if (!start_late) {
        rc = fw_jobs_start(world.jobs, NULL);
        SIM_EXPECT(rc == 0);
    }
    for (uintptr_t i = 0; i < POSTERS; i++) {
        rc = fw_thread_create(&threads[i], "poster", poster_run, (void *)i); // NOLINT
        FW_ASSERT(rc == 0);
    }
    rc = fw_thread_create(&threads[POSTERS], "meddler", meddler_run, NULL);
    FW_ASSERT(rc == 0);
    if (start_late) {
        rc = fw_jobs_start(world.jobs, NULL);
        SIM_EXPECT(rc == 0);
    }
    struct fw_jobs_account account;
    bool early = sim_chance(3);
    bool abandon = sim_chance(2);
    if (early) {
        sim_sleep(sim_between(1, 500) * SIM_US);
        rc = fw_jobs_stop(world.jobs, abandon ? FW_JOBS_ABANDON : FW_JOBS_DRAIN, &account);
        SIM_EXPECT(rc == 0);
    }
    for (int i = 0; i <= POSTERS; i++) {
        fw_thread_join(&threads[i]);
    }
    if (!early) {
        rc = fw_jobs_stop(world.jobs, abandon ? FW_JOBS_ABANDON : FW_JOBS_DRAIN, &account);
        SIM_EXPECT(rc == 0);
    }
    account_check(&account);
    fw_jobs_destroy(world.jobs);
}

const struct sim_scenario sim_scenario_jobs_race = {
    .name = "jobs-race",
    .purpose = "requests are posted, rejoined, cancelled and drained in all orders",
    .run = race_run,
};

/* jobs-hang. */

/* So many that the slots stay full for long: with luck, a few feeders come through. */
enum { FEEDERS = 30, UNITS = 3, PARTS = 2 };

struct worker_tree {
    struct fw_job job;
    struct fw_jobs *jobs;
    uint32_t lane;
    struct worker_tree *children;
    uint32_t child_count;
    uint32_t *finished;
};

static struct fw_job_runnable tree_runnable;

static void tree_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    struct worker_tree *tree = FW_CONTAINER_OF(job, struct worker_tree, job);
    struct fw_job *child;
    for (uint32_t i = 0; i < tree->child_count; i++) {
        struct worker_tree *next = &tree->children[i];
        if (fw_jobs_post(tree->jobs, &next->job, runnable, tree, 0,
                         (3 - next->lane) | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY) != 0) {
            break; /* The kernel is being abandoned. */
        }
    }
    while (fw_jobs_rejoin_wait(tree->jobs, tree, 0, FW_JOBS_FOREVER, &child) ==
           FW_REJOIN_RETURNED) {
        sim_sleep(sim_between(0, 2) * SIM_US);
    }
    (*tree->finished)++;
}

/* Runs the trees under this mode. True: all of them ended; false: they hang. */
static bool trees_end(uint32_t mode)
{
    static struct worker_tree feeders[FEEDERS], units[FEEDERS][UNITS], parts[FEEDERS][UNITS][PARTS];
    uint32_t finished = 0;
    bool started = false;
    struct fw_jobs *jobs;
    struct fw_jobs_policy policy;
    fw_jobs_policy_init(&policy);
    policy.workers = 4;
    policy.slots = 8;
    policy.mode = mode;
    policy.lane_percent[0] = 0;
    policy.lanes_used = 0xE;
    policy.review_interval_ns = 600 * SIM_S;
    policy.idle_spins = 0;
    int rc = fw_jobs_create(&jobs, &policy, NULL);
    SIM_EXPECT(rc == 0);
    for (uint32_t f = 0; f < FEEDERS; f++) {
        for (uint32_t u = 0; u < UNITS; u++) {
            for (uint32_t p = 0; p < PARTS; p++) {
                parts[f][u][p] =
                    (struct worker_tree){.jobs = jobs, .lane = 3, .finished = &finished};
            }
            units[f][u] = (struct worker_tree){.jobs = jobs,
                                               .lane = 2,
                                               .children = parts[f][u],
                                               .child_count = PARTS,
                                               .finished = &finished};
        }
        feeders[f] = (struct worker_tree){.jobs = jobs,
                                          .lane = 1,
                                          .children = units[f],
                                          .child_count = UNITS,
                                          .finished = &finished};
    }
    tree_runnable = (struct fw_job_runnable){.run = tree_run};
    /* As a tool would: as many as there is room for, and one more whenever one has ended. */
    uint32_t posted = 0;
    struct fw_job *job;
    enum fw_rejoin answer;
    do {
        while (posted < FEEDERS &&
               fw_jobs_post(jobs, &feeders[posted].job, &tree_runnable, &finished, 0,
                            FW_JOB_FEEDER | FW_JOB_REJOINABLE) == 0) {
            posted++;
        }
        if (!started) {
            started = true;
            rc = fw_jobs_start(jobs, NULL);
            SIM_EXPECT(rc == 0);
        }
        answer = fw_jobs_rejoin_wait(jobs, &finished, 0, 3600 * SIM_S, &job);
    } while (answer == FW_REJOIN_RETURNED);
    rc = fw_jobs_stop(jobs, FW_JOBS_ABANDON, NULL);
    SIM_EXPECT(rc == 0);
    if (answer == FW_REJOIN_NONE_EXIST) {
        SIM_EXPECT(finished == FEEDERS * (1 + UNITS * (1 + PARTS)));
    }
    fw_jobs_destroy(jobs);
    return answer == FW_REJOIN_NONE_EXIST;
}

static void hang_run(void)
{
    SIM_EXPECT(trees_end(FW_JOBS_CMLS));
    SIM_EXPECT(!trees_end(FW_JOBS_UNCHECKED));
    SIM_EXPECT(!trees_end(FW_JOBS_UNCHECKED | FW_JOBS_LANES_WORKERS));
}

const struct sim_scenario sim_scenario_jobs_hang = {
    .name = "jobs-hang",
    .purpose = "feeders that wait hang without lanes, and end with them",
    .run = hang_run,
};

/* jobs-order. */

enum { ORDERED = 30, ORDER_POSTERS = 3 };

struct ordered {
    struct fw_job job;
    int32_t priority;
    uint32_t called; /* The moment at which its post began, and the one at which it returned. */
    uint32_t returned;
    bool is_due; /* The worker has ended a request since. */
    bool started;
};

static struct {
    struct fw_jobs *jobs;
    struct fw_job_runnable runnable;
    struct ordered requests[ORDER_POSTERS][ORDERED];
    uint32_t moment;
    uint32_t started;
} order;

static void ordered_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct ordered *self = FW_CONTAINER_OF(job, struct ordered, job);
    self->started = true;
    order.started++;
    for (uint32_t i = 0; i < ORDER_POSTERS * ORDERED; i++) {
        const struct ordered *other = &order.requests[i / ORDERED][i % ORDERED];
        if (other->is_due && !other->started) {
            SIM_EXPECT(other->priority <= self->priority);
            SIM_EXPECT(other->priority < self->priority || other->returned > self->called);
        }
    }
    if (sim_chance(3)) {
        sim_sleep(sim_between(1, 20) * SIM_US);
    }
    for (uint32_t i = 0; i < ORDER_POSTERS * ORDERED; i++) {
        struct ordered *other = &order.requests[i / ORDERED][i % ORDERED];
        other->is_due = other->returned > 0;
    }
}

static void order_poster(void *argument)
{
    struct ordered *requests = argument;
    for (uint32_t i = 0; i < ORDERED; i++) {
        struct ordered *request = &requests[i];
        request->priority = (int32_t)sim_between(0, 4);
        request->called = ++order.moment;
        int rc = fw_jobs_post(order.jobs, &request->job, &order.runnable, &order, request->priority,
                              FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY);
        SIM_EXPECT(rc == 0);
        request->returned = ++order.moment;
        if (sim_chance(8)) {
            sim_sleep(sim_between(1, 60) * SIM_US);
        }
    }
}

static void order_run(void)
{
    memset(&order, 0, sizeof order);
    order.runnable = (struct fw_job_runnable){.run = ordered_run};
    struct fw_jobs_policy policy;
    fw_jobs_policy_init(&policy);
    policy.workers = 1;
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    policy.slots = (uint32_t)sim_between(3, 40);
    policy.idle_spins = (uint32_t)sim_between(0, 2);
    int rc = fw_jobs_create(&order.jobs, &policy, NULL);
    SIM_EXPECT(rc == 0);
    rc = fw_jobs_start(order.jobs, NULL);
    SIM_EXPECT(rc == 0);
    struct fw_thread threads[ORDER_POSTERS];
    for (uint32_t i = 0; i < ORDER_POSTERS; i++) {
        rc = fw_thread_create(&threads[i], "poster", order_poster, order.requests[i]);
        FW_ASSERT(rc == 0);
    }
    for (uint32_t i = 0; i < ORDER_POSTERS; i++) {
        fw_thread_join(&threads[i]);
    }
    struct fw_job *job;
    uint32_t back = 0;
    while (fw_jobs_rejoin_wait(order.jobs, &order, 0, FW_JOBS_FOREVER, &job) ==
           FW_REJOIN_RETURNED) {
        back++;
    }
    SIM_EXPECT(back == ORDER_POSTERS * ORDERED && order.started == back);
    rc = fw_jobs_stop(order.jobs, FW_JOBS_DRAIN, NULL);
    SIM_EXPECT(rc == 0);
    fw_jobs_destroy(order.jobs);
}

const struct sim_scenario sim_scenario_jobs_order = {
    .name = "jobs-order",
    .purpose = "the most urgent request goes first, whatever is posted meanwhile",
    .run = order_run,
};

/* jobs-relaxed. */

enum { SHORT_MAX = 40, LONG_MAX = 3 };

struct relaxed {
    struct fw_job job;
    struct fw_parker parker;
    bool is_long;
    uint32_t runs;
};

static struct {
    struct fw_job_runnable runnable;
    struct relaxed requests[LONG_MAX + SHORT_MAX];
    uint32_t count;
    uint32_t short_left;
} relaxed;

static void relaxed_request_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct relaxed *request = FW_CONTAINER_OF(job, struct relaxed, job);
    request->runs++;
    if (request->is_long) {
        while (relaxed.short_left > 0) {
            fw_park(&request->parker);
        }
        return;
    }
    sim_sleep(sim_between(0, 3) * SIM_US);
    if (--relaxed.short_left == 0) {
        for (uint32_t i = 0; i < relaxed.count; i++) {
            fw_unpark(&relaxed.requests[i].parker); /* Only the long ones use it. */
        }
    }
}

static void relaxed_run(void)
{
    memset(&relaxed, 0, sizeof relaxed);
    sim_at(SIM_S, race_is_late, NULL, 0);
    relaxed.runnable = (struct fw_job_runnable){.run = relaxed_request_run};
    struct fw_jobs_policy policy;
    fw_jobs_policy_init(&policy);
    policy.workers = (uint32_t)sim_between(2, LONG_MAX + 1);
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    bool is_strict = sim_chance(2);
    uint32_t hand = (uint32_t)sim_between(2, 10);
    policy.hand = is_strict ? 1 : hand;
    policy.idle_spins = (uint32_t)sim_between(0, 2);
    uint32_t long_left = policy.workers - 1;
    relaxed.short_left = (uint32_t)sim_between(1, SHORT_MAX);
    relaxed.count = long_left + relaxed.short_left;
    for (uint32_t i = 0; i < relaxed.count; i++) { /* The long ones are anywhere among them. */
        relaxed.requests[i].is_long = (uint32_t)sim_between(1, relaxed.count - i) <= long_left;
        long_left -= relaxed.requests[i].is_long ? 1 : 0;
        fw_parker_init(&relaxed.requests[i].parker);
    }
    struct fw_jobs *jobs;
    int rc = fw_jobs_create(&jobs, &policy, NULL);
    SIM_EXPECT(rc == 0);
    bool start_late = sim_chance(2);
    if (!start_late) {
        rc = fw_jobs_start(jobs, NULL);
        SIM_EXPECT(rc == 0);
    }
    for (uint32_t i = 0; i < relaxed.count; i++) {
        struct relaxed *request = &relaxed.requests[i];
        int32_t priority = (int32_t)sim_between(0, 2);
        rc = fw_jobs_post(jobs, &request->job, &relaxed.runnable, &relaxed, priority,
                          FW_JOB_REJOINABLE);
        SIM_EXPECT(rc == 0);
    }
    if (start_late) {
        rc = fw_jobs_start(jobs, NULL);
        SIM_EXPECT(rc == 0);
    }
    struct fw_job *job;
    uint32_t back = 0;
    while (fw_jobs_rejoin_wait(jobs, &relaxed, 0, FW_JOBS_FOREVER, &job) == FW_REJOIN_RETURNED) {
        SIM_EXPECT(FW_CONTAINER_OF(job, struct relaxed, job)->runs == 1);
        back++;
    }
    SIM_EXPECT(back == relaxed.count);
    rc = fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL);
    SIM_EXPECT(rc == 0);
    fw_jobs_destroy(jobs);
}

const struct sim_scenario sim_scenario_jobs_relaxed = {
    .name = "jobs-relaxed",
    .purpose = "what waits, and what a worker has in hand, is got by who is idle",
    .run = relaxed_run,
};

/* jobs-slots. */

enum { SLOTTED = 40, SLOTS_MAX = 8 };

struct slotted {
    struct fw_job job;
    struct fw_parker parker;
    bool is_parked;
};

static struct {
    struct fw_job_runnable runnable;
    struct slotted requests[SLOTTED];
    uint32_t slots;
    uint32_t begun;
    uint32_t posted; /* Those whose post has returned. */
} slots;

static void slotted_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct slotted *request = FW_CONTAINER_OF(job, struct slotted, job);
    slots.begun++;
    uint32_t room = slots.slots + slots.begun;
    uint32_t wanted = room < SLOTTED ? room : SLOTTED;
    request->is_parked = true;
    while (slots.posted < wanted) {
        fw_park(&request->parker);
    }
    request->is_parked = false;
}

static void slots_run(void)
{
    memset(&slots, 0, sizeof slots);
    sim_at(SIM_S, race_is_late, NULL, 0);
    slots.runnable = (struct fw_job_runnable){.run = slotted_run};
    struct fw_jobs_policy policy;
    fw_jobs_policy_init(&policy);
    policy.workers = (uint32_t)sim_between(1, 3);
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    policy.slots = (uint32_t)sim_between(1, SLOTS_MAX);
    policy.hand = (uint32_t)sim_between(1, 6);
    policy.idle_spins = (uint32_t)sim_between(0, 2);
    slots.slots = policy.slots;
    struct fw_jobs *jobs;
    int rc = fw_jobs_create(&jobs, &policy, NULL);
    SIM_EXPECT(rc == 0);
    rc = fw_jobs_start(jobs, NULL);
    SIM_EXPECT(rc == 0);
    for (uint32_t i = 0; i < SLOTTED; i++) {
        fw_parker_init(&slots.requests[i].parker);
    }
    for (uint32_t i = 0; i < SLOTTED; i++) {
        rc = fw_jobs_post(jobs, &slots.requests[i].job, &slots.runnable, &slots, 0,
                          FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY);
        SIM_EXPECT(rc == 0);
        slots.posted++;
        for (uint32_t j = 0; j <= i; j++) {
            if (slots.requests[j].is_parked) {
                fw_unpark(&slots.requests[j].parker);
            }
        }
    }
    struct fw_job *job;
    uint32_t back = 0;
    while (fw_jobs_rejoin_wait(jobs, &slots, 0, FW_JOBS_FOREVER, &job) == FW_REJOIN_RETURNED) {
        back++;
    }
    SIM_EXPECT(back == SLOTTED);
    rc = fw_jobs_stop(jobs, FW_JOBS_DRAIN, NULL);
    SIM_EXPECT(rc == 0);
    fw_jobs_destroy(jobs);
}

const struct sim_scenario sim_scenario_jobs_slots = {
    .name = "jobs-slots",
    .purpose = "a slot is free once its request has begun, and who waits for it is told",
    .run = slots_run,
};

/*
 * Planted: the admission word is lowered without the lock under which it is raised. An addition
 * between the load and the store is lost, and the word no longer says what runs.
 */
enum { PLANTED_ROUNDS = 10, PLANTED_WORKERS = 3 };

static struct {
    struct fw_mutex role;
    _Atomic uint64_t word;
    uint64_t limits;
    _Atomic uint32_t inside;
} admission;

static bool admission_enter(void)
{
    fw_mutex_lock(&admission.role);
    bool admitted = fw_cmls_enter(&admission.word, admission.limits, 3);
    fw_mutex_unlock(&admission.role);
    return admitted;
}

static void admission_worker(void *argument)
{
    (void)argument;
    for (int i = 0; i < PLANTED_ROUNDS; i++) {
        while (!admission_enter()) {
            sim_sleep(SIM_US);
        }
        SIM_EXPECT(atomic_fetch_add(&admission.inside, 1) < 2);
        sim_sleep(sim_between(0, 3) * SIM_US);
        atomic_fetch_sub(&admission.inside, 1);
        uint64_t word = atomic_load(&admission.word);
        FW_YIELD_POINT("planted: read the word"); /* The bug: this is the role's. */
        atomic_store(&admission.word, word - fw_cmls_unit(3));
    }
}

static void planted_threads(void (*run)(void *argument))
{
    struct fw_thread threads[PLANTED_WORKERS];
    for (int i = 0; i < PLANTED_WORKERS; i++) {
        int rc = fw_thread_create(&threads[i], "planted", run, NULL);
        FW_ASSERT(rc == 0);
    }
    for (int i = 0; i < PLANTED_WORKERS; i++) {
        fw_thread_join(&threads[i]);
    }
}

static void admission_run(void)
{
    struct fw_cmls cmls = {.sums = {0, 0, 0, 2}};
    fw_mutex_init(&admission.role, FW_RANK_JOBS_ROLE);
    atomic_store(&admission.word, 0);
    atomic_store(&admission.inside, 0);
    admission.limits = fw_cmls_pack(&cmls);
    planted_threads(admission_worker);
    SIM_EXPECT(atomic_load(&admission.word) == 0);
}

const struct sim_scenario sim_scenario_jobs_planted_admission = {
    .name = "jobs-planted-admission",
    .purpose = "lowers the admission word without the lock",
    .run = admission_run,
    .planted = true,
};

/*
 * Planted: a request posts a sibling, and counts it only after it can be seen and is itself over.
 * Who rejoins between is told that none exists, and then one runs.
 */
static struct {
    struct fw_owners owners;
    struct fw_mutex front;
    struct fw_jobs_owner *record;
    bool none_exist;
} early;

static void early_request(void *argument)
{
    (void)argument;
    sim_sleep(sim_between(0, 5) * SIM_US);
    (void)(fw_owner_over(early.record) ==
           true); /* The bug: it is over before its sibling counts. */
    fw_mutex_lock(&early.front);
    SIM_EXPECT(!early.none_exist); /* The sibling would run now. */
    fw_owner_expect(early.record, 3);
    (void)(fw_owner_over(early.record) == true);
    fw_mutex_unlock(&early.front);
}

static void early_run(void)
{
    early.none_exist = false;
    fw_mutex_init(&early.front, FW_RANK_JOBS_FRONT);
    int rc = fw_owners_init(&early.owners, 1);
    FW_ASSERT(rc == 0);
    early.record = fw_owner_get(&early.owners, &early);
    FW_ASSERT(early.record != NULL);
    fw_owner_expect(early.record, 3);
    struct fw_thread thread;
    rc = fw_thread_create(&thread, "request", early_request, NULL);
    FW_ASSERT(rc == 0);
    for (int i = 0; i < PLANTED_ROUNDS; i++) {
        fw_mutex_lock(&early.front);
        early.none_exist = early.none_exist || fw_owner_is_empty(early.record);
        fw_mutex_unlock(&early.front);
        sim_sleep(sim_between(0, 2) * SIM_US);
    }
    fw_thread_join(&thread);
    fw_owners_fini(&early.owners);
    fw_mutex_fini(&early.front);
}

const struct sim_scenario sim_scenario_jobs_planted_exist = {
    .name = "jobs-planted-exist",
    .purpose = "says that none exists before the count is final",
    .run = early_run,
    .planted = true,
};

/*
 * Planted: a worker that found nothing arms the bell and sleeps without looking once more.
 */
static struct {
    struct fw_doorbell bell;
    struct fw_parker worker;
    _Atomic uint32_t inbox;
} sleepy;

static void sleepy_worker(void *argument)
{
    (void)argument;
    for (uint32_t done = 0; done < PLANTED_ROUNDS;) {
        uint32_t work = atomic_exchange(&sleepy.inbox, 0);
        done += work;
        if (work == 0) {
            FW_YIELD_POINT("planted: found no work");
            fw_doorbell_arm(&sleepy.bell);
            fw_park(&sleepy.worker); /* The bug: the inbox may have filled before the bell. */
            (void)fw_doorbell_disarm(&sleepy.bell);
        }
    }
}

static void sleepy_run(void)
{
    struct fw_thread thread;
    fw_doorbell_init(&sleepy.bell);
    fw_parker_init(&sleepy.worker);
    atomic_store(&sleepy.inbox, 0);
    int rc = fw_thread_create(&thread, "worker", sleepy_worker, NULL);
    FW_ASSERT(rc == 0);
    for (int i = 0; i < PLANTED_ROUNDS; i++) {
        atomic_fetch_add(&sleepy.inbox, 1);
        if (fw_doorbell_ring(&sleepy.bell)) {
            fw_unpark(&sleepy.worker);
        }
        sim_sleep(sim_between(1, 5) * SIM_US);
    }
    fw_thread_join(&thread);
}

const struct sim_scenario sim_scenario_jobs_planted_wakeup = {
    .name = "jobs-planted-wakeup",
    .purpose = "a worker sleeps without a second look at the inbox",
    .run = sleepy_run,
    .planted = true,
};
