/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what one tenant floods the server with holds another up by no more than the reactor's look
 * allows: a bounded cost passes between the moment at which a request of the other's can be read
 * and its turn, whatever the flood is made of and however many connections it has.
 *
 * The same where nobody is set apart, for who asks for one thing beside those who ask for much, or
 * while a slave gets its copy of everything.
 *
 * Method: a whole server with one core in this process, whose sessions run through a function of
 * the test's (the linker's --wrap), on the core's own thread, and so do its receives and sends. The
 * flood lies in the sockets before the core goes on. At some of its turns the function asks in the
 * victim's name, so that the request is there while exactly that turn is under way, and counts what
 * the others are charged until the victim has its turn. No clock is asked: the count is the same on
 * any machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/thread.h"
#include "cache/session.h"
#include "io/address.h"
#include "repl/stream.h"
#include "server/connection.h"
#include "server/server.h"
#include "support/skip.h"

enum {
    FLOODERS = 32,
    CROWD = 800, /* More than the reactor brings in three looks. */
    EVERY = 7,   /* Turns of the flood between two requests of the victim's. */
    TIMES = 12,
    TIMES_FIFO = 1, /* It may be all over before it is served. */
    TIMES_LARGE = 4,
    LARGE = 1000000, /* Longer than a socket of the test's has room for. */
    LARGE_WORDS = LARGE + 64,
    LARGE_MIN = 1024,
    TURN_COST_MAX = 128,
    LOOK_COST_MAX = 128,
    DESCRIPTORS = 2 * CROWD + 100,
    VALUE = 10240,
    ITEM = 1024,   /* The size of what is dumped, */
    ITEMS = 400,   /* and how many. */
    PIPELINE = 50, /* Gets in three turns, which is less than a tick may have; */
    PIPELINES = 9, /* so many of these are more. */
    COPIED = 6000,
    COPIED_TICK = 16,  /* Of one tick; */
    COPIED_TICKS = 34, /* an idle core makes 16 or 32 before it looks, and another two. */
};

/* Of one test; the core's thread has it from `go` to `over`. */
static struct {
    struct fw_server *server;
    struct fw_thread thread;
    struct fw_parker held, go, over;
    atomic_bool is_holding; /* The next session waits. */
    bool is_counting;
    int victim_fd;
    uint32_t times;     /* So often the victim asks. */
    uint32_t unasked;   /* Turns to come before its first. */
    uint32_t turns;     /* Since the victim had its last. */
    uint32_t asked;     /* Requests in the victim's name, */
    uint32_t answered;  /* and its turns. */
    uint64_t cost;      /* Since it asked. */
    uint64_t cost_most; /* Of these. */
    uint32_t waited;    /* Turns of others since it asked, the one under way included. */
    uint32_t waited_most;
    uint32_t turn_most; /* What one turn of the flood has cost. */
    bool is_large;      /* The flood is large values: bytes are counted, not turns. */
    uint64_t moved;     /* Of those, since the victim asked, */
    uint64_t moved_most;
    size_t offered_most; /* To a socket, at once. */
    uint32_t offers;
    bool is_copied; /* The flood is a copy for a slave: its items are counted, as `moved`. */
} test;

static const char victims_words[] = "get victim\r\n";

static void victim_ask(void)
{
    ssize_t sent = send(test.victim_fd, victims_words, strlen(victims_words), MSG_DONTWAIT);
    FW_ASSERT(sent == (ssize_t)strlen(victims_words));
    test.asked++;
    test.cost = 0;
    test.waited = 0;
    test.moved = 0;
}

static void victim_served(void)
{
    test.answered++;
    test.turns = 0;
    test.cost_most = test.cost > test.cost_most ? test.cost : test.cost_most;
    test.waited_most = test.waited > test.waited_most ? test.waited : test.waited_most;
    test.moved_most = test.moved > test.moved_most ? test.moved : test.moved_most;
    if (test.answered == test.times) {
        test.is_counting = false;
        fw_unpark(&test.over);
    }
}

/* A turn of the flood, or a receive, is under way. */
static void flood_served(void)
{
    if (test.is_counting && test.unasked > 0) {
        test.unasked--;
    } else if (test.is_counting && test.asked == test.answered && ++test.turns == EVERY) {
        victim_ask(); /* It is there from now on. */
    }
}

/* A part of a large value was received or sent. */
static void value_moved(ssize_t size)
{
    if (test.is_large && size > LARGE_MIN) {
        flood_served();
        test.moved += (uint64_t)size;
    }
}

