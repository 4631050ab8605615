/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a message about extents does what it says if it is true now, and nothing if it is old,
 * comes twice, or cannot be; and a snapshot, and a log, make the same metadata again.
 * Method: small metadata, changed by hand; then by random messages, many of them wrong, with the
 * changes written down and replayed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/random.h"
#include "volume/pool.h"
#include "volume/queue.h"
#include "volume/store.h"

#include "io/disk_memory.h"

enum { EXTENTS = 40, SIZE = 12, ROUNDS = 3000 };

static struct fw_volume_metadata metadata;
static struct fw_volume_batch records;
static struct fw_volume_receipt receipt;

static int log_take(void *context, const struct fw_volume_message *change)
{
    (void)context;
    return fw_volume_batch_add(&records, change);
}

static const struct fw_volume_sink sink = {.take = log_take};

static struct fw_volume_message message_of(enum fw_volume_kind kind, uint32_t host, char name)
{
    struct fw_volume_message message;
    fw_volume_message_init(&message, kind);
    message.host = host;
    message.name[0] = name;
    memset(&message.uuid, name, sizeof message.uuid);
    message.value = SIZE;
    return message;
}

static void change(struct fw_volume_message message)
{
    assert_int_equal(fw_volume_metadata_change(&metadata, &message, &sink), 0);
}

static void grant(uint32_t host, uint64_t count)
{
    struct fw_volume_message message;
    if (fw_volume_metadata_grant(&metadata, host, count, &message) > 0) {
        change(message);
    }
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(fw_volume_metadata_init(&metadata, EXTENTS), 0);
    change(message_of(FW_VOLUME_HOST_ADDED, 0, 'x'));
    change(message_of(FW_VOLUME_HOST_ADDED, 2, 'y'));
    change(message_of(FW_VOLUME_VOLUME_ADDED, 0, 'a'));
    change(message_of(FW_VOLUME_VOLUME_ADDED, 0, 'b'));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fw_volume_metadata_fini(&metadata);
    fw_volume_batch_fini(&records);
    return 0;
}

static void receive(uint32_t host, enum fw_volume_kind kind, char name, struct fw_volume_run run)
{
    struct fw_volume_message message = message_of(kind, host, name);
    assert_true(fw_volume_message_add(&message, &run));
    assert_int_equal(fw_volume_metadata_receive(&metadata, host, &message, &sink, &receipt, NULL),
                     0);
    assert_int_equal(fw_volume_metadata_check(&metadata, NULL), 0);
}

static void expect(uint64_t done, uint64_t old, uint64_t set_aside)
{
    assert_int_equal(receipt.done, done);
    assert_int_equal(receipt.old, old);
    assert_int_equal(receipt.set_aside, set_aside);
}

static void test_place(void **state)
{
    (void)state;
    grant(0, 6); /* Extents 0 to 5, generation 1. */
    const struct fw_volume_run run = {.extent = 1, .count = 3, .generation = 1, .logical = 4};
    receive(2, FW_VOLUME_PLACE, 'a', run); /* Not that host's. */
    expect(0, 3, 0);
    receive(0, FW_VOLUME_PLACE, 'a', run);
    expect(3, 0, 0);
    assert_int_equal(fw_volume_metadata_at(&metadata, 0, 5), 2);
    receive(0, FW_VOLUME_PLACE, 'a', run); /* Once more. */
    expect(0, 3, 0);
    receive(0, FW_VOLUME_GIVE_BACK, 'b', run); /* Not there. */
    expect(0, 3, 0);
    receive(0, FW_VOLUME_GIVE_BACK, 'a', run);
    expect(3, 0, 0);
    receive(0, FW_VOLUME_PLACE, 'a', run); /* It was, but is free now. */
    expect(0, 3, 0);
    metadata.cursor = 0;
    grant(0, 3); /* The same ones, with another generation. */
    assert_int_equal(metadata.extents[2].generation, 2);
    receive(0, FW_VOLUME_PLACE, 'a', run);
    expect(0, 3, 0);
    receive(0, FW_VOLUME_RETURN, 'a', (struct fw_volume_run){.count = 1, .generation = 1});
    expect(1, 0, 0);
}

