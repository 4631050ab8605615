/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: `dump` shows every item once, with all that `mg` would tell of it, whatever its size, in as
 * many parts as are asked for; and every item that is there all the time, however the table grows
 * and shrinks and whatever comes and goes meanwhile.
 * Method: a session without a server. Answers are read by a reader of this test's own, which marks
 * what it has seen. For what changes meanwhile a walk is stopped after each bucket.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "cache/operation.h"
#include "cache/walk.h"
#include "support/converse.h"

enum { ITEMS = 3000, KEY_SIZE = 16 };

static int set_up(void **state)
{
    *state = converse_create();
    return 0;
}

static int tear_down(void **state)
{
    converse_destroy(*state);
    return 0;
}

static const char *said(struct converse *converse, const char *line)
{
    converse_say(converse, line, strlen(line), 0);
    return converse_answer(converse);
}

/* Values of all kinds of lengths: none, short, as long as a record has, in bodies. */
static size_t value_length(unsigned number)
{
    static const size_t lengths[] = {0, 1, 100, 4000, FW_ITEM_INLINE_MAX, FW_ITEM_INLINE_MAX + 1};
    return number % 50 != 0 ? number % 90 : lengths[number / 50 % FW_ARRAY_LENGTH(lengths)];
}

static void store(struct converse *converse, unsigned number)
{
    char line[64];
    size_t length = value_length(number);
    char *value = malloc(length + 2);
    memset(value, 'a' + (int)(number % 26), length);
    memcpy(value + length, "\r\n", 2);
    int size = snprintf(line, sizeof line, "ms key%u %zu F%u T%u q\r\n", number, length, number,
                        number % 3 == 0 ? 0 : 1000 + number);
    converse_say(converse, line, (size_t)size, 0);
    converse_say(converse, value, length + 2, 0);
    free(value);
}

/* Reads items up to EN, checks each, and counts it in `seen`. Returns how many there were. */
static unsigned read_items(const char *at, unsigned *seen)
{
    unsigned count = 0;
    while (strncmp(at, "EN\r\n", 4) != 0) {
        size_t length;
        unsigned number, flags, fetched, idle;
        int ttl, used;
        unsigned long cas;
        int found = sscanf(at, "VA %zu kkey%u f%u t%d c%lu h%u l%u%n", &length, &number, &flags,
                           &ttl, &cas, &fetched, &idle, &used);
        assert_int_equal(found, 7);
        at += used;
        assert_memory_equal(at, "\r\n", 2);
        at += 2;
        assert_true(number < ITEMS && flags == number && fetched == 0 && cas > 0);
        assert_int_equal(length, value_length(number));
        assert_true(number % 3 == 0 ? ttl == -1 : ttl > 900 && ttl <= (int)(1000 + number));
        for (size_t i = 0; i < length; i++) {
            assert_int_equal(at[i], 'a' + number % 26);
        }
        at += length;
        assert_memory_equal(at, "\r\n", 2);
        at += 2;
        seen[number]++;
        count++;
    }
    assert_string_equal(at, "EN\r\n");
    return count;
}

