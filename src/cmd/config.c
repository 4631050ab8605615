/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway config check FILE: everything that is wrong with a configuration, each with its line.
 * fairway config show [FILE]: what a server would do with it, as a configuration.
 *
 * The same tables and the same checks as `serve` has. Mistakes are written as compilers write them,
 * FILE:LINE: TEXT, so that editors find the place. server/check.h tells of options by their long
 * names; the line is that of the option in the file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"
#include "cmd/serve.h"
#include "cmd/tool.h"
#include "http/http.h"
#include "io/address.h"
#include "io/file.h"
#include "io/process.h"
#include "server/check.h"

struct config_options {
    bool is_brief;
};

static const struct fw_option config_options[] = {
    FW_OPTION_BOOL(struct config_options, is_brief, .name = "brief", .default_text = "no",
                   .help = "show: only what differs from its default"),
};

static struct fw_option_table config_table(struct config_options *config)
{
    return (struct fw_option_table){.module = "config",
                                    .options = config_options,
                                    .count = FW_ARRAY_LENGTH(config_options),
                                    .config = config};
}

/* A configuration that is being looked at. */
struct reading {
    struct fw_serve_settings settings;
    const char *path; /* NULL: none, just defaults. */
    char *text;       /* What is in it; NULL: nothing was read. */
    size_t mistakes;
};

/* ---- check --------------------------------------------------------------------------------- */

/* Where an option stands that a reason speaks of: as --long-name, or as [section NAME] name. */
struct place {
    const char *name; /* The long one, or the option's. Neither is ended by zero. */
    size_t length;
    const char *instance; /* NULL: of a plain section. */
    size_t instance_length;
    const struct fw_option *option; /* What was found, and in which line; 0: it is not there. */
    unsigned line;
};

static bool is_text(const char *text, const char *begin, size_t length)
{
    return strlen(text) == length && memcmp(text, begin, length) == 0;
}

static void place_find(const struct fw_option_row *row, void *context)
{
    struct place *place = context;
    const char *name = place->instance != NULL ? row->option->name : row->long_name;
    bool is_its = place->instance == NULL
                      ? row->instance == NULL
                      : row->instance != NULL &&
                            is_text(row->instance, place->instance, place->instance_length);
    if (is_its && is_text(name, place->name, place->length) &&
        row->source == FW_OPTION_SOURCE_FILE) {
        place->option = row->option;
        place->line = row->line;
    }
}

/* A line of the file without spaces around it; `*rest` then begins behind it. */
static const char *line_next(const char **rest, size_t *length)
{
    const char *line = *rest + strspn(*rest, " \t");
    size_t whole = strcspn(*rest, "\n");
    *length = strcspn(line, "\r\n");
    *rest += whole + ((*rest)[whole] == '\n');
    return line;
}

/* Whether the line is "name = ..., item, ...", and the text speaks of one of the items. */
static bool line_is_meant(const char *line, size_t length, const char *name, const char *text)
{
    const char *value = memchr(line, '=', length);
    if (value == NULL || strncmp(line, name, strlen(name)) != 0) {
        return false;
    }
    for (value++; value < line + length; value++) {
        value += strspn(value, " \t\"");
        size_t item = strcspn(value, ",\"\r\n");
        if (item > 0 && memmem(text, strlen(text), value, item) != NULL) {
            return true;
        }
        value += item;
    }
    return false;
}

/* Whether the line is the section's, [section] or [section NAME]. */
static bool section_is_meant(const char *line, const struct place *place)
{
    static const char spaces[] = " \t", ends[] = " \t]\n";
    const char *section = line + 1 + strspn(line + 1, spaces);
    size_t length = strcspn(section, ends);
    const char *instance = section + length + strspn(section + length, spaces);
    size_t instance_length = strcspn(instance, ends);
    return is_text(place->option->section, section, length) &&
           instance_length == place->instance_length &&
           (instance_length == 0 || memcmp(instance, place->instance, instance_length) == 0);
}

/* Of a list that is given in several lines the table knows the last only. */
static unsigned line_of_item(const struct reading *reading, const struct place *place,
                             const char *text)
{
    const char *rest = reading->text;
    bool is_in = false;
    for (unsigned number = 1; number <= place->line; number++) {
        size_t length;
        const char *line = line_next(&rest, &length);
        if (line[0] == '[') {
            is_in = section_is_meant(line, place);
        } else if (is_in && line_is_meant(line, length, place->option->name, text)) {
            return number;
        }
    }
    return place->line;
}

