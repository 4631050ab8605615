/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/hits/inside.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "cache/table.h"

enum {
    HASH_SEED = 1,
    SWEEP_EVERY = 1024, /* Requests between two steps of sweeping. */
    ROUND_SECONDS_MIN = 2,
    ROUND_SECONDS_MAX = 64,
};

struct inside {
    struct fw_table *table;
    struct fw_table_local *local;
    uint64_t rate;
    uint64_t cursor;
    uint64_t round_seconds;
};

static void store(struct inside *inside, const struct fw_key *key,
                  const struct fw_trace_object *what)
{
    struct fw_table_local *local = inside->local;
    struct fw_body *body = NULL;
    if (what->value_size > FW_ITEM_INLINE_MAX) {
        body = fw_body_create(local, what->value_size);
        if (body == NULL) {
            return;
        }
    }
    uint8_t fields = what->lifetime == 0 ? 0 : FW_ITEM_EXPIRES;
    if (!fw_table_reserve(local, fw_item_size(key->length, what->value_size, fields))) {
        if (body != NULL) {
            fw_body_unref(local, body);
        }
        return;
    }
    struct fw_hold hold;
    fw_table_hold(local, &hold, key);
    /* Nobody looks at the bytes of a value, so they are not filled. */
    struct fw_item *item = body != NULL ? fw_hold_attach(&hold, body, fields)
                                        : fw_hold_write(&hold, what->value_size, fields, NULL);
    if (fields != 0) {
        fw_item_set_expires(item, fw_table_local_now(local) + (uint32_t)what->lifetime);
    }
    fw_hold_release(&hold);
}

static bool ask(struct inside *inside, const struct fw_key *key)
{
    struct fw_hold hold;
    fw_table_hold(inside->local, &hold, key);
    bool is_hit = hold.item != NULL;
    if (is_hit) {
        fw_hold_access(&hold);
    }
    fw_hold_release(&hold);
    return is_hit;
}

/* The share of a round that is due for SWEEP_EVERY requests. */
static void sweep(struct inside *inside)
{
    struct fw_table_totals totals;
    fw_table_totals(inside->table, &totals);
    uint64_t buckets = totals.buckets * SWEEP_EVERY / (inside->round_seconds * inside->rate) + 1;
    if (fw_table_sweep(inside->local, &inside->cursor, (uint32_t)buckets, false) &&
        inside->round_seconds < ROUND_SECONDS_MAX) {
        inside->round_seconds *= 2;
    }
}

uint64_t fw_replay_inside(const struct fw_trace *trace, uint64_t memory, size_t counted_from)
{
    struct fw_table_config config = {.memory = memory, .is_evicting = true, .seed = HASH_SEED};
    struct fw_reason reason = {.text = ""};
    struct inside inside = {.rate = trace->rate > 0 ? trace->rate : FW_INSIDE_RATE,
                            .round_seconds = ROUND_SECONDS_MIN};
    if (fw_table_create(&inside.table, &config, &reason) != 0 ||
        fw_table_local_create(&inside.local, inside.table) != 0) {
        (void)fprintf(stderr, "hits: no table: %s\n", reason.text);
        exit(EXIT_FAILURE);
    }
    uint64_t hits = 0;
    for (size_t i = 0; i < trace->request_count; i++) {
        char text[FW_TRACE_KEY_SIZE + 1];
        (void)snprintf(text, sizeof text, "%020" PRIu32, trace->requests[i]);
        fw_table_local_set_now(inside.local, 1 + (uint32_t)(i / inside.rate));
        struct fw_key key = fw_table_key(inside.local, text, FW_TRACE_KEY_SIZE);
        bool is_hit = ask(&inside, &key);
        hits += is_hit && i >= counted_from;
        if (!is_hit) {
            store(&inside, &key, &trace->objects[trace->requests[i]]);
        }
        if (i % SWEEP_EVERY == 0) {
            sweep(&inside);
        }
    }
    fw_table_local_destroy(inside.local);
    fw_table_destroy(inside.table);
    return hits;
}
