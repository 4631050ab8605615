/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever part of a reply a socket took, the rest is kept, byte for byte and with its large
 * values, however the next sends divide it; and nothing of it stays behind. Values in files are
 * kept too, to be fetched when they are to be sent.
 * Method: a reply of bytes and bodies, cut at every place; what is kept is advanced in steps of all
 * sizes and compared with the reply. The bodies' references are counted before and after.
 */
#include "server/unsent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/fail_memory.h"

enum { BODY_LENGTH = 9000, WHOLE_MAX = 64 * 1024 };

static struct fw_table *table;
static struct fw_table_local *local;
static struct fw_reply *reply;
static struct fw_body *body;
static char whole[WHOLE_MAX];
static size_t whole_length;

static void add(const char *text)
{
    fw_reply_add(reply, text, strlen(text));
    memcpy(whole + whole_length, text, strlen(text));
    whole_length += strlen(text);
}

static void add_body(void)
{
    fw_reply_add_body(reply, body);
    memcpy(whole + whole_length, body->bytes, body->length);
    whole_length += body->length;
}

static int setup(void **state)
{
    (void)state;
    struct fw_reason reason;
    const struct fw_table_config config = {.memory = 64 << 20, .is_evicting = true, .seed = 1};
    assert_int_equal(fw_table_create(&table, &config, &reason), 0);
    assert_int_equal(fw_table_local_create(&local, table), 0);
    body = fw_body_create(local, BODY_LENGTH);
    assert_non_null(body);
    for (uint32_t i = 0; i < BODY_LENGTH; i++) {
        body->bytes[i] = (char)(i * 7 + i / 256);
    }
    reply = malloc(sizeof *reply);
    assert_non_null(reply);
    fw_reply_init(reply, local);
    whole_length = 0;
    add("VALUE a 0 9000\r\n");
    add_body();
    add("\r\nVALUE b 0 9000\r\n");
    add_body();
    add_body();
    add("\r\nEND\r\n");
    (void)fw_reply_finish(reply);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fw_reply_clear(reply);
    assert_int_equal(atomic_load(&body->references), 1);
    free(reply);
    fw_body_unref(local, body);
    fw_table_local_destroy(local);
    fw_table_destroy(table);
    return 0;
}

static uint32_t next_count(struct fw_unsent *unsent)
{
    const struct iovec *pieces;
    return fw_unsent_next(unsent, SIZE_MAX, &pieces);
}

/* Takes all of it in steps of at most `step`, and compares. */
static void check_rest(struct fw_unsent *unsent, size_t at, size_t step)
{
    bool is_over = at == whole_length;
    while (!is_over) {
        const struct iovec *piece = &unsent->pieces[unsent->first];
        size_t count = piece->iov_len < step ? piece->iov_len : step;
        assert_true(count > 0);
        assert_memory_equal(piece->iov_base, whole + at, count);
        at += count;
        is_over = fw_unsent_advance(unsent, count);
    }
    assert_int_equal(at, whole_length);
}

static void test_every_cut(void **state)
{
    (void)state;
    for (size_t sent = 0; sent < whole_length; sent += sent % 9000 < 100 ? 1 : 97) {
        struct fw_unsent *unsent = fw_unsent_create(reply, sent);
        assert_non_null(unsent);
        check_rest(unsent, sent, sent % 5000 + 1);
        fw_unsent_destroy(unsent, local);
    }
    assert_int_equal(atomic_load(&body->references), 4);
}

/* A send may end in the middle of a later piece. */
static void test_steps_across_pieces(void **state)
{
    (void)state;
    for (size_t step = 1; step < whole_length; step = step * 3 + 1) {
        struct fw_unsent *unsent = fw_unsent_create(reply, 5);
        size_t at = 5;
        while (at + step < whole_length) {
            assert_false(fw_unsent_advance(unsent, step));
            at += step;
            const struct iovec *piece = &unsent->pieces[unsent->first];
            assert_true(piece->iov_len > 0);
            assert_memory_equal(piece->iov_base, whole + at, piece->iov_len);
        }
        assert_true(fw_unsent_advance(unsent, whole_length - at));
        fw_unsent_destroy(unsent, local);
    }
}

/*
 * What is to be sent next is what comes next, never more than was asked for and, unless a piece
 * ends before it, no less; and the rest is counted.
 */
