/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a call becomes exactly one well-formed line or nothing at all, whatever is in it and
 * whoever else logs; trouble with the target is counted and never felt by the caller.
 * Method: log into files of a folder made for each test and read them back. Threads race for one
 * file, and each line must come out whole and in its thread's order. /dev/full is the full disk.
 */
#include <fairway/log.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/thread.h"
#include "log/options.h"

FW_LOG_MODULE(alpha);
FW_LOG_MODULE(beta);

enum { THREADS = 4, LINES = 500, PATH_SIZE = 128, TEXT_MAX = 1 << 20 };

static char folder[PATH_SIZE / 2];
static char path[PATH_SIZE];
static char path_moved[PATH_SIZE];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "log_test.XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/log", folder);
    (void)snprintf(path_moved, sizeof path_moved, "%s/log.1", folder);
    assert_int_equal(fw_log_set_level(NULL, FW_LOG_NOTICE), 0);
    assert_int_equal(fw_log_set_file(path), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_file(NULL), 0);
    (void)unlink(path);
    (void)unlink(path_moved);
    return rmdir(folder);
}

/* The file's text, to be freed. */
static char *text_of(const char *name)
{
    char *text = calloc(1, TEXT_MAX);
    assert_non_null(text);
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, TEXT_MAX - 1, file);
    assert_true(length < TEXT_MAX - 1);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* Compares the lines without the time that stands before each: "LEVEL MODULE [THREAD] ...". */
static void assert_lines(const char *name, const char *expected)
{
    char *text = text_of(name);
    char *without_times = calloc(1, TEXT_MAX);
    assert_non_null(without_times);
    size_t length = 0;
    for (const char *line = text; *line != '\0';) {
        int year, month, day, hour, minute, second, micros, consumed = 0;
        int count = sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ %n", &year, &month, &day, &hour,
                           &minute, &second, &micros, &consumed);
        assert_int_equal(count, 7);
        assert_int_equal(consumed, strlen("2026-01-01T00:00:00.000000Z "));
        line += consumed;
        size_t rest = strcspn(line, "\n") + 1;
        memcpy(without_times + length, line, rest);
        length += rest;
        line += rest;
    }
    assert_string_equal(without_times, expected);
    free(without_times);
    free(text);
}

static int evaluated;
static int evaluate(void)
{
    evaluated++;
    return evaluated;
}

/* Somebody else asks for more: up to a limit, and never for less than the operator. */
static void test_raised(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_level(NULL, FW_LOG_WARNING), 0);
    assert_int_equal(fw_log_set_level("alpha", FW_LOG_DEBUG), 0);
    fw_log_raise(FW_LOG_TRACE);
    assert_false(FW_LOG_IS_ON(beta, NOTICE)); /* The limit is that of errors. */
    fw_log_set_raise_limit(FW_LOG_INFO);
    fw_log_raise(FW_LOG_TRACE);
    assert_true(FW_LOG_IS_ON(beta, INFO));
    assert_false(FW_LOG_IS_ON(beta, DEBUG));
    assert_true(FW_LOG_IS_ON(alpha, DEBUG));
    assert_false(FW_LOG_IS_ON(alpha, TRACE));
    fw_log_raise(FW_LOG_ERROR);
    assert_true(FW_LOG_IS_ON(beta, WARNING));
    assert_false(FW_LOG_IS_ON(beta, NOTICE));
    assert_true(FW_LOG_IS_ON(alpha, DEBUG));
    fw_log_set_raise_limit(FW_LOG_ERROR);
}

static void test_levels(void **state)
{
    (void)state;
    evaluated = 0;
    FW_LOG(alpha, ERROR, "one %d", evaluate());
    FW_LOG(alpha, NOTICE, "two");
    FW_LOG(alpha, INFO, "not %d", evaluate());
    assert_int_equal(evaluated, 1);
    assert_true(FW_LOG_IS_ON(alpha, NOTICE));
    assert_false(FW_LOG_IS_ON(alpha, INFO));

    assert_int_equal(fw_log_set_level("alpha", FW_LOG_TRACE), 0);
    FW_LOG(alpha, TRACE, "three %s", "a");
    FW_LOG(beta, INFO, "not %d", evaluate());
    assert_int_equal(fw_log_set_level(NULL, FW_LOG_ERROR), 0);
    FW_LOG(alpha, WARNING, "not %d", evaluate());
    FW_LOG(beta, WARNING, "not %d", evaluate());
    FW_LOG(beta, ERROR, "four");
    assert_int_equal(evaluated, 1);
    assert_int_equal(fw_log_set_level("gamma", FW_LOG_TRACE), -ENOENT);
    assert_lines(path, "error   alpha [log_test] one 1\n"
                       "notice  alpha [log_test] two\n"
                       "trace   alpha [log_test] three a\n"
                       "error   beta [log_test] four\n");
}

static struct fw_log_module fw_log_module_late = {.name = "late", .level = FW_LOG_TRACE};

