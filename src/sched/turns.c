/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/turns.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/list.h"

int fw_turns_init(struct fw_turns *turns, bool by_tenant)
{
    turns->by_tenant = by_tenant;
    turns->buckets = calloc(FW_TURNS_BUCKETS, sizeof(struct fw_sched_request *));
    return turns->buckets != NULL ? 0 : -ENOMEM;
}

void fw_turns_fini(struct fw_turns *turns)
{
    free(turns->buckets);
    turns->buckets = NULL;
}

static bool client_is_same(const struct fw_turns *turns, const struct fw_sched_class *a,
                           const struct fw_sched_class *b)
{
    return a->client == b->client && (!turns->by_tenant || a->tenant == b->tenant);
}

/* Numbers are given out in their order, so that their low bits fill the table evenly. */
static struct fw_sched_request **client_bucket(struct fw_turns *turns,
                                               const struct fw_sched_request *request)
{
    return &turns->buckets[request->class.client % FW_TURNS_BUCKETS];
}

/* Where the first of the request's client hangs, or NULL hangs if it has none. */
static struct fw_sched_request **client_find(struct fw_turns *turns,
                                             const struct fw_sched_request *request)
{
    struct fw_sched_request **place = client_bucket(turns, request);
    while (*place != NULL && !client_is_same(turns, &(*place)->class, &request->class)) {
        place = &(*place)->next_client;
    }
    return place;
}

/* The first of its client, whose place in the table that is. */
static void client_table(struct fw_sched_request **place, struct fw_sched_request *request)
{
    request->is_tabled = true;
    request->next_client = NULL;
    *place = request;
}

/* One that was alone in its list gets company. */
static void sole_table(struct fw_turns *turns, const struct fw_list *list)
{
    struct fw_sched_request *sole = FW_LIST_ENTRY(list->head.next, struct fw_sched_request, link);
    if (!sole->is_tabled) {
        FW_ASSERT(sole->link.next == &list->head);
        client_table(client_find(turns, sole), sole);
    }
}

void fw_turns_push(struct fw_turns *turns, struct fw_list *list, struct fw_sched_request *request)
{
    request->is_tabled = false;
    request->has_others = false; /* `behind` is not touched before there is one. */
    if (fw_list_is_empty(list)) {
        request->is_first = true;
        fw_list_push_back(list, &request->link);
        return;
    }
    sole_table(turns, list);
    struct fw_sched_request **place = client_find(turns, request);
    request->is_first = *place == NULL;
    if (!request->is_first) {
        struct fw_sched_request *first = *place;
        if (!first->has_others) {
            first->has_others = true;
            fw_list_init(&first->behind);
        }
        fw_list_push_back(&first->behind, &request->link);
        return;
    }
    client_table(place, request);
    fw_list_push_back(list, &request->link);
}

/* The first of a client leaves the table; its next one, if any, takes its place there. */
static struct fw_sched_request *client_succeed(struct fw_turns *turns,
                                               struct fw_sched_request *request)
{
    FW_ASSERT(request->is_first);
    if (!request->is_tabled) {
        return NULL;
    }
    struct fw_sched_request **place = client_find(turns, request);
    FW_ASSERT(*place == request);
    struct fw_list_link *link = request->has_others ? fw_list_pop_front(&request->behind) : NULL;
    if (link == NULL) {
        *place = request->next_client;
        return NULL;
    }
    struct fw_sched_request *next = FW_LIST_ENTRY(link, struct fw_sched_request, link);
    next->is_first = true;
    next->is_tabled = true;
    next->has_others = true;
    fw_list_init(&next->behind);
    fw_list_append(&next->behind, &request->behind);
    next->next_client = request->next_client;
    *place = next;
    return next;
}

struct fw_sched_request *fw_turns_pop(struct fw_turns *turns, struct fw_list *list)
{
    struct fw_list_link *link = fw_list_pop_front(list);
    if (link == NULL) {
        return NULL;
    }
    struct fw_sched_request *request = FW_LIST_ENTRY(link, struct fw_sched_request, link);
    struct fw_sched_request *next = client_succeed(turns, request);
    if (next != NULL) {
        fw_list_push_back(list, &next->link);
    }
    return request;
}

void fw_turns_remove(struct fw_turns *turns, struct fw_sched_request *request)
{
    if (request->is_first) {
        struct fw_sched_request *next = client_succeed(turns, request);
        if (next != NULL) {
            fw_list_insert_between(&next->link, request->link.previous, &request->link);
        }
    }
    fw_list_remove(&request->link);
}
