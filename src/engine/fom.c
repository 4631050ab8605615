/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a fom on its core: created, queued, ticked from phase to phase, parked, gone.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "engine/word.h"
#include "io/clock.h"

FW_LOG_MODULE(engine);

_Static_assert(sizeof(struct fw_fom) == 120, "a parked fom is small");
_Static_assert(offsetof(struct fw_fom, wake_word) == 0, "the pool's stable bytes");
_Static_assert(offsetof(struct fw_fom, timer) == FW_CACHE_LINE,
               "what every tick needs comes first");

enum { BORN_WITHOUT_TURN = UINT16_MAX };

static const char *const standard_names[FW_PHASE_FIRST] = {
    [FW_PHASE_FINISHED] = "FINISHED",     [FW_PHASE_FAILED] = "FAILED",
    [FW_PHASE_INITIALISE] = "INITIALISE", [FW_PHASE_AUTHENTICATE] = "AUTHENTICATE",
    [FW_PHASE_AUTHORISE] = "AUTHORISE",
};

const char *fw_phase_name(const struct fw_fom_type *type, unsigned phase)
{
    if (phase < FW_PHASE_FIRST) {
        return standard_names[phase];
    }
    return phase - FW_PHASE_FIRST < type->phase_count ? type->phases[phase - FW_PHASE_FIRST].name
                                                      : "a phase the type does not have";
}

/* Others are at work in its memory. Acquire, for the release in fw_offload_run(). */
static bool fom_is_offloaded(const struct fw_fom *fom)
{
    return atomic_load_explicit(&fom->offload_count, memory_order_acquire) > 0;
}

static bool phase_is_patient(const struct fw_fom *fom)
{
    return fom->phase >= FW_PHASE_FIRST &&
           fom->type->phases[fom->phase - FW_PHASE_FIRST].is_patient;
}

/* ---- where it runs ------------------------------------------------------------------------- */

static void fom_send(struct fw_fom *fom, struct fw_core *to)
{
    /* Relaxed: who sends it publishes it; who wakes it does not read this while it is READY. */
    atomic_store_explicit(&fom->core, to, memory_order_relaxed);
    fw_mail_send_fom(to, fom);
}

/*
 * A fom that has just started, or moved. False: it was sent on. Its sender had chosen a core that
 * has left the fom's home since; nothing of the fom is bound to this one yet.
 */
static bool fom_arrive(struct fw_core *core, struct fw_fom *fom)
{
    struct fw_locality *home = fw_fom_home(fom);
    if (FW_UNLIKELY(fw_core_locality(core) != home)) {
        fom_send(fom, fw_locality_core(home));
        return false;
    }
    fw_figure_add(&core->resident_count, 1);
    if ((fom->flags & (FW_FOM_IS_MOVING | FW_FOM_IS_FRESH)) == FW_FOM_IS_MOVING) {
        fom->type->arrive(fom);
    }
    fom->flags &= (uint16_t)~FW_FOM_IS_MOVING;
    return true;
}

void fw_fom_enqueue(struct fw_core *core, struct fw_fom *fom)
{
    FW_ASSERT(fw_fom_core(fom) == core);
    bool has_moved = (fom->flags & FW_FOM_IS_MOVING) != 0;
    if (FW_UNLIKELY(fom->flags & (FW_FOM_IS_MOVING | FW_FOM_IS_FRESH)) && !fom_arrive(core, fom)) {
        return;
    }
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_ready(core, fom, has_moved);
    }
    if (fom->flags & FW_FOM_IS_LIMITED) {
        fw_limit_observe(core, fom, core->now - fom->since);
    }
    if ((fom->flags & FW_FOM_IS_FRESH) == 0) {
        fom->since = core->now;
    }
    fw_queue_push(&core->queue, fom);
}

void fw_fom_deliver(struct fw_fom *fom)
{
    struct fw_core *core = fw_fom_core(fom);
    if (FW_LIKELY(fw_core_self() == core)) {
        fw_fom_enqueue(core, fom);
    } else {
        fw_mail_send_fom(core, fom);
    }
}

