/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the table does what table.h says, with one thread.
 * Method: each promise by hand; then random operations beside a plain array that remembers what
 * must be there, with many seeds, in a table that grows, shrinks, cleans and evicts meanwhile.
 */
#include "cache/table.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache/table_parts.h"
#include "io/random.h"
#include "support/table_world.h"

static void test_config(void **state)
{
    (void)state;
    struct fw_table *table;
    struct fw_reason reason = {.text = ""};
    struct fw_table_config config = {.memory = MIB - 1, .is_evicting = true};
    assert_int_equal(fw_table_create(&table, &config, &reason), -EINVAL);
    assert_non_null(strstr(reason.text, "1 MiB"));
    config.memory = (MIB << 20) + 1;
    assert_int_equal(fw_table_create(&table, &config, &reason), -EINVAL);
    /* A tebibyte of addresses, and hardly any memory. TSan has fewer addresses. */
    config.memory = FW_TSAN ? MIB << 10 : MIB << 20;
    assert_int_equal(fw_table_create(&table, &config, &reason), 0);
    fw_table_destroy(table);
}

static void test_write(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    struct fw_key key = fw_table_key(local, "apple", 5);
    struct fw_hold hold;
    assert_true(fw_table_reserve(local, fw_item_size(5, 10, FW_ITEM_FIELDS)));
    fw_table_hold(local, &hold, &key);
    assert_null(hold.item);
    assert_int_equal(hold.absence, FW_ABSENT);
    struct fw_item *old = (void *)&hold;
    uint8_t fields = FW_ITEM_EXPIRES | FW_ITEM_FLAGS;
    struct fw_item *item = fw_hold_write(&hold, 10, fields, &old);
    assert_null(old);
    assert_ptr_equal(hold.item, item);
    assert_int_equal(fw_item_length(item), 10);
    assert_int_equal(item->key_length, 5);
    assert_memory_equal(item->key, "apple", 5);
    assert_int_equal(fw_item_expires(item), 0);
    assert_int_equal(fw_item_flags(item), 0);
    assert_int_equal(item->bits, FW_ITEM_AGE_NEW);
    assert_int_equal(fw_item_idle(item, 100), 0);
    assert_int_equal(fw_item_idle(item, 99), 0); /* A clock that is behind. */
    assert_int_equal(fw_item_idle(item, 1000100), 1000000);
    memcpy(fw_item_value(item), "0123456789", 10);
    fw_item_set_flags(item, 77);
    fw_item_set_expires(item, 500);
    uint64_t cas = fw_item_cas(item);
    fw_hold_release(&hold);

    /* Read: marks, and writes only what changes. */
    fw_table_local_set_now(local, 101);
    fw_table_hold(local, &hold, &key);
    fw_hold_access(&hold);
    assert_int_equal(hold.item->bits, FW_ITEM_FETCHED);
    assert_int_equal(fw_item_idle(hold.item, 110), 9);
    assert_int_equal(fw_item_cas(hold.item), cas);
    assert_int_equal(fw_item_flags(hold.item), 77);
    assert_int_equal(fw_item_expires(hold.item), 500);
    assert_memory_equal(fw_item_value(hold.item), "0123456789", 10);
    hold.item->bits |= FW_ITEM_STALE;
    fw_hold_access(&hold);
    assert_int_equal(hold.item->bits, FW_ITEM_FETCHED | FW_ITEM_STALE);
    fw_hold_release(&hold);

    world_end(&world);
}

