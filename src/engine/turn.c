/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a core, and how the turn passes between them.
 *
 *     a tick calls fw_block_enter()             the thread comes back, fw_block_leave()
 *       takes a permit                            joins `returning`, rings the core's bell, parks
 *       gives the turn to an idle thread,       the holder, between two rounds,
 *         or to one made for it                   gives it the turn, and is idle, or ends
 *       blocks                                    goes on in the middle of its tick
 *
 * The turn is given, never taken: who has it writes `has_turn` of another, under the core's lock,
 * and unparks that one. So no two threads ever have it, and all that the one did is seen by the
 * next.
 *
 * There is one exception. A tick of a self-contained type is *exposed*: its number stands in
 * core->exposed, and whoever takes it out of there by compare-and-swap has the turn. Mostly that is
 * the thread itself, when the tick is over. If the tick has stalled it is the watchdog, which has a
 * spare thread at hand before it tries, and gives the turn to that. The thread then finds its
 * number gone, and goes the way of fw_block_leave() before the engine sees what the tick answered.
 * Until then it counts as one in a bracket, and has a permit: that bounds how many there are. The
 * number is the core's own count and not that of ticks, which stands still while the first thread
 * is out: the next exposed tick would have the same, and both would think the turn was theirs.
 *
 * Threads that are idle stay for a while, up to a few; who finds enough of them there, or has been
 * idle for long, ends. An ended thread is joined by the next who makes one, or when the core ends.
 *
 * If no thread can be made (RLIMIT_NPROC, memory), the bracket keeps the turn. The core then stands
 * still for as long as the call blocks, which is slow but right; a metric counts it and the log
 * says it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "io/clock.h"

FW_LOG_MODULE_USE(engine);

/* ---- threads ------------------------------------------------------------------------------- */

/* Waits until it is given the turn. False: it is to end. */
static bool turn_wait(struct fw_handler *handler, bool may_give_up)
{
    struct fw_core *core = handler->core;
    bool is_patient = true;
    for (;;) {
        fw_mutex_lock(&core->lock);
        bool has_turn = handler->has_turn;
        handler->has_turn = false;
        bool is_over = !has_turn && (handler->must_exit || !is_patient);
        if (is_over && fw_list_is_linked(&handler->place)) {
            fw_list_remove(&handler->place);
            core->idle_count--;
        }
        if (is_over && !handler->must_exit) {
            fw_counter_increment(&core->metrics->threads_reaped); /* Under the lock, always. */
        }
        fw_mutex_unlock(&core->lock);
        if (has_turn || is_over) {
            return has_turn;
        }
        if (may_give_up) {
            is_patient = fw_park_for(&handler->parker, core->domain->config.spare_idle_ns);
        } else {
            fw_park(&handler->parker);
        }
    }
}

static void turn_begin(struct fw_core *core, struct fw_handler *handler)
{
    FW_ASSERT(core->holder == NULL);
    fw_thread_self()->turn = core;
    core->holder = handler;
    /* For the watchdog, see core.h. Relaxed: only the turn writes it. */
    uint32_t count = atomic_load_explicit(&core->board.turn_count, memory_order_relaxed);
    atomic_store_explicit(&core->board.turn_count, count + 1, memory_order_release);
    atomic_store_explicit(&core->board.handler, handler, memory_order_release);
}

static void turn_end(struct fw_core *core)
{
    FW_ASSERT(fw_core_self() == core);
    core->holder = NULL;
    fw_core_show(core, NULL);
    fw_thread_self()->turn = NULL;
}

/* The caller has the core's lock, and had the turn. */
static void turn_give(struct fw_handler *handler)
{
    handler->has_turn = true;
    fw_unpark(&handler->parker);
}

static void core_end_idle(struct fw_core *core)
{
    FW_LIST_FOR_EACH (&core->idle, struct fw_handler, place, handler) {
        handler->must_exit = true;
        fw_unpark(&handler->parker);
    }
}

/* Gives the turn to who came back first, and stays as a spare. False: there are enough. */
static bool turn_pass(struct fw_core *core, struct fw_handler *handler)
{
    fw_core_lock(core);
    struct fw_list_link *first = fw_list_pop_front(&core->returning);
    if (first == NULL) {
        core_end_idle(core); /* The core ends. */
        fw_mutex_unlock(&core->lock);
        return false;
    }
    atomic_fetch_sub_explicit(&core->returning_count, 1, memory_order_relaxed);
    bool stays = core->idle_count < core->domain->config.spare_limit;
    if (stays) {
        fw_list_push_front(&core->idle, &handler->place);
        core->idle_count++;
    } else {
        fw_counter_increment(&core->metrics->threads_reaped);
    }
    turn_end(core);
    turn_give(FW_LIST_ENTRY(first, struct fw_handler, place));
    fw_mutex_unlock(&core->lock);
    return stays;
}