ssize_t __real_fw_stream_receive_now(struct fw_stream *stream, void *buffer, size_t size);
ssize_t __wrap_fw_stream_receive_now(struct fw_stream *stream, void *buffer, size_t size);

ssize_t __wrap_fw_stream_receive_now(struct fw_stream *stream, void *buffer, size_t size)
{
    ssize_t received = __real_fw_stream_receive_now(stream, buffer, size);
    value_moved(received);
    return received;
}

static void note_offer(const struct iovec *vector, int count)
{
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        length += vector[i].iov_len;
    }
    test.offered_most = length > test.offered_most ? length : test.offered_most;
    test.offers++;
}

ssize_t __real_fw_stream_send_now(struct fw_stream *stream, const struct iovec *vector, int count);
ssize_t __wrap_fw_stream_send_now(struct fw_stream *stream, const struct iovec *vector, int count);

ssize_t __wrap_fw_stream_send_now(struct fw_stream *stream, const struct iovec *vector, int count)
{
    note_offer(vector, count);
    return __real_fw_stream_send_now(stream, vector, count);
}

ssize_t __real_fw_stream_send(struct fw_stream *stream, const struct iovec *vector, int count);
ssize_t __wrap_fw_stream_send(struct fw_stream *stream, const struct iovec *vector, int count);

ssize_t __wrap_fw_stream_send(struct fw_stream *stream, const struct iovec *vector, int count)
{
    note_offer(vector, count);
    ssize_t sent = __real_fw_stream_send(stream, vector, count);
    value_moved(sent);
    return sent;
}

void __real_fw_repl_put_item(struct fw_reply *reply, const struct fw_cache_local *local,
                             struct fw_item *item, bool is_ours);
void __wrap_fw_repl_put_item(struct fw_reply *reply, const struct fw_cache_local *local,
                             struct fw_item *item, bool is_ours);

void __wrap_fw_repl_put_item(struct fw_reply *reply, const struct fw_cache_local *local,
                             struct fw_item *item, bool is_ours)
{
    flood_served();
    test.moved++;
    __real_fw_repl_put_item(reply, local, item, is_ours);
}

struct fw_session_step __real_fw_session_run(struct fw_session *session,
                                             struct fw_cache_local *local, const char *input,
                                             size_t size);
struct fw_session_step __wrap_fw_session_run(struct fw_session *session,
                                             struct fw_cache_local *local, const char *input,
                                             size_t size);

struct fw_session_step __wrap_fw_session_run(struct fw_session *session,
                                             struct fw_cache_local *local, const char *input,
                                             size_t size)
{
    if (atomic_exchange(&test.is_holding, false)) {
        fw_unpark(&test.held);
        fw_park(&test.go);
    }
    bool is_victim = size == strlen(victims_words) && memcmp(input, victims_words, size) == 0;
    if (test.is_counting && is_victim) {
        victim_served();
    } else if (!test.is_large && !test.is_copied) {
        flood_served();
    }
    struct fw_session_step step = __real_fw_session_run(session, local, input, size);
    uint32_t cost = fw_session_cost(step.commands, step.keys, step.consumed);
    if (!is_victim) {
        test.cost += cost;
        test.waited++;
        test.turn_most = cost > test.turn_most ? cost : test.turn_most;
    }
    return step;
}

static void serve(void *argument)
{
    (void)fw_server_run(argument);
}

/* Addresses of this test's own: two for clients, one for slaves. */
static const char *address_name(uint32_t index)
{
    static char names[3][64];
    (void)snprintf(names[index], sizeof names[index], "unix:@fairway-turns-%d-%u", (int)getpid(),
                   (unsigned)index);
    return names[index];
}

/* With a tenant at each of the clients' addresses, or without tenants. */
static void server_begin(enum fw_sched_policy_number policy, bool has_tenants)
{
    static const char *names[3];
    for (uint32_t i = 0; i < 3; i++) {
        names[i] = address_name(i);
    }
    char rules[2][128];
    const char *matches[2] = {rules[0], rules[1]};
    struct fw_tenant_section sections[2] = {{.due = {.name = "web", .weight = 1}},
                                            {.due = {.name = "batch", .weight = 1}}};
    struct fw_tenant_section *pointers[2] = {&sections[0], &sections[1]};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(rules[i], sizeof rules[i], "listener %s", names[i]);
        sections[i].match = (struct fw_option_list){.items = &matches[i], .count = 1};
    }
    const struct fw_tenant_sections tenants = {.sections = pointers, .count = 2};
    const struct fw_server_config config = {
        .listen = {.items = names, .count = 2},
        .backlog = CROWD,
        .memory = (uint64_t)64 << 20,
        .item_size = 1 << 20,
        .connections = CROWD + 100,
        .threads = 1,
        .turn_commands = 20,
        .sched = {.policy = policy},
        .repl = {.is_enabled = true,
                 .listen = {.items = names + 2, .count = 1},
                 .backlog = 1 << 20,
                 .slaves = 1,
                 .timeout_ns = INT64_C(60000000000)},
        .tenants = has_tenants ? &tenants : NULL,
    };
    struct fw_reason reason;
    assert_int_equal(fw_server_create(&test.server, &config, &reason), 0);
    assert_int_equal(fw_thread_create(&test.thread, "server", serve, test.server), 0);
}

