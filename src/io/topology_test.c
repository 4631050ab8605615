/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the list of CPUs obeys the affinity mask, holes included, and tells rightly who shares
 * what. Method: synthetic machines whose answer is known; then the real one, of which only that can
 * be checked which must hold on any: the list equals the affinity mask, whatever that is made to
 * be.
 */
#include "io/topology.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "support/fail_memory.h"
#include "support/skip.h"

static struct fw_topology topology;
static struct fw_reason reason;

struct expected_cpu {
    uint32_t id, core, l2, l3, node, node_id;
};

static void cpus_check(const struct expected_cpu expected[], uint32_t count)
{
    assert_int_equal(topology.cpu_count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(topology.cpus[i].id, expected[i].id);
        assert_int_equal(topology.cpus[i].core, expected[i].core);
        assert_int_equal(topology.cpus[i].l2, expected[i].l2);
        assert_int_equal(topology.cpus[i].l3, expected[i].l3);
        assert_int_equal(topology.cpus[i].node, expected[i].node);
        assert_int_equal(topology.cpus[i].node_id, expected[i].node_id);
    }
}

static void test_two_nodes(void **state)
{
    (void)state;
    const char *machine = "numa:2 l3:2 l2:1 core:2 pu:2";
    assert_int_equal(fw_topology_init_fake(&topology, machine, NULL, &reason), 0);
    assert_int_equal(topology.cpu_count, 16);
    assert_int_equal(topology.core_count, 8);
    assert_int_equal(topology.l2_count, 4);
    assert_int_equal(topology.l3_count, 4);
    assert_int_equal(topology.node_count, 2);
    assert_int_equal(topology.quota_milli, 0);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(topology.cpus[i].id, i);
        assert_int_equal(topology.cpus[i].core, i / 2);
        assert_int_equal(topology.cpus[i].l2, i / 4);
        assert_int_equal(topology.cpus[i].l3, i / 4);
        assert_int_equal(topology.cpus[i].node, i / 8);
        assert_int_equal(topology.cpus[i].node_id, i / 8);
    }
    fw_topology_fini(&topology);
    assert_null(topology.cpus);
    assert_int_equal(topology.cpu_count, 0);
}

/* As most machines number them: first one thread of every core, then the second threads. */
static void test_scattered_numbers(void **state)
{
    (void)state;
    const char *machine = "numa:2(indexes=1,0) l3:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)";
    static const struct expected_cpu expected[] = {
        {2, 0, 0, 0, 0, 0}, {6, 0, 0, 0, 0, 0}, {3, 1, 1, 0, 0, 0}, {7, 1, 1, 0, 0, 0},
        {0, 2, 2, 1, 1, 1}, {4, 2, 2, 1, 1, 1}, {1, 3, 3, 1, 1, 1}, {5, 3, 3, 1, 1, 1},
    };
    assert_int_equal(fw_topology_init_fake(&topology, machine, NULL, &reason), 0);
    cpus_check(expected, FW_ARRAY_LENGTH(expected));
    fw_topology_fini(&topology);
}

static void test_holes(void **state)
{
    (void)state;
    /* Node 0 is left out, of L3 2 a core, of core 6 a thread, and L3 3 is whole. */
    struct fw_cpu_set allowed;
    fw_cpu_set_clear(&allowed);
    static const uint32_t ids[] = {11, 12, 13, 14, 15, 8000};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ids); i++) {
        fw_cpu_set_add(&allowed, ids[i]);
    }
    static const struct expected_cpu expected[] = {
        {11, 0, 0, 0, 0, 1}, {12, 1, 1, 1, 0, 1}, {13, 1, 1, 1, 0, 1},
        {14, 2, 2, 1, 0, 1}, {15, 2, 2, 1, 0, 1},
    };
    const char *machine = "numa:2 l3:2 core:2 pu:2";
    assert_int_equal(fw_topology_init_fake(&topology, machine, &allowed, &reason), 0);
    cpus_check(expected, FW_ARRAY_LENGTH(expected));
    assert_int_equal(topology.node_count, 1);
    assert_int_equal(topology.l3_count, 2);
    assert_int_equal(topology.l2_count, 3);
    assert_int_equal(topology.core_count, 3);
    fw_topology_fini(&topology);
}

