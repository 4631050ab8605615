/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/epoch.h>

#include <errno.h>

#include "base/assert.h"

/* One participant is all there are, and it has just said that it is ready. */
static void local_next(struct fw_epoch *epoch, int64_t number, void *data, size_t length,
                       fw_epoch_started started, void *argument)
{
    FW_ASSERT(number >= 0 && length <= FW_EPOCH_DATA_MAX);
    if (number != FW_EPOCH_FIRST && number != epoch->number) {
        started(argument, -ESTALE, NULL, 0);
        return;
    }
    FW_ASSERT(epoch->number_max < INT64_MAX);
    epoch->number = ++epoch->number_max;
    started(argument, epoch->number, data, length);
}

static void local_last(struct fw_epoch *epoch, int64_t number)
{
    FW_ASSERT(number == epoch->number);
    epoch->number = 0;
}

static const struct fw_epoch_handler local_handler = {
    .name = "local",
    .next = local_next,
    .last = local_last,
};

void fw_epoch_local_init(struct fw_epoch *epoch, const struct fw_epoch_config *config)
{
    *epoch = (struct fw_epoch){.handler = &local_handler};
    if (config != NULL) {
        epoch->config = *config;
    }
}