static void server_end(void)
{
    fw_server_stop(test.server);
    fw_thread_join(&test.thread);
    fw_server_destroy(test.server);
}

static int connection_open(uint32_t index)
{
    struct fw_address address;
    struct fw_reason reason;
    assert_int_equal(fw_address_parse(address_name(index), 0, 0, &address, 1, &reason), 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &address.any, address.length), 0);
    return fd;
}

/* One that the server knows: nothing is left to accept. */
static int client_open(uint32_t index)
{
    int fd = connection_open(index);
    char reply[4];
    assert_int_equal(send(fd, "mn\r\n", 4, 0), 4);
    assert_int_equal(recv(fd, reply, sizeof reply, MSG_WAITALL), 4);
    return fd;
}

/* As many of these as the socket takes, or `limit`; what is cut off at the end never comes. */
static void client_fill(int fd, const char *words, size_t length, uint32_t limit)
{
    for (uint32_t i = 0; i < limit; i++) {
        if (send(fd, words, length, MSG_DONTWAIT) != (ssize_t)length) {
            return;
        }
    }
}

struct flood {
    enum fw_sched_policy_number policy;
    bool has_tenants;
    uint32_t count;    /* Connections, */
    const char *words; /* that say this */
    uint32_t limit;    /* so often, or until the socket is full. */
    uint32_t items;    /* That the server has before. */
    bool is_large;     /* They are about large values; */
    bool has_value;    /* the server has that of `k` before. */
};

static void server_fill(int fd, uint32_t items)
{
    static char words[ITEM + 64];
    for (uint32_t i = 0; i < items; i++) {
        char reply[8];
        int length = snprintf(words, sizeof words, "set item%u 0 0 %d\r\n", (unsigned)i, ITEM);
        memset(words + length, 'v', ITEM);
        memcpy(words + length + ITEM, "\r\n", 2);
        assert_int_equal(send(fd, words, (size_t)length + ITEM + 2, 0), length + ITEM + 2);
        assert_int_equal(recv(fd, reply, sizeof reply, MSG_WAITALL), (ssize_t)sizeof reply);
    }
}

/* To store a large value, with something behind it. */
static size_t large_words(char words[LARGE_WORDS], const char *behind)
{
    int length = snprintf(words, LARGE_WORDS, "set k 0 0 %d\r\n", LARGE);
    memset(words + length, 'v', LARGE);
    memcpy(words + length + LARGE, behind, strlen(behind) + 1);
    return (size_t)length + LARGE + strlen(behind);
}

static void large_store(int fd)
{
    static char words[LARGE_WORDS];
    char reply[8];
    size_t size = large_words(words, "\r\n");
    assert_int_equal(send(fd, words, size, 0), (ssize_t)size);
    assert_int_equal(recv(fd, reply, sizeof reply, MSG_WAITALL), (ssize_t)sizeof reply);
}

static void test_begin(uint32_t times)
{
    memset(&test, 0, sizeof test);
    test.times = times;
    fw_parker_init(&test.held);
    fw_parker_init(&test.go);
    fw_parker_init(&test.over);
}

/* The core serves nobody until `go`; what `test` has is this thread's meanwhile. */
static void core_hold(int fd)
{
    atomic_store(&test.is_holding, true); /* Pairs with the exchange: it is read with a request. */
    client_fill(fd, "mn\r\n", 4, 1);
    fw_park(&test.held);
}

/* It goes on until the victim has been served as often as it shall. */
static void core_release(void)
{
    test.is_counting = true;
    fw_unpark(&test.go);
    fw_park(&test.over);
}

