/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that clients put on items: an extension of yrmcds, off unless asked for.
 *
 * A client locks an item that exists; from then on only that client can change or remove it, while
 * everybody can still read it. The lock belongs to the client's connection and ends with it, so a
 * client that dies leaves nothing locked behind. The item itself says that it is locked
 * (FW_ITEM_LOCKED); by whom is kept here, under the key, so that items of those who do not use
 * locks do not pay for them.
 *
 * The item's bit is the truth: it is set only while an entry here names the client, and both
 * change in one hold of the key's bucket. An entry may outlive its item (it was flushed); then it
 * means nothing, until it is taken over by the next who locks that key, or its client goes.
 *
 *     unlocked ── acquire ──► bit set, entry of the client ── release, release_all ──► unlocked
 *                                   └── acquire by another: refused
 *
 * Limits: FW_LOCKS_MAX entries in all, since a client must not fill the memory with them.
 *
 * Threads: any that has a hold on the key. One mutex of rank FW_RANK_CACHE_LOCKS, a leaf, taken
 * inside holds. One is enough: only commands that lock, and writes to items that are locked, come
 * here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/table.h"

enum { FW_LOCKS_MAX = 65536 };

struct fw_locks;
struct fw_lock; /* One entry. */

FW_MUST_CHECK int fw_locks_create(struct fw_locks **locks);
void fw_locks_destroy(struct fw_locks *locks);

/*
 * An entry for acquire(), made before the hold, in which nothing may be allocated or freed. NULL:
 * there is no memory. What acquire() left is freed by the caller, behind the hold.
 */
struct fw_lock *fw_lock_create(struct fw_locks *locks, const struct fw_key *key);
void fw_lock_destroy(struct fw_lock *lock);

enum fw_lock_answer { FW_LOCK_TAKEN, FW_LOCK_OF_ANOTHER, FW_LOCK_TOO_MANY, FW_LOCK_NO_ITEM };

/*
 * Locks hold->item, if it is there, for `client`. Takes `*spare` (and sets it to NULL) if it needs
 * an entry. Locking what one has locked already succeeds.
 */
enum fw_lock_answer fw_locks_acquire(struct fw_locks *locks, struct fw_hold *hold, uint32_t client,
                                     struct fw_lock **spare);

/* True: hold->item was there, locked by `client`, and is not any more. */
bool fw_locks_release(struct fw_locks *locks, struct fw_hold *hold, uint32_t client);

/* Is hold->item, which is there, locked by `client`? */
bool fw_locks_is_owner(struct fw_locks *locks, const struct fw_hold *hold, uint32_t client);

/* May `client` not change what is held? Nothing but a bit is looked at where nothing is locked. */
static inline bool fw_locks_refuse(struct fw_locks *locks, const struct fw_hold *hold,
                                   uint32_t client)
{
    return hold->item != NULL && FW_UNLIKELY((hold->item->bits & FW_ITEM_LOCKED) != 0) &&
           !fw_locks_is_owner(locks, hold, client);
}

/* Ends all locks of a client. Not in a hold. */
void fw_locks_release_all(struct fw_locks *locks, struct fw_table_local *table, uint32_t client);
