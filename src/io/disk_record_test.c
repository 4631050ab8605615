/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the images shown are all those a crash could leave behind, and no others.
 * Method: records so small that their images can be counted and listed by hand; the same through
 * deferred operations; a journal of two writes that is right and one that is wrong, of which only
 * the second may be found out.
 */
#include "io/disk_record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/fail_memory.h"

enum { SECTOR = 512, SECTORS = 8, SIZE = SECTORS * SECTOR, IMAGES_MAX = 64 };

static struct fw_disk_record *record;
static struct fw_disk *disk;
static uint8_t *buffer; /* Of one disk's size. */

static const struct fw_disk_memory_options plain = {.size = SIZE};

static void record_make(const struct fw_disk_memory_options *options)
{
    assert_int_equal(fw_disk_record_create(&record, options), 0);
    disk = fw_disk_record_disk(record);
    buffer = fw_disk_buffer(options->size);
    assert_non_null(buffer);
}

static void record_free(void)
{
    fw_disk_record_destroy(record);
    free(buffer);
}

static void sectors_write(uint64_t first, uint64_t count, char fill, bool sync)
{
    struct fw_disk_op op = {.kind = FW_DISK_WRITE,
                            .from = buffer,
                            .size = count * SECTOR,
                            .offset = first * SECTOR,
                            .sync = sync};
    memset(buffer, fill, op.size);
    assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
}

static void disk_flush(void)
{
    struct fw_disk_op op = {.kind = FW_DISK_FLUSH};
    assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
}

/* All images of an enumeration as text: "point:" and a character for each sector, '.' for zeroes.
 */
static struct {
    char text[IMAGES_MAX][40];
    uint32_t count;
} images;

static void sector_letters(struct fw_disk *from, char *letters)
{
    uint8_t sectors[SIZE] __attribute__((aligned(SECTOR))) = {0};
    struct fw_disk_op op = {.kind = FW_DISK_READ, .into = sectors, .size = sizeof sectors};
    assert_int_equal(fw_disk_run(from, &op, NULL), 0);
    for (size_t i = 0; i < SECTORS; i++) {
        const uint8_t *sector = &sectors[i * SECTOR];
        for (int j = 1; j < SECTOR; j++) {
            assert_int_equal(sector[j], sector[0]);
        }
        letters[i] = (char)(sector[0] == 0 ? '.' : sector[0]);
    }
    letters[SECTORS] = '\0';
}

static int image_list(const struct fw_disk_crash *crash, void *context)
{
    (void)context;
    char letters[SECTORS + 1];
    sector_letters(crash->disk, letters);
    assert_true(images.count < IMAGES_MAX);
    (void)snprintf(images.text[images.count++], sizeof images.text[0], "%d:%s %d",
                   (int)crash->point, letters, (int)crash->mark);

    /* Spoil it: the next image must not show this. */
    uint8_t spoilt[2 * SECTOR] __attribute__((aligned(SECTOR)));
    memset(spoilt, 'x', sizeof spoilt);
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = spoilt, .size = sizeof spoilt};
    assert_int_equal(fw_disk_run(crash->disk, &op, NULL), 0);
    op = (struct fw_disk_op){
        .kind = FW_DISK_DISCARD, .size = SECTOR, .offset = (uint64_t)(SECTORS - 1) * SECTOR};
    assert_int_equal(fw_disk_run(crash->disk, &op, NULL), 0);
    return 0;
}

/* Enumerates and compares with `expected`, in any order, each exactly once. */
static void images_check(const char *const expected[], uint32_t count)
{
    struct fw_disk_record_summary summary;
    images.count = 0;
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, image_list, NULL), 0);
    assert_int_equal(summary.images, images.count);
    assert_int_equal(summary.points_sampled, 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t found = 0;
        for (uint32_t j = 0; j < images.count; j++) {
            found += strcmp(images.text[j], expected[i]) == 0 ? 1 : 0;
        }
        if (found != 1) {
            fail_msg("%s was shown %d times", expected[i], (int)found);
        }
    }
    assert_int_equal(images.count, count);
}

#define IMAGES_CHECK(...)                                     \
    do {                                                      \
        static const char *const expected_[] = {__VA_ARGS__}; \
        images_check(expected_, FW_ARRAY_LENGTH(expected_));  \
    } while (0)

static void test_nothing(void **state)
{
    (void)state;
    record_make(&plain);
    assert_int_equal(fw_disk_fd(disk), -1); /* It is polled by hand. */
    IMAGES_CHECK("0:........ 0");
    disk_flush();
    IMAGES_CHECK("0:........ 0", "1:........ 0");
    record_free();
}

