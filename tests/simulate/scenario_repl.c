/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replication: a master, two slaves, clients that write and read, a network that delays, resets and
 * is cut, slaves that die and come back empty, and sometimes another master in the end.
 *
 * Each client has keys of its own and knows every version that it has ever sent. What the master
 * answers must be the last version that it has acknowledged, or one that was under way. What a
 * slave answers must be some version, whole, or none. No CAS is ever given to two versions of a
 * key, also not by two masters. When all is calm again every server has the same items, with the
 * same numbers, and they expire at the same time, to a second.
 *
 * In acknowledged mode masters die and resign while clients write. In their place comes the slave
 * that is complete and furthest on, chosen when the old master is silent, as a quorum would. Then
 * nothing may be lost that any master has ever acknowledged; and where all slaves have to confirm,
 * none that is complete may answer anything older. One server at a time loses what it has: the next
 * may only when all have caught up. Where nothing goes wrong no write may be refused. And a slave
 * whose copy was not whole from when a write was sent until it was answered has not confirmed it:
 * without it there must be enough others.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/parse.h"
#include "base/thread.h"
#include "cache/operation.h"
#include "io/address.h"
#include "io/clock.h"
#include "server/server.h"
#include "server/state.h"
#include "simulate/network.h"
#include "simulate/scenarios.h"

enum {
    SERVERS = 3,
    NODE_CLIENTS = SERVERS + 1, /* Server i is on node i + 1. */
    WRITERS = 2,
    KEYS = 6, /* Of each writer. */
    VERSIONS_MAX = 600,
    LINE_MAX = 512,
    VALUE_MAX = 12000,
    KEY_MAX = 200,
    FILLERS = 100, /* Items that nobody asks for, so that a copy takes a while, */
    FILLER_SIZE = 4000,
    WINDOW = 4096, /* over a network that takes so many bytes at a time. */
    LIFE_MIN_S = 100000,
    LIFE_MAX_S = 1000000,
};

#define PATIENCE_NS (5 * SIM_S)
#define CALM_NS     (900 * SIM_MS) /* Before a heartbeat could hide that somebody was forgotten. */
#define SETTLE_NS   (300 * SIM_S)
#define CATCH_UP_NS (20 * SIM_S) /* In any weather: where all is reset at once, none ever does. */

struct key {
    uint32_t sent;         /* The last version. */
    uint32_t acknowledged; /* By the master of this term. */
    bool is_removal[VERSIONS_MAX];
    uint64_t cas[VERSIONS_MAX]; /* 0: it was never told. */
};

struct writer {
    uint32_t number;
    struct key keys[KEYS];
    struct sim_socket *socket; /* To `server`, the master when it was made. */
    uint32_t server;
    char output[VALUE_MAX + LINE_MAX];
    char input[VALUE_MAX + LINE_MAX];
};

static struct {
    struct fw_server *servers[SERVERS];
    struct fw_thread threads[SERVERS];
    struct writer writers[WRITERS];
    uint32_t master;
    uint32_t term; /* Raised when the master changes: what was acknowledged before may be lost. */
    uint32_t writer_count; /* Who write; the others' keys stay as they are. */
    uint32_t writers_left;
    uint32_t filler_count;
    bool has_faults;      /* Something goes wrong, or may still. */
    int64_t pause_ms_max; /* Before something goes wrong, or is well again. */
    uint32_t steps;       /* Of each writer. */
    uint32_t key_length;
    size_t value_max;
    bool is_calm; /* No connection may break. */
    uint32_t ack; /* Slaves that have to confirm a change. */
    bool is_up[SERVERS];
    uint32_t starts[SERVERS]; /* How often each began. */
    int64_t patience_ns;      /* Of clients. */
} world;

/* ---- servers ------------------------------------------------------------------------------- */

static void address_of(uint32_t server, uint16_t port, struct fw_address *address)
{
    char text[32];
    (void)snprintf(text, sizeof text, "10.0.0.%u:%u", server + 1, port);
    int count = fw_address_parse(text, 0, 0, address, 1, NULL);
    FW_ASSERT(count == 1);
}

/*
 * A server begins, empty; as slave of the master unless it is that itself. It is made and ended by
 * a thread of its own, since that is a member of its job kernel.
 */