void fw_fom_wake(struct fw_fom *fom)
{
    if (fw_word_wake(&fom->wake_word, FW_WORD_ANY)) {
        fw_fom_deliver(fom);
    }
}

struct fw_ticket fw_fom_ticket(struct fw_fom *fom)
{
    /* It is READY, so only the bit for notifications may change meanwhile. */
    return (struct fw_ticket){.fom = fom,
                              .generation = fw_word_generation(fw_word_get(&fom->wake_word))};
}

void fw_ticket_wake(struct fw_ticket ticket)
{
    if (fw_word_wake(&ticket.fom->wake_word, ticket.generation)) {
        fw_fom_deliver(ticket.fom);
    }
}

bool fw_fom_depart(struct fw_core *core, struct fw_fom *fom, struct fw_core *to,
                   struct fw_locality *home)
{
    FW_ASSERT((fom->flags & FW_FOM_IN_TICK) == 0);
    /* Before its first tick nothing of it is bound to a core, whatever its type. */
    bool is_fresh = (fom->flags & FW_FOM_IS_FRESH) != 0;
    fw_fom_disarm(fom);
    if (to == core || (!is_fresh && !fom->type->depart(fom))) {
        return false;
    }
    (void)fw_wheel_cancel(&core->wheel, &fom->timer);
    fw_counter_increment(&core->metrics->foms_moved);
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_fom(core, fom, FW_TRACE_MOVE, to->index);
    }
    fw_figure_add(&core->resident_count, -1);
    /* How long it waited was observed here. */
    fom->flags = (uint16_t)((fom->flags & ~FW_FOM_IS_LIMITED) | FW_FOM_IS_MOVING);
    fom->locality = (uint16_t)home->index;
    fom_send(fom, to);
    return true;
}

int fw_fom_move(struct fw_fom *fom, struct fw_locality *home)
{
    FW_ASSERT(fw_core_self() == fw_fom_core(fom) && (fom->flags & FW_FOM_IN_TICK));
    if (fom->type->depart == NULL || fom->type->arrive == NULL) {
        return -ENOTSUP;
    }
    fom->flags |= FW_FOM_IS_MOVING;
    fom->next = (struct fw_fom *)(void *)home; /* No queue has it in a tick. */
    return 0;
}

/* ---- made and gone ------------------------------------------------------------------------- */

static void timer_expired(struct fw_timer *timer)
{
    struct fw_fom *fom = FW_CONTAINER_OF(timer, struct fw_fom, timer);
    struct fw_core *core = fw_fom_core(fom);
    if ((fom->flags & (FW_FOM_IS_LIMITED | FW_FOM_HAS_DEADLINE)) == 0) {
        return; /* Left over from a wait that is over. */
    }
    if (fom->flags & FW_FOM_IS_LIMITED) {
        int64_t limit = fom->since + fw_limit_shown_ns(core, fom);
        if (limit > core->now) {
            fw_wheel_start(&core->wheel, timer, limit); /* The limit has grown meanwhile. */
            return;
        }
    }
    uint16_t how = fom->flags & FW_FOM_IS_LIMITED ? FW_FOM_OVERDUE : FW_FOM_TIMED_OUT;
    if (fw_word_wake(&fom->wake_word, FW_WORD_ANY)) {
        if (how == FW_FOM_OVERDUE) {
            fw_limit_missed(core, fom, core->now - fom->since);
        }
        fom->flags &= (uint16_t)~FW_FOM_IS_LIMITED; /* It says nothing of how long waits take. */
        fom->flags |= how;
        fw_fom_enqueue(core, fom);
    }
}

static int type_number(const struct fw_domain *domain, const struct fw_fom_type *type)
{
    uint32_t i = 0;
    while (i < domain->type_count && domain->types[i] != type) {
        i++;
    }
    FW_ASSERT(i < domain->type_count); /* The domain was told of it. */
    return (int)i;
}

