/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway volume ACTION PATH [NAME]: groups of thin volumes on a shared disk.
 *
 * What changes a group is done by its manager: by the one that runs, wherever it does, or else by
 * us, for a moment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>
#include <fairway/volume.h>

#include "base/json.h"
#include "base/option.h"
#include "cmd/tool.h"
#include "cmd/volume.h"
#include "io/clock.h"
#include "io/disk.h"
#include "volume/lease.h"
#include "volume/lvm.h"
#include "volume/store.h"

enum { UUID_TEXT = 2 * FW_VOLUME_UUID_SIZE + 1 };

static const struct fw_option volume_options[] = {
    FW_OPTION_SIZE(struct fw_cmd_volume, size, .name = "size", .default_text = "0",
                   .help = "format: make or extend a file to this size"),
    FW_OPTION_SIZE(struct fw_cmd_volume, extent_size, .name = "extent-size", .default_text = "4m",
                   .help = "format: bytes of an extent"),
    FW_OPTION_UINT(struct fw_cmd_volume, hosts, .name = "hosts", .default_text = "16", .min = 1,
                   .max = FW_VOLUME_HOSTS_MAX, .help = "format: how many can be connected"),
    FW_OPTION_SIZE(struct fw_cmd_volume, ring_size, .name = "ring-size", .default_text = "1m",
                   .help = "format: bytes of each host's two rings, and of the redo log"),
    FW_OPTION_DURATION(struct fw_cmd_volume, hold_ns, .name = "hold", .default_text = "8",
                       .min = FW_NS_PER_S, /* The lease is renewed twice as often at least. */
                       .max = FW_VOLUME_LEASE_HOLD_MS_MAX * (int64_t)FW_NS_PER_MS,
                       .help = "format, adopt: how long a manager's lease lasts; 3 times as long "
                               "after a crash, another host takes over"),
    FW_OPTION_BOOL(struct fw_cmd_volume, replace, .name = "replace", .default_text = "no",
                   .help = "format: also where there is a group already"),
    FW_OPTION_BOOL(struct fw_cmd_volume, force, .name = "force", .default_text = "no",
                   .help = "format: also over other content, which is named and lost"),
    FW_OPTION_UINT(struct fw_cmd_volume, extents, .name = "extents", .default_text = "0",
                   .max = FW_VOLUME_EXTENTS_MAX, .help = "create, resize: size of the volume"),
    FW_OPTION_UINT(struct fw_cmd_volume, pool_min, .name = "pool-min", .default_text = "16",
                   .min = 1, .max = FW_VOLUME_EXTENTS_MAX, .unit = "extents",
                   .help = "manager: what a host always has in advance"),
    FW_OPTION_UINT(struct fw_cmd_volume, pool_max, .name = "pool-max", .default_text = "0",
                   .max = FW_VOLUME_EXTENTS_MAX, .unit = "extents",
                   .help = "manager: ... and at most; 0 is as much as its ring can list"),
    FW_OPTION_DURATION(struct fw_cmd_volume, quiet_ns, .name = "quiet", .default_text = "60",
                       .min = 1, .help = "manager: how long demand is low before a pool shrinks"),
    FW_OPTION_DURATION(struct fw_cmd_volume, interval_ns, .name = "interval", .unit = "ms",
                       .default_text = "100", .min = FW_NS_PER_MS,
                       .max = (int64_t)FW_RING_BEAT_MS * FW_NS_PER_MS,
                       .help = "manager, agent: how often to look into the rings"),
    FW_OPTION_DURATION(struct fw_cmd_volume, wait_ns, .name = "wait", .default_text = "0",
                       .help =
                           "disconnect, shutdown: how long to wait for a host; agent: for extents"),
    FW_OPTION_DURATION(struct fw_cmd_volume, full_ns, .name = "full-wait", .default_text = "5",
                       .min = FW_NS_PER_MS,
                       .help = "agent, attach: how long a write waits for an extent of a full "
                               "group before it fails with ENOSPC"),
    FW_OPTION_UINT(struct fw_cmd_volume, low, .name = "low", .default_text = "10", .min = 1,
                   .max = 99, .unit = "%",
                   .help = "manager, list: warn when less than this is free"),
    FW_OPTION_BOOL(struct fw_cmd_volume, manager_only, .name = "manager-only", .default_text = "no",
                   .help = "shutdown: leave the hosts, which go on from their pools"),
    FW_OPTION_BOOL(struct fw_cmd_volume, fenced, .name = "fenced", .default_text = "no",
                   .help = "disconnect, shutdown: you know that the host is off; do not ask it"),
    FW_OPTION_BOOL(struct fw_cmd_volume, commands, .name = "commands", .default_text = "no",
                   .help = "agent: do what standard input says, line by line"),
    FW_OPTION_STRING(struct fw_cmd_volume, backup, .name = "backup", .default_text = "",
                     .help = "adopt: where to keep LVM's metadata; empty is LVM's archive"),
    FW_OPTION_STRING(struct fw_cmd_volume, nbd, .name = "nbd", .default_text = "",
                     .help = "attach: serve volumes by NBD on this socket"),
    FW_OPTION_STRING(
        struct fw_cmd_volume, sanlock, .name = "sanlock", .default_text = "",
        .help = "manager: hold this resource of sanlock's too; LOCKSPACE:NAME:PATH:OFFSET"),
    FW_OPTION_STRING(struct fw_cmd_volume, dm, .name = "dm", .default_text = "",
                     .help = "attach: also make a device of device-mapper of this name"),
    FW_OPTION_STRING(struct fw_cmd_volume, host, .name = "host", .default_text = "",
                     .help = "attach: as whom this host is connected; empty is its own name"),
    FW_OPTION_STRING(struct fw_cmd_volume, plugin, .name = "plugin", .default_text = "fairway",
                     .help = "attach: nbdkit's plugin, by name or path"),
    FW_OPTION_BOOL(struct fw_cmd_volume, json, .name = "json", .default_text = "no",
                   .help = "list, hosts, dump, check: print one JSON object"),
};

