/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an image brings back every item as it was, with all that the cache knows of it, less what
 * has expired; CAS numbers go on, and begin again when they are used up; a damaged image leaves the
 * cache empty and its numbers alone; a failed save leaves no file.
 * Method: two caches without a server, and a job kernel. One is filled in the text protocol and
 * saved, the other loads it and is asked.
 */
#include "server/image.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/thread.h"
#include "io/clock.h"
#include "support/converse.h"

enum { ITEMS = 5000, LINE = 128, HEAVY = 40, LARGE = 400000 };

static struct {
    struct fw_jobs *jobs;
    struct converse *old;
    struct converse *new;
    char path[64];
} world;

static int set_up(void **state)
{
    (void)state;
    struct fw_jobs_policy policy;
    fw_jobs_policy_init(&policy);
    if (fw_jobs_create(&world.jobs, &policy, NULL) != 0 || fw_jobs_start(world.jobs, NULL) != 0) {
        return -1;
    }
    (void)snprintf(world.path, sizeof world.path, "/tmp/fw-image-test-%d", (int)getpid());
    world.old = converse_create();
    world.new = converse_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(world.path);
    converse_destroy(world.old);
    converse_destroy(world.new);
    int rc = fw_jobs_stop(world.jobs, FW_JOBS_DRAIN, NULL);
    fw_jobs_destroy(world.jobs);
    return rc;
}

static const char *said(struct converse *converse, const char *line)
{
    converse_say(converse, line, strlen(line), 0);
    return converse_answer(converse);
}

static void store(const char *key, size_t length, char byte, const char *flags)
{
    char line[LINE];
    char *value = malloc(length + 2);
    memset(value, byte, length);
    memcpy(value + length, "\r\n", 2);
    int size = snprintf(line, sizeof line, "ms %s %zu %s q\r\n", key, length, flags);
    converse_say(world.old, line, (size_t)size, 0);
    converse_say(world.old, value, length + 2, 0);
    assert_string_equal(converse_answer(world.old), "");
    free(value);
}

static struct fw_image saved(void)
{
    struct fw_image image;
    struct fw_reason reason;
    assert_int_equal(fw_image_save(world.jobs, &world.old->cache, world.path, &image, &reason), 0);
    return image;
}

static struct fw_image loaded(void)
{
    struct fw_image image;
    struct fw_reason reason;
    assert_int_equal(fw_image_load(world.jobs, &world.new->cache, world.path, &image, &reason), 0);
    return image;
}

/* Both caches tell the same of the key. */
static void assert_same(const char *key)
{
    char line[LINE];
    (void)snprintf(line, sizeof line, "mg %s k s f c h v u\r\n", key);
    char *before = strdup(said(world.old, line));
    assert_memory_equal(before, "VA ", 3);
    assert_string_equal(said(world.new, line), before);
    free(before);
}

/* How long the new cache keeps the key, or has not read it, according to the letter. */
static int told(const char *key, char letter)
{
    char line[LINE];
    int number;
    (void)snprintf(line, sizeof line, "mg %s u %c\r\n", key, letter);
    const char *answer = said(world.new, line);
    assert_int_equal(sscanf(answer + 4, "%d", &number), 1);
    return number;
}

static uint64_t items_of(struct converse *converse)
{
    struct fw_table_totals totals;
    fw_table_totals(converse->cache.table, &totals);
    return totals.items;
}

static void test_all_of_it(void **state)
{
    (void)state;
    char key[LINE];
    for (unsigned i = 0; i < ITEMS; i++) {
        (void)snprintf(key, sizeof key, "key%u", i);
        store(key, i % 200, (char)('a' + i % 26),
              i % 3 == 0   ? "F77 T5000"
              : i % 3 == 1 ? ""
                           : "F1");
        if (i % 4 == 0) {
            (void)snprintf(key, sizeof key, "mg key%u\r\n", i);
            (void)said(world.old, key);
        }
    }
    struct fw_image image = saved();
    assert_int_equal(image.items, ITEMS);
    image = loaded();
    assert_int_equal(image.items, ITEMS);
    assert_int_equal(image.expired + image.refused, 0);
    assert_int_equal(items_of(world.new), ITEMS);
    for (unsigned i = 0; i < ITEMS; i++) {
        (void)snprintf(key, sizeof key, "key%u", i);
        assert_same(key);
        int left = told(key, 't');
        assert_true(i % 3 == 0 ? left > 4000 && left <= 5000 : left == -1);
    }
}

