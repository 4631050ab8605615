/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway volume attach, fairway volume detach: start and end an nbdkit that serves the volumes of
 * a group on a socket, each as an export of its name. To attach another one is only to see that it
 * is there: the nbdkit that runs serves it too. Beside the socket stand its number, for people
 * (.pid), what it said when it started (.log), the mark that it serves (.ready, io/mark.h), for
 * which host of which group (.for), and a lock for those who attach or detach at the same moment
 * (.lock).
 *
 * It may be killed as well, with no more harm than to a disk whose machine lost power; so detach
 * does that to one that does not end by itself, because the disk does not answer.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "cmd/volume.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/mark.h"
#include "io/nbd.h"
#include "io/process.h"
#include "io/signal.h"
#include "io/spawn.h"

enum {
    PATH_SIZE = 4096,
    WORD_SIZE = PATH_SIZE + 16,
    LOG_MAX = 64 << 10,
    LOOK_MS = 20,
    PATIENCE_S = 10,
    NAME_SIZE = 256,
    FILE_MODE = 0644,
};

struct beside {
    char pid[PATH_SIZE];
    char log[PATH_SIZE];
    char ready[PATH_SIZE];
    char purpose[PATH_SIZE];
    char lock[PATH_SIZE];
};

static void beside_make(struct beside *beside, const char *socket)
{
    (void)snprintf(beside->pid, sizeof beside->pid, "%s.pid", socket);
    (void)snprintf(beside->log, sizeof beside->log, "%s.log", socket);
    (void)snprintf(beside->ready, sizeof beside->ready, "%s.ready", socket);
    (void)snprintf(beside->purpose, sizeof beside->purpose, "%s.for", socket);
    (void)snprintf(beside->lock, sizeof beside->lock, "%s.lock", socket);
}

static void beside_remove(const struct beside *beside, const char *socket)
{
    fw_process_pid_file_remove(beside->pid);
    fw_process_pid_file_remove(beside->log);
    fw_process_pid_file_remove(beside->ready);
    fw_process_pid_file_remove(beside->purpose);
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
    bool has_plugin = strstr(text, "cannot open plugin") == NULL;
    enum fw_cmd_status status =
        fw_cmd_fail(FW_CMD_FAILED, "%s: %s%s", config->path, text,
                    has_plugin ? "" : "; to build the plugin, " FW_REASON_ADD("nbdkit"));
    free(text);
    return status;
}

struct served {
    const struct fw_cmd_volume *config;
    struct beside beside;
    char host[NAME_SIZE];
    char purpose[WORD_SIZE + NAME_SIZE];
};

/* Starts it; it goes into the background when it knows that it can serve. */
static int serve(const struct served *served, struct fw_reason *reason)
{
    const struct fw_cmd_volume *config = served->config;
    const struct beside *beside = &served->beside;
    char words[5][WORD_SIZE];
    pid_t child;
    (void)snprintf(words[0], WORD_SIZE, "path=%s", config->path);
    (void)snprintf(words[1], WORD_SIZE, "host=%s", served->host);
    (void)snprintf(words[2], WORD_SIZE, "volume=%s", config->name);
    (void)snprintf(words[3], WORD_SIZE, "ready=%s", beside->ready);
    (void)snprintf(words[4], WORD_SIZE, "full=%" PRId64, config->full_ns / FW_NS_PER_MS);
    const char *const arguments[] = {"nbdkit",    "--unix",       config->nbd, "--pidfile",
                                     beside->pid, config->plugin, words[0],    words[1],
                                     words[2],    words[3],       words[4],    NULL};
    int rc = fw_file_replace(beside->purpose, served->purpose, strlen(served->purpose), FILE_MODE,
                             reason);
    if (rc == 0) {
        rc = fw_spawn_start(arguments, beside->log, &child, reason);
    }
    return rc == 0 ? fw_spawn_wait(child) : rc;
}

