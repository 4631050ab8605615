/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: from start to stop a call only stores its line, and what comes out in the end is what a
 * synchronous log would have written; what does not fit is treated as the policy says, and said; a
 * target that is slow, full or gone is no concern of the caller's.
 * Method: mostly without a writer's thread, so that the test decides when lines are written; lines
 * go to a sink that keeps them, to files, or to a sink that waits until the test lets it go.
 */
#include <fairway/log.h>

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/thread.h"
#include "io/clock.h"
#include "log/arena.h"
#include "log/ring.h"
#include "log/writer.h"
#include "support/fail_memory.h"

FW_LOG_MODULE(alpha);

enum { TEXT_MAX = 4 << 20, THREADS = 4, LINES = 5000 };

static char text[TEXT_MAX]; /* All that the sink was given. */
static size_t text_length;
static uint32_t sink_calls;

static int keep(void *context, const char *lines, size_t size, size_t *done)
{
    (void)context;
    assert_true(size > 0 && lines[size - 1] == '\n' && text_length + size < TEXT_MAX);
    memcpy(text + text_length, lines, size);
    text_length += size;
    text[text_length] = '\0';
    sink_calls++;
    *done = size;
    return 0;
}

static void text_clear(void)
{
    text_length = 0;
    text[0] = '\0';
    sink_calls = 0;
}

