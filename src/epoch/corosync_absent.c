/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for corosync.c in builds without Corosync's libraries.
 */
#include <errno.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "epoch/corosync.h"

FW_LOG_MODULE(epoch); /* So that a configuration may set its level in every build. */

bool fw_corosync_is_built_in(void)
{
    return false;
}

int fw_corosync_open(struct fw_group **group, struct fw_reactor *reactor,
                     const struct fw_corosync_options *options, struct fw_reason *reason)
{
    (void)group;
    (void)reactor;
    return fw_reason_set(reason, -EOPNOTSUPP,
                         "cannot join the group %.100s: " FW_REASON_ABSENT("Corosync", "corosync"),
                         options->group_name);
}

void fw_corosync_close(struct fw_group *group, void (*closed)(void *argument), void *argument)
{
    (void)group;
    (void)closed;
    (void)argument;
    FW_ASSERT(false); /* open() has failed. */
}

void fw_corosync_status(struct fw_group *group, struct fw_corosync_status *status)
{
    (void)group;
    (void)status;
    FW_ASSERT(false); /* open() has failed. */
}
