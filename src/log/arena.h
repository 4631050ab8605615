/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory in which lines wait to be written: all rings, and whatever else it takes to make text
 * of what is in them. It may be a file (io/map.h), which `fairway log recover` reads after the
 * process was killed; then it is input from outside, and this page its format.
 *
 *     arena header    what is where, and how ticks become time
 *     ring headers    one for each ring; that of the shared ring is the last
 *     dictionary      an entry for each site that logs, appended when it logs for the first time
 *     ring data       `ring_size` bytes for each ring
 *
 * A ring is a circular buffer of records, of which positions [read, written) are full; positions
 * only ever rise and are taken modulo the size. A record never crosses the end of the buffer: what
 * is left there is a record of padding. The caller writes a record beyond `written` and then moves
 * `written`, with release: so a record that is half there is not there. The writer moves `read`
 * once the lines are with the kernel. A kill between the two leaves lines in both places: they may
 * come twice, never not at all.
 *
 * The same rule makes the dictionary: entries are below `dictionary_used`. An entry is in before
 * the first record that names it is published.
 *
 * Numbers are in the order of the machine that wrote them, and `byte_order` lets another tell.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/thread.h"
#include "log/format.h"
#include "log/line.h"

#define FW_LOG_ARENA_MAGIC "FWLOG\r\n" /* With the final zero. A transfer as text spoils it. */

enum {
    FW_LOG_ARENA_VERSION = 1,
    FW_LOG_BYTE_ORDER = 0x01020304,
    FW_LOG_PAGE = 4096,
    FW_LOG_RINGS_MAX = 1024,         /* Rings of single threads; more threads share one more. */
    FW_LOG_RING_SIZE_MIN = 8 * 1024, /* Some records of the largest size. */
    FW_LOG_RING_SIZE_MAX = 16 * 1024 * 1024,
    FW_LOG_DICTIONARY_SIZE = 256 * 1024,
    FW_LOG_SITES_MAX = 4096,
    FW_LOG_MODULE_NAME_MAX = 32,

    FW_LOG_SITE_TEXT = 0,             /* Not a site: level, module and finished message. */
    FW_LOG_SITE_PADDING = UINT16_MAX, /* Not a line at all. */
};

/* A moment on both clocks, and how fast the one runs against the other. */
struct fw_log_anchor {
    int64_t ticks;
    int64_t wall_ns;
    double ns_per_tick;
};

struct fw_log_arena {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint32_t process;
    uint32_t ring_count; /* Without the shared one. */
    uint64_t ring_size;
    uint64_t dictionary_size;
    _Atomic uint64_t dictionary_used;
    /* The writer fills the one that is not current and then makes it so, with release. */
    struct fw_log_anchor anchors[2];
    _Atomic uint32_t anchor_current;
};

struct fw_log_ring_header {
    /* The caller's cache line. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t written;
    _Atomic uint64_t lost;          /* Lines for which there was no room, since the start. */
    char name[FW_THREAD_NAME_SIZE]; /* Of the thread; changes only while the ring is empty. */
    /* The writer's. */
    alignas(FW_CACHE_LINE) _Atomic uint64_t read;
    _Atomic uint64_t lost_told; /* How many of the lost ones have been mentioned in the log. */
};

/*
 * Followed by the thread's name, in the shared ring, and by the arguments. Written as two words:
 * the processor is slow to read a word that was written in parts a moment ago.
 */
struct fw_log_record {
    uint16_t size; /* Of all of it, a multiple of 8. Padding has no more than these two. */
    uint16_t site;
    uint32_t lost; /* The lower half of the ring's count when it was made. */
    int64_t ticks;
};

enum {
    FW_LOG_RECORD_MAX =
        (int)sizeof(struct fw_log_record) + FW_THREAD_NAME_SIZE + ((FW_LOG_PACKED_MAX + 7) & ~7)
};

