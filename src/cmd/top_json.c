/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `fairway top` shows, for programs: rates are per second, times in nanoseconds.
 */
#include "base/json.h"
#include "cmd/tool.h"
#include "cmd/top.h"

static void member_string(struct fw_json *json, const char *key, const char *value)
{
    fw_json_key(json, key);
    fw_json_string(json, value);
}

static void member_number(struct fw_json *json, const char *key, uint64_t value)
{
    fw_json_key(json, key);
    fw_json_unsigned(json, value);
}

static void member_rate(struct fw_json *json, const char *key, double value)
{
    fw_json_key(json, key);
    fw_json_double(json, value);
}

static void array_begin(struct fw_json *json, const char *key)
{
    fw_json_key(json, key);
    fw_json_array_begin(json);
}

static void summary_write(struct fw_json *json, const struct fw_top_summary *summary)
{
    member_string(json, "version", summary->version);
    member_number(json, "process", summary->process);
    member_number(json, "uptime_s", summary->uptime_s);
    member_number(json, "answer_ns", (uint64_t)summary->answer_ns);
    member_rate(json, "requests", summary->requests);
    fw_json_key(json, "hit_ratio");
    if (summary->hit_ratio >= 0) {
        fw_json_double(json, summary->hit_ratio);
    } else {
        fw_json_null(json);
    }
    member_number(json, "items", summary->items);
    member_number(json, "bytes", summary->bytes);
    member_number(json, "bytes_max", summary->bytes_max);
    member_rate(json, "evictions", summary->evictions);
    member_number(json, "connections", summary->connections);
    member_rate(json, "bytes_in", summary->bytes_in);
    member_rate(json, "bytes_out", summary->bytes_out);
}

static void tenants_write(struct fw_json *json, const struct fw_top_view *view)
{
    array_begin(json, "tenants");
    for (size_t i = 0; i < view->tenant_count; i++) {
        const struct fw_top_tenant *tenant = &view->tenants[i];
        fw_json_object_begin(json);
        member_string(json, "name", tenant->name);
        member_string(json, "state",
                      tenant->state == FW_TOP_SERVED ? "served" : fw_top_states[tenant->state]);
        member_number(json, "weight", tenant->weight);
        member_number(json, "rate", tenant->rate);
        member_number(json, "waiting", tenant->waiting);
        member_rate(json, "served", tenant->served);
        member_rate(json, "share", tenant->share);
        member_rate(json, "delayed", tenant->delayed);
        member_rate(json, "throttled", tenant->throttled);
        member_rate(json, "shed", tenant->shed);
        member_number(json, "wait_p50_ns", tenant->wait_p50_ns);
        member_number(json, "wait_p99_ns", tenant->wait_p99_ns);
        fw_json_object_end(json);
    }
    fw_json_array_end(json);
}

static void cores_write(struct fw_json *json, const struct fw_top_view *view)
{
    array_begin(json, "cores");
    for (size_t i = 0; i < view->core_count; i++) {
        const struct fw_top_core *core = &view->cores[i];
        fw_json_object_begin(json);
        member_string(json, "name", core->name);
        member_number(json, "queue", core->queue);
        member_rate(json, "turns", core->turns);
        member_rate(json, "yields", core->yields);
        member_rate(json, "bytes_in", core->bytes_in);
        member_rate(json, "bytes_out", core->bytes_out);
        fw_json_object_end(json);
    }
    fw_json_array_end(json);
}

static void lanes_write(struct fw_json *json, const struct fw_top_view *view)
{
    array_begin(json, "lanes");
    for (size_t i = 0; i < view->lane_count; i++) {
        const struct fw_top_lane *lane = &view->lanes[i];
        fw_json_object_begin(json);
        member_string(json, "name", lane->name);
        member_number(json, "waiting", lane->waiting);
        member_number(json, "running", lane->running);
        member_rate(json, "started", lane->started);
        member_number(json, "wait_p99_ns", lane->wait_p99_ns);
        member_number(json, "run_p99_ns", lane->run_p99_ns);
        fw_json_object_end(json);
    }
    fw_json_array_end(json);
}

static void slaves_write(struct fw_json *json, const struct fw_top_view *view)
{
    array_begin(json, "slaves");
    for (size_t i = 0; i < view->slave_count; i++) {
        const struct fw_top_slave *slave = &view->slaves[i];
        fw_json_object_begin(json);
        member_string(json, "address", slave->address);
        member_string(json, "state", slave->state);
        member_number(json, "behind_bytes", slave->behind_bytes);
        member_number(json, "behind_ms", slave->behind_ms);
        member_rate(json, "bytes_out", slave->bytes_out);
        fw_json_object_end(json);
    }
    fw_json_array_end(json);
}

/* The figures of a group that belong to no thing, as they are. */
static void group_write(struct fw_json *json, const char *key, const struct fw_figures *figures)
{
    fw_json_key(json, key);
    fw_json_object_begin(json);
    for (size_t i = 0; i < figures->count; i++) {
        const struct fw_figure *row = &figures->rows[i];
        if (row->thing == NULL) {
            fw_json_key(json, row->name);
            fw_tool_json_value(json, row->value);
        }
    }
    fw_json_object_end(json);
}

void fw_top_print_json(const struct fw_top_view *view, const struct fw_top_screen *screen,
                       bool is_compact)
{
    struct fw_json json;
    fw_tool_json_begin_as(&json, is_compact ? FW_JSON_COMPACT : FW_JSON_PRETTY);
    fw_json_object_begin(&json);
    member_string(&json, "server", screen->server);
    if (screen->trouble != NULL) {
        member_string(&json, "trouble", screen->trouble);
    } else {
        member_rate(&json, "interval_s", view->seconds);
        summary_write(&json, &view->summary);
        tenants_write(&json, view);
        cores_write(&json, view);
        lanes_write(&json, view);
        slaves_write(&json, view);
        group_write(&json, "replication", &view->now->groups[FW_TOP_REPLICATION]);
        group_write(&json, "volumes", &view->now->groups[FW_TOP_VOLUMES]);
    }
    fw_json_object_end(&json);
    fw_tool_json_end(&json);
}
