/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway stats: what a running server counts, for people as tables and for programs as JSON.
 *
 * The server answers names and values. Where a name is "thing:figure", as in the groups tenants,
 * conns, threads and items, the things become lines of a table and the figures its columns.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/option.h"
#include "base/reason.h"
#include "cmd/ask.h"
#include "cmd/figures.h"
#include "cmd/tool.h"

enum { COLUMNS_MAX = 64, QUESTION_SIZE = 128, GROUP_MAX = 64 };

struct stats_config {
    struct fw_ask_server server;
    bool json;
};

static const struct fw_option stats_options[] = {
    FW_OPTION_STRING(struct stats_config, server.address, .name = "server",
                     .default_text = "127.0.0.1", .value_name = "ADDRESS",
                     .help = "which one to ask; with or without a port, or unix:PATH"),
    FW_OPTION_STRING(struct stats_config, server.login_file, .name = "login", .value_name = "FILE",
                     .help = "a file with the line user:password, for a server that demands it"),
    FW_OPTION_BOOL(struct stats_config, json, .name = "json", .default_text = "no",
                   .help = "print one JSON object"),
    FW_OPTION_DURATION(struct stats_config, server.patience_ns, .name = "timeout",
                       .default_text = "5s", .unit = "s", .min = 1,
                       .help = "how long to wait for the server"),
};

