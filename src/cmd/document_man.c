/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual pages, in the macros of man(7). There is no date in them: the same source gives the same
 * page.
 */
#include <ctype.h>
#include <string.h>

#include "base/version.h"
#include "cmd/document.h"

/* A piece of text, with nothing in it that troff would obey. */
static void text_print(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '\\':
            (void)fputs("\\e", stdout);
            break;
        case '-':
            (void)fputs("\\-", stdout);
            break;
        case '\'':
            (void)fputs("\\(aq", stdout);
            break;
        case '.':
            (void)fputs(i == 0 ? "\\&." : ".", stdout);
            break;
        default:
            (void)putchar(text[i]);
            break;
        }
    }
}

static void string_print(const char *text)
{
    text_print(text, strlen(text));
}

/* A phrase of a table as a sentence. */
static void sentence_print(const char *phrase)
{
    size_t length = strlen(phrase);
    (void)putchar(toupper((unsigned char)phrase[0]));
    text_print(phrase + 1, length - 1);
    (void)fputs(length > 0 && phrase[length - 1] == '.' ? "\n" : ".\n", stdout);
}

/* Lines as they are in the help; an empty one begins a paragraph. */
static void paragraphs_print(const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        if (length == 0) {
            (void)puts(".PP");
        } else {
            text_print(text, length);
            (void)putchar('\n');
        }
        text += length + (text[length] == '\n');
    }
}

static void head_print(const char *command, const char *section, const char *summary)
{
    (void)printf(".\\\" Written from the tables of options when Fairway was built.\n.TH FAIRWAY");
    for (const char *letter = command; *letter != '\0'; letter++) {
        (void)putchar(toupper((unsigned char)*letter));
    }
    (void)printf(" %s \"\" \"fairway " FW_VERSION "\" \"Fairway\"\n.SH NAME\nfairway", section);
    string_print(command);
    (void)fputs(" \\- ", stdout);
    string_print(summary);
    (void)putchar('\n');
}

/* ---- options ------------------------------------------------------------------------------- */

static void default_print(const struct fw_option *option)
{
    char memory[FW_OPTION_NAME_MAX + 1];
    const char *value = fw_document_default(option, memory);
    bool is_measure =
        option->type == FW_OPTION_TYPE_SIZE || option->type == FW_OPTION_TYPE_DURATION;
    if (value == NULL) {
        return;
    }
    (void)fputs("Default: ", stdout);
    string_print(value);
    if (option->unit != NULL && !is_measure) {
        (void)putchar(' ');
        string_print(option->unit);
    }
    (void)puts(".");
}

/* What every option says below its name. Of a flag its form on the command line says the default.
 */
static void option_explain(const struct fw_option *option, const struct fw_option_text *text,
                           bool is_argument)
{
    bool is_flag = text->value_name[0] == '\0';
    sentence_print(option->help);
    if (!is_flag && strcmp(text->allowed, "a text") != 0) {
        (void)fputs("Give ", stdout);
        string_print(text->allowed);
        bool is_measure =
            option->type == FW_OPTION_TYPE_SIZE || option->type == FW_OPTION_TYPE_DURATION;
        if (is_measure && option->unit != NULL) {
            (void)printf("; a bare number counts in %s", option->unit);
        }
        (void)puts(".");
    }
    if (!is_flag || !is_argument) {
        default_print(option);
    }
    if (option->live) {
        (void)puts("SIGHUP takes a new value over.");
    }
}

/* As it stands on the command line. */
static void option_argument(const struct fw_option_table *table, const struct fw_option *option)
{
    struct fw_option_text text;
    fw_option_describe(table, option, &text);
    if (text.is_file_only) {
        return;
    }
    (void)puts(".TP");
    if (option->flag != 0) {
        (void)printf("\\fB\\-%c\\fR, ", option->flag);
    }
    (void)printf("\\fB\\-\\-%s", text.is_on ? "no\\-" : "");
    string_print(text.long_name);
    (void)fputs("\\fR", stdout);
    if (text.value_name[0] != '\0') {
        (void)fputs(" \\fI", stdout);
        string_print(text.value_name);
        (void)fputs("\\fR", stdout);
    }
    (void)putchar('\n');
    option_explain(option, &text, true);
}

/* As it stands in the file. */
static void option_setting(const struct fw_option_table *table, const struct fw_option *option)
{
    struct fw_option_text text;
    fw_option_describe(table, option, &text);
    (void)fputs(".TP\n\\fB", stdout);
    string_print(option->name);
    (void)fputs("\\fR = \\fI", stdout);
    string_print(text.value_name[0] != '\0'            ? text.value_name
                 : option->type == FW_OPTION_TYPE_BOOL ? "yes|no"
                                                       : "NUMBER");
    (void)puts("\\fR");
    option_explain(option, &text, false);
}

/* ---- a command ----------------------------------------------------------------------------- */

static void synopsis_print(const struct fw_command *command)
{
    const char *line = command->usage;
    (void)puts(".SH SYNOPSIS\n.nf");
    while (*line != '\0') {
        size_t length = strcspn(line, "\n");
        (void)fputs("\\fBfairway\\fR ", stdout);
        text_print(line, length);
        (void)putchar('\n');
        line += length + (line[length] == '\n');
    }
    (void)puts(".fi");
}

