/* SPDX-License-Identifier: Apache-2.0 */
#include "log/writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/fence.h"
#include "base/mutex.h"
#include "io/clock.h"
#include "io/file.h"
#include "log/arena.h"
#include "log/module.h"
#include "log/ring.h"

enum {
    MODE = 0640,                    /* Of a new file: what clients do is not for everyone. */
    BATCH_SIZE = 64 * 1024,         /* Bytes given to the target at once. */
    RATE_INTERVAL_NS = FW_NS_PER_S, /* How often the speed of ticks is measured anew. */
    RATE_INTERVAL_MIN_NS = 10 * FW_NS_PER_US, /* Less says nothing. */
    LOOKS = 3,                                /* At the clocks; the fastest counts. */
};
static_assert(BATCH_SIZE >= 4 * FW_LOG_LINE_MAX, "a batch is several lines");

static const struct fw_metric rows[] = {
    FW_METRIC_COUNTER(struct fw_log_metrics, lines, "", "lines written"),
    FW_METRIC_COUNTER(struct fw_log_metrics, bytes, "bytes", "bytes of the lines written"),
    FW_METRIC_COUNTER(struct fw_log_metrics, batches, "", "writes that carried them"),
    FW_METRIC_COUNTER(struct fw_log_metrics, dropped, "", "lines dropped because a ring was full"),
    FW_METRIC_COUNTER(struct fw_log_metrics, blocked, "", "lines that waited for room in a ring"),
    FW_METRIC_COUNTER(struct fw_log_metrics, failed, "", "lines that the file or stderr refused"),
    FW_METRIC_COUNTER(struct fw_log_metrics, rotations, "", "times a new file was begun"),
    FW_METRIC_GAUGE(struct fw_log_metrics, ring_high_water, "bytes",
                    "the most that a ring held when the writer looked"),
};
const struct fw_metric_table fw_log_metric_table =
    FW_METRIC_TABLE("log", struct fw_log_metrics, rows);
struct fw_log_metrics fw_log_metrics;

/* One ring during a pass, with the record that is next in it. */
struct source {
    struct fw_log_ring *ring;
    struct fw_log_cursor cursor;
    struct fw_log_view next;
};

/* Made without a call, because the log works before main(). The lock guards all but the atomics. */
static struct {
    struct fw_mutex lock;
    bool to_file; /* To `file`, otherwise to stderr. */
    bool is_json;
    bool is_journal;         /* The target is stderr, and that is journald's. */
    struct fw_appender file; /* Closed unless `to_file`. */
    uint64_t rotate_size;    /* 0: never. */
    uint32_t rotate_keep;
    bool rotate_told; /* That it failed; once is enough. */
    int (*sink)(void *context, const char *lines, size_t size, size_t *done);
    void *sink_context;

    struct fw_log_calendar calendar;
    struct fw_log_anchor anchor;
    int64_t rate_ticks; /* Where the measuring of the rate began, on both clocks. */
    int64_t rate_now_ns;

    char batch[BATCH_SIZE];
    size_t batch_length;
    size_t batch_lines;
    struct source sources[FW_LOG_RINGS_MAX + 1]; /* Of the pass under way. */
    uint32_t source_count;

    /* Relaxed: they order nothing. */
    atomic_bool reopen_wanted;
    _Atomic uint64_t failed;
    _Atomic uint64_t dropped;
    _Atomic uint64_t blocked;
} writer = {.lock = FW_MUTEX_INITIALIZER(FW_RANK_LOG)};

/* ---- The target. ---- */

static enum fw_log_layout layout(void) FW_REQUIRES(writer.lock)
{
    return writer.is_json      ? FW_LOG_LAYOUT_JSON
           : writer.is_journal ? FW_LOG_LAYOUT_JOURNAL
                               : FW_LOG_LAYOUT_TEXT;
}

/* A line of the writer's own, as text. Returns its length. */
static size_t own_line(char out[FW_LOG_LINE_MAX], enum fw_log_level level, int64_t wall_ns,
                       const char *thread, const char *message) FW_REQUIRES(writer.lock)
{
    const struct fw_log_line line = {.wall_ns = wall_ns,
                                     .level = level,
                                     .module = "log",
                                     .thread = thread,
                                     .message = message,
                                     .length = strlen(message)};
    return fw_log_line_make(&writer.calendar, layout(), &line, out);
}

