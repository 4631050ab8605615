/* SPDX-License-Identifier: Apache-2.0 */
#include "epoch/corosync_attempt.h"

#include <corosync/cmap.h>
#include <corosync/corotypes.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/clock.h"

/* Corosync says TRY_AGAIN while it forms a ring. */
enum { AGAIN_COUNT_MAX = 1000, AGAIN_MS = 10 };

/* What the thread needs; its own. */
struct request {
    int fd;
    struct cpg_name name;
    const cpg_model_v1_data_t *model;
};

static int reason_of(struct fw_reason *reason, cs_error_t error, const char *call)
{
    switch ((int)error) {
    case CS_ERR_LIBRARY:
    case CS_ERR_NOT_EXIST:
        return fw_reason_set(reason, -ECONNREFUSED,
                             "Corosync does not answer on this machine; is it running?");
    case CS_ERR_ACCESS:
    case CS_ERR_SECURITY:
        return fw_reason_set(reason, -EACCES,
                             "Corosync does not know this user; allow it by a file in "
                             "/etc/corosync/uidgid.d");
    case CS_ERR_TRY_AGAIN:
        return fw_reason_set(reason, -EAGAIN, "Corosync has been busy for long (%s)", call);
    case CS_ERR_EXIST:
        return fw_reason_set(reason, -EEXIST,
                             "a process with this number is in the group already; containers "
                             "that share a Corosync must share the numbers of processes too");
    default:
        return fw_reason_set(reason, -EIO, "Corosync answers %s with its error %d", call,
                             (int)error);
    }
}

/* ---- what Corosync's configuration says ---------------------------------------------------- */

/* "nodelist.node.NUMBER.ring0_addr": every node has one. */
static bool key_is_node(const char *key)
{
    static const char ending[] = ".ring0_addr";
    size_t length = strlen(key);
    return length > sizeof ending && strcmp(key + length - (sizeof ending - 1), ending) == 0;
}

static uint32_t nodes_count(cmap_handle_t cmap)
{
    cmap_iter_handle_t iterator;
    if (cmap_iter_init(cmap, "nodelist.node.", &iterator) != CS_OK) {
        return 0;
    }
    uint32_t count = 0;
    char key[CMAP_KEYNAME_MAXLEN + 1];
    size_t length;
    cmap_value_types_t type;
    while (cmap_iter_next(cmap, iterator, key, &length, &type) == CS_OK) {
        count += key_is_node(key);
    }
    (void)cmap_iter_finalize(cmap, iterator);
    return count;
}

/* What is not there stays 0. */
static cs_error_t configuration_read(struct fw_corosync_answer *answer)
{
    cmap_handle_t cmap;
    cs_error_t error = cmap_initialize(&cmap);
    if (error != CS_OK) {
        return error;
    }
    answer->node_count = nodes_count(cmap);
    if (cmap_get_uint32(cmap, "runtime.config.totem.token", &answer->token_ms) != CS_OK) {
        answer->token_ms = 0;
    }
    if (cmap_get_uint32(cmap, "runtime.config.totem.consensus", &answer->consensus_ms) != CS_OK) {
        answer->consensus_ms = 0;
    }
    (void)cmap_finalize(cmap);
    return CS_OK;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static cs_error_t group_join(const struct request *request, cpg_handle_t handle)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    cs_error_t error = CS_ERR_TRY_AGAIN;
    for (int i = 0; i < AGAIN_COUNT_MAX && error == CS_ERR_TRY_AGAIN; i++) {
        if (i > 0) {
            (void)fw_park_for(&parker, AGAIN_MS * (int64_t)FW_NS_PER_MS);
        }
        error = cpg_join(handle, &request->name);
    }
    return error;
}

static void request_perform(const struct request *request, struct fw_corosync_answer *answer)
{
    *answer = (struct fw_corosync_answer){0};
    cpg_model_v1_data_t model = *request->model;
    /* NOLINTNEXTLINE(bugprone-casting-through-void): how the library takes its versions. */
    cs_error_t error = cpg_model_initialize(&answer->handle, CPG_MODEL_V1,
                                            (cpg_model_data_t *)(void *)&model, NULL);
    if (error != CS_OK) {
        answer->error = reason_of(&answer->reason, error, "cpg_model_initialize");
        return;
    }
    const char *call = "cmap_initialize";
    error = configuration_read(answer);
    if (error == CS_OK) {
        call = "cpg_local_get";
        error = cpg_local_get(answer->handle, &answer->node);
    }
    if (error == CS_OK) {
        call = "cpg_join";
        error = group_join(request, answer->handle);
    }
    if (error != CS_OK) {
        answer->error = reason_of(&answer->reason, error, call);
        fw_corosync_connection_end(answer->handle);
    }
}

static void *request_run(void *argument)
{
    struct request *request = argument;
    struct fw_corosync_answer answer;
    request_perform(request, &answer);
    if (send(request->fd, &answer, sizeof answer, MSG_NOSIGNAL) < 0 && answer.error == 0) {
        fw_corosync_connection_end(answer.handle); /* Nobody is there any more. */
    }
    (void)close(request->fd);
    free(request);
    return NULL;
}

/* Signals are for other threads. */
static int thread_start(struct request *request)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
    FW_ASSERT(rc == 0);
    pthread_t thread;
    int started = pthread_create(&thread, NULL, request_run, request);
    rc = pthread_sigmask(SIG_SETMASK, &before, NULL);
    FW_ASSERT(rc == 0);
    if (started == 0) {
        rc = pthread_detach(thread);
        FW_ASSERT(rc == 0);
    }
    return -started;
}

int fw_corosync_attempt_start(const char *name, const cpg_model_v1_data_t *model)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
        return -errno;
    }
    struct request *request = malloc(sizeof *request);
    int rc = request == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        size_t length = strlen(name);
        *request = (struct request){.fd = ends[1], .model = model};
        FW_ASSERT(length < sizeof request->name.value);
        request->name.length = (uint32_t)length;
        memcpy(request->name.value, name, length);
        rc = thread_start(request);
    }
    if (rc != 0) {
        free(request);
        (void)close(ends[0]);
        (void)close(ends[1]);
        return rc;
    }
    return ends[0];
}

int fw_corosync_attempt_take(int fd, struct fw_corosync_answer *answer)
{
    ssize_t size = recv(fd, answer, sizeof *answer, 0);
    if (size < 0) {
        return -errno;
    }
    FW_ASSERT((size_t)size == sizeof *answer); /* The thread sends one, whole, before it ends. */
    return 0;
}

void fw_corosync_attempt_abandon(int fd)
{
    struct fw_corosync_answer answer;
    /* From here on the thread cannot send; what it had sent before is still there. */
    int rc = shutdown(fd, SHUT_RD);
    FW_ASSERT(rc == 0);
    if (recv(fd, &answer, sizeof answer, 0) == (ssize_t)sizeof answer && answer.error == 0) {
        fw_corosync_connection_end(answer.handle);
    }
    (void)close(fd);
}

void fw_corosync_connection_end(cpg_handle_t handle)
{
    int fd = -1;
    /* Corosync takes a closed connection for leaving; asked politely, it may let us wait. */
    if (cpg_fd_get(handle, &fd) == CS_OK) {
        (void)shutdown(fd, SHUT_RDWR);
    }
    (void)cpg_finalize(handle);
}
