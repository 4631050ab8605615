/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an operation is performed never or at least once, in order, what is left over before what
 * is new; one that fails is tried again and overtaken by none. Method: a journal in a file;
 * children that die at each step of an operation; operations that fail as often as the test says;
 * many threads at once.
 */
#include <fairway/journal.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "base/text.h"
#include "base/thread.h"
#include "support/ring.h"

enum { FILE_SIZE = 16 << 10, THREADS = 4, OPERATIONS = 40 };

static char folder[] = "/tmp/fw-journal-XXXXXX";
static char path[64];

static char performed_bytes[4096];
static struct fw_text performed; /* The operations in their order. */
static int failures;             /* So many times perform() fails first. */
static int die_at;               /* The operation that ends the process, from 1; 0: none. */

static int perform(const void *data, size_t length, void *context)
{
    assert_ptr_equal(context, &failures);
    if (failures > 0) {
        failures--;
        return -ENETDOWN;
    }
    if (die_at > 0 && --die_at == 0) {
        _exit(7);
    }
    fw_text_append(&performed, data, length);
    fw_text_append_char(&performed, ' ');
    return 0;
}

static const struct fw_journal_options usual = {
    .path = path,
    .size = FILE_SIZE,
    .client = "test",
    .perform = perform,
    .context = &failures,
    .retry_ms_min = 1,
    .retry_ms_max = 2,
};

static int begin(void **state)
{
    (void)state;
    memset(folder + sizeof folder - 7, 'X', 6);
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/journal", folder);
    fw_text_init(&performed, performed_bytes, sizeof performed_bytes);
    failures = 0;
    die_at = 0;
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static struct fw_journal *journal_open(const struct fw_journal_options *options)
{
    struct fw_journal *journal;
    struct fw_ring_reason reason = {.text = ""};
    ring_test_ok(fw_journal_open(&journal, options, &reason), &reason, "open");
    return journal;
}

static void test_performs(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        struct fw_journal_options options = usual;
        options.format = format;
        options.size = 32 << 10;
        fw_text_clear(&performed);
        struct fw_journal *journal = journal_open(&options);
        RING_OK(fw_journal_perform, journal, "a", 1);
        RING_OK(fw_journal_perform, journal, "bb", 2);
        assert_string_equal(performed.data, "a bb ");
        struct fw_journal *second;
        assert_int_equal(fw_journal_open(&second, &options, NULL), -EBUSY);
        fw_journal_close(journal);
        fw_journal_close(journal_open(&options)); /* Nothing is left over. */
        assert_string_equal(performed.data, "a bb ");
        assert_int_equal(unlink(path), 0);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct fw_journal_options options = usual;
    struct fw_journal *journal;
    struct fw_ring_reason reason;
    options.size = 0;
    assert_int_equal(fw_journal_open(&journal, &options, &reason), -ENOENT);
    options.size = 100;
    assert_int_equal(fw_journal_open(&journal, &options, &reason), -EINVAL);
    options.size = FILE_SIZE;
    journal = journal_open(&options);
    static const char large[FILE_SIZE];
    RING_IS(-EMSGSIZE, fw_journal_perform, journal, large, sizeof large);
    RING_OK(fw_journal_perform, journal, "a", 1);
    fw_journal_close(journal);
}

/* In a longer file an operation would not be where its position says. */
static void test_grows(void **state)
{
    (void)state;
    static const char large[1000];
    struct fw_journal_options options = usual;
    struct stat status;
    options.attempts_max = 1;
    struct fw_journal *journal = journal_open(&options);
    for (int i = 0; i < 20; i++) { /* More than once around. */
        RING_OK(fw_journal_perform, journal, large, sizeof large);
        fw_text_clear(&performed);
    }
    failures = 1;
    RING_IS(-ENETDOWN, fw_journal_perform, journal, "a", 1);
    fw_journal_close(journal);
    options.size = 2 * (uint64_t)FILE_SIZE;
    fw_journal_close(journal_open(&options));
    assert_string_equal(performed.data, "a ");
    journal = journal_open(&options);
    RING_OK(fw_journal_perform, journal, "b", 1);
    fw_journal_close(journal);
    assert_string_equal(performed.data, "a b ");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, options.size);
}

