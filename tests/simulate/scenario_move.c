/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foms and cores that move.
 *
 * engine-move: foms pass tokens round a ring by channel and by ticket, and meanwhile they move, by
 * their own wish, for balance and because their core leaves, while strangers wake them, make new
 * ones and move cores. Every tick must be in the fom's home, on one core at a time; a lost wake-up
 * is a deadlock or a fom that is overdue.
 *
 * engine-leave: a core leaves when all its foms do, those in brackets too; if they do not want to
 * it gives up, and nothing has changed; and it holds up no shutdown.
 *
 * engine-level, -told, -cores: an uneven load on a virtual clock levels out, stays so, and
 * moves nothing more.
 */
#include <errno.h>
#include <stdlib.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/thread.h"
#include "engine/core.h"
#include "io/topology.h"
#include "simulate/scenarios.h"

/* ---- the ring ------------------------------------------------------------------------------ */

enum { PLACES_MAX = 20, LAPS = 4, CHILDREN_MAX = 32 };
enum { TAKE = FW_PHASE_FIRST, BLOCK, PASS };

struct place {
    struct fw_channel channel;
    _Atomic uint32_t tokens;
    struct fw_ticket ticket;
    atomic_bool has_ticket;
};

struct walker {
    struct fw_fom fom;
    struct fw_clink clink;
    struct fw_clink local_clink;
    struct fw_channel local; /* Of its turn: made again wherever it arrives. */
    struct fw_locality *home;
    struct fw_core *core; /* Of one that cannot move. */
    uint32_t number;
    bool is_inside;
};

static struct {
    struct fw_domain *domain;
    struct place places[PLACES_MAX];
    uint32_t count;
    bool moves_homes; /* Otherwise they must stay as they are. */
    bool blocks;
    _Atomic uint32_t passed;
    _Atomic uint32_t over;
    _Atomic uint32_t children;
    _Atomic uint32_t children_over;
} walk;

static bool walk_is_over(void)
{
    return atomic_load(&walk.passed) >= LAPS * walk.count;
}

static struct fw_locality *any_locality(void)
{
    uint32_t count = fw_domain_locality_count(walk.domain);
    return fw_domain_locality(walk.domain, (uint32_t)sim_between(0, count - 1));
}

static void place_give(uint32_t number)
{
    struct place *place = &walk.places[number % walk.count];
    atomic_fetch_add(&place->tokens, 1);
    if (sim_chance(2) && atomic_load(&place->has_ticket)) {
        fw_ticket_wake(place->ticket);
    } else {
        (void)fw_channel_signal(&place->channel);
    }
}

static void check_place(struct fw_fom *fom)
{
    struct fw_core *core = fw_core_self();
    SIM_EXPECT(core != NULL && fw_fom_core(fom) == core);
    SIM_EXPECT(fw_core_locality(core) == fw_fom_home(fom));
}

/* A fom with one tick: it only has to come home. */
struct child {
    struct fw_fom fom;
    struct fw_locality *home; /* NULL: anywhere. */
};

static enum fw_step child_tick(struct fw_fom *fom)
{
    struct child *self = FW_FOM_OF(fom, struct child);
    check_place(fom);
    SIM_EXPECT(self->home == NULL || fw_fom_home(fom) == self->home);
    atomic_fetch_add(&walk.children_over, 1);
    return fw_fom_finish(fom);
}

