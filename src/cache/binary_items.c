/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about one item: get, set and their kin, delete, increment. */
#include "cache/binary.h"

enum { FLAGS_LENGTH = 4 };

void fw_binary_answer_item(const struct fw_binary *request, struct fw_item *item)
{
    struct fw_reply *reply = &request->local->reply;
    bool has_key = (request->variant & FW_BINARY_WITH_KEY) != 0;
    bool has_value = (request->variant & FW_BINARY_NO_VALUE) == 0;
    const struct fw_binary_answer answer = {
        .extras_length = FLAGS_LENGTH,
        .key_length = has_key ? item->key_length : 0,
        .value_length = has_value ? fw_item_length(item) : 0,
        .cas = fw_operation_cas(request->local, item),
    };
    char *to = fw_binary_header(reply->next, request, &answer);
    to = fw_binary_put_u32(to, fw_item_flags(item));
    if (has_key) {
        memcpy(to, item->key, item->key_length);
        to += item->key_length;
    }
    if (has_value) {
        to = fw_reply_put_value(reply, to, item);
    }
    fw_reply_advance(reply, to);
}

/* A miss of a get that wants the key has the key in place of the text. */
static enum fw_parsed miss_answer(const struct fw_binary *request)
{
    if (request->is_quiet) {
        return FW_PARSED;
    }
    if ((request->variant & FW_BINARY_WITH_KEY) == 0) {
        return fw_binary_fail(request, FW_BINARY_NOT_FOUND);
    }
    struct fw_reply *reply = &request->local->reply;
    const struct fw_binary_answer answer = {.status = FW_BINARY_NOT_FOUND,
                                            .key_length = request->key_length};
    fw_reply_advance(reply, fw_binary_header(reply->next, request, &answer));
    fw_reply_add(reply, request->key, request->key_length);
    return FW_PARSED;
}

enum fw_parsed fw_binary_get(struct fw_binary *request)
{
    struct fw_cache_local *local = request->local;
    struct fw_key key = fw_table_key(local->table, request->key, request->key_length);
    struct fw_hold hold;
    if ((request->variant & FW_BINARY_TOUCH) != 0) {
        uint32_t expires = fw_cache_expiry(local, fw_be32_get(request->extras));
        fw_operation_touch(local, &hold, &key, expires);
    } else {
        fw_operation_find(local, &hold, &key);
    }
    bool is_hit = hold.item != NULL;
    if (is_hit) {
        fw_binary_answer_item(request, hold.item);
    }
    fw_hold_release(&hold);
    return is_hit ? FW_PARSED : miss_answer(request);
}

static enum fw_binary_status store_status(enum fw_outcome outcome, enum fw_store_mode mode)
{
    switch (outcome) {
    case FW_DONE:
        return FW_BINARY_OK;
    case FW_EXISTS:
        return FW_BINARY_EXISTS;
    case FW_NOT_FOUND:
        return FW_BINARY_NOT_FOUND;
    case FW_TOO_LARGE:
        return FW_BINARY_TOO_LARGE;
    case FW_NO_MEMORY:
    case FW_IS_LARGE:
    case FW_NO_SPACE:
    case FW_DISK_FAILED:
        return FW_BINARY_NO_MEMORY;
    case FW_NOT_A_NUMBER:
        return FW_BINARY_NOT_A_NUMBER;
    case FW_IS_LOCKED:
        return FW_BINARY_LOCKED;
    case FW_NOT_STORED:
        break;
    }
    switch (mode) {
    case FW_STORE_ADD:
        return FW_BINARY_EXISTS;
    case FW_STORE_REPLACE:
        return FW_BINARY_NOT_FOUND;
    case FW_STORE_SET:
    case FW_STORE_APPEND:
    case FW_STORE_PREPEND:
    case FW_STORE_CAS:
        break;
    }
    return FW_BINARY_NOT_STORED;
}

enum fw_parsed fw_binary_answer_store(const struct fw_binary *request, enum fw_outcome outcome,
                                      const struct fw_store *store)
{
    if (FW_LIKELY(outcome == FW_DONE)) {
        return fw_binary_succeed(request, store->cas_is);
    }
    if (outcome == FW_NO_MEMORY) {
        return fw_binary_answer_text(request, FW_BINARY_NO_MEMORY, "Out of memory allocating item");
    }
    if (outcome == FW_IS_LARGE || outcome == FW_NO_SPACE || outcome == FW_DISK_FAILED) {
        static const char prefix[] = "SERVER_ERROR ";
        return fw_binary_answer_text(request, FW_BINARY_NO_MEMORY,
                                     fw_operation_error(outcome) + sizeof prefix - 1);
    }
    return fw_binary_fail(request, store_status(outcome, store->mode));
}