static void test_rewrite(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    struct fw_key key = fw_table_key(local, "apple", 5);
    struct fw_hold hold;
    assert_true(fw_table_reserve(local, fw_item_size(5, 10, FW_ITEM_FIELDS)));
    fw_table_hold(local, &hold, &key);
    struct fw_item *old;
    struct fw_item *item = fw_hold_write(&hold, 10, FW_ITEM_EXPIRES | FW_ITEM_FLAGS, &old);
    memcpy(fw_item_value(item), "0123456789", 10);
    fw_item_set_flags(item, 77);
    fw_item_set_expires(item, 500);
    item->bits |= FW_ITEM_STALE | FW_ITEM_FETCHED;
    uint64_t cas = fw_item_cas(item);
    fw_hold_release(&hold);

    /* The same length and no other fields: in place, kept but for what table.h says. */
    fw_table_local_set_now(local, 102);
    assert_true(fw_table_reserve(local, fw_item_size(5, 10, FW_ITEM_FIELDS)));
    fw_table_hold(local, &hold, &key);
    struct fw_item *before = hold.item;
    item = fw_hold_write(&hold, 10, FW_ITEM_EXPIRES, &old);
    assert_ptr_equal(item, before);
    assert_ptr_equal(old, before);
    assert_memory_equal(fw_item_value(item), "0123456789", 10);
    assert_int_equal(fw_item_flags(item), 0);
    assert_int_equal(fw_item_expires(item), 0);
    assert_int_equal(fw_item_idle(item, 105), 3);
    assert_int_equal(item->bits, FW_ITEM_STALE);
    assert_true(fw_item_cas(item) > cas);
    cas = fw_item_cas(item);
    fw_hold_release(&hold);

    /* A field that it lacks: a new record. */
    assert_true(fw_table_reserve(local, fw_item_size(5, 10, FW_ITEM_FIELDS)));
    fw_table_hold(local, &hold, &key);
    item = fw_hold_write(&hold, 10, FW_ITEM_CAS, &old);
    assert_ptr_equal(old, before);
    assert_ptr_not_equal(item, before);
    assert_true(fw_item_cas(item) > cas); /* Its number, until it is set. */
    cas = fw_item_cas(item);
    fw_item_set_cas(item, 5);
    assert_int_equal(fw_item_cas(item), 5);
    assert_int_equal(fw_item_number(item), cas);
    memcpy(fw_item_value(item), "0123456789", 10);
    before = item;
    fw_hold_release(&hold);

    /* Another length: a new record, and the old one can be read until the release. */
    assert_true(fw_table_reserve(local, fw_item_size(5, 12, 0)));
    fw_table_hold(local, &hold, &key);
    item = fw_hold_write(&hold, 12, 0, &old);
    assert_ptr_equal(old, before);
    assert_ptr_not_equal(item, before);
    assert_memory_equal(fw_item_value(old), "0123456789", 10);
    assert_int_equal(fw_item_flags(item), 0);
    assert_int_equal(fw_item_expires(item), 0);
    assert_int_equal(item->bits, 0); /* Its key is in use. */
    assert_true(fw_item_cas(item) > cas);
    fw_hold_release(&hold);

    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.items, 1);
    assert_int_equal(totals.total_items, 4);
    assert_int_equal(totals.bytes, fw_item_size(5, 12, 0));
    world_end(&world);
}

static void test_remove(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    struct fw_key key = fw_table_key(local, "apple", 5);
    struct fw_hold hold;
    assert_true(fw_table_reserve(local, fw_item_size(5, 12, 0)));
    fw_table_hold(local, &hold, &key);
    (void)fw_hold_write(&hold, 12, 0, NULL);
    fw_hold_release(&hold);

    fw_table_hold(local, &hold, &key);
    fw_hold_remove(&hold);
    assert_null(hold.item);
    fw_hold_release(&hold);
    fw_table_hold(local, &hold, &key);
    assert_null(hold.item);
    fw_hold_release(&hold);
    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.items, 0);
    assert_int_equal(totals.bytes, 0);
    world_end(&world);
}

static void test_absence(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    assert_true(table_put(local, 1, 20, 1, 110));
    assert_true(table_put(local, 2, 20, 1, 0));
    assert_true(table_put(local, 3, 9000, 1, 110));
    fw_table_local_set_now(local, 109);
    assert_true(table_look(local, 1, true).is_there);
    fw_table_local_set_now(local, 110);
    assert_int_equal(table_look(local, 1, false).absence, FW_ABSENT_EXPIRED);
    assert_int_equal(table_look(local, 1, false).absence, FW_ABSENT); /* It was removed. */
    assert_int_equal(table_look(local, 3, false).absence, FW_ABSENT_EXPIRED);
    assert_true(table_look(local, 2, false).is_there);
    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.reclaimed, 2);
    assert_int_equal(totals.expired_unread, 1); /* Number 1 had been read. */
    assert_int_equal(totals.items, 1);

    fw_table_flush(local);
    assert_true(table_put(local, 4, 20, 1, 0)); /* Right after it, and stays. */
    assert_int_equal(table_look(local, 2, false).absence, FW_ABSENT_FLUSHED);
    assert_true(table_look(local, 4, false).is_there);
    assert_true(table_put(local, 4, 20, 2, 0)); /* In place. */
    fw_table_flush(local);
    assert_int_equal(table_look(local, 4, false).absence, FW_ABSENT_FLUSHED);
    world_end(&world);
}

/* Whatever is stored while a flush comes: before it, and gone, or after it, and there. */
static void test_flush_in_hold(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *other;
    assert_int_equal(fw_table_local_create(&other, world.table), 0);
    for (int way = 0; way < 3; way++) {
        assert_true(table_put(world.local, 1, 20, 1, 0));
        struct key_text text = key_text(1);
        struct fw_key key = key_of(world.local, &text);
        struct fw_hold hold;
        assert_true(fw_table_reserve(world.local, fw_item_size(key.length, 30, 0)));
        fw_table_hold(world.local, &hold, &key);
        assert_non_null(hold.item);
        fw_table_flush(other);
        if (way == 0) {
            fw_hold_renumber(&hold);
        } else {
            (void)fw_hold_write(&hold, way == 1 ? 20 : 30, 0, NULL);
        }
        fw_hold_release(&hold);
        assert_int_equal(table_look(world.local, 1, false).absence, FW_ABSENT_FLUSHED);
        /* What was not there came after it. */
        fw_table_hold(world.local, &hold, &key);
        assert_null(hold.item);
        fw_table_flush(other);
        memset(fw_item_value(fw_hold_write(&hold, 20, 0, NULL)), 0, 20);
        fw_hold_release(&hold);
        assert_true(table_look(world.local, 1, false).is_there);
    }
    fw_table_local_destroy(other);
    world_end(&world);
}

