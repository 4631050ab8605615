/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the quota that holds for a process is found, wherever it is set and however the hierarchy
 * is mounted. Method: a folder that looks like the root of a system, with files of /proc and of the
 * hierarchy as kernels write them.
 */
#include "io/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static char folder[] = "/tmp/fw-cgroup-XXXXXX";

/* From the outside in; files under each are made by the tests. */
static const char *const folders[] = {
    "/proc",
    "/proc/self",
    "/sys",
    "/sys/fs",
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/pod",
    "/sys/fs/cgroup/pod/box",
    "/other",
};
static const char *const files[] = {
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/pod/cpu.max",
    "/sys/fs/cgroup/pod/box/cpu.max",
    "/other/cpu.max",
    "/sys/fs/cpu.max",
    "/other/cpu.ma",
    "/other/cpu.m",
};

static char *path_of(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s%s", folder, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(folders); i++) {
        if (mkdir(path_of(folders[i]), 0700) != 0) {
            return -1;
        }
    }
    return 0;
}

static int files_remove(void **state)
{
    (void)state;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(files); i++) {
        if (unlink(path_of(files[i])) != 0 && errno != ENOENT) {
            return -1;
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = FW_ARRAY_LENGTH(folders); i > 0; i--) {
        if (rmdir(path_of(folders[i - 1])) != 0) {
            return -1;
        }
    }
    return rmdir(folder);
}

