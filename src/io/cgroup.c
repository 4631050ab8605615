/* SPDX-License-Identifier: Apache-2.0 */
#include "io/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/text.h"
#include "io/file.h"

enum {
    PROC_FILE_MAX = 16 << 20, /* Machines with thousands of containers have long lists of mounts. */
    CPU_MAX_FILE_MAX = 4096,
    MOUNT_FIELDS = 5, /* Of a line of mountinfo, up to the last that we need. */
};

static const uint64_t QUOTA_US_MAX = UINT64_C(1) << 53; /* Times 1000 is still a number. */

/* The contents of the file whose path is in three parts, or NULL. */
static char *file_read(const char *root, const char *folder, const char *name, size_t size_max)
{
    char full[PATH_MAX];
    struct fw_text text;
    char *contents = NULL;
    size_t size;
    fw_text_init(&text, full, sizeof full);
    fw_text_append_string(&text, root);
    fw_text_append_string(&text, folder);
    fw_text_append_string(&text, name);
    if (text.truncated) {
        return NULL;
    }
    return fw_file_read(full, size_max, &contents, &size, NULL) == 0 ? contents : NULL;
}

/* The process's path in the hierarchy: the line "0::PATH" of /proc/self/cgroup. */
static bool group_find(const char *root, struct fw_text *path)
{
    static const char prefix[] = "0::";
    bool found = false;
    char *contents = file_read(root, "/proc/self", "/cgroup", PROC_FILE_MAX);
    char *rest = contents;
    for (char *line; !found && (line = strsep(&rest, "\n")) != NULL;) {
        if (strncmp(line, prefix, strlen(prefix)) == 0) {
            fw_text_append_string(path, line + strlen(prefix));
            found = !path->truncated;
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

/* The contents of cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD". 0: no limit. */
static uint32_t quota_parse(char *text)
{
    uint64_t quota_us;
    uint64_t period_us;
    const char *quota = strsep(&text, " ");
    const char *period = strsep(&text, "\n");
    if (period == NULL || fw_parse_uint(quota, strlen(quota), 1, QUOTA_US_MAX, &quota_us) != 0 ||
        fw_parse_uint(period, strlen(period), 1, QUOTA_US_MAX, &period_us) != 0) {
        return 0;
    }
    uint64_t milli = (quota_us * 1000 + period_us - 1) / period_us;
    return milli < UINT32_MAX ? (uint32_t)milli : UINT32_MAX;
}

static uint32_t quota_read(const char *root, const char *folder)
{
    char *contents = file_read(root, folder, "/cpu.max", CPU_MAX_FILE_MAX);
    uint32_t quota = contents != NULL ? quota_parse(contents) : 0;
    free(contents);
    return quota;
}

/* The smallest quota of `folder` and those above it; the uppermost has `stop` characters. */
static uint32_t quota_smallest(const char *root, char *folder, size_t stop)
{
    uint32_t smallest = 0;
    for (;;) {
        uint32_t quota = quota_read(root, folder);
        if (quota != 0 && (smallest == 0 || quota < smallest)) {
            smallest = quota;
        }
        if (strlen(folder) <= stop) {
            return smallest;
        }
        *strrchr(folder, '/') = '\0'; /* There is one: the folder lies below the mount point. */
    }
}

/* Where the group's folder is in this mount; false if the mount shows another part. */
static bool group_folder(struct fw_text *folder, const char *group, const char *mount_root,
                         const char *mount_point)
{
    size_t length = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    if (strncmp(group, mount_root, length) != 0 ||
        (group[length] != '/' && group[length] != '\0')) {
        return false;
    }
    fw_text_clear(folder);
    fw_text_append_string(folder, mount_point);
    fw_text_append_string(folder, strcmp(group + length, "/") == 0 ? "" : group + length);
    return !folder->truncated;
}

uint32_t fw_cgroup_cpu_quota_milli(const char *root)
{
    char group_path[PATH_MAX];
    char folder_path[PATH_MAX];
    struct fw_text group, folder;
    uint32_t quota = 0;
    fw_text_init(&group, group_path, sizeof group_path);
    fw_text_init(&folder, folder_path, sizeof folder_path);
    if (!group_find(root, &group)) {
        return 0;
    }
    char *contents = file_read(root, "/proc/self", "/mountinfo", PROC_FILE_MAX);
    char *rest = contents;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *mount_root;
        const char *mount_point;
        if (mount_parse(line, &mount_root, &mount_point) &&
            group_folder(&folder, group.data, mount_root, mount_point)) {
            quota = quota_smallest(root, folder.data, strlen(mount_point));
            break;
        }
    }
    free(contents);
    return quota;
}
