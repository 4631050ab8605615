/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/log.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/fence.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "io/clock.h"
#include "log/module.h"
#include "log/ring.h"
#include "log/writer.h"

enum { REST_NS = FW_NS_PER_MS }; /* How long the writer's thread lets lines gather. */
enum { WORDS = 4 };              /* That fw_log_write_words() takes. */

const char *const fw_log_level_names[] = {[FW_LOG_ERROR] = "error",
                                          [FW_LOG_WARNING] = "warning",
                                          [FW_LOG_NOTICE] = "notice",
                                          [FW_LOG_INFO] = "info",
                                          [FW_LOG_DEBUG] = "debug",
                                          [FW_LOG_TRACE] = "trace",
                                          NULL};

/* ---- A call. ---- */

/* The length without the limit. The format is a literal, which the macro and its compiler checked.
 */
static size_t message_make(char *message, size_t size, const struct fw_log_site *site,
                           va_list arguments)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int wanted = vsnprintf(message, size, site->format, arguments);
#pragma GCC diagnostic pop
    return wanted < 0 ? 0 : (size_t)wanted;
}

/* Where the arguments go in the record that was claimed `at`. `shared` is constant, see below. */
static inline unsigned char *record_begin(unsigned char *at, bool shared,
                                          const struct fw_thread_state *self)
{
    at = fw_log_pack_word(at + sizeof(uint64_t), fw_clock_ticks());
    if (shared) {
        char name[FW_THREAD_NAME_SIZE] = {0};
        memcpy(name, self->name, strnlen(self->name, sizeof name - 1));
        memcpy(at, name, sizeof name);
        at += sizeof name;
    }
    return at;
}

static inline void record_end(struct fw_log_ring *ring, unsigned char *at, uint16_t site,
                              const unsigned char *end)
{
    uint32_t size = (uint32_t)(end - at);
    (void)fw_log_pack_word(at, fw_log_record_word(size, site, ring->lost));
    fw_log_ring_commit(ring, size);
    fw_fence_light(); /* Pairs with the heavy one in fw_log_arm(). */
    FW_YIELD_POINT("log: look at the bell");
    if (FW_UNLIKELY(fw_log_bell_is_due())) {
        fw_log_bell_ring(ring);
    }
}

/* Room for a record, waiting for it if the policy says so; NULL: the line is dropped. */
static inline unsigned char *claim(struct fw_log_ring *ring, uint32_t size, enum fw_log_level level)
{
    unsigned char *at = fw_log_ring_claim(ring, size);
    if (FW_UNLIKELY(at == NULL) && fw_log_ring_wait(ring, size, level)) {
        at = fw_log_ring_claim(ring, size);
    }
    return at;
}

/* Stores the line, or drops it. Always inline, so that each caller gets the half that it needs. */
static inline __attribute__((always_inline)) void ring_put(struct fw_log_ring *ring, bool shared,
                                                           const struct fw_thread_state *self,
                                                           const struct fw_log_known *known,
                                                           va_list arguments)
{
    uint32_t size = (uint32_t)sizeof(struct fw_log_record) + (shared ? FW_THREAD_NAME_SIZE : 0) +
                    known->format.packed_max;
    unsigned char *at = claim(ring, size, known->level);
    if (FW_LIKELY(at != NULL)) {
        unsigned char *end = record_begin(at, shared, self);
        record_end(ring, at, known->id, fw_log_pack(&known->format, end, arguments));
    }
}

/* The same for a line that its caller has to make: level, module, message. */
static void ring_put_text(struct fw_log_ring *ring, const struct fw_thread_state *self,
                          const struct fw_log_site *site, va_list arguments)
{
    size_t module_budget = FW_LOG_MODULE_NAME_MAX;
    size_t budget = FW_LOG_STRINGS_MAX;
    char message[FW_LOG_STRINGS_MAX + 1];
    (void)message_make(message, sizeof message, site, arguments);
    unsigned char *at = claim(ring, FW_LOG_RECORD_MAX, site->level);
    if (at != NULL) {
        unsigned char *end = record_begin(at, ring->shared, self);
        end = fw_log_pack_word(end, (uint64_t)site->level);
        end = fw_log_pack_string(end, site->module->name, SIZE_MAX, &module_budget);
        end = fw_log_pack_string(end, message, SIZE_MAX, &budget);
        record_end(ring, at, FW_LOG_SITE_TEXT, end);
    }
}

