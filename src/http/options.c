/* SPDX-License-Identifier: Apache-2.0 */
#include "http/options.h"

#include "base/base.h"

const struct fw_option fw_http_options[] = {
    FW_OPTION_STRING(struct fw_http_config, listen, .section = "http", .name = "listen",
                     .value_name = "ADDRESS",
                     .help = "where to serve metrics and a page for browsers over HTTP, as in "
                             "127.0.0.1:11280; nowhere if not given"),
};
const size_t fw_http_options_count = FW_ARRAY_LENGTH(fw_http_options);
