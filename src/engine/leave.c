/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A core leaves its locality for another, with its threads, its reactor and its memory.
 *
 * Foms keep their homes, so they leave the core first. All of it happens on the core's own turn,
 * between two rounds; nobody else waits for it:
 *
 *     asked (a message) --> is_leaving: takes no new foms, sends on those that it would run,
 *                             and has the parked ones woken so that it would run them
 *                       --> no fom lives there: the lists of both localities change
 *     or                --> a fom cannot move, or refuses too often: is_leaving no more, -EBUSY
 *
 * Who chooses a core for a fom reads these lists without a lock, and may choose one that is leaving
 * or that has left. To one that is leaving the fom comes as any other, and leaves as any other. To
 * one that has left: every core looks at what arrives, that is at new foms and at moved ones, and
 * sends on what has its home elsewhere, before anything of the fom is bound to the core (fom.c,
 * fom_arrive). A core knows for certain where it belongs, because it alone changes that. All other
 * foms that are sent to a core live there and are counted: one that was woken is on its way, and
 * until it has come and left, the core does not. cores[0] of a locality never leaves, so there is
 * always a core to go to, and messages to the locality need no second look.
 *
 * The parked foms are found in the pools of the cores they were born on, so each core is asked to
 * stir its own. One may park on the leaving core after it was passed over, at the end of a bracket
 * or because it refused to depart; therefore all is stirred again, after ever longer times.
 *
 * Another way, to change the lists at once and let foms follow when they next wake, was rejected: a
 * fom that does not want to depart just then would have no core on which it may run.
 */
#include <errno.h>

#include <fairway/engine.h>
#include <fairway/log.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "io/clock.h"

FW_LOG_MODULE_USE(engine);

enum {
    TRIES = 10, /* Within a second. */
    TRY_NS = FW_NS_PER_MS,
    PAUSE_MOVED = 2, /* In intervals: before another moves by itself. */
    PAUSE_FAILED = 16,
};

/* Who waits for a core to move. */
struct fw_leave_waiter {
    struct fw_parker parker;
    bool is_over; /* Under the domain's lock. */
    int result;
};

/* Under the domain's lock; on the turn of the core, or when no thread runs. */
static void leave_enter(struct fw_core *core, struct fw_locality *from, struct fw_locality *to)
{
    uint32_t last = atomic_load_explicit(&from->core_count, memory_order_relaxed) - 1;
    uint32_t place = 1;
    while (atomic_load_explicit(&from->cores[place], memory_order_relaxed) != core) {
        place++;
    }
    /* Releases, for the acquires in balance.c. A reader between them finds one core twice. */
    atomic_store_explicit(&from->cores[place],
                          atomic_load_explicit(&from->cores[last], memory_order_relaxed),
                          memory_order_release);
    FW_YIELD_POINT("leave: out of the list");
    atomic_store_explicit(&from->core_count, last, memory_order_release);
    FW_YIELD_POINT("leave: in no list");
    uint32_t count = atomic_load_explicit(&to->core_count, memory_order_relaxed);
    atomic_store_explicit(&to->cores[count], core, memory_order_release);
    atomic_store_explicit(&to->core_count, count + 1, memory_order_release);
    /* Relaxed: others take it for a hint. */
    atomic_store_explicit(&core->locality, to, memory_order_relaxed);
}

static void leave_end(struct fw_core *core, int result)
{
    struct fw_domain *domain = core->domain;
    struct fw_locality *from = fw_core_locality(core);
    (void)fw_wheel_cancel(&core->wheel, &core->leave_timer);
    fw_mutex_lock(&domain->lock);
    FW_ASSERT(atomic_load_explicit(&domain->leaving, memory_order_relaxed) == core);
    struct fw_locality *to = domain->leaving_to;
    if (result == 0) {
        leave_enter(core, from, to);
    }
    /* Relaxed: on its own turn; others take it for a hint. */
    atomic_store_explicit(&core->is_leaving, false, memory_order_relaxed);
    core->shed_count = 0;
    int64_t pause = result == 0 ? PAUSE_MOVED : PAUSE_FAILED;
    domain->core_move_at = core->now + pause * domain->config.balance_interval_ns;
    atomic_store_explicit(&domain->leaving, NULL, memory_order_release);
    struct fw_leave_waiter *waiter = domain->leave_waiter;
    if (waiter != NULL) {
        waiter->result = result;
        waiter->is_over = true;
        fw_unpark(&waiter->parker); /* Under the lock: then the waiter's memory is still there. */
    }
    fw_mutex_unlock(&domain->lock);
    if (result == 0) {
        fw_counter_increment(&core->metrics->core_moves);
        FW_LOG(engine, INFO, "core %u has left locality %u for locality %u", core->index,
               from->index, to->index);
    }
}

/* Has all foms that live here come up for a tick, and so leave. */
static void leave_try(struct fw_core *core)
{
    fw_core_dismiss_permits(core);
    fw_domain_stir(core->domain);
    fw_wheel_start(&core->wheel, &core->leave_timer,
                   core->now + ((int64_t)TRY_NS << core->leave_tries));
}

