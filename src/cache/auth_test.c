/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: those whose line is in the file get in with their password and nobody else does; a file
 * that cannot be read as meant is refused with its name and line, and without what is in it.
 * Method: files are written and loaded; users and passwords at and beyond each limit are tried.
 */
#include "cache/auth.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/fairway-auth-test-XXXXXX";
static struct fw_auth *auth;
static struct fw_reason reason;

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static int load_bytes(const char *contents, size_t length)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(contents, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    auth = NULL;
    reason.text[0] = '\0';
    return fw_auth_load(&auth, path, &reason);
}

static int load(const char *contents)
{
    return load_bytes(contents, strlen(contents));
}

static bool check(const char *user, const char *password)
{
    return fw_auth_check(auth, user, strlen(user), password, strlen(password));
}

static void test_check(void **state)
{
    (void)state;
    assert_int_equal(load("foo:bar\nx:y:z w\nfoo:baz\nlast:one"), 0);
    assert_true(check("foo", "bar"));
    assert_true(check("foo", "baz"));
    assert_true(check("x", "y:z w"));
    assert_true(check("last", "one"));
    assert_false(check("foo", "ba"));
    assert_false(check("foo", "bar2"));
    assert_false(check("foo", "BAR"));
    assert_false(check("fo", "bar"));
    assert_false(check("bar", "foo"));
    assert_false(check("x", "y"));
    assert_false(check("", ""));
    assert_false(check("foo:bar", ""));
    /* A zero byte is a byte: it does not end anything. */
    assert_false(fw_auth_check(auth, "foo\0", 4, "bar", 3));
    assert_false(fw_auth_check(auth, "foo", 3, "bar\0", 4));
    fw_auth_destroy(auth);
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(load(""), 0);
    assert_false(check("", ""));
    fw_auth_destroy(auth);
    assert_int_equal(load(":\n"), 0); /* Odd, but said so. */
    assert_true(check("", ""));
    assert_false(check("a", ""));
    fw_auth_destroy(auth);
    fw_auth_destroy(NULL);
}

static void expect_refused(const char *contents, int error, const char *words)
{
    assert_int_equal(load(contents), error);
    assert_null(auth);
    assert_non_null(strstr(reason.text, words));
    assert_non_null(strstr(reason.text, path));
    assert_null(strstr(reason.text, "secret"));
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused("secret\n", -EINVAL, "line 1");
    expect_refused("a:secret\nsecret\nb:c\n", -EINVAL, "line 2");
    expect_refused("a:secret\n\nb:c\n", -EINVAL, "line 2");
    expect_refused("a:secret\r\n", -EINVAL, "carriage return");
    assert_int_equal(fw_auth_load(&auth, "/nonexistent/passwords", &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "/nonexistent/passwords"));
    /* The reason may be left out. */
    assert_int_equal(fw_auth_load(&auth, "/nonexistent/passwords", NULL), -ENOENT);
}

static void test_limits(void **state)
{
    (void)state;
    char line[FW_AUTH_LINE_MAX + 3];
    memset(line, 'p', sizeof line);
    memcpy(line, "u:", 2);
    line[FW_AUTH_LINE_MAX] = '\n';
    assert_int_equal(load_bytes(line, FW_AUTH_LINE_MAX + 1), 0);
    assert_true(fw_auth_check(auth, "u", 1, line + 2, FW_AUTH_LINE_MAX - 2));
    assert_false(fw_auth_check(auth, "u", 1, line + 2, FW_AUTH_LINE_MAX - 3));
    assert_false(fw_auth_check(auth, "u", 1, line, FW_AUTH_LINE_MAX + 1));
    assert_false(fw_auth_check(auth, line, FW_AUTH_LINE_MAX + 1, "p", 1));
    fw_auth_destroy(auth);
    line[FW_AUTH_LINE_MAX] = 'p';
    line[FW_AUTH_LINE_MAX + 1] = '\n';
    assert_int_equal(load_bytes(line, FW_AUTH_LINE_MAX + 2), -EINVAL);
    assert_non_null(strstr(reason.text, "more than 255"));

    static char lines[(FW_AUTH_ENTRIES_MAX + 1) * 8 + 1];
    for (size_t i = 0; i <= FW_AUTH_ENTRIES_MAX; i++) {
        (void)snprintf(lines + 8 * i, 9, "u%04zu:p\n", i);
    }
    assert_int_equal(load_bytes(lines, sizeof lines - 1), -E2BIG);
    assert_int_equal(load_bytes(lines, sizeof lines - 1 - 8), 0);
    assert_true(check("u0000", "p"));
    assert_true(check("u1023", "p"));
    assert_false(check("u1024", "p"));
    fw_auth_destroy(auth);

    /* As many lines as there may be, each as long as it may be, and one byte more. */
    enum { LINE = FW_AUTH_LINE_MAX + 1 };
    static char full[FW_AUTH_ENTRIES_MAX * LINE + 1];
    memset(full, 'p', sizeof full);
    for (size_t i = 0; i < FW_AUTH_ENTRIES_MAX; i++) {
        (void)snprintf(full + LINE * i, 7, "u%04zu:", i);
        full[LINE * i + 6] = 'p';
        full[LINE * i + LINE - 1] = '\n';
    }
    assert_int_equal(load_bytes(full, sizeof full - 1), 0);
    assert_true(fw_auth_check(auth, "u1023", 5, full + 6, FW_AUTH_LINE_MAX - 6));
    fw_auth_destroy(auth);
    full[sizeof full - 1] = '\n';
    assert_int_equal(load_bytes(full, sizeof full), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
