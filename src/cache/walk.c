/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/walk.h"

#include "base/assert.h"

void fw_walk_init(struct fw_walk *walk, uint32_t part, uint32_t parts)
{
    FW_ASSERT(fw_walk_has_parts(parts) && part < parts);
    uint64_t width =
        UINT64_MAX / parts; /* All ones, less one bit for each doubling of the parts. */
    *walk = (struct fw_walk){.cursor = part * (width + (parts > 1 ? 1 : 0))};
    walk->last = walk->cursor + width;
}

/* A cursor of 0 is the end of all. */
static void walk_move(struct fw_walk *walk, uint64_t cursor)
{
    walk->cursor = cursor;
    walk->is_done = cursor == 0 || cursor > walk->last;
}

struct taking {
    fw_walk_take *take;
    void *context;
    bool is_refused;
};

static void take_any(struct fw_item *item, void *context)
{
    struct taking *taking = context;
    if (!taking->is_refused) {
        taking->is_refused = !taking->take(item, taking->context);
    }
}

bool fw_walk_bucket(struct fw_walk *walk, struct fw_table_local *local, fw_walk_take *take,
                    void *context)
{
    struct taking taking = {.take = take, .context = context};
    uint64_t cursor = walk->cursor;
    FW_ASSERT(!walk->is_done);
    (void)fw_table_visit(local, &cursor, 1, take_any, &taking);
    if (!taking.is_refused) {
        walk_move(walk, cursor);
    }
    return !taking.is_refused;
}

/* Which item is next, and then that one. */
struct finding {
    struct fw_table_local *local;
    uint64_t from;
    uint64_t found; /* The least there is from there on. */
    bool is_found;
    struct taking taking;
};

static void find_next(struct fw_item *item, void *context)
{
    struct finding *finding = context;
    uint64_t at = fw_table_cursor_of(finding->local, item);
    if (at >= finding->from && (!finding->is_found || at < finding->found)) {
        finding->found = at;
        finding->is_found = true;
    }
}

static void take_found(struct fw_item *item, void *context)
{
    struct finding *finding = context;
    if (fw_table_cursor_of(finding->local, item) == finding->found) {
        take_any(item, &finding->taking);
    }
}

enum fw_walk_item fw_walk_item(struct fw_walk *walk, struct fw_table_local *local,
                               fw_walk_take *take, void *context)
{
    struct finding finding = {
        .local = local, .from = walk->cursor, .taking = {.take = take, .context = context}};
    uint64_t cursor = walk->cursor;
    FW_ASSERT(!walk->is_done);
    (void)fw_table_visit(local, &cursor, 1, find_next, &finding);
    if (!finding.is_found) {
        walk_move(walk, cursor);
        return FW_WALK_OVER;
    }
    /* It may have gone meanwhile; then it was not there all the time. */
    uint64_t at = finding.found;
    (void)fw_table_visit(local, &at, 1, take_found, &finding);
    if (finding.taking.is_refused) {
        return FW_WALK_REFUSED;
    }
    walk_move(walk, finding.found + 1);
    return FW_WALK_TAKEN;
}
