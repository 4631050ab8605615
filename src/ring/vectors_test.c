/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: images made by the prototype of format 1 are read as they were meant, and the same
 * operations give the same images, byte for byte.
 * Method: each image of tests/ring/vectors is rebuilt on a disk in memory and compared; then it is
 * attached to, both ways, and its messages are popped.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io/file.h"
#include "support/ring.h"

enum { SECTOR = 512, SIZE = 8 * SECTOR, LARGE_SIZE = 32 * SECTOR, FILL = 0xa5 };

static struct fw_disk_memory *memory;
static struct fw_ring *producer;
static struct fw_ring *consumer;
static char letters[8192]; /* abc...zabc... */

static const char sync_message[] = "((blocks((pv0(12326 12249))(pv0(11 1))))(generation 2))";
static const char allocation_message[] =
    "((volume test5)(segments(((start_extent 1)(extent_count 32)"
    "(cls(Linear((name pv0)(start_extent 12328))))))))";

static void begin(uint64_t size, uint32_t sector_size, int fill)
{
    for (size_t i = 0; i < sizeof letters; i++) {
        letters[i] = (char)('a' + i % 26);
    }
    memory = ring_test_disk(size, sector_size, fill);
    ring_test_create(&memory->disk, 1);
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
}

/* Compares the disk with the image of that name. */
static void compare(const char *name)
{
    char path[512];
    char *image;
    size_t size;
    struct fw_reason reason;
    const char *folder = getenv("FW_TEST_VECTORS"); /* NOLINT(concurrency-mt-unsafe) */
    assert_non_null(folder);
    (void)snprintf(path, sizeof path, "%s/%s.img", folder, name);
    if (fw_file_read(path, 1 << 20, &image, &size, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    assert_int_equal(size, memory->disk.properties.size);
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)image[i] != memory->bytes[i]) {
            fail_msg("%s: byte %zu is %02x, not %02x", name, i, memory->bytes[i],
                     (uint8_t)image[i]);
        }
    }
    free(image);
}

static void end(void)
{
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    fw_disk_close(&memory->disk);
}

/* Whoever comes next reads the same: attached anew, the consumer starts at its pointer. */
static void reattach(void)
{
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
}

static void test_empty(void **state)
{
    (void)state;
    begin(SIZE, SECTOR, 0);
    compare("01-empty");
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position);
    compare("01-empty"); /* Looking changes nothing. */
    end();

    begin(SIZE, SECTOR, FILL);
    compare("02-empty-over-garbage");
    ring_test_create(&memory->disk, 1); /* A second time nothing happens. */
    compare("02-empty-over-garbage");
    end();
}

static void test_stage(void **state)
{
    (void)state;
    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_stage, producer, "hello", 5);
    compare("03-push-noadvance");
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position); /* Nothing is published. */
    end();

    begin(SIZE, SECTOR, 0);
    RING_OK(fw_ring_stage, producer, "first", 5);
    RING_OK(fw_ring_drop, producer); /* What the prototype did with it. */
    RING_OK(fw_ring_stage, producer, "second!", 7);
    RING_OK(fw_ring_publish, producer);
    RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, "second!", 7));
    compare("12-double-push");
    end();
}

static void test_lengths(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 100};
    struct fw_ring_message messages[FW_ARRAY_LENGTH(lengths)];
    for (int batch = 0; batch < 2; batch++) { /* One by one, or all at once: no difference. */
        begin(SIZE, SECTOR, FILL);
        for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
            messages[i] = (struct fw_ring_message){.data = letters, .length = lengths[i]};
            if (batch == 0) {
                RING_OK(fw_ring_push, producer, letters, lengths[i]);
            }
        }
        if (batch == 1) {
            RING_OK(fw_ring_push_batch, producer, messages, FW_ARRAY_LENGTH(messages));
        }
        compare("04-lengths");
        reattach();
        for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
            (void)ring_test_pop(consumer, letters, lengths[i]);
        }
        end();
    }
}

