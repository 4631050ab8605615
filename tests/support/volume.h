/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the allocators share: small groups, and the check that every extent has exactly
 * one owner, from all that is on the disk and in the agents' memory.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "volume/local.h"
#include "volume/remote.h"
#include "volume/store.h"

enum { VOLUME_TEST_HOST = 7, VOLUME_TEST_EXTENT = 4096 };

/* Of a cmocka test: a call that must return 0, and whose reason goes to `why`. */
#define VOLUME_OK(call)                                      \
    do {                                                     \
        struct fw_ring_reason reason_ = {.text = ""};        \
        struct fw_ring_reason *why = &reason_;               \
        int rc_ = (call);                                    \
        if (rc_ != 0) {                                      \
            fail_msg("%s: %d %s", #call, rc_, reason_.text); \
        }                                                    \
    } while (0)

/* Rings of two blocks, so that they run full and go round. */
static const struct fw_volume_layout volume_test_layout = {.extent_size = VOLUME_TEST_EXTENT,
                                                           .hosts_max = 3,
                                                           .volumes_max = 4,
                                                           .ring_size = UINT64_C(7) * 4096,
                                                           .log_size = UINT64_C(7) * 4096,
                                                           .host_number = VOLUME_TEST_HOST};

/* What an agent believes must be true: its pool is its own, and what it maps is where it says. */
static inline const char *volume_test_agent(struct fw_volume_agent *agent,
                                            const struct fw_volume_metadata *truth, char *text,
                                            size_t size)
{
    for (uint32_t r = agent->pool.first; r < agent->pool.count; r++) {
        const struct fw_volume_run *run = &agent->pool.runs[r];
        for (uint64_t i = 0; i < run->count; i++) {
            const struct fw_volume_extent *extent = &truth->extents[run->extent + i];
            if (extent->state != FW_VOLUME_IS_HOSTS || extent->index != agent->host ||
                extent->generation != run->generation) {
                (void)snprintf(text, size,
                               "extent %u of generation %u is in the pool of host %u, and is in "
                               "state %u of %u with generation %u",
                               (unsigned)(run->extent + i), (unsigned)run->generation, agent->host,
                               extent->state, extent->index, (unsigned)extent->generation);
                return text;
            }
        }
    }
    FW_LIST_FOR_EACH (&agent->volumes, struct fw_volume, link, volume) {
        uint32_t index = fw_volume_metadata_find_uuid(truth, &volume->uuid);
        for (uint64_t i = 0; index != FW_VOLUME_NONE && i < volume->size; i++) {
            const struct fw_volume_place *place = &volume->places[i];
            uint32_t at = fw_volume_metadata_at(truth, index, i);
            bool is_right = place->state == FW_VOLUME_BUSY ||
                            (place->state == FW_VOLUME_HOLE && at == FW_VOLUME_NONE) ||
                            (place->state == FW_VOLUME_MAPPED && at == place->extent &&
                             truth->extents[at].generation == place->generation);
            if (!is_right) {
                (void)snprintf(text, size, "%s maps %u to extent %u in state %u, and there is %u",
                               volume->name, (unsigned)i, place->extent, place->state, at);
                return text;
            }
        }
    }
    return NULL;
}

/*
 * Looks at everything. NULL agents are dead. Returns what is wrong, or NULL. No two agents may have
 * one extent: since each one's is compared with the one truth, that follows.
 */
static inline const char *volume_test_check(struct fw_disk *disk,
                                            struct fw_volume_agent *const *agents, size_t count,
                                            char *text, size_t size)
{
    struct fw_volume_store *store;
    struct fw_volume_metadata truth;
    struct fw_reason reason = {.text = ""};
    const char *wrong = NULL;
    int rc = fw_volume_plain_open(&store, disk, &reason);
    if (rc == 0) {
        rc = fw_volume_view(store, FW_VOLUME_ALL, &truth, &reason);
        store->ops->close(store);
    }
    if (rc != 0) {
        (void)snprintf(text, size, "%s", reason.text);
        return text;
    }
    for (size_t i = 0; wrong == NULL && i < count; i++) {
        if (agents[i] != NULL && agents[i]->broken == 0) {
            wrong = volume_test_agent(agents[i], &truth, text, size);
        }
    }
    fw_volume_metadata_fini(&truth);
    return wrong;
}