/* A child does three operations and dies in one of them; the next open does what it left. */
static void test_replay(void **state)
{
    (void)state;
    for (int dies = 1; dies <= 3; dies++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct fw_journal *journal;
            die_at = dies;
            if (fw_journal_open(&journal, &usual, NULL) == 0) {
                (void)!fw_journal_perform(journal, "1", 1, NULL);
                (void)!fw_journal_perform(journal, "2", 1, NULL);
                (void)!fw_journal_perform(journal, "3", 1, NULL);
            }
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), 7);
        fw_text_clear(&performed);
        struct fw_journal *journal = journal_open(&usual);
        RING_OK(fw_journal_perform, journal, "new", 3);
        char expected[16];
        (void)snprintf(expected, sizeof expected, "%d new ", dies);
        assert_string_equal(performed.data, expected);
        fw_journal_close(journal);
    }
}

/* Several are pending, as the prototype's image has them. */
static void test_replays_in_order(void **state)
{
    (void)state;
    const struct fw_ring_create create = {.path = path, .format = 1, .size = FILE_SIZE};
    const struct fw_ring_options options = {.path = path, .role = FW_RING_BOTH};
    struct fw_ring *ring;
    RING_OK(fw_ring_create, &create);
    RING_OK(fw_ring_attach, &ring, &options);
    for (int i = 1; i <= 3; i++) {
        char operation[8];
        (void)snprintf(operation, sizeof operation, "op-%d", i);
        RING_OK(fw_ring_push, ring, operation, 4);
    }
    fw_ring_detach(ring);
    fw_journal_close(journal_open(&usual));
    assert_string_equal(performed.data, "op-1 op-2 op-3 ");
}

static void test_retries(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_file("/dev/null"), 0);
    struct fw_journal_options options = usual;
    options.attempts_max = 3;
    struct fw_journal *journal = journal_open(&options);
    failures = 2;
    RING_OK(fw_journal_perform, journal, "a", 1); /* At the third attempt. */
    failures = 3;
    struct fw_ring_reason reason;
    assert_int_equal(fw_journal_perform(journal, "b", 1, &reason), -ENETDOWN);
    assert_non_null(strstr(reason.text, "3 attempts"));
    RING_OK(fw_journal_perform, journal, "c", 1); /* b comes first. */
    assert_string_equal(performed.data, "a b c ");
    failures = 3;
    RING_IS(-ENETDOWN, fw_journal_perform, journal, "d", 1);
    fw_journal_close(journal);
    failures = 3;
    assert_int_equal(fw_journal_open(&journal, &options, NULL), -ENETDOWN);
    fw_journal_close(journal_open(&options));
    assert_string_equal(performed.data, "a b c d ");
    assert_int_equal(fw_log_set_file(NULL), 0);
}

/* Nobody has the time to wait for it. */
static void test_waits_longer_each_time(void **state)
{
    (void)state;
    static const struct {
        uint32_t min, max;
        uint32_t expected[12];
    } cases[] = {
        {0, 0, {10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10000, 10000}},
        {0, 25, {10, 20, 25, 25}},
        {4000, 0, {4000, 8000, 10000, 10000}},
        {3, 12, {3, 6, 12, 12}},
        {20000, 0, {20000, 20000}},
        {UINT32_MAX / 2, UINT32_MAX, {UINT32_MAX / 2, UINT32_MAX - 1, UINT32_MAX, UINT32_MAX}},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        const struct fw_journal_options options = {.retry_ms_min = cases[i].min,
                                                   .retry_ms_max = cases[i].max};
        uint32_t attempt = 0;
        while (attempt < FW_ARRAY_LENGTH(cases[i].expected) && cases[i].expected[attempt] != 0) {
            uint32_t expected = cases[i].expected[attempt];
            attempt++;
            assert_int_equal(fw_journal_delay_ms(&options, attempt), expected);
        }
        assert_int_equal(fw_journal_delay_ms(&options, UINT32_MAX), cases[i].expected[attempt - 1]);
    }
}

/* ---- closing while an operation fails for ever ---- */

static struct fw_parker tried;

static int perform_never(const void *data, size_t length, void *context)
{
    (void)data;
    (void)length;
    (void)context;
    fw_unpark(&tried);
    return -EIO;
}

static void caller_run(void *argument)
{
    struct fw_journal *journal = argument;
    RING_IS(-ECANCELED, fw_journal_perform, journal, "x", 1);
}

