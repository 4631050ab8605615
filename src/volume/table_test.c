/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: device-mapper's table of a volume has every byte of it once, in order: extents where they
 * are, holes where the agent is.
 * Method: small metadata made by hand, with runs that can be joined and runs that cannot.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "volume/table.h"

enum { EXTENTS = 20, SIZE = 10 };

static const struct fw_volume_geometry geometry = {
    .extent_size = 8192, .extent_count = EXTENTS, .data_offset = 1 << 20};
static const char *const devices[2] = {"/dev/sdx", "/dev/nbd7"};

static struct fw_volume_metadata metadata;

static struct fw_volume_message message_of(enum fw_volume_kind kind, char name)
{
    struct fw_volume_message message;
    fw_volume_message_init(&message, kind);
    message.name[0] = name;
    memset(&message.uuid, name, sizeof message.uuid);
    message.value = SIZE;
    return message;
}

static int nothing(void *context, const struct fw_volume_message *change)
{
    (void)context;
    (void)change;
    return 0;
}

static void change(struct fw_volume_message message)
{
    static const struct fw_volume_sink sink = {.take = nothing};
    assert_int_equal(fw_volume_metadata_change(&metadata, &message, &sink), 0);
}

/* The host places `count` extents from `extent` on at `logical`. */
static void place(char name, uint64_t extent, uint64_t count, uint64_t logical)
{
    static const struct fw_volume_sink sink = {.take = nothing};
    struct fw_volume_message message = message_of(FW_VOLUME_PLACE, name);
    struct fw_volume_receipt receipt;
    const struct fw_volume_run run = {.extent = extent,
                                      .count = count,
                                      .generation = metadata.extents[extent].generation,
                                      .logical = logical};
    assert_true(fw_volume_message_add(&message, &run));
    assert_int_equal(fw_volume_metadata_receive(&metadata, 0, &message, &sink, &receipt, NULL), 0);
}

static void expect(const char *volume, const char *text)
{
    struct fw_volume_table table;
    assert_int_equal(fw_volume_table_make(&table, &metadata, &geometry, volume, devices), 0);
    assert_string_equal(table.text, text);
    assert_int_equal(table.length, strlen(text));
    fw_volume_table_fini(&table);
}

static void test_tables(void **state)
{
    (void)state;
    struct fw_volume_table table;
    struct fw_volume_message grant;
    assert_int_equal(fw_volume_metadata_init(&metadata, EXTENTS), 0);
    change(message_of(FW_VOLUME_HOST_ADDED, 'x'));
    change(message_of(FW_VOLUME_VOLUME_ADDED, 'a'));
    change(message_of(FW_VOLUME_VOLUME_ADDED, 'b'));
    expect("a", "0 160 linear /dev/nbd7 0\n");
    assert_int_equal(fw_volume_metadata_grant(&metadata, 0, EXTENTS, &grant), EXTENTS);
    change(grant);
    place('a', 5, 1, 0);
    place('a', 6, 1, 1);  /* Behind it on the disk too. */
    place('a', 4, 1, 2);  /* Not so. */
    place('b', 7, 1, 3);  /* Another volume's. */
    place('a', 12, 2, 8); /* Up to the end. */
    expect("a", "0 32 linear /dev/sdx 2128\n"
                "32 16 linear /dev/sdx 2112\n"
                "48 80 linear /dev/nbd7 48\n"
                "128 32 linear /dev/sdx 2240\n");
    expect("b", "0 48 linear /dev/nbd7 0\n"
                "48 16 linear /dev/sdx 2160\n"
                "64 96 linear /dev/nbd7 64\n");
    assert_int_equal(fw_volume_table_make(&table, &metadata, &geometry, "c", devices), -ENOENT);
    fw_volume_metadata_fini(&metadata);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
