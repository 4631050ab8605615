/* SPDX-License-Identifier: Apache-2.0 */
#include "io/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/cgroup.h"

static_assert(sizeof(struct fw_cpu_set) * 8 == FW_CPU_MAX, "one bit for each CPU");

const char *fw_topology_fake;

void fw_cpu_set_clear(struct fw_cpu_set *set)
{
    memset(set, 0, sizeof *set);
}

void fw_cpu_set_add(struct fw_cpu_set *set, uint32_t cpu)
{
    FW_ASSERT(cpu < FW_CPU_MAX);
    CPU_SET_S(cpu, sizeof *set, set->parts);
}

bool fw_cpu_set_has(const struct fw_cpu_set *set, uint32_t cpu)
{
    return cpu < FW_CPU_MAX && CPU_ISSET_S(cpu, sizeof *set, set->parts) != 0;
}

uint32_t fw_cpu_set_count(const struct fw_cpu_set *set)
{
    return (uint32_t)CPU_COUNT_S(sizeof *set, set->parts);
}

int fw_cpu_set_get(struct fw_cpu_set *set)
{
    return sched_getaffinity(0, sizeof *set, set->parts) != 0 ? -errno : 0;
}

int fw_cpu_set_bind(const struct fw_cpu_set *set)
{
    if (fw_thread_hooks != NULL) {
        return 0;
    }
    return sched_setaffinity(0, sizeof *set, set->parts) != 0 ? -errno : 0;
}

/* Added to numbers that stand in for hwloc's where it has none, so that they never meet. */
static const uint32_t MADE_UP = UINT32_C(1) << 31;

/* The number hwloc gave to what `pu` shares; if there is no such thing, one for each `otherwise`.
 */
static uint32_t shared_index(hwloc_topology_t tree, hwloc_obj_t pu, hwloc_obj_type_t type,
                             uint32_t otherwise)
{
    hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(tree, type, pu);
    return object != NULL ? object->logical_index : (MADE_UP | otherwise);
}

/* Describes a CPU with hwloc's numbers, which have holes where CPUs are not ours. */
static struct fw_cpu cpu_describe(hwloc_topology_t tree, hwloc_obj_t pu)
{
    /* With more than one kind of memory near, the first is the ordinary one. */
    int node_id = pu->nodeset != NULL ? hwloc_bitmap_first(pu->nodeset) : -1;
    struct fw_cpu cpu = {.id = pu->os_index, .node_id = node_id >= 0 ? (uint32_t)node_id : 0};
    cpu.node = cpu.node_id;
    cpu.core = shared_index(tree, pu, HWLOC_OBJ_CORE, pu->logical_index);
    cpu.l2 = shared_index(tree, pu, HWLOC_OBJ_L2CACHE, cpu.core);
    cpu.l3 = shared_index(tree, pu, HWLOC_OBJ_L3CACHE, cpu.node);
    return cpu;
}

static int number_compare(uint32_t left, uint32_t right)
{
    return (left > right) - (left < right);
}

/* hwloc numbers cores depth first, so within a node those that share a cache stand together. */
static int cpu_compare(const void *left, const void *right)
{
    const struct fw_cpu *one = left;
    const struct fw_cpu *other = right;
    int order = number_compare(one->node, other->node);
    order = order != 0 ? order : number_compare(one->core, other->core);
    return order != 0 ? order : number_compare(one->id, other->id);
}

/*
 * Gives what `cpus` share new numbers, from 0 and without holes, and counts them. A CPU that
 * shares, say, the L3 with the one before it in node and L3 gets the same number.
 */
