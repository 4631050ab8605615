/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway dump: all items of a running server, or those of a prefix, into a file.
 *
 * A Fairway is asked for its table in parts, each by one connection at a time, with `dump`. Any
 * other memcached is asked for its keys, by one connection, and the others get the items in lists
 * of some hundred keys as these come in. Both answer items in the same form (cache/dump_wire.h), so
 * that one reader serves both. Each thread fills a block of its own; blocks enter the file in the
 * order in which they are full.
 *
 * Nothing is at the file's name before all of it is there, whatever happens (io/file_stream.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/parse.h"
#include "cache/dump.h"
#include "cache/dump_wire.h"
#include "cache/walk.h"
#include "cmd/bulk.h"
#include "cmd/tool.h"
#include "io/clock.h"
#include "io/file_stream.h"

enum {
    KEYS_MAX = 256,           /* Of one list. */
    LISTS_PER_CONNECTION = 4, /* Made and not yet asked for. */
    KEYS_FIRST = 64 * 1024,   /* Bytes for keys that are on no list yet; it grows. */
    WORD_END = 2,             /* "\r\n" behind a value. */
    MODE = 0600,              /* What is in a cache is not everybody's. */
};

static const struct fw_option dump_options[] = {
    FW_OPTION_STRING(struct fw_bulk_config, server, .name = "server", .default_text = "127.0.0.1",
                     .value_name = "ADDRESS",
                     .help = "whose items; with or without a port, or unix:PATH"),
    FW_OPTION_STRING(struct fw_bulk_config, login_file, .name = "login", .value_name = "FILE",
                     .help = "a file with the line user:password, for a server that demands it"),
    FW_OPTION_STRING(struct fw_bulk_config, prefix, .name = "prefix", .max = FW_ITEM_KEY_MAX,
                     .help = "only keys that begin so"),
    FW_OPTION_UINT(struct fw_bulk_config, connections, .name = "connections", .default_text = "4",
                   .min = 1, .max = FW_BULK_CONNECTIONS_MAX, .unit = "connections",
                   .help = "how many work in parallel"),
    FW_OPTION_BOOL(struct fw_bulk_config, json, .name = "json", .default_text = "no",
                   .help = "say how it went as a JSON object"),
    FW_OPTION_DURATION(struct fw_bulk_config, patience_ns, .name = "timeout", .default_text = "10s",
                       .unit = "s", .min = 1, .help = "how long to wait for the server"),
};

struct dump {
    struct fw_bulk bulk;
    size_t prefix_length;
    struct fw_file_writer file;
    struct fw_dump_writer writer; /* Under bulk.lock. */
};

/* What one job asks for: a part of the table, or a list of keys. */
struct unit {
    struct fw_job job;
    struct dump *dump;
    const char *question; /* Lent, or in `lines`. */
    size_t question_length;
    const char *last; /* What ends the answer: "EN" or "MN". */
    struct fw_dump_block block;
    bool has_keys;
    char *lines;
};