/* Who needs fields that an item lacks finds it with them, and all else as it was. */
static void test_hold_with(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    for (uint64_t i = 0; i < 2000; i++) { /* Also where the segment has no room left. */
        uint32_t length = i % 100 == 7 ? 9000 : 8 + (uint32_t)(i * 37 % 3000);
        assert_true(table_put(local, i, length, i, 0));
        struct table_found before = table_look(local, i, true);
        uint64_t bytes = totals_of(&world).bytes;
        struct key_text text = key_text(i);
        struct fw_key key = key_of(local, &text);
        struct fw_hold hold;
        fw_table_hold_to_expire(local, &hold, &key);
        fw_item_set_expires(hold.item, 500);
        fw_hold_release(&hold);
        assert_int_equal(totals_of(&world).bytes, bytes + 4);
        assert_true(fw_table_hold_with(local, &hold, &key, FW_ITEM_FLAGS | FW_ITEM_CAS, 1000));
        assert_int_equal(fw_item_expires(hold.item), 500);
        assert_int_equal(fw_item_flags(hold.item), 0);
        assert_int_equal(hold.item->fields, FW_ITEM_FIELDS);
        assert_true((size_t)(local->logs[FW_PROBATION].end - local->logs[FW_PROBATION].next) >=
                    1000);
        fw_item_set_flags(hold.item, 9);
        fw_hold_release(&hold);
        assert_int_equal(totals_of(&world).bytes, bytes + 16);
        fw_table_hold_to_expire(local, &hold, &key); /* It has the field: nothing changes. */
        assert_int_equal(fw_item_expires(hold.item), 500);
        assert_int_equal(fw_item_flags(hold.item), 9);
        fw_hold_release(&hold);
        struct table_found found = table_look(local, i, false);
        assert_true(found.is_whole);
        assert_int_equal(found.cas, before.cas);
        assert_int_equal(found.bits, before.bits);
        assert_int_equal(found.length, before.length);
    }
    world_end(&world);

    /* A table that does not evict has the room from the start, and an absent key is no trouble. */
    world = world_make(MIB, false);
    uint64_t count = 0;
    while (table_put(world.local, count, 100, count, 0)) {
        count++;
    }
    for (uint64_t i = 0; i <= count; i++) {
        struct key_text text = key_text(i);
        struct fw_key key = key_of(world.local, &text);
        struct fw_hold hold;
        fw_table_hold_to_expire(world.local, &hold, &key);
        assert_true((hold.item != NULL) == (i < count));
        if (hold.item != NULL) {
            fw_item_set_expires(hold.item, 200);
        }
        fw_hold_release(&hold);
    }
    assert_int_equal(totals_of(&world).evictions, 0);
    world_end(&world);
}

/* A field that an item has is kept when it gets another. */
static void test_fields_are_kept(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    struct fw_key key = fw_table_key(local, "flags", 5);
    struct fw_hold hold;
    assert_true(fw_table_reserve(local, fw_item_size(5, 8, FW_ITEM_FIELDS)));
    fw_table_hold(local, &hold, &key);
    fw_item_set_flags(fw_hold_write(&hold, 8, FW_ITEM_FLAGS, NULL), 33);
    fw_hold_release(&hold);
    fw_table_hold_to_expire(local, &hold, &key);
    assert_int_equal(fw_item_flags(hold.item), 33);
    fw_hold_release(&hold);
    world_end(&world);
}

static bool is_zeros(const char *bytes, size_t length)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* The value of an item that is gone is overwritten: not before the hold ends that replaces it. */
static void test_erases(void **state)
{
    (void)state;
    enum { LENGTH = 500, LARGE = 20000 };
    struct world world;
    struct fw_table_config config = {.memory = 8 * MIB, .is_evicting = true, .erases = true};
    assert_int_equal(fw_table_create(&world.table, &config, NULL), 0);
    assert_int_equal(fw_table_local_create(&world.local, world.table), 0);
    struct fw_key key = fw_table_key(world.local, "secret", 6);
    struct fw_hold hold;
    struct fw_item *old;
    assert_true(fw_table_reserve(world.local, 2 * fw_item_size(6, LENGTH, FW_ITEM_FIELDS)));
    fw_table_hold(world.local, &hold, &key);
    const char *first = fw_item_value(fw_hold_write(&hold, LENGTH, 0, NULL));
    memset(fw_item_value(hold.item), 's', LENGTH);
    fw_hold_release(&hold);
    fw_table_hold_to_expire(world.local, &hold, &key); /* In a longer record. */
    const char *second = fw_item_value(hold.item);
    assert_ptr_not_equal(first, second);
    assert_true(is_zeros(first, LENGTH) && second[LENGTH - 1] == 's');
    fw_item_set_expires(hold.item, 1000);
    fw_hold_release(&hold);
    assert_true(fw_table_reserve(world.local, fw_item_size(6, LENGTH + 1, FW_ITEM_FIELDS)));
    fw_table_hold(world.local, &hold, &key);
    const char *third = fw_item_value(fw_hold_write(&hold, LENGTH + 1, 0, &old));
    assert_ptr_equal(fw_item_value(old), second);
    assert_int_equal(second[0], 's');
    memset(fw_item_value(hold.item), 't', LENGTH + 1);
    fw_hold_release(&hold);
    assert_true(is_zeros(second, LENGTH) && third[LENGTH] == 't');
    fw_table_hold(world.local, &hold, &key);
    fw_hold_remove(&hold);
    fw_hold_release(&hold);
    assert_true(is_zeros(third, LENGTH + 1));
    struct fw_body *body = fw_body_create(world.local, LARGE);
    memset(body->bytes, 's', LARGE);
    fw_body_unref(world.local, body); /* Its memory is kept for the next. */
    assert_true(is_zeros(body->bytes, LARGE));
    world_end(&world);
}