/* The victim beside a flood. Returns how much of it was served while the victim waited, at most. */
static uint64_t beside(const struct flood *flood)
{
    static int flooders[CROWD];
    test_begin(flood->policy == FW_SCHED_FIFO && flood->has_tenants ? TIMES_FIFO
               : flood->is_large                                    ? TIMES_LARGE
                                                                    : TIMES);
    test.is_large = flood->is_large;
    server_begin(flood->policy, flood->has_tenants);
    test.victim_fd = client_open(0);
    server_fill(test.victim_fd, flood->items);
    if (flood->has_value) {
        large_store(test.victim_fd);
    }
    for (uint32_t i = 0; i < flood->count; i++) {
        flooders[i] = client_open(1);
    }
    core_hold(flooders[0]);
    for (uint32_t i = 0; i < flood->count; i++) {
        client_fill(flooders[i], flood->words, strlen(flood->words), flood->limit);
    }
    if (!flood->has_tenants) {
        test.unasked = flood->count; /* All have begun. */
    } else if (flood->limit < UINT32_MAX) {
        victim_ask(); /* Behind all of them. */
    }
    core_release();
    server_end();
    (void)close(test.victim_fd);
    for (uint32_t i = 0; i < flood->count; i++) {
        (void)close(flooders[i]);
    }
    return test.cost_most;
}

static uint64_t beside_flood(enum fw_sched_policy_number policy, uint32_t count, const char *words,
                             uint32_t limit)
{
    return beside(&(struct flood){
        .policy = policy, .has_tenants = true, .count = count, .words = words, .limit = limit});
}

/* Until it looks, the core spends so much; then it is in the middle of a turn, and of another. */
static uint64_t bound(void)
{
    assert_in_range(test.turn_most, 1, TURN_COST_MAX);
    return LOOK_COST_MAX + 2 * (uint64_t)test.turn_most;
}

static void test_gets(void **state)
{
    (void)state;
    uint64_t cost = beside_flood(FW_SCHED_WFQ, FLOODERS, "get k\r\n", UINT32_MAX);
    assert_true(cost <= bound());
}

static void test_multigets(void **state)
{
    (void)state;
    enum { KEYS = 100 };
    char words[3 + 2 * KEYS + 3] = "get";
    for (size_t i = 0; i < KEYS; i++) {
        memcpy(words + 3 + 2 * i, " k", 2);
    }
    memcpy(words + 3 + (size_t)2 * KEYS, "\r\n", 3);
    uint64_t cost = beside_flood(FW_SCHED_WFQ, FLOODERS, words, UINT32_MAX);
    assert_true(test.turn_most >= 100);
    assert_true(cost <= bound());
}

static void test_sets(void **state)
{
    (void)state;
    static char words[VALUE + 64];
    int length = snprintf(words, sizeof words, "set k 0 0 %d\r\n", VALUE);
    memset(words + length, 'v', VALUE);
    memcpy(words + length + VALUE, "\r\n", 3);
    uint64_t cost = beside_flood(FW_SCHED_WFQ, FLOODERS, words, UINT32_MAX);
    assert_true(test.turn_most >= 20); /* Bytes count. */
    assert_true(cost <= bound());
}

/* Of hundreds that can be read at the same time the victim is the last that the kernel names. */
static void test_crowd(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < DESCRIPTORS) {
        fw_test_skip("descriptors", "the hard limit of open files is below 4096");
    }
    limit.rlim_cur = limit.rlim_cur > DESCRIPTORS ? limit.rlim_cur : DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    uint64_t cost = beside_flood(FW_SCHED_WFQ, CROWD, "get k\r\nget k\r\nget k\r\nget k\r\n", 20);
    assert_true(cost <= bound());
}

/* The same where all wait in one queue: so the tests above can fail. */
static void test_fifo(void **state)
{
    (void)state;
    uint64_t cost = beside_flood(FW_SCHED_FIFO, FLOODERS, "get k\r\n", UINT32_MAX);
    assert_true(cost > bound());
}

/*
 * Many dumps, and nothing that sets anybody apart: who asks for one item waits for the portion that
 * is under way and at most for one more.
 */
static void test_dumps(void **state)
{
    (void)state;
    (void)beside(&(struct flood){.policy = FW_SCHED_FIFO,
                                 .count = FLOODERS,
                                 .words = "dump 0 1\r\n",
                                 .limit = 1,
                                 .items = ITEMS});
    assert_in_range(test.waited_most, 1, 2);
}

/* The same beside many who have sent far more commands than a turn has. */
static void test_pipelines(void **state)
{
    (void)state;
    uint64_t cost = beside(&(struct flood){
        .policy = FW_SCHED_FIFO, .count = FLOODERS, .words = "get k\r\n", .limit = UINT32_MAX});
    assert_true(cost <= bound());
}

