/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/hash.h"
#include "io/clock.h"
#include "io/content.h"
#include "io/random.h"
#include "ring/core.h"

FW_LOG_MODULE_USE(ring);

static const char BOOT_ID[] = "/proc/sys/kernel/random/boot_id";
enum { BOOT_ID_MAX = 128, WATCH_MS = 500 };

static const enum fw_ring_role role_of_side[] = {
    [FW_RING_SIDE_PRODUCER] = FW_RING_PRODUCER,
    [FW_RING_SIDE_CONSUMER] = FW_RING_CONSUMER,
};
static const char *const side_names[] = {"producer", "consumer"};

static struct fw_reason *private_reason(struct fw_ring_reason *reason)
{
    return (struct fw_reason *)(void *)reason; /* One struct by two names, see ring.c. */
}

/* ---- opening and locking ---- */

int fw_ring_disk_open(struct fw_disk **disk, const struct fw_disk_options *options,
                      struct fw_reason *reason)
{
    struct fw_disk_options attempt = *options;
    int rc = fw_disk_open(disk, &attempt, reason);
    bool is_direct = (options->flags & FW_DISK_DIRECT) != 0;
    if (rc == 0 && fw_disk_properties(*disk)->sector_size == FW_DISK_SECTOR_MIN) {
        return 0;
    }
    if (rc != 0 && !(rc == -EINVAL && is_direct)) {
        return rc;
    }
    /*
     * Larger sectors: those of the device, or those that a file system asks for in direct transfers
     * of a file; a small file is not even one of these. In files the sectors of format 1 have 512
     * bytes, so files go the other way.
     */
    if (rc == 0) {
        fw_disk_close(*disk);
    }
    attempt.flags &= ~(unsigned)FW_DISK_DIRECT;
    rc = fw_disk_open(disk, &attempt, reason);
    if (rc == 0 && fw_disk_properties(*disk)->sector_size != FW_DISK_SECTOR_MIN) {
        fw_disk_close(*disk);
        rc = fw_disk_open(disk, options, reason);
    }
    return rc;
}

static int side_lock(struct fw_file_lock *lock, const char *path, enum fw_ring_side side,
                     struct fw_reason *reason)
{
    int rc = fw_file_lock_take(lock, path, (uint64_t)side + 1, reason); /* That of its sector. */
    if (rc == -EBUSY) {
        (void)fw_reason_set(reason, rc,
                            "somebody on this host is attached to %.150s as its %s already", path,
                            side_names[side]);
    }
    return rc;
}

static int disk_do(struct fw_disk *disk, struct fw_disk_op op, struct fw_reason *reason)
{
    return fw_disk_run(disk, &op, reason);
}

uint32_t fw_ring_sector_size(struct fw_disk *disk)
{
    const struct fw_disk_properties *properties = fw_disk_properties(disk);
    uint32_t sector_size = properties->sector_size;
    if (sector_size != FW_DISK_SECTOR_MIN || properties->size < FW_RING_LARGE_SIZE) {
        return sector_size;
    }
    uint8_t *head = fw_disk_buffer(FW_RING_LARGE_SIZE);
    /* Who could not read this will fail to read the rest, and then says why. */
    if (head != NULL &&
        disk_do(disk,
                (struct fw_disk_op){.kind = FW_DISK_READ, .into = head, .size = FW_RING_LARGE_SIZE},
                NULL) == 0 &&
        fw_ring_is_large(head)) {
        sector_size = FW_DISK_SECTOR_MAX;
    }
    free(head);
    return sector_size;
}

static int sector_size_check(struct fw_disk *disk, uint32_t *sector_size, struct fw_reason *reason)
{
    uint32_t own = fw_disk_properties(disk)->sector_size;
    if (*sector_size == 0) {
        *sector_size = fw_ring_sector_size(disk);
    }
    if ((*sector_size != FW_DISK_SECTOR_MIN && *sector_size != FW_DISK_SECTOR_MAX) ||
        *sector_size < own) {
        return fw_reason_set(reason, -EINVAL,
                             "a ring has sectors of 512 or 4096 bytes, and not of %" PRIu32
                             " on a disk with %" PRIu32,
                             *sector_size, own);
    }
    return 0;
}

