/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a value in a file is stored and shown by every protocol as one in memory is, however its
 * bytes arrive; one that the disk refuses, anywhere in it, is not stored, is answered with why, and
 * leaves neither pieces nor windows behind; and what goes when the file is full is what nobody
 * read.
 * Method: sessions over a file of memory that refuses from any window on. All pieces are counted
 * when nothing is stored any more.
 */
#include "cache/large.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/table.h"
#include "support/converse.h"

#define KIB      ((size_t)1024)
#define MIN      (64 * KIB) /* So that a piece has 16 KiB, and a window 64. */
#define SPACE    (2048 * KIB)
#define TEXT_MAX (2048 * KIB)

static struct converse *converse;
static char *text;

static int setup(void **state)
{
    (void)state;
    converse = converse_create_stored(MIN, SPACE, true);
    text = malloc(TEXT_MAX);
    return text == NULL ? -1 : 0;
}

static uint32_t used(void)
{
    return atomic_load(&converse->large.used);
}

/* Nothing is left of anything. */
static int teardown(void **state)
{
    (void)state;
    converse_say(converse, "flush_all\r\n", 11, 0);
    (void)converse_answer(converse);
    uint64_t cursor = 0;
    while (!fw_table_clear(converse->local.table, &cursor, 64)) {
    }
    assert_int_equal(used(), 0);
    assert_int_equal(atomic_load(&converse->large.values), 0);
    assert_int_equal(atomic_load(&converse->large.window_bytes), 0);
    assert_true(fw_list_is_empty(&converse->large.stored));
    assert_int_equal(converse->large.free_count, converse->large.fresh);
    converse_destroy(converse);
    free(text);
    return 0;
}

/* A value that tells which it is. */
static void fill(char *to, size_t length, unsigned number)
{
    for (size_t i = 0; i < length; i++) {
        to[i] = (char)('a' + (i * 7 + i / 251 + number) % 26);
    }
}

static const char *say(const char *line)
{
    converse_say(converse, line, strlen(line), 0);
    return converse_answer(converse);
}

/* Stores by a line that ends with the length, in portions; returns the answer. */
static const char *store(const char *command, size_t length, unsigned number, size_t portion)
{
    char line[64];
    int size = snprintf(line, sizeof line, "%s %zu\r\n", command, length);
    memcpy(text, line, (size_t)size);
    fill(text + size, length, number);
    memcpy(text + size + length, "\r\n", 2);
    converse_say(converse, text, (size_t)size + length + 2, portion);
    return converse_answer(converse);
}

static void check_value(const char *key, size_t length, unsigned number)
{
    char line[64];
    int size = snprintf(line, sizeof line, "get %s\r\n", key);
    converse_say(converse, line, (size_t)size, 0);
    size_t head = (size_t)snprintf(text, TEXT_MAX, "VALUE %s 0 %zu\r\n", key, length);
    fill(text + head, length, number);
    memcpy(text + head + length, "\r\nEND\r\n", 8);
    assert_int_equal(converse->replies_length, head + length + 7);
    assert_string_equal(converse_answer(converse), text);
}

static void test_sizes_and_portions(void **state)
{
    (void)state;
    static const size_t lengths[] = {MIN,           MIN + 1, MIN + 4096, 128 * KIB,
                                     128 * KIB + 1, 200000,  1000000,    1024 * KIB};
    static const size_t portions[] = {0, 1000, 4096, 16384, 65536, 70001};
    converse->cache.settings.item_size_max = SPACE;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
        for (size_t j = 0; j < FW_ARRAY_LENGTH(portions); j++) {
            unsigned number = (unsigned)(i * 10 + j);
            assert_string_equal(store("set k 0 0", lengths[i], number, portions[j]), "STORED\r\n");
            check_value("k", lengths[i], number);
            uint32_t pieces = (uint32_t)((lengths[i] + 16 * KIB - 1) / (16 * KIB));
            assert_int_equal(used(), lengths[i] > MIN ? pieces : 0);
        }
    }
    assert_true(converse->runs[FW_SESSION_DISK] > 0);
}

/* Pipelined behind other commands, with others behind it. */
static void test_in_the_middle(void **state)
{
    (void)state;
    char *to = text;
    to += snprintf(to, 64, "set a 0 0 1\r\nA\r\nset k 0 0 %d\r\n", 100000);
    fill(to, 100000, 3);
    to += 100000;
    to += snprintf(to, 64, "\r\nget a\r\n");
    for (size_t portion = 0; portion < 70000; portion = portion * 3 + 777) {
        converse_say(converse, text, (size_t)(to - text), portion);
        assert_string_equal(converse_answer(converse),
                            "STORED\r\nSTORED\r\nVALUE a 0 1\r\nA\r\nEND\r\n");
    }
    check_value("k", 100000, 3);
}

