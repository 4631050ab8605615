/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What options say to people: names, values, what is allowed, and the help.
 */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/option_internal.h"

enum {
    HELP_WIDTH = 80,
    HELP_TEXT_COLUMN = 30, /* Where the sentences begin. */
    HELP_LINE_SIZE = 1024,
};

void fw_option_long_name(const struct fw_option_table *table, const struct fw_option *option,
                         char long_name[FW_OPTION_LONG_SIZE])
{
    if (table->bare || option->section == NULL) {
        (void)snprintf(long_name, FW_OPTION_LONG_SIZE, "%s", option->name);
    } else {
        (void)snprintf(long_name, FW_OPTION_LONG_SIZE, "%s-%s", option->section, option->name);
    }
}

const char *fw_option_quote(const char *text, size_t length, char quote[FW_OPTION_QUOTE_SIZE])
{
    static const char dots[] = "...";
    size_t shown = length;
    if (length >= FW_OPTION_QUOTE_SIZE) {
        shown = FW_OPTION_QUOTE_SIZE - sizeof dots;
        while (shown > 0 && ((unsigned char)text[shown] & 0xc0) == 0x80) {
            shown--; /* Not in the middle of a UTF-8 character. */
        }
    }
    for (size_t i = 0; i < shown; i++) {
        quote[i] = text[i];
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            quote[i] = '?';
        }
    }
    (void)snprintf(quote + shown, FW_OPTION_QUOTE_SIZE - shown, "%s", shown < length ? dots : "");
    return quote;
}

/* `number` in the largest unit that leaves no rest. */
static void in_largest_unit(int64_t number, const char *const *units, const int64_t *factors,
                            char text[FW_OPTION_NUMBER_SIZE])
{
    size_t last = 0;
    for (size_t i = 0; units[i] != NULL; i++) {
        if (number % factors[i] == 0) {
            last = i;
        }
    }
    if (number == 0) {
        (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "0");
    } else {
        (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "%" PRId64 "%s", number / factors[last],
                       units[last]);
    }
}

void fw_option_number_text(const struct fw_option *option, int64_t number,
                           char text[FW_OPTION_NUMBER_SIZE])
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB", NULL};
    static const int64_t sizes_bytes[] = {1, INT64_C(1) << 10, INT64_C(1) << 20, INT64_C(1) << 30,
                                          INT64_C(1) << 40};
    static const char *const times[] = {"ns", "us", "ms", "s", "m", "h", "d", NULL};
    static const int64_t times_ns[] = {1,
                                       1000,
                                       1000000,
                                       1000000000,
                                       INT64_C(60) * 1000000000,
                                       INT64_C(3600) * 1000000000,
                                       INT64_C(86400) * 1000000000};
    switch (option->type) {
    case FW_OPTION_TYPE_SIZE:
        in_largest_unit(number, sizes, sizes_bytes, text);
        return;
    case FW_OPTION_TYPE_DURATION:
        in_largest_unit(number, times, times_ns, text);
        if (option->yes_text != NULL && (number == 0 || strcmp(text, option->yes_text) == 0)) {
            (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "%s", number == 0 ? "no" : "yes");
        }
        return;
    case FW_OPTION_TYPE_BOOL:
        (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "%s", number != 0 ? "yes" : "no");
        return;
    case FW_OPTION_TYPE_ENUM:
        (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "%s", option->names[number]);
        return;
    case FW_OPTION_TYPE_OCTAL:
        (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "%#" PRIo64, (uint64_t)number);
        return;
    case FW_OPTION_TYPE_UINT:
    case FW_OPTION_TYPE_INT:
    case FW_OPTION_TYPE_COUNT:
    case FW_OPTION_TYPE_STRING: /* Of its length. */
    case FW_OPTION_TYPE_LIST:
        (void)snprintf(text, FW_OPTION_NUMBER_SIZE, "%" PRId64, number);
        return;
    case FW_OPTION_TYPE_EXTENDED:
        text[0] = '\0';
        return;
    }
}

/* Adds to the text at `*length`; what does not fit is cut. */
static void add(char *text, size_t size, size_t *length, const char *piece)
{
    int added = snprintf(text + *length, size - *length, "%s", piece);
    FW_ASSERT(added >= 0);
    *length += (size_t)added < size - *length ? (size_t)added : size - *length - 1;
}

static void add_names(const struct fw_option *option, char *text, size_t size, size_t *length)
{
    add(text, size, length, "one of ");
    for (size_t i = 0; option->names[i] != NULL; i++) {
        add(text, size, length, i > 0 ? ", " : "");
        add(text, size, length, option->names[i]);
    }
}

