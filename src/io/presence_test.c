/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever makes, renames or takes away the file is noticed, whoever does so to another file
 * beside it changes nothing, and a folder that is not there is refused.
 * Method: a folder of the test's own and a real reactor; each change is waited for, never timed.
 */
#include "io/presence.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct fw_reactor *reactor;
static char folder[] = "/tmp/presence-XXXXXX";
static char file[sizeof folder + 16];
static char other[sizeof folder + 16];
static bool is_there, is_closed;

static void note(struct fw_presence *presence, bool present)
{
    (void)presence;
    is_there = present;
}

static void note_closed(struct fw_presence *presence)
{
    (void)presence;
    is_closed = true;
}

static void make(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static void wait_until(bool present)
{
    while (is_there != present) {
        (void)fw_reactor_poll(reactor, -1);
    }
}

static void test_coming_and_going(void **state)
{
    (void)state;
    struct fw_presence presence = {.changed = note, .closed = note_closed};
    struct fw_reason reason;
    assert_int_equal(fw_presence_open(&presence, reactor, file, &reason), 0);
    assert_false(fw_presence_look(&presence));
    for (int i = 0; i < 3; i++) {
        make(file);
        wait_until(true);
        make(other);
        assert_true(fw_presence_look(&presence));
        assert_int_equal(unlink(file), 0);
        wait_until(false);
        assert_int_equal(rename(other, file), 0);
        wait_until(true);
        assert_int_equal(rename(file, other), 0);
        wait_until(false);
        assert_int_equal(unlink(other), 0);
    }
    fw_presence_close(&presence);
    while (!is_closed) {
        (void)fw_reactor_poll(reactor, -1);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct fw_presence presence = {.changed = note, .closed = note_closed};
    struct fw_reason reason;
    char path[2 * FW_PRESENCE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/none/file", folder);
    assert_int_equal(fw_presence_open(&presence, reactor, path, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, path));
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(fw_presence_open(&presence, reactor, path, &reason), -ENAMETOOLONG);
}

static int set_up(void **state)
{
    (void)state;
    struct fw_reason reason;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/file", folder);
    (void)snprintf(other, sizeof other, "%s/other", folder);
    return fw_reactor_create(&reactor, &reason);
}

static int tear_down(void **state)
{
    (void)state;
    fw_reactor_destroy(reactor);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coming_and_going),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