static void test_flush_in_between(void **state)
{
    (void)state;
    record_make(&plain);
    sectors_write(0, 1, 'a', false);
    disk_flush();
    sectors_write(1, 1, 'b', false);
    IMAGES_CHECK("0:........ 0",                 /* Before. */
                 "1:........ 0", "1:a....... 0", /* a was started. */
                 "2:a....... 0",                 /* Flushed. */
                 "3:a....... 0", "3:ab...... 0"  /* b was started, which cannot undo a. */
    );
    record_free();
}

static void test_no_flush(void **state)
{
    (void)state;
    record_make(&plain);
    sectors_write(0, 1, 'a', false);
    sectors_write(1, 1, 'b', false);
    fw_disk_record_mark(record, 7);
    disk_flush();
    IMAGES_CHECK("0:........ 0", "1:........ 0", "1:a....... 0", "2:........ 0", "2:a....... 0",
                 "2:.b...... 0", "2:ab...... 0", "3:........ 7", "3:a....... 7", "3:.b...... 7",
                 "3:ab...... 7", "4:ab...... 7");
    record_free();
}

static void test_tears(void **state)
{
    (void)state;
    record_make(&plain);
    sectors_write(4, 3, 'a', false);
    IMAGES_CHECK("0:........ 0", "1:........ 0", "1:....a... 0", "1:.....a.. 0", "1:....aa.. 0",
                 "1:......a. 0", "1:....a.a. 0", "1:.....aa. 0", "1:....aaa. 0");
    record_free();
}

/* Several unflushed writes of a sector: any of them, or what was there before. */
static void test_same_sector(void **state)
{
    (void)state;
    record_make(&plain);
    sectors_write(2, 1, 'a', false);
    sectors_write(2, 1, 'b', false);
    sectors_write(2, 1, 'a', false); /* Equal bytes are one version. */
    disk_flush();                    /* The last one is what stays. */
    IMAGES_CHECK("0:........ 0", "1:........ 0", "1:..a..... 0", "2:........ 0", "2:..a..... 0",
                 "2:..b..... 0", "3:........ 0", "3:..a..... 0", "3:..b..... 0", "4:..a..... 0");
    record_free();

    record_make(&plain);
    sectors_write(2, 1, 0, false); /* As the durable ones are. */
    IMAGES_CHECK("0:........ 0", "1:........ 0");
    record_free();
}

static void test_sync_write(void **state)
{
    (void)state;
    record_make(&plain);
    sectors_write(0, 2, 'a', false);
    sectors_write(1, 2, 'b', true); /* Durable when finished, but says nothing about sector 0. */
    IMAGES_CHECK("0:........ 0",    /* Before. */
                 "1:........ 0", "1:a....... 0", "1:.a...... 0", "1:aa...... 0", /* a started. */
                 "2:........ 0", "2:a....... 0", "2:.a...... 0", "2:aa...... 0", /* b started. */
                 "2:.b...... 0", "2:ab...... 0", "2:..b..... 0", "2:a.b..... 0", "2:.ab..... 0",
                 "2:aab..... 0", "2:.bb..... 0", "2:abb..... 0", /* ... */
                 "3:.bb..... 0", "3:abb..... 0" /* b is durable, so a cannot come back there. */
    );
    disk_flush();
    images.count = 0;
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, image_list, NULL), 0);
    assert_string_equal(images.text[images.count - 1], "4:abb..... 0");
    record_free();

    record_make(&plain);
    sectors_write(0, 2, 'a', false);
    sectors_write(0, 1, 'b', true); /* Says nothing about what follows of the first either. */
    images.count = 0;
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, image_list, NULL), 0);
    assert_string_equal(images.text[images.count - 2], "3:b....... 0");
    assert_string_equal(images.text[images.count - 1], "3:ba...... 0");
    record_free();
}

static void test_discard(void **state)
{
    (void)state;
    record_make(&plain);
    sectors_write(0, 1, 'a', true);
    struct fw_disk_op op = {.kind = FW_DISK_DISCARD, .size = SECTOR};
    assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
    IMAGES_CHECK("0:........ 0", "1:........ 0", "1:a....... 0", "2:a....... 0", "3:a....... 0",
                 "3:\xd5....... 0");
    record_free();
}

/* What was written only after the flush had been started is not covered by it. */
static int done_count;

static void on_done(struct fw_disk_op *op)
{
    (void)op;
    done_count++;
}

