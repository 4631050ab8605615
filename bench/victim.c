/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that asks at a fixed rate, whatever the server does: an open loop. It is who suffers, or
 * does not, when others flood the server.
 *
 * The n-th request is due at n / rate and goes to connection n modulo their number. It is sent
 * then, also if replies to earlier ones are still missing, and its latency counts from the moment
 * it was due: a server that stands still is charged for all who would have asked meanwhile, and so
 * is a client that came too late. Requests are gets of one key, which --prefill sets; a reply that
 * is anything else is counted as an error and not as a latency.
 *
 * A hypervisor that gives the processors to other guests stops server and client alike, for up to
 * tens of milliseconds. What was under way in a tenth of a second in which that happened (the
 * kernel counts it, as "steal") is left out of the latencies, whoever is measured; how many were is
 * told. If more than three quarters were, nothing is left out.
 *
 * Prints one line, a JSON object. Run at real-time priority, or it measures who it shares a
 * processor with.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/histogram.h"
#include "bench/arguments.h"
#include "bench/client.h"

enum {
    CONNECTIONS_MAX = 64,
    INPUT_SIZE = 4096,
    NO_CPU = 4096,
    VALUE = 100,
    KEYS = 1000,
    NS = 1000000000,
    PATIENCE_S = 20, /* For the last replies. */
    REQUEST_MAX = 64,
    PREFIX_MAX = 32,
    WINDOW_NS = NS / 10,
};

struct connection {
    int fd;
    uint64_t asked, answered; /* Requests. */
    uint64_t *due_ns;         /* Of each request. */
    uint64_t *late_ns;        /* How long each took; 0: it was not answered, or wrongly. */
    char input[INPUT_SIZE];
    size_t length;
    char *output; /* What the socket has not taken. */
    size_t output_length;
};

static struct {
    const char *host, *port, *prefix, *stat;
    uint64_t connections, rate, seconds, cpu;
    bool prefill;
} settings = {"127.0.0.1", "11211", "victim:", "/proc/stat", 4, 1000, 5, NO_CPU, false};

static struct connection connections[CONNECTIONS_MAX];
static struct fw_histogram latency_ns;
static uint64_t error_count;

/* The time from the first request on, in windows. */
static struct {
    uint64_t begin_ns;
    size_t count, size; /* Those that are over; the room for them. */
    bool *is_stolen;
    size_t stolen_count;
    int stat_fd; /* -1: this system does not tell. */
    uint64_t steal;
} windows;

static char value_text[VALUE + 1];
static char expected[512]; /* All of a reply but its key. */

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "victim: %s: %s\n", what, strerrordesc_np(errno));
    exit(EXIT_FAILURE);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS + (uint64_t)now.tv_nsec;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fail("memory");
    }
    return memory;
}

static void send_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0) {
            fail("send");
        }
        bytes += sent;
        length -= (size_t)sent;
    }
}

/* Sets all keys, one after the other: before the flood, or that would be over when it is done. */
static void prefill(int fd)
{
    char text[1024];
    for (int i = 0; i < KEYS; i++) {
        int length = snprintf(text, sizeof text, "set %s%04d 0 0 %d\r\n%s\r\n", settings.prefix, i,
                              VALUE, value_text);
        send_all(fd, text, (size_t)length);
        size_t got = 0;
        while (got < 8) {
            ssize_t received = recv(fd, text + got, 8 - got, 0);
            if (received <= 0) {
                fail("prefill");
            }
            got += (size_t)received;
        }
        if (memcmp(text, "STORED\r\n", 8) != 0) {
            errno = EPROTO;
            fail("prefill");
        }
    }
}

static void expect(void)
{
    (void)snprintf(expected, sizeof expected, " 0 %d\r\n%s\r\nEND\r\n", VALUE, value_text);
}

static void connection_open(struct connection *connection, uint64_t requests)
{
    connection->fd = fw_client_connect(settings.host, settings.port);
    connection->due_ns = allocate(requests + 1, sizeof(uint64_t));
    connection->late_ns = allocate(requests + 1, sizeof(uint64_t));
    connection->output = allocate(requests + 1, REQUEST_MAX);
}

static void connection_flush(struct connection *connection)
{
    ssize_t sent = send(connection->fd, connection->output, connection->output_length,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) {
        fail("send");
    }
    if (sent > 0) {
        connection->output_length -= (size_t)sent;
        memmove(connection->output, connection->output + sent, connection->output_length);
    }
}

