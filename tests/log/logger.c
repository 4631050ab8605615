/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that logs as fast as it can until it is killed, and keeps count where the killer can
 * see it.
 *
 *     logger PROGRESS LOG FOLDER
 *
 * PROGRESS is a file that it maps: a 64-bit number for each thread, the lines whose calls have
 * returned. Lines go to the file LOG, rings are in FOLDER. One thread more than there are rings
 * logs, so that the shared ring is part of it; one of them ends and begins anew all the time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/thread.h"

FW_LOG_MODULE(killed);

enum { THREADS = 3, RINGS = 2, LINES_OF_A_LIFE = 500 };

static _Atomic uint64_t *progress;
static uint32_t numbers[THREADS];

static void line(uint32_t thread)
{
    uint64_t number = atomic_load_explicit(&progress[thread], memory_order_relaxed);
    if (number % 3 == 0) {
        FW_LOG(killed, NOTICE, "%u %lu", thread, (unsigned long)number);
    } else {
        FW_LOG(killed, NOTICE, "%u %lu %.*s %5.1f", thread, (unsigned long)number,
               (int)(number % 100),
               "0123456789012345678901234567890123456789012345678901234567890"
               "123456789012345678901234567890123456789",
               (double)number / 10);
    }
    /* Release: whoever reads this later is to find all that the call did. */
    atomic_store_explicit(&progress[thread], number + 1, memory_order_release);
}

static void forever(void *argument)
{
    for (;;) {
        line(*(uint32_t *)argument);
    }
}

static void for_a_while(void *argument)
{
    for (uint32_t i = 0; i < LINES_OF_A_LIFE; i++) {
        line(*(uint32_t *)argument);
    }
}

static int begin(char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, THREADS * sizeof *progress) != 0) {
        return -errno;
    }
    progress = mmap(NULL, THREADS * sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (progress == MAP_FAILED) {
        return -errno;
    }
    fw_log_set_policy(FW_LOG_BLOCK, FW_LOG_ERROR);
    int rc = fw_log_set_file(argv[2]);
    const struct fw_log_setup setup = {
        .ring_size = UINT64_C(32) * 1024, .rings = RINGS, .map_directory = argv[3]};
    return rc != 0 ? rc : fw_log_start(&setup);
}

int main(int argc, char **argv)
{
    if (argc != 4 || begin(argv) != 0) {
        (void)fprintf(stderr, "usage: logger PROGRESS LOG FOLDER\n");
        return 2;
    }
    struct fw_thread threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
    }
    for (uint32_t i = 1; i < THREADS; i++) {
        int rc = fw_thread_create(&threads[i], "forever", forever, &numbers[i]);
        FW_ASSERT(rc == 0);
    }
    for (;;) {
        int rc = fw_thread_create(&threads[0], "a-while", for_a_while, &numbers[0]);
        FW_ASSERT(rc == 0);
        fw_thread_join(&threads[0]);
    }
}