static void test_deferred_flush(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = SIZE, .deferred = true, .seed = 1};
    record_make(&options);
    memset(buffer, 'a', SECTOR);
    memset(buffer + SECTOR, 'b', SECTOR);
    struct fw_disk_op one = {
        .kind = FW_DISK_WRITE, .from = buffer, .size = SECTOR, .done = on_done};
    struct fw_disk_op flush = {.kind = FW_DISK_FLUSH, .done = on_done};
    struct fw_disk_op other = {.kind = FW_DISK_WRITE,
                               .from = buffer + SECTOR,
                               .size = SECTOR,
                               .offset = SECTOR,
                               .done = on_done};
    done_count = 0;
    assert_int_equal(fw_disk_start(disk, &one), -EINPROGRESS);
    assert_int_equal(fw_disk_start(disk, &flush), -EINPROGRESS);
    assert_int_equal(fw_disk_start(disk, &other), -EINPROGRESS);
    assert_int_equal(done_count, 0);
    fw_disk_drain(disk);
    assert_int_equal(done_count, 3);
    IMAGES_CHECK("0:........ 0", "1:........ 0", "1:a....... 0",                  /* one started, */
                 "2:........ 0", "2:a....... 0", "2:.b...... 0", "2:ab...... 0",  /* other too, */
                 "3:........ 0", "3:a....... 0", "3:.b...... 0", "3:ab...... 0"); /* flushed. */
    assert_int_equal(fw_disk_start(disk, &flush), -EINPROGRESS);
    fw_disk_drain(disk);
    images.count = 0;
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, image_list, NULL), 0);
    assert_int_equal(images.count, 12);
    assert_string_equal(images.text[11], "4:ab...... 0");
    record_free();
}

/* Nor is what had been started before it, but finished after: whichever of the two ends first. */
static void test_flush_under_way(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        const struct fw_disk_memory_options options = {
            .size = SIZE, .deferred = true, .seed = seed};
        record_make(&options);
        memset(buffer, 'a', SECTOR);
        struct fw_disk_op write = {
            .kind = FW_DISK_WRITE, .from = buffer, .size = SECTOR, .done = on_done};
        struct fw_disk_op flush = {.kind = FW_DISK_FLUSH, .done = on_done};
        assert_int_equal(fw_disk_start(disk, &write), -EINPROGRESS);
        assert_int_equal(fw_disk_start(disk, &flush), -EINPROGRESS);
        fw_disk_drain(disk);
        IMAGES_CHECK("0:........ 0", "1:........ 0", "1:a....... 0", /* Started, */
                     "2:........ 0", "2:a....... 0");                /* and flushed. */
        record_free();
    }
}

/* Sectors of 4096 bytes that tear at 512: only one that asks for it can see half a sector. */
static int tear_visit(const struct fw_disk_crash *crash, void *context)
{
    uint8_t sector[4096] __attribute__((aligned(4096))) = {0};
    struct fw_disk_op op = {.kind = FW_DISK_READ, .into = sector, .size = sizeof sector};
    assert_int_equal(fw_disk_run(crash->disk, &op, NULL), 0);
    *(int *)context += sector[0] != sector[4095] ? 1 : 0;
    return 0;
}

static void test_tears_inside_a_sector(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = 4096, .sector_size = 4096};
    struct fw_disk_record_summary summary;
    int torn = 0;
    record_make(&options);
    sectors_write(0, 8, 'a', false);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, tear_visit, &torn), 0);
    assert_int_equal(summary.images, 1 + 2);
    assert_int_equal(torn, 0);
    struct fw_disk_record_limits limits = {.tear_size = SECTOR};
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, tear_visit, &torn), 0);
    assert_int_equal(summary.images, 1 + 256);
    assert_int_equal(torn, 128);
    limits.tear_size = 1000;
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, tear_visit, &torn),
                     -EINVAL);
    record_free();
}

/* The smallest tear: of two writes of a sector each is there as a whole at times, and the second
 * for good once it is flushed. */
static int bytes_visit(const struct fw_disk_crash *crash, void *context)
{
    uint8_t sector[SECTOR] __attribute__((aligned(SECTOR))) = {0};
    struct fw_disk_op op = {.kind = FW_DISK_READ, .into = sector, .size = SECTOR};
    assert_int_equal(fw_disk_run(crash->disk, &op, NULL), 0);
    bool is_whole = memcmp(sector, sector + 1, SECTOR - 1) == 0;
    assert_true(crash->point != 3 || (is_whole && sector[0] == 'b'));
    ((bool *)context)[sector[0]] |= is_whole && crash->point == 2;
    return 0;
}

