/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/stream.h"

#include <string.h>

#include "base/assert.h"
#include "base/endian.h"
#include "cache/binary.h"
#include "io/clock.h"
#include "repl/secret.h"

enum {
    RELATIVE_MAX_S = 60 * 60 * 24 * 30,
    SET_EXTRAS = 8,
    SET_EXTRAS_NUMBER = 16,
    HELLO_EXTRAS = 20,
    MARK_EXTRAS = 8,
    MARK_EXTRAS_ECHO = 16,
    ABOUT_SIZE = 64,
    STATUS_OUT_OF_MEMORY = 0x82,
    KNOWS_SHIFT = 8,
};

static_assert((int)FW_REPL_HEADER == (int)FW_BINARY_HEADER, "it is that protocol's");
static_assert((int)FW_REPL_MESSAGE_MAX <= (int)FW_REPLY_ROOM_MIN, "there is room for any item");

/* ---- encoding ------------------------------------------------------------------------------ */

/* What a header says beside the lengths. */
struct head {
    uint8_t magic;
    uint8_t opcode;
    uint8_t extras_length;
    uint32_t opaque;
    uint64_t cas;
};

static char *put_header(char *to, const struct head *head, size_t key_length, size_t value_length)
{
    memset(to, 0, FW_REPL_HEADER);
    to[0] = (char)head->magic;
    to[1] = (char)head->opcode;
    fw_be16_put(to + 2, (uint16_t)key_length);
    to[4] = (char)head->extras_length;
    fw_be32_put(to + 8, (uint32_t)(head->extras_length + key_length + value_length));
    fw_be32_put(to + 12, head->opaque);
    fw_be64_put(to + 16, head->cas);
    return to + FW_REPL_HEADER;
}

static char *put_bytes(char *to, const char *bytes, size_t length)
{
    memcpy(to, bytes, length);
    return to + length;
}

/* As a client would say it. The item is alive, so it expires later than now, or never. */
static uint32_t expiry_say(const struct fw_cache_local *local, const struct fw_item *item,
                           enum fw_repl_form form)
{
    uint32_t expires = fw_item_expires(item);
    if (expires == 0) {
        return 0;
    }
    if (expires <= local->now && form != FW_REPL_DATED) {
        return 1; /* A client has locked it, and so it has not expired yet. */
    }
    uint32_t left = expires > local->now ? expires - local->now : 0;
    if (left <= RELATIVE_MAX_S && form != FW_REPL_DATED) {
        return left;
    }
    int64_t date = local->cache->start_wall_s + expires - FW_CACHE_CLOCK_START;
    return date < UINT32_MAX ? (uint32_t)date : UINT32_MAX;
}

void fw_repl_put_item(struct fw_reply *reply, const struct fw_cache_local *local,
                      struct fw_item *item, enum fw_repl_form form)
{
    bool is_ours = form != FW_REPL_PLAIN;
    uint64_t cas = fw_item_cas(item);
    bool has_number = is_ours && cas != fw_item_number(item);
    const struct head head = {
        .magic = FW_BINARY_REQUEST,
        .opcode = FW_REPL_SETQ,
        .extras_length = has_number ? SET_EXTRAS_NUMBER : SET_EXTRAS,
        .opaque = is_ours ? (item->bits & (FW_REPL_BITS | (unsigned)FW_REPL_AGE_BITS)) |
                                (unsigned)FW_REPL_AGED
                          : 0,
        .cas = is_ours ? cas : 0,
    };
    char *to = put_header(reply->next, &head, item->key_length, fw_item_length(item));
    fw_be32_put(to, fw_item_flags(item));
    fw_be32_put(to + 4, expiry_say(local, item, form));
    if (has_number) {
        fw_be64_put(to + SET_EXTRAS, fw_item_number(item));
    }
    to = put_bytes(to + head.extras_length, item->key, item->key_length);
    fw_reply_advance(reply, fw_reply_put_value(reply, to, item));
}

void fw_repl_put_touch(struct fw_reply *reply, const struct fw_cache_local *local,
                       const struct fw_item *item, enum fw_repl_form form)
{
    bool is_ours = form != FW_REPL_PLAIN;
    const struct head head = {.magic = FW_BINARY_REQUEST,
                              .opcode = FW_REPL_TOUCH,
                              .extras_length = sizeof(uint32_t),
                              .opaque = is_ours ? item->bits & (unsigned)FW_REPL_BITS : 0};
    char *to = put_header(reply->next, &head, item->key_length, 0);
    fw_be32_put(to, expiry_say(local, item, form));
    fw_reply_advance(reply, put_bytes(to + sizeof(uint32_t), item->key, item->key_length));
}

