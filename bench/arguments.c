/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

enum { EXIT_USAGE = 2 };

static void print_help(const char *program, const struct fw_argument table[], size_t count)
{
    (void)printf("usage: %s [options]\n", program);
    for (size_t i = 0; i < count; i++) {
        const struct fw_argument *row = &table[i];
        (void)printf("  --%-12s %s", row->name, row->help);
        if (row->number != NULL) {
            (void)printf(" (%" PRIu64 "; %" PRIu64 " to %" PRIu64 ")", *row->number, row->min,
                         row->max);
        } else if (row->text != NULL) {
            (void)printf(" (%s)", *row->text);
        }
        (void)printf("\n");
    }
}

static _Noreturn void refuse(const char *program, const char *argument, const char *why)
{
    (void)fprintf(stderr, "%s: %s: %s; try --help\n", program, argument, why);
    exit(EXIT_USAGE);
}

static const struct fw_argument *find_row(const char *name, const struct fw_argument table[],
                                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, table[i].name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

void fw_arguments_parse(int argc, char **argv, const struct fw_argument table[], size_t count)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--help") == 0) {
            print_help(argv[0], table, count);
            exit(EXIT_SUCCESS);
        }
        bool dashes = strncmp(argument, "--", 2) == 0;
        const struct fw_argument *row = dashes ? find_row(argument + 2, table, count) : NULL;
        if (row == NULL) {
            refuse(argv[0], argument, "no such option");
        }
        if (row->flag != NULL) {
            *row->flag = true;
            continue;
        }
        if (++i == argc) {
            refuse(argv[0], argument, "needs a value");
        }
        if (row->text != NULL) {
            *row->text = argv[i];
        } else if (fw_parse_uint(argv[i], strlen(argv[i]), row->min, row->max, row->number) != 0) {
            refuse(argv[0], argument, "not a number within its limits");
        }
    }
}
