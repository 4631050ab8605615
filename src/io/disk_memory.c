/* SPDX-License-Identifier: Apache-2.0 */
#include "io/disk_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { BITS = 64 };

static struct fw_disk_memory *memory_of(struct fw_disk *disk)
{
    return FW_CONTAINER_OF(disk, struct fw_disk_memory, disk);
}

static bool op_changes(const struct fw_disk_op *op)
{
    return op->kind == FW_DISK_WRITE || op->kind == FW_DISK_DISCARD;
}

static void memory_touch(struct fw_disk_memory *memory, const struct fw_disk_op *op)
{
    uint64_t first = op->offset / memory->disk.properties.sector_size;
    uint64_t end = (op->offset + op->size) / memory->disk.properties.sector_size;
    for (uint64_t sector = first; sector < end; sector++) {
        memory->touched[sector / BITS] |= UINT64_C(1) << (sector % BITS);
    }
}

static void memory_execute(struct fw_disk_memory *memory, struct fw_disk_op *op)
{
    uint8_t *bytes = memory->bytes + op->offset;
    if (op_changes(op)) {
        memory_touch(memory, op);
    }
    if (op->kind == FW_DISK_READ) {
        memcpy(op->into, bytes, op->size);
    } else if (op->kind == FW_DISK_WRITE) {
        memcpy(bytes, op->from, op->size);
    } else if (op->kind == FW_DISK_DISCARD) {
        memset(bytes, FW_DISK_MEMORY_DISCARDED, op->size);
    }
    op->moved = op->kind == FW_DISK_READ || op->kind == FW_DISK_WRITE ? op->size : 0;
    op->result = 0;
    if (memory->observer != NULL) {
        memory->observer->finished(memory->observer_context, op);
    }
}

/* Two writers of one sector at a time: what it holds afterwards would be luck. */
static void memory_assert_one_writer(const struct fw_disk_memory *memory,
                                     const struct fw_disk_op *op)
{
    FW_LIST_FOR_EACH (&memory->pending, struct fw_disk_op, link, other) {
        bool apart =
            op->offset + op->size <= other->offset || other->offset + other->size <= op->offset;
        FW_ASSERT(apart || !op_changes(other));
    }
}

static int memory_start(struct fw_disk *disk, struct fw_disk_op *op)
{
    struct fw_disk_memory *memory = memory_of(disk);
    if (op_changes(op)) {
        memory_assert_one_writer(memory, op);
    }
    if (memory->observer != NULL) {
        int rc = memory->observer->started(memory->observer_context, op);
        if (rc != 0) {
            return rc;
        }
    }
    if (!memory->deferred) {
        memory_execute(memory, op);
        return 0;
    }
    fw_list_push_back(&memory->pending, &op->link);
    memory->pending_count++;
    return -EINPROGRESS;
}

static struct fw_disk_op *pending_take(struct fw_disk_memory *memory, uint64_t position)
{
    struct fw_list_link *link = fw_list_first(&memory->pending);
    for (; position > 0; position--) {
        link = link->next;
    }
    fw_list_remove(link);
    memory->pending_count--;
    return FW_LIST_ENTRY(link, struct fw_disk_op, link);
}

/* Finishes at least one operation, if there is any, and at most all. */
static void memory_reap(struct fw_disk *disk, struct fw_list *finished)
{
    struct fw_disk_memory *memory = memory_of(disk);
    if (memory->pending_count == 0) {
        return;
    }
    uint64_t count = fw_random_between(&memory->order, 1, memory->pending_count);
    for (; count > 0; count--) {
        uint64_t position = fw_random_below(&memory->order, memory->pending_count);
        struct fw_disk_op *op = pending_take(memory, position);
        memory_execute(memory, op);
        fw_list_push_back(finished, &op->link);
    }
}

static void memory_wait(struct fw_disk *disk)
{
    FW_ASSERT(memory_of(disk)->pending_count > 0); /* The next poll finishes one of them. */
}

static void memory_close(struct fw_disk *disk)
{
    struct fw_disk_memory *memory = memory_of(disk);
    free(memory->touched);
    free(memory->bytes);
    free(memory);
}

static const struct fw_disk_backend memory_backend = {
    .start = memory_start,
    .reap = memory_reap,
    .wait = memory_wait,
    .close = memory_close,
};

static char memory_name[] = "memory";

static bool options_are_valid(const struct fw_disk_memory_options *options, uint32_t sector_size)
{
    bool power_of_two = (sector_size & (sector_size - 1)) == 0;
    return power_of_two && sector_size >= FW_DISK_SECTOR_MIN && sector_size <= FW_DISK_SECTOR_MAX &&
           options->size > 0 && options->size <= FW_DISK_MEMORY_SIZE_MAX &&
           options->size % sector_size == 0 && options->depth <= FW_DISK_DEPTH_MAX;
}

int fw_disk_memory_create(struct fw_disk_memory **memory,
                          const struct fw_disk_memory_options *options)
{
    uint32_t sector_size = options->sector_size != 0 ? options->sector_size : FW_DISK_SECTOR_MIN;
    if (!options_are_valid(options, sector_size)) {
        return -EINVAL;
    }
    struct fw_disk_memory *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return -ENOMEM;
    }
    own->bytes = calloc(1, options->size);
    own->touched = calloc(options->size / sector_size / BITS + 1, sizeof *own->touched);
    if (own->bytes == NULL || own->touched == NULL) {
        memory_close(&own->disk);
        return -ENOMEM;
    }
    own->disk = (struct fw_disk){
        .backend = &memory_backend,
        .properties = {.size = options->size,
                       .sector_size = sector_size,
                       .physical_size = sector_size,
                       .direct = true,
                       .discard = true,
                       .engine = memory_name},
        .name = memory_name,
        .fd = -1,
        .depth = options->depth != 0 ? options->depth : FW_DISK_DEPTH_DEFAULT,
    };
    fw_list_init(&own->pending);
    own->deferred = options->deferred;
    fw_random_init(&own->order, options->seed);
    *memory = own;
    return 0;
}

void fw_disk_memory_touched_take(struct fw_disk_memory *memory,
                                 void (*visit)(void *context, uint64_t offset), void *context)
{
    const struct fw_disk_properties *properties = &memory->disk.properties;
    uint64_t words = properties->size / properties->sector_size / BITS + 1;
    for (uint64_t word = 0; word < words; word++) {
        while (memory->touched[word] != 0) {
            uint64_t bit = (uint64_t)__builtin_ctzll(memory->touched[word]);
            memory->touched[word] &= memory->touched[word] - 1;
            visit(context, (word * BITS + bit) * properties->sector_size);
        }
    }
}
