/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway volume attach --dm NAME: a volume as /dev/mapper/NAME. What it is made of, and why, is in
 * volume/table.h: extents of the disk where there are some, and an NBD device of the kernel's,
 * which the host's nbdkit serves, where there are none.
 *
 * The command goes on as a process that looks every now and then whether there are more extents,
 * and loads the table again; and whether the nbdkit still lives: if not, it starts another and
 * connects the kernel to it, which has held back reads and writes of holes meanwhile. Without this
 * process the device works on; its holes stay holes in the table, which costs time and nothing
 * else. Another attach takes over.
 *
 * dmsetup is asked for all of it, and not libdevmapper: it knows how to wait for udev's nodes and
 * when not to, and what it says is what an administrator knows.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/thread.h"
#include "cmd/volume.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/mark.h"
#include "io/nbd.h"
#include "io/process.h"
#include "io/signal.h"
#include "io/spawn.h"
#include "volume/table.h"

FW_LOG_MODULE_USE(volume);

enum {
    PATH_SIZE = 256,
    STATE_MAX = 4096,
    FILE_MODE = 0600,
    LOOK_MS = 10,
    PAUSE_MS = 200,   /* Between two looks at the least, */
    PAUSE_TIMES = 20, /* and so many times as long as a look takes. */
    LOAD_S = 5,       /* How long reads and writes may be held up for another table. */
};

struct device {
    const struct fw_cmd_volume *config;
    char state[PATH_SIZE]; /* A file with the process's number and that of the NBD device, */
    char table[PATH_SIZE]; /* one with the table, */
    char log[PATH_SIZE];   /* and what dmsetup said. */
    uint32_t nbd;
    char nbd_path[PATH_SIZE];
    uint64_t server; /* Whom the kernel is connected to. */
    struct fw_volume_table loaded;
    int64_t next_ns;
};

static void device_init(struct device *device, const struct fw_cmd_volume *config, const char *name)
{
    *device = (struct device){.config = config};
    (void)snprintf(device->state, PATH_SIZE, "/run/fairway-%s.dm", name);
    (void)snprintf(device->table, PATH_SIZE, "/run/fairway-%s.table", name);
    (void)snprintf(device->log, PATH_SIZE, "/run/fairway-%s.log", name);
}

/* Who keeps it, and which NBD device it has. As fw_mark_find(), whose mark is closed. */
static int state_read(struct device *device, pid_t *process)
{
    struct fw_mark mark;
    int rc = fw_mark_find(device->state, &mark);
    fw_mark_close(&mark);
    *process = mark.process;
    device->nbd = (uint32_t)strtoul(mark.text, NULL, 10);
    (void)snprintf(device->nbd_path, PATH_SIZE, "/dev/nbd%" PRIu32, device->nbd);
    return rc;
}

static int state_write(const struct device *device, struct fw_reason *reason)
{
    char text[FW_MARK_TEXT];
    (void)snprintf(text, sizeof text, "%" PRIu32, device->nbd);
    return fw_mark_make(device->state, text, reason);
}

/* Runs dmsetup, and not for ever. -ETIMEDOUT: it was ended, and nothing has changed. */
static int dmsetup(const struct device *device, const char *const *arguments,
                   struct fw_reason *reason)
{
    pid_t child;
    struct fw_parker parker;
    fw_parker_init(&parker);
    fw_process_pid_file_remove(device->log);
    int rc = fw_spawn_start(arguments, device->log, &child, reason);
    if (rc != 0) {
        return rc;
    }
    int64_t deadline_ns = fw_clock_now_ns() + LOAD_S * (int64_t)FW_NS_PER_S;
    bool is_late = false;
    while (!is_late && fw_spawn_is_alive(child)) {
        is_late = fw_clock_now_ns() >= deadline_ns;
        (void)fw_park_for(&parker, (int64_t)LOOK_MS * FW_NS_PER_MS);
    }
    if (is_late) {
        (void)!fw_spawn_signal(child, SIGKILL);
    }
    rc = fw_spawn_wait(child);
    if (rc != 0 && !is_late) {
        char *text;
        size_t size;
        bool is_said = fw_file_read(device->log, STATE_MAX, &text, &size, NULL) == 0;
        (void)fw_reason_set(reason, rc, "dmsetup %s: %.150s", arguments[1],
                            is_said ? text : "it failed");
        free(is_said ? text : NULL);
    }
    return rc != 0 && is_late ? fw_reason_set(reason, -ETIMEDOUT,
                                              "dmsetup %s takes too long; is "
                                              "a write waiting for an extent?",
                                              arguments[1])
                              : rc;
}

