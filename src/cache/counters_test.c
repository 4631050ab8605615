/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: clients together never have more of a counter than there is, nobody gives back what is not
 * his, and all that a client has goes back when it ends; memory stays within its limit; the peak is
 * that of the present interval.
 * Method: two clients by hand, on a clock that the test moves. Then threads that use a counter of
 * one as a lock, around something that has no other.
 */
#include "cache/counters.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"

enum {
    OK = FW_COUNTERS_OK,
    NOT_FOUND = FW_COUNTERS_NOT_FOUND,
    NOT_AVAILABLE = FW_COUNTERS_NOT_AVAILABLE,
    NOT_ACQUIRED = FW_COUNTERS_NOT_ACQUIRED,
    NO_MEMORY = FW_COUNTERS_NO_MEMORY,
    INTERVAL = 100,
};

static struct fw_counters *counters;
static struct fw_counters_client clients[2];
static uint32_t now;

static int setup(void **state)
{
    (void)state;
    const struct fw_counters_config config = {.memory = FW_COUNTERS_MEMORY_MIN,
                                              .interval_s = INTERVAL};
    assert_int_equal(fw_counters_create(&counters, &config, 1), 0);
    fw_counters_client_init(&clients[0]);
    fw_counters_client_init(&clients[1]);
    now = 5 * INTERVAL;
    return 0;
}

/* destroy() asserts that all memory has come back. */
static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fw_counters_release_all(counters, &clients[i], now);
    }
    fw_counters_destroy(counters);
    return 0;
}

static struct fw_counters_name name_of(const char *text)
{
    return (struct fw_counters_name){.bytes = text, .length = strlen(text)};
}

static int acquire(int client, const char *text, uint32_t count, uint32_t total)
{
    struct fw_counters_name name = name_of(text);
    return (int)fw_counters_acquire(counters, &clients[client], &name, count, total, now);
}

static int release(int client, const char *text, uint32_t count)
{
    struct fw_counters_name name = name_of(text);
    return (int)fw_counters_release(counters, &clients[client], &name, count, now);
}

/* The consumption, or -1 if there is no such counter. */
static int64_t get(const char *text)
{
    struct fw_counters_name name = name_of(text);
    uint32_t consumption;
    enum fw_counters_answer answer = fw_counters_get(counters, &name, &consumption);
    assert_true(answer == FW_COUNTERS_OK || answer == FW_COUNTERS_NOT_FOUND);
    return answer == FW_COUNTERS_OK ? (int64_t)consumption : -1;
}

static struct fw_counters_stats stats(void)
{
    struct fw_counters_stats got;
    fw_counters_stats(counters, &got);
    return got;
}

struct seen {
    const char *name; /* Which is looked for. */
    int64_t consumption, peak;
    uint32_t count; /* Of all. */
    uint64_t names; /* Bytes of all. */
};

static void see(const struct fw_counters_row *row, void *context)
{
    struct seen *seen = context;
    seen->count++;
    seen->names += row->name.length;
    if (seen->name != NULL && row->name.length == strlen(seen->name) &&
        memcmp(row->name.bytes, seen->name, row->name.length) == 0) {
        assert_int_equal(seen->peak, -1);
        seen->consumption = row->consumption;
        seen->peak = row->peak;
    }
}

static struct seen look(const char *name)
{
    struct seen seen = {.name = name, .consumption = -1, .peak = -1};
    uint64_t cursor = 0;
    while (!fw_counters_visit(counters, &cursor, now, see, &seen)) {
    }
    return seen;
}

static void test_acquire(void **state)
{
    (void)state;
    assert_int_equal(get("a"), -1);
    assert_int_equal(acquire(0, "a", 3, 10), OK);
    assert_int_equal(get("a"), 3);
    assert_int_equal(acquire(1, "a", 7, 10), OK);
    assert_int_equal(acquire(0, "a", 1, 10), NOT_AVAILABLE);
    assert_int_equal(get("a"), 10);
    /* How much there is may change from call to call, also to less than is taken. */
    assert_int_equal(acquire(0, "a", 1, 11), OK);
    assert_int_equal(acquire(0, "a", 1, 5), NOT_AVAILABLE);
    assert_int_equal(get("a"), 11);
    /* Others are others. */
    assert_int_equal(acquire(0, "b", 1, 1), OK);
    assert_int_equal(acquire(0, "aa", 1, 1), OK);
    assert_int_equal(get("a"), 11);
    assert_int_equal(stats().acquired_count, 5);
    assert_int_equal(stats().refused_count, 2);
    assert_int_equal(stats().claims, 4);
    assert_int_equal(stats().counters, 3);
}

static void test_largest_numbers(void **state)
{
    (void)state;
    assert_int_equal(acquire(0, "a", UINT32_MAX, UINT32_MAX), OK);
    assert_int_equal(acquire(1, "a", 1, UINT32_MAX), NOT_AVAILABLE);
    assert_int_equal(acquire(0, "a", UINT32_MAX, UINT32_MAX), NOT_AVAILABLE);
    assert_int_equal(get("a"), UINT32_MAX);
    assert_int_equal(release(0, "a", UINT32_MAX - 1), OK);
    assert_int_equal(acquire(1, "a", UINT32_MAX, UINT32_MAX), NOT_AVAILABLE);
    assert_int_equal(acquire(1, "a", UINT32_MAX - 1, UINT32_MAX), OK);
}

