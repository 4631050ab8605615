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
    AHEAD_AFTER = 16,  /* Extents placed in order, before the next one is placed in advance. */
    AHEAD_POOL = 4,    /* And only where the pool has so many. */
    CLOSE_TRIES = 500, /* Of a volume whose ring is full, THIRSTY_MS apart. */
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

struct fw_volume_thin_host {
    /* Constant. */
    struct fw_volume_agent *agent;
    uint64_t extent_size;
    uint32_t sector_size;
    int64_t interval_ns;
    void (*left)(void);
    struct fw_thread thread;

    struct fw_mutex lock; /* FW_RANK_VOLUME_THIN. Guards what follows; held for no I/O. */
    struct fw_list waiters;
    uint64_t changes; /* Counts what waiters wait for. */
    uint32_t thirsty; /* Threads that wait for an extent. */
    bool is_opening;  /* Somebody opens or closes a volume. */
    bool is_stopping; /* Nobody waits for an extent any more. */
    bool is_out;      /* Of the group: nothing on the disk is ours. */
    bool is_over;
    struct fw_parker parker; /* The thread's. */
    struct slot slots[FW_VOLUME_THIN_DISKS];
    /* NULL: free. Those that nobody uses too, until they could be closed. */
    struct fw_volume_thin *thins[FW_VOLUME_THINS_MAX];
};

struct fw_volume_thin {
    /* Constant. */
    struct fw_volume_thin_host *host;
    struct fw_volume *volume;
    uint64_t extent_size;
    uint64_t size;
    uint32_t sector_size;

    /* Guarded by the host's lock. */
    uint32_t users;
    uint32_t inside;    /* Transfers under way. */
    bool is_discarding; /* Nobody gets in. */
    bool is_edging;     /* Somebody changes a part of a sector. */
    uint64_t next;      /* Behind the extent that was written first most recently, */
    uint32_t in_order;  /* and how many before it were so in order. */
    uint64_t wanted;    /* To be placed in advance; NOWHERE: none. */
    uint64_t spare;     /* Placed in advance, and certainly not written since. */
};

static const uint64_t NOWHERE = UINT64_MAX;

/* ---- waiting, under the lock ---- */

static void changed(struct fw_volume_thin_host *host)
{
    struct fw_list_link *link;
    host->changes++;
    while ((link = fw_list_pop_front(&host->waiters)) != NULL) {
        fw_unpark(&FW_LIST_ENTRY(link, struct waiter, link)->parker);
    }
}

static void change_wait(struct fw_volume_thin_host *host) FW_REQUIRES(host->lock);

static void change_wait(struct fw_volume_thin_host *host)
{
    struct waiter waiter = {.parker = {0}};
    fw_parker_init(&waiter.parker);
    fw_list_push_back(&host->waiters, &waiter.link);
    fw_mutex_unlock(&host->lock);
    fw_park(&waiter.parker);
    fw_mutex_lock(&host->lock);
}

/* A flag that one thread at a time has. */
static void flag_take(struct fw_volume_thin_host *host, bool *flag)
{
    fw_mutex_lock(&host->lock);
    while (*flag) {
        change_wait(host);
    }
    *flag = true;
    fw_mutex_unlock(&host->lock);
}

static void flag_drop(struct fw_volume_thin_host *host, bool *flag)
{
    fw_mutex_lock(&host->lock);
    *flag = false;
    changed(host);
    fw_mutex_unlock(&host->lock);
}

/* ---- transfers and discards ---- */

static struct slot *slot_find(struct fw_volume_thin_host *host)
{
    for (size_t i = 0; i < FW_VOLUME_THIN_DISKS; i++) {
        if (!host->slots[i].is_busy) {
            return &host->slots[i];
        }
    }
    return NULL;
}

/* A disk for a transfer of the volume's, or of none's: then no discard is in its way. NULL, with
 * the reason: the host is out of the group, which is -EIO. */