static struct fw_option_table stats_table(struct stats_config *config)
{
    return (struct fw_option_table){.module = "stats",
                                    .options = stats_options,
                                    .count = FW_ARRAY_LENGTH(stats_options),
                                    .config = config};
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool is_same(const char *left, const char *right)
{
    return left != NULL && right != NULL && strcmp(left, right) == 0;
}

static void json_row(struct fw_json *json, const struct fw_figure *row)
{
    fw_json_key(json, row->name);
    fw_tool_json_value(json, row->value);
}

/* An object of each thing. Each thing's rows follow each other: so the server writes them. */
static void json_things(struct fw_json *json, const struct fw_figures *stats)
{
    const char *thing = NULL;
    for (size_t i = 0; i < stats->count; i++) {
        const struct fw_figure *row = &stats->rows[i];
        if (row->thing == NULL) {
            continue;
        }
        if (!is_same(thing, row->thing)) {
            if (thing != NULL) {
                fw_json_object_end(json);
            }
            fw_json_key(json, row->thing);
            fw_json_object_begin(json);
            thing = row->thing;
        }
        json_row(json, row);
    }
    if (thing != NULL) {
        fw_json_object_end(json);
    }
}

/*
 * General figures first, then the things, in an object that is called as the group is: people give
 * tenants their names, and might choose that of a figure.
 */
static void stats_print_json(const struct fw_figures *stats, const char *group)
{
    struct fw_json json;
    bool has_things = false;
    fw_tool_json_begin(&json);
    fw_json_object_begin(&json);
    for (size_t i = 0; i < stats->count; i++) {
        if (stats->rows[i].thing == NULL) {
            json_row(&json, &stats->rows[i]);
        } else {
            has_things = true;
        }
    }
    if (has_things) {
        fw_json_key(&json, group);
        fw_json_object_begin(&json);
        json_things(&json, stats);
        fw_json_object_end(&json);
    }
    fw_json_object_end(&json);
    fw_tool_json_end(&json);
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct table {
    const char *names[COLUMNS_MAX];
    size_t widths[COLUMNS_MAX];
    bool has_words[COLUMNS_MAX];
    size_t count;
    size_t thing_width;
};

static size_t larger(size_t left, size_t right)
{
    return left > right ? left : right;
}

/* A histogram is for programs: they get it with --json. */
static bool is_column(const struct fw_figure *row)
{
    return row->thing != NULL && strncmp(row->name, "delay_under_", 12) != 0;
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789.") == strlen(text);
}

static void table_add(struct table *table, const struct fw_figure *row)
{
    size_t i = 0;
    while (i < table->count && strcmp(table->names[i], row->name) != 0) {
        i++;
    }
    if (i == COLUMNS_MAX) {
        return;
    }
    if (i == table->count) {
        table->names[table->count++] = row->name;
        table->widths[i] = strlen(row->name);
    }
    table->widths[i] = larger(table->widths[i], strlen(row->value));
    table->has_words[i] |= !is_number(row->value);
    table->thing_width = larger(table->thing_width, strlen(row->thing));
}

/* Columns of numbers stand to the right, others to the left. */
static void cell_print(const struct table *table, size_t column, const char *text)
{
    (void)printf(table->has_words[column] ? "  %-*s" : "  %*s", (int)table->widths[column], text);
}

/* The line of the thing that begins at row `first`; returns the first row behind it. */
static size_t table_print_thing(const struct table *table, const struct fw_figures *stats,
                                size_t first)
{
    size_t end = first;
    while (end < stats->count && is_same(stats->rows[end].thing, stats->rows[first].thing)) {
        end++;
    }
    (void)printf("%-*s", (int)table->thing_width, stats->rows[first].thing);
    for (size_t i = 0; i < table->count; i++) {
        const char *value = "-";
        for (size_t j = first; j < end; j++) {
            if (strcmp(stats->rows[j].name, table->names[i]) == 0) {
                value = stats->rows[j].value;
            }
        }
        cell_print(table, i, value);
    }
    (void)putchar('\n');
    return end;
}

static void stats_print_tables(const struct fw_figures *stats)
{
    struct table table = {.count = 0};
    size_t name_width = 0;
    for (size_t i = 0; i < stats->count; i++) {
        const struct fw_figure *row = &stats->rows[i];
        if (row->thing == NULL) {
            name_width = larger(name_width, strlen(row->name));
        } else if (is_column(row)) {
            table_add(&table, row);
        }
    }
    for (size_t i = 0; i < stats->count; i++) {
        if (stats->rows[i].thing == NULL) {
            (void)printf("%-*s  %s\n", (int)name_width, stats->rows[i].name, stats->rows[i].value);
        }
    }
    if (table.count == 0) {
        return;
    }
    (void)printf("%s%-*s", name_width > 0 ? "\n" : "", (int)table.thing_width, "");
    for (size_t i = 0; i < table.count; i++) {
        cell_print(&table, i, table.names[i]);
    }
    (void)putchar('\n');
    for (size_t i = 0; i < stats->count;) {
        i = stats->rows[i].thing != NULL ? table_print_thing(&table, stats, i) : i + 1;
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum fw_cmd_status stats_show(const struct stats_config *config, const char *group)
{
    char question[QUESTION_SIZE];
    char *answer;
    struct fw_reason reason;
    struct fw_figures stats;
    if (strlen(group) > GROUP_MAX || strpbrk(group, " \t\r\n") != NULL) {
        return fw_cmd_fail(FW_CMD_USAGE, "'%.64s' is no group of figures", group);
    }
    (void)snprintf(question, sizeof question, "stats%s%s\r\n", group[0] != '\0' ? " " : "", group);
    int rc = fw_ask(&config->server, question, "END", &answer, &reason);
    if (rc == -EPROTO && group[0] != '\0') {
        return fw_cmd_fail(FW_CMD_FAILED, "no figures of the group '%s': %s", group, reason.text);
    }
    if (rc != 0) {
        return fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason.text);
    }
    if (!fw_figures_init(&stats, answer)) {
        return fw_cmd_fail(FW_CMD_FAILED, "no memory to show the figures");
    }
    if (config->json) {
        stats_print_json(&stats, group);
    } else {
        stats_print_tables(&stats);
    }
    fw_figures_fini(&stats);
    return FW_CMD_OK;
}

static enum fw_cmd_status stats_with(void *config, const struct fw_option_list *words)
{
    if (words->count > 1) {
        return fw_cmd_fail(FW_CMD_USAGE,
                           "stats takes one group of figures; see 'fairway help stats'");
    }
    return stats_show(config, words->count == 1 ? words->items[0] : "");
}

static enum fw_cmd_status stats_run(int count, char **arguments)
{
    struct stats_config config;
    const struct fw_option_table table = stats_table(&config);
    return fw_tool_run(&table, count, arguments, stats_with);
}

const struct fw_command fw_cmd_stats = {
    .name = "stats",
    .summary = "show what a running server counts",
    .usage = "stats [OPTIONS] [GROUP]",
    .about = "Shows what a running server counts. GROUP is one of tenants (who is served,\n"
             "delayed, throttled and refused, and by which rules), epochs (the cluster, and\n"
             "which part of its rates is served here), lanes, replication, volumes, settings,\n"
             "conns, threads, items and slabs; without one it shows the general figures.",
    .options = stats_options,
    .option_count = FW_ARRAY_LENGTH(stats_options),
    .run = stats_run,
};
