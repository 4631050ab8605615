/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/figures.h"

#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "cmd/cmd.h"

/* One line. False: it is no figure. */
static bool figure_read(struct fw_figure *figure, char *line)
{
    line[strcspn(line, "\r")] = '\0';
    fw_cmd_tame(line, strlen(line));
    char *name = line + strlen("STAT ");
    char *value = strncmp(line, "STAT ", 5) == 0 ? strchr(name, ' ') : NULL;
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    char *colon = strrchr(name, ':');
    *figure = (struct fw_figure){.name = name, .value = value};
    if (colon != NULL) {
        *colon = '\0';
        figure->thing = name;
        figure->name = colon + 1;
    }
    return true;
}

static void things_find(struct fw_figures *figures)
{
    struct fw_thing *last = NULL;
    for (size_t i = 0; i < figures->count; i++) {
        const char *name = figures->rows[i].thing;
        if (name == NULL) {
            last = NULL;
        } else if (last != NULL && strcmp(last->name, name) == 0) {
            last->count++;
        } else {
            last = &figures->things[figures->thing_count++];
            *last = (struct fw_thing){.name = name, .first = i, .count = 1};
        }
    }
}

bool fw_figures_init(struct fw_figures *figures, char *answer)
{
    size_t lines = 1;
    for (const char *at = answer; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    *figures = (struct fw_figures){.text = answer,
                                   .rows = calloc(lines, sizeof *figures->rows),
                                   .things = calloc(lines, sizeof *figures->things)};
    if (figures->rows == NULL || figures->things == NULL) {
        fw_figures_fini(figures);
        return false;
    }
    char *rest = answer;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        figures->count += figure_read(&figures->rows[figures->count], line);
    }
    things_find(figures);
    return true;
}

void fw_figures_fini(struct fw_figures *figures)
{
    free(figures->things);
    free(figures->rows);
    free(figures->text);
    *figures = (struct fw_figures){.text = NULL};
}

const char *fw_figures_get(const struct fw_figures *figures, const char *name)
{
    for (size_t i = 0; i < figures->count; i++) {
        if (figures->rows[i].thing == NULL && strcmp(figures->rows[i].name, name) == 0) {
            return figures->rows[i].value;
        }
    }
    return NULL;
}

const char *fw_figures_get_of(const struct fw_figures *figures, const struct fw_thing *thing,
                              const char *name)
{
    for (size_t i = 0; thing != NULL && i < thing->count; i++) {
        if (strcmp(figures->rows[thing->first + i].name, name) == 0) {
            return figures->rows[thing->first + i].value;
        }
    }
    return NULL;
}

static uint64_t number(const char *value)
{
    uint64_t result;
    bool is_number =
        value != NULL && fw_parse_uint(value, strlen(value), 0, UINT64_MAX, &result) == 0;
    return is_number ? result : 0;
}

uint64_t fw_figures_number(const struct fw_figures *figures, const char *name)
{
    return number(fw_figures_get(figures, name));
}

uint64_t fw_figures_number_of(const struct fw_figures *figures, const struct fw_thing *thing,
                              const char *name)
{
    return number(fw_figures_get_of(figures, thing, name));
}

const struct fw_thing *fw_figures_thing(const struct fw_figures *figures, const char *name,
                                        size_t hint)
{
    for (size_t i = 0; i < figures->thing_count; i++) {
        const struct fw_thing *thing = &figures->things[(hint + i) % figures->thing_count];
        if (strcmp(thing->name, name) == 0) {
            return thing;
        }
    }
    return NULL;
}
