/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

enum {
    BUCKETS_MIN = 1 << 10,
    BUCKET_SIZE = sizeof(void *),
    MEMORY_MIN = 1 << 20,
    MEMORY_PER_BUCKET = 256, /* A bucket for about every item of 100 bytes when full. */
    ALLOCATION_COST = 16,    /* What malloc() adds to an allocation, at most. */
};

struct fw_old_store {
    struct fw_old_item **buckets;
    size_t bucket_count; /* A power of two. */
    struct fw_list by_age;
    size_t memory_max;
    size_t memory;
    size_t count;
};

static size_t item_size(size_t key_size, size_t value_size)
{
    return sizeof(struct fw_old_item) + key_size + value_size + ALLOCATION_COST;
}

int fw_old_store_create(struct fw_old_store **store, size_t memory_max)
{
    if (memory_max < MEMORY_MIN) {
        return -EINVAL;
    }
    struct fw_old_store *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    made->memory_max = memory_max;
    made->bucket_count = BUCKETS_MIN;
    while (made->bucket_count < memory_max / MEMORY_PER_BUCKET) {
        made->bucket_count *= 2;
    }
    made->buckets = calloc(made->bucket_count, BUCKET_SIZE);
    if (made->buckets == NULL) {
        free(made);
        return -ENOMEM;
    }
    made->memory = made->bucket_count * BUCKET_SIZE;
    fw_list_init(&made->by_age);
    *store = made;
    return 0;
}

static struct fw_old_item **store_find(struct fw_old_store *store, uint64_t hash, const char *key,
                                   size_t key_size)
{
    struct fw_old_item **place = &store->buckets[hash & (store->bucket_count - 1)];
    for (; *place != NULL; place = &(*place)->bucket_next) {
        const struct fw_old_item *item = *place;
        if (item->hash == hash && item->key_size == key_size &&
            memcmp(item->data, key, key_size) == 0) {
            break;
        }
    }
    return place;
}

/* Takes the item at `place` out of the table and drops the table's reference. */
static void store_remove(struct fw_old_store *store, struct fw_old_item **place)
{
    struct fw_old_item *item = *place;
    *place = item->bucket_next;
    fw_list_remove(&item->age_link);
    store->count--;
    fw_old_store_unref(store, item);
}

static void store_remove_oldest(struct fw_old_store *store)
{
    struct fw_list_link *link = fw_list_first(&store->by_age);
    FW_ASSERT(link != NULL);
    struct fw_old_item *item = FW_LIST_ENTRY(link, struct fw_old_item, age_link);
    struct fw_old_item **place = store_find(store, item->hash, item->data, item->key_size);
    FW_ASSERT(*place == item);
    store_remove(store, place);
}

void fw_old_store_destroy(struct fw_old_store *store)
{
    while (store->count > 0) {
        store_remove_oldest(store);
    }
    FW_ASSERT(store->memory == store->bucket_count * BUCKET_SIZE);
    free(store->buckets);
    free(store);
}

/* The place of the live item of that key, or of NULL. One that has expired is removed on the way.
 */
static struct fw_old_item **store_find_live(struct fw_old_store *store, const char *key, size_t key_size,
                                        int64_t now_s)
{
    uint64_t hash = fw_hash(key, key_size, 0);
    struct fw_old_item **place = store_find(store, hash, key, key_size);
    if (*place != NULL && (*place)->expires_s != 0 && (*place)->expires_s <= now_s) {
        store_remove(store, place);
        place = store_find(store, hash, key, key_size);
    }
    return place;
}

struct fw_old_item *fw_old_store_get(struct fw_old_store *store, const char *key, size_t key_size,
                             int64_t now_s)
{
    struct fw_old_item *item = *store_find_live(store, key, key_size, now_s);
    if (item != NULL) {
        item->references++;
    }
    return item;
}

struct fw_old_item *fw_old_store_item_new(struct fw_old_store *store, const char *key, size_t key_size,
                                  size_t value_size)
{
    FW_ASSERT(key_size > 0 && key_size <= FW_KEY_SIZE_MAX);
    FW_ASSERT(value_size <= UINT32_MAX);
    size_t size = item_size(key_size, value_size);
    while (store->memory + size > store->memory_max) {
        if (store->count == 0) {
            return NULL; /* What is left is under way on connections. */
        }
        store_remove_oldest(store);
    }
    struct fw_old_item *item = malloc(sizeof *item + key_size + value_size);
    if (item == NULL) {
        return NULL;
    }
    store->memory += size;
    *item = (struct fw_old_item){
        .references = 1, .key_size = (uint8_t)key_size, .value_size = (uint32_t)value_size};
    memcpy(item->data, key, key_size);
    return item;
}

void fw_old_store_put(struct fw_old_store *store, struct fw_old_item *item)
{
    FW_ASSERT(item->references == 1);
    item->hash = fw_hash(item->data, item->key_size, 0);
    struct fw_old_item **place = store_find(store, item->hash, item->data, item->key_size);
    if (*place != NULL) {
        store_remove(store, place);
    }
    struct fw_old_item **bucket = &store->buckets[item->hash & (store->bucket_count - 1)];
    item->bucket_next = *bucket;
    *bucket = item;
    fw_list_push_back(&store->by_age, &item->age_link);
    store->count++;
}

bool fw_old_store_delete(struct fw_old_store *store, const char *key, size_t key_size, int64_t now_s)
{
    struct fw_old_item **place = store_find_live(store, key, key_size, now_s);
    if (*place == NULL) {
        return false;
    }
    store_remove(store, place);
    return true;
}

void fw_old_store_unref(struct fw_old_store *store, struct fw_old_item *item)
{
    FW_ASSERT(item->references > 0);
    item->references--;
    if (item->references == 0) {
        FW_ASSERT(!fw_list_is_linked(&item->age_link));
        store->memory -= item_size(item->key_size, item->value_size);
        free(item);
    }
}

size_t fw_old_store_memory(const struct fw_old_store *store)
{
    return store->memory;
}

size_t fw_old_store_count(const struct fw_old_store *store)
{
    return store->count;
}
