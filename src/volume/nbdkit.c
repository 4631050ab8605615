/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin for nbdkit: the volumes of a group served through NBD.
 *
 *     nbdkit -U SOCKET fairway path=GROUP host=HOST volume=VOLUME [ready=FILE]
 *
 * It is the host's agent, so a host has one at a time for a group. It serves all volumes, each as
 * an export of its name; `volume` is the one that a client gets who names none. A volume is open,
 * and no other host can have it, while a client is connected to it.
 *
 * What it does is thin.h; this file says it in nbdkit's words. The agent is opened after nbdkit has
 * forked, since threads and locks do not go along; and once before, with the volume, so that who
 * started it hears of what cannot be.
 */
#define NBDKIT_API_VERSION 2

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <nbdkit-plugin.h>

#include <fairway/log.h>

#include "io/process.h"
#include "volume/thin.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum { BLOCK_PREFERRED = 4096, BLOCK_MAX = 32 << 20 };

/* nbdkit has one plugin in a process, and no place of its own for what it has. */
static struct {
    char *path;
    char *host;
    char *volume;
    char *ready; /* A file that is made when volumes are served; NULL: none. */
    struct fw_volume_thin_host *thins;
} plugin;

static void plugin_unload(void)
{
    if (plugin.thins != NULL) {
        fw_volume_thin_host_close(plugin.thins);
    }
    free(plugin.path);
    free(plugin.host);
    free(plugin.volume);
    free(plugin.ready);
}

static int plugin_config(const char *key, const char *value)
{
    char **place = strcmp(key, "path") == 0     ? &plugin.path
                   : strcmp(key, "host") == 0   ? &plugin.host
                   : strcmp(key, "volume") == 0 ? &plugin.volume
                   : strcmp(key, "ready") == 0  ? &plugin.ready
                                                : NULL;
    if (place == NULL) {
        nbdkit_error("there is no parameter '%s'", key);
        return -1;
    }
    free(*place);
    bool is_path = place == &plugin.path || place == &plugin.ready;
    *place = is_path ? nbdkit_absolute_path(value) : strdup(value);
    return *place != NULL ? 0 : -1;
}

static int plugin_config_complete(void)
{
    if (plugin.path == NULL || plugin.host == NULL || plugin.volume == NULL) {
        nbdkit_error("path=GROUP, host=HOST and volume=VOLUME are needed");
        return -1;
    }
    return 0;
}

static int host_open(void)
{
    const struct fw_volume_thin_options options = {.path = plugin.path, .host = plugin.host};
    struct fw_reason reason = {.text = ""};
    (void)!fw_log_set_level("volume", FW_LOG_WARNING);
    if (fw_volume_thin_host_open(&plugin.thins, &options, &reason) != 0) {
        plugin.thins = NULL;
        nbdkit_error("%s", reason.text);
        return -1;
    }
    return 0;
}

/* The volume of this name; NULL, and the reason has been told. */
static struct fw_volume_thin *thin_open(const char *name)
{
    struct fw_volume_thin *thin = NULL;
    struct fw_reason reason = {.text = ""};
    if (fw_volume_thin_open(&thin, plugin.thins, name, &reason) != 0) {
        nbdkit_error("%s", reason.text);
        return NULL;
    }
    return thin;
}

static int plugin_get_ready(void)
{
    if (host_open() != 0) {
        return -1;
    }
    struct fw_volume_thin *thin = thin_open(plugin.volume);
    if (thin != NULL) {
        fw_volume_thin_close(thin);
    }
    fw_volume_thin_host_close(plugin.thins);
    plugin.thins = NULL;
    return thin != NULL ? 0 : -1;
}

static int plugin_after_fork(void)
{
    struct fw_reason reason = {.text = ""};
    if (host_open() != 0) {
        return -1;
    }
    if (plugin.ready != NULL && fw_process_pid_file(plugin.ready, &reason) != 0) {
        nbdkit_error("%s", reason.text);
        return -1;
    }
    return 0;
}

static const char *plugin_default_export(int readonly, int is_tls)
{
    (void)readonly;
    (void)is_tls;
    return plugin.volume;
}

static void *plugin_open(int readonly)
{
    const char *name = nbdkit_export_name();
    (void)readonly;
    return name != NULL ? thin_open(name[0] != '\0' ? name : plugin.volume) : NULL;
}