static void test_all_of_it(void **state)
{
    struct converse *converse = *state;
    assert_string_equal(said(converse, "dump 0 1\r\n"), "EN\r\n");
    for (unsigned i = 0; i < ITEMS; i++) {
        store(converse, i);
    }
    for (uint32_t parts = 1; parts <= FW_WALK_PARTS_MAX; parts *= 2) {
        unsigned seen[ITEMS] = {0};
        unsigned count = 0;
        for (uint32_t part = 0; part < parts; part++) {
            char line[32];
            (void)snprintf(line, sizeof line, "dump %u %u\r\n", part, parts);
            unsigned shown = read_items(said(converse, line), seen);
            assert_true(shown > 0 && shown < ITEMS + 1);
            count += shown;
        }
        assert_int_equal(count, ITEMS);
        for (unsigned i = 0; i < ITEMS; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
    /* In short steps: others are served in between. */
    uint64_t steps = converse->runs[FW_SESSION_OUTPUT];
    (void)said(converse, "dump 0 1\r\n");
    assert_true(converse->runs[FW_SESSION_OUTPUT] - steps > 10);
}

static void test_prefix(void **state)
{
    struct converse *converse = *state;
    unsigned seen[ITEMS] = {0};
    for (unsigned i = 0; i < ITEMS; i++) {
        store(converse, i);
    }
    assert_int_equal(read_items(said(converse, "dump 0 1 key12\r\n"), seen), 111);
    assert_int_equal(read_items(said(converse, "dump 0 1 key2999\r\n"), seen), 1);
    assert_int_equal(read_items(said(converse, "dump 0 1 key29999\r\n"), seen), 0);
}

/* So many values that fill a reply in one bucket that it has to be walked item by item. */
static void test_heavy_buckets(void **state)
{
    struct converse *converse = *state;
    static char value[FW_ITEM_INLINE_MAX + 2];
    char line[64];
    unsigned count = 0;
    memset(value, 'v', sizeof value - 2);
    memcpy(value + sizeof value - 2, "\r\n", 2);
    for (unsigned i = 0; i < ITEMS; i++) {
        int size = snprintf(line, sizeof line, "ms k%u %d q\r\n", i, FW_ITEM_INLINE_MAX);
        converse_say(converse, line, (size_t)size, 0);
        converse_say(converse, value, sizeof value, 0);
    }
    const char *answer = said(converse, "dump 0 1\r\n");
    static bool seen[ITEMS];
    while (strncmp(answer, "VA ", 3) == 0) {
        unsigned number;
        assert_int_equal(sscanf(answer, "VA 8192 kk%u", &number), 1);
        assert_true(number < ITEMS && !seen[number]);
        seen[number] = true;
        answer = strchr(answer, '\n') + 1 + sizeof value;
        count++;
    }
    assert_string_equal(answer, "EN\r\n");
    assert_int_equal(count, ITEMS);
}

static void test_what_is_told(void **state)
{
    struct converse *converse = *state;
    (void)said(converse, "ms a 1 F4294967295\r\nx\r\n");
    assert_string_equal(said(converse, "dump 0 1\r\n"),
                        "VA 1 ka f4294967295 t-1 c1 h0 l0\r\nx\r\nEN\r\n");
    /* The dump itself did not read it, a get does. */
    (void)said(converse, "get a\r\n");
    assert_string_equal(said(converse, "dump 0 1 a\r\n"),
                        "VA 1 ka f4294967295 t-1 c1 h1 l0\r\nx\r\nEN\r\n");
    (void)said(converse, "md a I T30\r\nmg a\r\n");
    assert_string_equal(said(converse, "dump 0 1\r\n"),
                        "VA 1 ka f4294967295 t30 c2 h1 l0 X Z\r\nx\r\nEN\r\n");
    (void)said(converse, "flush_all\r\nms YSBi 1 b\r\ny\r\n");
    assert_string_equal(said(converse, "dump 0 1\r\n"),
                        "VA 1 kYSBi b f0 t-1 c3 h0 l0\r\ny\r\nEN\r\n");
    converse->cache.settings.has_cas = false;
    assert_string_equal(said(converse, "dump 0 1\r\n"),
                        "VA 1 kYSBi b f0 t-1 c0 h0 l0\r\ny\r\nEN\r\n");
}

static void test_refused(void **state)
{
    struct converse *converse = *state;
    static const char *const wrong[] = {"dump x 1\r\n", "dump 0 x\r\n", "dump 0 0\r\n",
                                        "dump 1 1\r\n", "dump 0 3\r\n", "dump 0 32\r\n",
                                        "dump -1 2\r\n"};
    char line[512];
    for (size_t i = 0; i < FW_ARRAY_LENGTH(wrong); i++) {
        assert_string_equal(said(converse, wrong[i]), "CLIENT_ERROR bad command line format\r\n");
    }
    (void)snprintf(line, sizeof line, "dump 0 1 %0251d\r\n", 0);
    assert_string_equal(said(converse, line), "CLIENT_ERROR bad command line format\r\n");
    assert_string_equal(said(converse, "dump\r\ndump 0\r\ndump 0 1 a b\r\n"),
                        "ERROR\r\nERROR\r\nERROR\r\n");
    converse->cache.settings.has_dump = false;
    assert_string_equal(said(converse, "dump 0 1\r\n"), "CLIENT_ERROR dump not allowed\r\n");
}

/* ---- while the table changes ---- */

struct taking {
    unsigned seen[ITEMS];
    unsigned room;
};

static bool take(struct fw_item *item, void *context)
{
    struct taking *taking = context;
    unsigned number;
    if (item->key[0] != 'k') { /* One that comes and goes. */
        return true;
    }
    if (taking->room == 0) {
        return false;
    }
    taking->room--;
    char key[KEY_SIZE] = {0};
    memcpy(key, item->key, item->key_length);
    assert_int_equal(sscanf(key, "key%u", &number), 1);
    taking->seen[number]++;
    return true;
}

/* A step of a walk whose buffer has room for one item, as seldom as a buffer can. */
static void walk_step(struct fw_walk *walk, struct fw_table_local *table, struct taking *taking)
{
    struct taking before = *taking;
    taking->room = 1;
    if (fw_walk_bucket(walk, table, take, taking)) {
        return;
    }
    *taking = before;
    enum fw_walk_item item;
    do {
        taking->room = 0;
        item = fw_walk_item(walk, table, take, taking);
        if (item == FW_WALK_REFUSED) {
            taking->room = 1;
            item = fw_walk_item(walk, table, take, taking);
        }
        assert_true(item != FW_WALK_REFUSED);
    } while (item != FW_WALK_OVER && !walk->is_done);
}

static void test_misses_nothing(void **state)
{
    struct converse *converse = *state;
    struct fw_table_local *table = converse->local.table;
    char line[64];
    for (unsigned i = 0; i < ITEMS; i++) {
        (void)snprintf(line, sizeof line, "ms key%u 0 q\r\n\r\n", i);
        (void)said(converse, line);
    }
    /* Twice as many others come and go again, so that buckets are split and merged on the way. */
    for (unsigned round = 0; round < 4; round++) {
        struct taking *taking = calloc(1, sizeof *taking);
        struct fw_walk walk;
        unsigned steps = 0;
        unsigned others = 0;
        fw_walk_init(&walk, 0, 1);
        while (!walk.is_done) {
            walk_step(&walk, table, taking);
            steps++;
            bool grows = (steps / 100 + round) % 2 == 0;
            for (unsigned i = 0; i < 60 && (grows || others > 0); i++) {
                others = grows ? others + 1 : others - 1;
                (void)snprintf(line, sizeof line,
                               grows ? "ms other%u 0 q\r\n\r\n" : "md other%u q\r\n",
                               grows ? others - 1 : others);
                (void)said(converse, line);
            }
        }
        for (unsigned i = 0; i < ITEMS; i++) {
            assert_true(taking->seen[i] >= 1);
        }
        while (others > 0) {
            (void)snprintf(line, sizeof line, "md other%u q\r\n", --others);
            (void)said(converse, line);
        }
        free(taking);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_of_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_heavy_buckets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misses_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("cache/text_bulk", tests, NULL, NULL);
}
