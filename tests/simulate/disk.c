/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/disk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "io/disk.h"
#include "io/disk_backend.h"
#include "simulate/network.h"
#include "simulate/sim.h"

enum { PLATTERS_MAX = 16, NAME_MAX_SIZE = 64 };

struct sim_disk_weather sim_disk_weather;

/* A write that has finished and is not durable yet. */
struct pending {
    struct pending *next;
    uint64_t number; /* Writes finish in this order. */
    uint64_t offset;
    size_t size;
    uint8_t *data;
    bool *superseded; /* Per sector: something later there is durable already. */
};

/* What is on the disk, whoever has it open. */
struct platter {
    char path[NAME_MAX_SIZE];
    uint64_t size;
    uint32_t sector_size;
    uint8_t *durable;
    uint8_t *current;
    struct pending *pending; /* The oldest first. */
    struct pending **pending_end;
    uint64_t finished_writes;
    uint32_t life; /* Crashes so far: an opening of an earlier life is dead. */
    struct fw_list openings;
};

/* An opening of it. */
struct sim_disk {
    struct fw_disk disk;
    struct platter *platter;
    struct fw_list_link link; /* In the platter's openings. */
    uint32_t life;
    struct sim_socket *event; /* What fw_disk_fd() stands for. */
    struct sim_fibre *waiter;
    struct fw_list under_way;
    struct fw_list finished;
};

static struct platter platters[PLATTERS_MAX];
static uint32_t platter_count;

static struct platter *platter_find(const char *path)
{
    for (uint32_t i = 0; i < platter_count; i++) {
        if (strcmp(platters[i].path, path) == 0) {
            return &platters[i];
        }
    }
    return NULL;
}

void sim_disk_make(const char *path, uint64_t size, uint32_t sector_size)
{
    FW_ASSERT(platter_count < PLATTERS_MAX && strlen(path) < NAME_MAX_SIZE);
    FW_ASSERT(size % sector_size == 0);
    struct platter *platter = &platters[platter_count++];
    *platter = (struct platter){.size = size, .sector_size = sector_size};
    memcpy(platter->path, path, strlen(path) + 1);
    platter->durable = calloc(1, size);
    platter->current = calloc(1, size);
    FW_ASSERT(platter->durable != NULL && platter->current != NULL);
    platter->pending_end = &platter->pending;
    fw_list_init(&platter->openings);
}

uint8_t *sim_disk_look(const char *path)
{
    struct platter *platter = platter_find(path);
    FW_ASSERT(platter != NULL);
    return platter->current;
}

static void pending_free_oldest(struct platter *platter)
{
    struct pending *pending = platter->pending;
    platter->pending = pending->next;
    if (platter->pending == NULL) {
        platter->pending_end = &platter->pending;
    }
    free(pending->data);
    free(pending->superseded);
    free(pending);
}

static void platter_forget_pending(struct platter *platter)
{
    while (platter->pending != NULL) {
        pending_free_oldest(platter);
    }
}

void sim_disk_begin(void)
{
    FW_ASSERT(platter_count == 0);
    sim_disk_weather =
        (struct sim_disk_weather){.latency_min_ns = 10 * SIM_US, .latency_max_ns = 200 * SIM_US};
}

void sim_disk_end(void)
{
    for (uint32_t i = 0; i < platter_count; i++) {
        SIM_EXPECT(fw_list_is_empty(&platters[i].openings));
        platter_forget_pending(&platters[i]);
        free(platters[i].durable);
        free(platters[i].current);
    }
    platter_count = 0;
}

/* ---- what happens to bytes ---- */

/* From now on the sectors of that range are durable as they are: earlier writes there are over. */
static void pending_supersede(struct platter *platter, uint64_t offset, size_t size)
{
    for (struct pending *pending = platter->pending; pending != NULL; pending = pending->next) {
        for (size_t at = 0; at < pending->size; at += platter->sector_size) {
            uint64_t sector = pending->offset + at;
            if (sector >= offset && sector < offset + size) {
                pending->superseded[at / platter->sector_size] = true;
            }
        }
    }
}

