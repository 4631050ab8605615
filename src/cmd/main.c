/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway COMMAND ...
 */
#include <errno.h>
#include <string.h>

#include "cmd/cmd.h"
#include "io/process.h"
#include "io/topology.h"

static bool is_either(const char *argument, const char *a, const char *b)
{
    return strcmp(argument, a) == 0 || strcmp(argument, b) == 0;
}

static enum fw_cmd_status dispatch(int count, char **arguments)
{
    if (count == 0) {
        fw_commands_print_help(stderr);
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
        fw_command_print_help(command, stdout);
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