static int file_write(void *context, const void *bytes, size_t size, struct fw_reason *reason)
{
    return fw_file_writer_write(context, bytes, size, reason);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* The block goes into the file, and is empty. */
static int unit_put(struct unit *unit, struct fw_reason *reason)
{
    struct dump *dump = unit->dump;
    uint64_t items = unit->block.items;
    if (items == 0) {
        return 0;
    }
    fw_bulk_count(&dump->bulk.items, items);
    fw_bulk_count(&dump->bulk.done, items);
    fw_bulk_count(&dump->bulk.bytes, unit->block.length - items * FW_DUMP_ITEM_HEAD);
    fw_dump_block_seal(&unit->block);
    fw_mutex_lock(&dump->bulk.lock);
    int rc = fw_dump_put(&dump->writer, &unit->block, reason);
    fw_mutex_unlock(&dump->bulk.lock);
    fw_dump_block_clear(&unit->block);
    return rc;
}

static int unit_add(struct unit *unit, const struct fw_dump_item *item, struct fw_reason *reason)
{
    int rc = 0;
    if (!fw_dump_block_add(&unit->block, item)) {
        rc = unit_put(unit, reason);
        if (rc == 0 && !fw_dump_block_add_large(&unit->block, item)) {
            rc = fw_reason_errno(reason, -ENOMEM, "no memory for an item");
        }
    }
    return rc;
}

static bool begins_with(const char *line, size_t length, const char *text)
{
    size_t size = strlen(text);
    return length >= size && memcmp(line, text, size) == 0;
}

/* One line of the answer, with a value perhaps. 1: it was the last; 0; or a negative errno. */
static int unit_read(struct unit *unit, struct fw_peer *peer, int64_t now_s,
                     struct fw_reason *reason)
{
    char key[FW_ITEM_KEY_MAX];
    struct fw_dump_item item;
    size_t length, used;
    int rc;
    const char *line = fw_peer_line(peer, &length, &used, &rc, reason);
    if (line == NULL) {
        return rc;
    }
    if (length == 2 && memcmp(line, unit->last, 2) == 0) {
        fw_peer_take(peer, used);
        return 1;
    }
    if (!fw_dump_wire_read(line, length, now_s, &item, key)) {
        /* A key that cannot be asked for is one item; all else is the end of it. */
        if (unit->has_keys && begins_with(line, length, "CLIENT_ERROR")) {
            fw_bulk_refused(&unit->dump->bulk, line, length);
            fw_peer_take(peer, used);
            return 0;
        }
        return fw_reason_set(reason, -EPROTO, "the server answers: %.*s", (int)length, line);
    }
    rc = fw_peer_need(peer, used + item.value_length + WORD_END, reason);
    if (rc != 0) {
        return rc;
    }
    item.value = fw_peer_input(peer) + used;
    if (memcmp(item.value + item.value_length, "\r\n", WORD_END) != 0) {
        return fw_reason_set(reason, -EPROTO, "the server answers a value that does not end");
    }
    rc = unit_add(unit, &item, reason);
    fw_peer_take(peer, used + item.value_length + WORD_END);
    return rc;
}

static void unit_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct unit *unit = FW_CONTAINER_OF(job, struct unit, job);
    struct fw_bulk *bulk = &unit->dump->bulk;
    struct fw_reason reason;
    struct fw_peer *peer = atomic_load(&bulk->must_end) ? NULL : fw_bulk_peer_take(bulk);
    if (peer == NULL) {
        return;
    }
    int rc = fw_dump_block_reserve(&unit->block)
                 ? fw_peer_send(peer, unit->question, unit->question_length, &reason)
                 : fw_reason_errno(&reason, -ENOMEM, "no memory for a block");
    while (rc == 0) {
        /* The clock is looked at when the input is used up: an answer of 256 KiB is of one time. */
        int64_t now_s = fw_clock_wall_ns() / FW_NS_PER_S;
        do {
            rc = unit_read(unit, peer, now_s, &reason);
        } while (rc == 0 && fw_peer_input_length(peer) > 0);
    }
    rc = rc == 1 ? unit_put(unit, &reason) : rc;
    if (rc != 0) {
        fw_bulk_fail(bulk, rc, &reason);
    }
    fw_bulk_peer_give(bulk, peer, rc == 0);
}

static struct fw_job_runnable units = {.run = unit_run};

static int unit_post(struct unit *unit)
{
    return fw_jobs_post(unit->dump->bulk.jobs, &unit->job, &units, &unit->dump->bulk, 0,
                        FW_JOB_UNIT | FW_JOB_REJOINABLE | FW_JOB_WAIT_IF_BUSY);
}

static int post_failed(int rc, struct fw_reason *reason)
{
    return rc != 0 ? fw_reason_errno(reason, rc, "cannot post a unit of work") : 0;
}

static void unit_fini(struct unit *unit)
{
    fw_dump_block_fini(&unit->block);
    free(unit->lines);
}

/* ---- in parts ------------------------------------------------------------------------------ */

/* From a Fairway. */
static int dump_parts(struct dump *dump, struct fw_reason *reason)
{
    static struct unit parts[FW_WALK_PARTS_MAX];
    static char questions[FW_WALK_PARTS_MAX][FW_DUMP_LINE_MAX];
    const char *prefix = dump->bulk.config->prefix;
    int rc = 0;
    for (uint32_t i = 0; i < FW_WALK_PARTS_MAX && rc == 0; i++) {
        int length = snprintf(questions[i], sizeof questions[i], "dump %u %d%s%s\r\n", i,
                              (int)FW_WALK_PARTS_MAX, prefix != NULL ? " " : "",
                              prefix != NULL ? prefix : "");
        parts[i] = (struct unit){.dump = dump,
                                 .question = questions[i],
                                 .question_length = (size_t)length,
                                 .last = "EN"};
        rc = post_failed(unit_post(&parts[i]), reason);
    }
    for (struct fw_job *job = fw_bulk_rejoin(&dump->bulk); job != NULL;
         job = fw_bulk_rejoin(&dump->bulk)) {
        unit_fini(FW_CONTAINER_OF(job, struct unit, job));
    }
    return rc;
}

