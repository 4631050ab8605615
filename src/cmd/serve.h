/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `fairway serve` can be told, for those who speak about it without serving: `fairway config`,
 * and the manual.
 */
#pragma once

#include <stddef.h>

#include "base/base.h"
#include "base/option.h"
#include "base/reason.h"
#include "http/options.h"
#include "log/options.h"
#include "sched/tenant_options.h"
#include "server/options.h"

struct serve;

/* All tables of `serve`, each with a struct of its own to fill. */
struct fw_serve_settings {
    struct fw_options options;
    const struct fw_option_table *tables;
    size_t table_count;
    const struct fw_option_table *ignored; /* Of memcached's that mean nothing here; the last. */
    struct fw_server_config *server;
    const struct fw_log_config *log;
    const struct fw_http_config *http;
    const struct fw_tenant_sections *tenants;
    struct serve *serve; /* What owns these. */
};

/* Fills all with defaults. Returns 0 or -ENOMEM with the reason. */
FW_MUST_CHECK int fw_serve_settings_init(struct fw_serve_settings *settings,
                                         struct fw_reason *reason);
void fw_serve_settings_fini(struct fw_serve_settings *settings);
