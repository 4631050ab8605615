/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the service manager hears exactly what it is told, at a path and at an abstract name, and
 * as often as it wants to hear that we live; where there is none nothing happens; one that does not
 * listen, and a variable that names no socket, are errors with a reason. No descriptor is left
 * behind. Method: the test binds the socket that $NOTIFY_SOCKET names, and looks what is in it.
 */
#include "io/notify.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/clock.h"

static struct fw_reason reason;
static char folder[] = "/tmp/fw-notify-XXXXXX";
static char path[64];

static void named_set(const char *name, const char *value)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is no other thread. */
    int rc = value != NULL ? setenv(name, value, 1) : unsetenv(name);
    assert_int_equal(rc, 0);
}

static void variable_set(const char *value)
{
    named_set("NOTIFY_SOCKET", value);
}

/* The manager: a socket at `name`, in the manager's notation. */
static int manager_open(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address.sun_path, name, length);
    if (name[0] == '@') {
        address.sun_path[0] = '\0';
    } else {
        length++;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)),
                     0);
    variable_set(name);
    return fd;
}

/* What has come, which is one datagram. */
static void manager_heard(int fd, char *text, size_t size)
{
    ssize_t length = recv(fd, text, size - 1, MSG_DONTWAIT);
    assert_true(length > 0);
    text[length] = '\0';
    char more;
    assert_int_equal(recv(fd, &more, 1, MSG_DONTWAIT), -1);
}

static void heard_at(const char *name)
{
    char text[128];
    int fd = manager_open(name);
    assert_int_equal(fw_notify(FW_NOTIFY_READY, &reason), 0);
    manager_heard(fd, text, sizeof text);
    assert_string_equal(text, "READY=1");
    assert_int_equal(close(fd), 0);
}

static void test_heard_at_a_path(void **state)
{
    (void)state;
    heard_at(path);
    assert_int_equal(unlink(path), 0);
}

static void test_heard_at_an_abstract_name(void **state)
{
    (void)state;
    char name[64];
    (void)snprintf(name, sizeof name, "@fw-notify-%d", (int)getpid());
    heard_at(name);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    variable_set(NULL);
    assert_int_equal(fw_notify(FW_NOTIFY_STOPPING, &reason), 0);
}

static void test_reloading_has_its_time(void **state)
{
    (void)state;
    char text[128];
    int fd = manager_open(path);
    int64_t before_us = fw_clock_now_ns() / 1000;
    assert_int_equal(fw_notify_reloading(&reason), 0);
    manager_heard(fd, text, sizeof text);
    static const char head[] = "RELOADING=1\nMONOTONIC_USEC=";
    assert_memory_equal(text, head, sizeof head - 1);
    int64_t at_us = strtoll(text + sizeof head - 1, NULL, 10);
    assert_in_range(at_us, before_us, fw_clock_now_ns() / 1000);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

static void test_how_often_it_wants_to_hear(void **state)
{
    (void)state;
    char own[32];
    (void)snprintf(own, sizeof own, "%d", (int)getpid());
    const struct {
        const char *time;
        const char *process;
        int64_t every_ns;
    } cases[] = {
        {NULL, NULL, 0},
        {"2000000", NULL, 1000000000},
        {"2000000", own, 1000000000},
        {"2000000", "1", 0}, /* The first process of all: not this one. */
        {"2000000", "", 1000000000},
        {"0", own, 0},
        {"", own, 0},
        {"soon", own, 0},
        {"-5", own, 0},
        {"99999999999999999999", own, 0},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        named_set("WATCHDOG_USEC", cases[i].time);
        named_set("WATCHDOG_PID", cases[i].process);
        assert_int_equal(fw_notify_alive_ns(), cases[i].every_ns);
    }
}

/* A manager that does not read does not hold us up. */
static void test_alive_does_not_wait(void **state)
{
    (void)state;
    char text[128];
    int fd = manager_open(path);
    assert_int_equal(fw_notify_alive(&reason), 0);
    manager_heard(fd, text, sizeof text);
    assert_string_equal(text, "WATCHDOG=1");
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(fw_notify_alive(&reason), 0);
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(fw_notify_alive(&reason), -ECONNREFUSED);
    assert_int_equal(unlink(path), 0);
}

static void test_what_cannot_be_told(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int error;
    } cases[] = {
        {"/nowhere/at/all", -ENOENT},
        {"relative", -EAFNOSUPPORT},
        {"vsock:2:1", -EAFNOSUPPORT},
        {"", -EAFNOSUPPORT},
        {"@", -EAFNOSUPPORT},
        {"/longer/than/a/path/of/a/socket/can/be/which/has/a/hundred/and/eight/bytes/with/the/"
         "zero/at/its/end/and/this",
         -ENAMETOOLONG},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        reason.text[0] = '\0';
        variable_set(cases[i].name);
        assert_int_equal(fw_notify(FW_NOTIFY_READY, &reason), cases[i].error);
        assert_non_null(strstr(reason.text, "NOTIFY_SOCKET"));
    }
}

static void test_no_descriptor_is_left(void **state)
{
    (void)state;
    int before = dup(0);
    assert_true(before >= 0 && close(before) == 0);
    variable_set("/nowhere/at/all");
    assert_int_equal(fw_notify(FW_NOTIFY_READY, &reason), -ENOENT);
    int after = dup(0);
    assert_int_equal(after, before);
    assert_int_equal(close(after), 0);
}

static int folder_make(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/manager", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heard_at_a_path),
        cmocka_unit_test(test_heard_at_an_abstract_name),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_reloading_has_its_time),
        cmocka_unit_test(test_how_often_it_wants_to_hear),
        cmocka_unit_test(test_alive_does_not_wait),
        cmocka_unit_test(test_what_cannot_be_told),
        cmocka_unit_test(test_no_descriptor_is_left),
    };
    return cmocka_run_group_tests_name("io/notify", tests, folder_make, folder_remove);
}