/* ---- reading ---- */

int fw_ring_read_head(struct fw_disk *disk, uint32_t sector_size, struct fw_ring_geometry *geometry,
                      struct fw_reason *reason)
{
    uint64_t disk_size = fw_disk_properties(disk)->size;
    size_t size = disk_size < FW_RING_HEAD_SIZE ? disk_size : FW_RING_HEAD_SIZE;
    uint8_t *head = fw_disk_buffer(FW_RING_HEAD_SIZE);
    if (head == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read the ring");
    }
    int rc = disk_do(disk, (struct fw_disk_op){.kind = FW_DISK_READ, .into = head, .size = size},
                     reason);
    if (rc == 0) {
        rc = fw_ring_geometry_read(geometry, head, size, disk_size, sector_size, reason);
    }
    free(head);
    return rc;
}

int fw_ring_read_side(struct fw_disk *disk, const struct fw_ring_geometry *geometry,
                      enum fw_ring_side side, struct fw_ring_pointer *pointer,
                      struct fw_reason *reason)
{
    uint8_t *area = fw_disk_buffer(FW_RING_AREA_MAX);
    if (area == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read the ring");
    }
    int rc = disk_do(disk,
                     (struct fw_disk_op){.kind = FW_DISK_READ,
                                         .into = area,
                                         .size = fw_ring_area_size(geometry),
                                         .offset = fw_ring_area_offset(geometry, side)},
                     reason);
    if (rc == 0) {
        rc = fw_ring_pointer_read(geometry, side, area, pointer, reason);
    }
    free(area);
    return rc;
}

/* ---- create ---- */

static int create_write(struct fw_disk *disk, const uint8_t *bytes, size_t size, uint64_t offset,
                        struct fw_reason *reason)
{
    return disk_do(
        disk,
        (struct fw_disk_op){.kind = FW_DISK_WRITE, .from = bytes, .size = size, .offset = offset},
        reason);
}

/*
 * The states first, and only when they are durable the magic: a disk either holds a whole ring or
 * none. In format 2 the slots that are not used yet are cleared, for an older ring may have left
 * sound ones.
 */
static int create_states(struct fw_disk *disk, const struct fw_ring_geometry *geometry,
                         uint8_t *buffer, struct fw_reason *reason)
{
    const struct fw_ring_pointer empty = {.position = 0};
    int rc = 0;
    for (int side = FW_RING_SIDE_PRODUCER; rc == 0 && side <= FW_RING_SIDE_CONSUMER; side++) {
        enum fw_ring_side which = (enum fw_ring_side)side;
        if (geometry->format == 2) {
            memset(buffer, 0, fw_ring_area_size(geometry));
            rc = create_write(disk, buffer, fw_ring_area_size(geometry),
                              fw_ring_area_offset(geometry, which), reason);
        }
        if (rc == 0) {
            uint64_t place = fw_ring_pointer_write(geometry, which, &empty, NULL, buffer);
            rc = create_write(disk, buffer, geometry->sector_size, place, reason);
        }
    }
    if (rc == 0) {
        rc = disk_do(disk, (struct fw_disk_op){.kind = FW_DISK_FLUSH}, reason);
    }
    return rc;
}

/* A ring that is replaced must not be taken for a ring while the new one is being made. */
static int create_forget_old(struct fw_disk *disk, uint8_t *buffer, struct fw_reason *reason)
{
    memset(buffer, 0, fw_disk_properties(disk)->sector_size);
    int rc = create_write(disk, buffer, fw_disk_properties(disk)->sector_size, 0, reason);
    return rc != 0 ? rc : disk_do(disk, (struct fw_disk_op){.kind = FW_DISK_FLUSH}, reason);
}

