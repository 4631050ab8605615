/* SPDX-License-Identifier: Apache-2.0 */
#include "server/large_volume.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "io/process.h"
#include "volume/store.h"

FW_LOG_MODULE_USE(large);

enum { NAME_SIZE = 256 };

/* What was asked for, and what of it is there already. */
struct wanted {
    const char *group;
    char volume[NAME_SIZE];
    char host[NAME_SIZE];
    bool has_volume;
    bool has_host;
    uint64_t extent_size;
};

bool fw_large_volume_is_named(const char *text)
{
    size_t length = strcspn(text, "@/");
    return length > 0 && text[length] == '@';
}

/* Without the manager: a server that starts again has nothing to change. */
static int wanted_look(struct wanted *wanted, struct fw_reason *reason)
{
    const struct fw_disk_options options = {.path = wanted->group,
                                            .flags = FW_DISK_READ_ONLY | FW_DISK_DIRECT};
    struct fw_volume_metadata metadata;
    struct fw_volume_store *store;
    struct fw_disk *disk;
    int rc = fw_disk_open(&disk, &options, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_volume_store_open(&store, disk, reason);
    if (rc == 0) {
        wanted->extent_size = store->geometry.extent_size;
        rc = fw_volume_view(store, FW_VOLUME_NONE, &metadata, reason);
        if (rc == 0) {
            wanted->has_volume =
                fw_volume_metadata_find(&metadata, wanted->volume) != FW_VOLUME_NONE;
            wanted->has_host =
                fw_volume_metadata_find_host(&metadata, wanted->host) != FW_VOLUME_NONE;
            fw_volume_metadata_fini(&metadata);
        }
        store->ops->close(store);
    }
    fw_disk_close(disk);
    return rc;
}

/* Another server may have been faster, which is as good. */
static int order_do(const struct wanted *wanted, enum fw_volume_action action, const char *name,
                    uint64_t extents, struct fw_reason *reason)
{
    const struct fw_volume_order order = {
        .path = wanted->group, .action = action, .name = name, .size = extents};
    struct fw_ring_reason why = {.text = ""};
    int rc = fw_volume_order(&order, &why);
    return rc == 0 || rc == -EEXIST ? 0 : fw_reason_set(reason, rc, "%.200s", why.text);
}

static int wanted_make(const struct wanted *wanted, uint64_t size, struct fw_reason *reason)
{
    int rc = 0;
    if (!wanted->has_host) {
        rc = order_do(wanted, FW_VOLUME_DO_CONNECT, wanted->host, 0, reason);
    }
    if (rc == 0 && !wanted->has_volume) {
        uint64_t extents = (size + wanted->extent_size - 1) / wanted->extent_size;
        extents = extents < FW_VOLUME_EXTENTS_MAX ? extents : FW_VOLUME_EXTENTS_MAX;
        rc = order_do(wanted, FW_VOLUME_DO_CREATE, wanted->volume, extents, reason);
    }
    return rc;
}

static int wanted_parse(struct wanted *wanted, const char *text, struct fw_reason *reason)
{
    size_t length = strcspn(text, "@");
    if (length >= sizeof wanted->volume) {
        return fw_reason_set(reason, -ENAMETOOLONG, "a volume's name has fewer than %d bytes",
                             NAME_SIZE);
    }
    memcpy(wanted->volume, text, length);
    wanted->volume[length] = '\0';
    wanted->group = text + length + 1;
    fw_process_host_name(wanted->host, sizeof wanted->host);
    return 0;
}

int fw_large_volume_open(struct fw_large_volume *volume, const char *text, uint64_t size,
                         struct fw_reason *reason)
{
    struct wanted wanted = {.group = NULL};
    FW_ASSERT(fw_large_volume_is_named(text));
    int rc = wanted_parse(&wanted, text, reason);
    if (rc == 0) {
        rc = wanted_look(&wanted, reason);
    }
    if (rc == 0) {
        rc = wanted_make(&wanted, size, reason);
    }
    if (rc != 0) {
        return rc;
    }
    const struct fw_volume_thin_options options = {.path = wanted.group, .host = wanted.host};
    rc = fw_volume_thin_host_open(&volume->host, &options, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_volume_thin_open(&volume->thin, volume->host, wanted.volume, reason);
    if (rc != 0) {
        volume->thin = NULL;
        fw_volume_thin_host_close(volume->host);
    }
    return rc;
}

void fw_large_volume_stop(struct fw_large_volume *volume)
{
    if (volume->thin != NULL) {
        fw_volume_thin_host_stop(volume->host);
    }
}

void fw_large_volume_close(struct fw_large_volume *volume)
{
    struct fw_reason reason;
    if (volume->thin == NULL) {
        return;
    }
    /* If the ring has no room for all of it, the next server uses what is placed. */
    int rc = fw_volume_thin_discard(volume->thin, fw_volume_thin_size(volume->thin), 0, &reason);
    if (rc != 0) {
        FW_LOG(large, NOTICE, "the volume of large values keeps extents: %s", reason.text);
    }
    fw_volume_thin_close(volume->thin);
    fw_volume_thin_host_close(volume->host);
    volume->thin = NULL;
}

int fw_large_volume_move(struct fw_large_volume *volume, const struct fw_disk_op *op,
                         struct fw_reason *reason)
{
    return op->kind == FW_DISK_WRITE
               ? fw_volume_thin_write(volume->thin, op->from, op->size, op->offset, false, reason)
               : fw_volume_thin_read(volume->thin, op->into, op->size, op->offset, reason);
}
