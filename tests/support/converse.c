/* SPDX-License-Identifier: Apache-2.0 */
#include "support/converse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { MEMORY = 64 << 20, ITEM_SIZE_MAX = 1 << 20, LINES_MAX = 20 };

static bool host_stats(void *server, const char *group, struct fw_stat_walk *walk,
                       fw_stat_emit emit, void *context)
{
    (void)server;
    (void)walk;
    if (strcmp(group, "") == 0) {
        emit(context, "pid", "1");
        return true;
    }
    if (strcmp(group, "long") == 0) {
        for (int i = 0; i < 10000; i++) {
            emit(context, "row", "0123456789");
        }
        return true;
    }
    return false;
}

static void host_stats_reset(void *server)
{
    struct converse *converse = server;
    converse->resets++;
}

static void host_set_verbosity(void *server, unsigned level)
{
    struct converse *converse = server;
    converse->verbosity = level;
}

static int host_shutdown(void *server, bool is_graceful)
{
    struct converse *converse = server;
    (void)is_graceful;
    converse->is_shut_down = converse->may_shut_down;
    return converse->may_shut_down ? 0 : -EPERM;
}

struct converse *converse_create(void)
{
    return converse_create_large(MEMORY);
}

static struct converse *converse_make(void)
{
    struct converse *converse = aligned_alloc(FW_CACHE_LINE, (sizeof *converse + 63) / 64 * 64);
    FW_ASSERT(converse != NULL);
    memset(converse, 0, sizeof *converse);
    fw_metrics_init(&converse->registry);
    converse->cache.registry = &converse->registry;
    converse->cache.settings = (struct fw_cache_settings){.item_size_max = ITEM_SIZE_MAX,
                                                          .has_cas = true,
                                                          .has_flush = true,
                                                          .has_dump = true,
                                                          .lines_max = LINES_MAX};
    converse->cache.host = (struct fw_cache_host){.server = converse,
                                                  .stats = host_stats,
                                                  .stats_reset = host_stats_reset,
                                                  .set_verbosity = host_set_verbosity,
                                                  .shutdown = host_shutdown};
    return converse;
}

static void converse_begin(struct converse *converse, const struct fw_table_config *config)
{
    int error = fw_cache_init(&converse->cache, config, NULL);
    FW_ASSERT(error == 0);
    error = fw_cache_local_init(&converse->local, &converse->cache);
    FW_ASSERT(error == 0);
    fw_session_init(&converse->session, 1);
}

struct converse *converse_create_large(uint64_t memory)
{
    struct converse *converse = converse_make();
    converse_begin(converse,
                   &(struct fw_table_config){.memory = memory, .is_evicting = true, .seed = 1});
    return converse;
}

struct converse *converse_create_stored(uint32_t value_min, uint64_t space, bool is_evicting)
{
    struct converse *converse = converse_make();
    int error = fw_large_init(&converse->large, value_min, space);
    converse->file = calloc(1, space);
    FW_ASSERT(error == 0 && converse->file != NULL);
    converse->disk_good = UINT32_MAX;
    converse_begin(converse, &(struct fw_table_config){.memory = MEMORY,
                                                       .is_evicting = is_evicting,
                                                       .seed = 1,
                                                       .large = &converse->large});
    return converse;
}

void converse_destroy(struct converse *converse)
{
    fw_session_fini(&converse->session, &converse->local);
    fw_cache_local_fini(&converse->local);
    fw_cache_fini(&converse->cache);
    fw_metrics_fini(&converse->registry);
    if (converse->file != NULL) {
        fw_large_fini(&converse->large);
        free(converse->file);
    }
    free(converse->replies);
    free(converse);
}

void converse_reconnect(struct converse *converse)
{
    fw_session_fini(&converse->session, &converse->local);
    fw_session_init(&converse->session, 1);
    converse->input_length = 0;
    converse->wanted = 0;
    converse->replies_length = 0;
    converse->is_closed = false;
}

/* Where a part of a value is in the file, and how much of it in a row. */
static char *file_at(const struct converse *converse, struct fw_body *body, uint32_t offset,
                     uint32_t *size)
{
    uint32_t left = converse->large.piece_size - offset % converse->large.piece_size;
    *size = *size < left ? *size : left;
    return converse->file + fw_large_place(&converse->large, fw_stored_of(body), offset);
}

