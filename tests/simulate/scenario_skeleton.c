/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walking skeleton served through the simulated network.
 *
 * One fibre runs the server as `fairway serve` does. Another drives many clients, each with keys of
 * its own, so that each knows what it must read: the value of its last acknowledged set, or, if a
 * set was under way when the connection broke, that one's or the one before. Nothing else is
 * acceptable: not a miss, not another client's value, not half a reply.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "base/wheel.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/reactor.h"
#include "server/server.h"
#include "simulate/network.h"
#include "simulate/scenarios.h"

enum {
    CLIENTS_MAX = 1000,
    KEYS = 3,             /* Of each client. */
    VALUE_SIZE_MAX = 600, /* More than one reply buffer's reserve, less than a test's patience. */
    REPLY_MAX = 1024,
    NODE_SERVER = 1,
    NODE_CLIENTS = 2,
    NODE_STRANGERS = 3,
    ALARM_TICK_BITS = 10, /* About a microsecond. */
};

#define PATIENCE_NS (30 * SIM_S)

static struct shape {
    uint32_t clients;
    uint32_t requests; /* Of each client. */
    int64_t think_max_ns;
    bool faults;
} shape;

struct key {
    uint32_t acknowledged; /* Version of the last set that was answered; 0: none. */
    uint32_t sent;         /* Version of the last set that was begun. */
};

struct client {
    struct fw_stream stream;
    uint32_t number;
    bool open;
    bool thinking;
    struct fw_timer alarm; /* It has thought, or waited for a reply, long enough. */
    uint32_t done;         /* Requests. */
    uint32_t key;          /* The one the request is about. */
    bool is_set;
    struct key keys[KEYS];
    char request[VALUE_SIZE_MAX + 64];
    struct iovec unsent;
    char reply[REPLY_MAX];
    size_t reply_length;
};

static struct fw_server *server;
static struct fw_reactor *reactor;
static struct fw_wheel wheel;
static struct client *clients;
static uint32_t clients_left;

/* The value of a version of a key: its name over and over, so that a mix-up is seen. */
static size_t value_make(const struct client *client, uint32_t key, uint32_t version, char *value)
{
    char word[48];
    int length = snprintf(word, sizeof word, "<%u/%u/%u>", client->number, key, version);
    size_t size = (client->number * 7 + version * 131) % VALUE_SIZE_MAX + 1;
    for (size_t done = 0; done < size; done += (size_t)length) {
        size_t left = size - done;
        memcpy(value + done, word, left < (size_t)length ? left : (size_t)length);
    }
    return size;
}

static void client_closed(struct fw_stream *stream);
static void client_connected(struct fw_stream *stream, int result);
static void client_broken(struct client *client, ssize_t error);
static void client_readable(struct fw_stream *stream);
static void client_received(struct fw_stream *stream, ssize_t result);
static void client_sent(struct fw_stream *stream, ssize_t result);

static const struct fw_stream_events client_events = {
    .readable = client_readable,
    .received = client_received,
    .sent = client_sent,
    .connected = client_connected,
    .closed = client_closed,
};

static struct client *client_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct client, stream);
}

static void client_think(struct client *client)
{
    client->thinking = true;
    fw_wheel_start(&wheel, &client->alarm, sim_now() + sim_between(0, shape.think_max_ns));
}

static void client_connect(struct client *client)
{
    memset(&client->stream, 0, sizeof client->stream);
    int rc =
        fw_stream_connect(&client->stream, reactor, fw_server_address(server, 0), &client_events);
    SIM_EXPECT(rc == -EINPROGRESS);
    client->open = true;
    fw_wheel_start(&wheel, &client->alarm, sim_now() + PATIENCE_NS);
}

static void client_connected(struct fw_stream *stream, int result)
{
    if (result != 0) {
        client_broken(client_of(stream), result);
        return;
    }
    client_think(client_of(stream));
}

/* The connection is gone. With requests left the client thinks, and connects again. */
static void client_closed(struct fw_stream *stream)
{
    struct client *client = client_of(stream);
    client->open = false;
    (void)fw_wheel_cancel(&wheel, &client->alarm);
    if (client->done == shape.requests) {
        clients_left--;
        client->thinking = false;
    } else {
        client_think(client);
    }
}

static void client_broken(struct client *client, ssize_t error)
{
    if (!shape.faults) {
        sim_fail("client %u lost its connection: %zd", client->number, error);
    }
    (void)fw_wheel_cancel(&wheel, &client->alarm);
    fw_stream_close(&client->stream);
}

