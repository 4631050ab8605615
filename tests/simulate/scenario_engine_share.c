/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What foms of several cores share: messages, resources and the long lock.
 *
 * engine-mail: strangers and foms send numbered messages, some of them more at once than a ring
 * takes. Those of one sender must arrive in order, all of them, on the receiver's turn.
 *
 * engine-resource: foms ask for amounts of a resource and for a long lock, hold them over many
 * ticks, give them back, or lose patience while they wait. There is never more given than there is,
 * a writer is alone, and when all are gone everything has been given back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/engine.h>

#include "engine/core.h"
#include "simulate/engine_world.h"
#include "simulate/scenarios.h"

/* ---- mail ---- */

enum { SENDERS_MAX = 5, SENDS = 6, BURST_MAX = 1500, LOCALITIES_MAX = 2 };
enum { SEND = FW_PHASE_FIRST };

struct letter {
    struct fw_message message;
    uint32_t sender, receiver, number;
};

static struct {
    struct fw_domain *domain;
    uint32_t sent[SENDERS_MAX][LOCALITIES_MAX];     /* Each its sender's. */
    uint32_t received[SENDERS_MAX][LOCALITIES_MAX]; /* Each its receiver's. */
    _Atomic uint32_t sender_count, under_way;
    bool has_bursts;
} mail;

static void letter_arrives(struct fw_message *message)
{
    struct letter *letter = FW_CONTAINER_OF(message, struct letter, message);
    SIM_EXPECT(fw_core_self() != NULL);
    SIM_EXPECT(fw_core_self()->locality == fw_domain_locality(mail.domain, letter->receiver));
    uint32_t *expected = &mail.received[letter->sender][letter->receiver];
    SIM_EXPECT(letter->number == *expected);
    (*expected)++;
    free(letter);
    atomic_fetch_sub(&mail.under_way, 1);
}

static void letters_send(uint32_t sender)
{
    uint32_t locality_count = fw_domain_locality_count(mail.domain);
    uint32_t receiver = (uint32_t)sim_between(0, locality_count - 1);
    uint32_t count = (uint32_t)sim_between(1, mail.has_bursts && sim_chance(4) ? BURST_MAX : 4);
    for (uint32_t i = 0; i < count; i++) {
        struct letter *letter = malloc(sizeof *letter);
        FW_ASSERT(letter != NULL);
        letter->message.run = letter_arrives;
        letter->sender = sender;
        letter->receiver = receiver;
        letter->number = mail.sent[sender][receiver]++;
        atomic_fetch_add(&mail.under_way, 1);
        fw_locality_send(fw_domain_locality(mail.domain, receiver), &letter->message);
    }
}

struct sender {
    struct fw_fom fom;
    uint32_t number;
    uint32_t sends;
};

static enum fw_step sender_tick(struct fw_fom *fom)
{
    struct sender *self = FW_FOM_OF(fom, struct sender);
    SIM_EXPECT(fom->phase == SEND);
    if (self->sends == 0) {
        self->number = atomic_fetch_add(&mail.sender_count, 1);
    }
    letters_send(self->number);
    return self->sends++ < SENDS ? fw_fom_yield(fom, SEND) : fw_fom_finish(fom);
}

