/* SPDX-License-Identifier: Apache-2.0 */
#include "log/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fence.h"
#include "io/clock.h"
#include "log/writer.h"

enum { STOP_LOOK_NS = FW_NS_PER_MS };

struct fw_log_rings fw_log_rings = {
    .lock = FW_MUTEX_INITIALIZER(FW_RANK_LOG_LISTS),
    .shared_lock = FW_MUTEX_INITIALIZER(FW_RANK_LOG_SHARED),
    .policy = FW_LOG_DROP,
    .waiting_level = FW_LOG_WARNING,
};
static struct fw_log_rings *const rings = &fw_log_rings;

/* ---- Start and stop. ---- */

static void ring_init(struct fw_log_ring *ring, uint32_t index, uint64_t ring_size)
{
    unsigned char *memory = rings->map.memory;
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    ring->header = (struct fw_log_ring_header *)(void *)(memory + fw_log_arena_ring_offset(index));
    ring->data = memory + fw_log_arena_data_offset(count, ring_size, index);
    ring->size = ring_size;
    ring->at = ring->data;
    ring->room_end = ring->data + ring_size;
    ring->written = 0;
    ring->lost = 0;
    ring->shared = index == count;
    ring->owner = NULL;
    fw_parker_init(&ring->room);
    atomic_store_explicit(&ring->waiting, false, memory_order_relaxed);
    /* The shared ring is always somebody's. */
    atomic_store_explicit(&ring->state, ring->shared ? FW_LOG_RING_OWNED : FW_LOG_RING_FREE,
                          memory_order_relaxed);
}

static void arena_init(struct fw_log_arena *arena, uint32_t count, uint64_t ring_size)
{
    memcpy(arena->magic, FW_LOG_ARENA_MAGIC, sizeof arena->magic);
    arena->version = FW_LOG_ARENA_VERSION;
    arena->byte_order = FW_LOG_BYTE_ORDER;
    arena->process = rings->map.process;
    arena->ring_count = count;
    arena->ring_size = ring_size;
    arena->dictionary_size = FW_LOG_DICTIONARY_SIZE;
}

int fw_log_rings_start(const struct fw_log_setup *setup, struct fw_reason *reason)
{
    if (!fw_log_ring_size_ok(setup->ring_size)) {
        return fw_reason_set(reason, -EINVAL,
                             "log ring-size: give a power of two from 8 KiB to 16 MiB");
    }
    if (setup->rings == 0 || setup->rings > FW_LOG_RINGS_MAX) {
        return fw_reason_set(reason, -EINVAL, "log rings: give 1 to %d", FW_LOG_RINGS_MAX);
    }
    if (atomic_load_explicit(&rings->is_async, memory_order_relaxed)) { /* Our own store. */
        return fw_reason_set(reason, -EALREADY, "the log is already asynchronous");
    }
    struct fw_map map;
    int rc = fw_map_create(&map, setup->map_directory, "fairway-log",
                           fw_log_arena_size(setup->rings, setup->ring_size), reason);
    if (rc != 0) {
        return rc;
    }
    fw_fence_prepare();
    fw_clock_ticks_choose();
    fw_mutex_lock(&rings->lock);
    rings->map = map;
    atomic_store_explicit(&rings->count, setup->rings, memory_order_relaxed);
    rings->known_count = FW_LOG_SITE_TEXT + 1;
    for (uint32_t i = 0; i <= setup->rings; i++) {
        ring_init(&rings->rings[i], i, setup->ring_size);
    }
    arena_init(map.memory, setup->rings, setup->ring_size);
    fw_mutex_unlock(&rings->lock);
    fw_log_writer_begin();

    fw_mutex_lock(&rings->shared_lock);
    rings->shared_open = true;
    fw_mutex_unlock(&rings->shared_lock);
    /* Release, for the acquire in fw_log_write(); from now on threads attach. */
    atomic_store_explicit(&rings->is_async, true, memory_order_release);
    return 0;
}

