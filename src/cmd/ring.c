/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway ring ACTION PATH: queues on shared disks, for people and scripts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/ring.h>

#include "base/json.h"
#include "base/option.h"
#include "base/reason.h"
#include "base/thread.h"
#include "cmd/tool.h"
#include "io/clock.h"
#include "ring/core.h"
#include "ring/inspect.h"

enum {
    INPUT_FIRST = 64 << 10,
    DAMAGES_KEPT = 64,
    LINE_DATA_MAX = 60,
    NEW_FILE_SIZE = 1 << 20,
};

struct ring_config {
    int format;
    int sector_size;
    uint64_t size;
    bool replace;
    bool force;
    bool json;
    bool keep;
    const char *queue;
    const char *client;
    int64_t interval_ns;
    int64_t wait_ns;
};

static const char *const formats[] = {"1", "2", NULL};
static const char *const sector_sizes[] = {"auto", "512", "4096", NULL};
static const uint32_t sector_bytes[] = {0, 512, 4096};

static const struct fw_option ring_options[] = {
    FW_OPTION_ENUM(struct ring_config, format, .name = "format", .default_text = "1",
                   .names = formats,
                   .help = "create: 1 is what xenvm understands, 2 has checksums"),
    FW_OPTION_SIZE(struct ring_config, size, .name = "size", .default_text = "0",
                   .help = "create: make or extend a file to this size; 0: 1m if it is not there"),
    FW_OPTION_BOOL(struct ring_config, replace, .name = "replace", .default_text = "no",
                   .help = "create: also over a ring of the other format or a damaged one"),
    FW_OPTION_BOOL(struct ring_config, force, .name = "force", .default_text = "no",
                   .help = "create: also over other content, which is named and lost"),
    FW_OPTION_ENUM(struct ring_config, sector_size, .name = "sector-size", .default_text = "auto",
                   .names = sector_sizes,
                   .help = "format 1: of a ring to be made in a file, or of one that is damaged"),
    FW_OPTION_BOOL(struct ring_config, json, .name = "json", .default_text = "no",
                   .help = "dump, info: print one JSON object"),
    FW_OPTION_BOOL(struct ring_config, keep, .name = "keep", .default_text = "no",
                   .help = "pop, follow: leave the messages in the ring"),
    FW_OPTION_DURATION(struct ring_config, interval_ns, .name = "interval", .unit = "ms",
                       .default_text = "100", .min = FW_NS_PER_MS,
                       .help = "follow, --wait: how often to look"),
    FW_OPTION_DURATION(struct ring_config, wait_ns, .name = "wait", .default_text = "0",
                       .help = "suspend, resume: wait that long for the producer's answer"),
    FW_OPTION_STRING(struct ring_config, queue, .name = "queue", .value_name = "NAME",
                     .max = FW_RING_NAME_MAX,
                     .help = "name of the queue, for who looks at the disk"),
    FW_OPTION_STRING(struct ring_config, client, .name = "client", .value_name = "NAME",
                     .max = FW_RING_NAME_MAX, .help = "our own name, likewise"),
};

static struct fw_option_table ring_table(struct ring_config *config)
{
    return (struct fw_option_table){.module = "ring",
                                    .options = ring_options,
                                    .count = FW_ARRAY_LENGTH(ring_options),
                                    .config = config};
}

static enum fw_cmd_status failed(const char *path, const char *text)
{
    return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", path, text);
}

/* What an outcome that is no error means to someone at a terminal. */
static enum fw_cmd_status answer(const char *path, int rc, const struct fw_ring_reason *reason,
                                 const char *retry)
{
    switch (rc) {
    case 0:
        return FW_CMD_OK;
    case FW_RING_RETRY:
        return failed(path, retry);
    case FW_RING_SUSPENDED:
        return failed(path, "the consumer has suspended the ring; try again when it has resumed");
    default:
        return failed(path, reason->text);
    }
}

static enum fw_cmd_status attached(struct fw_ring **ring, const struct ring_config *config,
                                   const char *path, enum fw_ring_role role)
{
    struct fw_ring_reason reason;
    const struct fw_ring_options options = {
        .path = path,
        .role = role,
        /* A resume is answered by a message, never by the way. */
        .flags = FW_RING_SYNCS,
        .queue = config->queue,
        .client = config->client,
        .sector_size = sector_bytes[config->sector_size],
    };
    int rc = fw_ring_attach(ring, &options, &reason);
    return rc == 0 ? FW_CMD_OK : failed(path, reason.text);
}