static int setup(void **state)
{
    (void)state;
    text_clear();
    fw_log_set_policy(FW_LOG_BLOCK, FW_LOG_WARNING);
    fw_log_set_json(false);
    fw_log_set_rotation(0, 1);
    assert_int_equal(fw_log_set_level(NULL, FW_LOG_TRACE), 0);
    fw_log_writer_set_sink(keep, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fw_log_stop();
    fw_log_writer_set_sink(NULL, NULL);
    return 0;
}

static void start(uint32_t rings, bool own_thread)
{
    const struct fw_log_setup setup_of = {
        .ring_size = FW_LOG_RING_SIZE_MIN, .rings = rings, .without_thread = !own_thread};
    assert_int_equal(fw_log_start(&setup_of), 0);
}

/* Compares the lines without the time that stands before each. */
static void assert_text(const char *expected)
{
    char *without = calloc(1, text_length + 1);
    assert_non_null(without);
    size_t length = 0;
    for (const char *line = text; *line != '\0';) {
        line += strlen("2026-01-01T00:00:00.000000Z ");
        assert_int_equal(line[-2], 'Z');
        size_t rest = strcspn(line, "\n") + 1;
        memcpy(without + length, line, rest);
        length += rest;
        line += rest;
    }
    assert_string_equal(without, expected);
    free(without);
}

static void test_sync_async_sync(void **state)
{
    (void)state;
    FW_LOG(alpha, ERROR, "one");
    start(2, false);
    FW_LOG(alpha, ERROR, "two %d", 2);
    FW_LOG(alpha, NOTICE, "three %s", "3");
    assert_text("error   alpha [async_test] one\n"); /* Nobody has drained. */
    assert_int_equal(sink_calls, 1);
    assert_true(fw_log_drain());
    assert_false(fw_log_drain());
    assert_int_equal(sink_calls, 2); /* One batch. */
    FW_LOG(alpha, ERROR, "four");
    fw_log_stop();
    FW_LOG(alpha, ERROR, "five");
    fw_log_stop(); /* Harmless. */
    assert_false(fw_log_drain());
    assert_text("error   alpha [async_test] one\n"
                "error   alpha [async_test] two 2\n"
                "notice  alpha [async_test] three 3\n"
                "error   alpha [async_test] four\n"
                "error   alpha [async_test] five\n");

    for (int i = 0; i < 100; i++) { /* Again and again, and nothing is left behind. */
        start(1, i % 2 == 0);
        FW_LOG(alpha, ERROR, "%d", i);
        fw_log_stop();
    }
}

static void test_start_refused(void **state)
{
    (void)state;
    const struct fw_log_setup refused[] = {
        {.ring_size = FW_LOG_RING_SIZE_MIN / 2, .rings = 1},
        {.ring_size = FW_LOG_RING_SIZE_MIN + 8, .rings = 1},
        {.ring_size = UINT64_C(2) * FW_LOG_RING_SIZE_MAX, .rings = 1},
        {.ring_size = FW_LOG_RING_SIZE_MIN, .rings = 0},
        {.ring_size = FW_LOG_RING_SIZE_MIN, .rings = FW_LOG_RINGS_MAX + 1},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(refused); i++) {
        assert_int_equal(fw_log_start(&refused[i]), -EINVAL);
    }
    const struct fw_log_setup nowhere = {
        .ring_size = FW_LOG_RING_SIZE_MIN, .rings = 1, .map_directory = "/nonexistent"};
    assert_int_equal(fw_log_start(&nowhere), -ENOENT);
    assert_int_equal(fw_log_start(NULL), 0);
    assert_int_equal(fw_log_start(NULL), -EALREADY);
    FW_LOG(alpha, ERROR, "one");
    fw_log_stop();
    assert_text("error   alpha [async_test] one\n");
}

/* What printf() can do and the ring cannot is still logged, and in its place. */
static void test_every_format(void **state)
{
    (void)state;
    char large[2 * FW_LOG_MESSAGE_MAX];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    static char expected[TEXT_MAX];
    start(1, false);
    errno = ENOENT;
    FW_LOG(alpha, ERROR, "a %d\n", 1);
    FW_LOG(alpha, WARNING, "b %d %ls", 2, L"wide");
    FW_LOG(alpha, INFO, "c %lc %s", L'w', "character");
    FW_LOG(alpha, DEBUG, "d %.5000s", "a large precision");
    FW_LOG(alpha, TRACE, "%s", large);
    FW_LOG(alpha, TRACE, "%.5000s", large);
    assert_int_equal(errno, ENOENT);
    char gone[] = "was here";
    FW_LOG(alpha, ERROR, "e %s %.3s %5.1f%%", gone, gone, 99.5);
    memset(gone, '?', sizeof gone - 1);
    fw_log_stop();
    (void)snprintf(expected, sizeof expected,
                   "error   alpha [async_test] a 1\\n\n"
                   "warning alpha [async_test] b 2 wide\n"
                   "info    alpha [async_test] c w character\n"
                   "debug   alpha [async_test] d a large precision\n"
                   "trace   alpha [async_test] %.*s...\n"
                   "trace   alpha [async_test] %.*s...\n"
                   "error   alpha [async_test] e was here was  99.5%%\n",
                   FW_LOG_MESSAGE_MAX, large, FW_LOG_MESSAGE_MAX, large);
    assert_text(expected);
}

/* Numbers take the short way from the second time on; see FW_LOG_CALL(). */
static uint32_t evaluated;

static void log_numbers(void)
{
    enum { SOME = 7 };
    evaluated++;
    FW_LOG(alpha, ERROR, "none");
    FW_LOG(alpha, ERROR, "%d", -5);
    FW_LOG(alpha, ERROR, "%u %c", UINT32_MAX, 'x');
    FW_LOG(alpha, ERROR, "%lld %hhu %x", (long long)INT64_MIN, (unsigned char)200, (unsigned)SOME);
    FW_LOG(alpha, ERROR, "%*d|%zu %d", 4, 1, (size_t)UINT64_MAX, true);
    FW_LOG(alpha, ERROR, "%d %s", 1, "string");
    FW_LOG(alpha, ERROR, "%.1f %d", 0.5, 2);
    FW_LOG(alpha, ERROR, "%u", evaluated++);
}

static void *log_numbers_elsewhere(void *unused)
{
    (void)pthread_setname_np(pthread_self(), "other");
    (void)unused;
    log_numbers();
    return NULL;
}

static void expect_numbers(char *expected, size_t size, const char *thread, uint32_t number)
{
    const char *lines[] = {"none",
                           "-5",
                           "4294967295 x",
                           "-9223372036854775808 200 7",
                           "   1|18446744073709551615 1",
                           "1 string",
                           "0.5 2"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lines); i++) {
        size_t length = strlen(expected);
        (void)snprintf(expected + length, size - length, "error   alpha [%s] %s\n", thread,
                       lines[i]);
    }
    size_t length = strlen(expected);
    (void)snprintf(expected + length, size - length, "error   alpha [%s] %u\n", thread, number);
}