static const struct fw_phase child_phases[] = {{"ONLY", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

static const struct fw_fom_type child_type = {
    .name = "child",
    .size = sizeof(struct child),
    .limit_count = CHILDREN_MAX,
    .phases = child_phases,
    .phase_count = FW_ARRAY_LENGTH(child_phases),
    .tick = child_tick,
};

static void child_make(void)
{
    struct fw_locality *home = sim_chance(3) ? NULL : any_locality();
    struct fw_fom *fom;
    if (atomic_fetch_add(&walk.children, 1) >= CHILDREN_MAX ||
        fw_fom_create(&fom, walk.domain, &child_type, home) != 0) {
        atomic_fetch_sub(&walk.children, 1);
        return;
    }
    FW_FOM_OF(fom, struct child)->home = home;
    fw_fom_start(fom);
}

/* A fom that is always ready, so that there is something to level. */
static enum fw_step burner_tick(struct fw_fom *fom)
{
    check_place(fom);
    sim_sleep(2 * SIM_US);
    return walk_is_over() ? fw_fom_finish(fom) : fw_fom_yield(fom, FW_PHASE_FIRST);
}

static bool burner_depart(struct fw_fom *fom)
{
    (void)fom;
    return true;
}

static const struct fw_fom_type burner_type = {
    .name = "burner",
    .size = sizeof(struct fw_fom),
    .limit_count = PLACES_MAX,
    .phases = child_phases,
    .phase_count = FW_ARRAY_LENGTH(child_phases),
    .tick = burner_tick,
    .depart = burner_depart,
    .arrive = check_place,
};

static int walker_initialise(struct fw_fom *fom)
{
    struct walker *self = FW_FOM_OF(fom, struct walker);
    check_place(fom);
    fw_channel_init(&self->local);
    self->home = fw_fom_home(fom);
    self->core = fw_core_self();
    struct place *place = &walk.places[self->number];
    place->ticket = fw_fom_ticket(fom);
    atomic_store(&place->has_ticket, true);
    return 0;
}

static bool walker_depart(struct fw_fom *fom)
{
    struct walker *self = FW_FOM_OF(fom, struct walker);
    SIM_EXPECT(!self->is_inside && fw_core_self() == self->local.core);
    if (sim_chance(5)) {
        return false;
    }
    fw_channel_fini(&self->local);
    self->local.core = NULL;
    return true;
}

static void walker_arrive(struct fw_fom *fom)
{
    struct walker *self = FW_FOM_OF(fom, struct walker);
    check_place(fom);
    SIM_EXPECT(!self->is_inside && self->local.core == NULL);
    fw_channel_init(&self->local);
}

static enum fw_step walker_take(struct walker *self)
{
    struct place *place = &walk.places[self->number];
    fw_fom_arm(&self->fom, &self->clink, &place->channel);
    if (walk_is_over()) {
        return fw_fom_finish(&self->fom);
    }
    fw_fom_arm(&self->fom, &self->local_clink, &self->local);
    uint32_t tokens = atomic_load(&place->tokens);
    FW_YIELD_POINT("scenario: looked for a token");
    if (tokens > 0) {
        atomic_fetch_sub(&place->tokens, 1);
        return fw_fom_goto(&self->fom, walk.blocks && sim_chance(3) ? BLOCK : PASS);
    }
    if (walk.moves_homes && self->fom.type->depart != NULL && sim_chance(8)) {
        int rc = fw_fom_move(&self->fom, any_locality());
        SIM_EXPECT(rc == 0);
    }
    if (sim_chance(6)) {
        int64_t when = fw_fom_now(&self->fom) + sim_between(0, 100) * SIM_US;
        return fw_fom_wait_until(&self->fom, TAKE, when);
    }
    return fw_fom_wait(&self->fom, TAKE);
}

static enum fw_step walker_pass(struct walker *self)
{
    atomic_fetch_add(&walk.passed, 1);
    if (sim_chance(2)) {
        sim_sleep(sim_between(1, 20) * SIM_US); /* A long tick. */
    }
    if (sim_chance(4)) {
        child_make();
    }
    place_give(self->number + (uint32_t)sim_between(1, 2));
    if (walk_is_over()) {
        for (uint32_t i = 0; i < walk.count; i++) {
            (void)fw_channel_broadcast(&walk.places[i].channel);
        }
    }
    return fw_fom_yield(&self->fom, TAKE);
}

static enum fw_step walker_tick(struct fw_fom *fom)
{
    struct walker *self = FW_FOM_OF(fom, struct walker);
    SIM_EXPECT(!self->is_inside);
    self->is_inside = true;
    check_place(fom);
    SIM_EXPECT(walk.moves_homes || fw_fom_home(fom) == self->home);
    SIM_EXPECT(fom->type->depart != NULL || fw_core_self() == self->core);
    enum fw_step step;
    switch (fom->phase) {
    case TAKE:
        step = walker_take(self);
        break;
    case BLOCK:
        step = fw_fom_wait(fom, BLOCK);
        if (fw_block_enter(fom)) {
            sim_sleep(sim_between(1, 300) * SIM_US);
            fw_block_leave(fom);
            step = fw_fom_goto(fom, PASS);
        }
        break;
    case PASS:
        step = walker_pass(self);
        break;
    default:
        sim_fail("a walker is in phase %u with %d", fom->phase, fom->result);
    }
    check_place(fom);
    self->is_inside = false;
    return step;
}

static void walker_finish(struct fw_fom *fom)
{
    struct walker *self = FW_FOM_OF(fom, struct walker);
    fw_channel_fini(&self->local);
    atomic_fetch_add(&walk.over, 1);
}

static const struct fw_phase walker_phases[] = {
    {"TAKE", FW_PHASE_BIT(BLOCK) | FW_PHASE_BIT(PASS) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
    {"BLOCK", FW_PHASE_BIT(PASS), false},
    {"PASS", FW_PHASE_BIT(TAKE), false},
};

static const struct fw_fom_type walker_type = {
    .name = "walker",
    .size = sizeof(struct walker),
    .limit_count = PLACES_MAX,
    .phases = walker_phases,
    .phase_count = FW_ARRAY_LENGTH(walker_phases),
    .initialise = walker_initialise,
    .tick = walker_tick,
    .finish = walker_finish,
    .depart = walker_depart,
    .arrive = walker_arrive,
};

static const struct fw_fom_type sitter_type = {
    .name = "sitter",
    .size = sizeof(struct walker),
    .limit_count = PLACES_MAX,
    .phases = walker_phases,
    .phase_count = FW_ARRAY_LENGTH(walker_phases),
    .initialise = walker_initialise,
    .tick = walker_tick,
    .finish = walker_finish,
};

/* Gives tokens, wakes those who have no reason to wake, and makes foms. */
static void stranger_run(void *argument)
{
    (void)argument;
    int64_t tokens = sim_between(1, 2 * (int64_t)walk.count);
    for (int64_t i = 0; i < tokens; i++) {
        uint32_t number = (uint32_t)sim_between(0, walk.count - 1);
        place_give(number);
        number = (uint32_t)sim_between(0, walk.count - 1);
        if (atomic_load(&walk.places[number].has_ticket)) {
            fw_ticket_wake(walk.places[number].ticket);
        }
        child_make();
        sim_sleep(sim_between(0, 100) * SIM_US);
    }
}

/* Moves cores. */
static void mover_run(void *argument)
{
    (void)argument;
    int64_t moves = sim_between(1, 6);
    for (int64_t i = 0; i < moves; i++) {
        struct fw_locality *from = any_locality();
        struct fw_locality *to = any_locality();
        int rc = fw_domain_move_core(walk.domain, from, to);
        SIM_EXPECT(rc == 0 || rc == -EBUSY || (rc == -EINVAL && from == to));
        if (walk.moves_homes && sim_chance(2)) {
            fw_domain_balance(walk.domain);
        }
        sim_sleep(sim_between(0, 100) * SIM_US);
    }
}

static void walk_check_cores(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < walk.domain->locality_count; i++) {
        struct fw_locality *locality = &walk.domain->localities[i];
        uint32_t count = atomic_load(&locality->core_count);
        SIM_EXPECT(count > 0);
        for (uint32_t j = 0; j < count; j++) {
            struct fw_core *core = atomic_load(&locality->cores[j]);
            SIM_EXPECT(fw_core_locality(core) == locality);
            SIM_EXPECT(atomic_load(&core->resident_count) == 0);
            SIM_EXPECT(atomic_load(&core->bound_count) == 0);
            SIM_EXPECT(!atomic_load(&core->is_leaving));
        }
        sum += count;
    }
    SIM_EXPECT(sum == walk.domain->core_count);
}

static void walk_prepare(void)
{
    struct fw_domain_config config = {.bracket_limit = 2};
    config.locality_count = (uint32_t)sim_between(2, 3);
    config.cores_per_locality = (uint32_t)sim_between(1, 3);
    config.balance = (enum fw_balance)sim_between(FW_BALANCE_OFF, FW_BALANCE_CORES);
    config.balance_interval_ns = sim_between(50, 400) * SIM_US;
    fw_topology_fake = "numa:1 l3:4 core:2 pu:1";
    int rc = fw_domain_create(&walk.domain, &config);
    FW_ASSERT(rc == 0);
    const struct fw_fom_type *types[] = {&walker_type, &sitter_type, &child_type, &burner_type};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(types); i++) {
        rc = fw_domain_add_type(walk.domain, types[i]);
        FW_ASSERT(rc == 0);
    }
    walk.count = (uint32_t)sim_between(2, PLACES_MAX);
    walk.blocks = sim_chance(2);
    walk.moves_homes = config.balance == FW_BALANCE_FOMS || sim_chance(2);
    atomic_store(&walk.passed, 0);
    atomic_store(&walk.over, 0);
    atomic_store(&walk.children, 0);
    atomic_store(&walk.children_over, 0);
    for (uint32_t i = 0; i < walk.count; i++) {
        atomic_store(&walk.places[i].tokens, 0);
        atomic_store(&walk.places[i].has_ticket, false);
        fw_channel_init_shared(&walk.places[i].channel, walk.domain);
    }
    rc = fw_domain_start(walk.domain);
    FW_ASSERT(rc == 0);
}

static void burners_add(void)
{
    int64_t count = sim_chance(2) ? sim_between(1, 12) : 0;
    struct fw_locality *home = any_locality();
    for (int64_t i = 0; i < count; i++) {
        struct fw_fom *fom;
        int rc = fw_fom_create(&fom, walk.domain, &burner_type, home);
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
}

static void move_run(void)
{
    walk_prepare();
    burners_add();
    bool has_sitters = sim_chance(4);
    for (uint32_t i = 0; i < walk.count; i++) {
        const struct fw_fom_type *type = has_sitters && sim_chance(3) ? &sitter_type : &walker_type;
        struct fw_locality *home = sim_chance(4) ? NULL : any_locality();
        struct fw_fom *fom;
        int rc = fw_fom_create(&fom, walk.domain, type, home);
        FW_ASSERT(rc == 0);
        FW_FOM_OF(fom, struct walker)->number = i;
        fw_fom_start(fom);
    }
    struct fw_thread stranger;
    int rc = fw_thread_create(&stranger, "stranger", stranger_run, NULL);
    FW_ASSERT(rc == 0);
    struct fw_thread mover;
    rc = fw_thread_create(&mover, "mover", mover_run, NULL);
    FW_ASSERT(rc == 0);
    fw_thread_join(&stranger);
    fw_thread_join(&mover);
    uint64_t killed = fw_domain_stop(walk.domain, 100 * SIM_S);
    SIM_EXPECT(killed == 0);
    SIM_EXPECT(atomic_load(&walk.over) == walk.count);
    SIM_EXPECT(atomic_load(&walk.children_over) == atomic_load(&walk.children));
    walk_check_cores();
    for (uint32_t i = 0; i < walk.count; i++) {
        fw_channel_fini(&walk.places[i].channel);
    }
    fw_domain_destroy(walk.domain);
    fw_topology_fake = NULL;
}

const struct sim_scenario sim_scenario_engine_move = {
    .name = "engine-move",
    .purpose = "foms and cores move while they are woken; every tick is at home, none is lost",
    .run = move_run,
};

/* ---- leaving ------------------------------------------------------------------------------- */

enum { STAYERS_MAX = 32 };
enum { STAY = FW_PHASE_FIRST, STAY_BLOCKED };

static struct {
    struct fw_domain *domain;
    struct fw_channel channel;
    uint32_t count;
    _Atomic uint32_t over;
    atomic_bool is_stubborn;
    atomic_bool must_block[2]; /* The foms of each of the two cores. */
    atomic_bool is_released;   /* Those that block. */
} leave;

struct stayer {
    struct fw_fom fom;
    struct fw_clink clink;
};

static enum fw_step stayer_tick(struct fw_fom *fom)
{
    check_place(fom);
    if (fom->phase == FW_PHASE_FAILED) {
        SIM_EXPECT(fom->result == -ESHUTDOWN);
        return fw_fom_finish(fom);
    }
    fw_fom_arm(fom, &FW_FOM_OF(fom, struct stayer)->clink, &leave.channel);
    if (fom->phase == STAY && !atomic_load(&leave.must_block[fw_core_self()->index])) {
        return fw_fom_wait(fom, STAY);
    }
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, STAY_BLOCKED);
    }
    do {
        sim_sleep(10 * SIM_MS);
    } while (!atomic_load(&leave.is_released));
    fw_block_leave(fom);
    atomic_store(&leave.must_block[0], false);
    atomic_store(&leave.must_block[1], false);
    return fw_fom_goto(fom, STAY);
}

