/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a program that was built without an optional part says what it lacks and which command adds
 * it; and each stand-in for such a part compiles on machines that have the part.
 *
 * Method: link the stand-ins in place of the parts, in every build, and ask them for everything.
 */
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

#include "epoch/corosync.h"
#include "http/http.h"
#include "io/disk_file.h"
#include "io/hmac.h"
#include "io/reactor_backend.h"
#include "repl/secret.h"
#include "volume/lvm.h"
#include "volume/sanlock.h"

static void assert_absent(const struct fw_reason *reason, const char *library, const char *part)
{
    char lacks[100];
    char command[100];
    (void)snprintf(lacks, sizeof lacks, "built without %s; ", library);
    (void)snprintf(command, sizeof command, "'make packages GROUP=optional/%s && make'", part);
    if (strstr(reason->text, lacks) == NULL || strstr(reason->text, command) == NULL) {
        fail_msg("no \"%s\" or no \"%s\" in: %s", lacks, command, reason->text);
    }
}

static void test_corosync(void **state)
{
    (void)state;
    struct fw_group *group = NULL;
    struct fw_corosync_status status;
    struct fw_reason reason;
    const struct fw_corosync_options options = {.group_name = "cache"};
    assert_false(fw_corosync_is_built_in());
    assert_int_equal(fw_corosync_open(&group, NULL, &options, &reason), -EOPNOTSUPP);
    assert_absent(&reason, "Corosync", "corosync");
    assert_non_null(strstr(reason.text, "cache"));
    expect_assert_failure(fw_corosync_status(group, &status));
    expect_assert_failure(fw_corosync_close(group, NULL, NULL));
}

static void test_http(void **state)
{
    (void)state;
    struct fw_http *http = NULL;
    struct fw_reason reason;
    const struct fw_http_shown shown = {.metrics = NULL};
    assert_int_equal(fw_http_open(&http, "127.0.0.1:80", &shown, &reason), -ENOSYS);
    assert_absent(&reason, "libmicrohttpd", "http");
    assert_non_null(strstr(reason.text, "127.0.0.1:80"));
    fw_http_close(NULL);
    expect_assert_failure(fw_http_address(http));
}

static void test_io_uring(void **state)
{
    (void)state;
    struct fw_disk *disk;
    struct fw_reactor *reactor;
    struct fw_reason reason;
    const struct fw_disk_options options = {.path = "/dev/sdx"};
    assert_int_equal(fw_disk_uring_open(&disk, &options, &reason), -ENOSYS);
    assert_absent(&reason, "io_uring", "io_uring");
    assert_non_null(strstr(reason.text, "/dev/sdx"));
    assert_int_equal(fw_reactor_uring.create(&reactor, &reason), -ENOSYS);
    assert_absent(&reason, "io_uring", "io_uring");
}

static void test_secrets(void **state)
{
    (void)state;
    struct fw_repl_secret secret;
    struct fw_reason reason;
    char path[] = "/tmp/fairway-absent-XXXXXX";
    char mac[FW_HMAC_SIZE] = "";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "sixteen letters!", FW_REPL_SECRET_MIN), FW_REPL_SECRET_MIN);
    (void)close(file);
    int rc = fw_repl_secret_read(&secret, path, &reason);
    (void)unlink(path);
    assert_int_equal(rc, -EOPNOTSUPP);
    assert_absent(&reason, "libgcrypt", "secrets");
    assert_non_null(strstr(reason.text, path));
    assert_false(fw_hmac_is_equal(mac, mac)); /* Nothing proves anything. */
}

static void test_lvm(void **state)
{
    (void)state;
    struct fw_volume_lvm lvm;
    struct fw_reason reason;
    const struct fw_volume_lvm_adopt adopt = {.path = "/dev/sdx"};
    assert_int_equal(fw_volume_lvm_find(NULL, &lvm, &reason), -ENOENT);
    assert_absent(&reason, "LVM", "lvm");
    assert_int_equal(fw_volume_lvm_adopt(&adopt, &reason), -ENOSYS);
    assert_absent(&reason, "LVM", "lvm");
    assert_int_equal(fw_volume_lvm_publish("/dev/sdx", NULL, NULL, &reason), -ENOSYS);
    assert_absent(&reason, "LVM", "lvm");
}

static void test_sanlock(void **state)
{
    (void)state;
    int held = -1;
    struct fw_reason reason;
    assert_int_equal(fw_volume_sanlock_take("space:name", &held, &reason), -ENOSYS);
    assert_absent(&reason, "sanlock", "sanlock");
    assert_non_null(strstr(reason.text, "space:name"));
    fw_volume_sanlock_drop(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corosync), cmocka_unit_test(test_http),
        cmocka_unit_test(test_io_uring), cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_lvm),      cmocka_unit_test(test_sanlock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
