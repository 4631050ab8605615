/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "io/clock.h"
#include "simulate/disk.h"
#include "simulate/fibre.h"
#include "simulate/network.h"

enum {
    EVENTS_MAX = 1 << 18,
    SWITCHES_MAX = 20 * 1000 * 1000, /* Beyond this nobody gets anywhere: a livelock. */
    TRACE_KEPT = 200,                /* Lines shown after a failure. */
    TRACE_LINE = 160,
    SWITCH_COST_MAX_NS = 2000,
};

enum fibre_state { FIBRE_FREE, FIBRE_READY, FIBRE_RUNNING, FIBRE_BLOCKED, FIBRE_ENDED };

struct sim_fibre {
    struct fw_fibre context;
    struct fw_thread *thread; /* NULL for the first one. */
    struct fw_thread_state first_state;
    enum fibre_state state;
    uint32_t number;
    uint32_t node;
    uint32_t ready_index;  /* Its place in `ready`. */
    uint64_t block_number; /* Tells this wait from earlier ones, for time-outs that come late. */
    bool woken;
    const char *waits_for;
    struct sim_fibre *joiner;
    struct fw_list_link mutex_link; /* In a mutex's list of waiters. */
    struct fw_parker *parker;
};

struct event {
    int64_t time_ns;
    uint64_t sequence; /* Events of one moment happen in the order they were made. */
    void (*act)(void *context, uint64_t number);
    void *context;
    uint64_t number;
};

/* What a simulated mutex is; hangs on fw_mutex.waiters while somebody holds or wants it. */
struct sim_mutex {
    struct sim_fibre *holder;
    struct fw_list waiting;
};

static struct world {
    const struct sim_scenario *scenario;
    uint64_t seed;
    struct fw_random draws;    /* The outside's and the scenario's. */
    struct fw_random schedule; /* The scheduler's own, so that a scenario's draws stay its own. */
    uint32_t yield_one_in;
    int64_t now_ns;
    uint64_t switches;
    struct fw_fibre scheduler;
    struct sim_fibre *running;
    struct sim_fibre *fibres[SIM_FIBRES_MAX];
    uint32_t fibre_count;
    struct sim_fibre *ready[SIM_FIBRES_MAX];
    uint32_t ready_count;
    bool frozen[SIM_NODES_MAX];
    uint32_t frozen_count;
    struct event *events; /* A binary heap. */
    uint32_t event_count;
    uint64_t event_sequence;
    uint64_t trace_hash;
    uint64_t trace_lines;
    char trace[TRACE_KEPT][TRACE_LINE];
} world;

static bool trace_on = true;
static int trace_fd = -1;
static void (*replay)(const struct sim_scenario *scenario, uint64_t seed);

/* ---- the trace ---- */

void sim_trace_to(int fd)
{
    trace_fd = fd;
}

void sim_trace_off(void (*on_failure)(const struct sim_scenario *scenario, uint64_t seed))
{
    trace_on = false;
    replay = on_failure;
}

FW_PRINTF(1, 0) static void trace_line(const char *format, va_list arguments)
{
    char *line = world.trace[world.trace_lines % TRACE_KEPT];
    world.trace_lines++;
    int length =
        snprintf(line, TRACE_LINE, "%4" PRId64 ".%09" PRId64 " f%-3u ", world.now_ns / SIM_S,
                 world.now_ns % SIM_S, world.running != NULL ? world.running->number : 0);
    int rest = vsnprintf(line + length, (size_t)(TRACE_LINE - length), format, arguments);
    length = rest < TRACE_LINE - length - 1 ? length + rest : TRACE_LINE - 2;
    line[length] = '\n';
    line[length + 1] = '\0';
    world.trace_hash = fw_hash(line, (size_t)length + 1, world.trace_hash);
    if (trace_fd >= 0) {
        ssize_t written = write(trace_fd, line, (size_t)length + 1);
        FW_ASSERT(written == length + 1);
    }
}

