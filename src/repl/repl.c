/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/repl.h"

#include <errno.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "cache/table.h"
#include "io/clock.h"
#include "io/random.h"
#include "repl/apply.h"
#include "repl/follow.h"
#include "repl/link.h"

FW_LOG_MODULE(repl);

int fw_repl_init(struct fw_repl *repl, const struct fw_repl_config *config,
                 const struct fw_repl_host *host)
{
    *repl = (struct fw_repl){.config = *config, .host = *host};
    int drawn = fw_random_seed(&repl->own_origin);
    if (drawn != 0) {
        return drawn;
    }
    repl->own_origin |= 1; /* 0 is nobody's. */
    repl->changes = fw_table_changes(host->cache->table);
    repl->link_type = fw_repl_link_type;
    repl->link_type.limit_count = FW_REPL_SLAVES_MAX + FW_REPL_GREETERS_MAX;
    repl->follow_type = fw_repl_follow_type;
    repl->follow_type.limit_count = 2; /* One may begin while the memory of another is let go. */
    int rc = fw_domain_add_type(host->domain, &repl->link_type);
    if (rc == 0) {
        rc = fw_domain_add_type(host->domain, &repl->follow_type);
    }
    if (rc == 0) {
        rc = fw_metrics_register(host->registry, &fw_repl_metric_table, &repl->metrics.source);
    }
    if (rc == 0) {
        fw_channel_init_shared(&repl->news, host->domain);
        fw_channel_set_name(&repl->news, "changes");
        fw_repl_figures_begin(repl);
    }
    return rc;
}

void fw_repl_fini(struct fw_repl *repl)
{
    FW_ASSERT(atomic_load(&repl->link_count) == 0 && !fw_repl_is_following(repl));
    fw_repl_figures_end(repl);
    fw_channel_fini(&repl->news);
    fw_metrics_unregister(repl->host.registry, &repl->metrics.source);
}

struct fw_repl_slot *fw_repl_slot_take(struct fw_repl *repl)
{
    uint64_t count =
        repl->config.slaves < FW_REPL_SLAVES_MAX ? repl->config.slaves : FW_REPL_SLAVES_MAX;
    for (uint64_t i = 0; i < count; i++) {
        struct fw_repl_slot *slot = &repl->slots[i];
        uint32_t none = FW_REPL_LINK_NONE;
        /* Acquire, for the release of the link that had it. Links of several cores may want it. */
        if (atomic_compare_exchange_strong_explicit(&slot->state, &none, FW_REPL_LINK_ENTERING,
                                                    memory_order_acquire, memory_order_relaxed)) {
            /* Relaxed, all: figures, of nobody yet. */
            atomic_store_explicit(&slot->sent, 0, memory_order_relaxed);
            atomic_store_explicit(&slot->confirmed, 0, memory_order_relaxed);
            atomic_store_explicit(&slot->current_ns, 0, memory_order_relaxed);
            atomic_store_explicit(&slot->bytes_sent, 0, memory_order_relaxed);
            atomic_store_explicit(&slot->is_partial, false, memory_order_relaxed);
            fw_repl_count(&repl->metrics.links, 1);
            return slot;
        }
    }
    return NULL;
}

int fw_repl_admit(struct fw_repl *repl, struct fw_listener *listener, int fd)
{
    struct fw_fom *fom;
    struct fw_ticket displaced;
    bool is_displacing;
    if (!atomic_load(&repl->is_master) && !fw_repl_is_following(repl)) {
        fw_repl_count(&repl->metrics.refused, 1);
        return -ESHUTDOWN;
    }
    struct fw_repl_greeter *greeter =
        fw_repl_greeters_take(&repl->greeters, &is_displacing, &displaced);
    if (is_displacing) {
        fw_ticket_wake(displaced);
    }
    if (greeter == NULL) {
        fw_repl_count(&repl->metrics.refused, 1);
        return -EUSERS;
    }
    int rc = fw_fom_create(&fom, repl->host.domain, &repl->link_type,
                           fw_domain_home_by_load(repl->host.domain));
    if (rc != 0) {
        fw_repl_greeter_leave(greeter);
        return rc;
    }
    struct fw_repl_link *link = FW_FOM_OF(fom, struct fw_repl_link);
    link->repl = repl;
    link->greeter = greeter;
    link->listener = listener;
    link->fd = fd;
    atomic_fetch_add(&repl->link_count, 1);
    fw_fom_start(fom);
    return 0;
}

