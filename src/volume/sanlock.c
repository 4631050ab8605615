/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/sanlock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sanlock.h>
#include <sanlock_resource.h>
#include <sanlock_rv.h>

#include "io/library.h"

enum { RESOURCE_MAX = 2048 };

/* Which only few need; see io/library.h. */
static struct fw_library client = {.name = "libsanlock_client.so.1"};

FW_LIBRARY_CALL(&client, int, sanlock_register, (void), (), -ENOSYS)
FW_LIBRARY_CALL(&client, int, sanlock_acquire,
                (int socket, int pid, uint32_t flags, int count, struct sanlk_resource *resources[],
                 struct sanlk_options *options),
                (socket, pid, flags, count, resources, options), -ENOSYS)
FW_LIBRARY_CALL(&client, int, sanlock_release,
                (int socket, int pid, uint32_t flags, int count,
                 struct sanlk_resource *resources[]),
                (socket, pid, flags, count, resources), -ENOSYS)
FW_LIBRARY_CALL(&client, int, sanlock_str_to_res, (char *text, struct sanlk_resource **resource),
                (text, resource), -ENOSYS)

static bool is_taken(int rc)
{
    return rc == SANLK_ACQUIRE_IDLIVE || rc == SANLK_ACQUIRE_OWNED ||
           rc == SANLK_ACQUIRE_OWNED_RETRY || rc == SANLK_ACQUIRE_OTHER || rc == -EEXIST ||
           rc == -EAGAIN || rc == -EBUSY;
}

static int acquire(const char *name, struct sanlk_resource *resource, int *held,
                   struct fw_reason *reason)
{
    int socket = sanlock_register();
    if (socket < 0) {
        return fw_reason_errno(reason, socket, "sanlock does not run on this host");
    }
    int rc = sanlock_acquire(socket, -1, 0, 1, &resource, NULL);
    if (rc == 0) {
        *held = socket;
        return 0;
    }
    if (is_taken(rc)) {
        return fw_reason_set(reason, -EBUSY, "another manager holds sanlock's %.120s", name);
    }
    return fw_reason_set(reason, -EIO,
                         "sanlock does not give %.120s (%d); has the lockspace been joined?", name,
                         rc);
}

int fw_volume_sanlock_take(const char *name, int *held, struct fw_reason *reason)
{
    struct sanlk_resource *resource = NULL;
    char text[RESOURCE_MAX];
    if (strlen(name) >= sizeof text) {
        return fw_reason_set(reason, -ENAMETOOLONG, "a resource of sanlock's has a shorter name");
    }
    memcpy(text, name, strlen(name) + 1); /* The parser writes to it. */
    int rc = sanlock_str_to_res(text, &resource);
    if (rc != 0) {
        return rc == -ENOSYS ? fw_reason_set(reason, rc, "libsanlock_client is not installed")
                             : fw_reason_set(reason, -EINVAL,
                                             "'%.120s' is no LOCKSPACE:NAME:PATH:OFFSET", name);
    }
    rc = acquire(name, resource, held, reason);
    free(resource);
    return rc;
}

void fw_volume_sanlock_drop(int held)
{
    (void)sanlock_release(held, -1, SANLK_REL_ALL, 0, NULL);
}