/* ---- by keys ------------------------------------------------------------------------------- */

/*
 * Lists of keys to ask for, and the keys that are on none yet. Those are kept, as many as there
 * are, rather than leave the server's own list unread: a memcached that cannot send it waits, and
 * may hold a lock meanwhile that its answers to us need.
 */
struct lists {
    struct dump *dump;
    struct unit *units;
    struct unit **free;
    size_t free_count;
    char *keys; /* Each with its length before it. */
    size_t begin, end, size;
    uint64_t key_count;
};

static int keys_put(struct lists *lists, const char *key, size_t length, struct fw_reason *reason)
{
    if (lists->begin > lists->size / 2) {
        memmove(lists->keys, lists->keys + lists->begin, lists->end - lists->begin);
        lists->end -= lists->begin;
        lists->begin = 0;
    }
    if (lists->size - lists->end < 1 + FW_ITEM_KEY_MAX) {
        size_t size = lists->size > 0 ? 2 * lists->size : KEYS_FIRST;
        char *keys = realloc(lists->keys, size);
        if (keys == NULL) {
            return fw_reason_errno(reason, -ENOMEM, "no memory for %" PRIu64 " keys",
                                   lists->key_count);
        }
        lists->keys = keys;
        lists->size = size;
    }
    lists->keys[lists->end] = (char)length;
    memcpy(lists->keys + lists->end + 1, key, length);
    lists->end += 1 + length;
    lists->key_count++;
    return 0;
}

/* A list for keys, from those that were answered if need be. NULL: none is, and it may not wait. */
static struct unit *lists_take(struct lists *lists, bool may_wait)
{
    struct fw_bulk *bulk = &lists->dump->bulk;
    if (lists->free_count == 0) {
        struct fw_job *job = may_wait ? fw_bulk_rejoin(bulk) : fw_bulk_rejoin_ready(bulk);
        FW_ASSERT(job != NULL || !may_wait);
        if (job == NULL) {
            return NULL;
        }
        lists->free[lists->free_count++] = FW_CONTAINER_OF(job, struct unit, job);
    }
    return lists->free[--lists->free_count];
}

/* Asks for keys, as far as lists are to be had; `all`: waits for them, and leaves none behind. */
static int lists_ask(struct lists *lists, bool all, struct fw_reason *reason)
{
    static const char end[] = "mn\r\n";
    int rc = 0;
    while (rc == 0 && lists->key_count >= (all ? 1 : KEYS_MAX) &&
           !atomic_load(&lists->dump->bulk.must_end)) {
        struct unit *unit = lists_take(lists, all);
        if (unit == NULL) {
            return 0;
        }
        char *to = unit->lines;
        for (uint32_t i = 0; i < KEYS_MAX && lists->key_count > 0; i++, lists->key_count--) {
            size_t length = (unsigned char)lists->keys[lists->begin];
            to = fw_dump_wire_put_get(to, lists->keys + lists->begin + 1, length);
            lists->begin += 1 + length;
        }
        memcpy(to, end, sizeof end - 1);
        unit->question = unit->lines;
        unit->question_length = (size_t)(to - unit->lines) + sizeof end - 1;
        rc = post_failed(unit_post(unit), reason);
    }
    return rc;
}

/* A line that has no key: 0, it ends the list; or why there is none. */
static int keys_end(struct fw_peer *peer, const char *line, size_t length, size_t used,
                    struct fw_reason *reason)
{
    bool is_end = begins_with(line, length, "END");
    int rc = begins_with(line, length, "BADCLASS") ? -EOPNOTSUPP : -EPROTO;
    if (!is_end) {
        (void)fw_reason_set(reason, rc, "the server answers: %.*s", (int)length, line);
    }
    fw_peer_take(peer, used);
    return is_end ? 0 : rc;
}