static void server_run(void *argument)
{
    static char texts[SERVERS][3][32];
    static const char *machines[] = {"10.0.0.1", "10.0.0.2", "10.0.0.3"};
    static const char *lists[SERVERS][2];
    uint32_t number = (uint32_t)(uintptr_t)argument;
    (void)snprintf(texts[number][0], sizeof texts[number][0], "10.0.0.%u:11211", number + 1);
    (void)snprintf(texts[number][1], sizeof texts[number][1], "10.0.0.%u", number + 1);
    (void)snprintf(texts[number][2], sizeof texts[number][2], "10.0.0.%u", world.master + 1);
    lists[number][0] = texts[number][0];
    lists[number][1] = texts[number][1];
    struct fw_server_config config = {
        .listen = {.items = &lists[number][0], .count = 1},
        .memory = 4 << 20,
        .item_size = 1 << 20,
        .connections = 100,
        .backlog = 100,
        .turn_commands = 5,
        .threads = 2,
        .drain_ns = world.pause_ms_max * SIM_MS,
        .repl = {.is_enabled = true,
                 .listen = {.items = &lists[number][1], .count = 1},
                 .admit = {.items = machines, .count = FW_ARRAY_LENGTH(machines)},
                 .port = 11213,
                 .master = texts[number][2],
                 .role = number == world.master ? FW_REPL_ROLE_MASTER : FW_REPL_ROLE_SLAVE,
                 .reads_ns = INT64_C(3600) * FW_NS_PER_S,
                 .backlog = FW_CHANGES_SIZE_MIN,
                 .slaves = 4, /* Dead ones stay for a while. */
                 .timeout_ns = 3 * SIM_S,
                 .retry_ns = 100 * SIM_MS,
                 .ack = world.ack,
                 /* Where nothing goes wrong, nobody is told so late: it is longer than patience. */
                 .ack_timeout_ns = world.is_calm ? 60 * SIM_S : 500 * SIM_MS},
    };
    struct fw_reason reason;
    int rc = fw_server_create(&world.servers[number], &config, &reason);
    if (rc != 0) {
        sim_fail("server %u did not start: %s", number, reason.text);
    }
    world.is_up[number] = true;
    (void)fw_server_run(world.servers[number]);
    fw_server_destroy(world.servers[number]);
}

static void server_start(uint32_t number)
{
    uint32_t node = sim_node();
    world.starts[number]++;
    sim_node_set(number + 1);
    int rc =
        fw_thread_create(&world.threads[number], "server", server_run, (void *)(uintptr_t)number);
    FW_ASSERT(rc == 0);
    sim_node_set(node);
    while (!world.is_up[number]) {
        sim_sleep(SIM_MS);
    }
}

static void server_end(uint32_t number)
{
    world.is_up[number] = false;
    fw_server_stop(world.servers[number]);
    fw_thread_join(&world.threads[number]);
}

static const struct fw_repl *repl_of(uint32_t number)
{
    return &world.servers[number]->replication.repl;
}

/* ---- a client, which waits for each answer ------------------------------------------------- */

static struct sim_socket *wire_connect(uint32_t server)
{
    struct fw_address address;
    address_of(server, 11211, &address);
    struct sim_socket *socket = sim_socket_connect(&address);
    int64_t deadline = sim_now() + world.patience_ns;
    while (socket->peer == NULL && socket->error == 0 && sim_now() < deadline) {
        sim_sleep(SIM_MS);
    }
    if (socket->peer == NULL) {
        sim_socket_close(socket);
        return NULL;
    }
    return socket;
}

static bool wire_send(struct sim_socket *socket, const char *bytes, size_t length)
{
    int64_t deadline = sim_now() + world.patience_ns;
    while (length > 0) {
        struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
        ssize_t sent = sim_socket_send(socket, &piece, 1);
        if (sent == -EAGAIN && sim_now() < deadline) {
            sim_sleep(SIM_MS);
        } else if (sent < 0) {
            return false;
        } else {
            bytes += sent;
            length -= (size_t)sent;
        }
    }
    return true;
}