static void test_set_aside(void **state)
{
    (void)state;
    grant(0, 6);
    receive(0, FW_VOLUME_PLACE, 'z', (struct fw_volume_run){.count = 1, .generation = 1});
    expect(0, 0, 1);
    assert_non_null(strstr(receipt.why, "no such volume"));
    receive(0, FW_VOLUME_PLACE, 'a',
            (struct fw_volume_run){.extent = 1, .count = 2, .generation = 1, .logical = SIZE - 1});
    expect(1, 0, 1);
    assert_non_null(strstr(receipt.why, "beyond the end"));
    receive(0, FW_VOLUME_PLACE, 'a',
            (struct fw_volume_run){.extent = 3, .count = 1, .generation = 1, .logical = SIZE - 1});
    expect(0, 0, 1);
    assert_non_null(strstr(receipt.why, "another extent"));
    assert_int_equal(metadata.hosts[0].set_aside, 3);
    receive(0, FW_VOLUME_PLACE, 'a', /* Beyond the disk: there is nothing to set aside. */
            (struct fw_volume_run){.extent = EXTENTS, .count = 1, .generation = 1});
    expect(0, 1, 0);
    receive(2, FW_VOLUME_GIVE_BACK, 'z', (struct fw_volume_run){.count = 1, .generation = 1});
    expect(0, 1, 0); /* Only who placed it knows what is in it. */
    receive(0, FW_VOLUME_GIVE_BACK, 'z', (struct fw_volume_run){.count = 1, .generation = 1});
    expect(1, 0, 0);
}

/* A group has an extent at least, and no more than numbers are made for. */
static void test_sizes(void **state)
{
    (void)state;
    struct fw_volume_metadata odd;
    assert_int_equal(fw_volume_metadata_init(&odd, 0), -EINVAL);
    assert_int_equal(fw_volume_metadata_init(&odd, (uint64_t)FW_VOLUME_EXTENTS_MAX + 1), -EINVAL);
    assert_int_equal(fw_volume_metadata_init(&odd, 1), 0);
    assert_int_equal(odd.free_count, 1);
    fw_volume_metadata_fini(&odd);
}

/* Changes that cannot be are refused, whatever brought them there. */
static void test_refused(void **state)
{
    (void)state;
    struct fw_reason reason;
    grant(0, 2);
    const struct fw_volume_run run = {.extent = 0, .count = 1, .generation = 1};
    struct {
        enum fw_volume_kind kind;
        uint32_t host;
        char name;
        struct fw_volume_run run;
    } wrong[] = {
        {FW_VOLUME_GRANTED, 0, 'a', run},
        {FW_VOLUME_GRANTED, 1, 'a', {.extent = 9, .count = 1, .generation = 2}},
        {FW_VOLUME_PLACED, 2, 'a', run},
        {FW_VOLUME_PLACED, 0, 'z', run},
        {FW_VOLUME_PLACED, 0, 'a', {.extent = 0, .count = 1, .generation = 2}},
        {FW_VOLUME_FREED, 0, 'a', {.extent = 9, .count = 1}},
        {FW_VOLUME_FREED, 0, 'a', {.extent = EXTENTS - 1, .count = 2}},
        {FW_VOLUME_HOST_ADDED, 0, 'x', run},
        {FW_VOLUME_HOST_ADDED, 1, 'y', run},
        {FW_VOLUME_HOST_REMOVED, 0, 'x', run},
        {FW_VOLUME_HOST_REMOVED, 1, 'x', run},
        {FW_VOLUME_VOLUME_ADDED, 0, 'a', run},
        {FW_VOLUME_VOLUME_REMOVED, 0, 'z', run},
        {FW_VOLUME_PLACE, 0, 'a', run},
        {FW_VOLUME_FREE, 0, 'a', run},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct fw_volume_message message = message_of(wrong[i].kind, wrong[i].host, wrong[i].name);
        assert_true(fw_volume_message_add(&message, &wrong[i].run));
        message.number = metadata.number + 1;
        assert_int_equal(fw_volume_metadata_apply(&metadata, &message, &reason), -EBADMSG);
        assert_int_equal(message.number, metadata.number + 1);
    }
    struct fw_volume_message late = message_of(FW_VOLUME_VOLUME_REMOVED, 0, 'a');
    late.number = metadata.number + 2;
    assert_int_equal(fw_volume_metadata_apply(&metadata, &late, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "missing"));
    late.number = metadata.number; /* That was long ago. */
    assert_int_equal(fw_volume_metadata_apply(&metadata, &late, &reason), 0);
    assert_true(metadata.volumes[0].is_used);
    assert_int_equal(fw_volume_metadata_check(&metadata, &reason), 0);
}

