/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays moves of models/epoch.pml to the code of epochs, read from stdin, a line each:
 *
 *     next MEMBER     it asks for an epoch, and its word gets its place in the order
 *     read MEMBER     the next word or view in the order reaches it
 *     clock MEMBER    its clock has run out: it says so to all
 *     die MEMBER      it dies
 *
 * They come from variants of the model that are wrong, so the code may find some impossible: a
 * member that waits cannot ask. Those are left out. In the end everybody reads what is left to
 * read, no time passes, and it is checked that all were told the same, that who still waits is
 * counted as ready and waits for somebody who is alive, and that all get in step again. Prints what
 * is wrong and ends with 1, or how many moves were made and ends with 0.
 *
 * The model knows no quorum, so four more members are there who ask for nothing.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/epochs.h"

enum { PLAYERS = 3, MEMBERS = 7, LINE_SIZE = 32 };

static struct epochs epochs;

static void order_all(uint32_t place)
{
    while (fw_bus_order(&epochs.bus, place)) {
    }
}

static bool move_next(uint32_t place)
{
    struct epochs_node *node = &epochs.nodes[place];
    if (!node->is_up || node->is_waiting) {
        return false;
    }
    epochs_next(&epochs, place);
    if (!node->is_waiting) { /* It was evicted, and learns of it now. */
        epochs_next(&epochs, place);
    }
    order_all(place);
    return true;
}

static bool move_clock(uint32_t place)
{
    struct epochs_node *node = &epochs.nodes[place];
    if (!node->is_up || node->cluster.clock_until_ns == INT64_MAX) {
        return false;
    }
    node->cluster.clock_until_ns = epochs.now_ns;
    fw_epoch_cluster_poll(&node->cluster);
    order_all(place);
    return true;
}

static bool move_die(uint32_t place)
{
    bool is_possible = epochs.nodes[place].is_up;
    if (is_possible) {
        epochs_kill(&epochs, place);
    }
    return is_possible;
}

/* False: it was not possible. */
static bool move_make(const char *line)
{
    char kind[LINE_SIZE];
    unsigned place = 0;
    /* NOLINTNEXTLINE(cert-err34-c): from our own test; what is not understood ends it. */
    if (sscanf(line, "%31s %u", kind, &place) != 2 || place >= PLAYERS) {
        (void)printf("no move: %s", line);
        exit(EXIT_FAILURE); /* NOLINT(concurrency-mt-unsafe): one thread. */
    }
    if (strcmp(kind, "next") == 0) {
        return move_next(place);
    }
    if (strcmp(kind, "clock") == 0) {
        return move_clock(place);
    }
    if (strcmp(kind, "die") == 0) {
        return move_die(place);
    }
    return epochs.nodes[place].is_up && epochs_step(&epochs, place);
}

static bool is_alive(uint64_t member)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (epochs.nodes[i].is_up && epochs.nodes[i].cluster.group->self == member) {
            return true;
        }
    }
    return false;
}

/* It waits with reason: its word counts, and one who is alive has not given its own. */
static bool waits_rightly(const struct epochs_node *node)
{
    const struct fw_epoch_coordinator *coordinator = &node->cluster.coordinator;
    const struct fw_epoch_peer *self =
        fw_epoch_coordinator_peer(coordinator, node->cluster.group->self);
    bool is_other_missing = false;
    for (uint32_t i = 0; i < coordinator->count; i++) {
        const struct fw_epoch_peer *peer = &coordinator->peers[i];
        is_other_missing = is_other_missing || (!peer->is_ready && is_alive(peer->member));
    }
    return self != NULL && self->is_ready && self->ticket == node->cluster.ticket &&
           is_other_missing;
}

/* Everything that was said reaches everybody; no clock runs. */
static void read_all(void)
{
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            order_all(i);
            has_moved = (epochs.nodes[i].is_up && epochs_step(&epochs, i)) || has_moved;
        }
    }
}

static const char *what_is_wrong(void)
{
    read_all();
    for (uint32_t i = 0; i < PLAYERS; i++) {
        const struct epochs_node *node = &epochs.nodes[i];
        if (node->is_up && node->is_waiting && !waits_rightly(node)) {
            return "one waits for nothing";
        }
    }
    if (epochs.wrong == NULL && !epochs_recover(&epochs)) {
        return "they do not get in step again";
    }
    return epochs.wrong;
}

int main(void)
{
    epochs_init(&epochs, MEMBERS, 1);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        epochs.nodes[i].is_resting = true;
        epochs_start(&epochs, i);
    }
    epochs_run(&epochs, 3);
    char line[LINE_SIZE];
    unsigned made = 0;
    unsigned count = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        count++;
        made += move_make(line);
    }
    const char *wrong = what_is_wrong();
    if (wrong != NULL) {
        (void)printf("wrong: %s\n", wrong);
        return EXIT_FAILURE;
    }
    (void)printf("%u of %u moves\n", made, count);
    epochs_fini(&epochs);
    return EXIT_SUCCESS;
}
