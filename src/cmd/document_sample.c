/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sample of a configuration: every option with its explanation and its default, as comments. A
 * line that begins with "#name" can be used by taking the # away; text begins with "# ".
 */
#include <string.h>

#include "cmd/document.h"

enum { WIDTH = 78 };

static void words_print(const char *text, size_t *column)
{
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (*column > 1 && *column + 1 + word > WIDTH) {
            (void)fputs("\n#", stdout);
            *column = 1;
        }
        (void)printf(" %.*s", (int)word, text);
        *column += 1 + word;
        text += word;
        text += strspn(text, " ");
    }
}

static void option_print(const struct fw_option_table *table, const struct fw_option *option)
{
    struct fw_option_text text;
    char memory[FW_OPTION_NAME_MAX + 1];
    char more[sizeof text.allowed + 64];
    size_t column = 1;
    fw_option_describe(table, option, &text);
    bool is_plain = strcmp(text.allowed, "a text") == 0;
    (void)snprintf(more, sizeof more, "(%s%s%s)", is_plain ? "" : text.allowed,
                   option->live && !is_plain ? "; " : "",
                   option->live ? "SIGHUP takes a new value over" : "");
    (void)putchar('#');
    words_print(option->help, &column);
    words_print(is_plain && !option->live ? "" : more, &column);
    const char *value = fw_document_default(option, memory);
    (void)printf("\n#%s = %s\n\n", option->name, value != NULL ? value : text.value_name);
}

static void section_print(const struct fw_option_table *tables, size_t count, const char *section,
                          bool is_named)
{
    if (section == NULL) {
        return; /* For the command line only. */
    }
    if (is_named) {
        (void)printf("# One section for each %s, with a name of its own.\n#[%s NAME]\n\n", section,
                     section);
    } else {
        (void)printf("[%s]\n\n", section);
    }
    fw_document_options(tables, count, section, option_print);
}

void fw_document_sample(const struct fw_option_table *tables, size_t count)
{
    (void)puts("# A configuration for `fairway serve --config FILE`, in which everything is a\n"
               "# comment: take away the # before what you need. Values are the defaults, or in\n"
               "# capitals what to give. `fairway config check FILE` tells all mistakes.\n");
    fw_document_sections(tables, count, section_print);
}
