/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/network.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "simulate/sim.h"

enum {
    SOCKETS_MAX = 1 << 16,
    FD_FIRST = 1000000, /* Far from real descriptors, so that a mix-up shows. */
    PORT_FIRST = 40000,
    RETRY_MS_MAX = 200,
};

struct sim_network_weather sim_weather;

static struct network {
    struct sim_socket *sockets[SOCKETS_MAX];
    uint32_t count;
    uint16_t next_port;
    bool cut[SIM_NODES_MAX][SIM_NODES_MAX];
} network;

void sim_weather_mild(void)
{
    sim_weather = (struct sim_network_weather){.delay_min_ns = 50 * SIM_US,
                                               .delay_max_ns = 500 * SIM_US,
                                               .window_min = 64 << 10,
                                               .window_max = 64 << 10};
}

void sim_weather_draw(void)
{
    sim_weather_mild();
    if (sim_chance(2)) {
        sim_weather.delay_max_ns = sim_between(1, 100) * SIM_MS;
    }
    if (sim_chance(2)) {
        sim_weather.reset_one_in = (uint32_t)sim_between(20, 500);
    }
    if (sim_chance(2)) {
        sim_weather.short_one_in = (uint32_t)sim_between(1, 8);
    }
    if (sim_chance(2)) {
        sim_weather.later_one_in = (uint32_t)sim_between(1, 4);
    }
    if (sim_chance(2)) {
        sim_weather.window_min = 1;
        sim_weather.window_max = (size_t)sim_between(2, 4096);
    }
}

void sim_network_begin(void)
{
    FW_ASSERT(network.count == 0);
    memset(network.cut, 0, sizeof network.cut);
    network.next_port = PORT_FIRST;
    sim_weather_mild();
}

void sim_network_end(void)
{
    for (uint32_t i = 0; i < network.count; i++) {
        struct sim_socket *socket = network.sockets[i];
        if (!socket->closed && !socket->crashed) {
            sim_fail("socket %d of node %u was never closed", socket->fd, socket->node);
        }
        free(socket->bytes);
        free(socket);
    }
    network.count = 0;
}

static bool is_cut(uint32_t node, uint32_t other)
{
    return network.cut[node][other];
}

void sim_network_cut(uint32_t node, uint32_t other)
{
    sim_trace("network: cut between node %u and node %u", node, other);
    network.cut[node][other] = true;
    network.cut[other][node] = true;
}

void sim_network_heal(uint32_t node, uint32_t other)
{
    sim_trace("network: healed between node %u and node %u", node, other);
    network.cut[node][other] = false;
    network.cut[other][node] = false;
}

void sim_network_crash(uint32_t node)
{
    sim_trace("network: node %u is dead", node);
    for (uint32_t i = 0; i < network.count; i++) {
        if (network.sockets[i]->node == node) {
            network.sockets[i]->crashed = true;
        }
    }
}

static struct sim_socket *socket_new(uint32_t node)
{
    FW_ASSERT(network.count < SOCKETS_MAX);
    struct sim_socket *made = calloc(1, sizeof *made);
    FW_ASSERT(made != NULL);
    made->fd = FD_FIRST + (int)network.count;
    made->node = node;
    made->capacity =
        (size_t)sim_between((int64_t)sim_weather.window_min, (int64_t)sim_weather.window_max);
    made->bytes = malloc(made->capacity);
    FW_ASSERT(made->bytes != NULL);
    fw_list_init(&made->accepted);
    network.sockets[network.count++] = made;
    return made;
}

struct sim_socket *sim_socket_get(int fd)
{
    FW_ASSERT(fd >= FD_FIRST && (uint32_t)(fd - FD_FIRST) < network.count);
    struct sim_socket *socket = network.sockets[fd - FD_FIRST];
    if (socket->closed) {
        sim_fail("descriptor %d is used after it was closed", fd);
    }
    return socket;
}

static void socket_tell(struct sim_socket *socket)
{
    if (!socket->closed && !socket->crashed && socket->changed != NULL) {
        socket->changed(socket);
    }
}

