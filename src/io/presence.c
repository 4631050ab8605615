/* SPDX-License-Identifier: Apache-2.0 */
#include "io/presence.h"

#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/assert.h"

enum { EVENTS_SIZE = 4096 };

bool fw_presence_look(const struct fw_presence *presence)
{
    return access(presence->path, F_OK) == 0;
}

/* What the events say does not matter: whoever makes and takes away at once is seen as he is now.
 */
static void presence_ready(struct fw_watch *watch)
{
    struct fw_presence *presence = FW_CONTAINER_OF(watch, struct fw_presence, watch);
    alignas(struct inotify_event) char events[EVENTS_SIZE];
    bool has_any = false;
    while (read(presence->fd, events, sizeof events) > 0) {
        has_any = true;
    }
    if (has_any) {
        presence->changed(presence, fw_presence_look(presence));
    }
}

static void presence_closed(struct fw_watch *watch)
{
    struct fw_presence *presence = FW_CONTAINER_OF(watch, struct fw_presence, watch);
    (void)close(presence->fd);
    presence->closed(presence);
}

int fw_presence_open(struct fw_presence *presence, struct fw_reactor *reactor, const char *path,
                     struct fw_reason *reason)
{
    char folder[FW_PRESENCE_PATH_MAX];
    if (strlen(path) >= sizeof presence->path) {
        return fw_reason_set(reason, -ENAMETOOLONG, "'%.40s...': the path is too long", path);
    }
    (void)snprintf(presence->path, sizeof presence->path, "%s", path);
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, path, length);
    folder[length] = '\0';
    presence->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (presence->fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot watch files");
    }
    const uint32_t what = IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_MOVE_SELF;
    int rc = 0;
    if (inotify_add_watch(presence->fd, length > 0 ? folder : ".", what) < 0) {
        rc = fw_reason_errno(reason, -errno, "cannot watch the folder of '%s'", path);
    }
    if (rc == 0) {
        rc =
            fw_watch_open(&presence->watch, reactor, presence->fd, presence_ready, presence_closed);
        (void)(rc != 0 ? fw_reason_errno(reason, rc, "cannot watch '%s'", path) : 0);
    }
    if (rc != 0) {
        (void)close(presence->fd);
    }
    return rc;
}

void fw_presence_close(struct fw_presence *presence)
{
    fw_watch_close(&presence->watch);
}
