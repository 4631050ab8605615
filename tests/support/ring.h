/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of rings share: disks in memory, attaching, and checks in one line.
 *
 * Include it after <cmocka.h>.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "io/disk_memory.h"
#include "ring/core.h"

enum { RING_TEST_HOST = 7 };

static inline struct fw_disk_memory *ring_test_disk(uint64_t size, uint32_t sector_size, int fill)
{
    struct fw_disk_memory *memory;
    const struct fw_disk_memory_options options = {.size = size, .sector_size = sector_size};
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    memset(memory->bytes, fill, size);
    return memory;
}

static inline void ring_test_create(struct fw_disk *disk, int format)
{
    const struct fw_ring_create create = {.format = format};
    struct fw_reason reason = {.text = ""};
    int rc = fw_ring_create_on(disk, &create, &reason);
    if (rc != 0) {
        fail_msg("cannot create a ring: %s", reason.text);
    }
}

static inline struct fw_ring *ring_test_attach(struct fw_disk *disk, enum fw_ring_role role,
                                               unsigned flags)
{
    const struct fw_ring_options options = {
        .role = role, .flags = flags, .queue = "q", .client = "gen"};
    struct fw_ring *ring;
    struct fw_reason reason = {.text = ""};
    int rc = fw_ring_attach_on(&ring, disk, RING_TEST_HOST, &options, &reason);
    if (rc != 0) {
        fail_msg("cannot attach: %s", reason.text);
    }
    return ring;
}

static inline void ring_test_ok(int rc, const struct fw_ring_reason *reason, const char *what)
{
    if (rc != 0) {
        fail_msg("%s: %d %s", what, rc, rc < 0 ? reason->text : "");
    }
}

/* A call that must return 0. */
#define RING_OK(function, ...)                                              \
    do {                                                                    \
        struct fw_ring_reason reason_ = {.text = ""};                       \
        ring_test_ok(function(__VA_ARGS__, &reason_), &reason_, #function); \
    } while (0)

/* A call that must return something else; its reason does not matter. */
#define RING_IS(expected, function, ...) assert_int_equal(function(__VA_ARGS__, NULL), expected)

/* The next message must be this one; returns where it ends. */
static inline uint64_t ring_test_pop(struct fw_ring *ring, const void *data, size_t length)
{
    struct fw_ring_message message;
    uint64_t position = 0;
    RING_OK(fw_ring_pop, ring, &message, &position);
    assert_int_equal(message.length, length);
    if (length > 0) {
        assert_memory_equal(message.data, data, length);
    }
    return position;
}