static void plugin_close(void *handle)
{
    fw_volume_thin_close(handle);
}

static int64_t plugin_get_size(void *handle)
{
    return (int64_t)fw_volume_thin_size(handle);
}

static int plugin_block_size(void *handle, uint32_t *minimum, uint32_t *preferred,
                             uint32_t *maximum)
{
    (void)handle;
    *minimum = 1;
    *preferred = BLOCK_PREFERRED;
    *maximum = BLOCK_MAX;
    return 0;
}

static int yes(void *handle)
{
    (void)handle;
    return 1;
}

static int plugin_can_fua(void *handle)
{
    (void)handle;
    return NBDKIT_FUA_NATIVE;
}

/* Says what went wrong in nbdkit's way. */
static int answer(int rc, const struct fw_reason *reason)
{
    if (rc != 0) {
        nbdkit_error("%s", reason->text);
        nbdkit_set_error(rc == -ENOSPC || rc == -ESHUTDOWN ? -rc : EIO);
    }
    return rc == 0 ? 0 : -1;
}

static int plugin_pread(void *handle, void *into, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    (void)flags;
    return answer(fw_volume_thin_read(handle, into, count, offset, &reason), &reason);
}

static int plugin_pwrite(void *handle, const void *from, uint32_t count, uint64_t offset,
                         uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    bool durable = (flags & NBDKIT_FLAG_FUA) != 0;
    return answer(fw_volume_thin_write(handle, from, count, offset, durable, &reason), &reason);
}

static int plugin_flush(void *handle, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    (void)flags;
    return answer(fw_volume_thin_flush(handle, &reason), &reason);
}

static int plugin_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    (void)flags; /* Extents are given back durably. */
    return answer(fw_volume_thin_discard(handle, count, offset, &reason), &reason);
}

static int plugin_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    bool may_trim = (flags & NBDKIT_FLAG_MAY_TRIM) != 0;
    if ((flags & NBDKIT_FLAG_FAST_ZERO) != 0) { /* Edges and placed extents are written. */
        nbdkit_set_error(EOPNOTSUPP);
        return -1;
    }
    int rc = fw_volume_thin_zero(handle, count, offset, may_trim, &reason);
    if (rc == 0 && (flags & NBDKIT_FLAG_FUA) != 0) {
        rc = fw_volume_thin_flush(handle, &reason);
    }
    return answer(rc, &reason);
}

static int plugin_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                          struct nbdkit_extents *extents)
{
    uint64_t extent_size = fw_volume_thin_extent_size(handle);
    uint64_t end = offset + count;
    for (uint64_t at = offset / extent_size * extent_size; at < end; at += extent_size) {
        bool is_there = fw_volume_thin_is_placed(handle, at);
        if (nbdkit_add_extent(extents, at, extent_size,
                              is_there ? 0 : NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO) != 0) {
            return -1;
        }
        if ((flags & NBDKIT_FLAG_REQ_ONE) != 0 && at >= offset) {
            break;
        }
    }
    return 0;
}

static struct nbdkit_plugin description = {
    .name = "fairway",
    .longname = "Fairway thin volumes",
    .description = "thin volumes of a group on a disk that hosts share",
    .unload = plugin_unload,
    .config = plugin_config,
    .config_complete = plugin_config_complete,
    .config_help = "path=GROUP      the disk or file of the group\n"
                   "host=HOST       the name under which this host is connected\n"
                   "volume=VOLUME   what clients get who name no export\n"
                   "ready=FILE      gets the process's number when volumes are served",
    .magic_config_key = "path",
    .get_ready = plugin_get_ready,
    .after_fork = plugin_after_fork,
    .default_export = plugin_default_export,
    .open = plugin_open,
    .close = plugin_close,
    .get_size = plugin_get_size,
    .block_size = plugin_block_size,
    .can_write = yes,
    .can_flush = yes,
    .can_trim = yes,
    .can_zero = yes,
    .can_extents = yes,
    .can_multi_conn = yes, /* A flush is one of the whole disk. */
    .can_fua = plugin_can_fua,
    .pread = plugin_pread,
    .pwrite = plugin_pwrite,
    .flush = plugin_flush,
    .trim = plugin_trim,
    .zero = plugin_zero,
    .extents = plugin_extents,
    .errno_is_preserved = 0,
};

struct nbdkit_plugin *plugin_init(void);

NBDKIT_REGISTER_PLUGIN(description)
