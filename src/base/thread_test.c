/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a park never misses a token, tokens do not add up, a timed park ends, a park outlasts
 * wake-ups without a token; threads have their name, mask and state, and give way alone; locks keep
 * their order. Method: each rule by hand, then two threads that hand a turn to and fro 20,000
 * times, which hangs (and runs into the test's time limit) if one wake-up is lost. TSan checks the
 * ordering.
 */
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mutex.h"

enum { ROUNDS = 20000 };

static struct fw_parker ping, pong;
static int turns; /* Guarded by whose turn it is. */

static int nice_of_thread(void)
{
    return getpriority(PRIO_PROCESS, 0);
}

static void give_way(void *argument)
{
    int *found = argument;
    found[0] = nice_of_thread();
    fw_thread_give_way();
    found[1] = nice_of_thread();
    fw_thread_give_way();
    found[2] = nice_of_thread();
}

/* One thread gives way, once, and it alone. */
static void test_give_way(void **state)
{
    enum { NICE_MOST = 19 };
    (void)state;
    struct fw_thread thread;
    int found[3];
    int own = nice_of_thread();
    assert_int_equal(fw_thread_create(&thread, "nice", give_way, found), 0);
    fw_thread_join(&thread);
    int expected = own + FW_THREAD_WAY < NICE_MOST ? own + FW_THREAD_WAY : NICE_MOST;
    assert_int_equal(found[0], own);
    assert_int_equal(found[1], expected);
    assert_int_equal(found[2], expected);
    assert_int_equal(nice_of_thread(), own);
}

static void test_tokens(void **state)
{
    (void)state;
    struct fw_parker parker;
    memset(&parker, 0xff, sizeof parker); /* init() relies on nothing that was there. */
    fw_parker_init(&parker);
    assert_false(fw_park_for(&parker, 0));
    fw_unpark(&parker);
    fw_unpark(&parker); /* Does not add up. */
    fw_park(&parker);
    assert_false(fw_park_for(&parker, 1000));
    fw_unpark(&parker);
    assert_true(fw_park_for(&parker, 0));
    assert_false(fw_park_for(&parker, 0));
}

static void pong_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        fw_park(&pong);
        turns++;
        fw_unpark(&ping);
    }
}

static void test_ping_pong(void **state)
{
    (void)state;
    struct fw_thread thread;
    fw_parker_init(&ping);
    fw_parker_init(&pong);
    turns = 0;
    assert_int_equal(fw_thread_create(&thread, "pong", pong_run, NULL), 0);
    /*
     * Without a time-out; a long one; one that ends about when the token comes; and none at all,
     * where the token has to come while the park is on its way out.
     */
    const int64_t timeouts_ns[] = {-1, 1000000000, 1000, 0};
    for (int i = 0; i < ROUNDS; i++) {
        int64_t timeout_ns = timeouts_ns[(size_t)i % FW_ARRAY_LENGTH(timeouts_ns)];
        assert_int_equal(turns, i);
        fw_unpark(&pong);
        if (timeout_ns < 0) {
            fw_park(&ping);
        } else {
            while (!fw_park_for(&ping, timeout_ns)) {
            }
        }
    }
    fw_thread_join(&thread);
    assert_int_equal(turns, ROUNDS);
}

static struct fw_parker sleeper;
static _Atomic bool sleeper_returned;
static bool sleeper_took_token; /* Read after the join. */

static void sleeper_run(void *argument)
{
    const int64_t *timeout_ns = argument;
    if (*timeout_ns < 0) {
        fw_park(&sleeper);
        sleeper_took_token = true;
    } else {
        sleeper_took_token = fw_park_for(&sleeper, *timeout_ns);
    }
    atomic_store(&sleeper_returned, true);
}

/* Wakes the sleeper as the kernel may at any time, and comes back once it was asleep and woke. */
static void wake_without_token(void)
{
    while (syscall(SYS_futex, &sleeper.word, FUTEX_WAKE_PRIVATE, 1) == 0) {
        assert_false(atomic_load(&sleeper_returned));
        (void)sched_yield();
    }
}

