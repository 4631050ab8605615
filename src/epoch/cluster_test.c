/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what an epoch handler promises its scheduler holds over a group: one answer to each next(),
 * the same data for all, eviction of the silent, errors that say what to do, and leaving at once.
 * Method: schedulers on a bus and a clock that moves only when told (tests/support/epochs.h), so
 * that each case is played move by move; messages of a foreign byte order and of unequal length are
 * said by hand. Random storms over the same code are in storm_test.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/clock.h"
#include "support/epochs.h"

static struct epochs epochs;
static struct epochs_node *const nodes = epochs.nodes;

static int64_t base; /* The epoch in which all were together first. */

enum { ALL = 7 }; /* The mask of three. */

/* Three nodes that know each other and have asked for nothing. */
static int rig_set_up_idle(void **state)
{
    (void)state;
    epochs_init(&epochs, 3, 1);
    for (uint32_t i = 0; i < 3; i++) {
        nodes[i].is_resting = true;
        epochs_start(&epochs, i);
    }
    epochs_run(&epochs, 3);
    return 0;
}

/* All ask until all are in the same epoch. The first one to ask has begun alone. */
static void get_in_step(void)
{
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            epochs_next(&epochs, i);
        }
        epochs_run(&epochs, 1);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(nodes[i].is_waiting);
        assert_int_equal(nodes[i].reduced.mask, ALL);
        nodes[i].answers = 0;
    }
    base = nodes[0].number;
}

/* Three nodes in step, in epoch `base`. */
static int rig_set_up(void **state)
{
    (void)rig_set_up_idle(state);
    get_in_step();
    return 0;
}

static int rig_tear_down(void **state)
{
    (void)state;
    assert_null(epochs.wrong);
    epochs_fini(&epochs);
    return 0;
}

static void cut(uint32_t place)
{
    uint32_t components[FW_BUS_PLACES_MAX] = {0};
    components[place] = 1;
    fw_bus_arrange(&epochs.bus, components, false);
}

static void join(void)
{
    uint32_t components[FW_BUS_PLACES_MAX] = {0};
    fw_bus_arrange(&epochs.bus, components, false);
}

static void test_all_are_waited_for(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 5);
    assert_true(nodes[0].is_waiting && nodes[1].is_waiting);
    assert_int_equal(nodes[0].cluster.coordinator.phase, FW_EPOCH_CLOSING);
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(nodes[i].answer, base + 1);
        assert_int_equal(nodes[i].cluster.epoch.number, base + 1);
        assert_memory_equal(&nodes[i].reduced, &nodes[0].reduced, sizeof nodes[0].reduced);
        assert_int_equal(nodes[i].cluster.coordinator.phase, FW_EPOCH_WAITING);
    }
    assert_true(nodes[0].cluster.figures.ragged_max_ns >= INT64_C(5) * FW_NS_PER_MS);
}

/* Who does not take part is not waited for, and joins by FW_EPOCH_FIRST. */
static void test_who_joins_late(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, 1);
    assert_int_equal(nodes[0].reduced.mask, 1);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 3);
    assert_true(nodes[1].is_waiting); /* For node 0, which is live. */
    epochs_next(&epochs, 0);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, 2);
    assert_int_equal(nodes[1].answer, 2);
    assert_int_equal(nodes[1].reduced.mask, 3);
}

static void test_silent_is_evicted(void **state)
{
    (void)state;
    uint64_t missed = nodes[2].cluster.figures.missed;
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    epochs_pass(&epochs, epochs.timeout_ns - INT64_C(2) * FW_NS_PER_MS);
    epochs_run(&epochs, 1);
    assert_true(nodes[0].is_waiting); /* Not yet. */
    epochs_pass(&epochs, INT64_C(2) * FW_NS_PER_MS);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, base + 1);
    assert_int_equal(nodes[0].reduced.mask, 3);
    assert_int_equal(nodes[0].cluster.figures.evicted, 1);
    assert_int_equal(nodes[2].cluster.figures.missed, missed + 1);
    /* It is told so when it comes, and may then join anew. */
    epochs_next(&epochs, 2);
    assert_int_equal(nodes[2].answer, -ESTALE);
    assert_int_equal(nodes[2].cluster.figures.stale, 1);
    get_in_step();
}

/* Who is known to have died is not waited for until a time-out. */
static void test_dead_is_not_waited_for(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    assert_true(nodes[0].is_waiting);
    epochs_kill(&epochs, 2);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, base + 1);
    assert_int_equal(nodes[0].cluster.figures.evicted, 0);
}

