/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/thin.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/disk.h"
#include "volume/local.h"

FW_LOG_MODULE_USE(volume);

enum {
    BOUNCE = 1 << 20, /* Bytes that are transferred at a time. */
    DISCARD_MAX = 64, /* Extents that are given back in one message. */
    THIRSTY_MS = 2,   /* How often to look for extents while somebody waits for one. */
    INTERVAL_MS = 100,
};

struct waiter {
    struct fw_list_link link;
    struct fw_parker parker;
};

/* A disk, and a buffer for what is not aligned. One transfer has it at a time. */
struct slot {
    struct fw_disk *disk;
    uint8_t *bounce;
    bool is_busy;
};

struct fw_volume_thin {
    /* Constant. */
    struct fw_volume_agent *agent;
    struct fw_volume *volume;
    uint64_t extent_size;
    uint64_t size;
    uint32_t sector_size;
    int64_t interval_ns;
    struct fw_thread thread;

    struct fw_mutex lock; /* FW_RANK_VOLUME_THIN. Guards what follows; held for no I/O. */
    struct fw_list waiters;
    uint64_t changes;   /* Counts what waiters wait for. */
    uint32_t inside;    /* Transfers under way. */
    uint32_t thirsty;   /* Threads that wait for an extent. */
    bool is_discarding; /* Nobody gets in. */
    bool is_edging;     /* Somebody changes a part of a sector. */
    bool is_over;
    struct fw_parker parker; /* The thread's. */
    struct slot slots[FW_VOLUME_THIN_DISKS];
};

/* ---- waiting, under the lock ---- */

static void changed(struct fw_volume_thin *thin)
{
    struct fw_list_link *link;
    thin->changes++;
    while ((link = fw_list_pop_front(&thin->waiters)) != NULL) {
        fw_unpark(&FW_LIST_ENTRY(link, struct waiter, link)->parker);
    }
}

static void change_wait(struct fw_volume_thin *thin) FW_REQUIRES(thin->lock);

static void change_wait(struct fw_volume_thin *thin)
{
    struct waiter waiter = {.parker = {0}};
    fw_parker_init(&waiter.parker);
    fw_list_push_back(&thin->waiters, &waiter.link);
    fw_mutex_unlock(&thin->lock);
    fw_park(&waiter.parker);
    fw_mutex_lock(&thin->lock);
}

/* ---- transfers and discards ---- */

static struct slot *slot_find(struct fw_volume_thin *thin)
{
    for (size_t i = 0; i < FW_VOLUME_THIN_DISKS; i++) {
        if (!thin->slots[i].is_busy) {
            return &thin->slots[i];
        }
    }
    return NULL;
}

static struct slot *transfer_begin(struct fw_volume_thin *thin)
{
    struct slot *slot = NULL;
    fw_mutex_lock(&thin->lock);
    while (thin->is_discarding || (slot = slot_find(thin)) == NULL) {
        change_wait(thin);
    }
    slot->is_busy = true;
    thin->inside++;
    fw_mutex_unlock(&thin->lock);
    return slot;
}

static void transfer_end(struct fw_volume_thin *thin, struct slot *slot)
{
    fw_mutex_lock(&thin->lock);
    slot->is_busy = false;
    thin->inside--;
    changed(thin);
    fw_mutex_unlock(&thin->lock);
}

static void discard_begin(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    while (thin->is_discarding) {
        change_wait(thin);
    }
    thin->is_discarding = true;
    while (thin->inside > 0) {
        change_wait(thin);
    }
    fw_mutex_unlock(&thin->lock);
}

static void discard_end(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    thin->is_discarding = false;
    changed(thin);
    fw_mutex_unlock(&thin->lock);
}

/* Parts of a sector are read, changed and written by one thread at a time. */
static void edge_begin(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    while (thin->is_edging) {
        change_wait(thin);
    }
    thin->is_edging = true;
    fw_mutex_unlock(&thin->lock);
}