int fw_repl_read_admitted(struct fw_repl *repl, struct fw_reason *reason)
{
    static const char *const own[] = {"127.0.0.1", "::1"};
    const struct fw_option_list *list = &repl->config.admit;
    const char *const *texts = list->count > 0 ? list->items : own;
    size_t count = list->count > 0 ? list->count : FW_ARRAY_LENGTH(own);
    for (size_t i = 0; i < count; i++) {
        struct fw_reason why;
        if (repl->admitted_count == FW_REPL_ADMITTED_MAX) {
            return fw_reason_set(reason, -EINVAL, "--repl-admit: too many addresses, at most %d",
                                 FW_REPL_ADMITTED_MAX);
        }
        if (fw_address_parse(texts[i], 0, 0, &repl->admitted[repl->admitted_count], 1, &why) < 0) {
            return fw_reason_set(reason, -EINVAL, "--repl-admit: %s", why.text);
        }
        repl->admitted_count++;
    }
    return 0;
}

bool fw_repl_is_admitted(const struct fw_repl *repl, const struct fw_address *peer)
{
    struct fw_address machine = *peer;
    if (peer->any.sa_family == AF_UNIX) {
        return true;
    }
    if (peer->any.sa_family == AF_INET) {
        machine.ipv4.sin_port = 0;
    } else {
        machine.ipv6.sin6_port = 0;
    }
    for (uint32_t i = 0; i < repl->admitted_count; i++) {
        if (fw_address_equal(&machine, &repl->admitted[i])) {
            return true;
        }
    }
    return false;
}

void fw_repl_nudge_slowly(struct fw_repl *repl)
{
    FW_YIELD_POINT("repl: something has changed");
    /* Changed first, looked then; see link_wait(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&repl->sleeper_count, memory_order_relaxed) > 0) {
        (void)fw_channel_broadcast(&repl->news);
    }
}

uint32_t fw_repl_confirmed_slots(const struct fw_repl *repl, uint64_t position)
{
    uint32_t slots = 0;
    for (uint32_t i = 0; i < repl->config.slaves && i < FW_REPL_SLAVES_MAX; i++) {
        /* Acquire, for the release in link.c. */
        if (atomic_load_explicit(&repl->slots[i].whole, memory_order_acquire) > position) {
            slots |= UINT32_C(1) << i;
        }
    }
    return slots;
}

bool fw_repl_is_confirmed(const struct fw_repl *repl, uint32_t slaves, uint64_t position)
{
    return (uint32_t)__builtin_popcount(fw_repl_confirmed_slots(repl, position)) >= slaves;
}

/* ---- roles --------------------------------------------------------------------------------- */

/* How many numbers its master may have given that this one has not heard of. */
static uint64_t numbers_unheard(const struct fw_repl *repl)
{
    /* Relaxed: no follower is left. */
    int64_t marked_ns = atomic_load_explicit(&repl->followed.marked_ns, memory_order_relaxed);
    /* A mark that is not answered for as long as the time-out ends the link. */
    return fw_repl_numbers_ahead(
        marked_ns != 0 ? fw_clock_now_ns() - marked_ns + repl->config.timeout_ns : 0);
}

/* A flush that was to come at the old master comes here, and at once if it is overdue. */
static void later_take_over(struct fw_repl *repl)
{
    struct fw_cache *cache = repl->host.cache;
    /* Relaxed, both: there is no follower, and clients come later. */
    uint32_t at = atomic_exchange_explicit(&cache->master_flush_at, 0, memory_order_relaxed);
    if (at != 0) {
        atomic_store_explicit(&cache->flush_at, at, memory_order_relaxed);
    }
}

uint64_t fw_repl_origin(const struct fw_repl *repl)
{
    /* Relaxed: it changes while nobody is told of it. */
    uint64_t origin = atomic_load_explicit(&repl->followed.origin, memory_order_relaxed);
    return origin != 0 ? origin : repl->own_origin;
}