/* Values in bodies, larger than a block too, and many in one bucket. */
static void test_large_values(void **state)
{
    (void)state;
    char key[LINE];
    for (unsigned i = 0; i < HEAVY; i++) {
        (void)snprintf(key, sizeof key, "heavy%u", i);
        store(key,
              i % 3 == 0   ? FW_ITEM_INLINE_MAX
              : i % 3 == 1 ? FW_ITEM_INLINE_MAX + 1
                           : LARGE,
              (char)('a' + i % 26), "F3");
    }
    assert_int_equal(saved().items, HEAVY);
    assert_int_equal(loaded().items, HEAVY);
    for (unsigned i = 0; i < HEAVY; i++) {
        (void)snprintf(key, sizeof key, "heavy%u", i);
        assert_same(key);
    }
}

static void test_state_of_items(void **state)
{
    (void)state;
    (void)said(world.old, "ms YSBi 1 b\r\nx\r\nms stale 1\r\ny\r\nmd stale I\r\n");
    (void)said(world.old, "ms won 1\r\nz\r\nmd won I\r\nmg won\r\n");
    (void)saved();
    assert_int_equal(loaded().items, 3);
    assert_string_equal(said(world.new, "mg YSBi b k v\r\n"), "VA 1 kYSBi b\r\nx\r\n");
    assert_string_equal(said(world.new, "mg stale v\r\n"), "VA 1 X W\r\ny\r\n");
    assert_string_equal(said(world.new, "mg won v\r\n"), "VA 1 Z X\r\nz\r\n");
}

/* No number is given twice, also not that of an item which is gone. */
static void test_numbers_go_on(void **state)
{
    (void)state;
    (void)said(world.old, "ms a 1\r\nx\r\nms b 1\r\ny\r\nmd b\r\n");
    (void)saved();
    (void)loaded();
    assert_string_equal(said(world.new, "mg a c\r\n"), "HD c1\r\n");
    assert_string_equal(said(world.new, "ms c 1 c\r\nz\r\n"), "HD c3\r\n");
    assert_string_equal(said(world.new, "ms a 1 C1 c\r\nw\r\n"), "HD c4\r\n");
}

/* A file of no items whose header says this number, and behind it what is given. */
static void header_write(uint64_t number, const char *behind)
{
    char bytes[40] = "FWDUMP\r\n\1";
    fw_le64_put(bytes + 24, number);
    fw_le32_put(bytes + 36, fw_crc32c(0, bytes, 36));
    FILE *file = fopen(world.path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, sizeof bytes, 1, file), 1);
    assert_true(fputs(behind, file) >= 0);
    (void)fclose(file);
}

/* Whether a number cannot be or is followed by rubbish: it leaves no trace. */
static void test_numbers_that_cannot_be(void **state)
{
    (void)state;
    struct fw_image image;
    struct fw_reason reason;
    const uint64_t numbers[] = {FW_ITEM_NUMBER_END, FW_ITEM_NUMBER_END + 5, UINT64_MAX, 1000000};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(numbers); i++) {
        header_write(numbers[i], "rubbish");
        assert_int_equal(fw_image_load(world.jobs, &world.new->cache, world.path, &image, &reason),
                         -EBADMSG);
        assert_int_equal(fw_table_number(world.new->cache.table), 1);
    }
    assert_string_equal(said(world.new, "ms a 1 c\r\nx\r\n"), "HD c1\r\n");
}

/* Items of a server whose numbers are used up: they stay, and numbers begin again. */
static void test_numbers_begin_again(void **state)
{
    (void)state;
    (void)said(world.old, "ms a 1\r\nx\r\n");
    fw_table_take_numbers(world.old->cache.table, FW_ITEM_NUMBER_END);
    (void)said(world.old, "ms b 1\r\ny\r\n");
    (void)saved();
    assert_true(loaded().has_new_numbers);
    assert_false(fw_table_is_used_up(world.new->cache.table));
    assert_string_equal(said(world.new, "mg a v\r\nmg b v\r\n"), "VA 1\r\nx\r\nVA 1\r\ny\r\n");
    assert_string_equal(said(world.new, "ms c 1 c\r\nz\r\n"), "HD c3\r\n");
    (void)said(world.new, "flush_all\r\n");
    assert_string_equal(said(world.new, "ms a 1\r\nx\r\nmg a v\r\n"), "HD\r\nVA 1\r\nx\r\n");
}

