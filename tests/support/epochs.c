/* SPDX-License-Identifier: Apache-2.0 */
#include "epochs.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "io/clock.h"

enum { DATA_PAGE = 4096 };
enum { RETRY_MS = 20, FAULT_PER_MILLE = 15, RECOVER_ROUNDS = 2000 };

static struct epochs_node *node_of(struct fw_epoch_cluster *cluster)
{
    return FW_CONTAINER_OF(cluster, struct epochs_node, cluster);
}

static void wrong(struct epochs *epochs, const char *what)
{
    if (epochs->wrong == NULL) {
        epochs->wrong = what;
    }
}

static void data_combine(void *combined, const void *a, size_t a_length, const void *b,
                         size_t b_length)
{
    struct epochs_data left;
    struct epochs_data right;
    FW_ASSERT(a_length == sizeof left && b_length == sizeof right);
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    left.mask |= right.mask;
    left.count += right.count;
    left.sum += right.sum;
    memcpy(combined, &left, sizeof left);
}

static int64_t cluster_now(struct fw_epoch_cluster *cluster)
{
    return node_of(cluster)->epochs->now_ns;
}

static void cluster_arm(struct fw_epoch_cluster *cluster, int64_t when_ns)
{
    node_of(cluster)->wake_ns = when_ns;
}