static void write_finish(struct platter *platter, const struct fw_disk_op *op)
{
    memcpy(platter->current + op->offset, op->from, op->size);
    platter->finished_writes++;
    if (op->sync) {
        memcpy(platter->durable + op->offset, op->from, op->size);
        pending_supersede(platter, op->offset, op->size);
        return;
    }
    struct pending *pending = calloc(1, sizeof *pending);
    FW_ASSERT(pending != NULL);
    pending->number = platter->finished_writes;
    pending->offset = op->offset;
    pending->size = op->size;
    pending->data = malloc(op->size);
    pending->superseded = calloc(op->size / platter->sector_size, sizeof(bool));
    FW_ASSERT(pending->data != NULL && pending->superseded != NULL);
    memcpy(pending->data, op->from, op->size);
    *platter->pending_end = pending;
    platter->pending_end = &pending->next;
}

static void sectors_keep(struct platter *platter, const struct pending *pending, uint32_t one_in)
{
    for (size_t at = 0; at < pending->size; at += platter->sector_size) {
        bool kept = one_in == 1 || sim_chance(one_in);
        if (kept && !pending->superseded[at / platter->sector_size]) {
            memcpy(platter->durable + pending->offset + at, pending->data + at,
                   platter->sector_size);
        }
    }
}

/* Everything that had finished when the flush began is durable now. */
static void flush_finish(struct platter *platter, uint64_t limit)
{
    while (platter->pending != NULL && platter->pending->number <= limit) {
        sectors_keep(platter, platter->pending, 1);
        pending_free_oldest(platter);
    }
}

/* A write that was under way may be there in part: it is one more that no flush has covered. */
static void under_way_become_pending(struct platter *platter)
{
    FW_LIST_FOR_EACH (&platter->openings, struct sim_disk, link, disk) {
        FW_LIST_FOR_EACH (&disk->under_way, struct fw_disk_op, link, op) {
            if (op->kind == FW_DISK_WRITE && disk->life == platter->life) {
                struct fw_disk_op plain = *op;
                plain.sync = false;
                write_finish(platter, &plain);
            }
        }
    }
}

void sim_disk_crash(const char *path)
{
    struct platter *platter = platter_find(path);
    FW_ASSERT(platter != NULL);
    sim_trace("disk %s: power failure", path);
    under_way_become_pending(platter);
    /* Some seeds lose nearly everything, some nearly nothing, most something in between. */
    uint32_t one_in = (uint32_t)sim_between(1, 4);
    for (struct pending *pending = platter->pending; pending != NULL; pending = pending->next) {
        sectors_keep(platter, pending, one_in);
    }
    platter_forget_pending(platter);
    memcpy(platter->current, platter->durable, platter->size);
    platter->life++;
}

/* ---- operations ---- */

static struct sim_disk *disk_of(struct fw_disk *disk)
{
    return FW_CONTAINER_OF(disk, struct sim_disk, disk);
}

static int op_fate(const struct fw_disk_op *op)
{
    const struct sim_disk_weather *weather = &sim_disk_weather;
    bool is_write = op->kind == FW_DISK_WRITE;
    if (op->kind == FW_DISK_FLUSH) {
        bool fails = weather->flush_error_one_in > 0 && sim_chance(weather->flush_error_one_in);
        return fails ? -EIO : 0;
    }
    if (is_write && weather->full_one_in > 0 && sim_chance(weather->full_one_in)) {
        return -ENOSPC;
    }
    return weather->error_one_in > 0 && sim_chance(weather->error_one_in) ? -EIO : 0;
}

static void op_apply(struct sim_disk *disk, struct fw_disk_op *op)
{
    struct platter *platter = disk->platter;
    switch (op->kind) {
    case FW_DISK_READ:
        memcpy(op->into, platter->current + op->offset, op->size);
        break;
    case FW_DISK_WRITE:
        write_finish(platter, op);
        break;
    case FW_DISK_FLUSH:
        flush_finish(platter, op->tag);
        break;
    case FW_DISK_DISCARD: /* Anything may be there; zeros would hide a reader that relies on it. */
        memset(platter->current + op->offset, 0xd1, op->size);
        memset(platter->durable + op->offset, 0xd1, op->size);
        pending_supersede(platter, op->offset, op->size);
        break;
    }
}

