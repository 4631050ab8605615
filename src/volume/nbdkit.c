/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin for nbdkit: the volumes of a group served through NBD.
 *
 *     nbdkit -U SOCKET fairway path=GROUP host=HOST volume=VOLUME [full=MS] [ready=FILE]
 *
 * It is the host's agent, so a host has one at a time for a group. It serves all volumes, each as
 * an export of its name; `volume` is the one that a client gets who names none. A volume is open,
 * and no other host can have it, while a client is connected to it.
 *
 * SIGTERM ends it in order whatever clients do. nbdkit itself would wait for each of them to go,
 * and would not close what they have open. So a thread of ours waits for nbdkit to be told to end;
 * then no call gets in any more, those under way end, volumes are closed and the pool is given
 * back, and the process exits. Clients see their connection end, as when a machine is switched off
 * after the last write.
 *
 * When the host leaves the group, it ends in the same way.
 *
 * What it does is thin.h; this file says it in nbdkit's words. The agent is opened after nbdkit has
 * forked, since threads and locks do not go along; and once before, with the volume, so that who
 * started it hears of what cannot be.
 */
#define NBDKIT_API_VERSION 2

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <nbdkit-plugin.h>

#include <fairway/log.h>

#include "base/thread.h"
#include "io/clock.h"
#include "io/mark.h"
#include "io/process.h"
#include "volume/thin.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum { BLOCK_PREFERRED = 4096, BLOCK_MAX = 32 << 20, SLEEP_S = 3600 };

/* nbdkit has one plugin in a process, and no place of its own for what it has. */
static struct {
    char *path;
    char *host;
    char *volume;
    int full_ms; /* How long a write waits in a full group; 0: the default. */
    char *ready; /* A file that is made when volumes are served; NULL: none. */
    struct fw_volume_thin_host *thins;
    int errors; /* Where our log goes; nbdkit closes it when it goes into the background. */

    struct fw_thread ender;
    bool has_ender;
    struct fw_parker parker; /* The ender's. */
    _Atomic uint32_t inside; /* Calls under way. */
    _Atomic bool is_ending;  /* Nobody gets in. */
} plugin;

/* ---- the end ---- */

static void leave(void)
{
    /* After the sub: either the ender sees 0, or we see that it is ending. */
    if (atomic_fetch_sub(&plugin.inside, 1) == 1 && atomic_load(&plugin.is_ending)) {
        fw_unpark(&plugin.parker);
    }
}

/* Before every call that touches volumes. False: nbdkit has been told to end. */
static bool enter(void)
{
    atomic_fetch_add(&plugin.inside, 1); /* Before the load: pairs with the ender's store. */
    if (!atomic_load(&plugin.is_ending)) {
        return true;
    }
    leave();
    nbdkit_error("the volume is being detached");
    nbdkit_set_error(ESHUTDOWN);
    return false;
}

static void ender_run(void *argument)
{
    (void)argument;
    /* It ends early when nbdkit is told to end, and for no other reason where no client calls. */
    while (nbdkit_nanosleep(SLEEP_S, 0) == 0 || errno != ESHUTDOWN) {
    }
    atomic_store(&plugin.is_ending, true);
    fw_volume_thin_host_stop(plugin.thins);
    while (atomic_load(&plugin.inside) > 0) {
        fw_park(&plugin.parker);
    }
    fw_volume_thin_host_close(plugin.thins);
    _Exit(EXIT_SUCCESS); /* nbdkit waits for clients, who have nothing to wait for. */
}

static void plugin_unload(void)
{
    if (plugin.has_ender) {
        fw_thread_join(&plugin.ender); /* Which ends the process. */
    } else if (plugin.thins != NULL) {
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
    if (strcmp(key, "full") == 0) {
        return nbdkit_parse_int("full", value, &plugin.full_ms);
    }
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
    const struct fw_volume_thin_options options = {.path = plugin.path,
                                                   .host = plugin.host,
                                                   .full_ns =
                                                       (int64_t)plugin.full_ms * FW_NS_PER_MS,
                                                   .left = nbdkit_shutdown};
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
    plugin.errors = fw_process_errors_keep();
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
    fw_process_errors_restore(plugin.errors);
    if (host_open() != 0) {
        return -1;
    }
    if (plugin.ready != NULL && fw_mark_make(plugin.ready, "", &reason) != 0) {
        nbdkit_error("%s", reason.text);
        return -1;
    }
    fw_parker_init(&plugin.parker);
    if (fw_thread_create(&plugin.ender, "volume-end", ender_run, NULL) != 0) {
        nbdkit_error("cannot create a thread");
        return -1;
    }
    plugin.has_ender = true;
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
    if (name == NULL || !enter()) {
        return NULL;
    }
    struct fw_volume_thin *thin = thin_open(name[0] != '\0' ? name : plugin.volume);
    leave();
    return thin;
}

static void plugin_close(void *handle)
{
    if (enter()) { /* Or all are closed at once. */
        fw_volume_thin_close(handle);
        leave();
    }
}

static int64_t plugin_get_size(void *handle)
{
    if (!enter()) {
        return -1;
    }
    int64_t size = (int64_t)fw_volume_thin_size(handle);
    leave();
    return size;
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

/* The end of a call that has entered: says what went wrong in nbdkit's way. */
static int answer(int rc, const struct fw_reason *reason)
{
    leave();
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
    return enter() ? answer(fw_volume_thin_read(handle, into, count, offset, &reason), &reason)
                   : -1;
}

static int plugin_pwrite(void *handle, const void *from, uint32_t count, uint64_t offset,
                         uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    bool durable = (flags & NBDKIT_FLAG_FUA) != 0;
    return enter() ? answer(fw_volume_thin_write(handle, from, count, offset, durable, &reason),
                            &reason)
                   : -1;
}

static int plugin_flush(void *handle, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    (void)flags;
    return enter() ? answer(fw_volume_thin_flush(handle, &reason), &reason) : -1;
}

static int plugin_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    (void)flags; /* Extents are given back durably. */
    return enter() ? answer(fw_volume_thin_discard(handle, count, offset, &reason), &reason) : -1;
}

static int plugin_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct fw_reason reason = {.text = ""};
    bool may_trim = (flags & NBDKIT_FLAG_MAY_TRIM) != 0;
    if ((flags & NBDKIT_FLAG_FAST_ZERO) != 0) { /* Edges and placed extents are written. */
        nbdkit_set_error(EOPNOTSUPP);
        return -1;
    }
    if (!enter()) {
        return -1;
    }
    int rc = fw_volume_thin_zero(handle, count, offset, may_trim, &reason);
    if (rc == 0 && (flags & NBDKIT_FLAG_FUA) != 0) {
        rc = fw_volume_thin_flush(handle, &reason);
    }
    return answer(rc, &reason);
}

static int extents_add(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
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

static int plugin_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                          struct nbdkit_extents *extents)
{
    if (!enter()) {
        return -1;
    }
    int rc = extents_add(handle, count, offset, flags, extents);
    leave();
    return rc;
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
                   "full=MS         how long a write waits for extents of a full group\n"
                   "ready=FILE      is made when volumes are served, and locked until the end",
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
