/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: once the hooks are set, everything that could block goes to them, with the arguments as
 * they were given, and nothing of it reaches the kernel; ranks are checked all the same.
 * Method: hooks that note who was called with what. No other thread exists, and no lock is free to
 * take: whatever came through to the real thing would hang or fail.
 */
#include "base/thread.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mutex.h"

/* What the hooks saw last, and what they are to answer. */
static const char *called;
static const void *given;
static int64_t given_timeout_ns;
static int create_answer;
static bool answer;

static void note(const char *hook, const void *argument)
{
    assert_null(called); /* One call each. */
    called = hook;
    given = argument;
}

static void expect(const char *hook, const void *argument)
{
    assert_non_null(called);
    assert_string_equal(called, hook);
    assert_ptr_equal(given, argument);
    called = NULL;
}

static int hook_create(struct fw_thread *thread)
{
    note("create", thread);
    return create_answer;
}

static void hook_join(struct fw_thread *thread)
{
    note("join", thread);
}

static bool hook_park(struct fw_parker *parker, int64_t timeout_ns)
{
    note("park", parker);
    given_timeout_ns = timeout_ns;
    return answer;
}

static void hook_unpark(struct fw_parker *parker)
{
    note("unpark", parker);
}

static void hook_lock(struct fw_mutex *mutex)
{
    note("lock", mutex);
}

static bool hook_trylock(struct fw_mutex *mutex)
{
    note("trylock", mutex);
    return answer;
}

static void hook_unlock(struct fw_mutex *mutex)
{
    note("unlock", mutex);
}

static void hook_yield(const char *where)
{
    note("yield", where);
}

static const struct fw_thread_hooks hooks = {
    .create = hook_create,
    .join = hook_join,
    .park = hook_park,
    .unpark = hook_unpark,
    .lock = hook_lock,
    .trylock = hook_trylock,
    .unlock = hook_unlock,
    .yield = hook_yield,
};

static void never_run(void *argument)
{
    (void)argument;
    fail();
}

static void test_threads(void **state)
{
    (void)state;
    int argument = 0;
    struct fw_thread thread;
    create_answer = -EAGAIN;
    assert_int_equal(fw_thread_create(&thread, "fibre", never_run, &argument), -EAGAIN);
    expect("create", &thread);
    create_answer = 0;
    assert_int_equal(fw_thread_create(&thread, "fibre", never_run, &argument), 0);
    expect("create", &thread);
    assert_string_equal(thread.name, "fibre"); /* All that a hook needs is filled in. */
    assert_ptr_equal(thread.run, never_run);
    assert_ptr_equal(thread.argument, &argument);
    fw_thread_join(&thread);
    expect("join", &thread);
}

static void test_parking(void **state)
{
    (void)state;
    struct fw_parker parker;
    fw_parker_init(&parker);
    answer = true;
    fw_park(&parker);
    expect("park", &parker);
    assert_true(given_timeout_ns < 0);
    assert_true(fw_park_for(&parker, 12345));
    expect("park", &parker);
    assert_int_equal(given_timeout_ns, 12345);
    answer = false;
    assert_false(fw_park_for(&parker, 0));
    expect("park", &parker);
    assert_int_equal(given_timeout_ns, 0);
    fw_unpark(&parker);
    expect("unpark", &parker);
    assert_int_equal(atomic_load(&parker.word), FW_PARKER_EMPTY); /* The word is the hooks'. */
    FW_YIELD_POINT("here");
    assert_string_equal(given, "here");
    expect("yield", given);
    fw_thread_yield();
    expect("yield", given);
}

/* Trusted: it breaks the rules that clang checks. */
FW_TSA_TRUSTED static void test_mutexes(void **state)
{
    (void)state;
    struct fw_mutex low, high;
    fw_mutex_init(&low, FW_RANK_METRICS);
    fw_mutex_init(&high, FW_RANK_LOG);
    atomic_store(&high.word, FW_MUTEX_HELD); /* The true one is taken. */

    fw_mutex_lock(&high);
    expect("lock", &high);
    assert_ptr_equal(fw_thread_self()->held_last, &high);
    expect_assert_failure(fw_mutex_lock(&low));
    assert_null(called);
    fw_mutex_unlock(&high);
    expect("unlock", &high);
    assert_null(fw_thread_self()->held_last);
    assert_int_equal(atomic_load(&high.word), FW_MUTEX_HELD); /* And was not released. */

    answer = false;
    assert_false(fw_mutex_trylock(&high));
    expect("trylock", &high);
    assert_null(fw_thread_self()->held_last);
    answer = true;
    assert_true(fw_mutex_trylock(&high));
    expect("trylock", &high);
    assert_ptr_equal(fw_thread_self()->held_last, &high);
    fw_mutex_unlock(&high);
    expect("unlock", &high);

    atomic_store(&high.word, FW_MUTEX_FREE);
    fw_mutex_fini(&high);
    fw_mutex_fini(&low);
}

int main(void)
{
    fw_thread_hooks = &hooks;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_parking),
        cmocka_unit_test(test_mutexes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