static void test_module_that_comes_late(void **state)
{
    (void)state;
    assert_int_equal(fw_log_set_level(NULL, FW_LOG_WARNING), 0);
    fw_log_register(&fw_log_module_late);
    assert_true(FW_LOG_IS_ON(late, WARNING));
    assert_false(FW_LOG_IS_ON(late, NOTICE));
    assert_int_equal(fw_log_set_level("late", FW_LOG_DEBUG), 0);
    assert_true(FW_LOG_IS_ON(late, DEBUG));
}

static void test_one_call_is_one_line(void **state)
{
    (void)state;
    FW_LOG(alpha, ERROR, "a\nb\tc\x1b[31m\x7f%s", "\xc3\xa4\r\x01");
    FW_LOG(alpha, ERROR, "%s", "");
    assert_lines(path, "error   alpha [log_test] a\\nb\\tc\\x1b[31m\\x7f\xc3\xa4\\x0d\\x01\n"
                       "error   alpha [log_test] \n");
}

static void test_long_message(void **state)
{
    (void)state;
    char message[FW_LOG_MESSAGE_MAX + 2];
    char expected[FW_LOG_MESSAGE_MAX * 12];
    size_t length = 0;
    for (size_t extra = 0; extra < 2; extra++) { /* Just fits, one too long. */
        memset(message, '\a', sizeof message);   /* The longest escape there is. */
        message[FW_LOG_MESSAGE_MAX + extra] = '\0';
        FW_LOG(alpha, ERROR, "%s", message);
        length += (size_t)snprintf(expected + length, sizeof expected - length,
                                   "error   alpha [log_test] ");
        for (size_t i = 0; i < FW_LOG_MESSAGE_MAX; i++) {
            length += (size_t)snprintf(expected + length, sizeof expected - length, "\\x07");
        }
        length += (size_t)snprintf(expected + length, sizeof expected - length, "%s\n",
                                   extra > 0 ? "..." : "");
    }
    assert_lines(path, expected);
}

static void test_reopen(void **state)
{
    (void)state;
    FW_LOG(alpha, ERROR, "one");
    assert_int_equal(rename(path, path_moved), 0);
    FW_LOG(alpha, ERROR, "two");
    assert_int_equal(fw_log_reopen(), 0);
    FW_LOG(alpha, ERROR, "three");
    assert_lines(path_moved, "error   alpha [log_test] one\nerror   alpha [log_test] two\n");
    assert_lines(path, "error   alpha [log_test] three\n");
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0007, 0); /* Nothing for everyone. */

    /* A file that is there is added to. */
    assert_int_equal(fw_log_set_file(path_moved), 0);
    FW_LOG(alpha, ERROR, "four");
    assert_lines(path_moved, "error   alpha [log_test] one\nerror   alpha [log_test] two\n"
                             "error   alpha [log_test] four\n");
}

