/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the engine with real threads: gates that ticks are held at, waiting for something to
 * become true, and threads of the process, counted and made to fail.
 *
 * The tests that include it are linked without assert_cmocka.c: an assertion in a thread of the
 * engine ends the process, as it would in the server.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/thread.h"
#include "engine/core.h"
#include "io/clock.h"

/* What a tick is held at until the test opens it, once for each that shall pass. */
struct gate {
    int fds[2];
    _Atomic uint32_t arrived; /* Threads that have come so far. */
    _Atomic uint32_t passed;
};

static inline void gate_init(struct gate *gate)
{
    *gate = (struct gate){.arrived = 0};
    assert_int_equal(pipe(gate->fds), 0);
}

static inline void gate_fini(struct gate *gate)
{
    (void)close(gate->fds[0]);
    (void)close(gate->fds[1]);
}

static inline void gate_open(struct gate *gate, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(write(gate->fds[1], "x", 1), 1);
    }
}

/* On a thread of the engine. */
static inline void gate_pass(struct gate *gate)
{
    atomic_fetch_add(&gate->arrived, 1);
    struct pollfd fd = {.fd = gate->fds[0], .events = POLLIN};
    while (poll(&fd, 1, -1) != 1) {
        FW_ASSERT(errno == EINTR); /* The watchdog asked for the stack. */
    }
    char byte;
    ssize_t size = read(gate->fds[0], &byte, 1);
    FW_ASSERT(size == 1);
    atomic_fetch_add(&gate->passed, 1);
}

/* Looks at the condition again and again; the test hangs, and its runner says so, if it fails. */
#define WAIT_UNTIL(condition)                         \
    do {                                              \
        struct fw_parker wait_parker;                 \
        fw_parker_init(&wait_parker);                 \
        while (!(condition)) {                        \
            (void)fw_park_for(&wait_parker, 1000000); \
        }                                             \
    } while (0)

/* Threads of this process; among them are some that were joined but not yet buried by the kernel.
 */
static inline uint32_t threads_count(void)
{
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    uint32_t count = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) { /* NOLINT(concurrency-mt-unsafe): one reader. */
        count += entry->d_name[0] != '.';
    }
    (void)closedir(folder);
    return count;
}

static inline void thread_number(void *argument)
{
    *(pid_t *)argument = gettid();
}

/*
 * How many threads there are without a domain: ours, and that of a sanitizer, which comes with the
 * first that we make. Waits until all others, which have been joined, are gone for the kernel too.
 */
static inline uint32_t threads_alone(void)
{
    static uint32_t count;
    if (count == 0) {
        struct fw_thread first;
        char task[64];
        pid_t number;
        assert_int_equal(fw_thread_create(&first, "first", thread_number, &number), 0);
        fw_thread_join(&first);
        (void)snprintf(task, sizeof task, "/proc/self/task/%d", (int)number);
        WAIT_UNTIL(access(task, F_OK) != 0);
        count = threads_count();
    }
    WAIT_UNTIL(threads_count() == count);
    return count;
}

/* How many more threads can be made; negative: any number. Needs -Wl,--wrap=pthread_create. */
static atomic_int threads_left = -1;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, /* NOLINT */
                          void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, /* NOLINT */
                          void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, /* NOLINT */
                          void *(*run)(void *), void *argument)
{
    int left = atomic_load(&threads_left);
    if (left == 0) {
        return EAGAIN;
    }
    if (left > 0) {
        atomic_fetch_sub(&threads_left, 1);
    }
    return __real_pthread_create(thread, attributes, run, argument);
}

/* A domain that knows these types, not started. */
static inline struct fw_domain *domain_make(const struct fw_domain_config *config,
                                            const struct fw_fom_type *const types[],
                                            uint32_t type_count)
{
    struct fw_domain *domain;
    assert_int_equal(fw_domain_create(&domain, config), 0);
    for (uint32_t i = 0; i < type_count; i++) {
        assert_int_equal(fw_domain_add_type(domain, types[i]), 0);
    }
    return domain;
}

/* Starts a fom on core `index`, and returns its id. */
static inline uint64_t fom_launch(struct fw_domain *domain, const struct fw_fom_type *type,
                                  uint32_t index)
{
    struct fw_fom *fom;
    assert_int_equal(fw_fom_create(&fom, domain, type, fw_domain_locality(domain, index)), 0);
    uint64_t id = fom->id;
    fw_fom_start(fom);
    return id;
}

/* All foms end of their own accord, and all permits are back. */
static inline void domain_end(struct fw_domain *domain)
{
    assert_int_equal(fw_domain_stop(domain, INT64_MAX / 2), 0);
    assert_int_equal(atomic_load(&domain->permits), domain->config.bracket_limit);
    fw_domain_destroy(domain);
}