/* What the parser says has file and line already. */
static void mistake_print(void *context, const struct fw_reason *reason)
{
    struct reading *reading = context;
    reading->mistakes++;
    (void)fprintf(stderr, "%s\n", reason->text);
}

static void mistake_at(struct reading *reading, unsigned line, const char *text)
{
    reading->mistakes++;
    if (line > 0) {
        (void)fprintf(stderr, "%s:%u: %s\n", reading->path, line, text);
    } else {
        (void)fprintf(stderr, "%s: %s\n", reading->path, text);
    }
}

/* "[tenant web] match = ...": the option of a named section, if the text begins so. */
static bool place_of_section(struct place *place, const char *text)
{
    const char *space = text[0] == '[' ? strchr(text, ' ') : NULL;
    const char *end = space != NULL ? strstr(space, "] ") : NULL;
    if (end == NULL) {
        return false;
    }
    place->instance = space + 1;
    place->instance_length = (size_t)(end - place->instance);
    place->name = end + 2;
    place->length = strcspn(place->name, " ");
    return true;
}

/* The line is that of the first option in the text that the file has. */
static void mistake_tell(void *context, const struct fw_reason *reason)
{
    struct reading *reading = context;
    struct place place = {.line = 0};
    const char *rest = reason->text;
    if (place_of_section(&place, rest)) {
        fw_options_list(&reading->settings.options, place_find, &place);
    }
    while (place.line == 0 && (rest = strstr(rest, "--")) != NULL) {
        rest += 2;
        place = (struct place){.name = rest,
                               .length = strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789-")};
        fw_options_list(&reading->settings.options, place_find, &place);
    }
    if (place.line > 0 && place.option->type == FW_OPTION_TYPE_LIST) {
        place.line = line_of_item(reading, &place, reason->text);
    }
    mistake_at(reading, place.line, reason->text);
}

static void tenants_check(struct reading *reading)
{
    const struct fw_tenant_sections *tenants = reading->settings.tenants;
    for (size_t i = 0; i < tenants->count; i++) {
        const struct fw_tenant_section *section = tenants->sections[i];
        for (size_t j = 0; j < section->match.count; j++) {
            struct fw_reason reason;
            if (fw_tenant_section_check(section, j, &reason) != 0) {
                mistake_tell(reading, &reason);
            }
        }
    }
}

static void http_check(struct reading *reading)
{
    const char *listen = reading->settings.http->listen;
    struct fw_address address;
    struct fw_reason why, reason;
    if (listen == NULL) {
        return;
    }
    if (fw_address_parse(listen, FW_HTTP_PORT, 0, &address, 1, &why) < 0) {
        (void)fw_reason_set(&reason, -EINVAL, "--http-listen: %s", why.text);
        mistake_tell(reading, &reason);
    } else if (fw_address_path(&address) != NULL || address.any.sa_family == AF_UNIX) {
        (void)fw_reason_set(&reason, -EINVAL, "--http-listen: HTTP needs an address with a port");
        mistake_tell(reading, &reason);
    }
}

static void reading_check(struct reading *reading)
{
    struct fw_reason reason;
    bool is_complete = reading->mistakes == 0;
    if (reading->settings.server->sasl_file == NULL) {
        reading->settings.server->sasl_file = fw_process_variable("MEMCACHED_SASL_PWDB");
    }
    reading->settings.server->tenants = reading->settings.tenants;
    tenants_check(reading);
    http_check(reading);
    if (fw_log_check(reading->settings.log, &reason) != 0) {
        mistake_tell(reading, &reason);
    }
    fw_server_check(reading->settings.server, is_complete, mistake_tell, reading);
}

/* ---- show ---------------------------------------------------------------------------------- */

struct showing {
    const struct reading *reading;
    const char *section;
    const char *instance;
    bool is_brief;
};

/* Quoted where the file would understand something else. */
static void value_print(const char *value)
{
    size_t length = strlen(value);
    bool is_plain = length > 0 && strpbrk(value, "#;\"\\") == NULL && value[0] != ' ' &&
                    value[length - 1] != ' ';
    if (is_plain) {
        (void)fputs(value, stdout);
        return;
    }
    (void)putchar('"');
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\') {
            (void)putchar('\\');
        }
        (void)putchar(*value);
    }
    (void)putchar('"');
}

static bool is_same(const char *left, const char *right)
{
    return left == right || (left != NULL && right != NULL && strcmp(left, right) == 0);
}

