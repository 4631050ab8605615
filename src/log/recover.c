/* SPDX-License-Identifier: Apache-2.0 */
#include "log/recover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/arena.h"

/* One ring, with the record that is next in it. */
struct source {
    struct fw_log_cursor cursor;
    struct fw_log_view next;
    char name[FW_THREAD_NAME_SIZE];
    uint64_t lost;
    uint64_t lost_told;
    int64_t ticks_last; /* Of the last good record, for what is said about what follows. */
};

struct recovery {
    const unsigned char *contents;
    struct fw_log_arena arena; /* A copy: the file need not be aligned. */
    struct fw_log_anchor anchor;
    struct fw_log_known *known[FW_LOG_SITES_MAX];
    struct source *sources;
    uint32_t source_count;
    const struct fw_log_printer *printer;
    struct fw_log_calendar calendar;
    struct fw_log_recovered *recovered;
};

static int arena_check(struct recovery *recovery, size_t size, struct fw_reason *reason)
{
    struct fw_log_arena *arena = &recovery->arena;
    if (size < FW_LOG_PAGE) {
        return fw_reason_set(reason, -EBADMSG, "it is too short to be a log's rings");
    }
    memcpy(arena, recovery->contents, sizeof *arena);
    if (memcmp(arena->magic, FW_LOG_ARENA_MAGIC, sizeof arena->magic) != 0) {
        return fw_reason_set(reason, -EBADMSG,
                             "it does not begin as a log's rings do; those are called "
                             "fairway-log.PROCESS.N");
    }
    if (arena->byte_order != FW_LOG_BYTE_ORDER || arena->version != FW_LOG_ARENA_VERSION) {
        return fw_reason_set(reason, -EBADMSG,
                             "it was written by another version, or on another kind of machine");
    }
    if (arena->ring_count == 0 || arena->ring_count > FW_LOG_RINGS_MAX ||
        !fw_log_ring_size_ok(arena->ring_size) ||
        arena->dictionary_size != FW_LOG_DICTIONARY_SIZE ||
        fw_log_arena_size(arena->ring_count, arena->ring_size) != size) {
        return fw_reason_set(reason, -EBADMSG, "its header does not fit its size");
    }
    uint32_t current = atomic_load_explicit(&arena->anchor_current, memory_order_relaxed);
    recovery->anchor = arena->anchors[current % 2];
    return 0;
}

/* One entry of the dictionary, of `size` bytes. What makes no sense is left out. */
static int entry_read(struct recovery *recovery, const unsigned char *at, size_t size)
{
    struct fw_log_entry entry;
    memcpy(&entry, at, sizeof entry);
    const char *module = (const char *)at + sizeof entry;
    size_t rest = size - sizeof entry;
    size_t module_length = strnlen(module, rest);
    if (entry.site >= FW_LOG_SITES_MAX || entry.site == FW_LOG_SITE_TEXT ||
        entry.level > FW_LOG_TRACE || module_length == rest ||
        module_length > FW_LOG_MODULE_NAME_MAX || recovery->known[entry.site] != NULL) {
        return 0;
    }
    const char *text = module + module_length + 1;
    rest -= module_length + 1;
    size_t text_length = strnlen(text, rest);
    if (text_length == rest) {
        return 0;
    }
    struct fw_log_known *known = calloc(1, sizeof *known + text_length + 1);
    if (known == NULL) {
        return -ENOMEM;
    }
    known->level = (enum fw_log_level)entry.level;
    known->id = entry.site;
    memcpy(known->module, module, module_length);
    memcpy(known->text, text, text_length);
    if (!fw_log_format_parse(&known->format, known->text)) {
        free(known);
        return 0;
    }
    recovery->known[entry.site] = known;
    return 0;
}

static int dictionary_read(struct recovery *recovery)
{
    const unsigned char *begin =
        recovery->contents + fw_log_arena_dictionary_offset(recovery->arena.ring_count);
    uint64_t used = atomic_load_explicit(&recovery->arena.dictionary_used, memory_order_relaxed);
    used = used < FW_LOG_DICTIONARY_SIZE ? used : FW_LOG_DICTIONARY_SIZE;
    for (uint64_t at = 0; used - at >= sizeof(struct fw_log_entry);) {
        struct fw_log_entry entry;
        memcpy(&entry, begin + at, sizeof entry);
        if (entry.size < sizeof entry || entry.size > used - at) {
            return 0; /* Lines of sites behind it are shown as damage. */
        }
        int rc = entry_read(recovery, begin + at, entry.size);
        if (rc != 0) {
            return rc;
        }
        at += entry.size;
    }
    return 0;
}

static void line_print(struct recovery *recovery, const struct fw_log_line *line)
{
    char out[FW_LOG_LINE_MAX];
    const struct fw_log_printer *printer = recovery->printer;
    size_t length = fw_log_line_make(&recovery->calendar, printer->layout, line, out);
    printer->print(printer->context, out, length);
}

