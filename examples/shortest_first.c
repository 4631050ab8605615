/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy of one's own for the request scheduler: what costs least goes first.
 *
 *     shortest_first COST...
 *
 * Requests with these costs arrive at once at a server that does one at a time. The program serves
 * them once as they came and once by the policy below, and prints the order and how long they
 * waited on average. Shortest first waits least, which no other order can better; what is long may
 * starve, which is why the library's own policies do not do it.
 *
 * The policy sorts by powers of two: 32 lists, and a request is in the list of its cost's highest
 * bit. So each operation takes the same time however many wait, and nothing is allocated but once.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <fairway/sched.h>
#include <fairway/sched_policy.h>

enum { LISTS = 32, REQUESTS_MAX = 1000 };

/* ---- the policy ---------------------------------------------------------------------------- */

struct lists {
    struct fw_list of[LISTS];
};

static int shortest_init(struct fw_sched *sched)
{
    struct lists *lists = malloc(sizeof *lists);
    if (lists == NULL) {
        return -1;
    }
    for (int i = 0; i < LISTS; i++) {
        fw_sched_list_init(&lists->of[i]);
    }
    sched->state = lists;
    return 0;
}

static void shortest_fini(struct fw_sched *sched)
{
    free(sched->state);
}

static bool shortest_enqueue(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct lists *lists = sched->state;
    fw_sched_list_push(&lists->of[31 - __builtin_clz(request->class.cost | 1)], request);
    return true;
}

static struct fw_sched_request *shortest_dequeue(struct fw_sched *sched)
{
    struct lists *lists = sched->state;
    struct fw_sched_request *request = NULL;
    for (int i = 0; i < LISTS && request == NULL; i++) {
        request = fw_sched_list_pop(&lists->of[i]);
    }
    return request;
}

static void shortest_remove(struct fw_sched *sched, struct fw_sched_request *request)
{
    (void)sched;
    fw_sched_list_remove(request);
}

static const struct fw_sched_policy shortest_first = {
    .name = "shortest first",
    .lets_pass = true, /* Who is alone is the shortest. */
    .init = shortest_init,
    .fini = shortest_fini,
    .enqueue = shortest_enqueue,
    .dequeue = shortest_dequeue,
    .remove = shortest_remove,
};

/* ---- the server ---------------------------------------------------------------------------- */

struct server {
    struct fw_sched sched;
    struct fw_sched_getter getter;
    uint64_t now;    /* In units of cost. */
    uint64_t waited; /* Over all requests. */
};

/* Serves it, and asks for the next one: which comes when this has returned. */
static int serve(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    struct server *server = (struct server *)((char *)getter - offsetof(struct server, getter));
    if (request == NULL) {
        return 0;
    }
    printf(" %u", request->class.cost);
    server->waited += server->now;
    server->now += request->class.cost;
    fw_sched_get_next(&server->sched, getter);
    return 0;
}

static int run(const struct fw_sched_policy *policy, const char *name, char **costs, int count)
{
    static struct fw_sched_request requests[REQUESTS_MAX];
    struct server server = {.getter = {.ready = serve}};
    if (fw_sched_init(&server.sched, &(struct fw_sched_config){.custom = policy}) != 0) {
        return 1;
    }
    for (int i = 0; i < count; i++) {
        requests[i] = (struct fw_sched_request){
            .class = {.client = (uint32_t)i, .cost = (uint32_t)strtoul(costs[i], NULL, 10)}};
        fw_sched_incoming(&server.sched, &requests[i]);
    }
    printf("%s:", name);
    fw_sched_get_next(&server.sched, &server.getter);
    printf(", waited %.1f on average\n", (double)server.waited / count);
    fw_sched_shutdown(&server.sched);
    fw_sched_fini(&server.sched);
    return 0;
}

int main(int argc, char **argv)
{
    int count = argc - 1;
    if (count < 1 || count > REQUESTS_MAX) {
        (void)fprintf(stderr, "usage: shortest_first COST...\n");
        return 2;
    }
    int status = run(NULL, "as they came", argv + 1, count);
    return status != 0 ? status : run(&shortest_first, "shortest first", argv + 1, count);
}
