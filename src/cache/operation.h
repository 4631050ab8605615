/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands do, whichever protocol they came by: store, remove, touch, count, flush.
 *
 * The protocols parse and answer; here is what happens in between, once, so that a `set` is the
 * same in text, meta and binary and is counted in the same places. Reading has no operation of its
 * own but fw_operation_find(): the protocols write the item into the reply themselves, inside the
 * hold, since each writes it differently and nothing is copied twice.
 *
 * Each operation is atomic: it is one hold, or it looks, lets go, reserves, holds again and begins
 * anew if the item has changed meanwhile.
 *
 * Threads: those of the local.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"
#include "cache/detail.h"

enum fw_outcome {
    FW_DONE,
    FW_NOT_STORED, /* add: it is there; replace, append, prepend: it is not. */
    FW_EXISTS,     /* It has another CAS than was said. */
    FW_NOT_FOUND,
    FW_TOO_LARGE,
    FW_NO_MEMORY,
    FW_NOT_A_NUMBER, /* What is there cannot be counted up or down. */
    FW_IS_LOCKED,    /* By another client (an extension; see locks.h). */
    /* Of values in a file (large.h): */
    FW_IS_LARGE, /* It is there, or would be, and cannot be appended to. */
    FW_NO_SPACE, /* The file or its disk is full. */
    FW_DISK_FAILED,
};

enum fw_store_mode {
    FW_STORE_SET,
    FW_STORE_ADD,
    FW_STORE_REPLACE,
    FW_STORE_APPEND,
    FW_STORE_PREPEND,
    FW_STORE_CAS, /* Like SET, but answers NOT_FOUND if nothing is there to compare with. */
};

struct fw_store {
    enum fw_store_mode mode;
    bool compares;    /* Only if the item's CAS is `cas`. */
    bool invalidates; /* Meta's I: an item with a higher CAS is replaced and marked stale. */
    uint8_t bits;     /* FW_ITEM_KEY_BINARY, or none. */
    uint64_t cas;
    uint64_t cas_new; /* What the item's shall be; 0: the next number. */
    uint32_t flags;
    uint32_t expires; /* By fw_cache_expiry(). */
    /* The value: bytes, which are copied; or a body, whose reference is taken over in any case. */
    const char *bytes;
    uint32_t length;
    struct fw_body *body;
    enum fw_outcome refusal; /* Not FW_DONE: it could not be kept while it came, and this is why. */
    uint32_t client;         /* Who asks, for locks; 0: nobody. */
    uint64_t cas_is;         /* Answer: the CAS of the item stored. */
    uint32_t length_is;      /* Answer: the length of the value as stored. */
};

/*
 * Does an item with a value of `length` bytes fit under memcached's limit? That counts the whole of
 * memcached's item, so that what fits there fits here and what does not does not.
 */
static inline bool fw_operation_fits(const struct fw_cache *cache, size_t key_length,
                                     uint32_t flags, uint64_t length)
{
    /* Its header, its CAS, the zero behind the key, the line's end; and the flags if any are. */
    enum { HEADER = 48 + 8 + 1 + 2, FLAGS = 4 };
    uint64_t size = HEADER + key_length + (flags != 0 ? FLAGS : 0) + length;
    return size <= cache->settings.item_size_max;
}

/* Why a store failed, for clients of the text protocols; of those outcomes that are errors. */
const char *fw_operation_error(enum fw_outcome outcome);

/*
 * Of a set that fails with NO_MEMORY or TOO_LARGE, or as those of large values do, an older item of
 * that key is gone: better a miss than a value that the client thinks is replaced. An append whose
 * result would be too large is NOT_STORED, as memcached has it.
 */
enum fw_outcome fw_operation_store(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_store *store);

/*
 * For who knows before the value has come that it will not be stored: does what store() does when
 * it fails with `outcome`, such an error, and returns it.
 */
enum fw_outcome fw_operation_refuse(struct fw_cache_local *local, const struct fw_key *key,
                                    enum fw_store_mode mode, enum fw_outcome outcome);

