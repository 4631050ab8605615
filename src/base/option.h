/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: one table per module, one row per option, and everything else comes from the rows: the
 * command line, the configuration file, the help text, and the listing for stats and the manual.
 *
 * A module keeps its settings in a plain struct and describes it once:
 *
 *     struct fw_server_config { uint64_t port; struct fw_option_list listen; };
 *
 *     const struct fw_option fw_server_options[] = {
 *         FW_OPTION_UINT(struct fw_server_config, port, .section = "server", .name = "port",
 *                        .flag = 'p', .default_text = "11211", .max = 65535,
 *                        .help = "TCP port to listen on"),
 *         FW_OPTION_LIST(struct fw_server_config, listen, .section = "server", .name = "listen",
 *                        .flag = 'l', .value_name = "ADDRESS", .help = "..."),
 *     };
 *
 * The macro checks at compile time that the field has the type which the row will write. Code then
 * reads config.port; there is no lookup by name at run time and no way to misspell one.
 *
 * The caller (a subcommand) lists the tables it wants, each with the struct to fill:
 *
 *     init() sets the defaults; parse_arguments() and parse_file() in either order; fini().
 *
 * A value from the command line beats one from the file, which beats the default, whatever the
 * order of the calls: so --config can stand anywhere on the command line. What is beaten is checked
 * all the same. Lists are replaced by a stronger source and extended by the same one.
 *
 * Names. In the file an option is NAME under [SECTION]; on the command line it is --SECTION-NAME,
 * or just --NAME where the table is `bare`, as the server's are, for memcached's sake. Underscores
 * count as dashes, again for memcached. A row without section exists on the command line only.
 * Names are told apart in the whole set of tables, and so are flags; init() asserts that.
 *
 * Repeatable sections. A table with `instance_add` describes one of many, as in [tenant web] and
 * [tenant batch]. Each new name asks the module for one more struct to fill. Several modules may
 * describe the same section; each is asked. Such options are set in the file only.
 *
 * Errors. Whatever a user can get wrong comes back as one line: where (FILE:LINE or the option as
 * it was typed), what is wrong, what is allowed, and for unknown names the nearest known one. What
 * only a programmer can get wrong (a default beyond its own limits) is an assertion in init().
 *
 * Ownership: strings and lists in the structs belong to `struct fw_options` and live until fini().
 * Concurrency: none. Options are read at start and on SIGHUP, by one thread, into fresh structs.
 *
 * Why not getopt_long() and a library for INI files: each would need a table of its own, and
 * neither says what was meant.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"
#include "base/list.h"
#include "base/reason.h"

enum {
    FW_OPTION_NAME_MAX = 63,          /* Characters of a long name, a section, an instance. */
    FW_OPTION_VALUE_MAX = 4096,       /* Characters of a value; of a list, joined by commas. */
    FW_OPTION_LINE_MAX = 4096,        /* Characters of a line of the file. */
    FW_OPTION_FILE_MAX = 1024 * 1024, /* Bytes of the file. */
};

/* For the limits of sizes. */
#define FW_KIB (INT64_C(1) << 10)
#define FW_MIB (INT64_C(1) << 20)
#define FW_GIB (INT64_C(1) << 30)

enum fw_option_type {
    FW_OPTION_TYPE_UINT,
    FW_OPTION_TYPE_INT,
    FW_OPTION_TYPE_OCTAL,
    FW_OPTION_TYPE_SIZE,
    FW_OPTION_TYPE_DURATION,
    FW_OPTION_TYPE_BOOL,
    FW_OPTION_TYPE_COUNT,
    FW_OPTION_TYPE_ENUM,
    FW_OPTION_TYPE_STRING,
    FW_OPTION_TYPE_LIST,
    FW_OPTION_TYPE_EXTENDED,
};

struct fw_option {
    enum fw_option_type type; /* Both set by the macros below. */
    size_t offset;