static void test_sectors(void **state)
{
    (void)state;
    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_push, producer, letters, 504);
    RING_OK(fw_ring_push, producer, "0123456789", 10);
    compare("05-header-at-sector-end");
    (void)ring_test_pop(consumer, letters, 504);
    (void)ring_test_pop(consumer, "0123456789", 10);
    end();

    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_push, producer, letters, 1700);
    compare("06-multisector");
    (void)ring_test_pop(consumer, letters, 1700);
    end();

    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_push, producer, letters, 2044);
    RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, letters, 2044));
    RING_OK(fw_ring_push, producer, letters, 1000);
    RING_OK(fw_ring_push, producer, "after-wrap", 10);
    compare("07-wraparound");
    (void)ring_test_pop(consumer, letters, 1000);
    (void)ring_test_pop(consumer, "after-wrap", 10);
    end();
}

static void test_full(void **state)
{
    (void)state;
    char digits[508];
    begin(SIZE, SECTOR, FILL);
    for (int i = 0; i < 5; i++) {
        memset(digits, '0' + i, sizeof digits);
        RING_OK(fw_ring_push, producer, digits, sizeof digits);
    }
    compare("08-full");
    RING_IS(FW_RING_RETRY, fw_ring_push, producer, "", 0);
    compare("08-full");
    for (int i = 0; i < 5; i++) {
        memset(digits, '0' + i, sizeof digits);
        (void)ring_test_pop(consumer, digits, sizeof digits);
    }
    end();

    begin(SIZE, SECTOR, FILL);
    RING_IS(-EMSGSIZE, fw_ring_push, producer, letters, 2557);
    RING_OK(fw_ring_push, producer, letters, 2556);
    compare("09-max-message");
    (void)ring_test_pop(consumer, letters, 2556);
    end();
}

static void test_suspend(void **state)
{
    (void)state;
    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_push, producer, "one", 3);
    RING_OK(fw_ring_suspend, consumer);
    compare("10a-suspend-requested");
    RING_IS(FW_RING_SUSPENDED, fw_ring_poll, producer);
    compare("10b-suspend-acked");
    RING_IS(FW_RING_SUSPENDED, fw_ring_push, producer, letters, 9999); /* Before any size. */
    RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, "one", 3));
    RING_OK(fw_ring_resume, consumer);
    compare("10c-resume-requested");
    RING_OK(fw_ring_poll, producer);
    compare("10d-resume-acked");
    end();
}

/*
 * The prototype published after its acknowledgement. The image is one that can be made rightly too,
 * if the message comes first; in the order that the prototype allowed nothing may appear.
 */
static void test_race(void **state)
{
    (void)state;
    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_push, producer, "late", 4);
    RING_OK(fw_ring_suspend, consumer);
    RING_IS(FW_RING_SUSPENDED, fw_ring_poll, producer);
    compare("11-race-advance-after-ack");
    end();

    begin(SIZE, SECTOR, FILL);
    RING_OK(fw_ring_stage, producer, "late", 4);
    RING_OK(fw_ring_suspend, consumer);
    RING_IS(FW_RING_SUSPENDED, fw_ring_poll, producer);
    RING_IS(FW_RING_SUSPENDED, fw_ring_publish, producer);
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position);
    RING_OK(fw_ring_resume, consumer);
    RING_OK(fw_ring_publish, producer); /* And it is forgotten. */
    RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position);
    end();
}

static void test_large_offsets(void **state)
{
    (void)state;
    static const uint64_t position = (UINT64_C(1) << 32) + 3840;
    begin(SIZE, SECTOR, FILL);
    memcpy(memory->bytes + SECTOR, &position, sizeof position);
    memcpy(memory->bytes + (size_t)2 * SECTOR, &position, sizeof position);
    reattach();
    RING_OK(fw_ring_push, producer, "beyond four gigabytes", 21);
    compare("13-offset-over-4g");
    (void)ring_test_pop(consumer, "beyond four gigabytes", 21);
    end();
}

static void test_large_sectors(void **state)
{
    (void)state;
    begin(32768, 4096, FILL);
    RING_OK(fw_ring_push, producer, "four-k", 6);
    RING_OK(fw_ring_push, producer, letters, 5000);
    compare("14-sector4096");
    (void)ring_test_pop(consumer, "four-k", 6);
    (void)ring_test_pop(consumer, letters, 5000);
    end();
}