/* Without caches in the description: an L2 for each core, an L3 for each node. */
static void test_no_caches(void **state)
{
    (void)state;
    static const struct expected_cpu expected[] = {
        {0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0}, {2, 1, 1, 0, 0, 0}, {3, 1, 1, 0, 0, 0},
        {4, 2, 2, 1, 1, 1}, {5, 2, 2, 1, 1, 1}, {6, 3, 3, 1, 1, 1}, {7, 3, 3, 1, 1, 1},
    };
    assert_int_equal(fw_topology_init_fake(&topology, "numa:2 core:2 pu:2", NULL, &reason), 0);
    cpus_check(expected, FW_ARRAY_LENGTH(expected));
    fw_topology_fini(&topology);
}

static void test_single_cpu(void **state)
{
    (void)state;
    static const struct expected_cpu expected[] = {{0, 0, 0, 0, 0, 0}};
    assert_int_equal(fw_topology_init_fake(&topology, "pu:1", NULL, &reason), 0);
    cpus_check(expected, 1);
    assert_int_equal(topology.core_count, 1);
    assert_int_equal(topology.l2_count, 1);
    assert_int_equal(topology.l3_count, 1);
    assert_int_equal(topology.node_count, 1);
    fw_topology_fini(&topology);
}

/* Numbers that no set of ours can hold are left out. */
static void test_large_numbers(void **state)
{
    (void)state;
    static const struct expected_cpu expected[] = {{5, 0, 0, 0, 0, 0}, {8191, 1, 1, 0, 0, 0}};
    const char *machine = "numa:1 core:3 pu:1(indexes=8192,8191,5)";
    assert_int_equal(fw_topology_init_fake(&topology, machine, NULL, &reason), 0);
    cpus_check(expected, FW_ARRAY_LENGTH(expected));
    fw_topology_fini(&topology);
}

/* The linker (--wrap) sends our calls of these here. */
int __real_hwloc_topology_init(void **tree);
int __wrap_hwloc_topology_init(void **tree);
int __real_sched_getaffinity(pid_t thread, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t thread, size_t size, cpu_set_t *set);
static bool hwloc_fails;
static bool affinity_fails;

int __wrap_sched_getaffinity(pid_t thread, size_t size, cpu_set_t *set)
{
    errno = EPERM;
    return affinity_fails ? -1 : __real_sched_getaffinity(thread, size, set);
}

int __wrap_hwloc_topology_init(void **tree)
{
    return hwloc_fails ? -1 : __real_hwloc_topology_init(tree);
}

static void test_no_memory(void **state)
{
    (void)state;
    affinity_fails = true;
    int rc = fw_topology_init(&topology, &reason);
    affinity_fails = false;
    assert_int_equal(rc, -EPERM);
    assert_non_null(strstr(reason.text, "the CPU affinity mask"));
    hwloc_fails = true;
    assert_int_equal(fw_topology_init(&topology, &reason), -ENOMEM);
    assert_non_null(strstr(reason.text, "hwloc cannot read"));
    rc = fw_topology_init_fake(&topology, "pu:2", NULL, &reason);
    hwloc_fails = false;
    assert_int_equal(rc, -ENOMEM);
    assert_string_equal(reason.text, "no CPUs in the topology \"pu:2\": Cannot allocate memory");
    fail_memory_after(0);
    assert_int_equal(fw_topology_init_fake(&topology, "pu:2", NULL, &reason), -ENOMEM);
    assert_string_equal(reason.text, "no CPUs in the topology \"pu:2\": Cannot allocate memory");
}

static void test_bad_descriptions(void **state)
{
    (void)state;
    struct fw_cpu_set none;
    fw_cpu_set_clear(&none);
    assert_int_equal(fw_topology_init_fake(&topology, "nonsense", NULL, &reason), -EINVAL);
    assert_non_null(strstr(reason.text, "nonsense"));
    assert_int_equal(fw_topology_init_fake(&topology, "pu:2", &none, &reason), -EINVAL);
}