/* Refuses before a file is made what could only be refused after. */
static int create_check(const struct fw_ring_create *create, struct fw_reason *reason)
{
    struct fw_ring_geometry geometry;
    uint32_t sector_size = create->sector_size != 0 ? create->sector_size : FW_DISK_SECTOR_MIN;
    if (create->format != 1 && create->format != 2) {
        return fw_reason_set(reason, -EINVAL, "there is no format %d, only 1 and 2",
                             create->format);
    }
    return create->size == 0 ? 0
                             : fw_ring_geometry_init(&geometry, create->format, create->size,
                                                     sector_size, 0, reason);
}

/* Whether a ring of another format, or a damaged one, is in the way; 0: no, or it may go. */
static int other_check(int found, const struct fw_ring_geometry *geometry,
                       const struct fw_ring_create *create, const struct fw_reason *why,
                       struct fw_reason *reason)
{
    bool is_other = found == -EBADMSG || (found == 0 && geometry->format != create->format);
    if (is_other && !create->replace) {
        return fw_reason_set(reason, -EEXIST,
                             "there is a ring of another format, or a damaged one, already: %.120s",
                             found == 0 ? "replace it if that is meant" : why->text);
    }
    return 0;
}

int fw_ring_create_on(struct fw_disk *disk, const struct fw_ring_create *create,
                      struct fw_reason *reason)
{
    struct fw_ring_geometry geometry = {.format = 0};
    uint32_t sector_size = create->sector_size;
    uint64_t id;
    int rc = create_check(create, reason);
    if (rc == 0) {
        rc = sector_size_check(disk, &sector_size, reason);
    }
    if (rc != 0) {
        return rc;
    }
    struct fw_reason why;
    rc = fw_ring_read_head(disk, sector_size, &geometry, &why);
    if (rc == 0 && geometry.format == create->format) {
        return 0;
    }
    bool is_there = rc == 0 || rc == -EBADMSG;
    int refused = other_check(rc, &geometry, create, &why, reason);
    if (refused != 0) {
        return refused;
    }
    if (rc != 0 && rc != -ENOENT && rc != -EBADMSG) {
        return fw_reason_set(reason, rc, "%s", why.text);
    }
    rc = fw_random_seed(&id);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot draw a random number");
    }
    rc = fw_ring_geometry_init(&geometry, create->format, fw_disk_properties(disk)->size,
                               sector_size, id, reason);
    if (rc != 0) {
        return rc;
    }
    uint8_t *buffer = fw_disk_buffer(FW_RING_AREA_MAX);
    if (buffer == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make a ring");
    }
    rc = is_there ? create_forget_old(disk, buffer, reason) : 0;
    if (rc == 0) {
        rc = create_states(disk, &geometry, buffer, reason);
    }
    if (rc == 0) {
        rc = create_write(disk, buffer, fw_ring_head_write(&geometry, buffer), 0, reason);
    }
    if (rc == 0) {
        rc = disk_do(disk, (struct fw_disk_op){.kind = FW_DISK_FLUSH}, reason);
    }
    free(buffer);
    return rc;
}

/* Whether the very ring is there already, in which case others may be using it. */
static bool create_is_done(struct fw_disk *disk, const struct fw_ring_create *create)
{
    struct fw_ring_geometry geometry = {.format = 0};
    uint32_t sector_size = create->sector_size;
    return sector_size_check(disk, &sector_size, NULL) == 0 &&
           fw_ring_read_head(disk, sector_size, &geometry, NULL) == 0 &&
           geometry.format == create->format;
}

/*
 * Whether a file may become longer. The capacity of format 1 is what the file has room for, so in a
 * longer one no message is where its position says. Without messages there is nothing to miss.
 */
