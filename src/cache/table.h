/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all items, shared by all localities, and the memory they lie in.
 *
 * One primitive does everything: a *hold*. fw_table_hold() locks the bucket of a key and finds its
 * item, if it is there and alive; then the caller reads it, changes it in place, replaces it or
 * removes it, and lets go. A hold is short: no system call, no second hold, no wait, nothing that
 * allocates; copying a value of FW_ITEM_INLINE_MAX bytes is the longest thing that happens in one.
 * So every command of every protocol is atomic without knowing how, and whoever must see changes in
 * their order (replication) looks from inside the hold.
 *
 *     size = fw_item_size(key.length, length, fields);
 *     if (!fw_table_reserve(local, size)) { ... no memory ... }
 *     fw_table_hold(local, &hold, &key);
 *     item = fw_hold_write(&hold, length, fields); the old record if it fits, else a new one
 *     memcpy(fw_item_value(item), value, length);
 *     fw_hold_release(&hold);
 *
 * Reserve first, and call nothing else of this local in between. Memory may have to be made, by
 * dropping other items, which takes other buckets' locks; two of them are never held together.
 * Inside a hold memory comes from what was reserved and cannot fail. Releasing, too, may do a share
 * of the work that is done for all: some ten microseconds after every 16 changes.
 *
 * Buckets. A bucket is one cache line: a lock, ten entries of a tag and a place, a link to an
 * overflow bucket. To find a key costs one line for the bucket and one for the record. The table
 * grows by linear hashing: when it is full enough the next bucket in line is split in two, under
 * its lock, by whoever inserted, and it shrinks in the same way. No step is longer than one bucket,
 * and the table always has the size its items need, where doubling would have up to twice that.
 * Buckets lie in one range of addresses that is reserved for the largest table the memory limit
 * allows, so no bucket ever moves, and pages of it that were never used cost nothing.
 *
 * Memory. Records are appended to segments, one open segment per locality, so a record costs what
 * it is long. When memory is short a segment is cleaned: records that are dead (replaced, removed,
 * expired, flushed) are left, those that were not read since they came are dropped (evicted), and
 * the rest is copied to a segment of survivors, each under its bucket's lock; clean.c has the rule.
 * A shift of sizes strands nothing: all records share all segments. Bodies have pages of their own,
 * counted against the same limit.
 *
 * Expiry: lazily, at the hold, which then answers as if nothing was there; and by
 * fw_table_sweep(), which goes round the buckets in small steps and can raise the ages too.
 *
 * Erasing, where asked for: the value of an item that is gone is overwritten with zeros at once,
 * under its bucket's lock, or, in a body, by who lets go of it last. The key stays until its
 * segment is cleaned, since cleaners read the keys of dead records; then all of that is zeros.
 *
 * Flushing: every write has a number, and a flush remembers which is the next; what has a lower one
 * is gone. A `set` right after flush_all therefore stays.
 *
 * Threads: every thread that uses the table has a struct fw_table_local of its own (a locality's
 * belongs to its turn). Everything below may be called from any such thread at any time.
 *
 * Why not one table per locality with keys sent to their owner: a request for keys of other
 * localities would cost two messages each; a bucket's lock that nobody else wants costs 5 ns.
 * Why not reads without locks: they would need counted or delayed freeing, which costs what the
 * lock costs, and would forbid to write in place.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "cache/item.h"

struct fw_table;
struct fw_table_local;
struct fw_bucket;
struct fw_slot;
struct fw_changes;
struct fw_large;

struct fw_table_config {
    uint64_t memory;  /* Bytes, for records, bodies, buckets and what they need to be managed. */
    bool is_evicting; /* Else a full table refuses (memcached's -M). */
    uint64_t seed;    /* Of the hash; drawn at random unless tests want the same twice. */
    bool erases;      /* What is no longer needed is overwritten with zeros. */
    struct fw_large *large; /* Where values in a file are kept; NULL: nowhere. Outlives it. */
};

/* Counted by each local; only its writer writes. Relaxed, as in base/metrics.h. */
struct fw_table_counts {
    _Atomic int64_t items;           /* Sum over locals; one alone may be negative. */
    _Atomic int64_t bytes;           /* Of records and bodies, as sums. */
    _Atomic uint64_t total_items;    /* Ever stored. */
    _Atomic uint64_t evictions;      /* Dropped for want of memory. */
    _Atomic uint64_t evicted_unread; /* Of these, never read. */
    _Atomic uint64_t expired_unread; /* Reclaimed by lazy expiry or sweep, never read. */
    _Atomic uint64_t reclaimed;      /* Expired or flushed, and removed. */
};