static void pause_for(int64_t duration_ns)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, duration_ns);
}

/* ---- create, push, pop, follow ---- */

static enum fw_cmd_status ring_create(const struct ring_config *config, const char *path)
{
    static const char devices[] = "/dev/";
    struct fw_ring_reason reason;
    struct fw_ring_create create = {.path = path,
                                    .format = config->format + 1,
                                    .size = config->size,
                                    .sector_size = sector_bytes[config->sector_size],
                                    .replace = config->replace,
                                    .force = config->force};
    if (config->force) {
        fw_tool_tell_lost(path);
    }
    int rc = fw_ring_create(&create, &reason);
    /* A device that is not there was misspelt; a file is to be made. */
    if (rc == -ENOENT && create.size == 0 && strncmp(path, devices, sizeof devices - 1) != 0) {
        create.size = NEW_FILE_SIZE;
        rc = fw_ring_create(&create, &reason);
    }
    return rc == 0 ? FW_CMD_OK : failed(path, reason.text);
}

/* All of standard input, for free(). */
static int input_read(char **data, size_t *length)
{
    size_t room = INPUT_FIRST;
    char *bytes = malloc(room);
    *length = 0;
    while (bytes != NULL) {
        size_t part = fread(bytes + *length, 1, room - *length, stdin);
        *length += part;
        if (part == 0) {
            *data = bytes;
            return ferror(stdin) != 0 ? -EIO : 0;
        }
        if (*length == room) {
            if (room > FW_RING_MESSAGE_MAX) {
                free(bytes);
                *data = NULL;
                return -EMSGSIZE;
            }
            room *= 2;
            char *larger = realloc(bytes, room);
            if (larger == NULL) {
                free(bytes);
            }
            bytes = larger;
        }
    }
    *data = NULL;
    return -ENOMEM;
}

static enum fw_cmd_status ring_push(const struct ring_config *config, const char *path)
{
    struct fw_ring *ring;
    struct fw_ring_reason reason;
    char *data;
    size_t length;
    int rc = input_read(&data, &length);
    if (rc != 0) {
        free(data);
        return fw_cmd_fail(FW_CMD_FAILED, "%s",
                           rc == -EMSGSIZE ? "a message has at most 256 MiB"
                                           : "cannot read the message from standard input");
    }
    enum fw_cmd_status status = attached(&ring, config, path, FW_RING_PRODUCER);
    if (status == FW_CMD_OK) {
        rc = fw_ring_push(ring, data, length, &reason);
        if (rc == FW_RING_RESYNC) { /* Whatever the consumer waits for, this is the answer. */
            const struct fw_ring_message message = {.data = data, .length = length};
            rc = fw_ring_sync(ring, &message, 1, &reason);
        }
        status = answer(path, rc, &reason, "the ring is full; try again when it has been read");
        fw_ring_detach(ring);
    }
    free(data);
    return status;
}

/* Prints a message, and gives it back only when it is certain that it has been printed. */
static enum fw_cmd_status message_print(struct fw_ring *ring, const struct ring_config *config,
                                        const char *path, bool with_newline)
{
    struct fw_ring_message message;
    struct fw_ring_reason reason;
    uint64_t position;
    int rc = fw_ring_pop(ring, &message, &position, &reason);
    if (rc != 0) {
        return answer(path, rc, &reason, "the ring is empty");
    }
    (void)fwrite(message.data, 1, message.length, stdout);
    if (with_newline) {
        (void)fputc('\n', stdout);
    }
    if (fflush(stdout) != 0) {
        return FW_CMD_FAILED; /* main() says why. */
    }
    rc = config->keep ? 0 : fw_ring_advance(ring, position, &reason);
    return answer(path, rc, &reason, "");
}

static enum fw_cmd_status ring_pop(const struct ring_config *config, const char *path)
{
    struct fw_ring *ring;
    enum fw_cmd_status status = attached(&ring, config, path, FW_RING_CONSUMER);
    if (status == FW_CMD_OK) {
        status = message_print(ring, config, path, false);
        fw_ring_detach(ring);
    }
    return status;
}

