/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every command and every error is answered as memcached answers it, however the bytes arrive
 * and however little room there is for the reply. Method: each conversation runs with the input cut
 * into pieces of every size from one byte up, and with the smallest and a large output; the replies
 * must be the same.
 */
#include "cache/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/version.h"
#include "cache/store.h"

enum { MEMORY = 4 << 20, ITEM_SIZE_MAX = 1000, NOW = 1700000000, REPLIES_MAX = 1 << 16 };

static char input_buffer[4 * FW_OLD_PROTOCOL_LINE_MAX];
static char replies[REPLIES_MAX];
static size_t replies_size;

static void collect(struct fw_old_session *session, size_t *input_length, size_t output_size)
{
    static char output[1 << 14];
    struct fw_old_session_step step;
    do {
        step = fw_old_session_run(session, input_buffer, *input_length, output, output_size, NOW);
        assert_true(step.consumed <= *input_length);
        assert_true(step.produced <= output_size);
        assert_true(replies_size + step.produced < REPLIES_MAX);
        memcpy(replies + replies_size, output, step.produced);
        replies_size += step.produced;
        *input_length -= step.consumed;
        memmove(input_buffer, input_buffer + step.consumed, *input_length);
    } while (step.more);
}

/* Has the conversation on a fresh store; returns the state in which the session ended. */
static enum fw_old_session_state converse(const char *input, size_t input_size, size_t piece,
                                      size_t output_size)
{
    struct fw_old_store *store;
    struct fw_old_session session;
    assert_int_equal(fw_old_store_create(&store, MEMORY), 0);
    fw_old_session_init(&session, store, ITEM_SIZE_MAX);
    replies_size = 0;
    size_t length = 0;
    for (size_t offset = 0; offset < input_size; offset += piece) {
        size_t size = input_size - offset < piece ? input_size - offset : piece;
        assert_true(length + size <= sizeof input_buffer);
        memcpy(input_buffer + length, input + offset, size);
        length += size;
        collect(&session, &length, output_size);
    }
    replies[replies_size] = '\0';
    enum fw_old_session_state state = session.state;
    fw_old_session_fini(&session);
    fw_old_store_destroy(store);
    return state;
}

static void expect_state(const char *input, const char *expected, enum fw_old_session_state state)
{
    size_t size = strlen(input);
    for (size_t piece = 1; piece <= size; piece++) {
        assert_int_equal(converse(input, size, piece, FW_OLD_PROTOCOL_REPLY_MIN + 1), state);
        assert_string_equal(replies, expected);
    }
    assert_int_equal(converse(input, size, size, 1 << 14), state);
    assert_string_equal(replies, expected);
}

static void expect(const char *input, const char *expected)
{
    expect_state(input, expected, FW_OLD_SESSION_COMMAND);
}

static void test_set_get_delete(void **state)
{
    (void)state;
    expect("set k 7 0 5\r\nhello\r\nget k\r\n", "STORED\r\nVALUE k 7 5\r\nhello\r\nEND\r\n");
    expect("set a 0 0 1\r\n1\r\nset b 4294967295 0 0\r\n\r\nget a x b\r\n",
           "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nVALUE b 4294967295 0\r\n\r\nEND\r\n");
    expect("set k 0 0 2\r\n\r\n\r\nget k\r\n", "STORED\r\nVALUE k 0 2\r\n\r\n\r\nEND\r\n");
    expect("delete k\r\nset k 0 0 1\r\nx\r\ndelete k\r\nget k\r\n",
           "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\n");
    expect("get nothing\n", "END\r\n"); /* A bare newline will do. */
    expect("  get   spaced  \r\n", "END\r\n");
}