static int growth_check(struct fw_disk *disk, const struct fw_ring_create *create,
                        struct fw_reason *reason)
{
    struct fw_ring_geometry geometry = {.format = 0};
    struct fw_ring_pointer sides[2] = {{.position = 0}};
    uint32_t sector_size = create->sector_size;
    struct fw_reason why;
    int rc = sector_size_check(disk, &sector_size, reason);
    if (rc != 0) {
        return rc;
    }
    int found = fw_ring_read_head(disk, sector_size, &geometry, &why);
    if (found != 0 || geometry.format != create->format || create->format != 1) {
        return other_check(found, &geometry, create, &why, reason);
    }
    for (int side = FW_RING_SIDE_PRODUCER; rc == 0 && side <= FW_RING_SIDE_CONSUMER; side++) {
        rc = fw_ring_read_side(disk, &geometry, (enum fw_ring_side)side, &sides[side], &why);
    }
    if (rc != 0) {
        return fw_reason_set(reason, -EEXIST, "the ring is damaged and cannot grow: %.120s",
                             why.text);
    }
    if (sides[0].position != sides[1].position) {
        return fw_reason_set(reason, -EEXIST,
                             "messages wait in the ring, which has %" PRIu64
                             " bytes, and would be lost if it grew; read them first",
                             fw_disk_properties(disk)->size);
    }
    return 0;
}

/*
 * Opens the disk as it is, if nothing is on it that is not ours to change; makes a file only where
 * there is none, or an empty one.
 */
static int create_open(struct fw_disk **disk, const struct fw_ring_create *create,
                       struct fw_disk_options *options, struct fw_reason *reason)
{
    struct fw_content content;
    int rc = fw_ring_disk_open(disk, options, reason);
    if (rc == 0 || rc == -EINVAL) {
        struct fw_reason why;
        int refused =
            fw_content_check(create->path, FW_CONTENT_RING, create->force, &content, &why);
        if (refused != 0) {
            if (rc == 0) {
                fw_disk_close(*disk);
            }
            return fw_reason_set(reason, refused, "%s", why.text);
        }
    }
    if ((rc == -ENOENT || rc == -EINVAL) && create->size > 0) {
        options->flags |= FW_DISK_CREATE;
        rc = fw_ring_disk_open(disk, options, reason);
    }
    return rc;
}

/* Under the locks of both sides. The disk is another one afterwards, also where this fails. */
static int create_grow(struct fw_disk **disk, const struct fw_ring_create *create,
                       struct fw_disk_options *options, struct fw_reason *reason)
{
    int rc = growth_check(*disk, create, reason);
    if (rc != 0) {
        return rc;
    }
    fw_disk_close(*disk);
    *disk = NULL;
    options->flags |= FW_DISK_CREATE;
    return fw_ring_disk_open(disk, options, reason);
}

int fw_ring_create(const struct fw_ring_create *create, struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = private_reason(public_reason);
    struct fw_file_lock locks[2];
    struct fw_disk *disk = NULL;
    struct fw_disk_options options = {
        .path = create->path, .flags = FW_DISK_DIRECT | FW_DISK_EXCLUSIVE, .size = create->size};
    int rc = create_check(create, reason);
    if (rc == 0) {
        rc = create_open(&disk, create, &options, reason);
    }
    if (rc != 0) {
        return rc;
    }
    const struct fw_disk_properties *properties = fw_disk_properties(disk);
    bool grows =
        properties->is_file && /* A part of a sector at the end does not count. */
        properties->size < create->size / properties->sector_size * properties->sector_size;
    if (!grows && create_is_done(disk, create)) {
        goto out_disk;
    }
    rc = side_lock(&locks[0], create->path, FW_RING_SIDE_PRODUCER, reason);
    if (rc != 0) {
        goto out_disk;
    }
    rc = side_lock(&locks[1], create->path, FW_RING_SIDE_CONSUMER, reason);
    if (rc == 0) {
        rc = grows ? create_grow(&disk, create, &options, reason) : 0;
        if (rc == 0) {
            rc = fw_ring_create_on(disk, create, reason);
        }
        fw_file_lock_release(&locks[1]);
    }
    fw_file_lock_release(&locks[0]);
out_disk:
    if (disk != NULL) {
        fw_disk_close(disk);
    }
    return rc;
}

