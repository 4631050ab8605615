/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a head of the request scheduler and its policies: what to write for one more.
 *
 * A policy orders what waits; the head matches it with getters, keeps the promises of sched.h and
 * counts. So a policy is one table of functions, of which most may be missing:
 *
 *     static const struct fw_sched_policy lifo = {
 *         .name = "lifo", .lets_pass = true, .init = ..., .enqueue = ..., .dequeue = ...};
 *     fw_sched_init(&sched, &(struct fw_sched_config){.custom = &lifo});
 *
 * examples/shortest_first.c is a complete one.
 *
 * A policy that has no place for a request (its tables are full) leaves it to the head's plain
 * queue by answering false, so that handing in cannot fail whatever the policy. The head asks the
 * policy first and its own queue then, but every so often the other way round: neither starves.
 *
 * State: a policy's hangs on sched->state, made by init() and given back by fini(). A request's
 * `link` is the policy's while it has the request; the functions below put it on lists.
 *
 * Rules: a policy never calls back, and does not allocate but in init(). What it lets go of is
 * returned. It is called in its head's turn only. It may read of struct fw_sched: `state`,
 * `is_shut_down`, `now_ns` (the time, of interest to who asked for tenants) and `waiting_count`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/sched.h>
#include <fairway/types.h>

struct fw_sched_policy {
    const char *name;
    /* A request that finds none before it, and a getter, need not be shown to the policy. */
    bool lets_pass;
    /* It looks after what tenants are due, shedding included, and the time is to be looked up. */
    bool has_tenants;
    /* Makes the state; 0 or a negative errno. NULL: there is none. */
    int (*init)(struct fw_sched *sched);
    /* Gives it back; nothing waits in it. */
    void (*fini)(struct fw_sched *sched);
    /* Puts it in its place; false: there is none, the head keeps it. NULL: never has one. */
    bool (*enqueue)(struct fw_sched *sched, struct fw_sched_request *request);
    /*
     * The next, unlinked; NULL: none, or none that may go now. After a shutdown all may. If it is
     * given back, the head keeps it.
     */
    struct fw_sched_request *(*dequeue)(struct fw_sched *sched);
    /* One that it was given to place leaves: unlinks it. */
    void (*remove)(struct fw_sched *sched, struct fw_sched_request *request);
    /* Any that it has, unlinked, since another policy takes over; NULL: dequeue() will do. */
    struct fw_sched_request *(*evacuate)(struct fw_sched *sched);
    /* One that finds none before it, and a getter: it may go, and was charged. NULL: none may. */
    bool (*pass)(struct fw_sched *sched, const struct fw_sched_request *request);
    /* One that it dequeued or let pass has cost this, and not what its class says. */
    void (*charge)(struct fw_sched *sched, const struct fw_sched_request *request, uint32_t cost);
    /* dequeue() has just answered NULL: when will it not? INT64_MAX: with the next arrival. */
    int64_t (*ready_ns)(struct fw_sched *sched);
};

/* Lists of requests, by their links. A list is made before use. */
FW_PUBLIC void fw_sched_list_init(struct fw_list *list);
FW_PUBLIC void fw_sched_list_push(struct fw_list *list, struct fw_sched_request *request);
/* The first, unlinked; or NULL. */
FW_PUBLIC struct fw_sched_request *fw_sched_list_pop(struct fw_list *list);
/* Takes it off whichever list it is on. */
FW_PUBLIC void fw_sched_list_remove(struct fw_sched_request *request);