void fw_repl_put_delete(struct fw_reply *reply, const char *key, size_t key_length)
{
    const struct head head = {.magic = FW_BINARY_REQUEST, .opcode = FW_REPL_DELETEQ};
    char *to = put_header(reply->next, &head, key_length, 0);
    fw_reply_advance(reply, put_bytes(to, key, key_length));
}

void fw_repl_put_flush(struct fw_reply *reply, uint64_t number)
{
    const struct head head = {.magic = FW_BINARY_REQUEST, .opcode = FW_REPL_FLUSHQ, .cas = number};
    fw_reply_advance(reply, put_header(reply->next, &head, 0, 0));
}

void fw_repl_put_later(struct fw_reply *reply, const struct fw_cache_local *local)
{
    const struct head head = {
        .magic = FW_BINARY_REQUEST, .opcode = FW_REPL_LATER, .extras_length = sizeof(uint32_t)};
    /* Relaxed: if it changes now that stands in the log. */
    uint32_t at = atomic_load_explicit(&local->cache->flush_at, memory_order_relaxed);
    char *to = put_header(reply->next, &head, 0, 0);
    fw_be32_put(to, at == 0 ? 0 : at > local->now ? at - local->now : 1);
    fw_reply_advance(reply, to + sizeof(uint32_t));
}

void fw_repl_put_mark(struct fw_reply *reply, const struct fw_repl_mark *mark)
{
    const struct head head = {.magic = FW_BINARY_REQUEST,
                              .opcode = FW_REPL_NOOP,
                              .extras_length = mark->has_echo ? MARK_EXTRAS_ECHO : MARK_EXTRAS,
                              .opaque = mark->opaque,
                              .cas = mark->position};
    char *to = put_header(reply->next, &head, 0, 0);
    fw_be64_put(to, mark->number);
    if (mark->has_echo) {
        fw_be64_put(to + MARK_EXTRAS, mark->echo);
    }
    fw_reply_advance(reply, to + head.extras_length);
}

size_t fw_repl_put_mark_answer(char to[static FW_REPL_HEADER], uint32_t opaque, bool is_whole,
                               uint64_t time)
{
    const struct head head = {
        .magic = FW_BINARY_REPLY, .opcode = FW_REPL_NOOP, .opaque = opaque, .cas = time};
    size_t size = (size_t)(put_header(to, &head, 0, 0) - to);
    fw_be16_put(to + 6, is_whole ? 0 : STATUS_OUT_OF_MEMORY);
    return size;
}

void fw_repl_put_evicted(struct fw_reply *reply, const char *changes, size_t length)
{
    const struct head head = {.magic = FW_BINARY_REQUEST, .opcode = FW_REPL_EVICTED};
    char *to = put_header(reply->next, &head, 0, length);
    fw_reply_advance(reply, put_bytes(to, changes, length));
}

void fw_repl_put_read(struct fw_reply *reply, uint32_t share, const char *keys, size_t length)
{
    const struct head head = {
        .magic = FW_BINARY_REQUEST, .opcode = FW_REPL_READ, .extras_length = sizeof share};
    char *to = put_header(reply->next, &head, 0, length);
    fw_be32_put(to, share);
    fw_reply_advance(reply, put_bytes(to + sizeof share, keys, length));
}

void fw_repl_put_about(struct fw_reply *reply, const struct fw_repl_about *about)
{
    const struct head head = {.magic = FW_BINARY_REQUEST, .opcode = FW_REPL_ABOUT};
    char *to = put_header(reply->next, &head, 0, ABOUT_SIZE);
    fw_be64_put(to, about->memory);
    fw_be64_put(to + 8, about->items);
    fw_be64_put(to + 16, about->origin);
    fw_be64_put(to + 24, about->parent_history);
    fw_be64_put(to + 32, about->parent_position);
    fw_be64_put(to + 40, about->number);
    fw_be64_put(to + 48, about->server);
    fw_be64_put(to + 56, about->date_ns);
    fw_reply_advance(reply, to + ABOUT_SIZE);
}

struct fw_repl_about fw_repl_about_read(const struct fw_repl_message *message)
{
    FW_ASSERT(message->opcode == FW_REPL_ABOUT && message->value_length >= ABOUT_SIZE);
    return (struct fw_repl_about){
        .memory = fw_be64_get(message->value),
        .items = fw_be64_get(message->value + 8),
        .origin = fw_be64_get(message->value + 16),
        .parent_history = fw_be64_get(message->value + 24),
        .parent_position = fw_be64_get(message->value + 32),
        .number = fw_be64_get(message->value + 40),
        .server = fw_be64_get(message->value + 48),
        .date_ns = fw_be64_get(message->value + 56),
    };
}