static void test_body(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    assert_true(table_put(local, 5, 20000, 9, 0));
    assert_true(totals_of(&world).bytes >= 20000);
    struct table_found found = table_look(local, 5, true);
    assert_true(found.is_whole && found.stamp == 9 && found.length == 20000);
    assert_true((found.bits & FW_ITEM_BODY) != 0);

    /* A reference outlives the item. */
    struct key_text text = key_text(5);
    struct fw_key key = key_of(local, &text);
    struct fw_hold hold;
    fw_table_hold(local, &hold, &key);
    struct fw_body *body = fw_body_ref(fw_item_body(hold.item));
    fw_hold_release(&hold);
    uint64_t used = totals_of(&world).memory_used;
    assert_true(table_put(local, 5, 30, 10, 0)); /* Small now. */
    assert_true(value_is_whole(body->bytes, body->length, 5));
    assert_int_equal(totals_of(&world).bytes, fw_item_size(text.length, 30, 0));
    assert_int_equal(totals_of(&world).memory_used, used); /* Who has a reference has it charged. */
    fw_body_unref(local, body);

    /* What was freed is used again for the next of its size. */
    struct fw_body *again = fw_body_create(local, 20000);
    assert_ptr_equal(again, body);
    assert_int_equal(totals_of(&world).memory_used, used);
    fw_body_unref(local, again);
    assert_null(fw_body_create(local, 7 << 20)); /* Too much of the limit, and nothing is lost. */
    assert_true(table_look(local, 5, false).is_there);
    world_end(&world);
}

/* Four sizes for each power of two, none more than a fifth too large. */
static void test_body_sizes(void **state)
{
    (void)state;
    struct fw_bodies bodies = {.unit = 4096};
    assert_int_equal(fw_bodies_size(&bodies, 8193), 3 * 4096);
    assert_int_equal(fw_bodies_size(&bodies, 3 * 4096 - 16), 3 * 4096);
    assert_int_equal(fw_bodies_size(&bodies, 3 * 4096 - 15), 4 * 4096);
    assert_int_equal(fw_bodies_size(&bodies, 9 * 4096), 10 * 4096);
    assert_int_equal(fw_bodies_size(&bodies, 16 * 4096), 20 * 4096);
    assert_int_equal(fw_bodies_size(&bodies, FW_BODY_LENGTH_MAX), FW_BODY_LENGTH_MAX / 4 * 5);
    uint64_t before = 0;
    for (uint64_t length = 8193; length <= FW_BODY_LENGTH_MAX; length += length / 50) {
        uint64_t size = fw_bodies_size(&bodies, (uint32_t)length);
        assert_true(size >= length + 16 && size >= before && size % 4096 == 0);
        assert_true(size <= (length + 16 + 4095) / 4096 * 4096 * 5 / 4);
        before = size;
    }
}

static void count_visit(struct fw_item *item, void *context)
{
    uint8_t *seen = context;
    char text[FW_ITEM_KEY_MAX + 1] = "";
    memcpy(text, item->key, item->key_length);
    seen[strtoul(text, NULL, 10)]++;
}

