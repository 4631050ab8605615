/* SPDX-License-Identifier: Apache-2.0 */
#include "base/version.h"

#include "cmd/cmd.h"

static enum fw_cmd_status version_run(int count, char **arguments)
{
    enum fw_cmd_status status = fw_cmd_no_arguments(&fw_cmd_version, count, arguments);
    if (status == FW_CMD_OK) {
        (void)puts("fairway " FW_VERSION);
    }
    return status;
}

const struct fw_command fw_cmd_version = {
    .name = "version",
    .summary = "print the version",
    .usage = "version",
    .about = "Prints the version, as 'fairway --version' does.",
    .run = version_run,
};