static struct fw_option_table volume_table(struct fw_cmd_volume *config)
{
    return (struct fw_option_table){.module = "volume",
                                    .options = volume_options,
                                    .count = FW_ARRAY_LENGTH(volume_options),
                                    .config = config};
}

static enum fw_cmd_status failed(const struct fw_cmd_volume *config, const char *text)
{
    return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, text);
}

static enum fw_cmd_status answer(const struct fw_cmd_volume *config, int rc,
                                 const struct fw_ring_reason *reason)
{
    return rc == 0 ? FW_CMD_OK : failed(config, reason->text);
}

/* ---- what changes a group ---- */

static uint32_t hold_ms(const struct fw_cmd_volume *config)
{
    return (uint32_t)(config->hold_ns / FW_NS_PER_MS);
}

static enum fw_cmd_status volume_format(const struct fw_cmd_volume *config)
{
    const struct fw_volume_format format = {.path = config->path,
                                            .size = config->size,
                                            .extent_size = config->extent_size,
                                            .hosts_max = (uint32_t)config->hosts,
                                            .ring_size = config->ring_size,
                                            .log_size = config->ring_size,
                                            .lease_ms = hold_ms(config),
                                            .replace = config->replace,
                                            .force = config->force};
    struct fw_ring_reason reason;
    if (config->force) {
        fw_tool_tell_lost(config->path);
    }
    int rc = fw_volume_format(&format, &reason);
    return answer(config, rc, &reason);
}

static enum fw_cmd_status volume_adopt(const struct fw_cmd_volume *config)
{
    const struct fw_volume_lvm_adopt adopt = {.path = config->path,
                                              .backup = config->backup,
                                              .extents = config->extents,
                                              .hosts_max = (uint32_t)config->hosts,
                                              .ring_size = config->ring_size,
                                              .hold_ms = hold_ms(config)};
    struct fw_reason reason;
    int rc = fw_volume_lvm_adopt(&adopt, &reason);
    return rc == 0 ? FW_CMD_OK : failed(config, reason.text);
}

static void on_progress(void *context, const char *text)
{
    const struct fw_cmd_volume *config = context;
    (void)fprintf(stderr, "%s: %s\n", config->path, text);
}

/* By the manager that runs, or by us; the library finds out. */
static int order_do(const struct fw_cmd_volume *config, enum fw_volume_action action,
                    const char *name, struct fw_ring_reason *reason)
{
    const struct fw_volume_order order = {.path = config->path,
                                          .action = action,
                                          .name = name,
                                          .size = config->extents,
                                          .wait_ns = config->wait_ns,
                                          .progress = on_progress,
                                          .context = (void *)(uintptr_t)config};
    (void)!fw_log_set_level("volume", FW_LOG_WARNING); /* Being a manager is not worth a line. */
    return fw_volume_order(&order, reason);
}

