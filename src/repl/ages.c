/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/ages.h"

#include <errno.h>
#include <string.h>

#include "io/clock.h"

#define ROUND_NS    (INT64_C(8) * FW_NS_PER_S)
#define STEP_NS     (INT64_C(100) * FW_NS_PER_MS)
#define BYTES_PER_S INT64_C(1000000)

enum {
    SHARE = 20,                             /* One part in so many of the stream. */
    STEP_BUCKETS_MAX = 1024,                /* A millisecond of work in a step. */
    CALL_BUCKETS = 8,                       /* Some ten microseconds. */
    AGED_MAX = 4 * STEP_BUCKETS_MAX,        /* Whatever the master says. */
    TELL_BYTES = FW_REPL_HARVEST_BYTES / 2, /* Of keys. A bucket has room for more beyond them. */
};

void fw_repl_harvest_begin(struct fw_repl_harvest *harvest, const struct fw_cache_local *local,
                           int64_t now_ns, bool is_known)
{
    *harvest = (struct fw_repl_harvest){
        .due_ns = now_ns + STEP_NS,
        .round_now = local->now,
        .since = is_known ? local->now : 0,
        .aged = fw_table_aged(local->cache->table),
    };
}

/* Looking at some buckets. */
struct look {
    struct fw_repl_harvest *harvest;
    uint32_t now;
};

static void harvest_visit(struct fw_item *item, void *context)
{
    const struct look *look = context;
    struct fw_repl_harvest *harvest = look->harvest;
    if ((item->bits & FW_ITEM_FETCHED) == 0 ||
        (harvest->since != 0 && fw_item_idle(item, look->now) > look->now - harvest->since) ||
        harvest->used + 1 + item->key_length > sizeof harvest->keys) {
        return;
    }
    harvest->keys[harvest->used] = (char)item->key_length;
    memcpy(harvest->keys + harvest->used + 1, item->key, item->key_length);
    harvest->used += 1 + (uint32_t)item->key_length;
}

/* What share of the slave's items shall become older. */
static uint32_t harvest_aged(struct fw_repl_harvest *harvest, const struct fw_table *table)
{
    uint64_t buckets = fw_table_buckets(table);
    uint64_t aged = fw_table_aged(table);
    uint64_t due = aged - harvest->aged < buckets ? aged - harvest->aged : buckets - 1;
    uint64_t raised = due < harvest->buckets_done ? due : harvest->buckets_done;
    harvest->aged = aged - (due - raised); /* Of more than a round nothing is kept. */
    harvest->buckets_done = 0;
    return (uint32_t)(raised * FW_REPL_AGE_ALL / buckets);
}

static void harvest_tell(struct fw_repl_harvest *harvest, const struct fw_table *table,
                         struct fw_reply *reply)
{
    uint32_t share = harvest_aged(harvest, table);
    if (harvest->used > 0 || share > 0) {
        fw_repl_put_read(reply, share, harvest->keys, harvest->used);
        harvest->bytes_left -= FW_REPL_HEADER + (int64_t)sizeof share + harvest->used;
        harvest->used = 0;
    }
}

/* How many buckets, and how many bytes, the next step may have. */
static void step_begin(struct fw_repl_harvest *harvest, const struct fw_table *table,
                       int64_t now_ns, uint64_t sent)
{
    uint64_t buckets = fw_table_buckets(table) / (uint64_t)(ROUND_NS / STEP_NS) + 1;
    int64_t by_time = BYTES_PER_S * STEP_NS / (int64_t)FW_NS_PER_S;
    int64_t by_stream = (int64_t)((sent - harvest->sent_before) / SHARE);
    harvest->sent_before = sent;
    harvest->left = (uint32_t)(buckets < STEP_BUCKETS_MAX ? buckets : STEP_BUCKETS_MAX);
    /* What was not used is not saved; what was too much is. */
    harvest->bytes_left = (harvest->bytes_left < 0 ? harvest->bytes_left : 0) +
                          (by_time > by_stream ? by_time : by_stream);
    harvest->due_ns = now_ns + STEP_NS;
}

/* The rounds end: what was read while this one went round is told in the next. */
static void round_end(struct fw_repl_harvest *harvest, uint32_t now)
{
    harvest->since = harvest->round_now;
    harvest->round_now = now;
}

bool fw_repl_harvest_go_on(struct fw_repl_harvest *harvest, struct fw_cache_local *local,
                           struct fw_reply *reply, int64_t now_ns, uint64_t sent)
{
    const struct fw_table *table = local->cache->table;
    if (harvest->left == 0) {
        if (now_ns < harvest->due_ns) {
            return false;
        }
        step_begin(harvest, table, now_ns, sent);
    }
    struct look look = {.harvest = harvest, .now = local->now};
    bool is_round = false;
    for (int i = 0; i < CALL_BUCKETS && harvest->left > 0 && harvest->used < TELL_BYTES; i++) {
        is_round = fw_table_visit(local->table, &harvest->cursor, 1, harvest_visit, &look);
        harvest->buckets_done++;
        harvest->left = is_round ? 0 : harvest->left - 1;
    }
    if (is_round) {
        round_end(harvest, local->now);
    }
    if (harvest->bytes_left < (int64_t)harvest->used) {
        harvest->left = 0; /* The round goes on when more may be told. */
    }
    if (harvest->left == 0 || harvest->used >= TELL_BYTES) {
        harvest_tell(harvest, table, reply);
    }
    return harvest->left > 0;
}

/* ---- the slave's side ---------------------------------------------------------------------- */

static void key_was_read(struct fw_cache_local *local, const char *bytes, uint32_t length)
{
    struct fw_key key = fw_table_key(local->table, bytes, length);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    if (hold.item != NULL) {
        fw_hold_access(&hold);
    }
    fw_hold_release(&hold);
}

int fw_repl_ageing_apply(struct fw_repl_ageing *ageing, struct fw_cache_local *local,
                         const struct fw_repl_message *message)
{
    const char *next = message->value;
    const char *end = next + message->value_length;
    uint64_t due =
        ageing->rest + (uint64_t)message->expires * fw_table_buckets(local->cache->table);
    ageing->rest = due % FW_REPL_AGE_ALL;
    uint64_t count = due / FW_REPL_AGE_ALL;
    if (count > 0) { /* First, so that what was read is young. */
        fw_table_age(local->table, &ageing->cursor,
                     (uint32_t)(count < AGED_MAX ? count : AGED_MAX));
    }
    while (next < end) {
        uint32_t length = (uint8_t)*next++;
        if (length == 0 || length > FW_ITEM_KEY_MAX || length > (size_t)(end - next)) {
            return -EPROTO;
        }
        key_was_read(local, next, length);
        next += length;
    }
    return 0;
}
