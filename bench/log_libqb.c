/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of the log's benchmark: libqb's log with its writer's thread.
 *
 *     log_libqb call FILE BURSTS PAUSE_NS      what a call costs, see log_call.h
 */
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include <qb/qbdefs.h>
#include <qb/qblog.h>

#include "base/parse.h"
#include "bench/log_call.h"

static void burst(uint32_t thread, uint32_t number)
{
    for (uint32_t i = 0; i < LOG_CALL_BURST; i++) {
        qb_log(LOG_NOTICE, "request %u of %u took %lu us", i, thread, (unsigned long)number);
    }
}

int main(int argc, char **argv)
{
    uint64_t bursts, pause_ns;
    if (argc != 5 || strcmp(argv[1], "call") != 0 ||
        fw_parse_uint(argv[3], strlen(argv[3]), 1, 1U << 30, &bursts) != 0 ||
        fw_parse_uint(argv[4], strlen(argv[4]), 0, 1U << 30, &pause_ns) != 0) {
        (void)fprintf(stderr, "usage: log_libqb call FILE BURSTS PAUSE_NS\n");
        return 2;
    }
    qb_log_init("bench", LOG_USER, LOG_EMERG);
    (void)qb_log_ctl(QB_LOG_SYSLOG, QB_LOG_CONF_ENABLED, QB_FALSE);
    int target = qb_log_file_open(argv[2]);
    if (target < 0 ||
        qb_log_filter_ctl(target, QB_LOG_FILTER_ADD, QB_LOG_FILTER_FILE, "*", LOG_NOTICE) != 0) {
        (void)fprintf(stderr, "log_libqb: cannot log to %s\n", argv[2]);
        return 2;
    }
    qb_log_format_set(target, "%t %p %N %b");
    (void)qb_log_ctl(target, QB_LOG_CONF_THREADED, QB_TRUE);
    (void)qb_log_thread_start();
    (void)qb_log_ctl(target, QB_LOG_CONF_ENABLED, QB_TRUE);
    int status = log_call_measure(burst, (uint32_t)bursts, (int64_t)pause_ns);
    qb_log_fini();
    return status;
}
