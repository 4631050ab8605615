/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog: one thread per domain that notices what does not get on.
 *
 * A few times per stall_ns it looks at every core, and tells, once for each and by log and
 * call-back, of
 *
 *   - a tick that has not ended for stall_ns, with the stack of its thread. If the type is
 *     self-contained, a spare thread gets the turn (turn.c has the rules);
 *   - a thread that has been in a bracket for so long. That is no mistake, so it is not
 *     interrupted, which would make its system call fail: no stack;
 *   - a fom that has been ready for so long: the turn finds that out itself, between two rounds.
 *
 * It costs the turn a few plain stores per tick (struct fw_tick_board) and no look at the clock:
 * what the watchdog compares is whether the count of ticks has moved since it looked last. So a
 * stall is seen up to two looks late and its duration is what has been seen of it.
 *
 * Nothing else depends on it: no time-out, no wake-up. It holds a core's lock only to look at lists
 * of threads, never while it waits for a stack, reports, or makes a thread. To keep a thread that
 * it asks for its stack from being joined meanwhile, it marks it (is_watched).
 *
 * Why not a timer signal per core, or the turn's own clock: a turn that is stuck reads no clock,
 * and a signal per tick would cost all ticks for the sake of the stuck ones.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/assert.h"
#include "engine/core.h"
#include "io/clock.h"

FW_LOG_MODULE_USE(engine);

enum {
    LOOKS_PER_STALL = 4,
    LOOK_MIN_NS = 100 * FW_NS_PER_US,
    STACK_WAIT_NS = FW_NS_PER_S,
    STACK_TEXT_SIZE = 16 * 1024,
    TOLD_PER_LOOK = 8, /* In the log; the call-back hears of all. */
};

/* ---- telling ------------------------------------------------------------------------------- */

static void stall_log(const struct fw_stall *stall)
{
    static const char *const words[] = {
        [FW_STALL_TICK] = "has been in one tick",
        [FW_STALL_BRACKET] = "has been blocked in a bracket",
        [FW_STALL_READY] = "has waited for a tick",
    };
    FW_LOG(engine, WARNING, "fom %" PRIx64 " of type %s %s for %" PRId64 " ms, in %s on core %u",
           stall->fom_id, stall->type, words[stall->kind], stall->duration_ns / FW_NS_PER_MS,
           stall->phase, stall->core);
    const char *line = stall->stack;
    while (line != NULL && *line != '\0') {
        const char *end = strchrnul(line, '\n');
        FW_LOG(engine, WARNING, "    %.*s", (int)(end - line), line);
        line = *end == '\n' ? end + 1 : end;
    }
}

static void stall_report(struct fw_domain *domain, const struct fw_stall *stall)
{
    if (domain->watchdog.told_count++ < TOLD_PER_LOOK) {
        stall_log(stall);
    }
    if (domain->config.stalled != NULL) {
        domain->config.stalled(domain->config.stalled_context, stall);
    }
}

/* ---- ticks --------------------------------------------------------------------------------- */

/* What can be seen of a core's tick, at one moment. */
struct view {
    const struct fw_fom_type *type; /* NULL: no tick, or it changed while we looked. */
    uint64_t fom_id;
    unsigned phase;
    struct fw_handler *handler;
    uint64_t exposed;
    uint64_t tick_count;
    uint32_t turn_count;
};

/* All acquire, and in this order: core.h has the argument. */
static void view_take(struct view *view, const struct fw_core *core)
{
    const struct fw_tick_board *board = &core->board;
    view->fom_id = atomic_load_explicit(&board->fom_id, memory_order_acquire);
    view->type = atomic_load_explicit(&board->type, memory_order_acquire);
    view->phase = atomic_load_explicit(&board->phase, memory_order_acquire);
    view->handler = atomic_load_explicit(&board->handler, memory_order_acquire);
    view->exposed = atomic_load_explicit(&core->exposed, memory_order_acquire);
    FW_YIELD_POINT("watchdog: looks at a tick");
    view->tick_count = atomic_load_explicit(&core->tick_count, memory_order_acquire);
    view->turn_count = atomic_load_explicit(&board->turn_count, memory_order_acquire);
    if (atomic_load_explicit(&board->fom_id, memory_order_acquire) != view->fom_id) {
        view->type = NULL;
    }
}