/* Memory for it, and where it comes from: the pool of the caller's core, or the domain's own. */
static struct fw_fom *fom_allocate(struct fw_domain *domain, struct fw_core *self, int number,
                                   uint64_t *id)
{
    if (self != NULL) {
        *id = ((uint64_t)(self->index + 1) << 48) | ++self->next_id;
        fw_counter_increment(&self->metrics->foms_created);
        return fw_pool_alloc(&self->pools[number]);
    }
    fw_mutex_lock(&domain->lock);
    struct fw_fom *fom = fw_pool_alloc(&domain->foreign_pools[number]);
    *id = ++domain->foreign_id;
    fw_mutex_unlock(&domain->lock);
    return fom;
}

void fw_fom_free(struct fw_core *core, struct fw_fom *fom)
{
    fw_pool_free(&core->pools[fom->type_number], fom);
}

/* Foms under way, as far as this thread counts them. The sum over all counts is what is true. */
static void live_add(struct fw_domain *domain, struct fw_core *self, int64_t amount)
{
    if (self != NULL) {
        atomic_fetch_add(&self->live_count, amount);
        return;
    }
    atomic_fetch_add(&domain->live_count, amount);
    /* Relaxed: a figure. The cores' own are set once per round. */
    atomic_fetch_add_explicit(&domain->metrics->foms_live.value, amount, memory_order_relaxed);
}

static void fom_release(struct fw_fom *fom, struct fw_domain *domain, struct fw_core *self)
{
    uint16_t born = fom->born;
    uint8_t number = fom->type_number;
    fw_word_finish(&fom->wake_word);
    if (born == BORN_WITHOUT_TURN) {
        fw_mutex_lock(&domain->lock);
        fw_pool_free(&domain->foreign_pools[number], fom);
        fw_mutex_unlock(&domain->lock);
    } else if (self != NULL && self->index == born) {
        fw_fom_free(self, fom);
    } else {
        fw_mail_send_fom(&domain->cores[born], fom);
    }
    /*
     * Counted first, looked at then, as in fw_fom_create(): either who waits for the last fom has
     * counted, or it is unparked.
     */
    live_add(domain, self, -1);
    FW_YIELD_POINT("fom: gone");
    if (FW_UNLIKELY(atomic_load(&domain->state) != FW_DOMAIN_NORMAL)) {
        fw_unpark(&domain->stopper);
    }
}

int fw_fom_create(struct fw_fom **fom, struct fw_domain *domain, const struct fw_fom_type *type,
                  struct fw_locality *home)
{
    struct fw_core *self = fw_core_self();
    if (self != NULL && self->domain != domain) {
        self = NULL;
    }
    /*
     * Counted first, looked at then, and fw_domain_drain() does it the other way round. Both
     * sequentially consistent: either the drain counts this fom or this sees the drain.
     */
    live_add(domain, self, 1);
    FW_YIELD_POINT("fom: counted");
    int rc = -ESHUTDOWN;
    if (atomic_load(&domain->state) != FW_DOMAIN_NORMAL) {
        goto refused;
    }
    int number = type_number(domain, type);
    uint64_t id;
    struct fw_fom *made = fom_allocate(domain, self, number, &id);
    if (made == NULL) {
        rc = -ENOMEM;
        goto refused;
    }
    /* Not `core`: fw_core_stir() may be looking at it. */
    memset((char *)made + offsetof(struct fw_fom, type), 0,
           type->size - offsetof(struct fw_fom, type));
    fw_word_create(&made->wake_word);
    made->type = type;
    made->type_number = (uint8_t)number;
    made->id = id;
    made->born = self != NULL ? (uint16_t)self->index : (uint16_t)BORN_WITHOUT_TURN;
    made->phase = FW_PHASE_INITIALISE;
    made->priority = FW_FOM_PRIORITY_NORMAL;
    made->flags = FW_FOM_IS_FRESH;
    fw_timer_init(&made->timer, timer_expired);
    struct fw_core *core = self;
    if (home != NULL || self == NULL) {
        home = home != NULL ? home : fw_domain_home_by_load(domain);
        core = fw_locality_core(home);
    }
    /* Relaxed: who starts it publishes it. */
    atomic_store_explicit(&made->core, core, memory_order_relaxed);
    made->locality = (uint16_t)(home != NULL ? home : fw_core_locality(self))->index;
    *fom = made;
    return 0;

refused:
    live_add(domain, self, -1);
    fw_unpark(&domain->stopper);
    return rc;
}

