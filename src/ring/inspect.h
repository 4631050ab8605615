/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at everything in a ring without attaching or writing: for `fairway ring info` and `dump`,
 * and for whoever has to repair one. Damage is told in words, one line each, and does not end the
 * look: what can be read is shown.
 *
 * In format 2 a message that is damaged is passed over and the next sound one is looked for; format
 * 1 has nothing to tell one by, so there everything behind the damage is lost.
 */
#pragma once

#include "io/disk.h"
#include "ring/format.h"

struct fw_ring_visitor {
    /* Once, before the messages. */
    void (*head)(void *context, const struct fw_ring_geometry *geometry,
                 const struct fw_ring_pointer *producer, const struct fw_ring_pointer *consumer);
    /* Each message between consumer and producer; lent for the call. */
    void (*message)(void *context, uint64_t position, const struct fw_ring_message *message);
    /* What is wrong, without a full stop. */
    void (*damage)(void *context, const char *text);
    void *context;
};

/*
 * Returns how many damages were found; -ENOENT if there is no ring; or what the disk said. Sides
 * that cannot be read are NULL in head(), and there are no messages then.
 */
FW_MUST_CHECK int fw_ring_inspect(struct fw_disk *disk, uint32_t sector_size,
                                  const struct fw_ring_visitor *visitor, struct fw_reason *reason);