static void test_numbers(void **state)
{
    (void)state;
    static char expected[8192];
    pthread_t thread;
    expected[0] = '\0';
    evaluated = 0;
    log_numbers(); /* Synchronous. */
    start(1, false);
    log_numbers(); /* The sites become known, */
    log_numbers(); /* and are. */
    assert_true(fw_log_drain());
    /* Known sites, from a thread for which there is no ring. */
    assert_int_equal(pthread_create(&thread, NULL, log_numbers_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fw_log_stop();
    log_numbers();
    for (uint32_t i = 0; i < 5; i++) {
        expect_numbers(expected, sizeof expected, i == 3 ? "other" : "async_test", 2 * i + 1);
    }
    assert_text(expected);
}

static void test_no_memory_for_a_site(void **state)
{
    (void)state;
    start(1, false);
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            fail_memory_after(0);
        }
        FW_LOG(alpha, ERROR, "%d", i);
    }
    fw_log_stop();
    assert_text("error   alpha [async_test] 0\nerror   alpha [async_test] 1\n");
}

/* ---- Full rings. ---- */

/* Logs lines of some 500 bytes until one is lost, and returns how many were not. */
static uint32_t fill(void)
{
    char large[500];
    memset(large, 'x', sizeof large);
    uint64_t before = fw_log_lost();
    uint32_t count = 0;
    while (fw_log_lost() == before) {
        FW_LOG(alpha, INFO, "%u %.*s", count, (int)sizeof large, large);
        count++;
    }
    return count - 1;
}