static void ring_put_any(struct fw_log_ring *ring, const struct fw_thread_state *self,
                         struct fw_log_site *site, va_list arguments)
{
    /* Acquire, for the release in ring.c. */
    const struct fw_log_known *known = atomic_load_explicit(&site->known, memory_order_acquire);
    if (known == NULL) {
        ring_put_text(ring, self, site, arguments);
    } else if (ring->shared) {
        ring_put(ring, true, self, known, arguments);
    } else {
        ring_put(ring, false, self, known, arguments);
    }
}

/* The ring of the thread, which it keeps until it leaves; NULL if it has none (any more). */
static inline struct fw_log_ring *own_enter(struct fw_thread_state *self)
{
    atomic_store_explicit(&self->log_busy, true, memory_order_relaxed);
    fw_fence_light(); /* Pairs with the heavy one in stop(): in here it leaves the ring alone. */
    FW_YIELD_POINT("log: inside");
    return atomic_load_explicit(&self->log_ring, memory_order_relaxed);
}

static inline void own_leave(struct fw_thread_state *self)
{
    /* Release, for the acquire in stop(): we are done with the ring. */
    atomic_store_explicit(&self->log_busy, false, memory_order_release);
}

static bool put_own(struct fw_thread_state *self, struct fw_log_site *site, va_list arguments)
{
    struct fw_log_ring *ring = own_enter(self);
    if (ring != NULL) {
        ring_put_any(ring, self, site, arguments);
    }
    own_leave(self);
    return ring != NULL;
}

/* Into the ring of all who have none of their own. */
static bool put_shared(struct fw_thread_state *self, struct fw_log_site *site, va_list arguments)
{
    struct fw_log_rings *rings = &fw_log_rings;
    fw_mutex_lock(&rings->shared_lock);
    bool open = rings->shared_open;
    if (open) {
        uint32_t count = atomic_load_explicit(&rings->count, memory_order_relaxed);
        ring_put_any(&rings->rings[count], self, site, arguments);
    }
    fw_mutex_unlock(&rings->shared_lock);
    return open;
}

static void write_sync(const struct fw_thread_state *self, const struct fw_log_site *site,
                       va_list arguments)
{
    char message[FW_LOG_MESSAGE_MAX + 1];
    size_t length = message_make(message, sizeof message, site, arguments);
    bool cut = length > FW_LOG_MESSAGE_MAX;
    struct fw_log_line line = {.level = site->level,
                               .module = site->module->name,
                               .thread = self->name,
                               .message = message,
                               .length = cut ? FW_LOG_MESSAGE_MAX : length,
                               .cut = cut};
    fw_log_writer_write(&line);
}

/* The first line of a thread or a site; threads without a ring; a log that is synchronous. */
static __attribute__((noinline)) void write_slow(struct fw_thread_state *self,
                                                 struct fw_log_site *site, va_list arguments)
{
    int errno_before = errno;
    bool written = false;
    /* Acquire, for the release in start(). A thread that has given its ring back gets no other. */
    if (atomic_load_explicit(&fw_log_rings.is_async, memory_order_acquire) && !self->ended) {
        fw_log_site_learn(site);
        written = fw_log_ring_attach(self) != NULL ? put_own(self, site, arguments)
                                                   : put_shared(self, site, arguments);
    }
    if (!written) {
        write_sync(self, site, arguments);
    }
    errno = errno_before;
}

/*
 * What the usual call needs is inline here; all else is write_slow()'s.
 */
void fw_log_write(struct fw_log_site *site, const char *format, ...)
{
    struct fw_thread_state *self = fw_thread_self();
    va_list arguments;
    struct fw_log_ring *ring = own_enter(self);
    /* Acquire, for the release in ring.c. */
    const struct fw_log_known *known = atomic_load_explicit(&site->known, memory_order_acquire);
    if (FW_LIKELY(ring != NULL && known != NULL)) {
        va_start(arguments, format);
        ring_put(ring, false, self, known, arguments);
        va_end(arguments);
        own_leave(self);
        return;
    }
    own_leave(self);
    va_start(arguments, format);
    write_slow(self, site, arguments);
    va_end(arguments);
}

