/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no configuration file, however broken, makes the parser read or write where it should not,
 * and what it takes it can also show again.
 * Method: libFuzzer feeds the file; every field type and a repeatable section are in the table. The
 * values that come out of the listing, except those that a bare line cannot hold, are assigned once
 * more from the command line, which must take them: what we print is what we read.
 */
#include "base/option.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static const char *const names[] = {"fifo", "crr", "wfq", NULL};

struct config {
    uint64_t number;
    int64_t integer;
    uint64_t mode;
    uint64_t size;
    int64_t duration_ns;
    bool truth;
    uint64_t count;
    int choice;
    const char *string;
    struct fw_option_list list;
};

static const struct fw_option plain_options[] = {
    FW_OPTION_UINT(struct config, number, .section = "server", .name = "number", .flag = 'n',
                   .default_text = "1", .max = 65535, .help = "x"),
    FW_OPTION_INT(struct config, integer, .section = "server", .name = "integer",
                  .default_text = "-1", .help = "x"),
    FW_OPTION_OCTAL(struct config, mode, .section = "server", .name = "mode", .default_text = "700",
                    .max = 0777, .help = "x"),
    FW_OPTION_SIZE(struct config, size, .section = "server", .name = "size", .unit = "MiB",
                   .default_text = "64", .help = "x"),
    FW_OPTION_DURATION(struct config, duration_ns, .section = "log", .name = "duration",
                       .unit = "ms", .default_text = "1", .help = "x"),
    FW_OPTION_BOOL(struct config, truth, .section = "log", .name = "truth", .default_text = "no",
                   .help = "x"),
    FW_OPTION_COUNT(struct config, count, .section = "log", .name = "count", .default_text = "0",
                    .max = 3, .help = "x"),
    FW_OPTION_ENUM(struct config, choice, .section = "log", .name = "choice",
                   .default_text = "fifo", .names = names, .help = "x"),
    FW_OPTION_STRING(struct config, string, .section = "log", .name = "string", .default_text = "s",
                     .help = "x"),
    FW_OPTION_LIST(struct config, list, .section = "log", .name = "list", .default_text = "a, b",
                   .help = "x"),
};

static const struct fw_option named_options[] = {
    FW_OPTION_UINT(struct config, number, .section = "tenant", .name = "weight",
                   .default_text = "1", .help = "x"),
    FW_OPTION_LIST(struct config, list, .section = "tenant", .name = "match", .help = "x"),
};

enum { INSTANCES_MAX = 4 };
struct instances {
    struct config all[INSTANCES_MAX];
    size_t count;
};

static int instance_add(void *config, const char *name, void **instance, struct fw_reason *reason)
{
    struct instances *instances = config;
    FW_ASSERT(strlen(name) > 0 && strlen(name) <= FW_OPTION_NAME_MAX);
    if (instances->count == INSTANCES_MAX) {
        return fw_reason_set(reason, -1, "full");
    }
    *instance = &instances->all[instances->count];
    instances->count++;
    return 0;
}

static void value_read_again(const struct fw_option_row *row, void *argument)
{
    bool is_empty = row->value[0] == '\0';
    if (row->instance != NULL || (is_empty && row->option->type == FW_OPTION_TYPE_LIST)) {
        return; /* Not on the command line; and an empty list cannot be written. */
    }
    char text[FW_OPTION_NAME_MAX + FW_OPTION_VALUE_MAX + 8];
    char *const arguments[] = {text};
    struct fw_reason reason;
    (void)snprintf(text, sizeof text, "--%s=%s", row->long_name, row->value);
    int rc = fw_options_parse_arguments(argument, 1, arguments, NULL, &reason);
    FW_ASSERT(rc == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config;
    struct instances instances = {.count = 0};
    const struct fw_option_table tables[] = {
        {.module = "plain",
         .options = plain_options,
         .count = FW_ARRAY_LENGTH(plain_options),
         .config = &config,
         .bare = true},
        {.module = "named",
         .options = named_options,
         .count = FW_ARRAY_LENGTH(named_options),
         .config = &instances,
         .instance_add = instance_add},
    };
    struct fw_options options;
    struct fw_reason reason;
    if (fw_options_init(&options, tables, FW_ARRAY_LENGTH(tables), &reason) != 0) {
        return 0;
    }
    reason.text[0] = '\0';
    int rc = fw_options_parse_file(&options, "f", (const char *)data, size, &reason);
    FW_ASSERT((rc == 0) == (reason.text[0] == '\0'));
    FW_ASSERT(strchr(reason.text, '\n') == NULL);
    fw_options_list(&options, value_read_again, &options);
    fw_options_fini(&options);
    return 0;
}
