/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file is there, and when that changes: for scripts that say something to a process by
 * making a file and taking it away. Its folder is watched by inotify; nothing is polled.
 *
 * The folder has to be there, and has to stay: if it is taken away or renamed the file counts as
 * absent from then on.
 *
 * After open() the caller asks fw_presence_look() once; from then on `changed` comes whenever
 * something happened to the name, also if the file is as present as before. Ownership and threads
 * as with all sources of a reactor: the one who polls it.
 */
#pragma once

#include <stdbool.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/reactor.h"

enum { FW_PRESENCE_PATH_MAX = 1024 };

struct fw_presence {
    struct fw_watch watch;
    int fd;
    char path[FW_PRESENCE_PATH_MAX];
    void (*changed)(struct fw_presence *presence, bool is_there);
    void (*closed)(struct fw_presence *presence);
};

/* `changed` and `closed` are set by the caller. Returns 0 or a negative errno with the reason. */
FW_MUST_CHECK int fw_presence_open(struct fw_presence *presence, struct fw_reactor *reactor,
                                   const char *path, struct fw_reason *reason);
bool fw_presence_look(const struct fw_presence *presence);
void fw_presence_close(struct fw_presence *presence);
