/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server, served through the simulated network.
 *
 * One fibre runs the server as `fairway serve` does, its cores and workers are others. Another
 * drives many clients, each with keys of its own, so that each knows what it must read: the value
 * of its last acknowledged set, or, if a set was under way when the connection broke, that one's or
 * the one before. Nothing else is acceptable: not a miss, not another client's value, not half a
 * reply.
 *
 * In some runs large values are on a simulated disk, that of every second client. Then the others
 * must be answered as quickly as ever, however slow the disk is; and if it fails, those whose
 * values were there may lose them, are told so, and nobody else is.
 *
 * Clients may read slowly, cores may move between localities and take their connections along, and
 * the server may be told to stop while all this goes on: then connections break, and nothing else.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/parse.h"
#include "base/thread.h"
#include "base/wheel.h"
#include "io/address.h"
#include "io/clock.h"
#include "io/reactor.h"
#include "server/server.h"
#include "server/state.h"
#include "simulate/disk.h"
#include "simulate/network.h"
#include "simulate/scenarios.h"

enum {
    CLIENTS_MAX = 1000,
    CONNECTIONS_MAX = 4 * CLIENTS_MAX, /* Half-open ones stay for a while. */
    KEYS = 3,                          /* Of each client. */
    BATCH_MAX = 5,                     /* Requests sent at once. */
    OVERHEAD_MAX = 128,                /* Of a request or a reply beside its value. */
    NODE_SERVER = 1,
    NODE_CLIENTS = 2,
    NODE_STRANGERS = 3,
    ALARM_TICK_BITS = 10, /* About a microsecond. */
    DISK_SIZE = 8 << 20,
    SMALL_MAX = 1000, /* Values of those who have nothing on the disk. */
};

#define DISK "/dev/values"
/* Of a disk so slow that whoever waits for it is found out. */
#define DISK_LATENCY_MIN_NS (200 * SIM_MS)
#define SMALL_PATIENCE_NS   (100 * SIM_MS)

#define PATIENCE_NS (30 * SIM_S)

static struct shape {
    uint32_t clients;
    uint32_t requests; /* Of each client. */
    uint32_t batch_max;
    size_t value_max;
    int64_t think_max_ns;
    bool faults;
    bool moves; /* Cores change their localities. */
    bool ends;  /* The server is told to end before the clients have. */
    bool has_disk;
    bool has_disk_errors;
    uint64_t threads;
    int64_t idle_timeout_ns;
} shape;

struct key {
    uint32_t acknowledged; /* Version of the last set that was answered; 0: none. */
    uint32_t sent;         /* Version of the last set that was begun. */
};

/* A request under way, and what its reply may say. */
struct request {
    uint32_t key;
    bool is_set;
    uint32_t version; /* Of a set: its own. Of a get: the newest that it can meet. */
};

struct client {
    struct fw_stream stream;
    uint32_t number;
    bool open;
    bool thinking;
    struct fw_timer alarm; /* It has thought, or waited for a reply, long enough. */
    uint32_t done;         /* Requests. */
    int64_t asked_ns;      /* When the requests under way were made. */
    struct request requests[BATCH_MAX];
    uint32_t request_count;
    uint32_t answered; /* Of the requests under way. */
    struct key keys[KEYS];
    char *output; /* All requests under way. */
    struct iovec unsent;
    char *input; /* What has come of their replies. */
    size_t input_length;
    size_t input_size;
};

static struct fw_server *server;
static struct fw_address address; /* The server's, which may be gone. */
static bool is_over;              /* It is. */
static struct fw_reactor *reactor;
static struct fw_wheel wheel;
static struct client *clients;
static uint32_t clients_left;

/* Does nothing of it ever go to the disk? */
static bool client_is_small(const struct client *client)
{
    return !shape.has_disk || client->number % 2 == 0;
}