/* Every item is found after every step of growth, and visited once; the same while it shrinks. */
static void test_growth(void **state)
{
    (void)state;
    enum { ITEMS = 3000, BIG = 80000 };
    struct world world = world_make(64 * MIB, true);
    struct fw_table_local *local = world.local;
    uint64_t buckets = totals_of(&world).buckets;
    assert_int_equal(buckets, FW_BUCKETS_MIN);
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_put(local, i, 16, i, 0));
        uint64_t now = totals_of(&world).buckets;
        for (uint64_t j = 0; now != buckets && j <= i; j++) {
            assert_true(table_look(local, j, false).is_whole);
        }
        buckets = now;
    }
    for (uint64_t i = ITEMS; i < BIG; i++) {
        assert_true(table_put(local, i, 16, i, 0));
    }
    buckets = totals_of(&world).buckets;
    assert_in_range(buckets, BIG / FW_BUCKET_LOAD - FW_LOCAL_DUE, BIG / FW_BUCKET_LOAD + 1);
    uint64_t used = totals_of(&world).memory_used;

    static uint8_t seen[BIG];
    uint64_t cursor = 0;
    uint32_t steps = 0;
    memset(seen, 0, sizeof seen);
    while (!fw_table_visit(local, &cursor, 1, count_visit, seen)) {
        steps++;
    }
    assert_int_equal(steps + 1, buckets);
    for (uint64_t i = 0; i < BIG; i++) {
        assert_int_equal(seen[i], 1);
    }

    /* A visit that the table shrinks under still shows what stays. */
    memset(seen, 0, sizeof seen);
    assert_int_equal(cursor, 0);
    uint64_t removed = ITEMS;
    while (!fw_table_visit(local, &cursor, 16, count_visit, seen)) {
        for (int i = 0; i < 200 && removed < BIG; i++) {
            assert_true(table_remove(local, removed++));
        }
    }
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(seen[i] >= 1);
        assert_true(table_look(local, i, false).is_whole);
    }
    for (; removed < BIG; removed++) {
        assert_true(table_remove(local, removed));
    }
    assert_int_equal(totals_of(&world).items, ITEMS);
    for (int i = 0; i < 1000; i++) { /* The sweeper sees to it that it gets small. */
        (void)fw_table_sweep(local, &cursor, 16, false);
    }
    assert_true(totals_of(&world).buckets <= ITEMS / FW_BUCKET_LOAD_LOW + 1);
    assert_true(totals_of(&world).memory_used + 8 * (uint64_t)FW_BUCKET_MEMORY < used);
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_look(local, i, false).is_whole);
    }
    world_end(&world);
}

static void test_sweep(void **state)
{
    (void)state;
    enum { ITEMS = 2000 };
    struct world world = world_make(8 * MIB, true);
    struct fw_table_local *local = world.local;
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(table_put(local, i, i % 50 == 7 ? 9000 : 16, i, i % 2 == 0 ? 200 : 0));
    }
    (void)table_look(local, 1, true);
    fw_table_local_set_now(local, 200);
    uint64_t cursor = 0;
    uint64_t buckets = totals_of(&world).buckets;
    uint64_t calls = 1;
    while (!fw_table_sweep(local, &cursor, 8, true)) {
        calls++;
    }
    assert_true(calls * 8 <= buckets + 8 && calls * 8 >= buckets / 2);
    assert_int_equal(cursor, 0);
    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.items, ITEMS / 2);
    assert_int_equal(totals.reclaimed, ITEMS / 2);
    assert_int_equal(table_look(local, 1, false).bits & FW_ITEM_AGE, 1);
    assert_int_equal(table_look(local, 3, false).bits & FW_ITEM_AGE, FW_ITEM_AGE_NEW + 1);
    while (!fw_table_sweep(local, &cursor, 8, true)) {
    }
    assert_int_equal(table_look(local, 1, false).bits, FW_ITEM_FETCHED | 2);
    assert_int_equal(table_look(local, 3, false).bits & FW_ITEM_AGE, FW_ITEM_AGE_MAX);
    while (!fw_table_sweep(local, &cursor, 8, false)) {
    }
    assert_int_equal(table_look(local, 1, false).bits, FW_ITEM_FETCHED | 2);
    fw_table_flush(local);
    while (!fw_table_sweep(local, &cursor, 1000, false)) {
    }
    assert_int_equal(totals_of(&world).items, 0);
    assert_int_equal(totals_of(&world).bytes, 0);
    world_end(&world);
}

static void test_refuses(void **state)
{
    (void)state;
    struct world world = world_make(2 * MIB, false);
    struct fw_table_local *local = world.local;
    uint64_t count = 0;
    while (table_put(local, count, 100, count, 0)) {
        count++;
        assert_true(totals_of(&world).memory_used <= 2 * MIB);
    }
    assert_true(count > 10000); /* 144 bytes or so each. */
    assert_int_equal(totals_of(&world).evictions, 0);
    assert_null(fw_body_create(local, 700000));
    for (uint64_t i = 0; i < count; i++) {
        assert_true(table_look(local, i, false).is_whole);
    }
    /* What is removed makes room, wherever it was. */
    for (uint64_t i = 0; i < count; i += 2) {
        assert_true(table_remove(local, i));
    }
    uint64_t again = 0;
    while (table_put(local, 1000000 + again, 100, 5, 0)) {
        again++;
    }
    assert_true(again > count / 2 * 9 / 10);
    for (uint64_t i = 1; i < count; i += 2) {
        assert_true(table_look(local, i, false).is_whole);
    }
    assert_int_equal(totals_of(&world).evictions, 0);
    world_end(&world);
}

