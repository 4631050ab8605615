/* SPDX-License-Identifier: Apache-2.0 */
#include "log/options.h"

#include <errno.h>
#include <string.h>

#include "log/arena.h"
#include "log/module.h"

static const char *const format_names[] = {"text", "json", NULL};
static const char *const policy_names[] = {"block", "drop", "drop-below", NULL};

const struct fw_option fw_log_options[] = {
    FW_OPTION_ENUM(struct fw_log_config, level, .section = "log", .name = "level",
                   .default_text = "notice", .names = fw_log_level_names, .live = true,
                   .help = "log lines up to this level"),
    FW_OPTION_LIST(struct fw_log_config, module_level, .section = "log", .name = "module-level",
                   .value_name = "MODULE=LEVEL", .live = true,
                   .help = "another level for single modules"),
    FW_OPTION_ENUM(struct fw_log_config, client_level, .section = "log", .name = "client-level",
                   .default_text = "error", .names = fw_log_level_names, .live = true,
                   .help = "how far clients may raise the level with the command verbosity; they "
                           "cannot lower it"),
    FW_OPTION_STRING(struct fw_log_config, file, .section = "log", .name = "file",
                     .value_name = "FILE", .live = true,
                     .help = "append the log to this file instead of stderr; opened again on "
                             "SIGHUP"),
    FW_OPTION_ENUM(struct fw_log_config, format, .section = "log", .name = "format",
                   .default_text = "text", .names = format_names, .live = true,
                   .help = "write lines as text or as JSON objects"),
    FW_OPTION_SIZE(struct fw_log_config, rotate_size, .section = "log", .name = "rotate-size",
                   .unit = "MiB", .default_text = "64", .max = INT64_C(1) << 40, .live = true,
                   .help = "begin a new file when this one would grow larger; 0: never. Lines are "
                           "dropped and counted while that does not work"),
    FW_OPTION_UINT(struct fw_log_config, rotate_keep, .section = "log", .name = "rotate-keep",
                   .default_text = "5", .min = 1, .max = 1000, .unit = "files", .live = true,
                   .help = "old files to keep, as FILE.1, FILE.2, ..."),
    FW_OPTION_ENUM(struct fw_log_config, policy, .section = "log", .name = "policy",
                   .default_text = "drop", .names = policy_names, .live = true,
                   .help = "what a line does that comes faster than it can be written: block its "
                           "thread, drop, or drop-below the level of --log-waiting-level and "
                           "block above; what is dropped is counted"),
    FW_OPTION_ENUM(struct fw_log_config, waiting_level, .section = "log", .name = "waiting-level",
                   .default_text = "warning", .names = fw_log_level_names, .live = true,
                   .help = "lines up to this level wait under the policy drop-below"),
    FW_OPTION_SIZE(struct fw_log_config, ring_size, .section = "log", .name = "ring-size",
                   .default_text = "128k", .min = FW_LOG_RING_SIZE_MIN, .max = FW_LOG_RING_SIZE_MAX,
                   .help = "memory for each thread's lines until they are written, a power of two"),
    FW_OPTION_UINT(struct fw_log_config, rings, .section = "log", .name = "rings",
                   .default_text = "64", .min = 1, .max = FW_LOG_RINGS_MAX, .unit = "threads",
                   .help = "threads with memory of their own for lines; others share"),
    FW_OPTION_STRING(struct fw_log_config, map_directory, .section = "log", .name = "map-directory",
                     .value_name = "FOLDER",
                     .help = "keep that memory in a file here, such as /dev/shm, so that "
                             "'fairway log recover' finds the lines of a killed server"),
};
const size_t fw_log_options_count = FW_ARRAY_LENGTH(fw_log_options);

static int level_parse(const char *item, const char *text, int *level, struct fw_reason *reason)
{
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, text, strlen(text));
    for (int i = 0; fw_log_level_names[i] != NULL; i++) {
        if (strcmp(fw_log_level_names[i], text) == 0) {
            *level = i;
            return 0;
        }
        fw_nearest_offer(&nearest, fw_log_level_names[i], strlen(fw_log_level_names[i]));
    }
    return fw_reason_set(
        reason, -EINVAL,
        "--log-module-level: '%.40s' has no known level%s%s; give MODULE=LEVEL with "
        "one of error, warning, notice, info, debug, trace",
        item, fw_nearest_found(&nearest) ? ", did you mean " : "",
        fw_nearest_found(&nearest) ? nearest.best : "");
}

/* Takes "cache=debug" apart. */
static int module_level_parse(const char *item, struct fw_log_module **module, int *level,
                              struct fw_reason *reason)
{
    const char *equals = strchr(item, '=');
    size_t length = equals != NULL ? (size_t)(equals - item) : strlen(item);
    struct fw_nearest nearest;
    *module = fw_log_module_find(item, length, &nearest);
    if (*module == NULL) {
        return fw_reason_set(reason, -EINVAL, "--log-module-level: there is no module '%.*s'%s%s%s",
                             length < 40 ? (int)length : 40, item,
                             fw_nearest_found(&nearest) ? "; did you mean '" : "",
                             fw_nearest_found(&nearest) ? nearest.best : "",
                             fw_nearest_found(&nearest) ? "'?" : "");
    }
    return level_parse(item, equals != NULL ? equals + 1 : "", level, reason);
}

static int levels_check(const struct fw_log_config *config, struct fw_reason *reason)
{
    const struct fw_option_list *list = &config->module_level;
    struct fw_log_module *module;
    int level;
    int rc = 0;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        rc = module_level_parse(list->items[i], &module, &level, reason);
    }
    return rc;
}

int fw_log_check(const struct fw_log_config *config, struct fw_reason *reason)
{
    if (!fw_log_ring_size_ok(config->ring_size)) {
        return fw_reason_set(reason, -EINVAL,
                             "--log-ring-size: give a power of two from 8 KiB to 16 MiB");
    }
    return levels_check(config, reason);
}

int fw_log_configure(const struct fw_log_config *config, struct fw_reason *reason)
{
    const struct fw_option_list *list = &config->module_level;
    struct fw_log_module *module;
    int level = 0;
    bool is_file = config->file != NULL && config->file[0] != '\0';
    int rc = levels_check(config, reason);
    if (rc == 0) {
        rc = fw_log_open(is_file ? config->file : NULL, reason);
    }
    if (rc != 0) {
        return rc;
    }
    fw_log_set_json(config->format == FW_LOG_FORMAT_JSON);
    fw_log_set_rotation(config->rotate_size, (uint32_t)config->rotate_keep);
    fw_log_set_policy(config->policy, config->waiting_level);
    fw_log_set_raise_limit(config->client_level);
    rc = fw_log_set_level(NULL, config->level);
    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        rc = module_level_parse(list->items[i], &module, &level, reason);
        if (rc == 0) {
            rc = fw_log_set_level(module->name, (enum fw_log_level)level);
        }
    }
    return rc;
}

int fw_log_start_configured(const struct fw_log_config *config, struct fw_reason *reason)
{
    const struct fw_log_setup setup = {.ring_size = config->ring_size,
                                       .rings = (uint32_t)config->rings,
                                       .map_directory = config->map_directory};
    return fw_log_begin(&setup, reason);
}
