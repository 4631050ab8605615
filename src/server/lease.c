/* SPDX-License-Identifier: Apache-2.0 */
#include "server/lease.h"

#include <errno.h>

#include "base/thread.h"

const struct fw_option fw_server_lease_options[] = {
    FW_OPTION_DURATION(struct fw_server_lease_config, limit_ns, .section = "lease", .name = "limit",
                       .default_text = "0", .unit = "s", .max = 3600 * (int64_t)FW_NS_PER_S,
                       .help = "as master answer only while a lease runs, which 'fairway ha-agent' "
                               "renews through --admin-socket, each time for so long at the most; "
                               "0: no lease is needed"),
};
const size_t fw_server_lease_options_count = FW_ARRAY_LENGTH(fw_server_lease_options);

int fw_lease_renew(struct fw_lease *lease, int64_t until_ns)
{
    int64_t now_ns = fw_clock_boot_ns();
    if (!fw_lease_is_needed(lease)) {
        return -ENOTSUP;
    }
    if (until_ns <= now_ns) {
        return -ESTALE;
    }
    if (until_ns - now_ns > lease->limit_ns) {
        return -ERANGE;
    }
    int64_t before_ns = atomic_load(&lease->until_ns);
    FW_YIELD_POINT("lease: about to renew");
    while (before_ns < until_ns &&
           !atomic_compare_exchange_weak(&lease->until_ns, &before_ns, until_ns)) {
    }
    return 0;
}

void fw_lease_give_up(struct fw_lease *lease)
{
    atomic_store(&lease->until_ns, 0);
}

int64_t fw_lease_left_ns(const struct fw_lease *lease)
{
    int64_t left_ns = atomic_load(&lease->until_ns) - fw_clock_boot_ns();
    return left_ns > 0 ? left_ns : 0;
}
