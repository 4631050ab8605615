/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doubly linked list whose links live inside the elements.
 *
 *     struct task { int id; struct fw_list_link link; };
 *     struct fw_list tasks;
 *     FW_LIST_FOR_EACH (&tasks, struct task, link, task) { ... task->id ... }
 *
 * An element costs two pointers and no allocation, is on at most one list per link, and leaves it
 * in constant time without knowing which list it is on. A link that is on no list points nowhere,
 * so fw_list_is_linked() can tell, and adding it twice or removing it twice is an assertion.
 *
 * Ownership: a list owns nothing. Concurrency: none; the list belongs to whoever owns its elements.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <fairway/types.h>

#include "base/assert.h"
#include "base/base.h"

static inline void fw_list_init(struct fw_list *list)
{
    list->head.next = &list->head;
    list->head.previous = &list->head;
}

/* A link must be made before it is first added; zeroed memory will do. */
static inline void fw_list_link_init(struct fw_list_link *link)
{
    link->next = NULL;
    link->previous = NULL;
}

static inline bool fw_list_is_empty(const struct fw_list *list)
{
    return list->head.next == &list->head;
}

static inline bool fw_list_is_linked(const struct fw_list_link *link)
{
    return link->next != NULL;
}

static inline void fw_list_insert_between(struct fw_list_link *link, struct fw_list_link *previous,
                                          struct fw_list_link *next)
{
    FW_ASSERT(!fw_list_is_linked(link));
    link->previous = previous;
    link->next = next;
    previous->next = link;
    next->previous = link;
}

static inline void fw_list_push_back(struct fw_list *list, struct fw_list_link *link)
{
    fw_list_insert_between(link, list->head.previous, &list->head);
}

static inline void fw_list_push_front(struct fw_list *list, struct fw_list_link *link)
{
    fw_list_insert_between(link, &list->head, list->head.next);
}

static inline void fw_list_remove(struct fw_list_link *link)
{
    FW_ASSERT(fw_list_is_linked(link));
    link->previous->next = link->next;
    link->next->previous = link->previous;
    fw_list_link_init(link);
}

/* The first link, or NULL. */
static inline struct fw_list_link *fw_list_first(const struct fw_list *list)
{
    return fw_list_is_empty(list) ? NULL : list->head.next;
}

/* Removes and returns the first link, or NULL. */
static inline struct fw_list_link *fw_list_pop_front(struct fw_list *list)
{
    struct fw_list_link *link = fw_list_first(list);
    if (link != NULL) {
        fw_list_remove(link);
    }
    return link;
}

/* Moves all elements of `from`, in order, behind those of `to`. */
static inline void fw_list_append(struct fw_list *to, struct fw_list *from)
{
    if (fw_list_is_empty(from)) {
        return;
    }
    struct fw_list_link *first = from->head.next;
    struct fw_list_link *last = from->head.previous;
    first->previous = to->head.previous;
    to->head.previous->next = first;
    last->next = &to->head;
    to->head.previous = last;
    fw_list_init(from);
}

#define FW_LIST_ENTRY(link, type, member) FW_CONTAINER_OF(link, type, member)

/*
 * Walks the list from its first element. The body may not remove the element it stands on. At the
 * end `element` stands for the head, where there is no element and its alignment need not be: its
 * link is found by counting bytes, since even the address of a member would be undefined.
 * NOLINTBEGIN(bugprone-macro-parentheses): a type and a declared name take none.
 */
#define FW_LIST_FOR_EACH(list, type, member, element)                                   \
    for (type *element = FW_LIST_ENTRY((list)->head.next, type, member);                \
         (const char *)element + offsetof(type, member) != (const char *)&(list)->head; \
         element = FW_LIST_ENTRY(element->member.next, type, member))
/* NOLINTEND(bugprone-macro-parentheses) */
