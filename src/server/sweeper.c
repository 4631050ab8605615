/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sweeper.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "cache/table.h"
#include "io/clock.h"

enum {
    STEP_BUCKETS = 8,    /* Some 10 microseconds, with a record of each item fetched. */
    BURST_BUCKETS = 160, /* Some 200. */
    MANY = 20,           /* One in so many reclaimed is much. */
    FEW = 1000,          /* One in so many is hardly anything. */
    COLLAPSE_PART = 200, /* Huge pages take one part in so many of a busy server's time. */
    COLLAPSES_MAX = 16,  /* In one burst of an idle one. */
};

#define PAUSE_NS     (100 * (int64_t)FW_NS_PER_MS)
#define PAUSE_NS_MIN ((int64_t)FW_NS_PER_MS)
#define IDLE_NS      (100 * (int64_t)FW_NS_PER_MS) /* Without a request. */
#define ROUND_NS_MIN (2 * (int64_t)FW_NS_PER_S)
#define ROUND_NS_MAX (64 * (int64_t)FW_NS_PER_S)

int64_t fw_sweeper_adapt(int64_t round_ns, uint64_t reclaimed, uint64_t items)
{
    if (reclaimed > items / MANY) {
        return round_ns / 2 > ROUND_NS_MIN ? round_ns / 2 : ROUND_NS_MIN;
    }
    if (reclaimed <= items / FEW) {
        return round_ns * 2 < ROUND_NS_MAX ? round_ns * 2 : ROUND_NS_MAX;
    }
    return round_ns;
}

/* A round is over. */
static void sweeper_review(struct fw_sweeper *sweeper, const struct fw_table_totals *totals)
{
    uint64_t reclaimed = totals->reclaimed - sweeper->reclaimed;
    sweeper->reclaimed = totals->reclaimed;
    sweeper->round_ns = fw_sweeper_adapt(sweeper->round_ns, reclaimed, totals->items + reclaimed);
    /* Relaxed: a figure that only this thread writes. */
    atomic_fetch_add_explicit(&sweeper->round_count, 1, memory_order_relaxed);
}

/* A step is the least there is, so a small table's bursts are further apart than PAUSE_NS. */
uint64_t fw_sweeper_share(int64_t round_ns, uint64_t buckets)
{
    uint64_t bursts = (uint64_t)(round_ns / PAUSE_NS);
    uint64_t share = (buckets / bursts / STEP_BUCKETS + 1) * STEP_BUCKETS;
    return share < BURST_BUCKETS ? share : BURST_BUCKETS;
}

int64_t fw_sweeper_pause(int64_t round_ns, uint64_t buckets)
{
    uint64_t share = fw_sweeper_share(round_ns, buckets);
    FW_ASSERT(share > 0);
    uint64_t bursts = buckets / share + 1;
    int64_t pause_ns = round_ns / (int64_t)bursts;
    return pause_ns > PAUSE_NS_MIN ? pause_ns : PAUSE_NS_MIN;
}

bool fw_sweeper_may_collapse(struct fw_sweeper *sweeper, int64_t now_ns)
{
    uint64_t served = sweeper->served(sweeper->server);
    if (served != sweeper->served_before) {
        sweeper->served_before = served;
        sweeper->served_ns = now_ns;
    }
    return now_ns - sweeper->served_ns >= IDLE_NS || now_ns >= sweeper->collapse_due_ns;
}

void fw_sweeper_collapsed(struct fw_sweeper *sweeper, int64_t begun_ns, int64_t now_ns)
{
    sweeper->collapse_due_ns = now_ns + (now_ns - begun_ns) * COLLAPSE_PART;
}

static void sweeper_collapse(struct fw_sweeper *sweeper)
{
    int64_t now_ns = fw_clock_now_ns();
    for (int i = 0; i < COLLAPSES_MAX && fw_sweeper_may_collapse(sweeper, now_ns); i++) {
        int64_t begun_ns = now_ns;
        if (!fw_table_collapse(sweeper->local->cache->table)) {
            break;
        }
        now_ns = fw_clock_now_ns();
        fw_sweeper_collapsed(sweeper, begun_ns, now_ns);
    }
}

/* A burst: as many buckets as are due for one pause. Returns how long to pause. */
static int64_t sweeper_burst(struct fw_sweeper *sweeper)
{
    struct fw_table_totals totals;
    struct fw_table *table = sweeper->local->cache->table;
    fw_table_totals(table, &totals);
    fw_cache_local_set_time(sweeper->local, fw_clock_now_ns());
    uint64_t buckets = fw_sweeper_share(sweeper->round_ns, totals.buckets);
    for (uint64_t done = 0; done < buckets; done += STEP_BUCKETS) {
        if (fw_table_sweep(sweeper->local->table, &sweeper->cursor, STEP_BUCKETS, false)) {
            fw_table_totals(table, &totals);
            sweeper_review(sweeper, &totals);
            break;
        }
        /* Acquire, for the release in fw_sweeper_end(). */
        if (atomic_load_explicit(&sweeper->must_end, memory_order_acquire)) {
            break;
        }
    }
    sweeper_collapse(sweeper);
    return fw_sweeper_pause(sweeper->round_ns, totals.buckets);
}

static void sweeper_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_sweeper *sweeper = FW_CONTAINER_OF(job, struct fw_sweeper, job);
    /* Acquire, for the release in fw_sweeper_end(). */
    while (!atomic_load_explicit(&sweeper->must_end, memory_order_acquire)) {
        (void)fw_park_for(&sweeper->parker, sweeper_burst(sweeper));
    }
}

static struct fw_job_runnable sweeper_runnable = {.run = sweeper_run, .name = "sweeper"};

int fw_sweeper_begin(struct fw_sweeper *sweeper, struct fw_jobs *jobs, struct fw_cache *cache,
                     uint64_t (*served)(void *server), void *server)
{
    *sweeper = (struct fw_sweeper){
        .jobs = jobs, .round_ns = ROUND_NS_MIN, .served = served, .server = server};
    fw_parker_init(&sweeper->parker);
    sweeper->local = malloc(sizeof *sweeper->local);
    if (sweeper->local == NULL) {
        return -ENOMEM;
    }
    int rc = fw_cache_local_init(sweeper->local, cache);
    if (rc != 0) {
        goto no_local;
    }
    rc = fw_jobs_post(jobs, &sweeper->job, &sweeper_runnable, sweeper, 0,
                      FW_JOB_SERVICE | FW_JOB_REJOINABLE);
    if (rc != 0) {
        goto no_job;
    }
    return 0;

no_job:
    fw_cache_local_fini(sweeper->local);
no_local:
    free(sweeper->local);
    return rc;
}

void fw_sweeper_end(struct fw_sweeper *sweeper)
{
    struct fw_job *job;
    /* Release, for the acquires of the job. */
    atomic_store_explicit(&sweeper->must_end, true, memory_order_release);
    fw_unpark(&sweeper->parker);
    enum fw_rejoin rejoin = fw_jobs_rejoin_wait(sweeper->jobs, sweeper, 0, FW_JOBS_FOREVER, &job);
    FW_ASSERT(rejoin == FW_REJOIN_RETURNED && job == &sweeper->job);
    fw_cache_local_fini(sweeper->local);
    free(sweeper->local);
}