static void stayer_finish(struct fw_fom *fom)
{
    (void)fom;
    atomic_fetch_add(&leave.over, 1);
}

static bool stayer_depart(struct fw_fom *fom)
{
    (void)fom;
    return !atomic_load(&leave.is_stubborn);
}

static void stayer_arrive(struct fw_fom *fom)
{
    check_place(fom);
}

static const struct fw_phase stayer_phases[] = {
    {"STAY", FW_PHASE_BIT(STAY_BLOCKED), true},
    {"STAY_BLOCKED", FW_PHASE_BIT(STAY), false},
};

static const struct fw_fom_type stayer_type = {
    .name = "stayer",
    .size = sizeof(struct stayer),
    .limit_count = STAYERS_MAX,
    .phases = stayer_phases,
    .phase_count = FW_ARRAY_LENGTH(stayer_phases),
    .tick = stayer_tick,
    .finish = stayer_finish,
    .depart = stayer_depart,
    .arrive = stayer_arrive,
};

static void leave_begin(void)
{
    struct fw_domain_config config = {
        .locality_count = 2, .cores_per_locality = 2, .bracket_limit = 3};
    fw_topology_fake = "numa:1 l3:2 core:2 pu:1";
    int rc = fw_domain_create(&leave.domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(leave.domain, &stayer_type);
    FW_ASSERT(rc == 0);
    fw_channel_init_shared(&leave.channel, leave.domain);
    leave.count = 0;
    atomic_store(&leave.over, 0);
    atomic_store(&leave.is_stubborn, false);
    atomic_store(&leave.must_block[0], false);
    atomic_store(&leave.must_block[1], false);
    rc = fw_domain_start(leave.domain);
    FW_ASSERT(rc == 0);
    /* Until the core that is to leave has some. */
    while (atomic_load(&leave.domain->cores[1].resident_count) < 4) {
        struct fw_fom *fom;
        rc = fw_fom_create(&fom, leave.domain, &stayer_type, fw_domain_locality(leave.domain, 0));
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
        leave.count++;
        sim_sleep(100 * SIM_US);
    }
}

static int leave_move(uint32_t from, uint32_t to)
{
    return fw_domain_move_core(leave.domain, fw_domain_locality(leave.domain, from),
                               fw_domain_locality(leave.domain, to));
}

static void leave_back_run(void *argument)
{
    sim_sleep(sim_between(0, 50) * SIM_US);
    *(int *)argument = leave_move(1, 0);
}

static void leave_run(void)
{
    leave_begin();
    struct fw_core *core = &leave.domain->cores[1];
    uint32_t residents = atomic_load(&core->resident_count);
    atomic_store(&leave.is_stubborn, true);
    SIM_EXPECT(leave_move(0, 1) == -EBUSY);
    SIM_EXPECT(fw_core_locality(core) == fw_domain_locality(leave.domain, 0));
    SIM_EXPECT(atomic_load(&core->resident_count) == residents);
    SIM_EXPECT(!atomic_load(&core->is_leaving));
    atomic_store(&leave.is_stubborn, false);
    /* In brackets, of this core or of the other; then its own wait for theirs to end. */
    bool is_other = sim_chance(2);
    atomic_store(&leave.is_released, !is_other);
    atomic_store(&leave.must_block[is_other ? 0 : 1], true);
    (void)fw_channel_broadcast(&leave.channel);
    sim_sleep(sim_between(0, 200) * SIM_US);
    if (is_other) {
        sim_sleep(SIM_MS);
        atomic_store(&leave.must_block[1], true);
        (void)fw_channel_broadcast(&leave.channel);
        sim_sleep(SIM_MS);
    }
    /* As if it had sent foms to another home before. */
    core->shed_to = &leave.domain->cores[2];
    core->shed_home = fw_domain_locality(leave.domain, 1);
    SIM_EXPECT(leave_move(0, 1) == 0);
    atomic_store(&leave.is_released, true);
    SIM_EXPECT(fw_core_locality(core) == fw_domain_locality(leave.domain, 1));
    SIM_EXPECT(atomic_load(&core->resident_count) == 0);
    sim_sleep(SIM_MS); /* They are on their way. */
    SIM_EXPECT(atomic_load(&leave.domain->cores[0].resident_count) == leave.count);
    int rc = 1;
    struct fw_thread back;
    int thread_rc = fw_thread_create(&back, "back", leave_back_run, &rc);
    FW_ASSERT(thread_rc == 0);
    sim_sleep(sim_between(0, 50) * SIM_US);
    uint64_t killed = fw_domain_stop(leave.domain, 10 * SIM_S);
    SIM_EXPECT(killed == 0);
    SIM_EXPECT(atomic_load(&leave.over) == leave.count);
    fw_thread_join(&back);
    SIM_EXPECT(rc == 0 || rc == -ESHUTDOWN);
    fw_channel_fini(&leave.channel);
    fw_domain_destroy(leave.domain);
    fw_topology_fake = NULL;
}

/* Asks for it while the domain ends. */
static void leave_late_run(void)
{
    struct fw_domain_config config = {.locality_count = 2, .cores_per_locality = 2};
    fw_topology_fake = "numa:1 l3:2 core:2 pu:1";
    int rc = fw_domain_create(&leave.domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_start(leave.domain);
    FW_ASSERT(rc == 0);
    struct fw_thread back;
    int moved = 1;
    rc = fw_thread_create(&back, "back", leave_back_run, &moved);
    FW_ASSERT(rc == 0);
    sim_sleep(sim_between(0, 50) * SIM_US);
    (void)fw_domain_stop(leave.domain, 0);
    fw_thread_join(&back);
    SIM_EXPECT(moved == 0 || moved == -ESHUTDOWN);
    fw_domain_destroy(leave.domain);
    fw_topology_fake = NULL;
}

static void leave_all_run(void)
{
    if (sim_chance(2)) {
        leave_run();
    } else {
        leave_late_run();
    }
}

const struct sim_scenario sim_scenario_engine_leave = {
    .name = "engine-leave",
    .purpose = "a core leaves its locality when all its foms have, or not at all",
    .run = leave_all_run,
};

/* ---- levelling ----------------------------------------------------------------------------- */

enum { WORKERS_MAX = 64 };
#define LEVEL_INTERVAL (1 * SIM_MS)
#define LEVEL_TICK     (2 * SIM_US)

static struct {
    struct fw_domain *domain;
    struct fw_fom *workers[WORKERS_MAX];
    struct fw_locality *first_home[WORKERS_MAX];
    uint32_t count;
    atomic_bool is_over;
} level;

/* Always ready: each adds 1 to the load of its core. */
static enum fw_step worker_tick(struct fw_fom *fom)
{
    check_place(fom);
    sim_sleep(LEVEL_TICK);
    if (atomic_load(&level.is_over)) {
        return fw_fom_finish(fom);
    }
    return fw_fom_yield(fom, FW_PHASE_FIRST);
}

static bool worker_depart(struct fw_fom *fom)
{
    (void)fom;
    return true;
}

static void worker_arrive(struct fw_fom *fom)
{
    check_place(fom);
}

static const struct fw_phase worker_phases[] = {{"WORK", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

static const struct fw_fom_type worker_type = {
    .name = "worker",
    .size = sizeof(struct fw_fom),
    .limit_count = WORKERS_MAX,
    .phases = worker_phases,
    .phase_count = FW_ARRAY_LENGTH(worker_phases),
    .tick = worker_tick,
    .depart = worker_depart,
    .arrive = worker_arrive,
};

static void level_begin(uint32_t localities, uint32_t cores, enum fw_balance balance)
{
    struct fw_domain_config config = {.locality_count = localities,
                                      .cores_per_locality = cores,
                                      .balance = balance,
                                      .balance_interval_ns = LEVEL_INTERVAL};
    fw_topology_fake = "numa:1 l3:2 core:4 pu:1";
    level.count = 0;
    atomic_store(&level.is_over, false);
    int rc = fw_domain_create(&level.domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(level.domain, &worker_type);
    FW_ASSERT(rc == 0);
    rc = fw_domain_start(level.domain);
    FW_ASSERT(rc == 0);
}

static void level_add(uint32_t home, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fw_locality *locality = fw_domain_locality(level.domain, home);
        int rc = fw_fom_create(&level.workers[level.count], level.domain, &worker_type, locality);
        FW_ASSERT(rc == 0);
        level.first_home[level.count] = locality;
        fw_fom_start(level.workers[level.count++]);
    }
}

static uint32_t level_residents(uint32_t core)
{
    uint32_t count = atomic_load(&level.domain->cores[core].resident_count);
    sim_trace("core %u: %u foms, %u ready", core, count,
              atomic_load(&level.domain->cores[core].queue_length));
    return count;
}

static void level_expect(uint32_t first_core, uint32_t end_core, uint32_t least, uint32_t most)
{
    for (uint32_t i = first_core; i < end_core; i++) {
        uint32_t count = level_residents(i);
        SIM_EXPECT(least <= count && count <= most);
    }
}

static uint64_t level_moves(void)
{
    uint64_t moves = 0;
    for (uint32_t i = 0; i < level.domain->core_count; i++) {
        moves += fw_counter_get(&level.domain->cores[i].metrics->foms_moved);
        moves += fw_counter_get(&level.domain->cores[i].metrics->core_moves);
    }
    return moves;
}

static void level_end(void)
{
    atomic_store(&level.is_over, true);
    uint64_t killed = fw_domain_stop(level.domain, 100 * SIM_S);
    SIM_EXPECT(killed == 0);
    fw_domain_destroy(level.domain);
    fw_topology_fake = NULL;
}

/* Forty that are always ready on one core of four. */
static void level_run(void)
{
    level_begin(4, 1, FW_BALANCE_FOMS);
    level_add(0, 40);
    sim_sleep(LEVEL_INTERVAL / 2);
    level_expect(0, 1, 40, 40);
    sim_sleep(20 * LEVEL_INTERVAL);
    level_expect(0, 4, 8, 12);
    uint64_t moves = level_moves();
    SIM_EXPECT(30 <= moves && moves <= 60); /* 30 is the least. */
    sim_sleep(20 * LEVEL_INTERVAL);
    SIM_EXPECT(level_moves() == moves); /* None goes to and fro. */
    level_end();
}

/* The same between localities when it is told to, and only then. */
static void level_told_run(void)
{
    level_begin(2, 2, FW_BALANCE_OFF);
    level_add(0, 32);
    sim_sleep(20 * LEVEL_INTERVAL);
    level_expect(0, 2, 14, 18); /* At home it is always levelled. */
    level_expect(2, 4, 0, 0);
    for (int i = 0; i < 12; i++) {
        fw_domain_balance(level.domain);
        sim_sleep(2 * LEVEL_INTERVAL);
    }
    level_expect(0, 4, 6, 10);
    level_end();
}

/* Two localities of two cores; a core goes to where the work is, and comes back. */
static void level_cores_run(void)
{
    level_begin(2, 2, FW_BALANCE_CORES);
    level_add(0, 18);
    sim_sleep(LEVEL_INTERVAL / 2);
    SIM_EXPECT(level_residents(2) + level_residents(3) == 0);
    sim_sleep(25 * LEVEL_INTERVAL);
    SIM_EXPECT(atomic_load(&level.domain->localities[0].core_count) == 3);
    SIM_EXPECT(level_residents(2) == 0); /* cores[0] never leaves. */
    SIM_EXPECT(level_residents(3) >= 4 && level_residents(3) <= 8);
    uint64_t moves = level_moves();
    sim_sleep(20 * LEVEL_INTERVAL);
    SIM_EXPECT(level_moves() == moves);
    level_add(1, 40); /* Now it is the other that has too much. */
    sim_sleep(40 * LEVEL_INTERVAL);
    SIM_EXPECT(atomic_load(&level.domain->localities[0].core_count) == 2);
    SIM_EXPECT(atomic_load(&level.domain->localities[1].core_count) == 2);
    moves = level_moves();
    sim_sleep(20 * LEVEL_INTERVAL);
    SIM_EXPECT(level_moves() == moves);
    for (uint32_t i = 0; i < level.count; i++) {
        SIM_EXPECT(fw_fom_home(level.workers[i]) == level.first_home[i]);
    }
    level_end();
}

const struct sim_scenario sim_scenario_engine_level = {
    .name = "engine-level",
    .purpose = "foms of one busy locality spread over four, and stay where they are then",
    .run = level_run,
};

const struct sim_scenario sim_scenario_engine_level_told = {
    .name = "engine-level-told",
    .purpose = "cores of a locality are always level, localities when that is asked for",
    .run = level_told_run,
};

const struct sim_scenario sim_scenario_engine_level_cores = {
    .name = "engine-level-cores",
    .purpose = "cores go where the work is and come back; foms keep their homes",
    .run = level_cores_run,
};