/* Followed by the module's name and the format, each with its zero, up to a multiple of 8. */
struct fw_log_entry {
    uint32_t size; /* Of all of it, a multiple of 8. */
    uint16_t site;
    uint16_t level;
};

static inline size_t fw_log_arena_ring_offset(uint32_t index)
{
    return FW_LOG_PAGE + (size_t)index * sizeof(struct fw_log_ring_header);
}

static inline size_t fw_log_arena_dictionary_offset(uint32_t ring_count)
{
    size_t end = fw_log_arena_ring_offset(ring_count + 1);
    return (end + FW_LOG_PAGE - 1) & ~(size_t)(FW_LOG_PAGE - 1);
}

static inline size_t fw_log_arena_data_offset(uint32_t ring_count, uint64_t ring_size,
                                              uint32_t index)
{
    return fw_log_arena_dictionary_offset(ring_count) + FW_LOG_DICTIONARY_SIZE +
           (size_t)ring_size * index;
}

static inline size_t fw_log_arena_size(uint32_t ring_count, uint64_t ring_size)
{
    return fw_log_arena_data_offset(ring_count, ring_size, ring_count + 1);
}

static inline bool fw_log_ring_size_ok(uint64_t size)
{
    return size >= FW_LOG_RING_SIZE_MIN && size <= FW_LOG_RING_SIZE_MAX && (size & (size - 1)) == 0;
}

/* The first word of a record. */
static inline uint64_t fw_log_record_word(uint32_t size, uint16_t site, uint32_t lost)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (uint64_t)size | (uint64_t)site << 16 | (uint64_t)lost << 32;
#else
    return (uint64_t)size << 48 | (uint64_t)site << 32 | lost;
#endif
}

/* Goes through the records of one ring, from `at` to `end`. */
struct fw_log_cursor {
    const unsigned char *data;
    uint64_t size; /* Of the ring. */
    uint64_t at;
    uint64_t end;
    bool shared; /* Records name their thread. */
};

/* A record, lent as long as the ring keeps it. */
struct fw_log_view {
    uint16_t site;
    uint32_t lost;
    int64_t ticks;
    char name[FW_THREAD_NAME_SIZE]; /* In the shared ring. */
    const unsigned char *packed;
    size_t packed_size;
    uint64_t next; /* The position behind it. */
};

/*
 * Looks at the record at the cursor, moving it over padding. Returns 1, 0 if there is none, or
 * -EBADMSG if what is there is no record.
 */
FW_MUST_CHECK int fw_log_cursor_peek(struct fw_log_cursor *cursor, struct fw_log_view *view);

/*
 * True if `view` is to be written before `other`, which is of another ring. At the same tick the
 * shared ring goes first: a thread that gets a ring of its own has its older lines there.
 */
static inline bool fw_log_view_before(const struct fw_log_view *view, bool shared,
                                      const struct fw_log_view *other)
{
    return view->ticks < other->ticks || (view->ticks == other->ticks && shared);
}

/* What the records of a site mean: made when it first logs, or from the dictionary. Constant. */
struct fw_log_known {
    enum fw_log_level level;
    uint16_t id;
    struct fw_log_format format; /* Begins with what a call needs, in the same cache line. */
    struct fw_log_site *site;    /* Of the living process. */
    char module[FW_LOG_MODULE_NAME_MAX + 1];
    char text[]; /* The format. */
};

/*
 * Makes level, module and message of the line; all but the message is lent. The site is looked up
 * in `known`, of which some may be NULL. Returns 0, or -EBADMSG if the record does not fit its
 * site.
 */
FW_MUST_CHECK int fw_log_view_read(const struct fw_log_view *view,
                                   struct fw_log_known *const known[], size_t known_count,
                                   char message[FW_LOG_MESSAGE_MAX + 1], struct fw_log_line *line);

/* Nanoseconds since 1970 of a stamp. Takes any numbers. */
int64_t fw_log_anchor_wall_ns(const struct fw_log_anchor *anchor, int64_t ticks);