/* Reads the list of keys to its end. -EOPNOTSUPP: the server makes no such list. */
static int keys_read(struct lists *lists, struct fw_peer *peer, struct fw_reason *reason)
{
    const struct dump *dump = lists->dump;
    const char *prefix = dump->bulk.config->prefix;
    char key[FW_ITEM_KEY_MAX];
    int rc = 0;
    while (rc == 0 && !atomic_load(&dump->bulk.must_end)) {
        size_t length, used;
        const char *line = fw_peer_line(peer, &length, &used, &rc, reason);
        if (line == NULL) {
            return rc;
        }
        size_t key_length = fw_dump_wire_read_key(line, length, key);
        if (key_length == 0) {
            return keys_end(peer, line, length, used, reason);
        }
        fw_peer_take(peer, used);
        if (key_length >= dump->prefix_length &&
            (prefix == NULL || memcmp(key, prefix, dump->prefix_length) == 0)) {
            rc = keys_put(lists, key, key_length, reason);
            rc = rc == 0 ? lists_ask(lists, false, reason) : rc;
        }
        fw_bulk_tick(&lists->dump->bulk);
    }
    return rc;
}

static int lists_init(struct lists *lists, struct dump *dump, struct fw_reason *reason)
{
    size_t count = LISTS_PER_CONNECTION * dump->bulk.config->connections;
    *lists = (struct lists){.dump = dump,
                            .units = calloc(count, sizeof(struct unit)),
                            .free = calloc(count, sizeof(struct unit *))};
    bool can = lists->units != NULL && lists->free != NULL;
    for (size_t i = 0; can && i < count; i++) {
        struct unit *unit = &lists->units[i];
        *unit = (struct unit){.dump = dump,
                              .last = "MN",
                              .has_keys = true,
                              .lines = malloc((size_t)KEYS_MAX * FW_DUMP_LINE_MAX)};
        can = unit->lines != NULL;
        lists->free[i] = unit;
        lists->free_count++;
    }
    return can ? 0 : fw_reason_errno(reason, -ENOMEM, "no memory for lists of keys");
}

/*
 * From a memcached. `hash` goes through its table; `all`, for older ones, through its lists of
 * recently used items, and misses those that change from one to the other meanwhile.
 */
static int dump_by_keys(struct dump *dump, struct fw_peer *peer, struct fw_reason *reason)
{
    static const char *const questions[] = {"lru_crawler metadump hash\r\n",
                                            "lru_crawler metadump all\r\n"};
    struct lists lists;
    int rc = lists_init(&lists, dump, reason);
    bool is_asked = rc != 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(questions) && !is_asked; i++) {
        rc = fw_peer_send(peer, questions[i], strlen(questions[i]), reason);
        rc = rc == 0 ? keys_read(&lists, peer, reason) : rc;
        is_asked = rc != -EOPNOTSUPP;
    }
    if (rc == 0) {
        rc = lists_ask(&lists, true, reason);
    }
    while (fw_bulk_rejoin(&dump->bulk) != NULL) {
    }
    size_t count = LISTS_PER_CONNECTION * dump->bulk.config->connections;
    for (size_t i = 0; lists.units != NULL && i < count; i++) {
        unit_fini(&lists.units[i]);
    }
    free(lists.units);
    free(lists.free);
    free(lists.keys);
    return rc;
}

/* ---- the command --------------------------------------------------------------------------- */

/* How many items there are, for the bar. A server that does not say it is no less good. */
static int ask_total(struct dump *dump, struct fw_peer *peer, struct fw_reason *reason)
{
    static const char question[] = "stats\r\n";
    static const char name[] = "STAT curr_items ";
    int rc = fw_peer_send(peer, question, sizeof question - 1, reason);
    while (rc == 0) {
        size_t length, used;
        uint64_t total;
        const char *line = fw_peer_line(peer, &length, &used, &rc, reason);
        if (line == NULL) {
            return rc;
        }
        if (begins_with(line, length, name) && dump->bulk.config->prefix == NULL &&
            fw_parse_uint(line + sizeof name - 1, length - (sizeof name - 1), 0, UINT64_MAX,
                          &total) == 0) {
            atomic_store(&dump->bulk.total, total);
        }
        bool is_last = !begins_with(line, length, "STAT ");
        fw_peer_take(peer, used);
        if (is_last) {
            return 0;
        }
    }
    return rc;
}

/* Is it a Fairway? It finds fault with the line, where others do not know the command. */
static int ask_kind(struct fw_peer *peer, bool *has_dump, struct fw_reason *reason)
{
    static const char question[] = "dump 0 0\r\n";
    size_t length, used;
    int rc = fw_peer_send(peer, question, sizeof question - 1, reason);
    const char *line = rc == 0 ? fw_peer_line(peer, &length, &used, &rc, reason) : NULL;
    if (line == NULL) {
        return rc;
    }
    *has_dump = begins_with(line, length, "CLIENT_ERROR bad command line format");
    if (!*has_dump && !(length == 5 && begins_with(line, length, "ERROR"))) {
        return fw_reason_set(reason, -EPROTO, "the server answers: %.*s", (int)length, line);
    }
    fw_peer_take(peer, used);
    return 0;
}

