/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients by turns: whatever a client hands in, between two of its requests every other client that
 * waits gets one. Tenants and costs do not matter here.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/list.h"
#include "sched/policy.h"
#include "sched/turns.h"

struct crr {
    struct fw_turns turns;
    struct fw_list list;
};

static int crr_init(struct fw_sched *sched)
{
    struct crr *crr = malloc(sizeof *crr);
    if (crr == NULL) {
        return -ENOMEM;
    }
    int rc = fw_turns_init(&crr->turns, false);
    if (rc != 0) {
        free(crr);
        return rc;
    }
    fw_list_init(&crr->list);
    sched->state = crr;
    return 0;
}

static void crr_fini(struct fw_sched *sched)
{
    struct crr *crr = sched->state;
    fw_turns_fini(&crr->turns);
    free(crr);
}

static bool crr_enqueue(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct crr *crr = sched->state;
    fw_turns_push(&crr->turns, &crr->list, request);
    return true;
}

static struct fw_sched_request *crr_dequeue(struct fw_sched *sched)
{
    struct crr *crr = sched->state;
    return fw_turns_pop(&crr->turns, &crr->list);
}

static void crr_remove(struct fw_sched *sched, struct fw_sched_request *request)
{
    struct crr *crr = sched->state;
    fw_turns_remove(&crr->turns, request);
}

const struct fw_sched_policy fw_sched_crr = {
    .name = "crr",
    .lets_pass = true,
    .init = crr_init,
    .fini = crr_fini,
    .enqueue = crr_enqueue,
    .dequeue = crr_dequeue,
    .remove = crr_remove,
};