/* The time-out reaches the group before the late one's word: both orders are settled alike. */
static void test_word_crosses_the_eviction(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    epochs_pass(&epochs, epochs.timeout_ns);
    epochs_next(&epochs, 2); /* It does not know yet; its word is ordered behind the complaints. */
    assert_true(nodes[2].is_waiting);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[2].answer, -ESTALE);
    assert_int_equal(nodes[2].answers, 1);
    assert_int_equal(nodes[0].reduced.mask, 3);
    assert_null(fw_epoch_coordinator_peer(&nodes[0].cluster.coordinator,
                                          nodes[2].cluster.coordinator.self));
}

/* One that has given up and asks to join anew while it is still believed to be in. */
static void test_join_crosses_the_eviction(void **state)
{
    (void)state;
    epochs_last(&epochs, 2);
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_next(&epochs, 2); /* FW_EPOCH_FIRST, behind its LAST. */
    epochs_run(&epochs, 2);
    assert_false(nodes[0].is_waiting);
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 2);
    assert_false(nodes[2].is_waiting);
    assert_int_equal(nodes[2].reduced.mask, ALL);
    assert_int_equal(nodes[2].answers, 1);
}

/* One that knows that it is late asks to join anew: what crosses that word does not end it. */
static void test_rejoin_crosses_the_eviction(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    epochs_pass(&epochs, epochs.timeout_ns);
    nodes[2].number = FW_EPOCH_FIRST;
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 1);
    assert_true(nodes[2].is_waiting);
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[2].answer, base + 2);
}

/* The longest time-out among those who take part is the one that counts. */
static void test_longest_timeout(void **state)
{
    (void)state;
    epochs_kill(&epochs, 1);
    epochs.timeout_ns *= 2;
    epochs_start(&epochs, 1);
    epochs.timeout_ns /= 2;
    epochs_run(&epochs, 3);
    get_in_step();
    epochs_next(&epochs, 0);
    epochs_run(&epochs, 1);
    epochs_pass(&epochs, epochs.timeout_ns + FW_NS_PER_MS);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].cluster.figures.evicted, 0);
    epochs_pass(&epochs, epochs.timeout_ns);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].cluster.figures.evicted, 2);
    assert_int_equal(nodes[0].answer, base + 1);
}

static void test_cut_off(void **state)
{
    (void)state;
    uint64_t before = nodes[2].cluster.figures.cut_off;
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 1);
    cut(2);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[2].answer, -ENOTCONN);
    assert_int_equal(nodes[2].cluster.epoch.number, 0);
    epochs_next(&epochs, 2);
    assert_int_equal(nodes[2].answer, -ENOTCONN); /* At once, while it lasts. */
    assert_int_equal(nodes[2].cluster.figures.cut_off, before + 2);
    /* The others go on without it, and need no time-out for that. */
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, base + 1);
    assert_int_equal(nodes[0].reduced.mask, 3);
    assert_int_equal(nodes[0].cluster.figures.evicted, 0);
    join();
    epochs_run(&epochs, 2);
    get_in_step();
}

/* Cut off and back before it could ask: it is not taken for one that stayed. */
static void test_short_cut(void **state)
{
    (void)state;
    cut(2);
    join();
    epochs_run(&epochs, 2);
    epochs_next(&epochs, 2);
    assert_int_equal(nodes[2].answer, -ESTALE);
    get_in_step();
    /* The same with the one whose word on what it knows comes first: the others lose nothing. */
    cut(0);
    join();
    epochs_run(&epochs, 2);
    epochs_next(&epochs, 1);
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[1].answer, base + 1);
    assert_int_equal(nodes[1].reduced.mask, 6);
}

/* Who asks while others join is not forgotten: it says its word again. */
static void test_asking_while_one_joins(void **state)
{
    (void)state;
    epochs_kill(&epochs, 2);
    epochs_run(&epochs, 1);
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_start(&epochs, 2); /* Its view stands before their words, which do not count then. */
    epochs_run(&epochs, 3);
    assert_int_equal(nodes[0].answer, base + 1);
    assert_int_equal(nodes[1].answer, base + 1);
    assert_int_equal(nodes[0].answers, 1);
    get_in_step();
}

