/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics.h"

#define ROW(field, unit, help) FW_METRIC_COUNTER(struct fw_metrics_server, field, unit, help)

static const struct fw_metric rows[] = {
    ROW(turns, "", "times a connection was admitted and served"),
    ROW(conn_yields, "", "times a connection had more to do when its share was over"),
    ROW(bytes_read, "bytes", "received from clients"),
    ROW(bytes_written, "bytes", "sent to clients"),
    ROW(replies_kept, "", "replies that a client did not take at once"),
    ROW(idle_kicks, "", "connections closed because nothing came for too long"),
    ROW(login_kicks, "", "connections closed because too many logins failed"),
};
const struct fw_metric_table fw_server_metric_table =
    FW_METRIC_TABLE("server", struct fw_metrics_server, rows);
