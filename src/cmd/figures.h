/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server answers to `stats`, cut into rows: STAT THING:NAME VALUE, or without a thing.
 *
 * The rows of a thing (a tenant, a core, a slave) follow each other, as servers write them, and so
 * things are ranges of rows. All of it comes from the network: nothing of it is believed but that
 * it consists of lines.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

struct fw_figure {
    const char *thing; /* NULL: the name has none. */
    const char *name;
    const char *value;
};

struct fw_thing {
    const char *name;
    size_t first; /* Of its rows, and how many they are. */
    size_t count;
};

struct fw_figures {
    char *text; /* What the rows point into. */
    struct fw_figure *rows;
    size_t count;
    struct fw_thing *things;
    size_t thing_count;
};

/* Takes `answer`, which malloc() gave, and cuts it in place. False: no memory; it is freed. */
FW_MUST_CHECK bool fw_figures_init(struct fw_figures *figures, char *answer);
void fw_figures_fini(struct fw_figures *figures);

/* The value of a row without a thing; or of one of the thing's. NULL: there is none. */
const char *fw_figures_get(const struct fw_figures *figures, const char *name);
const char *fw_figures_get_of(const struct fw_figures *figures, const struct fw_thing *thing,
                              const char *name);

/* The same as numbers; 0 for what is not there or no whole number. */
uint64_t fw_figures_number(const struct fw_figures *figures, const char *name);
uint64_t fw_figures_number_of(const struct fw_figures *figures, const struct fw_thing *thing,
                              const char *name);

/* The thing of that name, looked for at `hint` first; or NULL. */
const struct fw_thing *fw_figures_thing(const struct fw_figures *figures, const char *name,
                                        size_t hint);