/* At every window; then nothing is stored, the old value is gone, and the next is stored. */
static void check_errors(int error, const char *answer)
{
    enum { LENGTH = 5 * MIN + 1 };
    for (uint32_t good = 0; good < 7; good++) {
        assert_string_equal(store("set k 0 0", LENGTH, 1, 0), "STORED\r\n");
        converse->disk_error = error;
        converse->disk_good = good;
        const char *told = store("set k 0 0", LENGTH, 2, 5000);
        assert_string_equal(told, good < 6 ? answer : "STORED\r\n");
        converse->disk_good = UINT32_MAX;
        if (good < 6) {
            assert_string_equal(say("get k\r\n"), "END\r\n");
            assert_int_equal(used(), 0);
        } else {
            check_value("k", LENGTH, 2);
        }
        assert_int_equal(atomic_load(&converse->large.window_bytes), 0);
    }
}

static void test_disk_errors(void **state)
{
    (void)state;
    check_errors(-EIO, "SERVER_ERROR disk error storing a large value\r\n");
    check_errors(-EROFS, "SERVER_ERROR disk error storing a large value\r\n");
    check_errors(-ENOSPC, "SERVER_ERROR no space left for large values\r\n");
    check_errors(-EFBIG, "SERVER_ERROR no space left for large values\r\n");
}

static void test_disk_errors_by_meta(void **state)
{
    (void)state;
    converse->disk_good = 1;
    converse->disk_error = -EIO;
    char line[32];
    int size = snprintf(line, sizeof line, "ms k %zu c\r\n", 3 * MIN);
    memcpy(text, line, (size_t)size);
    fill(text + size, 3 * MIN, 1);
    memcpy(text + size + 3 * MIN, "\r\nmn\r\n", 7);
    converse_say(converse, text, (size_t)size + 3 * MIN + 6, 10000);
    assert_string_equal(converse_answer(converse),
                        "SERVER_ERROR disk error storing a large value\r\nMN\r\n");
    /* With what ends it missing too. */
    converse->disk_good = 1;
    memcpy(text + size + 3 * MIN, "xxmn\r\n", 7);
    converse_say(converse, text, (size_t)size + 3 * MIN + 6, 10000);
    assert_string_equal(converse_answer(converse), "CLIENT_ERROR bad data chunk\r\nMN\r\n");
    assert_int_equal(used(), 0);
}

/* Other values make way for what has come before a full disk refused it, and no more. */
static void test_full_disk_makes_way(void **state)
{
    (void)state;
    assert_string_equal(store("set a 0 0", 4 * MIN, 1, 0), "STORED\r\n");
    assert_string_equal(store("set b 0 0", 4 * MIN, 2, 0), "STORED\r\n");
    assert_string_equal(store("set c 0 0", 4 * MIN, 3, 0), "STORED\r\n");
    converse->disk_good = 2;
    converse->disk_error = -ENOSPC;
    assert_string_equal(store("set d 0 0", 5 * MIN, 4, 0),
                        "SERVER_ERROR no space left for large values\r\n");
    assert_string_equal(say("mg a\r\n"), "EN\r\n");
    assert_string_equal(say("mg b\r\n"), "HD\r\n");
    assert_int_equal(used(), 32);
    /* The next takes their pieces and those that were written, and not those that were not. */
    uint32_t fresh = converse->large.fresh;
    assert_int_equal(fresh, 3 * 16 + 12);
    converse->disk_good = UINT32_MAX;
    assert_string_equal(store("set d 0 0", 5 * MIN, 5, 0), "STORED\r\n");
    check_value("d", 5 * MIN, 5);
    check_value("c", 4 * MIN, 3);
    struct fw_key key = fw_table_key(converse->local.table, "d", 1);
    struct fw_hold hold;
    fw_table_hold(converse->local.table, &hold, &key);
    const struct fw_stored *stored = fw_stored_of(fw_item_body(hold.item));
    for (uint32_t i = 0; i < stored->piece_count; i++) {
        assert_true(stored->pieces[i] < 16 ||
                    (stored->pieces[i] >= 48 && stored->pieces[i] < 48 + 8));
    }
    fw_hold_release(&hold);
}

