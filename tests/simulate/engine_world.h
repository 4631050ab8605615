/* SPDX-License-Identifier: Apache-2.0 */
/* What the scenarios of the engine begin and end with. */
#pragma once

#include <stdint.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/thread.h"
#include "simulate/sim.h"

enum { ENGINE_STRANGERS_MAX = 3 };

/* A domain of one to four cores that knows `type`, not yet started. */
static inline struct fw_domain *engine_create(struct fw_domain_config config,
                                              const struct fw_fom_type *type)
{
    struct fw_domain *domain;
    config.locality_count = (uint32_t)sim_between(1, 2);
    config.cores_per_locality = (uint32_t)sim_between(1, 2);
    int rc = fw_domain_create(&domain, &config);
    FW_ASSERT(rc == 0);
    rc = fw_domain_add_type(domain, type);
    FW_ASSERT(rc == 0);
    return domain;
}

static inline void engine_start(struct fw_domain *domain)
{
    int rc = fw_domain_start(domain);
    FW_ASSERT(rc == 0);
}

/* Threads that are no part of the engine; runs `run` on `count` of them and waits for their end. */
static inline void engine_strangers(uint32_t count, void (*run)(void *argument))
{
    struct fw_thread threads[ENGINE_STRANGERS_MAX];
    FW_ASSERT(count <= ENGINE_STRANGERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        int rc = fw_thread_create(&threads[i], "stranger", run, NULL);
        FW_ASSERT(rc == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        fw_thread_join(&threads[i]);
    }
}
