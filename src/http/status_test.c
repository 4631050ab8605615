/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: status.json has every figure once, where the page looks for it.
 * Method: a known server, compared with the whole text.
 */
#include "http/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/http_shown.h"

static void test_whole(void **state)
{
    struct shown *shown = *state;
    fw_counter_add(&shown->counts->hits, 3);
    fw_gauge_set(&shown->counts->idle, -2);
    fw_histogram_record(&shown->counts->wait, 100);
    assert_int_equal(fw_status_write(&shown->shown, shown->out), 0);
    assert_int_equal(fflush(shown->out), 0);
    assert_string_equal(
        shown->text, "{\"ready\":true,"
                     "\"groups\":{\"general\":{\"version\":\"1.2\",\"curr_items\":7},"
                     "\"tenants\":{\"web\":{\"weight\":2,\"served\":100,\"rules\":\"listener :1\"},"
                     "\"a\\\"b\\\\c:d\":{\"served\":5}},"
                     "\"threads\":{},\"epochs\":{},\"replication\":{},\"volumes\":{}},"
                     "\"metrics\":{\"cache_hits\":3,\"cache_sent\":0,\"cache_idle\":-2,"
                     "\"cache_wait\":{\"count\":1,\"p50\":100,\"p99\":100,\"max\":100}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, shown_setup, shown_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
