/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `fairway volume` share: its options, what a group looks like now, and the two
 * actions that run until they are told to end (volume_run.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cmd/cmd.h"
#include "volume/store.h"

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
    bool replace;
    bool json;
    bool commands;
    const char *nbd;
    const char *backup;
    const char *host;
    const char *plugin;
    bool manager_only;

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

/* volume_attach.c. The path of detach is the socket's. */
enum fw_cmd_status fw_cmd_volume_attach(const struct fw_cmd_volume *config);
enum fw_cmd_status fw_cmd_volume_detach(const struct fw_cmd_volume *config);