/* So many bytes, or up to the end of a line if `line`. Returns how many; 0: it is broken. */
static size_t wire_receive(struct sim_socket *socket, char *to, size_t size, bool line)
{
    int64_t deadline = sim_now() + world.patience_ns;
    size_t length = 0;
    while (length < size && (!line || length == 0 || to[length - 1] != '\n')) {
        ssize_t received = sim_socket_receive(socket, to + length, line ? 1 : size - length);
        if (received == -EAGAIN && sim_now() < deadline) {
            sim_sleep(SIM_MS);
        } else if (received <= 0) {
            return 0;
        } else {
            length += (size_t)received;
        }
    }
    return length;
}

/* ---- keys and values ----------------------------------------------------------------------- */

static size_t key_make(const struct writer *writer, uint32_t number, char text[KEY_MAX])
{
    int length = snprintf(text, KEY_MAX, "k-%u-%u-", writer->number, number);
    memset(text + length, 'x', world.key_length);
    return (size_t)length + world.key_length;
}

static size_t value_make(const struct writer *writer, uint32_t key, uint32_t version, char *value)
{
    char word[48];
    int length = snprintf(word, sizeof word, "<%u/%u/%u>", writer->number, key, version);
    size_t size = (size_t)length + (version * 4099 + key * 7) % world.value_max;
    for (size_t done = 0; done < size; done += (size_t)length) {
        size_t left = size - done;
        memcpy(value + done, word, left < (size_t)length ? left : (size_t)length);
    }
    return size;
}

/* The version that a value says it is, if it is exactly that. */
static uint32_t value_version(const struct writer *writer, uint32_t key, const char *value,
                              size_t size)
{
    static char expected[VALUE_MAX];
    for (uint32_t version = writer->keys[key].sent; version > 0; version--) {
        if (value_make(writer, key, version, expected) == size &&
            memcmp(expected, value, size) == 0) {
            return version;
        }
    }
    sim_fail("writer %u key %u: a value that was never sent: %.*s", writer->number, key,
             (int)(size < 60 ? size : 60), value);
}

/* ---- commands ------------------------------------------------------------------------------ */

/* The next version of a key is on its way. */
static uint32_t version_begin(struct key *key, bool is_removal)
{
    key->sent++;
    SIM_EXPECT(key->sent < VERSIONS_MAX);
    key->is_removal[key->sent] = is_removal;
    return key->sent;
}

static void cas_note(struct writer *writer, uint32_t number, uint32_t version, uint64_t cas)
{
    struct key *key = &writer->keys[number];
    for (uint32_t i = 1; i <= key->sent; i++) {
        if (i != version && key->cas[i] == cas) {
            sim_fail("writer %u key %u: versions %u and %u have the same CAS %" PRIu64,
                     writer->number, number, i, version, cas);
        }
    }
    key->cas[version] = cas;
}

/* What was seen of the slaves when a write was sent. */
struct seen {
    uint32_t master;
    bool is_torn[SERVERS];
    uint64_t attempt[SERVERS]; /* At getting a copy. */
};

static void slaves_look(struct seen *seen)
{
    *seen = (struct seen){.master = world.master};
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (i != world.master && world.is_up[i]) {
            const struct fw_repl *repl = repl_of(i);
            seen->is_torn[i] = fw_repl_is_following(repl) && atomic_load(&repl->followed.is_torn);
            seen->attempt[i] =
                (uint64_t)world.starts[i] << 32 | atomic_load(&repl->metrics.connects.value);
        }
    }
}

/* The write was acknowledged. */
static void slaves_judge(const struct seen *before)
{
    struct seen now;
    slaves_look(&now);
    uint32_t count = SERVERS - 1;
    for (uint32_t i = 0; i < SERVERS; i++) {
        count -= before->is_torn[i] && now.is_torn[i] && before->attempt[i] == now.attempt[i];
    }
    if (now.master == before->master && count < world.ack) {
        sim_fail("a write was acknowledged, and %u slaves at most can have confirmed it", count);
    }
}

/* How long an item is to live: never, or longer than anything here takes. */
static uint32_t life_draw(void)
{
    return sim_chance(4) ? 0 : (uint32_t)sim_between(LIFE_MIN_S, LIFE_MAX_S);
}