/* ---- the same again ---- */

static void same(const struct fw_volume_metadata *other)
{
    assert_int_equal(other->free_count, metadata.free_count);
    assert_int_equal(other->generation, metadata.generation);
    for (uint32_t i = 0; i < EXTENTS; i++) {
        const struct fw_volume_extent *a = &metadata.extents[i];
        const struct fw_volume_extent *b = &other->extents[i];
        assert_int_equal(a->state, b->state);
        if (a->state == FW_VOLUME_IS_FREE) {
            continue;
        }
        assert_int_equal(a->generation, b->generation);
        if (a->state == FW_VOLUME_IS_PLACED) { /* Volumes may have other numbers. */
            assert_int_equal(a->logical, b->logical);
            assert_string_equal(metadata.volumes[a->index].name, other->volumes[b->index].name);
            assert_int_equal(metadata.volumes[a->index].users, other->volumes[b->index].users);
        } else {
            assert_int_equal(a->index, b->index);
        }
    }
    assert_int_equal(fw_volume_metadata_check(other, NULL), 0);
}

static int replay(void *context, const struct fw_volume_message *message)
{
    return fw_volume_metadata_apply(context, message, NULL);
}

static void random_message(struct fw_random *chance)
{
    static const enum fw_volume_kind kinds[] = {FW_VOLUME_PLACE,     FW_VOLUME_PLACE,
                                                FW_VOLUME_GIVE_BACK, FW_VOLUME_RETURN,
                                                FW_VOLUME_OPEN,      FW_VOLUME_CLOSE};
    uint32_t host = fw_random_chance(chance, 1, 2) ? 0 : 2;
    enum fw_volume_kind kind = kinds[fw_random_below(chance, 6)];
    struct fw_volume_message message = message_of(kind, host, 'a');
    char name = (char)('a' + (int)fw_random_below(chance, 9) / 4);
    memset(&message.uuid, name, sizeof message.uuid);
    for (uint64_t i = fw_random_below(chance, 4); i > 0; i--) {
        uint64_t extent = fw_random_below(chance, EXTENTS);
        uint64_t count = fw_random_between(chance, 1, 3);
        uint64_t back = fw_random_below(chance, 8) / 7;
        uint64_t logical = fw_random_below(chance, SIZE + 1);
        bool places = kind == FW_VOLUME_PLACE || kind == FW_VOLUME_GIVE_BACK;
        const struct fw_volume_run run = {.extent = extent,
                                          .count = count,
                                          .generation = metadata.extents[extent].generation - back,
                                          .logical = places ? logical : 0};
        (void)fw_volume_message_add(&message, &run);
    }
    assert_int_equal(fw_volume_metadata_receive(&metadata, host, &message, &sink, &receipt, NULL),
                     0);
}