static void test_spurious_wake_ups(void **state)
{
    (void)state;
    int64_t timeouts_ns[] = {-1, INT64_C(3600) * 1000000000};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(timeouts_ns); i++) {
        struct fw_thread thread;
        fw_parker_init(&sleeper);
        atomic_store(&sleeper_returned, false);
        assert_int_equal(fw_thread_create(&thread, "sleeper", sleeper_run, &timeouts_ns[i]), 0);
        for (int round = 0; round < 3; round++) {
            wake_without_token(); /* From the second on: it went to sleep again. */
        }
        fw_unpark(&sleeper);
        fw_thread_join(&thread);
        assert_true(sleeper_took_token);
    }
}

struct seen {
    struct fw_thread_state *state;
    char name[FW_THREAD_NAME_SIZE];
    sigset_t blocked;
};

static void state_run(void *argument)
{
    struct seen *seen = argument;
    fw_park(&pong); /* Until the creator is back, which gives the name. */
    seen->state = fw_thread_self();
    (void)pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
}

static void test_new_thread(void **state)
{
    (void)state;
    struct fw_thread thread;
    struct seen seen = {0};
    sigset_t before, after;
    memset(&thread, 0xff, sizeof thread);
    fw_parker_init(&pong);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    assert_int_equal(fw_thread_create(&thread, "a name that is too long", state_run, &seen), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    fw_unpark(&pong);
    fw_thread_join(&thread);

    assert_ptr_equal(seen.state, &thread.state);
    assert_null(thread.state.held_last);
    assert_ptr_not_equal(seen.state, fw_thread_self());
    assert_ptr_equal(fw_thread_self(), fw_thread_self_pointer); /* Adopted once, and kept. */
    assert_string_equal(thread.name, "a name that is ");
    assert_string_equal(seen.name, "a name that is ");
    const int signals[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(signals); i++) {
        assert_int_equal(sigismember(&seen.blocked, signals[i]), 1);
        assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
}

static struct fw_thread_state *ended;
static void note_end(struct fw_thread_state *self)
{
    assert_ptr_equal(self, fw_thread_self()); /* On the thread itself, while it still has one. */
    assert_true(self->ended);
    assert_null(ended);
    ended = self;
}

static void end_run(void *argument)
{
    (void)argument;
    assert_false(fw_thread_self()->ended);
    fw_thread_self()->at_end = note_end;
}

static bool foreign_has_name;

static void *foreign_run(void *argument)
{
    (void)pthread_setname_np(pthread_self(), "foreign");
    foreign_has_name = strcmp(fw_thread_self()->name, "foreign") == 0;
    end_run(argument);
    return NULL;
}

/* A thread that is over, joined and forgotten before who made it hears that it was made. */

static struct {
    struct fw_thread thread;
    struct fw_parker has_run;
    struct fw_parker is_joined; /* pthread_create() does not return before. */
} brief;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument)
{
    bool waits = thread == &brief.thread.handle;
    int rc = __real_pthread_create(thread, attributes, run, argument);
    if (waits) {
        fw_park(&brief.is_joined);
    }
    return rc;
}

static void brief_run(void *argument)
{
    (void)argument;
    fw_unpark(&brief.has_run);
}

static void brief_join(void *argument)
{
    (void)argument;
    fw_park(&brief.has_run);
    fw_thread_join(&brief.thread);
    memset(&brief.thread, 0xdb, sizeof brief.thread); /* Nothing here can be used any more, */
    brief.thread.name[0] = 0xd;                       /* except a name that looks as if it could. */
    brief.thread.name[1] = 0;
    fw_unpark(&brief.is_joined);
}

static void test_joined_before_create_returns(void **state)
{
    (void)state;
    fw_parker_init(&brief.is_joined);
    fw_parker_init(&brief.has_run);
    struct fw_thread joiner;
    int rc = fw_thread_create(&joiner, "joiner", brief_join, NULL);
    assert_int_equal(rc, 0);
    rc = fw_thread_create(&brief.thread, "brief", brief_run, NULL);
    assert_int_equal(rc, 0);
    fw_thread_join(&joiner);
}

static void test_end(void **state)
{
    (void)state;
    struct fw_thread thread;
    pthread_t foreign;
    ended = NULL;
    assert_int_equal(fw_thread_create(&thread, "one", end_run, NULL), 0);
    fw_thread_join(&thread);
    assert_ptr_equal(ended, &thread.state);

    ended = NULL;
    assert_int_equal(pthread_create(&foreign, NULL, foreign_run, NULL), 0); /* Not ours. */
    assert_int_equal(pthread_join(foreign, NULL), 0);
    assert_non_null(ended);
    assert_true(foreign_has_name);
}

static void test_create_fails(void **state)
{
    (void)state;
    pthread_attr_t usual, huge;
    struct fw_thread thread;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 48), 0); /* No such space. */
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    assert_int_equal(fw_thread_create(&thread, "none", pong_run, NULL), -EAGAIN);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_destroy(&huge), 0);
    assert_int_equal(pthread_attr_destroy(&usual), 0);
}

