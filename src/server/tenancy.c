/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tenancy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/text.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "io/address.h"
#include "server/connection.h"
#include "server/state.h"

FW_LOG_MODULE_USE(server);

static const struct fw_tenant_sections no_sections = {.sections = NULL};

/* ---- rulings --------------------------------------------------------------------------------- */

void fw_tenancy_put(struct fw_ruling *ruling)
{
    /* Acquire and release: what the others did with it comes before its end. */
    if (atomic_fetch_sub_explicit(&ruling->user_count, 1, memory_order_acq_rel) > 1) {
        return;
    }
    for (uint32_t i = 0; i < ruling->tenant_count; i++) {
        free(ruling->texts[i]);
    }
    free(ruling->texts);
    free(ruling->slaves);
    fw_rules_destroy(ruling->rules);
    free(ruling);
}

/* The rules of a section in one line; NULL: no memory. */
static char *section_text(const struct fw_tenant_section *section)
{
    size_t size = 1;
    for (size_t i = 0; i < section->match.count; i++) {
        size += strlen(section->match.items[i]) + 2;
    }
    char *memory = malloc(size);
    struct fw_text text;
    if (memory == NULL) {
        return NULL;
    }
    fw_text_init(&text, memory, size);
    for (size_t i = 0; i < section->match.count; i++) {
        fw_text_append_string(&text, i > 0 ? ", " : "");
        fw_text_append_string(&text, section->match.items[i]);
    }
    return memory;
}

static int ruling_set_texts(struct fw_ruling *ruling, const struct fw_tenant_sections *sections,
                            const struct fw_tenants *tenants)
{
    uint32_t count = fw_tenants_count(tenants);
    ruling->texts = calloc(count, sizeof *ruling->texts);
    if (ruling->texts == NULL) {
        return -ENOMEM;
    }
    ruling->tenant_count = count;
    for (size_t i = 0; i < sections->count; i++) {
        int number = fw_tenants_find(tenants, sections->sections[i]->due.name);
        FW_ASSERT(number >= 0 && (uint32_t)number < count);
        ruling->texts[number] = section_text(sections->sections[i]);
        if (ruling->texts[number] == NULL) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int ruling_set_slaves(struct fw_ruling *ruling, const struct fw_tenant_sections *sections,
                             const struct fw_server *server)
{
    const struct fw_repl_config *config = &server->config.repl;
    ruling->slaves = malloc(ruling->tenant_count);
    if (ruling->slaves == NULL) {
        return -ENOMEM;
    }
    memset(ruling->slaves, (int)config->ack, ruling->tenant_count);
    for (size_t i = 0; i < sections->count; i++) {
        const struct fw_tenant_section *section = sections->sections[i];
        int number = fw_tenants_find(server->tenants, section->due.name);
        if (section->repl_ack >= 0) {
            ruling->slaves[number] = (uint8_t)section->repl_ack;
        }
    }
    for (uint32_t i = 0; i < ruling->tenant_count; i++) {
        ruling->has_slaves |= ruling->slaves[i] > 0;
    }
    return 0;
}

int fw_tenancy_check_slaves(const struct fw_tenant_sections *sections,
                            const struct fw_repl_config *config, struct fw_reason *reason)
{
    uint64_t slaves_max = config->is_enabled ? config->slaves : 0;
    if (config->ack > slaves_max) {
        return fw_reason_set(reason, -EINVAL,
                             "--repl-ack %" PRIu64 ": there are at most %" PRIu64 " slaves",
                             config->ack, slaves_max);
    }
    for (size_t i = 0; i < sections->count; i++) {
        const struct fw_tenant_section *section = sections->sections[i];
        if (section->repl_ack > (int64_t)slaves_max) {
            return fw_reason_set(reason, -EINVAL,
                                 "[tenant %s] repl-ack = %" PRId64 ": there are at most %" PRIu64
                                 " slaves",
                                 section->due.name, section->repl_ack, slaves_max);
        }
    }
    return 0;
}

int fw_tenancy_check_connections(const struct fw_tenant_sections *sections, uint64_t limit,
                                 struct fw_reason *reason)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sections->count; i++) {
        const struct fw_tenant_section *section = sections->sections[i];
        uint64_t guaranteed = section->connections_guaranteed;
        sum += guaranteed;
        if (section->connections != 0 && guaranteed > section->connections) {
            return fw_reason_set(reason, -EINVAL,
                                 "[tenant %s] connections-guaranteed = %" PRIu64
                                 " is more than connections = %" PRIu64,
                                 section->due.name, guaranteed, section->connections);
        }
        if (sum > limit) {
            return fw_reason_set(reason, -EINVAL,
                                 "[tenant %s] connections-guaranteed = %" PRIu64
                                 ": with those before it more than --conn-limit %" PRIu64,
                                 section->due.name, guaranteed, limit);
        }
    }
    return 0;
}

