/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A domain: made, started, drained, stopped.
 *
 * Stopping. The state changes first; then every fom is woken, and looks at the state before its
 * next tick and before it parks. A fom that is being created is counted before its maker looks at
 * the state, so once the state has changed the counts can only fall, and a sum of 0 is the end.
 * Only then are the threads told to end: foms need them to reach their FAILED and FINISHED.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/assert.h"
#include "base/hash.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "io/clock.h"

FW_LOG_MODULE_USE(engine);

enum { WATCH_NS = 100 * FW_NS_PER_MS, REPORT_EVERY = 50 };

/* One, unless there are to be as many localities as caches, or as nodes: then all that share it. */
static uint32_t cores_per_locality(uint32_t localities, const struct fw_topology *topology)
{
    bool is_cache =
        localities > 1 && (localities == topology->l2_count || localities == topology->l3_count ||
                           localities == topology->node_count);
    return is_cache ? topology->cpu_count / localities : 1;
}

static void config_complete(struct fw_domain_config *config, const struct fw_topology *topology)
{
    if (config->cores_per_locality == 0) {
        config->cores_per_locality = cores_per_locality(config->locality_count, topology);
    }
    if (config->locality_count == 0) {
        uint32_t cores = topology->cpu_count;
        uint32_t quota = (topology->quota_milli + 999) / 1000;
        cores = quota > 0 && quota < cores ? quota : cores;
        config->locality_count = cores / config->cores_per_locality;
        config->locality_count += config->locality_count == 0;
    }
    config->bracket_limit += config->bracket_limit == 0 ? 64 : 0;
    config->spare_limit += config->spare_limit == 0 ? 2 : 0;
    config->wait_min_ns += config->wait_min_ns == 0 ? FW_NS_PER_S : 0;
    config->wait_max_ns += config->wait_max_ns == 0 ? 60 * (int64_t)FW_NS_PER_S : 0;
    config->stall_ns += config->stall_ns == 0 ? FW_NS_PER_S : 0;
    config->balance_interval_ns += config->balance_interval_ns == 0 ? 100 * FW_NS_PER_MS : 0;
    config->spare_idle_ns += config->spare_idle_ns == 0 ? 2 * (int64_t)FW_NS_PER_S : 0;
}