/* What the request asks for, but for the value. Any store with a CAS is a compare-and-swap. */
static struct fw_store store_of(const struct fw_binary *request)
{
    struct fw_store store = {
        .mode = (enum fw_store_mode)(request->variant & FW_BINARY_MODE),
        .compares = request->cas != 0,
        .cas = request->cas,
        .client = request->session->client,
    };
    if (request->extras_length > 0) {
        store.flags = fw_be32_get(request->extras);
        store.expires = fw_cache_expiry(request->local, fw_be32_get(request->extras + 4));
        store.mode = store.compares ? FW_STORE_CAS : store.mode;
    }
    return store;
}

/* Stores, when the value is there, and answers. */
static enum fw_parsed store_run(const struct fw_binary *request, const struct fw_key *key,
                                struct fw_store *store)
{
    if ((request->variant & FW_BINARY_UNLOCK) != 0) {
        return fw_binary_store_and_unlock(request, key, store);
    }
    return fw_binary_answer_store(request, fw_operation_store(request->local, key, store), store);
}

/* Of a pending value: all of it has come. */
static enum fw_parsed store_complete(struct fw_session *session, struct fw_cache_local *local,
                                     struct fw_input *input)
{
    struct fw_pending *pending = session->pending;
    if (fw_reply_room(&local->reply, FW_REPLY_ROOM_MIN) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    struct fw_binary request = {.session = session, .local = local, .input = input};
    fw_binary_resume(&request, pending);
    struct fw_key key = fw_table_key(local->table, pending->key, pending->key_length);
    return store_run(&request, &key, &pending->store);
}

/* A value that does not fit into the input buffer goes to a body, as it comes. */
static enum fw_parsed store_begin(struct fw_binary *request, const struct fw_key *key,
                                  const struct fw_store *store)
{
    enum fw_outcome outcome = FW_TOO_LARGE;
    if (fw_operation_fits(request->local->cache, key->length, store->flags,
                          request->value_length)) {
        struct fw_pending *pending = fw_pending_create(request->session, request->local,
                                                       request->value_length, "", 0, &outcome);
        if (pending != NULL) {
            pending->complete = store_complete;
            pending->store = *store;
            pending->opaque = request->opaque;
            pending->opcode = request->opcode;
            pending->key_length = (uint8_t)key->length;
            memcpy(pending->key, key->bytes, key->length);
            return FW_PARSED;
        }
    }
    /* A compare-and-swap is a set to memcached here: the old item goes. */
    enum fw_store_mode mode = (enum fw_store_mode)(request->variant & FW_BINARY_MODE);
    (void)fw_operation_refuse(request->local, key, mode, outcome);
    fw_session_swallow(request->session, request->value_length);
    return fw_binary_answer_store(request, outcome, store);
}

enum fw_parsed fw_binary_store(struct fw_binary *request)
{
    struct fw_key key;
    if (FW_LIKELY(request->value_length <= FW_ITEM_INLINE_MAX)) {
        if (!fw_binary_has_value(request)) {
            return FW_PARSED_INPUT;
        }
        key = fw_table_key(request->local->table, request->key, request->key_length);
        struct fw_store store = store_of(request);
        store.bytes = request->value;
        store.length = request->value_length;
        request->value += request->value_length;
        return store_run(request, &key, &store);
    }
    key = fw_table_key(request->local->table, request->key, request->key_length);
    const struct fw_store store = store_of(request);
    return store_begin(request, &key, &store);
}

enum fw_parsed fw_binary_delete(struct fw_binary *request)
{
    struct fw_key key = fw_table_key(request->local->table, request->key, request->key_length);
    enum fw_outcome outcome =
        fw_operation_remove(request->local, &key, request->cas, request->session->client);
    if (outcome == FW_DONE) {
        return fw_binary_succeed(request, 0);
    }
    return fw_binary_fail(request, store_status(outcome, FW_STORE_SET));
}

/* Extras: by how much, the value if there is none, and when that expires; all ones: never make it.
 */
enum fw_parsed fw_binary_count(struct fw_binary *request)
{
    uint32_t expires = fw_be32_get(request->extras + 16);
    struct fw_count count = {
        .delta = fw_be64_get(request->extras),
        .is_down = request->variant == FW_BINARY_DOWN,
        .may_create = expires != UINT32_MAX,
        .initial = fw_be64_get(request->extras + 8),
        .expires = fw_cache_expiry(request->local, expires),
        .cas = request->cas,
        .client = request->session->client,
    };
    struct fw_key key = fw_table_key(request->local->table, request->key, request->key_length);
    enum fw_outcome outcome = fw_operation_count(request->local, &key, &count);
    if (outcome == FW_NO_MEMORY) {
        return fw_binary_answer_text(request, FW_BINARY_NO_MEMORY,
                                     "Out of memory incrementing value");
    }
    if (outcome != FW_DONE) {
        return fw_binary_fail(request, store_status(outcome, FW_STORE_SET));
    }
    if (!request->is_quiet) {
        struct fw_reply *reply = &request->local->reply;
        const struct fw_binary_answer answer = {.value_length = sizeof count.value,
                                                .cas = count.cas_is};
        char *to = fw_binary_header(reply->next, request, &answer);
        fw_reply_advance(reply, fw_binary_put_u64(to, count.value));
    }
    return FW_PARSED;
}
