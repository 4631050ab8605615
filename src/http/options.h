/* SPDX-License-Identifier: Apache-2.0 */
/* The section [http] of the configuration. */
#pragma once

#include <stddef.h>

#include "base/option.h"

struct fw_http_config {
    const char *listen; /* An address, or NULL: no HTTP. */
};

extern const struct fw_option fw_http_options[];
extern const size_t fw_http_options_count;
