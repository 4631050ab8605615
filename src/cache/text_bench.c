/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the text protocol costs per key, from bytes in to bytes out, without a network: gets in a
 * pipeline of 16, gets of 50 keys, sets, and the meta commands for both; 300,000 keys of 32 bytes
 * drawn at random with values of 100 bytes, which is more than the processor's caches hold.
 *
 * The peer is the least that any server must do: it finds the ends of the lines, fetches one cache
 * line for each key from where an item could be, and copies as many bytes as the reply has. There
 * is no key in its world, no hash and no lock.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bench/harness.h"
#include "support/converse.h"

enum {
    KEYS = 300000,
    KEY_LENGTH = 32,
    VALUE_LENGTH = 100,
    ROUND = 1 << 14, /* Keys in the input, which is then said again. */
    PIPELINE = 16,
    MANY = 50,
    ITEM_STRIDE = 192, /* Bytes between the peer's items. */
};

#define MEMORY (UINT64_C(256) << 20)

struct load {
    char *input;
    size_t *batch_ends; /* Offsets. */
    size_t batch_count;
    uint32_t batch_keys;
};

struct world {
    struct converse *converse;
    char *items; /* The peer's. */
    uint32_t *order;
    char *reply;
    struct load load;
};

/* Good enough to be unforeseeable for a prefetcher, and the same in each run. */
static uint32_t next_draw(uint64_t *draws)
{
    *draws = *draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*draws >> 33);
}

static size_t put_key(char *to, uint32_t number)
{
    return (size_t)snprintf(to, KEY_LENGTH + 1, "key:%028" PRIu32, number);
}

static void run_all(struct converse *converse, const char *input, size_t length)
{
    while (length > 0) {
        struct fw_session_step step =
            fw_session_run(&converse->session, &converse->local, input, length);
        FW_ASSERT(step.consumed > 0);
        input += step.consumed;
        length -= step.consumed;
        fw_bench_use(fw_reply_finish(&converse->local.reply));
        fw_reply_clear(&converse->local.reply);
    }
}

static char *put_text(char *to, const char *text)
{
    memcpy(to, text, strlen(text));
    return to + strlen(text);
}

/* `head` and `tail` are around the key. */
static size_t put_set(char *to, const char *head, const char *tail, uint32_t number)
{
    char *at = put_text(to, head);
    at += put_key(at, number);
    at = put_text(at, tail);
    memset(at, 'v', VALUE_LENGTH);
    at = put_text(at + VALUE_LENGTH, "\r\n");
    return (size_t)(at - to);
}

static size_t put_get(char *to, const char *head, const char *tail, uint32_t number)
{
    char *at = put_text(to, head);
    at += put_key(at, number);
    return (size_t)(put_text(at, tail) - to);
}

enum kind { SINGLES, MULTI, SETS, META_GETS, META_SETS };

static size_t put_command(char *to, enum kind kind, bool is_first, bool is_last, uint32_t number)
{
    switch (kind) {
    case SINGLES:
        return put_get(to, "get ", "\r\n", number);
    case MULTI:
        return put_get(to, is_first ? "get " : " ", is_last ? "\r\n" : "", number);
    case SETS:
        return put_set(to, "set ", " 0 0 100\r\n", number);
    case META_GETS:
        return put_get(to, "mg ", " v\r\n", number);
    case META_SETS:
        return put_set(to, "ms ", " 100\r\n", number);
    }
    return 0;
}

static void load_make(struct world *world, enum kind kind, uint64_t seed)
{
    struct load *load = &world->load;
    uint64_t draws = seed;
    load->batch_keys = kind == MULTI ? MANY : PIPELINE;
    load->batch_count = 0;
    load->input = malloc((size_t)ROUND * 256);
    load->batch_ends = calloc(ROUND, sizeof *load->batch_ends);
    world->order = calloc(ROUND, sizeof *world->order);
    FW_ASSERT(load->input != NULL && load->batch_ends != NULL && world->order != NULL);
    char *at = load->input;
    for (uint32_t i = 0; i < ROUND / load->batch_keys * load->batch_keys; i++) {
        uint32_t number = next_draw(&draws) % KEYS;
        bool is_first = i % load->batch_keys == 0;
        bool is_last = (i + 1) % load->batch_keys == 0;
        world->order[i] = number;
        at += put_command(at, kind, is_first, is_last, number);
        if (is_last) {
            load->batch_ends[load->batch_count++] = (size_t)(at - load->input);
        }
    }
}