static void test_release(void **state)
{
    (void)state;
    assert_int_equal(release(0, "a", 0), NOT_FOUND);
    assert_int_equal(acquire(0, "a", 5, 10), OK);
    assert_int_equal(release(1, "a", 1), NOT_ACQUIRED);
    assert_int_equal(release(1, "a", 0), OK);
    assert_int_equal(release(0, "a", 6), NOT_ACQUIRED);
    assert_int_equal(release(0, "a", 2), OK);
    assert_int_equal(get("a"), 3);
    assert_int_equal(release(0, "a", 4), NOT_ACQUIRED);
    assert_int_equal(release(0, "a", 3), OK);
    assert_int_equal(stats().claims, 0);
    assert_int_equal(release(0, "a", 1), NOT_ACQUIRED);
    /* It is there as long as its peak means something. */
    assert_int_equal(get("a"), 0);
    assert_int_equal(release(0, "a", 0), OK);
}

static void test_end_of_client(void **state)
{
    (void)state;
    char name[16];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(acquire(0, name, 2, 5), OK);
        assert_int_equal(acquire(0, name, 1, 5), OK);
        assert_int_equal(acquire(1, name, 1, 5), OK);
    }
    fw_counters_release_all(counters, &clients[0], now);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(get(name), 1);
        assert_int_equal(release(0, name, 1), NOT_ACQUIRED);
        assert_int_equal(release(1, name, 1), OK);
    }
    fw_counters_release_all(counters, &clients[0], now); /* It has nothing. */
    assert_int_equal(stats().claims, 0);
}

/* Of one counter, so many that their claims meet in the lists. */
static void test_many_clients(void **state)
{
    (void)state;
    enum { COUNT = 600 };
    static struct fw_counters_client many[COUNT];
    const struct fw_counters_name name = name_of("a");
    for (uint32_t i = 0; i < COUNT; i++) {
        fw_counters_client_init(&many[i]);
        assert_int_equal(fw_counters_acquire(counters, &many[i], &name, i + 1, UINT32_MAX, now),
                         OK);
    }
    assert_int_equal(stats().claims, COUNT);
    assert_int_equal(get("a"), COUNT * (COUNT + 1) / 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(fw_counters_release(counters, &many[i], &name, i + 2, now), NOT_ACQUIRED);
        assert_int_equal(fw_counters_release(counters, &many[i], &name, i + 1, now), OK);
    }
    assert_int_equal(get("a"), 0);
}

static void test_peak(void **state)
{
    (void)state;
    assert_int_equal(acquire(0, "a", 7, 10), OK);
    assert_int_equal(release(0, "a", 4), OK);
    assert_int_equal(look("a").consumption, 3);
    assert_int_equal(look("a").peak, 7);
    now += INTERVAL - 1;
    assert_int_equal(look("a").peak, 7);
    now += 1; /* The next interval began with 3. */
    assert_int_equal(look("a").peak, 3);
    assert_int_equal(acquire(0, "a", 1, 10), OK);
    assert_int_equal(look("a").peak, 4);
    now += INTERVAL;
    assert_int_equal(release(0, "a", 1), OK); /* It began with 4. */
    assert_int_equal(look("a").peak, 4);
    assert_int_equal(look("a").consumption, 3);
    /* Another caller's clock is a little behind: the interval does not come back. */
    now -= 1;
    assert_int_equal(look("a").peak, 4);
    assert_int_equal(acquire(0, "a", 6, 10), OK);
    assert_int_equal(release(0, "a", 6), OK);
    now += 1;
    assert_int_equal(look("a").peak, 9);
}

/* Idle counters go in the interval after, and those that are not stay. */
static void test_idle(void **state)
{
    (void)state;
    assert_int_equal(acquire(0, "held", 1, 1), OK);
    assert_int_equal(acquire(0, "one", 1, 1), OK);
    assert_int_equal(acquire(0, "two", 1, 1), OK);
    assert_int_equal(release(0, "one", 1), OK);
    assert_int_equal(release(0, "two", 1), OK);
    assert_int_equal(acquire(0, "other", 1, 1), OK);
    assert_int_equal(get("one"), 0);
    now += INTERVAL;
    assert_int_equal(acquire(0, "other", 1, 2), OK);
    assert_int_equal(get("one"), -1);
    assert_int_equal(get("two"), -1);
    assert_int_equal(get("held"), 1);
    assert_int_equal(stats().counters, 2);
    assert_int_equal(stats().counters_made, 4);
    /* One that comes back from idleness is not dropped. */
    assert_int_equal(acquire(0, "back", 1, 1), OK);
    assert_int_equal(release(0, "back", 1), OK);
    assert_int_equal(acquire(1, "back", 1, 1), OK);
    now += INTERVAL;
    assert_int_equal(acquire(0, "other", 1, 3), OK);
    assert_int_equal(get("back"), 1);
}

