/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a memcached server cannot do without, and nothing else: `get` and `set` of the text protocol
 * over a table of fixed size. The servers in bench/ put this behind different ways of moving bytes,
 * so that what differs between them is the way.
 *
 * It is meant as the limit that others are compared with, so it is fast and still honest. Every key
 * is hashed, looked up and compared; every value is copied out of the table into the reply and out
 * of the request into the table. What it leaves out is what makes a cache a cache: eviction, expiry
 * (exptime is read and ignored), deletion, growth, statistics. Three choices make it fast:
 *
 *   - one pass over a request, eight bytes at a time, that stops at spaces and line ends alike;
 *   - an item is kept as the very text of its reply, so that a hit is one copy;
 *   - the replies to all requests that arrived together stand in one buffer, for one send.
 *
 * A session is what a connection holds while bytes of it are under way. Idle connections hold none;
 * the next busy one takes the session that was given back last, whose buffers are still in the
 * cache. How a server uses it:
 *
 *     place = fw_responder_place(session, &size), receive there, session->input_end += received
 *     while ((size = fw_responder_answer(responder, session)) > 0)
 *         send from session->output + session->output_begin, session->output_begin += sent
 *     session->closing: close; fw_responder_is_idle(session): give the session back
 *
 * One thread. Everything is static inline: each server compiles its own copy into its loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte is the lowest of a word");

enum {
    FW_RESPONDER_KEY_MAX = 250,
    FW_RESPONDER_KEYS_MAX = 100, /* In one get. */
    FW_RESPONDER_VALUE_MAX = 64 << 10,
    FW_RESPONDER_RECEIVE_MAX = 16 << 10, /* At once. */

    /* "VALUE ", the key, flags and length of at most ten digits, spaces and line ends. */
    FW_RESPONDER_ITEM_MAX = FW_RESPONDER_VALUE_MAX + FW_RESPONDER_KEY_MAX + 40,
    FW_RESPONDER_REPLY_MAX = FW_RESPONDER_KEYS_MAX * FW_RESPONDER_ITEM_MAX + 16,
    FW_RESPONDER_INPUT_SIZE = 128 << 10, /* The longest request, with room to receive. */
    FW_RESPONDER_OUTPUT_SIZE = 8 << 20,  /* Untouched pages cost nothing. */
    FW_RESPONDER_GRANULE = 16,           /* Items are counted in these. */
};
static_assert(FW_RESPONDER_REPLY_MAX < FW_RESPONDER_OUTPUT_SIZE, "a reply fits");
static_assert(FW_RESPONDER_ITEM_MAX + FW_RESPONDER_RECEIVE_MAX < FW_RESPONDER_INPUT_SIZE &&
                  FW_RESPONDER_KEYS_MAX * (FW_RESPONDER_KEY_MAX + 1) < FW_RESPONDER_INPUT_SIZE / 2,
              "a request fits");

struct fw_responder_item {
    uint32_t reply_size;
    uint32_t reply_capacity;
    uint32_t key_size;
    char reply[]; /* "VALUE <key> <flags> <bytes>\r\n<data>\r\n". */
};

struct fw_responder_slot {
    uint32_t tag;  /* Upper half of the hash; the lower half says where the search begins. */
    uint32_t item; /* In granules from the start of the arena, 0 if the slot is free. */
};

struct fw_responder_session {
    struct fw_responder_session *next_free;
    size_t input_begin, input_end;   /* Received and not answered yet. */
    size_t output_begin, output_end; /* To be sent. */
    bool closing;                    /* What came is beyond repair; close after the last send. */
    char input[FW_RESPONDER_INPUT_SIZE + sizeof(uint64_t)]; /* The scan reads a word too far. */
    char output[FW_RESPONDER_OUTPUT_SIZE];
};

struct fw_responder {
    struct fw_responder_slot *slots; /* A power of two, at most three quarters in use. */
    uint64_t slot_mask;
    uint64_t items, items_max;
    char *arena;
    uint64_t arena_used, arena_size;
    struct fw_responder_session *free_sessions;
};