static void socket_break(struct sim_socket *socket, int error)
{
    if (socket->error == 0) {
        socket->error = error;
        socket_tell(socket);
    }
}

struct sim_socket *sim_event_new(void)
{
    return socket_new(sim_node());
}

void sim_event_signal(struct sim_socket *event)
{
    socket_tell(event);
}

/* ---- listening and connecting ---- */

static struct sim_socket *listener_find(const struct fw_address *address)
{
    for (uint32_t i = 0; i < network.count; i++) {
        struct sim_socket *socket = network.sockets[i];
        if (socket->listening && !socket->closed && !socket->crashed &&
            fw_address_equal(&socket->address, address)) {
            return socket;
        }
    }
    return NULL;
}

struct sim_socket *sim_socket_listen(const struct fw_address *address)
{
    struct fw_address wanted = *address;
    if (wanted.any.sa_family == AF_INET && wanted.ipv4.sin_port == 0) {
        wanted.ipv4.sin_port = htons(network.next_port++);
    }
    if (listener_find(&wanted) != NULL) {
        return NULL;
    }
    struct sim_socket *socket = socket_new(sim_node());
    socket->address = wanted;
    socket->listening = true;
    return socket;
}

struct sim_socket *sim_socket_accept(struct sim_socket *listener)
{
    struct fw_list_link *link = fw_list_pop_front(&listener->accepted);
    return link == NULL ? NULL : FW_LIST_ENTRY(link, struct sim_socket, accepted_link);
}

static int64_t delay_draw(void)
{
    return sim_between(sim_weather.delay_min_ns, sim_weather.delay_max_ns);
}

static void connect_arrives(void *context, uint64_t tries)
{
    struct sim_socket *client = context;
    if (client->closed || client->crashed) {
        return;
    }
    struct sim_socket *listener = listener_find(&client->address);
    if (listener != NULL && is_cut(client->node, listener->node)) {
        if (tries == 0) {
            socket_break(client, -ETIMEDOUT);
            return;
        }
        sim_at(sim_now() + SIM_S, connect_arrives, client, tries - 1);
        return;
    }
    if (listener == NULL) {
        socket_break(client, -ECONNREFUSED);
        return;
    }
    struct sim_socket *server = socket_new(listener->node);
    server->address = client->address;
    server->peer = client;
    client->peer = server;
    fw_list_push_back(&listener->accepted, &server->accepted_link);
    socket_tell(listener);
    socket_tell(client);
}

struct sim_socket *sim_socket_connect(const struct fw_address *address)
{
    struct sim_socket *client = socket_new(sim_node());
    client->address = *address;
    sim_at(sim_now() + delay_draw(), connect_arrives, client, SIM_NETWORK_PATIENCE_NS / SIM_S);
    return client;
}

/* ---- bytes ---- */

/* What travels: `number` bytes to `context`, or, for 0, the end of the stream. */
static void segment_arrives(void *context, uint64_t number)
{
    struct sim_socket *socket = context;
    struct sim_socket *sender = socket->peer;
    if (socket->closed || socket->error != 0) {
        return;
    }
    if (is_cut(sender->node, socket->node)) {
        if (sender->waiting_since_ns == 0) {
            sender->waiting_since_ns = sim_now();
        } else if (sim_now() - sender->waiting_since_ns > SIM_NETWORK_PATIENCE_NS) {
            socket_break(sender, -ETIMEDOUT);
            return;
        }
        socket->last_arrival_ns = sim_now() + sim_between(1, RETRY_MS_MAX) * SIM_MS;
        sim_at(socket->last_arrival_ns, segment_arrives, socket, number);
        return;
    }
    sender->waiting_since_ns = 0;
    if (socket->crashed) {
        return; /* Into the void. */
    }
    if (number > 0 && sim_weather.reset_one_in > 0 && sim_chance(sim_weather.reset_one_in)) {
        sim_trace("network: reset between %d and %d", socket->fd, sender->fd);
        socket_break(socket, -ECONNRESET);
        socket_break(sender, -ECONNRESET);
        return;
    }
    if (number == 0) {
        socket->end_arrived = true;
    } else {
        socket->arrived += number;
        FW_ASSERT(socket->arrived <= socket->sent);
    }
    socket_tell(socket);
}