/* A client that goes while its value is under way. */
static void test_half_a_value(void **state)
{
    (void)state;
    for (size_t length = 1; length < 300000; length = length * 3 + 1000) {
        converse_say(converse, "set k 0 0 500000\r\n", 18, 0);
        fill(text, length, 1);
        converse_say(converse, text, length, 3000);
        assert_int_equal(used(), length / (64 * KIB) * 4); /* For the windows that were full. */
        converse_reconnect(converse);
        assert_int_equal(used(), 0);
    }
}

/* The oldest goes, but not who was read since it was last looked at. */
static void test_eviction(void **state)
{
    (void)state;
    enum { LENGTH = 256 * KIB, FIT = SPACE / LENGTH };
    char line[32];
    for (unsigned i = 0; i < FIT; i++) {
        (void)snprintf(line, sizeof line, "set k%u 0 0", i);
        assert_string_equal(store(line, LENGTH, i, 0), "STORED\r\n");
    }
    assert_int_equal(used(), converse->large.piece_max);
    assert_string_equal(say("set small 0 0 1\r\ns\r\n"), "STORED\r\n");
    assert_string_equal(say("mg k1 s\r\n"), "HD s262144\r\n"); /* Looked at, which counts. */
    for (unsigned i = FIT; i < FIT + 3; i++) {
        (void)snprintf(line, sizeof line, "set k%u 0 0", i);
        assert_string_equal(store(line, LENGTH, i, 0), "STORED\r\n");
    }
    assert_string_equal(say("mg k0\r\n"), "EN\r\n");
    assert_string_equal(say("mg k2\r\n"), "EN\r\n");
    assert_string_equal(say("mg k3\r\n"), "EN\r\n");
    check_value("k1", LENGTH, 1);
    check_value("k4", LENGTH, 4);
    check_value("k10", LENGTH, 10);
    assert_string_equal(say("mg small\r\n"), "HD\r\n");
    assert_int_equal(atomic_load(&converse->large.evictions), 3);
    /* One for which all have to go, and one for which that would not do. */
    converse->cache.settings.item_size_max = 2 * SPACE;
    assert_string_equal(store("set all 0 0", SPACE - 1024, 9, 0), "STORED\r\n");
    check_value("all", SPACE - 1024, 9);
    converse_say(converse, "set more 0 0 2097153\r\n", 22, 0);
    assert_string_equal(converse_answer(converse),
                        "SERVER_ERROR no space left for large values\r\n");
    converse_reconnect(converse);
    check_value("all", SPACE - 1024, 9);
}

/* Whose pieces are in use by a reader are not given to others. */
static void test_readers_keep_their_pieces(void **state)
{
    (void)state;
    enum { LENGTH = SPACE / 2 };
    converse->cache.settings.item_size_max = SPACE;
    assert_string_equal(store("set a 0 0", LENGTH, 1, 0), "STORED\r\n");
    struct fw_key key = fw_table_key(converse->local.table, "a", 1);
    struct fw_hold hold;
    fw_table_hold(converse->local.table, &hold, &key);
    struct fw_body *body = fw_body_ref(fw_item_body(hold.item));
    fw_hold_release(&hold);
    assert_string_equal(say("delete a\r\n"), "DELETED\r\n");
    assert_int_equal(used(), LENGTH / (16 * KIB));
    assert_string_equal(store("set b 0 0", LENGTH, 2, 0), "STORED\r\n");
    assert_string_equal(store("set c 0 0", LENGTH, 3, 0), "STORED\r\n");
    assert_string_equal(say("mg b\r\n"), "EN\r\n");
    assert_string_equal(store("set d 0 0", LENGTH + 1, 3, 0),
                        "SERVER_ERROR no space left for large values\r\n");
    fw_body_unref(converse->local.table, body);
    assert_int_equal(used(), 0); /* What was in the way of the last was dropped for nothing. */
}

/* What does not make way: a table that does not evict, and items that clients have locked. */
static void test_refusals(void **state)
{
    (void)state;
    converse_destroy(converse);
    converse = converse_create_stored(MIN, 4 * MIN, false);
    assert_string_equal(store("set a 0 0", 3 * MIN, 1, 0), "STORED\r\n");
    assert_string_equal(store("set b 0 0", 2 * MIN, 1, 0),
                        "SERVER_ERROR no space left for large values\r\n");
    check_value("a", 3 * MIN, 1);
    assert_int_equal(atomic_load(&converse->large.no_space), 1);
    converse->cache.settings.has_failed_disk = true;
    assert_string_equal(store("set a 0 0", 2 * MIN, 1, 0),
                        "SERVER_ERROR disk error storing a large value\r\n");
    assert_string_equal(say("get a\r\n"), "END\r\n");
}

