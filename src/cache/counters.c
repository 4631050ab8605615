/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/counters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mutex.h"

enum {
    BYTES_PER_LIST = 256,   /* Of memory: lists are short also when all of it is used. */
    ALLOCATION_MORE = 16,   /* What the allocator takes for itself. */
    DROPS_PER_CALL_MAX = 4, /* More than one, or they would become ever more. */
};

struct counter {
    struct counter *next;          /* In its list. */
    struct fw_list_link idle_link; /* While the consumption is 0. */
    uint64_t hash;
    uint32_t consumption;
    uint32_t peak;     /* In `interval`. */
    uint32_t interval; /* In which it was last touched. */
    uint32_t name_length;
    char name[];
};

struct claim {
    struct claim *next; /* In its list. */
    struct fw_list_link client_link;
    struct counter *counter;
    struct fw_counters_client *client;
    uint32_t count; /* At least 1. */
};

struct fw_counters {
    struct fw_mutex mutex; /* FW_RANK_COUNTERS; guards what is not constant. */
    uint32_t interval_s;   /* Constant, as the next two. */
    uint64_t seed;
    uint64_t list_mask;
    uint32_t interval; /* The present one. */
    struct fw_counters_stats stats;
    struct fw_list idle; /* Counters, by when they became so. */
    struct counter **by_name;
    struct claim **by_client; /* And counter. */
};

int fw_counters_create(struct fw_counters **counters, const struct fw_counters_config *config,
                       uint64_t seed)
{
    FW_ASSERT(config->memory >= FW_COUNTERS_MEMORY_MIN && config->interval_s > 0);
    uint64_t lists = 1;
    while (lists < config->memory / BYTES_PER_LIST) {
        lists *= 2;
    }
    struct fw_counters *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    made->by_name = calloc(lists, sizeof(void *));
    made->by_client = calloc(lists, sizeof(void *));
    if (made->by_name == NULL || made->by_client == NULL) {
        free(made->by_name);
        free(made->by_client);
        free(made);
        return -ENOMEM;
    }
    fw_mutex_init(&made->mutex, FW_RANK_COUNTERS);
    made->interval_s = config->interval_s;
    made->seed = seed;
    made->list_mask = lists - 1;
    made->stats.memory_limit = config->memory;
    fw_list_init(&made->idle);
    *counters = made;
    return 0;
}

/* ---- counters; under the mutex -------------------------------------------------------------- */

/* Intervals only rise, also if callers' clocks differ: so idle counters are in their order. */
static uint32_t interval_at(struct fw_counters *counters, uint32_t now)
{
    uint32_t interval = now / counters->interval_s;
    if (interval > counters->interval) {
        counters->interval = interval;
    }
    return counters->interval;
}

static uint64_t counter_size(size_t name_length)
{
    return sizeof(struct counter) + name_length + ALLOCATION_MORE;
}

static struct counter *counter_find(const struct fw_counters *counters,
                                    const struct fw_counters_name *name, uint64_t hash)
{
    struct counter *counter = counters->by_name[hash & counters->list_mask];
    while (counter != NULL && (counter->hash != hash || counter->name_length != name->length ||
                               memcmp(counter->name, name->bytes, name->length) != 0)) {
        counter = counter->next;
    }
    return counter;
}

static struct counter *idle_first(const struct fw_counters *counters)
{
    struct fw_list_link *link = fw_list_first(&counters->idle);
    return link != NULL ? FW_LIST_ENTRY(link, struct counter, idle_link) : NULL;
}

/* One that is idle. */
static void counter_drop(struct fw_counters *counters, struct counter *counter)
{
    FW_ASSERT(counter->consumption == 0);
    struct counter **at = &counters->by_name[counter->hash & counters->list_mask];
    while (*at != counter) {
        at = &(*at)->next;
    }
    *at = counter->next;
    fw_list_remove(&counter->idle_link);
    /* For analysers, to whom the list could be as it was. */
    FW_ASSERT(counters->idle.head.next != &counter->idle_link);
    counters->stats.memory_used -= counter_size(counter->name_length);
    counters->stats.counters--;
    free(counter);
}

/* Some of those that have nothing left to tell. The oldest interval is that of the first. */
static void counters_tidy(struct fw_counters *counters, uint32_t interval)
{
    for (int i = 0; i < DROPS_PER_CALL_MAX; i++) {
        struct counter *counter = idle_first(counters);
        if (counter == NULL || counter->interval == interval) {
            return;
        }
        counter_drop(counters, counter);
    }
}