static void test_tears_at_bytes(void **state)
{
    (void)state;
    const struct fw_disk_record_limits limits = {.tear_size = 1, .exact_max = 1, .samples = 1};
    bool whole[UINT8_MAX + 1] = {false};
    record_make(&plain);
    sectors_write(0, 1, 'a', false);
    sectors_write(0, 1, 'b', false);
    disk_flush();
    assert_int_equal(fw_disk_record_enumerate(record, &limits, NULL, bytes_visit, whole), 0);
    assert_true(whole[0] && whole['a'] && whole['b']);
    record_free();
}

/* The images to be seen among those of the last point when not all are shown, and when all are. */
static const char *const some_systematic[] = {
    "........", "aaaabb..", /* Prefixes. */
    "......cc", "aaaa..cc", /* A write alone, all but one. */
    "aaaabb..", "....bb..", /* A pair alone, all but a pair. */
    "aaa.....", ".aaa....", /* The first write torn, none of the later ones there. */
    "aaa.bbcc", "aaaa.bcc", /* One torn, all others there. */
};
static const char *const some_by_chance[] = {"a.a.b..c", ".aa..bc."};

struct some_seen {
    bool systematic[FW_ARRAY_LENGTH(some_systematic)];
    bool by_chance[FW_ARRAY_LENGTH(some_by_chance)];
    uint64_t digest; /* Of all images in their order. */
};

static int some_visit(const struct fw_disk_crash *crash, void *context)
{
    struct some_seen *seen = context;
    char letters[SECTORS + 1];
    sector_letters(crash->disk, letters);
    for (size_t i = 0; i < SECTORS; i++) {
        seen->digest = seen->digest * 31 + (uint8_t)letters[i];
    }
    if (crash->point == 3) {
        for (size_t i = 0; i < FW_ARRAY_LENGTH(some_systematic); i++) {
            seen->systematic[i] |= strcmp(letters, some_systematic[i]) == 0;
        }
        for (size_t i = 0; i < FW_ARRAY_LENGTH(some_by_chance); i++) {
            seen->by_chance[i] |= strcmp(letters, some_by_chance[i]) == 0;
        }
    }
    return 0;
}

static void test_beyond_the_limit(void **state)
{
    (void)state;
    struct fw_disk_record_summary summary;
    struct some_seen seen = {0};
    record_make(&plain);
    sectors_write(0, 4, 'a', false);
    sectors_write(4, 2, 'b', false);
    sectors_write(6, 2, 'c', false);
    /* 1, 16, 64 and 256 images: with a limit of 64 only the last point is not shown whole. */
    struct fw_disk_record_limits limits = {.exact_max = 64, .samples = 10};
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, some_visit, &seen), 0);
    assert_int_equal(summary.points, 4);
    assert_int_equal(summary.points_sampled, 1);
    int prefixes = 4, singles = 3 * 2, pairs = 3 * 2, tears = (3 + 1 + 1) * 4, samples = 10;
    assert_int_equal(summary.images, 1 + 16 + 64 + prefixes + singles + pairs + tears + samples);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(some_systematic); i++) {
        assert_true(seen.systematic[i]);
    }

    /* The same again with the same seed, other samples with another. */
    struct some_seen again = {0}, other = {0};
    assert_int_equal(fw_disk_record_enumerate(record, &limits, NULL, some_visit, &again), 0);
    assert_true(again.digest == seen.digest);
    limits.seed = 1;
    assert_int_equal(fw_disk_record_enumerate(record, &limits, NULL, some_visit, &other), 0);
    assert_true(other.digest != seen.digest);

    limits.exact_max = 256;
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, some_visit, &seen), 0);
    assert_int_equal(summary.images, 1 + 16 + 64 + 256);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(some_by_chance); i++) {
        assert_true(seen.by_chance[i]);
    }
    record_free();
}

/* How often each set of sectors was there at one point, as bits. */
struct sets_seen {
    uint64_t point;
    uint32_t counts[1 << SECTORS];
};

static int sets_visit(const struct fw_disk_crash *crash, void *context)
{
    struct sets_seen *seen = context;
    char letters[SECTORS + 1];
    sector_letters(crash->disk, letters);
    uint32_t set = 0;
    for (uint32_t i = 0; i < SECTORS; i++) {
        set |= letters[i] != '.' ? 1U << i : 0;
    }
    seen->counts[set] += crash->point == seen->point ? 1 : 0;
    return 0;
}

