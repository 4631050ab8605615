/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "io/clock.h"
#include "sched/dues.h"
#include "sched/policy.h"
#include "sched/tenants.h"

enum {
    VERSION = 1,
    FULL_PER_MILLE = 985,  /* Who uses so much of its grant uses all of it. */
    SPARE_PERCENT = 103,   /* Who does not is left a little more than it uses, */
    TOO_MUCH_PERCENT = 95, /* and keeps what it claims if it uses about that. */
    IDLE_PART = 100,       /* Who uses nothing claims this part of its fair part. */
    BACKLOG_EPOCHS = 2,    /* Who could not serve what waits in so many wants more. */
    LEASE_EPOCHS = 2,      /* How much longer a lease is than the time-out. */
    LEASE_EPOCHS_MAX = FW_SHARE_HISTORY / 2,
};

/* A tenant with a cluster rate. */
struct fw_share_tenant {
    uint64_t id;
    uint32_t number;
    uint64_t rate;  /* Of the cluster, as configured here. */
    uint64_t known; /* The lowest that any node has, as the last epoch told. */
    uint32_t claim;
    uint32_t sent;                    /* The claim that is under way; 0: none is. */
    uint32_t parts[FW_SHARE_HISTORY]; /* As share->started_ns. */
    /* The grant, and what all of them came to. */
    uint64_t granted;
    int64_t granted_ns;
    int64_t granted_until_ns;
    double given;
    /* As share->measured_ns. */
    uint64_t cost[FW_SHARE_WINDOW];
    double given_then[FW_SHARE_WINDOW];
    uint64_t throttled;
    uint32_t quiet; /* Measured so often since it wanted more. */
};

/* ---- data ---------------------------------------------------------------------------------- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Saturates; no sum of what nodes say does. */
static uint32_t sum(uint32_t a, uint32_t b)
{
    return a + b >= a ? a + b : UINT32_MAX;
}

static uint16_t sum_small(uint16_t a, uint16_t b)
{
    return (uint16_t)(a + b <= UINT16_MAX ? a + b : UINT16_MAX);
}

/* What came from elsewhere may be of any length, and say anything. */
static void data_read(struct fw_share_data *data, const void *bytes, size_t length)
{
    memset(data, 0, sizeof *data);
    memcpy(data, bytes, length < sizeof *data ? length : sizeof *data);
    if (length < sizeof *data || data->count > FW_SHARE_RECORDS) {
        data->terms = FW_SHARE_DISAGREED;
        data->count = 0;
    }
}

/*
 * Both lists merged, of which the lowest ids are kept. One that is among the lowest of all was
 * among the lowest of any that were combined before: so its sums are complete, in any order.
 */
static uint16_t records_merge(struct fw_share_record *merged, const struct fw_share_data *a,
                              const struct fw_share_data *b)
{
    bool is_gang = a->terms == FW_SHARE_GANG;
    uint16_t count = 0;
    uint32_t i = 0;
    uint32_t j = 0;
    while (count < FW_SHARE_RECORDS && (i < a->count || j < b->count)) {
        if (j == b->count || (i < a->count && a->records[i].id < b->records[j].id)) {
            merged[count++] = a->records[i++];
        } else if (i == a->count || b->records[j].id < a->records[i].id) {
            merged[count++] = b->records[j++];
        } else {
            merged[count] = a->records[i++];
            uint32_t claim = b->records[j].claim;
            merged[count].claim =
                is_gang ? larger(merged[count].claim, claim) : sum(merged[count].claim, claim);
            merged[count].rate = smaller(merged[count].rate, b->records[j].rate);
            count++;
            j++;
        }
    }
    return count;
}

void fw_share_combine(void *combined, const void *a, size_t a_length, const void *b,
                      size_t b_length)
{
    struct fw_share_data left;
    struct fw_share_data right;
    struct fw_share_data both = {.count = 0};
    data_read(&left, a, a_length);
    data_read(&right, b, b_length);
    both.terms = left.terms == right.terms ? left.terms : FW_SHARE_DISAGREED;
    both.participants = sum_small(left.participants, right.participants);
    both.members = left.members + right.members;
    if (both.terms != FW_SHARE_DISAGREED) {
        both.count = records_merge(both.records, &left, &right);
    }
    size_t length = a_length < b_length ? a_length : b_length;
    memcpy(combined, &both, length < sizeof both ? length : sizeof both);
}

