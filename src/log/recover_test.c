/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the rings hold comes out of their file as the writer would have written it; what the
 * writer has written does not; and whatever is damaged, the rest comes out and nothing else
 * happens. Method: log into a mapped file without draining, recover from a copy of it, and compare
 * with what the writer then writes itself. Then change copies: cut them, and spoil each field in
 * turn.
 */
#include "log/recover.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "base/thread.h"
#include "io/file.h"
#include "log/arena.h"
#include "log/ring.h"
#include "log/writer.h"
#include "support/fail_memory.h"

FW_LOG_MODULE(alpha);

enum { TEXT_MAX = 1 << 20 };

struct text {
    char bytes[TEXT_MAX];
    size_t length;
};
static struct text written;
static struct text recovered_text;

static void text_add(struct text *text, const char *bytes, size_t length)
{
    assert_true(text->length + length < TEXT_MAX);
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

static int keep(void *context, const char *lines, size_t size, size_t *done)
{
    (void)context;
    text_add(&written, lines, size);
    *done = size;
    return 0;
}

static void print(void *context, const char *line, size_t length)
{
    (void)context;
    assert_int_equal(line[length - 1], '\n');
    text_add(&recovered_text, line, length);
}

static const struct fw_log_printer printer = {.layout = FW_LOG_LAYOUT_TEXT, .print = print};

static char folder[] = "recover_test.XXXXXX";
static char *contents;
static size_t size;

static int setup(void **state)
{
    (void)state;
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    written.length = 0;
    written.bytes[0] = '\0';
    fw_log_set_policy(FW_LOG_DROP, FW_LOG_WARNING);
    fw_log_writer_set_sink(keep, NULL);
    const struct fw_log_setup setup_of = {.ring_size = FW_LOG_RING_SIZE_MIN,
                                          .rings = 1,
                                          .map_directory = folder,
                                          .without_thread = true};
    return fw_log_start(&setup_of);
}

static int teardown(void **state)
{
    (void)state;
    fw_log_stop();
    fw_log_writer_set_sink(NULL, NULL);
    free(contents);
    contents = NULL;
    return rmdir(folder); /* The log has removed its file. */
}

/* What a killed process would leave behind. */
static void file_take(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/fairway-log.%d.0", folder, (int)getpid());
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    free(contents);
    assert_int_equal(fw_file_read(path, FW_FILE_SIZE_MAX, &contents, &size, NULL), 0);
}

static struct fw_log_recovered recover(void)
{
    struct fw_log_recovered recovered;
    recovered_text.length = 0;
    recovered_text.bytes[0] = '\0';
    char *copy = malloc(size); /* ASan knows its end. */
    assert_non_null(copy);
    memcpy(copy, contents, size);
    assert_int_equal(fw_log_recover(copy, size, &printer, &recovered, NULL), 0);
    free(copy);
    return recovered;
}

static void thread_run(void *argument)
{
    (void)argument;
    FW_LOG(alpha, NOTICE, "of the shared ring %d", 7);
}

static void log_some(void)
{
    struct fw_thread thread;
    FW_LOG(alpha, ERROR, "one %d %s", 1, "first");
    FW_LOG(alpha, NOTICE, "two\n%5.1f%%", 2.5);
    assert_int_equal(fw_thread_create(&thread, "other", thread_run, NULL), 0);
    fw_thread_join(&thread);
    FW_LOG(alpha, WARNING, "%ls", L"made by the caller");
}

/* What a line begins with, in seconds. */
static int64_t time_of(const char *line)
{
    struct tm utc = {0};
    assert_int_equal(sscanf(line, "%d-%d-%dT%d:%d:%d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
                            &utc.tm_hour, &utc.tm_min, &utc.tm_sec),
                     6);
    utc.tm_year -= 1900;
    utc.tm_mon--;
    return timegm(&utc);
}

/* The time is computed from another look at the clock, and so may be that of the next second. */
static void assert_same_lines(const char *ours, const char *theirs)
{
    while (*theirs != '\0') {
        int64_t between = time_of(ours) - time_of(theirs);
        assert_true(between >= -1 && between <= 1);
        ours += strlen("2026-01-01T00:00:00.000000Z");
        theirs += strlen("2026-01-01T00:00:00.000000Z");
        size_t length = strcspn(theirs, "\n") + 1;
        assert_memory_equal(ours, theirs, length);
        ours += length;
        theirs += length;
    }
    assert_string_equal(ours, "");
}

static void test_lines(void **state)
{
    (void)state;
    file_take();
    assert_int_equal(recover().lines, 0);
    log_some();
    file_take();
    struct fw_log_recovered recovered = recover();
    assert_int_equal(recovered.lines, 4);
    assert_int_equal(recovered.damaged, 0);
    assert_int_equal(recovered.process, getpid());
    assert_true(fw_log_drain());
    assert_same_lines(recovered_text.bytes, written.bytes);
    file_take();
    assert_int_equal(recover().lines, 0); /* Those are in the log. */

    FW_LOG(alpha, ERROR, "last");
    file_take();
    assert_int_equal(recover().lines, 1);
    assert_non_null(strstr(recovered_text.bytes, "error   alpha [recover_test] last\n"));
}

static void test_lost_lines(void **state)
{
    (void)state;
    uint64_t before = fw_log_lost();
    uint32_t stored = 0;
    for (; fw_log_lost() < before + 3; stored++) {
        FW_LOG(alpha, ERROR, "%s", "until it is full");
    }
    file_take();
    assert_int_equal(recover().lines, stored - 3);
    const char *told = strstr(recovered_text.bytes, "3 lines lost: the ring was full\n");
    assert_non_null(told);
    assert_string_equal(told, "3 lines lost: the ring was full\n"); /* At the end. */
    assert_true(fw_log_drain());
    assert_same_lines(recovered_text.bytes, written.bytes);
    file_take();
    assert_int_equal(recover().lines, 0);
    assert_string_equal(recovered_text.bytes, "");
}

static void test_around_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) { /* Round the ring several times, at odd places. */
        FW_LOG(alpha, ERROR, "%d %.*s", i, i * 7 % 300,
               "0123456789012345678901234567890123456789"
               "0123456789012345678901234567890123456789");
        FW_LOG(alpha, ERROR, "%d", i);
        file_take();
        assert_int_equal(recover().lines, 2);
        assert_int_equal(recover().damaged, 0);
        written.length = 0;
        assert_true(fw_log_drain());
        assert_same_lines(recovered_text.bytes, written.bytes);
    }
}

