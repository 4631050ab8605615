/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: other programs get what they were given and nothing else, and we get what they said.
 * Method: small programs that every system has, told to print, to fail, to talk a lot, to stay.
 */
#include "io/spawn.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/file.h"

static struct fw_reason reason;

static int shell(const char *script, char *output, size_t size)
{
    const char *const arguments[] = {"sh", "-c", script, NULL};
    return fw_spawn_run(arguments, output, size, &reason);
}

static void test_run(void **state)
{
    (void)state;
    char output[64];
    const char *const echo[] = {"echo", "a  b", "$HOME", NULL};
    assert_int_equal(fw_spawn_run(echo, output, sizeof output, &reason), 0);
    assert_string_equal(output, "a  b $HOME\n");
    assert_int_equal(fw_spawn_run(echo, output, 5, &reason), 0); /* Cut. */
    assert_string_equal(output, "a  b");
    assert_int_equal(shell("cat; echo $LC_ALL; ls /proc/self/fd | wc -l", output, sizeof output),
                     0);
    assert_string_equal(output, "C\n4\n"); /* No input; three descriptors, and that of ls. */
    assert_int_equal(shell("exit 0", NULL, 0), 0);
}

static void test_fail(void **state)
{
    (void)state;
    const char *const nothing[] = {"there-is-no-such-program", NULL};
    assert_int_equal(fw_spawn_run(nothing, NULL, 0, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "there-is-no-such-program"));
    assert_int_equal(shell("echo first >&2; echo '  second' >&2; exit 3", NULL, 0), -ECHILD);
    assert_string_equal(reason.text, "sh: second");
    assert_int_equal(shell("kill -9 $$", NULL, 0), -ECHILD);
    assert_string_equal(reason.text, "sh failed");
}

/* More than a pipe holds, to both. */
static void test_much(void **state)
{
    (void)state;
    enum { MUCH = 300000 };
    char *output = malloc(MUCH + 1);
    assert_non_null(output);
    assert_int_equal(shell("head -c 300000 /dev/zero | tr '\\0' x >&2; "
                           "head -c 300000 /dev/zero | tr '\\0' y",
                           output, MUCH + 1),
                     0);
    assert_int_equal(strlen(output), MUCH);
    assert_int_equal(strspn(output, "y"), MUCH);
    free(output);
}

static void test_start(void **state)
{
    (void)state;
    char log[] = "/tmp/fairway-spawn-XXXXXX";
    char *text;
    size_t size;
    pid_t child;
    int fd = mkstemp(log);
    assert_true(fd >= 0);
    (void)close(fd);
    const char *const ends[] = {"sh", "-c", "echo out; echo err >&2; exit 1", NULL};
    assert_int_equal(fw_spawn_start(ends, log, &child, &reason), 0);
    assert_int_equal(fw_spawn_wait(child), -ECHILD);
    const char *const stays[] = {"sh", "-c", "read line < /dev/zero", NULL};
    assert_int_equal(fw_spawn_start(stays, log, &child, &reason), 0);
    assert_true(fw_spawn_is_alive(child));
    assert_int_equal(getsid(child) == getsid(0), 0);
    assert_int_equal(fw_spawn_signal(child, SIGKILL), 0);
    while (fw_spawn_is_alive(child)) { /* It has ended before somebody asks how. */
    }
    assert_int_equal(fw_spawn_wait(child), -ECHILD);
    assert_false(fw_spawn_is_alive(child));
    assert_int_equal(fw_spawn_signal(child, SIGKILL), -ESRCH);
    assert_int_equal(fw_file_read(log, 100, &text, &size, &reason), 0);
    assert_string_equal(text, "out\nerr\n");
    free(text);
    (void)unlink(log);
    assert_int_equal(fw_spawn_start(ends, "/nowhere/log", &child, &reason), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_much),
        cmocka_unit_test(test_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
