/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options in the configuration file.
 */
#include <errno.h>
#include <string.h>

#include "base/nearest.h"
#include "base/option_internal.h"

/* A piece of a line. */
struct span {
    const char *at;
    size_t length;
};

struct file {
    struct fw_options *options;
    const char *name; /* Shortened for messages. */
    unsigned line;
    const char *section;                   /* NULL before the first one. */
    char instance[FW_OPTION_NAME_MAX + 1]; /* Empty in a plain section. */
    bool is_lost; /* Behind a section that was refused: whose the options are is not known. */
    struct fw_reason *reason;
};

enum {
    FILE_NAME_MAX = 200, /* A longer one shows its end. */
    PLACE_SIZE = FILE_NAME_MAX + FW_OPTION_QUOTE_SIZE + 24,
};

static bool is_space(char letter)
{
    return letter == ' ' || letter == '\t';
}

static bool is_name_letter(char letter)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
}

static struct span skip(struct span span, size_t count)
{
    return (struct span){span.at + count, span.length - count};
}

static struct span trim(struct span span)
{
    while (span.length > 0 && is_space(span.at[0])) {
        span = skip(span, 1);
    }
    while (span.length > 0 && is_space(span.at[span.length - 1])) {
        span.length--;
    }
    return span;
}

static bool is_comment_or_empty(struct span span)
{
    return span.length == 0 || span.at[0] == '#' || span.at[0] == ';';
}

/* The letters of a name at the beginning of `*rest`, which then begins behind them. */
static struct span take_name(struct span *rest)
{
    size_t length = 0;
    while (length < rest->length && is_name_letter(rest->at[length])) {
        length++;
    }
    struct span name = {rest->at, length};
    *rest = trim(skip(*rest, length));
    return name;
}

static int refuse(const struct file *file, struct span what, const char *wrong)
{
    char quote[FW_OPTION_QUOTE_SIZE];
    return fw_reason_set(file->reason, -EINVAL, "%s:%u: '%s' %s", file->name, file->line,
                         fw_option_quote(what.at, what.length, quote), wrong);
}

/* ---- Sections. ---- */

static bool is_in_section(const struct fw_option *option, const char *section)
{
    return option->section != NULL && strcmp(option->section, section) == 0;
}

/* The first table with such a section, and how the section is really spelt; or NULL. */
static const struct fw_option_table *section_find(const struct file *file, struct span section,
                                                  const char **name)
{
    for (size_t i = 0; i < file->options->count; i++) {
        const struct fw_option_table *table = &file->options->tables[i];
        for (size_t j = 0; j < table->count; j++) {
            *name = table->options[j].section;
            if (*name != NULL && fw_option_name_equal(*name, section.at, section.length)) {
                return table;
            }
        }
    }
    return NULL;
}

static int refuse_section(const struct file *file, struct span section)
{
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, section.at, section.length);
    for (size_t i = 0; i < file->options->count; i++) {
        const struct fw_option_table *table = &file->options->tables[i];
        for (size_t j = 0; j < table->count; j++) {
            if (table->options[j].section != NULL) {
                fw_nearest_offer(&nearest, table->options[j].section,
                                 strlen(table->options[j].section));
            }
        }
    }
    char wrong[FW_OPTION_NAME_MAX + 64];
    if (fw_nearest_found(&nearest)) {
        (void)snprintf(wrong, sizeof wrong, "is no known section; did you mean [%s]?",
                       nearest.best);
        return refuse(file, section, wrong);
    }
    return refuse(file, section, "is no known section; --help lists them in brackets");
}

/* Each table that describes the section is asked for one more. */
static int instances_create(const struct file *file, struct span name)
{
    FW_LIST_FOR_EACH (&file->options->instances, struct fw_option_instance, link, instance) {
        if (instance->name != NULL && strcmp(instance->name, file->instance) == 0 &&
            is_in_section(&instance->table->options[0], file->section)) {
            char wrong[64];
            (void)snprintf(wrong, sizeof wrong, "was already described on line %u", instance->line);
            return refuse(file, name, wrong);
        }
    }
    for (size_t i = 0; i < file->options->count; i++) {
        const struct fw_option_table *table = &file->options->tables[i];
        if (!fw_option_is_file_only(table) || !is_in_section(&table->options[0], file->section)) {
            continue;
        }
        struct fw_reason why = {.text = ""};
        int rc = fw_option_instance_create(file->options, table, file->instance,
                                           strlen(file->instance), file->line, &why);
        if (rc != 0) {
            return fw_reason_set(file->reason, rc, "%s:%u: [%s %s]: %s", file->name, file->line,
                                 file->section, file->instance, why.text);
        }
    }
    return 0;
}

