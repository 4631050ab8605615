/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/mail.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/core.h"
#include "engine/word.h"
#include "io/clock.h"

/*
 * One piece of mail is a pointer to a fom, or to a message with the lowest bit set. Links between
 * them are such pointers too.
 */
enum { MAIL_MESSAGE = 1 };
enum { RING_TOTAL = 32 * 1024, RING_MIN = 64, RING_MAX = 1024, BATCH = 32 };

static uintptr_t mail_of_message(struct fw_message *message)
{
    return (uintptr_t)message | MAIL_MESSAGE;
}

static struct fw_message *message_of(uintptr_t mail)
{
    return (struct fw_message *)(mail & ~(uintptr_t)MAIL_MESSAGE);
}

static uintptr_t mail_next(uintptr_t mail)
{
    return mail & MAIL_MESSAGE ? (uintptr_t)message_of(mail)->next
                               : (uintptr_t)((struct fw_fom *)mail)->next;
}

static void mail_set_next(uintptr_t mail, uintptr_t next)
{
    if (mail & MAIL_MESSAGE) {
        message_of(mail)->next = (struct fw_message *)next;
    } else {
        ((struct fw_fom *)mail)->next = (struct fw_fom *)next;
    }
}

int fw_mail_init(struct fw_core *core)
{
    uint32_t count = core->domain->core_count;
    uint32_t capacity = RING_MAX;
    while (capacity > RING_MIN && capacity * count > RING_TOTAL) {
        capacity /= 2;
    }
    core->routes = calloc(count, sizeof *core->routes);
    if (core->routes == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        int rc = fw_spsc_init(&core->routes[i].ring, i == core->index ? 2 : capacity);
        if (rc != 0) {
            while (i-- > 0) {
                fw_spsc_fini(&core->routes[i].ring);
            }
            free(core->routes);
            core->routes = NULL;
            return rc;
        }
    }
    return 0;
}

void fw_mail_fini(struct fw_core *core)
{
    if (core->routes == NULL) {
        return;
    }
    for (uint32_t i = 0; i < core->domain->core_count; i++) {
        FW_ASSERT(core->routes[i].overflow_first == 0);
        fw_spsc_fini(&core->routes[i].ring);
    }
    free(core->routes);
}

void fw_core_ring(struct fw_core *core)
{
    if (fw_doorbell_ring(&core->bell)) {
        /* Relaxed: a figure; the core tells by its value whether it belongs to this sleep. */
        atomic_store_explicit(&core->woken_ns, fw_clock_now_ns(), memory_order_relaxed);
        fw_reactor_wake(core->reactor);
    }
}

static void inbox_push(struct fw_core *to, uintptr_t mail)
{
    uintptr_t first = atomic_load_explicit(&to->inbox, memory_order_relaxed);
    do {
        mail_set_next(mail, first);
        FW_YIELD_POINT("mail: push to the inbox");
        /* Release, for the acquire in inbox_receive(). */
    } while (!atomic_compare_exchange_weak_explicit(&to->inbox, &first, mail, memory_order_release,
                                                    memory_order_relaxed));
    fw_core_ring(to);
}

static void route_push(struct fw_core *from, struct fw_route *route, uintptr_t mail)
{
    if (!route->is_pushed) {
        route->is_pushed = true;
        from->routes_pushed++;
    }
    void *pointer = (void *)mail;
    if (route->overflow_first == 0 && fw_spsc_push(&route->ring, &pointer, 1) == 1) {
        return;
    }
    fw_counter_increment(&from->metrics->mail_overflows);
    mail_set_next(mail, 0);
    if (route->overflow_first == 0) {
        route->overflow_first = mail;
    } else {
        mail_set_next(route->overflow_last, mail);
    }
    route->overflow_last = mail;
}