/* One more instance, which readers see if the domain was given a registry. NULL: no memory. */
static struct fw_metrics_engine *metrics_create(struct fw_domain *domain)
{
    struct fw_metrics_engine *made = aligned_alloc(FW_CACHE_LINE, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    memset(made, 0, sizeof *made);
    struct fw_metrics *registry = domain->config.metrics;
    if (registry != NULL &&
        fw_metrics_register(registry, &fw_engine_metric_table, &made->source) != 0) {
        free(made);
        return NULL;
    }
    return made;
}

static void metrics_destroy(struct fw_domain *domain, struct fw_metrics_engine *metrics)
{
    if (metrics != NULL && domain->config.metrics != NULL) {
        fw_metrics_unregister(domain->config.metrics, &metrics->source);
    }
    free(metrics);
}

static int core_init(struct fw_core *core, struct fw_domain *domain, uint32_t index)
{
    core->domain = domain;
    core->index = index;
    core->is_observed =
        domain->config.observer.tick_begins != NULL || domain->config.observer.tick_ended != NULL;
    core->now = fw_clock_now_ns();
    core->round_ticks = 64;
    fw_queue_init(&core->queue);
    fw_wheel_init(&core->wheel, FW_WHEEL_TICK_BITS, core->now);
    fw_doorbell_init(&core->bell);
    fw_mutex_init(&core->lock, FW_RANK_CORE);
    fw_list_init(&core->handlers);
    fw_list_init(&core->idle);
    fw_list_init(&core->returning);
    fw_list_init(&core->bracketed);
    core->pools = calloc(FW_FOM_TYPES_MAX, sizeof *core->pools);
    core->estimates = calloc(FW_FOM_TYPES_MAX, sizeof *core->estimates);
    core->metrics = metrics_create(domain);
    if (core->pools == NULL || core->estimates == NULL || core->metrics == NULL) {
        return -ENOMEM;
    }
    struct fw_locality *locality = &domain->localities[index / domain->config.cores_per_locality];
    uint32_t place = atomic_load_explicit(&locality->core_count, memory_order_relaxed);
    atomic_init(&locality->cores[place], core);
    atomic_init(&locality->core_count, place + 1);
    atomic_init(&core->locality, locality);
    fw_balance_init(core);
    fw_leave_init(core);
    struct fw_reason reason;
    int rc = fw_reactor_create(&core->reactor, &reason);
    if (rc != 0) {
        FW_LOG(engine, ERROR, "cannot start core %u: %s", index, reason.text);
        return rc;
    }
    return fw_mail_init(core);
}

static void core_fini(struct fw_core *core)
{
    if (core->domain == NULL) {
        return; /* Was never made. */
    }
    fw_mail_fini(core);
    if (core->reactor != NULL) {
        fw_reactor_destroy(core->reactor);
    }
    for (uint32_t i = 0; i < core->domain->type_count; i++) {
        fw_pool_fini(&core->pools[i]);
    }
    free(core->pools);
    free(core->estimates);
    fw_trace_fini(core);
    metrics_destroy(core->domain, core->metrics);
    fw_mutex_fini(&core->lock);
    fw_wheel_fini(&core->wheel);
}

/* Gives each core its CPU, so that those of a locality share a cache if possible. */
static int domain_place_cores(struct fw_domain *domain)
{
    uint32_t places[FW_CORES_MAX];
    int rc = fw_topology_group(&domain->topology, domain->config.cores_per_locality,
                               domain->locality_count, places);
    for (uint32_t i = 0; rc == 0 && i < domain->core_count; i++) {
        domain->cores[i].cpu = domain->topology.cpus[places[i]];
    }
    return rc;
}

static int domain_make_cores(struct fw_domain *domain)
{
    const struct fw_domain_config *config = &domain->config;
    uint64_t count = (uint64_t)config->locality_count * config->cores_per_locality;
    if (count > FW_CORES_MAX) {
        FW_LOG(engine, ERROR, "%" PRIu64 " cores are too many, at most %d", count, FW_CORES_MAX);
        return -EINVAL;
    }
    domain->cores = aligned_alloc(alignof(struct fw_core), count * sizeof *domain->cores);
    domain->localities = calloc(config->locality_count, sizeof *domain->localities);
    if (domain->cores == NULL || domain->localities == NULL) {
        return -ENOMEM;
    }
    memset(domain->cores, 0, count * sizeof *domain->cores);
    domain->core_count = (uint32_t)count;
    domain->locality_count = config->locality_count;
    for (uint32_t i = 0; i < domain->locality_count; i++) {
        domain->localities[i].domain = domain;
        domain->localities[i].index = i;
    }
    int rc = domain_place_cores(domain);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < domain->core_count; i++) {
        rc = core_init(&domain->cores[i], domain, i);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int fw_domain_create(struct fw_domain **domain, const struct fw_domain_config *config)
{
    struct fw_domain *made = aligned_alloc(alignof(struct fw_domain), sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    memset(made, 0, sizeof *made);
    fw_clock_ticks_choose(); /* Traces and measured rounds have marks. */
    made->config = *config;
    fw_mutex_init(&made->lock, FW_RANK_DOMAIN);
    for (uint32_t i = 0; i < FW_CHANNEL_LOCKS; i++) {
        fw_mutex_init(&made->channel_locks[i].mutex, FW_RANK_CHANNEL);
        made->channel_locks[i].domain = made;
    }
    fw_parker_init(&made->stopper);
    fw_parker_init(&made->dumper);
    fw_list_init(&made->participants);
    fw_list_init(&made->quiescences);
    struct fw_reason reason;
    int rc = fw_topology_init(&made->topology, &reason);
    if (rc != 0) {
        FW_LOG(engine, ERROR, "cannot find out about this machine: %s", reason.text);
        goto failed;
    }
    config_complete(&made->config, &made->topology);
    atomic_init(&made->permits, (int32_t)made->config.bracket_limit);
    made->foreign_pools = calloc(FW_FOM_TYPES_MAX, sizeof *made->foreign_pools);
    made->metrics = metrics_create(made);
    rc = made->foreign_pools == NULL || made->metrics == NULL ? -ENOMEM : domain_make_cores(made);
    if (rc != 0) {
        goto failed;
    }
    *domain = made;
    return 0;

failed:
    fw_domain_destroy(made);
    return rc;
}

void fw_domain_destroy(struct fw_domain *domain)
{
    enum fw_domain_state state = fw_domain_state(domain);
    FW_ASSERT(state == FW_DOMAIN_INIT || state == FW_DOMAIN_STOP);
    for (uint32_t i = 0; i < domain->core_count; i++) {
        core_fini(&domain->cores[i]);
    }
    for (uint32_t i = 0; i < domain->type_count; i++) {
        fw_pool_fini(&domain->foreign_pools[i]);
    }
    free(domain->foreign_pools);
    metrics_destroy(domain, domain->metrics);
    free(domain->cores);
    free(domain->localities);
    fw_topology_fini(&domain->topology);
    for (uint32_t i = 0; i < FW_CHANNEL_LOCKS; i++) {
        fw_mutex_fini(&domain->channel_locks[i].mutex);
    }
    fw_mutex_fini(&domain->lock);
    free(domain);
}

/* A phase may be followed by those that the type has, by AUTHORISE, and by the end. */
static bool phases_are_sound(const struct fw_phase *phases, uint32_t count)
{
    if (phases == NULL || count == 0 || count > FW_PHASES_MAX - FW_PHASE_FIRST) {
        return false;
    }
    uint64_t own = (UINT64_MAX >> (FW_PHASES_MAX - count)) << FW_PHASE_FIRST;
    uint64_t known = own | FW_PHASE_BIT(FW_PHASE_AUTHORISE) | FW_PHASE_BIT(FW_PHASE_FAILED) |
                     FW_PHASE_BIT(FW_PHASE_FINISHED);
    for (uint32_t i = 0; i < count; i++) {
        if (phases[i].name == NULL || (phases[i].next & ~known) != 0) {
            return false;
        }
    }
    return true;
}

static bool type_is_sound(const struct fw_fom_type *type)
{
    return type->name != NULL && type->tick != NULL &&
           phases_are_sound(type->phases, type->phase_count) &&
           type->size >= sizeof(struct fw_fom) && type->size <= FW_FOM_SIZE_MAX &&
           type->limit_count > 0 && (type->depart == NULL) == (type->arrive == NULL);
}

/*
 * Foms begin at a cache line if that wastes no more than an eighth of their size. Else nothing is
 * wasted: no member of a struct needs a stricter alignment than divides the struct's size.
 */
static size_t type_alignment(const struct fw_fom_type *type)
{
    size_t waste = (FW_CACHE_LINE - type->size % FW_CACHE_LINE) % FW_CACHE_LINE;
    if (waste <= type->size / 8) {
        return FW_CACHE_LINE;
    }
    return type->size % alignof(max_align_t) == 0 ? alignof(max_align_t) : alignof(uint64_t);
}

int fw_domain_add_type(struct fw_domain *domain, const struct fw_fom_type *type)
{
    FW_ASSERT(fw_domain_state(domain) == FW_DOMAIN_INIT);
    if (!type_is_sound(type) || domain->type_count == FW_FOM_TYPES_MAX) {
        FW_LOG(engine, ERROR, "the fom type %s is not sound, or one too many",
               type->name != NULL ? type->name : "without a name");
        return -EINVAL;
    }
    uint32_t number = domain->type_count;
    uint32_t made = 0;
    int rc = fw_pool_init(&domain->foreign_pools[number], type->size, type_alignment(type),
                          sizeof(uint64_t), type->limit_count);
    for (; rc == 0 && made < domain->core_count; made++) {
        rc = fw_pool_init(&domain->cores[made].pools[number], type->size, type_alignment(type),
                          sizeof(uint64_t), type->limit_count);
    }
    if (rc == 0) { /* Else there is nothing to undo: an empty pool has no memory. */
        domain->types[number] = type;
        domain->type_count++;
    }
    return rc;
}

static void domain_end_threads(struct fw_domain *domain)
{
    for (uint32_t i = 0; i < domain->core_count; i++) {
        /* Release, for the acquire in the loop. */
        atomic_store_explicit(&domain->cores[i].must_exit, true, memory_order_release);
        fw_core_ring(&domain->cores[i]);
    }
    for (uint32_t i = 0; i < domain->core_count; i++) {
        fw_core_join(&domain->cores[i]);
        atomic_store_explicit(&domain->cores[i].must_exit, false, memory_order_relaxed);
    }
    /* Foms that were born elsewhere may still be on their way home. All is this thread's now. */
    bool is_flushed;
    do {
        is_flushed = true;
        for (uint32_t i = 0; i < domain->core_count; i++) {
            (void)fw_mail_receive(&domain->cores[i]);
            is_flushed = fw_mail_flush(&domain->cores[i]) && is_flushed;
        }
    } while (!is_flushed);
    for (uint32_t i = 0; i < domain->core_count; i++) {
        (void)fw_mail_receive(&domain->cores[i]);
        while (domain->cores[i].descriptor_count > 0) {
            (void)fw_reactor_poll(domain->cores[i].reactor, 0);
        }
    }
    fw_leave_abort(domain);
}

int fw_domain_start(struct fw_domain *domain)
{
    FW_ASSERT(fw_domain_state(domain) == FW_DOMAIN_INIT);
    atomic_store(&domain->state, FW_DOMAIN_NORMAL);
    int rc = 0;
    for (uint32_t i = 0; i < domain->core_count && rc == 0; i++) {
        rc = fw_core_add_handler(&domain->cores[i]);
        if (rc != 0) {
            FW_LOG(engine, ERROR, "cannot start a thread for core %u: %s", i, strerrordesc_np(-rc));
        }
    }
    rc = rc != 0 ? rc : fw_watchdog_start(domain);
    if (rc != 0) {
        domain_end_threads(domain);
        atomic_store(&domain->state, FW_DOMAIN_INIT);
    }
    return rc;
}

void fw_domain_stir(struct fw_domain *domain)
{
    for (uint32_t i = 0; i < domain->core_count; i++) {
        /* Release, for the acquire in the loop. */
        atomic_store_explicit(&domain->cores[i].must_stir, true, memory_order_release);
        fw_core_ring(&domain->cores[i]);
    }
    fw_domain_stir_foreign(domain);
}

void fw_domain_drain(struct fw_domain *domain)
{
    uint32_t state = FW_DOMAIN_NORMAL;
    FW_YIELD_POINT("domain: drain");
    if (atomic_compare_exchange_strong(&domain->state, &state, FW_DOMAIN_DRAIN)) {
        fw_domain_stir(domain);
    }
}

int64_t fw_domain_live_count(struct fw_domain *domain)
{
    int64_t count = atomic_load(&domain->live_count);
    for (uint32_t i = 0; i < domain->core_count; i++) {
        count += atomic_load(&domain->cores[i].live_count);
    }
    return count;
}

/* Waits until all foms are gone or the time has come. Returns how many there are still. */
static int64_t domain_wait(struct fw_domain *domain, int64_t deadline)
{
    for (uint32_t i = 1;; i++) {
        int64_t live = fw_domain_live_count(domain);
        int64_t left = deadline - fw_clock_now_ns();
        if (live == 0 || left <= 0) {
            return live;
        }
        if (!fw_park_for(&domain->stopper, left < WATCH_NS ? left : WATCH_NS) &&
            i % REPORT_EVERY == 0) {
            FW_LOG(engine, NOTICE, "waiting for %" PRId64 " foms to end", live);
        }
    }
}

uint64_t fw_domain_stop(struct fw_domain *domain, int64_t grace_ns)
{
    FW_ASSERT(fw_core_self() == NULL);
    enum fw_domain_state state = fw_domain_state(domain);
    if (state == FW_DOMAIN_INIT || state == FW_DOMAIN_STOP) {
        atomic_store(&domain->state, FW_DOMAIN_STOP);
        return 0;
    }
    fw_domain_drain(domain);
    int64_t now = fw_clock_now_ns();
    if (domain_wait(domain, grace_ns < INT64_MAX - now ? now + grace_ns : INT64_MAX) > 0) {
        /* Release, for the acquire in forced_error(). */
        atomic_store_explicit(&domain->is_killing, true, memory_order_release);
        fw_domain_stir(domain);
        (void)domain_wait(domain, INT64_MAX);
    }
    atomic_store(&domain->state, FW_DOMAIN_STOP);
    fw_watchdog_stop(domain); /* First: it looks at the threads, and may make one. */
    domain_end_threads(domain);
    return atomic_load(&domain->killed_count);
}

uint32_t fw_domain_locality_count(const struct fw_domain *domain)
{
    return domain->locality_count;
}

struct fw_locality *fw_domain_locality(struct fw_domain *domain, uint32_t index)
{
    return index < domain->locality_count ? &domain->localities[index] : NULL;
}

struct fw_locality *fw_domain_home_by_key(struct fw_domain *domain, uint64_t key)
{
    uint64_t hash = fw_hash(&key, sizeof key, 0);
    return &domain->localities[((hash >> 32) * domain->locality_count) >> 32];
}

void fw_locality_send(struct fw_locality *locality, struct fw_message *message)
{
    fw_mail_send_message(atomic_load_explicit(&locality->cores[0], memory_order_relaxed), message);
}