static void actions_print(const struct fw_command *command)
{
    struct fw_command_action action;
    (void)puts(".SH ACTIONS");
    for (size_t i = 0; command->action(i, &action); i++) {
        (void)fputs(".TP\n\\fB", stdout);
        string_print(action.name);
        (void)fputs("\\fR", stdout);
        if (action.noun != NULL) {
            (void)fputs(" \\fI", stdout);
            string_print(action.noun);
            (void)fputs("\\fR", stdout);
        }
        (void)putchar('\n');
        sentence_print(action.summary);
    }
}

static void section_arguments(const struct fw_option_table *tables, size_t count,
                              const char *section, bool is_named)
{
    if (is_named) {
        return; /* fairway.conf(5) has it. */
    }
    if (section != NULL) {
        (void)fputs(".SS \"Section [", stdout);
        string_print(section);
        (void)puts("]\"");
    } else {
        (void)puts(".SS \"On the command line only\"");
    }
    fw_document_options(tables, count, section, option_argument);
}

static void exit_print(void)
{
    (void)puts(
        ".SH \"EXIT STATUS\"\n"
        "0, it was done; 1, it was understood but could not be done; 64, the command line or\n"
        "the configuration is wrong; 71, it cannot listen.");
}

static void see_also_print(const char *self)
{
    (void)fputs(".SH \"SEE ALSO\"\n", stdout);
    (void)fputs(self[0] != '\0' ? ".BR fairway (1),\n" : "", stdout);
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        if (strcmp(fw_commands[i]->name, self) != 0) {
            (void)printf(".BR fairway\\-%s (1),\n", fw_commands[i]->name);
        }
    }
    (void)puts(".BR fairway.conf (5)");
}

void fw_document_command(const struct fw_command *command)
{
    struct fw_option_table tables[FW_COMMAND_TABLES_MAX];
    size_t count = fw_command_tables(command, tables);
    char name[FW_OPTION_NAME_MAX + 1];
    (void)snprintf(name, sizeof name, "-%s", command->name);
    head_print(name, "1", command->summary);
    synopsis_print(command);
    (void)puts(".SH DESCRIPTION");
    paragraphs_print(command->about);
    if (command->action != NULL) {
        actions_print(command);
    }
    if (count == 1) {
        (void)puts(".SH OPTIONS");
        fw_document_options(tables, count, NULL, option_argument);
    } else if (count > 1) {
        (void)puts(".SH OPTIONS");
        fw_document_sections(tables, count, section_arguments);
    }
    exit_print();
    see_also_print(command->name);
}

/* ---- the program and the configuration ----------------------------------------------------- */

void fw_document_program(void)
{
    head_print("", "1", "a memcached server that is fair, stays up and is bigger than RAM");
    (void)puts(
        ".SH SYNOPSIS\n.nf\n\\fBfairway\\fR COMMAND [OPTIONS]\n.fi\n.SH DESCRIPTION\n"
        "Fairway is a drop\\-in memcached server, and tools to run it. Each command has a page\n"
        "of its own.\n.SH COMMANDS");
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        (void)printf(".TP\n.BR fairway\\-%s (1)\n", fw_commands[i]->name);
        sentence_print(fw_commands[i]->summary);
    }
    exit_print();
    see_also_print("");
}

static void section_settings(const struct fw_option_table *tables, size_t count,
                             const char *section, bool is_named)
{
    if (section == NULL) {
        return; /* For the command line only. */
    }
    (void)fputs(".SS [", stdout);
    string_print(section);
    (void)puts(is_named ? " NAME]" : "]");
    if (is_named) {
        (void)puts("One section for each, with a name of its own.");
    }
    fw_document_options(tables, count, section, option_setting);
}

void fw_document_configuration(const struct fw_option_table *tables, size_t count)
{
    head_print(".conf", "5", "configuration of fairway serve");
    (void)puts(
        ".SH DESCRIPTION\n"
        ".BR fairway\\-serve (1)\n"
        "reads options from the file that \\-\\-config names. The command line wins over it, and "
        "it\n"
        "wins over the defaults.\n"
        ".PP\n"
        "A line is a section in brackets, name = value, or a comment, which begins with # or ; "
        "and\n"
        "may also stand behind a value if a space is before it. A value in double quotes keeps\n"
        "spaces and comment characters; \\e\\(dq and \\e\\e stand for those characters inside. "
        "Items\n"
        "of a list are separated by commas, or given in several lines. Sizes take k, m, g and t;\n"
        "durations ns, us, ms, s, m, h and d.\n"
        ".PP\n"
        ".B fairway config check\n"
        "tells all mistakes in a file.\n"
        ".SH OPTIONS");
    fw_document_sections(tables, count, section_settings);
    (void)puts(".SH EXAMPLE\n.nf\n[server]\nlisten = 127.0.0.1:11211\nmemory\\-limit = 4g\n"
               "policy = wfq\n\n[tenant web]\nmatch = prefix web:\nweight = 3\n.fi");
    see_also_print("");
}
