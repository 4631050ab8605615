/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk in memory, for tests. It keeps the rules of io/disk.h as strictly as they allow: discarded
 * sectors read back as rubbish, two writes under way to one sector are an assertion, and where
 * `deferred` is set, operations finish in an order the seed chooses, some polls later.
 *
 * It is polled by hand: fw_disk_fd() is -1. All of it belongs to one thread.
 */
#pragma once

#include "io/disk_backend.h"
#include "io/random.h"

enum {
    FW_DISK_MEMORY_SIZE_MAX = 256 << 20,
    FW_DISK_MEMORY_DISCARDED = 0xd5, /* What a discarded byte becomes. */
};

struct fw_disk_memory_options {
    uint64_t size;
    uint32_t sector_size; /* 512 to 4096, a power of two; 0: 512. */
    uint32_t depth;       /* 0: 64. */
    bool deferred;        /* Answer -EINPROGRESS rather than at once. */
    uint64_t seed;        /* Of the order in which deferred operations finish. */
};

/* Sees operations come and go. Not NULL where a disk has one. */
struct fw_disk_memory_observer {
    /* Before anything is done. Not 0: a negative errno that the operation fails with at once. */
    int (*started)(void *context, struct fw_disk_op *op);
    /* When it has been done. */
    void (*finished)(void *context, struct fw_disk_op *op);
};

struct fw_disk_memory {
    struct fw_disk disk;
    uint8_t *bytes;
    uint64_t *touched; /* A bit for each sector written or discarded since touched_clear(). */
    struct fw_list pending;
    uint32_t pending_count;
    bool deferred;
    struct fw_random order;
    const struct fw_disk_memory_observer *observer;
    void *observer_context;
};

/*
 * Makes a disk of zeroes. fw_disk_close(&memory->disk) frees it. Returns 0, -ENOMEM, or -EINVAL for
 * a size that is 0, too large or no multiple of the sector size.
 */
FW_MUST_CHECK int fw_disk_memory_create(struct fw_disk_memory **memory,
                                        const struct fw_disk_memory_options *options);

/* Calls visit(offset) for each sector touched since the last time, and forgets them. */
void fw_disk_memory_touched_take(struct fw_disk_memory *memory,
                                 void (*visit)(void *context, uint64_t offset), void *context);
