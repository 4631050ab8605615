/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of what opens descriptors: that it closes them again, and that it is content with any.
 * Of a daemon the first ones may be closed, and 0 is a descriptor like others.
 */
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "base/assert.h"

/* The number that the next one will get. The same as before: none was left behind. */
static inline int descriptor_next(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FW_ASSERT(fd >= 0);
    (void)close(fd);
    return fd;
}

/* Closes standard input, so that 0 is the next one. Returns what to give back to restore(). */
static inline int descriptor_0_free(void)
{
    int held = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    FW_ASSERT(held >= 0);
    (void)close(STDIN_FILENO);
    return held;
}

static inline void descriptor_0_restore(int held)
{
    int rc = dup2(held, STDIN_FILENO);
    FW_ASSERT(rc == STDIN_FILENO);
    (void)close(held);
}