/* Acquires names of that kind until there is no memory; how many. */
static uint32_t fill(const char *kind)
{
    char name[16];
    uint32_t count = 0;
    int answer;
    do {
        (void)snprintf(name, sizeof name, "%s%08u", kind, count);
        answer = acquire(0, name, 1, 1);
        count += answer == OK ? 1 : 0;
    } while (answer == OK);
    assert_int_equal(answer, NO_MEMORY);
    assert_true(stats().memory_used <= stats().memory_limit);
    return count;
}

static void test_memory(void **state)
{
    (void)state;
    uint32_t count = fill("a");
    /* Some 150 bytes for each, with its claim; and the limit was used. */
    assert_true(count > FW_COUNTERS_MEMORY_MIN / 256 && count < FW_COUNTERS_MEMORY_MIN / 64);
    assert_true(stats().memory_limit - stats().memory_used < 256);
    /* Of what is there one can have more, and what is not is still refused. */
    assert_int_equal(acquire(0, "a00000000", 1, 2), OK);
    assert_int_equal(acquire(0, "b", 1, 1), NO_MEMORY);
    assert_int_equal(get("a00000001"), 1);
    /* Given back, the oldest makes room for the next; the counter that is wanted stays. */
    assert_int_equal(release(0, "a00000002", 1), OK);
    assert_int_equal(release(0, "a00000001", 1), OK);
    assert_int_equal(acquire(0, "a00000001", 1, 1), OK);
    assert_int_equal(acquire(0, "b", 1, 1), OK);
    assert_int_equal(get("a00000002"), -1);
    assert_int_equal(get("a00000001"), 1);
    fw_counters_release_all(counters, &clients[0], now);
    assert_int_equal(fill("c"), count);
    assert_int_equal(get("a00000003"), -1);
}

/* A claim needs memory while its counter is the only idle one: that must not be dropped for it. */
static void test_memory_for_a_claim(void **state)
{
    (void)state;
    assert_int_equal(acquire(1, "idle", 1, 1), OK);
    (void)fill("a");
    assert_int_equal(release(1, "idle", 1), OK);
    assert_int_equal(acquire(1, "idle", 1, 1), OK);
    assert_int_equal(get("idle"), 1);
    assert_int_equal(acquire(0, "idle", 1, 2), NO_MEMORY); /* Its claim is a new one. */
    assert_int_equal(get("idle"), 1);
}

static void test_names(void **state)
{
    (void)state;
    char longest[FW_COUNTERS_NAME_MAX + 1];
    memset(longest, 'x', sizeof longest - 1);
    longest[FW_COUNTERS_NAME_MAX] = '\0';
    assert_int_equal(acquire(0, longest, 1, 1), OK);
    longest[FW_COUNTERS_NAME_MAX - 1] = 'y';
    assert_int_equal(get(longest), -1);
    assert_int_equal(acquire(0, longest, 2, 2), OK);
    longest[FW_COUNTERS_NAME_MAX - 1] = '\0';
    assert_int_equal(get(longest), -1);
    /* Any bytes. */
    const struct fw_counters_name zero = {.bytes = "a\0b", .length = 3};
    const struct fw_counters_name other = {.bytes = "a\0c", .length = 3};
    uint32_t consumption;
    assert_int_equal(fw_counters_acquire(counters, &clients[0], &zero, 1, 1, now), OK);
    assert_int_equal(fw_counters_get(counters, &other, &consumption), NOT_FOUND);
    assert_int_equal(look(NULL).count, 3);
    assert_int_equal(look(NULL).names, 2 * FW_COUNTERS_NAME_MAX + 3);
}

enum { THREADS = 3, ROUNDS = 2000 };
static uint32_t unguarded;

static void *count_run(void *argument)
{
    struct fw_counters_client *client = argument;
    const struct fw_counters_name name = {.bytes = "lock", .length = 4};
    for (int i = 0; i < ROUNDS;) {
        if (fw_counters_acquire(counters, client, &name, 1, 1, now) == FW_COUNTERS_OK) {
            unguarded++;
            if (i++ % 2 == 0) {
                enum fw_counters_answer answer =
                    fw_counters_release(counters, client, &name, 1, now);
                FW_ASSERT(answer == FW_COUNTERS_OK);
            } else {
                fw_counters_release_all(counters, client, now);
            }
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct fw_counters_client others[THREADS];
    unguarded = 0;
    for (int i = 0; i < THREADS; i++) {
        fw_counters_client_init(&others[i]);
        assert_int_equal(pthread_create(&threads[i], NULL, count_run, &others[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(unguarded, THREADS * ROUNDS);
    assert_int_equal(stats().acquired_count, THREADS * ROUNDS);
    assert_int_equal(get("lock"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_acquire, setup, teardown),
        cmocka_unit_test_setup_teardown(test_largest_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_release, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_of_client, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_clients, setup, teardown),
        cmocka_unit_test_setup_teardown(test_peak, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_for_a_claim, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