static void test_fake_by_pointer(void **state)
{
    (void)state;
    fw_topology_fake = "numa:3 core:5 pu:1";
    int rc = fw_topology_init(&topology, &reason);
    fw_topology_fake = NULL;
    assert_int_equal(rc, 0);
    assert_int_equal(topology.cpu_count, 15);
    assert_int_equal(topology.node_count, 3);
    fw_topology_fini(&topology);
}

/* The list is exactly `set`, sorted, and its numbers fit the counts. */
static void real_check(const struct fw_cpu_set *set)
{
    assert_int_equal(fw_topology_init(&topology, &reason), 0);
    assert_int_equal(topology.cpu_count, fw_cpu_set_count(set));
    const struct fw_cpu *before = NULL;
    for (uint32_t i = 0; i < topology.cpu_count; i++) {
        const struct fw_cpu *cpu = &topology.cpus[i];
        assert_true(fw_cpu_set_has(set, cpu->id));
        if (before != NULL) {
            assert_in_range(cpu->core, before->core, before->core + 1);
            assert_in_range(cpu->l2, before->l2, before->l2 + 1);
            assert_in_range(cpu->l3, before->l3, before->l3 + 1);
            assert_in_range(cpu->node, before->node, before->node + 1);
            assert_true(cpu->core > before->core || cpu->id > before->id);
        }
        before = cpu;
    }
    const struct fw_cpu *last = &topology.cpus[topology.cpu_count - 1];
    assert_int_equal(topology.core_count, last->core + 1);
    assert_int_equal(topology.node_count, last->node + 1);
    fw_topology_fini(&topology);
}

static void test_real_machine(void **state)
{
    (void)state;
    struct fw_cpu_set all;
    assert_int_equal(fw_cpu_set_get(&all), 0);
    real_check(&all);

    /* Each CPU alone: a mask that is nearly all hole. */
    for (uint32_t cpu = 0; cpu < FW_CPU_MAX; cpu++) {
        if (fw_cpu_set_has(&all, cpu)) {
            struct fw_cpu_set one, seen;
            fw_cpu_set_clear(&one);
            fw_cpu_set_add(&one, cpu);
            assert_int_equal(fw_cpu_set_bind(&one), 0);
            assert_int_equal(sched_getcpu(), cpu);
            assert_int_equal(fw_cpu_set_get(&seen), 0);
            assert_memory_equal(&seen, &one, sizeof one);
            real_check(&one);
        }
    }
    assert_int_equal(fw_cpu_set_bind(&all), 0);

    struct fw_cpu_set none;
    fw_cpu_set_clear(&none);
    assert_int_equal(fw_cpu_set_bind(&none), -EINVAL);
}

static void bound_run(void *argument)
{
    struct fw_cpu_set one;
    uint32_t cpu = *(uint32_t *)argument;
    fw_cpu_set_clear(&one);
    fw_cpu_set_add(&one, cpu);
    int rc = fw_cpu_set_bind(&one);
    *(uint32_t *)argument = rc == 0 && (uint32_t)sched_getcpu() == cpu ? 1 : 0;
}

static void test_binds_only_its_thread(void **state)
{
    (void)state;
    struct fw_cpu_set before, after;
    struct fw_thread thread;
    uint32_t cpu = 0;
    assert_int_equal(fw_cpu_set_get(&before), 0);
    while (!fw_cpu_set_has(&before, cpu)) {
        cpu++;
    }
    assert_int_equal(fw_thread_create(&thread, "bound", bound_run, &cpu), 0);
    fw_thread_join(&thread);
    assert_int_equal(cpu, 1);
    assert_int_equal(fw_cpu_set_get(&after), 0);
    assert_memory_equal(&before, &after, sizeof before);
}