void fw_fom_start(struct fw_fom *fom)
{
    FW_ASSERT(fom->flags & FW_FOM_IS_FRESH);
    struct fw_core *self = fw_core_self();
    fom->since = self != NULL ? self->now : fw_clock_now_ns();
    fw_fom_deliver(fom);
}

void fw_fom_discard(struct fw_fom *fom)
{
    FW_ASSERT(fom->flags & FW_FOM_IS_FRESH);
    struct fw_domain *domain = fw_fom_core(fom)->domain;
    struct fw_core *self = fw_core_self();
    fom_release(fom, domain, self != NULL && self->domain == domain ? self : NULL);
}

static void stir_one(void *object, void *context)
{
    (void)context;
    struct fw_fom *fom = object;
    fw_fom_wake(fom); /* Those that are ready too: they may be about to park. */
}

/*
 * Those that are ready leave the core anyway when their tick is due. The pool is ours while we
 * visit it, so one that is parked is not freed before its core has been read; it may move
 * meanwhile, and then is woken for nothing.
 */
static void stir_resident(void *object, void *context)
{
    struct fw_fom *fom = object;
    /* Acquire, for the release in fw_word_park(): its core is the one it parked on, or a later. */
    uint64_t word = atomic_load_explicit(&fom->wake_word, memory_order_acquire);
    if (fw_word_state(word) == FW_WORD_PARKED && fw_fom_core(fom) == context) {
        fw_fom_wake(fom);
    }
}

/* Stirs those whose business it is, in the pools of a core or of the domain. */
static void pools_stir(struct fw_domain *domain, struct fw_pool *pools)
{
    bool is_normal = fw_domain_state(domain) == FW_DOMAIN_NORMAL;
    /* Acquire, for the release in leave.c. */
    struct fw_core *leaving = atomic_load_explicit(&domain->leaving, memory_order_acquire);
    if (is_normal && leaving == NULL) {
        return;
    }
    for (uint32_t i = 0; i < domain->type_count; i++) {
        fw_pool_visit(&pools[i], is_normal ? stir_resident : stir_one, leaving);
    }
}

void fw_core_stir(struct fw_core *core)
{
    pools_stir(core->domain, core->pools);
}