/* The value of a version of a key: its name over and over, so that a mix-up is seen. */
static size_t value_make(const struct client *client, uint32_t key, uint32_t version, char *value)
{
    char word[48];
    int length = snprintf(word, sizeof word, "<%u/%u/%u>", client->number, key, version);
    size_t max = shape.has_disk && client_is_small(client) ? SMALL_MAX : shape.value_max;
    size_t size = (client->number * 7 + version * 4099) % max + 1;
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
    int rc = fw_stream_connect(&client->stream, reactor, &address, &client_events);
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
    if (client->done == shape.requests || is_over) {
        clients_left--;
        client->thinking = false;
    } else {
        client_think(client);
    }
}

static void client_broken(struct client *client, ssize_t error)
{
    bool may_lose = shape.has_disk_errors && !client_is_small(client);
    if (!shape.faults && !shape.ends && shape.idle_timeout_ns == 0 && !may_lose) {
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

/* Writes the next request to `text` and returns its length. */
static size_t request_make(struct client *client, struct request *request, char *text)
{
    request->key = (uint32_t)sim_between(0, KEYS - 1);
    struct key *key = &client->keys[request->key];
    request->is_set = key->sent == 0 || sim_chance(3);
    size_t length;
    if (request->is_set) {
        key->sent++;
        size_t size = value_make(client, request->key, key->sent, text + OVERHEAD_MAX);
        length = (size_t)snprintf(text, OVERHEAD_MAX, "set k-%u-%u %u 0 %zu\r\n", client->number,
                                  request->key, key->sent, size);
        memmove(text + length, text + OVERHEAD_MAX, size);
        length += size;
        memcpy(text + length, "\r\n", 2);
        length += 2;
    } else {
        length =
            (size_t)snprintf(text, OVERHEAD_MAX, "get k-%u-%u\r\n", client->number, request->key);
    }
    request->version = key->sent;
    return length;
}

static void client_begin(struct client *client)
{
    uint32_t left = shape.requests - client->done;
    uint32_t count = (uint32_t)sim_between(1, shape.batch_max);
    client->request_count = count < left ? count : left;
    client->answered = 0;
    client->asked_ns = sim_now();
    client->input_length = 0;
    size_t length = 0;
    for (uint32_t i = 0; i < client->request_count; i++) {
        length += request_make(client, &client->requests[i], client->output + length);
    }
    client->unsent = (struct iovec){.iov_base = client->output, .iov_len = length};
    fw_wheel_start(&wheel, &client->alarm, sim_now() + PATIENCE_NS);
    client_send(client);
}

/* Is the reply at the head of the input, `length` long, exactly this version? */
static bool reply_is(struct client *client, const struct request *request, uint32_t version,
                     size_t length)
{
    char *expected = client->output; /* All of it has been sent. */
    char *value = expected + OVERHEAD_MAX;
    size_t size = value_make(client, request->key, version, value);
    size_t line = (size_t)snprintf(expected, OVERHEAD_MAX, "VALUE k-%u-%u %u %zu\r\n",
                                   client->number, request->key, version, size);
    memmove(expected + line, value, size);
    memcpy(expected + line + size, "\r\nEND\r\n", 7);
    return length == line + size + 7 && memcmp(expected, client->input, length) == 0;
}

/* The length of the whole reply at the head of the input; 0: more must come. */
static size_t reply_whole(const struct client *client)
{
    const char *end = memchr(client->input, '\n', client->input_length);
    if (end == NULL) {
        return 0;
    }
    size_t line = (size_t)(end - client->input) + 1;
    const char *space = memrchr(client->input, ' ', line);
    if (client->input[0] != 'V' || space == NULL) {
        return line;
    }
    uint64_t size;
    const char *digits = space + 1;
    int rc = fw_parse_uint(digits, (size_t)(end - 1 - digits), 0, client->input_size, &size);
    SIM_EXPECT(rc == 0);
    size_t length = line + (size_t)size + strlen("\r\nEND\r\n");
    return client->input_length >= length ? length : 0;
}

/* A whole reply must be one of those that the client's history allows. */
static void reply_check(struct client *client, const struct request *request, size_t length)
{
    struct key *key = &client->keys[request->key];
    bool may_lose = shape.has_disk_errors && !client_is_small(client);
    bool allowed;
    if (request->is_set && may_lose && memcmp(client->input, "SERVER_ERROR ", 13) == 0) {
        allowed = true;
        key->acknowledged = 0; /* And the value before it is gone too. */
    } else if (request->is_set) {
        allowed = length == 8 && memcmp(client->input, "STORED\r\n", 8) == 0;
        key->acknowledged = request->version;
    } else {
        allowed = (key->acknowledged == 0 || may_lose) && length == 5 &&
                  memcmp(client->input, "END\r\n", 5) == 0;
        for (uint32_t version = key->acknowledged > 0 ? key->acknowledged : 1;
             version <= request->version && !allowed; version++) {
            allowed = reply_is(client, request, version, length);
        }
    }
    if (!allowed) {
        sim_fail("client %u key %u: acknowledged %u, sent %u, got %.*s", client->number,
                 request->key, key->acknowledged, request->version,
                 (int)(length < 200 ? length : 200), client->input);
    }
}

/* Checks the replies that have come whole. True: all have. */
static bool client_check(struct client *client)
{
    while (client->answered < client->request_count) {
        size_t length = reply_whole(client);
        if (length == 0) {
            return false;
        }
        reply_check(client, &client->requests[client->answered], length);
        client->answered++;
        client->done++;
        client->input_length -= length;
        memmove(client->input, client->input + length, client->input_length);
    }
    return true;
}

static void client_readable(struct fw_stream *stream)
{
    struct client *client = client_of(stream);
    SIM_EXPECT(client->input_length < client->input_size);
    size_t room = client->input_size - client->input_length;
    if (shape.faults && sim_chance(2)) {
        room = (size_t)sim_between(1, (int64_t)room); /* A slow reader. */
    }
    ssize_t result = fw_stream_receive(stream, client->input + client->input_length, room);
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
    client->input_length += (size_t)result;
    if (!client_check(client)) {
        fw_stream_wait(stream);
        return;
    }
    SIM_EXPECT(client->input_length == 0);
    if (shape.has_disk && !shape.faults && client_is_small(client)) {
        SIM_EXPECT(sim_now() - client->asked_ns < SMALL_PATIENCE_NS);
    }
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
    fw_wheel_init(&wheel, ALARM_TICK_BITS, sim_now());
    for (uint32_t i = 0; i < shape.clients; i++) {
        clients[i].number = i;
        clients[i].input_size = shape.batch_max * (shape.value_max + OVERHEAD_MAX + OVERHEAD_MAX);
        clients[i].input = malloc(clients[i].input_size);
        clients[i].output = malloc(clients[i].input_size);
        FW_ASSERT(clients[i].input != NULL && clients[i].output != NULL);
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
    for (uint32_t i = 0; i < shape.clients; i++) {
        free(clients[i].input);
        free(clients[i].output);
    }
    free(clients);
}

static void server_run(void *argument)
{
    (void)argument;
    (void)fw_server_run(server);
}

/* Takes cores from one locality to another and back, and the connections with them. */
static void moves_run(void *argument)
{
    (void)argument;
    for (int64_t i = sim_between(1, 6); i > 0 && clients_left > 0; i--) {
        sim_sleep(sim_between(1, 500) * SIM_MS);
        uint32_t from = (uint32_t)sim_between(0, 1);
        int rc = fw_domain_move_core(server->domain, fw_domain_locality(server->domain, from),
                                     fw_domain_locality(server->domain, 1 - from));
        SIM_EXPECT(rc == 0 || rc == -EBUSY || rc == -ESHUTDOWN);
    }
}

/* Ends the server some time, one way or the other, while its clients are busy. */
static void end_early(struct fw_thread *serving)
{
    sim_sleep(sim_between(0, 3000) * SIM_MS);
    bool is_gentle = sim_chance(2);
    int64_t asked_ns = sim_now();
    if (is_gentle) {
        fw_server_drain(server);
    } else {
        fw_server_stop(server);
    }
    fw_thread_join(serving);
    /* In mild weather all clients fetch their replies soon, and nobody has to be waited for. */
    int64_t limit_ns = is_gentle && shape.faults ? server->config.drain_ns : 0;
    SIM_EXPECT(sim_now() - asked_ns <= limit_ns + SIM_S);
    is_over = true;
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
        struct sim_socket *stranger = sim_socket_connect(&address);
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

static void server_start(void)
{
    static const char *listen[] = {"10.0.0.1:11211"};
    /* A section is enough for connections to be scheduled; without one the server is open. */
    static struct fw_tenant_section section = {.due = {.name = "default", .weight = 1}};
    static struct fw_tenant_section *sections[] = {&section};
    static const struct fw_tenant_sections tenants = {.sections = sections, .count = 1};
    bool is_open = sim_chance(2);
    enum fw_sched_policy_number policy = sim_chance(2) ? FW_SCHED_WFQ : FW_SCHED_FIFO;
    struct fw_server_config config = {
        .listen = {.items = listen, .count = 1},
        .memory = 64 << 20,
        .item_size = 1 << 20,
        .connections = CONNECTIONS_MAX,
        .backlog = 1024,
        .turn_commands = 3,
        .threads = shape.threads,
        .idle_timeout_ns = shape.idle_timeout_ns,
        .drain_ns = 2 * SIM_S,
        .sched = {.policy = is_open ? FW_SCHED_FIFO : policy},
        .tenants = is_open ? NULL : &tenants,
        .engine = {.cores_per_locality = shape.moves ? 2 : 1,
                   .bracket_limit = 1,
                   .spare_limit = 1,
                   .wait_min_ns = SIM_S,
                   .wait_max_ns = 60 * SIM_S,
                   .stall_ns = 60 * SIM_S},
    };
    if (shape.has_disk) {
        sim_disk_make(DISK, DISK_SIZE, 512);
        config.large = (struct fw_server_large_config){
            .value_min = FW_LARGE_VALUE_MIN, .limit = DISK_SIZE, .volume = DISK};
    }
    struct fw_reason reason;
    int rc = fw_server_create(&server, &config, &reason);
    if (rc != 0) {
        sim_fail("the server did not start: %s", reason.text);
    }
    address = *fw_server_address(server, 0);
    is_over = false;
}

/* A fibre that is there if it is wanted. */
static void start(struct fw_thread *thread, bool is_wanted, const char *name,
                  void (*act)(void *argument))
{
    if (is_wanted) {
        int rc = fw_thread_create(thread, name, act, NULL);
        FW_ASSERT(rc == 0);
    }
}

static void join(struct fw_thread *thread, bool is_wanted)
{
    if (is_wanted) {
        fw_thread_join(thread);
    }
}

static void run(struct shape with)
{
    struct fw_thread serving, driving, faults, moves;
    shape = with;
    clients_left = shape.clients;
    sim_node_set(NODE_SERVER);
    server_start();
    start(&serving, true, "server", server_run);
    start(&driving, true, "clients", clients_run);
    start(&faults, shape.faults, "faults", faults_run);
    start(&moves, shape.moves, "moves", moves_run);
    if (shape.ends) {
        end_early(&serving);
    }
    fw_thread_join(&driving);
    join(&faults, shape.faults);
    join(&moves, shape.moves);
    fw_server_stop(server);
    join(&serving, !shape.ends);
    fw_server_destroy(server);
}

static void calm_run(void)
{
    run((struct shape){.clients = CLIENTS_MAX,
                       .requests = 20,
                       .batch_max = 1,
                       .value_max = 600,
                       .think_max_ns = 2 * SIM_S,
                       .threads = 2});
}

const struct sim_scenario sim_scenario_server = {
    .name = "server",
    .purpose = "1,000 connections in mild weather; every reply is the right one",
    .run = calm_run,
};

/* One draw per statement: the order within an initialiser is the compiler's. */
static struct shape storm_draw(void)
{
    sim_weather_draw();
    uint32_t clients_count = (uint32_t)sim_between(1, 40);
    size_t value_max = sim_chance(2) ? 100 : 20000; /* Beyond what is received at once. */
    bool moves = sim_chance(3);
    uint64_t threads = moves ? 2 : (uint64_t)sim_between(1, 3);
    int64_t idle_timeout_ns = sim_chance(3) ? sim_between(1, 1000) * SIM_MS : 0;
    return (struct shape){.clients = clients_count,
                          .requests = 30,
                          .batch_max = BATCH_MAX,
                          .value_max = value_max,
                          .think_max_ns = 100 * SIM_MS,
                          .faults = true,
                          .moves = moves,
                          .threads = threads,
                          .idle_timeout_ns = idle_timeout_ns};
}

static void stormy_run(void)
{
    run(storm_draw());
}

const struct sim_scenario sim_scenario_server_faults = {
    .name = "server-faults",
    .purpose = "short transfers, resets, cuts, small windows; no wrong reply, nothing stuck",
    .run = stormy_run,
};

/* The same with clients and a network that do no harm. */
static struct shape calm_draw(void)
{
    struct shape drawn = storm_draw();
    sim_weather_mild();
    drawn.faults = false;
    return drawn;
}

static void ending_run(void)
{
    struct shape drawn = sim_chance(2) ? storm_draw() : calm_draw();
    drawn.ends = true;
    if (!drawn.faults) {
        drawn.think_max_ns = 10 * SIM_S; /* Most have nothing to do when the end comes. */
    }
    run(drawn);
}

const struct sim_scenario sim_scenario_server_stop = {
    .name = "server-stop",
    .purpose = "the server drains or stops under load: in time, without a wrong reply",
    .run = ending_run,
};

static void moving_run(void)
{
    struct shape drawn = calm_draw();
    drawn.moves = true;
    drawn.threads = 2;
    drawn.idle_timeout_ns = 0;
    drawn.requests = 200; /* So that it lasts for some moves. */
    run(drawn);
}

const struct sim_scenario sim_scenario_server_move = {
    .name = "server-move",
    .purpose = "cores move with their connections; no client notices",
    .run = moving_run,
};

static void large_run(void)
{
    struct shape drawn = sim_chance(2) ? storm_draw() : calm_draw();
    drawn.clients = (uint32_t)sim_between(2, 8);
    drawn.requests = 40;
    drawn.batch_max = 2;
    drawn.value_max = 100000;
    drawn.has_disk = true;
    drawn.has_disk_errors = sim_chance(2);
    drawn.ends = drawn.faults && sim_chance(4);
    drawn.idle_timeout_ns = 0;
    if (drawn.has_disk_errors) {
        sim_disk_weather.error_one_in = (uint32_t)sim_between(2, 50);
        sim_disk_weather.full_one_in = (uint32_t)sim_between(2, 50);
    }
    /* An end waits for what is under way, and not for long. */
    sim_disk_weather.latency_min_ns = drawn.ends ? SIM_MS : DISK_LATENCY_MIN_NS;
    sim_disk_weather.latency_max_ns = drawn.ends ? 100 * SIM_MS : 2 * DISK_LATENCY_MIN_NS;
    run(drawn);
}

const struct sim_scenario sim_scenario_server_large = {
    .name = "server-large",
    .purpose = "values on a slow or failing disk; small requests do not notice",
    .run = large_run,
};
