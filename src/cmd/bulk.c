/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bulk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/tool.h"
#include "io/clock.h"
#include "io/file_stream.h"

enum { UNITS_PERCENT = 99, BAR_WIDTH = 30, MIB = 1 << 20 };

#define TICK_NS (100 * (int64_t)FW_NS_PER_MS)

static void on_signal(struct fw_signals *signals, int number, pid_t sender)
{
    (void)number;
    (void)sender;
    struct fw_bulk *bulk = FW_CONTAINER_OF(signals, struct fw_bulk, signals);
    struct fw_reason reason;
    fw_bulk_fail(bulk, fw_reason_set(&reason, -EINTR, "interrupted"), &reason);
}

static void on_closed(struct fw_signals *signals)
{
    FW_CONTAINER_OF(signals, struct fw_bulk, signals)->is_signalled_closed = true;
}

static const struct fw_signal_event events[] = {{.number = SIGTERM, .received = on_signal},
                                                {.number = SIGINT, .received = on_signal}};

/* As many units at a time as there are connections; one worker more, since lane 3 gets one. */
static int bulk_start_jobs(struct fw_bulk *bulk, struct fw_reason *reason)
{
    struct fw_jobs_policy policy;
    struct fw_jobs_reason why = {.text = ""};
    fw_jobs_policy_init(&policy);
    policy.workers = (uint32_t)bulk->config->connections + 1;
    policy.lane_percent[0] = 0;
    policy.lane_percent[1] = 0;
    policy.lane_percent[2] = UNITS_PERCENT;
    policy.lanes_used = 1U << 2 | 1U << 3;
    int rc = fw_jobs_create(&bulk->jobs, &policy, &why);
    if (rc == 0) {
        rc = fw_jobs_start(bulk->jobs, &why);
        if (rc != 0) {
            fw_jobs_destroy(bulk->jobs);
        }
    }
    return rc != 0 ? fw_reason_set(reason, rc, "cannot start threads: %s", why.text) : 0;
}