void fw_domain_stir_foreign(struct fw_domain *domain)
{
    fw_mutex_lock(&domain->lock);
    pools_stir(domain, domain->foreign_pools);
    fw_mutex_unlock(&domain->lock);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Which phases may follow the fom's, FAILED and itself apart. */
static uint64_t phases_next(const struct fw_fom *fom)
{
    if (FW_LIKELY(fom->phase >= FW_PHASE_FIRST)) {
        return fom->type->phases[fom->phase - FW_PHASE_FIRST].next;
    }
    return fom->phase == FW_PHASE_FAILED ? FW_PHASE_BIT(FW_PHASE_FINISHED)
                                         : FW_PHASE_BIT(fom->phase + 1U);
}

static void fom_fail(struct fw_core *core, struct fw_fom *fom, int error)
{
    fom->result = error;
    fom->phase = FW_PHASE_FAILED;
    fw_counter_increment(&core->metrics->foms_failed);
}

/* A step that no tick answers: the fom has come to its end. */
enum { STEP_END = FW_STEP_WAIT + 1 };

/*
 * True if the log may be told of one more fom that fails for a reason nobody asked for: once per
 * second, since where one does, a million may.
 */
static bool core_may_complain(struct fw_core *core, uint64_t *unsaid)
{
    core->complaints++;
    if (core->complained_at != 0 && core->now - core->complained_at < FW_NS_PER_S) {
        return false;
    }
    *unsaid = core->complaints - 1;
    core->complaints = 0;
    core->complained_at = core->now;
    return true;
}

/* A step that may not be. */
static void fom_reject(struct fw_core *core, struct fw_fom *fom)
{
    uint64_t unsaid;
    if (core_may_complain(core, &unsaid)) {
        FW_LOG(engine, ERROR,
               "fom %" PRIx64 " of type %s: %s may not follow %s; it fails (%" PRIu64
               " others failed since the last such line)",
               fom->id, fom->type->name, fw_phase_name(fom->type, fom->next_phase),
               fw_phase_name(fom->type, fom->phase), unsaid);
    }
    fw_counter_increment(&core->metrics->illegal_steps);
    if (fom->phase == FW_PHASE_FAILED) {
        fom->phase = FW_PHASE_FINISHED;
    } else {
        fom_fail(core, fom, -EPROTO);
    }
}

/*
 * Takes the fom to the phase that its tick chose, with `step`. Returns how it goes on: who has just
 * failed does not wait for what it had in mind.
 */
static unsigned fom_transition(struct fw_core *core, struct fw_fom *fom, unsigned step)
{
    unsigned to = fom->next_phase;
    if (to == FW_PHASE_FAILED) {
        fom_fail(core, fom, fom->result < 0 ? fom->result : -ECANCELED);
    } else if (FW_LIKELY(to < FW_PHASES_MAX && (phases_next(fom) & FW_PHASE_BIT(to)) != 0)) {
        fom->phase = (uint8_t)to;
    } else {
        fom_reject(core, fom);
    }
    if (fom->phase == FW_PHASE_FINISHED) {
        return STEP_END;
    }
    return fom->phase == FW_PHASE_FAILED ? (unsigned)FW_STEP_AGAIN : step;
}

/* A tick of the type's own. */
static inline enum fw_step type_tick(struct fw_core *core, struct fw_fom *fom)
{
    if (FW_LIKELY(!fom->type->is_self_contained)) {
        return fom->type->tick(fom);
    }
    fw_turn_expose(core);
    enum fw_step step = fom->type->tick(fom);
    fw_turn_settle(core, fom);
    return step;
}

static enum fw_step standard_tick(struct fw_core *core, struct fw_fom *fom)
{
    const struct fw_domain_config *config = &core->domain->config;
    switch (fom->phase) {
    case FW_PHASE_INITIALISE: {
        int rc = fom->type->initialise != NULL ? fom->type->initialise(fom) : 0;
        return rc != 0 ? fw_fom_fail(fom, rc) : fw_fom_next(fom);
    }
    case FW_PHASE_AUTHENTICATE:
        return config->authenticate != NULL ? config->authenticate(fom) : fw_fom_next(fom);
    case FW_PHASE_AUTHORISE:
        return config->authorise != NULL ? config->authorise(fom) : fw_fom_next(fom);
    default:
        FW_ASSERT(fom->phase == FW_PHASE_FAILED);
        return type_tick(core, fom);
    }
}

static bool fom_invariant(const struct fw_fom *fom)
{
    return fom->type->invariant == NULL || fom->type->invariant(fom);
}

/* A tick that an observer sees, or of a round that is traced or measured. */
static enum fw_step watched_tick(struct fw_core *core, struct fw_fom *fom)
{
    const struct fw_observer *observer = &core->domain->config.observer;
    bool is_specific = fom->phase >= FW_PHASE_FIRST;
    if (observer->tick_begins != NULL) {
        observer->tick_begins(fom, &fom->cross_cut);
    }
    uint64_t sampled = core->sample.round;
    uint64_t begun = sampled != 0 ? fw_clock_ticks() : 0;
    enum fw_step step = is_specific ? type_tick(core, fom) : standard_tick(core, fom);
    uint64_t ended = fw_clock_ticks();
    /* It may have been in a bracket, and the round another's by now. */
    if (sampled != 0 && sampled == core->sample.round && ended > begun) {
        core->sample.in_ticks += ended - begun;
    }
    if (core->trace != NULL) {
        fw_trace_tick(core->trace, fom, step, ended);
    }
    if (observer->tick_ended != NULL) {
        observer->tick_ended(fom, &fom->cross_cut, step);
    }
    return step;
}

/* One tick and where it leads. */
static inline unsigned fom_step(struct fw_core *core, struct fw_fom *fom)
{
    if (fom->armed != 0) {
        fw_fom_disarm(fom);
    }
    uint8_t before = fom->phase;
    FW_CHECK(before < FW_PHASE_FIRST || fom_invariant(fom));
    fom->next_phase = before;
    unsigned step;
    if (FW_UNLIKELY(core->is_watched)) {
        step = watched_tick(core, fom);
    } else {
        step =
            FW_LIKELY(before >= FW_PHASE_FIRST) ? type_tick(core, fom) : standard_tick(core, fom);
    }
    FW_ASSERT(core->fom == fom); /* A tick leaves every bracket that it has entered. */
    FW_CHECK(before < FW_PHASE_FIRST || fom_invariant(fom));
    /* Relaxed: the turn alone writes it, and what is written later says so, see core.h. */
    uint64_t ticks = atomic_load_explicit(&core->tick_count, memory_order_relaxed);
    atomic_store_explicit(&core->tick_count, ticks + 1, memory_order_relaxed);
    return FW_LIKELY(fom->next_phase == before) ? step : fom_transition(core, fom, step);
}

/*
 * Says why the fom must not go on as it was, if so. Called before a tick and before it parks; a
 * change of the domain's state is seen by the one or the other, because fw_core_stir() wakes all
 * foms after it, and waking orders memory.
 */
static int forced_error(const struct fw_core *core, const struct fw_fom *fom, uint16_t flags)
{
    bool is_normal = fw_domain_state(core->domain) == FW_DOMAIN_NORMAL;
    if (FW_LIKELY(is_normal && (flags & FW_FOM_OVERDUE) == 0)) {
        return 0;
    }
    if (fom->phase == FW_PHASE_FAILED || fom_is_offloaded(fom)) {
        return 0; /* Time-outs and shutdown leave alone who is about to end, or cannot yet. */
    }
    if (flags & FW_FOM_OVERDUE) {
        return -ETIMEDOUT;
    }
    /* Acquire, for the release in fw_domain_stop(). */
    bool is_killing = atomic_load_explicit(&core->domain->is_killing, memory_order_acquire);
    return is_killing || (flags & FW_FOM_WAS_PATIENT) ? -ESHUTDOWN : 0;
}

static void fom_force(struct fw_core *core, struct fw_fom *fom, int error)
{
    if (error == -ETIMEDOUT) {
        fw_counter_increment(&core->metrics->foms_overdue);
        uint64_t unsaid;
        if (core_may_complain(core, &unsaid)) {
            FW_LOG(engine, WARNING,
                   "fom %" PRIx64 " of type %s waited too long in %s; it fails (%" PRIu64
                   " others failed since the last such line)",
                   fom->id, fom->type->name, fw_phase_name(fom->type, fom->phase), unsaid);
        }
    } else if (atomic_load_explicit(&core->domain->is_killing, memory_order_relaxed)) {
        /* Relaxed, both: who stops the domain reads it when the last fom is gone. */
        atomic_fetch_add_explicit(&core->domain->killed_count, 1, memory_order_relaxed);
    }
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_fom(core, fom, FW_TRACE_FORCE, (uint64_t)-error);
    }
    fw_fom_disarm(fom);
    fw_word_renew(&fom->wake_word); /* What it waited for may still come, and is nothing to it. */
    fom_fail(core, fom, error);
}