/* Trusted: it breaks the rules that clang checks. */
FW_TSA_TRUSTED static void test_lock_order(void **state)
{
    (void)state;
    struct fw_mutex low, high;
    memset(&low, 0xff, sizeof low); /* init() relies on nothing that was there. */
    fw_mutex_init(&low, FW_RANK_METRICS);
    fw_mutex_init(&high, FW_RANK_LOG);
    assert_int_equal(low.rank, FW_RANK_METRICS);
    assert_null(low.held_before);
    assert_null(low.waiters);
    fw_mutex_lock(&low);
    fw_mutex_lock(&high);
    expect_assert_failure(fw_mutex_unlock(&low)); /* Not in reverse order. */
    fw_mutex_unlock(&high);
    expect_assert_failure(fw_mutex_lock(&low)); /* Held already: same rank. */
    fw_mutex_unlock(&low);

    assert_true(fw_mutex_trylock(&high));
    expect_assert_failure(fw_mutex_lock(&low)); /* Against the order. */
    expect_assert_failure((void)fw_mutex_trylock(&low));
    fw_mutex_unlock(&high);
    fw_mutex_fini(&low);
    fw_mutex_fini(&high);
}

static struct fw_mutex contended;

static void try_run(void *argument)
{
    *(bool *)argument = fw_mutex_trylock(&contended);
}

static void test_trylock_refuses(void **state)
{
    (void)state;
    struct fw_thread thread;
    bool taken = true;
    fw_mutex_init(&contended, FW_RANK_LOG);
    fw_mutex_lock(&contended);
    assert_int_equal(fw_thread_create(&thread, "try", try_run, &taken), 0);
    fw_thread_join(&thread);
    assert_false(taken);
    fw_mutex_unlock(&contended);
    fw_mutex_fini(&contended);
}

/* Many at once, some of whom go to sleep: the holder now and then lets others run. */
enum { CROWD = 4, CROWD_ROUNDS = 5000 };
static uint64_t crowd_count; /* Guarded by `contended`. */

static void crowd_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < CROWD_ROUNDS; i++) {
        fw_mutex_lock(&contended);
        uint64_t before = crowd_count;
        if (i % 16 == 0) {
            (void)sched_yield();
        }
        crowd_count = before + 1;
        fw_mutex_unlock(&contended);
    }
}

static void test_lock_waits(void **state)
{
    (void)state;
    struct fw_thread threads[CROWD];
    crowd_count = 0;
    fw_mutex_init(&contended, FW_RANK_LOG);
    fw_mutex_lock(&contended);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "crowd", crowd_run, NULL), 0);
    }
    while (atomic_load(&contended.word) != FW_MUTEX_CONTENDED) {
        (void)sched_yield(); /* Until one has given up looking. */
    }
    assert_int_equal(crowd_count, 0);
    fw_mutex_unlock(&contended);
    for (int i = 0; i < CROWD; i++) {
        fw_thread_join(&threads[i]);
    }
    assert_int_equal(crowd_count, CROWD * CROWD_ROUNDS);
    fw_mutex_fini(&contended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),     cmocka_unit_test(test_give_way),
        cmocka_unit_test(test_ping_pong),  cmocka_unit_test(test_spurious_wake_ups),
        cmocka_unit_test(test_new_thread), cmocka_unit_test(test_joined_before_create_returns),
        cmocka_unit_test(test_end),        cmocka_unit_test(test_create_fails),
        cmocka_unit_test(test_lock_order), cmocka_unit_test(test_trylock_refuses),
        cmocka_unit_test(test_lock_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
