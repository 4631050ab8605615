/* SPDX-License-Identifier: Apache-2.0 */
/* In place of http.c where there is no libmicrohttpd. */
#include <errno.h>

#include "base/assert.h"
#include "http/http.h"

int fw_http_open(struct fw_http **http, const char *address, const struct fw_http_shown *shown,
                 struct fw_reason *reason)
{
    (void)http;
    (void)address;
    (void)shown;
    return fw_reason_set(reason, -ENOSYS,
                         "--http: this build has no libmicrohttpd; install libmicrohttpd-dev and "
                         "build again");
}

const struct fw_address *fw_http_address(const struct fw_http *http)
{
    FW_ASSERT(http == NULL && !"open() has failed");
    return NULL;
}

void fw_http_close(struct fw_http *http)
{
    FW_ASSERT(http == NULL);
}
