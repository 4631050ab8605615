/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "epoch/cluster.h"
#include "epoch/corosync.h"
#include "io/alarm.h"
#include "io/clock.h"
#include "io/random.h"
#include "sched/gang.h"
#include "sched/share.h"
#include "sched/tenants.h"
#include "server/state.h"

FW_LOG_MODULE_USE(server);

enum { NAME_SIZE = FW_SCHED_NAME_MAX + 64, VALUE_SIZE = 64, PERCENT = 100 };

static const char *const fallbacks[] = {"fair", "none", NULL};

#define ROW(type, field, option_name, ...)                                         \
    FW_OPTION_##type(struct fw_server_cluster_config, field, .section = "cluster", \
                     .name = option_name, __VA_ARGS__)

const struct fw_option fw_server_cluster_options[] = {
    ROW(STRING, name, "name", .value_name = "NAME",
        .help = "servers with this name go in step, over Corosync, with the policies share and "
                "gang; none if not given"),
    ROW(UINT, nodes, "nodes", .default_text = "0", .max = FW_SHARE_NODES_MAX, .unit = "nodes",
        .help = "how many nodes the cluster has, the same on each; needed for their fair parts"),
    ROW(ENUM, fallback, "fallback", .default_text = "fair", .names = fallbacks,
        .help = "what a node serves of these tenants when it is cut off: its fair part, which the "
                "others then leave to it (fair), or nothing, so that they have all (none)"),
    ROW(DURATION, epoch_ns, "epoch", .default_text = "50ms", .unit = "ms", .min = FW_NS_PER_MS,
        .max = FW_NS_PER_S,
        .help =
            "how often parts are agreed on (share), or how long a tenant's turn is at most (gang)"),
    ROW(DURATION, timeout_ns, "timeout", .default_text = "700ms", .unit = "ms",
        .min = 10 * (int64_t)FW_NS_PER_MS, .max = 60 * (int64_t)FW_NS_PER_S,
        .help = "who says nothing for so long is left behind; longer than Corosync's token and "
                "consensus together, and at most 30 epochs"),
    ROW(DURATION, bound_ns, "bound", .default_text = "0", .unit = "ms",
        .max = 300 * (int64_t)FW_NS_PER_S,
        .help = "a node that hears nothing for so long goes on by itself; 0: three times the "
                "time-out"),
};
const size_t fw_server_cluster_options_count = FW_ARRAY_LENGTH(fw_server_cluster_options);

#define GAUGE(field, unit, help) FW_METRIC_GAUGE(struct fw_metrics_epoch, field, unit, help)
#define COUNTER(field, help)     FW_METRIC_COUNTER(struct fw_metrics_epoch, field, "", help)

static const struct fw_metric metrics[] = {
    GAUGE(in_step, "", "1: with the other nodes; 0: cut off, or no cluster"),
    GAUGE(epoch, "", "number of the epoch that runs, or ran last"),
    GAUGE(peers, "", "servers that this one hears, itself included"),
    GAUGE(participants, "", "servers in the last epoch"),
    COUNTER(started, "epochs in which it took part"),
    COUNTER(missed, "epochs in which it did not, though it heard of them"),
    COUNTER(evictions, "servers left behind because they were silent"),
    COUNTER(stale, "times that this one was"),
    COUNTER(cut_off, "times that it asked for an epoch without a quorum"),
    COUNTER(timed_out, "times that nothing came for the whole bound"),
    COUNTER(refused, "messages that made no sense"),
    GAUGE(ragged_ns, "ns", "from the first who was ready to the start of the last epoch"),
    GAUGE(ragged_max_ns, "ns", "the longest of these"),
    GAUGE(last_error, "", "errno of the last answer that was no epoch; 0: none"),
};
const struct fw_metric_table fw_epoch_metric_table =
    FW_METRIC_TABLE("epoch", struct fw_metrics_epoch, metrics);

