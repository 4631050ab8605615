/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master whose machine stands still for a while and goes on, wherever it was: when another one
 * has begun to serve, the old one says nothing more.
 *
 * A keeper, who stands for the cluster, renews the master's lease by messages that the master's
 * machine reads when it runs. At a time of its own the keeper stops, waits until the last lease
 * that it ever gave is over by its own clock, and makes the slave master, whose address may have
 * come long before. The first change that the new master acknowledges divides time: no answer of
 * the old master leaves after that, whether its machine stood still before the work, between work
 * and reply or not at all. Clients that only wait at the old master see their end.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/address.h"
#include "server/server.h"
#include "server/state.h"
#include "simulate/network.h"
#include "simulate/scenarios.h"

enum { SERVERS = 2, OLD = 0, NEW = 1, NODE_KEEPER = 3, NODE_CLIENTS = 4, LINE_MAX = 128 };

#define LEASE_NS   (500 * SIM_MS)
#define SETTLE_NS  (60 * SIM_S)
#define ARRIVES_NS (5 * SIM_MS) /* Far longer than anything is on its way in mild weather. */

static struct {
    struct fw_server *servers[SERVERS];
    struct fw_thread threads[SERVERS];
    struct fw_thread readers[SERVERS]; /* Of the keeper's messages. */
    int64_t letters[SERVERS];          /* The last of them; 0: none is there. */
    int64_t last_ns;                   /* The end of the last lease of the old master. */
    bool is_keeping[SERVERS];
    int64_t changed_ns; /* When the new master's first answer was there; 0: not yet. */
    uint32_t answers;   /* Of the old one. */
    uint32_t freezes;   /* Of the old one's machine. */
    bool is_idler_gone; /* It has seen the end of its connection. */
    bool is_quiet;      /* Nobody asks the old one when its lease is no longer renewed. */
    bool is_over;
} world;

/* ---- servers ------------------------------------------------------------------------------- */

static void server_run(void *argument)
{
    (void)fw_server_run(argument);
}

/* A process of the server's machine: passes on what the keeper has sent, late if it stood still. */
static void letters_read(void *argument)
{
    const uint32_t number = (uint32_t)((struct fw_server **)argument - world.servers);
    while (!world.is_over) {
        sim_sleep(sim_between(1, 20) * SIM_MS);
        int64_t until = world.letters[number];
        world.letters[number] = 0;
        if (until != 0) {
            int rc = fw_lease_renew(&world.servers[number]->replication.lease, until);
            SIM_EXPECT(rc == 0 || rc == -ESTALE);
            fw_reactor_wake(world.servers[number]->reactor);
        }
    }
}

static void server_start(uint32_t number)
{
    static const char *listens[] = {"10.0.0.1:11211", "10.0.0.2:11211"};
    static const char *machines[] = {"10.0.0.1", "10.0.0.2"};
    struct fw_server_config config = {
        .listen = {.items = &listens[number], .count = 1},
        .memory = 4 << 20,
        .item_size = 1 << 20,
        .connections = 100,
        .backlog = 100,
        .turn_commands = 5,
        .threads = 1,
        .drain_ns = SIM_S,
        .lease = {.limit_ns = LEASE_NS},
        .repl = {.is_enabled = true,
                 .listen = {.items = &machines[number], .count = 1},
                 .admit = {.items = machines, .count = SERVERS},
                 .port = 11213,
                 .master = machines[1 - number],
                 .role = number == OLD ? FW_REPL_ROLE_MASTER : FW_REPL_ROLE_SLAVE,
                 .backlog = FW_CHANGES_SIZE_MIN,
                 .slaves = 4,
                 .timeout_ns = 3 * SIM_S,
                 .retry_ns = 100 * SIM_MS},
    };
    struct fw_reason reason;
    uint32_t node = sim_node();
    sim_node_set(number + 1);
    int rc = fw_server_create(&world.servers[number], &config, &reason);
    if (rc != 0) {
        sim_fail("server %u did not start: %s", number, reason.text);
    }
    rc = fw_thread_create(&world.threads[number], "server", server_run, world.servers[number]);
    FW_ASSERT(rc == 0);
    rc = fw_thread_create(&world.readers[number], "letters", letters_read, &world.servers[number]);
    FW_ASSERT(rc == 0);
    sim_node_set(node);
}

static enum fw_replication_stage stage_of(uint32_t number)
{
    return fw_replication_stage(&world.servers[number]->replication);
}