static void file_read(const struct converse *converse, struct fw_body *body, char *to)
{
    uint32_t size;
    for (uint32_t done = 0; done < body->length; done += size) {
        size = body->length - done;
        const char *from = file_at(converse, body, done, &size);
        memcpy(to + done, from, size);
    }
}

/* Writes the session's window, or refuses to. */
static void file_write(struct converse *converse)
{
    const struct fw_window *window;
    uint32_t window_size;
    struct fw_body *body = fw_session_window(&converse->session, &window, &window_size);
    int result = converse->disk_good > 0 ? 0 : converse->disk_error;
    uint32_t size;
    for (uint32_t done = 0; done < window_size && result == 0; done += size) {
        size = window_size - done;
        char *to = file_at(converse, body, window->begin + done, &size);
        memcpy(to, window->bytes + done, size);
    }
    converse->disk_good -= result == 0 ? 1 : 0;
    fw_session_written(&converse->session, &converse->local, result);
}

static void collect(struct converse *converse)
{
    struct fw_reply *reply = &converse->local.reply;
    uint32_t count = fw_reply_finish(reply);
    for (uint32_t i = 0; i < count; i++) {
        size_t length = reply->pieces[i].iov_len;
        while (converse->replies_size - converse->replies_length < length + 1) {
            converse->replies_size =
                converse->replies_size == 0 ? 4096 : 2 * converse->replies_size;
            converse->replies = realloc(converse->replies, converse->replies_size);
            FW_ASSERT(converse->replies != NULL);
        }
        char *to = converse->replies + converse->replies_length;
        if (reply->pieces[i].iov_base != NULL) {
            memcpy(to, reply->pieces[i].iov_base, length);
        } else {
            file_read(converse, reply->bodies[i], to);
        }
        converse->replies_length += length;
    }
    fw_reply_clear(reply);
}

const char *converse_answer(struct converse *converse)
{
    if (converse->replies_length == 0) {
        return "";
    }
    converse->replies[converse->replies_length] = '\0';
    converse->replies_length = 0;
    return converse->replies;
}

/* Runs until there is nothing to do but to wait for more. */
static void run(struct converse *converse)
{
    bool goes_on = true;
    while (goes_on) {
        struct fw_session_step step = fw_session_run(&converse->session, &converse->local,
                                                     converse->input, converse->input_length);
        FW_ASSERT(step.consumed <= converse->input_length);
        /* A run that neither eats nor speaks would be called for ever. */
        FW_ASSERT(step.end == FW_SESSION_INPUT || step.end == FW_SESSION_CLOSE ||
                  step.consumed > 0 || !fw_reply_is_empty(&converse->local.reply) ||
                  converse->session.state == FW_SESSION_LISTING ||
                  (converse->session.state == FW_SESSION_KEYS && step.keys > 0) ||
                  step.end == FW_SESSION_HELD || step.end == FW_SESSION_DISK);
        converse->runs[step.end]++;
        converse->commands += step.commands;
        converse->keys += step.keys;
        converse->wanted = step.wanted;
        converse->input_length -= step.consumed;
        memmove(converse->input, converse->input + step.consumed, converse->input_length);
        collect(converse);
        converse->is_closed = step.end == FW_SESSION_CLOSE;
        goes_on = step.end == FW_SESSION_OUTPUT || step.end == FW_SESSION_TURN ||
                  step.end == FW_SESSION_HELD || step.end == FW_SESSION_DISK;
        if (step.end == FW_SESSION_DISK) {
            file_write(converse);
        }
    }
    FW_ASSERT(converse->is_closed || converse->input_length < FW_SESSION_INPUT_MAX);
    FW_ASSERT(converse->is_closed || converse->wanted > 0);
    if (converse->input_length > converse->input_most) {
        converse->input_most = converse->input_length;
    }
}

void converse_say(struct converse *converse, const char *bytes, size_t size, size_t piece)
{
    while (size > 0 && !converse->is_closed) {
        size_t count = piece == 0 || piece > size ? size : piece;
        size_t room;
        char *body = fw_session_body(&converse->session, &room);
        if (body != NULL && room > 0 && converse->input_length == 0) {
            count = count < room ? count : room;
            memcpy(body, bytes, count);
            fw_session_body_received(&converse->session, count);
        } else {
            size_t left = sizeof converse->input - converse->input_length;
            count = count < left ? count : left;
            memcpy(converse->input + converse->input_length, bytes, count);
            converse->input_length += count;
        }
        bytes += count;
        size -= count;
        run(converse);
    }
}