/* `rest` begins behind the bracket. */
static int section_line(struct file *file, struct span line)
{
    struct span rest = trim(skip(line, 1));
    struct span section = take_name(&rest);
    struct span name = take_name(&rest);
    file->is_lost = true;
    if (section.length == 0 || rest.length == 0 || rest.at[0] != ']' ||
        !is_comment_or_empty(trim(skip(rest, 1)))) {
        return refuse(file, line, "is not a section; write [section] or [section NAME]");
    }
    const char *spelt;
    const struct fw_option_table *table = section_find(file, section, &spelt);
    if (table == NULL) {
        return refuse_section(file, section);
    }
    if (name.length > FW_OPTION_NAME_MAX) {
        return refuse(file, name, "is too long for a name; 63 characters are allowed");
    }
    if (fw_option_is_file_only(table) != (name.length > 0)) {
        return refuse(file, section,
                      name.length > 0 ? "takes no name; write the section's name alone"
                                      : "needs a name behind it: [section NAME]");
    }
    file->section = spelt;
    (void)snprintf(file->instance, sizeof file->instance, "%.*s", (int)name.length, name.at);
    int rc = name.length > 0 ? instances_create(file, name) : 0;
    file->is_lost = rc != 0;
    return rc;
}

/* ---- Options. ---- */

static bool find_option(const struct file *file, struct span name,
                        struct fw_option_assignment *assignment)
{
    FW_LIST_FOR_EACH (&file->options->instances, struct fw_option_instance, link, instance) {
        const char *instance_name = instance->name != NULL ? instance->name : "";
        for (size_t i = 0; i < instance->table->count; i++) {
            const struct fw_option *option = &instance->table->options[i];
            if (is_in_section(option, file->section) &&
                strcmp(instance_name, file->instance) == 0 &&
                fw_option_name_equal(option->name, name.at, name.length)) {
                assignment->instance = instance;
                assignment->option = option;
                return true;
            }
        }
    }
    return false;
}

static int refuse_option(const struct file *file, struct span name)
{
    struct fw_nearest nearest;
    char wrong[2 * FW_OPTION_NAME_MAX + 64];
    fw_nearest_init(&nearest, name.at, name.length);
    for (size_t i = 0; i < file->options->count; i++) {
        const struct fw_option_table *table = &file->options->tables[i];
        for (size_t j = 0; j < table->count; j++) {
            const struct fw_option *option = &table->options[j];
            bool is_meant = fw_option_name_equal(option->name, name.at, name.length);
            if (is_in_section(option, file->section)) {
                fw_nearest_offer(&nearest, option->name, strlen(option->name));
            } else if (is_meant && option->section == NULL) {
                return refuse(file, name, "is for the command line only");
            } else if (is_meant) {
                (void)snprintf(wrong, sizeof wrong, "belongs under [%s], not [%s]", option->section,
                               file->section);
                return refuse(file, name, wrong);
            }
        }
    }
    if (fw_nearest_found(&nearest)) {
        (void)snprintf(wrong, sizeof wrong, "is no option of [%s]; did you mean '%s'?",
                       file->section, nearest.best);
    } else {
        (void)snprintf(wrong, sizeof wrong, "is no option of [%s]; --help lists them",
                       file->section);
    }
    return refuse(file, name, wrong);
}

/*
 * The value at the beginning of `text`, unquoted into `value`. A bare one ends at a comment, which
 * needs a space before it: colours and passwords have a # inside.
 */
static int take_value(const struct file *file, struct span text, char value[FW_OPTION_LINE_MAX + 1],
                      size_t *length)
{
    *length = 0;
    if (text.length == 0 || text.at[0] != '"') {
        for (size_t i = 0; i < text.length; i++) {
            if ((text.at[i] == '#' || text.at[i] == ';') && (i == 0 || is_space(text.at[i - 1]))) {
                text.length = i;
            }
        }
        text = trim(text);
        memcpy(value, text.at, text.length);
        *length = text.length;
        return 0;
    }
    size_t i = 1;
    while (i < text.length && text.at[i] != '"') {
        if (text.at[i] == '\\' && i + 1 < text.length) {
            i++; /* Whatever comes next stands for itself. */
        }
        value[*length] = text.at[i];
        ++*length;
        i++;
    }
    if (i == text.length) {
        return refuse(file, text, "has no closing quote");
    }
    if (!is_comment_or_empty(trim(skip(text, i + 1)))) {
        return refuse(file, text, "goes on behind its closing quote");
    }
    return 0;
}

