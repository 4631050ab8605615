/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: traces in the forms that others publish are read as what they say, and a line that is not
 * of the form is refused with its number.
 * Method: files of a few lines, and the arrays that come of them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/hits/trace.h"

static int read_text(struct fw_trace *trace, const char *text, struct fw_reason *reason)
{
    char path[] = "/tmp/fairway-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    int rc = fw_trace_read(trace, path, reason);
    assert_int_equal(unlink(path), 0);
    return rc;
}

/* The requests as letters: the n-th object is the n-th letter. */
static void check_requests(const struct fw_trace *trace, const char *expected)
{
    assert_int_equal(trace->request_count, strlen(expected));
    for (size_t i = 0; i < trace->request_count; i++) {
        assert_int_equal('a' + trace->requests[i], expected[i]);
    }
}

static void check_refused(const char *text, const char *where, const char *why)
{
    struct fw_trace trace;
    struct fw_reason reason = {.text = ""};
    assert_int_equal(read_text(&trace, text, &reason), -EINVAL);
    if (strstr(reason.text, where) == NULL || strstr(reason.text, why) == NULL) {
        fail_msg("'%s' is not about %s and %s", reason.text, where, why);
    }
    assert_null(trace.requests);
    assert_null(trace.objects);
}

static void test_spaces(void **state)
{
    (void)state;
    struct fw_trace trace;
    assert_int_equal(read_text(&trace,
                               "# a comment\n"
                               "apple 100\n"
                               "\n"
                               "pear  200 30\r\n"
                               "apple 100\n"
                               "a,b 7 4000000000\n"
                               "fig 2000000",
                               NULL),
                     0);
    check_requests(&trace, "abacd");
    assert_int_equal(trace.object_count, 4);
    assert_int_equal(trace.objects[0].value_size, 100);
    assert_int_equal(trace.objects[0].lifetime, 0);
    assert_int_equal(trace.objects[1].value_size, 200);
    assert_int_equal(trace.objects[1].lifetime, 30);
    assert_int_equal(trace.objects[2].lifetime, 0); /* Longer than servers count. */
    assert_int_equal(trace.objects[3].value_size, FW_TRACE_VALUE_MAX);
    assert_int_equal(trace.cut_count, 1);
    assert_int_equal(trace.rate, 0);
    fw_trace_free(&trace);

    check_refused("apple 100\npear\n", "line 2", "no key and number");
    check_refused("apple 100\n\n# x\npear x\n", "line 4", "no key and number");
    check_refused("apple -1\n", "line 1", "no key and number");
    check_refused("apple 1 x\n", "line 1", "seconds");
    check_refused("apple 1 2 3\n", "line 1", "more than");
    check_refused("", "fairway-trace-", "no request");
    check_refused("# nothing\n", "fairway-trace-", "no request");
}

static void test_sizes(void **state)
{
    (void)state;
    struct fw_trace trace;
    assert_int_equal(read_text(&trace,
                               "time,obj_id,obj_size\n"
                               "0,17,100\n"
                               "1.25,18,200\n"
                               "2,17,150,5\n",
                               NULL),
                     0);
    check_requests(&trace, "aba");
    assert_int_equal(trace.objects[0].value_size, 100); /* What was said first. */
    assert_int_equal(trace.objects[1].value_size, 200);
    assert_int_equal(trace.rate, 0);
    fw_trace_free(&trace);

    check_refused("time,obj_id,obj_size\nand,once,more\n", "line 2", "time");
    check_refused("0,17,100\nx,17,100\n", "line 2", "time");
    check_refused("0,17,100\n1.x,17,100\n", "line 2", "time");
    check_refused("0,17,100\n1,,100\n", "line 2", "object");
    check_refused("0,17,100\n1,17\n", "line 2", "bytes");
    check_refused("0,17,100\n1,17,1e3\n", "line 2", "bytes");
}

static void test_twitter(void **state)
{
    (void)state;
    struct fw_trace trace;
    assert_int_equal(read_text(&trace,
                               "0,nobody,6,10,7,set,0\n"
                               "0,x,1,0,7,get,0\n"
                               "10,x,1,500,7,set,3600\n"
                               "20,y,z,3,40,7,gets,0\n"
                               "20,x,1,500,8,get,0\n"
                               "30,x,1,0,8,delete,0\n"
                               "40,x,1,500,8,get,0\n",
                               NULL),
                     0);
    check_requests(&trace,
                   "abaa"); /* A key with a comma; the one that nobody asks for is left out. */
    assert_int_equal(trace.object_count, 2);
    assert_int_equal(trace.objects[0].value_size, 500); /* A set said so. */
    assert_int_equal(trace.objects[1].value_size, 40);
    /* Four requests in 40 seconds: 3600 seconds are 360 requests, less than a second here. */
    assert_int_equal(trace.rate, FW_TRACE_RATE);
    assert_int_equal(trace.objects[0].lifetime, 1);
    assert_int_equal(trace.objects[1].lifetime, 0);
    fw_trace_free(&trace);

    check_refused("0,x,1,0,7,get,0\n1,x,1,0,7,get\n", "line 2", "seven");
    check_refused("0,x,1,0,7,get,0\nx,x,1,0,7,get,0\n", "line 2", "time");
    check_refused("0,x,1,0,7,get,0\n1,x,1,0,7,get,never\n", "line 2", "lifetime");
    check_refused("0,x,1,0,7,get,0\n1,x,1,0,7,got,0\n", "line 2", "operation");
    check_refused("0,x,1,0,7,get,0\n1,x,1,k,7,get,0\n", "line 2", "sizes");
    check_refused("0,x,1,0,7,get,0\n1,x,k,1,7,get,0\n", "line 2", "sizes");
    check_refused("0,x,1,0,7,get,0\n1,,0,1,7,get,0\n", "line 2", "key");
    check_refused("0,x,1,0,7,set,0\n", "fairway-trace-", "no request");
}

/* Lifetimes keep their meaning in requests; many objects and requests, so that arrays grow. */
static void test_compressed(void **state)
{
    (void)state;
    enum { REQUESTS = 400000, OBJECTS = 5000, LINE_MAX = 64 };
    char *text = malloc((size_t)REQUESTS * LINE_MAX);
    assert_non_null(text);
    size_t used = 0;
    for (unsigned i = 0; i < REQUESTS; i++) { /* 100 a second. */
        used += (size_t)snprintf(text + used, LINE_MAX, "%u,key-%u,8,%u,1,get,%u\n", i / 100,
                                 i % OBJECTS, i % OBJECTS + 1, i % OBJECTS == 1 ? 10000 : 0);
    }
    struct fw_trace trace;
    assert_int_equal(read_text(&trace, text, NULL), 0);
    free(text);
    assert_int_equal(trace.request_count, REQUESTS);
    assert_int_equal(trace.object_count, OBJECTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(trace.requests[i], i % OBJECTS);
    }
    for (uint32_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(trace.objects[i].value_size, i + 1);
        /* 10,000 seconds were a million requests, which are five seconds. */
        assert_int_equal(trace.objects[i].lifetime, i == 1 ? 1000000 / FW_TRACE_RATE : 0);
    }
    fw_trace_free(&trace);
}

static void test_no_file(void **state)
{
    (void)state;
    struct fw_trace trace;
    struct fw_reason reason = {.text = ""};
    assert_int_equal(fw_trace_read(&trace, "no/such/trace", &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "no/such/trace"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spaces),  cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_twitter), cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
