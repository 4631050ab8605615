/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the log share besides the rings (ring.h) and the writer (writer.h).
 */
#pragma once

#include <stddef.h>

#include <fairway/log.h>

#include "base/base.h"
#include "base/nearest.h"
#include "base/reason.h"

/* The names of the levels, NULL at the end. */
extern const char *const fw_log_level_names[];
enum { FW_LOG_LEVELS = FW_LOG_TRACE + 1 };

/*
 * The module of that name, or NULL; then `nearest` may know what was meant. Modules stay for as
 * long as the program runs, so the pointer does too.
 */
struct fw_log_module *fw_log_module_find(const char *name, size_t length,
                                         struct fw_nearest *nearest);

/* fw_log_set_file() and fw_log_start() with a reason. */
FW_MUST_CHECK int fw_log_open(const char *path, struct fw_reason *reason);
FW_MUST_CHECK int fw_log_begin(const struct fw_log_setup *setup, struct fw_reason *reason);
