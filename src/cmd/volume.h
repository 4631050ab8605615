/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `fairway volume` share: its options, what a group looks like now, and the two
 * actions that run until they are told to end (volume_run.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/cmd.h"
#include "volume/store.h"

#define FW_CMD_VOLUME_MAPPER "/dev/mapper/"

struct fw_cmd_volume {
    uint64_t size;
    uint64_t extent_size;
    uint64_t hosts;
    uint64_t ring_size;
    uint64_t extents;
    uint64_t pool_min;
    uint64_t pool_max;
    int64_t quiet_ns;
    int64_t interval_ns;
    int64_t wait_ns;
    int64_t hold_ns;
    bool replace;
    bool force;
    bool json;
    bool commands;
    const char *nbd;
    const char *dm;
    const char *sanlock;
    const char *backup;
    const char *host;
    const char *plugin;
    bool manager_only;
    bool fenced;
    int64_t full_ns;
    uint64_t low;

    const char *path;
    const char *name; /* Of the volume or host; NULL: none was given. */
};

struct fw_cmd_volume_view {
    struct fw_volume_metadata metadata; /* To be ended by its user. */
    struct fw_volume_geometry geometry;
};

/* volume.c. What is true now; or says what is wrong. */
enum fw_cmd_status fw_cmd_volume_look(const struct fw_cmd_volume *config,
                                      struct fw_cmd_volume_view *view);

enum fw_cmd_status fw_cmd_volume_manager(const struct fw_cmd_volume *config);
enum fw_cmd_status fw_cmd_volume_agent(const struct fw_cmd_volume *config);

/*
 * volume_run.c. Calls `step` again and again, until SIGTERM or SIGINT came, or it returns what is
 * not 0. Before the first thread is made: prepare, so that no signal is missed.
 */
void fw_cmd_volume_run_prepare(void);
int fw_cmd_volume_run(int64_t interval_ns, int (*step)(void *what, struct fw_ring_reason *reason),
                      void *what, struct fw_ring_reason *reason);

/* volume_attach.c. The path of detach is the socket's, or that of device-mapper's device. */
enum fw_cmd_status fw_cmd_volume_attach(const struct fw_cmd_volume *config);
enum fw_cmd_status fw_cmd_volume_detach(const struct fw_cmd_volume *config);

/* Lets an nbdkit serve on the socket of the options, if none does. */
enum fw_cmd_status fw_cmd_volume_serve(const struct fw_cmd_volume *config);

/* The process that serves on a socket, by a number that no other has (io/mark.h); 0: none. */
uint64_t fw_cmd_volume_server(const char *socket);

/*
 * Ends the process that made the mark of this name, by force if it does not by itself in time. 0;
 * FW_CMD_VOLUME_KILLED: by force; -ENOENT: there is no mark; -ESRCH: it has ended already; or what
 * the system said.
 */
enum { FW_CMD_VOLUME_KILLED = 1 };
FW_MUST_CHECK int fw_cmd_volume_end(const char *path, int64_t patience_ns);

/* volume_dm.c. On success attach goes on as the process that keeps the table up to date. */
enum fw_cmd_status fw_cmd_volume_dm_attach(const struct fw_cmd_volume *config);
enum fw_cmd_status fw_cmd_volume_dm_detach(const struct fw_cmd_volume *config);
