/* SPDX-License-Identifier: Apache-2.0 */
#include "server/crowd.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "server/connection.h"

int fw_crowd_init(struct fw_crowd *crowd, uint32_t limit)
{
    *crowd = (struct fw_crowd){.limit = limit};
    crowd->places = calloc(limit, sizeof(void *));
    crowd->free = calloc(limit, sizeof *crowd->free);
    if (crowd->places == NULL || crowd->free == NULL) {
        free(crowd->places);
        free(crowd->free);
        return -ENOMEM;
    }
    fw_mutex_init(&crowd->lock, FW_RANK_CROWD);
    return 0;
}

void fw_crowd_fini(struct fw_crowd *crowd)
{
    FW_ASSERT(crowd->free_count == crowd->used_count);
    fw_mutex_fini(&crowd->lock);
    free(crowd->places);
    free(crowd->free);
}

void fw_crowd_add(struct fw_crowd *crowd, struct fw_connection *connection)
{
    fw_mutex_lock(&crowd->lock);
    uint32_t place = crowd->free_count > 0 ? crowd->free[--crowd->free_count] : crowd->used_count++;
    FW_ASSERT(place < crowd->limit && crowd->places[place] == NULL);
    crowd->places[place] = connection;
    connection->place = place;
    fw_mutex_unlock(&crowd->lock);
}

void fw_crowd_remove(struct fw_crowd *crowd, struct fw_connection *connection)
{
    fw_mutex_lock(&crowd->lock);
    uint32_t place = connection->place;
    FW_ASSERT(crowd->places[place] == connection);
    crowd->places[place] = NULL;
    crowd->free[crowd->free_count++] = place;
    fw_mutex_unlock(&crowd->lock);
}

bool fw_crowd_step(struct fw_crowd *crowd, uint64_t *cursor,
                   void (*visit)(struct fw_connection *connection, void *context), void *context)
{
    uint32_t visited = 0;
    uint64_t end = *cursor + FW_CROWD_STEP_PLACES;
    fw_mutex_lock(&crowd->lock);
    end = end < crowd->used_count ? end : crowd->used_count;
    for (; *cursor < end && visited < FW_CROWD_STEP; (*cursor)++) {
        if (crowd->places[*cursor] != NULL) {
            visit(crowd->places[*cursor], context);
            visited++;
        }
    }
    bool has_more = *cursor < crowd->used_count;
    fw_mutex_unlock(&crowd->lock);
    return has_more;
}

void fw_crowd_visit(struct fw_crowd *crowd,
                    void (*visit)(struct fw_connection *connection, void *context), void *context)
{
    uint64_t cursor = 0;
    while (fw_crowd_step(crowd, &cursor, visit, context)) {
    }
}
