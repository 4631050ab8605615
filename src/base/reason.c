/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reason.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

int fw_reason_set(struct fw_reason *reason, int error, const char *format, ...)
{
    FW_ASSERT(error < 0);
    if (reason != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(reason->text, sizeof reason->text, format, arguments);
        va_end(arguments);
    }
    return error;
}

int fw_reason_errno(struct fw_reason *reason, int error, const char *format, ...)
{
    FW_ASSERT(error < 0);
    if (reason != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(reason->text, sizeof reason->text, format, arguments);
        va_end(arguments);
        size_t length = strlen(reason->text);
        const char *text = strerrordesc_np(-error); /* Unlike strerror(), safe from any thread. */
        (void)snprintf(reason->text + length, sizeof reason->text - length, ": %s",
                       text != NULL ? text : "unknown error");
    }
    return error;
}
