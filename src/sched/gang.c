/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/gang.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sched/dues.h"
#include "sched/policy.h"
#include "sched/tenants.h"

enum { LOOKS = 8 }; /* How often in an epoch it is looked whether the chosen one has had enough. */

/* ---- data ---------------------------------------------------------------------------------- */

static int by_id(const void *left, const void *right)
{
    const struct fw_share_record *a = left;
    const struct fw_share_record *b = right;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void ids_look(struct fw_gang *gang)
{
    uint32_t count = fw_tenants_count(gang->config.tenants);
    for (; gang->id_count < count; gang->id_count++) {
        const char *name = fw_tenants_name(gang->config.tenants, gang->id_count);
        gang->ids[gang->id_count] = fw_hash(name, strlen(name), 0);
    }
}

/* Keeps the lowest ids, as who combines does. */
static void data_add(struct fw_share_data *data, uint64_t id, uint32_t age)
{
    struct fw_share_record record = {.id = id, .claim = age};
    if (data->count < FW_SHARE_RECORDS) {
        data->records[data->count++] = record;
        return;
    }
    uint32_t highest = 0;
    for (uint32_t i = 1; i < FW_SHARE_RECORDS; i++) {
        highest = data->records[i].id > data->records[highest].id ? i : highest;
    }
    if (id < data->records[highest].id) {
        data->records[highest] = record;
    }
}

static bool is_waiting(const struct fw_gang *gang, uint32_t number)
{
    struct fw_tenant_use use;
    fw_tenants_use(gang->config.tenants, number, &use);
    return use.waiting > 0;
}

static void data_make(struct fw_gang *gang)
{
    struct fw_share_data *data = &gang->data;
    memset(data, 0, sizeof *data);
    data->terms = FW_SHARE_GANG;
    data->participants = 1;
    ids_look(gang);
    for (uint32_t i = 0; i < gang->id_count; i++) {
        if (is_waiting(gang, i)) {
            gang->ages[i]++;
            data_add(data, gang->ids[i], gang->ages[i]);
        } else {
            gang->ages[i] = 0;
        }
    }
    qsort(data->records, data->count, sizeof data->records[0], by_id);
}

/* ---- epochs -------------------------------------------------------------------------------- */

static void choose(struct fw_gang *gang, const struct fw_share_data *data)
{
    const struct fw_share_record *oldest = NULL;
    gang->chosen = 0;
    if (data->terms != FW_SHARE_GANG || data->count > FW_SHARE_RECORDS ||
        (data->count == FW_SHARE_RECORDS && gang->number % 2 == 0)) {
        return;
    }
    for (uint32_t i = 0; i < data->count; i++) {
        const struct fw_share_record *record = &data->records[i];
        oldest = oldest == NULL || record->claim > oldest->claim ? record : oldest;
    }
    for (uint32_t i = 0; oldest != NULL && i < gang->id_count; i++) {
        if (gang->ids[i] == oldest->id) {
            gang->chosen = i + 1;
            gang->ages[i] = 0;
        }
    }
}

/* For the heads; `tenants->chosen` is a number plus one. */
static void choice_tell(struct fw_gang *gang, int64_t until_ns)
{
    struct fw_tenants *tenants = gang->config.tenants;
    /* Relaxed: a head that sees one of the two late looked a moment earlier. */
    atomic_store_explicit(&tenants->chosen, gang->chosen, memory_order_relaxed);
    atomic_store_explicit(&tenants->chosen_until_ns, until_ns, memory_order_relaxed);
}

static void gang_arm(struct fw_gang *gang)
{
    gang->config.arm(gang, gang->is_pending ? INT64_MAX : gang->ask_ns);
}

static void epoch_started(void *argument, int64_t number, void *bytes, size_t length)
{
    struct fw_gang *gang = argument;
    bool was_in = gang->is_in;
    int64_t now_ns = gang->config.now(gang);
    gang->is_pending = false;
    gang->is_in = number > 0;
    gang->number = number > 0 ? number : FW_EPOCH_FIRST;
    gang->chosen = 0;
    gang->started_ns = now_ns;
    gang->ask_ns = now_ns + gang->config.epoch_ns;
    if (number > 0 && length == sizeof gang->data) {
        struct fw_share_data data;
        memcpy(&data, bytes, sizeof data);
        gang->participants = data.participants;
        choose(gang, &data);
        gang->ask_ns = now_ns + gang->config.epoch_ns / (gang->chosen != 0 ? LOOKS : 1);
    }
    choice_tell(gang, now_ns + gang->config.epoch_ns + gang->config.timeout_ns);
    if (!gang->is_asking) {
        gang_arm(gang);
    }
    if (gang->is_in != was_in && gang->config.changed != NULL) {
        gang->config.changed(gang, gang->is_in, gang->is_in ? 0 : (int)number);
    }
}

static void epoch_ask(struct fw_gang *gang)
{
    data_make(gang);
    gang->is_pending = true;
    gang->is_asking = true;
    fw_epoch_next(gang->epoch, gang->number, &gang->data, sizeof gang->data, epoch_started, gang);
    gang->is_asking = false;
}

void fw_gang_poll(struct fw_gang *gang)
{
    int64_t now_ns = gang->config.now(gang);
    if (!gang->is_running) {
        return;
    }
    if (!gang->is_pending && now_ns >= gang->ask_ns) {
        bool is_over = now_ns - gang->started_ns >= gang->config.epoch_ns;
        if (is_over || gang->chosen == 0 || !is_waiting(gang, gang->chosen - 1)) {
            epoch_ask(gang);
        } else {
            gang->ask_ns = now_ns + gang->config.epoch_ns / LOOKS;
        }
    }
    gang_arm(gang);
}

/* ---- life ---------------------------------------------------------------------------------- */

int fw_gang_init(struct fw_gang *gang, const struct fw_gang_config *config)
{
    FW_ASSERT(config->epoch_ns >= LOOKS);
    memset(gang, 0, sizeof *gang);
    gang->config = *config;
    gang->ages = calloc(FW_SCHED_TENANTS_MAX, sizeof *gang->ages);
    gang->ids = calloc(FW_SCHED_TENANTS_MAX, sizeof *gang->ids);
    if (gang->ages == NULL || gang->ids == NULL) {
        free(gang->ages);
        free(gang->ids);
        return -ENOMEM;
    }
    return 0;
}

void fw_gang_fini(struct fw_gang *gang)
{
    FW_ASSERT(!gang->is_running);
    free(gang->ages);
    free(gang->ids);
}

void fw_gang_start(struct fw_gang *gang, struct fw_epoch *epoch)
{
    FW_ASSERT(!gang->is_running);
    gang->epoch = epoch;
    gang->is_running = true;
    gang->is_in = false;
    gang->number = FW_EPOCH_FIRST;
    gang->chosen = 0;
    gang->ask_ns = gang->config.now(gang);
    fw_gang_poll(gang);
}

void fw_gang_stop(struct fw_gang *gang)
{
    if (!gang->is_running) {
        return;
    }
    gang->is_running = false;
    fw_epoch_last(gang->epoch, gang->number);
    gang->is_pending = false;
    gang->is_in = false;
    gang->chosen = 0;
    choice_tell(gang, 0);
    gang->config.arm(gang, INT64_MAX);
}

/* ---- the policy ---------------------------------------------------------------------------- */

static int gang_init(struct fw_sched *sched)
{
    return fw_dues_init(sched, true);
}

static struct fw_sched_request *gang_dequeue(struct fw_sched *sched)
{
    /* Relaxed, both: as choice_tell() says. */
    uint32_t chosen = atomic_load_explicit(&sched->tenants->chosen, memory_order_relaxed);
    if (chosen != 0 && sched->now_ns < atomic_load_explicit(&sched->tenants->chosen_until_ns,
                                                            memory_order_relaxed)) {
        struct fw_sched_request *request = fw_dues_dequeue_of(sched, chosen - 1);
        if (request != NULL) {
            return request;
        }
    }
    return fw_dues_dequeue(sched);
}

const struct fw_sched_policy fw_sched_gang = {
    .name = "gang", .init = gang_init, .dequeue = gang_dequeue, FW_DUES_POLICY_BUT_DEQUEUE};
