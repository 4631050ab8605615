/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bugs planted on purpose. Each is a mistake that real servers shipped, small enough to see at once
 * and rare enough to pass most runs; a test demands that every one of them is found within 1,000
 * seeds and that its replay fails in the same way.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/address.h"
#include "io/reactor.h"
#include "simulate/network.h"
#include "simulate/scenarios.h"

enum { ROUNDS = 10 };

/*
 * Lost wake-up: the consumer looks for work, finds none, and only then says that it sleeps. Work
 * that arrives in between is published to somebody who is not yet asleep, and nobody wakes him.
 */
static struct {
    _Atomic uint32_t work;
    atomic_bool asleep;
    struct fw_parker parker;
    struct fw_parker done;
} sleeper;

static void sleeper_run(void *argument)
{
    (void)argument;
    for (uint32_t done = 0; done < ROUNDS;) {
        if (atomic_load(&sleeper.work) > done) {
            done++;
            fw_unpark(&sleeper.done);
            continue;
        }
        FW_YIELD_POINT("planted: found no work"); /* The bug: the mark comes after the look. */
        atomic_store(&sleeper.asleep, true);
        fw_park(&sleeper.parker);
        atomic_store(&sleeper.asleep, false);
    }
}

static void wakeup_run(void)
{
    struct fw_thread thread;
    atomic_store(&sleeper.work, 0);
    atomic_store(&sleeper.asleep, false);
    fw_parker_init(&sleeper.parker);
    fw_parker_init(&sleeper.done);
    int rc = fw_thread_create(&thread, "sleeper", sleeper_run, NULL);
    FW_ASSERT(rc == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        sim_sleep(sim_between(0, 10) * SIM_US);
        atomic_fetch_add(&sleeper.work, 1);
        FW_YIELD_POINT("planted: work published");
        if (atomic_load(&sleeper.asleep)) {
            fw_unpark(&sleeper.parker);
        }
        fw_park(&sleeper.done);
    }
    fw_thread_join(&thread);
}

const struct sim_scenario sim_scenario_planted_wakeup = {
    .name = "planted-wakeup",
    .purpose = "looks for work before it says that it sleeps",
    .run = wakeup_run,
    .planted = true,
};

/*
 * Publish before data: the writer counts the message before it has written it.
 */
static struct {
    _Atomic uint32_t published;
    _Atomic uint32_t slots[ROUNDS];
} board;

static void reader_run(void *argument)
{
    (void)argument;
    for (uint32_t seen = 0; seen < ROUNDS;) {
        if (atomic_load(&board.published) == seen) {
            sim_sleep(SIM_US);
            continue;
        }
        SIM_EXPECT(atomic_load(&board.slots[seen]) == seen + 1);
        seen++;
    }
}

static void publish_run(void)
{
    struct fw_thread thread;
    atomic_store(&board.published, 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        atomic_store(&board.slots[i], 0);
    }
    int rc = fw_thread_create(&thread, "reader", reader_run, NULL);
    FW_ASSERT(rc == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        sim_sleep(sim_between(0, 10) * SIM_US);
        atomic_fetch_add(&board.published, 1); /* The bug: these two are the wrong way round. */
        FW_YIELD_POINT("planted: counted");
        atomic_store(&board.slots[i], i + 1);
    }
    fw_thread_join(&thread);
}

const struct sim_scenario sim_scenario_planted_publish = {
    .name = "planted-publish",
    .purpose = "counts a message before it has written it",
    .run = publish_run,
    .planted = true,
};

/*
 * Double close: a connection is closed when its peer is done, and also when it has been idle for
 * too long. The bug: whether it is closed is noted only once `closed` has run, so that an idle
 * limit which is over in the same round closes it again.
 */
static struct {
    struct fw_reactor *reactor;
    struct fw_listener listener;
    struct fw_stream accepted;
    struct fw_stream client;
    bool open;
    uint32_t left; /* Sources whose `closed` has not run. */
    int64_t idle_until_ns;
    int64_t client_until_ns;
} idle;

static void idle_readable(struct fw_stream *stream)
{
    char byte;
    ssize_t result = fw_stream_receive(stream, &byte, 1);
    SIM_EXPECT(result == 0);
    fw_stream_close(stream);
}

static void idle_accepted_closed(struct fw_stream *stream)
{
    (void)stream;
    idle.open = false;
    idle.left--;
}

static void idle_client_closed(struct fw_stream *stream)
{
    (void)stream;
    idle.left--;
}

static void idle_connected(struct fw_stream *stream, int result)
{
    (void)stream;
    SIM_EXPECT(result == 0);
    idle.client_until_ns = sim_now() + sim_between(900, 1100) * SIM_US;
}

static void idle_accept(struct fw_listener *listener, int fd)
{
    static const struct fw_stream_events events = {.readable = idle_readable,
                                                   .closed = idle_accepted_closed};
    (void)listener;
    int rc = fw_stream_open(&idle.accepted, idle.reactor, fd, &events);
    FW_ASSERT(rc == 0);
    fw_stream_wait(&idle.accepted);
    idle.open = true;
    idle.left++;
    idle.idle_until_ns = sim_now() + 1000 * SIM_US;
}

static void idle_listener_closed(struct fw_listener *listener)
{
    (void)listener;
    idle.left--;
}

static void idle_start(void)
{
    static const struct fw_listener_events listener_events = {.accepted = idle_accept,
                                                              .closed = idle_listener_closed};
    static const struct fw_stream_events client_events = {.connected = idle_connected,
                                                          .closed = idle_client_closed};
    struct fw_address address;
    int rc = fw_address_parse("10.0.0.1:1", 1, 0, &address, 1, NULL);
    FW_ASSERT(rc == 1);
    memset(&idle, 0, sizeof idle);
    idle.idle_until_ns = SIM_NEVER;
    idle.client_until_ns = SIM_NEVER;
    rc = fw_reactor_create(&idle.reactor, NULL);
    FW_ASSERT(rc == 0);
    struct fw_listener_options options = {.backlog = 1};
    rc = fw_listener_open(&idle.listener, idle.reactor, &address, &options, &listener_events, NULL);
    FW_ASSERT(rc == 0);
    rc = fw_stream_connect(&idle.client, idle.reactor, &address, &client_events);
    FW_ASSERT(rc == -EINPROGRESS);
    idle.left = 2;
}

static void close_run(void)
{
    sim_weather.later_one_in = 2;
    idle_start();
    while (idle.left > 0) {
        (void)fw_reactor_poll(idle.reactor, 10 * SIM_US);
        if (sim_now() >= idle.client_until_ns) {
            idle.client_until_ns = SIM_NEVER;
            fw_stream_close(&idle.client);
        }
        if (sim_now() >= idle.idle_until_ns) {
            idle.idle_until_ns = SIM_NEVER;
            fw_listener_close(&idle.listener);
            if (idle.open) {
                fw_stream_close(&idle.accepted);
            }
        }
    }
    fw_reactor_destroy(idle.reactor);
}

const struct sim_scenario sim_scenario_planted_close = {
    .name = "planted-close",
    .purpose = "closes an idle connection that its peer has just ended",
    .run = close_run,
    .planted = true,
};
