/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/metrics.h"

#define ROW(field, unit, help) FW_METRIC_COUNTER(struct fw_metrics_repl, field, unit, help)

static const struct fw_metric rows[] = {
    ROW(links, "", "slaves that were admitted"),
    ROW(refused, "", "connections to the replication's address that were refused"),
    ROW(unproven, "", "links refused because the other side did not prove to know the secret"),
    ROW(copies, "", "slaves that were copied everything"),
    ROW(resumes, "", "slaves that came back and were sent only what they had missed"),
    ROW(drops, "", "slaves dropped because they fell out of the log of changes"),
    ROW(overflows, "",
        "times an item of the master did not fit, and the copy was not whole any more"),
    ROW(silent, "", "links ended because the other side was not heard of for too long"),
    ROW(damaged, "", "links ended because what came was no message"),
    ROW(bytes_sent, "bytes", "sent to slaves"),
    ROW(items_sent, "", "items and removals sent to slaves"),
    ROW(bytes_received, "bytes", "received from a master"),
    ROW(messages_received, "", "messages received from a master"),
    ROW(connects, "", "connections made to a master"),
    ROW(held, "", "batches of replies that waited for slaves to confirm changes"),
    ROW(unconfirmed, "", "of those: an error was sent, since too few did in time"),
    ROW(promotions, "", "times the server became master"),
    ROW(demotions, "", "times the server became slave"),
};
const struct fw_metric_table fw_repl_metric_table =
    FW_METRIC_TABLE("repl", struct fw_metrics_repl, rows);
