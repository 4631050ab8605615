/* SPDX-License-Identifier: Apache-2.0 */
#include "server/image_claim.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "io/file_stream.h"

enum { MODE = 0600, NOTE_SIZE = 64 };

int fw_image_check(const char *path, struct fw_reason *reason)
{
    struct fw_file_writer writer;
    struct fw_reason why;
    if (fw_file_writer_open(&writer, path, MODE, &why) != 0) {
        return fw_reason_set(reason, -EINVAL, "--memory-file: %s", why.text);
    }
    fw_file_writer_abandon(&writer);
    return 0;
}

int fw_image_claim_take(struct fw_image_claim *claim, const char *path, struct fw_reason *reason)
{
    char name[PATH_MAX];
    int rc = fw_image_check(path, reason);
    if (rc != 0) {
        return rc;
    }
    int length = snprintf(name, sizeof name, "%s.lock", path);
    if (length >= (int)sizeof name) {
        return fw_reason_set(reason, -EINVAL, "--memory-file: the name is too long");
    }
    struct fw_reason why;
    rc = fw_file_lock_make(&claim->lock, name, &why);
    if (rc == -EBUSY) {
        return fw_reason_set(
            reason, rc, "--memory-file: another server uses %s: give each a file of its own", path);
    }
    if (rc != 0) {
        return fw_reason_set(reason, -EINVAL, "--memory-file: %s", why.text);
    }
    claim->is_held = true;
    return 0;
}

/* What the lock file says of an image that is out of date. */
static int note_of(const char *path, char note[static NOTE_SIZE])
{
    struct fw_file_version version;
    int rc = fw_file_version(path, &version);
    if (rc == 0) {
        (void)snprintf(note, NOTE_SIZE, "spent %" PRIu64 " %" PRId64 "\n", version.size,
                       version.written_ns);
    }
    return rc;
}

bool fw_image_claim_is_spent(const struct fw_image_claim *claim, const char *path)
{
    char noted[NOTE_SIZE], now[NOTE_SIZE];
    fw_file_lock_read(&claim->lock, noted, sizeof noted);
    return note_of(path, now) == 0 && strcmp(noted, now) == 0;
}

int fw_image_claim_spend(const struct fw_image_claim *claim, const char *path)
{
    char note[NOTE_SIZE];
    int rc = note_of(path, note);
    return rc == 0 ? fw_file_lock_write(&claim->lock, note) : rc;
}

void fw_image_claim_release(struct fw_image_claim *claim)
{
    if (claim->is_held) {
        claim->is_held = false;
        fw_file_lock_release(&claim->lock);
    }
}
