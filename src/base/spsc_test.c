/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the ring takes what fits and no more, loses, repeats and reorders nothing, shows a batch
 * whole, and a short answer means that it was full or empty. Method: batches of all sizes through a
 * small ring by hand, compared with a count of what went in and out, until it has wrapped often; a
 * consumer that looks while a batch is being pushed; then a producer that races the consumer
 * through a ring that is mostly full. TSan checks that a message is seen as it was sent.
 */
#include "base/spsc.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "support/fail_memory.h"

enum { CAPACITY = 8, BATCH_MAX = CAPACITY + 3, MESSAGES = 100000 };

static struct fw_spsc ring;
static uint64_t messages[MESSAGES + BATCH_MAX]; /* Each gets its number when it is sent. */

/* Pushes the messages from number `first` on and returns how many were taken. */
static uint32_t push(uint64_t first, uint32_t count)
{
    void *batch[BATCH_MAX];
    for (uint32_t i = 0; i < count; i++) {
        messages[first + i] = first + i;
        batch[i] = &messages[first + i];
    }
    return fw_spsc_push(&ring, batch, count);
}

/* Pops, asserts that what came is what was pushed from number `first` on, and returns how many. */
static uint32_t pop(uint64_t first, uint32_t count_max)
{
    void *batch[BATCH_MAX];
    uint32_t count = fw_spsc_pop(&ring, batch, count_max);
    assert_true(count <= count_max);
    for (uint32_t i = 0; i < count; i++) {
        assert_ptr_equal(batch[i], &messages[first + i]);
        assert_int_equal(messages[first + i], first + i);
    }
    return count;
}

static void test_limits(void **state)
{
    (void)state;
    void *nothing[1] = {NULL};
    assert_int_equal(fw_spsc_init(&ring, 0), -EINVAL);
    assert_int_equal(fw_spsc_init(&ring, 1), -EINVAL);
    assert_int_equal(fw_spsc_init(&ring, CAPACITY + 1), -EINVAL);
    assert_int_equal(fw_spsc_init(&ring, 2 * FW_SPSC_CAPACITY_MAX), -EINVAL);
    fail_memory_after(0);
    assert_int_equal(fw_spsc_init(&ring, 2), -ENOMEM);
    assert_int_equal(fw_spsc_init(&ring, FW_SPSC_CAPACITY_MAX), 0);
    fw_spsc_fini(&ring);
    memset(&ring, 0xff, sizeof ring);
    assert_int_equal(fw_spsc_init(&ring, 2), 0);
    expect_assert_failure((void)(fw_spsc_push(&ring, nothing, 1) == 0));
    expect_assert_failure((void)fw_spsc_pop(&ring, nothing, 0));

    assert_int_equal(push(0, 1), 1);
    expect_assert_failure(fw_spsc_fini(&ring)); /* A message left inside would have no owner. */
    assert_int_equal(pop(0, 1), 1);
    fw_spsc_fini(&ring);
    expect_assert_failure((void)fw_spsc_pop(&ring, nothing, 1));
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Every size of push meets every fill of the ring and every size of pop. */
static void test_batches(void **state)
{
    (void)state;
    uint64_t pushed = 0, popped = 0;
    assert_int_equal(fw_spsc_init(&ring, CAPACITY), 0);
    for (uint32_t fill = 0; fill <= CAPACITY; fill++) {
        for (uint32_t in = 0; in <= BATCH_MAX; in++) {
            for (uint32_t out = 1; out <= BATCH_MAX; out++) {
                assert_int_equal(push(pushed, fill), fill);
                uint32_t taken = least(in, CAPACITY - fill);
                assert_int_equal(push(pushed + fill, in), taken);
                pushed += fill + taken;
                uint32_t given = least(out, fill + taken);
                assert_int_equal(pop(popped, out), given);
                popped += given;
                /* What is left and what came since, all in one; and then nothing more. */
                pushed += push(pushed, 1);
                uint32_t rest = (uint32_t)(pushed - popped);
                assert_int_equal(pop(popped, BATCH_MAX), rest);
                popped += rest;
                assert_int_equal(pop(popped, BATCH_MAX), 0);
            }
        }
    }
    fw_spsc_fini(&ring);
}

/* A consumer that looks at every yield point of push(). */
static uint32_t looks, seen;

static void look_hook(const char *where)
{
    (void)where;
    void *batch[BATCH_MAX];
    const struct fw_thread_hooks *hooks = fw_thread_hooks;
    fw_thread_hooks = NULL; /* The look has yield points too. */
    looks++;
    seen += fw_spsc_pop(&ring, batch, BATCH_MAX);
    fw_thread_hooks = hooks;
}

static void test_batch_appears_at_once(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {.yield = look_hook};
    assert_int_equal(fw_spsc_init(&ring, CAPACITY), 0);
    looks = seen = 0;
    fw_thread_hooks = &hooks;
    uint32_t taken = push(0, CAPACITY);
    fw_thread_hooks = NULL;
    assert_int_equal(taken, CAPACITY);
    assert_true(looks >= CAPACITY); /* One before each slot was filled, */
    assert_int_equal(seen, 0);      /* and none of them saw a part. */
    assert_int_equal(pop(0, CAPACITY), CAPACITY);
    fw_spsc_fini(&ring);
}

static void producer_run(void *argument)
{
    (void)argument;
    uint32_t size = 0;
    for (uint64_t sent = 0; sent < MESSAGES;) {
        size = size % BATCH_MAX + 1;
        uint64_t left = MESSAGES - sent;
        uint32_t taken = push(sent, left < size ? (uint32_t)left : size);
        if (taken == 0) {
            (void)sched_yield();
        }
        sent += taken;
    }
}

static void test_race(void **state)
{
    (void)state;
    struct fw_thread producer;
    uint32_t size = 0;
    assert_int_equal(fw_spsc_init(&ring, CAPACITY), 0);
    assert_int_equal(fw_thread_create(&producer, "producer", producer_run, NULL), 0);
    for (uint64_t received = 0; received < MESSAGES;) {
        size = size % (CAPACITY - 1) + 1;
        uint32_t count = pop(received, size);
        if (count == 0) {
            (void)sched_yield();
        }
        received += count;
    }
    fw_thread_join(&producer);
    fw_spsc_fini(&ring); /* Asserts that nothing was pushed twice. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_batch_appears_at_once),
        cmocka_unit_test(test_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