static size_t count_of(const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void test_drop(void **state)
{
    (void)state;
    uint64_t dropped = fw_counter_get(&fw_log_metrics.dropped);
    fw_log_set_policy(FW_LOG_DROP, FW_LOG_WARNING);
    start(1, false);
    uint32_t stored = fill();
    assert_in_range(stored, 10, FW_LOG_RING_SIZE_MIN / 500);
    FW_LOG(alpha, ERROR, "%s", "lost too"); /* However urgent. */
    assert_true(fw_log_drain());
    assert_int_equal(count_of(" info    alpha [async_test] "), stored);
    const char *end = text + text_length - strlen("2 lines lost: the ring was full\n");
    assert_string_equal(end, "2 lines lost: the ring was full\n"); /* Nothing came after them. */
    assert_int_equal(count_of("warning log [async_test] 2 lines lost"), 1);
    assert_int_equal(fw_counter_get(&fw_log_metrics.dropped), dropped + 2);
    assert_in_range(fw_gauge_get(&fw_log_metrics.ring_high_water), FW_LOG_RING_SIZE_MIN / 2,
                    FW_LOG_RING_SIZE_MIN);

    text_clear();
    FW_LOG(alpha, ERROR, "after");
    stored = fill();
    assert_true(fw_log_drain());
    FW_LOG(alpha, ERROR, "last");
    fw_log_stop();
    assert_int_equal(count_of("after"), 1);
    assert_int_equal(count_of(" info "), stored);
    assert_int_equal(count_of("1 line lost"), 1);
    assert_true(strstr(text, "1 line lost") < strstr(text, "last"));
}

/* Records of 24 bytes from an odd place on: every byte of the ring is used, and none twice. */
static void test_full_to_the_last_byte(void **state)
{
    (void)state;
    fw_log_set_policy(FW_LOG_DROP, FW_LOG_WARNING);
    start(1, false);
    FW_LOG(alpha, ERROR, "16 bytes");
    for (int i = 0; i < 10; i++) {
        FW_LOG(alpha, ERROR, "%d", i);
    }
    assert_true(fw_log_drain()); /* The next one is at 256. */
    text_clear();
    uint64_t lost = fw_log_lost();
    int stored = 0;
    for (; fw_log_lost() == lost; stored++) {
        FW_LOG(alpha, ERROR, "%d", stored);
    }
    stored--;
    assert_int_equal(stored, (FW_LOG_RING_SIZE_MIN - 256) / 24 + 256 / 24);
    fw_log_stop();
    const char *line = text;
    for (int i = 0; i < stored; i++) {
        int number;
        assert_int_equal(sscanf(line, "%*s error alpha [async_test] %d\n", &number), 1);
        assert_int_equal(number, i);
        line += strcspn(line, "\n") + 1;
    }
    assert_non_null(strstr(line, "1 line lost"));
}

/* Lost lines are mentioned where they are missing, though the next came before the writer looked.
 */
static void test_drop_is_told_in_its_place(void **state)
{
    (void)state;
    fw_log_set_policy(FW_LOG_DROP, FW_LOG_WARNING);
    start(1, false);
    (void)fill();
    FW_LOG(alpha, ERROR, "small enough for what is left"); /* Fewer bytes than fill() tries. */
    fw_log_stop();
    const char *small = strstr(text, "small enough");
    const char *lost = strstr(text, "1 line lost");
    assert_non_null(small);
    assert_non_null(lost);
    assert_true(lost < small);
}

static struct fw_parker gate;    /* The sink waits here... */
static struct fw_parker arrived; /* ...and says so here. */
static int keep_slowly(void *context, const char *lines, size_t size, size_t *done)
{
    fw_unpark(&arrived);
    fw_park(&gate);
    return keep(context, lines, size, done);
}

static void drain_run(void *argument)
{
    (void)argument;
    (void)fw_log_drain();
}

static void other_run(void *argument)
{
    (void)argument;
    FW_LOG(alpha, ERROR, "of a thread that is new");
}

/* A target that hangs: no call waits for it, not the first of a site, not the first of a thread. */
static void test_slow_target(void **state)
{
    (void)state;
    struct fw_thread writer, other;
    fw_parker_init(&gate);
    fw_parker_init(&arrived);
    fw_log_set_policy(FW_LOG_DROP, FW_LOG_WARNING);
    fw_log_writer_set_sink(keep_slowly, NULL);
    start(1, false);
    FW_LOG(alpha, ERROR, "first");
    assert_int_equal(fw_thread_create(&writer, "writer", drain_run, NULL), 0);
    fw_park(&arrived);
    (void)fill();
    FW_LOG(alpha, ERROR, "%s", "of a site that is new, and lost");
    assert_int_equal(fw_thread_create(&other, "other", other_run, NULL), 0);
    fw_thread_join(&other);
    assert_int_equal(fw_log_set_level("alpha", FW_LOG_TRACE), 0);
    assert_int_equal(fw_log_reopen(), 0);
    assert_false(fw_log_drain()); /* The role is taken. */
    fw_unpark(&gate);
    fw_thread_join(&writer);
    fw_unpark(&gate);
    fw_log_stop();
    assert_int_equal(count_of("first"), 1);
    assert_int_equal(count_of("[other] of a thread that is new"), 1);
    assert_int_equal(count_of("2 lines lost"), 1);
}

/* Takes one line and a half. */
static int keep_some(void *context, const char *lines, size_t size, size_t *done)
{
    (void)context;
    *done = strcspn(lines, "\n") + 10;
    assert_true(*done < size);
    return -ENOSPC;
}

static void test_target_that_takes_a_part(void **state)
{
    (void)state;
    uint64_t lost = fw_log_lost();
    uint64_t written = fw_counter_get(&fw_log_metrics.lines);
    fw_log_writer_set_sink(keep_some, NULL);
    start(1, false);
    FW_LOG(alpha, ERROR, "one");
    FW_LOG(alpha, ERROR, "two");
    FW_LOG(alpha, ERROR, "three");
    assert_true(fw_log_drain());
    assert_int_equal(fw_log_lost(), lost + 2);
    assert_int_equal(fw_counter_get(&fw_log_metrics.lines), written + 1);
}

/* However long the writer takes, and by whatever counter the line was stamped. */
static void test_time_is_that_of_the_call(void **state)
{
    (void)state;
    start(1, false);
    int64_t before_ns = fw_clock_wall_ns();
    FW_LOG(alpha, ERROR, "now");
    int64_t after_ns = fw_clock_wall_ns();
    while (fw_clock_wall_ns() < after_ns + 50 * (int64_t)FW_NS_PER_MS) {
    }
    assert_true(fw_log_drain());
    struct tm utc = {0};
    int micros;
    assert_int_equal(sscanf(text, "%d-%d-%dT%d:%d:%d.%dZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
                            &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &micros),
                     7);
    utc.tm_year -= 1900;
    utc.tm_mon--;
    int64_t line_ns = timegm(&utc) * FW_NS_PER_S + (int64_t)micros * FW_NS_PER_US;
    /* The rate of the counter was measured over 50 ms: what is left of its error is far less. */
    assert_in_range(line_ns, before_ns - FW_NS_PER_MS, after_ns + FW_NS_PER_MS);
}

static void logger_run(void *argument)
{
    const int *id = argument;
    for (int i = 0; i < LINES; i++) {
        FW_LOG(alpha, NOTICE, "%d %d %0*d", *id, i, i % 60, 0);
    }
}

/* More threads than rings, all waiting for room most of the time: none is lost, order is kept. */
static void test_block(void **state)
{
    (void)state;
    uint64_t blocked = fw_counter_get(&fw_log_metrics.blocked);
    uint64_t lost = fw_log_lost();
    for (uint32_t rings = 1; rings <= THREADS + 1; rings += THREADS / 2) {
        struct fw_thread threads[THREADS];
        int ids[THREADS];
        int expected[THREADS] = {0};
        text_clear();
        start(rings, rings % 2 == 1);
        for (int i = 0; i < THREADS; i++) {
            char name[FW_THREAD_NAME_SIZE];
            (void)snprintf(name, sizeof name, "logger-%d", i);
            ids[i] = i;
            assert_int_equal(fw_thread_create(&threads[i], name, logger_run, &ids[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            fw_thread_join(&threads[i]);
        }
        fw_log_stop();
        int lines = 0;
        for (char *line = text; *line != '\0'; lines++) {
            int name, id, sequence;
            assert_int_equal(
                sscanf(line, "%*s notice alpha [logger-%d] %d %d", &name, &id, &sequence), 3);
            assert_int_equal(name, id);
            assert_int_equal(sequence, expected[id]);
            expected[id]++;
            line += strcspn(line, "\n") + 1;
        }
        assert_int_equal(lines, THREADS * LINES);
    }
    assert_int_equal(fw_log_lost(), lost);
    assert_true(fw_counter_get(&fw_log_metrics.blocked) > blocked);
}

static void test_drop_below(void **state)
{
    (void)state;
    fw_log_set_policy(FW_LOG_DROP_BELOW, FW_LOG_WARNING);
    start(1, false);
    uint32_t stored = fill(); /* Infos. */
    char large[500];
    memset(large, 'y', sizeof large);
    uint64_t lost = fw_log_lost();
    FW_LOG(alpha, NOTICE, "%.*s", (int)sizeof large, large);
    assert_int_equal(fw_log_lost(), lost + 1);
    FW_LOG(alpha, WARNING, "%.*s", (int)sizeof large, large); /* Takes the writer's role itself. */
    assert_int_equal(fw_log_lost(), lost + 1);
    assert_int_equal(count_of(" info "), stored);
    fw_log_stop();
    assert_int_equal(count_of("warning alpha"), 1);
    assert_int_equal(count_of("2 lines lost"), 1);
}

/* ---- Threads. ---- */

static void one_line_run(void *argument)
{
    FW_LOG(alpha, NOTICE, "line %d", *(int *)argument);
}

static void thread_log(const char *name, int number)
{
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, name, one_line_run, &number), 0);
    fw_thread_join(&thread);
}

static void *foreign_run(void *argument)
{
    one_line_run(argument);
    return NULL;
}

static void test_rings_are_reused(void **state)
{
    (void)state;
    pthread_t foreign;
    int number = 4;
    start(1, false);
    thread_log("first", 1);
    assert_int_equal(atomic_load(&fw_log_rings.rings[0].state), FW_LOG_RING_RELEASED);
    thread_log("second", 2); /* Not yet free: it shares. */
    assert_true(fw_log_drain());
    assert_int_equal(atomic_load(&fw_log_rings.rings[0].state), FW_LOG_RING_FREE);
    thread_log("the-third-of-em", 3);
    assert_int_equal(atomic_load(&fw_log_rings.rings[0].state), FW_LOG_RING_RELEASED);
    assert_true(fw_log_drain());
    assert_int_equal(pthread_create(&foreign, NULL, foreign_run, &number), 0); /* Not ours. */
    assert_int_equal(pthread_join(foreign, NULL), 0);
    assert_int_equal(atomic_load(&fw_log_rings.rings[0].state), FW_LOG_RING_RELEASED);
    FW_LOG(alpha, ERROR, "main");
    assert_true(fw_log_drain());
    FW_LOG(alpha, ERROR, "main again");
    assert_int_equal(atomic_load(&fw_log_rings.rings[0].state), FW_LOG_RING_OWNED);
    fw_log_stop();
    assert_text("notice  alpha [first] line 1\n"
                "notice  alpha [second] line 2\n"
                "notice  alpha [the-third-of-em] line 3\n" /* And no trace of it in the next: */
                "notice  alpha [async_test] line 4\n"
                "error   alpha [async_test] main\n"
                "error   alpha [async_test] main again\n");
}

static void late_line(void *number)
{
    FW_LOG(alpha, NOTICE, "after the end %d", *(int *)number);
}

static pthread_key_t late_key;
static void *late_run(void *argument)
{
    assert_int_equal(pthread_setspecific(late_key, argument), 0);
    one_line_run(argument);
    return NULL;
}

/* Others' code may still run on a thread that has given its ring back. It gets no other. */
static void test_a_line_after_the_end(void **state)
{
    (void)state;
    pthread_t foreign;
    int number = 7;
    start(2, false);
    assert_int_equal(pthread_key_create(&late_key, late_line), 0); /* Called after our own. */
    assert_int_equal(pthread_create(&foreign, NULL, late_run, &number), 0);
    assert_int_equal(pthread_join(foreign, NULL), 0);
    assert_int_equal(pthread_key_delete(late_key), 0);
    assert_text("notice  alpha [async_test] line 7\n"
                "notice  alpha [async_test] after the end 7\n");
    assert_int_equal(atomic_load(&fw_log_rings.rings[0].state), FW_LOG_RING_FREE);
    assert_int_equal(atomic_load(&fw_log_rings.rings[1].state), FW_LOG_RING_FREE);
}

static struct fw_parker turns[2];

static void alternate_run(void *argument)
{
    for (int i = *(int *)argument; i < 20; i += 2) {
        fw_park(&turns[i % 2]);
        FW_LOG(alpha, NOTICE, "%d", i);
        fw_unpark(&turns[(i + 1) % 2]);
    }
}

static void test_threads_are_merged_by_time(void **state)
{
    (void)state;
    struct fw_thread threads[2];
    int begin[2] = {0, 1};
    start(3, false);
    for (int i = 0; i < 2; i++) {
        fw_parker_init(&turns[i]);
        assert_int_equal(fw_thread_create(&threads[i], "turn", alternate_run, &begin[i]), 0);
    }
    fw_unpark(&turns[0]);
    for (int i = 0; i < 2; i++) {
        fw_thread_join(&threads[i]);
    }
    assert_true(fw_log_drain());
    char expected[1024] = "";
    size_t length = 0;
    for (int i = 0; i < 20; i++) {
        length += (size_t)snprintf(expected + length, sizeof expected - length,
                                   "notice  alpha [turn] %d\n", i);
    }
    assert_text(expected);
}

static uint32_t wakes;
static void count_wake(void *context)
{
    assert_ptr_equal(context, &wakes);
    wakes++;
}

static void test_bell(void **state)
{
    (void)state;
    wakes = 0;
    start(1, false);
    fw_log_set_waker(count_wake, &wakes);
    FW_LOG(alpha, ERROR, "one");
    assert_int_equal(wakes, 0); /* Nobody asked. */
    assert_false(fw_log_arm()); /* There is one already. */
    fw_log_disarm();
    assert_true(fw_log_drain());
    assert_true(fw_log_arm());
    FW_LOG(alpha, ERROR, "two");
    FW_LOG(alpha, ERROR, "three");
    assert_int_equal(wakes, 1); /* Once is enough. */
    fw_log_disarm();
    assert_true(fw_log_drain());
    assert_true(fw_log_arm());
    assert_int_equal(fw_log_reopen(), 0); /* Also something to do. */
    assert_int_equal(wakes, 2);
    assert_false(fw_log_arm());
    fw_log_disarm();
    assert_false(fw_log_drain());
    fw_log_bell_rest();
    FW_LOG(alpha, ERROR, "four");
    assert_int_equal(wakes, 2); /* It will look by itself... */
    fw_log_set_policy(FW_LOG_DROP, FW_LOG_ERROR);
    (void)fill();
    assert_int_equal(wakes, 3); /* ...but should not wait until the ring is full. */
    fw_log_set_waker(NULL, NULL);
    assert_true(fw_log_drain());
    assert_true(fw_log_arm());
    FW_LOG(alpha, ERROR, "five");
    assert_int_equal(wakes, 3);
}

/* ---- Targets. ---- */

static char folder[] = "async_test.XXXXXX";

static void file_read(const char *name)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    text_length = fread(text, 1, TEXT_MAX - 1, file);
    text[text_length] = '\0';
    assert_int_equal(fclose(file), 0);
}

static int setup_folder(void **state)
{
    (void)setup(state);
    fw_log_writer_set_sink(NULL, NULL);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    return chdir(folder);
}

static int teardown_folder(void **state)
{
    (void)teardown(state);
    assert_int_equal(fw_log_set_file(NULL), 0);
    assert_int_equal(chdir(".."), 0);
    char names[][8] = {"log", "log.1", "log.2", "log.3", "moved"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(names); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        (void)unlink(name);
    }
    return rmdir(folder);
}

static void test_reopen(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_file("log"), 0);
    start(1, false);
    FW_LOG(alpha, ERROR, "one");
    assert_true(fw_log_drain());
    assert_int_equal(rename("log", "moved"), 0);
    FW_LOG(alpha, ERROR, "two");
    assert_int_equal(fw_log_reopen(), 0);
    assert_int_equal(access("log", F_OK), -1); /* The writer's business. */
    assert_true(fw_log_drain());
    file_read("moved");
    assert_text("error   alpha [async_test] one\n");
    file_read("log");
    assert_text("error   alpha [async_test] two\n");

    assert_int_equal(unlink("moved"), 0);
    assert_int_equal(rename("log", "moved"), 0);
    assert_int_equal(mkdir("log", 0700), 0);
    assert_int_equal(fw_log_reopen(), 0);
    FW_LOG(alpha, ERROR, "three");
    fw_log_stop();
    assert_int_equal(rmdir("log"), 0);
    file_read("moved"); /* What was open stays open, and says why. */
    assert_text("error   alpha [async_test] two\n"
                "error   log [async_test] cannot open log: Is a directory; name a file in it "
                "instead\n"
                "error   alpha [async_test] three\n");
}

