/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/options.h"

#include <errno.h>
#include <inttypes.h>

#include "engine/core.h"
#include "io/clock.h"

static const char *const balance_names[] = {
    [FW_BALANCE_OFF] = "off",
    [FW_BALANCE_FOMS] = "foms",
    [FW_BALANCE_CORES] = "cores",
    [FW_BALANCE_CORES + 1] = NULL,
};

enum { THREADS_MAX = 4096 };

#define ROW(type, field, option_name, ...)                                                     \
    FW_OPTION_##type(struct fw_engine_config, field, .section = "engine", .name = option_name, \
                     __VA_ARGS__)

const struct fw_option fw_engine_options[] = {
    ROW(UINT, localities, "localities", .default_text = "0", .max = FW_CORES_MAX,
        .help = "sets of cores that requests are bound to; 0: one for each processor that may be "
                "used"),
    ROW(UINT, cores_per_locality, "cores-per-locality", .default_text = "1", .min = 1,
        .max = FW_CORES_MAX, .help = "cores that serve one locality"),
    ROW(BOOL, pin, "pin", .default_text = "no",
        .help = "keep each core's threads to one processor"),
    ROW(UINT, bracket_limit, "bracket-limit", .default_text = "64", .min = 1, .max = THREADS_MAX,
        .unit = "threads", .help = "threads that may be inside calls that block, at a time"),
    ROW(UINT, spare_limit, "spare-limit", .default_text = "2", .min = 1, .max = THREADS_MAX,
        .unit = "threads", .help = "idle threads that a core keeps for the next such call"),
    ROW(DURATION, wait_min_ns, "wait-min", .default_text = "1s", .min = FW_NS_PER_MS,
        .help = "a wait is never found too long below this"),
    ROW(DURATION, wait_max_ns, "wait-max", .default_text = "60s", .min = FW_NS_PER_MS,
        .help = "a wait is always found too long above this; between the two, what is too long "
                "follows load and latency"),
    ROW(DURATION, stall_ns, "stall", .default_text = "1s", .min = FW_NS_PER_MS,
        .help = "report a step, a call that blocks or a place in the run-queue that lasts longer"),
    ROW(ENUM, balance, "balance", .default_text = "off", .names = balance_names,
        .help = "what to move when the load is uneven: nothing, requests, or cores"),
};
const size_t fw_engine_options_count = FW_ARRAY_LENGTH(fw_engine_options);

int fw_engine_configure(const struct fw_engine_config *config, struct fw_domain_config *domain,
                        struct fw_reason *reason)
{
    if (config->localities * config->cores_per_locality > FW_CORES_MAX) {
        return fw_reason_set(reason, -EINVAL,
                             "--engine-localities: %" PRIu64 " of %" PRIu64
                             " cores are too many, at most %d cores are allowed",
                             config->localities, config->cores_per_locality, FW_CORES_MAX);
    }
    if (config->wait_min_ns > config->wait_max_ns) {
        return fw_reason_set(reason, -EINVAL, "--engine-wait-min is longer than --engine-wait-max");
    }
    domain->locality_count = (uint32_t)config->localities;
    domain->cores_per_locality = (uint32_t)config->cores_per_locality;
    domain->is_pinned = config->pin;
    domain->bracket_limit = (uint32_t)config->bracket_limit;
    domain->spare_limit = (uint32_t)config->spare_limit;
    domain->wait_min_ns = config->wait_min_ns;
    domain->wait_max_ns = config->wait_max_ns;
    domain->stall_ns = config->stall_ns;
    domain->balance = config->balance;
    return 0;
}
