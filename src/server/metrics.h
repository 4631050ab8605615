/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server counts, one instance per core, under memcached's names where it has one. The rows
 * are in metrics.c.
 */
#pragma once

#include "base/metrics.h"

struct fw_metrics_server {
    struct fw_metric_source source;
    struct fw_counter turns;       /* Of connections: admissions that were used. */
    struct fw_counter conn_yields; /* Of these: ended by the quantum, with more to do. */
    struct fw_counter bytes_read;
    struct fw_counter bytes_written;
    struct fw_counter replies_kept; /* The socket was full, and the rest was copied. */
    struct fw_counter idle_kicks;   /* Closed because nothing came for too long. */
    struct fw_counter login_kicks;  /* Closed because logins failed. */
};

enum { FW_SERVER_COUNTERS = 7 }; /* How many stand above. */

extern const struct fw_metric_table fw_server_metric_table;
