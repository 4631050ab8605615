/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what clients read at a master is told to its slave, once per round and within the bounds;
 * items that are not read become older there as they do at the master, but no faster than the
 * harvest goes round.
 * Method: two caches without a server. A harvest is driven by hand, with a clock of its own, and
 * what it puts into the reply is applied at the slave.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/clock.h"
#include "repl/ages.h"
#include "repl/apply.h"
#include "support/converse.h"

enum { ITEMS = 4000 };
#define STEP_NS (INT64_C(100) * FW_NS_PER_MS)

struct pair {
    struct converse *master, *slave;
    struct fw_repl_harvest harvest;
    struct fw_repl_ageing ageing;
    int64_t now_ns;
    uint64_t bytes; /* That were told. */
};

static void store(struct converse *converse, const char *prefix, int number)
{
    char words[300];
    int length = snprintf(words, sizeof words, "set %s-%d 0 0 1\r\n1\r\n", prefix, number);
    converse_say(converse, words, (size_t)length, 0);
}

static void read_all(struct pair *pair, const char *prefix, int count)
{
    for (int i = 0; i < count; i++) {
        char words[64];
        int length = snprintf(words, sizeof words, "get %s-%d\r\n", prefix, i);
        converse_say(pair->master, words, (size_t)length, 0);
    }
}

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof *pair);
    pair->master = converse_create();
    pair->slave = converse_create();
    for (int i = 0; i < ITEMS; i++) {
        store(pair->master, "key", i);
        store(pair->slave, "key", i);
    }
    fw_repl_harvest_begin(&pair->harvest, &pair->master->local, 0, true);
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    converse_destroy(pair->master);
    converse_destroy(pair->slave);
    free(pair);
    return 0;
}

static void reply_apply(struct pair *pair)
{
    struct fw_reply *reply = &pair->master->local.reply;
    uint32_t count = fw_reply_finish(reply);
    for (uint32_t i = 0; i < count; i++) {
        const char *next = reply->pieces[i].iov_base;
        size_t left = reply->pieces[i].iov_len;
        while (left > 0) {
            struct fw_repl_message message;
            assert_int_equal(fw_repl_decode(next, left, &message), FW_REPL_MESSAGE);
            assert_int_equal(message.opcode, FW_REPL_READ);
            assert_int_equal(fw_repl_ageing_apply(&pair->ageing, &pair->slave->local, &message), 0);
            next += message.size;
            left -= message.size;
            pair->bytes += message.size;
        }
    }
    fw_reply_clear(reply);
}

/* One step, as of a link; true: the round is over. */
static bool step(struct pair *pair)
{
    bool is_over = false;
    pair->now_ns += STEP_NS;
    while (fw_repl_harvest_go_on(&pair->harvest, &pair->master->local, &pair->master->local.reply,
                                 pair->now_ns, 0)) {
        reply_apply(pair);
    }
    reply_apply(pair);
    is_over = pair->harvest.cursor == 0;
    return is_over;
}

static void round_go(struct pair *pair)
{
    while (!step(pair)) {
    }
}

static void minute_pass(struct pair *pair)
{
    struct fw_cache_local *local = &pair->master->local;
    local->now += 60;
    fw_table_local_set_now(local->table, local->now);
}

static uint8_t bits_of(struct pair *pair, int number)
{
    char name[32];
    int length = snprintf(name, sizeof name, "key-%d", number);
    struct fw_cache_local *local = &pair->slave->local;
    struct fw_key key = fw_table_key(local->table, name, (size_t)length);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    assert_non_null(hold.item);
    uint8_t bits = hold.item->bits & (FW_ITEM_AGE | FW_ITEM_FETCHED);
    fw_hold_release(&hold);
    return bits;
}

static void test_what_is_read_is_told(void **state)
{
    struct pair *pair = *state;
    read_all(pair, "key", 100);
    round_go(pair);
    for (int i = 0; i < ITEMS; i++) {
        assert_int_equal(bits_of(pair, i), i < 100 ? FW_ITEM_FETCHED : FW_ITEM_AGE_NEW);
    }
    assert_in_range(pair->bytes, 500, 100 * 9 + 8000);
}

/* The clock of both goes on by a minute; what was not read in it is not told again. */
static void test_what_is_not_read_again_is_not_told_again(void **state)
{
    struct pair *pair = *state;
    read_all(pair, "key", 100);
    round_go(pair);
    minute_pass(pair);
    round_go(pair); /* The round before began less than a minute ago. */
    round_go(pair);
    pair->bytes = 0;
    round_go(pair);
    assert_int_equal(pair->bytes, 0);
    converse_say(pair->master, "get key-7\r\n", 11, 0);
    round_go(pair);
    assert_true(pair->bytes > 0);
}

static void age_at_the_master(struct pair *pair, uint32_t rounds)
{
    struct fw_cache_local *local = &pair->master->local;
    uint64_t cursor = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        fw_table_age(local->table, &cursor, (uint32_t)fw_table_buckets(local->cache->table));
    }
}

static int mean_age(struct pair *pair, int begin, int end)
{
    int sum = 0;
    for (int i = begin; i < end; i++) {
        sum += bits_of(pair, i) & FW_ITEM_AGE;
    }
    return sum * 100 / (end - begin);
}

static void test_others_become_older(void **state)
{
    struct pair *pair = *state;
    read_all(pair, "key", ITEMS);
    round_go(pair);
    assert_int_equal(mean_age(pair, 0, ITEMS), 0);
    minute_pass(pair);
    round_go(pair); /* What was read before it began is told once more. */
    round_go(pair);
    age_at_the_master(pair, 9);
    round_go(pair);
    /* The master's came round nine times, the harvest once. */
    assert_in_range(mean_age(pair, 0, ITEMS), 80, 100);
}

/* A step tells no more than its share of what may be told; the rest follows. */
static void test_the_bound_of_bytes(void **state)
{
    struct pair *pair = *state;
    enum { LONG = 200, MANY = 6000 };
    char prefix[LONG + 1];
    memset(prefix, 'p', LONG);
    prefix[LONG] = '\0';
    for (int i = 0; i < MANY; i++) {
        store(pair->master, prefix, i);
    }
    converse_say(pair->master, "mn\r\n", 4, 0);
    char words[LONG + 64];
    for (int i = 0; i < MANY; i++) {
        int length = snprintf(words, sizeof words, "get %s-%d\r\n", prefix, i);
        converse_say(pair->master, words, (size_t)length, 0);
    }
    uint64_t steps = 0;
    do {
        steps++;
    } while (!step(pair));
    assert_true(pair->bytes > (uint64_t)MANY * LONG / 2);
    assert_true(pair->bytes <= (steps + 1) * 100 * 1000);
}

static void test_nonsense_is_refused(void **state)
{
    struct pair *pair = *state;
    static const char *const keys[] = {"\3ab", "\0", "\1a\377"};
    static const size_t lengths[] = {3, 1, 3};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(keys); i++) {
        const struct fw_repl_message message = {.opcode = FW_REPL_READ,
                                                .value = keys[i],
                                                .value_length = (uint32_t)lengths[i],
                                                .expires = UINT32_MAX};
        assert_int_equal(fw_repl_ageing_apply(&pair->ageing, &pair->slave->local, &message),
                         -EPROTO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_read_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_read_again_is_not_told_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_others_become_older, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_bound_of_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nonsense_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
