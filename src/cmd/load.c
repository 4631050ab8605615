/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway load: stores what `fairway dump` has written in a running server, a Fairway or any other
 * memcached since 1.6.
 *
 * The thread of the command reads blocks; each is checked and stored by one of the others, over a
 * connection of its own, with `ms` commands that are answered only if something is wrong, and `mn`
 * after some kilobytes of them, whose answer says that these are done. No more than two such
 * portions are ever on their way: a server that finds all of a block in its socket would work on it
 * for a while, and others who ask it something would wait.
 *
 * A file is gone through twice: once to see that it is whole, so that nothing of a damaged one is
 * loaded, and then to load it. What comes through a pipe can only be seen once: there the damage
 * ends the load, and what came before it is in the server.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cache/dump.h"
#include "cache/dump_wire.h"
#include "cmd/bulk.h"
#include "cmd/tool.h"
#include "io/clock.h"
#include "io/file_stream.h"

enum {
    BLOCKS_PER_CONNECTION = 2, /* One under way, one read ahead. */
    OUTPUT_SIZE = 32 * 1024,
    WINDOW = 8 * 1024,      /* So much is sent at a time, and twice that is never unanswered. */
    COPIED_MAX = 16 * 1024, /* Values up to that are sent with others, from the output. */
};
static_assert((int)OUTPUT_SIZE >= (int)WINDOW + (int)FW_DUMP_LINE_MAX + (int)COPIED_MAX,
              "who has less than a window can always add an item");

static const struct fw_option load_options[] = {
    FW_OPTION_STRING(struct fw_bulk_config, server, .name = "server", .default_text = "127.0.0.1",
                     .value_name = "ADDRESS",
                     .help = "where to; with or without a port, or unix:PATH"),
    FW_OPTION_STRING(struct fw_bulk_config, login_file, .name = "login", .value_name = "FILE",
                     .help = "a file with the line user:password, for a server that demands it"),
    FW_OPTION_STRING(struct fw_bulk_config, prefix, .name = "prefix", .max = FW_ITEM_KEY_MAX,
                     .help = "only keys that begin so"),
    FW_OPTION_UINT(struct fw_bulk_config, connections, .name = "connections", .default_text = "4",
                   .min = 1, .max = FW_BULK_CONNECTIONS_MAX, .unit = "connections",
                   .help = "how many work in parallel"),
    FW_OPTION_BOOL(struct fw_bulk_config, adds, .name = "add", .default_text = "no",
                   .help = "leave what is in the server already as it is"),
    FW_OPTION_BOOL(struct fw_bulk_config, checks, .name = "check", .default_text = "no",
                   .help = "only look whether the file is whole; no server is needed"),
    FW_OPTION_BOOL(struct fw_bulk_config, json, .name = "json", .default_text = "no",
                   .help = "say how it went as a JSON object"),
    FW_OPTION_DURATION(struct fw_bulk_config, patience_ns, .name = "timeout", .default_text = "10s",
                       .unit = "s", .min = 1, .help = "how long to wait for the server"),
};

struct load {
    struct fw_bulk bulk;
    size_t prefix_length;
    struct fw_file_reader file;
    struct fw_dump_reader reader;
};

/* A block, and the thread that works on it. */
struct unit {
    struct fw_job job;
    struct load *load;
    struct fw_dump_block block;
    struct fw_peer *peer;
    uint64_t items; /* Of this block: sent, their bytes, and those that had expired. */
    uint64_t bytes;
    uint64_t expired;
    uint32_t unanswered; /* Portions. */
    size_t output_length;
    char output[OUTPUT_SIZE];
};

static ssize_t file_read(void *context, void *buffer, size_t size, struct fw_reason *reason)
{
    return fw_file_reader_read(context, buffer, size, reason);
}

/* ---- a block ------------------------------------------------------------------------------- */

static int output_flush(struct unit *unit, struct fw_reason *reason)
{
    int rc = fw_peer_send(unit->peer, unit->output, unit->output_length, reason);
    unit->output_length = 0;
    return rc;
}

static void output_add(struct unit *unit, const void *bytes, size_t size)
{
    FW_ASSERT(size <= OUTPUT_SIZE - unit->output_length);
    memcpy(unit->output + unit->output_length, bytes, size);
    unit->output_length += size;
}

/* What came of the oldest portion: only what went wrong is answered, and its end. */
static int unit_receive(struct unit *unit, struct fw_reason *reason)
{
    struct fw_bulk *bulk = &unit->load->bulk;
    for (;;) {
        size_t length, used;
        int rc;
        const char *line = fw_peer_line(unit->peer, &length, &used, &rc, reason);
        if (line == NULL) {
            return rc;
        }
        bool is_last = length == 2 && memcmp(line, "MN", 2) == 0;
        if (length >= 2 && memcmp(line, "NS", 2) == 0 && bulk->config->adds) {
            fw_bulk_count(&bulk->present, 1);
        } else if (!is_last) {
            fw_bulk_refused(bulk, line, length);
        }
        fw_peer_take(unit->peer, used);
        if (is_last) {
            unit->unanswered--;
            return 0;
        }
    }
}