struct fw_server_cluster {
    struct fw_metrics_epoch metrics; /* First: it is aligned. */
    struct fw_server *server;
    struct fw_group *group;
    struct fw_epoch_cluster epochs;
    struct fw_alarm epochs_alarm;
    struct fw_share share; /* One of these two runs, or none. */
    struct fw_gang gang;
    struct fw_alarm policy_alarm; /* Its. */
    /* What was opened. */
    bool has_epochs_alarm;
    bool has_policy_alarm;
    bool has_group;
    bool has_epochs;
    bool is_closed;
};

/* ---- call-backs ------------------------------------------------------------------------------ */

static struct fw_server_cluster *cluster_of_epochs(struct fw_epoch_cluster *epochs)
{
    return FW_CONTAINER_OF(epochs, struct fw_server_cluster, epochs);
}

static struct fw_server_cluster *cluster_of_share(struct fw_share *share)
{
    return FW_CONTAINER_OF(share, struct fw_server_cluster, share);
}

static int64_t epochs_now(struct fw_epoch_cluster *epochs)
{
    (void)epochs;
    return fw_clock_now_ns();
}

static void epochs_arm(struct fw_epoch_cluster *epochs, int64_t when_ns)
{
    fw_alarm_set(&cluster_of_epochs(epochs)->epochs_alarm, when_ns);
}

static void epochs_rang(struct fw_alarm *alarm)
{
    fw_epoch_cluster_poll(&FW_CONTAINER_OF(alarm, struct fw_server_cluster, epochs_alarm)->epochs);
}

static int64_t share_now(struct fw_share *share)
{
    (void)share;
    return fw_clock_now_ns();
}

static void share_arm(struct fw_share *share, int64_t when_ns)
{
    fw_alarm_set(&cluster_of_share(share)->policy_alarm, when_ns);
}

static struct fw_server_cluster *cluster_of_gang(struct fw_gang *gang)
{
    return FW_CONTAINER_OF(gang, struct fw_server_cluster, gang);
}

static int64_t gang_now(struct fw_gang *gang)
{
    (void)gang;
    return fw_clock_now_ns();
}

static void gang_arm(struct fw_gang *gang, int64_t when_ns)
{
    fw_alarm_set(&cluster_of_gang(gang)->policy_alarm, when_ns);
}

static void counter_follow(struct fw_counter *counter, uint64_t value)
{
    fw_counter_add(counter, value - fw_counter_get(counter));
}

static void metrics_follow(struct fw_server_cluster *cluster)
{
    struct fw_metrics_epoch *to = &cluster->metrics;
    const struct fw_epoch_figures *figures = &cluster->epochs.figures;
    bool is_in = cluster->share.is_in || cluster->gang.is_in;
    uint32_t participants =
        cluster->share.is_in ? cluster->share.participants : cluster->gang.participants;
    fw_gauge_set(&to->in_step, is_in);
    fw_gauge_set(&to->epoch, cluster->epochs.coordinator.number);
    fw_gauge_set(&to->peers, cluster->epochs.coordinator.view.count);
    fw_gauge_set(&to->participants, is_in ? participants : 0);
    counter_follow(&to->started, figures->started);
    counter_follow(&to->missed, figures->missed);
    counter_follow(&to->evictions, figures->evicted);
    counter_follow(&to->stale, figures->stale);
    counter_follow(&to->cut_off, figures->cut_off);
    counter_follow(&to->timed_out, figures->timed_out);
    counter_follow(&to->refused, figures->refused);
    fw_gauge_set(&to->ragged_ns, figures->ragged_ns);
    fw_gauge_set(&to->ragged_max_ns, figures->ragged_max_ns);
    fw_gauge_set(&to->last_error, -(int64_t)figures->last_error);
}

static void policy_rang(struct fw_alarm *alarm)
{
    struct fw_server_cluster *cluster =
        FW_CONTAINER_OF(alarm, struct fw_server_cluster, policy_alarm);
    fw_share_poll(&cluster->share); /* Harmless if it does not run. */
    fw_gang_poll(&cluster->gang);
    metrics_follow(cluster);
}

