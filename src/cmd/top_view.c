/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "cmd/top.h"

enum { DELAYS_MAX = 64, PERCENT = 100, MEDIAN = 50, TAIL = 99 };

#define NS_PER_S_D 1e9

const char *const fw_top_states[] = {
    [FW_TOP_SERVED] = "", [FW_TOP_HELD] = "held back", [FW_TOP_REFUSED] = "refused"};

/* The two samples of one group, and of one thing in it. */
struct pair {
    const struct fw_figures *now;
    const struct fw_figures *before; /* NULL: there is none. */
    const struct fw_thing *thing;
    const struct fw_thing *thing_before; /* NULL: it was not there. */
    double seconds;
};

static struct pair pair_of(const struct fw_top_view *view, const struct fw_top_sample *before,
                           enum fw_top_group group)
{
    return (struct pair){.now = &view->now->groups[group],
                         .before = before != NULL ? &before->groups[group] : NULL,
                         .seconds = view->seconds};
}

static void pair_thing(struct pair *pair, size_t index)
{
    pair->thing = &pair->now->things[index];
    pair->thing_before =
        pair->before != NULL ? fw_figures_thing(pair->before, pair->thing->name, index) : NULL;
}

static double rate_between(const struct pair *pair, uint64_t now, uint64_t before)
{
    return now > before && pair->seconds > 0 ? (double)(now - before) / pair->seconds : 0;
}

/* Of the whole group. */
static double rate(const struct pair *pair, const char *name)
{
    return pair->before == NULL ? 0
                                : rate_between(pair, fw_figures_number(pair->now, name),
                                               fw_figures_number(pair->before, name));
}

static uint64_t number_of(const struct pair *pair, const char *name)
{
    return fw_figures_number_of(pair->now, pair->thing, name);
}

static double rate_of(const struct pair *pair, const char *name)
{
    return pair->thing_before == NULL
               ? 0
               : rate_between(pair, number_of(pair, name),
                              fw_figures_number_of(pair->before, pair->thing_before, name));
}

static const char *text_of(const struct pair *pair, const char *name)
{
    const char *text = fw_figures_get_of(pair->now, pair->thing, name);
    return text != NULL ? text : "-";
}

/* ---- summary ------------------------------------------------------------------------------- */

static void summary_fill(struct fw_top_view *view, const struct fw_top_sample *before)
{
    const struct pair pair = pair_of(view, before, FW_TOP_GENERAL);
    const char *version = fw_figures_get(pair.now, "version");
    static const char *const requests[] = {
        "cmd_get",       "cmd_set",   "cmd_touch",   "cmd_flush", "delete_hits",
        "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses"};
    double hits = rate(&pair, "get_hits");
    double misses = rate(&pair, "get_misses");
    view->summary = (struct fw_top_summary){
        .version = version != NULL ? version : "-",
        .process = fw_figures_number(pair.now, "pid"),
        .uptime_s = fw_figures_number(pair.now, "uptime"),
        .hit_ratio = hits + misses > 0 ? hits / (hits + misses) : -1,
        .evictions = rate(&pair, "evictions"),
        .bytes_in = rate(&pair, "bytes_read"),
        .bytes_out = rate(&pair, "bytes_written"),
        .items = fw_figures_number(pair.now, "curr_items"),
        .bytes = fw_figures_number(pair.now, "bytes"),
        .bytes_max = fw_figures_number(pair.now, "limit_maxbytes"),
        .connections = fw_figures_number(pair.now, "curr_connections"),
        .answer_ns = view->now->answer_ns,
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(requests); i++) {
        view->summary.requests += rate(&pair, requests[i]);
    }
}

/* ---- tenants ------------------------------------------------------------------------------- */

/* How many of those served since the last sample waited less than a power of two. */
struct delays {
    uint64_t limits_ns[DELAYS_MAX];
    uint64_t counts[DELAYS_MAX];
    size_t count;
};