static void test_time_goes_on(void **state)
{
    (void)state;
    /* The old cache's clock stands still but for what it is shifted by, the wall clock goes on. */
    fw_cache_pause(&world.old->cache, true);
    (void)said(world.old, "ms soon 1 T1\r\nx\r\nms later 1 T2000\r\ny\r\nms never 1\r\nz\r\n");
    (void)said(world.old, "ms read 1\r\nx\r\nms before 1 T1000\r\ny\r\nmg read\r\n");
    fw_cache_shift(&world.old->local, 1000);
    (void)said(world.old, "ms soon 1 T1\r\nx\r\n");
    assert_int_equal(saved().items, 4);
    int64_t expired_ns = fw_clock_wall_ns() + 2 * (int64_t)FW_NS_PER_S;
    struct fw_parker parker;
    fw_parker_init(&parker);
    while (fw_clock_wall_ns() < expired_ns) {
        (void)fw_park_for(&parker, FW_NS_PER_MS);
    }
    struct fw_image image = loaded();
    fw_cache_local_set_time(&world.new->local, fw_clock_now_ns());
    assert_int_equal(image.items, 3);
    assert_int_equal(image.expired, 1);
    assert_string_equal(said(world.new, "mg soon v\r\nmg before v\r\n"), "EN\r\nEN\r\n");
    assert_true(told("later", 't') > 400 && told("later", 't') <= 998);
    assert_int_equal(told("never", 't'), -1);
    assert_true(told("read", 'l') >= 1002 && told("read", 'l') < 2000);
}

static void damage(long at)
{
    FILE *file = fopen(world.path, "r+e");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    (void)fclose(file);
}

static void test_damage(void **state)
{
    (void)state;
    struct fw_image image;
    struct fw_reason reason;
    char key[LINE];
    assert_int_equal(fw_image_load(world.jobs, &world.new->cache, world.path, &image, &reason),
                     -ENOENT);
    for (unsigned i = 0; i < ITEMS; i++) {
        (void)snprintf(key, sizeof key, "key%u", i);
        store(key, 300, 'x', "");
    }
    const long places[] = {3, 60, 500000, -20};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(places); i++) {
        (void)saved();
        damage(places[i]);
        assert_int_equal(fw_image_load(world.jobs, &world.new->cache, world.path, &image, &reason),
                         -EBADMSG);
        assert_string_equal(said(world.new, "dump 0 1\r\n"), "EN\r\n");
    }
    /* And it can be filled after all that. */
    (void)saved();
    assert_int_equal(loaded().items, ITEMS);
}

static void test_less_memory(void **state)
{
    (void)state;
    char key[LINE];
    for (unsigned i = 0; i < 20000; i++) {
        (void)snprintf(key, sizeof key, "key%u", i);
        store(key, 1000, 'x', "");
    }
    store("large", LARGE, 'y', "");
    (void)saved();
    converse_destroy(world.new);
    world.new = converse_create_large(4 << 20);
    world.new->cache.settings.item_size_max = 100000;
    struct fw_image image = loaded();
    assert_int_equal(image.items, 20000);
    assert_int_equal(image.refused, 1);
    uint64_t items = items_of(world.new);
    assert_true(items > 1000 && items < 10000);
}

static void test_save_fails(void **state)
{
    (void)state;
    struct fw_image image;
    struct fw_reason reason;
    store("a", 10, 'x', "");
    assert_int_equal(fw_image_save(world.jobs, &world.old->cache, "/dev/full", &image, &reason),
                     -ENOSPC);
    assert_int_equal(
        fw_image_save(world.jobs, &world.old->cache, "/no/such/folder", &image, &reason), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_of_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_state_of_items, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_go_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_begin_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_time_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_less_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_save_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("server/image", tests, NULL, NULL);
}
