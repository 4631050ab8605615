/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load: what it is, where new foms go, and how it is levelled out.
 *
 * The load of a core is the number of foms that are ready, averaged over time: 0 when it sleeps,
 * below 1 it has time to spare, at 20 a fom waits for 19 others. It is measured as an area, foms
 * times nanoseconds, once per round with the clock that the round has read anyway; at the end of a
 * window, an eighth of the interval between two looks, the mean of the window is published, half
 * and half with what it was. A core that sleeps publishes nothing, so it says since when. Time
 * spent in ticks was rejected as the measure: it ends at 100%, and does not tell a queue of two
 * from one of two thousand.
 *
 * Levelling needs no thread and no timer. A core that is overloaded is awake: once per interval it
 * compares itself with the others, and if one has much less to do, the next foms that it would run
 * are sent there instead. So it is active foms that move, and an idle domain does nothing at all.
 *
 *     busy core                                   idle core
 *       looks; claims it for an interval  ------>   claimed_until
 *       shed_count = half the difference
 *       next dispatches: depart, mail     ------>   arrive, tick
 *       looks again an interval later               takes from nobody else meanwhile
 *
 * Why foms do not go to and fro. A fom is ready all the time at most, so it carries a load of at
 * most 1; half the difference in foms carries at most half the difference in load, and the two
 * cores end level, or in the order they were in. That holds if both loads are as published and
 * nobody else sends foms there: so a core that has sent waits until eight windows have passed, of
 * which its old load is then a 256th, and a core that receives is claimed by one sender for as
 * long. Differences below two foms, or below a quarter of the load, are left alone: moving costs
 * the fom its warm cache. Foms that carry little take several looks to level; that is the price.
 * A core whose thread the machine does not let run shows its load late, and may be sent too many;
 * then it is the busy one, and its next look sends the surplus on.
 *
 * Cores that move instead, FW_BALANCE_CORES: a busy locality asks the one that would stay the
 * least busy for a core, see leave.c. It asks only if the giver, with a core less, is still less
 * busy than the taker with one more; so afterwards the giver has no reason to ask for it back.
 */
#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/mail.h"

enum {
    WINDOWS_PER_LOOK = 8,
    WINDOW_MIN_NS = 16 * FW_LOAD_ONE,
    DIFFERENCE_MIN = 2 * FW_LOAD_ONE, /* Moving one fom must not turn it round. */
    DIFFERENCE_PART = 4,
};

/* ---- the measure --------------------------------------------------------------------------- */

void fw_balance_init(struct fw_core *core)
{
    int64_t window = core->domain->config.balance_interval_ns / WINDOWS_PER_LOOK;
    core->load = (struct fw_load){.from = core->now, .mark = core->now};
    core->load.window_ns = window > WINDOW_MIN_NS ? window : WINDOW_MIN_NS;
    core->balance_at = core->now;
}

/* Takes the time until now into account, during which `ready` were as they were, and are now. */
static void load_advance(struct fw_core *core, uint32_t ready)
{
    struct fw_load *load = &core->load;
    load->area += (uint64_t)load->ready * (uint64_t)(core->now - load->mark);
    load->mark = core->now;
    load->ready = ready;
    int64_t length = core->now - load->from;
    if (FW_LIKELY(length < load->window_ns)) {
        return;
    }
    uint64_t mean = load->area / ((uint64_t)length >> FW_LOAD_SHIFT);
    if (length < 2 * load->window_ns) {
        /* Relaxed, here and below: figures to compare. */
        mean = (mean + atomic_load_explicit(&core->load_lately, memory_order_relaxed)) / 2;
    }
    atomic_store_explicit(&core->load_lately, (uint32_t)(mean < UINT32_MAX ? mean : UINT32_MAX),
                          memory_order_relaxed);
    load->from = core->now;
    load->area = 0;
}

void fw_balance_asleep(struct fw_core *core)
{
    load_advance(core, 0);
    atomic_store_explicit(&core->asleep_since, core->now, memory_order_relaxed);
}

void fw_balance_awake(struct fw_core *core)
{
    load_advance(core, 0);
    atomic_store_explicit(&core->asleep_since, 0, memory_order_relaxed);
}

/* Of any core, as known at `now`. */
static uint64_t load_at(const struct fw_core *core, int64_t now)
{
    int64_t asleep = atomic_load_explicit(&core->asleep_since, memory_order_relaxed);
    if (asleep != 0 && now - asleep >= core->load.window_ns) {
        return 0;
    }
    return atomic_load_explicit(&core->load_lately, memory_order_relaxed);
}