static void client_send(struct client *client)
{
    while (client->unsent.iov_len > 0) {
        ssize_t result = fw_stream_send(&client->stream, &client->unsent, 1);
        if (result == -EINPROGRESS) {
            return;
        }
        if (result < 0) {
            client_broken(client, result);
            return;
        }
        client->unsent.iov_base = (char *)client->unsent.iov_base + result;
        client->unsent.iov_len -= (size_t)result;
    }
    fw_stream_wait(&client->stream);
}

static void client_sent(struct fw_stream *stream, ssize_t result)
{
    struct client *client = client_of(stream);
    if (result < 0) {
        client_broken(client, result);
        return;
    }
    client->unsent.iov_base = (char *)client->unsent.iov_base + result;
    client->unsent.iov_len -= (size_t)result;
    client_send(client);
}

static void client_begin(struct client *client)
{
    client->key = (uint32_t)sim_between(0, KEYS - 1);
    struct key *key = &client->keys[client->key];
    client->is_set = key->sent == 0 || sim_chance(3);
    int length;
    if (client->is_set) {
        char value[VALUE_SIZE_MAX];
        key->sent++;
        size_t size = value_make(client, client->key, key->sent, value);
        length =
            snprintf(client->request, sizeof client->request, "set k-%u-%u %u 0 %zu\r\n%.*s\r\n",
                     client->number, client->key, key->sent, size, (int)size, value);
    } else {
        length = snprintf(client->request, sizeof client->request, "get k-%u-%u\r\n",
                          client->number, client->key);
    }
    client->unsent = (struct iovec){.iov_base = client->request, .iov_len = (size_t)length};
    client->reply_length = 0;
    fw_wheel_start(&wheel, &client->alarm, sim_now() + PATIENCE_NS);
    client_send(client);
}

/* Is the reply to a get exactly that version? */
static bool reply_is(const struct client *client, uint32_t version)
{
    char expected[REPLY_MAX];
    char value[VALUE_SIZE_MAX];
    size_t size = value_make(client, client->key, version, value);
    int length = snprintf(expected, sizeof expected, "VALUE k-%u-%u %u %zu\r\n%.*s\r\nEND\r\n",
                          client->number, client->key, version, size, (int)size, value);
    return (size_t)length == client->reply_length &&
           memcmp(expected, client->reply, client->reply_length) == 0;
}

static bool reply_ends_with(const struct client *client, const char *text)
{
    size_t length = strlen(text);
    return client->reply_length >= length &&
           memcmp(client->reply + client->reply_length - length, text, length) == 0;
}

/* A complete reply must be one of those that the client's history allows. */
static void client_check(struct client *client)
{
    struct key *key = &client->keys[client->key];
    if (client->is_set) {
        SIM_EXPECT(client->reply_length == strlen("STORED\r\n"));
        key->acknowledged = key->sent;
        return;
    }
    bool allowed = key->acknowledged == 0 && client->reply_length == strlen("END\r\n");
    for (uint32_t version = key->acknowledged > 0 ? key->acknowledged : 1;
         version <= key->sent && !allowed; version++) {
        allowed = reply_is(client, version);
    }
    if (!allowed) {
        sim_fail("client %u key %u: acknowledged %u, sent %u, got %.*s", client->number,
                 client->key, key->acknowledged, key->sent, (int)client->reply_length,
                 client->reply);
    }
}

static void client_readable(struct fw_stream *stream)
{
    struct client *client = client_of(stream);
    SIM_EXPECT(client->reply_length < REPLY_MAX);
    ssize_t result = fw_stream_receive(stream, client->reply + client->reply_length,
                                       REPLY_MAX - client->reply_length);
    if (result != -EINPROGRESS) {
        client_received(stream, result);
    }
}

static void client_received(struct fw_stream *stream, ssize_t result)
{
    struct client *client = client_of(stream);
    if (result <= 0) {
        client_broken(client, result);
        return;
    }
    client->reply_length += (size_t)result;
    if (!reply_ends_with(client, client->is_set ? "STORED\r\n" : "END\r\n")) {
        fw_stream_wait(stream);
        return;
    }
    client_check(client);
    client->done++;
    if (client->done == shape.requests) {
        (void)fw_wheel_cancel(&wheel, &client->alarm);
        fw_stream_close(stream);
    } else {
        client_think(client);
    }
}

static void client_alarm(struct fw_timer *alarm)
{
    struct client *client = FW_CONTAINER_OF(alarm, struct client, alarm);
    if (!client->thinking) {
        client_broken(client, -ETIMEDOUT); /* Half-open: nobody will ever answer. */
        return;
    }
    client->thinking = false;
    if (client->open) {
        client_begin(client);
    } else {
        client_connect(client);
    }
}