static bool do_set(struct writer *writer, uint32_t number)
{
    struct key *key = &writer->keys[number];
    struct seen seen;
    slaves_look(&seen);
    char name[KEY_MAX];
    char line[LINE_MAX];
    size_t name_length = key_make(writer, number, name);
    uint32_t term = world.term;
    uint32_t version = version_begin(key, false);
    size_t size = value_make(writer, number, version, writer->input);
    int length = snprintf(writer->output, LINE_MAX, "ms %.*s %zu c T%" PRIu32 "\r\n",
                          (int)name_length, name, size, life_draw());
    memcpy(writer->output + length, writer->input, size);
    memcpy(writer->output + (size_t)length + size, "\r\n", 2);
    size_t got = 0;
    if (wire_send(writer->socket, writer->output, (size_t)length + size + 2)) {
        got = wire_receive(writer->socket, line, sizeof line, true);
    }
    uint64_t cas;
    if (got < 6 || memcmp(line, "HD c", 4) != 0 ||
        fw_parse_uint(line + 4, got - 6, 1, UINT64_MAX, &cas) != 0) {
        return false;
    }
    cas_note(writer, number, version, cas);
    slaves_judge(&seen);
    if (term == world.term) {
        key->acknowledged = version;
    }
    return true;
}

static bool do_remove(struct writer *writer, uint32_t number)
{
    struct key *key = &writer->keys[number];
    char name[KEY_MAX];
    char line[LINE_MAX];
    size_t name_length = key_make(writer, number, name);
    uint32_t term = world.term;
    uint32_t version = version_begin(key, true);
    int length = snprintf(writer->output, LINE_MAX, "md %.*s\r\n", (int)name_length, name);
    size_t got = 0;
    if (wire_send(writer->socket, writer->output, (size_t)length)) {
        got = wire_receive(writer->socket, line, sizeof line, true);
    }
    if (got != 4 || (memcmp(line, "HD\r\n", 4) != 0 && memcmp(line, "NF\r\n", 4) != 0)) {
        return false;
    }
    if (term == world.term) {
        key->acknowledged = version;
    }
    return true;
}

/* Another time to live, of whatever is there. */
static bool do_touch(struct writer *writer, uint32_t number)
{
    char name[KEY_MAX];
    char line[LINE_MAX];
    size_t name_length = key_make(writer, number, name);
    int length = snprintf(writer->output, LINE_MAX, "touch %.*s %" PRIu32 "\r\n", (int)name_length,
                          name, life_draw());
    size_t got = 0;
    if (wire_send(writer->socket, writer->output, (size_t)length)) {
        got = wire_receive(writer->socket, line, sizeof line, true);
    }
    return (got == 9 && memcmp(line, "TOUCHED\r\n", 9) == 0) ||
           (got == 11 && memcmp(line, "NOT_FOUND\r\n", 11) == 0);
}

/* May nothing be there, in the master's answer? A removal may have come last. */
static bool may_miss(const struct key *key, uint32_t acknowledged)
{
    bool may = acknowledged == 0;
    for (uint32_t version = acknowledged; version <= key->sent && version > 0; version++) {
        may |= key->is_removal[version];
    }
    return may;
}

/* May a read there be held to what was acknowledged before? */
static bool is_binding(uint32_t server)
{
    if (server == world.master) {
        return true;
    }
    if (world.ack < SERVERS - 1 || !world.is_up[server]) {
        return false;
    }
    const struct fw_repl *repl = repl_of(server);
    return fw_repl_is_following(repl) && !atomic_load(&repl->followed.is_torn);
}

static bool do_get(struct writer *writer, struct sim_socket *socket, uint32_t number,
                   uint32_t server)
{
    const struct key *key = &writer->keys[number];
    char name[KEY_MAX];
    char line[LINE_MAX];
    size_t name_length = key_make(writer, number, name);
    uint32_t term = world.term;
    uint32_t acknowledged = key->acknowledged;
    bool was_binding = is_binding(server);
    int length = snprintf(writer->output, LINE_MAX, "mg %.*s v\r\n", (int)name_length, name);
    size_t got = 0;
    if (wire_send(socket, writer->output, (size_t)length)) {
        got = wire_receive(socket, line, sizeof line, true);
    }
    uint64_t size;
    bool is_strict = was_binding && is_binding(server) && term == world.term;
    if (got == 4 && memcmp(line, "EN\r\n", 4) == 0) {
        SIM_EXPECT(!is_strict || may_miss(key, acknowledged));
        return true;
    }
    if (got < 6 || memcmp(line, "VA ", 3) != 0 ||
        fw_parse_uint(line + 3, got - 5, 0, VALUE_MAX, &size) != 0 ||
        wire_receive(socket, writer->input, (size_t)size + 2, false) == 0) {
        return false;
    }
    uint32_t version = value_version(writer, number, writer->input, (size_t)size);
    SIM_EXPECT(!key->is_removal[version]);
    if (is_strict && version < acknowledged) {
        sim_fail("writer %u key %u: version %u was acknowledged, and server %u has %u",
                 writer->number, number, acknowledged, server, version);
    }
    return true;
}