/* What each tenant that has a number may have; those without a section share what is left. */
static void quota_tell(struct fw_server *server, const struct fw_tenant_sections *sections)
{
    uint32_t count = fw_tenants_count(server->tenants);
    for (uint32_t i = 0; i < count; i++) {
        fw_quota_set(&server->quota, i, 0, 0);
    }
    for (size_t i = 0; i < sections->count; i++) {
        const struct fw_tenant_section *section = sections->sections[i];
        int number = fw_tenants_find(server->tenants, section->due.name);
        fw_quota_set(&server->quota, (uint32_t)number, (uint32_t)section->connections,
                     (uint32_t)section->connections_guaranteed);
    }
}

/* With one user, the caller. */
static int ruling_create(struct fw_ruling **made, const struct fw_tenant_sections *sections,
                         const struct fw_server *server, struct fw_reason *reason)
{
    struct fw_tenants *tenants = server->tenants;
    int rc = fw_tenancy_check_slaves(sections, &server->config.repl, reason);
    if (rc == 0) {
        rc = fw_tenancy_check_connections(sections, server->config.connections, reason);
    }
    if (rc != 0) {
        return rc;
    }
    struct fw_ruling *ruling = calloc(1, sizeof *ruling);
    if (ruling == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make rules");
    }
    rc = fw_tenant_sections_apply(sections, tenants, &ruling->rules, reason);
    if (rc != 0) {
        free(ruling);
        return rc;
    }
    ruling->is_empty = sections->count == 0;
    atomic_init(&ruling->user_count, 1);
    rc = ruling_set_texts(ruling, sections, tenants);
    if (rc == 0) {
        rc = ruling_set_slaves(ruling, sections, server);
    }
    if (rc != 0) {
        fw_tenancy_put(ruling);
        return fw_reason_errno(reason, rc, "cannot make rules");
    }
    *made = ruling;
    return 0;
}

/* ---- cores ----------------------------------------------------------------------------------- */

struct fw_ruling *fw_tenancy_get(struct fw_server *server, enum fw_sched_policy_number *policy)
{
    fw_mutex_lock(&server->lock);
    struct fw_ruling *ruling = server->ruling;
    /* Relaxed: it has a user already, under the lock. */
    atomic_fetch_add_explicit(&ruling->user_count, 1, memory_order_relaxed);
    *policy = server->policy;
    fw_mutex_unlock(&server->lock);
    return ruling;
}

/* Takes what the server has now. The core's turn, or before it has one. */
static void core_take_ruling(struct fw_server_core *core)
{
    struct fw_ruling *ruling = fw_tenancy_get(core->server, &core->policy);
    struct fw_ruling *old = core->ruling;
    core->ruling = ruling;
    core->cache.gate = fw_rules_look_at_requests(ruling->rules) ? &core->gate : NULL;
    core->is_open = core->policy == FW_SCHED_FIFO && ruling->is_empty;
    if (old != NULL) {
        fw_tenancy_put(old);
    }
}

/* Connections of one core, found in one step. */
struct found {
    const struct fw_server_core *core;
    struct fw_connection *connections[FW_CROWD_STEP];
    uint32_t count;
};

static void found_add(struct fw_connection *connection, void *context)
{
    struct found *found = context;
    if (connection->core == found->core) {
        found->connections[found->count++] = connection;
    }
}

/* On the core's turn, so its connections stay while they are looked at without the lock. */
static void core_classify_again(struct fw_server_core *core)
{
    uint64_t cursor = 0;
    bool has_more = true;
    while (has_more) {
        struct found found = {.core = core};
        has_more = fw_crowd_step(&core->server->crowd, &cursor, found_add, &found);
        for (uint32_t i = 0; i < found.count; i++) {
            fw_connection_classify_again(found.connections[i]);
        }
    }
}

/* On the core's turn: something has changed. */
static void core_change(struct fw_message *message)
{
    struct fw_server_core *core = FW_CONTAINER_OF(message, struct fw_server_core, change);
    enum fw_sched_policy_number before = core->policy;
    /* First: a change that comes now is another message. Pairs with the exchange of who sends. */
    atomic_store(&core->is_change_sent, false);
    core_take_ruling(core);
    if (core->policy != before) {
        int rc = fw_sched_switch(&core->sched, core->policy);
        if (rc != 0) {
            FW_LOG(server, ERROR, "core %u stays with its policy: %s", core->engine->index,
                   strerrordesc_np(-rc));
            core->policy = before;
            core->is_open = false;
        }
    }
    core_classify_again(core);
    fw_sched_poll(&core->sched); /* Who waits for tokens may have more now. */
}