/* Says something about the file in the file. If that does not work either, there is no more. */
static void file_complain(const struct fw_reason *reason) FW_REQUIRES(writer.lock)
{
    char line[FW_LOG_LINE_MAX];
    size_t length =
        own_line(line, FW_LOG_ERROR, fw_clock_wall_ns(), fw_thread_self()->name, reason->text);
    (void)!fw_appender_write(&writer.file, line, length, NULL, NULL);
}

/* Makes room for what is coming. False: there is none, and no new file can be begun. */
static bool file_rotate(size_t coming) FW_REQUIRES(writer.lock)
{
    if (writer.rotate_size == 0 || writer.file.size == 0 ||
        writer.file.size + coming <= writer.rotate_size) {
        return true;
    }
    struct fw_reason reason;
    if (fw_appender_rotate(&writer.file, writer.rotate_keep, &reason) == 0) {
        writer.rotate_told = false;
        fw_counter_increment(&fw_log_metrics.rotations);
        return true;
    }
    if (!writer.rotate_told) {
        writer.rotate_told = true;
        file_complain(&reason);
    }
    return false;
}

static int target_write(const char *lines, size_t size, size_t *done) FW_REQUIRES(writer.lock)
{
    if (writer.sink != NULL) {
        return writer.sink(writer.sink_context, lines, size, done);
    }
    if (writer.to_file) {
        if (!file_rotate(size)) {
            *done = 0;
            return -EFBIG;
        }
        return fw_appender_write(&writer.file, lines, size, done, NULL);
    }
    return fw_stderr_write(lines, size, done);
}

/* Gives the batch to the target and counts what became of it. */
static void batch_write(void) FW_REQUIRES(writer.lock)
{
    size_t done = 0;
    if (writer.batch_lines == 0) {
        return;
    }
    int rc = target_write(writer.batch, writer.batch_length, &done);
    size_t written = writer.batch_lines;
    if (rc != 0) {
        written = 0;
        for (size_t i = 0; i < done; i++) {
            written += writer.batch[i] == '\n';
        }
        (void)atomic_fetch_add_explicit(&writer.failed, writer.batch_lines - written,
                                        memory_order_relaxed);
        fw_counter_add(&fw_log_metrics.failed, writer.batch_lines - written);
    }
    fw_counter_add(&fw_log_metrics.lines, written);
    fw_counter_add(&fw_log_metrics.bytes, done);
    fw_counter_increment(&fw_log_metrics.batches);
    writer.batch_length = 0;
    writer.batch_lines = 0;
}

/* ---- From ticks to time. ---- */

static void anchor_publish(void) FW_REQUIRES(writer.lock)
{
    struct fw_log_arena *arena = fw_log_rings.arena;
    uint32_t next =
        1 - atomic_load_explicit(&arena->anchor_current, memory_order_relaxed); /* Ours */
    arena->anchors[next] = writer.anchor;
    /* Release: who recovers the file sees a whole one. */
    atomic_store_explicit(&arena->anchor_current, next, memory_order_release);
}

/* All clocks at the same moment. */
struct moment {
    int64_t ticks;
    int64_t now_ns;
    int64_t wall_ns;
};

/*
 * The thread may lose its processor between two of the clocks. The time of every line in the pass
 * would then be wrong by as much. So it looks several times, and the fastest look counts.
 */
static struct moment moment_take(void)
{
    struct moment best = {.ticks = 0};
    uint64_t best_span = UINT64_MAX;
    for (int i = 0; i < LOOKS && best_span > 0; i++) {
        uint64_t ticks = fw_clock_ticks();
        struct moment moment = {.ticks = (int64_t)ticks,
                                .now_ns =
                                    fw_clock_ticks_are_ns() ? (int64_t)ticks : fw_clock_now_ns(),
                                .wall_ns = fw_clock_wall_ns()};
        uint64_t span = fw_clock_ticks() - ticks;
        if (span < best_span) {
            best_span = span;
            best = moment;
        }
    }
    return best;
}

/* Looks at the clocks, and measures the rate if enough time has passed for that. */
static void anchor_move(void) FW_REQUIRES(writer.lock)
{
    const struct moment moment = moment_take();
    writer.anchor.ticks = moment.ticks;
    writer.anchor.wall_ns = moment.wall_ns;
    int64_t now_ns = moment.now_ns;
    int64_t passed_ns = now_ns - writer.rate_now_ns;
    int64_t passed = writer.anchor.ticks - writer.rate_ticks;
    bool is_first = writer.anchor.ns_per_tick == 0; /* Better a rough one than none. */
    if (passed > 0 && passed_ns > 0 && (is_first || passed_ns >= RATE_INTERVAL_MIN_NS)) {
        writer.anchor.ns_per_tick = (double)passed_ns / (double)passed;
    }
    if (passed_ns >= RATE_INTERVAL_NS) {
        writer.rate_ticks = writer.anchor.ticks;
        writer.rate_now_ns = now_ns;
    }
}

