/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which CPUs this process may use, and what they share: a core, an L2 or L3 cache, a NUMA node.
 *
 * The answer is a plain array, sorted so that CPUs that share more stand nearer: by node, then L3,
 * L2, core and number. A locality is a run of it. hwloc finds all that out and is not seen outside
 * of this file: its tree can express machines nobody has, and every user would walk it again.
 *
 * Only CPUs of the process's affinity mask are listed, so `taskset`, cpusets and systemd's
 * CPUAffinity= are obeyed, holes and all: the kernel's number of a CPU is a name, not an index. A
 * CPU quota (cgroup v2) takes no CPU away and so removes none from the list; it is reported beside
 * it, for who decides how many localities to have.
 *
 * A topology is read once at start (hwloc takes 2 to 4 ms on a small machine) and then constant;
 * CPUs that are plugged in later are not seen. Any thread may read it.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

enum { FW_CPU_MAX = 8192 }; /* The kernel's own limit of CPU numbers. */

/* A set of CPU numbers, large enough for every kernel; glibc's cpu_set_t ends at 1024. */
struct fw_cpu_set {
    cpu_set_t parts[FW_CPU_MAX / CPU_SETSIZE];
};

void fw_cpu_set_clear(struct fw_cpu_set *set);
void fw_cpu_set_add(struct fw_cpu_set *set, uint32_t cpu);
bool fw_cpu_set_has(const struct fw_cpu_set *set, uint32_t cpu);
uint32_t fw_cpu_set_count(const struct fw_cpu_set *set);

/*
 * Keeps hwloc from loading plugins, unless the user has named some: they are for graphics cards and
 * files, and what they bring along (libxml2, ICU, libstdc++) is a megabyte of the process. There is
 * no other way to tell it than the environment: so it is called before there are other threads.
 */
void fw_topology_spare_plugins(void);

/* The affinity mask of the calling thread. Returns 0 or a negative errno. */
FW_MUST_CHECK int fw_cpu_set_get(struct fw_cpu_set *set);

/*
 * Lets the calling thread run on these CPUs only; the thread that is to be bound calls it itself.
 * Does nothing in the simulator, whose threads are all one. Returns 0, or -EINVAL if none of the
 * CPUs may be used.
 */
FW_MUST_CHECK int fw_cpu_set_bind(const struct fw_cpu_set *set);

struct fw_cpu {
    uint32_t id; /* The kernel's number, for fw_cpu_set_add(). */
    /*
     * Counted from 0 without holes, in the order of the array: two CPUs with the same number share
     * the thing. Where the machine does not tell, cores have an L2 each and a node has one L3.
     */
    uint32_t core;
    uint32_t l2;
    uint32_t l3;
    uint32_t node;
    uint32_t node_id; /* The kernel's number of the node, for memory policies. */
};

struct fw_topology {
    struct fw_cpu *cpus; /* At least one. */
    uint32_t cpu_count;
    uint32_t core_count, l2_count, l3_count, node_count;
    uint32_t quota_milli; /* Thousandths of a CPU the cgroup may use at a time; 0: no limit. */
};

/*
 * Not NULL: the machine fw_topology_init() is to find instead of the real one, as a synthetic
 * description of hwloc's, "numa:2 l3:2 core:2 pu:2" for example. The simulator's. Set once, early.
 */
extern const char *fw_topology_fake;

/* Finds out about this machine. Returns 0, -ENOMEM, or what the system said, with the reason. */
FW_MUST_CHECK int fw_topology_init(struct fw_topology *topology, struct fw_reason *reason);

/*
 * The same for the machine in `description`, of which `allowed` may be used (NULL: all of it).
 * Returns -EINVAL if hwloc does not understand the description or no CPU is left.
 */
FW_MUST_CHECK int fw_topology_init_fake(struct fw_topology *topology, const char *description,
                                        const struct fw_cpu_set *allowed, struct fw_reason *reason);

void fw_topology_fini(struct fw_topology *topology);

/*
 * Chooses `count` groups of `size` CPUs, such that those of a group share as much as possible: an
 * L2, else an L3, else a node; a group across nodes comes only when no node has enough left.
 * Writes their places in topology->cpus, group after group, to `places`. Who wants more CPUs than
 * there are gets the same ones again. Returns 0 or -ENOMEM.
 */
FW_MUST_CHECK int fw_topology_group(const struct fw_topology *topology, uint32_t size,
                                    uint32_t count, uint32_t *places);

/*
 * Memory that the calling thread is the first to touch comes from that node from now on, as long as
 * the node has any. Does nothing in the simulator. Returns 0 or what the kernel said; a container
 * may forbid it, and all still works.
 */
FW_MUST_CHECK int fw_memory_prefer_node(uint32_t node_id);