int64_t fw_repl_clock_ahead(int64_t date_ns, int64_t asked_ns, int64_t heard_ns)
{
    int64_t ahead_ns = 0;
    if (date_ns < asked_ns - FW_NS_PER_S) {
        ahead_ns = date_ns - asked_ns;
    } else if (date_ns > heard_ns + FW_NS_PER_S) {
        ahead_ns = date_ns - heard_ns;
    }
    return ahead_ns / FW_NS_PER_S;
}

void fw_repl_correct(struct fw_repl_message *message, int64_t ahead_s)
{
    bool has_date = message->opcode == FW_REPL_SETQ || message->opcode == FW_REPL_SET ||
                    message->opcode == FW_REPL_TOUCH;
    if (has_date && message->expires > RELATIVE_MAX_S) {
        int64_t date = (int64_t)message->expires - ahead_s;
        /* It stays a date, whatever the master says. */
        message->expires = date <= RELATIVE_MAX_S ? RELATIVE_MAX_S + 1
                           : date < UINT32_MAX    ? (uint32_t)date
                                                  : UINT32_MAX;
    }
}

size_t fw_repl_put_heartbeat(char to[static FW_REPL_HEADER])
{
    const struct head head = {.magic = FW_BINARY_REQUEST, .opcode = FW_REPL_NOOP};
    return (size_t)(put_header(to, &head, 0, 0) - to);
}

size_t fw_repl_put_proof(char to[static FW_REPL_HEADER + FW_REPL_PROOF_MAX],
                         enum fw_repl_opcode opcode, bool is_answer, const char *value,
                         size_t length)
{
    FW_ASSERT(length <= FW_REPL_PROOF_MAX);
    const struct head head = {.magic = is_answer ? FW_BINARY_REPLY : FW_BINARY_REQUEST,
                              .opcode = (uint8_t)opcode};
    return (size_t)(put_bytes(put_header(to, &head, 0, length), value, length) - to);
}

static char *put_greeting(char *to, uint8_t magic, const struct fw_repl_greeting *greeting)
{
    const struct head head = {
        .magic = magic, .opcode = FW_REPL_HELLO, .extras_length = HELLO_EXTRAS};
    to = put_header(to, &head, 0, 0);
    fw_be16_put(to, FW_REPL_VERSION);
    fw_be16_put(to + 2, (uint16_t)(greeting->knows << KNOWS_SHIFT | greeting->start));
    fw_be64_put(to + 4, greeting->history);
    fw_be64_put(to + 12, greeting->position);
    return to + HELLO_EXTRAS;
}

size_t fw_repl_put_hello(char to[static FW_REPL_HEADER + FW_REPL_EXTRAS_MAX],
                         const struct fw_repl_greeting *greeting)
{
    return (size_t)(put_greeting(to, FW_BINARY_REQUEST, greeting) - to);
}

void fw_repl_put_hello_answer(struct fw_reply *reply, const struct fw_repl_greeting *greeting)
{
    fw_reply_advance(reply, put_greeting(reply->next, FW_BINARY_REPLY, greeting));
}

/* ---- decoding ------------------------------------------------------------------------------ */

/* Lengths that a message of this kind may have. */
static bool shape_is_right(const struct fw_repl_message *message, uint32_t extras)
{
    bool has_key = message->key_length > 0;
    bool has_value = message->value_length > 0;
    if (message->is_answer && message->opcode != FW_REPL_HELLO) {
        return !message->is_large; /* It is skipped, unless it is the answer to a mark. */
    }
    switch (message->opcode) {
    case FW_REPL_SET:
    case FW_REPL_SETQ:
        return has_key && (extras == SET_EXTRAS || extras == SET_EXTRAS_NUMBER);
    case FW_REPL_DELETE:
    case FW_REPL_DELETEQ:
        return has_key && !has_value && extras == 0;
    case FW_REPL_TOUCH:
        return has_key && !has_value && extras == sizeof(uint32_t);
    case FW_REPL_FLUSHQ:
        return !has_key && !has_value && (extras == 0 || extras == sizeof(uint32_t));
    case FW_REPL_LATER:
        return !has_key && !has_value && extras == sizeof(uint32_t);
    case FW_REPL_EVICTED:
        return !has_key && has_value && !message->is_large && extras == 0;
    case FW_REPL_READ:
        return !has_key && !message->is_large && extras == sizeof(uint32_t);
    case FW_REPL_ABOUT:
        return !has_key && message->value_length >= ABOUT_SIZE && !message->is_large && extras == 0;
    case FW_REPL_NOOP:
        return !has_key && !has_value &&
               (extras == 0 || extras == MARK_EXTRAS || extras == MARK_EXTRAS_ECHO);
    case FW_REPL_HELLO:
        return !has_key && !has_value && extras == HELLO_EXTRAS;
    case FW_REPL_PROOF:
        return !has_key && message->value_length == FW_REPL_SLAVE_PROOF && extras == 0;
    case FW_REPL_CHALLENGE: /* Nobody challenges a master. */
        break;
    }
    return false;
}

