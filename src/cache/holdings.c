/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/holdings.h"

#include "base/assert.h"

bool fw_holding_grow(struct fw_holding *claim, struct fw_holdings *holdings, uint32_t tenant,
                     size_t bytes)
{
    FW_ASSERT(bytes <= UINT32_MAX - claim->bytes && tenant < FW_SCHED_TENANTS_MAX);
    tenant = claim->bytes > 0 ? claim->tenant : tenant;
    _Atomic uint64_t *own = &holdings->of_tenant[tenant];
    /* Added first, and taken back: of several who ask at the same time none gets too much. */
    uint64_t used = atomic_fetch_add_explicit(&holdings->used, bytes, memory_order_relaxed);
    uint64_t held = atomic_fetch_add_explicit(own, bytes, memory_order_relaxed);
    uint64_t limit = holdings->limit;
    if (limit != 0 && (used > limit || held + bytes > limit - used)) {
        (void)atomic_fetch_sub_explicit(own, bytes, memory_order_relaxed);
        (void)atomic_fetch_sub_explicit(&holdings->used, bytes, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&holdings->refused, 1, memory_order_relaxed);
        return false;
    }
    claim->tenant = tenant;
    claim->bytes += (uint32_t)bytes;
    return true;
}

void fw_holding_end(struct fw_holding *claim, struct fw_holdings *holdings)
{
    uint64_t bytes = claim->bytes;
    (void)atomic_fetch_sub_explicit(&holdings->of_tenant[claim->tenant], bytes,
                                    memory_order_relaxed);
    (void)atomic_fetch_sub_explicit(&holdings->used, bytes, memory_order_relaxed);
    claim->bytes = 0;
}
