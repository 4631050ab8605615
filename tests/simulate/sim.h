/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator: a small world in one OS thread, in which everything that happens follows from a
 * number.
 *
 * The code under test is the very object code the server ships. It reaches the world outside
 * through base/thread and io/, and those ask their hooks first; here the hooks lead to fibres, a
 * virtual clock, a simulated network and simulated disks. Wherever the real world could do one
 * thing or another (which thread goes on, how long a packet takes, which write a power cut loses)
 * the world's random generator decides. Same scenario, same seed: same run, to the last byte of the
 * trace, on any machine and from any compiler. So nothing here may depend on addresses, on real
 * time, or on the order in which a compiler evaluates arguments.
 *
 * Fibres. A thread made by fw_thread_create() becomes a fibre with a stack of its own. Only one
 * runs at a time and it is switched only inside the hooks: at locks, parks, waits, and at the yield
 * points beside shared atomics. How often a yield point switches is itself drawn from the seed, so
 * that some seeds run long stretches undisturbed and others switch at every step. Memory is
 * sequentially consistent here: the simulator finds wrong orders of steps, TSan finds missing
 * fences.
 *
 * Time. The clock stands still while a fibre computes, moves a little with every switch so that
 * loops which look at the clock end, and jumps to the next event when no fibre can run. A run in
 * which nobody can run and no event is due is a deadlock, and a failure.
 *
 * Failing. sim_fail() and every FW_ASSERT end the run: scenario, seed and the last part of the
 * trace are printed and the process exits with status 1. There is no way back, so a failure cannot
 * be masked by what comes after it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "io/random.h"

enum {
    SIM_NODES_MAX = 16,
    SIM_FIBRES_MAX = 4096,
};

#define SIM_NEVER INT64_MAX
#define SIM_US    INT64_C(1000)
#define SIM_MS    INT64_C(1000000)
#define SIM_S     INT64_C(1000000000)

struct sim_fibre;

struct sim_scenario {
    const char *name;
    const char *purpose; /* One line for --list. */
    void (*run)(void);   /* The first fibre. */
    bool planted;        /* It has a bug on purpose, and must fail within 1,000 seeds. */
};

/* What a run was like, for the summary. */
struct sim_result {
    int64_t virtual_ns;
    uint64_t switches;
    uint64_t trace_hash; /* Over every line of the trace. */
};

/* Runs the scenario once. Returns only if it passed. */
struct sim_result sim_run(const struct sim_scenario *scenario, uint64_t seed);

/* Every line of the trace goes to this descriptor too; -1: nowhere. */
void sim_trace_to(int fd);

/*
 * Traces cost as much as all the rest. A search over many seeds does without and, when one fails,
 * calls `on_failure`, which runs that seed again, in a new process, with its trace. If it returns,
 * the run was not a function of its seed, and that is the failure reported.
 */
void sim_trace_off(void (*on_failure)(const struct sim_scenario *scenario, uint64_t seed));

/* The rest is called from inside a run. */

/* Draws for the scenario and for the simulated outside. Never for the code under test. */
struct fw_random *sim_random(void);
bool sim_chance(uint32_t one_in);
int64_t sim_between(int64_t low, int64_t high); /* Both included. */

int64_t sim_now(void);
void sim_trace(const char *format, ...) FW_PRINTF(1, 2);
_Noreturn void sim_fail(const char *format, ...) FW_PRINTF(1, 2);
#define SIM_EXPECT(condition)                                                              \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            sim_fail("%s:%d: expected %s", sim_base_name(__FILE__), __LINE__, #condition); \
        }                                                                                  \
    } while (0)
const char *sim_base_name(const char *path);

/* The running fibre waits until the virtual clock has moved on by `duration_ns`. */
void sim_sleep(int64_t duration_ns);

/*
 * Threads started by the running fibre, and reactors and disks it makes, belong to a node, which is
 * a host of the simulated network. The first fibre is on node 0; a fibre inherits its maker's.
 */
uint32_t sim_node(void);
void sim_node_set(uint32_t node);

/*
 * The node's threads stand still, wherever they are, until they are thawed: what SIGSTOP and a
 * paused machine do. Its sockets still take what comes, and the clock goes on.
 */
void sim_node_freeze(uint32_t node);
void sim_node_thaw(uint32_t node);

/* For the simulated outside (network, disks). */

struct sim_fibre *sim_self(void);

/* Waits until woken, or until `deadline_ns`. True: woken. `what` is for the trace. */
bool sim_block(const char *what, int64_t deadline_ns);
void sim_wake(struct sim_fibre *fibre);

/* Runs `act(context, number)` at that time, between two fibres. It may wake, but not block. */
void sim_at(int64_t time_ns, void (*act)(void *context, uint64_t number), void *context,
            uint64_t number);

/* Called at the start and at the end of every run, by sim.c. */
void sim_network_begin(void);
void sim_network_end(void);
