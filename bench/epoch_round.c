/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench/run epoch-round starts on each node: rounds in which every member says one thing and
 * gets what all have said. Prints the median and the 99th percentile of a round, in nanoseconds on
 * the wall, as a JSON object.
 *
 *     epoch_round bare GROUP MEMBERS ROUNDS     Corosync's own calls and nothing else: the least
 *                                               that agreeing can cost
 *     epoch_round speak GROUP MEMBERS ROUNDS    the same where one member speaks
 *     epoch_round listen GROUP MEMBERS ROUNDS   and the others listen; their figures mean nothing
 *     epoch_round epoch GROUP MEMBERS ROUNDS    epochs, through reactor, group and handler
 *
 * Both send messages of the same size, one per member and round, and begin a round as soon as the
 * one before is over. A round counts when all members take part; all members end after the same.
 */
#include <corosync/cpg.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "epoch/cluster.h"
#include "epoch/corosync.h"
#include "io/alarm.h"
#include "io/clock.h"
#include "io/reactor.h"

enum {
    DATA_SIZE = 64,
    ROUNDS_MAX = 1000000,
    MEMBERS_MAX = 16,
    TIMEOUT_MS = 5000, /* Nobody is to be evicted here. */
};

static const char *name;
static uint64_t member_count;
static uint64_t round_count;
static uint64_t rounds;   /* That are over and counted. */
static int64_t *taken_ns; /* Of each. */
static int64_t begin_ns;
static bool is_over;

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "epoch_round: %s\n", what);
    exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): one thread. */
}

static void round_begin(void)
{
    begin_ns = fw_clock_now_ns();
}

static void round_end(void)
{
    taken_ns[rounds++] = fw_clock_now_ns() - begin_ns;
    is_over = rounds == round_count;
}

/* ---- bare ---------------------------------------------------------------------------------- */

static cpg_handle_t handle;
static uint64_t heard; /* In this round. */
static uint64_t speaker_count;
static bool is_speaker;
static char message[FW_EPOCH_MESSAGE_HEAD + DATA_SIZE];

static void bare_send(void)
{
    struct iovec piece = {.iov_base = message, .iov_len = sizeof message};
    round_begin();
    if (!is_speaker) {
        return;
    }
    cs_error_t error = CS_ERR_TRY_AGAIN;
    while (error == CS_ERR_TRY_AGAIN) {
        error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &piece, 1);
    }
    if (error != CS_OK) {
        die("cpg_mcast_joined");
    }
}

/* Nobody says a second thing before it has heard all of the first: counting is enough. */
static void bare_delivered(cpg_handle_t of, const struct cpg_name *group, uint32_t node,
                           uint32_t process, void *bytes, size_t length)
{
    (void)of;
    (void)group;
    (void)node;
    (void)process;
    (void)bytes;
    (void)length;
    if (++heard == speaker_count) {
        heard = 0;
        round_end();
        if (!is_over) {
            bare_send();
        }
    }
}

/* NOLINTNEXTLINE(readability-function-size): as Corosync calls. */
static void bare_members(cpg_handle_t of, const struct cpg_name *group,
                         const struct cpg_address *members, size_t count,
                         const struct cpg_address *left, size_t left_count,
                         const struct cpg_address *joined, size_t joined_count)
{
    (void)of;
    (void)group;
    (void)members;
    (void)left;
    (void)joined;
    if (count == member_count && joined_count > 0) {
        bare_send();
    } else if (left_count > 0 && !is_over && rounds + 1 < round_count) {
        die("somebody left");
    }
}

static void bare_run(void)
{
    cpg_callbacks_t calls = {.cpg_deliver_fn = bare_delivered, .cpg_confchg_fn = bare_members};
    struct cpg_name group = {.length = (uint32_t)strlen(name)};
    memcpy(group.value, name, group.length);
    struct pollfd ready = {.events = POLLIN};
    if (cpg_initialize(&handle, &calls) != CS_OK || cpg_join(handle, &group) != CS_OK ||
        cpg_fd_get(handle, &ready.fd) != CS_OK) {
        die("cannot join");
    }
    while (!is_over) {
        (void)poll(&ready, 1, -1);
        if (cpg_dispatch(handle, CS_DISPATCH_ALL) != CS_OK) {
            die("cpg_dispatch");
        }
    }
    (void)cpg_finalize(handle);
}

/* ---- epochs -------------------------------------------------------------------------------- */