static bool is_mapped(const struct device *device)
{
    const char *const info[] = {"dmsetup", "info", device->config->dm, NULL};
    return fw_spawn_run(info, NULL, 0, NULL) == 0;
}

/* udev makes and removes the device's node; where there is no udev, this does. */
static int node_mend(const struct device *device, const char *name, struct fw_reason *reason)
{
    const char *const nodes[] = {"dmsetup", "mknodes", name, NULL};
    return dmsetup(device, nodes, reason);
}

/* Makes the device's table the one that is in the file. */
static int table_load(const struct device *device, struct fw_reason *reason)
{
    const char *name = device->config->dm;
    const char *const create[] = {"dmsetup", "create", name, device->table, NULL};
    const char *const reload[] = {"dmsetup", "reload", name, device->table, NULL};
    /* Nothing has to be written back first: what is under way ends, and goes on elsewhere. */
    const char *const resume[] = {"dmsetup", "resume", "--noflush", "--nolockfs", name, NULL};
    if (!is_mapped(device)) {
        int rc = dmsetup(device, create, reason);
        return rc == 0 ? node_mend(device, name, reason) : rc;
    }
    int rc = dmsetup(device, reload, reason);
    return rc == 0 ? dmsetup(device, resume, reason) : rc;
}

/* Looks what is true now, and loads it if it is something else than is loaded. */
static int table_follow(struct device *device, struct fw_reason *reason)
{
    const struct fw_cmd_volume *config = device->config;
    const char *const devices[2] = {config->path, device->nbd_path};
    struct fw_cmd_volume_view view = {.metadata = {.extent_count = 0}};
    struct fw_volume_table table;
    if (fw_cmd_volume_look(config, &view) != FW_CMD_OK) {
        return fw_reason_set(reason, -EIO, "cannot read %.150s", config->path);
    }
    int rc = fw_volume_table_make(&table, &view.metadata, &view.geometry, config->name, devices);
    fw_volume_metadata_fini(&view.metadata);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot map '%s'", config->name);
    }
    if (device->loaded.text != NULL && strcmp(table.text, device->loaded.text) == 0) {
        fw_volume_table_fini(&table);
        return 0;
    }
    rc = fw_file_replace(device->table, table.text, table.length, FILE_MODE, reason);
    if (rc == 0) {
        rc = table_load(device, reason);
    }
    if (rc != 0) {
        fw_volume_table_fini(&table);
        return rc;
    }
    fw_volume_table_fini(&device->loaded);
    device->loaded = table;
    return 0;
}

/* Connects the kernel to the nbdkit that serves now. */
static int server_follow(struct device *device, bool is_new, struct fw_reason *reason)
{
    const struct fw_cmd_volume *config = device->config;
    uint64_t size;
    int connection;
    uint64_t server = fw_cmd_volume_server(config->nbd);
    if (server != 0 && server == device->server) {
        return 0;
    }
    if (server == 0 && fw_cmd_volume_serve(config) != FW_CMD_OK) {
        return fw_reason_set(reason, -ESRCH, "nbdkit has ended, and another cannot be started");
    }
    server = fw_cmd_volume_server(config->nbd);
    int rc = fw_nbd_connect(config->nbd, config->name, &connection, &size, reason);
    if (rc == 0 && is_new) {
        rc = fw_nbd_attach(connection, size, &device->nbd, reason);
        (void)snprintf(device->nbd_path, PATH_SIZE, "/dev/nbd%" PRIu32, device->nbd);
    } else if (rc == 0) {
        rc = fw_nbd_reattach(connection, device->nbd, reason);
        rc = rc == -ENOSPC ? 0 : rc; /* It has one that works. */
    }
    if (rc == 0) {
        device->server = server;
    }
    return rc;
}