/* ---- where new foms go --------------------------------------------------------------------- */

/*
 * How much a new fom would find before it: those ready lately or at this moment, whichever is more,
 * so that a burst of new ones counts at once. Between equals those it has at all decide.
 */
static uint64_t core_score(const struct fw_core *core)
{
    uint64_t score = 0;
    if (atomic_load_explicit(&core->asleep_since, memory_order_relaxed) == 0) {
        uint64_t lately = atomic_load_explicit(&core->load_lately, memory_order_relaxed);
        uint64_t ready = atomic_load_explicit(&core->queue_length, memory_order_relaxed);
        score = lately > ready * FW_LOAD_ONE ? lately : ready * FW_LOAD_ONE;
    }
    return (score << 24) + atomic_load_explicit(&core->resident_count, memory_order_relaxed);
}

struct fw_core *fw_locality_core(struct fw_locality *locality)
{
    /* Acquire, for the release in leave.c; what has changed meanwhile is put right there too. */
    uint32_t count = atomic_load_explicit(&locality->core_count, memory_order_acquire);
    struct fw_core *best = atomic_load_explicit(&locality->cores[0], memory_order_acquire);
    for (uint32_t i = 1; i < count; i++) {
        FW_YIELD_POINT("balance: choose a core");
        struct fw_core *core = atomic_load_explicit(&locality->cores[i], memory_order_acquire);
        if (!atomic_load_explicit(&core->is_leaving, memory_order_relaxed) &&
            core_score(core) < core_score(best)) {
            best = core;
        }
    }
    return best;
}

struct fw_locality *fw_domain_home_by_load(struct fw_domain *domain)
{
    /* Each time from another place, so that equals take turns. Relaxed: any place will do. */
    uint32_t first = atomic_fetch_add_explicit(&domain->next_home, 1, memory_order_relaxed);
    struct fw_locality *best = NULL;
    uint64_t best_score = UINT64_MAX;
    for (uint32_t i = 0; i < domain->locality_count; i++) {
        struct fw_locality *locality = &domain->localities[(first + i) % domain->locality_count];
        uint64_t score = core_score(fw_locality_core(locality));
        if (score < best_score) {
            best = locality;
            best_score = score;
        }
    }
    return best;
}

/* ---- foms move ----------------------------------------------------------------------------- */

/* The least busy core to send foms to: of this locality, or else of all others. NULL: none. */
static struct fw_core *target_find(const struct fw_core *core, bool is_same_home)
{
    struct fw_domain *domain = core->domain;
    struct fw_core *best = NULL;
    for (uint32_t i = 0; i < domain->core_count; i++) {
        struct fw_core *other = &domain->cores[i];
        bool is_near =
            atomic_load_explicit(&other->locality, memory_order_relaxed) == fw_core_locality(core);
        if (other != core && is_near == is_same_home &&
            !atomic_load_explicit(&other->is_leaving, memory_order_relaxed) &&
            atomic_load_explicit(&other->claimed_until, memory_order_relaxed) <= core->now &&
            (best == NULL || load_at(other, core->now) < load_at(best, core->now))) {
            best = other;
        }
    }
    return best;
}

