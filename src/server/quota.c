/* SPDX-License-Identifier: Apache-2.0 */
#include "server/quota.h"

#include <errno.h>
#include <stdlib.h>

#include <fairway/sched.h>

#include "base/assert.h"

int fw_quota_init(struct fw_quota *quota, uint64_t limit)
{
    *quota = (struct fw_quota){.limit = limit};
    quota->of = calloc(FW_SCHED_TENANTS_MAX, sizeof *quota->of);
    if (quota->of == NULL) {
        return -ENOMEM;
    }
    fw_mutex_init(&quota->lock, FW_RANK_QUOTA);
    return 0;
}

void fw_quota_fini(struct fw_quota *quota)
{
    FW_ASSERT(quota->count == 0);
    fw_mutex_fini(&quota->lock);
    free(quota->of);
}

static uint32_t unused(const struct fw_quota_tenant *tenant)
{
    return tenant->guaranteed > tenant->count ? tenant->guaranteed - tenant->count : 0;
}

/* Changes a tenant's count, and with it what is owed to it. */
static void count_add(struct fw_quota *quota, uint32_t number, int change) FW_REQUIRES(quota->lock);

static void count_add(struct fw_quota *quota, uint32_t number, int change)
{
    struct fw_quota_tenant *tenant = &quota->of[number];
    FW_ASSERT(change > 0 || (tenant->count > 0 && quota->count > 0));
    quota->owed -= unused(tenant);
    tenant->count += (uint32_t)change;
    quota->count += (uint64_t)(int64_t)change;
    quota->owed += unused(tenant);
}

void fw_quota_set(struct fw_quota *quota, uint32_t number, uint32_t limit, uint32_t guaranteed)
{
    fw_mutex_lock(&quota->lock);
    struct fw_quota_tenant *tenant = &quota->of[number];
    quota->owed -= unused(tenant);
    tenant->limit = limit;
    tenant->guaranteed = guaranteed;
    quota->owed += unused(tenant);
    fw_mutex_unlock(&quota->lock);
}

/* With its own unused places it need not care for those of others. */
static bool may_take(const struct fw_quota *quota, uint32_t number)
{
    const struct fw_quota_tenant *tenant = &quota->of[number];
    bool is_below = tenant->limit == 0 || tenant->count < tenant->limit;
    return is_below && (unused(tenant) > 0 || quota->count + quota->owed < quota->limit);
}

bool fw_quota_take(struct fw_quota *quota, uint32_t tenant)
{
    return fw_quota_move(quota, FW_SCHED_TENANTS_MAX, tenant, false);
}

void fw_quota_put(struct fw_quota *quota, uint32_t tenant)
{
    fw_mutex_lock(&quota->lock);
    count_add(quota, tenant, -1);
    fw_mutex_unlock(&quota->lock);
}

bool fw_quota_move(struct fw_quota *quota, uint32_t from, uint32_t to, bool is_forced)
{
    bool is_new = from == FW_SCHED_TENANTS_MAX;
    fw_mutex_lock(&quota->lock);
    if (!is_new) {
        count_add(quota, from, -1);
    }
    bool is_taken = is_forced || may_take(quota, to);
    if (is_taken) {
        count_add(quota, to, 1);
    } else {
        quota->of[to].refused++;
    }
    if (!is_taken && !is_new) { /* It is still there, until it is closed. */
        count_add(quota, from, 1);
    }
    fw_mutex_unlock(&quota->lock);
    return is_taken;
}

void fw_quota_read(struct fw_quota *quota, uint32_t tenant, struct fw_quota_tenant *read)
{
    fw_mutex_lock(&quota->lock);
    *read = quota->of[tenant];
    fw_mutex_unlock(&quota->lock);
}