    const char *section; /* NULL: on the command line only. */
    const char *name;    /* Small letters, digits and dashes. */
    char flag;           /* memcached's letter, or 0. */
    /*
     * What a bare number of a size or duration counts in: "MiB", "s"; NULL is bytes and seconds. Of
     * other numbers just a word for the help: "connections".
     */
    const char *unit;
    /* As a user would write it. NULL leaves a string NULL and a list empty; others need one. */
    const char *default_text;
    /* Limits of a number in the field's own unit, of a string or an item its length. A `max` of 0
     * is no limit but the field's; no number is above INT64_MAX. */
    int64_t min;
    int64_t max;
    /* Of a duration that may also be yes, no or given without a value: what yes means. No is 0. */
    const char *yes_text;
    const char *const *names; /* Of an enum, in the order of its values, NULL at the end. */
    bool live;                /* A running server can take a new value over. */
    const char *value_name;   /* In the help, where it should be more than NUMBER or TEXT. */
    const char *help;         /* A phrase, without capital and full stop. */
};

/* Items in the order they were given. All memory belongs to the fw_options that filled it. */
struct fw_option_list {
    const char **items;
    size_t count;
};

struct fw_option_table {
    const char *module;
    const struct fw_option *options;
    size_t count;
    void *config; /* What the offsets count from, or what `instance_add` gets. */
    bool bare;    /* The long names do without the section. */
    /*
     * Makes the module's struct for [SECTION name]; `name` lives until fini(). The struct stays at
     * its address until then. Returns 0, or a negative errno with the reason (too many, ...).
     */
    int (*instance_add)(void *config, const char *name, void **instance, struct fw_reason *reason);
};

struct fw_options {
    const struct fw_option_table *tables;
    size_t count;
    struct fw_list instances; /* One for each plain table, then one for each named section. */
    struct fw_option_owned *owned;
};

/* Fills all structs with their defaults. Returns 0 or -ENOMEM. `tables` must outlive `options`. */
FW_MUST_CHECK int fw_options_init(struct fw_options *options, const struct fw_option_table *tables,
                                  size_t count, struct fw_reason *reason);

/* Frees all strings and lists: the structs' pointers are dead after it. */
void fw_options_fini(struct fw_options *options);

/*
 * Takes the arguments behind the subcommand's name: --name value, --name=value, --name and
 * --no-name for booleans (and durations that may be yes; a number behind --name is its value), -p
 * 11211, -p11211, -vvd, and -- before what is not an option. What is none goes to `rest`; if `rest`
 * is NULL it is an error. Returns 0, -EINVAL or -ENOMEM with the reason.
 */
FW_MUST_CHECK int fw_options_parse_arguments(struct fw_options *options, int count,
                                             char *const *arguments, struct fw_option_list *rest,
                                             struct fw_reason *reason);

/*
 * Takes the text of a configuration file; `file_name` is for messages.
 *
 *     # A comment, also with ; and also behind a value if a space stands before it.
 *     [server]
 *     listen = 127.0.0.1:11211, 127.0.0.1:11212
 *     user = "quoted, for what would be a comment or loses its spaces; \" and \\ inside"
 *     [tenant web]
 *     weight = 2
 *
 * Returns 0, -EINVAL, -ENOMEM, or what an `instance_add` answered, with the reason. After an error
 * the structs hold a part of the file; they are of no use.
 */
FW_MUST_CHECK int fw_options_parse_file(struct fw_options *options, const char *file_name,
                                        const char *text, size_t length, struct fw_reason *reason);

/*
 * The same for who wants to know everything that is wrong: goes on behind each mistake and tells
 * it. What stands under a section that was refused is passed over. Returns how many mistakes there
 * were; the structs hold what was right.
 */
struct fw_option_file {
    const char *name;
    const char *text;
    size_t length;
};
size_t fw_options_check_file(struct fw_options *options, const struct fw_option_file *text,
                             void (*tell)(void *context, const struct fw_reason *reason),
                             void *context);

/* Writes the help for all options, grouped by section, 80 columns wide. */
void fw_options_print_help(const struct fw_option_table *tables, size_t count, FILE *out);

/* What the help says about a row, in pieces, for who lays it out in another way. */
struct fw_option_text {
    char long_name[FW_OPTION_NAME_MAX + 1]; /* Without the dashes. */
    const char *value_name;                 /* "" for flags. */
    char allowed[160];                      /* "a number from 0 to 65535". */
    bool is_file_only;                      /* Of a named section. */
    bool is_on; /* A flag that is on by default: it is given as --no-NAME. */
};
void fw_option_describe(const struct fw_option_table *table, const struct fw_option *option,
                        struct fw_option_text *text);