/* " from 1 to 65535", " of at least 1", or nothing. */
static void add_limits(const struct fw_option *option, char *text, size_t size, size_t *length)
{
    char number[FW_OPTION_NUMBER_SIZE];
    if (option->min == 0 && option->max == 0) {
        return;
    }
    fw_option_number_text(option, option->min, number);
    bool at_least = option->max == 0 && option->min > 0;
    add(text, size, length, at_least ? " of at least " : " from ");
    add(text, size, length, number);
    if (!at_least) {
        fw_option_number_text(option, option->max, number);
        add(text, size, length, " to ");
        add(text, size, length, number);
    }
}

void fw_option_allowed(const struct fw_option *option, char allowed[FW_OPTION_ALLOWED_SIZE])
{
    static const char *const forms[] = {
        [FW_OPTION_TYPE_UINT] = "a number",
        [FW_OPTION_TYPE_INT] = "a number",
        [FW_OPTION_TYPE_OCTAL] = "an octal number",
        [FW_OPTION_TYPE_SIZE] = "a size such as 512k or 64m",
        [FW_OPTION_TYPE_DURATION] = "a duration such as 500ms or 10s",
        [FW_OPTION_TYPE_BOOL] = "yes or no",
        [FW_OPTION_TYPE_COUNT] = "a number",
        [FW_OPTION_TYPE_ENUM] = "",
        [FW_OPTION_TYPE_STRING] = "a text",
        [FW_OPTION_TYPE_LIST] = "items separated by commas, none of them empty",
        [FW_OPTION_TYPE_EXTENDED] = "other options separated by commas",
    };
    size_t length = 0;
    add(allowed, FW_OPTION_ALLOWED_SIZE, &length, option->yes_text != NULL ? "yes, no or " : "");
    add(allowed, FW_OPTION_ALLOWED_SIZE, &length, forms[option->type]);
    switch (option->type) {
    case FW_OPTION_TYPE_ENUM:
        add_names(option, allowed, FW_OPTION_ALLOWED_SIZE, &length);
        return;
    case FW_OPTION_TYPE_STRING:
    case FW_OPTION_TYPE_LIST:
        if (option->min != 0 || option->max != 0) {
            add(allowed, FW_OPTION_ALLOWED_SIZE, &length,
                option->type == FW_OPTION_TYPE_LIST ? ", each" : "");
            add_limits(option, allowed, FW_OPTION_ALLOWED_SIZE, &length);
            add(allowed, FW_OPTION_ALLOWED_SIZE, &length, " characters long");
        }
        return;
    case FW_OPTION_TYPE_UINT:
    case FW_OPTION_TYPE_INT:
    case FW_OPTION_TYPE_OCTAL:
    case FW_OPTION_TYPE_SIZE:
    case FW_OPTION_TYPE_DURATION:
    case FW_OPTION_TYPE_COUNT:
        add_limits(option, allowed, FW_OPTION_ALLOWED_SIZE, &length);
        return;
    case FW_OPTION_TYPE_BOOL:
    case FW_OPTION_TYPE_EXTENDED:
        return;
    }
}

/* ---- The help. ---- */

static const char *value_name(const struct fw_option *option)
{
    static const char *const names[] = {
        [FW_OPTION_TYPE_UINT] = "NUMBER",      [FW_OPTION_TYPE_INT] = "NUMBER",
        [FW_OPTION_TYPE_OCTAL] = "MODE",       [FW_OPTION_TYPE_SIZE] = "SIZE",
        [FW_OPTION_TYPE_DURATION] = "TIME",    [FW_OPTION_TYPE_BOOL] = "",
        [FW_OPTION_TYPE_COUNT] = "",           [FW_OPTION_TYPE_ENUM] = "NAME",
        [FW_OPTION_TYPE_STRING] = "TEXT",      [FW_OPTION_TYPE_LIST] = "LIST",
        [FW_OPTION_TYPE_EXTENDED] = "OPTIONS",
    };
    return option->value_name != NULL ? option->value_name : names[option->type];
}

static bool is_on_by_default(const struct fw_option *option)
{
    return option->type == FW_OPTION_TYPE_BOOL && strcmp(option->default_text, "yes") == 0;
}

void fw_option_describe(const struct fw_option_table *table, const struct fw_option *option,
                        struct fw_option_text *text)
{
    static_assert(sizeof text->allowed == FW_OPTION_ALLOWED_SIZE, "it is filled whole");
    *text = (struct fw_option_text){.value_name = value_name(option),
                                    .is_file_only = fw_option_is_file_only(table),
                                    .is_on = is_on_by_default(option)};
    fw_option_long_name(table, option, text->long_name);
    fw_option_allowed(option, text->allowed);
}