static enum fw_cmd_status order(const struct fw_cmd_volume *config, enum fw_volume_action action)
{
    struct fw_ring_reason reason = {.text = ""};
    if ((action == FW_VOLUME_DO_CREATE || action == FW_VOLUME_DO_RESIZE) && config->extents == 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "%s: say how large '%s' is to be, by --extents",
                           config->path, config->name);
    }
    bool is_fenced = action == FW_VOLUME_DO_DISCONNECT && config->fenced;
    int rc = order_do(config, is_fenced ? FW_VOLUME_DO_RECLAIM : action, config->name, &reason);
    return answer(config, rc, &reason);
}

/* ---- what looks at it ---- */

enum fw_cmd_status fw_cmd_volume_look(const struct fw_cmd_volume *config,
                                      struct fw_cmd_volume_view *view)
{
    const struct fw_disk_options options = {.path = config->path,
                                            .flags = FW_DISK_READ_ONLY | FW_DISK_DIRECT};
    struct fw_reason reason;
    struct fw_disk *disk;
    struct fw_volume_store *store;
    int rc = fw_disk_open(&disk, &options, &reason);
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    }
    rc = fw_volume_store_open(&store, disk, &reason);
    if (rc == 0) {
        view->geometry = store->geometry;
        rc = fw_volume_view(store, FW_VOLUME_ALL, &view->metadata, &reason);
        store->ops->close(store);
    }
    fw_disk_close(disk);
    return rc == 0 ? FW_CMD_OK : failed(config, reason.text);
}

static void json_uuid(struct fw_json *json, const struct fw_volume_uuid *uuid)
{
    static const char digits[] = "0123456789abcdef";
    char text[UUID_TEXT];
    for (size_t i = 0; i < FW_VOLUME_UUID_SIZE; i++) {
        text[2 * i] = digits[uuid->bytes[i] >> 4];
        text[2 * i + 1] = digits[uuid->bytes[i] & 15];
    }
    fw_json_string_bytes(json, text, UUID_TEXT - 1);
}

static void json_number(struct fw_json *json, const char *key, uint64_t value)
{
    fw_json_key(json, key);
    fw_json_unsigned(json, value);
}

/* The extents of a volume or host, a run at a time: [logical,] extent, count. */
static void json_extents(struct fw_json *json, const struct fw_cmd_volume_view *view,
                         enum fw_volume_state state, uint32_t index)
{
    const struct fw_volume_metadata *metadata = &view->metadata;
    bool placed = state == FW_VOLUME_IS_PLACED;
    fw_json_array_begin(json);
    for (uint64_t i = 0; i < metadata->extent_count;) {
        const struct fw_volume_extent *first = &metadata->extents[i];
        uint64_t count = 1;
        if (first->state != (uint8_t)state || first->index != index) {
            i++;
            continue;
        }
        while (i + count < metadata->extent_count && first[count].state == first->state &&
               first[count].index == index && first[count].generation == first->generation &&
               (!placed || first[count].logical == first->logical + count)) {
            count++;
        }
        fw_json_object_begin(json);
        if (placed) {
            json_number(json, "logical", first->logical);
        }
        json_number(json, "extent", i);
        json_number(json, "count", count);
        json_number(json, "generation", first->generation);
        fw_json_object_end(json);
        i += count;
    }
    fw_json_array_end(json);
}

static void json_volumes(struct fw_json *json, const struct fw_cmd_volume_view *view,
                         bool with_extents)
{
    const struct fw_volume_metadata *metadata = &view->metadata;
    fw_json_key(json, "volumes");
    fw_json_array_begin(json);
    for (uint32_t i = 0; i < metadata->volumes_end; i++) {
        const struct fw_volume_entry *volume = &metadata->volumes[i];
        if (!volume->is_used) {
            continue;
        }
        fw_json_object_begin(json);
        fw_json_key(json, "name");
        fw_json_string(json, volume->name);
        fw_json_key(json, "uuid");
        json_uuid(json, &volume->uuid);
        json_number(json, "size", volume->size);
        json_number(json, "placed", volume->placed);
        fw_json_key(json, "open_on");
        fw_json_array_begin(json);
        for (uint32_t h = 0; h < FW_VOLUME_HOSTS_MAX; h++) {
            if ((volume->users >> h & 1) != 0) {
                fw_json_string(json, metadata->hosts[h].name);
            }
        }
        fw_json_array_end(json);
        if (with_extents) {
            fw_json_key(json, "segments");
            json_extents(json, view, FW_VOLUME_IS_PLACED, i);
        }
        fw_json_object_end(json);
    }
    fw_json_array_end(json);
}

