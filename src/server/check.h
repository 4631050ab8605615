/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells what is wrong with a configuration, all of it, without being a server.
 *
 * fw_server_create() stops at the first thing that it cannot do. Who writes a configuration wants
 * to know everything at once, on another machine perhaps, while the real server runs. So this looks
 * at each part by the same functions as creating does, and opens, binds and changes nothing; files
 * that are named are read, and names of hosts resolved. What only trying would show (a port in use,
 * a folder that is not writable) it does not know.
 *
 * Reasons begin with the option, as --name: by that the caller finds the line to show.
 */
#pragma once

#include <stdbool.h>

#include "base/reason.h"
#include "server/options.h"

typedef void (*fw_server_tell)(void *context, const struct fw_reason *reason);

/*
 * Calls tell() for each mistake. `is_complete` is false where options are missing because they were
 * wrong by themselves: then nothing is said about what one option needs of another.
 */
void fw_server_check(const struct fw_server_config *config, bool is_complete, fw_server_tell tell,
                     void *context);