/* "-p, --port NUMBER"; of a named section, which the command line does not reach, "weight". */
static void help_left(const struct fw_option_table *table, const struct fw_option *option,
                      char *text, size_t size)
{
    char long_name[FW_OPTION_LONG_SIZE];
    char flag[] = "-x, ";
    fw_option_long_name(table, option, long_name);
    flag[1] = option->flag;
    const char *value = value_name(option);
    if (fw_option_is_file_only(table)) {
        (void)snprintf(text, size, "  %s = %s", option->name, value[0] != '\0' ? value : "yes|no");
        return;
    }
    (void)snprintf(text, size, "  %s--%s%s%s%s", option->flag != 0 ? flag : "    ",
                   is_on_by_default(option) ? "no-" : "", long_name, value[0] != '\0' ? " " : "",
                   value);
}

/* The sentence, and in brackets what the row knows besides. */
static void help_right(const struct fw_option *option, char *text, size_t size)
{
    size_t length = 0;
    add(text, size, &length, option->help);
    const char *before = " (";
    if (option->type == FW_OPTION_TYPE_ENUM) {
        add(text, size, &length, before);
        add_names(option, text, size, &length);
        before = "; ";
    }
    bool is_measure =
        option->type == FW_OPTION_TYPE_SIZE || option->type == FW_OPTION_TYPE_DURATION;
    if (is_measure && option->unit != NULL) {
        add(text, size, &length, before);
        add(text, size, &length, "in ");
        add(text, size, &length, option->unit);
        before = "; ";
    }
    if (option->default_text != NULL && option->default_text[0] != '\0' &&
        !fw_option_is_flag(option)) {
        add(text, size, &length, before);
        add(text, size, &length, "default ");
        add(text, size, &length, option->default_text);
        if (!is_measure && option->unit != NULL) {
            add(text, size, &length, " ");
            add(text, size, &length, option->unit);
        }
        before = "; ";
    }
    add(text, size, &length, before[0] == ';' ? ")" : "");
}

/* Two columns; the right one is broken at spaces. */
static void help_print(const char *left, const char *right, FILE *out)
{
    size_t column = strlen(left);
    (void)fputs(left, out);
    if (column > HELP_TEXT_COLUMN - 2) { /* Two spaces between the columns, or a line of its own. */
        (void)fputc('\n', out);
        column = 0;
    }
    while (*right != '\0') {
        size_t word = strcspn(right, " ");
        bool begins = column < HELP_TEXT_COLUMN;
        if (!begins && column + 1 + word > HELP_WIDTH) {
            (void)fputc('\n', out);
            column = 0;
            begins = true;
        }
        size_t spaces = begins ? HELP_TEXT_COLUMN - column : 1;
        (void)fprintf(out, "%*s%.*s", (int)spaces, "", (int)word, right);
        column += spaces + word;
        right += word;
        right += strspn(right, " ");
    }
    (void)fputc('\n', out);
}

static bool same_section(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* True if no row of the tables before, and none before in this table, is in the same section. */
static bool is_section_new(const struct fw_option_table *tables, size_t table, size_t row)
{
    const char *section = tables[table].options[row].section;
    for (size_t i = 0; i <= table; i++) {
        size_t count = i < table ? tables[i].count : row;
        for (size_t j = 0; j < count; j++) {
            if (same_section(tables[i].options[j].section, section)) {
                return false;
            }
        }
    }
    return true;
}

static void help_section(const struct fw_option_table *tables, size_t count,
                         const struct fw_option_table *first, const char *section, FILE *out)
{
    if (section == NULL) {
        (void)fprintf(out, "On the command line only:\n");
    } else if (fw_option_is_file_only(first)) {
        (void)fprintf(out, "[%s NAME], in the configuration file only:\n", section);
    } else {
        (void)fprintf(out, "[%s]\n", section);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            const struct fw_option *option = &tables[i].options[j];
            if (same_section(option->section, section)) {
                char left[HELP_LINE_SIZE];
                char right[HELP_LINE_SIZE];
                help_left(&tables[i], option, left, sizeof left);
                help_right(option, right, sizeof right);
                help_print(left, right, out);
            }
        }
    }
}

void fw_options_print_help(const struct fw_option_table *tables, size_t count, FILE *out)
{
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            if (is_section_new(tables, i, j)) {
                (void)fputs(first ? "" : "\n", out);
                help_section(tables, count, &tables[i], tables[i].options[j].section, out);
                first = false;
            }
        }
    }
}
