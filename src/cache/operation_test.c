/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what commands do is right where the text protocol cannot show it: comparisons and numbers
 * of their own, marks of the meta protocol, what is counted, memory that runs out, and writers that
 * meet. Method: operations by hand, and for the last point two threads that append to one item.
 */
#include "cache/operation.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "support/converse.h"

static struct converse *converse;
static struct fw_cache_local *local;

static int setup(void **state)
{
    (void)state;
    converse = converse_create();
    local = &converse->local;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    converse_destroy(converse);
    return 0;
}

static struct fw_key key_of(const char *text)
{
    return fw_table_key(local->table, text, strlen(text));
}

static enum fw_outcome store_text(struct fw_store *store, const char *key_text, const char *value)
{
    struct fw_key key = key_of(key_text);
    store->bytes = value;
    store->length = (uint32_t)strlen(value);
    return fw_operation_store(local, &key, store);
}

static uint64_t set(const char *key_text, const char *value)
{
    struct fw_store store = {.mode = FW_STORE_SET};
    assert_int_equal(store_text(&store, key_text, value), FW_DONE);
    assert_int_equal(store.length_is, strlen(value));
    return store.cas_is;
}

/* What is told of an item besides its value. */
struct seen {
    uint64_t cas;
    uint32_t flags;
    uint32_t expires;
    uint8_t bits;
};

/* False: there is none. */
static bool look(const char *key_text, struct seen *seen, char value[static 64])
{
    struct fw_key key = key_of(key_text);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    bool is_there = hold.item != NULL;
    if (is_there) {
        *seen = (struct seen){
            .cas = fw_item_cas(hold.item),
            .flags = fw_item_flags(hold.item),
            .expires = fw_item_expires(hold.item),
            .bits = hold.item->bits,
        };
        assert_true(hold.item->tail_length < 64);
        memcpy(value, fw_item_value(hold.item), hold.item->tail_length);
        value[hold.item->tail_length] = '\0';
    }
    fw_hold_release(&hold);
    return is_there;
}

static void assert_value(const char *key_text, const char *expected)
{
    struct seen item = {0};
    char value[64];
    assert_true(look(key_text, &item, value));
    assert_string_equal(value, expected);
}

#define COUNTED(field) fw_counter_get(&local->metrics->field)

static void test_compare(void **state)
{
    (void)state;
    uint64_t cas = set("a", "one");
    uint64_t hits = COUNTED(cas_hits);
    struct fw_store store = {.mode = FW_STORE_CAS, .compares = true, .cas = cas + 1000};
    assert_int_equal(store_text(&store, "a", "no"), FW_EXISTS);
    assert_int_equal(COUNTED(cas_badval), 1);
    store.cas = cas;
    assert_int_equal(store_text(&store, "a", "two"), FW_DONE);
    assert_true(store.cas_is > cas);
    assert_int_equal(COUNTED(cas_hits), hits + 1);
    store.cas = store.cas_is;
    assert_int_equal(store_text(&store, "none", "x"), FW_NOT_FOUND);
    assert_int_equal(COUNTED(cas_misses), 1);
    /* append compares too, and counts nothing of that. */
    struct fw_store append = {.mode = FW_STORE_APPEND, .compares = true, .cas = cas};
    assert_int_equal(store_text(&append, "a", "!"), FW_EXISTS);
    append.cas = store.cas;
    assert_int_equal(store_text(&append, "a", "!"), FW_DONE);
    assert_value("a", "two!");
    assert_int_equal(COUNTED(cas_hits), hits + 1);
    assert_int_equal(COUNTED(cas_badval), 1);
}

static void test_cas_new(void **state)
{
    (void)state;
    struct fw_store store = {.mode = FW_STORE_SET, .cas_new = 12345};
    assert_int_equal(store_text(&store, "a", "one"), FW_DONE);
    assert_int_equal(store.cas_is, 12345);
    struct seen item = {0};
    char value[64];
    assert_true(look("a", &item, value));
    assert_int_equal(item.cas, 12345);
}