/* Memory of that size, for which idle counters may have to go; or NULL. It is charged. */
static void *counters_allocate(struct fw_counters *counters, uint64_t size)
{
    struct fw_counters_stats *stats = &counters->stats;
    struct counter *idle;
    while (stats->memory_limit - stats->memory_used < size &&
           (idle = idle_first(counters)) != NULL) {
        counter_drop(counters, idle);
    }
    if (stats->memory_limit - stats->memory_used < size) {
        return NULL;
    }
    void *memory = malloc(size - ALLOCATION_MORE);
    stats->memory_used += memory != NULL ? size : 0;
    return memory;
}

/* It is not idle yet. */
static struct counter *counter_make(struct fw_counters *counters,
                                    const struct fw_counters_name *name, uint64_t hash)
{
    struct counter *counter = counters_allocate(counters, counter_size(name->length));
    if (counter == NULL) {
        return NULL;
    }
    *counter = (struct counter){.next = counters->by_name[hash & counters->list_mask],
                                .hash = hash,
                                .name_length = (uint32_t)name->length};
    memcpy(counter->name, name->bytes, name->length);
    counters->by_name[hash & counters->list_mask] = counter;
    counters->stats.counters++;
    counters->stats.counters_made++;
    return counter;
}

/* Before it is changed. Then it is not idle, and its peak is one of this interval. */
static void counter_touch(struct counter *counter, uint32_t interval)
{
    if (counter->interval != interval) {
        counter->interval = interval;
        counter->peak = counter->consumption;
    }
    if (fw_list_is_linked(&counter->idle_link)) {
        fw_list_remove(&counter->idle_link);
    }
}

/* After it was changed, or was not, though it was touched. */
static void counter_settle(struct fw_counters *counters, struct counter *counter)
{
    if (counter->consumption > counter->peak) {
        counter->peak = counter->consumption;
    }
    if (counter->consumption == 0) {
        fw_list_push_back(&counters->idle, &counter->idle_link);
    }
}

/* ---- claims; under the mutex ---------------------------------------------------------------- */

static struct claim **claim_list(const struct fw_counters *counters, const struct counter *counter,
                                 const struct fw_counters_client *client)
{
    const void *pair[] = {counter, client};
    return &counters->by_client[fw_hash(pair, sizeof pair, counters->seed) & counters->list_mask];
}

static struct claim *claim_find(const struct fw_counters *counters, const struct counter *counter,
                                const struct fw_counters_client *client)
{
    struct claim *claim = *claim_list(counters, counter, client);
    while (claim != NULL && (claim->counter != counter || claim->client != client)) {
        claim = claim->next;
    }
    return claim;
}

static struct claim *claim_make(struct fw_counters *counters, struct counter *counter,
                                struct fw_counters_client *client)
{
    struct claim *claim = counters_allocate(counters, sizeof *claim + ALLOCATION_MORE);
    if (claim == NULL) {
        return NULL;
    }
    struct claim **list = claim_list(counters, counter, client);
    *claim = (struct claim){.next = *list, .counter = counter, .client = client};
    *list = claim;
    fw_list_push_back(&client->claims, &claim->client_link);
    counters->stats.claims++;
    return claim;
}

static void claim_drop(struct fw_counters *counters, struct claim *claim)
{
    struct claim **at = claim_list(counters, claim->counter, claim->client);
    while (*at != claim) {
        at = &(*at)->next;
    }
    *at = claim->next;
    if (fw_list_is_linked(&claim->client_link)) { /* Else all of them are taken off. */
        fw_list_remove(&claim->client_link);
    }
    counters->stats.claims--;
    counters->stats.memory_used -= sizeof *claim + ALLOCATION_MORE;
    free(claim);
}

static void claim_give_back(struct fw_counters *counters, struct claim *claim, uint32_t count,
                            uint32_t interval)
{
    struct counter *counter = claim->counter;
    FW_ASSERT(count > 0 && count <= claim->count && claim->count <= counter->consumption);
    counter_touch(counter, interval);
    claim->count -= count;
    counter->consumption -= count;
    counter_settle(counters, counter);
    if (claim->count == 0) {
        claim_drop(counters, claim);
    }
}

/* ---- what clients do ------------------------------------------------------------------------ */

void fw_counters_destroy(struct fw_counters *counters)
{
    if (counters == NULL) {
        return;
    }
    FW_ASSERT(counters->stats.claims == 0);
    struct counter *counter;
    while ((counter = idle_first(counters)) != NULL) {
        counter_drop(counters, counter);
    }
    FW_ASSERT(counters->stats.memory_used == 0);
    fw_mutex_fini(&counters->mutex);
    free(counters->by_name);
    free(counters->by_client);
    free(counters);
}

static uint64_t name_hash(const struct fw_counters *counters, const struct fw_counters_name *name)
{
    FW_ASSERT(name->length > 0 && name->length <= FW_COUNTERS_NAME_MAX);
    return fw_hash(name->bytes, name->length, counters->seed);
}