enum fw_option_source {
    FW_OPTION_SOURCE_DEFAULT,
    FW_OPTION_SOURCE_FILE,
    FW_OPTION_SOURCE_COMMAND_LINE,
};

/* An option and its present value, as fw_options_list() shows it; all lent for the call. */
struct fw_option_row {
    const struct fw_option_table *table;
    const struct fw_option *option;
    const char *instance;  /* NULL unless in a named section. */
    const char *long_name; /* Without the dashes. */
    const char *value;     /* As a user would write it; empty for a string that is NULL. */
    enum fw_option_source source;
    unsigned line; /* Of the file, if it came from there. */
};

/* Shows all options of all tables and named sections, in order. */
void fw_options_list(const struct fw_options *options,
                     void (*visit)(const struct fw_option_row *row, void *argument),
                     void *argument);

/*
 * The rows. Each macro names the struct, the field, and then the members of struct fw_option that
 * the row sets.
 */
#define FW_OPTION_UINT(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_UINT, FW_OPTION_FIELD(config, field, uint64_t), __VA_ARGS__)
#define FW_OPTION_INT(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_INT, FW_OPTION_FIELD(config, field, int64_t), __VA_ARGS__)
/* The mode of a file. */
#define FW_OPTION_OCTAL(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_OCTAL, FW_OPTION_FIELD(config, field, uint64_t), __VA_ARGS__)
/* In bytes. */
#define FW_OPTION_SIZE(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_SIZE, FW_OPTION_FIELD(config, field, uint64_t), __VA_ARGS__)
/* In nanoseconds. */
#define FW_OPTION_DURATION(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_DURATION, FW_OPTION_FIELD(config, field, int64_t), __VA_ARGS__)
#define FW_OPTION_BOOL(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_BOOL, FW_OPTION_FIELD(config, field, bool), __VA_ARGS__)
/* How often the flag was given, as in -vv; in the file a number. */
#define FW_OPTION_COUNT(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_COUNT, FW_OPTION_FIELD(config, field, uint64_t), __VA_ARGS__)
/* The field is an int or an enum whose values count from 0 as `names` does. */
#define FW_OPTION_ENUM(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_ENUM, FW_OPTION_FIELD_ENUM(config, field), __VA_ARGS__)
#define FW_OPTION_STRING(config, field, ...) \
    FW_OPTION_ROW(FW_OPTION_TYPE_STRING, FW_OPTION_FIELD(config, field, const char *), __VA_ARGS__)
/* Items separated by commas, and by giving the option again. An item holds no comma. */
#define FW_OPTION_LIST(config, field, ...)                                                    \
    FW_OPTION_ROW(FW_OPTION_TYPE_LIST, FW_OPTION_FIELD(config, field, struct fw_option_list), \
                  __VA_ARGS__)
/* memcached's -o: a list of other options, name=value or name or no_name. Has no field. */
#define FW_OPTION_EXTENDED(...) FW_OPTION_ROW(FW_OPTION_TYPE_EXTENDED, 0, __VA_ARGS__)

#define FW_OPTION_ROW(kind, field_offset, ...)                \
    {                                                         \
        .type = (kind), .offset = (field_offset), __VA_ARGS__ \
    }

/* The offset, with an assertion that has to be inside an expression. */
#define FW_OPTION_OFFSET(config, field, condition, message)            \
    (offsetof(config, field) + 0 * sizeof(struct {                     \
                                   _Static_assert(condition, message); \
                                   char unused;                        \
                               }))
#define FW_OPTION_FIELD(config, field, wanted)                                               \
    FW_OPTION_OFFSET(config, field,                                                          \
                     __builtin_types_compatible_p(__typeof__(((config *)0)->field), wanted), \
                     "the field " #field " of this option must be a " #wanted)
/* Plus makes an int or unsigned of an enum, but of nothing else that is as wide. */
#define FW_OPTION_FIELD_ENUM(config, field)                                              \
    FW_OPTION_OFFSET(                                                                    \
        config, field,                                                                   \
        sizeof(((config *)0)->field) == sizeof(int) &&                                   \
            (__builtin_types_compatible_p(__typeof__(+((config *)0)->field), int) ||     \
             __builtin_types_compatible_p(__typeof__(+((config *)0)->field), unsigned)), \
        "the field " #field " of this option must be an enum or an int")