/* Waits until so many bytes have been published: who pushed them is inside the journal. */
static void pending_wait(uint64_t bytes)
{
    const struct fw_disk_options options = {.path = path, .flags = FW_DISK_READ_ONLY};
    struct fw_disk *disk;
    struct fw_ring_geometry geometry;
    struct fw_ring_pointer producer = {.position = 0};
    assert_int_equal(fw_disk_open(&disk, &options, NULL), 0);
    assert_int_equal(fw_ring_read_head(disk, 512, &geometry, NULL), 0);
    while (producer.position < bytes) {
        assert_int_equal(fw_ring_read_side(disk, &geometry, FW_RING_SIDE_PRODUCER, &producer, NULL),
                         0);
    }
    fw_disk_close(disk);
}

static void test_close_ends_waiting(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_file("/dev/null"), 0);
    struct fw_journal_options options = usual;
    options.perform = perform_never;
    options.retry_ms_min = 3600000; /* Only being woken ends it. */
    options.retry_ms_max = 3600000;
    fw_parker_init(&tried);
    struct fw_journal *journal = journal_open(&options);
    struct fw_thread callers[2];
    for (size_t i = 0; i < FW_ARRAY_LENGTH(callers); i++) {
        assert_int_equal(fw_thread_create(&callers[i], "caller", caller_run, journal), 0);
    }
    fw_park(&tried);
    pending_wait(16); /* One of them performs in vain, the other waits. */
    fw_journal_close(journal);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(callers); i++) {
        fw_thread_join(&callers[i]);
    }
    fw_journal_close(journal_open(&usual));
    assert_string_equal(performed.data, "x x ");
    assert_int_equal(fw_log_set_file(NULL), 0);
}

/* ---- many threads ---- */

static _Atomic uint32_t counts[THREADS];
static atomic_bool inside;
static bool fails_often;
static uint32_t calls;

static int perform_counting(const void *data, size_t length, void *context)
{
    uint32_t numbers[2];
    (void)context;
    assert_int_equal(length, sizeof numbers);
    memcpy(numbers, data, sizeof numbers);
    assert_false(atomic_exchange(&inside, true)); /* One at a time. */
    if (fails_often && ++calls % 3 == 0) {
        atomic_store(&inside, false);
        return -EAGAIN;
    }
    assert_int_equal(numbers[1], atomic_load(&counts[numbers[0]]));
    (void)atomic_fetch_add(&counts[numbers[0]], 1);
    atomic_store(&inside, false);
    return 0;
}

struct worker {
    struct fw_thread thread;
    struct fw_journal *journal;
    uint32_t number;
    uint32_t promised;
};

static void worker_run(void *argument)
{
    struct worker *own = argument;
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        const uint32_t numbers[2] = {own->number, i};
        int rc = fw_journal_perform(own->journal, numbers, sizeof numbers, NULL);
        /* One that failed is done before whatever this thread asks for next. */
        assert_true(rc == 0 || (fails_often && rc == -EAGAIN));
        own->promised = rc == 0 ? i + 1 : own->promised;
        assert_true(atomic_load(&counts[own->number]) >= own->promised);
    }
}

static void threads_perform(bool failing)
{
    struct worker workers[THREADS] = {0};
    struct fw_journal_options options = usual;
    fails_often = failing;
    options.perform = perform_counting;
    options.attempts_max = 1;
    options.size = 2048; /* Small enough to be full at times. */
    struct fw_journal *journal = journal_open(&options);
    for (uint32_t i = 0; i < THREADS; i++) {
        atomic_store(&counts[i], 0);
        workers[i].journal = journal;
        workers[i].number = i;
        assert_int_equal(fw_thread_create(&workers[i].thread, "worker", worker_run, &workers[i]),
                         0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        fw_thread_join(&workers[i].thread);
    }
    fw_journal_close(journal);
    fails_often = false;
    fw_journal_close(journal_open(&options));
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(counts[i], OPERATIONS);
    }
}

static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_file("/dev/null"), 0);
    threads_perform(false);
    threads_perform(true);
    assert_int_equal(fw_log_set_file(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_performs, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_grows, begin, end),
        cmocka_unit_test_setup_teardown(test_replay, begin, end),
        cmocka_unit_test_setup_teardown(test_replays_in_order, begin, end),
        cmocka_unit_test_setup_teardown(test_retries, begin, end),
        cmocka_unit_test(test_waits_longer_each_time),
        cmocka_unit_test_setup_teardown(test_close_ends_waiting, begin, end),
        cmocka_unit_test_setup_teardown(test_threads, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