static void json_hosts(struct fw_json *json, const struct fw_cmd_volume_view *view,
                       bool with_extents)
{
    fw_json_key(json, "hosts");
    fw_json_array_begin(json);
    for (uint32_t h = 0; h < FW_VOLUME_HOSTS_MAX; h++) {
        const struct fw_volume_host *host = &view->metadata.hosts[h];
        if (!host->is_used) {
            continue;
        }
        fw_json_object_begin(json);
        fw_json_key(json, "name");
        fw_json_string(json, host->name);
        json_number(json, "pool", host->pool);
        json_number(json, "set_aside", host->set_aside);
        if (with_extents) {
            fw_json_key(json, "extents");
            json_extents(json, view, FW_VOLUME_IS_HOSTS, h);
        }
        fw_json_object_end(json);
    }
    fw_json_array_end(json);
}

static void json_group(struct fw_json *json, const struct fw_cmd_volume_view *view)
{
    fw_json_key(json, "uuid");
    json_uuid(json, &view->geometry.uuid);
    json_number(json, "extent_size", view->geometry.extent_size);
    json_number(json, "extents", view->geometry.extent_count);
    json_number(json, "free", view->metadata.free_count);
    json_number(json, "data_offset", view->geometry.data_offset);
    json_number(json, "generation", view->metadata.generation);
    json_number(json, "changes", view->metadata.number);
}

enum { SHOW_GROUP = 1 << 0, SHOW_VOLUMES = 1 << 1, SHOW_HOSTS = 1 << 2, SHOW_EXTENTS = 1 << 3 };

static void show_json(const struct fw_cmd_volume_view *view, unsigned what)
{
    struct fw_json json;
    fw_tool_json_begin(&json);
    fw_json_object_begin(&json);
    if ((what & SHOW_GROUP) != 0) {
        json_group(&json, view);
    }
    if ((what & SHOW_VOLUMES) != 0) {
        json_volumes(&json, view, (what & SHOW_EXTENTS) != 0);
    }
    if ((what & SHOW_HOSTS) != 0) {
        json_hosts(&json, view, (what & SHOW_EXTENTS) != 0);
    }
    fw_json_object_end(&json);
    fw_tool_json_end(&json);
}

static bool is_low(const struct fw_cmd_volume *config, const struct fw_cmd_volume_view *view)
{
    return view->metadata.free_count < view->metadata.extent_count * config->low / 100;
}

static void show_volumes(const struct fw_cmd_volume *config, const struct fw_cmd_volume_view *view)
{
    const struct fw_volume_metadata *metadata = &view->metadata;
    (void)printf("%-24s %10s %10s  %s\n", "VOLUME", "EXTENTS", "PLACED", "OPEN ON");
    for (uint32_t i = 0; i < metadata->volumes_end; i++) {
        const struct fw_volume_entry *volume = &metadata->volumes[i];
        if (!volume->is_used) {
            continue;
        }
        uint32_t user = volume->users != 0 ? (uint32_t)__builtin_ctzll(volume->users) : 0;
        (void)printf("%-24s %10" PRIu64 " %10" PRIu64 "  %s\n", volume->name, volume->size,
                     volume->placed, volume->users != 0 ? metadata->hosts[user].name : "-");
    }
    if (is_low(config, view)) {
        (void)printf("WARNING: only %" PRIu64 " of %" PRIu64 " extents are free\n",
                     metadata->free_count, metadata->extent_count);
    }
}