static void spoil(size_t offset, uint64_t value, size_t width)
{
    memcpy(contents + offset, &value, width);
}

static void refused(void)
{
    struct fw_log_recovered recovered;
    struct fw_reason reason = {.text = ""};
    assert_int_equal(fw_log_recover(contents, size, &printer, &recovered, &reason), -EBADMSG);
    assert_true(strlen(reason.text) > 0);
}

static void test_not_a_file_of_ours(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        uint64_t value;
        size_t width;
    } wrong[] = {
        {0, 0, 1},
        {offsetof(struct fw_log_arena, version), 2, 4},
        {offsetof(struct fw_log_arena, byte_order), 0x04030201, 4},
        {offsetof(struct fw_log_arena, ring_count), 0, 4},
        {offsetof(struct fw_log_arena, ring_count), 2, 4},
        {offsetof(struct fw_log_arena, ring_count), UINT32_MAX, 4},
        {offsetof(struct fw_log_arena, ring_size), 0, 8},
        {offsetof(struct fw_log_arena, ring_size), FW_LOG_RING_SIZE_MIN + 1, 8},
        {offsetof(struct fw_log_arena, ring_size), UINT64_C(1) << 63, 8},
        {offsetof(struct fw_log_arena, dictionary_size), 8, 8},
    };
    log_some();
    for (size_t i = 0; i < FW_ARRAY_LENGTH(wrong); i++) {
        file_take();
        spoil(wrong[i].offset, wrong[i].value, wrong[i].width);
        refused();
    }
    file_take();
    size_t whole = size;
    for (size = 0; size < whole; size = size * 2 + 1) {
        refused();
    }
    size = whole - 1;
    refused();
}