/* With five writes "all but two" is none of the other images. Each of them is there. */
static void test_all_but_some(void **state)
{
    (void)state;
    enum { WRITES = 5, ALL = (1 << WRITES) - 1 };
    const struct fw_disk_record_limits limits = {.exact_max = 16, .samples = 1};
    struct sets_seen seen = {.point = WRITES};
    uint32_t expected[1 << SECTORS] = {0};
    record_make(&plain);
    for (uint32_t i = 0; i < WRITES; i++) {
        sectors_write(i, 1, 'a', false);
        expected[(1U << i) - 1]++; /* A prefix. */
        for (uint32_t j = i; j < WRITES; j++) {
            uint32_t pair = 1U << i | 1U << j;
            expected[pair]++;
            expected[ALL & ~pair]++;
        }
    }
    expected[ALL]++; /* The longest prefix. */
    assert_int_equal(fw_disk_record_enumerate(record, &limits, NULL, sets_visit, &seen), 0);
    uint32_t more = 0;
    for (uint32_t set = 0; set < 1 << SECTORS; set++) {
        assert_true(seen.counts[set] >= expected[set]);
        more += seen.counts[set] - expected[set];
    }
    assert_int_equal(more, 1); /* The sample. */
    record_free();
}

/*
 * Half of the samples take writes as a whole: units alone would hardly ever make all of one. In the
 * others each unit is there or not, whatever became of its neighbours.
 */
static void test_samples(void **state)
{
    (void)state;
    enum { SAMPLES = 64, FIRST = 0x0f, SECOND = 0xf0 };
    const struct fw_disk_record_limits limits = {.exact_max = 1, .samples = SAMPLES};
    struct sets_seen seen = {.point = 2};
    record_make(&plain);
    sectors_write(0, 4, 'a', false);
    sectors_write(4, 4, 'b', false);
    assert_int_equal(fw_disk_record_enumerate(record, &limits, NULL, sets_visit, &seen), 0);

    /* Three prefixes, each write alone, all but each, the pair, all but the pair: nine are whole.
     */
    static const uint32_t whole[] = {0, FIRST, SECOND, FIRST | SECOND};
    static const uint32_t expected[] = {1 + 1, 1 + 2, 2, 1 + 1};
    uint32_t whole_samples = 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(whole); i++) {
        assert_true(seen.counts[whole[i]] > expected[i]);
        whole_samples += seen.counts[whole[i]] - expected[i];
    }
    assert_in_range(whole_samples, SAMPLES / 2, SAMPLES / 2 + 4);

    /* Only chance makes those whose first write has a hole and whose second has one too. */
    uint32_t there = 0, missing = 0;
    for (uint32_t set = 0; set < 1 << SECTORS; set++) {
        bool torn = (set & FIRST) != 0 && (set & FIRST) != FIRST && (set & SECOND) != 0 &&
                    (set & SECOND) != SECOND;
        there |= torn && seen.counts[set] > 0 ? set : 0;
        missing |= torn && seen.counts[set] > 0 ? ~set : 0;
    }
    assert_int_equal(there & (FIRST | SECOND), FIRST | SECOND);
    assert_int_equal(missing & (FIRST | SECOND), FIRST | SECOND);
    record_free();
}

static int nothing_visit(const struct fw_disk_crash *crash, void *context)
{
    (void)crash;
    (void)context;
    return 0;
}

/* Many writes without a flush: pairs are left out, and the count stays moderate. */
static void test_many_writes(void **state)
{
    (void)state;
    enum { WRITES = FW_DISK_RECORD_PAIRS_MAX + 1 };
    const struct fw_disk_memory_options options = {.size = (uint64_t)WRITES * SECTOR};
    const struct fw_disk_record_limits limits = {.exact_max = 1, .samples = 2};
    struct fw_disk_record_summary summary;
    record_make(&options);
    for (uint64_t i = 0; i < WRITES; i++) {
        sectors_write(i, 1, 'a', false);
    }
    uint64_t expected = 1;
    for (uint64_t n = 1; n <= WRITES; n++) {
        expected += (n + 1) + 2 * n + (n <= FW_DISK_RECORD_PAIRS_MAX ? n * (n - 1) : 0) + 2;
    }
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, nothing_visit, NULL), 0);
    assert_int_equal(summary.images, expected);
    record_free();
}

/* 2^12 images are shown whole if nobody says otherwise, 2^13 are not. */
static void test_default_limits(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = (uint64_t)13 * SECTOR};
    struct fw_disk_record_summary summary;
    for (uint64_t sectors = 12; sectors <= 13; sectors++) {
        record_make(&options);
        sectors_write(0, sectors, 'a', false);
        assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, nothing_visit, NULL), 0);
        uint64_t prefixes = 2, alone = 1, all_but = 1, tears = (sectors - 1) * 4, samples = 256;
        uint64_t some = prefixes + alone + all_but + tears + samples;
        assert_int_equal(summary.images, 1 + (sectors == 12 ? 4096 : some));
        record_free();
    }
}

