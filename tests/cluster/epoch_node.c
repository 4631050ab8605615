/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler that takes part in a cluster's epochs and prints what it is told, for the tests here.
 *
 *     epoch_node GROUP PLACE TIMEOUT_MS PACE_MS
 *
 * It asks for an epoch PACE_MS after each answer. Its data is as that of tests/support/epochs.h:
 * a bit for its place, a one, and a number of its own. A line each, in the order in which it
 * happens, each with the time in front (nanoseconds of the machine's monotonic clock):
 *
 *     view ID QUORATE JOINED MEMBER...     0 or 1, and the members' numbers
 *     told LIFE NUMBER MASK COUNT SUM      an epoch has started, with this data
 *     error ERRNO                          it has not
 *     wrong WORDS                          what must never happen; the program ends with status 1
 *
 * Log lines go to stderr. SIGTERM makes it leave; then it prints "over" and ends with status 0.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/parse.h"
#include "epoch/cluster.h"
#include "epoch/corosync.h"
#include "io/alarm.h"
#include "io/clock.h"
#include "io/reactor.h"
#include "io/signal.h"

struct data {
    uint64_t mask;
    uint64_t count;
    uint64_t sum;
};

static struct fw_reactor *reactor;
static struct fw_group *group;
static const struct fw_group_events *inner; /* The handler's, which ours call. */
static struct fw_epoch_cluster cluster;
static struct fw_alarm deadline; /* The handler's. */
static struct fw_alarm pace;     /* The next question. */
static struct fw_signals signals;
static struct data data;
static uint64_t place;
static int64_t pace_ns;
static int64_t number = FW_EPOCH_FIRST;
static bool is_waiting;
static uint64_t asked;
static uint32_t open_count; /* Of what must be closed before the end. */
static bool is_over;

static void say_begin(const char *kind)
{
    (void)printf("%" PRId64 " %s", fw_clock_now_ns(), kind);
}

static void say_end(void)
{
    if (putchar('\n') == EOF || fflush(stdout) != 0) {
        exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): nobody listens. */
    }
}

static _Noreturn void wrong(const char *what)
{
    say_begin("wrong");
    (void)printf(" %s", what);
    say_end();
    exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): one thread. */
}

/* ---- the scheduler ------------------------------------------------------------------------- */

static void data_combine(void *combined, const void *a, size_t a_length, const void *b,
                         size_t b_length)
{
    struct data left;
    struct data right;
    if (a_length != sizeof left || b_length != sizeof right) {
        wrong("data of another length was combined");
    }
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    left.mask |= right.mask;
    left.count += right.count;
    left.sum += right.sum;
    memcpy(combined, &left, sizeof left);
}

static void told(void *argument, int64_t answer, void *combined, size_t length)
{
    (void)argument;
    if (!is_waiting) {
        wrong("a call-back that nobody waits for");
    }
    is_waiting = false;
    fw_alarm_set(&pace, fw_clock_now_ns() + pace_ns);
    if (answer < 0) {
        number = FW_EPOCH_FIRST;
        say_begin("error");
        (void)printf(" %d", (int)-answer);
        say_end();
        return;
    }
    struct data reduced;
    if (length != sizeof reduced) {
        wrong("data of another length");
    }
    memcpy(&reduced, combined, sizeof reduced);
    if (number != FW_EPOCH_FIRST && answer != number + 1) {
        wrong("an epoch was left out, or came twice");
    }
    if ((uint64_t)__builtin_popcountll(reduced.mask) != reduced.count) {
        wrong("somebody was counted twice");
    }
    if ((reduced.mask & UINT64_C(1) << place) == 0) {
        wrong("it is not in its own epoch");
    }
    number = answer;
    say_begin("told");
    (void)printf(" %" PRIu64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
                 cluster.coordinator.incarnation, answer, reduced.mask, reduced.count, reduced.sum);
    say_end();
}

static void ask(struct fw_alarm *alarm)
{
    (void)alarm;
    asked++;
    data = (struct data){.mask = UINT64_C(1) << place, .count = 1, .sum = asked << 8 | place};
    is_waiting = true;
    fw_epoch_next(&cluster.epoch, number, &data, sizeof data, told, NULL);
}

/* ---- what the handler needs ---------------------------------------------------------------- */

static int64_t cluster_now(struct fw_epoch_cluster *of)
{
    (void)of;
    return fw_clock_now_ns();
}

