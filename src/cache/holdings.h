/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients make the server hold outside the table: input that is not a whole command yet, and
 * replies that they do not take. One budget bounds it, and each tenant's part is counted.
 *
 * A tenant may hold as much as is left of the budget. So one that is alone gets half of it, two get
 * a third each, and whatever they hold, as much as the largest of them holds is left for others:
 * the tenant that holds most is refused first, and who holds little is not. Nothing has to be taken
 * back, and no share has to be configured. (Routers divide their buffers in this way.)
 *
 * A holding says whose it is and how much, and is kept by who holds the memory: a connection may
 * have become another tenant's when it gives the memory back.
 *
 * Nothing here is touched by a request that comes whole and whose reply is taken. Any thread may
 * call anything.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "base/base.h"

struct fw_holdings {
    uint64_t limit; /* 0: none. Constant. */
    /* Relaxed, all: they order nothing. */
    _Atomic uint64_t used;
    _Atomic uint64_t refused; /* How often. */
    _Atomic uint64_t of_tenant[FW_SCHED_TENANTS_MAX];
};

struct fw_holding {
    uint32_t tenant;
    uint32_t bytes; /* 0: it is nothing. */
};

/* The holding grows by so many bytes, of that tenant if it was nothing before. False: it may not.
 */
FW_MUST_CHECK bool fw_holding_grow(struct fw_holding *claim, struct fw_holdings *holdings,
                                   uint32_t tenant, size_t bytes);

/* Nothing is held any more. */
void fw_holding_end(struct fw_holding *claim, struct fw_holdings *holdings);