void fw_share_swab(void *bytes, size_t length)
{
    struct fw_share_data data;
    memset(&data, 0, sizeof data);
    size_t known = length < sizeof data ? length : sizeof data;
    memcpy(&data, bytes, known);
    data.terms = __builtin_bswap32(data.terms);
    data.count = __builtin_bswap16(data.count);
    data.participants = __builtin_bswap16(data.participants);
    data.members = __builtin_bswap64(data.members);
    for (uint32_t i = 0; i < FW_SHARE_RECORDS; i++) {
        struct fw_share_record *record = &data.records[i];
        record->id = __builtin_bswap64(record->id);
        record->claim = __builtin_bswap32(record->claim);
        record->rate = __builtin_bswap32(record->rate);
    }
    memcpy(bytes, &data, known);
}

/* ---- tenants ------------------------------------------------------------------------------- */

static int by_id(const void *left, const void *right)
{
    const struct fw_share_tenant *a = *(struct fw_share_tenant *const *)left;
    const struct fw_share_tenant *b = *(struct fw_share_tenant *const *)right;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* NULL: no memory; its rate is then not divided but held at nothing. */
static struct fw_share_tenant *tenant_get(struct fw_share *share, uint32_t number)
{
    struct fw_share_tenant *tenant = share->tenants[number];
    if (tenant == NULL) {
        tenant = calloc(1, sizeof *tenant);
        share->tenants[number] = tenant;
        if (tenant != NULL) {
            const char *name = fw_tenants_name(share->config.tenants, number);
            tenant->id = fw_hash(name, strlen(name), 0);
            tenant->number = number;
        }
    }
    return tenant;
}

/* Who has a cluster rate, if that has changed. */
static void tenants_look(struct fw_share *share)
{
    uint64_t round = fw_tenants_round(share->config.tenants);
    if (share->rated_count > 0 && round == share->round) {
        return;
    }
    share->round = round;
    share->rated_count = 0;
    uint32_t count = fw_tenants_count(share->config.tenants);
    for (uint32_t i = 0; i < count; i++) {
        struct fw_tenant_config due;
        fw_tenants_read(share->config.tenants, i, &due, NULL);
        struct fw_share_tenant *tenant =
            due.cluster_rate != 0 ? tenant_get(share, i) : share->tenants[i];
        if (tenant == NULL) {
            continue;
        }
        if (due.cluster_rate == 0) { /* Later it begins anew. */
            free(tenant);
            share->tenants[i] = NULL;
            continue;
        }
        tenant->known = due.cluster_rate != tenant->rate ? due.cluster_rate : tenant->known;
        tenant->rate = due.cluster_rate;
        share->rated[share->rated_count++] = tenant;
    }
    qsort(share->rated, share->rated_count, sizeof(void *), by_id);
}

static uint32_t tenant_fallback(const struct fw_share *share, const struct fw_share_tenant *tenant)
{
    const struct fw_share_config *config = &share->config;
    uint64_t rate = tenant->known < tenant->rate ? tenant->known : tenant->rate;
    return config->keeps_fair && config->nodes > 0 ? (uint32_t)(rate / config->nodes) : 0;
}

/* ---- grants -------------------------------------------------------------------------------- */

/* Adds up what the grant came to, until now or until it ended. */
static void given_count(struct fw_share_tenant *tenant, int64_t now_ns)
{
    int64_t until_ns = now_ns < tenant->granted_until_ns ? now_ns : tenant->granted_until_ns;
    if (until_ns > tenant->granted_ns) {
        tenant->given +=
            (double)tenant->granted * (double)(until_ns - tenant->granted_ns) / (double)FW_NS_PER_S;
    }
    tenant->granted_ns = now_ns;
}

/* The smaller of the last two, and of all by which somebody may serve who is not in these. */
static uint32_t part_lowest(const struct fw_share *share, const struct fw_share_tenant *tenant,
                            int64_t now_ns)
{
    uint64_t last = share->started_count - 1;
    uint32_t lowest = tenant->parts[last % FW_SHARE_HISTORY];
    for (uint64_t back = 1; back < FW_SHARE_HISTORY && back <= last; back++) {
        uint64_t place = (last - back) % FW_SHARE_HISTORY;
        if (back > 1 && last - back >= share->circle) {
            continue;
        }
        if (back > 1 && share->started_ns[place] < now_ns - share->lease_ns) {
            break;
        }
        lowest = smaller(lowest, tenant->parts[place]);
    }
    return lowest;
}

static void tenant_grant(struct fw_share *share, struct fw_share_tenant *tenant, int64_t now_ns)
{
    uint64_t part = 0;
    int64_t until_ns = 0;
    if (now_ns < share->lease_until_ns) {
        part = part_lowest(share, tenant, now_ns);
        until_ns = share->lease_until_ns;
    } else if (now_ns >= share->fallback_ns) {
        part = tenant_fallback(share, tenant);
        /* If it is about to come back the others will soon not leave it that any more. */
        until_ns = share->is_pending ? share->asked_ns + share->lease_ns : INT64_MAX;
    }
    given_count(tenant, now_ns);
    tenant->granted = part;
    tenant->granted_until_ns = until_ns;
    fw_tenants_grant(share->config.tenants, tenant->number, part, until_ns, now_ns);
}

static void tenants_grant(struct fw_share *share)
{
    int64_t now_ns = share->config.now(share);
    for (uint32_t i = 0; i < share->rated_count; i++) {
        tenant_grant(share, share->rated[i], now_ns);
    }
    fw_tenants_granted(share->config.tenants);
}

uint64_t fw_share_part(const struct fw_share *share, uint32_t number, int64_t now_ns)
{
    const struct fw_share_tenant *tenant = share->tenants[number];
    return tenant != NULL && now_ns <= tenant->granted_until_ns ? tenant->granted : 0;
}

/* ---- claims -------------------------------------------------------------------------------- */

static uint32_t claim_of(const struct fw_share_tenant *tenant, double units_per_s)
{
    double claim = units_per_s / (double)tenant->rate * (double)FW_SHARE_WHOLE;
    return claim < (double)FW_SHARE_WHOLE ? (uint32_t)claim : FW_SHARE_WHOLE;
}

/* Of what there is: where the missing are left their part, that is less than the whole. */
static uint32_t claim_fair(const struct fw_share *share)
{
    uint32_t nodes = share->participants;
    if (nodes == 0 || (share->config.keeps_fair && nodes < share->config.nodes)) {
        nodes = share->config.nodes;
    }
    return FW_SHARE_WHOLE / (nodes > 0 ? nodes : 1);
}

/* How much it would like, if not what it claims already: 0. `since` is where measuring began. */
static uint32_t claim_more(const struct fw_share *share, const struct fw_share_tenant *tenant,
                           const struct fw_tenant_use *use, uint64_t since)
{
    uint64_t last = (share->started_count + FW_SHARE_HISTORY - 1) % FW_SHARE_HISTORY;
    uint32_t has = claim_of(tenant, tenant->parts[last]);
    uint32_t fair = claim_fair(share);
    double epoch_s = (double)share->config.epoch_ns / (double)FW_NS_PER_S;
    if ((double)use->waiting > (double)tenant->granted * BACKLOG_EPOCHS * epoch_s + 1) {
        return has > fair ? has : fair;
    }
    double used = (double)(use->cost - tenant->cost[since]);
    double given = tenant->given - tenant->given_then[since];
    bool is_held = use->is_held || use->throttled > tenant->throttled;
    if (!is_held || given <= 0 || used * 1000 < given * FULL_PER_MILLE) {
        return 0;
    }
    /* Of few requests it may be chance: twice as much will show. */
    uint32_t twice = smaller(2 * tenant->claim, fair);
    return has > twice ? has : twice;
}

static void tenant_measure(struct fw_share *share, struct fw_share_tenant *tenant, int64_t now_ns)
{
    struct fw_tenant_use use;
    uint64_t since = share->measured_count % FW_SHARE_WINDOW; /* The oldest, which is replaced. */
    fw_tenants_use(share->config.tenants, tenant->number, &use);
    given_count(tenant, now_ns);
    tenant->quiet++;
    uint32_t more = claim_more(share, tenant, &use, since);
    if (more != 0) {
        tenant->claim = more;
        tenant->quiet = 0;
    } else if (tenant->quiet >= FW_SHARE_WINDOW) {
        double seconds = (double)(now_ns - share->measured_ns[since]) / (double)FW_NS_PER_S;
        double used = (double)(use.cost - tenant->cost[since]) / seconds;
        uint32_t wanted = claim_of(tenant, used * SPARE_PERCENT / 100);
        bool is_right = wanted <= tenant->claim &&
                        (uint64_t)wanted * 100 >= (uint64_t)tenant->claim * TOO_MUCH_PERCENT;
        tenant->claim = is_right ? tenant->claim : wanted;
    }
    uint32_t least = claim_fair(share) / IDLE_PART;
    tenant->claim = tenant->claim > least ? tenant->claim : least;
    tenant->throttled = use.throttled;
    tenant->cost[since] = use.cost;
    tenant->given_then[since] = tenant->given;
}

static uint32_t share_terms(const struct fw_share *share)
{
    bool keeps_fair = share->config.keeps_fair && share->config.nodes > 0;
    return (uint32_t)VERSION << 16 | (uint32_t)keeps_fair << 8 |
           (keeps_fair ? share->config.nodes : 0);
}

static void data_make(struct fw_share *share)
{
    struct fw_share_data *data = &share->data;
    int64_t now_ns = share->config.now(share);
    memset(data, 0, sizeof *data);
    data->terms = share_terms(share);
    data->participants = 1;
    data->members = share->config.member;
    tenants_look(share);
    for (uint32_t i = 0; i < share->rated_count; i++) {
        struct fw_share_tenant *tenant = share->rated[i];
        tenant_measure(share, tenant, now_ns);
        tenant->sent = 0;
        if (data->count < FW_SHARE_RECORDS) {
            tenant->sent = tenant->claim;
            data->records[data->count++] = (struct fw_share_record){
                .id = tenant->id, .claim = tenant->claim, .rate = (uint32_t)tenant->rate};
        }
    }
    share->measured_ns[share->measured_count++ % FW_SHARE_WINDOW] = now_ns;
}

/* ---- epochs -------------------------------------------------------------------------------- */

static const struct fw_share_record *record_find(const struct fw_share_data *data, uint64_t id)
{
    for (uint32_t i = 0; i < data->count; i++) {
        if (data->records[i].id == id) {
            return &data->records[i];
        }
    }
    return NULL;
}

/* Of a rate; those who are missing are left their fallback. */
static uint64_t rate_available(const struct fw_share *share, uint64_t rate, uint32_t participants)
{
    const struct fw_share_config *config = &share->config;
    if (!config->keeps_fair || config->nodes <= participants) {
        return rate;
    }
    return rate - rate / config->nodes * (config->nodes - participants);
}

static uint32_t tenant_part(const struct fw_share *share, struct fw_share_tenant *tenant,
                            const struct fw_share_data *data)
{
    bool has_agreed = data->terms == share_terms(share);
    const struct fw_share_record *record = has_agreed ? record_find(data, tenant->id) : NULL;
    uint32_t participants = data->participants > 0 ? data->participants : FW_SHARE_NODES_MAX;
    if (record == NULL) { /* For nobody, then. */
        return (uint32_t)(rate_available(share, tenant->rate, participants) / participants);
    }
    tenant->known = record->rate < tenant->rate ? record->rate : tenant->rate;
    uint64_t available = rate_available(share, tenant->known, participants);
    return record->claim >= tenant->sent && record->claim > 0
               ? (uint32_t)(available * tenant->sent / record->claim)
               : 0;
}

static void epoch_push(struct fw_share *share, int64_t now_ns)
{
    share->started_ns[share->started_count++ % FW_SHARE_HISTORY] = now_ns;
}

static void epoch_take(struct fw_share *share, const struct fw_share_data *data)
{
    int64_t now_ns = share->config.now(share);
    bool is_same = share->is_in && data->members == share->members &&
                   data->participants == share->participants;
    if (!share->is_in) { /* What the others left it until now. */
        for (uint32_t i = 0; i < share->rated_count; i++) {
            struct fw_share_tenant *tenant = share->rated[i];
            tenant->parts[share->started_count % FW_SHARE_HISTORY] = tenant_fallback(share, tenant);
        }
        epoch_push(share, now_ns);
    }
    for (uint32_t i = 0; i < share->rated_count; i++) {
        struct fw_share_tenant *tenant = share->rated[i];
        tenant->parts[share->started_count % FW_SHARE_HISTORY] = tenant_part(share, tenant, data);
    }
    share->circle = is_same ? share->circle : share->started_count;
    epoch_push(share, now_ns);
    share->members = data->members;
    share->participants = data->participants;
    share->lease_until_ns = share->asked_ns + share->lease_ns;
    share->fallback_ns = INT64_MAX;
    share->unanswered = 0;
    share->ask_ns = now_ns + share->config.epoch_ns;
}

/* An answer at once says that nothing was sent: the others do not count on it. */
static void epoch_lose(struct fw_share *share, int error)
{
    int64_t now_ns = share->config.now(share);
    share->number = FW_EPOCH_FIRST;
    share->last_error = error;
    if (share->is_in || !share->is_asking) {
        share->fallback_ns = now_ns + share->config.timeout_ns + share->lease_ns;
    }
    share->ask_ns = now_ns + share->config.epoch_ns;
    /* While it asks it has no fallback: where nobody answers it does not ask all the time. */
    share->unanswered = error == -ETIMEDOUT ? share->unanswered + 1 : 0;
    if (share->unanswered > 1 && share->config.keeps_fair) {
        share->ask_ns = share->fallback_ns + share->config.timeout_ns;
    }
}

static void share_arm(struct fw_share *share)
{
    int64_t when_ns = share->is_pending ? INT64_MAX : share->ask_ns;
    int64_t now_ns = share->config.now(share);
    if (share->fallback_ns > now_ns && share->fallback_ns < when_ns) {
        when_ns = share->fallback_ns;
    }
    share->config.arm(share, when_ns);
}

static void epoch_started(void *argument, int64_t number, void *bytes, size_t length)
{
    struct fw_share *share = argument;
    bool was_in = share->is_in;
    share->is_pending = false;
    if (number > 0) {
        struct fw_share_data data;
        data_read(&data, bytes, length);
        epoch_take(share, &data);
        share->number = number;
        share->is_in = true;
    } else {
        epoch_lose(share, (int)number);
        share->is_in = false;
        share->cut_off_count += was_in;
    }
    tenants_grant(share);
    if (!share->is_asking) {
        share_arm(share);
    }
    if (share->is_in != was_in && share->config.changed != NULL) {
        share->config.changed(share, share->is_in, share->is_in ? 0 : (int)number);
    }
}

static void epoch_ask(struct fw_share *share)
{
    data_make(share);
    share->asked_ns = share->config.now(share);
    share->is_pending = true;
    share->is_asking = true;
    if (!share->is_in) {
        tenants_grant(share); /* What it has as its fallback ends. */
    }
    fw_epoch_next(share->epoch, share->number, &share->data, sizeof share->data, epoch_started,
                  share);
    share->is_asking = false;
}

void fw_share_poll(struct fw_share *share)
{
    int64_t now_ns = share->config.now(share);
    if (!share->is_running) {
        return;
    }
    if (!share->is_pending && now_ns >= share->ask_ns) {
        epoch_ask(share);
    } else if (now_ns >= share->fallback_ns) {
        tenants_grant(share);
    }
    share_arm(share);
}

/* ---- life ---------------------------------------------------------------------------------- */

int fw_share_init(struct fw_share *share, const struct fw_share_config *config)
{
    int64_t lease_ns = config->timeout_ns + LEASE_EPOCHS * config->epoch_ns;
    if (config->epoch_ns <= 0 || config->timeout_ns < config->epoch_ns ||
        lease_ns / config->epoch_ns > LEASE_EPOCHS_MAX || config->nodes > FW_SHARE_NODES_MAX) {
        return -EINVAL;
    }
    memset(share, 0, sizeof *share);
    share->config = *config;
    share->lease_ns = lease_ns;
    share->rated = calloc(FW_SCHED_TENANTS_MAX, sizeof(struct fw_share_tenant *));
    return share->rated != NULL ? 0 : -ENOMEM;
}

void fw_share_fini(struct fw_share *share)
{
    FW_ASSERT(!share->is_running);
    for (uint32_t i = 0; i < FW_SCHED_TENANTS_MAX; i++) {
        free(share->tenants[i]);
    }
    free(share->rated);
}

void fw_share_start(struct fw_share *share, struct fw_epoch *epoch)
{
    FW_ASSERT(!share->is_running);
    int64_t now_ns = share->config.now(share);
    fw_tenants_divide(share->config.tenants, true);
    share->epoch = epoch;
    share->is_running = true;
    share->is_in = false;
    share->number = FW_EPOCH_FIRST;
    share->lease_until_ns = 0;
    share->fallback_ns = now_ns + share->config.timeout_ns + share->lease_ns;
    share->ask_ns = now_ns;
    fw_share_poll(share);
}

void fw_share_stop(struct fw_share *share)
{
    if (!share->is_running) {
        return;
    }
    share->is_running = false;
    fw_epoch_last(share->epoch, share->number);
    share->is_pending = false;
    share->is_in = false;
    share->config.arm(share, INT64_MAX);
    fw_tenants_divide(share->config.tenants, false);
}

/* ---- the policy ---------------------------------------------------------------------------- */

static int share_init(struct fw_sched *sched)
{
    return fw_dues_init(sched, true);
}

/* By weight among those who have tokens; whoever divides cluster rates sees to the tokens. */
const struct fw_sched_policy fw_sched_share = {.name = "share", .init = share_init, FW_DUES_POLICY};