static void edge_end(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    thin->is_edging = false;
    changed(thin);
    fw_mutex_unlock(&thin->lock);
}

/* ---- one disk ---- */

static int slot_do(struct slot *slot, enum fw_disk_kind kind, void *bytes, uint64_t size,
                   uint64_t offset, struct fw_reason *reason)
{
    struct fw_disk_op op = {.kind = kind, .into = bytes, .size = (size_t)size, .offset = offset};
    return fw_disk_run(slot->disk, &op, reason);
}

static int slot_read(struct fw_volume_thin *thin, struct slot *slot, uint8_t *into, uint64_t size,
                     uint64_t offset, struct fw_reason *reason)
{
    uint64_t skew = offset % thin->sector_size;
    uint64_t whole = (skew + size + thin->sector_size - 1) / thin->sector_size * thin->sector_size;
    int rc = slot_do(slot, FW_DISK_READ, slot->bounce, whole, offset - skew, reason);
    if (rc == 0) {
        memcpy(into, slot->bounce + skew, size);
    }
    return rc;
}

static int slot_write_edges(struct fw_volume_thin *thin, struct slot *slot, const uint8_t *from,
                            uint64_t size, uint64_t offset, struct fw_reason *reason)
{
    uint64_t skew = offset % thin->sector_size;
    uint64_t whole = (skew + size + thin->sector_size - 1) / thin->sector_size * thin->sector_size;
    edge_begin(thin);
    int rc = slot_do(slot, FW_DISK_READ, slot->bounce, whole, offset - skew, reason);
    if (rc == 0) {
        memcpy(slot->bounce + skew, from, size);
        rc = slot_do(slot, FW_DISK_WRITE, slot->bounce, whole, offset - skew, reason);
    }
    edge_end(thin);
    return rc;
}

static int slot_write(struct fw_volume_thin *thin, struct slot *slot, const uint8_t *from,
                      uint64_t size, uint64_t offset, struct fw_reason *reason)
{
    if (offset % thin->sector_size != 0 || size % thin->sector_size != 0) {
        return slot_write_edges(thin, slot, from, size, offset, reason);
    }
    memcpy(slot->bounce, from, size);
    return slot_do(slot, FW_DISK_WRITE, slot->bounce, size, offset, reason);
}

/* ---- extents ---- */

/* For who could not do something now: until something has changed since. */
static int retry_wait(struct fw_volume_thin *thin, uint64_t seen, bool for_manager)
{
    fw_mutex_lock(&thin->lock);
    thin->thirsty += for_manager ? 1 : 0;
    if (for_manager) {
        fw_unpark(&thin->parker);
    }
    while (!thin->is_over && thin->changes == seen) {
        change_wait(thin);
    }
    thin->thirsty -= for_manager ? 1 : 0;
    int rc = thin->is_over ? -ESHUTDOWN : 0;
    fw_mutex_unlock(&thin->lock);
    return rc;
}

static uint64_t changes_now(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    uint64_t changes = thin->changes;
    fw_mutex_unlock(&thin->lock);
    return changes;
}

/* Tells those whom somebody was in the way of. */
static void settled(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    changed(thin);
    fw_mutex_unlock(&thin->lock);
}

static int extent_place(struct fw_volume_thin *thin, uint64_t logical, struct fw_reason *reason)
{
    for (;;) {
        uint64_t seen = changes_now(thin);
        int rc = fw_volume_allocate(thin->volume, logical, 1, fw_volume_ring_reason(reason));
        if (rc == 0 || (rc < 0 && rc != -EALREADY)) {
            settled(thin);
            return rc;
        }
        rc = retry_wait(thin, seen, rc == FW_VOLUME_WAIT);
        if (rc != 0) {
            return fw_reason_set(reason, rc, "the volume is being detached");
        }
    }
}