/* A line of a few numbers whose thread has no ring: it is made here, and goes the long way as text.
 * The log knew this site, so its format can be taken apart. */
static void words_as_text(const struct fw_log_site *site, const uint64_t words[WORDS])
{
    struct fw_log_format format;
    char message[FW_LOG_MESSAGE_MAX + 1];
    bool parsed = fw_log_format_parse(&format, site->format);
    FW_ASSERT(parsed && format.argument_count <= WORDS);
    int length = fw_log_format_render(&format, (const unsigned char *)words,
                                      format.argument_count * sizeof(uint64_t), message);
    FW_ASSERT(length >= 0);
    struct fw_log_site text = {.module = site->module,
                               .level = site->level,
                               .format = "%s",
                               .file = site->file,
                               .line = site->line,
                               .is_text = true};
    fw_log_write(&text, "%s", message);
}

/* All but the usual call. The thread has said that it is inside `ring`, and this takes it back. */
static __attribute__((noinline)) void write_words_slow(struct fw_thread_state *self,
                                                       struct fw_log_ring *ring,
                                                       const struct fw_log_site *site,
                                                       const uint64_t words[WORDS])
{
    /* Acquire, for the release in ring.c. */
    const struct fw_log_known *known = atomic_load_explicit(&site->known, memory_order_acquire);
    bool stored = ring != NULL && known != NULL;
    if (stored) {
        uint32_t words_size = (uint32_t)(known->format.argument_count * sizeof(uint64_t));
        FW_ASSERT(known->format.argument_count <= WORDS);
        unsigned char *at =
            claim(ring, (uint32_t)sizeof(struct fw_log_record) + words_size, known->level);
        if (at != NULL) {
            unsigned char *out = record_begin(at, false, self);
            memcpy(out, words, words_size);
            record_end(ring, at, known->id, out + words_size);
        }
    }
    own_leave(self);
    if (!stored) {
        words_as_text(site, words);
    }
}

/* The usual call: a thread whose ring has room, and all arguments are in registers. */
void fw_log_write_words(struct fw_log_site *site, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct fw_thread_state *self = fw_thread_self();
    struct fw_log_ring *ring = own_enter(self);
    /* Acquire, for the release in ring.c. */
    const struct fw_log_known *known = atomic_load_explicit(&site->known, memory_order_acquire);
    uint32_t size = (uint32_t)(sizeof(struct fw_log_record) + WORDS * sizeof(uint64_t));
    if (FW_LIKELY(ring != NULL && known != NULL && known->format.argument_count <= WORDS &&
                  fw_log_ring_has_room(ring, size))) {
        unsigned char *at = ring->at;
        unsigned char *out = record_begin(at, false, self);
        unsigned char *end = out + known->format.argument_count * sizeof(uint64_t);
        out = fw_log_pack_word(out, a); /* All four, whether they are part of it or not. */
        out = fw_log_pack_word(out, b);
        out = fw_log_pack_word(out, c);
        (void)fw_log_pack_word(out, d);
        record_end(ring, at, known->id, end);
        own_leave(self);
        return;
    }
    write_words_slow(self, ring, site, (const uint64_t[WORDS]){a, b, c, d});
}

/* ---- Modules and levels. ---- */

/* Under fw_log_rings.lock. */
static struct {
    struct fw_log_module *first;
    int level; /* For modules still to come. */
    int raise_limit;
} modules = {.level = FW_LOG_NOTICE, .raise_limit = FW_LOG_ERROR};

/* The lock is held. */
static void module_set(struct fw_log_module *module, int level)
{
    module->own = level;
    atomic_store_explicit(&module->level, level, memory_order_relaxed);
}

void fw_log_register(struct fw_log_module *module)
{
    fw_mutex_lock(&fw_log_rings.lock);
    module->next = modules.first;
    modules.first = module;
    module_set(module, modules.level);
    fw_mutex_unlock(&fw_log_rings.lock);
}