/* ---- attach ---- */

uint64_t fw_ring_host_number(const struct fw_file_lock *lock)
{
    char *text;
    size_t size;
    uint64_t place[2];
    if (fw_file_read(BOOT_ID, BOOT_ID_MAX, &text, &size, NULL) != 0) {
        return 0;
    }
    fw_file_lock_place(lock, place);
    uint64_t number = fw_hash(place, sizeof place, fw_hash(text, size, 0));
    free(text);
    return number;
}

int fw_ring_owner_watch(struct fw_disk *disk, const struct fw_ring_geometry *geometry,
                        enum fw_ring_side side, const struct fw_ring_watch *watch,
                        struct fw_ring_pointer *pointer, struct fw_reason *reason)
{
    const struct fw_ring_pointer first = *pointer;
    struct fw_parker parker;
    fw_parker_init(&parker);
    bool is_silent = first.owner == 0 || (first.host == watch->host && watch->host != 0);
    for (int64_t waited_ms = 0; !is_silent && waited_ms < FW_RING_SILENCE_MS;
         waited_ms += WATCH_MS) {
        (void)fw_park_for(&parker, (int64_t)WATCH_MS * FW_NS_PER_MS);
        int rc = watch->meanwhile != NULL ? watch->meanwhile(watch->context, reason) : 0;
        if (rc == 0) {
            rc = fw_ring_read_side(disk, geometry, side, pointer, reason);
        }
        if (rc != 0) {
            return rc;
        }
        is_silent = pointer->owner == 0;
        if (!is_silent && pointer->sequence != first.sequence) {
            return fw_reason_set(reason, -EBUSY,
                                 "a %s on another host, or by another path, is attached and lives",
                                 side_names[side]);
        }
    }
    return 0;
}

static int owner_watch(struct fw_ring *ring, enum fw_ring_side side, struct fw_reason *reason)
{
    const struct fw_ring_watch watch = {.host = ring->host};
    return (ring->flags & FW_RING_ALONE) != 0
               ? 0
               : fw_ring_owner_watch(ring->disk, &ring->geometry, side, &watch, &ring->sides[side],
                                     reason);
}

/* Reads all there is to know and makes sure that it stays. */
static int attach_read(struct fw_ring *ring, uint32_t sector_size, struct fw_reason *reason)
{
    int rc = fw_ring_read_head(ring->disk, sector_size, &ring->geometry, reason);
    for (int side = FW_RING_SIDE_PRODUCER; rc == 0 && side <= FW_RING_SIDE_CONSUMER; side++) {
        rc = fw_ring_read_side(ring->disk, &ring->geometry, (enum fw_ring_side)side,
                               &ring->sides[side], reason);
        if (rc == 0 && (ring->role & role_of_side[side]) != 0 && ring->geometry.format == 2) {
            rc = owner_watch(ring, (enum fw_ring_side)side, reason);
        }
    }
    if (rc == 0) {
        rc = fw_ring_pointers_check(&ring->geometry, &ring->sides[FW_RING_SIDE_PRODUCER],
                                    &ring->sides[FW_RING_SIDE_CONSUMER], reason);
    }
    /* Whoever was here before may have died between a write and its flush. */
    if (rc == 0) {
        rc = disk_do(ring->disk, (struct fw_disk_op){.kind = FW_DISK_FLUSH}, reason);
    }
    if (rc == 0) {
        ring->staged = ring->sides[FW_RING_SIDE_PRODUCER].position;
        ring->producer_safe = ring->staged;
        ring->cursor = ring->sides[FW_RING_SIDE_CONSUMER].position;
        ring->consumer_safe = ring->cursor;
    }
    return rc;
}