/* An older version that comes late is stored, but marked, and lives no longer than the other. */
static void test_invalidate(void **state)
{
    (void)state;
    struct seen item = {0};
    char value[64];
    struct fw_store store = {
        .mode = FW_STORE_SET, .cas_new = 100, .expires = 5000, .bits = FW_ITEM_KEY_BINARY};
    assert_int_equal(store_text(&store, "a", "new"), FW_DONE);
    assert_true(look("a", &item, value));
    assert_int_equal(item.bits & FW_ITEM_KEY_BINARY, FW_ITEM_KEY_BINARY);
    struct fw_store old = {
        .mode = FW_STORE_CAS, .compares = true, .invalidates = true, .cas = 99, .expires = 9000};
    assert_int_equal(store_text(&old, "a", "old"), FW_DONE);
    assert_true(look("a", &item, value));
    assert_string_equal(value, "old");
    assert_int_equal(item.expires, 5000);
    assert_int_equal(item.bits & (FW_ITEM_STALE | FW_ITEM_KEY_BINARY), FW_ITEM_STALE);
    /* A newer one than is there is not stored; the same is, and is not stale. */
    old.cas = item.cas + 1;
    assert_int_equal(store_text(&old, "a", "bad"), FW_EXISTS);
    old.cas = item.cas;
    assert_int_equal(store_text(&old, "a", "renewed"), FW_DONE);
    assert_true(look("a", &item, value));
    assert_int_equal(item.bits & FW_ITEM_STALE, 0);
    assert_int_equal(item.expires, 9000);
}

/* In place or not: no bit of the old value stays on the new one. */
static void test_marks_go(void **state)
{
    (void)state;
    static const char *const values[] = {"same length", "another length"};
    for (size_t i = 0; i < 2; i++) {
        struct seen item = {0};
        char value[64];
        struct fw_store store = {.mode = FW_STORE_SET, .expires = 7777, .flags = 7};
        assert_int_equal(store_text(&store, "a", "SAME LENGTH"), FW_DONE);
        struct fw_key key = key_of("a");
        struct fw_hold hold;
        fw_table_hold(local->table, &hold, &key);
        assert_int_equal(fw_item_expires(hold.item), 7777);
        assert_int_equal(fw_item_flags(hold.item), 7);
        hold.item->bits |= FW_ITEM_STALE | FW_ITEM_WON | FW_ITEM_KEY_BINARY;
        fw_hold_release(&hold);
        set("a", values[i]);
        assert_true(look("a", &item, value));
        assert_string_equal(value, values[i]);
        assert_int_equal(item.bits & (FW_ITEM_STALE | FW_ITEM_WON | FW_ITEM_KEY_BINARY), 0);
        assert_int_equal(item.expires, 0);
        assert_int_equal(item.flags, 0);
    }
}