static void mail_send(struct fw_core *to, uintptr_t mail)
{
    struct fw_core *from = fw_core_self();
    if (from == NULL || from == to || from->domain != to->domain) {
        inbox_push(to, mail);
    } else {
        route_push(from, &from->routes[to->index], mail);
    }
}

void fw_mail_send_fom(struct fw_core *to, struct fw_fom *fom)
{
    mail_send(to, (uintptr_t)fom);
}

void fw_mail_send_message(struct fw_core *to, struct fw_message *message)
{
    mail_send(to, mail_of_message(message));
}

static void receive_one(struct fw_core *core, uintptr_t mail)
{
    if (mail & MAIL_MESSAGE) {
        struct fw_message *message = message_of(mail);
        message->run(message);
        return;
    }
    struct fw_fom *fom = (struct fw_fom *)mail;
    if (fw_word_state(fw_word_get(&fom->wake_word)) == FW_WORD_GONE) {
        fw_fom_free(core, fom);
    } else {
        fw_fom_enqueue(core, fom);
    }
}

static uint32_t ring_receive(struct fw_core *core, struct fw_spsc *ring)
{
    void *batch[BATCH];
    uint32_t total = 0;
    uint32_t count;
    do {
        count = fw_spsc_pop(ring, batch, BATCH);
        /* The senders wrote to these lines last: fetch all of them at once. */
        for (uint32_t i = 0; i < count; i++) {
            __builtin_prefetch(batch[i], 1);
        }
        for (uint32_t i = 0; i < count; i++) {
            receive_one(core, (uintptr_t)batch[i]);
        }
        total += count;
    } while (count == BATCH && total < RING_MAX);
    fw_counter_add(&core->metrics->mail_ring, total);
    return total;
}

static uint32_t inbox_receive(struct fw_core *core)
{
    /* Relaxed: only asks whether the exchange is worth its cost. */
    if (atomic_load_explicit(&core->inbox, memory_order_relaxed) == 0) {
        return 0;
    }
    /* Acquire, for the release in inbox_push(). */
    uintptr_t newest = atomic_exchange_explicit(&core->inbox, 0, memory_order_acquire);
    uintptr_t oldest = 0;
    while (newest != 0) {
        uintptr_t mail = newest;
        newest = mail_next(mail);
        mail_set_next(mail, oldest);
        oldest = mail;
    }
    uint32_t count = 0;
    while (oldest != 0) {
        uintptr_t mail = oldest;
        oldest = mail_next(mail); /* Before it is received: then the link is another's. */
        receive_one(core, mail);
        count++;
    }
    fw_counter_add(&core->metrics->mail_inbox, count);
    return count;
}

uint32_t fw_mail_receive(struct fw_core *core)
{
    uint32_t count = inbox_receive(core);
    for (uint32_t i = 0; i < core->domain->core_count; i++) {
        if (i != core->index) {
            count += ring_receive(core, &core->domain->cores[i].routes[core->index].ring);
        }
    }
    return count;
}

/* Tries again what the ring had not taken. True: nothing is left. */
static bool route_retry(struct fw_route *route)
{
    while (route->overflow_first != 0) {
        uintptr_t mail = route->overflow_first;
        uintptr_t next = mail_next(mail); /* Before it is sent: then the link is another's. */
        void *pointer = (void *)mail;
        if (fw_spsc_push(&route->ring, &pointer, 1) == 0) {
            return false;
        }
        route->overflow_first = next;
    }
    return true;
}

bool fw_mail_flush(struct fw_core *core)
{
    if (FW_LIKELY(core->routes_pushed == 0)) {
        return true;
    }
    for (uint32_t i = 0; i < core->domain->core_count; i++) {
        struct fw_route *route = &core->routes[i];
        if (!route->is_pushed) {
            continue;
        }
        if (route_retry(route)) {
            route->is_pushed = false;
            core->routes_pushed--;
        }
        fw_core_ring(&core->domain->cores[i]);
    }
    return core->routes_pushed == 0;
}
