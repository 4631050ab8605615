/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a key costs in the table, among 300,000 of 32 bytes with values of 100, asked for at random.
 * Peer: the table that one would write first, and that memcached has: chains from an array that is
 * large enough from the start, items from the heap, an array of mutexes.
 *
 *   cache-table           a get: hash, hold, mark as read, copy, release; with what comes next
 *                         fetched ahead, as in a pipeline or a multiget.
 *   cache-table-alone     the same without: one key at a time.
 *   cache-table-set       a value of the same length is replaced.
 *   cache-table-resize    a value of another length is replaced: a new record each time, and
 *                         segments that have to be cleaned.
 *   cache-table-insert    new keys into an empty table that grows; ours from 16 buckets on.
 *
 * The peer has neither limit nor eviction, and its array of chains never grows.
 */
#include "cache/table.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "bench/harness.h"

enum {
    KEYS = 300000,
    KEY_LENGTH = 32,
    VALUE_LENGTH = 100,
    AHEAD_BUCKET = 8, /* How far ahead a key's bucket is fetched, */
    AHEAD_ITEM = 4,   /* and its record. */
    RING = 16,
    CHAINS = 1 << 19,
    LOCKS = 1 << 12,
};

static char reply[VALUE_LENGTH];
static char value[2 * VALUE_LENGTH];

/* In a server a key has just come from the network: it is in the cache, unlike what it names. */
static const char *key_text(uint64_t number)
{
    static char ring[RING][KEY_LENGTH];
    static uint32_t next; /* The last RING keys stay valid. */
    char *text = ring[next++ % RING];
    memset(text, 'k', KEY_LENGTH);
    for (int i = 0; i < 8; i++) {
        text[i] = (char)('a' + (number >> 4 * i & 15));
    }
    return text;
}

static struct fw_table *table_make(struct fw_table_local **local)
{
    struct fw_table *table;
    struct fw_table_config config = {.memory = 256 << 20, .is_evicting = true, .seed = 11};
    int rc = fw_table_create(&table, &config, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_table_local_create(local, table);
    FW_ASSERT(rc == 0);
    return table;
}

static void ours_store(struct fw_table_local *local, const char *bytes, uint32_t length)
{
    struct fw_key key = fw_table_key(local, bytes, KEY_LENGTH);
    struct fw_hold hold;
    bool can = fw_table_reserve(local, fw_item_size(KEY_LENGTH, length, 0));
    FW_ASSERT(can);
    fw_table_hold(local, &hold, &key);
    memcpy(fw_item_value(fw_hold_write(&hold, length, 0, NULL)), value, length);
    fw_hold_release(&hold);
}

static void ours_take(struct fw_table_local *local, const struct fw_key *key)
{
    struct fw_hold hold;
    fw_table_hold(local, &hold, key);
    FW_ASSERT(hold.item != NULL);
    fw_hold_access(&hold);
    memcpy(reply, fw_item_value(hold.item), hold.item->tail_length);
    fw_bench_use((uint64_t)reply[5]);
    fw_hold_release(&hold);
}

static void ours_get(void *state, uint64_t count)
{
    struct fw_table_local *local = state;
    struct fw_key ring[RING];
    for (uint64_t i = 0; i < count + AHEAD_BUCKET; i++) {
        struct fw_key *last = &ring[i % RING];
        *last = fw_table_key(local, key_text(fw_bench_roll(KEYS)), KEY_LENGTH);
        fw_table_prefetch(local, last);
        if (i >= AHEAD_BUCKET - AHEAD_ITEM) {
            fw_table_prefetch_item(local, &ring[(i - (AHEAD_BUCKET - AHEAD_ITEM)) % RING]);
        }
        if (i >= AHEAD_BUCKET) {
            ours_take(local, &ring[(i - AHEAD_BUCKET) % RING]);
        }
    }
}

static void ours_get_alone(void *state, uint64_t count)
{
    struct fw_table_local *local = state;
    for (uint64_t i = 0; i < count; i++) {
        struct fw_key key = fw_table_key(local, key_text(fw_bench_roll(KEYS)), KEY_LENGTH);
        ours_take(local, &key);
    }
}

static void ours_set(void *state, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        ours_store(state, key_text(fw_bench_roll(KEYS)), VALUE_LENGTH);
    }
}

static void ours_resize(void *state, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        ours_store(state, key_text(fw_bench_roll(KEYS)),
                   (uint32_t)(VALUE_LENGTH - 50 + fw_bench_roll(100)));
    }
}

static void ours_insert(void *state, uint64_t count)
{
    (void)state;
    for (uint64_t done = 0; done < count; done += KEYS) {
        struct fw_table_local *local;
        struct fw_table *table = table_make(&local);
        for (uint64_t i = 0; i < KEYS && done + i < count; i++) {
            ours_store(local, key_text(i), VALUE_LENGTH);
        }
        fw_table_local_destroy(local);
        fw_table_destroy(table);
    }
}

/* The peer. */

struct peer_item {
    struct peer_item *next;
    uint64_t cas;
    uint32_t accessed;
    uint32_t value_length;
    uint8_t key_length;
    char bytes[];
};