static void clients_run(void *argument)
{
    (void)argument;
    sim_node_set(NODE_CLIENTS);
    struct fw_reason reason;
    int rc = fw_reactor_create(&reactor, &reason);
    FW_ASSERT(rc == 0);
    clients = calloc(shape.clients, sizeof *clients);
    FW_ASSERT(clients != NULL);
    clients_left = shape.clients;
    fw_wheel_init(&wheel, ALARM_TICK_BITS, sim_now());
    for (uint32_t i = 0; i < shape.clients; i++) {
        clients[i].number = i;
        fw_timer_init(&clients[i].alarm, client_alarm);
        client_think(&clients[i]);
    }
    while (clients_left > 0) {
        (void)fw_wheel_advance(&wheel, sim_now());
        int64_t next_ns = fw_wheel_next(&wheel);
        int64_t left_ns = next_ns > sim_now() ? next_ns - sim_now() : 0;
        (void)fw_reactor_poll(reactor, next_ns == FW_WHEEL_NEVER ? -1 : left_ns);
    }
    fw_wheel_fini(&wheel);
    fw_reactor_destroy(reactor);
    free(clients);
}

static void server_run(void *argument)
{
    (void)argument;
    fw_server_run(server);
}

/*
 * Clients that ask and ask, read nothing, stop in the middle of a request and then die without a
 * word: slow readers that become half-open connections, which stay with the server until it stops.
 */
static void strangers_come_and_die(void)
{
    static char words[] = "get k-0-0\r\nget k-0-1\r\nset k-0-0 0 0 5\r\nhal";
    struct iovec piece = {.iov_base = words, .iov_len = sizeof words - 1};
    sim_node_set(NODE_STRANGERS);
    for (int64_t i = sim_between(1, 4); i > 0; i--) {
        struct sim_socket *stranger = sim_socket_connect(fw_server_address(server, 0));
        sim_sleep(2 * sim_weather.delay_max_ns);
        for (int64_t n = sim_between(0, 20); n > 0; n--) {
            (void)sim_socket_send(stranger, &piece, 1);
        }
    }
    sim_sleep(sim_between(0, 500) * SIM_MS);
    sim_network_crash(NODE_STRANGERS);
}

/* Lets strangers in, and cuts the network now and then while clients are left. */
static void faults_run(void *argument)
{
    (void)argument;
    if (sim_chance(2)) {
        strangers_come_and_die();
    }
    uint32_t cuts = (uint32_t)sim_between(0, 4);
    for (uint32_t i = 0; i < cuts && clients_left > 0; i++) {
        sim_sleep(sim_between(1, 2000) * SIM_MS);
        sim_network_cut(NODE_SERVER, NODE_CLIENTS);
        sim_sleep(sim_between(1, 40000) * SIM_MS);
        sim_network_heal(NODE_SERVER, NODE_CLIENTS);
    }
}

static void run(struct shape with)
{
    shape = with;
    const char *listen[] = {"10.0.0.1:11211"};
    struct fw_server_config config = {.listen = {.items = listen, .count = 1},
                                      .memory = 64 << 20,
                                      .item_size = 1 << 20,
                                      .connections = 4 * CLIENTS_MAX,
                                      .backlog = 1024};
    sim_node_set(NODE_SERVER);
    struct fw_reason reason;
    int rc = fw_server_create(&server, &config, &reason);
    if (rc != 0) {
        sim_fail("the server did not start: %s", reason.text);
    }
    struct fw_thread serving, driving, faults;
    rc = fw_thread_create(&serving, "server", server_run, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_thread_create(&driving, "clients", clients_run, NULL);
    FW_ASSERT(rc == 0);
    if (shape.faults) {
        rc = fw_thread_create(&faults, "faults", faults_run, NULL);
        FW_ASSERT(rc == 0);
    }
    fw_thread_join(&driving);
    if (shape.faults) {
        fw_thread_join(&faults);
    }
    fw_server_stop(server);
    fw_thread_join(&serving);
    fw_server_destroy(server);
}

static void calm_run(void)
{
    run((struct shape){.clients = CLIENTS_MAX, .requests = 20, .think_max_ns = 2 * SIM_S});
}

const struct sim_scenario sim_scenario_skeleton = {
    .name = "skeleton",
    .purpose = "1,000 connections in mild weather; every reply is the right one",
    .run = calm_run,
};

static void stormy_run(void)
{
    sim_weather_draw();
    run((struct shape){.clients = (uint32_t)sim_between(1, 40),
                       .requests = 30,
                       .think_max_ns = 100 * SIM_MS,
                       .faults = true});
}

const struct sim_scenario sim_scenario_skeleton_faults = {
    .name = "skeleton-faults",
    .purpose = "short transfers, resets, cuts, small windows; no wrong reply, nothing stuck",
    .run = stormy_run,
};