static struct slot *transfer_begin(struct fw_volume_thin_host *host, struct fw_volume_thin *thin,
                                   struct fw_reason *reason)
{
    struct slot *slot = NULL;
    fw_mutex_lock(&host->lock);
    while (!host->is_out &&
           ((thin != NULL && thin->is_discarding) || (slot = slot_find(host)) == NULL)) {
        change_wait(host);
    }
    if (host->is_out) {
        slot = NULL;
        (void)fw_reason_set(reason, -EIO, "this host is not in the group any more");
    } else {
        slot->is_busy = true;
        if (thin != NULL) {
            thin->inside++;
        }
    }
    fw_mutex_unlock(&host->lock);
    return slot;
}

static void transfer_end(struct fw_volume_thin_host *host, struct fw_volume_thin *thin,
                         struct slot *slot)
{
    fw_mutex_lock(&host->lock);
    slot->is_busy = false;
    if (thin != NULL) {
        thin->inside--;
    }
    changed(host);
    fw_mutex_unlock(&host->lock);
}

static void discard_begin(struct fw_volume_thin *thin)
{
    flag_take(thin->host, &thin->is_discarding);
    fw_mutex_lock(&thin->host->lock);
    while (thin->inside > 0) {
        change_wait(thin->host);
    }
    fw_mutex_unlock(&thin->host->lock);
}

static void discard_end(struct fw_volume_thin *thin)
{
    flag_drop(thin->host, &thin->is_discarding);
}

/* ---- one extent in advance ---- */

/*
 * Who writes a volume from begin to end would stop at each extent until it is placed. So when
 * some have been placed in order, the keeper places the next one meanwhile. Nobody shall notice:
 * it is told as a hole until it is written to, and given back if that does not happen. `spare` is
 * set before it is placed, and cleared by whoever writes before he looks where: so it is never one
 * that somebody has written to.
 */

/* Before a write to an extent: it is no spare any more, and the next one will be wanted. */
static void ahead_touch(struct fw_volume_thin *thin, uint64_t logical, bool is_new)
{
    struct fw_volume_thin_host *host = thin->host;
    fw_mutex_lock(&host->lock);
    bool was_spare = thin->spare == logical;
    if (was_spare) {
        thin->spare = NOWHERE;
    }
    if ((was_spare || is_new) && thin->next != logical + 1) { /* Or it has been counted. */
        thin->in_order = logical == thin->next ? thin->in_order + 1 : 1;
        thin->next = logical + 1;
        bool is_wanted =
            thin->in_order >= AHEAD_AFTER && thin->next < thin->size / thin->extent_size;
        thin->wanted = is_wanted ? thin->next : NOWHERE;
        if (is_wanted) {
            fw_unpark(&host->parker);
        }
    }
    fw_mutex_unlock(&host->lock);
}

static struct fw_volume_thin *ahead_find(struct fw_volume_thin_host *host, uint64_t *logical)
{
    struct fw_volume_thin *found = NULL;
    fw_mutex_lock(&host->lock);
    for (size_t i = 0; found == NULL && i < FW_VOLUME_THINS_MAX; i++) {
        struct fw_volume_thin *thin = host->thins[i];
        if (thin != NULL && thin->wanted != NOWHERE && thin->spare == NOWHERE) {
            thin->spare = *logical = thin->wanted;
            thin->wanted = NOWHERE;
            found = thin;
        }
    }
    fw_mutex_unlock(&host->lock);
    return found;
}

/* By the keeper. */
static void ahead_place(struct fw_volume_thin_host *host)
{
    struct fw_volume_thin *thin;
    uint64_t logical;
    flag_take(host, &host->is_opening); /* None is closed meanwhile. */
    /* Else it stays wanted: extents are for who waits for one first. */
    while (fw_volume_agent_pool(host->agent) >= AHEAD_POOL &&
           (thin = ahead_find(host, &logical)) != NULL) {
        uint64_t at;
        bool is_hole = !fw_volume_lookup(thin->volume, logical, &at);
        if (!is_hole || fw_volume_allocate(thin->volume, logical, 1, NULL) != 0) {
            fw_mutex_lock(&host->lock);
            thin->spare = NOWHERE;
            fw_mutex_unlock(&host->lock);
        }
    }
    flag_drop(host, &host->is_opening);
}