static void world_make(struct world *world, enum kind kind)
{
    static struct converse *converse;
    static char *items;
    if (converse == NULL) {
        converse = converse_create_large(MEMORY);
        items = calloc(KEYS, ITEM_STRIDE);
        FW_ASSERT(items != NULL);
        char line[512];
        for (uint32_t i = 0; i < KEYS; i++) {
            run_all(converse, line, put_command(line, SETS, true, true, i));
            memset(items + (size_t)i * ITEM_STRIDE, 'v', ITEM_STRIDE);
        }
    }
    world->converse = converse;
    world->items = items;
    world->reply = malloc(FW_REPLY_SIZE);
    FW_ASSERT(world->reply != NULL);
    load_make(world, kind, 1);
}

static void ours_run(void *state, uint64_t count)
{
    struct world *world = state;
    struct load *load = &world->load;
    for (uint64_t done = 0; done < count;) {
        size_t begin = 0;
        for (size_t i = 0; i < load->batch_count && done < count; i++) {
            run_all(world->converse, load->input + begin, load->batch_ends[i] - begin);
            begin = load->batch_ends[i];
            done += load->batch_keys;
        }
    }
}

static void peer_run(void *state, uint64_t count)
{
    struct world *world = state;
    struct load *load = &world->load;
    enum { REPLY_LENGTH = KEY_LENGTH + VALUE_LENGTH + 25 };
    for (uint64_t done = 0; done < count;) {
        size_t begin = 0;
        for (size_t i = 0; i < load->batch_count && done < count; i++) {
            const char *at = load->input + begin;
            const char *end = load->input + load->batch_ends[i];
            while (at < end) {
                at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
            }
            begin = load->batch_ends[i];
            char *to = world->reply;
            for (uint32_t key = 0; key < load->batch_keys; key++) {
                uint32_t number = world->order[(i * load->batch_keys + key) % ROUND];
                memcpy(to, world->items + (size_t)number * ITEM_STRIDE, REPLY_LENGTH);
                to += REPLY_LENGTH;
            }
            fw_bench_use((uint64_t)*world->reply);
            done += load->batch_keys;
        }
    }
}

int main(int argc, char **argv)
{
    static struct world singles, multi, sets, meta_gets, meta_sets;
    world_make(&singles, SINGLES);
    world_make(&multi, MULTI);
    world_make(&sets, SETS);
    world_make(&meta_gets, META_GETS);
    world_make(&meta_sets, META_SETS);
    const struct fw_bench benches[] = {
        {.name = "cache-text-get",
         .unit = "ns per key",
         .ours = {"get, 16 ahead", ours_run, &singles},
         .peer = {"copy", peer_run, &singles},
         .bar = 8,
         .count = 1 << 20},
        {.name = "cache-text-multiget",
         .unit = "ns per key",
         .ours = {"get of 50 keys", ours_run, &multi},
         .peer = {"copy", peer_run, &multi},
         .bar = 8,
         .count = 1 << 20},
        {.name = "cache-text-set",
         .unit = "ns per key",
         .ours = {"set, 16 ahead", ours_run, &sets},
         .peer = {"copy", peer_run, &sets},
         .bar = 10,
         .count = 1 << 20},
        {.name = "cache-text-mg",
         .unit = "ns per key",
         .ours = {"mg, 16 ahead", ours_run, &meta_gets},
         .peer = {"copy", peer_run, &meta_gets},
         .bar = 10,
         .count = 1 << 20},
        {.name = "cache-text-ms",
         .unit = "ns per key",
         .ours = {"ms, 16 ahead", ours_run, &meta_sets},
         .peer = {"copy", peer_run, &meta_sets},
         .bar = 12,
         .count = 1 << 20},
    };
    return fw_bench_main(argc, argv, benches, sizeof benches / sizeof benches[0]);
}