/* Since it is ready. Who starts a fom elsewhere may have read the clock after this round did. */
static uint64_t fom_delay(const struct fw_core *core, const struct fw_fom *fom)
{
    return core->now > fom->since ? (uint64_t)(core->now - fom->since) : 0;
}

/* The rest of fom_begin() for a fom with something special about it, as `flags` were before. */
static void fom_begin_special(struct fw_core *core, struct fw_fom *fom, uint16_t flags)
{
    if (flags & FW_FOM_IS_FRESH) {
        fw_histogram_record(&core->metrics->first_tick, fom_delay(core, fom));
        fw_figure_add(&core->bound_count, fom->type->depart == NULL ? 1 : 0);
        if (core->domain->config.observer.created != NULL) {
            core->domain->config.observer.created(fom, &fom->cross_cut);
        }
    }
    int error = forced_error(core, fom, flags);
    if (error != 0) {
        fom_force(core, fom, error);
        fw_core_show_phase(core, fom);
    }
}

static inline void fom_begin(struct fw_core *core, struct fw_fom *fom)
{
    uint16_t flags = fom->flags;
    FW_ASSERT((flags & FW_FOM_IN_TICK) == 0); /* Else it would run twice at once. */
    fw_word_begin(&fom->wake_word);
    fw_core_show(core, fom);
    fom->flags = (uint16_t)((flags & (FW_FOM_TIMED_OUT | FW_FOM_HAS_PERMIT)) | FW_FOM_IN_TICK);
    if (FW_UNLIKELY((flags & (FW_FOM_IS_FRESH | FW_FOM_OVERDUE)) ||
                    fw_domain_state(core->domain) != FW_DOMAIN_NORMAL)) {
        fom_begin_special(core, fom, flags);
    }
    if (FW_UNLIKELY(core->is_watched) && core->sample.round != 0) {
        fw_histogram_record(&core->metrics->ready_delay, fom_delay(core, fom));
    }
}