void fw_log_writer_begin(void)
{
    fw_mutex_lock(&writer.lock);
    writer.anchor = (struct fw_log_anchor){.ns_per_tick = fw_clock_ticks_are_ns() ? 1 : 0};
    const struct moment moment = moment_take();
    writer.rate_ticks = moment.ticks;
    writer.rate_now_ns = moment.now_ns;
    do {
        anchor_move();
    } while (writer.anchor.ns_per_tick == 0);
    fw_mutex_lock(&fw_log_rings.lock);
    fw_log_rings.arena = fw_log_rings.map.memory;
    fw_mutex_unlock(&fw_log_rings.lock);
    anchor_publish();
    fw_mutex_unlock(&writer.lock);
}

/* ---- A pass over the rings. ---- */

static void batch_flush(void) FW_REQUIRES(writer.lock)
{
    batch_write();
    for (uint32_t i = 0; i < writer.source_count; i++) {
        const struct source *source = &writer.sources[i];
        FW_YIELD_POINT("log: give back");
        /* Release, for the acquire in fw_log_ring_claim(): we have read what we give back. */
        atomic_store_explicit(&source->ring->header->read, source->cursor.at, memory_order_release);
    }
    fw_log_rings_wake(); /* Those who wait for room need not wait for the end of the pass. */
}

static void batch_add(const struct fw_log_line *line) FW_REQUIRES(writer.lock)
{
    if (BATCH_SIZE - writer.batch_length < FW_LOG_LINE_MAX) {
        batch_flush();
    }
    writer.batch_length +=
        fw_log_line_make(&writer.calendar, layout(), line, writer.batch + writer.batch_length);
    writer.batch_lines++;
}

/* Mentions lines that were lost and have not been mentioned. `lost` is the lower half of a count.
 */
static void tell_lost(struct fw_log_ring *ring, uint32_t lost, int64_t wall_ns)
    FW_REQUIRES(writer.lock)
{
    uint64_t told = atomic_load_explicit(&ring->header->lost_told, memory_order_relaxed); /* Ours */
    uint32_t more = lost - (uint32_t)told;
    if (more == 0) {
        return;
    }
    char message[FW_LOG_LOST_MAX];
    fw_log_lost_message(message, more);
    const struct fw_log_line line = {.wall_ns = wall_ns,
                                     .level = FW_LOG_WARNING,
                                     .module = "log",
                                     .thread = ring->shared ? "shared" : ring->header->name,
                                     .message = message,
                                     .length = strlen(message)};
    batch_add(&line);
    atomic_store_explicit(&ring->header->lost_told, told + more, memory_order_relaxed);
}

static void source_write(struct source *source) FW_REQUIRES(writer.lock)
{
    const struct fw_log_view *view = &source->next;
    char message[FW_LOG_MESSAGE_MAX + 1];
    struct fw_log_line line = {.wall_ns = fw_log_anchor_wall_ns(&writer.anchor, view->ticks),
                               .thread =
                                   source->cursor.shared ? view->name : source->ring->header->name};
    tell_lost(source->ring, view->lost, line.wall_ns);
    int rc = fw_log_view_read(view, fw_log_rings.known, FW_LOG_SITES_MAX, message, &line);
    FW_ASSERT(rc == 0); /* We wrote it ourselves. */
    batch_add(&line);
    source->cursor.at = view->next;
}

