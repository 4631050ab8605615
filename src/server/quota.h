/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many connections each tenant may have, so that none of them can take all places.
 *
 * A tenant may have a limit, and a number of places that are guaranteed to it. Others cannot take
 * what is guaranteed and not used: beyond its own guarantee a tenant gets a place only while more
 * are free than the unused guarantees of all tenants need.
 *
 * A connection is counted from the moment it is accepted, before anything is read from it, for the
 * tenant that the rules name by listener and address. A login moves it to the tenant of the user;
 * if that has no place left, it is refused then. Keys move nothing: a connection may use keys of
 * many tenants, and belongs to none of them. So whoever has not logged in yet is counted by where
 * it comes from, or as `default`, which may have a limit and a guarantee too.
 *
 * Counted here and not where connections are served, since a client beyond the limit must not use
 * up a place even for a moment: a tenant that connects in bursts would keep others out.
 *
 * A change of limits closes nobody. Who has more than it may gets no more until it has less.
 *
 * Threads: any. The lock is taken when a connection comes, goes or logs in.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/mutex.h"

struct fw_quota_tenant {
    uint32_t count;
    uint32_t limit;      /* 0: none of its own. */
    uint32_t guaranteed; /* At most the limit. */
    uint64_t refused;    /* Connections, since the start. */
};

struct fw_quota {
    struct fw_mutex lock;       /* FW_RANK_QUOTA; guards the rest. */
    struct fw_quota_tenant *of; /* By number, for as many tenants as there may be. */
    uint64_t limit;             /* Of all together. */
    uint64_t count;             /* Of all. */
    uint64_t owed;              /* Guaranteed places that are not used. */
};

FW_MUST_CHECK int fw_quota_init(struct fw_quota *quota, uint64_t limit);
/* Nobody is counted any more. */
void fw_quota_fini(struct fw_quota *quota);

/* What the tenant of that number may have from now on. */
void fw_quota_set(struct fw_quota *quota, uint32_t tenant, uint32_t limit, uint32_t guaranteed);

/* One more connection of that tenant. False: it may have no more, and is counted as refused. */
FW_MUST_CHECK bool fw_quota_take(struct fw_quota *quota, uint32_t tenant);
void fw_quota_put(struct fw_quota *quota, uint32_t tenant);

/* A connection becomes another tenant's, if that may have one more, or in any case. */
FW_MUST_CHECK bool fw_quota_move(struct fw_quota *quota, uint32_t from, uint32_t to,
                                 bool is_forced);

void fw_quota_read(struct fw_quota *quota, uint32_t tenant, struct fw_quota_tenant *read);
