/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command lines of the programs in bench/: one row per option, from which come both the parser
 * and the text of --help. The server's own options need files, sections and live changes; these
 * need none of that and stay free of what they measure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fw_argument {
    const char *name;  /* Without the dashes. */
    const char *help;  /* One line; the default and the limits are added to it. */
    uint64_t *number;  /* Holds the default; limits below. NULL if the option is not a number. */
    uint64_t min, max; /* Of the number. */
    bool *flag;        /* Set by an option without a value, otherwise NULL. */
    const char **text; /* Points into argv afterwards, otherwise NULL. */
};

/*
 * Parses the command line into the rows' targets. --help prints the table and ends the process with
 * 0; anything wrong is said in one line and ends it with 2.
 */
void fw_arguments_parse(int argc, char **argv, const struct fw_argument table[], size_t count);