static void share_changed(struct fw_share *share, bool is_in, int error)
{
    struct fw_server_cluster *cluster = cluster_of_share(share);
    metrics_follow(cluster);
    if (is_in) {
        FW_LOG(server, NOTICE, "in step with the cluster: epoch %" PRId64 ", %" PRIu32 " nodes",
               share->number, share->participants);
        return;
    }
    FW_LOG(server, WARNING,
           "cut off from the cluster (%s): of tenants with a cluster rate it serves %s",
           strerrordesc_np(-error),
           share->config.keeps_fair ? "nothing for a moment, then their fair part"
                                    : "nothing, until it is back");
}

static void gang_changed(struct fw_gang *gang, bool is_in, int error)
{
    metrics_follow(cluster_of_gang(gang));
    if (is_in) {
        FW_LOG(server, NOTICE, "in step with the cluster: epoch %" PRId64 ", %" PRIu32 " nodes",
               gang->number, gang->participants);
    } else {
        FW_LOG(server, WARNING, "cut off from the cluster (%s): it serves tenants by weight",
               strerrordesc_np(-error));
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Whether epochs and the time-out go together: the policy knows. */
static int times_check(const struct fw_server_cluster_config *config)
{
    struct fw_share *share = aligned_alloc(alignof(struct fw_share), sizeof *share);
    const struct fw_share_config times = {.epoch_ns = config->epoch_ns,
                                          .timeout_ns = config->timeout_ns,
                                          .nodes = (uint32_t)config->nodes};
    int rc = share != NULL ? fw_share_init(share, &times) : -ENOMEM;
    if (rc == 0) {
        fw_share_fini(share);
    }
    free(share);
    return rc;
}

int fw_server_cluster_check(const struct fw_server_cluster_config *config, struct fw_reason *reason)
{
    if (config->fallback == FW_CLUSTER_FAIR && config->nodes == 0) {
        return fw_reason_set(reason, -EINVAL,
                             "a cluster whose nodes serve their fair part when they are cut off "
                             "needs their number: give --cluster-nodes, or --cluster-fallback "
                             "none");
    }
    int rc = times_check(config);
    return rc == -EINVAL ? fw_reason_set(reason, rc,
                                         "--cluster-timeout must be at least one epoch long and at "
                                         "most 30: see --cluster-epoch")
           : rc != 0     ? fw_reason_errno(reason, rc, "cannot join the cluster")
                         : 0;
}

static int cluster_make_policies(struct fw_server_cluster *cluster, struct fw_reason *reason)
{
    const struct fw_server_cluster_config *config = &cluster->server->config.cluster;
    struct fw_share_config share = {.tenants = cluster->server->tenants,
                                    .epoch_ns = config->epoch_ns,
                                    .timeout_ns = config->timeout_ns,
                                    .nodes = (uint32_t)config->nodes,
                                    .keeps_fair = config->fallback == FW_CLUSTER_FAIR,
                                    .now = share_now,
                                    .arm = share_arm,
                                    .changed = share_changed};
    struct fw_gang_config gang = {.tenants = cluster->server->tenants,
                                  .epoch_ns = config->epoch_ns,
                                  .timeout_ns = config->timeout_ns,
                                  .now = gang_now,
                                  .arm = gang_arm,
                                  .changed = gang_changed};
    int rc = fw_random_seed(&share.member);
    if (rc == 0) {
        rc = fw_share_init(&cluster->share, &share);
    }
    if (rc == 0) {
        rc = fw_gang_init(&cluster->gang, &gang);
        if (rc != 0) {
            fw_share_fini(&cluster->share);
        }
    }
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot join the cluster");
}

static void cluster_closed(struct fw_server_cluster *cluster)
{
    cluster->server->open_count--;
}

static void epochs_alarm_closed(struct fw_alarm *alarm)
{
    cluster_closed(FW_CONTAINER_OF(alarm, struct fw_server_cluster, epochs_alarm));
}

static void policy_alarm_closed(struct fw_alarm *alarm)
{
    cluster_closed(FW_CONTAINER_OF(alarm, struct fw_server_cluster, policy_alarm));
}

static void group_closed(void *argument)
{
    cluster_closed(argument);
}

static int cluster_make_group(struct fw_server_cluster *cluster, struct fw_reason *reason)
{
    struct fw_server *server = cluster->server;
    const struct fw_server_cluster_config *config = &server->config.cluster;
    struct fw_corosync_options options = {.group_name = config->name,
                                          .node_count = (uint32_t)config->nodes,
                                          .timeout_ns = config->timeout_ns};
    struct fw_epoch_cluster_config epochs = {.epoch = {.timeout_ns = config->timeout_ns,
                                                       .combine = fw_share_combine,
                                                       .swab = fw_share_swab},
                                             .bound_ns = config->bound_ns,
                                             .now = epochs_now,
                                             .arm = epochs_arm};
    int rc = fw_alarm_open(&cluster->epochs_alarm, server->reactor, epochs_rang, reason);
    if (rc != 0) {
        return rc;
    }
    cluster->has_epochs_alarm = true;
    rc = fw_alarm_open(&cluster->policy_alarm, server->reactor, policy_rang, reason);
    if (rc != 0) {
        return rc;
    }
    cluster->has_policy_alarm = true;
    rc = fw_corosync_open(&cluster->group, server->reactor, &options, reason);
    if (rc != 0) {
        return rc;
    }
    cluster->has_group = true;
    rc = fw_epoch_cluster_init(&cluster->epochs, cluster->group, &epochs);
    cluster->has_epochs = rc == 0;
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot join the cluster");
}

int fw_server_cluster_open(struct fw_server *server, struct fw_reason *reason)
{
    int rc = server->config.cluster.name != NULL
                 ? fw_server_cluster_check(&server->config.cluster, reason)
                 : 0;
    if (rc != 0 || server->config.cluster.name == NULL) {
        return rc;
    }
    struct fw_server_cluster *cluster =
        aligned_alloc(alignof(struct fw_server_cluster), sizeof *cluster);
    if (cluster == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot join the cluster");
    }
    memset(cluster, 0, sizeof *cluster);
    cluster->server = server;
    rc = cluster_make_policies(cluster, reason);
    if (rc != 0) {
        free(cluster);
        return rc;
    }
    rc = fw_metrics_register(&server->metrics, &fw_epoch_metric_table, &cluster->metrics.source);
    if (rc != 0) {
        fw_gang_fini(&cluster->gang);
        fw_share_fini(&cluster->share);
        free(cluster);
        return fw_reason_errno(reason, rc, "cannot join the cluster");
    }
    server->cluster = cluster; /* From here on close() and fini() clean up. */
    rc = cluster_make_group(cluster, reason);
    if (rc == 0) {
        fw_server_cluster_look(server);
    }
    return rc;
}

void fw_server_cluster_look(struct fw_server *server)
{
    struct fw_server_cluster *cluster = server->cluster;
    if (cluster == NULL || cluster->is_closed) {
        return;
    }
    fw_mutex_lock(&server->lock);
    enum fw_sched_policy_number policy = server->policy;
    fw_mutex_unlock(&server->lock);
    if (policy != FW_SCHED_SHARE) { /* What has to stop stops first: they have one handler. */
        fw_share_stop(&cluster->share);
    }
    if (policy != FW_SCHED_GANG) {
        fw_gang_stop(&cluster->gang);
    }
    if (policy == FW_SCHED_SHARE && !cluster->share.is_running) {
        FW_LOG(
            server, NOTICE,
            "divides cluster rates with the nodes of %s; until it is in step with them it serves "
            "nothing of these tenants",
            server->config.cluster.name);
        fw_share_start(&cluster->share, &cluster->epochs.epoch);
    } else if (policy == FW_SCHED_GANG && !cluster->gang.is_running) {
        fw_gang_start(&cluster->gang, &cluster->epochs.epoch);
    }
    metrics_follow(cluster);
}

void fw_server_cluster_close(struct fw_server *server)
{
    struct fw_server_cluster *cluster = server->cluster;
    if (cluster == NULL || cluster->is_closed) {
        return;
    }
    cluster->is_closed = true;
    fw_share_stop(&cluster->share);
    fw_gang_stop(&cluster->gang);
    if (cluster->has_epochs) {
        fw_epoch_cluster_fini(&cluster->epochs);
    }
    if (cluster->has_group) {
        server->open_count++;
        fw_corosync_close(cluster->group, group_closed, cluster);
    }
    if (cluster->has_epochs_alarm) {
        server->open_count++;
        fw_alarm_close(&cluster->epochs_alarm, epochs_alarm_closed);
    }
    if (cluster->has_policy_alarm) {
        server->open_count++;
        fw_alarm_close(&cluster->policy_alarm, policy_alarm_closed);
    }
}

void fw_server_cluster_fini(struct fw_server *server)
{
    struct fw_server_cluster *cluster = server->cluster;
    if (cluster != NULL) {
        fw_metrics_unregister(&server->metrics, &cluster->metrics.source);
        fw_gang_fini(&cluster->gang);
        fw_share_fini(&cluster->share);
        free(cluster);
    }
}

/* ---- stats ----------------------------------------------------------------------------------- */

/* Where the rows go. */
struct rows {
    fw_stat_emit emit;
    void *context;
};

static void row_number(const struct rows *to, const char *name, int64_t number)
{
    char value[VALUE_SIZE];
    (void)snprintf(value, sizeof value, "%" PRId64, number);
    to->emit(to->context, name, value);
}

static void row_tenant(const struct rows *to, const char *tenant, const char *figure,
                       uint64_t number)
{
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s:%s", tenant, figure);
    row_number(to, name, (int64_t)number);
}

static void rows_epochs(const struct rows *to, const struct fw_metrics_epoch *from)
{
    int error = (int)fw_gauge_get(&from->last_error);
    to->emit(to->context, "in_step", fw_gauge_get(&from->in_step) != 0 ? "yes" : "no");
    row_number(to, "epoch", fw_gauge_get(&from->epoch));
    row_number(to, "peers", fw_gauge_get(&from->peers));
    row_number(to, "participants", fw_gauge_get(&from->participants));
    row_number(to, "started", (int64_t)fw_counter_get(&from->started));
    row_number(to, "missed", (int64_t)fw_counter_get(&from->missed));
    row_number(to, "evictions", (int64_t)fw_counter_get(&from->evictions));
    row_number(to, "stale", (int64_t)fw_counter_get(&from->stale));
    row_number(to, "cut_off", (int64_t)fw_counter_get(&from->cut_off));
    row_number(to, "timed_out", (int64_t)fw_counter_get(&from->timed_out));
    row_number(to, "refused", (int64_t)fw_counter_get(&from->refused));
    row_number(to, "ragged_us", fw_gauge_get(&from->ragged_ns) / 1000);
    row_number(to, "ragged_max_us", fw_gauge_get(&from->ragged_max_ns) / 1000);
    to->emit(to->context, "last_error", error != 0 ? strerrorname_np(error) : "-");
}

void fw_server_stats_epochs(struct fw_server *server, fw_stat_emit emit, void *context)
{
    const struct rows to = {.emit = emit, .context = context};
    const struct fw_server_cluster_config *config = &server->config.cluster;
    emit(context, "cluster", config->name != NULL ? config->name : "-");
    if (server->cluster == NULL) {
        return;
    }
    emit(context, "fallback", fallbacks[config->fallback]);
    row_number(&to, "nodes", (int64_t)config->nodes);
    rows_epochs(&to, &server->cluster->metrics);
    int64_t now_ns = fw_clock_now_ns();
    uint32_t count = fw_tenants_count(server->tenants);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_tenant_config due;
        fw_tenants_read(server->tenants, i, &due, NULL);
        if (due.cluster_rate != 0) {
            uint64_t part = fw_tenants_part(server->tenants, i, now_ns);
            row_tenant(&to, due.name, "cluster_rate", due.cluster_rate);
            row_tenant(&to, due.name, "part", part);
            row_tenant(&to, due.name, "part_percent", part * PERCENT / due.cluster_rate);
        }
    }
}
