/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What replication shows of itself: `stats replication`, and the same in the registry, where a
 * slave's figures are labelled with its address.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "io/clock.h"
#include "repl/repl.h"

/* ---- what is shown ------------------------------------------------------------------------- */

void fw_repl_standing(struct fw_repl *repl, struct fw_repl_standing *standing)
{
    const struct fw_repl_followed *followed = &repl->followed;
    if (!fw_repl_is_following(repl)) {
        fw_changes_look(repl->changes, &standing->history, &standing->position);
        standing->is_complete = true;
        return;
    }
    /* Seq-cst, and in this order: follow_begin() says why. */
    standing->history = atomic_load(&followed->history);
    standing->position = atomic_load(&followed->position);
    standing->is_complete = !atomic_load(&followed->is_torn) && !atomic_load(&followed->is_held);
}

void fw_repl_master_format(const struct fw_repl_master *master,
                           char text[static FW_ADDRESS_TEXT_SIZE])
{
    if (master->address.length > 0) {
        fw_address_format(&master->address, text);
    } else {
        (void)snprintf(text, FW_ADDRESS_TEXT_SIZE, "%s", master->name);
    }
}

/* One slave, as of now. */
struct slave {
    uint32_t state; /* enum fw_repl_link_state; NONE: there is none. */
    bool is_ours;
    bool is_complete;
    uint64_t sent;
    uint64_t confirmed;
    uint64_t bytes_sent;
    uint64_t behind_bytes;
    int64_t behind_ns;
    char address[FW_ADDRESS_TEXT_SIZE];
};

static void slave_look(const struct fw_repl *repl, const struct fw_repl_slot *slot,
                       struct slave *slave)
{
    /* Before the slot: what it has confirmed is then not ahead of the head by much. */
    uint64_t head = fw_changes_head(repl->changes);
    /* Acquire, for the release of who took it. */
    *slave = (struct slave){.state = atomic_load_explicit(&slot->state, memory_order_acquire)};
    if (slave->state == FW_REPL_LINK_NONE) {
        return;
    }
    /* Relaxed, all: figures. */
    slave->is_ours = atomic_load_explicit(&slot->is_ours, memory_order_relaxed);
    slave->is_complete = slave->state == FW_REPL_LINK_STREAMING &&
                         !atomic_load_explicit(&slot->is_partial, memory_order_relaxed);
    slave->sent = atomic_load_explicit(&slot->sent, memory_order_relaxed);
    slave->confirmed = atomic_load_explicit(&slot->confirmed, memory_order_relaxed);
    slave->bytes_sent = atomic_load_explicit(&slot->bytes_sent, memory_order_relaxed);
    int64_t current_ns = atomic_load_explicit(&slot->current_ns, memory_order_relaxed);
    bool is_behind = slave->confirmed < head;
    int64_t behind_ns = is_behind && current_ns > 0 ? fw_clock_now_ns() - current_ns : 0;
    slave->behind_bytes = is_behind ? head - slave->confirmed : 0;
    slave->behind_ns = behind_ns > 0 ? behind_ns : 0;
    if (slave->state != FW_REPL_LINK_ENTERING) { /* Before it is not known. */
        fw_address_format(&slot->peer, slave->address);
    }
}

static uint32_t slave_count(const struct fw_repl *repl)
{
    uint32_t count = 0;
    for (size_t i = 0; i < FW_REPL_SLAVES_MAX; i++) {
        /* Acquire, for the release of who left it: its socket is closed then. */
        count +=
            atomic_load_explicit(&repl->slots[i].state, memory_order_acquire) != FW_REPL_LINK_NONE;
    }
    return count;
}

/* How long ago a slave had all that its master had; -1: never. */
static int64_t age_ns(const struct fw_repl *repl)
{
    /* Relaxed: a figure. */
    int64_t since = atomic_load_explicit(&repl->followed.current_ns, memory_order_relaxed);
    return since > 0 ? fw_clock_now_ns() - since : -1;
}

enum fw_repl_freshness fw_repl_freshness(const struct fw_repl *repl, int64_t bound_ns)
{
    /* Relaxed, both: what is read now could have been a moment ago. */
    if (atomic_load_explicit(&repl->followed.is_other, memory_order_relaxed)) {
        return FW_REPL_FRESH; /* As far as anybody knows. */
    }
    if (atomic_load_explicit(&repl->followed.is_torn, memory_order_relaxed)) {
        return FW_REPL_TORN;
    }
    int64_t age = age_ns(repl);
    return age >= 0 && age <= bound_ns ? FW_REPL_FRESH : FW_REPL_OLD;
}

