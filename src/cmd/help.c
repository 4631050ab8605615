/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cmd.h"

static enum fw_cmd_status help_run(int count, char **arguments)
{
    if (count == 0) {
        fw_commands_print_help(stdout);
        return FW_CMD_OK;
    }
    const struct fw_command *command = fw_command_find(arguments[0]);
    if (command == NULL) {
        return FW_CMD_USAGE;
    }
    if (count > 1) {
        return fw_cmd_fail(FW_CMD_USAGE, "help takes one command, but got '%s' too", arguments[1]);
    }
    fw_command_print_help(command, stdout);
    return FW_CMD_OK;
}

const struct fw_command fw_cmd_help = {
    .name = "help",
    .summary = "tell what there is, or all about one command",
    .usage = "help [COMMAND]",
    .about = "Lists the commands, or tells all about one: what it does, and its options.",
    .run = help_run,
};
