/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subcommands. Each is one file with one `struct fw_command`, listed in main.c; that row is all the
 * rest of the program knows of it.
 *
 * A command gets the arguments behind its name and returns the exit status. What it was asked for
 * goes to stdout. Why it failed goes to stderr, in one line, through fw_cmd_fail().
 *
 * What it tells about itself is data, not a function that prints: `--help`, the manual pages and
 * the shells' completion are made of the same rows and cannot differ from each other.
 */
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "base/option.h"

/* The exit statuses, and the only ones. README.md says why these. */
enum fw_cmd_status {
    FW_CMD_OK = 0,
    FW_CMD_FAILED = 1, /* Understood, but it could not be done. */
    FW_CMD_USAGE = 64, /* EX_USAGE: the command line or the configuration is wrong: change it. */
    FW_CMD_NO_SOCKET = 71, /* EX_OSERR: it cannot listen where it should. */
};

/* One of the things that a command can do, where these have names: `fairway ring push`. */
struct fw_command_action {
    const char *name;
    const char *noun; /* What it takes besides; NULL: nothing that is not in the usage. */
    const char *summary;
};

enum { FW_COMMAND_TABLES_MAX = 32 };

struct fw_command {
    const char *name;
    const char *summary; /* A phrase for the list of commands. */
    const char *usage;   /* Lines without `fairway`: "log recover [OPTIONS] FILE". */
    const char
        *about; /* Sentences, in lines of at most 79 columns; empty ones between paragraphs. */
    const struct fw_option *options;
    size_t option_count;
    enum fw_cmd_status (*run)(int count, char **arguments);
    /* For those with more than one table, instead of `options`: fills in what there is. */
    size_t (*tables)(struct fw_option_table tables[FW_COMMAND_TABLES_MAX]);
    /* Tells of action number `index`. False: there are no more. NULL: it has none. */
    bool (*action)(size_t index, struct fw_command_action *action);
};

/* All tables of the command, without structs to fill. Returns how many. */
size_t fw_command_tables(const struct fw_command *command,
                         struct fw_option_table tables[FW_COMMAND_TABLES_MAX]);

void fw_command_print_help(const struct fw_command *command, FILE *out);

extern const struct fw_command fw_cmd_admin;
extern const struct fw_command fw_cmd_config;
extern const struct fw_command fw_cmd_dump;
extern const struct fw_command fw_cmd_ha_agent;
extern const struct fw_command fw_cmd_help;
extern const struct fw_command fw_cmd_load;
extern const struct fw_command fw_cmd_log;
extern const struct fw_command fw_cmd_ring;
extern const struct fw_command fw_cmd_serve;
extern const struct fw_command fw_cmd_stats;
extern const struct fw_command fw_cmd_top;
extern const struct fw_command fw_cmd_trace;
extern const struct fw_command fw_cmd_version;
extern const struct fw_command fw_cmd_volume;

/* All commands in the order of the list; NULL at the end. */
extern const struct fw_command *const fw_commands[];

/* The short help: what there is, on one screen. */
void fw_commands_print_help(FILE *out);

/* The command, or NULL; then it has said on stderr what was probably meant. */
const struct fw_command *fw_command_find(const char *name);

/*
 * Makes text that came from elsewhere fit to be seen: what would steer a terminal becomes '?'. Only
 * the ends of lines and tabs stay.
 */
void fw_cmd_tame(char *text, size_t length);

/* Prints "fairway: " and the line on stderr, tame, and returns `status`. */
enum fw_cmd_status fw_cmd_fail(enum fw_cmd_status status, const char *format, ...) FW_PRINTF(2, 3);

/* For commands that take no arguments: complains about the first, if there is one. */
enum fw_cmd_status fw_cmd_no_arguments(const struct fw_command *command, int count,
                                       char *const *arguments);
