/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of commands, and what they have in common. Apart from main(), so that the program that
 * writes the manual has it too.
 */
#include "cmd/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

const struct fw_command *const fw_commands[] = {
    &fw_cmd_serve,    &fw_cmd_stats, &fw_cmd_top,  &fw_cmd_admin,   &fw_cmd_trace,
    &fw_cmd_config,   &fw_cmd_dump,  &fw_cmd_load, &fw_cmd_ring,    &fw_cmd_volume,
    &fw_cmd_ha_agent, &fw_cmd_log,   &fw_cmd_help, &fw_cmd_version, NULL,
};

void fw_cmd_tame(char *text, size_t length)
{
    enum { DELETE = 0x7f, C1_LEAD = 0xc2, C1_FIRST = 0x80, C1_LAST = 0x9f };
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        unsigned char next = i + 1 < length ? (unsigned char)text[i + 1] : 0;
        bool is_c1 = byte == C1_LEAD && next >= C1_FIRST && next <= C1_LAST; /* In UTF-8. */
        if (is_c1) {
            text[i + 1] = '?';
        }
        if ((byte < ' ' && byte != '\n' && byte != '\t') || byte == DELETE || is_c1) {
            text[i] = '?';
        }
    }
}

enum fw_cmd_status fw_cmd_fail(enum fw_cmd_status status, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    /* clang-tidy 14 does not see that va_start() set it. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length >= 0) {
        fw_cmd_tame(text, (size_t)length);
    }
    (void)fprintf(stderr, "fairway: %s\n", length >= 0 ? text : "out of memory");
    free(length >= 0 ? text : NULL);
    return status;
}

enum fw_cmd_status fw_cmd_no_arguments(const struct fw_command *command, int count,
                                       char *const *arguments)
{
    if (count == 0) {
        return FW_CMD_OK;
    }
    return fw_cmd_fail(FW_CMD_USAGE, "%s takes no arguments, but got '%s'", command->name,
                       arguments[0]);
}

const struct fw_command *fw_command_find(const char *name)
{
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, name, strlen(name));
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        if (strcmp(fw_commands[i]->name, name) == 0) {
            return fw_commands[i];
        }
        fw_nearest_offer(&nearest, fw_commands[i]->name, strlen(fw_commands[i]->name));
    }
    if (fw_nearest_found(&nearest)) {
        (void)fw_cmd_fail(FW_CMD_USAGE, "there is no command '%s'; did you mean 'fairway %s'?",
                          name, nearest.best);
    } else {
        (void)fw_cmd_fail(FW_CMD_USAGE, "there is no command '%s'; 'fairway help' lists them",
                          name);
    }
    return NULL;
}

/* What there is, on one screen; what each command takes is the command's own to say. */
void fw_commands_print_help(FILE *out)
{
    (void)fputs("Fairway: a memcached server that is fair, stays up and is bigger than RAM\n"
                "\n"
                "usage: fairway COMMAND [OPTIONS]\n"
                "\n",
                out);
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        (void)fprintf(out, "  %-10s %s\n", fw_commands[i]->name, fw_commands[i]->summary);
    }
    (void)fputs("\n"
                "'fairway help COMMAND' tells more; 'fairway serve' serves on port 11211.\n",
                out);
}

size_t fw_command_tables(const struct fw_command *command,
                         struct fw_option_table tables[FW_COMMAND_TABLES_MAX])
{
    if (command->tables != NULL) {
        return command->tables(tables);
    }
    tables[0] = (struct fw_option_table){
        .module = command->name, .options = command->options, .count = command->option_count};
    return command->option_count > 0 ? 1 : 0;
}

static void usage_print(const struct fw_command *command, FILE *out)
{
    const char *line = command->usage;
    const char *before = "usage:";
    while (*line != '\0') {
        size_t length = strcspn(line, "\n");
        (void)fprintf(out, "%s fairway %.*s\n", before, (int)length, line);
        line += length + (line[length] == '\n');
        before = "      ";
    }
}

static void actions_print(const struct fw_command *command, FILE *out)
{
    struct fw_command_action action;
    size_t width = 0; /* Of the nouns, with the space behind them. */
    for (size_t i = 0; command->action(i, &action); i++) {
        size_t length = action.noun != NULL ? strlen(action.noun) + 2 : 0;
        width = length > width ? length : width;
    }
    for (size_t i = 0; command->action(i, &action); i++) {
        (void)fprintf(out, "  %-10s %-*s%s\n", action.name, (int)width,
                      action.noun != NULL ? action.noun : "", action.summary);
    }
}

void fw_command_print_help(const struct fw_command *command, FILE *out)
{
    struct fw_option_table tables[FW_COMMAND_TABLES_MAX];
    size_t count = fw_command_tables(command, tables);
    if (command == &fw_cmd_help) { /* Who asks for help about it has not found what there is. */
        fw_commands_print_help(out);
        return;
    }
    usage_print(command, out);
    (void)fprintf(out, "\n%s\n", command->about);
    if (command->action != NULL) {
        (void)fputc('\n', out);
        actions_print(command, out);
    }
    if (count > 0) {
        (void)fputc('\n', out);
        fw_options_print_help(tables, count, out);
    }
}