/* Called before an extent is placed. */
static int extent_prepare(void *context, uint64_t offset, uint64_t size, struct fw_reason *reason)
{
    struct fw_volume_thin *thin = context;
    struct slot *slot = transfer_begin(thin);
    int rc = fw_disk_zero(slot->disk, offset, size, reason);
    transfer_end(thin, slot);
    return rc;
}

static int extents_discard(struct fw_volume_thin *thin, uint64_t logical, uint64_t count,
                           struct fw_reason *reason)
{
    while (count > 0) {
        uint64_t part = count < DISCARD_MAX ? count : DISCARD_MAX;
        discard_begin(thin);
        uint64_t seen = changes_now(thin);
        int rc = fw_volume_discard(thin->volume, logical, part, fw_volume_ring_reason(reason));
        discard_end(thin);
        if (rc == 0) {
            logical += part;
            count -= part;
        } else if (rc == FW_VOLUME_WAIT || rc == -EALREADY) {
            rc = retry_wait(thin, seen + 1, rc == FW_VOLUME_WAIT); /* That was our own end. */
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- transfers of any size ---- */

struct piece {
    uint64_t logical;
    uint64_t within; /* Where in the extent. */
    uint64_t size;
};

/* The next piece of a transfer: of one extent, and small enough for the buffer. */
static struct piece piece_of(const struct fw_volume_thin *thin, uint64_t offset, uint64_t size)
{
    struct piece piece = {.logical = offset / thin->extent_size,
                          .within = offset % thin->extent_size};
    uint64_t left = thin->extent_size - piece.within;
    piece.size = size < left ? size : left;
    piece.size = piece.size < BOUNCE ? piece.size : BOUNCE;
    return piece;
}

static bool is_inside(const struct fw_volume_thin *thin, uint64_t size, uint64_t offset)
{
    return offset <= thin->size && size <= thin->size - offset;
}

int fw_volume_thin_read(struct fw_volume_thin *thin, void *into, uint64_t size, uint64_t offset,
                        struct fw_reason *reason)
{
    uint8_t *bytes = into;
    FW_ASSERT(is_inside(thin, size, offset));
    while (size > 0) {
        const struct piece piece = piece_of(thin, offset, size);
        uint64_t at;
        int rc = 0;
        struct slot *slot = transfer_begin(thin);
        if (fw_volume_lookup(thin->volume, piece.logical, &at)) {
            rc = slot_read(thin, slot, bytes, piece.size, at + piece.within, reason);
        } else {
            memset(bytes, 0, piece.size);
        }
        transfer_end(thin, slot);
        if (rc != 0) {
            return rc;
        }
        bytes += piece.size;
        offset += piece.size;
        size -= piece.size;
    }
    return 0;
}

/* Writes a piece, in an extent that is put there if there is none. */
static int piece_write(struct fw_volume_thin *thin, const struct piece *piece, const uint8_t *from,
                       struct fw_reason *reason)
{
    for (;;) {
        uint64_t at;
        struct slot *slot = transfer_begin(thin);
        bool is_there = fw_volume_lookup(thin->volume, piece->logical, &at);
        int rc =
            is_there ? slot_write(thin, slot, from, piece->size, at + piece->within, reason) : 0;
        transfer_end(thin, slot);
        if (is_there) {
            return rc;
        }
        rc = extent_place(thin, piece->logical, reason);
        if (rc != 0) {
            return rc;
        }
    }
}

int fw_volume_thin_write(struct fw_volume_thin *thin, const void *from, uint64_t size,
                         uint64_t offset, bool durable, struct fw_reason *reason)
{
    const uint8_t *bytes = from;
    int rc = 0;
    FW_ASSERT(is_inside(thin, size, offset));
    while (rc == 0 && size > 0) {
        const struct piece piece = piece_of(thin, offset, size);
        rc = piece_write(thin, &piece, bytes, reason);
        bytes += piece.size;
        offset += piece.size;
        size -= piece.size;
    }
    return rc == 0 && durable ? fw_volume_thin_flush(thin, reason) : rc;
}

int fw_volume_thin_flush(struct fw_volume_thin *thin, struct fw_reason *reason)
{
    struct slot *slot = transfer_begin(thin);
    int rc = slot_do(slot, FW_DISK_FLUSH, NULL, 0, 0, reason);
    transfer_end(thin, slot);
    return rc;
}

/* ---- zeros and holes ---- */

int fw_volume_thin_discard(struct fw_volume_thin *thin, uint64_t size, uint64_t offset,
                           struct fw_reason *reason)
{
    FW_ASSERT(is_inside(thin, size, offset));
    uint64_t first = (offset + thin->extent_size - 1) / thin->extent_size;
    uint64_t end = (offset + size) / thin->extent_size;
    return first < end ? extents_discard(thin, first, end - first, reason) : 0;
}

/* Writes zeros where there is an extent; with `place` there will be one. */
static int piece_zero(struct fw_volume_thin *thin, const struct piece *piece, bool place,
                      struct fw_reason *reason)
{
    static const uint8_t zeros[BOUNCE];
    uint64_t at;
    return place || fw_volume_lookup(thin->volume, piece->logical, &at)
               ? piece_write(thin, piece, zeros, reason)
               : 0;
}

int fw_volume_thin_zero(struct fw_volume_thin *thin, uint64_t size, uint64_t offset,
                        bool may_discard, struct fw_reason *reason)
{
    int rc = 0;
    FW_ASSERT(is_inside(thin, size, offset));
    while (rc == 0 && size > 0) {
        struct piece piece = piece_of(thin, offset, size);
        if (may_discard && piece.within == 0 && size >= thin->extent_size) {
            piece.size = size / thin->extent_size * thin->extent_size;
            rc = fw_volume_thin_discard(thin, piece.size, offset, reason);
        } else {
            rc = piece_zero(thin, &piece, !may_discard, reason);
        }
        offset += piece.size;
        size -= piece.size;
    }
    return rc;
}

/* ---- what it is ---- */

uint64_t fw_volume_thin_size(const struct fw_volume_thin *thin)
{
    return thin->size;
}

uint64_t fw_volume_thin_extent_size(const struct fw_volume_thin *thin)
{
    return thin->extent_size;
}

uint32_t fw_volume_thin_sector_size(const struct fw_volume_thin *thin)
{
    return thin->sector_size;
}

bool fw_volume_thin_is_placed(struct fw_volume_thin *thin, uint64_t offset)
{
    uint64_t at;
    return fw_volume_lookup(thin->volume, offset / thin->extent_size, &at);
}

/* ---- opening and closing ---- */

/* Looks after the agent; after each look, those who wait for extents try again. */
static void keeper_run(void *argument)
{
    struct fw_volume_thin *thin = argument;
    bool is_over = false;
    int told = 0;
    while (!is_over) {
        struct fw_ring_reason reason = {.text = ""};
        int rc = fw_volume_agent_step(thin->agent, &reason);
        if (rc != 0 && rc != told) {
            FW_LOG(volume, ERROR, "the volume cannot grow any more: %s", reason.text);
        }
        told = rc;
        fw_mutex_lock(&thin->lock);
        bool is_thirsty = thin->thirsty > 0;
        if (is_thirsty) {
            changed(thin);
        }
        is_over = thin->is_over;
        fw_mutex_unlock(&thin->lock);
        if (!is_over) {
            (void)fw_park_for(&thin->parker,
                              is_thirsty ? (int64_t)THIRSTY_MS * FW_NS_PER_MS : thin->interval_ns);
        }
    }
}

static void thin_free(struct fw_volume_thin *thin)
{
    struct fw_ring_reason reason = {.text = ""};
    int rc = 0;
    while (thin->volume != NULL && rc == 0) {
        rc = fw_volume_close(thin->volume, &reason);
        thin->volume = rc == FW_VOLUME_WAIT ? thin->volume : NULL;
        rc = rc == FW_VOLUME_WAIT ? fw_volume_agent_step(thin->agent, &reason) : rc;
    }
    if (thin->agent != NULL && thin->volume == NULL) {
        fw_volume_agent_close(thin->agent, rc == 0);
    } else if (thin->agent != NULL) { /* The ring is full, and nobody is there to empty it. */
        fw_volume_agent_drop(thin->agent);
    }
    for (size_t i = 0; i < FW_VOLUME_THIN_DISKS; i++) {
        if (thin->slots[i].disk != NULL) {
            fw_disk_close(thin->slots[i].disk);
        }
        free(thin->slots[i].bounce);
    }
    fw_mutex_fini(&thin->lock);
    free(thin);
}

static int slots_open(struct fw_volume_thin *thin, const char *path, struct fw_reason *reason)
{
    const struct fw_disk_options options = {
        .path = path, .flags = FW_DISK_DIRECT, .depth = 1, .threads = 1};
    for (size_t i = 0; i < FW_VOLUME_THIN_DISKS; i++) {
        struct slot *slot = &thin->slots[i];
        int rc = fw_disk_open(&slot->disk, &options, reason);
        if (rc != 0) {
            slot->disk = NULL;
            return rc;
        }
        slot->bounce = fw_disk_buffer(BOUNCE + 2 * FW_DISK_SECTOR_MAX);
        if (slot->bounce == NULL) {
            return fw_reason_errno(reason, -ENOMEM, "cannot attach a volume");
        }
    }
    thin->sector_size = fw_disk_properties(thin->slots[0].disk)->sector_size;
    return 0;
}

static int thin_start(struct fw_volume_thin *thin, const struct fw_volume_thin_options *options,
                      struct fw_reason *reason)
{
    const struct fw_volume_agent_options agent_options = {.path = options->path,
                                                          .host = options->host};
    int rc = fw_volume_agent_open(&thin->agent, &agent_options, fw_volume_ring_reason(reason));
    if (rc != 0) {
        thin->agent = NULL;
        return rc;
    }
    fw_volume_agent_prepare(thin->agent, extent_prepare, thin);
    rc = slots_open(thin, options->path, reason);
    if (rc == 0) {
        rc = fw_volume_open(&thin->volume, thin->agent, options->volume,
                            fw_volume_ring_reason(reason));
        thin->volume = rc == 0 ? thin->volume : NULL;
    }
    if (rc == FW_VOLUME_WAIT) {
        rc = fw_reason_set(reason, -EAGAIN, "the ring is full, and no manager empties it");
    }
    if (rc == 0) {
        thin->extent_size = thin->agent->store->geometry.extent_size;
        thin->size = fw_volume_size(thin->volume) * thin->extent_size;
        rc = fw_thread_create(&thin->thread, "volume-agent", keeper_run, thin);
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "cannot create a thread");
        }
    }
    return rc;
}

int fw_volume_thin_open(struct fw_volume_thin **made, const struct fw_volume_thin_options *options,
                        struct fw_reason *reason)
{
    struct fw_volume_thin *thin = calloc(1, sizeof *thin);
    if (thin == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot attach a volume");
    }
    fw_mutex_init(&thin->lock, FW_RANK_VOLUME_THIN);
    fw_list_init(&thin->waiters);
    fw_parker_init(&thin->parker);
    thin->interval_ns =
        options->interval_ns != 0 ? options->interval_ns : (int64_t)INTERVAL_MS * FW_NS_PER_MS;
    int rc = thin_start(thin, options, reason);
    if (rc != 0) {
        thin_free(thin);
        return rc;
    }
    *made = thin;
    return 0;
}

void fw_volume_thin_close(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->lock);
    thin->is_over = true;
    changed(thin);
    fw_mutex_unlock(&thin->lock);
    fw_unpark(&thin->parker);
    fw_thread_join(&thin->thread);
    FW_ASSERT(thin->inside == 0);
    thin_free(thin);
}