/*
 * A journal: sector 0 says 'c' when the data in sectors 1 and 2 is complete. Broken if it says so
 * and it is not, or if it does not say so although that was promised.
 */
static char broken[FW_DISK_CRASH_TEXT_SIZE];

static int journal_check(const struct fw_disk_crash *crash, void *context)
{
    char letters[SECTORS + 1];
    sector_letters(crash->disk, letters);
    bool committed = letters[0] == 'c';
    bool complete = letters[1] == 'd' && letters[2] == 'd';
    if ((committed && !complete) || (crash->mark == 1 && !committed)) {
        if (broken[0] == '\0') {
            (void)fw_disk_crash_describe(crash, broken, sizeof broken);
        }
        ++*(int *)context;
    }
    return 0;
}

static void journal_run(bool flush_between, bool flush_at_end)
{
    sectors_write(1, 2, 'd', false);
    if (flush_between) {
        disk_flush();
    }
    sectors_write(0, 1, 'c', false);
    if (flush_at_end) {
        disk_flush();
    }
    fw_disk_record_mark(record, 1);
}

static void test_journal(void **state)
{
    (void)state;
    struct fw_disk_record_summary summary;
    int broken_count = 0;
    record_make(&plain);
    journal_run(true, true);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, journal_check, &broken_count),
                     0);
    assert_int_equal(broken_count, 0);
    /* Before; data started, 4; flushed; commit started, 2; flushed; marked. */
    assert_int_equal(summary.images, 1 + 4 + 1 + 2 + 1 + 1);
    assert_int_equal(summary.points, 6);
    record_free();

    /* The commit may overtake the data: there without both sectors, 3 of 8 images. */
    record_make(&plain);
    memset(broken, 0, sizeof broken);
    journal_run(false, true);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, journal_check, &broken_count),
                     0);
    assert_int_equal(summary.images, 1 + 4 + 8 + 1 + 1);
    assert_int_equal(broken_count, 3);
    assert_string_equal(broken, "crash 2.1 after write 1 was started, mark 0; not flushed: write 0 "
                                "(1024 bytes at 512) lost, write 1 (512 bytes at 0) kept");
    record_free();

    /* Promised too early: marked while the commit can still get lost. */
    record_make(&plain);
    memset(broken, 0, sizeof broken);
    broken_count = 0;
    journal_run(true, false);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, journal_check, &broken_count),
                     0);
    assert_int_equal(broken_count, 1);
    assert_string_equal(broken, "crash 4.0 after the mark was set, mark 1; not flushed: write 1 "
                                "(512 bytes at 0) lost");
    record_free();
}

/* How the crashes that left these sectors must be described. */
struct described {
    const char *letters;
    const char *text;
    int found;
};

static int described_visit(const struct fw_disk_crash *crash, void *context)
{
    struct described *expected = context;
    char letters[SECTORS + 1];
    char text[FW_DISK_CRASH_TEXT_SIZE];
    sector_letters(crash->disk, letters);
    if (strcmp(letters, expected->letters) == 0) {
        (void)fw_disk_crash_describe(crash, text, sizeof text);
        assert_non_null(strstr(text, expected->text));
        expected->found++;
    }
    return 0;
}

/* What is kept of a torn write ends with the write, also if the next one begins right there. */
static void test_describe_neighbours(void **state)
{
    (void)state;
    struct described expected = {".ab.....",
                                 "write 0 (1024 bytes at 0) torn, kept of it 512-1023, "
                                 "write 1 (512 bytes at 1024) kept",
                                 0};
    record_make(&plain);
    sectors_write(0, 2, 'a', false);
    sectors_write(2, 1, 'b', false);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, described_visit, &expected), 0);
    assert_int_equal(expected.found, 1);
    record_free();

    /* And has nothing to do with what became of others: here nothing is left of the first. */
    expected = (struct described){"ccb.....",
                                  "write 1 (1024 bytes at 1024) torn, kept of it "
                                  "1024-1535",
                                  0};
    record_make(&plain);
    sectors_write(0, 2, 'a', false);
    sectors_write(2, 2, 'b', false);
    sectors_write(0, 2, 'c', true);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, described_visit, &expected), 0);
    assert_int_equal(expected.found, 2); /* While it was written and after. */
    record_free();
}