static void test_replay(void **state)
{
    (void)state;
    struct fw_random chance;
    struct fw_volume_metadata again;
    fw_random_init(&chance, 11);
    for (int round = 0; round < ROUNDS; round++) {
        random_message(&chance);
        if (fw_random_chance(&chance, 1, 4)) {
            grant(fw_random_chance(&chance, 1, 2) ? 0 : 2, 3);
        }
        assert_int_equal(fw_volume_metadata_check(&metadata, NULL), 0);
    }
    assert_true(metadata.generation > 20);
    assert_int_equal(fw_volume_metadata_init(&again, EXTENTS), 0);
    assert_int_equal(fw_volume_batch_walk(&records, replay, &again, NULL), 0);
    same(&again);
    assert_int_equal(fw_volume_batch_walk(&records, replay, &again, NULL), 0); /* All is old now. */
    same(&again);
    fw_volume_metadata_fini(&again);
    records.length = 0; /* A snapshot makes the same. */
    assert_int_equal(fw_volume_metadata_snapshot(&metadata, &sink), 0);
    assert_int_equal(fw_volume_metadata_init(&again, EXTENTS), 0);
    assert_int_equal(fw_volume_batch_walk(&records, replay, &again, NULL), 0);
    again.generation = metadata.generation; /* That of a free extent is not in it. */
    same(&again);
    fw_volume_metadata_fini(&again);
}

/* ---- free lists ---- */

static void test_pool_list(void **state)
{
    (void)state;
    struct fw_volume_message part;
    uint64_t cursor = 0;
    grant(0, 2); /* 0, 1 */
    grant(2, 1); /* 2 */
    grant(0, 3); /* 3 to 5, generation 3 */
    assert_true(fw_volume_metadata_pool(&metadata, 0, 0, 1, &cursor, &part));
    assert_int_equal(part.count, 1);
    assert_int_equal(part.runs[0].count, 2);
    assert_int_equal(part.number, 3);
    assert_true(fw_volume_metadata_pool(&metadata, 0, 0, 1, &cursor, &part));
    assert_int_equal(part.runs[0].extent, 3);
    assert_int_equal(part.runs[0].count, 3);
    assert_false(fw_volume_metadata_pool(&metadata, 0, 0, 1, &cursor, &part));
    cursor = 0;
    assert_true(fw_volume_metadata_pool(&metadata, 0, 1, 9, &cursor, &part));
    assert_int_equal(part.runs[0].extent, 3);
    grant(2, EXTENTS);
    struct fw_volume_message none;
    assert_int_equal(fw_volume_metadata_grant(&metadata, 0, 1, &none), 0);
    assert_int_equal(metadata.free_count, 0);
}

/* ---- demand ---- */

static void test_demand(void **state)
{
    (void)state;
    const struct fw_volume_limits limits = {.min = 4, .max = 32, .quiet_ns = 100};
    struct fw_volume_demand demand;
    fw_volume_demand_init(&demand, &limits, 0, 0);
    assert_int_equal(fw_volume_demand_want(&demand, &limits, 0, 1), 4);
    assert_int_equal(fw_volume_demand_want(&demand, &limits, 2, 1), 0); /* Half is enough. */
    assert_int_equal(fw_volume_demand_want(&demand, &limits, 1, 1), 3);
    for (int i = 0; i < 5; i++) { /* Busy: twice as much, up to the limit. */
        fw_volume_demand_use(&demand, demand.target);
        (void)fw_volume_demand_want(&demand, &limits, demand.target, 2);
    }
    assert_int_equal(demand.target, 32);
    fw_volume_demand_use(&demand, 8); /* Neither busy nor quiet. */
    (void)fw_volume_demand_want(&demand, &limits, 32, 150);
    assert_int_equal(demand.target, 32);
    (void)fw_volume_demand_want(&demand, &limits, 32, 249); /* Quiet, but not for long enough. */
    assert_int_equal(demand.target, 32);
    (void)fw_volume_demand_want(&demand, &limits, 32, 250);
    assert_int_equal(demand.target, 16);
    fw_volume_demand_squeeze(&demand, &limits);
    assert_int_equal(demand.target, 10);
    for (int i = 0; i < 9; i++) {
        fw_volume_demand_squeeze(&demand, &limits);
    }
    assert_int_equal(demand.target, 4);
    fw_volume_demand_init(&demand, &limits, 20, 0); /* What it has is what it needed. */
    assert_int_equal(demand.target, 20);
}

/* ---- the plain format ---- */

static const struct fw_volume_layout layout = {.extent_size = 4096,
                                               .hosts_max = 3,
                                               .volumes_max = 4,
                                               .ring_size = UINT64_C(7) * 4096,
                                               .log_size = UINT64_C(7) * 4096};