/* That image in a file, whose sectors have 512 bytes, with one byte of both states changed. */
static uint32_t sectors_seen(const uint8_t *image, uint64_t size, uint64_t at, uint8_t value)
{
    struct fw_disk_memory *file = ring_test_disk(size, SECTOR, 0);
    memcpy(file->bytes, image, size);
    file->bytes[at] = value;
    if (at >= 4096 && at + 4096 < size) {
        file->bytes[at + 4096] = value;
    }
    uint32_t sector_size = fw_ring_sector_size(&file->disk);
    fw_disk_close(&file->disk);
    return sector_size;
}

static void test_large_sectors_in_a_file(void **state)
{
    (void)state;
    static const struct {
        uint64_t at;
        uint8_t value;
        uint32_t sector_size;
    } cases[] = {
        {29, '1', 512},        {30, 1, 512},        {512 + 8, 2, 512},   {4095, 1, 512},
        {4096, 4, 4096},       {4096, 2, 512},      {4096 + 7, 65, 512}, {4096 + 8, 0, 512},
        {4096 + 8, 1, 4096},   {4096 + 8, 3, 512},  {4096 + 9, 1, 512},  {4096 + 127, 1, 512},
        {4096 + 128, 1, 4096}, {12288, 0xff, 4096},
    };
    begin(32768, 4096, FILL);
    RING_OK(fw_ring_push, producer, "four-k", 6);
    uint8_t image[32768];
    memcpy(image, memory->bytes, sizeof image);
    end();
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        assert_int_equal(sectors_seen(image, sizeof image, cases[i].at, cases[i].value),
                         cases[i].sector_size);
    }
    assert_int_equal(sectors_seen(image, 12288, 12287, 0), 4096);
    assert_int_equal(sectors_seen(image, 12288 - SECTOR, 12287 - SECTOR, 0), 512);

    memory = ring_test_disk(sizeof image, SECTOR, 0);
    memcpy(memory->bytes, image, sizeof image);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
    (void)ring_test_pop(consumer, "four-k", 6);
    memory->bytes[4096 + 8] = 7; /* The other side tells what this one has to be. */
    const struct fw_ring_options options = {.role = FW_RING_PRODUCER};
    struct fw_reason reason;
    assert_int_equal(fw_ring_attach_on(&producer, &memory->disk, RING_TEST_HOST, &options, &reason),
                     -EBADMSG);
    assert_non_null(strstr(reason.text, "sector 1 (producer)"));
    fw_ring_detach(consumer);
    fw_disk_close(&memory->disk);
}

static void attach_named(const char *queue, const char *client)
{
    const struct fw_ring_options options = {.role = FW_RING_BOTH, .queue = queue, .client = client};
    fw_ring_detach(producer);
    assert_int_equal(fw_ring_attach_on(&producer, &memory->disk, RING_TEST_HOST, &options, NULL),
                     0);
}

static void test_journal_and_allocators(void **state)
{
    (void)state;
    begin(LARGE_SIZE, SECTOR, FILL);
    attach_named("journal", "gen");
    RING_OK(fw_ring_advance, producer, 0);
    RING_OK(fw_ring_push, producer, "op-1", 4);
    RING_OK(fw_ring_push, producer, "op-2", 4);
    RING_OK(fw_ring_push, producer, "op-3", 4);
    compare("15-journal-pending");
    (void)ring_test_pop(producer, "op-1", 4);
    (void)ring_test_pop(producer, "op-2", 4);
    RING_OK(fw_ring_advance, producer, ring_test_pop(producer, "op-3", 4));
    compare("15b-journal-after-replay");
    end();

    begin(LARGE_SIZE, SECTOR, 0);
    attach_named("FromLVM: Producer", "xenvmd");
    RING_OK(fw_ring_push, producer, sync_message, sizeof sync_message - 1);
    compare("16-xenvm-fromLVM");
    end();

    begin(LARGE_SIZE, SECTOR, 0);
    attach_named("ToLVM: Producer", "xenvmd");
    RING_OK(fw_ring_push, producer, allocation_message, sizeof allocation_message - 1);
    compare("16-xenvm-toLVM");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_sectors),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_suspend),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_large_offsets),
        cmocka_unit_test(test_large_sectors),
        cmocka_unit_test(test_large_sectors_in_a_file),
        cmocka_unit_test(test_journal_and_allocators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