static void show_hosts(const struct fw_cmd_volume_view *view)
{
    (void)printf("%-24s %10s %10s\n", "HOST", "POOL", "SET ASIDE");
    for (uint32_t h = 0; h < FW_VOLUME_HOSTS_MAX; h++) {
        const struct fw_volume_host *host = &view->metadata.hosts[h];
        if (host->is_used) {
            (void)printf("%-24s %10" PRIu64 " %10" PRIu64 "\n", host->name, host->pool,
                         host->set_aside);
        }
    }
}

static enum fw_cmd_status show(const struct fw_cmd_volume *config, unsigned what)
{
    struct fw_cmd_volume_view view = {.metadata = {.extent_count = 0}};
    enum fw_cmd_status status = fw_cmd_volume_look(config, &view);
    if (status != FW_CMD_OK) {
        return status;
    }
    if (config->json || (what & SHOW_EXTENTS) != 0) {
        show_json(&view, what);
    } else {
        if ((what & SHOW_GROUP) != 0) {
            (void)printf("%s: sound; %" PRIu64 " extents of %" PRIu64 " bytes, %" PRIu64 " free\n",
                         config->path, view.geometry.extent_count, view.geometry.extent_size,
                         view.metadata.free_count);
        }
        if ((what & SHOW_VOLUMES) != 0) {
            show_volumes(config, &view);
        }
        if ((what & SHOW_HOSTS) != 0) {
            show_hosts(&view);
        }
    }
    fw_volume_metadata_fini(&view.metadata);
    return FW_CMD_OK;
}

/* Whether a volume is open anywhere: then no host is sent away. */
static enum fw_cmd_status open_refuse(const struct fw_cmd_volume *config,
                                      const struct fw_volume_metadata *metadata)
{
    char names[FW_RING_REASON_SIZE / 2];
    for (uint32_t h = 0; h < FW_VOLUME_HOSTS_MAX; h++) {
        if (fw_volume_metadata_open_on(metadata, h, names, sizeof names)) {
            return fw_cmd_fail(FW_CMD_FAILED,
                               "%s: host '%s' has %s open, so nothing was shut down; detach there "
                               "first",
                               config->path, metadata->hosts[h].name, names);
        }
    }
    return FW_CMD_OK;
}

/* All hosts, one after the other, and then the manager; or one host. */
static enum fw_cmd_status volume_shutdown(const struct fw_cmd_volume *config)
{
    struct fw_cmd_volume_view view = {.metadata = {.extent_count = 0}};
    struct fw_ring_reason reason = {.text = ""};
    if (config->name != NULL) {
        return order(config, FW_VOLUME_DO_DISCONNECT);
    }
    if (config->fenced) {
        return fw_cmd_fail(FW_CMD_USAGE, "--fenced is about one host: name it behind %s",
                           config->path);
    }
    enum fw_cmd_status status = fw_cmd_volume_look(config, &view);
    if (status != FW_CMD_OK) {
        return status;
    }
    status = config->manager_only ? FW_CMD_OK : open_refuse(config, &view.metadata);
    if (status != FW_CMD_OK) {
        fw_volume_metadata_fini(&view.metadata);
        return status;
    }
    int rc = 0;
    for (uint32_t h = 0; !config->manager_only && rc == 0 && h < FW_VOLUME_HOSTS_MAX; h++) {
        const struct fw_volume_host *host = &view.metadata.hosts[h];
        if (host->is_used) {
            rc = order_do(config, FW_VOLUME_DO_DISCONNECT, host->name, &reason);
        }
    }
    if (rc == 0) {
        rc = order_do(config, FW_VOLUME_DO_SHUTDOWN, NULL, &reason);
    }
    fw_volume_metadata_fini(&view.metadata);
    return answer(config, rc, &reason);
}

/* ---- the command ---- */

#define ORDER(verb, command, subject, text)                                        \
    {                                                                              \
        .name = (command), .noun = (subject), .summary = (text), .is_order = true, \
        .action = FW_VOLUME_DO_##verb                                              \
    }