static void test_simulated_threads_are_not_bound(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {0};
    struct fw_cpu_set none;
    fw_cpu_set_clear(&none);
    fw_thread_hooks = &hooks;
    int rc = fw_cpu_set_bind(&none);
    fw_thread_hooks = NULL;
    assert_int_equal(rc, 0);
}

static void test_cpu_set(void **state)
{
    (void)state;
    struct fw_cpu_set set;
    fw_cpu_set_clear(&set);
    assert_int_equal(fw_cpu_set_count(&set), 0);
    static const uint32_t ids[] = {0, 63, 64, 1024, FW_CPU_MAX - 1};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ids); i++) {
        assert_false(fw_cpu_set_has(&set, ids[i]));
        fw_cpu_set_add(&set, ids[i]);
        assert_true(fw_cpu_set_has(&set, ids[i]));
        assert_int_equal(fw_cpu_set_count(&set), i + 1);
    }
    assert_false(fw_cpu_set_has(&set, FW_CPU_MAX));
    expect_assert_failure(fw_cpu_set_add(&set, FW_CPU_MAX));
}

/* ---- groups -------------------------------------------------------------------------------- */

/* Groups the CPUs of a machine, and compares their numbers. */
static void group_check(const char *machine, const struct fw_cpu_set *allowed, uint32_t size,
                        uint32_t count, const uint32_t expected[])
{
    uint32_t places[64];
    memset(places, 0xee, sizeof places);
    assert_int_equal(fw_topology_init_fake(&topology, machine, allowed, &reason), 0);
    assert_int_equal(fw_topology_group(&topology, size, count, places), 0);
    for (uint32_t i = 0; i < size * count; i++) {
        assert_int_equal(topology.cpus[places[i]].id, expected[i]);
    }
    assert_int_equal(places[(size_t)size * count], 0xeeeeeeee); /* And no more. */
    fw_topology_fini(&topology);
}

