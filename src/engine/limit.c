/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a wait may last before the fom is given up.
 *
 * The limit follows the longest waits that the same type has had on this core lately, and how long
 * ready foms wait for their tick: sixteen times the sum of the two, but neither below the
 * domain's minimum nor above its maximum. The longest is remembered and forgotten slowly, by a
 * thousandth of the difference per wait. A mean was rejected: where one wait in a hundred goes to a
 * disk, it is the hundredth that must not be failed. Sixteen, because latency may rise tenfold from
 * one wait to the next (a path lost, a cache emptied) without anything being wrong.
 *
 * A wait that reaches its limit is measured again by the limit of that moment, so those that began
 * before latency rose gain from what later ones have shown.
 */
#include <fairway/engine.h>

#include "engine/core.h"

enum { PATIENCE = 16, FORGETTING = 1024 };

int64_t fw_limit_ns(const struct fw_core *core, const struct fw_fom *fom)
{
    const struct fw_domain_config *config = &core->domain->config;
    int64_t lately = core->estimates[fom->type_number].peak_ns + core->queue_delay_ns;
    if (lately > config->wait_max_ns / PATIENCE) {
        return config->wait_max_ns;
    }
    int64_t limit = lately * PATIENCE;
    return limit > config->wait_min_ns ? limit : config->wait_min_ns;
}

void fw_limit_observe(struct fw_core *core, const struct fw_fom *fom, int64_t waited_ns)
{
    struct fw_wait_estimate *estimate = &core->estimates[fom->type_number];
    if (waited_ns > estimate->peak_ns) {
        estimate->peak_ns = waited_ns;
    } else {
        estimate->peak_ns -= (estimate->peak_ns - waited_ns) / FORGETTING;
    }
}