static void leave_timer_expired(struct fw_timer *timer)
{
    struct fw_core *core = FW_CONTAINER_OF(timer, struct fw_core, leave_timer);
    if (++core->leave_tries < TRIES) {
        leave_try(core);
        return;
    }
    FW_LOG(engine, WARNING, "core %u cannot leave its locality: %u foms there do not move",
           core->index, atomic_load_explicit(&core->resident_count, memory_order_relaxed));
    leave_end(core, -EBUSY);
}

static void leave_begin(struct fw_message *message)
{
    struct fw_core *core = FW_CONTAINER_OF(message, struct fw_core, leave_message);
    if (fw_domain_state(core->domain) != FW_DOMAIN_NORMAL) {
        leave_end(core, -ESHUTDOWN);
        return;
    }
    uint32_t bound = atomic_load_explicit(&core->bound_count, memory_order_relaxed);
    if (bound > 0) {
        FW_LOG(engine, WARNING,
               "core %u cannot leave its locality: %u foms there are of types that "
               "cannot be moved",
               core->index, bound);
        leave_end(core, -EBUSY);
        return;
    }
    /* Relaxed: who has not seen it sends foms here still, and they are sent on. */
    atomic_store_explicit(&core->is_leaving, true, memory_order_relaxed);
    core->shed_count = UINT32_MAX;
    core->shed_to = NULL;
    core->leave_tries = 0;
    leave_try(core);
}

void fw_leave_init(struct fw_core *core)
{
    fw_timer_init(&core->leave_timer, leave_timer_expired);
    core->leave_message.run = leave_begin;
}

void fw_leave_check(struct fw_core *core)
{
    if (atomic_load_explicit(&core->resident_count, memory_order_relaxed) == 0) {
        leave_end(core, 0);
    }
}

void fw_leave_abort(struct fw_domain *domain)
{
    /*
     * A stop leaves nothing to do here: it ends no thread before the last fom is gone, and so no
     * core has to wait. But a start that fails ends threads of a domain that looks NORMAL. Who
     * asks does so under the lock: it has been done, or will be refused.
     */
    fw_mutex_lock(&domain->lock);
    struct fw_core *core = atomic_load_explicit(&domain->leaving, memory_order_relaxed);
    fw_mutex_unlock(&domain->lock);
    if (core != NULL) {
        leave_end(core, -ESHUTDOWN);
    }
}

/* Under the domain's lock. */
static int leave_may_begin(struct fw_domain *domain, struct fw_core *core, struct fw_locality *to,
                           bool is_told)
{
    struct fw_locality *from = atomic_load_explicit(&core->locality, memory_order_relaxed);
    if (fw_domain_state(domain) != FW_DOMAIN_NORMAL) {
        return -ESHUTDOWN;
    }
    /* It may have got where it was wanted in the meantime. */
    bool is_fixed =
        from == to || atomic_load_explicit(&from->cores[0], memory_order_relaxed) == core;
    bool is_one_leaving = atomic_load_explicit(&domain->leaving, memory_order_relaxed) != NULL;
    if (is_fixed || is_one_leaving || (!is_told && fw_clock_now_ns() < domain->core_move_at)) {
        return -EBUSY;
    }
    return 0;
}

int fw_leave_ask(struct fw_domain *domain, struct fw_core *core, struct fw_locality *to,
                 struct fw_leave_waiter *waiter)
{
    fw_mutex_lock(&domain->lock);
    int rc = leave_may_begin(domain, core, to, waiter != NULL);
    if (rc == 0) {
        domain->leaving_to = to;
        domain->leave_waiter = waiter;
        /* Release, for the acquire in pools_stir(). */
        atomic_store_explicit(&domain->leaving, core, memory_order_release);
        fw_mail_send_message(core, &core->leave_message);
    }
    fw_mutex_unlock(&domain->lock);
    return rc;
}

/* The core that is easiest to spare. */
static struct fw_core *locality_last_core(struct fw_locality *locality)
{
    struct fw_core *best = atomic_load_explicit(&locality->cores[0], memory_order_acquire);
    uint32_t least = UINT32_MAX;
    uint32_t count = atomic_load_explicit(&locality->core_count, memory_order_acquire);
    for (uint32_t i = 1; i < count; i++) {
        struct fw_core *core = atomic_load_explicit(&locality->cores[i], memory_order_acquire);
        uint32_t bound = atomic_load_explicit(&core->bound_count, memory_order_relaxed);
        if (bound < least) {
            least = bound;
            best = core;
        }
    }
    return best;
}

int fw_domain_move_core(struct fw_domain *domain, struct fw_locality *from, struct fw_locality *to)
{
    FW_ASSERT(fw_core_self() == NULL);
    if (from == to) {
        return -EINVAL;
    }
    struct fw_leave_waiter waiter = {.is_over = false};
    fw_parker_init(&waiter.parker);
    struct fw_core *core = locality_last_core(from);
    int rc = fw_leave_ask(domain, core, to, &waiter);
    if (rc == -EBUSY) {
        FW_LOG(engine, WARNING,
               "no core leaves locality %u: it has only one, or another core is moving",
               from->index);
    }
    bool is_over = rc != 0;
    while (!is_over) {
        fw_park(&waiter.parker);
        fw_mutex_lock(&domain->lock);
        is_over = waiter.is_over;
        rc = waiter.result;
        fw_mutex_unlock(&domain->lock);
    }
    return rc;
}