/* ---- stats --------------------------------------------------------------------------------- */

struct rows {
    fw_stat_emit emit;
    void *context;
    int index; /* Of the slave; -1: of none. */
};

FW_PRINTF(3, 4)
static void row(const struct rows *rows, const char *name, const char *format, ...)
{
    char value[FW_ADDRESS_TEXT_SIZE];
    char full[64];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (rows->index >= 0) {
        (void)snprintf(full, sizeof full, "%d:%s", rows->index, name);
    }
    rows->emit(rows->context, rows->index >= 0 ? full : name, value);
}

static const char *yes_or_no(bool is_so)
{
    return is_so ? "yes" : "no";
}

static void rows_slave(const struct rows *rows, const struct slave *slave)
{
    static const char *const states[] = {
        [FW_REPL_LINK_ENTERING] = "entering",
        [FW_REPL_LINK_CONFIRMING] = "confirming",
        [FW_REPL_LINK_COPYING] = "copying",
        [FW_REPL_LINK_STREAMING] = "streaming",
    };
    if (slave->address[0] != '\0') {
        row(rows, "address", "%s", slave->address);
    }
    row(rows, "state", "%s", states[slave->state]);
    row(rows, "ours", "%s", yes_or_no(slave->is_ours));
    row(rows, "complete", "%s", yes_or_no(slave->is_complete));
    row(rows, "position_sent", "%" PRIu64, slave->sent);
    row(rows, "position_confirmed", "%" PRIu64, slave->confirmed);
    row(rows, "behind_bytes", "%" PRIu64, slave->behind_bytes);
    row(rows, "behind_ms", "%" PRId64, slave->behind_ns / FW_NS_PER_MS);
    row(rows, "bytes_sent", "%" PRIu64, slave->bytes_sent);
}

/* Why a slave has no link, or its copy is not whole; NULL: for no special reason. */
static const char *hindrance_text(const struct fw_repl *repl)
{
    /* Relaxed: a figure. */
    switch (atomic_load_explicit(&repl->followed.hindrance, memory_order_relaxed)) {
    case -E2BIG:
        return "less memory than the master";
    case -ENOSPC:
        return "an item did not fit in memory";
    case -ESTALE:
        return "the master was behind this server: accept or promote";
    case -EACCES:
        return "the master refused the secret";
    case -ENOKEY:
        return "the master wants a secret: --repl-secret-file";
    case -EKEYREJECTED:
        return "the master does not know the secret";
    case -EEXIST:
        return "the master has less, and another origin: accept or promote";
    default:
        return NULL;
    }
}

static void rows_followed(const struct rows *rows, const struct fw_repl *repl)
{
    static const char *const states[] = {
        [FW_REPL_FOLLOW_NONE] = "none",
        [FW_REPL_FOLLOW_CONNECTING] = "connecting",
        [FW_REPL_FOLLOW_COPYING] = "copying",
        [FW_REPL_FOLLOW_STREAMING] = "streaming",
    };
    bool is_held = atomic_load_explicit(&repl->followed.is_held, memory_order_relaxed);
    char master[FW_ADDRESS_TEXT_SIZE];
    int64_t age = age_ns(repl);
    fw_repl_master_format(&repl->master, master);
    row(rows, "master", "%s", master);
    /* Relaxed: a figure. */
    row(rows, "link", "%s",
        is_held ? "held"
                : states[atomic_load_explicit(&repl->followed.state, memory_order_relaxed)]);
    row(rows, "age_ms", "%" PRId64, age >= 0 ? age / FW_NS_PER_MS : -1);
    if (hindrance_text(repl) != NULL) {
        row(rows, "reason", "%s", hindrance_text(repl));
    }
}

void fw_repl_stats(struct fw_repl *repl, fw_stat_emit emit, void *context)
{
    struct rows rows = {.emit = emit, .context = context, .index = -1};
    const struct fw_metrics_repl *metrics = &repl->metrics;
    struct fw_repl_standing standing;
    if (fw_repl_is_following(repl)) {
        rows_followed(&rows, repl);
    }
    fw_repl_standing(repl, &standing);
    row(&rows, "history", "%016" PRIx64, standing.history);
    row(&rows, "position", "%" PRIu64, standing.position);
    row(&rows, "complete", "%s", yes_or_no(standing.is_complete));
    row(&rows, "slaves", "%" PRIu32, slave_count(repl));
    row(&rows, "slaves_max", "%" PRIu64, repl->config.slaves);
    row(&rows, "backlog_bytes", "%" PRIu64, repl->config.backlog);
    for (size_t i = 0; i < fw_repl_metric_table.row_count; i++) {
        const struct fw_metric *metric = &fw_repl_metric_table.rows[i];
        const char *field = (const char *)metrics + metric->offset;
        row(&rows, metric->name, "%" PRIu64,
            fw_counter_get((const struct fw_counter *)(const void *)field));
    }
    for (int i = 0; i < FW_REPL_SLAVES_MAX; i++) {
        struct slave slave;
        slave_look(repl, &repl->slots[i], &slave);
        if (slave.state != FW_REPL_LINK_NONE) {
            rows.index = i;
            rows_slave(&rows, &slave);
        }
    }
}

