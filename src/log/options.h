/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of the log, and how to make them take effect. A program that serves lists the table
 * beside its own, and calls fw_log_configure() with the result, once at start and again whenever it
 * has read its configuration anew.
 */
#pragma once

#include <stddef.h>

#include <fairway/log.h>

#include "base/base.h"
#include "base/option.h"
#include "base/reason.h"

struct fw_log_config {
    enum fw_log_level level;
    struct fw_option_list module_level; /* MODULE=LEVEL */
    const char *file;                   /* NULL or empty: stderr. */
};

extern const struct fw_option fw_log_options[];
extern const size_t fw_log_options_count;

/*
 * Sets levels and file. Returns 0, -EINVAL if there is no such module or level, or what opening the
 * file said, with the reason. Then everything is as it was.
 */
FW_MUST_CHECK int fw_log_configure(const struct fw_log_config *config, struct fw_reason *reason);