static enum fw_counters_answer counter_take(struct fw_counters *counters, struct counter *counter,
                                            struct fw_counters_client *client, uint32_t count,
                                            uint32_t total)
{
    if (counter->consumption > total || count > total - counter->consumption) {
        counters->stats.refused_count++;
        return FW_COUNTERS_NOT_AVAILABLE;
    }
    struct claim *claim = claim_find(counters, counter, client);
    if (claim == NULL) {
        claim = claim_make(counters, counter, client);
    }
    if (claim == NULL) {
        return FW_COUNTERS_NO_MEMORY;
    }
    claim->count += count;
    counter->consumption += count;
    counters->stats.acquired_count++;
    return FW_COUNTERS_OK;
}

enum fw_counters_answer fw_counters_acquire(struct fw_counters *counters,
                                            struct fw_counters_client *client,
                                            const struct fw_counters_name *name, uint32_t count,
                                            uint32_t total, uint32_t now)
{
    FW_ASSERT(count > 0 && count <= total);
    uint64_t hash = name_hash(counters, name);
    enum fw_counters_answer answer = FW_COUNTERS_NO_MEMORY;
    fw_mutex_lock(&counters->mutex);
    uint32_t interval = interval_at(counters, now);
    counters_tidy(counters, interval);
    struct counter *counter = counter_find(counters, name, hash);
    if (counter == NULL) {
        counter = counter_make(counters, name, hash);
    }
    if (counter != NULL) {
        counter_touch(counter, interval); /* So it is not dropped for the sake of its claim. */
        answer = counter_take(counters, counter, client, count, total);
        counter_settle(counters, counter);
    }
    fw_mutex_unlock(&counters->mutex);
    return answer;
}

enum fw_counters_answer fw_counters_release(struct fw_counters *counters,
                                            struct fw_counters_client *client,
                                            const struct fw_counters_name *name, uint32_t count,
                                            uint32_t now)
{
    uint64_t hash = name_hash(counters, name);
    enum fw_counters_answer answer = FW_COUNTERS_OK;
    fw_mutex_lock(&counters->mutex);
    const struct counter *counter = counter_find(counters, name, hash);
    struct claim *claim = counter != NULL ? claim_find(counters, counter, client) : NULL;
    if (counter == NULL) {
        answer = FW_COUNTERS_NOT_FOUND;
    } else if (count > (claim != NULL ? claim->count : 0)) {
        answer = FW_COUNTERS_NOT_ACQUIRED;
    } else if (count > 0) {
        claim_give_back(counters, claim, count, interval_at(counters, now));
    }
    fw_mutex_unlock(&counters->mutex);
    return answer;
}

void fw_counters_release_all(struct fw_counters *counters, struct fw_counters_client *client,
                             uint32_t now)
{
    struct fw_list_link *link;
    do { /* One at a time, so that others get in between. */
        fw_mutex_lock(&counters->mutex);
        link = fw_list_pop_front(&client->claims);
        if (link != NULL) {
            FW_ASSERT(client->claims.head.next != link); /* As in counter_drop(). */
            struct claim *claim = FW_LIST_ENTRY(link, struct claim, client_link);
            claim_give_back(counters, claim, claim->count, interval_at(counters, now));
        }
        fw_mutex_unlock(&counters->mutex);
    } while (link != NULL);
}

enum fw_counters_answer fw_counters_get(struct fw_counters *counters,
                                        const struct fw_counters_name *name, uint32_t *consumption)
{
    uint64_t hash = name_hash(counters, name);
    fw_mutex_lock(&counters->mutex);
    const struct counter *counter = counter_find(counters, name, hash);
    if (counter != NULL) {
        *consumption = counter->consumption;
    }
    fw_mutex_unlock(&counters->mutex);
    return counter != NULL ? FW_COUNTERS_OK : FW_COUNTERS_NOT_FOUND;
}

bool fw_counters_visit(struct fw_counters *counters, uint64_t *cursor, uint32_t now,
                       void (*visit)(const struct fw_counters_row *row, void *context),
                       void *context)
{
    FW_ASSERT(*cursor <= counters->list_mask);
    fw_mutex_lock(&counters->mutex);
    uint32_t interval = interval_at(counters, now);
    for (const struct counter *counter = counters->by_name[*cursor]; counter != NULL;
         counter = counter->next) {
        const struct fw_counters_row row = {
            .name = {.bytes = counter->name, .length = counter->name_length},
            .consumption = counter->consumption,
            .peak = counter->interval == interval ? counter->peak : counter->consumption,
        };
        visit(&row, context);
    }
    fw_mutex_unlock(&counters->mutex);
    return ++*cursor > counters->list_mask;
}

void fw_counters_stats(struct fw_counters *counters, struct fw_counters_stats *stats)
{
    fw_mutex_lock(&counters->mutex);
    *stats = counters->stats;
    fw_mutex_unlock(&counters->mutex);
}