/* Writes one of our states, when no operation is under way. */
static int state_store(struct fw_ring *ring, enum fw_ring_side side, bool flag, uint64_t owner,
                       struct fw_reason *reason)
{
    const struct fw_ring_names names = {.queue = ring->queue, .client = ring->client};
    struct fw_ring_pointer *pointer = &ring->sides[side];
    pointer->flag = flag;
    pointer->sequence++;
    pointer->beat++;
    pointer->owner = owner;
    pointer->host = ring->host;
    uint64_t place = fw_ring_pointer_write(&ring->geometry, side, pointer, &names, ring->state_out);
    int rc = disk_do(ring->disk,
                     (struct fw_disk_op){.kind = FW_DISK_WRITE,
                                         .from = ring->state_out,
                                         .size = ring->geometry.sector_size,
                                         .offset = place},
                     reason);
    return rc != 0 ? rc : disk_do(ring->disk, (struct fw_disk_op){.kind = FW_DISK_FLUSH}, reason);
}

/* Says that we are here, and answers what the consumer has asked for meanwhile. */
static int attach_write(struct fw_ring *ring, struct fw_reason *reason)
{
    int rc = 0;
    for (int side = FW_RING_SIDE_PRODUCER; rc == 0 && side <= FW_RING_SIDE_CONSUMER; side++) {
        if ((ring->role & role_of_side[side]) == 0) {
            continue;
        }
        bool flag = ring->sides[side].flag;
        bool suspend = ring->sides[FW_RING_SIDE_CONSUMER].flag;
        bool answers = side == FW_RING_SIDE_PRODUCER && ring->role != FW_RING_BOTH &&
                       flag != suspend && (suspend || (ring->flags & FW_RING_SYNCS) == 0);
        if (answers || ring->geometry.format == 2) {
            rc = state_store(ring, (enum fw_ring_side)side, answers ? suspend : flag, ring->owner,
                             reason);
        }
        ring->written_ns[side] = fw_clock_now_ns();
    }
    return rc;
}

static void ring_free(struct fw_ring *ring)
{
    for (int side = 0; side < 2; side++) {
        if (ring->is_locked[side]) {
            fw_file_lock_release(&ring->locks[side]);
        }
        free(ring->area_in[side]);
    }
    if (ring->owns_disk) {
        fw_disk_close(ring->disk);
    }
    free(ring->state_out);
    free(ring->in.bytes);
    free(ring->out.bytes);
    fw_mutex_fini(&ring->lock);
    free(ring);
}

static int name_set(char *to, const char *name, struct fw_reason *reason)
{
    const char *text = name != NULL && name[0] != '\0' ? name : "unknown";
    if (strlen(text) > FW_RING_NAME_MAX) {
        return fw_reason_set(reason, -EINVAL, "a name has at most %d bytes", FW_RING_NAME_MAX);
    }
    memcpy(to, text, strlen(text) + 1);
    return 0;
}

static int ring_make(struct fw_ring **made, const struct fw_ring_options *options,
                     struct fw_reason *reason)
{
    if ((options->role & FW_RING_BOTH) == 0 || (options->role & ~(unsigned)FW_RING_BOTH) != 0) {
        return fw_reason_set(reason, -EINVAL, "attach as producer, as consumer, or as both");
    }
    struct fw_ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot attach");
    }
    fw_mutex_init(&ring->lock, FW_RANK_RING);
    fw_list_init(&ring->queued);
    fw_list_init(&ring->batch);
    fw_list_init(&ring->finished);
    fw_list_init(&ring->waiters);
    ring->role = options->role;
    ring->flags = options->flags;
    ring->area_in[0] = fw_disk_buffer(FW_RING_AREA_MAX);
    ring->area_in[1] = fw_disk_buffer(FW_RING_AREA_MAX);
    ring->state_out = fw_disk_buffer(FW_DISK_SECTOR_MAX);
    int rc = 0;
    if (ring->area_in[0] == NULL || ring->area_in[1] == NULL || ring->state_out == NULL) {
        rc = fw_reason_errno(reason, -ENOMEM, "cannot attach");
    }
    if (rc == 0) {
        rc = name_set(ring->queue, options->queue, reason);
    }
    if (rc == 0) {
        rc = name_set(ring->client, options->client, reason);
    }
    if (rc != 0) {
        ring_free(ring);
        return rc;
    }
    *made = ring;
    return 0;
}