static const struct fw_phase sender_phases[] = {{"SEND", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};

static const struct fw_fom_type sender_type = {
    .name = "sender",
    .size = sizeof(struct sender),
    .limit_count = SENDERS_MAX,
    .phases = sender_phases,
    .phase_count = FW_ARRAY_LENGTH(sender_phases),
    .tick = sender_tick,
};

static void mail_stranger(void *argument)
{
    (void)argument;
    uint32_t number = atomic_fetch_add(&mail.sender_count, 1);
    for (int i = 0; i < SENDS; i++) {
        letters_send(number);
        int64_t pause_us = sim_between(0, 50);
        sim_sleep(pause_us * SIM_US);
    }
}

static void mail_run(void)
{
    memset(&mail, 0, sizeof mail);
    mail.has_bursts = sim_chance(8);
    mail.domain = engine_create((struct fw_domain_config){.bracket_limit = 0}, &sender_type);
    engine_start(mail.domain);
    for (uint32_t i = 0; i < SENDERS_MAX - 2; i++) {
        struct fw_fom *fom;
        struct fw_locality *home = fw_domain_home_by_key(mail.domain, i);
        int rc = fw_fom_create(&fom, mail.domain, &sender_type, home);
        FW_ASSERT(rc == 0);
        fw_fom_start(fom);
    }
    engine_strangers(2, mail_stranger);
    sim_sleep(SIM_S); /* Far more than is needed: all has arrived, though nobody rang again. */
    SIM_EXPECT(atomic_load(&mail.sender_count) == SENDERS_MAX);
    SIM_EXPECT(atomic_load(&mail.under_way) == 0);
    SIM_EXPECT(fw_domain_stop(mail.domain, SIM_S) == 0);
    fw_domain_destroy(mail.domain);
}

const struct sim_scenario sim_scenario_engine_mail = {
    .name = "engine-mail",
    .purpose = "messages of every sender arrive in order, also when rings are full",
    .run = mail_run,
};

/* ---- resources ---- */

enum { CAPACITY = 5, CLAIMERS = 6, TURNS = 4 };
enum { ASK = FW_PHASE_FIRST, HOLD, LOCK, LOCKED };

static struct {
    struct fw_domain *domain;
    struct fw_resource resource;
    struct fw_long_lock lock;
    _Atomic uint64_t used;
    _Atomic uint32_t readers, writers, over;
} pantry;

struct claimer {
    struct fw_fom fom;
    struct fw_claim claim, lock_claim;
    uint64_t amount;
    uint32_t held, turns;
    bool is_impatient, is_writer, has_it, has_lock;
};

/* Waits for a grant, or, if it is impatient, for not much longer than others hold it. */
static enum fw_step claimer_wait(struct claimer *self, unsigned phase)
{
    struct fw_fom *fom = &self->fom;
    return self->is_impatient ? fw_fom_wait_until(fom, phase, fw_fom_now(fom) + SIM_MS)
                              : fw_fom_wait(fom, phase);
}

static void claimer_give_back(struct claimer *self)
{
    if (self->has_it) {
        atomic_fetch_sub(&pantry.used, self->amount);
        self->has_it = false;
    }
    fw_resource_put(&pantry.resource, &self->claim); /* Or it takes the request back. */
    if (self->has_lock) {
        atomic_fetch_sub(self->is_writer ? &pantry.writers : &pantry.readers, 1);
        self->has_lock = false;
    }
    fw_long_unlock(&pantry.lock, &self->lock_claim);
}

static enum fw_step claimer_ask(struct claimer *self)
{
    struct fw_fom *fom = &self->fom;
    if (self->amount == 0) {
        self->amount = (uint64_t)sim_between(1, CAPACITY);
    }
    if (!fw_resource_get(&pantry.resource, fom, &self->claim, self->amount)) {
        return fw_fom_timed_out(fom) ? fw_fom_fail(fom, -EAGAIN) : claimer_wait(self, ASK);
    }
    self->has_it = true;
    SIM_EXPECT(atomic_fetch_add(&pantry.used, self->amount) + self->amount <= CAPACITY);
    return fw_fom_goto(fom, HOLD);
}

static enum fw_step claimer_lock(struct claimer *self)
{
    struct fw_fom *fom = &self->fom;
    bool is_granted = self->is_writer ? fw_long_lock_write(&pantry.lock, fom, &self->lock_claim)
                                      : fw_long_lock_read(&pantry.lock, fom, &self->lock_claim);
    if (!is_granted) {
        return fw_fom_timed_out(fom) ? fw_fom_fail(fom, -EAGAIN) : claimer_wait(self, LOCK);
    }
    self->has_lock = true;
    atomic_fetch_add(self->is_writer ? &pantry.writers : &pantry.readers, 1);
    return fw_fom_goto(fom, LOCKED);
}

static enum fw_step claimer_tick(struct fw_fom *fom)
{
    struct claimer *self = FW_FOM_OF(fom, struct claimer);
    switch (fom->phase) {
    case ASK:
        return claimer_ask(self);
    case HOLD:
        return self->held++ % 4 < 3 ? fw_fom_yield(fom, HOLD) : fw_fom_goto(fom, LOCK);
    case LOCK:
        return claimer_lock(self);
    case LOCKED:
        SIM_EXPECT(atomic_load(&pantry.writers) == (self->is_writer ? 1 : 0));
        SIM_EXPECT(!self->is_writer || atomic_load(&pantry.readers) == 0);
        if (self->held++ % 4 < 3) {
            return fw_fom_yield(fom, LOCKED);
        }
        claimer_give_back(self);
        self->amount = 0;
        return self->turns++ < TURNS ? fw_fom_goto(fom, ASK) : fw_fom_finish(fom);
    default:
        SIM_EXPECT(fom->result == -EAGAIN);
        return fw_fom_finish(fom);
    }
}

static void claimer_finish(struct fw_fom *fom)
{
    claimer_give_back(FW_FOM_OF(fom, struct claimer));
    atomic_fetch_add(&pantry.over, 1);
}

static const struct fw_phase claimer_phases[] = {
    {"ASK", FW_PHASE_BIT(HOLD), false},
    {"HOLD", FW_PHASE_BIT(LOCK), false},
    {"LOCK", FW_PHASE_BIT(LOCKED), false},
    {"LOCKED", FW_PHASE_BIT(ASK) | FW_PHASE_BIT(FW_PHASE_FINISHED), false},
};

static const struct fw_fom_type claimer_type = {
    .name = "claimer",
    .size = sizeof(struct claimer),
    .limit_count = CLAIMERS,
    .phases = claimer_phases,
    .phase_count = FW_ARRAY_LENGTH(claimer_phases),
    .tick = claimer_tick,
    .finish = claimer_finish,
};

static void resource_run(void)
{
    memset(&pantry, 0, sizeof pantry);
    pantry.domain = engine_create((struct fw_domain_config){.bracket_limit = 0}, &claimer_type);
    fw_resource_init(&pantry.resource, pantry.domain, CAPACITY);
    fw_long_lock_init(&pantry.lock, pantry.domain);
    engine_start(pantry.domain);
    for (uint32_t i = 0; i < CLAIMERS; i++) {
        struct fw_fom *fom;
        struct fw_locality *home = fw_domain_home_by_key(pantry.domain, i);
        int rc = fw_fom_create(&fom, pantry.domain, &claimer_type, home);
        FW_ASSERT(rc == 0);
        FW_FOM_OF(fom, struct claimer)->is_impatient = sim_chance(3);
        FW_FOM_OF(fom, struct claimer)->is_writer = sim_chance(2);
        fw_fom_start(fom);
    }
    SIM_EXPECT(fw_domain_stop(pantry.domain, 1000 * SIM_S) == 0);
    SIM_EXPECT(atomic_load(&pantry.over) == CLAIMERS);
    SIM_EXPECT(atomic_load(&pantry.used) == 0);
    fw_resource_fini(&pantry.resource);
    fw_long_lock_fini(&pantry.lock);
    fw_domain_destroy(pantry.domain);
}

const struct sim_scenario sim_scenario_engine_resource = {
    .name = "engine-resource",
    .purpose = "foms share a resource and a long lock; claims are granted, used and taken back",
    .run = resource_run,
};