static void test_rotation(void **state)
{
    (void)state;
    uint64_t rotations = fw_counter_get(&fw_log_metrics.rotations);
    uint64_t lost = fw_log_lost();
    assert_int_equal(fw_log_set_file("log"), 0);
    fw_log_set_rotation(210, 2);
    for (int i = 0; i < 13; i++) { /* Three lines of 67 bytes to a file. */
        if (i == 6) {
            start(1, false);
        }
        FW_LOG(alpha, ERROR, "number %04d", i);
        (void)fw_log_drain();
    }
    fw_log_stop();
    file_read("log");
    assert_text("error   alpha [async_test] number 0012\n");
    file_read("log.1");
    assert_text("error   alpha [async_test] number 0009\n"
                "error   alpha [async_test] number 0010\n"
                "error   alpha [async_test] number 0011\n");
    file_read("log.2");
    assert_text("error   alpha [async_test] number 0006\n"
                "error   alpha [async_test] number 0007\n"
                "error   alpha [async_test] number 0008\n");
    assert_int_equal(access("log.3", F_OK), -1);
    assert_int_equal(fw_counter_get(&fw_log_metrics.rotations), rotations + 4);

    /* A file that is there already counts from its size. */
    assert_int_equal(unlink("log.2"), 0);
    assert_int_equal(mkdir("log.2", 0700), 0); /* And now it cannot be moved. */
    FW_LOG(alpha, ERROR, "number %04d", 13);
    FW_LOG(alpha, ERROR, "number %04d", 14);
    FW_LOG(alpha, ERROR, "number %04d", 15);
    FW_LOG(alpha, ERROR, "number %04d", 16);
    file_read("log"); /* It said so once, and did not grow any more. */
    assert_int_equal(count_of("cannot rotate log.1: Is a directory"), 1);
    assert_int_equal(count_of("number 0014"), 1);
    assert_int_equal(count_of("number 0015") + count_of("number 0016"), 0);
    assert_int_equal(fw_log_lost(), lost + 2);
    assert_int_equal(rmdir("log.2"), 0);
    FW_LOG(alpha, ERROR, "number %04d", 17);
    file_read("log");
    assert_int_equal(count_of("number 0017"), 1);
}