/* Ends a portion, and waits until no more than `unanswered_max` are under way. */
static int unit_settle(struct unit *unit, uint32_t unanswered_max, struct fw_reason *reason)
{
    int rc = 0;
    if (unit->output_length > 0) {
        output_add(unit, "mn\r\n", 4);
        unit->unanswered++;
        rc = output_flush(unit, reason);
    }
    while (rc == 0 && unit->unanswered > unanswered_max) {
        rc = unit_receive(unit, reason);
    }
    return rc;
}

static int unit_store(struct unit *unit, const struct fw_dump_item *item, int64_t now_s,
                      struct fw_reason *reason)
{
    int rc = 0;
    bool is_copied = item->value_length <= COPIED_MAX;
    char *to = unit->output + unit->output_length;
    char *end = fw_dump_wire_put_set(to, item, now_s, unit->load->bulk.config->adds);
    if (end == NULL) {
        unit->expired++;
        return 0;
    }
    unit->items++;
    unit->bytes += (uint64_t)item->key_length + item->value_length;
    unit->output_length += (size_t)(end - to);
    if (is_copied) {
        output_add(unit, item->value, item->value_length);
    } else {
        rc = output_flush(unit, reason);
        rc = rc == 0 ? fw_peer_send(unit->peer, item->value, item->value_length, reason) : rc;
    }
    output_add(unit, "\r\n", 2);
    return rc == 0 && unit->output_length >= WINDOW ? unit_settle(unit, 1, reason) : rc;
}

static bool unit_wants(const struct unit *unit, const struct fw_dump_item *item)
{
    const char *prefix = unit->load->bulk.config->prefix;
    return prefix == NULL || (item->key_length >= unit->load->prefix_length &&
                              memcmp(item->key, prefix, unit->load->prefix_length) == 0);
}

/* Sends the items, or only looks at them. */
static int unit_send(struct unit *unit, struct fw_reason *reason)
{
    struct fw_dump_cursor cursor = {0};
    struct fw_dump_item item;
    int64_t now_s = fw_clock_wall_ns() / FW_NS_PER_S;
    int rc = fw_dump_check(&unit->block, reason);
    while (rc == 0 && (rc = fw_dump_next_item(&unit->block, &cursor, &item, reason)) == 1) {
        if (unit->peer == NULL) {
            unit->items++;
            unit->bytes += (uint64_t)item.key_length + item.value_length;
            rc = 0;
        } else {
            rc = unit_wants(unit, &item) ? unit_store(unit, &item, now_s, reason) : 0;
        }
    }
    return rc;
}

static void unit_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct unit *unit = FW_CONTAINER_OF(job, struct unit, job);
    struct fw_bulk *bulk = &unit->load->bulk;
    struct fw_reason reason;
    unit->peer = NULL;
    unit->output_length = 0;
    unit->unanswered = 0;
    unit->items = 0;
    unit->bytes = 0;
    unit->expired = 0;
    if (!bulk->config->checks && !atomic_load(&bulk->must_end)) {
        unit->peer = fw_bulk_peer_take(bulk);
    }
    if (atomic_load(&bulk->must_end)) {
        goto out;
    }
    int rc = unit_send(unit, &reason);
    if (rc == 0 && unit->peer != NULL) {
        rc = unit_settle(unit, 0, &reason);
    }
    if (rc != 0) {
        fw_bulk_fail(bulk, rc, &reason);
    }
    fw_bulk_count(&bulk->items, unit->items);
    fw_bulk_count(&bulk->bytes, unit->bytes);
    fw_bulk_count(&bulk->expired, unit->expired);
    fw_bulk_count(&bulk->done, FW_DUMP_BLOCK_HEAD + unit->block.length);
out:
    if (unit->peer != NULL) {
        fw_bulk_peer_give(bulk, unit->peer, !atomic_load(&bulk->must_end));
    }
}

static struct fw_job_runnable units = {.run = unit_run};

/* ---- the file ------------------------------------------------------------------------------ */

/* Is all of it there, and as it was written? */
static int load_verify(struct load *load, struct fw_reason *reason)
{
    struct fw_dump_block block;
    fw_dump_block_init(&block);
    int rc = fw_dump_open(&load->reader, reason);
    while (rc == 0 && !atomic_load(&load->bulk.must_end) &&
           (rc = fw_dump_next_block(&load->reader, &block, reason)) == 1) {
        struct fw_dump_cursor cursor = {0};
        struct fw_dump_item item;
        rc = fw_dump_check(&block, reason);
        while (rc == 0 && (rc = fw_dump_next_item(&block, &cursor, &item, reason)) == 1) {
            rc = 0;
        }
        fw_bulk_tick(&load->bulk);
    }
    fw_dump_block_fini(&block);
    if (rc == 0 && !fw_file_reader_rewind(&load->file)) {
        rc = fw_reason_set(reason, -ESPIPE, "cannot go back to its begin");
    }
    return rc;
}

