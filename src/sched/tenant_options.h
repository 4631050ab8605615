/* SPDX-License-Identifier: Apache-2.0 */
/*
 * [tenant NAME] sections of the configuration file: what each is due, and whose requests are its.
 *
 * The sections are gathered in the order of the file, for the order of rules is theirs; from them
 * come what fw_tenants_configure() wants and the rules (sched/rules.h). [tenant default] is about
 * all that no rule gives to another.
 *
 * Ownership: texts are those of the options that were read. Everything here is used by one thread,
 * which reads options.
 */
#pragma once

#include <stddef.h>

#include <fairway/sched.h>

#include "base/base.h"
#include "base/option.h"
#include "base/reason.h"
#include "sched/rules.h"

enum { FW_TENANT_ACK_MAX = 16, FW_TENANT_CONNECTIONS_MAX = 1000000 };

struct fw_tenant_section {
    struct fw_tenant_config due; /* With the name. */
    bool is_urgent;
    /* For the server: */
    int64_t repl_ack;                /* Slaves that have to confirm its changes; -1: as others. */
    uint64_t connections;            /* So many at most; 0: no limit. */
    uint64_t connections_guaranteed; /* So many places are kept for it. */
    struct fw_option_list match;
};

/* All zero: none yet. */
struct fw_tenant_sections {
    struct fw_tenant_section **sections;
    size_t count;
};

extern const struct fw_option fw_tenant_options[];
extern const size_t fw_tenant_options_count;

/* For struct fw_option_table; the table's config is a struct fw_tenant_sections. */
FW_MUST_CHECK int fw_tenant_section_add(void *sections, const char *name, void **instance,
                                        struct fw_reason *reason);
void fw_tenant_sections_fini(struct fw_tenant_sections *sections);

/* One rule of a section. Returns 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_tenant_section_check(const struct fw_tenant_section *section, size_t index,
                                          struct fw_reason *reason);

/*
 * Tries every rule, before anything is made of them. Returns 0, or -EINVAL with the reason; then
 * *wrong is the section.
 */
FW_MUST_CHECK int fw_tenant_sections_check(const struct fw_tenant_sections *sections,
                                           const struct fw_tenant_section **wrong,
                                           struct fw_reason *reason);

/*
 * Tells `tenants` what each is due, and makes the rules. Returns 0, or a negative errno with the
 * reason. Then nothing has changed, unless memory was short for the rules alone.
 */
FW_MUST_CHECK int fw_tenant_sections_apply(const struct fw_tenant_sections *sections,
                                           struct fw_tenants *tenants, struct fw_rules **rules,
                                           struct fw_reason *reason);
