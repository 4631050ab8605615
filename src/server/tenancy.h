/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants in the server: who there is, by which rules, and how that changes while it serves.
 *
 * The configuration's [tenant NAME] sections become two things. What each tenant is due (weight,
 * rate, ...) is told to the scheduler's struct fw_tenants, which all heads read. Whose a connection
 * or a request is comes from rules (sched/rules.h); a *ruling* is a set of rules with the number of
 * those who use it: the server, for newcomers, and each core.
 *
 * A change is made by the thread that runs the server: it tells the new dues and puts the new
 * ruling in the server's place, under its lock, then sends each core a message. On its own turn the
 * core takes the ruling over, switches its head's policy, and classifies its connections again, of
 * which those that wait are handed in again as who they are now. So a core never waits for another,
 * and what it holds does not change while it looks. The last one out frees the old ruling.
 *
 * A ruling also says how many slaves have to confirm what each tenant changes (server/doubt.h).
 *
 * When the server drains, every head goes back to first come, first served, which knows no rates.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <fairway/sched.h>

#include "base/base.h"
#include "base/reason.h"
#include "sched/rules.h"
#include "sched/tenant_options.h"

struct fw_listener;
struct fw_repl_config;
struct fw_server;
struct fw_server_core;

/* Constant once made. */
struct fw_ruling {
    _Atomic uint32_t user_count;
    bool is_empty; /* No tenant has a section: all are the default's, and that is due nothing. */
    struct fw_rules *rules;
    char **texts;    /* What each tenant's section says behind `match`, by its number; or NULL. */
    uint8_t *slaves; /* How many have to confirm its changes, by its number. */
    uint32_t tenant_count;
    bool has_slaves; /* Any of them is not 0. */
};

/* Whether there may be as many slaves as changes wait for. 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_tenancy_check_slaves(const struct fw_tenant_sections *sections,
                                          const struct fw_repl_config *config,
                                          struct fw_reason *reason);

/* Whether all places that are guaranteed to tenants are there. 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_tenancy_check_connections(const struct fw_tenant_sections *sections,
                                               uint64_t limit, struct fw_reason *reason);

/* Makes the tenants and the first ruling of server->config. */
FW_MUST_CHECK int fw_tenancy_init(struct fw_server *server, struct fw_reason *reason);
/* No core is left. */
void fw_tenancy_fini(struct fw_server *server);

/* The thread that runs the server. Returns 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_tenancy_change(struct fw_server *server,
                                    const struct fw_tenant_sections *sections,
                                    enum fw_sched_policy_number policy, struct fw_reason *reason);
/* The same thread, when it drains: rates hold no longer. */
void fw_tenancy_open_up(struct fw_server *server);

/* Whose a connection is that was just accepted. The thread that runs the server. */
uint32_t fw_tenancy_of_accepted(const struct fw_server *server, const struct fw_listener *listener,
                                int fd);

/* It listens: tells the log of rules that name a listener which the server does not have. */
void fw_tenancy_check_listeners(struct fw_server *server);

/* The newest ruling and policy, for any thread that wants to look; put() when it has looked. */
struct fw_ruling *fw_tenancy_get(struct fw_server *server, enum fw_sched_policy_number *policy);
void fw_tenancy_put(struct fw_ruling *ruling);

/* A core begins and ends to use the server's ruling. */
void fw_tenancy_join(struct fw_server_core *core);
void fw_tenancy_leave(struct fw_server_core *core);