static void test_noreply(void **state)
{
    (void)state;
    expect("set k 0 0 1 noreply\r\nx\r\nget k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
    expect("set k 0 0 1\r\nx\r\ndelete k noreply\r\nget k\r\n", "STORED\r\nEND\r\n");
    expect("delete k 0 noreply\r\nversion\r\n", "VERSION " FW_VERSION "\r\n");
    /* Noreply is one command's, and an error is said all the same. */
    expect("set k 0 0 1 noreply\r\nxyz", "CLIENT_ERROR bad data chunk\r\n");
    expect("set k 0 0 x noreply\r\nget k\r\n", "CLIENT_ERROR bad command line format\r\nEND\r\n");
}

static void test_expiry(void **state)
{
    (void)state;
    expect("set k 0 -1 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n");
    expect("set k 0 1 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    expect("set k 0 2592000 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    expect("set k 0 2592001 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n"); /* Absolute, long ago. */
    expect("set k 0 1700000000 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n");
    expect("set k 0 1700000001 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
}

static void test_errors(void **state)
{
    (void)state;
    expect("\r\n", "ERROR\r\n");
    expect("nonsense\r\n", "ERROR\r\n");
    expect("get\r\n", "ERROR\r\n");
    expect("GET k\r\n", "ERROR\r\n");
    expect("set k 0 0\r\n", "ERROR\r\n");
    expect("set k 0 0 1 noreply more\r\n", "ERROR\r\n");
    expect("set k x 0 1\r\n", "CLIENT_ERROR bad command line format\r\n");
    expect("set k 0 x 1\r\n", "CLIENT_ERROR bad command line format\r\n");
    expect("set k 4294967296 0 1\r\n", "CLIENT_ERROR bad command line format\r\n");
    expect("set k 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n");
    expect("set k 0 0 99999999999999999999\r\n", "CLIENT_ERROR bad command line format\r\n");
    expect("delete\r\n", "ERROR\r\n");
    expect("delete k 1\r\n",
           "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n");
    expect("version 1\r\n", "ERROR\r\n");
    expect("set k 0 0 3\r\nabcdeversion\r\n",
           "CLIENT_ERROR bad data chunk\r\nVERSION " FW_VERSION "\r\n");
}

static void test_quit(void **state)
{
    (void)state;
    expect_state("quit\r\n", "", FW_OLD_SESSION_CLOSED);
    expect_state("get a\r\nquit\r\nget b\r\n", "END\r\n", FW_OLD_SESSION_CLOSED);
}

static void test_value_limit(void **state)
{
    (void)state;
    static char input[8192];
    char value[ITEM_SIZE_MAX + 2];
    memset(value, 'v', sizeof value);
    (void)snprintf(input, sizeof input, "set k 0 0 %d\r\n%.*s\r\nget k\r\n", ITEM_SIZE_MAX,
                   ITEM_SIZE_MAX, value);
    assert_int_equal(converse(input, strlen(input), 100, FW_OLD_PROTOCOL_REPLY_MIN + 1),
                     FW_OLD_SESSION_COMMAND);
    assert_int_equal(replies_size, strlen("STORED\r\nVALUE k 0 1000\r\n") + ITEM_SIZE_MAX +
                                       strlen("\r\nEND\r\n"));
    /* One byte more is refused and swallowed, and the value of before is gone. */
    (void)snprintf(input, sizeof input, "set k 0 0 1\r\nx\r\nset k 0 0 %d\r\n%.*s\r\nget k\r\n",
                   ITEM_SIZE_MAX + 1, ITEM_SIZE_MAX + 1, value);
    expect(input, "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n");
}

static void test_key_limit(void **state)
{
    (void)state;
    static char input[2048];
    char key[FW_KEY_SIZE_MAX + 2];
    memset(key, 'k', sizeof key);
    key[FW_KEY_SIZE_MAX + 1] = '\0';
    (void)snprintf(input, sizeof input, "set %s 0 0 1\r\nget a %s b\r\ndelete %s\r\n", key, key,
                   key);
    expect(input, "CLIENT_ERROR bad command line format\r\n"
                  "CLIENT_ERROR bad command line format\r\n"
                  "CLIENT_ERROR bad command line format\r\n");
    key[FW_KEY_SIZE_MAX] = '\0';
    (void)snprintf(input, sizeof input, "set %s 0 0 1\r\nx\r\ndelete %s\r\n", key, key);
    expect(input, "STORED\r\nDELETED\r\n");
}

static void test_line_limit(void **state)
{
    (void)state;
    static char input[FW_OLD_PROTOCOL_LINE_MAX + 1];
    memset(input, ' ', sizeof input);
    memcpy(input + FW_OLD_PROTOCOL_LINE_MAX - 9, "version\r\n", 9);
    assert_int_equal(converse(input, FW_OLD_PROTOCOL_LINE_MAX, 1000, 1024), FW_OLD_SESSION_COMMAND);
    assert_string_equal(replies, "VERSION " FW_VERSION "\r\n");
    memset(input, ' ', sizeof input);
    memcpy(input + sizeof input - 9, "version\r\n", 9);
    assert_int_equal(converse(input, sizeof input, sizeof input, 1024), FW_OLD_SESSION_CLOSED);
    assert_string_equal(replies, "CLIENT_ERROR line too long\r\n");
    assert_int_equal(converse(input, sizeof input - 1, 100, 1024), FW_OLD_SESSION_CLOSED);
    assert_string_equal(replies, "CLIENT_ERROR line too long\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_get_delete), cmocka_unit_test(test_noreply),
        cmocka_unit_test(test_expiry),         cmocka_unit_test(test_errors),
        cmocka_unit_test(test_quit),           cmocka_unit_test(test_value_limit),
        cmocka_unit_test(test_key_limit),      cmocka_unit_test(test_line_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