static void connection_ask(struct connection *connection, uint64_t number, uint64_t due_ns)
{
    connection->due_ns[connection->asked++] = due_ns;
    connection->output_length +=
        (size_t)snprintf(connection->output + connection->output_length, REQUEST_MAX,
                         "get %s%04" PRIu64 "\r\n", settings.prefix, number % KEYS);
    connection_flush(connection);
}

/* One reply ends with "END\r\n", or is a line that tells an error. */
static void connection_receive(struct connection *connection)
{
    ssize_t received = recv(connection->fd, connection->input + connection->length,
                            INPUT_SIZE - connection->length, MSG_DONTWAIT);
    if (received <= 0 && !(received < 0 && errno == EAGAIN)) {
        fail("the server ended a connection");
    }
    uint64_t at_ns = now_ns();
    connection->length += received > 0 ? (size_t)received : 0;
    size_t reply = strlen("VALUE ") + strlen(settings.prefix) + 4 + strlen(expected);
    size_t at = 0;
    while (connection->length > at) {
        const char *begin = connection->input + at;
        size_t left = connection->length - at;
        bool is_value = left >= 6 && memcmp(begin, "VALUE ", 6) == 0;
        const char *end = memchr(begin, '\n', left);
        size_t size = is_value ? reply : end != NULL ? (size_t)(end + 1 - begin) : left + 1;
        if (left < 6 || left < size) {
            break;
        }
        bool is_right =
            is_value && memcmp(begin + size - strlen(expected), expected, strlen(expected)) == 0;
        if (is_right) {
            connection->late_ns[connection->answered] =
                at_ns - connection->due_ns[connection->answered];
        } else {
            error_count++;
        }
        connection->answered++;
        at += size;
    }
    connection->length -= at;
    memmove(connection->input, connection->input + at, connection->length);
}

/* What others had of the processors since the start, in the kernel's ticks. */
static uint64_t steal_read(void)
{
    enum { STEAL = 8 /* The place on the line, after "cpu". */ };
    char text[512] = "";
    ssize_t length = pread(windows.stat_fd, text, sizeof text - 1, 0);
    char *rest = length > 0 ? text + strlen("cpu") : text;
    uint64_t number = 0;
    for (int i = 0; i < STEAL; i++) {
        number = strtoull(rest, &rest, 10);
    }
    return number;
}

static void windows_begin(uint64_t begin_ns)
{
    windows.begin_ns = begin_ns;
    windows.size = (settings.seconds + PATIENCE_S + 1) * (NS / WINDOW_NS);
    windows.is_stolen = allocate(windows.size, sizeof(bool));
    windows.stat_fd = open(settings.stat, O_RDONLY | O_CLOEXEC);
    windows.steal = steal_read();
}

/* Closes the windows that are over. It takes microseconds, every tenth of a second. */
static void windows_look(uint64_t at_ns)
{
    size_t over = at_ns > windows.begin_ns ? (at_ns - windows.begin_ns) / WINDOW_NS : 0;
    if (over <= windows.count || over > windows.size) {
        return;
    }
    uint64_t steal = steal_read();
    bool is_stolen = steal != windows.steal;
    windows.steal = steal;
    while (windows.count < over) {
        windows.is_stolen[windows.count++] = is_stolen;
        windows.stolen_count += is_stolen;
    }
}

/* Was the processor taken away between the two times? */
static bool is_stolen(uint64_t from_ns, uint64_t to_ns)
{
    size_t last = (to_ns - windows.begin_ns) / WINDOW_NS;
    for (size_t i = (from_ns - windows.begin_ns) / WINDOW_NS; i <= last; i++) {
        if (i < windows.count && windows.is_stolen[i]) {
            return true;
        }
    }
    return false;
}

static void latencies_collect(void)
{
    bool is_hopeless = windows.stolen_count * 4 > windows.count * 3;
    for (uint64_t i = 0; i < settings.connections; i++) {
        const struct connection *connection = &connections[i];
        for (uint64_t n = 0; n < connection->answered; n++) {
            uint64_t due_ns = connection->due_ns[n];
            uint64_t late_ns = connection->late_ns[n];
            if (late_ns > 0 && (is_hopeless || !is_stolen(due_ns, due_ns + late_ns))) {
                fw_histogram_record(&latency_ns, late_ns);
            }
        }
    }
}