/* ---- clients, which wait for each answer --------------------------------------------------- */

static struct sim_socket *wire_connect(uint32_t server)
{
    char text[32];
    struct fw_address address;
    (void)snprintf(text, sizeof text, "10.0.0.%u:11211", server + 1);
    int count = fw_address_parse(text, 0, 0, &address, 1, NULL);
    FW_ASSERT(count == 1);
    struct sim_socket *socket = sim_socket_connect(&address);
    while (socket->peer == NULL && socket->error == 0 && !world.is_over) {
        sim_sleep(SIM_MS);
    }
    if (socket->peer == NULL) {
        sim_socket_close(socket);
        return NULL;
    }
    return socket;
}

/* Asks, and waits for as long as it takes. False: the server has closed, or is a slave. */
static bool wire_ask(struct sim_socket *socket, const char *question, const char *answer)
{
    char line[LINE_MAX];
    size_t length = 0;
    struct iovec piece = {.iov_base = (void *)(uintptr_t)question, .iov_len = strlen(question)};
    if (sim_socket_send(socket, &piece, 1) != (ssize_t)piece.iov_len) {
        return false;
    }
    while (length < strlen(answer) && !world.is_over) {
        ssize_t received = sim_socket_receive(socket, line + length, sizeof line - length);
        if (received == -EAGAIN) {
            sim_sleep(SIM_MS);
        } else if (received <= 0) {
            return false;
        } else {
            length += (size_t)received;
        }
    }
    static const char slaves[] = "SERVER_ERROR this server is a slave";
    size_t compared = length < sizeof slaves - 1 ? length : sizeof slaves - 1;
    if (world.is_over || (compared > 0 && memcmp(line, slaves, compared) == 0)) {
        return false;
    }
    SIM_EXPECT(length == strlen(answer) && memcmp(line, answer, length) == 0);
    return true;
}

/* Changes something at the old master, over and over. */
static void old_writer_run(void *argument)
{
    (void)argument;
    while (!world.is_over && (world.is_keeping[OLD] || !world.is_quiet)) {
        struct sim_socket *socket = wire_connect(OLD);
        while (socket != NULL && wire_ask(socket, "set b 0 0 1\r\n2\r\n", "STORED\r\n")) {
            if (world.changed_ns != 0 && sim_now() > world.changed_ns + ARRIVES_NS) {
                sim_fail("the old master answers %lld us after the new one",
                         (long long)((sim_now() - world.changed_ns) / SIM_US));
            }
            world.answers++;
            if (world.is_quiet && !world.is_keeping[OLD]) {
                break;
            }
            sim_sleep(sim_between(0, 10) * SIM_MS);
        }
        if (socket != NULL) {
            sim_socket_close(socket);
        }
        sim_sleep(10 * SIM_MS);
    }
}

/* Changes something at the new master as soon as that answers. */
static void writer_run(void *argument)
{
    (void)argument;
    while (!world.is_over && world.changed_ns == 0) {
        struct sim_socket *socket = wire_connect(NEW);
        if (socket != NULL) {
            if (wire_ask(socket, "set a 0 0 1\r\n1\r\n", "STORED\r\n")) {
                SIM_EXPECT(world.is_keeping[NEW]); /* Not without a lease. */
                world.changed_ns = sim_now();
            }
            sim_socket_close(socket);
        }
        sim_sleep(SIM_MS);
    }
}

/* Says nothing at the old master, and waits for its end. */
static void idler_run(void *argument)
{
    (void)argument;
    char byte;
    struct sim_socket *socket = NULL;
    while (socket == NULL) {
        socket = wire_connect(OLD);
        if (socket != NULL && !wire_ask(socket, "mn\r\n", "MN\r\n")) {
            sim_socket_close(socket); /* It had no lease yet. */
            socket = NULL;
        }
    }
    while (sim_socket_receive(socket, &byte, 1) == -EAGAIN) {
        SIM_EXPECT(!world.is_over);
        sim_sleep(SIM_MS);
    }
    sim_socket_close(socket);
    world.is_idler_gone = true;
}

/* ---- the keeper ---------------------------------------------------------------------------- */

static void keeper_run(void *argument)
{
    (void)argument;
    while (!world.is_over) {
        for (uint32_t i = 0; i < SERVERS; i++) {
            if (world.is_keeping[i]) {
                world.letters[i] = sim_now() + LEASE_NS;
                world.last_ns = i == OLD ? world.letters[i] : world.last_ns;
            }
        }
        sim_sleep(sim_between(50, 150) * SIM_MS);
    }
}

