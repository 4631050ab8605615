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
 * A wait that reaches its limit is measured again by what is known at that moment, so those that
 * began before latency rose gain from what later ones have shown.
 *
 * Only waits that end are measured. So that a rise beyond the sixteenfold does not fail every wait
 * from then on, those that begin after one has failed are given twice its time. Those under way are
 * not: if what all of them wait for is dead, all should know soon.
 */
#include <fairway/engine.h>

#include "engine/core.h"

enum { PATIENCE = 16, FORGETTING = 1024 };

/* The limit if waits have lately taken up to `longest_ns`. */
static int64_t limit_for(const struct fw_core *core, int64_t longest_ns)
{
    const struct fw_domain_config *config = &core->domain->config;
    int64_t lately = longest_ns + core->queue_delay_ns;
    if (lately > config->wait_max_ns / PATIENCE) {
        return config->wait_max_ns;
    }
    int64_t limit = lately * PATIENCE;
    return limit > config->wait_min_ns ? limit : config->wait_min_ns;
}

int64_t fw_limit_ns(const struct fw_core *core, const struct fw_fom *fom)
{
    const struct fw_wait_estimate *estimate = &core->estimates[fom->type_number];
    return limit_for(core, estimate->peak_ns > estimate->missed_ns ? estimate->peak_ns
                                                                   : estimate->missed_ns);
}

int64_t fw_limit_shown_ns(const struct fw_core *core, const struct fw_fom *fom)
{
    return limit_for(core, core->estimates[fom->type_number].peak_ns);
}

static void follow(int64_t *longest_ns, int64_t waited_ns)
{
    if (waited_ns > *longest_ns) {
        *longest_ns = waited_ns;
    } else {
        *longest_ns -= (*longest_ns - waited_ns) / FORGETTING;
    }
}

void fw_limit_observe(struct fw_core *core, const struct fw_fom *fom, int64_t waited_ns)
{
    struct fw_wait_estimate *estimate = &core->estimates[fom->type_number];
    follow(&estimate->peak_ns, waited_ns);
    follow(&estimate->missed_ns, waited_ns);
}

void fw_limit_missed(struct fw_core *core, const struct fw_fom *fom, int64_t waited_ns)
{
    struct fw_wait_estimate *estimate = &core->estimates[fom->type_number];
    int64_t twice = waited_ns / PATIENCE * 2;
    estimate->missed_ns = twice > estimate->missed_ns ? twice : estimate->missed_ns;
}