static void test_appending(void **state)
{
    (void)state;
    static const char refused[] = "SERVER_ERROR cannot append to a large value\r\n";
    assert_string_equal(store("set k 0 0", 2 * MIN, 1, 0), "STORED\r\n");
    assert_string_equal(store("append k 0 0", 10, 1, 0), refused);
    assert_string_equal(store("prepend k 0 0", 2 * MIN, 1, 0), refused);
    check_value("k", 2 * MIN, 1);
    assert_string_equal(store("set s 0 0", 10, 1, 0), "STORED\r\n");
    assert_string_equal(store("append s 0 0", 2 * MIN, 1, 0), refused);
    assert_string_equal(store("append none 0 0", 2 * MIN, 1, 0), refused);
    assert_string_equal(say("get s\r\n"), "VALUE s 0 10\r\nbipwdkryfm\r\nEND\r\n");
    assert_string_equal(store("append s 0 0", MIN, 1, 0), "STORED\r\n"); /* In memory. */
    assert_string_equal(say("mg s s\r\n"), "HD s65546\r\n");
    assert_string_equal(say("incr k 1\r\n"),
                        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
}

/* Beyond their share of memory windows are small, and values go through them all the same. */
static void test_windows_are_bounded(void **state)
{
    (void)state;
    enum { WINDOWS = 64 << 20 >> 3 >> 16 }; /* An eighth of the memory. */
    struct fw_window windows[WINDOWS + 8];
    for (size_t i = 0; i < WINDOWS + 8; i++) {
        assert_true(fw_window_open(&windows[i], converse->local.table, 10 * MIN));
        assert_int_equal(windows[i].size, i < WINDOWS ? 64 * KIB : FW_LARGE_WINDOW_MIN);
        assert_int_equal((uintptr_t)windows[i].bytes % FW_LARGE_UNIT, 0);
        memset(windows[i].bytes, 'w', windows[i].size);
    }
    uint64_t before = converse->runs[FW_SESSION_DISK];
    assert_string_equal(store("set k 0 0", 2 * MIN, 1, 0), "STORED\r\n");
    assert_int_equal(converse->runs[FW_SESSION_DISK] - before, 2 * MIN / FW_LARGE_WINDOW_MIN);
    check_value("k", 2 * MIN, 1);
    for (size_t i = 0; i < WINDOWS + 8; i++) {
        fw_window_close(&windows[i], converse->local.table);
    }
    struct fw_window small;
    assert_true(fw_window_open(&small, converse->local.table, 5000));
    assert_int_equal(small.size, 2 * FW_LARGE_UNIT);
    fw_window_close(&small, converse->local.table);
}

/* What they take in memory is their description: thousands of them fit where one would not. */
static void test_memory_is_not_used(void **state)
{
    (void)state;
    struct fw_table_totals totals;
    assert_string_equal(store("set k 0 0", 1000000, 1, 0), "STORED\r\n");
    fw_table_totals(converse->cache.table, &totals);
    assert_true(totals.bytes < 1000);
    assert_int_equal(totals.items, 1);
}

static void test_limits_of_init(void **state)
{
    (void)state;
    struct fw_large large;
    assert_int_equal(fw_large_init(&large, FW_LARGE_VALUE_MIN - 1, SPACE), -EINVAL);
    assert_int_equal(fw_large_init(&large, MIN, 1000), -EINVAL);
    assert_int_equal(fw_large_init(&large, FW_LARGE_VALUE_MIN, SPACE), 0);
    assert_int_equal(large.piece_size, FW_LARGE_PIECE_MIN);
    fw_large_fini(&large);
    assert_int_equal(fw_large_init(&large, 1 << 30, SPACE), 0);
    assert_int_equal(large.piece_size, FW_LARGE_PIECE_MAX);
    fw_large_fini(&large);
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FILE(test_sizes_and_portions),
        WITH_FILE(test_in_the_middle),
        WITH_FILE(test_disk_errors),
        WITH_FILE(test_disk_errors_by_meta),
        WITH_FILE(test_full_disk_makes_way),
        WITH_FILE(test_half_a_value),
        WITH_FILE(test_eviction),
        WITH_FILE(test_readers_keep_their_pieces),
        WITH_FILE(test_refusals),
        WITH_FILE(test_appending),
        WITH_FILE(test_windows_are_bounded),
        WITH_FILE(test_memory_is_not_used),
        cmocka_unit_test(test_limits_of_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