/* Room for `items_max` items in `arena_size` bytes, at most 64 GiB. False without the memory. */
static inline bool fw_responder_init(struct fw_responder *responder, uint64_t items_max,
                                     uint64_t arena_size)
{
    uint64_t slot_count = 1024;
    while (slot_count * 3 / 4 < items_max) {
        slot_count *= 2;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *slots = mmap(NULL, slot_count * sizeof(struct fw_responder_slot), PROT_READ | PROT_WRITE,
                       flags, -1, 0);
    void *arena = mmap(NULL, arena_size, PROT_READ | PROT_WRITE, flags, -1, 0);
    *responder = (struct fw_responder){
        .slots = slots,
        .slot_mask = slot_count - 1,
        .items_max = items_max,
        .arena = arena,
        .arena_used = FW_RESPONDER_GRANULE, /* So that no item is number 0. */
        .arena_size = arena_size,
    };
    return slots != MAP_FAILED && arena != MAP_FAILED;
}

static inline struct fw_responder_item *fw_responder_item(const struct fw_responder *responder,
                                                          const struct fw_responder_slot *slot)
{
    return (void *)(responder->arena + (size_t)slot->item * FW_RESPONDER_GRANULE);
}

/* The slot that holds the key, or the free one that would. */
static inline struct fw_responder_slot *fw_responder_find(const struct fw_responder *responder,
                                                          const char *key, size_t key_size,
                                                          uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        struct fw_responder_slot *slot = &responder->slots[i & responder->slot_mask];
        if (slot->item == 0) {
            return slot;
        }
        if (slot->tag == (uint32_t)(hash >> 32)) {
            const struct fw_responder_item *item = fw_responder_item(responder, slot);
            if (item->key_size == key_size && memcmp(item->reply + 6, key, key_size) == 0) {
                return slot;
            }
        }
    }
}

/* The item for `slot` with room for the reply, the old one if that has it. NULL: no memory. */
static inline struct fw_responder_item *fw_responder_reserve(struct fw_responder *responder,
                                                             struct fw_responder_slot *slot,
                                                             size_t reply_size)
{
    if (slot->item != 0 && fw_responder_item(responder, slot)->reply_capacity >= reply_size) {
        return fw_responder_item(responder, slot);
    }
    uint64_t size = sizeof(struct fw_responder_item) + reply_size;
    size = (size + FW_RESPONDER_GRANULE - 1) / FW_RESPONDER_GRANULE * FW_RESPONDER_GRANULE;
    if (responder->arena_used + size > responder->arena_size ||
        (slot->item == 0 && responder->items == responder->items_max)) {
        return NULL;
    }
    responder->items += slot->item == 0;
    slot->item = (uint32_t)(responder->arena_used / FW_RESPONDER_GRANULE);
    responder->arena_used += size;
    struct fw_responder_item *item = fw_responder_item(responder, slot);
    item->reply_capacity = (uint32_t)(size - sizeof(struct fw_responder_item));
    return item;
}

/* The first space or control character from `at` on, or `end`. */
static inline const char *fw_responder_token_end(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101;
    for (; at < end; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        /* The top bit of every byte below 0x21; borrows only disturb bytes after the first. */
        uint64_t low = (word - ones * 0x21) & ~word & (ones * 0x80);
        if (low != 0) {
            at += __builtin_ctzll(low) / 8;
            return at < end ? at : end;
        }
    }
    return end;
}

static inline char *fw_responder_put(char *to, const char *text, size_t size)
{
    memcpy(to, text, size);
    return to + size;
}

/* Appends a reply that is known at compile time. */
#define FW_RESPONDER_SAY(session, text)                                                           \
    ((session)->output_end = (size_t)(fw_responder_put((session)->output + (session)->output_end, \
                                                       text "\r\n", sizeof(text "\r\n") - 1) -    \
                                      (session)->output))

/*
 * The requests below begin at `at` and answer where the next one begins, or NULL if the rest of
 * this one has not arrived. After what they cannot understand they do not look for the next one:
 * a client that is measured makes no mistakes.
 */
