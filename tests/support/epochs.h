/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers on a bus (epoch/bus.h), with a clock of their own, and what must be true of them
 * whatever happens. For tests and for the simulator: nothing moves but by a call.
 *
 * Each scheduler's data says who gave it (a bit for its place), how many gave (1) and a number of
 * its own. Combined, they must agree: as many as bits, so that nobody was left out or counted
 * twice; and whoever is told of the same epoch of the same life is told the same. Who is cut off
 * before its next view is excused: groups do not promise more.
 *
 * The data lies on a page of its own that can be touched only from next() until its call-back, or
 * last(): a handler that looks at it before or after faults.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "epoch/bus.h"
#include "epoch/cluster.h"
#include "io/random.h"

enum { EPOCHS_REMEMBERED = 4096, EPOCHS_UNSURE = 64 };

struct epochs;

struct epochs_data {
    uint64_t mask;
    uint64_t count;
    uint64_t sum;
};

/* What a scheduler was told of an epoch. */
struct epochs_told {
    uint64_t incarnation;
    int64_t number;
    struct epochs_data data;
};

struct epochs_node {
    struct epochs *epochs;
    uint32_t place;
    bool is_up;
    bool is_frozen;
    bool is_resting; /* Asks for no epoch by itself. */
    struct fw_epoch_cluster cluster;
    int64_t wake_ns;
    struct epochs_data *data; /* The handler's while it waits. */
    bool is_waiting;
    int64_t since_ns;
    int64_t number;       /* Of its epoch; FW_EPOCH_FIRST: it has none. */
    uint64_t incarnation; /* Of what it was told last. */
    struct epochs_data reduced;
    int64_t answer; /* The last one. */
    uint64_t answers;
    uint64_t started;
    int64_t retry_ns;                         /* After an error: not before then. */
    struct epochs_told unsure[EPOCHS_UNSURE]; /* Since its last view. */
    uint64_t unsure_count;
};

struct epochs {
    struct fw_bus bus;
    struct fw_random chance;
    int64_t now_ns;
    int64_t timeout_ns;
    uint32_t count;
    struct epochs_node nodes[FW_BUS_PLACES_MAX];
    struct epochs_told told[EPOCHS_REMEMBERED]; /* For comparing. */
    uint64_t told_count;
    const char *wrong; /* What should not have happened; NULL: nothing did. */
};

void epochs_init(struct epochs *epochs, uint32_t count, uint64_t seed);
void epochs_fini(struct epochs *epochs);

void epochs_start(struct epochs *epochs, uint32_t place);
void epochs_kill(struct epochs *epochs, uint32_t place);

/* Asks for the next epoch, unless it waits for one already. */
void epochs_next(struct epochs *epochs, uint32_t place);
void epochs_last(struct epochs *epochs, uint32_t place);

/* What comes next for it in the order of the group reaches it. False: there was nothing. */
bool epochs_step(struct epochs *epochs, uint32_t place);

/* Time passes; clocks that have run out are served, but not those of frozen nodes. */
void epochs_pass(struct epochs *epochs, int64_t ns);

/* Everything that can move moves, and who is not resting asks for epochs, for so many rounds. */
void epochs_run(struct epochs *epochs, uint32_t rounds);

/* One thing happens, any. With `faults` also bad ones. */
void epochs_random_step(struct epochs *epochs, bool faults);

/* Ends all that is bad. True: all go in step soon after. */
bool epochs_recover(struct epochs *epochs);