/* True: the core is where it was at the last look, inside a tick. */
static bool watched_update(struct fw_watched *watched, const struct view *view, int64_t now)
{
    bool is_in_tick = view->type != NULL;
    if (is_in_tick && watched->is_in_tick && watched->tick_count == view->tick_count &&
        watched->turn_count == view->turn_count) {
        return true;
    }
    *watched = (struct fw_watched){.tick_count = view->tick_count,
                                   .turn_count = view->turn_count,
                                   .is_in_tick = is_in_tick,
                                   .since = now};
    return false;
}

/* Keeps the thread from being joined, if it still is one of the core's. */
static bool handler_watch(struct fw_core *core, const struct fw_handler *handler, bool is_watched)
{
    bool is_found = false;
    fw_mutex_lock(&core->lock);
    FW_LIST_FOR_EACH (&core->handlers, struct fw_handler, link, other) {
        if (other == handler) {
            other->is_watched = is_watched;
            is_found = true;
        }
    }
    fw_mutex_unlock(&core->lock);
    return is_found;
}

/* The stack of the thread in that tick, or NULL. */
static const char *stack_get(struct fw_core *core, const struct view *view)
{
    if (!handler_watch(core, view->handler, true)) {
        return NULL;
    }
    struct fw_stack stack;
    int rc = fw_stack_capture(&view->handler->subject, &stack, STACK_WAIT_NS);
    (void)handler_watch(core, view->handler, false);
    struct view after;
    view_take(&after, core);
    if (rc != 0 || after.tick_count != view->tick_count || after.turn_count != view->turn_count) {
        return NULL; /* It did not answer, or from elsewhere: it has moved meanwhile. */
    }
    char *text = core->domain->watchdog.text;
    fw_stack_format(&stack, text, STACK_TEXT_SIZE);
    return text;
}

static void tick_relieve(struct fw_core *core, const struct view *view)
{
    int rc = fw_turn_revoke(core, view->exposed);
    if (rc != 0 && rc != -EAGAIN && rc != -EBUSY) {
        FW_LOG(engine, WARNING, "cannot start a thread to relieve core %u (%s): it waits",
               core->index, strerrordesc_np(-rc));
    }
}

static void look_at_tick(struct fw_core *core, struct fw_watched *watched, int64_t now)
{
    struct view view;
    view_take(&view, core);
    if (!watched_update(watched, &view, now) ||
        now - watched->since < core->domain->config.stall_ns) {
        return;
    }
    if (!watched->is_reported) {
        watched->is_reported = true;
        const struct fw_stall stall = {
            .kind = FW_STALL_TICK,
            .type = view.type->name,
            .phase = fw_phase_name(view.type, view.phase),
            .fom_id = view.fom_id,
            .core = core->index,
            .duration_ns = now - watched->since,
            .stack = stack_get(core, &view),
        };
        stall_report(core->domain, &stall);
    }
    if (view.exposed != 0) {
        tick_relieve(core, &view);
    }
}

/* ---- brackets, and foms that are ready ----------------------------------------------------- */

/* Finds one that has been inside for too long and is not told of yet. */
static bool bracket_take(struct fw_core *core, int64_t now, struct fw_stall *stall)
{
    bool is_found = false;
    fw_mutex_lock(&core->lock);
    FW_LIST_FOR_EACH (&core->bracketed, struct fw_handler, place, handler) {
        int64_t duration = now - handler->since;
        if (!handler->is_reported && duration >= core->domain->config.stall_ns) {
            handler->is_reported = true;
            /* The fom stays as it is: its thread leaves the list before it goes on. */
            const struct fw_fom *fom = handler->fom;
            *stall = (struct fw_stall){.kind = FW_STALL_BRACKET,
                                       .type = fom->type->name,
                                       .phase = fw_phase_name(fom->type, fom->phase),
                                       .fom_id = fom->id,
                                       .core = core->index,
                                       .duration_ns = duration};
            is_found = true;
            break;
        }
    }
    fw_mutex_unlock(&core->lock);
    return is_found;
}