/* Of a bracket that it was allowed to enter, and did not. */
static void fom_give_permit_back(struct fw_core *core, struct fw_fom *fom)
{
    if (FW_UNLIKELY(fom->flags & FW_FOM_HAS_PERMIT)) {
        fom->flags &= (uint16_t)~FW_FOM_HAS_PERMIT;
        fw_domain_release_permit(core->domain);
    }
}

static void fom_end(struct fw_core *core, struct fw_fom *fom)
{
    FW_ASSERT(!fom_is_offloaded(fom));
    fw_fom_disarm(fom);
    (void)fw_wheel_cancel(&core->wheel, &fom->timer);
    if (fom->type->finish != NULL) {
        fom->type->finish(fom);
    }
    if (core->domain->config.observer.finished != NULL) {
        core->domain->config.observer.finished(fom, &fom->cross_cut);
    }
    fw_core_show(core, NULL);
    fw_figure_add(&core->resident_count, -1);
    fw_figure_add(&core->bound_count, fom->type->depart == NULL ? -1 : 0);
    fom_give_permit_back(core, fom);
    fom_release(fom, core->domain, core);
}

static void fom_park(struct fw_core *core, struct fw_fom *fom)
{
    bool is_patient = phase_is_patient(fom);
    fom->since = core->now;
    if (is_patient) {
        fom->flags |= FW_FOM_WAS_PATIENT;
    } else if ((fom->flags & FW_FOM_HAS_DEADLINE) == 0 && fom->phase != FW_PHASE_FAILED &&
               !fom_is_offloaded(fom)) {
        fom->flags |= FW_FOM_IS_LIMITED;
        fw_wheel_start(&core->wheel, &fom->timer, core->now + fw_limit_ns(core, fom));
    }
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_wait(core, fom, fw_trace_wait_kind(fom));
    }
    if (forced_error(core, fom, fom->flags) != 0 || !fw_word_park(&fom->wake_word)) {
        fw_fom_enqueue(core, fom); /* Its next tick finds out why. */
    }
}