/* Whose the data is: the handler's, or nobody's to touch. */
static void data_protect(struct epochs_node *node, bool is_open)
{
    int rc = mprotect(node->data, DATA_PAGE, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
    FW_ASSERT(rc == 0);
}

/* ---- what must be true --------------------------------------------------------------------- */

static void told_check(struct epochs *epochs, const struct epochs_told *told)
{
    uint64_t first =
        epochs->told_count > EPOCHS_REMEMBERED ? epochs->told_count - EPOCHS_REMEMBERED : 0;
    for (uint64_t i = first; i < epochs->told_count; i++) {
        const struct epochs_told *other = &epochs->told[i % EPOCHS_REMEMBERED];
        if (other->incarnation == told->incarnation && other->number == told->number) {
            if (memcmp(&other->data, &told->data, sizeof other->data) != 0) {
                wrong(epochs, "two were told different things of the same epoch");
            }
            return;
        }
    }
    epochs->told[epochs->told_count++ % EPOCHS_REMEMBERED] = *told;
}

/* It gets a view: what it was told before was what all were told, unless it is cut off now. */
static void node_become_sure(struct epochs_node *node, uint64_t count, bool is_sure)
{
    uint64_t first = count > EPOCHS_UNSURE ? count - EPOCHS_UNSURE : 0;
    for (uint64_t i = first; is_sure && i < count; i++) {
        told_check(node->epochs, &node->unsure[i % EPOCHS_UNSURE]);
    }
    if (node->unsure_count > count) { /* The view has started an epoch. */
        node->unsure[0] = node->unsure[count % EPOCHS_UNSURE];
    }
    node->unsure_count -= count;
}

static bool node_step(struct epochs_node *node)
{
    const struct fw_group_view *view = &node->cluster.coordinator.view;
    uint64_t id = view->id;
    uint64_t count = node->unsure_count;
    bool has_moved = fw_bus_step(&node->epochs->bus, node->place);
    if (view->id != id) {
        node_become_sure(node, count, view->is_quorate);
    }
    return has_moved;
}

static void told_take(struct epochs_node *node, int64_t number, const void *data, size_t length)
{
    struct epochs *epochs = node->epochs;
    if (!node->is_waiting) {
        wrong(epochs, "a call-back that nobody waits for");
    }
    if (node->is_frozen) {
        wrong(epochs, "a call-back of a frozen process");
    }
    node->is_waiting = false;
    node->answers++;
    node->answer = number;
    if (number <= 0) {
        node->number = FW_EPOCH_FIRST;
        node->retry_ns = epochs->now_ns + (int64_t)RETRY_MS * FW_NS_PER_MS;
        return;
    }
    struct epochs_data reduced;
    if (length != sizeof reduced) {
        wrong(epochs, "data of another length");
        return;
    }
    memcpy(&reduced, data, sizeof reduced);
    uint64_t incarnation = node->cluster.coordinator.incarnation;
    if (node->number != FW_EPOCH_FIRST) {
        if (number != node->number + 1 || incarnation != node->incarnation) {
            wrong(epochs, "an epoch was left out, or came twice");
        }
    }
    if ((uint64_t)__builtin_popcountll(reduced.mask) != reduced.count) {
        wrong(epochs, "somebody was counted twice");
    }
    if ((reduced.mask & UINT64_C(1) << node->place) == 0) {
        wrong(epochs, "it is not in its own epoch");
    }
    node->number = number;
    node->incarnation = incarnation;
    node->reduced = reduced;
    node->started++;
    node->unsure[node->unsure_count++ % EPOCHS_UNSURE] =
        (struct epochs_told){.incarnation = incarnation, .number = number, .data = reduced};
}

static void node_told(void *argument, int64_t number, void *data, size_t length)
{
    told_take(argument, number, data, length);
    data_protect(argument, false);
}

static void bounds_check(struct epochs *epochs)
{
    for (uint32_t i = 0; i < epochs->count; i++) {
        const struct epochs_node *node = &epochs->nodes[i];
        if (node->is_up && !node->is_frozen && node->is_waiting &&
            epochs->now_ns - node->since_ns > node->cluster.config.bound_ns) {
            wrong(epochs, "a next() was not answered in time");
        }
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

void epochs_init(struct epochs *epochs, uint32_t count, uint64_t seed)
{
    memset(epochs, 0, sizeof *epochs);
    fw_bus_init(&epochs->bus, count);
    fw_random_init(&epochs->chance, seed);
    epochs->count = count;
    epochs->now_ns = FW_NS_PER_S;
    epochs->timeout_ns = 100 * (int64_t)FW_NS_PER_MS;
    for (uint32_t i = 0; i < count; i++) {
        epochs->nodes[i].epochs = epochs;
        epochs->nodes[i].place = i;
        void *page = mmap(NULL, DATA_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        FW_ASSERT(page != MAP_FAILED);
        epochs->nodes[i].data = page;
    }
}

void epochs_start(struct epochs *epochs, uint32_t place)
{
    struct epochs_node *node = &epochs->nodes[place];
    FW_ASSERT(!node->is_up);
    struct fw_epoch_cluster_config config = {
        .epoch = {.timeout_ns = epochs->timeout_ns, .combine = data_combine},
        .now = cluster_now,
        .arm = cluster_arm,
    };
    struct fw_group *group = fw_bus_join(&epochs->bus, place, epochs->bus.places[place].component);
    node->wake_ns = INT64_MAX;
    node->is_up = true;
    node->is_frozen = false;
    node->is_waiting = false;
    node->unsure_count = 0;
    node->number = FW_EPOCH_FIRST;
    node->retry_ns = 0;
    int rc = fw_epoch_cluster_init(&node->cluster, group, &config);
    FW_ASSERT(rc == 0);
}

void epochs_kill(struct epochs *epochs, uint32_t place)
{
    struct epochs_node *node = &epochs->nodes[place];
    FW_ASSERT(node->is_up);
    node->is_up = false;
    node->cluster.is_pending = false; /* It died. */
    fw_epoch_cluster_fini(&node->cluster);
    fw_bus_leave(&epochs->bus, place);
}

void epochs_fini(struct epochs *epochs)
{
    for (uint32_t i = 0; i < epochs->count; i++) {
        if (epochs->nodes[i].is_up) {
            epochs_kill(epochs, i);
        }
        (void)munmap(epochs->nodes[i].data, DATA_PAGE);
    }
    fw_bus_fini(&epochs->bus);
}

void epochs_next(struct epochs *epochs, uint32_t place)
{
    struct epochs_node *node = &epochs->nodes[place];
    if (node->is_waiting || !node->is_up || node->is_frozen) {
        return;
    }
    node->is_waiting = true;
    node->since_ns = epochs->now_ns;
    data_protect(node, true);
    node->data->mask = UINT64_C(1) << place;
    node->data->count = 1;
    node->data->sum = fw_random_next(&epochs->chance);
    fw_epoch_next(&node->cluster.epoch, node->number, node->data, sizeof *node->data, node_told,
                  node);
}

void epochs_last(struct epochs *epochs, uint32_t place)
{
    struct epochs_node *node = &epochs->nodes[place];
    node->is_waiting = false;
    fw_epoch_last(&node->cluster.epoch, node->number);
    data_protect(node, false);
    node->number = FW_EPOCH_FIRST;
}

bool epochs_step(struct epochs *epochs, uint32_t place)
{
    return node_step(&epochs->nodes[place]);
}

/* ---- time and chance ----------------------------------------------------------------------- */

void epochs_pass(struct epochs *epochs, int64_t ns)
{
    int64_t end = epochs->now_ns + ns;
    for (;;) {
        struct epochs_node *first = NULL;
        for (uint32_t i = 0; i < epochs->count; i++) {
            struct epochs_node *node = &epochs->nodes[i];
            if (node->is_up && !node->is_frozen && node->wake_ns <= end &&
                (first == NULL || node->wake_ns < first->wake_ns)) {
                first = node;
            }
        }
        if (first == NULL) {
            break;
        }
        if (first->wake_ns > epochs->now_ns) {
            epochs->now_ns = first->wake_ns;
        }
        first->wake_ns = INT64_MAX;
        fw_epoch_cluster_poll(&first->cluster);
    }
    epochs->now_ns = end;
    bounds_check(epochs);
}

static void node_go_on(struct epochs *epochs, struct epochs_node *node)
{
    if (!node->is_resting && epochs->now_ns >= node->retry_ns) {
        epochs_next(epochs, node->place);
    }
}

void epochs_run(struct epochs *epochs, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < epochs->count; i++) {
            struct epochs_node *node = &epochs->nodes[i];
            if (node->is_up && !node->is_frozen) {
                node_go_on(epochs, node);
            }
            while (fw_bus_order(&epochs->bus, i)) {
            }
        }
        for (uint32_t i = 0; i < epochs->count; i++) {
            while (epochs->nodes[i].is_up && !epochs->nodes[i].is_frozen &&
                   node_step(&epochs->nodes[i])) {
            }
        }
        epochs_pass(epochs, FW_NS_PER_MS);
    }
}

static void fault_random(struct epochs *epochs)
{
    struct fw_random *chance = &epochs->chance;
    uint32_t place = (uint32_t)fw_random_below(chance, epochs->count);
    struct epochs_node *node = &epochs->nodes[place];
    uint32_t components[FW_BUS_PLACES_MAX];
    switch (fw_random_below(chance, 6)) {
    case 0:
        if (node->is_up) {
            epochs_kill(epochs, place);
        }
        break;
    case 1:
        node->is_frozen = !node->is_frozen;
        break;
    case 2:
        if (node->is_up && !node->is_frozen) {
            epochs_last(epochs, place);
        }
        break;
    case 3: {
        for (uint32_t i = 0; i < epochs->count; i++) {
            components[i] = (uint32_t)fw_random_below(chance, 2);
        }
        bool loses = fw_random_chance(chance, 1, 2);
        fw_bus_arrange(&epochs->bus, components, loses);
        break;
    }
    default:
        memset(components, 0, sizeof components);
        fw_bus_arrange(&epochs->bus, components, false);
        break;
    }
}

void epochs_random_step(struct epochs *epochs, bool faults)
{
    struct fw_random *chance = &epochs->chance;
    uint32_t place = (uint32_t)fw_random_below(chance, epochs->count);
    struct epochs_node *node = &epochs->nodes[place];
    if (faults && fw_random_chance(chance, FAULT_PER_MILLE, 1000)) {
        fault_random(epochs);
        return;
    }
    switch (fw_random_below(chance, 8)) {
    case 0:
        epochs_pass(epochs, (int64_t)fw_random_below(chance, 5 * (uint64_t)FW_NS_PER_MS));
        break;
    case 1:
        if (!node->is_up && fw_random_chance(chance, 1, 10)) {
            epochs_start(epochs, place);
        }
        break;
    case 2:
    case 3:
        if (node->is_up && !node->is_frozen) {
            node_go_on(epochs, node);
        }
        break;
    case 4:
    case 5:
        (void)fw_bus_order(&epochs->bus, place);
        break;
    default:
        if (node->is_up && !node->is_frozen) {
            (void)node_step(node);
        }
        break;
    }
}

/* All are up, together, awake and busy from now on. */
static void epochs_heal(struct epochs *epochs)
{
    uint32_t components[FW_BUS_PLACES_MAX] = {0};
    fw_bus_arrange(&epochs->bus, components, false);
    for (uint32_t i = 0; i < epochs->count; i++) {
        struct epochs_node *node = &epochs->nodes[i];
        node->is_frozen = false;
        node->is_resting = false;
        if (!node->is_up) {
            epochs_start(epochs, i);
        }
    }
}

/* Each was told of three epochs more, the last one with everybody in it. */
static bool all_in_step(const struct epochs *epochs, const uint64_t *before)
{
    for (uint32_t i = 0; i < epochs->count; i++) {
        const struct epochs_node *node = &epochs->nodes[i];
        if (node->started < before[i] + 3 ||
            node->reduced.mask != (UINT64_C(1) << epochs->count) - 1) {
            return false;
        }
    }
    return true;
}

bool epochs_recover(struct epochs *epochs)
{
    uint64_t before[FW_BUS_PLACES_MAX] = {0};
    epochs_heal(epochs);
    for (uint32_t i = 0; i < epochs->count; i++) {
        before[i] = epochs->nodes[i].started;
    }
    for (uint32_t i = 0; i < RECOVER_ROUNDS && epochs->wrong == NULL; i++) {
        if (all_in_step(epochs, before)) {
            return true;
        }
        epochs_run(epochs, 1);
    }
    return false;
}