static void row_show(const struct fw_option_row *row, void *context)
{
    struct showing *showing = context;
    bool is_default = row->source == FW_OPTION_SOURCE_DEFAULT;
    if (row->option->section == NULL || (showing->is_brief && is_default) ||
        row->table == showing->reading->settings.ignored) {
        return;
    }
    if (!is_same(showing->section, row->option->section) ||
        !is_same(showing->instance, row->instance)) {
        (void)printf("%s[%s%s%s]\n", showing->section != NULL ? "\n" : "", row->option->section,
                     row->instance != NULL ? " " : "", row->instance != NULL ? row->instance : "");
        showing->section = row->option->section;
        showing->instance = row->instance;
    }
    if (is_default && row->value[0] == '\0') {
        /* There is no value that means that it is not set. */
        (void)printf("# %s =\n", row->option->name);
        return;
    }
    (void)printf("%s = ", row->option->name);
    value_print(row->value);
    if (row->source == FW_OPTION_SOURCE_FILE) {
        (void)printf("  # line %u", row->line);
    }
    (void)putchar('\n');
}

/* ---- the command --------------------------------------------------------------------------- */

/* Reads the file, telling mistakes. 0, or a negative errno with the reason: it cannot be read. */
static int reading_begin(struct reading *reading, struct fw_reason *reason)
{
    size_t length = 0;
    int rc = reading->path != NULL
                 ? fw_file_read(reading->path, FW_OPTION_FILE_MAX, &reading->text, &length, reason)
                 : 0;
    if (rc == 0) {
        rc = fw_serve_settings_init(&reading->settings, reason);
    }
    if (rc != 0) {
        free(reading->text);
        return rc;
    }
    if (reading->text != NULL) {
        const struct fw_option_file file = {
            .name = reading->path, .text = reading->text, .length = length};
        (void)fw_options_check_file(&reading->settings.options, &file, mistake_print, reading);
    }
    return 0;
}

static enum fw_cmd_status config_check(struct reading *reading)
{
    reading_check(reading);
    if (reading->mistakes > 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "%s has %zu mistake%s", reading->path, reading->mistakes,
                           reading->mistakes > 1 ? "s" : "");
    }
    (void)printf("%s has no mistakes\n", reading->path);
    return FW_CMD_OK;
}

static enum fw_cmd_status config_show(struct reading *reading, bool is_brief)
{
    struct showing showing = {.reading = reading, .is_brief = is_brief};
    if (reading->mistakes > 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "%s cannot be shown before that is mended", reading->path);
    }
    fw_options_list(&reading->settings.options, row_show, &showing);
    return FW_CMD_OK;
}

static bool config_action(size_t index, struct fw_command_action *action)
{
    static const struct fw_command_action actions[] = {
        {"check", "FILE", "tell everything that is wrong"},
        {"show", "[FILE]", "print all options as they would be"},
    };
    if (index < FW_ARRAY_LENGTH(actions)) {
        *action = actions[index];
    }
    return index < FW_ARRAY_LENGTH(actions);
}

static enum fw_cmd_status config_with(void *context, const struct fw_option_list *words)
{
    const struct config_options *config = context;
    bool is_check = words->count == 2 && strcmp(words->items[0], "check") == 0;
    bool is_show = (words->count == 1 || words->count == 2) && strcmp(words->items[0], "show") == 0;
    if (!is_check && !is_show) {
        return fw_cmd_fail(FW_CMD_USAGE,
                           "config takes 'check FILE' or 'show [FILE]'; see 'fairway help config'");
    }
    struct reading reading = {.path = words->count == 2 ? words->items[1] : NULL};
    struct fw_reason reason;
    int rc = reading_begin(&reading, &reason);
    if (rc != 0) {
        return fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason.text);
    }
    enum fw_cmd_status status =
        is_check ? config_check(&reading) : config_show(&reading, config->is_brief);
    fw_serve_settings_fini(&reading.settings);
    free(reading.text);
    return status;
}

static enum fw_cmd_status config_run(int count, char **arguments)
{
    struct config_options config;
    const struct fw_option_table table = config_table(&config);
    return fw_tool_run(&table, count, arguments, config_with);
}

const struct fw_command fw_cmd_config = {
    .name = "config",
    .summary = "check a configuration, or show what it means",
    .usage = "config check FILE\n"
             "config show [OPTIONS] [FILE]",
    .about = "check tells everything that 'fairway serve --config FILE' would refuse, with\n"
             "file and line, and ends with status 64 if there is something. It opens no port\n"
             "and changes nothing, so it can be run beside a server. show prints all options\n"
             "as a server would have them, in the form of a configuration file.",
    .options = config_options,
    .option_count = FW_ARRAY_LENGTH(config_options),
    .action = config_action,
    .run = config_run,
};
