/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `stats tenants`; any thread. */
#pragma once

#include "cache/cache.h"

struct fw_server;

void fw_server_stats_tenants(struct fw_server *server, fw_stat_emit emit, void *context);
