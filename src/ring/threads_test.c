/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: one ring in a file, used by many threads and by two processes: nothing is lost, doubled or
 * reordered; after an acknowledgement nothing appears; a second producer or consumer is refused
 * while the first lives, and its death is noticed.
 * Method: threads that push, one that only polls, and a consumer that suspends and resumes as fast
 * as it can; children that attach and are killed. TSan watches.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "support/ring.h"

enum { PUSHERS = 3, MESSAGES = 150, SUSPENDS = 25, FILE_SIZE = 64 << 10 };

static char path[] = "/tmp/fw-ring-XXXXXX";

static int path_make(void **state)
{
    (void)state;
    memset(path + sizeof path - 7, 'X', 6);
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0 ? -1 : 0;
}

static int path_remove(void **state)
{
    (void)state;
    return unlink(path);
}

static void file_ring_create(int format)
{
    const struct fw_ring_create create = {.path = path, .format = format, .size = FILE_SIZE};
    struct fw_ring_reason reason = {.text = ""};
    ring_test_ok(fw_ring_create(&create, &reason), &reason, "create");
}

static int attach(struct fw_ring **ring, enum fw_ring_role role, struct fw_ring_reason *reason)
{
    const struct fw_ring_options options = {.path = path, .role = role, .queue = "q"};
    return fw_ring_attach(ring, &options, reason);
}

static struct fw_ring *attach_ok(enum fw_ring_role role)
{
    struct fw_ring *ring;
    struct fw_ring_reason reason = {.text = ""};
    ring_test_ok(attach(&ring, role, &reason), &reason, "attach");
    return ring;
}

/* ---- one of each role ---- */

static void test_roles(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        struct fw_ring_reason reason;
        struct fw_ring *second;
        file_ring_create(format);
        struct fw_ring *producer = attach_ok(FW_RING_PRODUCER);
        assert_int_equal(attach(&second, FW_RING_PRODUCER, &reason), -EBUSY);
        assert_non_null(strstr(reason.text, "as its producer already"));
        assert_int_equal(attach(&second, FW_RING_BOTH, &reason), -EBUSY);
        const struct fw_ring_create create = {.path = path, .format = 3 - format, .replace = true};
        assert_int_equal(fw_ring_create(&create, &reason), -EBUSY);
        file_ring_create(format); /* It is there: nothing happens. */
        struct fw_ring *consumer = attach_ok(FW_RING_CONSUMER);
        assert_int_equal(attach(&second, FW_RING_CONSUMER, &reason), -EBUSY);
        RING_OK(fw_ring_push, producer, "x", 1);
        (void)ring_test_pop(consumer, "x", 1);
        fw_ring_detach(producer);
        fw_ring_detach(attach_ok(FW_RING_PRODUCER));
        fw_ring_detach(consumer);
        if (format == 1) {
            assert_int_equal(truncate(path, 0), 0); /* For the other format. */
        }
    }
}

/* A child that pushes for ever; the pipe tells when it has begun. */
static pid_t child_push(void)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct fw_ring *ring;
        int rc = attach(&ring, FW_RING_PRODUCER, NULL);
        while (rc == 0 || rc == FW_RING_RETRY) {
            rc = fw_ring_push(ring, "again", 5, NULL);
            (void)!write(ends[1], "x", 1);
        }
        _exit(1);
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]); /* Its next write kills it, if we do not. */
    return child;
}

static void test_death_is_noticed(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        int status;
        file_ring_create(format);
        pid_t child = child_push();
        (void)kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        struct fw_ring *producer = attach_ok(FW_RING_PRODUCER);
        struct fw_ring *consumer = attach_ok(FW_RING_CONSUMER);
        (void)ring_test_pop(consumer, "again", 5);
        fw_ring_detach(producer);
        fw_ring_detach(consumer);
        assert_int_equal(truncate(path, 0), 0);
    }
}

/* ---- threads ---- */

struct pusher {
    struct fw_thread thread;
    struct fw_ring *ring;
    uint32_t number;
};

