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

enum fw_outcome {
    FW_DONE,
    FW_NOT_STORED, /* add: it is there; replace, append, prepend: it is not. */
    FW_EXISTS,     /* It has another CAS than was said. */
    FW_NOT_FOUND,
    FW_TOO_LARGE,
    FW_NO_MEMORY,
    FW_NOT_A_NUMBER, /* What is there cannot be counted up or down. */
    FW_IS_LOCKED,    /* By another client (an extension; see locks.h). */
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
    uint32_t client;    /* Who asks, for locks; 0: nobody. */
    uint64_t cas_is;    /* Answer: the CAS of the item stored. */
    uint32_t length_is; /* Answer: the length of the value as stored. */
};

/* Of a store that fails with NO_MEMORY or TOO_LARGE an older item of that key is gone, for a set:
 * better a miss than a value that the client thinks is replaced. */
enum fw_outcome fw_operation_store(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_store *store);

/*
 * Finds a key for reading: counts a hit or a miss, marks the item as read. hold->item is NULL for a
 * miss; fw_hold_release() follows in any case.
 */
void fw_operation_find(struct fw_cache_local *local, struct fw_hold *hold,
                       const struct fw_key *key);

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
    bool may_touch;  /* Then `expires` is set on an item that was there. */
    uint64_t initial;
    uint32_t expires;
    uint64_t cas;     /* 0: any. */
    uint64_t cas_new; /* 0: the next number. */
    uint8_t bits;     /* For an item that is created. */
    uint32_t client;
    uint64_t value;      /* Answer. */
    uint64_t cas_is;     /* Answer. */
    uint32_t expires_is; /* Answer. */
};
enum fw_outcome fw_operation_count(struct fw_cache_local *local, const struct fw_key *key,
                                   struct fw_count *count);

/* flush_all: at once, or when the cache's clock has come to `at`. 0 takes a pending one back too.
 */
void fw_operation_flush(struct fw_cache_local *local, uint32_t at);