static void test_groups_share_caches(void **state)
{
    (void)state;
    const char *machine = "numa:2 l3:2 core:2 pu:1";
    group_check(machine, NULL, 1, 3, (const uint32_t[]){0, 1, 2});
    group_check(machine, NULL, 2, 4, (const uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
    group_check(machine, NULL, 4, 2, (const uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
    group_check(machine, NULL, 3, 2, (const uint32_t[]){0, 1, 2, 4, 5, 6}); /* By nodes. */
    group_check(machine, NULL, 5, 1, (const uint32_t[]){0, 1, 2, 3, 4});
    /* A whole L2 before parts of two, though these are nearer to the beginning. */
    group_check("numa:1 l3:1 l2:2 core:3 pu:1", NULL, 2, 3, (const uint32_t[]){0, 1, 3, 4, 2, 5});
    group_check("numa:2 l3:2 core:3 pu:1", NULL, 2, 6,
                (const uint32_t[]){0, 1, 3, 4, 6, 7, 9, 10, 2, 5, 8, 11});
}

static void test_groups_of_what_is_allowed(void **state)
{
    (void)state;
    struct fw_cpu_set allowed;
    fw_cpu_set_clear(&allowed);
    static const uint32_t ids[] = {0, 2, 3, 5, 6, 7};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ids); i++) {
        fw_cpu_set_add(&allowed, ids[i]);
    }
    const char *machine = "numa:2 l3:2 core:2 pu:1";
    group_check(machine, &allowed, 2, 2, (const uint32_t[]){2, 3, 6, 7});
    group_check(machine, &allowed, 3, 2, (const uint32_t[]){0, 2, 3, 5, 6, 7});
    /* The third has what is left, across nodes: there is no other way. */
    group_check(machine, &allowed, 2, 3, (const uint32_t[]){2, 3, 6, 7, 0, 5});
}

static void test_more_groups_than_cpus(void **state)
{
    (void)state;
    group_check("pu:1", NULL, 1, 3, (const uint32_t[]){0, 0, 0});
    group_check("pu:1", NULL, 2, 2, (const uint32_t[]){0, 0, 0, 0});
    group_check("core:3 pu:1", NULL, 2, 3, (const uint32_t[]){0, 1, 0, 1, 0, 1});
    group_check("core:2 pu:1", NULL, 3, 2, (const uint32_t[]){0, 1, 0, 0, 1, 0});
    assert_int_equal(fw_topology_init_fake(&topology, "pu:1", NULL, &reason), 0);
    uint32_t place;
    fail_memory_after(0);
    assert_int_equal(fw_topology_group(&topology, 1, 1, &place), -ENOMEM);
    fw_topology_fini(&topology);
}

/* ---- memory -------------------------------------------------------------------------------- */

struct memory_seen {
    uint32_t node_id;
    int rc;
    int mode;
    char line[1024]; /* What the kernel says of memory that the thread has touched. */
};

static void numa_maps_find(const void *address, char *line, size_t size)
{
    char wanted[32];
    int length = snprintf(wanted, sizeof wanted, "%lx ", (unsigned long)address);
    FILE *maps = fopen("/proc/self/numa_maps", "re");
    line[0] = 0;
    while (maps != NULL && fgets(line, (int)size, maps) != NULL &&
           strncmp(line, wanted, (size_t)length) != 0) {
        line[0] = 0;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
}

static void memory_run(void *argument)
{
    struct memory_seen *seen = argument;
    enum { SIZE = 1 << 20 };
    seen->rc = fw_memory_prefer_node(seen->node_id);
    (void)syscall(SYS_get_mempolicy, &seen->mode, NULL, 0UL, NULL, 0UL);
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        memset(memory, 1, SIZE);
        /* A mapping of its own in the list, whatever stands beside it. */
        (void)mprotect(memory, SIZE, PROT_READ);
        numa_maps_find(memory, seen->line, sizeof seen->line);
        (void)munmap(memory, SIZE);
    }
}

static void test_memory_comes_from_the_node(void **state)
{
    (void)state;
    int mode = -1;
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) != 0 ||
        access("/proc/self/numa_maps", R_OK) != 0) {
        fw_test_skip("memory-policy", "the kernel knows or tells no NUMA nodes");
    }
    assert_int_equal(fw_topology_init(&topology, &reason), 0);
    struct memory_seen seen = {.node_id = topology.cpus[topology.cpu_count - 1].node_id};
    fw_topology_fini(&topology);
    struct fw_thread thread;
    assert_int_equal(fw_thread_create(&thread, "memory", memory_run, &seen), 0);
    fw_thread_join(&thread);
    assert_int_equal(seen.rc, 0);
    assert_int_equal(seen.mode, 1); /* MPOL_PREFERRED. */
    char pages[32];
    (void)snprintf(pages, sizeof pages, " N%u=", seen.node_id);
    assert_non_null(strstr(seen.line, pages));
    /* Of this thread nothing has changed. */
    int after = -1;
    assert_int_equal(syscall(SYS_get_mempolicy, &after, NULL, 0UL, NULL, 0UL), 0);
    assert_int_equal(after, mode);
    assert_int_equal(fw_memory_prefer_node(1023), -EINVAL);
    assert_int_equal(fw_memory_prefer_node(1024), -EINVAL);
}

static void test_simulated_threads_have_no_policy(void **state)
{
    (void)state;
    static const struct fw_thread_hooks hooks = {0};
    fw_thread_hooks = &hooks;
    int rc = fw_memory_prefer_node(1024);
    fw_thread_hooks = NULL;
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_scattered_numbers),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_no_caches),
        cmocka_unit_test(test_single_cpu),
        cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bad_descriptions),
        cmocka_unit_test(test_fake_by_pointer),
        cmocka_unit_test(test_real_machine),
        cmocka_unit_test(test_binds_only_its_thread),
        cmocka_unit_test(test_simulated_threads_are_not_bound),
        cmocka_unit_test(test_cpu_set),
        cmocka_unit_test(test_groups_share_caches),
        cmocka_unit_test(test_groups_of_what_is_allowed),
        cmocka_unit_test(test_more_groups_than_cpus),
        cmocka_unit_test(test_memory_comes_from_the_node),
        cmocka_unit_test(test_simulated_threads_have_no_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
