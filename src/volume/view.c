/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>

#include "volume/queue.h"
#include "volume/store.h"

enum { ATTEMPTS = 16 };

struct view {
    struct fw_volume_metadata *metadata;
    struct fw_reason *reason;
    uint32_t host;
};

static int forget(void *context, const struct fw_volume_message *change)
{
    (void)context;
    (void)change;
    return 0;
}

static int record_apply(void *context, const struct fw_volume_message *change)
{
    struct view *view = context;
    return fw_volume_metadata_apply(view->metadata, change, view->reason);
}

static int message_receive(void *context, const struct fw_volume_message *message)
{
    static const struct fw_volume_sink nowhere = {.take = forget};
    struct view *view = context;
    struct fw_volume_receipt receipt;
    return fw_volume_metadata_receive(view->metadata, view->host, message, &nowhere, &receipt,
                                      view->reason);
}

static int part_read(struct fw_volume_store *store, enum fw_volume_part which, uint32_t host,
                     struct fw_volume_batch *batch, struct fw_reason *reason)
{
    struct fw_disk *part;
    int rc = store->ops->part(store, which, host, &part, reason);
    if (rc == 0) {
        rc = fw_volume_queue_read(part, batch, reason);
        fw_disk_close(part);
    }
    return rc;
}

struct batches {
    struct fw_volume_batch up[FW_VOLUME_HOSTS_MAX];
    struct fw_volume_batch log;
    bool has_no_up[FW_VOLUME_HOSTS_MAX]; /* No ring was found. */
    bool is_up_missing;                  /* ...though there is such a host. */
};

static int view_read(struct fw_volume_store *store, uint32_t host, struct batches *batches,
                     struct fw_volume_metadata *metadata, struct fw_reason *reason)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < store->geometry.hosts_max; i++) {
        if (host == FW_VOLUME_ALL || host == i) {
            rc = part_read(store, FW_VOLUME_PART_UP, i, &batches->up[i], reason);
            batches->has_no_up[i] = rc == -ENOENT;
            rc = rc == -ENOENT ? 0 : rc;
        }
    }
    uint64_t before = 0;
    uint64_t after = 0;
    if (rc == 0) {
        rc = store->ops->sequence(store, &before, reason);
    }
    if (rc == 0) {
        rc = part_read(store, FW_VOLUME_PART_LOG, 0, &batches->log, reason);
        rc = rc == -ENOENT ? fw_reason_set(reason, -EBADMSG, "the redo log is damaged") : rc;
    }
    if (rc == 0) {
        rc = store->ops->load(store, metadata, reason);
    }
    if (rc != 0) {
        return rc;
    }
    rc = store->ops->sequence(store, &after, reason);
    if (rc == 0 && before != after) {
        rc = fw_reason_set(reason, -EAGAIN, "the metadata changed while they were read");
    }
    if (rc != 0) {
        fw_volume_metadata_fini(metadata);
    }
    return rc;
}

static int view_make(struct batches *batches, struct fw_volume_metadata *metadata,
                     struct fw_reason *reason)
{
    struct view view = {.metadata = metadata, .reason = reason};
    int rc = fw_volume_batch_walk(&batches->log, record_apply, &view, reason);
    for (uint32_t i = 0; rc == 0 && i < FW_VOLUME_HOSTS_MAX; i++) {
        view.host = i;
        if (!metadata->hosts[i].is_used) {
            continue; /* Its ring, if there is one, is left from a host that is gone. */
        }
        if (batches->has_no_up[i]) {
            batches->is_up_missing = true;
            rc = fw_reason_set(reason, -EAGAIN, "a ring of host '%.60s' is damaged; reclaim it",
                               metadata->hosts[i].name);
        } else {
            rc = fw_volume_batch_walk(&batches->up[i], message_receive, &view, reason);
        }
    }
    if (rc == 0) {
        rc = fw_volume_metadata_check(metadata, reason);
    }
    if (rc != 0) {
        fw_volume_metadata_fini(metadata);
    }
    return rc;
}

int fw_volume_view(struct fw_volume_store *store, uint32_t host,
                   struct fw_volume_metadata *metadata, struct fw_reason *reason)
{
    int rc = -EAGAIN;
    bool is_up_missing = false;
    for (int attempt = 0; rc == -EAGAIN && attempt < ATTEMPTS; attempt++) {
        struct batches batches = {.log = {.bytes = NULL}};
        rc = view_read(store, host, &batches, metadata, reason);
        if (rc == 0) {
            rc = view_make(&batches, metadata, reason);
        }
        is_up_missing = batches.is_up_missing;
        fw_volume_batch_fini(&batches.log);
        for (uint32_t i = 0; i < FW_VOLUME_HOSTS_MAX; i++) {
            fw_volume_batch_fini(&batches.up[i]);
        }
    }
    /* A host is added when its ring is there: who misses it again and again was not too early. */
    return rc == -EAGAIN && is_up_missing ? -EBADMSG : rc;
}
