/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `stats tenants`, a bounded number per call; any thread. */
#pragma once

#include "cache/cache.h"

struct fw_server;

void fw_server_stats_tenants(struct fw_server *server, struct fw_stat_walk *walk, fw_stat_emit emit,
                             void *context);
