/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "volume/local.h"

enum { ROOM_FIRST = 64 };

static int pool_reserve(struct fw_volume_pool *pool)
{
    if (pool->count < pool->room) {
        return 0;
    }
    if (pool->first > 0) { /* Used up to there. */
        memmove(pool->runs, pool->runs + pool->first,
                (pool->count - pool->first) * sizeof *pool->runs);
        pool->count -= pool->first;
        pool->first = 0;
        return 0;
    }
    uint32_t room = pool->room == 0 ? ROOM_FIRST : 2 * pool->room;
    struct fw_volume_run *runs = realloc(pool->runs, room * sizeof *runs);
    if (runs == NULL) {
        return -ENOMEM;
    }
    pool->runs = runs;
    pool->room = room;
    return 0;
}

int fw_volume_pool_add(struct fw_volume_pool *pool, const struct fw_volume_run *run)
{
    int rc = pool_reserve(pool);
    if (rc == 0) {
        pool->runs[pool->count] = *run;
        pool->runs[pool->count].logical = 0;
        pool->count++;
        pool->extents += run->count;
    }
    return rc;
}

struct fw_volume_run fw_volume_pool_take(struct fw_volume_pool *pool, uint64_t count)
{
    FW_ASSERT(pool->extents > 0 && count > 0);
    struct fw_volume_run *first = &pool->runs[pool->first];
    struct fw_volume_run taken = *first;
    taken.count = count < first->count ? count : first->count;
    first->extent += taken.count;
    first->count -= taken.count;
    pool->extents -= taken.count;
    if (first->count == 0) {
        pool->first++;
    }
    return taken;
}

void fw_volume_pool_clear(struct fw_volume_pool *pool)
{
    pool->first = 0;
    pool->count = 0;
    pool->extents = 0;
}

void fw_volume_pool_fini(struct fw_volume_pool *pool)
{
    free(pool->runs);
    *pool = (struct fw_volume_pool){.runs = NULL};
}