/* What there is now. The shared ring comes last, see source_earliest(). */
static void sources_find(void) FW_REQUIRES(writer.lock)
{
    uint32_t count = atomic_load_explicit(&fw_log_rings.count, memory_order_relaxed);
    writer.source_count = 0;
    for (uint32_t i = 0; i <= count; i++) {
        struct fw_log_ring *ring = &fw_log_rings.rings[i];
        FW_YIELD_POINT("log: look at a ring");
        /* Acquire, for the release of who took it: the name is there. */
        if (atomic_load_explicit(&ring->state, memory_order_acquire) == FW_LOG_RING_FREE) {
            continue;
        }
        struct source *source = &writer.sources[writer.source_count];
        source->ring = ring;
        source->cursor = (struct fw_log_cursor){
            .data = ring->data,
            .size = ring->size,
            .at = atomic_load_explicit(&ring->header->read, memory_order_relaxed), /* Ours. */
            /* Acquire, for the release in fw_log_ring_commit(). */
            .end = atomic_load_explicit(&ring->header->written, memory_order_acquire),
            .shared = ring->shared};
        int64_t full = (int64_t)(source->cursor.end - source->cursor.at);
        if (full > fw_gauge_get(&fw_log_metrics.ring_high_water)) {
            fw_gauge_set(&fw_log_metrics.ring_high_water, full);
        }
        writer.source_count++;
    }
}

static bool source_look(struct source *source)
{
    int rc = fw_log_cursor_peek(&source->cursor, &source->next);
    FW_ASSERT(rc >= 0); /* We wrote it ourselves. */
    return rc == 1;
}

/*
 * Writes the lines of all sources by their time. A thread that used the shared ring until one of
 * its own became free has its older lines there; they are in this pass if the newer ones are,
 * because the shared ring was looked at last.
 */
static size_t sources_write(void) FW_REQUIRES(writer.lock)
{
    static struct source *open[FW_LOG_RINGS_MAX + 1]; /* Under the lock, like the rest. */
    uint32_t open_count = 0;
    size_t lines = 0;
    for (uint32_t i = 0; i < writer.source_count; i++) {
        if (source_look(&writer.sources[i])) {
            open[open_count++] = &writer.sources[i];
        }
    }
    while (open_count > 0) {
        uint32_t earliest = 0;
        for (uint32_t i = 1; i < open_count; i++) {
            if (fw_log_view_before(&open[i]->next, open[i]->cursor.shared, &open[earliest]->next)) {
                earliest = i;
            }
        }
        source_write(open[earliest]);
        lines++;
        if (!source_look(open[earliest])) {
            open[earliest] = open[--open_count];
        }
    }
    return lines;
}

/* Rings that are empty: what was lost at their end is told, and those without a thread are free. */
static void sources_close(void) FW_REQUIRES(writer.lock)
{
    for (uint32_t i = 0; i < writer.source_count; i++) {
        struct fw_log_ring *ring = writer.sources[i].ring;
        /* Acquire, for the releases of its thread: what it lost and wrote before is there. */
        uint32_t state = atomic_load_explicit(&ring->state, memory_order_acquire);
        uint64_t lost = atomic_load_explicit(&ring->header->lost, memory_order_acquire);
        if (atomic_load_explicit(&ring->header->written, memory_order_acquire) !=
            writer.sources[i].cursor.end) {
            continue;
        }
        tell_lost(ring, (uint32_t)lost, writer.anchor.wall_ns);
        if (state == FW_LOG_RING_RELEASED) {
            batch_flush(); /* Its name and its place become another's. */
            /* Release, for the acquire of the next who takes it. */
            atomic_store_explicit(&ring->state, FW_LOG_RING_FREE, memory_order_release);
        }
    }
}

static void reopen_if_asked(void) FW_REQUIRES(writer.lock)
{
    struct fw_reason reason;
    if (atomic_exchange_explicit(&writer.reopen_wanted, false, memory_order_relaxed) &&
        writer.to_file && fw_appender_reopen(&writer.file, &reason) != 0) {
        file_complain(&reason);
    }
}

static void counters_move(void) FW_REQUIRES(writer.lock)
{
    uint64_t dropped = atomic_load_explicit(&writer.dropped, memory_order_relaxed);
    uint64_t blocked = atomic_load_explicit(&writer.blocked, memory_order_relaxed);
    fw_counter_add(&fw_log_metrics.dropped, dropped - fw_counter_get(&fw_log_metrics.dropped));
    fw_counter_add(&fw_log_metrics.blocked, blocked - fw_counter_get(&fw_log_metrics.blocked));
}

static size_t drain(void) FW_REQUIRES(writer.lock)
{
    if (fw_log_rings.arena == NULL) {
        return 0;
    }
    reopen_if_asked();
    anchor_move();
    anchor_publish();
    sources_find();
    size_t lines = sources_write();
    sources_close();
    batch_flush();
    writer.source_count = 0;
    counters_move();
    FW_YIELD_POINT("log: leave the role");
    return lines;
}