static void test_damage(void **state)
{
    (void)state;
    const size_t ring = fw_log_arena_ring_offset(0);
    const size_t data = fw_log_arena_data_offset(1, FW_LOG_RING_SIZE_MIN, 0);
    const size_t dictionary = fw_log_arena_dictionary_offset(1);
    const struct {
        size_t offset;
        uint64_t value;
        size_t width;
        uint64_t lines; /* That are left, of four. */
    } damages[] = {
        {ring + offsetof(struct fw_log_ring_header, written), UINT64_MAX - 7, 8, 1},
        {ring + offsetof(struct fw_log_ring_header, written), 4, 8, 1},
        {ring + offsetof(struct fw_log_ring_header, read), 8, 8, 1},
        {ring + offsetof(struct fw_log_ring_header, read), UINT64_MAX - 7, 8, 1},
        {data, 0, 2, 1},               /* A record without size... */
        {data, 8, 2, 1},               /* ...too short... */
        {data, 17, 2, 1},              /* ...not a multiple... */
        {data, 65528, 2, 1},           /* ...beyond the end. */
        {data, 4096, 2, 1},            /* ...beyond what was written. */
        {data + 80, 6, 8, 3},          /* The line that its caller made: a level that is none... */
        {data + 88, 33, 8, 3},         /* ...a module's name that is too long... */
        {data + 88, UINT64_MAX, 8, 3}, /* ...or would wrap. */
        {data + FW_LOG_RING_SIZE_MIN, 16, 2, 3}, /* No room for the thread's name. */
        {dictionary, 200000, 4, 0},              /* An entry beyond what is used. */
        {data + 2, 99, 2, 1},                    /* A site that nobody knows. */
        {data + 24, 5000, 8, 1},                 /* A string longer than the record. */
        {dictionary, 0, 4, 0}, /* Without the dictionary there is nothing to say. */
        {dictionary, UINT32_MAX, 4, 0},
        {dictionary + 6, 99, 2, 1}, /* A level that is none: the first site is unknown. */
        {offsetof(struct fw_log_arena, dictionary_used), 0, 8, 0},
        {offsetof(struct fw_log_arena, dictionary_used), UINT64_MAX, 8, 4},
    };
    log_some();
    for (size_t i = 0; i < FW_ARRAY_LENGTH(damages); i++) {
        file_take();
        spoil(damages[i].offset, damages[i].value, damages[i].width);
        struct fw_log_recovered recovered = recover();
        assert_int_equal(recovered.lines, damages[i].lines);
        if (i == FW_ARRAY_LENGTH(damages) - 1) {
            assert_int_equal(recovered.damaged, 0);
        } else {
            assert_true(recovered.damaged > 0);
            assert_non_null(strstr(recovered_text.bytes, "is damaged\n"));
        }
    }
    /* Clocks that make no sense give times that make none, and no more than that. */
    file_take();
    spoil(offsetof(struct fw_log_arena, anchors), UINT64_C(1) << 63, 8);
    spoil(offsetof(struct fw_log_arena, anchors) + 16, UINT64_MAX, 8); /* NaN. */
    spoil(offsetof(struct fw_log_arena, anchor_current), 2, 4);
    assert_int_equal(recover().lines, 4);
}

/* An entry of the dictionary that makes no sense costs the lines of its site, and no others. */
static void test_entries_that_make_no_sense(void **state)
{
    (void)state;
    static const char first[] = "alpha\0one %d %s"; /* As it stands behind the entry's header. */
    const size_t text = strlen("alpha") + 1;
    const size_t entry = fw_log_arena_dictionary_offset(1);
    const size_t names = entry + sizeof(struct fw_log_entry);
    const struct {
        size_t offset;
        char byte;
        size_t count;
    } spoilt[] = {
        {names, 'x', sizeof first},            /* The module's name does not end... */
        {names + sizeof first - 1, 'x', 1},    /* ...the text does not... */
        {names + text + strlen("one "), 1, 1}, /* ...holds nothing to print the arguments with... */
        {names + text + strlen("one %"), 'n', 1},              /* ...or something else. */
        {entry + offsetof(struct fw_log_entry, site), -1, 2},  /* Sites that there cannot be... */
        {entry + offsetof(struct fw_log_entry, site), 0, 2},   /* ...as sites count from one... */
        {entry + offsetof(struct fw_log_entry, level), -1, 2}, /* ...and levels. */
    };
    log_some();
    file_take();
    assert_memory_equal(contents + names, first, sizeof first);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(spoilt); i++) {
        file_take();
        memset(contents + spoilt[i].offset, spoilt[i].byte, spoilt[i].count);
        struct fw_log_recovered recovered = recover();
        assert_int_equal(recovered.lines, 1);
        assert_int_equal(recovered.damaged, 1);
        assert_non_null(strstr(recovered_text.bytes, "of the shared ring 7\n"));
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    log_some();
    file_take();
    struct fw_log_recovered recovered;
    int rc = -ENOMEM;
    for (int i = 0; rc == -ENOMEM; i++) {
        recovered_text.length = 0;
        fail_memory_after(i);
        rc = fw_log_recover(contents, size, &printer, &recovered, NULL);
        assert_true(i < 20);
        assert_true(rc == 0 || (rc == -ENOMEM && i < 6));
    }
    fail_memory_after(1000);
    assert_int_equal(recovered.lines, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_around_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_file_of_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_entries_that_make_no_sense, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