void sim_trace(const char *format, ...)
{
    if (!trace_on) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    trace_line(format, arguments);
    va_end(arguments);
}

const char *sim_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static void fibres_print(void)
{
    static const char *const names[] = {"free", "ready", "running", "blocked", "ended"};
    for (uint32_t i = 0; i < world.fibre_count; i++) {
        const struct sim_fibre *fibre = world.fibres[i];
        if (fibre->state != FIBRE_ENDED) {
            (void)fprintf(stderr, "  f%u %s (node %u): %s%s%s\n", fibre->number,
                          fibre->thread != NULL ? fibre->thread->name : "scenario", fibre->node,
                          names[fibre->state], fibre->state == FIBRE_BLOCKED ? ", " : "",
                          fibre->state == FIBRE_BLOCKED ? fibre->waits_for : "");
        }
    }
}

_Noreturn FW_PRINTF(1, 0) static void fail(const char *format, va_list arguments)
{
    if (!trace_on) {
        replay(world.scenario, world.seed);
        (void)fprintf(stderr, "seed %" PRIu64 " failed, but not when run again: its world leaks\n",
                      world.seed);
    }
    uint64_t first = world.trace_lines > TRACE_KEPT ? world.trace_lines - TRACE_KEPT : 0;
    (void)fprintf(stderr, "the last %" PRIu64 " of %" PRIu64 " lines of the trace:\n",
                  world.trace_lines - first, world.trace_lines);
    for (uint64_t i = first; i < world.trace_lines; i++) {
        (void)fputs(world.trace[i % TRACE_KEPT], stderr);
    }
    (void)fprintf(stderr, "fibres:\n");
    fibres_print();
    (void)fprintf(stderr, "FAILED: ");
    (void)vfprintf(stderr, format, arguments);
    (void)fprintf(stderr,
                  "\nscenario %s, seed %" PRIu64 "; again with the whole trace:\n"
                  "  build/simulate --scenario %s --seed %" PRIu64 " --trace FILE\n",
                  world.scenario->name, world.seed, world.scenario->name, world.seed);
    _exit(1);
}

void sim_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(format, arguments);
}

/* Linked in place of base/assert.c's. */
void fw_assert_failed(const char *condition, const char *file, int line)
{
    sim_fail("%s:%d: assertion failed: %s", sim_base_name(file), line, condition);
}

/* ---- draws ---- */

struct fw_random *sim_random(void)
{
    return &world.draws;
}

bool sim_chance(uint32_t one_in)
{
    return fw_random_below(&world.draws, one_in) == 0;
}

int64_t sim_between(int64_t low, int64_t high)
{
    FW_ASSERT(low <= high);
    return low + (int64_t)fw_random_below(&world.draws, (uint64_t)(high - low) + 1);
}

/* ---- events ---- */

