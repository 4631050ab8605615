/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway COMMAND ...
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/nearest.h"
#include "cmd/cmd.h"
#include "io/process.h"
#include "io/topology.h"

const struct fw_command *const fw_commands[] = {
    &fw_cmd_serve, &fw_cmd_stats,   &fw_cmd_top,  &fw_cmd_admin,  &fw_cmd_config,
    &fw_cmd_dump,  &fw_cmd_load,    &fw_cmd_ring, &fw_cmd_volume, &fw_cmd_log,
    &fw_cmd_help,  &fw_cmd_version, NULL,
};

enum fw_cmd_status fw_cmd_fail(enum fw_cmd_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("fairway: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
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

static bool is_either(const char *argument, const char *a, const char *b)
{
    return strcmp(argument, a) == 0 || strcmp(argument, b) == 0;
}

static enum fw_cmd_status dispatch(int count, char **arguments)
{
    if (count == 0) {
        fw_cmd_help.print_help(stderr);
        return FW_CMD_USAGE;
    }
    const char *name = arguments[0];
    const struct fw_command *command;
    if (is_either(name, "--help", "-h")) {
        command = &fw_cmd_help;
    } else if (is_either(name, "--version", "-V")) {
        command = &fw_cmd_version;
    } else if (name[0] == '-') {
        return fw_cmd_fail(
            FW_CMD_USAGE, "'%s' stands before the command; try 'fairway serve %s ...'", name, name);
    } else {
        command = fw_command_find(name);
    }
    if (command == NULL) {
        return FW_CMD_USAGE;
    }
    if (count > 1 && is_either(arguments[1], "--help", "-h")) {
        command->print_help(stdout);
        return FW_CMD_OK;
    }
    return command->run(count - 1, arguments + 1);
}

int main(int argc, char **argv)
{
    fw_process_fill_standard();
    fw_topology_spare_plugins();
    enum fw_cmd_status status = dispatch(argc > 0 ? argc - 1 : 0, argv + 1);
    /* A full disk behind `fairway ... > file` is found out here or never. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        const char *why = strerrordesc_np(errno);
        return (int)fw_cmd_fail(FW_CMD_FAILED, "cannot write to standard output: %s",
                                why != NULL ? why : "unknown error");
    }
    return (int)status;
}