/* What is read stays while what is not goes; and a key that comes back soon is treated as read. */
static void test_evicts(void **state)
{
    (void)state;
    enum { HOT = 500, COLD = 60000 };
    struct world world = world_make(4 * MIB, true);
    struct fw_table_local *local = world.local;
    for (uint64_t i = 0; i < HOT; i++) {
        assert_true(table_put(local, i, 100, i, 0));
    }
    for (uint64_t i = 0; i < COLD; i++) {
        assert_true(table_put(local, 1000 + i, 100, i, 0));
        (void)table_look(local, i % HOT, true);
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < HOT; i++) {
        kept += table_look(local, i, false).is_there ? 1 : 0;
    }
    assert_int_equal(kept, HOT);
    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.items + totals.evictions, HOT + COLD);
    assert_int_equal(totals.evicted_unread, totals.evictions);
    assert_true(totals.items > 20000);
    uint64_t ghost = 0;
    for (uint64_t i = COLD - totals.items - 300; i < COLD - totals.items - 200; i++) {
        if (!table_look(local, 1000 + i, false).is_there) {
            assert_true(table_put(local, 1000 + i, 100, i, 0));
            ghost += table_look(local, 1000 + i, false).bits == 0 ? 1 : 0;
        }
    }
    assert_true(ghost > 50);
    world_end(&world);
}

/* Of what was read once all goes in its turn, but for what is read again and again. */
static void test_main_queue(void **state)
{
    (void)state;
    enum { HOT = 200, OTHERS = 80000 };
    struct world world = world_make(4 * MIB, true);
    struct fw_table_local *local = world.local;
    for (uint64_t i = 0; i < HOT; i++) {
        assert_true(table_put(local, i, 100, i, 0));
    }
    uint64_t cursor = 0;
    for (uint64_t i = 0; i < OTHERS; i++) {
        assert_true(table_put(local, 1000 + i, 100, i, 0));
        (void)table_look(local, 1000 + i, true);
        (void)table_look(local, i % HOT, true);
        if (i % 20000 == 0) { /* Ages of what is read are 0 or 1 then, of all others 2 and 3. */
            while (!fw_table_sweep(local, &cursor, 100, true)) {
            }
        }
    }
    for (uint64_t i = 0; i < HOT; i++) {
        assert_true(table_look(local, i, false).is_there);
    }
    assert_true(totals_of(&world).evictions > OTHERS / 2);
    assert_int_equal(totals_of(&world).evicted_unread, 0);
    world_end(&world);
}

/* If all are read all the time something has to go all the same. */
static void test_all_hot(void **state)
{
    (void)state;
    struct world world = world_make(2 * MIB, true);
    for (uint64_t i = 0; i < 40000; i++) {
        assert_true(table_put(world.local, i, 100, i, 0));
        (void)table_look(world.local, i, true);
    }
    assert_true(totals_of(&world).items > 9000);
    world_end(&world);
}

static size_t resident(const struct fw_range *range)
{
    static unsigned char present[1 << 20];
    size_t unit = fw_range_unit();
    size_t count = 0;
    for (size_t offset = 0; offset < range->size;) {
        size_t size = range->size - offset;
        size = size < sizeof present * unit ? size : sizeof present * unit;
        assert_int_equal(mincore(range->memory + offset, size, present), 0);
        for (size_t i = 0; i < size / unit; i++) {
            count += present[i] & 1;
        }
        offset += size;
    }
    return count * unit;
}

static void memory_check(const struct world *world, uint64_t limit)
{
    const struct fw_table *table = world->table;
    size_t there = resident(&table->arena.records) + resident(&table->buckets.primary) +
                   resident(&table->buckets.overflow) + resident(&table->bodies.runs) +
                   resident(&table->ghosts.range);
    assert_true(totals_of(world).memory_used <= limit);
    assert_true(there <=
                totals_of(world).memory_used + FW_SEGMENT_SIZE_MAX); /* And a few descriptions. */
}

static uint64_t fill(const struct world *world, uint64_t first, uint64_t bytes, uint32_t length)
{
    for (uint64_t i = 0; i < bytes / length; i++) {
        assert_true(table_put(world->local, first + i, length, i, 0));
    }
    memory_check(world, totals_of(world).memory_limit);
    return totals_of(world).items;
}

/* 100 bytes, 1,000 bytes, bodies and back: each time as many as in a fresh table. */
static void test_shift(void **state)
{
    (void)state;
    enum { LIMIT = 8 << 20, BYTES = 20 << 20 };
    const uint32_t lengths[] = {100, 1000, 100, 20000, 100, 1000};
    struct world world = world_make(LIMIT, true);
    size_t count_max = FW_TSAN ? 2 : FW_ARRAY_LENGTH(lengths); /* It has no threads. */
    for (size_t i = 0; i < count_max; i++) {
        struct world fresh = world_make(LIMIT, true);
        uint64_t expected = fill(&fresh, 0, BYTES, lengths[i]);
        world_end(&fresh);
        uint64_t count = fill(&world, (i + 1) * 1000000, BYTES, lengths[i]);
        assert_true(count * 100 >= expected * 95);
    }
    world_end(&world);
}

