/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the page in page/, which the build puts into the program. */
#pragma once

#include <stddef.h>

struct fw_http_page {
    const char *path; /* NULL: the end. */
    const char *type;
    const unsigned char *bytes;
    size_t length;
};

extern const struct fw_http_page fw_http_pages[];