/* The moment an operation finishes. */
static void op_finishes(void *context, uint64_t number)
{
    (void)number;
    struct sim_disk *disk = context;
    /* Any of those under way: operations finish in any order. */
    uint32_t count = 0;
    FW_LIST_FOR_EACH (&disk->under_way, struct fw_disk_op, link, candidate) {
        (void)candidate;
        count++;
    }
    FW_ASSERT(count > 0);
    int64_t chosen = sim_between(0, count - 1);
    struct fw_list_link *link = fw_list_first(&disk->under_way);
    for (int64_t i = 0; i < chosen; i++) {
        link = link->next;
    }
    struct fw_disk_op *op = FW_LIST_ENTRY(link, struct fw_disk_op, link);
    fw_list_remove(link);
    op->result = disk->life == disk->platter->life ? op_fate(op) : -ENODEV;
    if (op->result == 0) {
        op_apply(disk, op);
        op->moved = op->kind == FW_DISK_READ || op->kind == FW_DISK_WRITE ? op->size : 0;
    }
    fw_list_push_back(&disk->finished, &op->link);
    sim_event_signal(disk->event);
    if (disk->waiter != NULL) {
        sim_wake(disk->waiter);
    }
}

static int disk_start(struct fw_disk *base, struct fw_disk_op *op)
{
    struct sim_disk *disk = disk_of(base);
    if (op->kind == FW_DISK_FLUSH) {
        op->tag = disk->platter->finished_writes;
    }
    fw_list_push_back(&disk->under_way, &op->link);
    int64_t latency_ns =
        sim_between(sim_disk_weather.latency_min_ns, sim_disk_weather.latency_max_ns);
    sim_at(sim_now() + latency_ns, op_finishes, disk, 0);
    return -EINPROGRESS;
}

static void disk_reap(struct fw_disk *base, struct fw_list *finished)
{
    fw_list_append(finished, &disk_of(base)->finished);
}

static void disk_wait(struct fw_disk *base)
{
    struct sim_disk *disk = disk_of(base);
    while (fw_list_is_empty(&disk->finished)) {
        disk->waiter = sim_self();
        (void)sim_block("disk", SIM_NEVER);
        disk->waiter = NULL;
    }
}

static void disk_close(struct fw_disk *base)
{
    struct sim_disk *disk = disk_of(base);
    fw_list_remove(&disk->link);
    sim_socket_close(disk->event);
    free(disk);
}

static int disk_open(struct fw_disk **disk, const struct fw_disk_options *options,
                     struct fw_reason *reason)
{
    static const struct fw_disk_backend backend = {
        .start = disk_start, .reap = disk_reap, .wait = disk_wait, .close = disk_close};
    struct platter *platter = platter_find(options->path);
    if (platter == NULL) {
        return fw_reason_errno(reason, -ENOENT, "cannot open %s", options->path);
    }
    struct sim_disk *made = calloc(1, sizeof *made);
    FW_ASSERT(made != NULL);
    made->platter = platter;
    made->life = platter->life;
    made->event = sim_event_new();
    fw_list_init(&made->under_way);
    fw_list_init(&made->finished);
    fw_list_push_back(&platter->openings, &made->link);
    made->disk.backend = &backend;
    made->disk.name = platter->path;
    made->disk.fd = made->event->fd;
    made->disk.depth = options->depth != 0 ? options->depth : FW_DISK_DEPTH_DEFAULT;
    made->disk.properties =
        (struct fw_disk_properties){.size = platter->size,
                                    .sector_size = platter->sector_size,
                                    .physical_size = platter->sector_size,
                                    .read_only = (options->flags & FW_DISK_READ_ONLY) != 0,
                                    .direct = true,
                                    .discard = true,
                                    .engine = "simulated"};
    *disk = &made->disk;
    return 0;
}

void sim_disk_install(void)
{
    static const struct fw_disk_hooks hooks = {.open = disk_open};
    fw_disk_hooks = &hooks;
}