static void test_count(void **state)
{
    (void)state;
    struct fw_key key = key_of("n");
    struct fw_count count = {.delta = 5};
    assert_int_equal(fw_operation_count(local, &key, &count), FW_NOT_FOUND);
    assert_int_equal(COUNTED(incr_misses), 1);
    count.may_create = true;
    count.initial = 10;
    count.expires = 5000;
    assert_int_equal(fw_operation_count(local, &key, &count), FW_DONE);
    assert_int_equal(count.value, 10);
    assert_int_equal(COUNTED(incr_misses), 1);
    assert_value("n", "10");
    /* What was there keeps its time, unless it is touched. */
    uint64_t cas = count.cas_is;
    count.expires = 9999;
    assert_int_equal(fw_operation_count(local, &key, &count), FW_DONE);
    assert_int_equal(count.value, 15);
    assert_int_equal(count.expires_was, 5000);
    assert_true(count.cas_is > cas);
    assert_int_equal(COUNTED(incr_hits), 1);
    count.may_touch = true;
    count.touch_expires = 6000;
    count.is_down = true;
    count.cas_new = 777;
    assert_int_equal(fw_operation_count(local, &key, &count), FW_DONE);
    assert_int_equal(count.expires_was, 5000);
    assert_int_equal(count.cas_is, 777);
    assert_int_equal(COUNTED(decr_hits), 1);
    count.cas = 778;
    assert_int_equal(fw_operation_count(local, &key, &count), FW_EXISTS);
    count.cas = 777;
    assert_int_equal(fw_operation_count(local, &key, &count), FW_DONE);
    assert_int_equal(count.expires_was, 6000);
    assert_value("n", "5 ");
    /* The record has room for what it was given, and for no flags. */
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    assert_int_equal(hold.item->fields, FW_ITEM_EXPIRES | FW_ITEM_CAS);
    fw_hold_release(&hold);
}

static void test_remove(void **state)
{
    (void)state;
    struct fw_key key = key_of("a");
    uint64_t cas = set("a", "x");
    assert_int_equal(fw_operation_remove(local, &key, cas + 1, 0), FW_EXISTS);
    assert_int_equal(fw_operation_remove(local, &key, cas, 0), FW_DONE);
    assert_int_equal(fw_operation_remove(local, &key, 0, 0), FW_NOT_FOUND);
    assert_int_equal(COUNTED(delete_hits), 1);
    assert_int_equal(COUNTED(delete_misses), 1);
}

static void test_absence_is_counted(void **state)
{
    (void)state;
    struct fw_key key = key_of("a");
    struct fw_hold hold;
    struct fw_store store = {.mode = FW_STORE_SET, .expires = 1};
    assert_int_equal(store_text(&store, "a", "x"), FW_DONE);
    uint64_t misses = COUNTED(get_misses);
    fw_operation_find(local, &hold, &key);
    assert_null(hold.item);
    fw_hold_release(&hold);
    assert_int_equal(COUNTED(get_expired), 1);
    set("a", "x");
    fw_operation_flush(local, 0);
    fw_operation_find(local, &hold, &key);
    assert_null(hold.item);
    fw_hold_release(&hold);
    assert_int_equal(COUNTED(get_flushed), 1);
    assert_int_equal(COUNTED(get_misses), misses + 2);
    set("a", "x");
    uint64_t hits = COUNTED(get_hits);
    fw_operation_find(local, &hold, &key);
    assert_non_null(hold.item);
    assert_int_equal(hold.item->bits & FW_ITEM_FETCHED, FW_ITEM_FETCHED);
    fw_hold_release(&hold);
    assert_int_equal(COUNTED(get_hits), hits + 1);
}

/* A set that finds no memory takes the old value with it; an add or an append leaves it. */
static void test_no_memory(void **state)
{
    (void)state;
    const struct fw_table_config config = {.memory = 16 << 20, .is_evicting = false, .seed = 1};
    struct fw_cache cache = {.settings = converse->cache.settings,
                             .host = converse->cache.host,
                             .registry = &converse->registry};
    static struct fw_cache_local small;
    assert_int_equal(fw_cache_init(&cache, &config, NULL), 0);
    assert_int_equal(fw_cache_local_init(&small, &cache), 0);
    local = &small;
    set("a", "x");
    static char value[8000];
    char name[16] = "";
    struct fw_store store = {.mode = FW_STORE_SET, .bytes = value, .length = sizeof value};
    enum fw_outcome outcome = FW_DONE;
    for (uint32_t i = 0; i < 10000 && outcome == FW_DONE; i++) {
        memcpy(name, &i, sizeof i);
        struct fw_key key = fw_table_key(local->table, name, sizeof i);
        outcome = fw_operation_store(local, &key, &store);
    }
    assert_int_equal(outcome, FW_NO_MEMORY);
    assert_int_equal(COUNTED(store_no_memory), 1);
    struct fw_key key = key_of("a");
    store.mode = FW_STORE_APPEND;
    assert_int_equal(fw_operation_store(local, &key, &store), FW_NO_MEMORY);
    store.mode = FW_STORE_REPLACE;
    assert_int_equal(fw_operation_store(local, &key, &store), FW_NO_MEMORY);
    assert_value("a", "x");
    store.mode = FW_STORE_SET;
    assert_int_equal(fw_operation_store(local, &key, &store), FW_NO_MEMORY);
    struct seen item = {0};
    char text[64];
    assert_false(look("a", &item, text));
    local = &converse->local;
    fw_cache_local_fini(&small);
    fw_cache_fini(&cache);
}