static enum fw_cmd_status ring_follow(const struct ring_config *config, const char *path)
{
    struct fw_ring *ring;
    struct fw_ring_reason reason;
    enum fw_cmd_status status = attached(&ring, config, path, FW_RING_CONSUMER);
    if (status != FW_CMD_OK) {
        return status;
    }
    while (status == FW_CMD_OK) {
        int rc = fw_ring_poll(ring, &reason);
        struct fw_ring_state state;
        fw_ring_state(ring, &state);
        if (rc != 0) {
            status = answer(path, rc, &reason, "");
        } else if (ring->cursor == state.producer) {
            pause_for(config->interval_ns);
        } else {
            status = message_print(ring, config, path, true);
        }
    }
    fw_ring_detach(ring);
    return status;
}

/* ---- suspend, resume ---- */

static enum fw_cmd_status request(const struct ring_config *config, const char *path, bool suspend)
{
    struct fw_ring *ring;
    struct fw_ring_reason reason;
    struct fw_ring_state state;
    enum fw_cmd_status status = attached(&ring, config, path, FW_RING_CONSUMER);
    if (status != FW_CMD_OK) {
        return status;
    }
    int rc = suspend ? fw_ring_suspend(ring, &reason) : fw_ring_resume(ring, &reason);
    int64_t deadline_ns = fw_clock_now_ns() + config->wait_ns;
    for (;;) {
        fw_ring_state(ring, &state);
        if (rc != 0 || config->wait_ns == 0 || state.suspend_acknowledged == suspend) {
            status = answer(path, rc, &reason,
                            "the producer has not answered the last request yet; is it running?");
            break;
        }
        if (fw_clock_now_ns() > deadline_ns) {
            status = failed(path, "asked, but the producer has not answered in time");
            break;
        }
        pause_for(config->interval_ns);
        rc = fw_ring_poll(ring, &reason);
    }
    fw_ring_detach(ring);
    return status;
}

static enum fw_cmd_status ring_suspend(const struct ring_config *config, const char *path)
{
    return request(config, path, true);
}

static enum fw_cmd_status ring_resume(const struct ring_config *config, const char *path)
{
    return request(config, path, false);
}

/* ---- info, dump ---- */

struct view {
    const char *path;
    bool is_dump;
    bool is_json;
    bool has_head;
    struct fw_json json;
    uint64_t messages;
    uint64_t bytes;
    uint32_t damages;
    char damage[DAMAGES_KEPT][FW_REASON_SIZE];
};

static bool is_plain(const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (data[i] < ' ' || data[i] > '~') {
            return false;
        }
    }
    return true;
}

static void json_hex(struct fw_json *json, const uint8_t *data, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(2 * length + 1);
    if (text == NULL) {
        fw_json_null(json);
        return;
    }
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    fw_json_string_bytes(json, text, 2 * length);
    free(text);
}

static void json_side(struct fw_json *json, const char *name, const char *flag,
                      const struct fw_ring_pointer *pointer)
{
    fw_json_key(json, name);
    if (pointer != NULL) {
        fw_json_unsigned(json, pointer->position);
    } else {
        fw_json_null(json);
    }
    fw_json_key(json, flag);
    if (pointer != NULL) {
        fw_json_bool(json, pointer->flag);
    } else {
        fw_json_null(json);
    }
}

static void head_json(struct view *view, const struct fw_ring_geometry *geometry,
                      const struct fw_ring_pointer *producer,
                      const struct fw_ring_pointer *consumer)
{
    struct fw_json *json = &view->json;
    fw_json_object_begin(json);
    fw_json_key(json, "format");
    fw_json_unsigned(json, (uint64_t)geometry->format);
    fw_json_key(json, "sector_size");
    fw_json_unsigned(json, geometry->sector_size);
    fw_json_key(json, "capacity");
    fw_json_unsigned(json, geometry->capacity);
    json_side(json, "producer", "suspend_ack", producer);
    json_side(json, "consumer", "suspend", consumer);
    if (view->is_dump) {
        fw_json_key(json, "messages");
        fw_json_array_begin(json);
    }
}

