/* SPDX-License-Identifier: Apache-2.0 */
#include "io/content.h"

#include <blkid/blkid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/file.h"
#include "io/library.h"

enum {
    HEAD_SIZE = 512,
    SCAN_SIZE = 1 << 16,
    VALUE_MAX = 48, /* What of a label is shown. */
    MOUNTS_MAX = 4 << 20,
    PATH_SIZE = 128,
};

/* Which only few need; see io/library.h. */
static struct fw_library blkid = {.name = "libblkid.so.1"};

FW_LIBRARY_CALL(&blkid, blkid_probe, blkid_new_probe, (void), (), NULL)
FW_LIBRARY_CALL(&blkid, int, blkid_probe_set_device,
                (blkid_probe probe, int fd, blkid_loff_t offset, blkid_loff_t size),
                (probe, fd, offset, size), -1)
FW_LIBRARY_CALL(&blkid, int, blkid_probe_enable_partitions, (blkid_probe probe, int enable),
                (probe, enable), -1)
FW_LIBRARY_CALL(&blkid, int, blkid_do_safeprobe, (blkid_probe probe), (probe), -1)
FW_LIBRARY_CALL(&blkid, int, blkid_probe_lookup_value,
                (blkid_probe probe, const char *name, const char **data, size_t *length),
                (probe, name, data, length), -1)

/* There is a probe, so there is the library. */
void blkid_free_probe(blkid_probe probe)
{
    ((void (*)(blkid_probe))fw_library_find(&blkid, "blkid_free_probe"))(probe);
}

/* ---- signatures ---- */

static const struct {
    const char *magic;
    enum fw_content_kind kind;
    const char *text;
} ours[] = {
    {"mirage shared-block-device 1.0", FW_CONTENT_RING, "a ring of format 1"},
    {"fairway ring 2\n", FW_CONTENT_RING, "a ring of format 2"},
    {"fairway volumes", FW_CONTENT_GROUP, "a group of volumes"},
};

static void found(struct fw_content *content, enum fw_content_kind kind, const char *text)
{
    content->kind = kind;
    (void)snprintf(content->text, sizeof content->text, "%s", text);
}

static int ours_look(int fd, struct fw_content *content)
{
    char head[HEAD_SIZE] = {0};
    ssize_t size = pread(fd, head, sizeof head, 0);
    if (size < 0) {
        return -errno;
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ours); i++) {
        if (memcmp(head, ours[i].magic, strlen(ours[i].magic)) == 0) {
            found(content, ours[i].kind, ours[i].text);
        }
    }
    return 0;
}

static const char *value(blkid_probe probe, const char *name)
{
    const char *text = NULL;
    return blkid_probe_lookup_value(probe, name, &text, NULL) == 0 ? text : NULL;
}

static void signature_tell(blkid_probe probe, struct fw_content *content)
{
    const char *type = value(probe, "TYPE");
    const char *table = value(probe, "PTTYPE");
    const char *label = value(probe, "LABEL");
    content->kind = FW_CONTENT_OTHER;
    (void)snprintf(content->text, sizeof content->text, "%s%.*s%s%.*s%s",
                   type == NULL ? "a partition table, " : "", VALUE_MAX,
                   type != NULL    ? type
                   : table != NULL ? table
                                   : "of an unknown kind",
                   label != NULL ? ", label '" : "", VALUE_MAX, label != NULL ? label : "",
                   label != NULL ? "'" : "");
}

/* -ENOSYS: there is no libblkid. */
static int signature_look(int fd, struct fw_content *content)
{
    enum { FOUND = 0, NOTHING = 1, SEVERAL = -2 };
    blkid_probe probe = blkid_new_probe();
    if (probe == NULL) {
        return -ENOSYS;
    }
    int rc =
        blkid_probe_set_device(probe, fd, 0, 0) == 0 && blkid_probe_enable_partitions(probe, 1) == 0
            ? blkid_do_safeprobe(probe)
            : -1;
    if (rc == FOUND) {
        signature_tell(probe, content);
    } else if (rc == SEVERAL) {
        found(content, FW_CONTENT_OTHER, "several signatures that contradict each other");
    }
    blkid_free_probe(probe);
    return rc == FOUND || rc == NOTHING || rc == SEVERAL ? 0 : -EIO;
}

/* ---- files ---- */