/* Who leaves while another joins, by word or by dying, is not waited for afterwards. */
static void test_leaving_while_one_joins(void **state)
{
    (void)state;
    epochs_init(&epochs, 5, 1);
    for (uint32_t i = 0; i < 4; i++) {
        nodes[i].is_resting = true;
        epochs_start(&epochs, i);
    }
    for (uint32_t round = 0; round < 20 && nodes[0].reduced.mask != 0xf; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            epochs_next(&epochs, i);
        }
        epochs_run(&epochs, 4);
    }
    epochs_start(&epochs, 4);
    for (uint32_t i = 0; i < 4; i++) {
        (void)fw_bus_step(&epochs.bus, i); /* The view. */
        assert_false(fw_epoch_coordinator_is_ready(&nodes[i].cluster.coordinator));
    }
    epochs_last(&epochs, 2);
    epochs_kill(&epochs, 3);
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 3);
    assert_false(nodes[0].is_waiting || nodes[1].is_waiting);
    assert_int_equal(nodes[0].reduced.mask, 3);
    assert_int_equal(nodes[0].cluster.figures.evicted, 0);
}

/* A member that does not say what it knows does not hold up the others for ever. */
static void test_silent_while_one_joins(void **state)
{
    (void)state;
    epochs_kill(&epochs, 0);
    nodes[2].is_frozen = true;
    epochs_start(&epochs, 0);
    epochs_run(&epochs, 2);
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 2);
    assert_true(nodes[1].is_waiting);
    epochs_pass(&epochs, epochs.timeout_ns);
    epochs_run(&epochs, 2);
    assert_true(nodes[1].is_waiting); /* Now for node 2 itself, which is live. */
    epochs_pass(&epochs, epochs.timeout_ns);
    epochs_run(&epochs, 2);
    assert_int_equal(nodes[1].answer, base + 1);
    nodes[2].is_frozen = false;
    epochs_run(&epochs, 2);
    epochs_next(&epochs, 2);
    assert_int_equal(nodes[2].answer, -ESTALE);
    get_in_step();
}

/* The network says nothing at all, not even that it is gone. */
static void test_bound(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    int64_t bound = nodes[0].cluster.config.bound_ns;
    assert_int_equal(bound, 3 * epochs.timeout_ns);
    epochs_pass(&epochs, bound - 1);
    assert_true(nodes[0].is_waiting);
    epochs_pass(&epochs, 1);
    assert_int_equal(nodes[0].answer, -ETIMEDOUT);
    assert_int_equal(nodes[0].cluster.figures.timed_out, 1);
    assert_int_equal(nodes[0].cluster.figures.last_error, -ETIMEDOUT);
    /* It speaks again, and has left: the others do not wait for it. */
    epochs_next(&epochs, 1);
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 2);
    assert_int_equal(nodes[1].answer, base + 1);
    assert_int_equal(nodes[0].answers, 1);
    get_in_step();
}

static void test_last_cancels(void **state)
{
    (void)state;
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_last(&epochs, 0);
    epochs_run(&epochs, 3);
    assert_int_equal(nodes[0].answers, 0);
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[1].answer, base + 1);
    assert_int_equal(nodes[1].reduced.mask, 6);
    assert_int_equal(nodes[0].answers, 0);
}

/* When the last has left all rests, and the next one begins a life of its own. */
static void test_new_life(void **state)
{
    (void)state;
    uint64_t incarnation = nodes[0].incarnation;
    for (uint32_t i = 0; i < 3; i++) {
        epochs_last(&epochs, i);
    }
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[1].cluster.coordinator.phase, FW_EPOCH_IDLE);
    nodes[0].number = base; /* It speaks of the old life. */
    epochs_next(&epochs, 0);
    assert_int_equal(nodes[0].answer, -ESTALE);
    epochs_next(&epochs, 0);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, base + 1); /* Numbers never come back. */
    assert_true(nodes[0].incarnation > incarnation);
    /* Also if all are new but one, who was not asked by anyone. */
    epochs_last(&epochs, 0);
    epochs_kill(&epochs, 0);
    epochs_kill(&epochs, 1); /* No quorum: what node 2 knows is not believed, but remembered. */
    epochs_run(&epochs, 1);
    epochs_start(&epochs, 0);
    epochs_start(&epochs, 1);
    epochs_run(&epochs, 3);
    epochs_next(&epochs, 0);
    epochs_run(&epochs, 1);
    assert_int_equal(nodes[0].answer, base + 2);
}

