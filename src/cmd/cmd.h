/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subcommands. Each is one file with one `struct fw_command`, listed in main.c; that row is all the
 * rest of the program knows of it.
 *
 * A command gets the arguments behind its name and returns the exit status. What it was asked for
 * goes to stdout. Why it failed goes to stderr, in one line, through fw_cmd_fail().
 */
#pragma once

#include <stdio.h>

#include "base/base.h"

/* The exit statuses, and the only ones. README.md says why these. */
enum fw_cmd_status {
    FW_CMD_OK = 0,
    FW_CMD_FAILED = 1, /* Understood, but it could not be done. */
    FW_CMD_USAGE = 64, /* EX_USAGE: the command line or the configuration is wrong: change it. */
    FW_CMD_NO_SOCKET = 71, /* EX_OSERR: it cannot listen where it should. */
};

struct fw_command {
    const char *name;
    const char *summary; /* A phrase for the list of commands. */
    enum fw_cmd_status (*run)(int count, char **arguments);
    void (*print_help)(FILE *out);
};

extern const struct fw_command fw_cmd_admin;
extern const struct fw_command fw_cmd_config;
extern const struct fw_command fw_cmd_dump;
extern const struct fw_command fw_cmd_help;
extern const struct fw_command fw_cmd_load;
extern const struct fw_command fw_cmd_log;
extern const struct fw_command fw_cmd_ring;
extern const struct fw_command fw_cmd_serve;
extern const struct fw_command fw_cmd_stats;
extern const struct fw_command fw_cmd_top;
extern const struct fw_command fw_cmd_version;
extern const struct fw_command fw_cmd_volume;

/* All commands in the order of the list; NULL at the end. */
extern const struct fw_command *const fw_commands[];

/* The command, or NULL; then it has said on stderr what was probably meant. */
const struct fw_command *fw_command_find(const char *name);

/* Prints "fairway: " and the line on stderr, and returns `status`. */
enum fw_cmd_status fw_cmd_fail(enum fw_cmd_status status, const char *format, ...) FW_PRINTF(2, 3);

/* For commands that take no arguments: complains about the first, if there is one. */
enum fw_cmd_status fw_cmd_no_arguments(const struct fw_command *command, int count,
                                       char *const *arguments);
