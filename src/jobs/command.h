/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the queue of commands (command.c) and the system's own commands (system.c).
 */
#pragma once

#include <stddef.h>

#include <fairway/jobs.h>

extern const struct fw_jobs_command fw_jobs_system_commands[];
extern const size_t fw_jobs_system_commands_count;