/* Segments of one direction never overtake each other: a later one leaves no earlier. */
static void segment_send(struct sim_socket *to, uint64_t number)
{
    int64_t arrival_ns = sim_now() + delay_draw();
    if (arrival_ns < to->last_arrival_ns) {
        arrival_ns = to->last_arrival_ns;
    }
    to->last_arrival_ns = arrival_ns;
    sim_at(arrival_ns, segment_arrives, to, number);
}

static size_t maybe_fewer(size_t size)
{
    if (size > 1 && sim_weather.short_one_in > 0 && sim_chance(sim_weather.short_one_in)) {
        return (size_t)sim_between(1, (int64_t)size);
    }
    return size;
}

static void bytes_copy_in(struct sim_socket *to, const char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t tail = (to->head + to->sent) % to->capacity;
        size_t run = to->capacity - tail < size - done ? to->capacity - tail : size - done;
        memcpy(to->bytes + tail, data + done, run);
        to->sent += run;
        done += run;
    }
}

ssize_t sim_socket_send(struct sim_socket *socket, const struct iovec *vector, int count)
{
    struct sim_socket *to = socket->peer;
    if (socket->error != 0) {
        return socket->error;
    }
    if (to == NULL) {
        return -EAGAIN;
    }
    if (to->closed) {
        socket_break(socket, -EPIPE);
        return socket->error;
    }
    size_t wanted = 0;
    for (int i = 0; i < count; i++) {
        wanted += vector[i].iov_len;
    }
    size_t room = to->capacity - to->sent;
    if (room == 0) {
        return -EAGAIN;
    }
    size_t size = maybe_fewer(wanted < room ? wanted : room);
    size_t left = size;
    for (int i = 0; i < count && left > 0; i++) {
        size_t part = vector[i].iov_len < left ? vector[i].iov_len : left;
        bytes_copy_in(to, vector[i].iov_base, part);
        left -= part;
    }
    segment_send(to, size);
    return (ssize_t)size;
}

ssize_t sim_socket_receive(struct sim_socket *socket, void *buffer, size_t size)
{
    if (socket->error != 0) {
        return socket->error;
    }
    if (socket->arrived == 0) {
        return socket->end_arrived ? 0 : -EAGAIN;
    }
    size_t take = maybe_fewer(socket->arrived < size ? socket->arrived : size);
    for (size_t done = 0; done < take;) {
        size_t left = take - done;
        size_t run =
            socket->capacity - socket->head < left ? socket->capacity - socket->head : left;
        memcpy((char *)buffer + done, socket->bytes + socket->head, run);
        socket->head = (socket->head + run) % socket->capacity;
        done += run;
    }
    bool was_full = socket->sent == socket->capacity;
    socket->sent -= take;
    socket->arrived -= take;
    if (was_full && socket->peer != NULL) {
        socket_tell(socket->peer); /* It may send again. */
    }
    return (ssize_t)take;
}

bool sim_socket_readable(const struct sim_socket *socket)
{
    return socket->error != 0 || socket->arrived > 0 || socket->end_arrived ||
           !fw_list_is_empty(&socket->accepted);
}

bool sim_socket_writable(const struct sim_socket *socket)
{
    return socket->error != 0 ||
           (socket->peer != NULL &&
            (socket->peer->closed || socket->peer->sent < socket->peer->capacity));
}

void sim_socket_shutdown(struct sim_socket *socket)
{
    struct sim_socket *to = socket->peer;
    if (to != NULL && !to->end_sent && socket->error == 0) {
        to->end_sent = true;
        segment_send(to, 0);
    }
}

void sim_socket_close(struct sim_socket *socket)
{
    if (socket->closed) {
        sim_fail("descriptor %d is closed twice", socket->fd);
    }
    sim_socket_shutdown(socket);
    socket->closed = true;
    while (!fw_list_is_empty(&socket->accepted)) { /* Nobody will take them now. */
        struct sim_socket *waiting = sim_socket_accept(socket);
        socket_break(waiting->peer, -ECONNRESET);
        waiting->closed = true;
    }
}
