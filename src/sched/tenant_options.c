/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/tenant_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ROW(type, field, option_name, ...)                                                        \
    FW_OPTION_##type(struct fw_tenant_section, field, .section = "tenant", .name = (option_name), \
                     __VA_ARGS__)

const struct fw_option fw_tenant_options[] = {
    ROW(LIST, match, "match", .value_name = "RULE", .live = true,
        .help = "whose requests are this tenant's: listener ADDRESS, address RANGE, login NAME, "
                "prefix TEXT, command read|write|admin, or several of these joined by 'and'; "
                "alternatives are separated by commas, and the first rule of the file that holds "
                "decides"),
    ROW(UINT, due.weight, "weight", .default_text = "1", .min = 1, .max = FW_SCHED_WEIGHT_MAX,
        .live = true, .help = "its share beside the others, with the policy wfq"),
    ROW(UINT, due.rate, "rate", .default_text = "0", .max = FW_SCHED_RATE_MAX, .unit = "per second",
        .live = true,
        .help = "cost that it may have per second, with the policies wfq and tbf; 0: no limit"),
    ROW(UINT, due.burst, "burst", .default_text = "0", .max = FW_SCHED_RATE_MAX, .live = true,
        .help = "cost that it may have at once when it was idle; 0: a tenth of the rate"),
    ROW(UINT, due.cluster_rate, "cluster-rate", .default_text = "0", .max = FW_SCHED_RATE_MAX,
        .unit = "per second", .live = true, .help = "the rate of all nodes together; 0: no limit"),
    ROW(DURATION, due.delay_max_ns, "delay-limit", .default_text = "0", .unit = "ms", .live = true,
        .help = "what would wait longer is refused with an error; 0: nothing is"),
    ROW(BOOL, is_urgent, "urgent", .default_text = "no", .live = true,
        .help = "goes before all others: for administration and health checks"),
    ROW(UINT, connections, "connections", .default_text = "0", .max = FW_TENANT_CONNECTIONS_MAX,
        .unit = "connections", .live = true,
        .help = "connections that it may have at the same time; 0: as many as there are"),
    ROW(UINT, connections_guaranteed, "connections-guaranteed", .default_text = "0",
        .max = FW_TENANT_CONNECTIONS_MAX, .unit = "connections", .live = true,
        .help = "connections of --conn-limit that are kept for it, whatever others open"),
    ROW(INT, repl_ack, "repl-ack", .default_text = "-1", .min = -1, .max = FW_TENANT_ACK_MAX,
        .live = true,
        .help = "slaves that have to confirm what it changes before it is answered; -1: as many as "
                "--repl-ack says"),
};
const size_t fw_tenant_options_count = FW_ARRAY_LENGTH(fw_tenant_options);

int fw_tenant_section_add(void *context, const char *name, void **instance,
                          struct fw_reason *reason)
{
    struct fw_tenant_sections *sections = context;
    if (sections->count >= FW_SCHED_TENANTS_MAX - 1) {
        return fw_reason_set(reason, -EINVAL, "too many tenants, at most %d",
                             FW_SCHED_TENANTS_MAX - 1);
    }
    struct fw_tenant_section **grown =
        realloc(sections->sections, (sections->count + 1) * sizeof(void *));
    if (grown == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read [tenant %s]", name);
    }
    sections->sections = grown;
    struct fw_tenant_section *section = calloc(1, sizeof *section);
    if (section == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read [tenant %s]", name);
    }
    section->due.name = name;
    sections->sections[sections->count++] = section;
    *instance = section;
    return 0;
}

void fw_tenant_sections_fini(struct fw_tenant_sections *sections)
{
    for (size_t i = 0; i < sections->count; i++) {
        free(sections->sections[i]);
    }
    free(sections->sections);
    *sections = (struct fw_tenant_sections){.sections = NULL};
}

