/* SPDX-License-Identifier: Apache-2.0 */
#include "io/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"

enum {
    PROC_FILE_MAX = 16 << 20, /* Machines with thousands of containers have long lists of mounts. */
    CPU_MAX_FILE_MAX = 4096,
    MOUNT_FIELDS = 6, /* Of a line of mountinfo, before the optional ones. */
};

static char *file_read(const char *root, const char *path, size_t size_max)
{
    char full[PATH_MAX];
    char *contents = NULL;
    size_t size = 0;
    int length = snprintf(full, sizeof full, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof full) {
        return NULL;
    }
    return fw_file_read(full, size_max, &contents, &size, NULL) == 0 ? contents : NULL;
}

/* The process's path in the hierarchy: the line "0::PATH" of /proc/self/cgroup. */
static bool group_find(const char *root, char path[PATH_MAX])
{
    bool found = false;
    char *contents = file_read(root, "/proc/self/cgroup", PROC_FILE_MAX);
    char *rest = contents;
    for (char *line; !found && (line = strsep(&rest, "\n")) != NULL;) {
        if (strncmp(line, "0::", 3) == 0) {
            int length = snprintf(path, PATH_MAX, "%s", line + 3);
            found = length > 0 && length < PATH_MAX;
        }
    }
    free(contents);
    return found;
}

/*
 * Splits a line of mountinfo if it is the cgroup2 file system's: "30 24 0:26 ROOT POINT OPTIONS
 * [...] - cgroup2 ...". ROOT is the part of the hierarchy that is mounted there.
 */
static bool mount_parse(char *line, const char **mount_root, const char **mount_point)
{
    if (strstr(line, " - cgroup2 ") == NULL) {
        return false;
    }
    const char *fields[MOUNT_FIELDS];
    for (int i = 0; i < MOUNT_FIELDS; i++) {
        fields[i] = strsep(&line, " ");
        if (fields[i] == NULL) {
            return false;
        }
    }
    *mount_root = fields[3];
    *mount_point = fields[4];
    return true;
}

/* The first line of cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD". */
static uint32_t quota_parse(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long quota_us = strtoull(text, &end, 10);
    if (end == text || *end != ' ' || errno != 0) {
        return 0; /* "max", above all. */
    }
    unsigned long long period_us = strtoull(end, &end, 10);
    if (errno != 0 || period_us == 0 || quota_us == 0 || quota_us > ULLONG_MAX / 2000) {
        return 0;
    }
    unsigned long long milli = (quota_us * 1000 + period_us - 1) / period_us;
    return milli < UINT32_MAX ? (uint32_t)milli : UINT32_MAX;
}

/* The smallest quota of `path` and what is above it, up to the first `stop` characters. */
static uint32_t quota_smallest(const char *root, char *path, size_t stop)
{
    uint32_t smallest = 0;
    for (;;) {
        char file[PATH_MAX];
        int length = snprintf(file, sizeof file, "%s/cpu.max", path);
        if (length > 0 && (size_t)length < sizeof file) {
            char *contents = file_read(root, file, CPU_MAX_FILE_MAX);
            uint32_t quota = contents != NULL ? quota_parse(contents) : 0;
            free(contents);
            if (quota != 0 && (smallest == 0 || quota < smallest)) {
                smallest = quota;
            }
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL || (size_t)(slash - path) < stop) {
            return smallest;
        }
        *slash = '\0';
    }
}

/* Where the group's folder is in this mount; false if the mount shows another part. */
static bool group_folder(char folder[PATH_MAX], const char *group, const char *mount_root,
                         const char *mount_point)
{
    size_t length = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    if (strncmp(group, mount_root, length) != 0 ||
        (group[length] != '/' && group[length] != '\0')) {
        return false;
    }
    const char *rest = strcmp(group + length, "/") == 0 ? "" : group + length;
    int written = snprintf(folder, PATH_MAX, "%s%s", mount_point, rest);
    return written > 0 && written < PATH_MAX;
}

uint32_t fw_cgroup_cpu_quota_milli(const char *root)
{
    char group[PATH_MAX];
    char folder[PATH_MAX];
    uint32_t quota = 0;
    if (!group_find(root, group)) {
        return 0;
    }
    char *contents = file_read(root, "/proc/self/mountinfo", PROC_FILE_MAX);
    char *rest = contents;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *mount_root;
        const char *mount_point;
        if (mount_parse(line, &mount_root, &mount_point) &&
            group_folder(folder, group, mount_root, mount_point)) {
            quota = quota_smallest(root, folder, strlen(mount_point));
            break;
        }
    }
    free(contents);
    return quota;
}
