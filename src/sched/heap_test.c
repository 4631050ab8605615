/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the one on top always has the smallest key, and none is lost, whatever is pushed, changed
 * and taken off, up to the room there is; and clients take turns.
 * Method: random operations beside a plain array that is searched; keys that are often equal. The
 * same for turns, beside a model that keeps every client's requests in an array.
 */
#include "sched/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"
#include "io/random.h"
#include "sched/turns.h"

enum { CAPACITY = 300, STEPS = 200000 };

static uint64_t keys[CAPACITY]; /* Of who is in, by number; UINT64_MAX: is not. */

static uint32_t key_count(uint64_t *least)
{
    uint32_t count = 0;
    *least = UINT64_MAX;
    for (uint32_t i = 0; i < CAPACITY; i++) {
        count += keys[i] != UINT64_MAX;
        *least = keys[i] < *least ? keys[i] : *least;
    }
    return count;
}

static void test_heap(void **state)
{
    (void)state;
    struct fw_heap heap;
    struct fw_random dice;
    fw_random_init(&dice, 1);
    for (uint32_t i = 0; i < CAPACITY; i++) {
        keys[i] = UINT64_MAX;
    }
    assert_int_equal(fw_heap_init(&heap, CAPACITY), 0);
    assert_int_equal((uintptr_t)&heap.entries[1] % FW_CACHE_LINE, 0);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t number = (uint32_t)fw_random_below(&dice, CAPACITY);
        uint64_t key = fw_random_below(&dice, 1000);
        uint64_t choice = fw_random_below(&dice, step / 1000 % 2 == 0 ? 3 : 6); /* Up, down. */
        uint64_t least;
        uint32_t count = key_count(&least);
        assert_int_equal(heap.count, count);
        if (count > 0) {
            uint64_t top = heap.entries[0].tenant;
            assert_int_equal(heap.entries[0].key, least);
            assert_int_equal(keys[top], least);
            if (choice == 1) {
                keys[top] = key;
                fw_heap_change_top(&heap, key);
            } else if (choice > 2) {
                keys[top] = UINT64_MAX;
                fw_heap_pop(&heap);
            }
        }
        if (choice == 0 && keys[number] == UINT64_MAX) {
            keys[number] = key;
            fw_heap_push(&heap, key, number);
        }
    }
    while (heap.count > 0) {
        struct fw_heap_entry last = fw_heap_take_last(&heap);
        assert_int_equal(keys[last.tenant], last.key);
        keys[last.tenant] = UINT64_MAX;
    }
    for (uint32_t i = 0; i < CAPACITY; i++) {
        assert_int_equal(keys[i], UINT64_MAX);
        fw_heap_push(&heap, i, i);
    }
    expect_assert_failure(fw_heap_push(&heap, 1, 1));
    fw_heap_fini(&heap);
}

/* ---- turns --------------------------------------------------------------------------------- */

enum { CLIENTS = 7, REQUESTS = 200 };

static struct fw_sched_request requests[REQUESTS];
static uint32_t waiting[CLIENTS][REQUESTS]; /* Each client's, in order of arrival. */
static uint32_t waiting_count[CLIENTS];

static void waiting_remove(uint32_t client, uint32_t number)
{
    uint32_t place = 0;
    while (waiting[client][place] != number) {
        place++;
    }
    waiting_count[client]--;
    for (; place < waiting_count[client]; place++) {
        waiting[client][place] = waiting[client][place + 1];
    }
}

/*
 * Clients collide in one bucket of the table. Whatever comes and leaves, what is popped is its
 * client's oldest, and no other client that waited all the time is passed over twice.
 */
static void test_turns(void **state)
{
    (void)state;
    struct fw_turns turns;
    struct fw_list list;
    struct fw_random dice;
    uint32_t passed_over[CLIENTS][CLIENTS] = {0}; /* Who, by whom. */
    fw_random_init(&dice, 1);
    fw_list_init(&list);
    assert_int_equal(fw_turns_init(&turns, true), 0);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t number = (uint32_t)fw_random_below(&dice, REQUESTS);
        struct fw_sched_request *request = &requests[number];
        uint32_t client = number % CLIENTS;
        uint64_t choice = fw_random_below(&dice, 3);
        request->class = (struct fw_sched_class){.client = client * FW_TURNS_BUCKETS};
        if (choice == 0 && !fw_sched_is_waiting(request)) {
            fw_turns_push(&turns, &list, request);
            waiting[client][waiting_count[client]++] = number;
        } else if (choice == 1 && fw_sched_is_waiting(request) && step % 3 == 0) {
            fw_turns_remove(&turns, request);
            waiting_remove(client, number);
        } else if (choice == 2) {
            struct fw_sched_request *popped = fw_turns_pop(&turns, &list);
            if (popped == NULL) {
                continue;
            }
            uint32_t by = (uint32_t)(popped - requests) % CLIENTS;
            assert_int_equal(waiting[by][0], popped - requests);
            waiting_remove(by, (uint32_t)(popped - requests));
            for (uint32_t i = 0; i < CLIENTS; i++) {
                passed_over[by][i] = 0;
                passed_over[i][by] += waiting_count[i] > 0;
                assert_true(passed_over[i][by] <= 1 || i == by);
            }
        }
        for (uint32_t i = 0; i < CLIENTS; i++) {
            for (uint32_t j = 0; waiting_count[i] == 0 && j < CLIENTS; j++) {
                passed_over[i][j] = 0;
            }
        }
    }
    fw_turns_fini(&turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