/* Hands out one block after the other; `idle` has all units at first, and at the end again. */
static int load_blocks(struct load *load, struct unit **idle, size_t count,
                       struct fw_reason *reason)
{
    struct fw_bulk *bulk = &load->bulk;
    size_t idle_count = count;
    int rc = fw_dump_open(&load->reader, reason);
    while (rc == 0 && !atomic_load(&bulk->must_end)) {
        if (idle_count == 0) {
            struct fw_job *job = fw_bulk_rejoin(bulk);
            FW_ASSERT(job != NULL);
            idle[idle_count++] = FW_CONTAINER_OF(job, struct unit, job);
        }
        struct unit *unit = idle[idle_count - 1];
        rc = fw_dump_next_block(&load->reader, &unit->block, reason);
        if (rc != 1) {
            break;
        }
        idle_count--;
        rc = fw_jobs_post(bulk->jobs, &unit->job, &units, bulk, 0,
                          FW_JOB_UNIT | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY);
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "cannot post a unit of work");
        }
        fw_bulk_tick(bulk);
    }
    while (fw_bulk_rejoin(bulk) != NULL) {
    }
    return rc;
}

static int load_all(struct load *load, struct fw_reason *reason)
{
    size_t count = BLOCKS_PER_CONNECTION * load->bulk.config->connections;
    struct unit *all = calloc(count, sizeof *all);
    struct unit **idle = calloc(count, sizeof(struct unit *));
    if (all == NULL || idle == NULL) {
        free(all);
        free(idle);
        return fw_reason_errno(reason, -ENOMEM, "no memory for blocks");
    }
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        all[i].load = load;
        fw_dump_block_init(&all[i].block);
        idle[i] = &all[i];
    }
    if (rc == 0 && load->file.size > 0 && !load->bulk.config->checks) {
        rc = load_verify(load, reason);
    }
    if (rc == 0) {
        atomic_store(&load->bulk.total, load->file.size);
        rc = load_blocks(load, idle, count, reason);
    }
    for (size_t i = 0; i < count; i++) {
        fw_dump_block_fini(&all[i].block);
    }
    free(all);
    free(idle);
    return rc;
}

static enum fw_cmd_status load_from(struct load *load, const char *path)
{
    struct fw_reason reason;
    int rc = fw_file_reader_open(&load->file, strcmp(path, "-") == 0 ? NULL : path, &reason);
    if (rc == 0) {
        load->reader = (struct fw_dump_reader){.read = file_read, .context = &load->file};
        rc = load_all(load, &reason);
        fw_file_reader_close(&load->file);
    }
    if (rc != 0) {
        fw_bulk_fail(&load->bulk, rc, &reason);
    }
    /* What was refused or there already was counted as sent before. */
    atomic_fetch_sub(&load->bulk.items,
                     atomic_load(&load->bulk.failed) + atomic_load(&load->bulk.present));
    return fw_bulk_report(&load->bulk, path, false);
}

static enum fw_cmd_status load_words(void *context, const struct fw_option_list *words)
{
    const struct fw_bulk_config *config = context;
    static struct load load;
    struct fw_reason reason;
    if (words->count != 1) {
        return fw_cmd_fail(FW_CMD_USAGE, "load takes one file, or - for standard input; see "
                                         "'fairway help load'");
    }
    int rc = fw_bulk_begin(&load.bulk, config, config->checks ? "found" : "loaded", &reason);
    if (rc != 0) {
        return fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason.text);
    }
    load.prefix_length = config->prefix != NULL ? strlen(config->prefix) : 0;
    enum fw_cmd_status status = load_from(&load, words->items[0]);
    fw_bulk_end(&load.bulk);
    return status;
}

static struct fw_bulk_config load_config;

static const struct fw_option_table load_table = {.module = "load",
                                                  .options = load_options,
                                                  .count = FW_ARRAY_LENGTH(load_options),
                                                  .config = &load_config};

static enum fw_cmd_status load_run(int count, char **arguments)
{
    return fw_tool_run(&load_table, count, arguments, load_words);
}

const struct fw_command fw_cmd_load = {
    .name = "load",
    .summary = "store the items of such a file in a running server",
    .usage = "load [OPTIONS] FILE",
    .about = "Stores the items of FILE, or of standard input for -, in a running server: a\n"
             "Fairway or a memcached, 1.6 or later. Items keep their flags, and expire when\n"
             "they would have. A damaged file is refused, with the place of the damage.",
    .options = load_options,
    .option_count = FW_ARRAY_LENGTH(load_options),
    .run = load_run,
};
