/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands for people have in common: options before they begin, and JSON on stdout.
 *
 * A process runs one command, so there is one JSON document at a time and its buffer is static.
 */
#pragma once

#include "base/json.h"
#include "base/option.h"
#include "cmd/cmd.h"

/*
 * Fills the table's struct with defaults and the arguments, and then calls run() with it and the
 * words that are no options. Strings in both live as long as run() does.
 */
enum fw_cmd_status fw_tool_run(const struct fw_option_table *table, int count, char **arguments,
                               enum fw_cmd_status (*run)(void *config,
                                                         const struct fw_option_list *words));

/* Begins a document on stdout, for people; or in the layout that is asked for. */
void fw_tool_json_begin(struct fw_json *json);
void fw_tool_json_begin_as(struct fw_json *json, enum fw_json_layout layout);

/* Ends it, with a new line. main() looks whether stdout took all of it. */
void fw_tool_json_end(struct fw_json *json);

/* Says on stderr what --force is about to overwrite, if there is anything. */
void fw_tool_tell_lost(const char *path);

/* A value that came as text: a whole number as such, everything else as a string. */
void fw_tool_json_value(struct fw_json *json, const char *value);