/* For the connection that this thread itself waits for. */
static void tick(void *context)
{
    fw_bulk_tick(context);
}

static int dump_all(struct dump *dump, struct fw_reason *reason)
{
    const struct fw_dump_header header = {.made_s = fw_clock_wall_ns() / FW_NS_PER_S};
    bool has_dump = false;
    struct fw_peer *peer = fw_bulk_peer_take(&dump->bulk);
    if (peer == NULL) {
        return 0; /* That was kept. */
    }
    peer->waiting = tick;
    peer->waiting_context = &dump->bulk;
    int rc = ask_total(dump, peer, reason);
    if (rc == 0) {
        rc = ask_kind(peer, &has_dump, reason);
    }
    if (rc == 0) {
        rc = fw_dump_begin(&dump->writer, &header, reason);
    }
    if (rc == 0 && has_dump) {
        peer->waiting = NULL;
        fw_bulk_peer_give(&dump->bulk, peer, true);
        return dump_parts(dump, reason);
    }
    if (rc == 0) {
        rc = dump_by_keys(dump, peer, reason);
    }
    fw_bulk_peer_give(&dump->bulk, peer, false);
    return rc;
}

static enum fw_cmd_status dump_to(struct dump *dump, const char *path)
{
    struct fw_reason reason;
    struct fw_bulk *bulk = &dump->bulk;
    bool is_stdout = strcmp(path, "-") == 0;
    int rc = fw_file_writer_open(&dump->file, is_stdout ? NULL : path, MODE, &reason);
    if (rc != 0) {
        fw_bulk_fail(bulk, rc, &reason);
        return fw_bulk_report(bulk, path, is_stdout);
    }
    dump->writer = (struct fw_dump_writer){.write = file_write, .context = &dump->file};
    rc = dump_all(dump, &reason);
    if (rc == 0 && bulk->rc == 0) {
        rc = fw_dump_end(&dump->writer, &reason);
    }
    if (rc == 0 && bulk->rc == 0) {
        rc = fw_file_writer_commit(&dump->file, &reason);
    } else {
        fw_file_writer_abandon(&dump->file);
    }
    if (rc != 0) {
        fw_bulk_fail(bulk, rc, &reason);
    }
    return fw_bulk_report(bulk, path, is_stdout);
}

static enum fw_cmd_status dump_words(void *context, const struct fw_option_list *words)
{
    const struct fw_bulk_config *config = context;
    static struct dump dump;
    struct fw_reason reason;
    if (words->count != 1) {
        return fw_cmd_fail(FW_CMD_USAGE, "dump takes one file, or - for standard output; see "
                                         "'fairway help dump'");
    }
    if (config->prefix != NULL && fw_dump_wire_is_binary(config->prefix, strlen(config->prefix))) {
        return fw_cmd_fail(FW_CMD_USAGE, "--prefix: no spaces and control characters, please");
    }
    int rc = fw_bulk_begin(&dump.bulk, config, "dumped", &reason);
    if (rc != 0) {
        return fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason.text);
    }
    dump.prefix_length = config->prefix != NULL ? strlen(config->prefix) : 0;
    enum fw_cmd_status status = dump_to(&dump, words->items[0]);
    fw_bulk_end(&dump.bulk);
    return status;
}

static struct fw_bulk_config dump_config;

static const struct fw_option_table dump_table = {.module = "dump",
                                                  .options = dump_options,
                                                  .count = FW_ARRAY_LENGTH(dump_options),
                                                  .config = &dump_config};

static enum fw_cmd_status dump_run(int count, char **arguments)
{
    return fw_tool_run(&dump_table, count, arguments, dump_words);
}

const struct fw_command fw_cmd_dump = {
    .name = "dump",
    .summary = "write the items of a running server to a file",
    .usage = "dump [OPTIONS] FILE",
    .about = "Writes all items of a running server to FILE, or to standard output for -,\n"
             "while the server goes on. The server is a Fairway or a memcached, 1.6 or\n"
             "later. 'fairway load' brings them to another one. FILE is there when it is\n"
             "complete, or not at all.",
    .options = dump_options,
    .option_count = FW_ARRAY_LENGTH(dump_options),
    .run = dump_run,
};
