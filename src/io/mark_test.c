/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a mark finds the process that made it while that lives, and no other, whatever the file
 * says and however the process ended. Method: children that make marks and are killed; marks whose
 * process is gone and whose number is that of another.
 */
#include "io/mark.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/clock.h"
#include "io/file.h"

static char folder[] = "/tmp/fw-mark-XXXXXX";
static char path[64];

static int begin(void **state)
{
    (void)state;
    memset(folder + sizeof folder - 7, 'X', 6);
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/mark", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

/* A child that makes the mark and then waits for its end. */
static pid_t child_start(const char *text)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int rc = fw_mark_make(path, text, NULL);
        if (rc != 0 || write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return child;
}

static void test_found_while_it_lives(void **state)
{
    (void)state;
    struct fw_mark mark;
    assert_int_equal(fw_mark_find(path, &mark), -ENOENT);
    pid_t child = child_start("and more");
    assert_int_equal(fw_mark_find(path, &mark), 0);
    assert_int_equal(mark.process, child);
    assert_string_equal(mark.text, "and more");
    assert_false(fw_mark_wait(&mark, 0));
    assert_int_equal(fw_mark_signal(&mark, SIGTERM), 0);
    assert_true(fw_mark_wait(&mark, INT64_C(60) * FW_NS_PER_S));
    struct fw_mark again;
    assert_int_equal(fw_mark_find(path, &again), -ESRCH); /* Before anybody has asked for it. */
    assert_int_equal(again.process, child);
    assert_string_equal(again.text, "and more");
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(fw_mark_signal(&mark, SIGTERM), -ESRCH);
    fw_mark_close(&mark);
}

static void test_another_has_the_number(void **state)
{
    (void)state;
    struct fw_mark mark;
    char text[32];
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    assert_int_equal(fw_file_replace(path, text, (size_t)length, 0600, NULL), 0);
    assert_int_equal(fw_mark_find(path, &mark), -ESRCH);
    assert_int_equal(mark.fd, -1);
    assert_int_equal(fw_file_replace(path, "nonsense\n", 9, 0600, NULL), 0);
    assert_int_equal(fw_mark_find(path, &mark), -ESRCH);
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    struct fw_mark first, second;
    pid_t child = child_start("");
    assert_int_equal(fw_mark_find(path, &first), 0);
    assert_string_equal(first.text, "");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    child = child_start("");
    assert_int_equal(fw_mark_find(path, &second), 0);
    assert_int_equal(second.process, child);
    assert_true(first.id != second.id && first.id != 0 && second.id != 0);
    fw_mark_close(&first);
    assert_int_equal(fw_mark_signal(&second, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    fw_mark_close(&second);
}

static void test_refused(void **state)
{
    (void)state;
    struct fw_reason reason = {.text = ""};
    assert_int_equal(fw_mark_make("/no/such/folder/mark", "", &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "/no/such/folder/mark"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_found_while_it_lives, begin, end),
        cmocka_unit_test_setup_teardown(test_another_has_the_number, begin, end),
        cmocka_unit_test_setup_teardown(test_one_after_the_other, begin, end),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