static void read_from_slave(struct writer *writer)
{
    uint32_t server = (uint32_t)sim_between(0, SERVERS - 1);
    struct sim_socket *socket = wire_connect(server);
    if (socket != NULL) {
        for (int64_t i = sim_between(1, 4); i > 0; i--) {
            if (!do_get(writer, socket, (uint32_t)sim_between(0, KEYS - 1), server)) {
                break;
            }
        }
        sim_socket_close(socket);
    }
}

static void writer_drop(struct writer *writer)
{
    if (writer->socket != NULL) {
        sim_socket_close(writer->socket);
        writer->socket = NULL;
    }
}

static void writer_step(struct writer *writer)
{
    if (writer->socket == NULL && world.master < SERVERS) {
        writer->server = world.master;
        writer->socket = wire_connect(writer->server);
    }
    if (writer->socket == NULL) {
        SIM_EXPECT(!world.is_calm);
        sim_sleep(100 * SIM_MS);
        return;
    }
    uint32_t key = (uint32_t)sim_between(0, KEYS - 1);
    int64_t choice = sim_between(0, 9);
    bool is_right = choice < 5   ? do_set(writer, key)
                    : choice < 6 ? do_remove(writer, key)
                    : choice < 7 ? do_touch(writer, key)
                                 : do_get(writer, writer->socket, key, writer->server);
    if (!is_right) {
        SIM_EXPECT(!world.is_calm);
        writer_drop(writer);
    }
    if (choice == 9) {
        read_from_slave(writer);
    }
}

static void writer_run(void *argument)
{
    struct writer *writer = argument;
    for (uint32_t i = 0; i < world.steps || (world.filler_count > 0 && world.has_faults); i++) {
        writer_step(writer);
        if (sim_chance(8)) {
            sim_sleep(sim_between(0, 50) * SIM_MS);
        }
    }
    writer_drop(writer);
    world.writers_left--;
}

/* ---- what goes wrong ----------------------------------------------------------------------- */

static uint32_t some_slave(void)
{
    return (world.master + (uint32_t)sim_between(1, SERVERS - 1)) % SERVERS;
}

static void slave_dies_and_returns(uint32_t slave)
{
    if (sim_chance(2)) {
        sim_network_crash(slave + 1);
    }
    server_end(slave);
    sim_sleep(sim_between(0, world.pause_ms_max) * SIM_MS);
    server_start(slave);
}

/*
 * Until the slave has a whole copy, and all that its master had when this began. False: the network
 * is too slow for that, and it does not matter when it is.
 */
static bool catch_up(uint32_t slave)
{
    const struct fw_repl *ours = repl_of(world.master);
    const struct fw_repl_followed *theirs = &repl_of(slave)->followed;
    uint64_t head = fw_changes_head(ours->changes);
    int64_t deadline = sim_now() + CATCH_UP_NS;
    while (atomic_load(&theirs->is_torn) || atomic_load(&theirs->position) < head ||
           atomic_load(&theirs->history) != ours->changes->history) {
        if (sim_now() > deadline) {
            return false;
        }
        sim_sleep(20 * SIM_MS);
    }
    return true;
}

static void stage_wait(uint32_t server, enum fw_replication_stage stage)
{
    int64_t deadline = sim_now() + SETTLE_NS;
    while (fw_replication_stage(&world.servers[server]->replication) != stage) {
        if (sim_now() > deadline) {
            sim_fail("server %u does not change its role: %u connections, %u links", server,
                     atomic_load(&world.servers[server]->connection_count),
                     atomic_load(&repl_of(server)->link_count));
        }
        sim_sleep(10 * SIM_MS);
    }
}