static bool event_before(const struct event *a, const struct event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

void sim_at(int64_t time_ns, void (*act)(void *context, uint64_t number), void *context,
            uint64_t number)
{
    FW_ASSERT(world.event_count < EVENTS_MAX);
    FW_ASSERT(time_ns >= 0);
    struct event event = {.time_ns = time_ns > world.now_ns ? time_ns : world.now_ns,
                          .sequence = world.event_sequence++,
                          .act = act,
                          .context = context,
                          .number = number};
    uint32_t i = world.event_count++;
    while (i > 0 && event_before(&event, &world.events[(i - 1) / 2])) {
        world.events[i] = world.events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    world.events[i] = event;
}

static struct event event_take(void)
{
    FW_ASSERT(world.event_count > 0);
    struct event first = world.events[0];
    struct event last = world.events[--world.event_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= world.event_count) {
            break;
        }
        if (child + 1 < world.event_count &&
            event_before(&world.events[child + 1], &world.events[child])) {
            child++;
        }
        if (!event_before(&world.events[child], &last)) {
            break;
        }
        world.events[i] = world.events[child];
        i = child;
    }
    world.events[i] = last;
    return first;
}

/* ---- fibres ---- */

struct sim_fibre *sim_self(void)
{
    return world.running;
}

int64_t sim_now(void)
{
    return world.now_ns;
}

uint32_t sim_node(void)
{
    return world.running->node;
}

void sim_node_set(uint32_t node)
{
    FW_ASSERT(node < SIM_NODES_MAX);
    world.running->node = node;
}

void sim_node_freeze(uint32_t node)
{
    FW_ASSERT(node < SIM_NODES_MAX && !world.frozen[node] && node != world.running->node);
    sim_trace("freezes node %u", node);
    world.frozen[node] = true;
    world.frozen_count++;
}

void sim_node_thaw(uint32_t node)
{
    FW_ASSERT(node < SIM_NODES_MAX && world.frozen[node]);
    sim_trace("thaws node %u", node);
    world.frozen[node] = false;
    world.frozen_count--;
}

static void ready_add(struct sim_fibre *fibre)
{
    fibre->state = FIBRE_READY;
    fibre->ready_index = world.ready_count;
    world.ready[world.ready_count++] = fibre;
}

static void ready_remove(struct sim_fibre *fibre)
{
    struct sim_fibre *last = world.ready[--world.ready_count];
    world.ready[fibre->ready_index] = last;
    last->ready_index = fibre->ready_index;
}

static void fibre_switch_away(void)
{
    struct sim_fibre *self = world.running;
    fw_fibre_switch(&self->context, &world.scheduler);
}

void sim_wake(struct sim_fibre *fibre)
{
    if (fibre->state == FIBRE_BLOCKED) {
        fibre->woken = true;
        ready_add(fibre);
    }
}

static void block_timeout(void *context, uint64_t number)
{
    struct sim_fibre *fibre = context;
    if (fibre->state == FIBRE_BLOCKED && fibre->block_number == number) {
        fibre->woken = false;
        ready_add(fibre);
    }
}

bool sim_block(const char *what, int64_t deadline_ns)
{
    struct sim_fibre *self = world.running;
    self->block_number++;
    self->waits_for = what;
    self->state = FIBRE_BLOCKED;
    if (deadline_ns != SIM_NEVER) {
        sim_at(deadline_ns, block_timeout, self, self->block_number);
    }
    sim_trace("waits: %s", what);
    fibre_switch_away();
    return self->woken;
}

void sim_sleep(int64_t duration_ns)
{
    (void)sim_block("sleep", world.now_ns + duration_ns);
}

/* Lets the seed say whether time passes here, and with it perhaps another fibre goes first. */
static void maybe_switch(const char *where)
{
    if (fw_random_below(&world.schedule, world.yield_one_in) == 0) {
        sim_trace("yields: %s", where);
        ready_add(world.running);
        fibre_switch_away();
    }
}

static void fibre_main(void *argument)
{
    struct sim_fibre *fibre = argument;
    if (fibre->thread != NULL) {
        fibre->thread->run(fibre->thread->argument);
    } else {
        world.scenario->run();
    }
    FW_ASSERT(fw_thread_self()->held_last == NULL);
    fw_thread_end(fw_thread_self());
    sim_trace("ends");
    fibre->state = FIBRE_ENDED;
    if (fibre->joiner != NULL) {
        sim_wake(fibre->joiner);
    }
}

static struct sim_fibre *fibre_create(struct fw_thread *thread)
{
    if (world.fibre_count == SIM_FIBRES_MAX) {
        return NULL;
    }
    struct sim_fibre *fibre = calloc(1, sizeof *fibre);
    if (fibre == NULL || fw_fibre_init(&fibre->context, fibre_main, fibre) != 0) {
        free(fibre);
        return NULL;
    }
    fibre->thread = thread;
    fibre->first_state.name = "scenario";
    fibre->number = world.fibre_count + 1;
    fibre->node = world.running != NULL ? world.running->node : 0;
    world.fibres[world.fibre_count++] = fibre;
    ready_add(fibre);
    return fibre;
}

/* ---- the hooks of base/thread ---- */

static int hook_create(struct fw_thread *thread)
{
    struct sim_fibre *fibre = fibre_create(thread);
    if (fibre == NULL) {
        return -EAGAIN;
    }
    thread->fibre = fibre;
    sim_trace("creates f%u %s", fibre->number, thread->name);
    maybe_switch("thread created");
    return 0;
}

static void hook_join(struct fw_thread *thread)
{
    struct sim_fibre *fibre = thread->fibre;
    FW_ASSERT(fibre->joiner == NULL);
    fibre->joiner = world.running;
    while (fibre->state != FIBRE_ENDED) {
        (void)sim_block("join", SIM_NEVER);
    }
    fibre->thread = NULL; /* The caller may free it now. */
}

static bool hook_park(struct fw_parker *parker, int64_t timeout_ns)
{
    maybe_switch("about to park");
    int64_t deadline_ns = timeout_ns < 0 ? SIM_NEVER : world.now_ns + timeout_ns;
    bool time_left = true;
    while (atomic_load(&parker->word) != FW_PARKER_TOKEN && time_left) {
        atomic_store(&parker->word, FW_PARKER_PARKED);
        world.running->parker = parker;
        time_left = sim_block("park", deadline_ns);
        world.running->parker = NULL;
    }
    return atomic_exchange(&parker->word, FW_PARKER_EMPTY) == FW_PARKER_TOKEN;
}

static void hook_unpark(struct fw_parker *parker)
{
    maybe_switch("about to unpark");
    if (atomic_exchange(&parker->word, FW_PARKER_TOKEN) == FW_PARKER_PARKED) {
        for (uint32_t i = 0; i < world.fibre_count; i++) {
            if (world.fibres[i]->parker == parker) {
                sim_trace("unparks f%u", world.fibres[i]->number);
                sim_wake(world.fibres[i]);
            }
        }
    }
    maybe_switch("unparked");
}

static struct sim_mutex *mutex_get(struct fw_mutex *mutex)
{
    if (mutex->waiters == NULL) {
        struct sim_mutex *made = calloc(1, sizeof *made);
        FW_ASSERT(made != NULL);
        fw_list_init(&made->waiting);
        mutex->waiters = made;
    }
    return mutex->waiters;
}

static void hook_lock(struct fw_mutex *mutex)
{
    maybe_switch("about to lock");
    struct sim_mutex *sim = mutex_get(mutex);
    while (sim->holder != NULL) {
        FW_ASSERT(sim->holder != world.running);
        fw_list_push_back(&sim->waiting, &world.running->mutex_link);
        (void)sim_block("mutex", SIM_NEVER);
        sim = mutex_get(mutex); /* Its last holder let it go when nobody waited. */
    }
    sim->holder = world.running;
}

static bool hook_trylock(struct fw_mutex *mutex)
{
    maybe_switch("about to try a lock");
    struct sim_mutex *sim = mutex_get(mutex);
    if (sim->holder != NULL) {
        return false;
    }
    sim->holder = world.running;
    return true;
}

static void hook_unlock(struct fw_mutex *mutex)
{
    struct sim_mutex *sim = mutex->waiters;
    FW_ASSERT(sim != NULL && sim->holder == world.running);
    sim->holder = NULL;
    struct fw_list_link *link = fw_list_pop_front(&sim->waiting);
    if (link != NULL) {
        sim_wake(FW_LIST_ENTRY(link, struct sim_fibre, mutex_link));
    } else {
        free(sim); /* So that a mutex leaves nothing behind when it ends. */
        mutex->waiters = NULL;
    }
    maybe_switch("unlocked");
}

static const struct fw_thread_hooks thread_hooks = {
    .create = hook_create,
    .join = hook_join,
    .park = hook_park,
    .unpark = hook_unpark,
    .lock = hook_lock,
    .trylock = hook_trylock,
    .unlock = hook_unlock,
    .yield = maybe_switch,
};

/* ---- one run ---- */

static int64_t hook_now(void)
{
    return world.now_ns;
}

/* Runs start on a day of their own; what matters is that all start on the same. */
static int64_t hook_wall(void)
{
    return INT64_C(1700000000) * SIM_S + world.now_ns;
}

static uint64_t hook_seed(void)
{
    return fw_random_next(&world.draws);
}

static const struct fw_clock_hooks clock_hooks = {.now_ns = hook_now, .wall_ns = hook_wall};
static const struct fw_random_hooks random_hooks = {.seed = hook_seed};

static void run_fibre(struct sim_fibre *fibre)
{
    ready_remove(fibre);
    fibre->state = FIBRE_RUNNING;
    world.running = fibre;
    world.switches++;
    world.now_ns += (int64_t)fw_random_below(&world.schedule, SWITCH_COST_MAX_NS);
    fw_thread_self_pointer = fibre->thread != NULL ? &fibre->thread->state : &fibre->first_state;
    fw_fibre_switch(&world.scheduler, &fibre->context);
    fw_thread_self_pointer = NULL;
    world.running = NULL;
}

/* One of those that can run, or NULL. */
static struct sim_fibre *fibre_choose(void)
{
    struct sim_fibre *able[SIM_FIBRES_MAX];
    uint32_t able_count = 0;
    if (world.ready_count == 0) {
        return NULL;
    }
    if (world.frozen_count == 0) {
        return world.ready[fw_random_below(&world.schedule, world.ready_count)];
    }
    for (uint32_t i = 0; i < world.ready_count; i++) {
        if (!world.frozen[world.ready[i]->node]) {
            able[able_count++] = world.ready[i];
        }
    }
    return able_count > 0 ? able[fw_random_below(&world.schedule, able_count)] : NULL;
}

/* Until the first fibre and all it started have ended. */
static void schedule(void)
{
    while (world.switches < SWITCHES_MAX) {
        while (world.event_count > 0 && world.events[0].time_ns <= world.now_ns) {
            struct event event = event_take();
            event.act(event.context, event.number);
        }
        struct sim_fibre *next = fibre_choose();
        if (next != NULL) {
            run_fibre(next);
            continue;
        }
        bool all_ended = true;
        for (uint32_t i = 0; i < world.fibre_count; i++) {
            all_ended = all_ended && world.fibres[i]->state == FIBRE_ENDED;
        }
        if (all_ended) {
            return;
        }
        if (world.event_count == 0) {
            sim_fail("deadlock: every fibre waits and nothing will happen");
        }
        world.now_ns = world.events[0].time_ns;
    }
    sim_fail("livelock: %d switches and no end", SWITCHES_MAX);
}

struct sim_result sim_run(const struct sim_scenario *scenario, uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.scenario = scenario;
    world.seed = seed;
    fw_random_init(&world.draws, seed);
    fw_random_init(&world.schedule, ~seed);
    world.yield_one_in = 1U << fw_random_below(&world.schedule, 7);
    world.events = malloc(EVENTS_MAX * sizeof world.events[0]);
    FW_ASSERT(world.events != NULL);
    fw_fibre_init_main(&world.scheduler);
    fw_thread_hooks = &thread_hooks;
    fw_clock_hooks = &clock_hooks;
    fw_random_hooks = &random_hooks;
    sim_reactor_install();
    sim_disk_install();
    sim_network_begin();
    sim_disk_begin();

    struct sim_fibre *first = fibre_create(NULL);
    FW_ASSERT(first != NULL);
    schedule();

    sim_disk_end();
    sim_network_end();
    fw_thread_hooks = NULL;
    fw_clock_hooks = NULL;
    fw_random_hooks = NULL;
    for (uint32_t i = 0; i < world.fibre_count; i++) {
        fw_fibre_fini(&world.fibres[i]->context);
        free(world.fibres[i]);
    }
    free(world.events);
    return (struct sim_result){
        .virtual_ns = world.now_ns, .switches = world.switches, .trace_hash = world.trace_hash};
}