static int describe_visit(const struct fw_disk_crash *crash, void *context)
{
    char text[FW_DISK_CRASH_TEXT_SIZE];
    char cut[20];
    if (crash->point == 1 && crash->image == 5) { /* Units 0 and 2 of 4. */
        (void)fw_disk_crash_describe(crash, context, FW_DISK_CRASH_TEXT_SIZE);
        assert_string_equal(fw_disk_crash_describe(crash, cut, sizeof cut), "crash 1.5 after wri");
    }
    if (crash->point == 0) {
        assert_string_equal(fw_disk_crash_describe(crash, text, sizeof text),
                            "crash 0.0 before anything was written, mark 0");
    }
    if (crash->point == 1 && crash->image == 14) { /* The last three. */
        assert_non_null(
            strstr(fw_disk_crash_describe(crash, text, sizeof text), "torn, kept of it 1536-3071"));
    }
    if (crash->point == 1 && crash->image == 7) { /* The first three. */
        assert_non_null(
            strstr(fw_disk_crash_describe(crash, text, sizeof text), "torn, kept of it 1024-2559"));
    }
    if (crash->point == 2) {
        assert_string_equal(fw_disk_crash_describe(crash, text, sizeof text),
                            "crash 2.0 after a flush, mark 0");
    }
    if (crash->point == 4) {
        assert_string_equal(fw_disk_crash_describe(crash, text, sizeof text),
                            "crash 4.0 after sync write 1 had finished, mark 0");
        return 17;
    }
    return 0;
}

static void test_describe_and_stop(void **state)
{
    (void)state;
    char text[FW_DISK_CRASH_TEXT_SIZE] = "";
    struct fw_disk_record_summary summary;
    record_make(&plain);
    sectors_write(2, 4, 'a', false);
    disk_flush();
    sectors_write(0, 1, 'b', true);
    sectors_write(1, 1, 'b', true);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, describe_visit, text), 17);
    assert_string_equal(text, "crash 1.5 after write 0 was started, mark 0; not flushed: write 0 "
                              "(2048 bytes at 1024) torn, kept of it 1024-1535 2048-2559");
    assert_int_equal(summary.images, 1 + 16 + 1 + 2 + 1);
    record_free();
}

/* The visitor's word to stop counts at once, whichever kind of image it is said at. */
static int stop_visit(const struct fw_disk_crash *crash, void *context)
{
    (void)crash;
    uint64_t *left = context;
    assert_true(*left > 0);
    return --*left == 0 ? 17 : 0;
}

static void test_stop_anywhere(void **state)
{
    (void)state;
    const struct fw_disk_record_limits limits = {.exact_max = 4, .samples = 4};
    struct fw_disk_record_summary summary, stopped;
    record_make(&plain);
    for (uint64_t i = 0; i < 3; i++) {
        sectors_write(i * 2, 2, 'a', false);
    }
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, nothing_visit, NULL), 0);
    assert_int_equal(summary.points_sampled, 2);
    for (uint64_t images_wanted = 1; images_wanted <= summary.images; images_wanted++) {
        uint64_t left = images_wanted;
        assert_int_equal(fw_disk_record_enumerate(record, &limits, &stopped, stop_visit, &left),
                         17);
        assert_int_equal(left, 0);
        assert_int_equal(stopped.images, images_wanted);
    }
    record_free();
}

/* A crash in the middle of the recovery from a crash. */
static int nested_inner(const struct fw_disk_crash *crash, void *context)
{
    char letters[SECTORS + 1];
    sector_letters(crash->disk, letters);
    *(int *)context += strcmp(letters, "a......r") == 0 ? 1 : 0;
    return 0;
}

static int nested_outer(const struct fw_disk_crash *crash, void *context)
{
    struct fw_disk_record *outer = record;
    struct fw_disk *outer_disk = disk;
    assert_int_equal(fw_disk_record_create_after(&record, &plain, crash), 0);
    disk = fw_disk_record_disk(record);
    char left[SECTORS + 1];
    char found[SECTORS + 1];
    sector_letters(crash->disk, left);
    sector_letters(disk, found);
    assert_string_equal(found, left);
    sectors_write(7, 1, 'r', false);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, nested_inner, context), 0);
    fw_disk_record_destroy(record);
    record = outer;
    disk = outer_disk;
    return 0;
}

static void test_crash_while_recovering(void **state)
{
    (void)state;
    int count = 0;
    record_make(&plain);
    sectors_write(0, 1, 'a', false);
    assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, nested_outer, &count), 0);
    assert_int_equal(count, 1);
    record_free();
}