static void cluster_arm(struct fw_epoch_cluster *of, int64_t when_ns)
{
    (void)of;
    fw_alarm_set(&deadline, when_ns);
}

static void deadline_rang(struct fw_alarm *alarm)
{
    (void)alarm;
    fw_epoch_cluster_poll(&cluster);
}

static void group_delivered(struct fw_group *of, uint64_t sender, const void *bytes, size_t length)
{
    inner->delivered(of, sender, bytes, length);
}

static void group_viewed(struct fw_group *of, const struct fw_group_view *view)
{
    say_begin("view");
    (void)printf(" %" PRIu64 " %d %d", view->id, view->is_quorate, view->has_joined);
    for (uint32_t i = 0; i < view->count; i++) {
        (void)printf(" %" PRIu64, view->members[i]);
    }
    say_end();
    inner->viewed(of, view);
}

static void group_writable(struct fw_group *of)
{
    inner->writable(of);
}

static const struct fw_group_events events = {
    .delivered = group_delivered,
    .viewed = group_viewed,
    .writable = group_writable,
};

/* ---- life ---------------------------------------------------------------------------------- */

static void one_closed(void)
{
    is_over = --open_count == 0;
}

static void group_closed(void *argument)
{
    (void)argument;
    one_closed();
}

static void alarm_closed(struct fw_alarm *alarm)
{
    (void)alarm;
    one_closed();
}

static void signals_closed(struct fw_signals *of)
{
    (void)of;
    one_closed();
}

static void terminated(struct fw_signals *of, int signal, pid_t sender)
{
    (void)of;
    (void)signal;
    (void)sender;
    fw_epoch_last(&cluster.epoch, number);
    fw_epoch_cluster_fini(&cluster);
    open_count = 4;
    fw_corosync_close(group, group_closed, NULL);
    fw_alarm_close(&deadline, alarm_closed);
    fw_alarm_close(&pace, alarm_closed);
    fw_signals_close(&signals, signals_closed);
}

static const struct fw_signal_event signal_events[] = {{SIGTERM, terminated}};

static int start(const char *group_name, int64_t timeout_ns, struct fw_reason *reason)
{
    struct fw_corosync_options options = {.group_name = group_name, .timeout_ns = timeout_ns};
    struct fw_epoch_cluster_config config = {
        .epoch = {.timeout_ns = timeout_ns, .combine = data_combine},
        .now = cluster_now,
        .arm = cluster_arm,
    };
    int rc = fw_reactor_create(&reactor, reason);
    if (rc == 0) {
        rc = fw_signals_open(&signals, reactor, signal_events, 1, reason);
    }
    if (rc == 0) {
        rc = fw_alarm_open(&deadline, reactor, deadline_rang, reason);
    }
    if (rc == 0) {
        rc = fw_alarm_open(&pace, reactor, ask, reason);
    }
    if (rc == 0) {
        rc = fw_corosync_open(&group, reactor, &options, reason);
    }
    if (rc == 0 && fw_epoch_cluster_init(&cluster, group, &config) != 0) {
        rc = fw_reason_set(reason, -ENOMEM, "no memory");
    }
    return rc;
}

int main(int argc, char **argv)
{
    uint64_t timeout_ms = 0;
    uint64_t pace_ms = 0;
    if (argc != 5 || fw_parse_uint(argv[2], strlen(argv[2]), 0, 63, &place) != 0 ||
        fw_parse_uint(argv[3], strlen(argv[3]), 1, 600000, &timeout_ms) != 0 ||
        fw_parse_uint(argv[4], strlen(argv[4]), 0, 600000, &pace_ms) != 0) {
        (void)fprintf(stderr, "usage: epoch_node GROUP PLACE TIMEOUT_MS PACE_MS\n");
        return EXIT_FAILURE;
    }
    fw_signals_block(signal_events, 1);
    pace_ns = (int64_t)pace_ms * FW_NS_PER_MS;
    struct fw_reason reason;
    if (start(argv[1], (int64_t)timeout_ms * FW_NS_PER_MS, &reason) != 0) {
        (void)fprintf(stderr, "%s\n", reason.text);
        return EXIT_FAILURE;
    }
    inner = group->events;
    group->events = &events;
    ask(&pace);
    while (!is_over) {
        (void)fw_reactor_poll(reactor, -1);
    }
    fw_reactor_destroy(reactor);
    say_begin("over");
    say_end();
    return EXIT_SUCCESS;
}
