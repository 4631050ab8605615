/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for reactor_uring.c in builds without liburing.
 */
#include <errno.h>

#include "io/reactor_backend.h"

static int absent_create(struct fw_reactor **reactor, struct fw_reason *reason)
{
    (void)reactor;
    return fw_reason_set(
        reason, -ENOSYS,
        "cannot make a reactor: " FW_REASON_ABSENT("io_uring", "io_uring") "; or choose epoll");
}

const struct fw_reactor_backend fw_reactor_uring = {.create = absent_create};