static void look_at_brackets(struct fw_core *core, int64_t now)
{
    struct fw_stall stall;
    while (bracket_take(core, now, &stall)) {
        stall_report(core->domain, &stall);
    }
}

static void look_at_queue(struct fw_core *core)
{
    struct fw_late_board *late = &core->late;
    /* Acquire, for the release of the turn. */
    if (atomic_load_explicit(&late->is_full, memory_order_acquire)) {
        const struct fw_stall stall = {
            .kind = FW_STALL_READY,
            .type = late->type->name,
            .phase = fw_phase_name(late->type, late->phase),
            .fom_id = late->fom_id,
            .core = core->index,
            .duration_ns = late->duration_ns,
        };
        /* Release, for the acquire of the turn. */
        atomic_store_explicit(&late->is_full, false, memory_order_release);
        stall_report(core->domain, &stall);
    }
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void watchdog_run(void *argument)
{
    struct fw_domain *domain = argument;
    struct fw_watchdog *watchdog = &domain->watchdog;
    int64_t interval = domain->config.stall_ns / LOOKS_PER_STALL;
    interval = interval < LOOK_MIN_NS ? LOOK_MIN_NS : interval;
    /* Acquire, for the release in stop(). */
    while (!atomic_load_explicit(&watchdog->must_exit, memory_order_acquire)) {
        watchdog->told_count = 0;
        for (uint32_t i = 0; i < domain->core_count; i++) {
            struct fw_core *core = &domain->cores[i];
            int64_t now = fw_clock_now_ns();
            look_at_tick(core, &watchdog->cores[i], now);
            look_at_brackets(core, now);
            look_at_queue(core);
        }
        if (watchdog->told_count > TOLD_PER_LOOK) {
            FW_LOG(engine, WARNING, "%" PRIu32 " more foms do not get on",
                   watchdog->told_count - TOLD_PER_LOOK);
        }
        (void)fw_park_for(&watchdog->parker, interval);
    }
}

int fw_watchdog_start(struct fw_domain *domain)
{
    struct fw_watchdog *watchdog = &domain->watchdog;
    *watchdog = (struct fw_watchdog){.text = malloc(STACK_TEXT_SIZE)};
    watchdog->cores = calloc(domain->core_count, sizeof *watchdog->cores);
    int rc = watchdog->text == NULL || watchdog->cores == NULL ? -ENOMEM : 0;
    if (rc == 0 && fw_stack_init() != 0) {
        FW_LOG(engine, NOTICE, "signal %d is in use: stalls are reported without stacks",
               FW_STACK_SIGNAL);
    }
    fw_parker_init(&watchdog->parker);
    rc = rc != 0 ? rc : fw_thread_create(&watchdog->thread, "watchdog", watchdog_run, domain);
    watchdog->is_running = rc == 0;
    if (rc != 0) {
        FW_LOG(engine, ERROR, "cannot start the watchdog: %s", strerrordesc_np(-rc));
        free(watchdog->cores);
        free(watchdog->text);
    }
    return rc;
}

void fw_watchdog_stop(struct fw_domain *domain)
{
    struct fw_watchdog *watchdog = &domain->watchdog;
    if (!watchdog->is_running) {
        return; /* The domain's threads are not the engine's. */
    }
    watchdog->is_running = false;
    /* Release, for the acquire in the loop. */
    atomic_store_explicit(&watchdog->must_exit, true, memory_order_release);
    fw_unpark(&watchdog->parker);
    fw_thread_join(&watchdog->thread);
    free(watchdog->cores);
    free(watchdog->text);
}