static void test_limits(void **state)
{
    (void)state;
    const struct fw_disk_memory_options bad = {.size = SECTOR + 1};
    assert_int_equal(fw_disk_record_create(&record, &bad), -EINVAL);
    record_make(&plain);
    for (int i = 0; i < FW_DISK_RECORD_EVENTS_MAX / 2; i++) {
        sectors_write(0, 1, 'a', false);
    }
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = buffer, .size = SECTOR};
    assert_int_equal(fw_disk_run(disk, &op, NULL), -ENOSPC);
    op.kind = FW_DISK_FLUSH;
    assert_int_equal(fw_disk_run(disk, &op, NULL), -ENOSPC);
    expect_assert_failure(fw_disk_record_mark(record, 1));
    op = (struct fw_disk_op){.kind = FW_DISK_READ, .into = buffer, .size = SECTOR};
    assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
    record_free();

    /* Room for the start of a write but not for its end is not enough. It is for a mark. */
    record_make(&plain);
    fw_disk_record_mark(record, 1);
    for (int i = 0; i < FW_DISK_RECORD_EVENTS_MAX / 2 - 1; i++) {
        sectors_write(0, 1, 'a', false);
    }
    op = (struct fw_disk_op){.kind = FW_DISK_WRITE, .from = buffer, .size = SECTOR};
    assert_int_equal(fw_disk_run(disk, &op, NULL), -ENOSPC);
    fw_disk_record_mark(record, 2);
    expect_assert_failure(fw_disk_record_mark(record, 3));
    record_free();
}

static void test_bytes_max(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = FW_DISK_RECORD_BYTES_MAX / 8};
    record_make(&options);
    sectors_write(0, 1, 'a', false);
    for (int i = 0; i < 7; i++) {
        sectors_write(0, options.size / SECTOR, 'a', false);
    }
    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = buffer, .size = options.size};
    assert_int_equal(fw_disk_run(disk, &op, NULL), -ENOSPC);
    sectors_write(0, options.size / SECTOR - 1, 'a', false); /* Fills it exactly. */
    op.size = SECTOR;
    assert_int_equal(fw_disk_run(disk, &op, NULL), -ENOSPC);
    disk_flush();
    record_free();
}

/* Memory runs out at each of the places that need some; ASan sees what would leak. */
static void test_no_memory(void **state)
{
    (void)state;
    int rc = -ENOMEM;
    for (int count = 0; rc != 0; count++) {
        fail_memory_after(count);
        rc = fw_disk_record_create(&record, &plain);
        assert_int_equal(rc, count < 7 ? -ENOMEM : 0);
    }
    fail_memory_after(-1);
    disk = fw_disk_record_disk(record);
    buffer = fw_disk_buffer(SIZE);
    assert_non_null(buffer);

    struct fw_disk_op op = {.kind = FW_DISK_WRITE, .from = buffer, .size = SIZE};
    fail_memory_after(0);
    assert_int_equal(fw_disk_run(disk, &op, NULL), -ENOMEM);
    fail_memory_after(-1);
    sectors_write(0, SECTORS, 'a', false); /* Of the one that failed nothing is left. */
    rc = -ENOMEM;
    int count;
    struct fw_disk_record_summary summary;
    for (count = 0; rc != 0; count++) {
        fail_memory_after(count);
        rc = fw_disk_record_enumerate(record, NULL, &summary, nothing_visit, NULL);
        assert_true(rc == 0 || rc == -ENOMEM);
    }
    fail_memory_after(-1);
    assert_true(count > 10);
    assert_int_equal(summary.images, 1 + 256); /* It says 0 only if it has shown them all. */
    assert_int_equal(fw_disk_record_enumerate(record, NULL, &summary, nothing_visit, NULL), 0);
    assert_int_equal(summary.images, 1 + 256);
    record_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_flush_in_between),
        cmocka_unit_test(test_no_flush),
        cmocka_unit_test(test_tears),
        cmocka_unit_test(test_same_sector),
        cmocka_unit_test(test_sync_write),
        cmocka_unit_test(test_discard),
        cmocka_unit_test(test_deferred_flush),
        cmocka_unit_test(test_flush_under_way),
        cmocka_unit_test(test_tears_inside_a_sector),
        cmocka_unit_test(test_tears_at_bytes),
        cmocka_unit_test(test_beyond_the_limit),
        cmocka_unit_test(test_all_but_some),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_many_writes),
        cmocka_unit_test(test_default_limits),
        cmocka_unit_test(test_journal),
        cmocka_unit_test(test_describe_neighbours),
        cmocka_unit_test(test_describe_and_stop),
        cmocka_unit_test(test_stop_anywhere),
        cmocka_unit_test(test_crash_while_recovering),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bytes_max),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