static void topology_number(struct fw_topology *topology)
{
    struct fw_cpu before = topology->cpus[0];
    struct fw_cpu next = {0};
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        struct fw_cpu *cpu = &topology->cpus[i];
        struct fw_cpu found = *cpu;
        bool new_node = found.node != before.node;
        bool new_l3 = new_node || found.l3 != before.l3;
        bool new_l2 = new_l3 || found.l2 != before.l2;
        bool new_core = new_l2 || found.core != before.core;
        next.node += new_node ? 1 : 0;
        next.l3 += new_l3 ? 1 : 0;
        next.l2 += new_l2 ? 1 : 0;
        next.core += new_core ? 1 : 0;
        cpu->node = next.node;
        cpu->l3 = next.l3;
        cpu->l2 = next.l2;
        cpu->core = next.core;
        before = found;
    }
    topology->node_count = next.node + 1;
    topology->l3_count = next.l3 + 1;
    topology->l2_count = next.l2 + 1;
    topology->core_count = next.core + 1;
}

static int topology_fill(struct fw_topology *topology, hwloc_topology_t tree,
                         const struct fw_cpu_set *allowed)
{
    int pu_count = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_PU);
    struct fw_cpu *cpus = calloc((size_t)pu_count, sizeof *cpus);
    if (cpus == NULL) {
        return -ENOMEM;
    }
    *topology = (struct fw_topology){.cpus = cpus};
    for (hwloc_obj_t pu = NULL;
         (pu = hwloc_get_next_obj_by_type(tree, HWLOC_OBJ_PU, pu)) != NULL;) {
        if (pu->os_index < FW_CPU_MAX &&
            (allowed == NULL || fw_cpu_set_has(allowed, pu->os_index))) {
            cpus[topology->cpu_count++] = cpu_describe(tree, pu);
        }
    }
    if (topology->cpu_count == 0) {
        free(cpus);
        return -EINVAL;
    }
    qsort(cpus, topology->cpu_count, sizeof *cpus, cpu_compare);
    topology_number(topology);
    return 0;
}

/*
 * hwloc is four times faster if it need not look for what we do not ask. Groups must stay: the tree
 * hangs nodes on them, and without them every CPU would be near to every node.
 */
static int tree_load(hwloc_topology_t tree, const char *description)
{
    static const hwloc_obj_type_t wanted[] = {HWLOC_OBJ_CORE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE};
    if (description != NULL && hwloc_topology_set_synthetic(tree, description) != 0) {
        return -EINVAL;
    }
    int rc = hwloc_topology_set_all_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (size_t i = 0; rc == 0 && i < FW_ARRAY_LENGTH(wanted); i++) {
        rc = hwloc_topology_set_type_filter(tree, wanted[i], HWLOC_TYPE_FILTER_KEEP_ALL);
    }
    if (rc == 0) {
        rc =
            hwloc_topology_set_type_filter(tree, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    }
    /* Without the flag hwloc may run this thread on every CPU in turn, to ask each about itself. */
    if (rc == 0) {
        rc = hwloc_topology_set_flags(tree, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
    }
    return rc == 0 && hwloc_topology_load(tree) == 0 ? 0 : -EIO;
}

static int topology_load(struct fw_topology *topology, const char *description,
                         const struct fw_cpu_set *allowed)
{
    hwloc_topology_t tree;
    if (hwloc_topology_init(&tree) != 0) {
        return -ENOMEM;
    }
    int rc = tree_load(tree, description);
    if (rc == 0) {
        rc = topology_fill(topology, tree, allowed);
    }
    hwloc_topology_destroy(tree);
    return rc;
}

void fw_topology_spare_plugins(void)
{
    /* Should it fail, there are plugins. NOLINTNEXTLINE(concurrency-mt-unsafe): one thread. */
    (void)setenv("HWLOC_PLUGINS_PATH", "", 0);
}

int fw_topology_init(struct fw_topology *topology, struct fw_reason *reason)
{
    if (fw_topology_fake != NULL) {
        return fw_topology_init_fake(topology, fw_topology_fake, NULL, reason);
    }
    struct fw_cpu_set allowed;
    int rc = fw_cpu_set_get(&allowed);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot read the CPU affinity mask");
    }
    rc = topology_load(topology, NULL, &allowed);
    if (rc != 0) {
        return fw_reason_errno(reason, rc,
                               "hwloc cannot read the CPUs of this machine; is /sys "
                               "mounted?");
    }
    topology->quota_milli = fw_cgroup_cpu_quota_milli("");
    return 0;
}

int fw_topology_init_fake(struct fw_topology *topology, const char *description,
                          const struct fw_cpu_set *allowed, struct fw_reason *reason)
{
    int rc = topology_load(topology, description, allowed);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "no CPUs in the topology \"%s\"", description);
    }
    return 0;
}

