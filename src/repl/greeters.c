/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/greeters.h"

#include <stddef.h>

#include "base/assert.h"

/* Is there a peer that nobody has told to go? */
static bool is_settled(const struct fw_repl_greeter *greeter)
{
    /* Acquire, for the release in settle(). Relaxed: take()'s own. */
    return atomic_load_explicit(&greeter->state, memory_order_acquire) ==
               FW_REPL_GREETER_GREETING &&
           !atomic_load_explicit(&greeter->must_go, memory_order_relaxed);
}

/* How many places the machine of this one has. */
static uint32_t share_of(const struct fw_repl_greeters *greeters,
                         const struct fw_repl_greeter *greeter)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FW_REPL_GREETERS_MAX; i++) {
        const struct fw_repl_greeter *other = &greeters->places[i];
        count += is_settled(other) && fw_address_equal(&other->machine, &greeter->machine);
    }
    return count;
}

/* Who has to go; NULL: nobody is known well enough yet. */
static struct fw_repl_greeter *victim_find(struct fw_repl_greeters *greeters)
{
    struct fw_repl_greeter *victim = NULL;
    uint32_t share_max = 0;
    for (uint32_t i = 0; i < FW_REPL_GREETERS_MAX; i++) {
        struct fw_repl_greeter *greeter = &greeters->places[i];
        uint32_t share = is_settled(greeter) ? share_of(greeters, greeter) : 0;
        if (share > share_max ||
            (share > 0 && share == share_max && greeter->order < victim->order)) {
            victim = greeter;
            share_max = share;
        }
    }
    return victim;
}

struct fw_repl_greeter *fw_repl_greeters_take(struct fw_repl_greeters *greeters,
                                              bool *is_displacing, struct fw_ticket *displaced)
{
    struct fw_repl_greeter *place = NULL;
    uint32_t staying = 0;
    for (uint32_t i = 0; i < FW_REPL_GREETERS_MAX; i++) {
        struct fw_repl_greeter *greeter = &greeters->places[i];
        /* Acquire, for the release in leave(). */
        if (atomic_load_explicit(&greeter->state, memory_order_acquire) == FW_REPL_GREETER_NONE) {
            place = greeter;
        } else {
            staying += !atomic_load_explicit(&greeter->must_go, memory_order_relaxed);
        }
    }
    struct fw_repl_greeter *victim =
        staying >= FW_REPL_GREETERS_CALM ? victim_find(greeters) : NULL;
    *is_displacing = victim != NULL;
    if (victim != NULL) {
        *displaced = victim->ticket;
        /* Release, for the acquire in must_go(); and it is woken then. */
        atomic_store_explicit(&victim->must_go, true, memory_order_release);
    }
    if (place != NULL) {
        place->order = greeters->next_order++;
        atomic_store_explicit(&place->must_go, false, memory_order_relaxed);
        atomic_store_explicit(&place->state, FW_REPL_GREETER_TAKEN, memory_order_release);
    }
    return place;
}

void fw_repl_greeter_settle(struct fw_repl_greeter *greeter, const struct fw_address *peer,
                            struct fw_ticket ticket)
{
    greeter->machine = *peer;
    if (peer->any.sa_family == AF_INET) {
        greeter->machine.ipv4.sin_port = 0;
    } else if (peer->any.sa_family == AF_INET6) {
        greeter->machine.ipv6.sin6_port = 0;
    }
    greeter->ticket = ticket;
    /* Release, for the acquire in is_settled(). */
    atomic_store_explicit(&greeter->state, FW_REPL_GREETER_GREETING, memory_order_release);
}

bool fw_repl_greeter_must_go(const struct fw_repl_greeter *greeter)
{
    return atomic_load_explicit(&greeter->must_go, memory_order_acquire);
}

void fw_repl_greeter_leave(struct fw_repl_greeter *greeter)
{
    FW_ASSERT(atomic_load_explicit(&greeter->state, memory_order_relaxed) != FW_REPL_GREETER_NONE);
    /* Release, for the acquire in take(). */
    atomic_store_explicit(&greeter->state, FW_REPL_GREETER_NONE, memory_order_release);
}
