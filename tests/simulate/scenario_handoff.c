/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three threads hand work to one through a ring each, as localities do to each other: push, ring
 * the doorbell, unpark if told to. The consumer sleeps whenever it finds nothing. A lost
 * wake-up is a deadlock, a lost or doubled message a failed expectation.
 */
#include "base/assert.h"
#include "base/doorbell.h"
#include "base/spsc.h"
#include "base/thread.h"
#include "simulate/scenarios.h"

enum { PRODUCERS = 3, MESSAGES = 20, CAPACITY = 4 };

static struct fw_spsc rings[PRODUCERS];
static struct fw_doorbell doorbell;
static struct fw_parker consumer;

static struct message {
    uint32_t producer;
    uint32_t sequence;
} messages[PRODUCERS][MESSAGES];

static void producer_run(void *argument)
{
    struct message *own = argument;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        void *message = &own[i];
        while (fw_spsc_push(&rings[own[i].producer], &message, 1) == 0) {
            sim_sleep(sim_between(1, 20) * SIM_US);
        }
        if (fw_doorbell_ring(&doorbell)) {
            fw_unpark(&consumer);
        }
    }
}

static uint32_t pop(void *out[PRODUCERS * CAPACITY])
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        count += fw_spsc_pop(&rings[p], &out[count], CAPACITY);
    }
    return count;
}

/* Pops what there is. If that is nothing it sleeps, unless something comes while it says so. */
static uint32_t pop_or_sleep(void *out[PRODUCERS * CAPACITY])
{
    uint32_t count = pop(out);
    if (count > 0) {
        return count;
    }
    fw_doorbell_arm(&doorbell);
    count = pop(out);
    if (count == 0) {
        fw_park(&consumer);
    }
    (void)fw_doorbell_disarm(&doorbell); /* A wake that still comes is one park() too early. */
    return count;
}

static void consume(void)
{
    uint32_t expected[PRODUCERS] = {0};
    for (uint32_t total = 0; total < PRODUCERS * MESSAGES;) {
        void *out[PRODUCERS * CAPACITY];
        uint32_t count = pop_or_sleep(out);
        for (uint32_t i = 0; i < count; i++) {
            const struct message *message = out[i];
            SIM_EXPECT(message->sequence == expected[message->producer]);
            expected[message->producer]++;
        }
        total += count;
    }
}

static void run(void)
{
    struct fw_thread threads[PRODUCERS];
    fw_doorbell_init(&doorbell);
    fw_parker_init(&consumer);
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        for (uint32_t i = 0; i < MESSAGES; i++) {
            messages[p][i] = (struct message){.producer = p, .sequence = i};
        }
        int rc = fw_spsc_init(&rings[p], CAPACITY);
        FW_ASSERT(rc == 0);
        rc = fw_thread_create(&threads[p], "producer", producer_run, messages[p]);
        FW_ASSERT(rc == 0);
    }
    consume();
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        fw_thread_join(&threads[p]);
        fw_spsc_fini(&rings[p]);
    }
}

const struct sim_scenario sim_scenario_handoff = {
    .name = "handoff",
    .purpose = "threads hand messages to a sleeping consumer; none is lost",
    .run = run,
};
