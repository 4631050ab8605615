/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU time of another process, exact to the nanosecond, from /proc/PID/task/TID/schedstat.
 *
 * Not from /proc/PID/stat, which counts in hundredths of a second, nor from getrusage(), which only
 * knows one's own children once they have ended. A cgroup would do, but needs privileges.
 *
 * The kernel brings a thread's figure up to date when the thread leaves the CPU, so the reading
 * waits until two in a row agree: the server has gone to sleep. Threads that have ended are no
 * longer counted; a server that makes a thread per request would have to be measured otherwise.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"

struct fw_server_cpu {
    uint64_t run_ns;  /* On a CPU. */
    uint64_t wait_ns; /* Runnable but waiting for one: others were in the way. */
};

/* Sums over all threads. Returns 0 or a negative errno. */
FW_MUST_CHECK int fw_server_cpu_read(pid_t pid, struct fw_server_cpu *cpu);