static void test_bounded_sends(void **state)
{
    (void)state;
    for (size_t most = 1; most < 2 * whole_length; most = most * 2 + 1) {
        struct fw_unsent *unsent = fw_unsent_create(reply, 7);
        size_t at = 7;
        bool is_over = false;
        while (!is_over) {
            const struct iovec *pieces;
            assert_int_equal(unsent->rest, whole_length - at);
            uint32_t count = fw_unsent_next(unsent, most, &pieces);
            assert_true(count > 0);
            size_t length = 0;
            for (uint32_t i = 0; i < count; i++) {
                assert_memory_equal(pieces[i].iov_base, whole + at + length, pieces[i].iov_len);
                length += pieces[i].iov_len;
            }
            assert_in_range(length, 1, most);
            bool is_whole = unsent->first + count == unsent->count;
            assert_true(length == most || is_whole ||
                        length + unsent->pieces[unsent->first + count].iov_len > most);
            size_t taken = length > 3 ? length - 3 : length; /* The socket takes less. */
            at += taken;
            is_over = fw_unsent_advance(unsent, taken);
        }
        assert_int_equal(at, whole_length);
        assert_int_equal(unsent->rest, 0);
        fw_unsent_destroy(unsent, local);
    }
}

/* The reply can be used for another connection at once, and the item can go. */
static void test_keeps_what_it_needs(void **state)
{
    (void)state;
    struct fw_unsent *unsent = fw_unsent_create(reply, 3);
    assert_int_equal(atomic_load(&body->references), 7);
    fw_reply_clear(reply);
    memset(reply->buffer, 'z', sizeof reply->buffer);
    assert_int_equal(atomic_load(&body->references), 4);
    check_rest(unsent, 3, 1000);
    fw_unsent_destroy(unsent, local);
}

/* What was sent is not held: only the last piece is left here. */
static void test_bodies_that_were_sent(void **state)
{
    (void)state;
    struct fw_unsent *unsent = fw_unsent_create(reply, whole_length - 3);
    assert_int_equal(unsent->count, 1);
    assert_int_equal(atomic_load(&body->references), 4);
    fw_unsent_destroy(unsent, local);
}

/* Whatever is kept of it, what was put behind follows, and nothing else. */
static void test_cut_short(void **state)
{
    (void)state;
    static const char last[] = "SERVER_ERROR\r\n";
    for (size_t keep = 0; keep <= whole_length; keep += keep % 9000 < 100 ? 1 : 997) {
        struct fw_unsent *unsent = fw_unsent_create(reply, 0);
        assert_non_null(unsent);
        fw_unsent_cut(unsent, local, keep, last, sizeof last - 1);
        assert_int_equal(unsent->rest, keep + sizeof last - 1);
        size_t at = 0;
        while (at < keep) {
            const struct iovec *piece = &unsent->pieces[unsent->first];
            size_t length = piece->iov_len;
            assert_true(at + length <= keep);
            assert_memory_equal(piece->iov_base, whole + at, length);
            assert_false(fw_unsent_advance(unsent, length));
            at += length;
        }
        assert_int_equal(unsent->pieces[unsent->first].iov_len, sizeof last - 1);
        assert_memory_equal(unsent->pieces[unsent->first].iov_base, last, sizeof last - 1);
        assert_true(fw_unsent_advance(unsent, sizeof last - 1));
        fw_unsent_destroy(unsent, local);
    }
    assert_int_equal(atomic_load(&body->references), 4);
}

/* A value in a file has no address: it stops the row, and what is left of it says where it is. */
static void test_value_in_a_file(void **state)
{
    (void)state;
    fw_reply_clear(reply);
    body->is_stored = true;
    FW_REPLY_ADD(reply, "head");
    fw_reply_add_body(reply, body);
    FW_REPLY_ADD(reply, "tail");
    (void)fw_reply_finish(reply);
    body->is_stored = false; /* It is nobody's but this test's. */
    assert_true(reply->has_stored);
    struct fw_unsent *unsent = fw_unsent_create(reply, 0);
    assert_non_null(unsent);
    fw_reply_clear(reply);
    assert_false(reply->has_stored);
    assert_int_equal(next_count(unsent), 1);
    assert_false(fw_unsent_advance(unsent, 4));
    assert_int_equal(next_count(unsent), 0);
    assert_false(fw_unsent_advance(unsent, BODY_LENGTH - 1));
    assert_int_equal(next_count(unsent), 0);
    assert_int_equal(unsent->pieces[unsent->first].iov_len, 1);
    assert_ptr_equal(unsent->bodies[unsent->first], body);
    assert_false(fw_unsent_advance(unsent, 2));
    assert_int_equal(next_count(unsent), 1);
    assert_memory_equal(unsent->pieces[unsent->first].iov_base, "ail", 3);
    assert_true(fw_unsent_advance(unsent, 3));
    fw_unsent_destroy(unsent, local);
}

static void test_no_memory(void **state)
{
    (void)state;
    fail_memory_after(0);
    struct fw_unsent *unsent = fw_unsent_create(reply, 3);
    assert_null(unsent);
    assert_int_equal(atomic_load(&body->references), 4);
}

#define WITH_REPLY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REPLY(test_every_cut),           WITH_REPLY(test_steps_across_pieces),
        WITH_REPLY(test_keeps_what_it_needs), WITH_REPLY(test_bodies_that_were_sent),
        WITH_REPLY(test_cut_short),           WITH_REPLY(test_value_in_a_file),
        WITH_REPLY(test_bounded_sends),       WITH_REPLY(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