/* A word of the old life that arrives in the new one, where the number would fit. */
static void test_word_of_old_life(void **state)
{
    (void)state;
    struct fw_epoch_coordinator *coordinator = &nodes[0].cluster.coordinator;
    struct fw_epoch_message next = {
        .kind = FW_EPOCH_NEXT,
        .incarnation = coordinator->incarnation - 1,
        .number = coordinator->number,
        .timeout_ns = 1,
        .data = "",
    };
    fw_epoch_coordinator_deliver(coordinator, coordinator->self, &next);
    assert_int_equal(coordinator->ready_count, 0);
    next.incarnation++;
    fw_epoch_coordinator_deliver(coordinator, coordinator->self, &next);
    assert_int_equal(coordinator->ready_count, 1);
}

/* A complaint that comes late finds another epoch and evicts nobody. */
static void test_late_complaint(void **state)
{
    (void)state;
    struct fw_epoch_coordinator *coordinator = &nodes[0].cluster.coordinator;
    epochs_next(&epochs, 1);
    epochs_run(&epochs, 1);
    struct fw_epoch_message timeout;
    fw_epoch_coordinator_complain(coordinator, &timeout);
    timeout.number--;
    fw_epoch_coordinator_deliver(coordinator, coordinator->self, &timeout);
    timeout.number++;
    timeout.incarnation--;
    fw_epoch_coordinator_deliver(coordinator, coordinator->self, &timeout);
    timeout.incarnation++;
    timeout.view = coordinator->asked_view;
    fw_epoch_coordinator_deliver(coordinator, coordinator->self, &timeout);
    assert_int_equal(coordinator->count, 3);
    timeout.view = 0;
    fw_epoch_coordinator_deliver(coordinator, coordinator->self, &timeout);
    assert_int_equal(coordinator->count, 1);
}

/* ---- data ---------------------------------------------------------------------------------- */

static size_t shortest;
static uint64_t swabbed;

static void shortest_combine(void *combined, const void *a, size_t a_length, const void *b,
                             size_t b_length)
{
    size_t length = a_length < b_length ? a_length : b_length;
    for (size_t i = 0; i < length; i++) {
        ((char *)combined)[i] = (char)(((const char *)a)[i] + ((const char *)b)[i]);
    }
}

static void swab_all(void *data, size_t length)
{
    swabbed++;
    for (size_t i = 0; i < length / 2; i++) {
        char byte = ((char *)data)[i];
        ((char *)data)[i] = ((char *)data)[length - 1 - i];
        ((char *)data)[length - 1 - i] = byte;
    }
}

static char reduced[FW_EPOCH_DATA_MAX];

static void none(struct fw_epoch_coordinator *coordinator)
{
    (void)coordinator;
}

static void no_clock(struct fw_epoch_coordinator *coordinator, int64_t timeout_ns)
{
    (void)coordinator;
    (void)timeout_ns;
}

static void no_eviction(struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    (void)coordinator;
    (void)member;
}

static void data_started(struct fw_epoch_coordinator *coordinator, const struct fw_epoch_peer *peer,
                         char *data, size_t length)
{
    (void)coordinator;
    (void)peer;
    shortest = length;
    memcpy(reduced, data, length);
}

static const struct fw_epoch_coordinator_events data_events = {
    .asks = none,
    .synchronised = none,
    .lost = none,
    .clock = no_clock,
    .evicted = no_eviction,
    .started = data_started,
};

/* Says NEXT for a member, through the wire. */
static void say_next(struct fw_epoch_coordinator *coordinator, uint64_t member, const char *data,
                     size_t length, bool is_foreign)
{
    struct fw_epoch_message next = {
        .kind = FW_EPOCH_NEXT,
        .timeout_ns = 1,
        .length = (uint32_t)length,
        .data = data,
        .is_foreign = is_foreign,
    };
    char bytes[FW_EPOCH_MESSAGE_MAX];
    struct fw_epoch_message read;
    size_t size = fw_epoch_message_write(&next, bytes);
    assert_int_equal(fw_epoch_message_read(&read, bytes, size), 0);
    fw_epoch_coordinator_deliver(coordinator, member, &read);
}