/* Which of the slaves takes over, chosen as a quorum does. There is one that is complete. */
static uint32_t best_slave(uint32_t old)
{
    uint32_t best = SERVERS;
    uint64_t best_position = 0;
    for (uint32_t i = 1; i < SERVERS; i++) {
        uint32_t slave = (old + i) % SERVERS;
        struct fw_repl_standing standing;
        fw_repl_standing(&world.servers[slave]->replication.repl, &standing);
        if (standing.is_complete && (best == SERVERS || standing.position > best_position)) {
            best = slave;
            best_position = standing.position;
        }
    }
    SIM_EXPECT(best < SERVERS);
    return best;
}

/* The master dies, and a slave takes over, while clients write. */
static void fail_over(void)
{
    uint32_t old = world.master;
    for (uint32_t i = 1; i < SERVERS; i++) {
        if (!catch_up((old + i) % SERVERS)) {
            return;
        }
    }
    if (sim_chance(2)) { /* One hears no more of it, and then the other has to be chosen. */
        sim_network_cut(old + 1, some_slave() + 1);
        sim_sleep(sim_between(1, 1000) * SIM_MS);
    }
    world.master = SERVERS; /* Nobody. */
    if (sim_chance(2)) {
        sim_network_crash(old + 1);
    }
    server_end(old);
    uint32_t new = best_slave(old);
    int rc = fw_replication_wish(world.servers[new], FW_REPL_ROLE_MASTER, false);
    SIM_EXPECT(rc == 0);
    stage_wait(new, FW_REPLICATION_MASTER);
    world.master = new;
    uint32_t other = SERVERS - old - new;
    sim_network_heal(old + 1, new + 1);
    sim_network_heal(old + 1, other + 1);
    server_end(other);
    server_start(other);
    server_start(old);
}

static void fault_make(void)
{
    uint32_t slave = some_slave();
    if (world.filler_count > 0) {
        slave_dies_and_returns(slave);
        (void)catch_up(slave); /* Beside clients. */
        return;
    }
    if (world.ack > 0 && sim_chance(2)) {
        fail_over();
        return;
    }
    switch (sim_between(0, 2)) {
    case 0:
        slave_dies_and_returns(slave);
        break;
    case 1:
        sim_network_cut(world.master + 1, slave + 1);
        sim_sleep(sim_between(1, 6000) * SIM_MS);
        sim_network_heal(world.master + 1, slave + 1);
        break;
    default:
        sim_sleep(sim_between(1, 500) * SIM_MS);
    }
}

static void faults_run(void *argument)
{
    (void)argument;
    for (int64_t i = sim_between(0, 4); i > 0 && world.writers_left > 0; i--) {
        sim_sleep(sim_between(1, world.pause_ms_max) * SIM_MS);
        fault_make();
    }
    world.has_faults = false;
}

/* ---- calm again ---------------------------------------------------------------------------- */

static bool is_settled(uint32_t slave)
{
    const struct fw_repl_followed *followed = &repl_of(slave)->followed;
    const struct fw_changes *changes = repl_of(world.master)->changes;
    return atomic_load(&followed->state) == FW_REPL_FOLLOW_STREAMING &&
           atomic_load(&followed->history) == changes->history &&
           atomic_load(&followed->position) == fw_changes_head(changes);
}

static void settle(uint32_t slave)
{
    int64_t deadline = sim_now() + SETTLE_NS;
    while (!is_settled(slave)) {
        if (sim_now() > deadline) {
            sim_fail("slave %u does not catch up", slave);
        }
        sim_sleep(20 * SIM_MS);
    }
}

/* What can be compared of an item. */
struct listed {
    char key[FW_ITEM_KEY_MAX];
    uint8_t key_length;
    uint64_t cas;
    uint32_t length;
    uint32_t flags;
    int64_t date; /* When it expires; 0: never. */
};

struct listing {
    struct listed items[WRITERS * KEYS + FILLERS];
    uint32_t count;
    int64_t start_wall_s; /* Of the server's cache. */
};

static void list_visit(struct fw_item *item, void *context)
{
    struct listing *listing = context;
    SIM_EXPECT(listing->count < FW_ARRAY_LENGTH(listing->items));
    struct listed *listed = &listing->items[listing->count++];
    memcpy(listed->key, item->key, item->key_length);
    listed->key_length = item->key_length;
    listed->cas = fw_item_cas(item);
    listed->length = fw_item_length(item);
    listed->flags = fw_item_flags(item);
    uint32_t expires = fw_item_expires(item);
    listed->date = expires == 0 ? 0 : listing->start_wall_s + expires;
}