static void test_reopen_that_fails_keeps_the_file(void **state)
{
    (void)state;
    assert_int_equal(rename(path, path_moved), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(fw_log_reopen(), -EISDIR);
    FW_LOG(alpha, ERROR, "one");
    assert_lines(path_moved, "error   alpha [log_test] one\n");
    assert_int_equal(fw_log_set_file("/nonexistent/log"), -ENOENT);
    FW_LOG(alpha, ERROR, "two");
    assert_lines(path_moved, "error   alpha [log_test] one\nerror   alpha [log_test] two\n");
    assert_int_equal(rmdir(path), 0);
}

/* A socket that keeps messages apart stands for stderr: each line must come as one of them. */
static void test_stderr_gets_one_write_per_line(void **state)
{
    (void)state;
    int sockets[2];
    int stderr_before = dup(STDERR_FILENO);
    assert_true(stderr_before >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(fw_log_set_file(NULL), 0);
    assert_int_equal(dup2(sockets[0], STDERR_FILENO), STDERR_FILENO);
    FW_LOG(alpha, ERROR, "one");
    assert_int_equal(fw_log_reopen(), 0); /* Does nothing. */
    FW_LOG(alpha, ERROR, "%0*d", FW_LOG_MESSAGE_MAX, 2);
    assert_int_equal(dup2(stderr_before, STDERR_FILENO), STDERR_FILENO);

    int fd = open(path_moved, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) {
        char line[2 * FW_LOG_MESSAGE_MAX];
        ssize_t length = recv(sockets[1], line, sizeof line, MSG_DONTWAIT);
        assert_true(length > 0 && line[length - 1] == '\n');
        assert_int_equal(write(fd, line, (size_t)length), length);
    }
    char expected[2 * FW_LOG_MESSAGE_MAX];
    (void)snprintf(expected, sizeof expected,
                   "error   alpha [log_test] one\nerror   alpha [log_test] %0*d\n",
                   FW_LOG_MESSAGE_MAX, 2);
    assert_lines(path_moved, expected);
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(stderr_before), 0);
    assert_int_equal(close(sockets[0]), 0);
    assert_int_equal(close(sockets[1]), 0);
}

static void test_lost_lines_are_counted(void **state)
{
    (void)state;
    uint64_t before = fw_log_lost();
    FW_LOG(alpha, ERROR, "one");
    assert_int_equal(fw_log_lost(), before);
    assert_int_equal(fw_log_set_file("/dev/full"), 0);
    errno = EXDEV;
    FW_LOG(alpha, ERROR, "lost");
    FW_LOG(alpha, ERROR, "lost");
    assert_int_equal(errno, EXDEV);
    assert_int_equal(fw_log_lost(), before + 2);
    assert_int_equal(fw_log_set_file(path), 0);
    FW_LOG(alpha, ERROR, "two");
    assert_int_equal(fw_log_lost(), before + 2);
    assert_lines(path, "error   alpha [log_test] one\nerror   alpha [log_test] two\n");

    int stderr_before = dup(STDERR_FILENO);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(stderr_before >= 0 && full >= 0);
    assert_int_equal(fw_log_set_file(NULL), 0);
    assert_int_equal(dup2(full, STDERR_FILENO), STDERR_FILENO);
    FW_LOG(alpha, ERROR, "lost");
    assert_int_equal(dup2(stderr_before, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(fw_log_lost(), before + 3);
    assert_int_equal(close(full), 0);
    assert_int_equal(close(stderr_before), 0);
}

static void racer_run(void *argument)
{
    const int *id = argument;
    for (int i = 0; i < LINES; i++) {
        FW_LOG(beta, NOTICE, "%d %d %0*d", *id, i, 40 + i % 50, 0);
        (void)FW_LOG_IS_ON(alpha, DEBUG); /* While it changes. */
    }
}

static void test_threads(void **state)
{
    (void)state;
    struct fw_thread threads[THREADS];
    int ids[THREADS];
    int expected[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        char name[FW_THREAD_NAME_SIZE];
        (void)snprintf(name, sizeof name, "racer-%d", i);
        ids[i] = i;
        assert_int_equal(fw_thread_create(&threads[i], name, racer_run, &ids[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fw_log_set_level("alpha", i % 2 == 0 ? FW_LOG_DEBUG : FW_LOG_ERROR), 0);
        assert_int_equal(fw_log_reopen(), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        fw_thread_join(&threads[i]);
    }

    char *text = text_of(path);
    int lines = 0;
    for (char *line = text; *line != '\0'; lines++) {
        int name, id, sequence, zeros, consumed = 0;
        int count =
            sscanf(line, "%*s notice  beta [racer-%d] %d %d %n", &name, &id, &sequence, &consumed);
        assert_int_equal(count, 3);
        assert_int_equal(name, id);
        assert_int_equal(sequence, expected[id]);
        expected[id]++;
        line += consumed;
        zeros = (int)strspn(line, "0");
        assert_int_equal(zeros, 40 + sequence % 50);
        assert_int_equal(line[zeros], '\n');
        line += zeros + 1;
    }
    assert_int_equal(lines, THREADS * LINES);
    free(text);
}

static void test_configure(void **state)
{
    (void)state;
    struct fw_reason reason;
    const char *items[] = {"alpha=trace", "beta=error"};
    const struct fw_log_config config = {
        .level = FW_LOG_INFO, .module_level = {.items = items, .count = 2}, .file = path_moved};
    assert_int_equal(fw_log_configure(&config, &reason), 0);
    assert_true(FW_LOG_IS_ON(alpha, TRACE));
    assert_false(FW_LOG_IS_ON(beta, WARNING));
    FW_LOG(alpha, TRACE, "one");
    assert_lines(path_moved, "trace   alpha [log_test] one\n");
    assert_int_equal(fw_log_set_level("beta", FW_LOG_INFO), 0);

    static const struct {
        const char *item;
        const char *reason;
    } cases[] = {
        {"alpa=info", "--log-module-level: there is no module 'alpa'; did you mean 'alpha'?"},
        {"zzz=info", "--log-module-level: there is no module 'zzz'"},
        {"beta",
         "--log-module-level: 'beta' has no known level; give MODULE=LEVEL with one of error, "
         "warning, notice, info, debug, trace"},
        {"beta=dbug", "--log-module-level: 'beta=dbug' has no known level, did you mean debug; "
                      "give MODULE=LEVEL "
                      "with one of error, warning, notice, info, debug, trace"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        const char *some[] = {"alpha=error", cases[i].item};
        const struct fw_log_config bad = {.level = FW_LOG_ERROR,
                                          .module_level = {.items = some, .count = 2}};
        assert_int_equal(fw_log_configure(&bad, &reason), -EINVAL);
        assert_string_equal(reason.text, cases[i].reason);
    }
    const struct fw_log_config no_file = {.level = FW_LOG_ERROR, .file = "/nonexistent/log"};
    assert_int_equal(fw_log_configure(&no_file, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "/nonexistent/log"));
    /* None of the mistakes changed anything. */
    assert_true(FW_LOG_IS_ON(alpha, TRACE));
    assert_true(FW_LOG_IS_ON(beta, INFO));
    FW_LOG(alpha, TRACE, "two");
    assert_lines(path_moved, "trace   alpha [log_test] one\ntrace   alpha [log_test] two\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_raised, setup, teardown),
        cmocka_unit_test_setup_teardown(test_module_that_comes_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_call_is_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_message, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reopen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reopen_that_fails_keeps_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stderr_gets_one_write_per_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_lines_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_configure, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
