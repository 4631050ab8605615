/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures in JSON, for the page:
 *
 *     {"ready": true,
 *      "groups": {"general": {"curr_items": 3}, "tenants": {"web": {"served": 8}}},
 *      "metrics": {"cache_get_hits": 5, "engine_wait": {"count": 9, "p50": 1, "p99": 2, "max": 3}}}
 *
 * Each row THING:FIGURE of a group becomes a member of THING's object; histograms become what one
 * reads off them. Numbers that a double could not hold, above 2^53, are written all the same.
 */
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "http/http.h"

/* Returns 0, or a negative errno if `out` did not take it. */
FW_MUST_CHECK int fw_status_write(const struct fw_http_shown *shown, FILE *out);
