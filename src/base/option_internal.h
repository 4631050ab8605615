/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files behind base/option.h share, and nobody else includes: option.c holds the values,
 * option_arguments.c and option_file.c turn two kinds of text into assignments, option_text.c
 * speaks to people.
 */
#pragma once

#include "base/option.h"

/* How an option got its present value. */
struct fw_option_state {
    enum fw_option_source source;
    unsigned line; /* If from the file. */
};

/* One struct that a table fills: the plain table's only one, or one per named section. */
struct fw_option_instance {
    struct fw_list_link link;
    const struct fw_option_table *table;
    void *config;
    const char *name; /* NULL: not of a named section. */
    unsigned line;    /* Where the named section begins. */
    struct fw_option_state states[];
};

/* An option in the making: which, whence, and the text of its value. */
struct fw_option_assignment {
    struct fw_option_instance *instance;
    const struct fw_option *option;
    enum fw_option_source source;
    unsigned line;
    const char *place; /* For messages: "--port" or "fairway.conf:12: port". */
    const char *text;  /* NULL: a flag that was given without a value. */
    size_t length;
};

/* Checks the value and stores it, unless a stronger source has spoken. */
FW_MUST_CHECK int fw_option_assign(struct fw_options *options,
                                   const struct fw_option_assignment *assignment,
                                   struct fw_reason *reason);

/* Makes an instance and gives it its defaults. `name` is copied. */
FW_MUST_CHECK int fw_option_instance_create(struct fw_options *options,
                                            const struct fw_option_table *table, const char *name,
                                            size_t name_length, unsigned line,
                                            struct fw_reason *reason);

/* Appends a copy of the text. */
FW_MUST_CHECK int fw_option_list_append(struct fw_options *options, struct fw_option_list *list,
                                        const char *text, size_t length, struct fw_reason *reason);

/* Equal, where an underscore counts as a dash. */
bool fw_option_name_equal(const char *name, const char *text, size_t length);

/* True for flags that stand alone: bool and count. */
bool fw_option_is_flag(const struct fw_option *option);

/* True for options that can stand in the file only. */
bool fw_option_is_file_only(const struct fw_option_table *table);

/* The name on the command line, without the dashes. */
enum { FW_OPTION_LONG_SIZE = FW_OPTION_NAME_MAX + 1 };
void fw_option_long_name(const struct fw_option_table *table, const struct fw_option *option,
                         char long_name[FW_OPTION_LONG_SIZE]);

/* What may be given, as the end of "give ...": "a number from 0 to 65535". */
enum { FW_OPTION_ALLOWED_SIZE = 160 };
void fw_option_allowed(const struct fw_option *option, char allowed[FW_OPTION_ALLOWED_SIZE]);

/* A piece of the user's text for a message: cut, and without control characters. */
enum { FW_OPTION_QUOTE_SIZE = 48 };
const char *fw_option_quote(const char *text, size_t length, char quote[FW_OPTION_QUOTE_SIZE]);

/* The number as a user would write it: a size as 64MiB, an enum by name. */
enum { FW_OPTION_NUMBER_SIZE = 64 };
void fw_option_number_text(const struct fw_option *option, int64_t number,
                           char text[FW_OPTION_NUMBER_SIZE]);