static void side_print(const char *name, const char *flag, const struct fw_ring_pointer *pointer,
                       int format)
{
    if (pointer == NULL) {
        (void)printf("%-12s cannot be read\n", name);
        return;
    }
    (void)printf("%-12s at %" PRIu64 "%s%s\n", name, pointer->position, pointer->flag ? ", " : "",
                 pointer->flag ? flag : "");
    if (format == 2) {
        (void)printf("%-12s %s\n", "",
                     pointer->owner != 0 ? "attached, or died attached" : "not attached");
    }
}

static void head_text(const struct view *view, const struct fw_ring_geometry *geometry,
                      const struct fw_ring_pointer *producer,
                      const struct fw_ring_pointer *consumer)
{
    (void)printf("%s: a ring of format %d with sectors of %" PRIu32 " bytes\n", view->path,
                 geometry->format, geometry->sector_size);
    (void)printf("%-12s %" PRIu64 " bytes, messages up to %" PRIu64 "\n", "room",
                 geometry->capacity, geometry->message_max);
    side_print("producer", "suspend acknowledged", producer, geometry->format);
    side_print("consumer", "suspend requested", consumer, geometry->format);
}

static void on_head(void *context, const struct fw_ring_geometry *geometry,
                    const struct fw_ring_pointer *producer, const struct fw_ring_pointer *consumer)
{
    struct view *view = context;
    view->has_head = true;
    if (view->is_json) {
        head_json(view, geometry, producer, consumer);
    } else {
        head_text(view, geometry, producer, consumer);
    }
}

static void message_json(struct fw_json *json, uint64_t position,
                         const struct fw_ring_message *message)
{
    fw_json_object_begin(json);
    fw_json_key(json, "offset");
    fw_json_unsigned(json, position);
    fw_json_key(json, "length");
    fw_json_unsigned(json, message->length);
    fw_json_key(json, "data");
    fw_json_string_bytes(json, message->data, message->length);
    if (!is_plain(message->data, message->length)) {
        fw_json_key(json, "hex"); /* JSON cannot carry the very bytes as text. */
        json_hex(json, message->data, message->length);
    }
    fw_json_object_end(json);
}

static void message_text(uint64_t position, const struct fw_ring_message *message)
{
    const uint8_t *data = message->data;
    size_t shown = message->length < LINE_DATA_MAX ? message->length : LINE_DATA_MAX;
    (void)printf("%12" PRIu64 " %8zu ", position, message->length);
    for (size_t i = 0; i < shown; i++) {
        bool is_safe = data[i] >= ' ' && data[i] <= '~';
        (void)printf(is_safe ? "%c" : "\\x%02x", data[i]);
    }
    (void)printf("%s\n", shown < message->length ? "..." : "");
}

static void on_message(void *context, uint64_t position, const struct fw_ring_message *message)
{
    struct view *view = context;
    view->messages++;
    view->bytes += message->length;
    if (view->is_dump && view->is_json) {
        message_json(&view->json, position, message);
    } else if (view->is_dump) {
        message_text(position, message);
    }
}

static void on_damage(void *context, const char *text)
{
    struct view *view = context;
    if (!view->is_json) {
        (void)printf("damaged      %s\n", text);
    } else if (view->damages < DAMAGES_KEPT) {
        (void)snprintf(view->damage[view->damages], sizeof view->damage[0], "%s", text);
    }
    view->damages++;
}

static void view_finish_json(struct view *view)
{
    struct fw_json *json = &view->json;
    if (!view->has_head) {
        fw_json_object_begin(json);
    } else if (view->is_dump) {
        fw_json_array_end(json);
    } else {
        fw_json_key(json, "messages");
        fw_json_unsigned(json, view->messages);
        fw_json_key(json, "bytes");
        fw_json_unsigned(json, view->bytes);
    }
    fw_json_key(json, "damage");
    fw_json_array_begin(json);
    for (uint32_t i = 0; i < view->damages && i < DAMAGES_KEPT; i++) {
        fw_json_string(json, view->damage[i]);
    }
    fw_json_array_end(json);
    fw_json_object_end(json);
    fw_tool_json_end(json);
}