/* Decides to send foms to the least busy of those cores. False: there is no need, or no way. */
static bool core_level(struct fw_core *core, bool is_same_home)
{
    struct fw_core *target = target_find(core, is_same_home);
    if (target == NULL) {
        return false;
    }
    uint64_t mine = load_at(core, core->now);
    uint64_t theirs = load_at(target, core->now);
    if (mine < theirs + DIFFERENCE_MIN || (mine - theirs) * DIFFERENCE_PART < mine) {
        return false;
    }
    int64_t claimed = atomic_load_explicit(&target->claimed_until, memory_order_relaxed);
    int64_t until = core->now + core->domain->config.balance_interval_ns;
    FW_YIELD_POINT("balance: claim");
    /* Relaxed: it orders nothing but who comes first. */
    if (claimed > core->now ||
        !atomic_compare_exchange_strong_explicit(&target->claimed_until, &claimed, until,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return false;
    }
    core->shed_count = (uint32_t)((mine - theirs) / DIFFERENCE_MIN);
    core->shed_to = target;
    core->shed_home = atomic_load_explicit(&target->locality, memory_order_relaxed);
    core->settled_at = until;
    return true;
}

bool fw_balance_shed(struct fw_core *core, struct fw_fom *fom)
{
    struct fw_core *to = core->shed_to;
    bool is_leaving = to == NULL;
    struct fw_locality *home = is_leaving ? fw_fom_home(fom) : core->shed_home;
    /* One that had no tick is bound to no core yet, but to its home unless its type can move. */
    bool is_able =
        fom->type->depart != NULL || ((fom->flags & FW_FOM_IS_FRESH) && home == fw_fom_home(fom));
    /* If `to` has left that home meanwhile, it sends the fom on. */
    if (!is_able || !fw_fom_depart(core, fom, is_leaving ? fw_locality_core(home) : to, home)) {
        return false;
    }
    core->shed_count -= is_leaving ? 0 : 1;
    return true;
}

/* ---- cores move ---------------------------------------------------------------------------- */

/* The sum over its cores. */
static uint64_t locality_load(struct fw_locality *locality, uint32_t count, int64_t now)
{
    uint64_t load = 0;
    for (uint32_t i = 0; i < count; i++) {
        load += load_at(atomic_load_explicit(&locality->cores[i], memory_order_acquire), now);
    }
    return load;
}

/* The least busy core that may leave it for where `taker` is; NULL: none. */
static struct fw_core *core_to_give(struct fw_locality *giver, uint32_t count,
                                    const struct fw_core *taker)
{
    struct fw_core *best = NULL;
    for (uint32_t i = 1; i < count; i++) {
        struct fw_core *core = atomic_load_explicit(&giver->cores[i], memory_order_acquire);
        if (atomic_load_explicit(&core->bound_count, memory_order_relaxed) == 0 &&
            core->cpu.node == taker->cpu.node && /* Its memory goes with it. */
            (best == NULL || load_at(core, taker->now) < load_at(best, taker->now))) {
            best = core;
        }
    }
    return best;
}

/* On behalf of the locality, by its first core. */
static void core_ask_for_another(struct fw_core *core)
{
    struct fw_locality *locality = fw_core_locality(core);
    struct fw_domain *domain = core->domain;
    uint32_t count = atomic_load_explicit(&locality->core_count, memory_order_acquire);
    uint64_t after = locality_load(locality, count, core->now) / (count + 1);
    uint64_t least = after; /* Of what a giver's cores would have to do then. */
    struct fw_core *found = NULL;
    for (uint32_t i = 0; i < domain->locality_count; i++) {
        struct fw_locality *giver = &domain->localities[i];
        uint32_t cores = atomic_load_explicit(&giver->core_count, memory_order_acquire);
        if (giver == locality || cores < 2) {
            continue;
        }
        uint64_t left = locality_load(giver, cores, core->now) / (cores - 1);
        struct fw_core *given = core_to_give(giver, cores, core);
        if (given != NULL && left + FW_LOAD_ONE <= least) {
            least = left;
            found = given;
        }
    }
    if (found != NULL) {
        /* What it answers is no news: the next look asks again. */
        int rc = fw_leave_ask(domain, found, locality, NULL);
        (void)rc;
    }
}

/* ---- when ---------------------------------------------------------------------------------- */

static void core_look(struct fw_core *core)
{
    const struct fw_domain_config *config = &core->domain->config;
    bool is_told = atomic_exchange_explicit(&core->must_level, false, memory_order_relaxed);
    core->balance_at = core->now + config->balance_interval_ns;
    if (atomic_load_explicit(&core->is_leaving, memory_order_relaxed)) {
        return;
    }
    core->shed_count = 0;
    if (!core_level(core, true) && (is_told || config->balance == FW_BALANCE_FOMS)) {
        (void)core_level(core, false);
    }
    const struct fw_locality *locality = fw_core_locality(core);
    if (config->balance == FW_BALANCE_CORES &&
        atomic_load_explicit(&locality->cores[0], memory_order_relaxed) == core) {
        core_ask_for_another(core);
    }
}

void fw_balance_round(struct fw_core *core)
{
    load_advance(core, core->queue.length);
    /* Relaxed: it says nothing but itself. */
    bool is_told = atomic_load_explicit(&core->must_level, memory_order_relaxed);
    if (FW_UNLIKELY(core->now >= core->balance_at || (is_told && core->now >= core->settled_at))) {
        core_look(core);
    }
}

void fw_domain_balance(struct fw_domain *domain)
{
    for (uint32_t i = 0; i < domain->core_count; i++) {
        atomic_store_explicit(&domain->cores[i].must_level, true, memory_order_relaxed);
        fw_core_ring(&domain->cores[i]);
    }
}