/* Takes the rings away from their threads. They are still inside, perhaps. */
static void rings_detach(void)
{
    fw_mutex_lock(&rings->lock);
    atomic_store_explicit(&rings->is_async, false, memory_order_relaxed);
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_thread_state *owner = rings->rings[i].owner;
        if (owner != NULL) {
            atomic_store_explicit(&owner->log_ring, NULL, memory_order_relaxed);
        }
    }
    fw_mutex_unlock(&rings->lock);
    fw_fence_heavy(); /* Pairs with the light one in fw_log_write(). */
}

/* True if no thread is inside its ring. A thread that ends takes the lock first: it is there. */
static bool rings_are_left(void)
{
    bool left = true;
    fw_mutex_lock(&rings->lock);
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count && left; i++) {
        struct fw_thread_state *owner = rings->rings[i].owner;
        FW_YIELD_POINT("log: is it out?");
        /* Acquire, for the release in fw_log_write(): all it did in there is done. */
        left = owner == NULL || !atomic_load_explicit(&owner->log_busy, memory_order_acquire);
    }
    fw_mutex_unlock(&rings->lock);
    return left;
}

void fw_log_rings_stop(void)
{
    struct fw_parker nobody;
    fw_parker_init(&nobody);
    rings_detach();
    while (!rings_are_left()) {
        fw_log_writer_drain_all(); /* It may wait for room in there. */
        (void)fw_park_for(&nobody, STOP_LOOK_NS);
    }
    fw_mutex_lock(&rings->shared_lock);
    rings->shared_open = false;
    fw_mutex_unlock(&rings->shared_lock);

    fw_log_writer_end(); /* Nobody looks at the arena from here on. */
    fw_mutex_lock(&rings->lock);
    for (uint32_t i = FW_LOG_SITE_TEXT + 1; i < rings->known_count; i++) {
        atomic_store_explicit(&rings->known[i]->site->known, NULL, memory_order_relaxed);
        free(rings->known[i]);
        rings->known[i] = NULL;
    }
    rings->known_count = 0;
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        rings->rings[i].owner = NULL; /* When it ends, it will find that it has none. */
    }
    fw_mutex_unlock(&rings->lock);
    fw_map_destroy(&rings->map);
}

/* ---- Sites. ---- */

/* Adds the site to the dictionary of the arena. False: there is no room left. */
static bool dictionary_add(const struct fw_log_known *known) FW_REQUIRES(rings->lock)
{
    struct fw_log_arena *arena = rings->arena;
    uint64_t used = atomic_load_explicit(&arena->dictionary_used, memory_order_relaxed); /* Ours. */
    size_t module_size = strlen(known->module) + 1;
    size_t text_size = strlen(known->text) + 1;
    size_t size = (sizeof(struct fw_log_entry) + module_size + text_size + 7) & ~(size_t)7;
    if (size > FW_LOG_DICTIONARY_SIZE - used) {
        return false;
    }
    unsigned char *at =
        (unsigned char *)arena + fw_log_arena_dictionary_offset(arena->ring_count) + used;
    const struct fw_log_entry entry = {
        .size = (uint32_t)size, .site = known->id, .level = (uint16_t)known->level};
    memcpy(at, &entry, sizeof entry);
    memcpy(at + sizeof entry, known->module, module_size);
    memcpy(at + sizeof entry + module_size, known->text, text_size);
    /* Release: who recovers the file sees whole entries only. */
    atomic_store_explicit(&arena->dictionary_used, used + size, memory_order_release);
    return true;
}

static void site_learn(struct fw_log_site *site) FW_REQUIRES(rings->lock)
{
    size_t text_size = strlen(site->format) + 1;
    struct fw_log_known *known = malloc(sizeof *known + text_size);
    if (known == NULL) {
        return; /* This time the caller makes the text. */
    }
    *known = (struct fw_log_known){
        .level = site->level, .id = (uint16_t)rings->known_count, .site = site};
    memcpy(known->text, site->format, text_size);
    size_t module_length = strnlen(site->module->name, sizeof known->module - 1);
    memcpy(known->module, site->module->name, module_length);
    if (!fw_log_format_parse(&known->format, known->text) ||
        rings->known_count == FW_LOG_SITES_MAX || !dictionary_add(known)) {
        free(known);
        atomic_store_explicit(&site->is_text, true, memory_order_relaxed); /* From now on. */
        return;
    }
    rings->known[known->id] = known;
    rings->known_count++;
    /* Release, for the acquire of those who log there. */
    atomic_store_explicit(&site->known, known, memory_order_release);
}

