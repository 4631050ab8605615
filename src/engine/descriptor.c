/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of the user's, watched by the reactor of the core that they were opened on.
 *
 * The reactor may hold events for a watch that was just closed, so its memory is freed when the
 * reactor says that it has let go; a core that ends waits for that.
 */
#include <errno.h>
#include <stdlib.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "engine/core.h"

struct fw_descriptor {
    struct fw_watch watch;
    struct fw_channel *channel;
    struct fw_core *core;
};

static void descriptor_ready(struct fw_watch *watch)
{
    (void)fw_channel_broadcast(FW_CONTAINER_OF(watch, struct fw_descriptor, watch)->channel);
}

static void descriptor_closed(struct fw_watch *watch)
{
    struct fw_descriptor *descriptor = FW_CONTAINER_OF(watch, struct fw_descriptor, watch);
    descriptor->core->descriptor_count--;
    free(descriptor);
}

int fw_descriptor_open(struct fw_descriptor **descriptor, int fd, struct fw_channel *channel)
{
    struct fw_core *core = fw_core_self();
    FW_ASSERT(core != NULL && channel->core == core);
    struct fw_descriptor *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    made->channel = channel;
    made->core = core;
    int rc =
        fw_watch_open_both(&made->watch, core->reactor, fd, descriptor_ready, descriptor_closed);
    if (rc != 0) {
        free(made);
        return rc;
    }
    core->descriptor_count++;
    *descriptor = made;
    return 0;
}

void fw_descriptor_close(struct fw_descriptor *descriptor)
{
    FW_ASSERT(fw_core_self() == descriptor->core);
    fw_watch_close(&descriptor->watch);
}