int fw_bulk_begin(struct fw_bulk *bulk, const struct fw_bulk_config *config, const char *verb,
                  struct fw_reason *reason)
{
    *bulk = (struct fw_bulk){.config = config,
                             .verb = verb,
                             .shows_progress = fw_stderr_is_terminal(),
                             .start_ns = fw_clock_now_ns()};
    if (!config->checks && fw_address_parse(config->server, FW_PEER_PORT, FW_ADDRESS_RESOLVE,
                                            &bulk->address, 1, reason) < 0) {
        return -EINVAL;
    }
    int rc = fw_login_read(&bulk->login, config->login_file, reason);
    if (rc != 0) {
        return rc;
    }
    fw_signals_block(events, FW_ARRAY_LENGTH(events));
    rc = fw_reactor_create(&bulk->reactor, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_signals_open(&bulk->signals, bulk->reactor, events, FW_ARRAY_LENGTH(events), reason);
    if (rc != 0) {
        goto no_signals;
    }
    rc = bulk_start_jobs(bulk, reason);
    if (rc != 0) {
        goto no_jobs;
    }
    fw_mutex_init(&bulk->lock, FW_RANK_BULK);
    fw_list_init(&bulk->idle);
    return 0;

no_jobs:
    fw_signals_close(&bulk->signals, on_closed);
    while (!bulk->is_signalled_closed) {
        (void)fw_reactor_poll(bulk->reactor, -1);
    }
no_signals:
    fw_reactor_destroy(bulk->reactor);
    return rc;
}

void fw_bulk_end(struct fw_bulk *bulk)
{
    int rc = fw_jobs_stop(bulk->jobs, FW_JOBS_DRAIN, NULL);
    FW_ASSERT(rc == 0);
    fw_jobs_destroy(bulk->jobs);
    for (struct fw_list_link *link = fw_list_pop_front(&bulk->idle); link != NULL;
         link = fw_list_pop_front(&bulk->idle)) {
        struct fw_peer *peer = FW_CONTAINER_OF(link, struct fw_peer, link);
        fw_peer_destroy(peer);
    }
    fw_mutex_fini(&bulk->lock);
    fw_signals_close(&bulk->signals, on_closed);
    while (!bulk->is_signalled_closed) {
        (void)fw_reactor_poll(bulk->reactor, -1);
    }
    fw_reactor_destroy(bulk->reactor);
}

void fw_bulk_fail(struct fw_bulk *bulk, int rc, const struct fw_reason *reason)
{
    fw_mutex_lock(&bulk->lock);
    if (bulk->rc == 0) {
        bulk->rc = rc;
        bulk->reason = *reason;
    }
    fw_mutex_unlock(&bulk->lock);
    atomic_store(&bulk->must_end, true);
}

void fw_bulk_refused(struct fw_bulk *bulk, const char *line, size_t length)
{
    fw_mutex_lock(&bulk->lock);
    if (bulk->refusal.text[0] == '\0') {
        (void)fw_reason_set(&bulk->refusal, -EPROTO, "%.*s", (int)length, line);
    }
    fw_mutex_unlock(&bulk->lock);
    fw_bulk_count(&bulk->failed, 1);
}

/* ---- connections --------------------------------------------------------------------------- */

struct fw_peer *fw_bulk_peer_take(struct fw_bulk *bulk)
{
    struct fw_reason reason;
    fw_mutex_lock(&bulk->lock);
    struct fw_list_link *link = fw_list_pop_front(&bulk->idle);
    fw_mutex_unlock(&bulk->lock);
    if (link != NULL) {
        return FW_CONTAINER_OF(link, struct fw_peer, link);
    }
    struct fw_peer *peer = malloc(sizeof *peer);
    int rc = peer != NULL ? fw_peer_open(peer, &bulk->address, bulk->config->patience_ns,
                                         &bulk->must_end, &reason)
                          : fw_reason_errno(&reason, -ENOMEM, "no memory for a connection");
    if (rc != 0) {
        fw_bulk_fail(bulk, rc, &reason);
        free(peer);
        return NULL;
    }
    rc = fw_login_send(&bulk->login, peer, &reason);
    if (rc != 0) {
        fw_bulk_fail(bulk, rc, &reason);
        fw_peer_destroy(peer);
        return NULL;
    }
    return peer;
}

void fw_bulk_peer_give(struct fw_bulk *bulk, struct fw_peer *peer, bool is_sound)
{
    if (!is_sound || fw_peer_input_length(peer) > 0) {
        fw_peer_destroy(peer);
        return;
    }
    fw_mutex_lock(&bulk->lock);
    fw_list_push_back(&bulk->idle, &peer->link);
    fw_mutex_unlock(&bulk->lock);
}

/* ---- progress ------------------------------------------------------------------------------ */

static uint64_t look(const _Atomic uint64_t *count)
{
    /* Relaxed: figures. */
    return atomic_load_explicit(count, memory_order_relaxed);
}

static double seconds_since(int64_t start_ns)
{
    int64_t passed_ns = fw_clock_now_ns() - start_ns;
    return (double)(passed_ns > 0 ? passed_ns : 1) / (double)FW_NS_PER_S;
}

/* [#########              ]  42 %  420000 items, 60.1 MiB, 812345 items/s */
static void progress_show(struct fw_bulk *bulk)
{
    uint64_t items = look(&bulk->items);
    uint64_t total = look(&bulk->total);
    uint64_t done = look(&bulk->done);
    (void)fputc('\r', stderr);
    if (total > 0) {
        char bar[BAR_WIDTH + 1];
        done = done < total ? done : total;
        size_t full = (size_t)((double)done / (double)total * BAR_WIDTH);
        memset(bar, ' ', BAR_WIDTH);
        memset(bar, '#', full);
        bar[BAR_WIDTH] = '\0';
        (void)fprintf(stderr, "[%s] %3.0f %%  ", bar, (double)done / (double)total * 100);
    }
    (void)fprintf(stderr, "%" PRIu64 " items, %.1f MiB, %.0f items/s\033[K", items,
                  (double)look(&bulk->bytes) / MIB, (double)items / seconds_since(bulk->start_ns));
    (void)fflush(stderr);
}

void fw_bulk_tick(struct fw_bulk *bulk)
{
    int64_t now_ns = fw_clock_now_ns();
    if (now_ns - bulk->shown_ns < TICK_NS) {
        return;
    }
    (void)fw_reactor_poll(bulk->reactor, 0);
    bulk->shown_ns = now_ns;
    if (bulk->shows_progress) {
        progress_show(bulk);
    }
}

struct fw_job *fw_bulk_rejoin(struct fw_bulk *bulk)
{
    for (;;) {
        struct fw_job *job;
        enum fw_rejoin rejoin = fw_jobs_rejoin_wait(bulk->jobs, bulk, 0, TICK_NS, &job);
        FW_ASSERT(rejoin != FW_REJOIN_REFUSED);
        fw_bulk_tick(bulk);
        if (rejoin != FW_REJOIN_NONE_READY) {
            return rejoin == FW_REJOIN_RETURNED ? job : NULL;
        }
    }
}

struct fw_job *fw_bulk_rejoin_ready(struct fw_bulk *bulk)
{
    struct fw_job *job;
    return fw_jobs_rejoin(bulk->jobs, bulk, &job) == FW_REJOIN_RETURNED ? job : NULL;
}

/* ---- the end ------------------------------------------------------------------------------- */

static void report_json(const struct fw_bulk *bulk, const char *file, double seconds)
{
    struct fw_json json;
    fw_tool_json_begin(&json);
    fw_json_object_begin(&json);
    fw_json_key(&json, "file");
    fw_json_string(&json, file);
    fw_json_key(&json, "items");
    fw_json_unsigned(&json, look(&bulk->items));
    fw_json_key(&json, "bytes");
    fw_json_unsigned(&json, look(&bulk->bytes));
    fw_json_key(&json, "expired");
    fw_json_unsigned(&json, look(&bulk->expired));
    fw_json_key(&json, "present");
    fw_json_unsigned(&json, look(&bulk->present));
    fw_json_key(&json, "failed");
    fw_json_unsigned(&json, look(&bulk->failed));
    fw_json_key(&json, "seconds");
    fw_json_double(&json, seconds);
    fw_json_object_end(&json);
    fw_tool_json_end(&json);
}

static void report_text(const struct fw_bulk *bulk, const char *file, double seconds, FILE *out)
{
    uint64_t items = look(&bulk->items);
    (void)fprintf(out, "%s: %s %" PRIu64 " items, %.1f MiB, in %.2f s, %.0f items/s\n", file,
                  bulk->verb, items, (double)look(&bulk->bytes) / MIB, seconds,
                  (double)items / seconds);
    if (look(&bulk->expired) > 0) {
        (void)fprintf(out, "%" PRIu64 " items had expired\n", look(&bulk->expired));
    }
    if (look(&bulk->present) > 0) {
        (void)fprintf(out, "%" PRIu64 " items were there already\n", look(&bulk->present));
    }
}

enum fw_cmd_status fw_bulk_report(struct fw_bulk *bulk, const char *file, bool is_stdout_taken)
{
    double seconds = seconds_since(bulk->start_ns);
    if (bulk->shows_progress && bulk->shown_ns != 0) {
        (void)fputs("\r\033[K", stderr);
    }
    if (bulk->rc != 0) {
        return fw_cmd_fail(bulk->rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED,
                           "%s: %s (after %" PRIu64 " items)", file, bulk->reason.text,
                           look(&bulk->items));
    }
    if (bulk->config->json && !is_stdout_taken) {
        report_json(bulk, file, seconds);
    } else {
        report_text(bulk, file, seconds, is_stdout_taken ? stderr : stdout);
    }
    if (look(&bulk->failed) > 0) {
        return fw_cmd_fail(FW_CMD_FAILED,
                           "%s: %" PRIu64 " items could not be %s; the server answered: %s", file,
                           look(&bulk->failed), bulk->verb, bulk->refusal.text);
    }
    return FW_CMD_OK;
}
