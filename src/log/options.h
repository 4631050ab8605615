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

enum fw_log_file_format { FW_LOG_FORMAT_TEXT, FW_LOG_FORMAT_JSON };

struct fw_log_config {
    enum fw_log_level level;
    struct fw_option_list module_level; /* MODULE=LEVEL */
    enum fw_log_level client_level;     /* As far as clients may raise the others. */
    const char *file;                   /* NULL or empty: stderr. */
    enum fw_log_file_format format;
    uint64_t rotate_size; /* 0: never. */
    uint64_t rotate_keep;
    enum fw_log_policy policy;
    enum fw_log_level waiting_level;
    uint64_t ring_size;
    uint64_t rings;
    const char *map_directory; /* NULL or empty: plain memory. */
};

extern const struct fw_option fw_log_options[];
extern const size_t fw_log_options_count;

/* Whether both of the following would take it, but for files. 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_log_check(const struct fw_log_config *config, struct fw_reason *reason);

/*
 * Sets all but the rings: levels, file, format, rotation, policy. Returns 0, -EINVAL if there is no
 * such module or level, or what opening the file said, with the reason. Then everything is as it
 * was.
 */
FW_MUST_CHECK int fw_log_configure(const struct fw_log_config *config, struct fw_reason *reason);

/* fw_log_start() as the configuration says, with a reason. */
FW_MUST_CHECK int fw_log_start_configured(const struct fw_log_config *config,
                                          struct fw_reason *reason);