static int attach_with(struct fw_ring *ring, struct fw_disk *disk, uint64_t host,
                       uint32_t sector_size, struct fw_reason *reason)
{
    ring->disk = disk;
    ring->host = host;
    int rc = sector_size_check(disk, &sector_size, reason);
    if (rc == 0) {
        rc = fw_random_seed(&ring->owner);
        ring->owner |= 1; /* 0 is nobody. */
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "cannot draw a random number");
        }
    }
    if (rc == 0) {
        rc = attach_read(ring, sector_size, reason);
    }
    if (rc == 0) {
        rc = attach_write(ring, reason);
    }
    return rc;
}

int fw_ring_attach_on(struct fw_ring **ring, struct fw_disk *disk, uint64_t host,
                      const struct fw_ring_options *options, struct fw_reason *reason)
{
    int rc = ring_make(ring, options, reason);
    if (rc == 0) {
        rc = attach_with(*ring, disk, host, options->sector_size, reason);
        if (rc != 0) {
            ring_free(*ring);
        }
    }
    return rc;
}

int fw_ring_attach(struct fw_ring **made, const struct fw_ring_options *options,
                   struct fw_ring_reason *public_reason)
{
    struct fw_reason *reason = private_reason(public_reason);
    struct fw_ring *ring = NULL;
    int rc = ring_make(&ring, options, reason);
    if (rc != 0) {
        return rc;
    }
    FW_ASSERT(ring != NULL);
    bool direct = (options->flags & FW_RING_BUFFERED) == 0;
    struct fw_disk_options disk_options = {.path = options->path,
                                           .flags = direct ? (unsigned)FW_DISK_DIRECT : 0};
    rc = fw_ring_disk_open(&ring->disk, &disk_options, reason);
    ring->owns_disk = rc == 0;
    for (int side = FW_RING_SIDE_PRODUCER; rc == 0 && side <= FW_RING_SIDE_CONSUMER; side++) {
        if ((ring->role & role_of_side[side]) != 0) {
            rc = side_lock(&ring->locks[side], options->path, (enum fw_ring_side)side, reason);
            ring->is_locked[side] = rc == 0;
        }
    }
    if (rc == 0) {
        int locked =
            ring->is_locked[FW_RING_SIDE_PRODUCER] ? FW_RING_SIDE_PRODUCER : FW_RING_SIDE_CONSUMER;
        rc = attach_with(ring, ring->disk, fw_ring_host_number(&ring->locks[locked]),
                         options->sector_size, reason);
    }
    if (rc != 0) {
        ring_free(ring);
        return rc;
    }
    FW_LOG(ring, INFO, "attached to %s as %s", options->path,
           ring->role == FW_RING_BOTH ? "a journal"
                                      : side_names[ring->role == FW_RING_CONSUMER ? 1 : 0]);
    *made = ring;
    return 0;
}

void fw_ring_detach(struct fw_ring *ring)
{
    FW_ASSERT(fw_list_is_empty(&ring->queued) && fw_list_is_empty(&ring->batch));
    FW_ASSERT(ring->io_pending == 0 && !ring->driven);
    struct fw_reason reason;
    for (int side = FW_RING_SIDE_PRODUCER; side <= FW_RING_SIDE_CONSUMER; side++) {
        bool is_ours = (ring->role & role_of_side[side]) != 0;
        if (!is_ours || ring->geometry.format == 1 || ring->broken != 0) {
            continue;
        }
        if (state_store(ring, (enum fw_ring_side)side, ring->sides[side].flag, 0, &reason) != 0) {
            FW_LOG(ring, WARNING, "cannot say goodbye, others will wait a while: %s", reason.text);
        }
    }
    ring_free(ring);
}
