/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/server_cpu.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum {
    SETTLE_MAX = 50, /* Readings. A server that never sleeps gives the last of them. */
    SETTLE_NS = 2000000,
};

static void thread_add(const char *directory, const char *thread, struct fw_server_cpu *cpu)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s/schedstat", directory, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return; /* The thread has just ended. */
    }
    uint64_t run_ns, wait_ns;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &run_ns, &wait_ns) == 2) {
        cpu->run_ns += run_ns;
        cpu->wait_ns += wait_ns;
    }
    (void)fclose(file);
}

static int process_read(const char *directory, struct fw_server_cpu *cpu)
{
    *cpu = (struct fw_server_cpu){0};
    DIR *threads = opendir(directory);
    if (threads == NULL) {
        return -errno;
    }
    const struct dirent *thread;
    while ((thread = readdir(threads)) != NULL) {
        if (thread->d_name[0] != '.') {
            thread_add(directory, thread->d_name, cpu);
        }
    }
    (void)closedir(threads);
    return 0;
}

int fw_server_cpu_read(pid_t pid, struct fw_server_cpu *cpu)
{
    char directory[32];
    (void)snprintf(directory, sizeof directory, "/proc/%d/task", pid);
    struct fw_server_cpu before;
    int rc = process_read(directory, cpu);
    for (int i = 0; rc == 0 && i < SETTLE_MAX; i++) {
        before = *cpu;
        const struct timespec pause = {.tv_nsec = SETTLE_NS};
        (void)nanosleep(&pause, NULL);
        rc = process_read(directory, cpu);
        if (cpu->run_ns == before.run_ns) {
            break;
        }
    }
    return rc;
}