/* A store whose value came damaged, and is not stored: only counted. */
void fw_operation_spoil(struct fw_cache_local *local, const struct fw_key *key);

/*
 * Finds a key for reading: counts a hit or a miss, marks the item as read. hold->item is NULL for a
 * miss; fw_hold_release() follows in any case.
 */
void fw_operation_find(struct fw_cache_local *local, struct fw_hold *hold,
                       const struct fw_key *key);

/*
 * The same for several keys: what is found is counted in `finds`, and by finds_end() for all of
 * them at once. note_get() comes before it. found() is for who holds the key in another way.
 */
struct fw_finds {
    uint32_t hits;
    uint32_t misses;
};
void fw_operation_miss(struct fw_cache_local *local, const struct fw_hold *hold);
static inline void fw_operation_found(struct fw_cache_local *local, struct fw_hold *hold,
                                      struct fw_finds *finds)
{
    if (FW_LIKELY(hold->item != NULL)) {
        finds->hits++;
        fw_hold_access(hold);
    } else {
        finds->misses++;
        fw_operation_miss(local, hold);
    }
}
static inline void fw_operation_find_next(struct fw_cache_local *local, struct fw_hold *hold,
                                          const struct fw_key *key, struct fw_finds *finds)
{
    fw_table_hold(local->table, hold, key);
    fw_operation_found(local, hold, finds);
}
static inline void fw_operation_finds_end(struct fw_cache_local *local,
                                          const struct fw_finds *finds)
{
    fw_counter_add(&local->metrics->cmd_get, (uint64_t)finds->hits + finds->misses);
    fw_counter_add(&local->metrics->get_hits, finds->hits);
    fw_counter_add(&local->metrics->get_misses, finds->misses);
}

/* For `stats detail`, before find_next(), and before a get that is a touch. */
void fw_operation_note_get_now(struct fw_cache_local *local, const struct fw_key *key);
static inline void fw_operation_note_get(struct fw_cache_local *local, const struct fw_key *key)
{
    if (FW_UNLIKELY(fw_detail_is_on(local->cache->detail))) {
        fw_operation_note_get_now(local, key);
    }
}

/* The same with a new expiry time (gat, touch). Counts as a touch. */
void fw_operation_touch(struct fw_cache_local *local, struct fw_hold *hold,
                        const struct fw_key *key, uint32_t expires);

/* `cas` 0: whatever it has. */
enum fw_outcome fw_operation_remove(struct fw_cache_local *local, const struct fw_key *key,
                                    uint64_t cas, uint32_t client);

struct fw_count {
    uint64_t delta;
    bool is_down;    /* Not below 0; up wraps at 2^64. */
    bool may_create; /* Then with `initial` and `expires`. */
    bool may_touch;  /* Then an item that was there gets `touch_expires`. */
    uint64_t initial;
    uint32_t expires;
    uint32_t touch_expires;
    uint64_t cas;     /* 0: any. */
    uint64_t cas_new; /* 0: the next number. */
    uint8_t bits;     /* For an item that is created. */
    uint32_t client;
    uint64_t value;       /* Answer. */
    uint64_t cas_is;      /* Answer. */
    bool is_created;      /* Answer. */
    uint32_t expires_was; /* Answer: of an item that was there, before it was touched. */
};
enum fw_outcome fw_operation_count(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_count *count);

/* The number that is shown of an item as its CAS: memcached's -C makes it 0. */
static inline uint64_t fw_operation_cas(const struct fw_cache_local *local,
                                        const struct fw_item *item)
{
    return FW_LIKELY(local->cache->settings.has_cas) ? fw_item_cas(item) : 0;
}

/*
 * When a flush that a client wants after `delay`, as it would say when something expires, is due.
 * memcached counts the second in which it comes as one of the delay's. A date that has passed
 * means nothing to it: then it flushes nothing, ever.
 */
uint32_t fw_operation_flush_time(const struct fw_cache_local *local, int64_t delay);

/*
 * flush_all: at once if the cache's clock has come to `at`, as it has to 0, or else when it has.
 * Takes the place of one that is pending.
 */
void fw_operation_flush(struct fw_cache_local *local, uint32_t at);