static int rule_read(const struct fw_tenant_section *section, size_t index, struct fw_rule *rule,
                     struct fw_reason *reason)
{
    struct fw_reason why;
    const char *text = section->match.items[index];
    int rc = fw_rule_parse(rule, text, &why);
    return rc == 0 ? 0
                   : fw_reason_set(reason, rc, "[tenant %s] match = %s: %s", section->due.name,
                                   text, why.text);
}

int fw_tenant_section_check(const struct fw_tenant_section *section, size_t index,
                            struct fw_reason *reason)
{
    struct fw_rule rule = {.conditions = 0};
    return rule_read(section, index, &rule, reason);
}

int fw_tenant_sections_check(const struct fw_tenant_sections *sections,
                             const struct fw_tenant_section **wrong, struct fw_reason *reason)
{
    for (size_t i = 0; i < sections->count; i++) {
        const struct fw_tenant_section *section = sections->sections[i];
        for (size_t j = 0; j < section->match.count; j++) {
            int rc = fw_tenant_section_check(section, j, reason);
            if (rc != 0) {
                *wrong = section;
                return rc;
            }
        }
    }
    return 0;
}

static size_t rule_count(const struct fw_tenant_sections *sections)
{
    size_t count = 0;
    for (size_t i = 0; i < sections->count; i++) {
        count += sections->sections[i]->match.count;
    }
    return count;
}

/* Reads all rules into `list`, for tenants that have their numbers already. */
static int rules_read(const struct fw_tenant_sections *sections, const struct fw_tenants *tenants,
                      struct fw_rule *list, struct fw_rule_verdict *fallback,
                      struct fw_reason *reason)
{
    for (size_t i = 0; i < sections->count; i++) {
        const struct fw_tenant_section *section = sections->sections[i];
        int number = fw_tenants_find(tenants, section->due.name);
        FW_ASSERT(number >= 0);
        struct fw_rule_verdict verdict = {.tenant = (uint32_t)number,
                                          .is_urgent = section->is_urgent};
        if (number == 0) {
            *fallback = verdict;
        }
        for (size_t j = 0; j < section->match.count; j++, list++) {
            int rc = rule_read(section, j, list, reason);
            if (rc != 0) {
                return rc;
            }
            list->verdict = verdict;
        }
    }
    return 0;
}

static int tenants_tell(const struct fw_tenant_sections *sections, struct fw_tenants *tenants,
                        struct fw_reason *reason)
{
    struct fw_tenant_config *configs = calloc(sections->count + 1, sizeof *configs);
    if (configs == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make tenants");
    }
    for (size_t i = 0; i < sections->count; i++) {
        configs[i] = sections->sections[i]->due;
    }
    int rc = fw_tenants_configure(tenants, configs, sections->count);
    free(configs);
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot make %zu tenants", sections->count);
}

int fw_tenant_sections_apply(const struct fw_tenant_sections *sections, struct fw_tenants *tenants,
                             struct fw_rules **rules, struct fw_reason *reason)
{
    const struct fw_tenant_section *wrong;
    struct fw_rule_verdict fallback = {.tenant = 0};
    size_t count = rule_count(sections);
    int rc = fw_tenant_sections_check(sections, &wrong, reason);
    if (rc != 0) {
        return rc;
    }
    if (count > FW_RULES_MAX) {
        return fw_reason_set(reason, -EINVAL, "too many rules, at most %d", FW_RULES_MAX);
    }
    struct fw_rule *list = calloc(count + 1, sizeof *list);
    if (list == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make %zu rules", count);
    }
    rc = tenants_tell(sections, tenants, reason);
    if (rc == 0) {
        rc = rules_read(sections, tenants, list, &fallback, reason);
    }
    if (rc == 0) {
        rc = fw_rules_create(rules, list, count, fallback);
        (void)(rc != 0 ? fw_reason_errno(reason, rc, "cannot make %zu rules", count) : 0);
    }
    free(list);
    return rc;
}