/* Returns 0 or a negative errno with the reason (no address space, limit too small). */
FW_MUST_CHECK int fw_table_create(struct fw_table **table, const struct fw_table_config *config,
                                  struct fw_reason *reason);
void fw_table_destroy(struct fw_table *table); /* All locals are gone. */

FW_MUST_CHECK int fw_table_local_create(struct fw_table_local **local, struct fw_table *table);
void fw_table_local_destroy(struct fw_table_local *local);

/* How often something was changed through it that replicas have to be told of, now or ever. */
uint64_t fw_table_local_noted(const struct fw_table_local *local);

/* The time, in seconds of the cache's clock; told to a local as often as its owner likes. */
void fw_table_local_set_now(struct fw_table_local *local, uint32_t now);
uint32_t fw_table_local_now(const struct fw_table_local *local);

/* Makes a key of bytes, which stay where they are. `length` is 1 to FW_ITEM_KEY_MAX. */
struct fw_key fw_table_key(const struct fw_table_local *local, const char *bytes, size_t length);

/*
 * For who knows keys ahead, as in a multiget. The first fetches the key's bucket into the cache,
 * the second, called a few keys later, its record, for which it looks at the bucket.
 */
void fw_table_prefetch(const struct fw_table_local *local, const struct fw_key *key);
void fw_table_prefetch_item(const struct fw_table_local *local, const struct fw_key *key);

/*
 * Makes sure that records of `size` bytes in all can be written in the next hold. Where the table
 * does not evict every record has FW_ITEM_EXPIRES, so that is counted in. False: there is no
 * memory, and nothing may be dropped (or everything that could be was).
 */
FW_MUST_CHECK bool fw_table_reserve(struct fw_table_local *local, size_t size);

/* Why a hold has no item. */
enum fw_absence { FW_ABSENT, FW_ABSENT_EXPIRED, FW_ABSENT_FLUSHED };

struct fw_hold {
    struct fw_item *item; /* Alive, or NULL. Lent until release, write, attach or remove. */
    enum fw_absence absence;
    struct fw_table_local *local;
    const struct fw_key *key;
    struct fw_bucket *bucket; /* Locked. */
    struct fw_slot *slot;     /* The item's in the bucket or its overflow; NULL: there is none. */
    struct fw_item *buried;   /* To be erased when all is done. */
};

void fw_table_hold(struct fw_table_local *local, struct fw_hold *hold, const struct fw_key *key);
void fw_hold_release(struct fw_hold *hold);

/*
 * The same for who may have to give the item `fields` that it lacks: it has them then, in a new
 * record if need be, for which memory is taken that was reserved before. After it `size` bytes are
 * reserved. False: there is no memory; an item that lacked fields may still lack them.
 */
FW_MUST_CHECK bool fw_table_hold_with(struct fw_table_local *local, struct fw_hold *hold,
                                      const struct fw_key *key, uint8_t fields, size_t size);

/*
 * The same for who will set when the item expires. It cannot fail: where there is no memory to note
 * when an item expires it is dropped, for it must not stay. A table that does not evict has room
 * for it in all its items.
 */
void fw_table_hold_to_expire(struct fw_table_local *local, struct fw_hold *hold,
                             const struct fw_key *key);

/*
 * hold->item becomes an item with a value of `value_length` (at most FW_ITEM_INLINE_MAX) for the
 * caller to fill, and with `fields`, for the caller to set: the old record if the length is right
 * and it has the fields, else a new one from what was reserved. A new item has a number of its own
 * and no bits but those of its age; an old one keeps what it has, but for its number, the time of
 * access and FETCHED. Fields that were not asked for are 0, or not there. The value is undefined
 * where it was not there before: if the length is the same it still has its old bytes, else the
 * old record, if there was one, can still be read until release (`old`, may be NULL).
 */
struct fw_item *fw_hold_write(struct fw_hold *hold, uint32_t value_length, uint8_t fields,
                              struct fw_item **old);

/* The same, with a body, whose reference is taken over. fw_item_size() was reserved. */
struct fw_item *fw_hold_attach(struct fw_hold *hold, struct fw_body *body, uint8_t fields);

/* The item, written in place by the caller, gets its next number, which is its CAS. */
void fw_hold_renumber(struct fw_hold *hold);

/* For who replicates: the caller has set when the item expires, or its bits, and no more. */
void fw_hold_note(struct fw_hold *hold);

/* Takes the item out. hold->item is NULL then. */
void fw_hold_remove(struct fw_hold *hold);

/* The same in a replica whose master has evicted it, from its main queue or from the other. */
void fw_hold_evict(struct fw_hold *hold, bool is_main);

/* Marks it as read: clears its age, sets FETCHED and `accessed`. Writes only what changes. */
void fw_hold_access(struct fw_hold *hold);

