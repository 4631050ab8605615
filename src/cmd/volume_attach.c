/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway volume attach, fairway volume detach: start and end an nbdkit that serves a volume on a
 * socket. Beside the socket stand its number (.pid), what it said when it started (.log), and the
 * sign that it serves (.ready).
 *
 * It may be killed as well, with no more harm than to a disk whose machine lost power; so detach
 * does that to one that does not end by itself, because somebody has it mounted still, or waits for
 * an extent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "cmd/volume.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process.h"
#include "io/signal.h"
#include "io/spawn.h"

enum {
    PATH_SIZE = 4096,
    WORD_SIZE = PATH_SIZE + 16,
    LOG_MAX = 64 << 10,
    LOOK_MS = 20,
    NAME_SIZE = 256
};

struct beside {
    char pid[PATH_SIZE];
    char log[PATH_SIZE];
    char ready[PATH_SIZE];
};

static void beside_make(struct beside *beside, const char *socket)
{
    (void)snprintf(beside->pid, sizeof beside->pid, "%s.pid", socket);
    (void)snprintf(beside->log, sizeof beside->log, "%s.log", socket);
    (void)snprintf(beside->ready, sizeof beside->ready, "%s.ready", socket);
}

static void beside_remove(const struct beside *beside, const char *socket)
{
    fw_process_pid_file_remove(beside->pid);
    fw_process_pid_file_remove(beside->log);
    fw_process_pid_file_remove(beside->ready);
    fw_process_pid_file_remove(socket);
}

/* The number in the file; 0: there is none. */
static pid_t pid_read(const char *path)
{
    char *text;
    size_t size;
    if (fw_file_read(path, NAME_SIZE, &text, &size, NULL) != 0) {
        return 0;
    }
    long number = strtol(text, NULL, 10);
    free(text);
    return number > 1 && number < INT32_MAX ? (pid_t)number : 0;
}

/* Why it ended, in its own words: the first line of its log. */
static enum fw_cmd_status tell_why(const struct fw_cmd_volume *config, const struct beside *beside)
{
    char *text;
    size_t size;
    struct fw_reason reason;
    if (fw_file_read(beside->log, LOG_MAX, &text, &size, &reason) != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "nbdkit ended: %s", reason.text);
    }
    text[strcspn(text, "\n")] = '\0';
    enum fw_cmd_status status = fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, text);
    free(text);
    return status;
}

/* Starts it; it goes into the background when it knows that it can serve. */
static int serve(const struct fw_cmd_volume *config, const struct beside *beside,
                 struct fw_reason *reason)
{
    char words[4][WORD_SIZE];
    char host[NAME_SIZE];
    pid_t child;
    fw_process_host_name(host, sizeof host);
    (void)snprintf(words[0], WORD_SIZE, "path=%s", config->path);
    (void)snprintf(words[1], WORD_SIZE, "host=%s", config->host[0] != '\0' ? config->host : host);
    (void)snprintf(words[2], WORD_SIZE, "volume=%s", config->name);
    (void)snprintf(words[3], WORD_SIZE, "ready=%s", beside->ready);
    const char *const arguments[] = {"nbdkit",    "--unix",       config->nbd, "--pidfile",
                                     beside->pid, config->plugin, words[0],    words[1],
                                     words[2],    words[3],       NULL};
    int rc = fw_spawn_start(arguments, beside->log, &child, reason);
    return rc == 0 ? fw_spawn_wait(child) : rc;
}

enum fw_cmd_status fw_cmd_volume_attach(const struct fw_cmd_volume *config)
{
    struct beside beside;
    struct fw_reason reason;
    struct fw_parker parker;
    if (config->nbd[0] == '\0') {
        return fw_cmd_fail(FW_CMD_USAGE, "attach needs --nbd SOCKET");
    }
    beside_make(&beside, config->nbd);
    pid_t old = pid_read(beside.pid);
    if (old != 0 && fw_spawn_is_alive(old)) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: process %d serves it already", config->nbd,
                           (int)old);
    }
    beside_remove(&beside, config->nbd); /* Of one that was killed. */
    int rc = serve(config, &beside, &reason);
    if (rc != 0 && rc != -ECHILD) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s; NBD needs the package nbdkit", reason.text);
    }
    fw_parker_init(&parker);
    int64_t deadline_ns = fw_clock_now_ns() + INT64_C(60) * FW_NS_PER_S;
    while (rc == 0 && pid_read(beside.ready) == 0) {
        pid_t process = pid_read(beside.pid);
        bool is_gone = process != 0 && !fw_spawn_is_alive(process);
        if (is_gone || fw_clock_now_ns() >= deadline_ns) {
            return fw_cmd_fail(FW_CMD_FAILED, "%s: nbdkit does not serve; the system's log has why",
                               config->path);
        }
        (void)fw_park_for(&parker, (int64_t)LOOK_MS * FW_NS_PER_MS);
    }
    if (rc != 0) {
        return tell_why(config, &beside);
    }
    (void)printf("nbd+unix:///?socket=%s\n", config->nbd);
    return FW_CMD_OK;
}

enum fw_cmd_status fw_cmd_volume_detach(const struct fw_cmd_volume *config)
{
    struct beside beside;
    struct fw_parker parker;
    fw_parker_init(&parker);
    beside_make(&beside, config->path);
    pid_t process = pid_read(beside.pid);
    if (process == 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: there is no %s; is it attached?", config->path,
                           beside.pid);
    }
    int64_t patience_ns = config->wait_ns > 0 ? config->wait_ns : INT64_C(10) * FW_NS_PER_S;
    int64_t deadline_ns = fw_clock_now_ns() + patience_ns;
    int rc = fw_spawn_signal(process, SIGTERM);
    while (rc == 0 && fw_spawn_is_alive(process)) {
        if (fw_clock_now_ns() >= deadline_ns) {
            rc = fw_spawn_signal(process, SIGKILL);
            deadline_ns = INT64_MAX;
        }
        (void)fw_park_for(&parker, (int64_t)LOOK_MS * FW_NS_PER_MS);
    }
    if (rc != 0 && rc != -ESRCH) {
        struct fw_reason reason;
        (void)fw_reason_errno(&reason, rc, "cannot end process %d", (int)process);
        return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, reason.text);
    }
    beside_remove(&beside, config->path);
    return FW_CMD_OK;
}
