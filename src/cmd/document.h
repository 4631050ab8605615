/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `document` share: the program that writes manual pages, the sample of a
 * configuration and the shells' completion, when Fairway is built. It is linked with the commands
 * themselves, so that each option, limit and default it tells is the one that the server has. It is
 * not installed.
 *
 * Everything goes to stdout.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/option.h"
#include "cmd/cmd.h"

/* The manual page of a command, in section 1; that of the program; and fairway.conf(5). */
void fw_document_command(const struct fw_command *command);
void fw_document_program(void);
void fw_document_configuration(const struct fw_option_table *tables, size_t count);

/* A configuration in which everything is a comment. */
void fw_document_sample(const struct fw_option_table *tables, size_t count);

void fw_document_bash(void);
void fw_document_zsh(void);

/*
 * Calls visit() for each option of the section, in all tables. NULL are those of the command line
 * only.
 */
typedef void (*fw_document_visit)(const struct fw_option_table *table,
                                  const struct fw_option *option);
void fw_document_options(const struct fw_option_table *tables, size_t count, const char *section,
                         fw_document_visit visit);

/*
 * Calls visit() once for each section, in the order in which they first occur; `is_named` is true
 * for one of which there may be many.
 */
void fw_document_sections(const struct fw_option_table *tables, size_t count,
                          void (*visit)(const struct fw_option_table *tables, size_t count,
                                        const char *section, bool is_named));

/* The default, as it would be written in full: a bare number gets its unit. NULL: there is none. */
const char *fw_document_default(const struct fw_option *option, char text[FW_OPTION_NAME_MAX + 1]);

/* Its value is the name of a file or folder. */
bool fw_document_is_path(const struct fw_option *option);