static void handler_run(void *argument)
{
    struct fw_handler *handler = argument;
    struct fw_core *core = handler->core;
    fw_thread_self()->handler = handler;
    fw_stack_allow(&handler->subject);
    if (core->domain->config.is_pinned) {
        struct fw_cpu_set set;
        fw_cpu_set_clear(&set);
        fw_cpu_set_add(&set, core->cpu.id);
        if (fw_cpu_set_bind(&set) != 0) {
            FW_LOG(engine, WARNING, "cannot bind a thread to CPU %u; it runs anywhere",
                   core->cpu.id);
        }
        /* What this core's pools take is touched by its threads first, and so comes from there. */
        int rc = fw_memory_prefer_node(core->cpu.node_id);
        if (rc != 0 && core->domain->topology.node_count > 1) {
            FW_LOG(engine, WARNING, "memory of core %u may come from other nodes: %s", core->index,
                   strerrordesc_np(-rc));
        }
    }
    /* At first it is wanted, and waits for the turn as long as it takes. */
    for (bool is_new = true; turn_wait(handler, !is_new); is_new = false) {
        turn_begin(core, handler);
        if (is_new) {
            fw_counter_increment(&core->metrics->threads_created);
        }
        fw_safety_online(&handler->safety);
        fw_core_run(core, handler);
        fw_safety_offline(&handler->safety);
        if (!turn_pass(core, handler)) {
            break;
        }
    }
    if (fw_core_self() == core) {
        turn_end(core);
    }
    fw_mutex_lock(&core->lock);
    handler->has_exited = true;
    fw_mutex_unlock(&core->lock);
}

static void handler_destroy(struct fw_handler *handler)
{
    fw_thread_join(&handler->thread);
    fw_participant_detach(&handler->safety);
    free(handler);
}

/* Takes a thread that has ended, or if `wait` any, from the list; NULL: none. */
static struct fw_handler *handler_take(struct fw_core *core, bool wait)
{
    struct fw_handler *found = NULL;
    fw_mutex_lock(&core->lock);
    FW_LIST_FOR_EACH (&core->handlers, struct fw_handler, link, handler) {
        if (wait || (handler->has_exited && !handler->is_watched)) {
            found = handler;
            break;
        }
    }
    if (found != NULL) {
        fw_list_remove(&found->link);
    }
    fw_mutex_unlock(&core->lock);
    return found;
}

static void core_join(struct fw_core *core, bool wait)
{
    struct fw_handler *handler;
    while ((handler = handler_take(core, wait)) != NULL) {
        handler_destroy(handler);
    }
}

void fw_core_join(struct fw_core *core)
{
    core_join(core, true);
}

static int handler_create(struct fw_core *core, bool has_turn, struct fw_handler **made)
{
    core_join(core, false);
    struct fw_handler *handler = calloc(1, sizeof *handler);
    if (handler == NULL) {
        return -ENOMEM;
    }
    handler->core = core;
    handler->has_turn = has_turn;
    fw_parker_init(&handler->parker);
    fw_participant_attach(&handler->safety, core->domain);
    fw_mutex_lock(&core->lock);
    fw_list_push_back(&core->handlers, &handler->link);
    fw_mutex_unlock(&core->lock);
    char name[FW_THREAD_NAME_SIZE];
    (void)snprintf(name, sizeof name, "core-%u", core->index);
    *made = handler;
    int rc = fw_thread_create(&handler->thread, name, handler_run, handler);
    if (rc != 0) {
        fw_mutex_lock(&core->lock);
        fw_list_remove(&handler->link);
        fw_mutex_unlock(&core->lock);
        fw_participant_detach(&handler->safety);
        free(handler);
    }
    return rc;
}

int fw_core_add_handler(struct fw_core *core)
{
    struct fw_handler *made;
    return handler_create(core, true, &made);
}

/* ---- permits ------------------------------------------------------------------------------- */

/*
 * How many brackets may be entered is counted in one word; who finds it 0 queues at its core and
 * says so in wants_permit. All sequentially consistent: who releases adds first and looks for
 * wishes then, who wishes says so first and tries then. Whichever comes second sees the other.
 */

static bool permit_try(struct fw_domain *domain)
{
    int32_t permits = atomic_load(&domain->permits);
    while (permits > 0) {
        if (atomic_compare_exchange_weak(&domain->permits, &permits, permits - 1)) {
            return true;
        }
    }
    return false;
}