static enum fw_cmd_status serve_begin(const struct served *served)
{
    const struct fw_cmd_volume *config = served->config;
    struct fw_reason reason;
    struct fw_parker parker;
    beside_remove(&served->beside, config->nbd); /* Of one that was killed. */
    int rc = serve(served, &reason);
    if (rc != 0 && rc != -ECHILD) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s; to add NBD, " FW_REASON_ADD("nbdkit"), reason.text);
    }
    fw_parker_init(&parker);
    int64_t deadline_ns = fw_clock_now_ns() + INT64_C(60) * FW_NS_PER_S;
    while (rc == 0 && fw_cmd_volume_server(config->nbd) == 0) {
        pid_t process = pid_read(served->beside.pid);
        bool is_gone = process != 0 && !fw_spawn_is_alive(process);
        if (is_gone || fw_clock_now_ns() >= deadline_ns) {
            return fw_cmd_fail(FW_CMD_FAILED, "%s: nbdkit does not serve; the system's log has why",
                               config->path);
        }
        (void)fw_park_for(&parker, (int64_t)LOOK_MS * FW_NS_PER_MS);
    }
    return rc == 0 ? FW_CMD_OK : tell_why(config, &served->beside);
}

/* One runs: whether it is the right one, and whether the volume can be had. */
static enum fw_cmd_status serve_also(const struct served *served, pid_t process)
{
    const struct fw_cmd_volume *config = served->config;
    struct fw_cmd_volume_view view = {.metadata = {.extent_count = 0}};
    char *purpose;
    size_t size;
    if (fw_file_read(served->beside.purpose, LOG_MAX, &purpose, &size, NULL) != 0) {
        purpose = NULL;
    }
    bool is_right = purpose != NULL && strcmp(purpose, served->purpose) == 0;
    free(purpose);
    if (!is_right) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: process %d serves another group or host there",
                           config->nbd, (int)process);
    }
    enum fw_cmd_status status = fw_cmd_volume_look(config, &view);
    if (status != FW_CMD_OK) {
        return status;
    }
    const struct fw_volume_metadata *metadata = &view.metadata;
    uint32_t index = fw_volume_metadata_find(metadata, config->name);
    uint32_t host = fw_volume_metadata_find_host(metadata, served->host);
    uint64_t others = index != FW_VOLUME_NONE && host != FW_VOLUME_NONE
                          ? metadata->volumes[index].users & ~(UINT64_C(1) << host)
                          : 0;
    if (index == FW_VOLUME_NONE) {
        status =
            fw_cmd_fail(FW_CMD_FAILED, "%s: there is no volume '%s'", config->path, config->name);
    } else if (others != 0) {
        status = fw_cmd_fail(FW_CMD_FAILED, "%s: host %s has '%s' open", config->path,
                             metadata->hosts[__builtin_ctzll(others)].name, config->name);
    }
    fw_volume_metadata_fini(&view.metadata);
    return status;
}

uint64_t fw_cmd_volume_server(const char *socket)
{
    struct beside beside;
    struct fw_mark mark;
    beside_make(&beside, socket);
    int rc = fw_mark_find(beside.ready, &mark);
    fw_mark_close(&mark);
    return rc == -ENOENT || rc == -ESRCH ? 0 : mark.id;
}

/* Lets the one that runs serve it too; or another, if that one is about to end. */
static enum fw_cmd_status serve_either(const struct served *served)
{
    const struct fw_cmd_volume *config = served->config;
    struct fw_reason reason;
    struct fw_mark mark;
    int rc = fw_mark_find(served->beside.ready, &mark);
    if (rc == -ENOENT || rc == -ESRCH) {
        return serve_begin(served);
    }
    if (fw_nbd_greeting(config->nbd, PATIENCE_S * (int64_t)FW_NS_PER_S, &reason) == 0) {
        fw_mark_close(&mark);
        return serve_also(served, mark.process);
    }
    bool has_ended = rc == 0 && fw_mark_wait(&mark, PATIENCE_S * (int64_t)FW_NS_PER_S);
    fw_mark_close(&mark);
    return has_ended ? serve_begin(served)
                     : fw_cmd_fail(FW_CMD_FAILED, "%s: process %d has it and does not answer: %s",
                                   config->nbd, (int)mark.process, reason.text);
}

