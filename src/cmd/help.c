/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cmd.h"

/* What there is, on one screen; what each command takes is the command's own to say. */
static void help_print(FILE *out)
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

static enum fw_cmd_status help_run(int count, char **arguments)
{
    if (count == 0) {
        help_print(stdout);
        return FW_CMD_OK;
    }
    const struct fw_command *command = fw_command_find(arguments[0]);
    if (command == NULL) {
        return FW_CMD_USAGE;
    }
    if (count > 1) {
        return fw_cmd_fail(FW_CMD_USAGE, "help takes one command, but got '%s' too", arguments[1]);
    }
    command->print_help(stdout);
    return FW_CMD_OK;
}

const struct fw_command fw_cmd_help = {
    .name = "help",
    .summary = "tell what there is, or all about one command",
    .run = help_run,
    .print_help = help_print,
};