static void file_make(const char *name, const char *contents)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(contents, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A process in /pod/box of a hierarchy mounted where systemd mounts it. */
static void system_make(void)
{
    file_make("/proc/self/cgroup", "3:cpuset:/wrong\n0::/pod/box\n");
    file_make("/proc/self/mountinfo",
              "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
              "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
}

static void test_smallest_counts(void **state)
{
    (void)state;
    system_make();
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 0);
    file_make("/sys/fs/cgroup/pod/box/cpu.max", "250000 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 2500);
    file_make("/sys/fs/cgroup/pod/cpu.max", "249900 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 2499);
    file_make("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 1500);
    file_make("/sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 1500);
    file_make("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 0);
    file_make("/sys/fs/cgroup/cpu.max", "1000 3000\n"); /* Rounded up. */
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 334);
    file_make("/sys/fs/cpu.max", "1 1000\n"); /* Outside of the hierarchy, and so no quota. */
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 334);
}

/* In a namespace of its own the process sees itself at the root. */
static void test_namespace(void **state)
{
    (void)state;
    system_make();
    file_make("/proc/self/cgroup", "0::/\n");
    file_make("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    file_make("/sys/fs/cgroup/pod/cpu.max", "1 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 500);
}

/* In a container without a namespace only its own part is mounted, somewhere. */
static void test_part_mounted(void **state)
{
    (void)state;
    file_make("/proc/self/cgroup", "0::/runtime/box\n");
    file_make("/proc/self/mountinfo",
              "29 24 0:26 /runtime/bo /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
              "30 24 0:26 /runtime/box /other ro,nosuid master:9 - cgroup2 cgroup ro\n");
    file_make("/sys/fs/cgroup/cpu.max", "1 100000\n");
    file_make("/other/cpu.max", "400000 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 4000);
}

static void test_nothing_to_find(void **state)
{
    (void)state;
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 0); /* No /proc. */
    system_make();
    file_make("/proc/self/cgroup", "2:cpu,cpuacct:/\n");
    file_make("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 0); /* Version 1 alone. */
    system_make();
    file_make("/proc/self/mountinfo", "30 - cgroup2 \n\n22 1 8:1 / / rw - ext4 x rw\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 0); /* Not mounted. */
}

static void test_nonsense(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "\n",
        "100000\n",
        "100000 \n",
        "100000 0\n",
        "0 100000\n",
        "x 100000\n",
        "100000 x\n",
        "100000x 100000\n",
        "9007199254740993 100000\n",
        "100000 9007199254740993\n",
        "99999999999999999999 100000\n",
    };
    system_make();
    for (size_t i = 0; i < FW_ARRAY_LENGTH(texts); i++) {
        file_make("/sys/fs/cgroup/cpu.max", texts[i]);
        assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 0);
    }
    file_make("/sys/fs/cgroup/cpu.max", "9007199254740992 1\n");
    assert_true(fw_cgroup_cpu_quota_milli(folder) == UINT32_MAX);
    file_make("/sys/fs/cgroup/cpu.max", "4294967294 1000\n");
    assert_true(fw_cgroup_cpu_quota_milli(folder) == UINT32_MAX - 1);
    file_make("/sys/fs/cgroup/cpu.max", "1 1\n");
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 1000);
}

/* Paths that are too long for the system are no reason to read past their end. */
static void test_long_paths(void **state)
{
    (void)state;
    enum { TEXT_SIZE = 2 * PATH_MAX };
    char *text = malloc(TEXT_SIZE);
    assert_non_null(text);
    system_make();
    file_make("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    /* The longest group that fits, one more, and one whose file does not fit. */
    for (int length = PATH_MAX - 40; length < PATH_MAX + 2; length++) {
        (void)snprintf(text, TEXT_SIZE, "0::/%0*d\n", length - 1, 0);
        file_make("/proc/self/cgroup", text);
        uint32_t quota = fw_cgroup_cpu_quota_milli(folder);
        /* "/sys/fs/cgroup" and the group make a path of at most PATH_MAX - 1 characters. */
        assert_int_equal(quota, length <= PATH_MAX - 1 - (int)strlen("/sys/fs/cgroup") ? 500 : 0);
    }
    free(text);
}

/* Nor is what such a path would be without its end another file to read. */
static void test_cut_path(void **state)
{
    (void)state;
    enum { TEXT_SIZE = 2 * PATH_MAX };
    char *text = malloc(TEXT_SIZE);
    assert_non_null(text);
    file_make("/proc/self/cgroup", "0::/\n");
    file_make("/other/cpu.max", "50000 100000\n");
    file_make("/other/cpu.ma", "1 1\n");
    file_make("/other/cpu.m", "1 1\n");
    for (size_t length = PATH_MAX - 2; length < PATH_MAX + 3; length++) {
        char slashes[PATH_MAX + 3] = "";
        memset(slashes, '/', length - strlen(folder) - strlen("other/cpu.max"));
        (void)snprintf(text, TEXT_SIZE, "30 24 0:26 / %sother rw - cgroup2 cgroup2 rw\n", slashes);
        file_make("/proc/self/mountinfo", text);
        assert_int_equal(fw_cgroup_cpu_quota_milli(folder), length < PATH_MAX ? 500 : 0);
    }
    free(text);
}

/* Other lines that start alike, and mounts of other kinds. */
static void test_similar_lines(void **state)
{
    (void)state;
    system_make();
    file_make("/proc/self/cgroup", "0:cpu:/\n01::/\n0::/pod\n");
    file_make("/sys/fs/cgroup/cpu.max", "max 100000\n");
    file_make("/sys/fs/cgroup/pod/cpu.max", "30000 100000\n");
    file_make("/other/cpu.max", "10000 100000\n");
    file_make("/proc/self/mountinfo",
              "29 24 0:26 / /other ro - cgroup2x cgroup ro\n"
              "30 24 0:26 /po /other ro - cgroup2 cgroup ro\n"
              "31 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
              "32 24 0:26 / /other ro - cgroup2 cgroup ro\n"); /* The first that fits counts. */
    assert_int_equal(fw_cgroup_cpu_quota_milli(folder), 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_smallest_counts, files_remove),
        cmocka_unit_test_teardown(test_namespace, files_remove),
        cmocka_unit_test_teardown(test_part_mounted, files_remove),
        cmocka_unit_test_teardown(test_nothing_to_find, files_remove),
        cmocka_unit_test_teardown(test_nonsense, files_remove),
        cmocka_unit_test_teardown(test_long_paths, files_remove),
        cmocka_unit_test_teardown(test_cut_path, files_remove),
        cmocka_unit_test_teardown(test_similar_lines, files_remove),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