/* A line of ours among the others. */
static void say(struct recovery *recovery, const struct source *source, int64_t ticks,
                const char *message)
{
    const struct fw_log_line line = {.wall_ns = fw_log_anchor_wall_ns(&recovery->anchor, ticks),
                                     .level = FW_LOG_WARNING,
                                     .module = "log",
                                     .thread = source->cursor.shared ? "shared" : source->name,
                                     .message = message,
                                     .length = strlen(message)};
    line_print(recovery, &line);
}

static void say_lost(struct recovery *recovery, struct source *source, uint32_t lost, int64_t ticks)
{
    uint32_t more = lost - (uint32_t)source->lost_told;
    if (more > 0) {
        char message[FW_LOG_LOST_MAX];
        fw_log_lost_message(message, more);
        say(recovery, source, ticks, message);
        source->lost_told += more;
    }
}

static void say_damaged(struct recovery *recovery, const struct source *source)
{
    say(recovery, source, source->ticks_last, "what follows in the ring of this thread is damaged");
    recovery->recovered->damaged++;
}

/* Looks for the next record. False: there is none, or it makes no sense. */
static bool source_look(struct recovery *recovery, struct source *source)
{
    int rc = fw_log_cursor_peek(&source->cursor, &source->next);
    if (rc == 0) {
        say_lost(recovery, source, (uint32_t)source->lost, source->ticks_last);
    } else if (rc < 0) {
        say_damaged(recovery, source);
    }
    return rc == 1;
}

static bool source_print(struct recovery *recovery, struct source *source)
{
    const struct fw_log_view *view = &source->next;
    char message[FW_LOG_MESSAGE_MAX + 1];
    struct fw_log_line line = {.wall_ns = fw_log_anchor_wall_ns(&recovery->anchor, view->ticks),
                               .thread = source->cursor.shared ? view->name : source->name};
    if (fw_log_view_read(view, recovery->known, FW_LOG_SITES_MAX, message, &line) != 0) {
        say_damaged(recovery, source);
        return false;
    }
    say_lost(recovery, source, view->lost, view->ticks);
    line_print(recovery, &line);
    recovery->recovered->lines++;
    source->ticks_last = view->ticks;
    source->cursor.at = view->next;
    return true;
}

/* The rings that have something in them, each at its first record. */
static int sources_open(struct recovery *recovery)
{
    const struct fw_log_arena *arena = &recovery->arena;
    recovery->sources = calloc(arena->ring_count + 1, sizeof *recovery->sources);
    if (recovery->sources == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i <= arena->ring_count; i++) {
        struct fw_log_ring_header header;
        memcpy(&header, recovery->contents + fw_log_arena_ring_offset(i), sizeof header);
        uint64_t read = atomic_load_explicit(&header.read, memory_order_relaxed);
        uint64_t written = atomic_load_explicit(&header.written, memory_order_relaxed);
        struct source source = {
            .cursor = {.data = recovery->contents +
                               fw_log_arena_data_offset(arena->ring_count, arena->ring_size, i),
                       .size = arena->ring_size,
                       .at = read,
                       .end = written,
                       .shared = i == arena->ring_count},
            .lost = atomic_load_explicit(&header.lost, memory_order_relaxed),
            .lost_told = atomic_load_explicit(&header.lost_told, memory_order_relaxed),
            .ticks_last = recovery->anchor.ticks,
        };
        memcpy(source.name, header.name, sizeof source.name - 1);
        if (written - read > arena->ring_size || read % 8 != 0 || written % 8 != 0) {
            say_damaged(recovery, &source);
        } else if (source_look(recovery, &source)) {
            recovery->sources[recovery->source_count++] = source;
        }
    }
    return 0;
}

static void sources_print(struct recovery *recovery)
{
    struct source *sources = recovery->sources;
    while (recovery->source_count > 0) {
        uint32_t earliest = 0;
        for (uint32_t i = 1; i < recovery->source_count; i++) {
            if (fw_log_view_before(&sources[i].next, sources[i].cursor.shared,
                                   &sources[earliest].next)) {
                earliest = i;
            }
        }
        if (!source_print(recovery, &sources[earliest]) ||
            !source_look(recovery, &sources[earliest])) {
            sources[earliest] = sources[--recovery->source_count];
        }
    }
}

int fw_log_recover(const void *contents, size_t size, const struct fw_log_printer *printer,
                   struct fw_log_recovered *recovered, struct fw_reason *reason)
{
    *recovered = (struct fw_log_recovered){.lines = 0};
    struct recovery *recovery = calloc(1, sizeof *recovery);
    if (recovery == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot recover");
    }
    recovery->contents = contents;
    recovery->printer = printer;
    recovery->recovered = recovered;
    int rc = arena_check(recovery, size, reason);
    if (rc == 0) {
        recovered->process = recovery->arena.process;
        rc = dictionary_read(recovery);
        rc = rc == 0 ? sources_open(recovery) : rc;
        if (rc == 0) {
            sources_print(recovery);
        } else {
            (void)fw_reason_errno(reason, rc, "cannot recover");
        }
    }
    for (size_t i = 0; i < FW_LOG_SITES_MAX; i++) {
        free(recovery->known[i]);
    }
    free(recovery->sources);
    free(recovery);
    return rc;
}