static bool is_zero(const char *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Whether a file holds anything but zeros. Holes are passed over. */
static int bytes_look(int fd, struct fw_content *content)
{
    char bytes[SCAN_SIZE];
    ssize_t size = 0;
    off_t at = 0;
    do {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) {
            return 0; /* The rest is a hole. */
        }
        at = data >= 0 ? data : at;
        size = pread(fd, bytes, sizeof bytes, at);
        if (size > 0 && !is_zero(bytes, (size_t)size)) {
            found(content, FW_CONTENT_OTHER, "data of another program");
            return 0;
        }
        at += size;
    } while (size > 0);
    return size < 0 ? -errno : 0;
}

/* ---- all of it ---- */

static int descriptor_look(int fd, bool is_file, struct fw_content *content)
{
    int rc = ours_look(fd, content);
    if (rc == 0 && content->kind == FW_CONTENT_NOTHING) {
        rc = signature_look(fd, content);
        /* In a file the bytes themselves tell. */
        rc = is_file && (rc == -ENOSYS || rc == -EIO) ? 0 : rc;
    }
    if (rc == 0 && is_file && content->kind == FW_CONTENT_NOTHING) {
        rc = bytes_look(fd, content);
    }
    return rc;
}

int fw_content_look(const char *path, struct fw_content *content, struct fw_reason *reason)
{
    struct stat status;
    *content = (struct fw_content){.kind = FW_CONTENT_NOTHING};
    if (stat(path, &status) != 0) {
        return errno == ENOENT ? 0 : fw_reason_errno(reason, -errno, "cannot examine %.100s", path);
    }
    bool is_file = S_ISREG(status.st_mode);
    if ((!is_file && !S_ISBLK(status.st_mode)) || (is_file && status.st_size == 0)) {
        return 0;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : descriptor_look(fd, is_file, content);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (rc == -ENOSYS) {
        return fw_reason_set(reason, rc,
                             "cannot find out what is on %.80s: there is no libblkid; install "
                             "libblkid1, or use --force if nothing can be lost",
                             path);
    }
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot find out what is on %.100s", path);
}

int fw_content_check(const char *path, enum fw_content_kind own, bool overwrite,
                     struct fw_content *content, struct fw_reason *reason)
{
    int rc = fw_content_look(path, content, reason);
    if (overwrite || rc != 0) {
        return overwrite ? 0 : rc;
    }
    if (content->kind == FW_CONTENT_NOTHING || content->kind == own) {
        return 0;
    }
    return fw_reason_set(reason, -EEXIST,
                         "it holds %.120s, which would be lost; --force overwrites it",
                         content->text);
}

/* ---- who has a device ---- */

/* The first mount of the device, from /proc/self/mountinfo: "ID PARENT MAJOR:MINOR ROOT PLACE". */
static bool mount_find(dev_t device, char *text, size_t size)
{
    char wanted[PATH_SIZE];
    char *mounts;
    size_t length;
    bool is_found = false;
    if (fw_file_read("/proc/self/mountinfo", MOUNTS_MAX, &mounts, &length, NULL) != 0) {
        return false;
    }
    (void)snprintf(wanted, sizeof wanted, "%u:%u", major(device), minor(device));
    char *rest = mounts;
    for (char *line = strsep(&rest, "\n"); line != NULL && !is_found; line = strsep(&rest, "\n")) {
        const char *words[5] = {""};
        for (size_t i = 0; i < FW_ARRAY_LENGTH(words) && line != NULL; i++) {
            words[i] = strsep(&line, " ");
        }
        if (words[4] != NULL && strcmp(words[2], wanted) == 0) {
            (void)snprintf(text, size, "it is mounted on %s", words[4]);
            is_found = true;
        }
    }
    free(mounts);
    return is_found;
}

/* The first driver above the device: device-mapper, md, bcache. */
static bool driver_find(dev_t device, char *text, size_t size)
{
    char path[PATH_SIZE];
    bool is_found = false;
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/holders", major(device), minor(device));
    DIR *folder = opendir(path);
    const struct dirent *entry;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own. */
    while (folder != NULL && !is_found && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(text, size, "%s holds it", entry->d_name);
            is_found = true;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return is_found;
}

void fw_content_holder(const char *path, char *text, size_t size)
{
    struct stat status;
    (void)snprintf(text, size, "it is in use");
    if (stat(path, &status) == 0 && !mount_find(status.st_rdev, text, size)) {
        (void)driver_find(status.st_rdev, text, size);
    }
}