static inline const char *fw_responder_refuse(struct fw_responder_session *session, const char *end)
{
    FW_RESPONDER_SAY(session, "CLIENT_ERROR bad command line format");
    session->closing = true;
    return end;
}

/* "get <key> <key>...\r\n"; `at` is behind the first space. */
static inline const char *fw_responder_get(const struct fw_responder *responder,
                                           struct fw_responder_session *session, const char *at,
                                           const char *end)
{
    char *to = session->output + session->output_end;
    for (uint32_t keys = 0; keys < FW_RESPONDER_KEYS_MAX; keys++) {
        const char *stop = fw_responder_token_end(at, end);
        size_t key_size = (size_t)(stop - at);
        if (key_size > FW_RESPONDER_KEY_MAX) {
            break;
        }
        if (end - stop < 2) {
            return NULL;
        }
        uint64_t hash = XXH3_64bits(at, key_size);
        const struct fw_responder_slot *slot = fw_responder_find(responder, at, key_size, hash);
        if (slot->item != 0) {
            const struct fw_responder_item *item = fw_responder_item(responder, slot);
            to = fw_responder_put(to, item->reply, item->reply_size);
        }
        if (stop[0] == '\r' && stop[1] == '\n') {
            session->output_end = (size_t)(to - session->output);
            FW_RESPONDER_SAY(session, "END");
            return stop + 2;
        }
        if (stop[0] != ' ') {
            break;
        }
        at = stop + 1;
    }
    return fw_responder_refuse(session, end);
}

/* Up to nine digits, or -1. */
static inline int64_t fw_responder_number(const char *digits, size_t count)
{
    int64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return -1;
        }
        value = value * 10 + (digits[i] - '0');
    }
    return count > 0 && count < 10 ? value : -1;
}

/* The words of "set <key> <flags> <exptime> <bytes>\r\n" after the first. */
enum { SET_KEY, SET_FLAGS, SET_EXPTIME, SET_BYTES, SET_WORDS };
struct fw_responder_set {
    const char *word[SET_WORDS];
    size_t size[SET_WORDS];
    const char *data;
    size_t data_size;
};

/* Keeps the item as the text of its reply. False if there is no room. */
static inline bool fw_responder_store(struct fw_responder *responder,
                                      const struct fw_responder_set *set)
{
    size_t reply_size = 6 + set->size[SET_KEY] + 1 + set->size[SET_FLAGS] + 1 +
                        set->size[SET_BYTES] + 2 + set->data_size;
    uint64_t hash = XXH3_64bits(set->word[SET_KEY], set->size[SET_KEY]);
    struct fw_responder_slot *slot =
        fw_responder_find(responder, set->word[SET_KEY], set->size[SET_KEY], hash);
    struct fw_responder_item *item = fw_responder_reserve(responder, slot, reply_size);
    if (item == NULL) {
        return false;
    }
    slot->tag = (uint32_t)(hash >> 32);
    item->reply_size = (uint32_t)reply_size;
    item->key_size = (uint32_t)set->size[SET_KEY];
    char *to = fw_responder_put(item->reply, "VALUE ", 6);
    to = fw_responder_put(to, set->word[SET_KEY], set->size[SET_KEY]);
    to = fw_responder_put(to, " ", 1);
    to = fw_responder_put(to, set->word[SET_FLAGS], set->size[SET_FLAGS]);
    to = fw_responder_put(to, " ", 1);
    to = fw_responder_put(to, set->word[SET_BYTES], set->size[SET_BYTES]);
    to = fw_responder_put(to, "\r\n", 2);
    (void)fw_responder_put(to, set->data, set->data_size);
    return true;
}

