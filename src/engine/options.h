/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's options, for a program that lists the table beside its own and makes a domain of the
 * result. Defaults are written down here as numbers, so that a listing shows what holds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/engine.h>

#include "base/base.h"
#include "base/option.h"
#include "base/reason.h"

struct fw_engine_config {
    uint64_t localities;
    uint64_t cores_per_locality;
    bool pin;
    uint64_t bracket_limit;
    uint64_t spare_limit;
    int64_t wait_min_ns;
    int64_t wait_max_ns;
    int64_t stall_ns;
    enum fw_balance balance;
};

extern const struct fw_option fw_engine_options[];
extern const size_t fw_engine_options_count;

/*
 * Fills what the options say into `domain`, and leaves its call-backs alone. Returns 0, or -EINVAL
 * with the reason if they contradict each other.
 */
FW_MUST_CHECK int fw_engine_configure(const struct fw_engine_config *config,
                                      struct fw_domain_config *domain, struct fw_reason *reason);
