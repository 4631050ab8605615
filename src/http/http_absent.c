/* SPDX-License-Identifier: Apache-2.0 */
/* In place of http.c where there is no libmicrohttpd. */
#include <errno.h>

#include "base/assert.h"
#include "http/http.h"

int fw_http_open(struct fw_http **http, const char *address, const struct fw_http_shown *shown,
                 struct fw_reason *reason)
{
    (void)http;
    (void)shown;
    return fw_reason_set(reason, -ENOSYS,
                         "cannot serve HTTP at %.100s: " FW_REASON_ABSENT("libmicrohttpd", "http"),
                         address);
}

const struct fw_address *fw_http_address(const struct fw_http *http)
{
    (void)http;
    FW_ASSERT(false); /* open() has failed. */
    return NULL;
}

void fw_http_close(struct fw_http *http)
{
    FW_ASSERT(http == NULL);
}