/* "delay_under_1024_ns": 1024. False: it is another figure. */
static bool delay_limit(const char *name, uint64_t *limit_ns)
{
    static const char beginning[] = "delay_under_";
    const size_t length = sizeof beginning - 1;
    if (strncmp(name, beginning, length) != 0) {
        return false;
    }
    return fw_parse_uint(name + length, strspn(name + length, "0123456789"), 0, UINT64_MAX,
                         limit_ns) == 0;
}

static void delays_read(struct delays *delays, const struct pair *pair)
{
    delays->count = 0;
    for (size_t i = 0; i < pair->thing->count && delays->count < DELAYS_MAX; i++) {
        const char *name = pair->now->rows[pair->thing->first + i].name;
        uint64_t limit_ns;
        if (delay_limit(name, &limit_ns)) {
            uint64_t now = number_of(pair, name);
            uint64_t before = fw_figures_number_of(pair->before, pair->thing_before, name);
            delays->limits_ns[delays->count] = limit_ns;
            delays->counts[delays->count] = now > before ? now - before : 0;
            delays->count++;
        }
    }
}

/* Servers write them in rising order. */
static uint64_t delays_percentile(const struct delays *delays, uint64_t percent)
{
    uint64_t all = 0;
    uint64_t below = 0;
    for (size_t i = 0; i < delays->count; i++) {
        all += delays->counts[i];
    }
    for (size_t i = 0; i < delays->count && all > 0; i++) {
        below += delays->counts[i];
        if (below * PERCENT >= all * percent) {
            return delays->limits_ns[i];
        }
    }
    return 0;
}

static void tenant_fill(struct fw_top_tenant *tenant, const struct pair *pair, double cost_all)
{
    struct delays delays = {.count = 0};
    if (pair->thing_before != NULL) {
        delays_read(&delays, pair);
    }
    *tenant = (struct fw_top_tenant){
        .name = pair->thing->name,
        .weight = number_of(pair, "weight"),
        .rate = number_of(pair, "rate"),
        .waiting = number_of(pair, "waiting"),
        .served = rate_of(pair, "served"),
        .share = cost_all > 0 ? rate_of(pair, "cost") / cost_all : 0,
        .delayed = rate_of(pair, "delayed"),
        .throttled = rate_of(pair, "throttled"),
        .shed = rate_of(pair, "shed"),
        .wait_p50_ns = delays_percentile(&delays, MEDIAN),
        .wait_p99_ns = delays_percentile(&delays, TAIL),
    };
    tenant->state = tenant->shed > 0        ? FW_TOP_REFUSED
                    : tenant->throttled > 0 ? FW_TOP_HELD
                                            : FW_TOP_SERVED;
}

static int tenant_compare(const void *left, const void *right)
{
    const struct fw_top_tenant *a = left;
    const struct fw_top_tenant *b = right;
    if (a->state != b->state) {
        return a->state > b->state ? -1 : 1;
    }
    return a->served != b->served ? (a->served > b->served ? -1 : 1) : strcmp(a->name, b->name);
}

static void tenants_fill(struct fw_top_view *view, const struct fw_top_sample *before)
{
    struct pair pair = pair_of(view, before, FW_TOP_TENANTS);
    double cost_all = 0;
    for (size_t i = 0; i < view->tenant_count; i++) {
        pair_thing(&pair, i);
        cost_all += rate_of(&pair, "cost");
    }
    for (size_t i = 0; i < view->tenant_count; i++) {
        pair_thing(&pair, i);
        tenant_fill(&view->tenants[i], &pair, cost_all);
    }
    if (view->tenant_count > 0) {
        qsort(view->tenants, view->tenant_count, sizeof *view->tenants, tenant_compare);
    }
}

/* ---- the rest ------------------------------------------------------------------------------ */

