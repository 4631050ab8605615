/* SPDX-License-Identifier: Apache-2.0 */
/* yrmcds' extensions of the binary protocol: locks on items, and a list of the keys. */
#include "base/assert.h"
#include "cache/binary.h"
#include "cache/locks.h"

/* Locks the item, and answers it unless the client only wants the lock. */
enum fw_parsed fw_binary_lock(struct fw_binary *request)
{
    struct fw_cache_local *local = request->local;
    struct fw_key key = fw_table_key(local->table, request->key, request->key_length);
    struct fw_lock *spare = fw_lock_create(local->cache->locks, &key);
    if (spare == NULL) {
        return fw_binary_fail(request, FW_BINARY_NO_MEMORY);
    }
    static const enum fw_binary_status statuses[] = {
        [FW_LOCK_TAKEN] = FW_BINARY_OK,
        [FW_LOCK_OF_ANOTHER] = FW_BINARY_LOCKED,
        [FW_LOCK_TOO_MANY] = FW_BINARY_NO_MEMORY,
        [FW_LOCK_NO_ITEM] = FW_BINARY_NOT_FOUND,
    };
    struct fw_hold hold;
    struct fw_finds finds = {0};
    fw_operation_note_get(local, &key);
    if (request->extras_length > 0) {
        fw_table_hold_to_expire(local->table, &hold, &key);
    } else {
        fw_table_hold(local->table, &hold, &key);
    }
    fw_operation_found(local, &hold, &finds);
    fw_operation_finds_end(local, &finds);
    enum fw_binary_status status =
        statuses[fw_locks_acquire(local->cache->locks, &hold, request->session->client, &spare)];
    if (status == FW_BINARY_OK) {
        request->session->has_locks = true;
        if (request->extras_length > 0) {
            uint32_t expires = fw_cache_expiry(local, fw_be32_get(request->extras));
            fw_item_set_expires(hold.item, expires);
            fw_hold_note(&hold);
        }
        if ((request->variant & FW_BINARY_NO_VALUE) == 0) {
            fw_binary_answer_item(request, hold.item);
        }
    }
    fw_hold_release(&hold);
    fw_lock_destroy(spare);
    if (status != FW_BINARY_OK) {
        return fw_binary_fail(request, status);
    }
    return (request->variant & FW_BINARY_NO_VALUE) != 0 ? fw_binary_succeed(request, 0) : FW_PARSED;
}

enum fw_parsed fw_binary_unlock(struct fw_binary *request)
{
    struct fw_cache_local *local = request->local;
    struct fw_key key = fw_table_key(local->table, request->key, request->key_length);
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    bool is_there = hold.item != NULL;
    bool was_owner = fw_locks_release(local->cache->locks, &hold, request->session->client);
    fw_hold_release(&hold);
    return was_owner
               ? fw_binary_succeed(request, 0)
               : fw_binary_fail(request, is_there ? FW_BINARY_NOT_LOCKED : FW_BINARY_NOT_FOUND);
}

enum fw_parsed fw_binary_unlock_all(struct fw_binary *request)
{
    fw_session_unlock_all(request->session, request->local);
    return fw_binary_succeed(request, 0);
}

/*
 * Several holds and still atomic: once it is seen that the client has the lock, nobody else can
 * change the item before it is given back.
 */
enum fw_parsed fw_binary_store_and_unlock(const struct fw_binary *request, const struct fw_key *key,
                                          struct fw_store *store)
{
    struct fw_cache_local *local = request->local;
    struct fw_locks *locks = local->cache->locks;
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, key);
    bool is_there = hold.item != NULL;
    bool is_owner = is_there && fw_locks_is_owner(locks, &hold, store->client);
    fw_hold_release(&hold);
    if (!is_owner) {
        if (store->body != NULL) {
            fw_body_unref(local->table, store->body);
            store->body = NULL;
        }
        return fw_binary_fail(request, is_there ? FW_BINARY_NOT_LOCKED : FW_BINARY_NOT_FOUND);
    }
    enum fw_outcome outcome = fw_operation_store(local, key, store);
    if (outcome == FW_DONE) {
        fw_table_hold(local->table, &hold, key);
        (void)fw_locks_release(locks, &hold, store->client);
        fw_hold_release(&hold);
    }
    return fw_binary_answer_store(request, outcome, store);
}

/* A list of keys under way. */
struct keys {
    uint8_t opcode;
    uint32_t opaque;
    uint16_t prefix_length;
    char prefix[FW_ITEM_KEY_MAX];
};

/* What a visit writes to. */
struct keys_visit {
    struct fw_reply *reply;
    const struct keys *keys;
    bool is_full;
};

static void keys_add(struct fw_reply *reply, const struct keys *keys, const char *key,
                     uint8_t length)
{
    const struct fw_binary request = {.opcode = keys->opcode, .opaque = keys->opaque};
    const struct fw_binary_answer answer = {.key_length = length};
    fw_reply_advance(reply, fw_binary_header(reply->next, &request, &answer));
    fw_reply_add(reply, key, length);
}

static void keys_visit(struct fw_item *item, void *context)
{
    struct keys_visit *visit = context;
    const struct keys *keys = visit->keys;
    if (item->key_length < keys->prefix_length ||
        memcmp(item->key, keys->prefix, keys->prefix_length) != 0) {
        return;
    }
    if (fw_reply_room(visit->reply, FW_BINARY_HEADER + FW_ITEM_KEY_MAX) == NULL) {
        visit->is_full = true;
        return;
    }
    keys_add(visit->reply, keys, item->key, item->key_length);
}

/*
 * Bucket by bucket. One whose keys do not all fit is begun again with an empty reply, which has
 * room for more than two hundred of the longest keys; what goes beyond that in one bucket is left
 * out, since nothing says where in a bucket a list stood.
 */
static enum fw_parsed keys_step(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_listing *listing)
{
    (void)session;
    enum { BUCKETS_MAX = 4096 }; /* Per step, so that a sparse table does not take a whole turn. */
    struct keys keys;
    memcpy(&keys, listing->state, sizeof keys);
    struct keys_visit visit = {.reply = &local->reply, .keys = &keys};
    for (int i = 0; i < BUCKETS_MAX; i++) {
        struct fw_reply_mark mark = fw_reply_mark(&local->reply);
        bool was_empty = fw_reply_is_empty(&local->reply);
        uint64_t cursor = listing->cursor;
        bool is_round = fw_table_visit(local->table, &cursor, 1, keys_visit, &visit);
        if (visit.is_full && !was_empty) {
            fw_reply_rewind(&local->reply, mark);
            return FW_PARSED_OUTPUT;
        }
        visit.is_full = false;
        listing->cursor = cursor;
        if (is_round) {
            keys_add(&local->reply, &keys, "", 0);
            return FW_PARSED;
        }
    }
    return FW_PARSED_OUTPUT;
}

enum fw_parsed fw_binary_keys(struct fw_binary *request)
{
    if (!request->local->cache->settings.has_dump) {
        return fw_binary_fail(request, FW_BINARY_LOGIN_FAILED);
    }
    struct fw_listing *listing = fw_listing_create(request->session, sizeof(struct keys));
    if (listing == NULL) {
        return fw_binary_fail(request, FW_BINARY_NO_MEMORY);
    }
    struct keys keys = {
        .opcode = request->opcode, .opaque = request->opaque, .prefix_length = request->key_length};
    memcpy(keys.prefix, request->key, request->key_length);
    memcpy(listing->state, &keys, sizeof keys);
    listing->step = keys_step;
    return FW_PARSED;
}