static const struct action {
    const char *name;
    const char *summary;
    const char *noun; /* What stands behind the path; NULL: nothing. */
    bool is_optional; /* It need not. */
    bool is_order;
    enum fw_volume_action action;
    enum fw_cmd_status (*run)(const struct fw_cmd_volume *config);
    unsigned what;
} actions[] = {
    {.name = "format", .summary = "make an empty group", .run = volume_format},
    {.name = "adopt",
     .summary = "make one of free extents of LVM's, on the device PATH",
     .run = volume_adopt},
    ORDER(CREATE, "create", "VOLUME", "add a volume of --extents"),
    ORDER(RESIZE, "resize", "VOLUME", "make it larger, or smaller where it is empty"),
    ORDER(REMOVE, "remove", "VOLUME", "free all it has; no host may have it open"),
    {.name = "list", .summary = "show the volumes", .what = SHOW_VOLUMES},
    ORDER(CONNECT, "connect", "HOST", "add a host, whose agent can then be started"),
    ORDER(DISCONNECT, "disconnect", "HOST", "tell a host to leave; refused while a volume is open"),
    ORDER(RECLAIM, "reclaim", "HOST", "the same as disconnect --fenced"),
    {.name = "hosts", .summary = "show the hosts", .what = SHOW_HOSTS},
    {.name = "dump",
     .summary = "show every extent, in JSON",
     .what = SHOW_GROUP | SHOW_VOLUMES | SHOW_HOSTS | SHOW_EXTENTS},
    {.name = "check",
     .summary = "look whether all adds up, without changing it",
     .what = SHOW_GROUP},
    ORDER(FLUSH, "flush", NULL, "take in what is in the rings, and empty the redo log"),
    {.name = "shutdown",
     .noun = "HOST",
     .is_optional = true,
     .summary = "end all agents, then the manager; or one host's agent",
     .run = volume_shutdown},
    {.name = "manager", .summary = "be the manager until SIGTERM", .run = fw_cmd_volume_manager},
    {.name = "agent",
     .noun = "HOST",
     .summary = "be the host's agent until SIGTERM",
     .run = fw_cmd_volume_agent},
    {.name = "attach",
     .noun = "VOLUME",
     .summary = "serve volumes by --nbd, this one too, and be the host's agent",
     .run = fw_cmd_volume_attach},
    {.name = "detach",
     .summary = "end what serves on the socket PATH; or remove /dev/mapper/NAME",
     .run = fw_cmd_volume_detach},
};

static bool volume_action(size_t index, struct fw_command_action *action)
{
    if (index < FW_ARRAY_LENGTH(actions)) {
        *action = (struct fw_command_action){.name = actions[index].name,
                                             .noun = actions[index].noun,
                                             .summary = actions[index].summary};
    }
    return index < FW_ARRAY_LENGTH(actions);
}

static enum fw_cmd_status action_run(void *context, const struct fw_option_list *words)
{
    struct fw_cmd_volume *config = context;
    const struct action *action = NULL;
    for (size_t i = 0; words->count > 0 && i < FW_ARRAY_LENGTH(actions); i++) {
        if (strcmp(actions[i].name, words->items[0]) == 0) {
            action = &actions[i];
        }
    }
    if (action == NULL) {
        return fw_cmd_fail(FW_CMD_USAGE, "volume cannot '%s'; see 'fairway help volume'",
                           words->count > 0 ? words->items[0] : "");
    }
    bool is_right = words->count == (action->noun != NULL ? 3U : 2U) ||
                    (words->count == 2 && action->is_optional);
    if (!is_right) {
        return fw_cmd_fail(FW_CMD_USAGE, "volume %s takes PATH%s%s; see 'fairway help volume'",
                           action->name, action->noun != NULL ? " and " : "",
                           action->noun != NULL ? action->noun : "");
    }
    config->path = words->items[1];
    config->name = words->count > 2 ? words->items[2] : NULL;
    if (action->run != NULL) {
        return action->run(config);
    }
    return action->is_order ? order(config, action->action) : show(config, action->what);
}

static enum fw_cmd_status volume_run(int count, char **arguments)
{
    struct fw_cmd_volume config = {.path = NULL};
    const struct fw_option_table table = volume_table(&config);
    return fw_tool_run(&table, count, arguments, action_run);
}

const struct fw_command fw_cmd_volume = {
    .name = "volume",
    .summary = "thin volumes on a shared disk, and who hands them out",
    .usage = "volume ACTION [OPTIONS] PATH [NAME]",
    .about = "Thin volumes on a disk or file that hosts share. The manager of a group grants\n"
             "extents to hosts in advance; their agents place them without asking.",
    .options = volume_options,
    .option_count = FW_ARRAY_LENGTH(volume_options),
    .action = volume_action,
    .run = volume_run,
};