static int option_line(struct file *file, struct span line)
{
    struct span rest = line;
    struct span name = take_name(&rest);
    if (name.length == 0 || rest.length == 0 || rest.at[0] != '=') {
        return refuse(file, line, "is not understood; write name = value");
    }
    if (file->section == NULL) {
        return refuse(file, name, "stands before the first section; write [section] above it");
    }
    char value[FW_OPTION_LINE_MAX + 1];
    char place[PLACE_SIZE];
    char quote[FW_OPTION_QUOTE_SIZE];
    (void)snprintf(place, sizeof place, "%s:%u: %s", file->name, file->line,
                   fw_option_quote(name.at, name.length, quote));
    struct fw_option_assignment assignment = {
        .source = FW_OPTION_SOURCE_FILE, .line = file->line, .place = place, .text = value};
    if (!find_option(file, name, &assignment)) {
        return refuse_option(file, name);
    }
    int rc = take_value(file, trim(skip(rest, 1)), value, &assignment.length);
    if (rc != 0) {
        return rc;
    }
    return fw_option_assign(file->options, &assignment, file->reason);
}

static int parse_line(struct file *file, struct span line)
{
    if (line.length > 0 && line.at[line.length - 1] == '\r') {
        line.length--;
    }
    if (line.length > FW_OPTION_LINE_MAX) {
        return fw_reason_set(file->reason, -EINVAL,
                             "%s:%u: the line is longer than %d characters; a list can be given in "
                             "several lines",
                             file->name, file->line, FW_OPTION_LINE_MAX);
    }
    for (size_t i = 0; i < line.length; i++) {
        if (((unsigned char)line.at[i] < ' ' && line.at[i] != '\t') || line.at[i] == 0x7f) {
            return refuse(file, line, "has a control character; is this a text file?");
        }
    }
    line = trim(line);
    if (is_comment_or_empty(line)) {
        return 0;
    }
    if (line.at[0] == '[') {
        return section_line(file, line);
    }
    return file->is_lost ? 0 : option_line(file, line);
}

/* The end of a name that is too long says more than its beginning. */
static void file_name_shorten(const char *name, char shortened[FILE_NAME_MAX + 1])
{
    size_t length = strlen(name);
    if (length <= FILE_NAME_MAX) {
        (void)snprintf(shortened, FILE_NAME_MAX + 1, "%s", name);
    } else {
        (void)snprintf(shortened, FILE_NAME_MAX + 1, "...%s", name + length - FILE_NAME_MAX + 3);
    }
}

/* The next line of `*rest`, which has one. */
static int take_line(struct file *file, struct span *rest)
{
    const char *end = memchr(rest->at, '\n', rest->length);
    struct span line = {rest->at, end != NULL ? (size_t)(end - rest->at) : rest->length};
    *rest = skip(*rest, line.length + (end != NULL));
    file->line++;
    return parse_line(file, line);
}

static int refuse_length(const struct file *file)
{
    return fw_reason_set(file->reason, -EINVAL, "%s: the file is larger than %d bytes", file->name,
                         FW_OPTION_FILE_MAX);
}

int fw_options_parse_file(struct fw_options *options, const char *file_name, const char *text,
                          size_t length, struct fw_reason *reason)
{
    char shortened[FILE_NAME_MAX + 1];
    struct file file = {.options = options, .name = shortened, .reason = reason};
    struct span rest = {text, length};
    file_name_shorten(file_name, shortened);
    int rc = length > FW_OPTION_FILE_MAX ? refuse_length(&file) : 0;
    while (rc == 0 && rest.length > 0) {
        rc = take_line(&file, &rest);
    }
    return rc;
}

size_t fw_options_check_file(struct fw_options *options, const struct fw_option_file *text,
                             void (*tell)(void *context, const struct fw_reason *reason),
                             void *context)
{
    char shortened[FILE_NAME_MAX + 1];
    struct fw_reason reason;
    struct file file = {.options = options, .name = shortened, .reason = &reason};
    struct span rest = {text->text, text->length};
    size_t count = 0;
    file_name_shorten(text->name, shortened);
    if (text->length > FW_OPTION_FILE_MAX) {
        (void)refuse_length(&file);
        tell(context, &reason);
        return 1;
    }
    while (rest.length > 0) {
        if (take_line(&file, &rest) != 0) {
            tell(context, &reason);
            count++;
        }
    }
    return count;
}