/* A local that goes leaves its items, its counts and all the memory that it had at hand. */
static void test_locals(void **state)
{
    (void)state;
    enum { LOCALS = 2000 };
    struct world world = world_make(2 * MIB, true);
    for (uint64_t i = 0; i < LOCALS; i++) {
        struct fw_table_local *local;
        assert_int_equal(fw_table_local_create(&local, world.table), 0);
        assert_true(table_put(local, i % 100, 100 + (uint32_t)i % 3, i, 0));
        assert_true(table_put(local, 1000, 20000, i, 0));
        fw_table_local_destroy(local);
    }
    struct fw_table_totals totals = totals_of(&world);
    assert_int_equal(totals.total_items, 2 * LOCALS);
    assert_int_equal(atomic_load(&world.table->items), totals.items);
    assert_true(world.table->buckets.overflow_fresh <= FW_BUCKETS_PER_UNIT / 8);
    uint64_t count = 0;
    for (uint64_t i = 0; i <= 1000; i++) {
        struct table_found found = table_look(world.local, i, false);
        assert_true(!found.is_there || found.is_whole);
        count += found.is_there ? 1 : 0;
    }
    assert_int_equal(count, totals.items);
    world_end(&world);
}

/* Whoever writes a key, in place, anew or after it was removed: its CAS rises. */
static void test_cas_rises(void **state)
{
    (void)state;
    struct world world = world_make(2 * MIB, true);
    struct fw_table_local *locals[2] = {world.local, NULL};
    assert_int_equal(fw_table_local_create(&locals[1], world.table), 0);
    uint64_t last = 0;
    for (uint32_t i = 0; i < 100; i++) {
        if (i % 10 == 9) {
            fw_table_flush(locals[i / 10 % 2]);
        }
        assert_true(table_put(locals[i % 2], 1, 100 + i / 4 % 2, i, 0));
        uint64_t cas = table_look(world.local, 1, false).cas;
        assert_true(cas > last);
        last = cas;
    }
    fw_table_local_destroy(locals[1]);
    world_end(&world);
}

/* Huge pages change nothing that can be seen, whether the kernel has them or not. */
static void test_collapse(void **state)
{
    (void)state;
    struct world world = world_make(64 * MIB, true);
    uint64_t items = fill(&world, 0, 20 * MIB, 100);
    uint64_t used = totals_of(&world).memory_used;
    uint32_t pages = 0;
    while (fw_table_collapse(world.table)) {
        pages++;
    }
    assert_true(pages <= used / FW_RANGE_HUGE_PAGE);
    assert_false(fw_table_collapse(world.table));
    memory_check(&world, 64 * MIB);
    for (uint64_t i = 0; i < items; i++) {
        assert_true(table_look(world.local, i, false).is_whole);
    }
    world_end(&world);
}

static void test_limit_moves(void **state)
{
    (void)state;
    struct world world = world_make(8 * MIB, true);
    assert_int_equal(fw_table_set_memory(world.table, MIB - 1), -EINVAL);
    assert_int_equal(fw_table_set_memory(world.table, 1000 * MIB), -EINVAL);
    (void)fill(&world, 0, 10 * MIB, 100);
    (void)fill(&world, 1000000, MIB, 30000);
    assert_int_equal(fw_table_set_memory(world.table, 4 * MIB), 0);
    uint64_t cursor = 0;
    for (int i = 0; i < 5000; i++) {
        (void)fw_table_sweep(world.local, &cursor, 1, false);
    }
    memory_check(&world, 4 * MIB);
    assert_true(totals_of(&world).items > 8000);
    assert_int_equal(fw_table_set_memory(world.table, 16 * MIB), 0);
    uint64_t count = fill(&world, 2000000, 20 * MIB, 100);
    assert_true(count > 90000);
    world_end(&world);
}

/* The model. */

enum { MODEL_KEYS = 3000, MODEL_STEPS = 30000 };

struct remembered {
    bool is_there;
    uint32_t length;
    uint32_t expires;
    uint64_t stamp;
    uint64_t cas;
    uint64_t room; /* Of its record. */
};

struct model {
    struct world world;
    struct fw_random dice;
    struct remembered keys[MODEL_KEYS];
    uint64_t stamp;
    uint32_t now;
    bool is_evicting;
};

static uint32_t model_length(struct model *model)
{
    uint64_t kind = fw_random_below(&model->dice, 20);
    return kind == 0   ? (uint32_t)fw_random_between(&model->dice, 8193, 60000)
           : kind < 3  ? (uint32_t)fw_random_between(&model->dice, 8, 8192)
           : kind < 10 ? 100
                       : (uint32_t)fw_random_between(&model->dice, 8, 300);
}

static void model_look(struct model *model, uint64_t number)
{
    struct remembered *key = &model->keys[number];
    bool is_alive = key->is_there && (key->expires == 0 || key->expires > model->now);
    struct table_found found =
        table_look(model->world.local, number, fw_random_chance(&model->dice, 1, 2));
    if (found.is_there) {
        assert_true(is_alive);
        assert_true(found.is_whole);
        assert_int_equal(found.length, key->length);
        assert_int_equal(found.stamp, key->stamp);
        if (key->cas != 0) {
            assert_int_equal(found.cas, key->cas);
        }
        key->cas = found.cas;
        key->room = found.room;
        uint8_t fields = fw_fields_needed(0, key->expires, 0);
        size_t text_length = key_text(number).length;
        assert_true(key->room >= fw_item_size(text_length, key->length, fields));
        assert_true(key->room <= fw_item_size(text_length, key->length, FW_ITEM_EXPIRES));
    } else {
        assert_true(!is_alive || model->is_evicting);
        key->is_there = false;
    }
}

