/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/tenants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/list.h"
#include "io/clock.h"

enum { NAME_BUCKETS = 2 * FW_SCHED_TENANTS_MAX }; /* A power of two. */

/* Without a grant it is looked so often whether there is one. */
#define NO_GRANT_COMEBACK_NS INT64_C(10000000)
/* A burst of a cluster that nobody configured: this part of its rate, over all nodes. */
enum { CLUSTER_BURST_PART = 50 };

static const struct fw_tenant_config plain_dues = {.weight = 1};

/* Relaxed everywhere in this file: tenants.h says why. */
static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static int64_t load_signed(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Zeroed and aligned. `*memory` is what to free. */
static void *zeroed(size_t size, void **memory)
{
    *memory = calloc(1, size + FW_CACHE_LINE);
    if (*memory == NULL) {
        return NULL;
    }
    uintptr_t address = (uintptr_t)*memory;
    return (char *)*memory + (FW_CACHE_LINE - address % FW_CACHE_LINE);
}

/* ---- buckets ------------------------------------------------------------------------------- */

bool fw_tenant_take(struct fw_tenant *tenant, uint64_t rate, uint32_t cost, int64_t now_ns,
                    int64_t *again_ns)
{
    int64_t now = now_ns * FW_TENANT_TICKS;
    if (FW_UNLIKELY(now_ns > load_signed(&tenant->rate_until_ns))) {
        *again_ns = now_ns + NO_GRANT_COMEBACK_NS;
        return false;
    }
    int64_t burst = load_signed(&tenant->burst);
    int64_t token = fw_tenant_ticks(1, rate);
    int64_t price = fw_tenant_ticks(cost, rate);
    int64_t empty_at = load_signed(&tenant->empty_at);
    for (;;) {
        int64_t start = empty_at > now - burst ? empty_at : now - burst;
        if (start + token > now) {
            int64_t rest = burst / 2 / FW_TENANT_TICKS;
            rest = rest < FW_TENANT_COMEBACK_NS ? rest : FW_TENANT_COMEBACK_NS;
            int64_t then_ns = (start + token) / FW_TENANT_TICKS + 1;
            *again_ns = then_ns > now_ns + rest ? then_ns : now_ns + rest;
            return false;
        }
        FW_YIELD_POINT("sched: has counted the tokens");
        if (atomic_compare_exchange_weak_explicit(&tenant->empty_at, &empty_at, start + price,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return true;
        }
    }
}

void fw_tenant_correct(struct fw_tenant *tenant, int64_t ticks)
{
    int64_t empty_at = load_signed(&tenant->empty_at);
    int64_t corrected;
    do {
        corrected = empty_at + ticks;
        if (corrected > FW_TENANT_EMPTY_AT_MAX) {
            corrected = FW_TENANT_EMPTY_AT_MAX;
        }
        FW_YIELD_POINT("sched: corrects a bucket");
    } while (!atomic_compare_exchange_weak_explicit(&tenant->empty_at, &empty_at, corrected,
                                                    memory_order_relaxed, memory_order_relaxed));
}

/* ---- names --------------------------------------------------------------------------------- */

/* Where the number of that name is, or would be. */
static uint16_t *name_slot(const struct fw_tenants *tenants, const char *name)
{
    uint64_t slot = fw_hash(name, strlen(name), 0) % NAME_BUCKETS;
    while (tenants->names[slot] != 0 &&
           strcmp(tenants->about[tenants->names[slot] - 1].name, name) != 0) {
        slot = (slot + 1) % NAME_BUCKETS; /* Half of them are free at least. */
    }
    return &tenants->names[slot];
}

static void name_add(struct fw_tenants *tenants, uint16_t *slot, uint32_t number, const char *name)
{
    memcpy(tenants->about[number].name, name, strlen(name) + 1);
    *slot = (uint16_t)(number + 1);
}

/* ---- dues ---------------------------------------------------------------------------------- */

static uint64_t smaller_limit(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* So many units at that rate, in ticks; at least one, or a bucket would never give any. */
static int64_t burst_ticks(uint64_t burst, uint64_t rate)
{
    double ticks = (double)burst * (double)FW_TENANT_TICKS_PER_S / (double)rate;
    int64_t limited = ticks < (double)FW_TENANT_BURST_MAX ? (int64_t)ticks : FW_TENANT_BURST_MAX;
    int64_t token = fw_tenant_ticks(1, rate);
    return limited > token ? limited : token;
}

/* Those of a rate that is this process's own. */
static void dues_set_own(struct fw_tenant *tenant, const struct fw_tenant_config *config)
{
    uint64_t rate = smaller_limit(config->rate, config->cluster_rate);
    uint64_t burst = config->burst != 0 ? config->burst : rate / 10;
    int64_t burst_new = rate != 0 ? burst_ticks(burst, rate) : 0;
    bool is_changed = load(&tenant->rate) != rate || load_signed(&tenant->burst) != burst_new ||
                      load_signed(&tenant->rate_until_ns) != INT64_MAX;
    atomic_store_explicit(&tenant->rate, rate, memory_order_relaxed);
    atomic_store_explicit(&tenant->burst, burst_new, memory_order_relaxed);
    if (is_changed) {
        atomic_store_explicit(&tenant->empty_at, FW_TENANT_BUCKET_FULL, memory_order_relaxed);
    }
    atomic_store_explicit(&tenant->rate_until_ns, INT64_MAX, memory_order_relaxed);
}

/* Nothing is granted yet. A rate there must be: without one nothing would be limited. */
static void dues_set_divided(struct fw_tenant *tenant, const struct fw_tenant_config *config)
{
    atomic_store_explicit(&tenant->rate_until_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&tenant->rate, smaller_limit(config->rate, config->cluster_rate),
                          memory_order_relaxed);
}

static void dues_set(struct fw_tenants *tenants, uint32_t number,
                     const struct fw_tenant_config *config)
{
    struct fw_tenant *tenant = &tenants->of[number];
    struct fw_tenant_about *about = &tenants->about[number];
    bool is_divided = tenants->is_divided && config->cluster_rate != 0;
    about->config = *config;
    about->config.name = about->name;
    atomic_store_explicit(&tenant->step, FW_TENANT_STEP / config->weight, memory_order_relaxed);
    atomic_store_explicit(&tenant->delay_max_ns, config->delay_max_ns, memory_order_relaxed);
    if (!is_divided) {
        dues_set_own(tenant, config);
    } else if (!about->is_divided) { /* Else it keeps its grant until there is another. */
        dues_set_divided(tenant, config);
    }
    about->is_divided = is_divided;
}

void fw_tenants_divide(struct fw_tenants *tenants, bool is_divided)
{
    fw_mutex_lock(&tenants->lock);
    tenants->is_divided = is_divided;
    uint32_t count = atomic_load_explicit(&tenants->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_tenant_config config = tenants->about[i].config;
        if (config.cluster_rate != 0) {
            dues_set(tenants, i, &config);
        }
    }
    atomic_fetch_add_explicit(&tenants->generation, 1, memory_order_relaxed);
    fw_mutex_unlock(&tenants->lock);
}

/* What is in the bucket, or owed, becomes as many units at another rate. */
static void bucket_convert(struct fw_tenant *tenant, int64_t full, double factor, int64_t burst,
                           int64_t now)
{
    int64_t empty_at = load_signed(&tenant->empty_at);
    int64_t converted;
    do {
        int64_t stock = now - empty_at < full ? now - empty_at : full;
        double ticks = (double)stock * factor;
        ticks = ticks > -(double)FW_TENANT_BURST_MAX ? ticks : -(double)FW_TENANT_BURST_MAX;
        converted = now - (ticks < (double)burst ? (int64_t)ticks : burst);
        FW_YIELD_POINT("sched: converts a bucket");
    } while (!atomic_compare_exchange_weak_explicit(&tenant->empty_at, &empty_at, converted,
                                                    memory_order_relaxed, memory_order_relaxed));
}

static void grant(struct fw_tenant *tenant, const struct fw_tenant_config *config, uint64_t part,
                  int64_t until_ns, int64_t now_ns)
{
    uint64_t rate = smaller_limit(config->rate, part);
    uint64_t burst = config->burst != 0 ? config->burst : config->cluster_rate / CLUSTER_BURST_PART;
    int64_t burst_new = burst_ticks(burst, config->cluster_rate);
    int64_t token = fw_tenant_ticks(1, rate);
    burst_new = burst_new > token ? burst_new : token;
    uint64_t rate_old = load(&tenant->rate);
    bool has_filled = now_ns <= load_signed(&tenant->rate_until_ns);
    int64_t full = has_filled ? load_signed(&tenant->burst) : 0;
    double factor = (double)rate_old / (double)rate;
    /* Heads look meanwhile: what they see first of the two must not be worth more than both. */
    if (rate < rate_old) {
        atomic_store_explicit(&tenant->rate, rate, memory_order_relaxed);
    }
    bucket_convert(tenant, full, factor, burst_new, now_ns * FW_TENANT_TICKS);
    atomic_store_explicit(&tenant->rate, rate, memory_order_relaxed);
    atomic_store_explicit(&tenant->burst, burst_new, memory_order_relaxed);
    atomic_store_explicit(&tenant->rate_until_ns, until_ns, memory_order_relaxed);
}

void fw_tenants_grant(struct fw_tenants *tenants, uint32_t number, uint64_t part, int64_t until_ns,
                      int64_t now_ns)
{
    fw_mutex_lock(&tenants->lock);
    const struct fw_tenant_about *about = &tenants->about[number];
    struct fw_tenant *tenant = &tenants->of[number];
    if (about->is_divided && part == 0) {
        atomic_store_explicit(&tenant->rate_until_ns, 0, memory_order_relaxed);
    } else if (about->is_divided) {
        grant(tenant, &about->config, part, until_ns, now_ns);
    }
    fw_mutex_unlock(&tenants->lock);
}

uint64_t fw_tenants_part(const struct fw_tenants *tenants, uint32_t number, int64_t now_ns)
{
    const struct fw_tenant *tenant = &tenants->of[number];
    return now_ns <= load_signed(&tenant->rate_until_ns) ? load(&tenant->rate) : 0;
}

uint64_t fw_tenants_round(struct fw_tenants *tenants)
{
    fw_mutex_lock(&tenants->lock);
    uint64_t round = tenants->round;
    fw_mutex_unlock(&tenants->lock);
    return round;
}

void fw_tenants_granted(struct fw_tenants *tenants)
{
    atomic_fetch_add_explicit(&tenants->generation, 1, memory_order_relaxed);
}

static bool config_is_valid(const struct fw_tenant_config *config)
{
    return config->name != NULL && config->name[0] != 0 &&
           strnlen(config->name, FW_SCHED_NAME_MAX + 1) <= FW_SCHED_NAME_MAX &&
           config->weight >= 1 && config->weight <= FW_SCHED_WEIGHT_MAX &&
           config->rate <= FW_SCHED_RATE_MAX && config->cluster_rate <= FW_SCHED_RATE_MAX &&
           config->burst <= FW_SCHED_RATE_MAX && config->delay_max_ns >= 0;
}

/* Gives each its number, in `*count` those that are new too. What went wrong leaves them there. */
static int names_number(struct fw_tenants *tenants, const struct fw_tenant_config *configs,
                        size_t config_count, uint32_t *count)
{
    for (size_t i = 0; i < config_count; i++) {
        if (!config_is_valid(&configs[i])) {
            return -EINVAL;
        }
        uint16_t *slot = name_slot(tenants, configs[i].name);
        if (*slot == 0) {
            if (*count == FW_SCHED_TENANTS_MAX) {
                return -ENOSPC;
            }
            name_add(tenants, slot, *count, configs[i].name);
            ++*count;
        }
        struct fw_tenant_about *about = &tenants->about[*slot - 1];
        if (about->round == tenants->round) {
            return -EINVAL;
        }
        about->round = tenants->round;
    }
    return 0;
}

/* The last first: then each slot that is cleared is the end of its chain. */
static void names_forget(struct fw_tenants *tenants, uint32_t count, uint32_t count_kept)
{
    while (count > count_kept) {
        count--;
        *name_slot(tenants, tenants->about[count].name) = 0;
        tenants->about[count].round = 0;
    }
}

static int configure(struct fw_tenants *tenants, const struct fw_tenant_config *configs,
                     size_t config_count)
{
    uint32_t count_before = atomic_load_explicit(&tenants->count, memory_order_relaxed);
    uint32_t count = count_before;
    tenants->round++;
    int rc = names_number(tenants, configs, config_count, &count);
    if (rc != 0) {
        names_forget(tenants, count, count_before);
        return rc;
    }
    const struct fw_tenant_config *others = &plain_dues;
    for (size_t i = 0; i < config_count; i++) {
        uint32_t number = *name_slot(tenants, configs[i].name) - 1U;
        others = number == 0 ? &configs[i] : others;
        dues_set(tenants, number, &configs[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (tenants->about[i].round != tenants->round) {
            dues_set(tenants, i, others);
        }
    }
    atomic_store_explicit(&tenants->count, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&tenants->generation, 1, memory_order_relaxed);
    return 0;
}

int fw_tenants_configure(struct fw_tenants *tenants, const struct fw_tenant_config *configs,
                         size_t count)
{
    fw_mutex_lock(&tenants->lock);
    int rc = configure(tenants, configs, count);
    fw_mutex_unlock(&tenants->lock);
    return rc;
}

static void flows_free(struct fw_flows *flows)
{
    free(flows->delays);
    free(flows->figures);
    free(flows->memory);
    free(flows);
}

/* ---- sets ---------------------------------------------------------------------------------- */

int fw_tenants_create(struct fw_tenants **made)
{
    struct fw_tenants *tenants = calloc(1, sizeof *tenants);
    if (tenants == NULL) {
        return -ENOMEM;
    }
    tenants->of = zeroed(FW_SCHED_TENANTS_MAX * sizeof *tenants->of, &tenants->memory);
    tenants->about = calloc(FW_SCHED_TENANTS_MAX, sizeof *tenants->about);
    tenants->names = calloc(NAME_BUCKETS, sizeof *tenants->names);
    fw_list_init(&tenants->heads);
    if (tenants->of == NULL || tenants->about == NULL || tenants->names == NULL) {
        goto no_memory;
    }
    fw_mutex_init(&tenants->lock, FW_RANK_TENANTS);
    tenants->past = fw_flows_create(tenants);
    if (tenants->past == NULL) {
        goto no_past;
    }
    name_add(tenants, name_slot(tenants, "default"), 0, "default");
    dues_set(tenants, 0, &plain_dues);
    atomic_store_explicit(&tenants->count, 1, memory_order_relaxed);
    *made = tenants;
    return 0;

no_past:
    fw_mutex_fini(&tenants->lock);
no_memory:
    free(tenants->names);
    free(tenants->about);
    free(tenants->memory);
    free(tenants);
    return -ENOMEM;
}

void fw_tenants_destroy(struct fw_tenants *tenants)
{
    fw_list_remove(&tenants->past->link);
    flows_free(tenants->past);
    FW_ASSERT(fw_list_is_empty(&tenants->heads));
    fw_mutex_fini(&tenants->lock);
    free(tenants->names);
    free(tenants->about);
    free(tenants->memory);
    free(tenants);
}

uint32_t fw_tenants_count(const struct fw_tenants *tenants)
{
    return atomic_load_explicit(&tenants->count, memory_order_relaxed);
}

/* The lock is the set's, whoever asks; what is asked changes nothing else. */
static struct fw_mutex *lock_of(const struct fw_tenants *tenants)
{
    return &tenants->past->tenants->lock;
}

int fw_tenants_find(const struct fw_tenants *tenants, const char *name)
{
    fw_mutex_lock(lock_of(tenants));
    uint32_t number = *name_slot(tenants, name);
    fw_mutex_unlock(lock_of(tenants));
    return number != 0 ? (int)number - 1 : -ENOENT;
}

const char *fw_tenants_name(const struct fw_tenants *tenants, uint32_t tenant)
{
    FW_ASSERT(tenant < fw_tenants_count(tenants));
    return tenants->about[tenant].name; /* Written before it was counted, and never again. */
}

/* ---- figures ------------------------------------------------------------------------------- */

static void figures_add(struct fw_tenant_figures *sum, const struct fw_flows *flows,
                        uint32_t number, int64_t now_ns)
{
    const struct fw_flow *flow = &flows->of[number];
    const struct fw_flow_figures *figures = &flows->figures[number];
    sum->cost += fw_counter_get(&flow->cost);
    sum->waiting += fw_counter_get(&flow->waiting);
    uint64_t passed = fw_counter_get(&figures->passed);
    sum->served += passed;
    sum->delay_count[0] += passed;
    sum->throttled += fw_counter_get(&figures->throttled);
    sum->shed += fw_counter_get(&figures->shed);
    int64_t since_ns = fw_gauge_get(&figures->throttled_since_ns);
    if (since_ns != 0 && now_ns - since_ns > sum->throttled_for_ns) {
        sum->throttled_for_ns = now_ns - since_ns;
    }
    for (uint32_t i = 0; i < FW_SCHED_DELAYS; i++) {
        uint64_t count = fw_counter_get(fw_flows_delays(flows, i, number));
        sum->delay_count[i] += count;
        sum->served += count;
        sum->delayed += count;
    }
}

void fw_tenants_read(const struct fw_tenants *tenants, uint32_t tenant,
                     struct fw_tenant_config *config, struct fw_tenant_figures *figures)
{
    FW_ASSERT(tenant < fw_tenants_count(tenants));
    int64_t now_ns = fw_clock_now_ns();
    fw_mutex_lock(lock_of(tenants));
    if (config != NULL) {
        *config = tenants->about[tenant].config;
    }
    if (figures != NULL) {
        *figures = (struct fw_tenant_figures){0};
        FW_LIST_FOR_EACH (&tenants->heads, struct fw_flows, link, flows) {
            figures_add(figures, flows, tenant, now_ns);
        }
    }
    fw_mutex_unlock(lock_of(tenants));
}

void fw_tenants_use(struct fw_tenants *tenants, uint32_t number, struct fw_tenant_use *use)
{
    *use = (struct fw_tenant_use){0};
    fw_mutex_lock(&tenants->lock);
    FW_LIST_FOR_EACH (&tenants->heads, struct fw_flows, link, flows) {
        use->cost += fw_counter_get(&flows->of[number].cost);
        use->waiting += fw_counter_get(&flows->of[number].waiting);
        use->throttled += fw_counter_get(&flows->figures[number].throttled);
        use->is_held |= fw_gauge_get(&flows->figures[number].throttled_since_ns) != 0;
    }
    fw_mutex_unlock(&tenants->lock);
}

struct fw_flows *fw_flows_create(struct fw_tenants *tenants)
{
    struct fw_flows *flows = calloc(1, sizeof *flows);
    if (flows == NULL) {
        return NULL;
    }
    flows->tenants = tenants;
    flows->of = zeroed(FW_SCHED_TENANTS_MAX * sizeof *flows->of, &flows->memory);
    flows->figures = calloc(FW_SCHED_TENANTS_MAX, sizeof *flows->figures);
    flows->delays = calloc((size_t)FW_SCHED_TENANTS_MAX * FW_SCHED_DELAYS, sizeof *flows->delays);
    if (flows->of == NULL || flows->figures == NULL || flows->delays == NULL) {
        flows_free(flows);
        return NULL;
    }
    fw_mutex_lock(&tenants->lock);
    fw_list_push_back(&tenants->heads, &flows->link);
    fw_mutex_unlock(&tenants->lock);
    return flows;
}

void fw_flows_count_open(struct fw_flows *flows, uint32_t cost)
{
    fw_counter_increment(&flows->figures[0].passed);
    fw_counter_add(&flows->of[0].cost, cost);
}

/* Nobody waits here any more; what was counted is kept. */
static void flow_bequeath(struct fw_flows *past, const struct fw_flows *flows, uint32_t number)
{
    const struct fw_flow_figures *from = &flows->figures[number];
    struct fw_flow_figures *to = &past->figures[number];
    fw_counter_add(&past->of[number].cost, fw_counter_get(&flows->of[number].cost));
    fw_counter_add(&to->passed, fw_counter_get(&from->passed));
    fw_counter_add(&to->throttled, fw_counter_get(&from->throttled));
    fw_counter_add(&to->shed, fw_counter_get(&from->shed));
    for (uint32_t i = 0; i < FW_SCHED_DELAYS; i++) {
        uint64_t count = fw_counter_get(fw_flows_delays(flows, i, number));
        fw_counter_add(fw_flows_delays(past, i, number), count);
    }
}

void fw_flows_destroy(struct fw_flows *flows)
{
    struct fw_tenants *tenants = flows->tenants;
    fw_mutex_lock(&tenants->lock);
    fw_list_remove(&flows->link);
    uint32_t count = fw_tenants_count(tenants);
    for (uint32_t i = 0; i < count; i++) {
        flow_bequeath(tenants->past, flows, i);
    }
    fw_mutex_unlock(&tenants->lock);
    flows_free(flows);
}