/* Rings one core that has foms waiting for a permit; another one each time. */
static void permit_offer(struct fw_domain *domain)
{
    /* Relaxed: any place to begin will do. */
    uint32_t first = atomic_fetch_add_explicit(&domain->next_relief, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < domain->core_count; i++) {
        struct fw_core *core = &domain->cores[(first + i) % domain->core_count];
        if (atomic_load(&core->wants_permit)) {
            fw_core_ring(core);
            return;
        }
    }
}

void fw_domain_release_permit(struct fw_domain *domain)
{
    atomic_fetch_add(&domain->permits, 1);
    FW_YIELD_POINT("turn: permit released");
    permit_offer(domain);
}

void fw_core_queue_for_permit(struct fw_core *core, struct fw_fom *fom)
{
    fw_counter_increment(&core->metrics->brackets_refused);
    fom->since = core->now;
    fw_queue_level_push(&core->permit_queue, fom);
    atomic_store(&core->wants_permit, true);
    FW_YIELD_POINT("turn: wants a permit");
}

void fw_core_take_permits(struct fw_core *core)
{
    if (FW_LIKELY(core->permit_queue.first == NULL)) {
        return;
    }
    while (core->permit_queue.first != NULL && permit_try(core->domain)) {
        struct fw_fom *fom = fw_queue_level_pop(&core->permit_queue);
        fom->flags |= FW_FOM_HAS_PERMIT;
        fw_fom_enqueue(core, fom);
    }
    if (core->permit_queue.first == NULL) {
        atomic_store(&core->wants_permit, false);
        if (atomic_load(&core->domain->permits) > 0) {
            permit_offer(core->domain); /* The one who rang here may have had another in mind. */
        }
    }
}

void fw_core_dismiss_permits(struct fw_core *core)
{
    struct fw_fom *fom;
    while ((fom = fw_queue_level_pop(&core->permit_queue)) != NULL) {
        fw_fom_enqueue(core, fom);
    }
    if (atomic_exchange(&core->wants_permit, false) && atomic_load(&core->domain->permits) > 0) {
        permit_offer(core->domain); /* Who rang here had those in mind that have just gone. */
    }
}

/* ---- brackets ------------------------------------------------------------------------------ */

/* Gives the turn to a spare thread, or to a new one. False: there is none, the caller keeps it. */
static bool turn_relieve(struct fw_core *core, struct fw_handler *handler, struct fw_fom *fom)
{
    fw_core_lock(core);
    struct fw_list_link *idle = fw_list_pop_front(&core->idle);
    handler->fom = fom;
    handler->since = fw_clock_now_ns(); /* The round, and the tick, may have begun long ago. */
    handler->is_reported = false;
    fw_list_push_back(&core->bracketed, &handler->place);
    turn_end(core);
    if (idle != NULL) {
        core->idle_count--;
        turn_give(FW_LIST_ENTRY(idle, struct fw_handler, place));
    }
    fw_mutex_unlock(&core->lock);
    if (idle != NULL) {
        return true;
    }
    int rc = fw_core_add_handler(core);
    if (rc == 0) {
        return true;
    }
    fw_mutex_lock(&core->lock);
    fw_list_remove(&handler->place);
    fw_mutex_unlock(&core->lock);
    turn_begin(core, handler);
    fw_core_show(core, fom);
    FW_LOG(engine, WARNING,
           "cannot start a thread to relieve core %u (%s): it waits for a call "
           "that blocks",
           core->index, strerrordesc_np(-rc));
    return false;
}

/* The thread is in the list of those in brackets, and wants its turn back. */
static void turn_return(struct fw_core *core, struct fw_handler *handler, struct fw_fom *fom)
{
    fw_mutex_lock(&core->lock);
    FW_ASSERT(handler->fom == fom);
    fw_list_remove(&handler->place);
    fw_list_push_back(&core->returning, &handler->place);
    /* Release, for the acquire of the loop. */
    atomic_fetch_add_explicit(&core->returning_count, 1, memory_order_release);
    fw_mutex_unlock(&core->lock);
    fw_core_ring(core);
    (void)turn_wait(handler, false);
    turn_begin(core, handler);
    fw_core_show(core, fom);
}

bool fw_block_enter(struct fw_fom *fom)
{
    struct fw_handler *handler = fw_thread_self()->handler;
    FW_ASSERT(handler != NULL && (fom->flags & FW_FOM_IN_TICK));
    if (handler->depth > 0) {
        FW_ASSERT(handler->fom == fom); /* Else an earlier tick has left one open. */
        handler->depth++;
        return true;
    }
    struct fw_core *core = handler->core;
    fw_turn_settle(core, fom);
    FW_ASSERT(core->fom == fom);
    if ((fom->flags & FW_FOM_HAS_PERMIT) == 0 && !permit_try(core->domain)) {
        fom->flags |= FW_FOM_WANTS_PERMIT;
        return false;
    }
    fom->flags &= (uint16_t)~FW_FOM_HAS_PERMIT;
    handler->depth = 1;
    fw_counter_increment(&core->metrics->brackets);
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_block(core, fom, true);
    }
    handler->is_unrelieved = !turn_relieve(core, handler, fom);
    if (handler->is_unrelieved) {
        fw_counter_increment(&core->metrics->brackets_unrelieved);
    }
    return true;
}