uint64_t fw_volume_thin_spare(struct fw_volume_thin *thin)
{
    fw_mutex_lock(&thin->host->lock);
    uint64_t spare = thin->spare;
    fw_mutex_unlock(&thin->host->lock);
    return spare;
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
    flag_take(thin->host, &thin->is_edging); /* By one thread at a time. */
    int rc = slot_do(slot, FW_DISK_READ, slot->bounce, whole, offset - skew, reason);
    if (rc == 0) {
        memcpy(slot->bounce + skew, from, size);
        rc = slot_do(slot, FW_DISK_WRITE, slot->bounce, whole, offset - skew, reason);
    }
    flag_drop(thin->host, &thin->is_edging);
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
static int retry_wait(struct fw_volume_thin_host *host, uint64_t seen, bool for_manager)
{
    fw_mutex_lock(&host->lock);
    host->thirsty += for_manager ? 1 : 0;
    if (for_manager) {
        fw_unpark(&host->parker);
    }
    while (!host->is_stopping && host->changes == seen) {
        change_wait(host);
    }
    host->thirsty -= for_manager ? 1 : 0;
    int rc = host->is_stopping ? -ESHUTDOWN : 0;
    fw_mutex_unlock(&host->lock);
    return rc;
}

static uint64_t changes_now(struct fw_volume_thin_host *host)
{
    fw_mutex_lock(&host->lock);
    uint64_t changes = host->changes;
    fw_mutex_unlock(&host->lock);
    return changes;
}

/* Tells those whom somebody was in the way of. */
static void settled(struct fw_volume_thin_host *host)
{
    fw_mutex_lock(&host->lock);
    changed(host);
    fw_mutex_unlock(&host->lock);
}

static int extent_place(struct fw_volume_thin *thin, uint64_t logical, struct fw_reason *reason)
{
    for (;;) {
        uint64_t seen = changes_now(thin->host);
        int rc = fw_volume_allocate(thin->volume, logical, 1, fw_volume_ring_reason(reason));
        if (rc == 0 || (rc < 0 && rc != -EALREADY)) {
            settled(thin->host);
            return rc;
        }
        rc = retry_wait(thin->host, seen, rc == FW_VOLUME_WAIT);
        if (rc != 0) {
            return fw_reason_set(reason, rc, "the volume is being detached");
        }
    }
}

/* Called before an extent is placed. */
static int extent_prepare(void *context, uint64_t offset, uint64_t size, struct fw_reason *reason)
{
    struct fw_volume_thin_host *host = context;
    struct slot *slot = transfer_begin(host, NULL, reason);
    if (slot == NULL) {
        return -EIO;
    }
    int rc = fw_disk_zero(slot->disk, offset, size, reason);
    transfer_end(host, NULL, slot);
    return rc;
}

static int extents_discard(struct fw_volume_thin *thin, uint64_t logical, uint64_t count,
                           struct fw_reason *reason)
{
    while (count > 0) {
        uint64_t part = count < DISCARD_MAX ? count : DISCARD_MAX;
        discard_begin(thin);
        uint64_t seen = changes_now(thin->host);
        int rc = fw_volume_discard(thin->volume, logical, part, fw_volume_ring_reason(reason));
        discard_end(thin);
        if (rc == 0) {
            logical += part;
            count -= part;
        } else if (rc == FW_VOLUME_WAIT || rc == -EALREADY) {
            rc = retry_wait(thin->host, seen + 1, rc == FW_VOLUME_WAIT); /* That was our own end. */
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
        struct slot *slot = transfer_begin(thin->host, thin, reason);
        if (slot == NULL) {
            return -EIO;
        }
        if (fw_volume_lookup(thin->volume, piece.logical, &at)) {
            rc = slot_read(thin, slot, bytes, piece.size, at + piece.within, reason);
        } else {
            memset(bytes, 0, piece.size);
        }
        transfer_end(thin->host, thin, slot);
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
    bool is_new = false;
    for (;;) {
        uint64_t at;
        ahead_touch(thin, piece->logical, is_new);
        struct slot *slot = transfer_begin(thin->host, thin, reason);
        if (slot == NULL) {
            return -EIO;
        }
        bool is_there = fw_volume_lookup(thin->volume, piece->logical, &at);
        int rc =
            is_there ? slot_write(thin, slot, from, piece->size, at + piece->within, reason) : 0;
        transfer_end(thin->host, thin, slot);
        if (is_there) {
            return rc;
        }
        rc = extent_place(thin, piece->logical, reason);
        if (rc != 0) {
            return rc;
        }
        is_new = true;
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
    struct slot *slot = transfer_begin(thin->host, thin, reason);
    if (slot == NULL) {
        return -EIO;
    }
    int rc = slot_do(slot, FW_DISK_FLUSH, NULL, 0, 0, reason);
    transfer_end(thin->host, thin, slot);
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
    uint64_t logical = offset / thin->extent_size;
    return logical != fw_volume_thin_spare(thin) && fw_volume_lookup(thin->volume, logical, &at);
}

/* ---- opening and closing a volume ---- */

static struct fw_volume_thin *thin_find(struct fw_volume_thin_host *host, const char *name)
{
    for (size_t i = 0; i < FW_VOLUME_THINS_MAX; i++) {
        if (host->thins[i] != NULL && strcmp(host->thins[i]->volume->name, name) == 0) {
            return host->thins[i];
        }
    }
    return NULL;
}

/* Where there is none yet. NULL: they are too many. */
static struct fw_volume_thin **place_find(struct fw_volume_thin_host *host)
{
    size_t i = 0;
    while (i < FW_VOLUME_THINS_MAX && host->thins[i] != NULL) {
        i++;
    }
    return i < FW_VOLUME_THINS_MAX ? &host->thins[i] : NULL;
}

static int thin_make(struct fw_volume_thin **made, struct fw_volume_thin_host *host,
                     const char *name, struct fw_reason *reason)
{
    struct fw_volume_thin *thin = calloc(1, sizeof *thin);
    if (thin == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot attach a volume");
    }
    int rc = fw_volume_open(&thin->volume, host->agent, name, fw_volume_ring_reason(reason));
    if (rc == FW_VOLUME_WAIT) {
        rc = fw_reason_set(reason, -EAGAIN, "the ring is full, and no manager empties it");
    }
    if (rc != 0) {
        free(thin);
        return rc;
    }
    thin->host = host;
    thin->users = 1;
    thin->wanted = NOWHERE;
    thin->spare = NOWHERE;
    thin->extent_size = host->extent_size;
    thin->sector_size = host->sector_size;
    thin->size = fw_volume_size(thin->volume) * thin->extent_size;
    *made = thin;
    return 0;
}

int fw_volume_thin_open(struct fw_volume_thin **made, struct fw_volume_thin_host *host,
                        const char *name, struct fw_reason *reason)
{
    int rc = 0;
    flag_take(host, &host->is_opening);
    fw_mutex_lock(&host->lock);
    struct fw_volume_thin *thin = thin_find(host, name);
    struct fw_volume_thin **place = place_find(host);
    if (thin != NULL) {
        thin->users++;
    }
    fw_mutex_unlock(&host->lock);
    if (thin == NULL && place == NULL) {
        rc = fw_reason_set(reason, -EMFILE, "%d volumes are attached already", FW_VOLUME_THINS_MAX);
    } else if (thin == NULL) {
        rc = thin_make(&thin, host, name, reason);
        if (rc == 0) {
            fw_mutex_lock(&host->lock);
            *place = thin;
            fw_mutex_unlock(&host->lock);
        }
    }
    flag_drop(host, &host->is_opening);
    if (rc == 0) {
        *made = thin;
    }
    return rc;
}

static struct fw_volume_thin **thin_unused(struct fw_volume_thin_host *host)
{
    struct fw_volume_thin **found = NULL;
    fw_mutex_lock(&host->lock);
    for (size_t i = 0; found == NULL && i < FW_VOLUME_THINS_MAX; i++) {
        if (host->thins[i] != NULL && host->thins[i]->users == 0) {
            found = &host->thins[i];
        }
    }
    fw_mutex_unlock(&host->lock);
    return found;
}

/* Closes volumes that nobody uses. False: the ring is full, and one stays until a later time. */
static bool thins_sweep(struct fw_volume_thin_host *host)
{
    bool is_full = false;
    while (!is_full && thin_unused(host) != NULL) {
        flag_take(host, &host->is_opening);
        struct fw_volume_thin **place = thin_unused(host); /* Somebody may want it again. */
        struct fw_volume_thin *thin = place != NULL ? *place : NULL;
        if (thin != NULL) {
            FW_ASSERT(thin->inside == 0);
            if (thin->spare != NOWHERE) { /* If that cannot be, it stays: zeros, as a hole is. */
                (void)!fw_volume_discard(thin->volume, thin->spare, 1, NULL);
                thin->spare = NOWHERE;
            }
            is_full = fw_volume_close(thin->volume, NULL) == FW_VOLUME_WAIT;
        }
        if (thin != NULL && !is_full) {
            fw_mutex_lock(&host->lock);
            *place = NULL;
            fw_mutex_unlock(&host->lock);
            free(thin);
        }
        flag_drop(host, &host->is_opening);
    }
    return !is_full;
}

void fw_volume_thin_close(struct fw_volume_thin *thin)
{
    struct fw_volume_thin_host *host = thin->host;
    fw_mutex_lock(&host->lock);
    FW_ASSERT(thin->users > 0);
    thin->users--;
    fw_mutex_unlock(&host->lock);
    (void)thins_sweep(host);
}

/* ---- the host ---- */

/* What the agent has found out is told once. */
static void keeper_judge(struct fw_volume_thin_host *host, int rc, const char *why)
{
    bool is_out = rc == -ESHUTDOWN || rc == -ESTALE;
    FW_LOG(volume, ERROR, "%s: %s",
           is_out ? "all access to volumes fails from now on" : "volumes cannot grow any more",
           why);
    fw_mutex_lock(&host->lock);
    host->is_out = host->is_out || is_out;
    changed(host);
    fw_mutex_unlock(&host->lock);
    if (rc == -ESHUTDOWN && host->left != NULL) {
        host->left();
    }
}

/* Looks after the agent; after each look, those who wait for extents try again. */
static void keeper_run(void *argument)
{
    struct fw_volume_thin_host *host = argument;
    bool is_over = false;
    int told = 0;
    while (!is_over) {
        struct fw_ring_reason reason = {.text = ""};
        int rc = fw_volume_agent_step(host->agent, &reason);
        if (rc != 0 && rc != told) {
            keeper_judge(host, rc, reason.text);
        }
        told = rc;
        ahead_place(host);
        (void)thins_sweep(host);
        fw_mutex_lock(&host->lock);
        bool is_thirsty = host->thirsty > 0;
        if (is_thirsty) {
            changed(host);
        }
        is_over = host->is_over;
        fw_mutex_unlock(&host->lock);
        if (!is_over) {
            (void)fw_park_for(&host->parker,
                              is_thirsty ? (int64_t)THIRSTY_MS * FW_NS_PER_MS : host->interval_ns);
        }
    }
}

static void host_free(struct fw_volume_thin_host *host)
{
    if (host->agent != NULL) {
        fw_volume_agent_close(host->agent, true);
    }
    for (size_t i = 0; i < FW_VOLUME_THIN_DISKS; i++) {
        if (host->slots[i].disk != NULL) {
            fw_disk_close(host->slots[i].disk);
        }
        free(host->slots[i].bounce);
    }
    fw_mutex_fini(&host->lock);
    free(host);
}

static int slots_open(struct fw_volume_thin_host *host, const char *path, struct fw_reason *reason)
{
    const struct fw_disk_options options = {
        .path = path, .flags = FW_DISK_DIRECT, .engine = FW_DISK_ENGINE_CALLER, .depth = 1};
    for (size_t i = 0; i < FW_VOLUME_THIN_DISKS; i++) {
        struct slot *slot = &host->slots[i];
        int rc = fw_disk_open(&slot->disk, &options, reason);
        if (rc != 0) {
            slot->disk = NULL;
            return rc;
        }
        slot->bounce = fw_disk_buffer(BOUNCE + 2 * FW_DISK_SECTOR_MAX);
        if (slot->bounce == NULL) {
            return fw_reason_errno(reason, -ENOMEM, "cannot attach volumes");
        }
    }
    host->sector_size = fw_disk_properties(host->slots[0].disk)->sector_size;
    return 0;
}

static int host_start(struct fw_volume_thin_host *host,
                      const struct fw_volume_thin_options *options, struct fw_reason *reason)
{
    const struct fw_volume_agent_options agent_options = {
        .path = options->path, .host = options->host, .full_ns = options->full_ns};
    int rc = fw_volume_agent_open(&host->agent, &agent_options, fw_volume_ring_reason(reason));
    if (rc != 0) {
        host->agent = NULL;
        return rc;
    }
    fw_volume_agent_prepare(host->agent, extent_prepare, host);
    host->extent_size = host->agent->store->geometry.extent_size;
    rc = slots_open(host, options->path, reason);
    if (rc == 0) {
        rc = fw_thread_create(&host->thread, "volume-agent", keeper_run, host);
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "cannot create a thread");
        }
    }
    return rc;
}

int fw_volume_thin_host_open(struct fw_volume_thin_host **made,
                             const struct fw_volume_thin_options *options, struct fw_reason *reason)
{
    struct fw_volume_thin_host *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot attach volumes");
    }
    fw_mutex_init(&host->lock, FW_RANK_VOLUME_THIN);
    fw_list_init(&host->waiters);
    fw_parker_init(&host->parker);
    host->interval_ns =
        options->interval_ns != 0 ? options->interval_ns : (int64_t)INTERVAL_MS * FW_NS_PER_MS;
    host->left = options->left;
    int rc = host_start(host, options, reason);
    if (rc != 0) {
        host_free(host);
        return rc;
    }
    *made = host;
    return 0;
}

void fw_volume_thin_host_stop(struct fw_volume_thin_host *host)
{
    fw_mutex_lock(&host->lock);
    host->is_stopping = true;
    changed(host);
    fw_mutex_unlock(&host->lock);
}

/* Volumes that somebody has not closed are nobody's. */
static void thins_disown(struct fw_volume_thin_host *host)
{
    fw_mutex_lock(&host->lock);
    for (size_t i = 0; i < FW_VOLUME_THINS_MAX; i++) {
        if (host->thins[i] != NULL) {
            host->thins[i]->users = 0;
        }
    }
    fw_mutex_unlock(&host->lock);
}

void fw_volume_thin_host_close(struct fw_volume_thin_host *host)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    fw_volume_thin_host_stop(host);
    thins_disown(host);
    /* The ring may be full, and nobody there to empty it: then they stay open, as after a crash. */
    for (int i = 0; i < CLOSE_TRIES && !thins_sweep(host); i++) {
        (void)fw_park_for(&parker, (int64_t)THIRSTY_MS * FW_NS_PER_MS);
    }
    fw_mutex_lock(&host->lock);
    host->is_over = true;
    changed(host);
    fw_mutex_unlock(&host->lock);
    fw_unpark(&host->parker);
    fw_thread_join(&host->thread);
    bool is_left = false;
    for (size_t i = 0; i < FW_VOLUME_THINS_MAX; i++) {
        struct fw_volume_thin *thin = host->thins[i];
        FW_ASSERT(thin == NULL || thin->users == 0);
        is_left = is_left || thin != NULL;
        free(thin);
    }
    if (is_left) {
        fw_volume_agent_drop(host->agent);
        host->agent = NULL;
    }
    host_free(host);
}