void fw_topology_fini(struct fw_topology *topology)
{
    free(topology->cpus);
    topology->cpus = NULL;
    topology->cpu_count = 0;
}

/* ---- groups -------------------------------------------------------------------------------- */

/* What the CPUs of a group may share, the nearest first. */
enum share { SHARE_L2, SHARE_L3, SHARE_NODE, SHARE_NOTHING, SHARES };

static uint32_t shared_number(const struct fw_cpu *cpu, enum share share)
{
    switch (share) {
    case SHARE_L2:
        return cpu->l2;
    case SHARE_L3:
        return cpu->l3;
    case SHARE_NODE:
        return cpu->node;
    case SHARE_NOTHING:
    case SHARES:
    default:
        return 0;
    }
}

/*
 * Takes `size` CPUs that are not in use and share something. They need not stand side by side: what
 * smaller groups have left over of a node makes up a group too. False: there are no such.
 */
static bool group_take(const struct fw_topology *topology, enum share share, uint32_t size,
                       bool is_used[], uint32_t *places)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < topology->cpu_count && found < size; i++) {
        const struct fw_cpu *cpu = &topology->cpus[i];
        /* Those that share stand together, so with another number another run begins. */
        if (i > 0 && shared_number(cpu, share) != shared_number(cpu - 1, share)) {
            found = 0;
        }
        if (!is_used[i]) {
            places[found++] = i;
        }
    }
    if (found < size) {
        return false;
    }
    for (uint32_t i = 0; i < size; i++) {
        is_used[places[i]] = true;
    }
    return true;
}

/* The same with the nearest that they can share. */
static bool group_find(const struct fw_topology *topology, uint32_t size, bool is_used[],
                       uint32_t *places)
{
    for (unsigned share = 0; share < SHARES; share++) {
        if (group_take(topology, (enum share)share, size, is_used, places)) {
            return true;
        }
    }
    return false;
}

int fw_topology_group(const struct fw_topology *topology, uint32_t size, uint32_t count,
                      uint32_t *places)
{
    bool *is_used = calloc(topology->cpu_count, sizeof *is_used);
    if (is_used == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *group = &places[(size_t)i * size];
        if (size > topology->cpu_count) {
            for (uint32_t j = 0; j < size; j++) {
                group[j] = j % topology->cpu_count;
            }
        } else if (!group_find(topology, size, is_used, group)) {
            memset(is_used, 0, topology->cpu_count * sizeof *is_used);
            bool is_found = group_find(topology, size, is_used, group);
            FW_ASSERT(is_found);
        }
    }
    free(is_used);
    return 0;
}

int fw_memory_prefer_node(uint32_t node_id)
{
    enum { PREFERRED = 1, NODES_MAX = 1024, BITS = 8 * sizeof(unsigned long) };
    if (fw_thread_hooks != NULL) {
        return 0;
    }
    if (node_id >= NODES_MAX) {
        return -EINVAL;
    }
    unsigned long nodes[NODES_MAX / BITS] = {0};
    nodes[node_id / BITS] = 1UL << (node_id % BITS);
    /* The kernel takes one bit less than it is told of. */
    return syscall(SYS_set_mempolicy, PREFERRED, nodes, NODES_MAX + 1) != 0 ? -errno : 0;
}
