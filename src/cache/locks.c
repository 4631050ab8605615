/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/locks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/mutex.h"

enum { LISTS = 1024 }; /* A power of two. */

struct fw_lock {
    struct fw_list_link key_link;    /* In by_key. */
    struct fw_list_link client_link; /* In by_client. */
    uint64_t hash;
    uint32_t client;
    uint8_t key_length;
    char key[];
};

struct fw_locks {
    struct fw_mutex mutex; /* FW_RANK_CACHE_LOCKS; guards all below. */
    uint32_t count;
    struct fw_list dead; /* Out of use, by key_link: to be freed outside of holds. */
    struct fw_list by_key[LISTS];
    struct fw_list by_client[LISTS];
};

int fw_locks_create(struct fw_locks **locks)
{
    struct fw_locks *made = malloc(sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    fw_mutex_init(&made->mutex, FW_RANK_CACHE_LOCKS);
    made->count = 0;
    fw_list_init(&made->dead);
    for (int i = 0; i < LISTS; i++) {
        fw_list_init(&made->by_key[i]);
        fw_list_init(&made->by_client[i]);
    }
    *locks = made;
    return 0;
}

static void locks_free(struct fw_list *list)
{
    struct fw_list_link *link;
    while ((link = fw_list_pop_front(list)) != NULL) {
        free(FW_LIST_ENTRY(link, struct fw_lock, key_link));
    }
}

void fw_locks_destroy(struct fw_locks *locks)
{
    if (locks == NULL) {
        return;
    }
    locks_free(&locks->dead);
    for (int i = 0; i < LISTS; i++) {
        locks_free(&locks->by_key[i]);
    }
    fw_mutex_fini(&locks->mutex);
    free(locks);
}

/* Not in a hold. */
static void locks_bury(struct fw_locks *locks)
{
    struct fw_list dead;
    fw_list_init(&dead);
    fw_mutex_lock(&locks->mutex);
    fw_list_append(&dead, &locks->dead);
    fw_mutex_unlock(&locks->mutex);
    locks_free(&dead);
}

struct fw_lock *fw_lock_create(struct fw_locks *locks, const struct fw_key *key)
{
    locks_bury(locks);
    struct fw_lock *lock = malloc(sizeof *lock + key->length);
    if (lock != NULL) {
        fw_list_link_init(&lock->key_link);
        fw_list_link_init(&lock->client_link);
        lock->hash = key->hash;
        lock->client = 0;
        lock->key_length = (uint8_t)key->length;
        memcpy(lock->key, key->bytes, key->length);
    }
    return lock;
}

void fw_lock_destroy(struct fw_lock *lock)
{
    free(lock);
}

static struct fw_list *list_of_key(struct fw_locks *locks, uint64_t hash)
{
    return &locks->by_key[hash % LISTS];
}

static struct fw_list *list_of_client(struct fw_locks *locks, uint32_t client)
{
    return &locks->by_client[client % LISTS];
}

static struct fw_lock *lock_find(struct fw_locks *locks, const struct fw_key *key)
    FW_REQUIRES(locks->mutex);
static void lock_unlink(struct fw_locks *locks, struct fw_lock *lock) FW_REQUIRES(locks->mutex);

/* The entry of that key, or NULL. */
static struct fw_lock *lock_find(struct fw_locks *locks, const struct fw_key *key)
{
    FW_LIST_FOR_EACH (list_of_key(locks, key->hash), struct fw_lock, key_link, lock) {
        if (lock->hash == key->hash && lock->key_length == key->length &&
            memcmp(lock->key, key->bytes, key->length) == 0) {
            return lock;
        }
    }
    return NULL;
}

static void lock_unlink(struct fw_locks *locks, struct fw_lock *lock)
{
    fw_list_remove(&lock->key_link);
    fw_list_remove(&lock->client_link);
    fw_list_push_back(&locks->dead, &lock->key_link);
    locks->count--;
}

enum fw_lock_answer fw_locks_acquire(struct fw_locks *locks, struct fw_hold *hold, uint32_t client,
                                     struct fw_lock **spare)
{
    FW_ASSERT(client != 0 && *spare != NULL);
    if (hold->item == NULL) {
        return FW_LOCK_NO_ITEM;
    }
    enum fw_lock_answer answer = FW_LOCK_TAKEN;
    fw_mutex_lock(&locks->mutex);
    struct fw_lock *lock = lock_find(locks, hold->key);
    bool is_locked = (hold->item->bits & FW_ITEM_LOCKED) != 0;
    FW_ASSERT(!is_locked || lock != NULL);
    if (is_locked) {
        answer = lock->client == client ? FW_LOCK_TAKEN : FW_LOCK_OF_ANOTHER;
    } else if (lock == NULL && locks->count == FW_LOCKS_MAX) {
        answer = FW_LOCK_TOO_MANY;
    } else {
        if (lock == NULL) {
            lock = *spare;
            *spare = NULL;
            fw_list_push_back(list_of_key(locks, lock->hash), &lock->key_link);
            locks->count++;
        } else { /* Of an item that is no more. */
            fw_list_remove(&lock->client_link);
        }
        lock->client = client;
        fw_list_push_back(list_of_client(locks, client), &lock->client_link);
        hold->item->bits |= FW_ITEM_LOCKED;
    }
    fw_mutex_unlock(&locks->mutex);
    return answer;
}

/* Ends the lock that `client` has on the key that is held, also if its item is gone. */
static bool lock_drop(struct fw_locks *locks, struct fw_hold *hold, uint32_t client)
{
    fw_mutex_lock(&locks->mutex);
    struct fw_lock *lock = lock_find(locks, hold->key);
    bool is_owner = lock != NULL && lock->client == client;
    if (is_owner) {
        lock_unlink(locks, lock);
    }
    fw_mutex_unlock(&locks->mutex);
    if (is_owner && hold->item != NULL) {
        hold->item->bits &= (uint8_t)~FW_ITEM_LOCKED;
    }
    return is_owner;
}

bool fw_locks_release(struct fw_locks *locks, struct fw_hold *hold, uint32_t client)
{
    return hold->item != NULL && (hold->item->bits & FW_ITEM_LOCKED) != 0 &&
           lock_drop(locks, hold, client);
}

bool fw_locks_is_owner(struct fw_locks *locks, const struct fw_hold *hold, uint32_t client)
{
    FW_ASSERT(hold->item != NULL);
    if ((hold->item->bits & FW_ITEM_LOCKED) == 0) {
        return false;
    }
    fw_mutex_lock(&locks->mutex);
    const struct fw_lock *lock = lock_find(locks, hold->key);
    FW_ASSERT(lock != NULL);
    bool is_owner = lock->client == client;
    fw_mutex_unlock(&locks->mutex);
    return is_owner;
}

/*
 * The key of some lock of the client, copied, since the entry may change hands once the mutex is
 * free; 0: it has none.
 */
static size_t client_key(struct fw_locks *locks, uint32_t client, char key[FW_ITEM_KEY_MAX])
{
    size_t length = 0;
    fw_mutex_lock(&locks->mutex);
    FW_LIST_FOR_EACH (list_of_client(locks, client), struct fw_lock, client_link, lock) {
        if (lock->client == client) {
            length = lock->key_length;
            memcpy(key, lock->key, length);
            break;
        }
    }
    fw_mutex_unlock(&locks->mutex);
    return length;
}

void fw_locks_release_all(struct fw_locks *locks, struct fw_table_local *table, uint32_t client)
{
    char bytes[FW_ITEM_KEY_MAX];
    size_t length;
    /* Only the client itself adds to its locks, and it is here: each round leaves one less. */
    while ((length = client_key(locks, client, bytes)) != 0) {
        struct fw_key key = fw_table_key(table, bytes, length);
        struct fw_hold hold;
        fw_table_hold(table, &hold, &key);
        (void)lock_drop(locks, &hold, client);
        fw_hold_release(&hold);
    }
    locks_bury(locks);
}
