/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures in the text format of Prometheus, version 0.0.4.
 *
 * Names follow the customs there, so that dashboards made by others fit: fairway_MODULE_FIELD, then
 * the unit, seconds or bytes, then _total for what only rises. Nanoseconds become seconds. A
 * histogram has a bucket for every fourth power of two; their edges are exact, the sum is within
 * the histogram's error.
 *
 * Things that people name, such as tenants, are labels. A few figures of the whole server that only
 * `stats` has (items, connections) are named in a table.
 */
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "http/http.h"

/* All there is of the server. Returns 0 or -ENOMEM; `out` may have part of it then. */
FW_MUST_CHECK int fw_prometheus_write(const struct fw_http_shown *shown, FILE *out);