static void test_data(void **state)
{
    (void)state;
    static struct fw_epoch_coordinator coordinator;
    static char most[FW_EPOCH_DATA_MAX];
    struct fw_epoch_config config = {
        .timeout_ns = 1, .combine = shortest_combine, .swab = swab_all};
    struct fw_group_view view = {
        .id = 1, .members = {1, 2}, .count = 2, .has_joined = true, .is_quorate = true};
    assert_int_equal(fw_epoch_coordinator_init(&coordinator, 1, &config, &data_events), 0);
    fw_epoch_coordinator_view(&coordinator, &view);
    struct fw_epoch_message told;
    fw_epoch_coordinator_tell(&coordinator, &told);
    fw_epoch_coordinator_deliver(&coordinator, 1, &told);
    fw_epoch_coordinator_deliver(&coordinator, 2, &told);
    assert_true(fw_epoch_coordinator_is_ready(&coordinator));

    say_next(&coordinator, 1, "\1\2\3", 3, false);
    assert_int_equal(shortest, 3); /* It is alone. */
    say_next(&coordinator, 2, "\1\2", 2, true);
    assert_int_equal(swabbed, 1);
    say_next(&coordinator, 1, "\1\2\3", 3, false);
    assert_int_equal(shortest, 2);
    assert_memory_equal(reduced, "\3\3", 2);

    memset(most, 1, sizeof most);
    say_next(&coordinator, 1, most, sizeof most, false);
    say_next(&coordinator, 2, most, sizeof most, false);
    assert_int_equal(shortest, FW_EPOCH_DATA_MAX);
    assert_int_equal(reduced[FW_EPOCH_DATA_MAX - 1], 2);
    say_next(&coordinator, 1, most, sizeof most, false);
    say_next(&coordinator, 2, "", 0, false);
    assert_int_equal(shortest, 0);
    assert_int_equal(swabbed, 1);
    fw_epoch_coordinator_fini(&coordinator);
}

static void test_nonsense_is_refused(void **state)
{
    (void)state;
    char bytes[FW_EPOCH_MESSAGE_MAX] = "nonsense";
    struct fw_epoch_message message;
    struct fw_epoch_message last = {.kind = FW_EPOCH_LAST};
    size_t size = fw_epoch_message_write(&last, bytes);
    assert_int_equal(fw_epoch_message_read(&message, bytes, size), 0);
    assert_int_equal(fw_epoch_message_read(&message, bytes, size - 1), -EBADMSG);
    assert_int_equal(fw_epoch_message_read(&message, bytes, size + 1), -EBADMSG);
    for (size_t i = 0; i < 8; i++) { /* The magic, the kind, the flags. */
        bytes[i] = (char)(bytes[i] ^ 0x40);
        assert_int_equal(fw_epoch_message_read(&message, bytes, size), -EBADMSG);
        bytes[i] = (char)(bytes[i] ^ 0x40);
    }
    struct fw_epoch_message told = {.kind = FW_EPOCH_STATE, .length = 2, .live = {{2, 1}, {2, 1}}};
    size = fw_epoch_message_write(&told, bytes);
    assert_int_equal(fw_epoch_message_read(&message, bytes, size), -EBADMSG);
    told.live[1].member = 3;
    size = fw_epoch_message_write(&told, bytes);
    assert_int_equal(fw_epoch_message_read(&message, bytes, size), 0);
    assert_int_equal(message.live[1].member, 3);
    /* The member counts it, and goes on. */
    struct fw_group *group = &epochs.bus.places[0].group;
    group->events->delivered(group, group->self, "?", 1);
    assert_int_equal(nodes[0].cluster.figures.refused, 1);
    get_in_step();
}

/* While the group takes nothing, words do not queue up: what is said in the end is how it is. */
static void test_group_is_full(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * FW_BUS_OUTGOING_MAX; i++) {
        epochs_next(&epochs, 0);
        epochs_last(&epochs, 0);
    }
    assert_int_equal(epochs.bus.places[0].outgoing_count, FW_BUS_OUTGOING_MAX);
    epochs_next(&epochs, 0);
    epochs_next(&epochs, 1);
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 3);
    assert_false(nodes[1].is_waiting);
    epochs_next(&epochs, 1);
    epochs_next(&epochs, 2);
    epochs_run(&epochs, 3);
    assert_int_equal(nodes[0].answers, 1);
    assert_true(nodes[0].answer > base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_are_waited_for, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_who_joins_late, rig_set_up_idle, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_silent_is_evicted, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_dead_is_not_waited_for, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_word_crosses_the_eviction, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_join_crosses_the_eviction, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_rejoin_crosses_the_eviction, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(test_longest_timeout, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_cut_off, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_short_cut, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_asking_while_one_joins, rig_set_up, rig_tear_down),
        cmocka_unit_test_teardown(test_leaving_while_one_joins, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_silent_while_one_joins, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_bound, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_last_cancels, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_new_life, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_word_of_old_life, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_late_complaint, rig_set_up, rig_tear_down),
        cmocka_unit_test(test_data),
        cmocka_unit_test_setup_teardown(test_nonsense_is_refused, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_group_is_full, rig_set_up, rig_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