static void model_put(struct model *model, uint64_t number)
{
    struct remembered *key = &model->keys[number];
    uint32_t length = model_length(model);
    if (key->is_there && fw_random_chance(&model->dice, 1, 3)) {
        length = key->length;
    }
    uint32_t expires = fw_random_chance(&model->dice, 1, 5)
                           ? model->now + (uint32_t)fw_random_below(&model->dice, 50)
                           : 0;
    if (table_put(model->world.local, number, length, ++model->stamp, expires)) {
        *key = (struct remembered){
            .is_there = true, .length = length, .expires = expires, .stamp = model->stamp};
    } else {
        assert_false(model->is_evicting);
    }
}

static void model_step(struct model *model, uint64_t *cursor)
{
    uint64_t number = fw_random_below(&model->dice, MODEL_KEYS);
    uint64_t what = fw_random_below(&model->dice, 1000);
    if (what < 450) {
        model_look(model, number);
    } else if (what < 850) {
        model_put(model, number);
    } else if (what < 940) {
        struct remembered *key = &model->keys[number];
        bool is_alive = key->is_there && (key->expires == 0 || key->expires > model->now);
        bool was_there = table_remove(model->world.local, number);
        assert_true(model->is_evicting ? is_alive || !was_there : is_alive == was_there);
        key->is_there = false;
    } else if (what < 980) {
        uint32_t count = (uint32_t)fw_random_below(&model->dice, 50);
        (void)fw_table_sweep(model->world.local, cursor, count, what < 960);
    } else if (what < 998) {
        model->now += (uint32_t)fw_random_below(&model->dice, 5);
        fw_table_local_set_now(model->world.local, model->now);
    } else if (what < 999) {
        fw_table_flush(model->world.local);
        memset(model->keys, 0, sizeof model->keys);
    } else { /* A new local goes on where the old one was. */
        fw_table_local_destroy(model->world.local);
        assert_int_equal(fw_table_local_create(&model->world.local, model->world.table), 0);
        fw_table_local_set_now(model->world.local, model->now);
        *cursor = 0;
    }
}

static void mark_visit(struct fw_item *item, void *context)
{
    (void)item;
    (*(uint64_t *)context)++;
}

static void model_run(struct model *model, uint64_t seed)
{
    memset(model, 0, sizeof *model);
    fw_random_init(&model->dice, seed);
    model->is_evicting = seed % 3 != 0;
    uint64_t memory = fw_random_between(&model->dice, MIB, 6 * MIB);
    model->world = world_make(memory, model->is_evicting);
    model->now = 100;
    uint64_t cursor = 0;
    for (int i = 0; i < MODEL_STEPS; i++) {
        model_step(model, &cursor);
        if (i % 100 == 0) {
            assert_true(totals_of(&model->world).memory_used <= memory);
        }
    }
    for (uint64_t i = 0; i < MODEL_KEYS; i++) {
        model_look(model, i);
    }
    uint64_t items = 0;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < MODEL_KEYS; i++) {
        struct remembered *key = &model->keys[i];
        items += key->is_there ? 1 : 0;
        bytes += !key->is_there ? 0 : key->room;
        bytes += key->is_there && key->length > FW_ITEM_INLINE_MAX ? key->length : 0;
    }
    struct fw_table_totals totals = totals_of(&model->world);
    assert_int_equal(totals.items, items);
    assert_int_equal(totals.bytes, bytes);
    uint64_t visited = 0;
    cursor = 0;
    while (!fw_table_visit(model->world.local, &cursor, 7, mark_visit, &visited)) {
    }
    assert_int_equal(visited, items);
    assert_true(totals.evictions == 0 || model->is_evicting);
    world_end(&model->world);
}

static void test_model(void **state)
{
    (void)state;
    static struct model model;
    for (uint64_t seed = 1; seed <= (FW_TSAN ? 3 : 30); seed++) {
        model_run(&model, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),     cmocka_unit_test(test_write),
        cmocka_unit_test(test_rewrite),    cmocka_unit_test(test_remove),
        cmocka_unit_test(test_absence),    cmocka_unit_test(test_flush_in_hold),
        cmocka_unit_test(test_hold_with),  cmocka_unit_test(test_fields_are_kept),
        cmocka_unit_test(test_erases),     cmocka_unit_test(test_body),
        cmocka_unit_test(test_body_sizes), cmocka_unit_test(test_growth),
        cmocka_unit_test(test_sweep),      cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_evicts),     cmocka_unit_test(test_all_hot),
        cmocka_unit_test(test_shift),      cmocka_unit_test(test_limit_moves),
        cmocka_unit_test(test_collapse),   cmocka_unit_test(test_locals),
        cmocka_unit_test(test_main_queue), cmocka_unit_test(test_model),
        cmocka_unit_test(test_cas_rises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
