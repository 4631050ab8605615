/* SPDX-License-Identifier: Apache-2.0 */
/* What replication counts. One instance per server, and rare events, so anyone may count. */
#pragma once

#include "base/metrics.h"

struct fw_metrics_repl {
    struct fw_metric_source source;
    struct fw_counter links;   /* Slaves that were admitted. */
    struct fw_counter refused; /* And those that were not. */
    struct fw_counter unproven;
    struct fw_counter copies;
    struct fw_counter resumes;
    struct fw_counter drops;
    struct fw_counter overflows;
    struct fw_counter silent;
    struct fw_counter damaged;
    struct fw_counter bytes_sent;
    struct fw_counter items_sent;
    struct fw_counter bytes_received;
    struct fw_counter messages_received;
    struct fw_counter connects;
    struct fw_counter held;
    struct fw_counter unconfirmed;
    struct fw_counter promotions;
    struct fw_counter demotions;
};

extern const struct fw_metric_table fw_repl_metric_table;

/* Unlike fw_counter_add() for any thread. Relaxed: a figure. */
static inline void fw_repl_count(struct fw_counter *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&counter->value, amount, memory_order_relaxed);
}