static struct fw_disk_memory *group_make(uint64_t size)
{
    struct fw_disk_memory *memory;
    const struct fw_disk_memory_options options = {.size = size};
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    assert_int_equal(fw_volume_plain_format(&memory->disk, &layout, NULL), 0);
    return memory;
}

/* V21: damage is told, the older copy is used, and nothing is written. */
static void test_plain_damage(void **state)
{
    (void)state;
    struct fw_disk_memory *memory = group_make(460 << 10);
    struct fw_volume_store *store;
    struct fw_volume_metadata loaded;
    struct fw_reason reason;
    assert_int_equal(fw_volume_plain_format(&memory->disk, &layout, &reason), -EEXIST);
    assert_int_equal(fw_volume_plain_open(&store, &memory->disk, NULL), 0);
    assert_true(store->geometry.extent_count >= EXTENTS);
    fw_volume_metadata_fini(&metadata);
    assert_int_equal(store->ops->load(store, &metadata, NULL), 0);
    change(message_of(FW_VOLUME_VOLUME_ADDED, 0, 'p'));
    assert_int_equal(store->ops->save(store, &metadata, NULL), 0);
    change(message_of(FW_VOLUME_VOLUME_ADDED, 0, 'q'));
    assert_int_equal(store->ops->save(store, &metadata, NULL), 0);
    assert_int_equal(store->ops->load(store, &loaded, NULL), 0);
    assert_int_equal(loaded.number, 2);
    assert_int_equal(loaded.volumes_end, 2);
    fw_volume_metadata_fini(&loaded);
    memory->bytes[8192 + 20] ^= 1; /* A copy's UUID; which of the two does not matter to us. */
    assert_int_equal(store->ops->load(store, &loaded, NULL), 0);
    fw_volume_metadata_fini(&loaded);
    memory->bytes[8192 + 20] ^= 1;
    for (uint64_t at = 8192; at < 460 << 10; at += 4096) { /* Both bodies. */
        memory->bytes[at + 50] ^= 1;
    }
    assert_int_equal(store->ops->load(store, &loaded, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "both copies"));
    store->ops->close(store);
    memory->bytes[60] ^= 1;
    assert_int_equal(fw_volume_plain_open(&store, &memory->disk, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "block 0"));
    memory->bytes[0] ^= 1;
    assert_int_equal(fw_volume_plain_open(&store, &memory->disk, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "fairway volume format"));
    fw_disk_close(&memory->disk);
}

static void test_plain_layout(void **state)
{
    (void)state;
    struct fw_disk_memory *memory;
    struct fw_reason reason;
    struct fw_volume_layout wrong = layout;
    const struct fw_disk_memory_options options = {.size = 64 << 10};
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    assert_int_equal(fw_volume_plain_format(&memory->disk, &layout, &reason), -EINVAL);
    assert_non_null(strstr(reason.text, "too few"));
    wrong.extent_size = 1000;
    assert_int_equal(fw_volume_plain_format(&memory->disk, &wrong, &reason), -EINVAL);
    wrong = layout;
    wrong.hosts_max = FW_VOLUME_HOSTS_MAX + 1;
    assert_int_equal(fw_volume_plain_format(&memory->disk, &wrong, &reason), -EINVAL);
    fw_disk_close(&memory->disk);
    /* The last extent ends where the disk does, or just before. */
    for (uint64_t size = 460 << 10; size < 470 << 10; size += 512) {
        struct fw_volume_store *store;
        memory = group_make(size);
        assert_int_equal(fw_volume_plain_open(&store, &memory->disk, NULL), 0);
        const struct fw_volume_geometry *geometry = &store->geometry;
        uint64_t end = geometry->data_offset + geometry->extent_count * geometry->extent_size;
        assert_true(end <= size && end + 3 * geometry->extent_size > size);
        store->ops->close(store);
        fw_disk_close(&memory->disk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_aside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pool_list, setup, teardown),
        cmocka_unit_test(test_demand),
        cmocka_unit_test_setup_teardown(test_plain_damage, setup, teardown),
        cmocka_unit_test(test_plain_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