static void extras_read(struct fw_repl_message *message, const char *extras, uint32_t length)
{
    if (message->opcode == FW_REPL_HELLO) {
        message->version = fw_be16_get(extras);
        message->start = fw_be16_get(extras + 2) & ((1U << KNOWS_SHIFT) - 1);
        message->knows = (uint32_t)fw_be16_get(extras + 2) >> KNOWS_SHIFT;
        message->history = fw_be64_get(extras + 4);
        message->position = fw_be64_get(extras + 12);
    } else if (message->is_answer) {
        return;
    } else if (message->opcode == FW_REPL_SET || message->opcode == FW_REPL_SETQ) {
        message->flags = fw_be32_get(extras);
        message->expires = fw_be32_get(extras + 4);
        message->number = length == SET_EXTRAS_NUMBER ? fw_be64_get(extras + SET_EXTRAS) : 0;
    } else if (message->opcode == FW_REPL_TOUCH || message->opcode == FW_REPL_LATER ||
               message->opcode == FW_REPL_READ) {
        message->expires = fw_be32_get(extras);
    } else if (message->opcode == FW_REPL_NOOP && length > 0) {
        message->number = fw_be64_get(extras);
        message->echo = length == MARK_EXTRAS_ECHO ? fw_be64_get(extras + MARK_EXTRAS) : 0;
    }
}

/* Is the item number that a request says one that items can have? */
static bool number_is_right(const struct fw_repl_message *message)
{
    uint64_t number = message->number;
    if (message->is_answer) {
        return true;
    }
    if (message->opcode == FW_REPL_FLUSHQ || message->opcode == FW_REPL_SET ||
        message->opcode == FW_REPL_SETQ) {
        number = number != 0 ? number : message->cas;
    }
    return number < FW_ITEM_NUMBER_END;
}

enum fw_repl_decoded fw_repl_decode(const char *bytes, size_t size, struct fw_repl_message *message)
{
    *message = (struct fw_repl_message){.size = FW_REPL_HEADER};
    if (size < FW_REPL_HEADER) {
        return FW_REPL_MORE;
    }
    uint8_t magic = (uint8_t)bytes[0];
    uint32_t extras_length = (uint8_t)bytes[4];
    uint32_t body_length = fw_be32_get(bytes + 8);
    message->is_answer = magic == FW_BINARY_REPLY;
    message->opcode = (enum fw_repl_opcode)(uint8_t)bytes[1];
    message->key_length = fw_be16_get(bytes + 2);
    message->status = fw_be16_get(bytes + 6);
    message->opaque = fw_be32_get(bytes + 12);
    message->cas = fw_be64_get(bytes + 16);
    uint32_t before = extras_length + message->key_length;
    if ((magic != FW_BINARY_REQUEST && magic != FW_BINARY_REPLY) || before > body_length ||
        extras_length > FW_REPL_EXTRAS_MAX || message->key_length > FW_ITEM_KEY_MAX ||
        body_length - before > FW_REPL_VALUE_MAX) {
        return FW_REPL_DAMAGED;
    }
    message->value_length = body_length - before;
    message->is_large = message->value_length > FW_ITEM_INLINE_MAX;
    if (!shape_is_right(message, extras_length)) {
        return FW_REPL_DAMAGED;
    }
    message->size = FW_REPL_HEADER + before + (message->is_large ? 0 : message->value_length);
    if (size < message->size) {
        return FW_REPL_MORE;
    }
    extras_read(message, bytes + FW_REPL_HEADER, extras_length);
    if (!number_is_right(message)) {
        return FW_REPL_DAMAGED;
    }
    message->key = bytes + FW_REPL_HEADER + extras_length;
    message->value = message->key + message->key_length;
    return FW_REPL_MESSAGE;
}