/* ---- the registry -------------------------------------------------------------------------- */

#define GAUGE(row_name, unit_text, help_text)                                                      \
    {                                                                                              \
        .name = (row_name), .unit = (unit_text), .help = (help_text), .type = FW_METRIC_TYPE_GAUGE \
    }

/* In the order in which collect() fills them in. */
enum { POSITION, COMPLETE, FOLLOWS, AGE, OWN };
static const struct fw_metric own_rows[OWN] = {
    [POSITION] = GAUGE("repl_position", "bytes", "where in the stream this server is"),
    [COMPLETE] = GAUGE("repl_complete", "", "1: it has a whole copy, or is master"),
    [FOLLOWS] = GAUGE("repl_follows", "", "1: it follows a master"),
    [AGE] = GAUGE("repl_age", "ns", "since it had all that its master has; -1: never had"),
};

enum { SLAVE_COMPLETE, SENT, CONFIRMED, BEHIND, BEHIND_FOR, SLAVE };
static const struct fw_metric slave_rows[SLAVE] = {
    [SLAVE_COMPLETE] = GAUGE("repl_slave_complete", "", "1: it has a whole copy"),
    [SENT] = GAUGE("repl_slave_position_sent", "bytes", "what it was sent"),
    [CONFIRMED] = GAUGE("repl_slave_position_confirmed", "bytes", "what it has applied"),
    [BEHIND] = GAUGE("repl_slave_behind", "bytes", "of the log that it has not confirmed"),
    [BEHIND_FOR] = GAUGE("repl_slave_behind_for", "ns", "since it had confirmed everything"),
};

struct told {
    fw_metric_visit visit;
    void *context;
    const char *label; /* NULL: of the server. */
};

static void tell(const struct told *told, const struct fw_metric *rows, const int64_t *values,
                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct fw_metric_value value = {.name = rows[i].name,
                                              .label_name = told->label != NULL ? "slave" : NULL,
                                              .label = told->label,
                                              .row = &rows[i],
                                              .gauge = values[i]};
        told->visit(&value, told->context);
    }
}

static void collect(struct fw_metric_collector *collector, fw_metric_visit visit, void *context)
{
    struct fw_repl *repl = FW_CONTAINER_OF(collector, struct fw_repl, collector);
    struct fw_repl_standing standing;
    struct told told = {.visit = visit, .context = context};
    if (!repl->config.is_enabled) {
        return;
    }
    fw_repl_standing(repl, &standing);
    bool follows = fw_repl_is_following(repl);
    const int64_t own[OWN] = {[POSITION] = (int64_t)standing.position,
                              [COMPLETE] = standing.is_complete,
                              [FOLLOWS] = follows,
                              [AGE] = follows ? age_ns(repl) : 0};
    tell(&told, own_rows, own, OWN);
    for (size_t i = 0; i < FW_REPL_SLAVES_MAX; i++) {
        struct slave slave;
        slave_look(repl, &repl->slots[i], &slave);
        if (slave.address[0] == '\0') {
            continue;
        }
        const int64_t values[SLAVE] = {[SLAVE_COMPLETE] = slave.is_complete,
                                       [SENT] = (int64_t)slave.sent,
                                       [CONFIRMED] = (int64_t)slave.confirmed,
                                       [BEHIND] = (int64_t)slave.behind_bytes,
                                       [BEHIND_FOR] = slave.behind_ns};
        told.label = slave.address;
        tell(&told, slave_rows, values, SLAVE);
    }
}

void fw_repl_figures_begin(struct fw_repl *repl)
{
    repl->collector = (struct fw_metric_collector){.collect = collect};
    fw_metrics_add_collector(repl->host.registry, &repl->collector);
}

void fw_repl_figures_end(struct fw_repl *repl)
{
    fw_metrics_remove_collector(repl->host.registry, &repl->collector);
}
