/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/detail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"

enum {
    DELIMITER = ':',
    LINE_SIZE = FW_ITEM_KEY_MAX + 128,
    PREFIXES_PER_STEP = 32, /* Shown under the lock; to look at all empty buckets takes less. */
};

struct fw_detail_prefix {
    struct fw_detail_prefix *next;
    uint64_t reads;
    uint64_t hits;
    uint64_t sets;
    uint64_t deletes;
    uint8_t length;
    char bytes[];
};

int fw_detail_create(struct fw_detail **detail, uint64_t seed)
{
    struct fw_detail *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    atomic_init(&made->is_on, false);
    made->seed = seed;
    fw_mutex_init(&made->lock, FW_RANK_DETAIL);
    *detail = made;
    return 0;
}

void fw_detail_destroy(struct fw_detail *detail)
{
    fw_detail_reset(detail);
    fw_mutex_fini(&detail->lock);
    free(detail);
}

void fw_detail_enable(struct fw_detail *detail, bool is_on)
{
    atomic_store_explicit(&detail->is_on, is_on, memory_order_relaxed);
}

void fw_detail_reset(struct fw_detail *detail)
{
    for (size_t i = 0; i < FW_DETAIL_BUCKETS; i++) {
        fw_mutex_lock(&detail->lock);
        while (detail->buckets[i] != NULL) {
            struct fw_detail_prefix *prefix = detail->buckets[i];
            detail->buckets[i] = prefix->next;
            detail->count--;
            free(prefix);
        }
        fw_mutex_unlock(&detail->lock);
    }
}

/* Finds the prefix or makes it; NULL: there are too many, or there is no memory. */
static struct fw_detail_prefix *detail_prefix(struct fw_detail *detail, const char *bytes,
                                              size_t length) FW_REQUIRES(detail->lock);

static struct fw_detail_prefix *detail_prefix(struct fw_detail *detail, const char *bytes,
                                              size_t length)
{
    uint64_t hash = fw_hash(bytes, length, detail->seed);
    struct fw_detail_prefix **bucket = &detail->buckets[hash % FW_DETAIL_BUCKETS];
    for (struct fw_detail_prefix *prefix = *bucket; prefix != NULL; prefix = prefix->next) {
        if (prefix->length == length && memcmp(prefix->bytes, bytes, length) == 0) {
            return prefix;
        }
    }
    if (detail->count == FW_DETAIL_PREFIXES_MAX) {
        return NULL;
    }
    struct fw_detail_prefix *prefix = calloc(1, sizeof *prefix + length);
    if (prefix != NULL) {
        prefix->length = (uint8_t)length;
        memcpy(prefix->bytes, bytes, length);
        prefix->next = *bucket;
        *bucket = prefix;
        detail->count++;
    }
    return prefix;
}

void fw_detail_count(struct fw_detail *detail, const struct fw_key *key, enum fw_detail_event event)
{
    const char *end = memchr(key->bytes, DELIMITER, key->length);
    if (end == NULL) {
        return;
    }
    fw_mutex_lock(&detail->lock);
    struct fw_detail_prefix *prefix = detail_prefix(detail, key->bytes, (size_t)(end - key->bytes));
    if (prefix != NULL) {
        prefix->reads += event == FW_DETAIL_GET || event == FW_DETAIL_HIT;
        prefix->hits += event == FW_DETAIL_HIT;
        prefix->sets += event == FW_DETAIL_SET;
        prefix->deletes += event == FW_DETAIL_DELETE;
    }
    fw_mutex_unlock(&detail->lock);
}

bool fw_detail_visit(struct fw_detail *detail, uint64_t *next,
                     void (*visit)(void *context, const char *line, size_t length), void *context)
{
    char line[LINE_SIZE];
    struct fw_text text;
    uint32_t shown = 0;
    fw_mutex_lock(&detail->lock);
    for (; *next < FW_DETAIL_BUCKETS && shown < PREFIXES_PER_STEP; (*next)++) {
        for (const struct fw_detail_prefix *prefix = detail->buckets[*next]; prefix != NULL;
             prefix = prefix->next) {
            fw_text_init(&text, line, sizeof line);
            fw_text_append_string(&text, "PREFIX ");
            fw_text_append(&text, prefix->bytes, prefix->length);
            fw_text_printf(&text, " get %" PRIu64 " hit %" PRIu64 " set %" PRIu64 " del %" PRIu64,
                           prefix->reads, prefix->hits, prefix->sets, prefix->deletes);
            visit(context, line, text.length);
            shown++;
        }
    }
    fw_mutex_unlock(&detail->lock);
    return *next < FW_DETAIL_BUCKETS;
}