/* Shall what is no longer needed be overwritten? Also outside of the table. */
bool fw_table_erases(const struct fw_table_local *local);

/* The space of its large values, or NULL. */
struct fw_large *fw_table_large(const struct fw_table *table);

/* Could there be a body of that length, if all else were dropped? */
bool fw_body_fits(const struct fw_table_local *local, uint32_t length);

/* A body for a value under way, with one reference; NULL: no memory. */
struct fw_body *fw_body_create(struct fw_table_local *local, uint32_t length);
struct fw_body *fw_body_ref(struct fw_body *body);
void fw_body_unref(struct fw_table_local *local, struct fw_body *body);

/* All items of now are gone. */
void fw_table_flush(struct fw_table_local *local);

/*
 * For a replica, whose items have the numbers that their master gave them. Flushes what has a lower
 * number than this; says that numbers up to this one are taken, and all of them if it is beyond the
 * last; and which is the next.
 */
void fw_table_flush_below(struct fw_table_local *local, uint64_t number);
void fw_table_take_numbers(struct fw_table *table, uint64_t number);
uint64_t fw_table_number(struct fw_table *table);

/* Are the numbers used up? Then clients must not change anything: item.h. Any thread. */
bool fw_table_is_used_up(const struct fw_table *table);

/*
 * For a replica whose master says what has expired: nothing is taken out by this table's own clock.
 * It is not shown either, but to a local that was told to see it, for the master may change it.
 */
void fw_table_keep_expired(struct fw_table *table, bool keeps);

/*
 * For a replica whose master says what is evicted: nothing is dropped for want of memory. Cleaning
 * moves what is alive together, as close as need be; if that does not make room there is none. It
 * has the items that its master has, in other places, and with nothing to spare it would copy them
 * round and round: so it may take a sixteenth more than the limit, and eight segments, until it is
 * on its own.
 */
void fw_table_keep_items(struct fw_table *table, bool keeps);
void fw_table_local_see_expired(struct fw_table_local *local, bool sees);

/* A flush was put off, or is to come no more: for who replicates. */
void fw_table_note_later(struct fw_table_local *local);

/*
 * Empties `bucket_count` buckets, going on from `*cursor`; true: it has come round, and if nobody
 * has stored anything meanwhile there is no item, and none counts as flushed. For who begins anew.
 */
bool fw_table_clear(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count);

/* Where changes are written down for who replicates. */
struct fw_changes *fw_table_changes(struct fw_table *table);

/* memcached's cache_memlimit: may be lowered, then items are dropped by and by. -EINVAL: too small.
 */
FW_MUST_CHECK int fw_table_set_memory(struct fw_table *table, uint64_t memory);
uint64_t fw_table_memory(const struct fw_table *table); /* Any thread. */

/*
 * For who replicates how popular items are. How many buckets have had their items' ages raised,
 * ever, and how many there are. And raises them in so many, going on from `*cursor`; what has
 * expired is removed.
 */
uint64_t fw_table_aged(const struct fw_table *table);
uint64_t fw_table_buckets(const struct fw_table *table);
void fw_table_age(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count);

/*
 * Sweeps and cleans ahead: goes on from `*cursor` (0 at first), looks at `bucket_count` buckets at
 * the most, and returns true when it has come round. `raise_ages`: this round raises ages too.
 */
bool fw_table_sweep(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count,
                    bool raise_ages);

/*
 * Makes one huge page, 2 MiB, of memory that is in use; a get is a third cheaper there. True: there
 * may be more to do. Takes some milliseconds, for which others may wait: it is for the sweeper's
 * thread, now and then, and for no locality.
 */
bool fw_table_collapse(struct fw_table *table);

/*
 * Shows the items of some buckets to `visit`, each under its lock: lent until it returns. For key
 * dumps. Goes on from `*cursor`; true: it has come round. Items that are there all the time are
 * shown at least once, and no other guarantee is given while the table grows.
 */
bool fw_table_visit(struct fw_table_local *local, uint64_t *cursor, uint32_t bucket_count,
                    void (*visit)(struct fw_item *item, void *context), void *context);

/* Where the item stands in the order of a cursor: walks that want one item at a time go by it. */
uint64_t fw_table_cursor_of(const struct fw_table_local *local, const struct fw_item *item);

/* Sums over all locals, those that are gone too. Any thread. */
struct fw_table_totals {
    uint64_t items, bytes, total_items, evictions, evicted_unread, expired_unread, reclaimed;
    uint64_t memory_limit;
    uint64_t memory_used; /* Segments in use, bodies, buckets. */
    uint64_t buckets;
};
void fw_table_totals(struct fw_table *table, struct fw_table_totals *totals);
