/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a link tells its slave of, put into its reply: changes, the keys of a copy, and what the
 * server is.
 *
 * Keys are looked up in groups: the buckets and items of all are fetched into the cache before the
 * first is held. Evictions are not looked up at all, where the slave knows what to do with their
 * numbers: they are copied from the log.
 */
#include <errno.h>

#include "repl/link.h"

void fw_repl_link_tell_about(struct fw_repl_link *link)
{
    struct fw_table_totals totals;
    if (!fw_repl_link_knows(link, FW_REPL_KNOWS_MEMORY)) {
        return;
    }
    fw_table_totals(link->local->cache->table, &totals);
    link->told_memory = totals.memory_limit;
    struct fw_repl_about about = {
        .memory = totals.memory_limit,
        .items = totals.items,
        .origin = fw_repl_origin(link->repl),
        .parent_history = link->repl->parent_history,
        .parent_position = link->repl->parent_position,
        .number = fw_table_number(link->local->cache->table),
        .server = link->repl->own_origin,
        .date_ns = (uint64_t)fw_cache_date_ns(link->local->cache),
    };
    if (link->is_fetched) { /* It will go on from where this server is. */
        struct fw_repl_standing standing;
        fw_repl_standing(link->repl, &standing);
        about.parent_history = standing.history;
        about.parent_position = standing.position;
    }
    fw_repl_put_about(link->reply, &about);
}

void fw_repl_link_tell_later(struct fw_repl_link *link)
{
    if (fw_repl_link_knows(link, FW_REPL_KNOWS_LATER)) {
        fw_repl_put_later(link->reply, link->local);
    }
}

/*
 * Has the slave every item that it was told of? One that expires or evicts by itself may lack what
 * was touched, and is told all of it.
 */
static bool link_keeps_all(const struct fw_repl_link *link)
{
    uint32_t needed = (uint32_t)FW_REPL_KNOWS_EXPIRY | (uint32_t)FW_REPL_KNOWS_MEMORY;
    /* Relaxed: this link writes it. */
    return (link->knows & needed) == needed &&
           !atomic_load_explicit(&link->slot->is_partial, memory_order_relaxed);
}

/* What the key is now. `number`: not 0, only if it is still that; and then without its value. */
static void link_tell(struct fw_repl_link *link, const struct fw_key *key, uint64_t number)
{
    struct fw_cache_local *local = link->local;
    struct fw_hold hold;
    enum fw_repl_form form = fw_repl_link_knows(link, FW_REPL_KNOWS_DATES) ? FW_REPL_DATED
                             : link->is_ours                               ? FW_REPL_OURS
                                                                           : FW_REPL_PLAIN;
    fw_table_hold(local->table, &hold, key);
    if (hold.item == NULL) {
        fw_repl_put_delete(link->reply, key->bytes, key->length);
    } else if (number == 0 || !link_keeps_all(link)) {
        fw_repl_put_item(link->reply, local, hold.item, form);
    } else if (fw_item_number(hold.item) == number) {
        fw_repl_put_touch(link->reply, local, hold.item, form);
    } /* Else it was written since, and that stands further on. */
    fw_hold_release(&hold);
    link->item_count++;
}

/* A change of the batch, and its key if it has to be looked up. */
struct change {
    struct fw_change said;
    struct fw_key key;
};

/* Is the change told as it stands in the log, without a look at the table? */
static bool is_told_as_is(const struct fw_repl_link *link, const struct fw_change *said)
{
    return fw_change_is_eviction(said) && fw_repl_link_knows(link, FW_REPL_KNOWS_MEMORY);
}

/* Tells of the evictions that the group begins with, in one message. Returns how many there are. */
static uint32_t link_tell_evicted(struct fw_repl_link *link, const struct change *group,
                                  uint32_t count)
{
    uint32_t told = 0;
    while (told < count && is_told_as_is(link, &group[told].said)) {
        told++;
    }
    if (told > 0) {
        const struct fw_change *last = &group[told - 1].said;
        const char *begin = group[0].said.begin;
        fw_repl_put_evicted(link->reply, begin, (size_t)(last->key + last->key_length - begin));
        link->item_count += told;
    }
    return told;
}

/* Looks at the next changes of the batch, and has what they are about fetched. Returns how many. */
static uint32_t group_look(const struct fw_repl_link *link,
                           struct change group[static FW_REPL_LINK_GROUP])
{
    const struct fw_table_local *table = link->local->table;
    const char *next = link->batch + link->batch_next;
    const char *end = link->batch + link->batch_end;
    uint32_t count = 0;
    while (count < FW_REPL_LINK_GROUP && next < end &&
           fw_change_next(&next, end, &group[count].said)) {
        const struct fw_change *said = &group[count].said;
        group[count].key.length = 0;
        if (said->key_length > 0 && !is_told_as_is(link, said)) {
            group[count].key = fw_table_key(table, said->key, said->key_length);
            fw_table_prefetch(table, &group[count].key);
        }
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (group[i].key.length > 0) {
            fw_table_prefetch_item(table, &group[i].key);
        }
    }
    return count;
}

int fw_repl_link_tell_changes(struct fw_repl_link *link)
{
    struct change group[FW_REPL_LINK_GROUP];
    uint32_t count = group_look(link, group);
    int told = 0;
    if (count == 0) {
        return -EPROTO; /* The slave came back with a place that never was one. */
    }
    for (uint32_t i = 0; i < count && fw_repl_link_has_room(link); i++) {
        uint32_t evicted = link_tell_evicted(link, group + i, count - i);
        i += evicted > 0 ? evicted - 1 : 0;
        const struct fw_change *said = &group[i].said;
        if (evicted > 0) {
            told += (int)evicted - 1; /* And the last below. */
        } else if (said->key_length > 0) {
            link_tell(link, &group[i].key, said->kind == FW_CHANGE_TOUCH ? said->number : 0);
        } else if (said->kind == FW_CHANGE_LATER) {
            fw_repl_link_tell_later(link);
        } else if (link->is_ours) {
            fw_repl_put_flush(link->reply, said->number);
            fw_repl_link_tell_later(link); /* It may have been that one. */
        }
        link->batch_next = (uint32_t)(said->key + said->key_length - link->batch);
        told++;
    }
    return told;
}

uint32_t fw_repl_link_tell_copied(struct fw_repl_link *link)
{
    uint32_t told = 0;
    while (told < FW_REPL_LINK_GROUP && !link->is_whole && fw_repl_link_has_room(link)) {
        uint8_t length;
        bool is_over;
        const char *bytes = fw_repl_copy_next(link->copy, &length, &is_over);
        if (bytes == NULL) {
            if (is_over) {
                link->is_whole = true;
                fw_repl_link_set_state(link, FW_REPL_LINK_STREAMING);
            }
            break;
        }
        struct fw_key key = fw_table_key(link->local->table, bytes, length);
        link_tell(link, &key, 0);
        told++;
    }
    return told;
}