struct peer {
    struct peer_item *chains[CHAINS];
    pthread_mutex_t locks[LOCKS];
    uint64_t cas;
};

static struct peer_item **peer_find(struct peer *peer, const char *bytes, uint64_t hash)
{
    struct peer_item **link = &peer->chains[hash % CHAINS];
    while (*link != NULL &&
           ((*link)->key_length != KEY_LENGTH || memcmp((*link)->bytes, bytes, KEY_LENGTH) != 0)) {
        link = &(*link)->next;
    }
    return link;
}

static void peer_store(struct peer *peer, const char *bytes, uint32_t length)
{
    uint64_t hash = fw_hash(bytes, KEY_LENGTH, 11);
    struct peer_item *item = malloc(sizeof *item + KEY_LENGTH + length);
    FW_ASSERT(item != NULL);
    *item =
        (struct peer_item){.cas = ++peer->cas, .value_length = length, .key_length = KEY_LENGTH};
    memcpy(item->bytes, bytes, KEY_LENGTH);
    memcpy(item->bytes + KEY_LENGTH, value, length);
    (void)pthread_mutex_lock(&peer->locks[hash % LOCKS]);
    struct peer_item **link = peer_find(peer, bytes, hash);
    struct peer_item *old = *link;
    item->next = old == NULL ? NULL : old->next;
    *link = item;
    (void)pthread_mutex_unlock(&peer->locks[hash % LOCKS]);
    free(old);
}

static void peer_get(void *state, uint64_t count)
{
    struct peer *peer = state;
    for (uint64_t i = 0; i < count; i++) {
        const char *bytes = key_text(fw_bench_roll(KEYS));
        uint64_t hash = fw_hash(bytes, KEY_LENGTH, 11);
        (void)pthread_mutex_lock(&peer->locks[hash % LOCKS]);
        struct peer_item *item = *peer_find(peer, bytes, hash);
        FW_ASSERT(item != NULL);
        item->accessed = 1;
        memcpy(reply, item->bytes + KEY_LENGTH, item->value_length);
        fw_bench_use((uint64_t)reply[5]);
        (void)pthread_mutex_unlock(&peer->locks[hash % LOCKS]);
    }
}

static void peer_set(void *state, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        peer_store(state, key_text(fw_bench_roll(KEYS)), VALUE_LENGTH);
    }
}

static void peer_resize(void *state, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        peer_store(state, key_text(fw_bench_roll(KEYS)),
                   (uint32_t)(VALUE_LENGTH - 50 + fw_bench_roll(100)));
    }
}

static struct peer *peer_make(void)
{
    struct peer *peer = calloc(1, sizeof *peer);
    FW_ASSERT(peer != NULL);
    for (int i = 0; i < LOCKS; i++) {
        (void)pthread_mutex_init(&peer->locks[i], NULL);
    }
    return peer;
}

static void peer_end(struct peer *peer)
{
    for (int i = 0; i < CHAINS; i++) {
        for (struct peer_item *item = peer->chains[i]; item != NULL;) {
            struct peer_item *next = item->next;
            free(item);
            item = next;
        }
    }
    free(peer);
}

static void peer_insert(void *state, uint64_t count)
{
    (void)state;
    for (uint64_t done = 0; done < count; done += KEYS) {
        struct peer *peer = peer_make();
        for (uint64_t i = 0; i < KEYS && done + i < count; i++) {
            peer_store(peer, key_text(i), VALUE_LENGTH);
        }
        peer_end(peer);
    }
}

int main(int argc, char **argv)
{
    struct fw_table_local *local;
    struct fw_table *table = table_make(&local);
    struct peer *peer = peer_make();
    for (uint64_t i = 0; i < KEYS; i++) {
        ours_store(local, key_text(i), VALUE_LENGTH);
        peer_store(peer, key_text(i), VALUE_LENGTH);
    }
    while (fw_table_collapse(table)) { /* As the sweeper does. */
    }
    const struct {
        const char *name;
        void (*ours)(void *state, uint64_t count);
        void (*peer)(void *state, uint64_t count);
        double bar;
        uint64_t count;
    } parts[] = {
        {"cache-table", ours_get, peer_get, 0.5, 1000000},
        {"cache-table-alone", ours_get_alone, peer_get, 1.0, 500000},
        {"cache-table-set", ours_set, peer_set, 0.8, 500000},
        {"cache-table-resize", ours_resize, peer_resize, 1.2, 500000},
        {"cache-table-insert", ours_insert, peer_insert, 1.0, KEYS},
    };
    struct fw_bench benches[FW_ARRAY_LENGTH(parts)];
    for (size_t i = 0; i < FW_ARRAY_LENGTH(parts); i++) {
        benches[i] = (struct fw_bench){
            .name = parts[i].name,
            .unit = "ns per key",
            .ours = {.name = "table", .run = parts[i].ours, .state = local},
            .peer = {.name = "chains and malloc", .run = parts[i].peer, .state = peer},
            .bar = parts[i].bar,
            .count = parts[i].count,
        };
    }
    int status = fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
    fw_table_local_destroy(local);
    fw_table_destroy(table);
    peer_end(peer);
    return status;
}