void fw_log_site_learn(struct fw_log_site *site)
{
    if (atomic_load_explicit(&site->known, memory_order_relaxed) != NULL ||
        atomic_load_explicit(&site->is_text, memory_order_relaxed)) {
        return;
    }
    fw_mutex_lock(&rings->lock);
    if (atomic_load_explicit(&rings->is_async, memory_order_relaxed) &&
        atomic_load_explicit(&site->known, memory_order_relaxed) == NULL) {
        site_learn(site);
    }
    fw_mutex_unlock(&rings->lock);
}

/* ---- Threads come and go. ---- */

static void ring_release(struct fw_thread_state *self)
{
    fw_mutex_lock(&rings->lock);
    struct fw_log_ring *ring = atomic_load_explicit(&self->log_ring, memory_order_relaxed);
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    atomic_store_explicit(&self->log_ring, NULL, memory_order_relaxed);
    /* While stop() is under way it is no longer in `log_ring`, but still the owner. */
    for (uint32_t i = 0; ring == NULL && i < count; i++) {
        ring = rings->rings[i].owner == self ? &rings->rings[i] : NULL;
    }
    self->at_end = NULL;
    if (ring != NULL) {
        ring->owner = NULL;
        /* Release, for the acquire in the writer: there will be no more records. */
        atomic_store_explicit(&ring->state, FW_LOG_RING_RELEASED, memory_order_release);
    }
    fw_mutex_unlock(&rings->lock);
}

static struct fw_log_ring *ring_take(struct fw_thread_state *self) FW_REQUIRES(rings->lock)
{
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_log_ring *ring = &rings->rings[i];
        /* Acquire, for the release in the writer: it has done with what was in the ring. */
        if (atomic_load_explicit(&ring->state, memory_order_acquire) == FW_LOG_RING_FREE) {
            size_t length = strnlen(self->name, sizeof ring->header->name - 1);
            memset(ring->header->name, 0, sizeof ring->header->name);
            memcpy(ring->header->name, self->name, length);
            ring->owner = self;
            self->at_end = ring_release;
            /* Release, for the acquire in the writer, who reads the name. */
            atomic_store_explicit(&ring->state, FW_LOG_RING_OWNED, memory_order_release);
            atomic_store_explicit(&self->log_ring, ring, memory_order_relaxed); /* Only for us. */
            return ring;
        }
    }
    return NULL;
}

struct fw_log_ring *fw_log_ring_attach(struct fw_thread_state *self)
{
    struct fw_log_ring *ring = NULL;
    fw_mutex_lock(&rings->lock);
    if (atomic_load_explicit(&rings->is_async, memory_order_relaxed)) {
        ring = atomic_load_explicit(&self->log_ring, memory_order_relaxed);
        if (ring == NULL) {
            ring = ring_take(self);
        }
    }
    fw_mutex_unlock(&rings->lock);
    return ring;
}

/* ---- Room, or none. ---- */

unsigned char *fw_log_ring_claim_slow(struct fw_log_ring *ring, uint32_t size)
{
    uint64_t to_end = (uint64_t)(ring->data + ring->size - ring->at);
    uint64_t padding = to_end < size ? to_end : 0; /* May be nothing, at the very end. */
    FW_YIELD_POINT("log: look for room");
    /* Acquire, for the release in the writer: what it gave back, it has read. */
    uint64_t read = atomic_load_explicit(&ring->header->read, memory_order_acquire);
    uint64_t room = ring->size - (ring->written - read);
    if (room < padding + size) {
        return NULL;
    }
    if (padding > 0) {
        (void)fw_log_pack_word(ring->at,
                               fw_log_record_word((uint32_t)padding, FW_LOG_SITE_PADDING, 0));
    }
    if (to_end < size) {
        ring->written += padding;
        ring->at = ring->data;
        room -= padding;
        to_end = ring->size;
    }
    ring->room_end = ring->at + (room < to_end ? room : to_end);
    return ring->at;
}

