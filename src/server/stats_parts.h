/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `stats lanes` and `stats volumes`; any thread. */
#pragma once

#include "cache/cache.h"

struct fw_server;

void fw_server_stats_lanes(struct fw_server *server, fw_stat_emit emit, void *context);
void fw_server_stats_volumes(struct fw_server *server, fw_stat_emit emit, void *context);