void fw_tenancy_join(struct fw_server_core *core)
{
    core->ruling = NULL;
    core->change.run = core_change;
    atomic_init(&core->is_change_sent, false);
    core_take_ruling(core);
}

void fw_tenancy_leave(struct fw_server_core *core)
{
    fw_tenancy_put(core->ruling);
}

static void cores_tell(struct fw_server *server)
{
    for (uint32_t i = 0; i < server->core_count; i++) {
        struct fw_server_core *core = server->cores[i];
        if (!atomic_exchange(&core->is_change_sent, true)) {
            fw_mail_send_message(core->engine, &core->change);
        }
    }
}

/* ---- the server ------------------------------------------------------------------------------ */

int fw_tenancy_init(struct fw_server *server, struct fw_reason *reason)
{
    const struct fw_tenant_sections *sections =
        server->config.tenants != NULL ? server->config.tenants : &no_sections;
    int rc = fw_tenants_create(&server->tenants);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot make tenants");
    }
    server->policy = server->config.sched.policy;
    rc = ruling_create(&server->ruling, sections, server, reason);
    if (rc != 0) {
        fw_tenants_destroy(server->tenants);
        return rc;
    }
    quota_tell(server, sections);
    fw_tenant_metrics_begin(&server->tenant_metrics, &server->metrics, server->tenants);
    return 0;
}

uint32_t fw_tenancy_of_accepted(const struct fw_server *server, const struct fw_listener *listener,
                                int fd)
{
    const struct fw_rules *rules = server->ruling->rules; /* This thread alone changes it. */
    struct fw_address peer;
    struct fw_rule_scope scope;
    struct fw_rule_facts facts = {.listener = &listener->address};
    if (fw_rules_look_at_peers(rules) && fw_listener_peer(listener, fd, &peer) == 0) {
        facts.peer = &peer;
    }
    fw_rules_scope(rules, &facts, &scope);
    return fw_rules_judge_connection(rules, &scope).tenant;
}

void fw_tenancy_check_listeners(struct fw_server *server)
{
    const struct fw_address *listeners[FW_LISTENERS_MAX];
    for (uint32_t i = 0; i < server->listening_count; i++) {
        listeners[i] = &server->listening[i].listener.address;
    }
    enum fw_sched_policy_number policy;
    struct fw_ruling *ruling = fw_tenancy_get(server, &policy);
    const struct fw_rule *rule;
    for (uint32_t from = 0; (rule = fw_rules_next_lost(ruling->rules, &from, listeners,
                                                       server->listening_count)) != NULL;) {
        char text[FW_ADDRESS_TEXT_SIZE];
        fw_address_format(&rule->listener, text);
        FW_LOG(server, WARNING,
               "a rule of [tenant %s] names the listener %s, and this server has none like it: the "
               "rule will never hold",
               fw_tenants_name(server->tenants, rule->verdict.tenant), text);
    }
    fw_tenancy_put(ruling);
}

void fw_tenancy_fini(struct fw_server *server)
{
    fw_tenant_metrics_end(&server->tenant_metrics);
    fw_tenancy_put(server->ruling);
    fw_tenants_destroy(server->tenants);
}

int fw_tenancy_change(struct fw_server *server, const struct fw_tenant_sections *sections,
                      enum fw_sched_policy_number policy, struct fw_reason *reason)
{
    struct fw_ruling *ruling = NULL;
    sections = sections != NULL ? sections : &no_sections;
    int rc = ruling_create(&ruling, sections, server, reason);
    if (rc != 0) {
        return rc;
    }
    quota_tell(server, sections);
    fw_mutex_lock(&server->lock);
    struct fw_ruling *old = server->ruling;
    server->ruling = ruling;
    server->policy = policy;
    fw_mutex_unlock(&server->lock);
    fw_tenancy_put(old);
    fw_tenancy_check_listeners(server);
    fw_server_cluster_look(server);
    cores_tell(server);
    return 0;
}

void fw_tenancy_open_up(struct fw_server *server)
{
    fw_mutex_lock(&server->lock);
    server->policy = FW_SCHED_FIFO;
    fw_mutex_unlock(&server->lock);
    fw_server_cluster_look(server);
    cores_tell(server);
}