static void list(uint32_t server, struct listing *listing)
{
    struct fw_table_local *local;
    uint64_t cursor = 0;
    int rc = fw_table_local_create(&local, world.servers[server]->cache.table);
    SIM_EXPECT(rc == 0);
    listing->count = 0;
    listing->start_wall_s = world.servers[server]->cache.start_wall_s;
    while (!fw_table_visit(local, &cursor, 8, list_visit, listing)) {
    }
    fw_table_local_destroy(local);
}

static void compare(uint32_t slave)
{
    static struct listing masters, slaves;
    list(world.master, &masters);
    list(slave, &slaves);
    SIM_EXPECT(masters.count == slaves.count);
    for (uint32_t i = 0; i < masters.count; i++) {
        const struct listed *ours = &masters.items[i];
        bool is_found = false;
        for (uint32_t j = 0; j < slaves.count && !is_found; j++) {
            const struct listed *theirs = &slaves.items[j];
            is_found = ours->key_length == theirs->key_length &&
                       memcmp(ours->key, theirs->key, ours->key_length) == 0 &&
                       ours->cas == theirs->cas && ours->length == theirs->length &&
                       ours->flags == theirs->flags &&
                       llabs(ours->date - theirs->date) <= 1; /* Clocks begin between seconds. */
        }
        if (!is_found) {
            sim_fail("slave %u has not the same item %.*s", slave, (int)ours->key_length,
                     ours->key);
        }
    }
}

static void all_compare(void)
{
    for (uint32_t i = 1; i < SERVERS; i++) {
        uint32_t slave = (world.master + i) % SERVERS;
        settle(slave);
        compare(slave);
    }
}

/* ---- another master ------------------------------------------------------------------------ */

/* A slave is promoted, maybe while the old master lives; then that and the other one follow it. */
static void master_change(uint32_t new)
{
    uint32_t old = world.master;
    int rc = fw_replication_wish(world.servers[new], FW_REPL_ROLE_MASTER, false);
    if (rc == -EAGAIN) {
        return; /* It does not have everything, and would not know which numbers are taken. */
    }
    SIM_EXPECT(rc == 0);
    stage_wait(new, FW_REPLICATION_MASTER);
    world.master = new;
    world.term++;
    for (uint32_t i = 0; i < WRITERS; i++) {
        for (uint32_t j = 0; j < KEYS; j++) {
            world.writers[i].keys[j].acknowledged = 0;
        }
        writer_drop(&world.writers[i]);
    }
    uint32_t other = SERVERS - old - new;
    server_end(other);
    server_start(other);
    address_of(new, 11213, &world.servers[old]->replication.master.address);
    rc = fw_replication_wish(world.servers[old], FW_REPL_ROLE_SLAVE, false);
    SIM_EXPECT(rc == 0);
    stage_wait(old, FW_REPLICATION_SLAVE);
}

/* What clients would find now. */
static void all_read(void)
{
    uint32_t node = sim_node();
    sim_node_set(NODE_CLIENTS);
    struct sim_socket *socket = wire_connect(world.master);
    SIM_EXPECT(socket != NULL);
    for (uint32_t i = 0; i < WRITERS * KEYS; i++) {
        bool is_right = do_get(&world.writers[i / KEYS], socket, i % KEYS, world.master);
        SIM_EXPECT(is_right);
    }
    sim_socket_close(socket);
    sim_node_set(node);
}

static void writers_start_and_join(bool has_faults)
{
    struct fw_thread writing[WRITERS], failing;
    world.writers_left = world.writer_count;
    world.has_faults = has_faults;
    uint32_t node = sim_node();
    sim_node_set(NODE_CLIENTS);
    for (uint32_t i = 0; i < world.writer_count; i++) {
        int rc = fw_thread_create(&writing[i], "writer", writer_run, &world.writers[i]);
        FW_ASSERT(rc == 0);
    }
    sim_node_set(node);
    if (has_faults) {
        int rc = fw_thread_create(&failing, "faults", faults_run, NULL);
        FW_ASSERT(rc == 0);
        fw_thread_join(&failing);
    }
    for (uint32_t i = 0; i < world.writer_count; i++) {
        fw_thread_join(&writing[i]);
    }
}

