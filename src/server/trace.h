/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of what the engine does, for administrators: `trace DURATION` on the administration
 * socket takes one, and `trace read OFFSET` hands it out in pieces.
 *
 * Taking one is a single command, which occupies a worker for as long as it lasts, and not one that
 * switches on and another that switches off: whoever asked may be gone by then, and tracing must
 * not stay on. It ends early when the server ends. The text is kept until it has been read to its
 * end or another trace is taken. One at a time: who comes meanwhile is refused.
 *
 * A server that was started with --trace-file traces all the time already, and refuses this.
 *
 * Threads: workers of the job kernel. `is_busy` is taken by exchange and never waited for.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <fairway/jobs.h>

#include "base/base.h"

struct fw_server;

enum {
    FW_SERVER_TRACE_S_MAX = 60,
    FW_SERVER_TRACE_PIECE = 32 * 1024,
    FW_SERVER_TRACE_SIZE_MAX = 512 * 1024 * 1024,
};

/* All zero at first. */
struct fw_server_trace {
    atomic_bool is_busy;   /* Guards the text. */
    atomic_bool is_always; /* --trace-file. */
    char *text;
    size_t length;
    size_t size;
};

/* The command `trace`; the context is the server. 0 or a negative errno. */
int fw_server_trace_command(void *context, struct fw_jobs *jobs, const char *arguments,
                            struct fw_jobs_output *output);

/* When no command can run any more. */
void fw_server_trace_fini(struct fw_server_trace *trace);