static inline const char *fw_responder_set(struct fw_responder *responder,
                                           struct fw_responder_session *session, const char *at,
                                           const char *end)
{
    struct fw_responder_set set;
    for (uint32_t i = 0; i < SET_WORDS; i++) {
        const char *stop = fw_responder_token_end(at, end);
        set.word[i] = at;
        set.size[i] = (size_t)(stop - at);
        if (set.size[i] <= FW_RESPONDER_KEY_MAX && end - stop < 2) {
            return NULL;
        }
        bool ends_well = i < SET_BYTES ? stop[0] == ' ' : stop[0] == '\r' && stop[1] == '\n';
        if (set.size[i] == 0 || set.size[i] > FW_RESPONDER_KEY_MAX || !ends_well) {
            return fw_responder_refuse(session, end);
        }
        at = stop + (i < SET_BYTES ? 1 : 2);
    }
    int64_t bytes = fw_responder_number(set.word[SET_BYTES], set.size[SET_BYTES]);
    if (bytes < 0 || bytes > FW_RESPONDER_VALUE_MAX ||
        fw_responder_number(set.word[SET_FLAGS], set.size[SET_FLAGS]) < 0) {
        return fw_responder_refuse(session, end);
    }

    set.data = at;
    set.data_size = (size_t)bytes + 2; /* With its line end, which is part of the reply too. */
    if ((size_t)(end - at) < set.data_size) {
        return NULL;
    }
    at += set.data_size;
    if (at[-2] != '\r' || at[-1] != '\n') {
        return fw_responder_refuse(session, end);
    }
    if (fw_responder_store(responder, &set)) {
        FW_RESPONDER_SAY(session, "STORED");
    } else {
        FW_RESPONDER_SAY(session, "SERVER_ERROR out of memory storing object");
    }
    return at;
}

static inline const char *fw_responder_request(struct fw_responder *responder,
                                               struct fw_responder_session *session, const char *at,
                                               const char *end)
{
    if (end - at < 4) {
        return NULL;
    }
    if (memcmp(at, "get ", 4) == 0) {
        return fw_responder_get(responder, session, at + 4, end);
    }
    if (memcmp(at, "set ", 4) == 0) {
        return fw_responder_set(responder, session, at + 4, end);
    }
    return fw_responder_refuse(session, end);
}

/*
 * Answers the complete requests that have arrived, unless that would leave no room for the next
 * reply; sending makes room. Returns how many bytes there are to send.
 */
static inline size_t fw_responder_answer(struct fw_responder *responder,
                                         struct fw_responder_session *session)
{
    if (session->output_begin == session->output_end) {
        session->output_begin = 0;
        session->output_end = 0;
    }
    const char *at = session->input + session->input_begin;
    const char *end = session->input + session->input_end;
    while (at < end && session->output_end + FW_RESPONDER_REPLY_MAX <= FW_RESPONDER_OUTPUT_SIZE) {
        const char *next = fw_responder_request(responder, session, at, end);
        if (next == NULL) {
            break;
        }
        at = next;
    }
    session->input_begin = (size_t)(at - session->input);
    return session->output_end - session->output_begin;
}

/* Where to receive, and how much at most; never nothing, because the longest request fits. */
static inline char *fw_responder_place(struct fw_responder_session *session, size_t *size)
{
    size_t left = session->input_end - session->input_begin;
    if (session->input_begin > 0) {
        memmove(session->input, session->input + session->input_begin, left);
        session->input_begin = 0;
        session->input_end = left;
    }
    size_t room = FW_RESPONDER_INPUT_SIZE - left;
    *size = room < FW_RESPONDER_RECEIVE_MAX ? room : FW_RESPONDER_RECEIVE_MAX;
    return session->input + left;
}

static inline bool fw_responder_is_idle(const struct fw_responder_session *session)
{
    return session->input_begin == session->input_end &&
           session->output_begin == session->output_end;
}

/* A session without bytes in it, or NULL without memory. */
static inline struct fw_responder_session *fw_responder_take(struct fw_responder *responder)
{
    struct fw_responder_session *session = responder->free_sessions;
    if (session != NULL) {
        responder->free_sessions = session->next_free;
    } else {
        session = malloc(sizeof *session);
        if (session == NULL) {
            return NULL;
        }
    }
    session->input_begin = session->input_end = 0;
    session->output_begin = session->output_end = 0;
    session->closing = false;
    return session;
}

static inline void fw_responder_give(struct fw_responder *responder,
                                     struct fw_responder_session *session)
{
    session->next_free = responder->free_sessions;
    responder->free_sessions = session;
}