static enum fw_cmd_status disk_view(struct view *view, struct fw_disk *disk, uint32_t sector_size)
{
    const struct fw_ring_visitor visitor = {
        .head = on_head, .message = on_message, .damage = on_damage, .context = view};
    struct fw_reason reason;
    int rc = fw_ring_inspect(disk, sector_size, &visitor, &reason);
    if (rc < 0 && !view->has_head) {
        return failed(view->path, reason.text);
    }
    if (view->is_json) {
        view_finish_json(view);
    } else if (view->has_head) {
        (void)printf("%-12s %" PRIu64 " with %" PRIu64 " bytes of data\n", "messages",
                     view->messages, view->bytes);
    }
    if (rc < 0) {
        return failed(view->path, reason.text);
    }
    return rc == 0 ? FW_CMD_OK
                   : fw_cmd_fail(FW_CMD_FAILED, "%s is damaged in %d place%s", view->path, rc,
                                 rc == 1 ? "" : "s");
}

static enum fw_cmd_status ring_view(const struct ring_config *config, const char *path,
                                    bool is_dump)
{
    const struct fw_disk_options options = {.path = path,
                                            .flags = FW_DISK_READ_ONLY | FW_DISK_DIRECT};
    struct fw_disk *disk;
    struct fw_reason reason;
    int rc = fw_ring_disk_open(&disk, &options, &reason);
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    }
    struct view *view = calloc(1, sizeof *view);
    if (view == NULL) {
        fw_disk_close(disk);
        return failed(path, "not enough memory");
    }
    view->path = path;
    view->is_dump = is_dump;
    view->is_json = config->json;
    fw_tool_json_begin(&view->json);
    enum fw_cmd_status status = disk_view(view, disk, sector_bytes[config->sector_size]);
    free(view);
    fw_disk_close(disk);
    return status;
}

static enum fw_cmd_status ring_info(const struct ring_config *config, const char *path)
{
    return ring_view(config, path, false);
}

static enum fw_cmd_status ring_dump(const struct ring_config *config, const char *path)
{
    return ring_view(config, path, true);
}

/* ---- the command ---- */

static const struct action {
    const char *name;
    const char *summary;
    enum fw_cmd_status (*run)(const struct ring_config *config, const char *path);
} actions[] = {
    {"create", "make an empty ring, if there is none yet", ring_create},
    {"info", "tell what is there, without changing it", ring_info},
    {"dump", "show every message, and explain damage", ring_dump},
    {"push", "append one message, from standard input", ring_push},
    {"pop", "print the oldest message and take it out", ring_pop},
    {"follow", "print messages, a line each, as they come; Ctrl-C ends it", ring_follow},
    {"suspend", "ask the producer to stop", ring_suspend},
    {"resume", "ask the producer to go on", ring_resume},
};

static bool ring_action(size_t index, struct fw_command_action *action)
{
    if (index < FW_ARRAY_LENGTH(actions)) {
        *action = (struct fw_command_action){.name = actions[index].name,
                                             .summary = actions[index].summary};
    }
    return index < FW_ARRAY_LENGTH(actions);
}

static enum fw_cmd_status action_run(void *config, const struct fw_option_list *words)
{
    if (words->count != 2) {
        return fw_cmd_fail(FW_CMD_USAGE,
                           "ring takes an action and one path; see 'fairway help ring'");
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(actions); i++) {
        if (strcmp(actions[i].name, words->items[0]) == 0) {
            return actions[i].run(config, words->items[1]);
        }
    }
    return fw_cmd_fail(FW_CMD_USAGE, "ring cannot '%s'; see 'fairway help ring'", words->items[0]);
}

static enum fw_cmd_status ring_run(int count, char **arguments)
{
    struct ring_config config;
    const struct fw_option_table table = ring_table(&config);
    return fw_tool_run(&table, count, arguments, action_run);
}

const struct fw_command fw_cmd_ring = {
    .name = "ring",
    .summary = "queues on a shared disk: create, look, push, pop, suspend",
    .usage = "ring ACTION [OPTIONS] PATH",
    .about = "Queues on a shared disk or in a file. Only one producer (push) and one consumer\n"
             "(pop, follow, suspend, resume) can be attached at a time.",
    .options = ring_options,
    .option_count = FW_ARRAY_LENGTH(ring_options),
    .action = ring_action,
    .run = ring_run,
};