/* What makes a copy longer than a request. All slaves are there. */
static void fillers_write(void)
{
    static char bytes[FILLER_SIZE + LINE_MAX];
    uint32_t node = sim_node();
    sim_node_set(NODE_CLIENTS);
    struct sim_socket *socket = wire_connect(world.master);
    SIM_EXPECT(socket != NULL);
    for (uint32_t i = 0; i < world.filler_count; i++) {
        char line[LINE_MAX];
        int length = snprintf(bytes, LINE_MAX, "ms filler-%u %d\r\n", i, FILLER_SIZE);
        memset(bytes + length, 'f', FILLER_SIZE);
        memcpy(bytes + length + FILLER_SIZE, "\r\n", 2);
        bool is_right = wire_send(socket, bytes, (size_t)length + FILLER_SIZE + 2) &&
                        wire_receive(socket, line, sizeof line, true) == 4;
        SIM_EXPECT(is_right && memcmp(line, "HD\r\n", 4) == 0);
    }
    sim_socket_close(socket);
    sim_node_set(node);
}

static void run(bool is_calm, uint32_t ack, uint32_t filler_count)
{
    memset(&world, 0, sizeof world);
    world.filler_count = filler_count;
    world.pause_ms_max = filler_count > 0 ? 20 : 1500;
    world.is_calm = is_calm;
    world.patience_ns = is_calm ? CALM_NS : PATIENCE_NS;
    world.ack = ack;
    world.steps = (uint32_t)sim_between(10, ack > 0 ? 200 : 80);
    world.key_length = sim_chance(2) ? 0 : 150;
    world.value_max = sim_chance(3) ? 10000 : 100;
    world.writer_count = ack > 0 ? (uint32_t)sim_between(1, WRITERS) : WRITERS;
    for (uint32_t i = 0; i < WRITERS; i++) {
        world.writers[i].number = i;
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        server_start(i);
    }
    for (uint32_t i = 1; i < SERVERS && ack > 0; i++) {
        bool has_all = catch_up(i); /* Before, writes are refused. */
        SIM_EXPECT(has_all || !is_calm);
    }
    fillers_write();
    writers_start_and_join(!is_calm);
    sim_weather_mild();
    all_compare();
    all_read();
    if (ack == 0 && sim_chance(2)) {
        uint32_t old = world.master;
        uint32_t new = some_slave();
        if (sim_chance(2)) { /* One takes over that has not heard of all. */
            sim_network_cut(old + 1, new + 1);
            writers_start_and_join(false);
        }
        master_change(new);
        sim_network_heal(old + 1, new + 1);
        writers_start_and_join(false);
        all_compare();
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        server_end(i);
    }
}

static void calm_run(void)
{
    sim_weather_mild();
    run(true, 0, 0);
}

const struct sim_scenario sim_scenario_repl = {
    .name = "repl",
    .purpose = "a master, two slaves, clients, then another master; replicas are equal in the end",
    .run = calm_run,
};

static void stormy_run(void)
{
    sim_weather_draw();
    run(false, 0, 0);
}

const struct sim_scenario sim_scenario_repl_faults = {
    .name = "repl-faults",
    .purpose = "the same with cuts, resets, small windows, and slaves that die and return",
    .run = stormy_run,
};

static void acknowledged_run(void)
{
    bool is_calm = sim_chance(3);
    uint32_t ack = (uint32_t)sim_between(1, SERVERS - 1);
    if (is_calm) {
        sim_weather_mild();
    } else {
        sim_weather_draw();
    }
    run(is_calm, ack, 0);
}

const struct sim_scenario sim_scenario_repl_ack = {
    .name = "repl-ack",
    .purpose = "the same in acknowledged mode, with masters that die: nothing acknowledged is lost",
    .run = acknowledged_run,
};

static void copying_run(void)
{
    sim_weather_mild();
    sim_weather.window_min = sim_weather.window_max = WINDOW;
    sim_sleep(10 * SIM_S); /* The clock of a machine that has just begun would spare a mark. */
    run(false, SERVERS - 1, FILLERS);
}

const struct sim_scenario sim_scenario_repl_copying = {
    .name = "repl-copying",
    .purpose = "long copies in acknowledged mode: no slave confirms anything before it has all",
    .run = copying_run,
};