/* Waits for replies until `until_ns`, and not at all if that is past. */
static void replies_take(uint64_t until_ns)
{
    struct pollfd polled[CONNECTIONS_MAX];
    uint64_t now = now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    struct timespec limit = {.tv_sec = (time_t)(left / NS), .tv_nsec = (long)(left % NS)};
    for (uint64_t i = 0; i < settings.connections; i++) {
        bool has_output = connections[i].output_length > 0;
        polled[i] = (struct pollfd){.fd = connections[i].fd,
                                    .events = (short)(POLLIN | (has_output ? POLLOUT : 0))};
    }
    if (ppoll(polled, settings.connections, &limit, NULL) <= 0) {
        return;
    }
    for (uint64_t i = 0; i < settings.connections; i++) {
        if ((polled[i].revents & POLLOUT) != 0) {
            connection_flush(&connections[i]);
        }
        if ((polled[i].revents & ~POLLOUT) != 0) {
            connection_receive(&connections[i]);
        }
    }
}

static uint64_t answered_count(void)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < settings.connections; i++) {
        count += connections[i].answered;
    }
    return count;
}

static void report(uint64_t requests)
{
    uint64_t answered = answered_count();
    double ns_per_us = 1e3;
    (void)printf("{\"requests\": %" PRIu64 ", \"answered\": %" PRIu64 ", \"errors\": %" PRIu64
                 ", \"windows\": %zu, \"stolen\": %zu, \"latency_us\": {\"p50\": %.2f, \"p90\": "
                 "%.2f, \"p99\": %.2f, "
                 "\"p99.9\": %.2f, \"max\": %.2f}}\n",
                 requests, answered, error_count, windows.count, windows.stolen_count,
                 (double)fw_histogram_percentile(&latency_ns, 50) / ns_per_us,
                 (double)fw_histogram_percentile(&latency_ns, 90) / ns_per_us,
                 (double)fw_histogram_percentile(&latency_ns, 99) / ns_per_us,
                 (double)fw_histogram_percentile(&latency_ns, 99.9) / ns_per_us,
                 (double)fw_histogram_max(&latency_ns) / ns_per_us);
}

static void pin(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)settings.cpu, &set);
    if (settings.cpu != NO_CPU && sched_setaffinity(0, sizeof set, &set) < 0) {
        fail("--cpu");
    }
}

int main(int argc, char **argv)
{
    const struct fw_argument table[] = {
        {.name = "host", .help = "name or address", .text = &settings.host},
        {.name = "port", .help = "TCP port", .text = &settings.port},
        {.name = "prefix", .help = "of its keys", .text = &settings.prefix},
        {.name = "stat", .help = "where the system tells of steal", .text = &settings.stat},
        {"connections", "that it asks by turns", &settings.connections, 1, CONNECTIONS_MAX, NULL,
         NULL},
        {"rate", "requests per second", &settings.rate, 1, 1000000, NULL, NULL},
        {"seconds", "how long", &settings.seconds, 1, 3600, NULL, NULL},
        {.name = "prefill", .help = "set its keys before", .flag = &settings.prefill},
        {"cpu", "to run on; the default is any", &settings.cpu, 0, NO_CPU, NULL, NULL},
    };
    memset(value_text, 'v', VALUE);
    fw_arguments_parse(argc, argv, table, FW_ARRAY_LENGTH(table));
    if (strlen(settings.prefix) > PREFIX_MAX) {
        errno = E2BIG;
        fail("--prefix");
    }
    pin();
    uint64_t requests = settings.rate * settings.seconds;
    const uint64_t count = settings.connections;
    FW_ASSERT(count > 0); /* By its limits. */
    fw_histogram_init(&latency_ns);
    for (uint64_t i = 0; i < settings.connections; i++) {
        connection_open(&connections[i], requests / settings.connections + 1);
    }
    if (settings.prefill) {
        prefill(connections[0].fd);
    }
    expect();
    uint64_t begin_ns = now_ns() + NS / 100;
    windows_begin(begin_ns);
    for (uint64_t i = 0; i < requests; i++) {
        uint64_t due_ns = begin_ns + i * NS / settings.rate;
        while (now_ns() < due_ns) {
            replies_take(due_ns);
        }
        connection_ask(&connections[i % count], i, due_ns);
        windows_look(now_ns());
    }
    uint64_t end_ns = now_ns() + (uint64_t)PATIENCE_S * NS;
    while (answered_count() < requests && now_ns() < end_ns) {
        replies_take(end_ns);
    }
    windows_look(now_ns() + WINDOW_NS); /* The last one, which is not over. */
    latencies_collect();
    report(requests);
    return EXIT_SUCCESS;
}
