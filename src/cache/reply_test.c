/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what is written comes out as one vector in its order, bodies are referred to and given
 * back, and a command can be taken back. Method: replies by hand, with the bodies' counts watched.
 */
#include "cache/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/table.h"

static struct fw_table *table;
static struct fw_table_local *local;
static struct fw_reply *reply;

static int setup(void **state)
{
    (void)state;
    const struct fw_table_config config = {.memory = 64 << 20, .is_evicting = true, .seed = 1};
    assert_int_equal(fw_table_create(&table, &config, NULL), 0);
    assert_int_equal(fw_table_local_create(&local, table), 0);
    reply = malloc(sizeof *reply);
    assert_non_null(reply);
    fw_reply_init(reply, local);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fw_reply_clear(reply);
    free(reply);
    fw_table_local_destroy(local);
    fw_table_destroy(table);
    return 0;
}

static struct fw_body *make_body(char fill)
{
    struct fw_body *body = fw_body_create(local, FW_ITEM_INLINE_MAX + 1);
    assert_non_null(body);
    memset(body->bytes, fill, body->length);
    return body;
}

static uint32_t references(struct fw_body *body)
{
    return atomic_load(&body->references);
}

static void assert_piece(uint32_t index, const char *text)
{
    assert_int_equal(reply->pieces[index].iov_len, strlen(text));
    assert_memory_equal(reply->pieces[index].iov_base, text, strlen(text));
    assert_null(reply->bodies[index]);
}

static void test_bytes(void **state)
{
    (void)state;
    fw_reply_clear(reply);
    assert_true(fw_reply_is_empty(reply));
    assert_int_equal(fw_reply_finish(reply), 0);
    FW_REPLY_ADD(reply, "one ");
    char *room = fw_reply_room(reply, 3);
    assert_non_null(room);
    memcpy(room, "two", 3);
    fw_reply_advance(reply, room + 3);
    assert_false(fw_reply_is_empty(reply));
    assert_int_equal(fw_reply_finish(reply), 1);
    assert_piece(0, "one two");
    /* Finishing twice changes nothing. */
    assert_int_equal(fw_reply_finish(reply), 1);
    fw_reply_clear(reply);
    assert_true(fw_reply_is_empty(reply));
}

static void test_room(void **state)
{
    (void)state;
    fw_reply_clear(reply);
    assert_non_null(fw_reply_room(reply, FW_REPLY_SIZE));
    assert_null(fw_reply_room(reply, FW_REPLY_SIZE + 1));
    char *last = reply->buffer + FW_REPLY_SIZE - 1;
    fw_reply_advance(reply, last);
    assert_ptr_equal(fw_reply_room(reply, 1), last);
    assert_null(fw_reply_room(reply, 2));
    FW_REPLY_ADD(reply, "x");
    assert_null(fw_reply_room(reply, 1));
    expect_assert_failure(fw_reply_add(reply, "x", 1));
    fw_reply_clear(reply);
}

static void test_bodies(void **state)
{
    (void)state;
    struct fw_body *a = make_body('a');
    struct fw_body *b = make_body('b');
    fw_reply_clear(reply);
    fw_reply_add_body(reply, a);
    fw_reply_add_body(reply, b);
    FW_REPLY_ADD(reply, "between");
    fw_reply_add_body(reply, a);
    FW_REPLY_ADD(reply, "end");
    assert_int_equal(references(a), 3);
    assert_int_equal(references(b), 2);
    assert_int_equal(fw_reply_finish(reply), 5);
    assert_ptr_equal(reply->pieces[0].iov_base, a->bytes);
    assert_int_equal(reply->pieces[0].iov_len, a->length);
    assert_ptr_equal(reply->bodies[1], b);
    assert_piece(2, "between");
    assert_ptr_equal(reply->bodies[3], a);
    assert_piece(4, "end");
    fw_reply_clear(reply);
    assert_int_equal(references(a), 1);
    assert_int_equal(references(b), 1);
    fw_body_unref(local, a);
    fw_body_unref(local, b);
}

static void test_pieces_end(void **state)
{
    (void)state;
    struct fw_body *body = make_body('a');
    uint32_t count = 0;
    fw_reply_clear(reply);
    while (fw_reply_has_pieces(reply)) {
        FW_REPLY_ADD(reply, "x");
        fw_reply_add_body(reply, body);
        count++;
    }
    FW_REPLY_ADD(reply, "x");
    /* It ends by their bytes, and before there would be too many pieces. */
    assert_true(count <= FW_REPLY_PIECES_MAX / 2 - 1);
    assert_true((count - 1) * (uint64_t)body->length < FW_REPLY_BODIES_MAX);
    assert_true(count * (uint64_t)body->length >= FW_REPLY_BODIES_MAX);
    assert_int_equal(fw_reply_length(reply), count * (1 + (uint64_t)body->length) + 1);
    assert_int_equal(fw_reply_finish(reply), 2 * count + 1);
    assert_int_equal(references(body), 1 + count);
    fw_reply_clear(reply);
    assert_int_equal(fw_reply_length(reply), 0);
    assert_true(fw_reply_has_pieces(reply));
    assert_int_equal(references(body), 1);
    fw_body_unref(local, body);
}

static void test_rewind(void **state)
{
    (void)state;
    struct fw_body *body = make_body('a');
    fw_reply_clear(reply);
    FW_REPLY_ADD(reply, "kept");
    fw_reply_add_body(reply, body);
    FW_REPLY_ADD(reply, "too");
    struct fw_reply_mark mark = fw_reply_mark(reply);
    uint64_t length = fw_reply_length(reply);
    FW_REPLY_ADD(reply, "dropped");
    fw_reply_add_body(reply, body);
    FW_REPLY_ADD(reply, "dropped");
    assert_int_equal(references(body), 3);
    fw_reply_rewind(reply, mark);
    assert_int_equal(fw_reply_length(reply), length);
    assert_int_equal(references(body), 2);
    FW_REPLY_ADD(reply, " and this");
    assert_int_equal(fw_reply_finish(reply), 3);
    assert_piece(0, "kept");
    assert_ptr_equal(reply->bodies[1], body);
    assert_piece(2, "too and this");
    fw_reply_clear(reply);
    fw_body_unref(local, body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),  cmocka_unit_test(test_room),
        cmocka_unit_test(test_bodies), cmocka_unit_test(test_pieces_end),
        cmocka_unit_test(test_rewind),
    };
    return cmocka_run_group_tests_name("reply", tests, setup, teardown);
}