static void test_full_disk(void **state)
{
    (void)state;
    uint64_t lost = fw_log_lost();
    uint64_t failed = fw_counter_get(&fw_log_metrics.failed);
    assert_int_equal(fw_log_set_file("/dev/full"), 0);
    start(1, false); /* The policy is to wait; but not for this. */
    for (int i = 0; i < 1000; i++) {
        FW_LOG(alpha, ERROR, "lost %d", i);
    }
    (void)fw_log_drain();
    assert_int_equal(fw_log_lost(), lost + 1000);
    assert_int_equal(fw_counter_get(&fw_log_metrics.failed), failed + 1000);
    assert_int_equal(fw_log_set_file("log"), 0);
    FW_LOG(alpha, ERROR, "found");
    fw_log_stop();
    file_read("log");
    assert_text("error   alpha [async_test] found\n");
}

static void test_metrics(void **state)
{
    (void)state;
    uint64_t lines = fw_counter_get(&fw_log_metrics.lines);
    uint64_t bytes = fw_counter_get(&fw_log_metrics.bytes);
    FW_LOG(alpha, ERROR, "one");
    start(1, false);
    FW_LOG(alpha, ERROR, "two");
    fw_log_stop();
    assert_int_equal(fw_counter_get(&fw_log_metrics.lines), lines + 2);
    assert_int_equal(fw_counter_get(&fw_log_metrics.bytes), bytes + text_length);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sync_async_sync, setup, teardown),
        cmocka_unit_test_setup_teardown(test_start_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_format, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory_for_a_site, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_to_the_last_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drop_is_told_in_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_target_that_takes_a_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_time_is_that_of_the_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_target, setup, teardown),
        cmocka_unit_test_setup_teardown(test_block, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drop_below, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rings_are_reused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_line_after_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_are_merged_by_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bell, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reopen, setup_folder, teardown_folder),
        cmocka_unit_test_setup_teardown(test_rotation, setup_folder, teardown_folder),
        cmocka_unit_test_setup_teardown(test_full_disk, setup_folder, teardown_folder),
        cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