int fw_log_set_level(const char *module_name, enum fw_log_level level)
{
    bool found = module_name == NULL;
    fw_mutex_lock(&fw_log_rings.lock);
    if (module_name == NULL) {
        modules.level = (int)level;
    }
    for (struct fw_log_module *module = modules.first; module != NULL; module = module->next) {
        if (module_name == NULL || strcmp(module->name, module_name) == 0) {
            module_set(module, (int)level);
            found = true;
        }
    }
    fw_mutex_unlock(&fw_log_rings.lock);
    return found ? 0 : -ENOENT;
}

void fw_log_raise(enum fw_log_level level)
{
    fw_mutex_lock(&fw_log_rings.lock);
    int wanted = (int)level < modules.raise_limit ? (int)level : modules.raise_limit;
    for (struct fw_log_module *module = modules.first; module != NULL; module = module->next) {
        atomic_store_explicit(&module->level, wanted > module->own ? wanted : module->own,
                              memory_order_relaxed);
    }
    fw_mutex_unlock(&fw_log_rings.lock);
}

void fw_log_set_raise_limit(enum fw_log_level limit)
{
    fw_mutex_lock(&fw_log_rings.lock);
    modules.raise_limit = (int)limit;
    fw_mutex_unlock(&fw_log_rings.lock);
}

struct fw_log_module *fw_log_module_find(const char *name, size_t length,
                                         struct fw_nearest *nearest)
{
    struct fw_log_module *found = NULL;
    fw_nearest_init(nearest, name, length);
    fw_mutex_lock(&fw_log_rings.lock);
    for (struct fw_log_module *module = modules.first; module != NULL; module = module->next) {
        size_t module_length = strlen(module->name);
        fw_nearest_offer(nearest, module->name, module_length);
        if (module_length == length && memcmp(module->name, name, length) == 0) {
            found = module;
        }
    }
    fw_mutex_unlock(&fw_log_rings.lock);
    return found;
}

void fw_log_set_policy(enum fw_log_policy policy, enum fw_log_level waiting_level)
{
    atomic_store_explicit(&fw_log_rings.policy, (int)policy, memory_order_relaxed);
    atomic_store_explicit(&fw_log_rings.waiting_level, (int)waiting_level, memory_order_relaxed);
}

/* ---- The writer's own thread. ---- */

static struct {
    bool is_running;
    atomic_bool stop;
    struct fw_thread thread;
    struct fw_parker parker;
} own;

static void own_wake(void *context)
{
    (void)context;
    fw_unpark(&own.parker);
}

static void own_run(void *argument)
{
    (void)argument;
    /* Acquire, for the release in fw_log_stop(). */
    while (!atomic_load_explicit(&own.stop, memory_order_acquire)) {
        if (fw_log_drain()) {
            fw_log_bell_rest();
            (void)fw_park_for(&own.parker, REST_NS);
        } else if (fw_log_arm()) {
            fw_park(&own.parker);
        }
        fw_log_disarm();
    }
}

int fw_log_begin(const struct fw_log_setup *setup, struct fw_reason *reason)
{
    static const struct fw_log_setup by_default = {.ring_size = UINT64_C(128) * 1024, .rings = 64};
    setup = setup != NULL ? setup : &by_default;
    int rc = fw_log_rings_start(setup, reason);
    if (rc != 0 || setup->without_thread) {
        return rc;
    }
    atomic_store_explicit(&own.stop, false, memory_order_relaxed);
    fw_parker_init(&own.parker);
    fw_log_set_waker(own_wake, NULL);
    rc = fw_thread_create(&own.thread, "log", own_run, NULL);
    if (rc != 0) {
        fw_log_set_waker(NULL, NULL);
        fw_log_rings_stop();
        return fw_reason_errno(reason, rc, "cannot start the log's thread");
    }
    own.is_running = true;
    return 0;
}

int fw_log_start(const struct fw_log_setup *setup)
{
    return fw_log_begin(setup, NULL);
}

void fw_log_stop(void)
{
    if (own.is_running) {
        own.is_running = false;
        atomic_store_explicit(&own.stop, true, memory_order_release);
        fw_unpark(&own.parker);
        fw_thread_join(&own.thread);
        fw_log_set_waker(NULL, NULL);
    }
    if (atomic_load_explicit(&fw_log_rings.is_async, memory_order_relaxed)) { /* Our own store. */
        fw_log_rings_stop();
    }
}