static void ring_drop(struct fw_log_ring *ring)
{
    struct fw_log_ring_header *header = ring->header;
    uint64_t lost = atomic_load_explicit(&header->lost, memory_order_relaxed) + 1; /* Ours. */
    ring->lost = (uint32_t)lost;
    /* Release, for the acquire in the writer: the records before it are there. */
    atomic_store_explicit(&header->lost, lost, memory_order_release);
    fw_log_writer_count_dropped();
}

bool fw_log_ring_wait(struct fw_log_ring *ring, uint32_t size, enum fw_log_level level)
{
    /* Relaxed: a changed policy orders nothing. */
    int policy = atomic_load_explicit(&rings->policy, memory_order_relaxed);
    int waiting_level = atomic_load_explicit(&rings->waiting_level, memory_order_relaxed);
    if (policy == FW_LOG_DROP || (policy == FW_LOG_DROP_BELOW && (int)level > waiting_level)) {
        ring_drop(ring);
        return false;
    }
    fw_log_writer_count_blocked();
    for (;;) {
        atomic_store_explicit(&ring->waiting, true, memory_order_relaxed);
        fw_fence_full(); /* Pairs with the one in fw_log_rings_wake(). */
        FW_YIELD_POINT("log: wait for room");
        if (fw_log_ring_claim(ring, size) != NULL) {
            break;
        }
        if (fw_log_writer_drain() == FW_LOG_DRAIN_BUSY) {
            fw_park(&ring->room);
        }
    }
    atomic_store_explicit(&ring->waiting, false, memory_order_relaxed);
    return true;
}

void fw_log_rings_wake(void)
{
    fw_fence_full(); /* Pairs with the one in fw_log_ring_wait(). */
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    for (uint32_t i = 0; i <= count; i++) {
        struct fw_log_ring *ring = &rings->rings[i];
        if (FW_UNLIKELY(atomic_load_explicit(&ring->waiting, memory_order_relaxed))) {
            fw_unpark(&ring->room);
        }
    }
}

/* ---- The bell. ---- */

void fw_log_bell_ring(const struct fw_log_ring *ring)
{
    uint32_t bell = atomic_load_explicit(&rings->bell, memory_order_relaxed);
    uint64_t read = atomic_load_explicit(&ring->header->read, memory_order_relaxed);
    if (bell == FW_LOG_BELL_ASLEEP ||
        (bell == FW_LOG_BELL_RESTING && ring->written - read >= ring->size / 2)) {
        fw_log_bell_force();
    }
}

void fw_log_bell_force(void)
{
    FW_YIELD_POINT("log: ring the bell");
    if (atomic_exchange_explicit(&rings->bell, FW_LOG_BELL_AWAKE, memory_order_relaxed) ==
        FW_LOG_BELL_AWAKE) {
        return; /* Another was faster. */
    }
    fw_mutex_lock(&rings->lock);
    if (rings->wake != NULL) {
        rings->wake(rings->wake_context);
    }
    fw_mutex_unlock(&rings->lock);
}

void fw_log_bell_rest(void)
{
    atomic_store_explicit(&rings->bell, FW_LOG_BELL_RESTING, memory_order_relaxed);
}

void fw_log_set_waker(void (*wake)(void *context), void *context)
{
    fw_mutex_lock(&rings->lock);
    rings->wake = wake;
    rings->wake_context = context;
    fw_mutex_unlock(&rings->lock);
}

bool fw_log_arm(void)
{
    bool is_empty = true;
    atomic_store_explicit(&rings->bell, FW_LOG_BELL_ASLEEP, memory_order_relaxed);
    fw_fence_heavy(); /* Pairs with the light one in fw_log_write(). */
    FW_YIELD_POINT("log: armed");
    fw_mutex_lock(&rings->lock);
    uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
    for (uint32_t i = 0; rings->arena != NULL && i <= count && is_empty; i++) {
        const struct fw_log_ring_header *header = rings->rings[i].header;
        is_empty = atomic_load_explicit(&header->written, memory_order_relaxed) ==
                   atomic_load_explicit(&header->read, memory_order_relaxed);
    }
    fw_mutex_unlock(&rings->lock);
    return is_empty && !fw_log_writer_is_asked();
}

void fw_log_disarm(void)
{
    atomic_store_explicit(&rings->bell, FW_LOG_BELL_AWAKE, memory_order_relaxed);
}
