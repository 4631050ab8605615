/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: within a level the order is that of arrival; the more urgent level goes first as long as it
 * has credit; none waits for more than one cycle while it has foms.
 * Method: random pushes and pops beside a model that keeps a sequence number per fom, an array per
 * level, and what each level has had of the cycle.
 */
#include "engine/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io/random.h"

enum { FOMS = 200, STEPS = 200 * 1000, CYCLE = 64 + 16 + 4 + 1 };

struct model_level {
    uint64_t in;  /* Foms that ever came. */
    uint64_t out; /* Foms that ever went. */
    uint32_t had; /* In this cycle. */
};

struct model {
    struct model_level levels[FW_FOM_PRIORITIES];
    uint32_t length;
};

static const uint32_t shares[FW_FOM_PRIORITIES] = {64, 16, 4, 1};

/* The level that must go next, by the words of the header. */
static unsigned model_next(struct model *model)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        for (unsigned i = 0; i < FW_FOM_PRIORITIES; i++) {
            if (model->levels[i].in > model->levels[i].out && model->levels[i].had < shares[i]) {
                return i;
            }
        }
        for (unsigned i = 0; i < FW_FOM_PRIORITIES; i++) {
            model->levels[i].had = 0;
        }
    }
    fail_msg("the model is empty");
    return 0;
}

static void push(struct fw_queue *queue, struct model *model, struct fw_fom *fom, unsigned level)
{
    fom->priority = (uint8_t)level;
    fom->id = model->levels[level].in++;
    model->length++;
    fw_queue_push(queue, fom);
}

static struct fw_fom *pop(struct fw_queue *queue, struct model *model)
{
    if (model->length == 0) {
        assert_null(fw_queue_pop(queue));
        return NULL;
    }
    unsigned level = model_next(model);
    struct fw_fom *fom = fw_queue_pop(queue);
    assert_non_null(fom);
    assert_int_equal(fom->priority, level);
    assert_int_equal(fom->id, model->levels[level].out);
    for (unsigned i = 0; i < FW_FOM_PRIORITIES; i++) {
        if (i != level && model->levels[i].in > model->levels[i].out) {
            model->levels[level].had++; /* Charged only because it keeps others waiting. */
            break;
        }
    }
    model->levels[level].out++;
    model->length--;
    return fom;
}

static void test_against_model(void **state)
{
    (void)state;
    struct fw_random draws;
    fw_random_init(&draws, 7);
    struct fw_queue queue;
    fw_queue_init(&queue);
    struct model model = {.length = 0};
    static struct fw_fom foms[FOMS];
    struct fw_fom *idle[FOMS];
    uint32_t idle_count = 0;
    for (uint32_t i = 0; i < FOMS; i++) {
        idle[idle_count++] = &foms[i];
    }
    uint64_t fill = 1;
    for (uint32_t i = 0; i < STEPS; i++) {
        if (i % 1000 == 0) {
            fill = fw_random_below(&draws, 4); /* Sometimes it runs full, sometimes empty. */
        }
        if (idle_count > 0 && fw_random_below(&draws, 4) < fill) {
            unsigned level = (unsigned)fw_random_below(&draws, FW_FOM_PRIORITIES);
            push(&queue, &model, idle[--idle_count], level);
        } else {
            struct fw_fom *fom = pop(&queue, &model);
            if (fom != NULL) {
                idle[idle_count++] = fom;
            }
        }
        assert_int_equal(queue.length, model.length);
    }
}

/* All levels are always busy: each has its share of every cycle, and so none starves. */
static void test_no_level_starves(void **state)
{
    (void)state;
    struct fw_queue queue;
    fw_queue_init(&queue);
    struct model model = {.length = 0};
    static struct fw_fom foms[2 * FW_FOM_PRIORITIES];
    for (unsigned i = 0; i < FW_ARRAY_LENGTH(foms); i++) {
        push(&queue, &model, &foms[i], i % FW_FOM_PRIORITIES);
    }
    for (int cycle = 0; cycle < 10; cycle++) {
        uint32_t had[FW_FOM_PRIORITIES] = {0};
        for (int i = 0; i < CYCLE; i++) {
            struct fw_fom *fom = pop(&queue, &model);
            had[fom->priority]++;
            push(&queue, &model, fom, fom->priority);
        }
        assert_memory_equal(had, shares, sizeof shares);
    }
}

/* A flood of the most urgent: one fom of the least urgent waits for at most a cycle. */
static void test_wait_is_bounded(void **state)
{
    (void)state;
    for (int before = 0; before < 2 * CYCLE; before++) {
        struct fw_queue queue;
        fw_queue_init(&queue);
        struct model model = {.length = 0};
        struct fw_fom urgent = {.id = 0};
        struct fw_fom least = {.id = 0};
        push(&queue, &model, &urgent, 0);
        for (int i = 0; i < before; i++) {
            push(&queue, &model, pop(&queue, &model), 0);
        }
        push(&queue, &model, &least, FW_FOM_PRIORITIES - 1);
        int waited = 0;
        while (pop(&queue, &model) != &least) {
            push(&queue, &model, &urgent, 0);
            waited++;
        }
        assert_in_range(waited, 0, CYCLE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_no_level_starves),
        cmocka_unit_test(test_wait_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