static int device_begin(struct device *device, struct fw_reason *reason)
{
    pid_t keeper;
    int found = state_read(device, &keeper);
    bool is_known = found != -ENOENT && is_mapped(device);
    if (is_known && found != -ESRCH) {
        return fw_reason_set(reason, -EEXIST, "process %d has it attached already", (int)keeper);
    }
    int rc = server_follow(device, !is_known, reason);
    if (rc == 0) {
        rc = table_follow(device, reason);
        if (rc != 0 && !is_known) {
            (void)!fw_nbd_detach(device->nbd, NULL);
        }
    }
    return rc == 0 ? state_write(device, reason) : rc;
}

static int device_step(void *what, struct fw_ring_reason *public_reason)
{
    struct device *device = what;
    struct fw_reason reason = {.text = ""};
    (void)public_reason;
    int64_t before_ns = fw_clock_now_ns();
    if (before_ns < device->next_ns) {
        return 0;
    }
    int rc = server_follow(device, false, &reason);
    if (rc == 0) {
        rc = table_follow(device, &reason);
    }
    if (rc != 0) {
        FW_LOG(volume, WARNING, "%s: %s", device->config->dm, reason.text);
    }
    int64_t took_ns = fw_clock_now_ns() - before_ns;
    device->next_ns = fw_clock_now_ns() + PAUSE_TIMES * took_ns;
    return 0;
}

enum fw_cmd_status fw_cmd_volume_dm_attach(const struct fw_cmd_volume *config)
{
    struct device device;
    struct fw_reason reason = {.text = ""};
    if (!fw_volume_name_is_valid(config->dm)) {
        return fw_cmd_fail(FW_CMD_USAGE, "'%s' is no name for a device", config->dm);
    }
    device_init(&device, config, config->dm);
    int rc = fw_process_fork(&reason);
    if (rc == 0) {
        fw_cmd_volume_run_prepare();
        rc = device_begin(&device, &reason);
    }
    if (rc != 0) {
        fw_volume_table_fini(&device.loaded);
        return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, reason.text);
    }
    (void)printf(FW_CMD_VOLUME_MAPPER "%s\n", config->dm);
    (void)fflush(stdout);
    fw_process_detach();
    struct fw_ring_reason nothing;
    (void)!fw_cmd_volume_run((int64_t)PAUSE_MS * FW_NS_PER_MS, device_step, &device, &nothing);
    fw_volume_table_fini(&device.loaded);
    return FW_CMD_OK;
}

enum fw_cmd_status fw_cmd_volume_dm_detach(const struct fw_cmd_volume *config)
{
    const char *name = config->path + strlen(FW_CMD_VOLUME_MAPPER);
    const char *const remove[] = {"dmsetup", "remove", name, NULL};
    struct device device;
    struct fw_reason reason = {.text = ""};
    pid_t keeper;
    device_init(&device, config, name);
    if (!fw_volume_name_is_valid(name) || state_read(&device, &keeper) == -ENOENT) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: is it attached?", config->path);
    }
    int rc = dmsetup(&device, remove, &reason); /* Not while somebody uses it. */
    if (rc == 0) {
        rc = node_mend(&device, name, &reason);
    }
    if (rc == 0) {
        rc = fw_cmd_volume_end(device.state, INT64_C(10) * FW_NS_PER_S);
        rc = rc == -ESRCH || rc == FW_CMD_VOLUME_KILLED ? 0 : rc; /* It keeps nothing. */
    }
    if (rc == 0) {
        rc = fw_nbd_detach(device.nbd, &reason);
    }
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, reason.text);
    }
    fw_process_pid_file_remove(device.state);
    fw_process_pid_file_remove(device.table);
    fw_process_pid_file_remove(device.log);
    return FW_CMD_OK;
}