enum fw_log_drained fw_log_writer_drain(void)
{
    if (!fw_mutex_trylock(&writer.lock)) {
        return FW_LOG_DRAIN_BUSY;
    }
    size_t lines = drain();
    fw_mutex_unlock(&writer.lock);
    fw_log_rings_wake(); /* Also those who found the role taken just now. */
    return lines > 0 ? FW_LOG_DRAIN_SOME : FW_LOG_DRAIN_NOTHING;
}

bool fw_log_drain(void)
{
    return fw_log_writer_drain() == FW_LOG_DRAIN_SOME;
}

void fw_log_writer_drain_all(void)
{
    fw_mutex_lock(&writer.lock);
    (void)drain();
    fw_mutex_unlock(&writer.lock);
    fw_log_rings_wake();
}

void fw_log_writer_end(void)
{
    fw_mutex_lock(&writer.lock);
    (void)drain();
    fw_mutex_lock(&fw_log_rings.lock);
    fw_log_rings.arena = NULL;
    fw_mutex_unlock(&fw_log_rings.lock);
    fw_mutex_unlock(&writer.lock);
    fw_log_rings_wake();
}

void fw_log_writer_write(struct fw_log_line *line)
{
    fw_mutex_lock(&writer.lock);
    (void)drain(); /* While stop() is under way: the thread's own lines come first. */
    line->wall_ns = fw_clock_wall_ns();
    batch_add(line);
    batch_write();
    fw_mutex_unlock(&writer.lock);
    fw_log_rings_wake();
}

/* ---- Counting. ---- */

void fw_log_writer_count_dropped(void)
{
    (void)atomic_fetch_add_explicit(&writer.dropped, 1, memory_order_relaxed);
}

void fw_log_writer_count_blocked(void)
{
    (void)atomic_fetch_add_explicit(&writer.blocked, 1, memory_order_relaxed);
}

uint64_t fw_log_lost(void)
{
    return atomic_load_explicit(&writer.failed, memory_order_relaxed) +
           atomic_load_explicit(&writer.dropped, memory_order_relaxed);
}

/* ---- Where the lines go. ---- */

int fw_log_open(const char *path, struct fw_reason *reason)
{
    struct fw_appender file = {.path = NULL};
    bool is_journal = false;
    if (path != NULL) {
        int rc = fw_appender_open(&file, path, MODE, reason);
        if (rc != 0) {
            return rc;
        }
    } else {
        is_journal = fw_stderr_is_journal();
    }
    fw_mutex_lock(&writer.lock);
    (void)drain(); /* What was logged before belongs to the old one. */
    struct fw_appender file_before = writer.file;
    bool to_file_before = writer.to_file;
    writer.file = file;
    writer.to_file = path != NULL;
    writer.is_journal = is_journal;
    writer.rotate_told = false;
    fw_mutex_unlock(&writer.lock);
    fw_log_rings_wake();
    if (to_file_before) {
        fw_appender_close(&file_before);
    }
    return 0;
}

int fw_log_set_file(const char *path)
{
    return fw_log_open(path, NULL);
}

int fw_log_reopen(void)
{
    if (atomic_load_explicit(&fw_log_rings.is_async, memory_order_relaxed)) {
        atomic_store_explicit(&writer.reopen_wanted, true, memory_order_relaxed);
        fw_fence_full(); /* Pairs with the one in fw_log_arm(). */
        fw_log_bell_force();
        return 0;
    }
    fw_mutex_lock(&writer.lock);
    int rc = writer.to_file ? fw_appender_reopen(&writer.file, NULL) : 0;
    fw_mutex_unlock(&writer.lock);
    return rc;
}

bool fw_log_writer_is_asked(void)
{
    return atomic_load_explicit(&writer.reopen_wanted, memory_order_relaxed);
}

void fw_log_set_rotation(uint64_t size, uint32_t keep)
{
    fw_mutex_lock(&writer.lock);
    writer.rotate_size = size;
    writer.rotate_keep = keep > 0 ? keep : 1;
    fw_mutex_unlock(&writer.lock);
}

void fw_log_set_json(bool is_json)
{
    fw_mutex_lock(&writer.lock);
    writer.is_json = is_json;
    fw_mutex_unlock(&writer.lock);
}

void fw_log_writer_set_sink(int (*sink)(void *context, const char *lines, size_t size,
                                        size_t *done),
                            void *context)
{
    fw_mutex_lock(&writer.lock);
    (void)drain();
    writer.sink = sink;
    writer.sink_context = context;
    fw_mutex_unlock(&writer.lock);
}