/* And beside many whose large values come in: for one part of one of them. */
static void test_values_that_come(void **state)
{
    (void)state;
    static char words[LARGE_WORDS];
    (void)large_words(words, "");
    (void)beside(&(struct flood){
        .policy = FW_SCHED_FIFO, .count = FLOODERS, .words = words, .limit = 1, .is_large = true});
    assert_in_range(test.moved_most, 1, 2 * FW_CONNECTION_SLICE);
}

/* The same for those that go out, none of which is offered to its socket as a whole. */
static void test_values_that_go(void **state)
{
    (void)state;
    (void)beside(&(struct flood){.policy = FW_SCHED_FIFO,
                                 .count = FLOODERS,
                                 .words = "get k\r\n",
                                 .limit = 1,
                                 .is_large = true,
                                 .has_value = true});
    assert_in_range(test.moved_most, 1, 2 * FW_CONNECTION_SLICE);
    assert_int_equal(test.offered_most, FW_CONNECTION_SLICE);
}

/* And all of it arrives. */
static void test_a_large_value_whole(void **state)
{
    (void)state;
    static char words[LARGE_WORDS];
    test_begin(0);
    server_begin(FW_SCHED_FIFO, false);
    int fd = client_open(0);
    large_store(fd);
    assert_int_equal(send(fd, "get k\r\n", 7, 0), 7);
    size_t head = strlen("VALUE k 0 1000000\r\n");
    size_t expected = head + LARGE + 7;
    assert_int_equal(recv(fd, words, expected, MSG_WAITALL), (ssize_t)expected);
    assert_memory_equal(words, "VALUE k 0 1000000\r\n", head);
    for (size_t i = 0; i < LARGE; i++) {
        assert_int_equal(words[head + i], 'v');
    }
    assert_memory_equal(words + head + LARGE, "\r\nEND\r\n", 7);
    (void)close(fd);
    server_end();
}

/* Who is alone gets the replies of several turns in one piece, however much was served before. */
static void test_replies_together(void **state)
{
    (void)state;
    static char words[PIPELINE * 7 + 1];
    static char reply[PIPELINE * 5];
    for (int i = 0; i < PIPELINE; i++) {
        memcpy(words + (size_t)i * 7, "get k\r\n", 8);
    }
    test_begin(0);
    server_begin(FW_SCHED_WFQ, true);
    int fd = client_open(0);
    for (int i = 0; i < PIPELINES; i++) {
        client_fill(fd, words, strlen(words), 1);
        assert_int_equal(recv(fd, reply, sizeof reply, MSG_WAITALL), (ssize_t)sizeof reply);
    }
    (void)close(fd);
    server_end();
    assert_int_equal(test.offers, 1 + PIPELINES); /* One for who came. */
}

static void slave_read(void *argument)
{
    static char bytes[1 << 16];
    while (recv(*(const int *)argument, bytes, sizeof bytes, 0) > 0) {
    }
}

/* A copy of everything: a core that has nothing else to do tells of some items between two looks.
 */
static void test_a_copy(void **state)
{
    (void)state;
    char hello[FW_REPL_HEADER + FW_REPL_EXTRAS_MAX];
    test_begin(TIMES);
    test.is_copied = true;
    server_begin(FW_SCHED_FIFO, false);
    test.victim_fd = client_open(0);
    server_fill(test.victim_fd, COPIED);
    int other = client_open(1);
    core_hold(other);
    int slave = connection_open(2); /* It is awaited for a second from when the core goes on. */
    size_t length = fw_repl_put_hello(hello, &(struct fw_repl_greeting){.history = 0});
    assert_int_equal(send(slave, hello, length, 0), (ssize_t)length);
    struct fw_thread reader;
    assert_int_equal(fw_thread_create(&reader, "slave", slave_read, &slave), 0);
    core_release();
    server_end();
    fw_thread_join(&reader);
    (void)close(slave);
    (void)close(other);
    (void)close(test.victim_fd);
    assert_in_range(test.moved_most, 1, COPIED_TICKS * COPIED_TICK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gets),           cmocka_unit_test(test_multigets),
        cmocka_unit_test(test_sets),           cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_fifo),           cmocka_unit_test(test_dumps),
        cmocka_unit_test(test_pipelines),      cmocka_unit_test(test_values_that_come),
        cmocka_unit_test(test_values_that_go), cmocka_unit_test(test_a_large_value_whole),
        cmocka_unit_test(test_a_copy),         cmocka_unit_test(test_replies_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