static atomic_bool over;

struct note {
    uint32_t pusher;
    uint32_t number;
};

static void pusher_run(void *argument)
{
    struct pusher *own = argument;
    for (uint32_t i = 0; i < MESSAGES;) {
        const struct note note = {.pusher = own->number, .number = i};
        int rc = fw_ring_push(own->ring, &note, sizeof note, NULL);
        if (rc == 0) {
            i++;
        } else {
            assert_true(rc == FW_RING_RETRY || rc == FW_RING_SUSPENDED);
        }
    }
}

static void poller_run(void *argument)
{
    struct pusher *own = argument;
    while (!atomic_load(&over)) {
        int rc = fw_ring_poll(own->ring, NULL);
        assert_true(rc == 0 || rc == FW_RING_SUSPENDED);
    }
}

/* Pops what there is; each pusher's messages must come in order. Returns how many. */
static uint32_t consume(struct fw_ring *consumer, uint32_t expected[PUSHERS])
{
    struct fw_ring_message message;
    uint64_t position = 0;
    uint32_t count = 0;
    while (fw_ring_pop(consumer, &message, &position, NULL) == 0) {
        struct note note;
        assert_int_equal(message.length, sizeof note);
        memcpy(&note, message.data, sizeof note);
        assert_true(note.pusher < PUSHERS);
        assert_int_equal(note.number, expected[note.pusher]);
        expected[note.pusher]++;
        count++;
    }
    if (count > 0) {
        RING_OK(fw_ring_advance, consumer, position);
    }
    return count;
}

static struct fw_ring_state state_of(struct fw_ring *consumer)
{
    struct fw_ring_state known;
    RING_OK(fw_ring_poll, consumer);
    fw_ring_state(consumer, &known);
    return known;
}

/* Suspends, sees that nothing appears once that is acknowledged, and resumes. */
static void suspend_once(struct fw_ring *consumer)
{
    int rc;
    while ((rc = fw_ring_suspend(consumer, NULL)) == FW_RING_RETRY) {
    }
    assert_int_equal(rc, 0);
    while (!state_of(consumer).suspend_acknowledged) {
    }
    uint64_t producer = state_of(consumer).producer;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(state_of(consumer).producer, producer);
    }
    RING_OK(fw_ring_resume, consumer);
}

static void threads_race(int format)
{
    struct pusher pushers[PUSHERS];
    struct pusher poller;
    uint32_t expected[PUSHERS] = {0};
    file_ring_create(format);
    struct fw_ring *producer = attach_ok(FW_RING_PRODUCER);
    struct fw_ring *consumer = attach_ok(FW_RING_CONSUMER);
    atomic_store(&over, false);
    for (uint32_t i = 0; i < PUSHERS; i++) {
        pushers[i].ring = producer;
        pushers[i].number = i;
        assert_int_equal(fw_thread_create(&pushers[i].thread, "pusher", pusher_run, &pushers[i]),
                         0);
    }
    poller.ring = producer;
    assert_int_equal(fw_thread_create(&poller.thread, "poller", poller_run, &poller), 0);
    uint32_t total = 0;
    for (int i = 0; i < SUSPENDS; i++) {
        suspend_once(consumer);
        total += consume(consumer, expected);
    }
    while (total < PUSHERS * MESSAGES) {
        total += consume(consumer, expected);
    }
    for (uint32_t i = 0; i < PUSHERS; i++) {
        fw_thread_join(&pushers[i].thread);
    }
    atomic_store(&over, true);
    fw_thread_join(&poller.thread);
    assert_int_equal(consume(consumer, expected), 0);
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    assert_int_equal(truncate(path, 0), 0);
}

static void test_threads(void **state)
{
    (void)state;
    threads_race(1);
    threads_race(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_roles, path_make, path_remove),
        cmocka_unit_test_setup_teardown(test_death_is_noticed, path_make, path_remove),
        cmocka_unit_test_setup_teardown(test_threads, path_make, path_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