/* After a visit that left flags behind. True: the fom is where it belongs. */
static bool fom_settle(struct fw_core *core, struct fw_fom *fom, unsigned *step)
{
    fom_give_permit_back(core, fom);
    uint16_t flags = fom->flags;
    fom->flags = *step == FW_STEP_WAIT ? flags & FW_FOM_HAS_DEADLINE : 0;
    if (flags & FW_FOM_IS_MOVING) {
        struct fw_locality *home = (struct fw_locality *)(void *)fom->next;
        if (fw_fom_depart(core, fom, fw_locality_core(home), home)) {
            return true;
        }
        *step = FW_STEP_YIELD; /* It stays, and its clinks are disarmed: let it look again. */
    }
    if ((flags & FW_FOM_WANTS_PERMIT) && *step == FW_STEP_WAIT) {
        if (core->trace != NULL) {
            fw_trace_wait(core, fom, FW_TRACE_WAIT_PERMIT);
        }
        fw_core_queue_for_permit(core, fom);
        return true;
    }
    return false;
}

/* One visit of a fom from the run-queue: as many steps as its quantum allows. */
static inline void fom_run(struct fw_core *core, struct fw_fom *fom)
{
    fom_begin(core, fom);
    unsigned step = fom_step(core, fom);
    for (int i = 1; step == FW_STEP_AGAIN && i < FW_FOM_QUANTUM; i++) {
        fom->flags &= (uint16_t) ~(FW_FOM_HAS_DEADLINE | FW_FOM_TIMED_OUT);
        fw_core_show_phase(core, fom);
        step = fom_step(core, fom);
    }
    if (FW_UNLIKELY(step == STEP_END)) {
        fom_end(core, fom);
        return;
    }
    if (FW_LIKELY(fom->flags == FW_FOM_IN_TICK)) {
        fom->flags = 0;
    } else if (fom_settle(core, fom, &step)) {
        return;
    }
    if (step == FW_STEP_WAIT) {
        fom_park(core, fom);
    } else {
        fom->since = core->now;
        fw_queue_push(&core->queue, fom);
    }
}

/* Here, and not in run.c, so that the compiler has the whole path of a tick before it. */
void fw_core_run_ticks(struct fw_core *core, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--) {
        struct fw_fom *fom = fw_queue_pop(&core->queue);
        if (fom == NULL) {
            break;
        }
        if (FW_UNLIKELY(core->shed_count > 0) && fw_balance_shed(core, fom)) {
            continue;
        }
        fom_run(core, fom);
    }
    fw_core_show(core, NULL);
    if (FW_UNLIKELY(atomic_load_explicit(&core->is_leaving, memory_order_relaxed))) {
        fw_leave_check(core);
    }
}

enum fw_step fw_fom_wait_until(struct fw_fom *fom, unsigned phase, int64_t deadline_ns)
{
    fom->flags |= FW_FOM_HAS_DEADLINE;
    fw_wheel_start(&fw_fom_core(fom)->wheel, &fom->timer, deadline_ns);
    return fw_fom_wait(fom, phase);
}

/* ---- questions ----------------------------------------------------------------------------- */

void fw_fom_set_priority(struct fw_fom *fom, unsigned priority)
{
    FW_ASSERT(priority < FW_FOM_PRIORITIES);
    FW_ASSERT(fom->flags & (FW_FOM_IN_TICK | FW_FOM_IS_FRESH)); /* In no queue. */
    fom->priority = (uint8_t)priority;
}

bool fw_fom_timed_out(const struct fw_fom *fom)
{
    return (fom->flags & FW_FOM_TIMED_OUT) != 0;
}

int64_t fw_fom_now(const struct fw_fom *fom)
{
    return fw_fom_core(fom)->now;
}

struct fw_domain *fw_fom_domain(const struct fw_fom *fom)
{
    return fw_fom_core(fom)->domain;
}

struct fw_locality *fw_fom_home(const struct fw_fom *fom)
{
    return &fw_fom_core(fom)->domain->localities[fom->locality];
}