static void wait_until(bool (*is_there)(void), const char *what)
{
    int64_t deadline = sim_now() + SETTLE_NS;
    while (!is_there()) {
        if (sim_now() > deadline) {
            sim_fail("waited in vain: %s", what);
        }
        sim_sleep(SIM_MS);
    }
}

static bool is_serving(void)
{
    return world.answers > 3;
}

static bool is_following(void)
{
    const struct fw_repl_followed *followed = &world.servers[NEW]->replication.repl.followed;
    return atomic_load(&followed->state) == FW_REPL_FOLLOW_STREAMING &&
           !atomic_load(&followed->is_torn);
}

static bool has_changed(void)
{
    return world.changed_ns != 0;
}

static bool is_idler_gone(void)
{
    return world.is_idler_gone;
}

static bool is_lease_over(void)
{
    return sim_now() >= world.last_ns;
}

static void master_wish(uint32_t number, enum fw_repl_role role)
{
    int rc = fw_replication_wish(world.servers[number], role, true);
    SIM_EXPECT(rc == 0);
}

/* Until a request is being served, if that happens soon: between work and reply, perhaps. */
static void wait_for_work(void)
{
    for (int i = 0; i < 20000 && world.servers[OLD]->cores[0]->serving == NULL; i++) {
        sim_sleep(SIM_US);
    }
}

/* The machine of the old master stands still for a while, or not. */
static void freeze_run(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < world.freezes && !world.is_over; i++) {
        sim_sleep(sim_between(0, 300000) * SIM_US);
        if (sim_chance(2)) {
            wait_for_work();
        }
        sim_node_freeze(OLD + 1);
        sim_sleep(sim_between(0, 3000) * SIM_MS);
        sim_node_thaw(OLD + 1);
    }
}

static void run(void)
{
    struct fw_thread clients[3], keeper, freezer;
    static void (*const runs[])(void *) = {old_writer_run, writer_run, idler_run};
    memset(&world, 0, sizeof world);
    sim_weather_mild();
    world.is_quiet = sim_chance(3);
    world.freezes = (uint32_t)sim_between(0, 3);
    for (uint32_t i = 0; i < SERVERS; i++) {
        server_start(i);
    }
    world.is_keeping[OLD] = true;
    sim_node_set(NODE_KEEPER);
    int rc = fw_thread_create(&keeper, "keeper", keeper_run, NULL);
    FW_ASSERT(rc == 0);
    sim_node_set(NODE_CLIENTS);
    for (uint32_t i = 0; i < FW_ARRAY_LENGTH(runs); i++) {
        rc = fw_thread_create(&clients[i], "client", runs[i], NULL);
        FW_ASSERT(rc == 0);
    }
    sim_node_set(0);
    wait_until(is_serving, "the first master to serve");
    wait_until(is_following, "the slave to have everything");
    rc = fw_thread_create(&freezer, "freezer", freeze_run, NULL);
    FW_ASSERT(rc == 0);
    if (sim_chance(2)) { /* The address comes before the lease. */
        master_wish(NEW, FW_REPL_ROLE_MASTER);
    }
    sim_sleep(sim_between(0, 1000) * SIM_MS);
    world.is_keeping[OLD] = false;
    wait_until(is_lease_over, "the end of the last lease");
    SIM_EXPECT(stage_of(NEW) == FW_REPLICATION_SLAVE);
    if (world.freezes == 0) {
        wait_until(is_idler_gone, "the old master to drop a client");
    }
    world.is_keeping[NEW] = true;
    master_wish(NEW, FW_REPL_ROLE_MASTER);
    wait_until(has_changed, "the second master to serve");
    fw_thread_join(&freezer);
    sim_sleep(200 * SIM_MS); /* Clients of the old master have seen their end by now. */
    world.is_over = true;
    for (uint32_t i = 0; i < FW_ARRAY_LENGTH(runs); i++) {
        fw_thread_join(&clients[i]);
    }
    fw_thread_join(&keeper);
    for (uint32_t i = 0; i < SERVERS; i++) {
        fw_thread_join(&world.readers[i]);
        fw_server_stop(world.servers[i]);
        fw_thread_join(&world.threads[i]);
        fw_server_destroy(world.servers[i]);
    }
}

const struct sim_scenario sim_scenario_lease = {
    .name = "lease",
    .purpose = "a master that stood still is silent once another serves",
    .run = run,
};