static struct fw_cache_local other;
static const char *meanwhile; /* What another thread appends between a look and the next. */

static void append_meanwhile(const char *where)
{
    if (meanwhile != NULL && strcmp(where, "operation: append has looked") == 0) {
        struct fw_key key = fw_table_key(other.table, "shared", 6);
        struct fw_store store = {
            .mode = FW_STORE_APPEND, .bytes = meanwhile, .length = (uint32_t)strlen(meanwhile)};
        meanwhile = NULL;
        assert_int_equal(fw_operation_store(&other, &key, &store), FW_DONE);
    }
}

/* One thread plays both, so that a lock is always free. */
static void lock_nothing(struct fw_mutex *mutex)
{
    (void)mutex;
}

static bool trylock_nothing(struct fw_mutex *mutex)
{
    (void)mutex;
    return true;
}

/* An append that is overtaken by another between its look and its write begins anew. */
static void test_append_is_overtaken(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {.yield = append_meanwhile,
                                                 .lock = lock_nothing,
                                                 .trylock = trylock_nothing,
                                                 .unlock = lock_nothing};
    assert_int_equal(fw_cache_local_init(&other, &converse->cache), 0);
    set("shared", "one");
    meanwhile = " two";
    fw_thread_hooks = &hooks;
    struct fw_store store = {.mode = FW_STORE_APPEND};
    enum fw_outcome outcome = store_text(&store, "shared", " three");
    fw_thread_hooks = NULL;
    assert_int_equal(outcome, FW_DONE);
    assert_null(meanwhile);
    assert_value("shared", "one two three");
    fw_cache_local_fini(&other);
}

enum { APPENDS = 2000 };

static void *append_many(void *argument)
{
    struct fw_cache_local *own = argument;
    struct fw_key key = fw_table_key(own->table, "shared", 6);
    for (int i = 0; i < APPENDS; i++) {
        struct fw_store store = {.mode = i % 2 == 0 ? FW_STORE_APPEND : FW_STORE_PREPEND,
                                 .bytes = "0123456789",
                                 .length = 10};
        assert_int_equal(fw_operation_store(own, &key, &store), FW_DONE);
    }
    return NULL;
}

/* Past the length where the value goes into a body, no append is lost. */
static void test_append_races(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(fw_cache_local_init(&other, &converse->cache), 0);
    set("shared", "");
    assert_int_equal(pthread_create(&thread, NULL, append_many, &other), 0);
    append_many(local);
    assert_int_equal(pthread_join(thread, NULL), 0);
    struct fw_key key = key_of("shared");
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    assert_int_equal(fw_item_length(hold.item), 2 * APPENDS * 10);
    fw_hold_release(&hold);
    fw_cache_local_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_compare, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cas_new, setup, teardown),
        cmocka_unit_test_setup_teardown(test_invalidate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_marks_go, setup, teardown),
        cmocka_unit_test_setup_teardown(test_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
        cmocka_unit_test_setup_teardown(test_absence_is_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_append_is_overtaken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_append_races, setup, teardown),
    };
    return cmocka_run_group_tests_name("operation", tests, NULL, NULL);
}
