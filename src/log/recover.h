/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes lines of what a dead process left in its rings (arena.h). All of it is input from outside:
 * whatever is in the file, the answer is lines or a reason, never more.
 *
 * A ring that is damaged gives its lines up to the damage, and a line that says so. Lines come by
 * their time, as the writer would have ordered them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "log/line.h"

/* What was found. */
struct fw_log_recovered {
    uint32_t process;
    uint64_t lines;
    uint32_t damaged; /* Rings. */
};

/* Where lines go: `print` is called with each, made in `layout`, newline included. */
struct fw_log_printer {
    enum fw_log_layout layout;
    void (*print)(void *context, const char *line, size_t length);
    void *context;
};

/*
 * Prints the lines that are in the `size` bytes at `contents`, which are not changed. Returns 0,
 * -EBADMSG if it is no such file, or -ENOMEM.
 */
FW_MUST_CHECK int fw_log_recover(const void *contents, size_t size,
                                 const struct fw_log_printer *printer,
                                 struct fw_log_recovered *recovered, struct fw_reason *reason);