static void cores_fill(struct fw_top_view *view, const struct fw_top_sample *before)
{
    struct pair pair = pair_of(view, before, FW_TOP_THREADS);
    for (size_t i = 0; i < view->core_count; i++) {
        pair_thing(&pair, i);
        view->cores[i] = (struct fw_top_core){
            .name = pair.thing->name,
            .queue = number_of(&pair, "run_queue"),
            .turns = rate_of(&pair, "turns"),
            .yields = rate_of(&pair, "conn_yields"),
            .bytes_in = rate_of(&pair, "bytes_read"),
            .bytes_out = rate_of(&pair, "bytes_written"),
        };
    }
}

static void lanes_fill(struct fw_top_view *view, const struct fw_top_sample *before)
{
    struct pair pair = pair_of(view, before, FW_TOP_LANES);
    for (size_t i = 0; i < view->lane_count; i++) {
        pair_thing(&pair, i);
        view->lanes[i] = (struct fw_top_lane){
            .name = pair.thing->name,
            .waiting = number_of(&pair, "waiting"),
            .running = number_of(&pair, "running"),
            .started = rate_of(&pair, "started"),
            .wait_p99_ns = number_of(&pair, "wait_p99_ns"),
            .run_p99_ns = number_of(&pair, "run_p99_ns"),
        };
    }
}

static void slaves_fill(struct fw_top_view *view, const struct fw_top_sample *before)
{
    struct pair pair = pair_of(view, before, FW_TOP_REPLICATION);
    for (size_t i = 0; i < view->slave_count; i++) {
        pair_thing(&pair, i);
        view->slaves[i] = (struct fw_top_slave){
            .name = pair.thing->name,
            .address = text_of(&pair, "address"),
            .state = text_of(&pair, "state"),
            .behind_bytes = number_of(&pair, "behind_bytes"),
            .behind_ms = number_of(&pair, "behind_ms"),
            .bytes_out = rate_of(&pair, "bytes_sent"),
        };
    }
}

static bool is_enabled(const struct fw_figures *figures)
{
    const char *value = fw_figures_get(figures, "enabled");
    return value != NULL && strcmp(value, "yes") == 0;
}

bool fw_top_view_init(struct fw_top_view *view, const struct fw_top_sample *now,
                      const struct fw_top_sample *before)
{
    const struct fw_figures *groups = now->groups;
    *view = (struct fw_top_view){
        .now = now,
        .seconds = before != NULL ? (double)(now->at_ns - before->at_ns) / NS_PER_S_D : 0,
        .tenant_count = groups[FW_TOP_TENANTS].thing_count,
        .core_count = groups[FW_TOP_THREADS].thing_count,
        .lane_count = groups[FW_TOP_LANES].thing_count,
        .slave_count = groups[FW_TOP_REPLICATION].thing_count,
        .has_replication = is_enabled(&groups[FW_TOP_REPLICATION]),
        .has_volumes = is_enabled(&groups[FW_TOP_VOLUMES]),
    };
    /* One more of each: none of nothing is NULL. */
    view->tenants = calloc(view->tenant_count + 1, sizeof *view->tenants);
    view->cores = calloc(view->core_count + 1, sizeof *view->cores);
    view->lanes = calloc(view->lane_count + 1, sizeof *view->lanes);
    view->slaves = calloc(view->slave_count + 1, sizeof *view->slaves);
    if (view->tenants == NULL || view->cores == NULL || view->lanes == NULL ||
        view->slaves == NULL) {
        fw_top_view_fini(view);
        return false;
    }
    summary_fill(view, before);
    tenants_fill(view, before);
    cores_fill(view, before);
    lanes_fill(view, before);
    slaves_fill(view, before);
    return true;
}

void fw_top_view_fini(struct fw_top_view *view)
{
    free(view->tenants);
    free(view->cores);
    free(view->lanes);
    free(view->slaves);
}

void fw_top_sample_fini(struct fw_top_sample *sample)
{
    for (size_t i = 0; i < FW_TOP_GROUPS; i++) {
        fw_figures_fini(&sample->groups[i]);
    }
}