/* Where the old master was when it was last heard of, if all that it had is here. */
static void parent_note(struct fw_repl *repl)
{
    /* Relaxed, all: no follower is left. */
    struct fw_repl_followed *followed = &repl->followed;
    bool is_whole = !atomic_load_explicit(&followed->is_torn, memory_order_relaxed);
    repl->parent_history =
        is_whole ? atomic_load_explicit(&followed->history, memory_order_relaxed) : 0;
    repl->parent_position = atomic_load_explicit(&followed->position, memory_order_relaxed);
    if (is_whole && atomic_load(&repl->is_fetching)) {
        /* What was fetched is what the slave had of the master that both had before. */
        repl->parent_history = repl->found.history;
        repl->parent_position = repl->found.position;
    }
    atomic_store(&repl->is_fetching, false);
    if (!is_whole) {
        atomic_store_explicit(&followed->origin, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&followed->is_held, false, memory_order_relaxed);
}

int fw_repl_accept(struct fw_repl *repl)
{
    if (!atomic_load(&repl->followed.is_held)) {
        return -EINVAL;
    }
    atomic_store(&repl->accepts, true);
    (void)fw_channel_broadcast(&repl->news);
    return 0;
}

void fw_repl_serve(struct fw_repl *repl)
{
    struct fw_table *table = repl->host.cache->table;
    FW_ASSERT(!fw_repl_is_following(repl));
    parent_note(repl);
    /* Relaxed: no follower is left. Who never had a master knows all numbers that were given. */
    if (atomic_load_explicit(&repl->followed.history, memory_order_relaxed) != 0) {
        fw_table_take_numbers(table, fw_table_number(table) + numbers_unheard(repl));
        atomic_store_explicit(&repl->followed.history, 0, memory_order_relaxed);
    }
    fw_changes_forget(repl->changes);
    later_take_over(repl);
    fw_table_keep_expired(table, false);
    fw_table_keep_items(table, false);
    /* Release, for the acquire in links. */
    atomic_store_explicit(&repl->is_master, true, memory_order_release);
}

void fw_repl_resign(struct fw_repl *repl)
{
    /* Release, for the acquire in links; and all look. */
    atomic_store_explicit(&repl->is_master, false, memory_order_release);
    (void)fw_channel_broadcast(&repl->news);
}

bool fw_repl_has_copy(const struct fw_repl *repl)
{
    /* Relaxed, both: a copy that ends or begins just now could have done so before. */
    return atomic_load_explicit(&repl->followed.history, memory_order_relaxed) != 0 &&
           !atomic_load_explicit(&repl->followed.is_torn, memory_order_relaxed);
}

bool fw_repl_can_be_fetched(const struct fw_repl *repl)
{
    /* Acquire, for the release of who changes it. */
    return atomic_load_explicit(&repl->followed.state, memory_order_acquire) ==
               FW_REPL_FOLLOW_CONNECTING &&
           fw_repl_has_copy(repl) && !atomic_load(&repl->is_fetching);
}

static int follow_start(struct fw_repl *repl, const struct fw_repl_master *master, bool is_fetching)
{
    struct fw_fom *fom;
    atomic_store(&repl->is_fetching, is_fetching);
    FW_ASSERT(!fw_repl_is_following(repl));
    fw_changes_forget(repl->changes);
    atomic_store(&repl->must_unfollow, false);
    /* Relaxed, all: there is no follower. Whatever is here is nothing that a master has told. */
    atomic_store_explicit(&repl->followed.history, 0, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.is_torn, true, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.marked_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&repl->host.cache->master_flush_at, 0, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.hindrance, 0, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.is_other, false, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.is_held, false, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.origin, 0, memory_order_relaxed);
    atomic_store_explicit(&repl->followed.server, 0, memory_order_relaxed);
    fw_table_keep_expired(repl->host.cache->table, false);
    fw_table_keep_items(repl->host.cache->table, false);
    int rc = fw_fom_create(&fom, repl->host.domain, &repl->follow_type,
                           fw_domain_locality(repl->host.domain, 0));
    if (rc != 0) {
        return rc;
    }
    struct fw_repl_follow *follow = FW_FOM_OF(fom, struct fw_repl_follow);
    follow->repl = repl;
    follow->master = master->address;
    repl->master = *master;
    /* Release, for the acquire of who looks. */
    atomic_store_explicit(&repl->followed.state, FW_REPL_FOLLOW_CONNECTING, memory_order_release);
    fw_fom_start(fom);
    return 0;
}

bool fw_repl_is_newer(const struct fw_repl_found *first, const struct fw_repl_found *second)
{
    return first->history == second->history ? first->position >= second->position
                                             : first->number >= second->number;
}

int fw_repl_fetch(struct fw_repl *repl, const struct fw_repl_master *slave, int64_t look_ns)
{
    repl->found = (struct fw_repl_found){.error = -ECANCELED};
    repl->look_ns = look_ns;
    int rc = follow_start(repl, slave, true);
    if (rc != 0) { /* Otherwise the follower, which runs already, writes it. */
        repl->found.error = rc;
    }
    return rc;
}

int fw_repl_follow(struct fw_repl *repl, const struct fw_repl_master *master)
{
    return follow_start(repl, master, false);
}

void fw_repl_unfollow(struct fw_repl *repl)
{
    /* Release, for the acquire in the follower, which waits for news too. */
    atomic_store_explicit(&repl->must_unfollow, true, memory_order_release);
    (void)fw_channel_broadcast(&repl->news);
}

bool fw_repl_is_following(const struct fw_repl *repl)
{
    /* Acquire, for the release of the follower that has gone: all that it did is done. */
    return atomic_load_explicit(&repl->followed.state, memory_order_acquire) != FW_REPL_FOLLOW_NONE;
}