static struct fw_reactor *reactor;
static struct fw_group *group;
static struct fw_epoch_cluster cluster;
static struct fw_alarm deadline;
static int64_t number = FW_EPOCH_FIRST;
static bool is_closed;
static struct {
    uint64_t count;
    char rest[DATA_SIZE - sizeof(uint64_t)];
} data;

static void epoch_combine(void *combined, const void *a, size_t a_length, const void *b,
                          size_t b_length)
{
    uint64_t counts[2];
    (void)a_length;
    (void)b_length;
    memcpy(&counts[0], a, sizeof counts[0]);
    memcpy(&counts[1], b, sizeof counts[1]);
    counts[0] += counts[1];
    memcpy(combined, counts, sizeof counts[0]);
}

static void epoch_next(void);

static void epoch_told(void *argument, int64_t answer, void *combined, size_t length)
{
    (void)argument;
    (void)combined;
    (void)length;
    number = answer > 0 ? answer : FW_EPOCH_FIRST;
    if (answer > 0 && data.count == member_count) {
        round_end();
    } else if (rounds > 0) {
        die("somebody left");
    }
    if (answer < 0) {
        fw_alarm_set(&deadline, fw_clock_now_ns() + FW_NS_PER_MS); /* Corosync is not there yet. */
    } else if (!is_over) {
        epoch_next();
    }
}

static void epoch_next(void)
{
    data.count = 1;
    round_begin();
    fw_epoch_next(&cluster.epoch, number, &data, sizeof data, epoch_told, NULL);
}

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
    if (!cluster.is_pending) {
        epoch_next();
    }
}

static void group_closed(void *argument)
{
    (void)argument;
    is_closed = true;
}

static void alarm_closed(struct fw_alarm *alarm)
{
    (void)alarm;
}

static void epoch_run(void)
{
    struct fw_reason reason;
    struct fw_corosync_options options = {.group_name = name};
    struct fw_epoch_cluster_config config = {
        .epoch = {.timeout_ns = TIMEOUT_MS * (int64_t)FW_NS_PER_MS, .combine = epoch_combine},
        .now = cluster_now,
        .arm = cluster_arm,
    };
    if (fw_reactor_create(&reactor, &reason) != 0 ||
        fw_alarm_open(&deadline, reactor, deadline_rang, &reason) != 0 ||
        fw_corosync_open(&group, reactor, &options, &reason) != 0) {
        die(reason.text);
    }
    if (fw_epoch_cluster_init(&cluster, group, &config) != 0) {
        die("no memory");
    }
    epoch_next();
    while (!is_over) {
        (void)fw_reactor_poll(reactor, -1);
    }
    fw_epoch_last(&cluster.epoch, number);
    fw_epoch_cluster_fini(&cluster);
    fw_corosync_close(group, group_closed, NULL);
    fw_alarm_close(&deadline, alarm_closed);
    while (!is_closed) {
        (void)fw_reactor_poll(reactor, -1);
    }
    fw_reactor_destroy(reactor);
}

/* ---- both ---------------------------------------------------------------------------------- */

static int times_compare(const void *a, const void *b)
{
    int64_t left;
    int64_t right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    if (argc != 5 || strlen(argv[2]) >= CPG_MAX_NAME_LENGTH ||
        fw_parse_uint(argv[3], strlen(argv[3]), 1, MEMBERS_MAX, &member_count) != 0 ||
        fw_parse_uint(argv[4], strlen(argv[4]), 1, ROUNDS_MAX, &round_count) != 0) {
        die("usage: epoch_round bare|speak|listen|epoch GROUP MEMBERS ROUNDS");
    }
    name = argv[2];
    taken_ns = calloc(round_count, sizeof *taken_ns);
    if (taken_ns == NULL) {
        die("no memory");
    }
    speaker_count = strcmp(argv[1], "bare") == 0 ? member_count : 1;
    is_speaker = strcmp(argv[1], "listen") != 0;
    if (strcmp(argv[1], "epoch") == 0) {
        epoch_run();
    } else {
        bare_run();
    }
    qsort(taken_ns, round_count, sizeof *taken_ns, times_compare);
    (void)printf("{\"median\": %" PRId64 ", \"p99\": %" PRId64 "}\n", taken_ns[round_count / 2],
                 taken_ns[round_count - 1 - round_count / 100]);
    free(taken_ns);
    return EXIT_SUCCESS;
}