void fw_block_leave(struct fw_fom *fom)
{
    struct fw_handler *handler = fw_thread_self()->handler;
    FW_ASSERT(handler != NULL && handler->depth > 0); /* No leave without an enter. */
    if (--handler->depth > 0) {
        return;
    }
    struct fw_core *core = handler->core;
    if (!handler->is_unrelieved) {
        turn_return(core, handler, fom);
    }
    core->now = fw_clock_now_ns();
    if (FW_UNLIKELY(core->trace != NULL)) {
        fw_trace_block(core, fom, false);
    }
    fw_domain_release_permit(core->domain);
}

/* ---- exposed ticks ------------------------------------------------------------------------- */

void fw_turn_expose(struct fw_core *core)
{
    struct fw_handler *handler = core->holder;
    handler->exposure = ++core->exposure_count;
    /* What the tick does against its word, it does as a thread without a turn: by the inbox. */
    fw_thread_self()->turn = NULL;
    /* Release, for the acquire of who revokes: all that was done on the turn comes before. */
    atomic_store_explicit(&core->exposed, handler->exposure, memory_order_release);
    FW_YIELD_POINT("turn: exposed");
}

void fw_turn_settle(struct fw_core *core, struct fw_fom *fom)
{
    struct fw_handler *handler = fw_thread_self()->handler;
    uint64_t number = handler->exposure;
    if (number == 0) {
        return;
    }
    handler->exposure = 0;
    FW_YIELD_POINT("turn: about to settle");
    /* Relaxed: if the number is there nobody has had the turn since; if not, the lock orders. */
    if (FW_LIKELY(atomic_compare_exchange_strong_explicit(
            &core->exposed, &number, 0, memory_order_relaxed, memory_order_relaxed))) {
        fw_thread_self()->turn = core;
        return;
    }
    turn_return(core, handler, fom);
    core->now = fw_clock_now_ns();
    fw_domain_release_permit(core->domain);
}

/* With the lock, by who has just taken the turn from `stalled`. */
static void turn_relieve_stalled(struct fw_core *core, struct fw_handler *spare)
{
    struct fw_handler *stalled = core->holder;
    stalled->fom = core->fom;
    stalled->since = fw_clock_now_ns();
    stalled->is_reported = true;
    fw_list_push_back(&core->bracketed, &stalled->place);
    fw_counter_increment(&core->metrics->ticks_relieved);
    core->holder = NULL;
    fw_core_show(core, NULL);
    turn_give(spare);
}

/* Gives the turn of the exposed tick to `made`, or if that is NULL to an idle thread. */
static int turn_take(struct fw_core *core, uint64_t exposure, struct fw_handler *made)
{
    fw_mutex_lock(&core->lock);
    struct fw_list_link *idle = made == NULL ? fw_list_first(&core->idle) : NULL;
    struct fw_handler *spare = idle != NULL ? FW_LIST_ENTRY(idle, struct fw_handler, place) : made;
    FW_YIELD_POINT("turn: about to revoke");
    /* Acquire, for the release of who exposed it. */
    bool is_taken = spare != NULL &&
                    atomic_compare_exchange_strong_explicit(
                        &core->exposed, &exposure, 0, memory_order_acquire, memory_order_relaxed);
    if (is_taken) {
        if (idle != NULL) {
            fw_list_remove(idle);
            core->idle_count--;
        }
        turn_relieve_stalled(core, spare);
    } else if (made != NULL) {
        made->must_exit = true;
        fw_unpark(&made->parker);
    }
    fw_mutex_unlock(&core->lock);
    return is_taken ? 0 : -EAGAIN;
}

int fw_turn_revoke(struct fw_core *core, uint64_t exposure)
{
    if (!permit_try(core->domain)) {
        return -EBUSY;
    }
    fw_mutex_lock(&core->lock);
    bool has_idle = !fw_list_is_empty(&core->idle);
    fw_mutex_unlock(&core->lock);
    /* The thread comes first: a turn that was taken and cannot be given would be lost. */
    struct fw_handler *made = NULL;
    int rc = has_idle ? 0 : handler_create(core, false, &made);
    rc = rc != 0 ? rc : turn_take(core, exposure, made);
    if (rc != 0) {
        fw_domain_release_permit(core->domain);
    }
    return rc;
}