enum fw_cmd_status fw_cmd_volume_serve(const struct fw_cmd_volume *config)
{
    struct served served = {.config = config};
    struct fw_file_lock lock;
    struct fw_reason reason;
    beside_make(&served.beside, config->nbd);
    if (config->host[0] != '\0') {
        (void)snprintf(served.host, sizeof served.host, "%s", config->host);
    } else {
        fw_process_host_name(served.host, sizeof served.host);
    }
    (void)snprintf(served.purpose, sizeof served.purpose, "host %s of %s\n", served.host,
                   config->path);
    if (fw_file_lock_wait(&lock, served.beside.lock, &reason) != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    }
    enum fw_cmd_status status = serve_either(&served);
    fw_file_lock_release(&lock);
    return status;
}

enum fw_cmd_status fw_cmd_volume_attach(const struct fw_cmd_volume *config)
{
    if (config->nbd[0] == '\0') {
        return fw_cmd_fail(FW_CMD_USAGE, "attach needs --nbd SOCKET");
    }
    enum fw_cmd_status status = fw_cmd_volume_serve(config);
    if (status == FW_CMD_OK && config->dm[0] != '\0') {
        return fw_cmd_volume_dm_attach(config);
    }
    if (status == FW_CMD_OK) {
        (void)printf("nbd+unix:///%s?socket=%s\n", config->name, config->nbd);
    }
    return status;
}

int fw_cmd_volume_end(const char *path, int64_t patience_ns)
{
    struct fw_mark mark;
    int rc = fw_mark_find(path, &mark);
    if (rc != 0) {
        return rc;
    }
    rc = fw_mark_signal(&mark, SIGTERM);
    if (rc == 0 && !fw_mark_wait(&mark, patience_ns)) {
        rc = fw_mark_signal(&mark, SIGKILL);
        while (rc == 0 && !fw_mark_wait(&mark, INT64_C(60) * FW_NS_PER_S)) {
        }
        rc = rc == 0 ? FW_CMD_VOLUME_KILLED : rc;
    }
    fw_mark_close(&mark);
    return rc == -ESRCH ? 0 : rc;
}

/* Under the lock of those who attach. */
static enum fw_cmd_status detach_locked(const struct fw_cmd_volume *config,
                                        const struct beside *beside)
{
    int64_t patience_ns = config->wait_ns > 0 ? config->wait_ns : PATIENCE_S * (int64_t)FW_NS_PER_S;
    int rc = fw_cmd_volume_end(beside->ready, patience_ns);
    struct fw_reason reason;
    if (rc == -ENOENT && pid_read(beside->pid) == 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: there is no %s; is it attached?", config->path,
                           beside->ready);
    }
    if (rc == -ENOENT && fw_nbd_greeting(config->path, patience_ns, &reason) == 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: a server answers that has no %s; end it yourself",
                           config->path, beside->ready);
    }
    if (rc < 0 && rc != -ESRCH && rc != -ENOENT) { /* Those two: it had been killed. */
        (void)fw_reason_errno(&reason, rc, "cannot end the process of %s", beside->ready);
        return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, reason.text);
    }
    beside_remove(beside, config->path);
    return rc != FW_CMD_VOLUME_KILLED
               ? FW_CMD_OK
               : fw_cmd_fail(FW_CMD_FAILED,
                             "%s: it did not end in time and was killed; volumes that were open "
                             "stay so on this host until it attaches again",
                             config->path);
}

enum fw_cmd_status fw_cmd_volume_detach(const struct fw_cmd_volume *config)
{
    struct beside beside;
    struct fw_file_lock lock;
    struct fw_reason reason;
    if (strncmp(config->path, FW_CMD_VOLUME_MAPPER, strlen(FW_CMD_VOLUME_MAPPER)) == 0) {
        return fw_cmd_volume_dm_detach(config);
    }
    beside_make(&beside, config->path);
    if (fw_file_lock_wait(&lock, beside.lock, &reason) != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, reason.text);
    }
    enum fw_cmd_status status = detach_locked(config, &beside);
    fw_process_pid_file_remove(beside.lock); /* Whoever waits for it takes another. */
    fw_file_lock_release(&lock);
    return status;
}
