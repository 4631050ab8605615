/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quorum's agent on one machine: lets its server serve, and tells keepalived.
 *
 *     Corosync ── group ─┐                              ┌── stats, lease ──► the server
 *     the other agents ──┴──► election (election.h) ────┤
 *                                                       └── 0 or 1 ──► a file that keepalived
 * tracks
 *
 * keepalived moves the virtual address, and the server follows that (server/replication.h). Alone
 * it has two owners after a silent cut, and knows nothing of what a server has. So the agent gates
 * it by a `track_file` of weight 0: with 0 in it the address may come here, with 1 it may not, and
 * leaves. What keeps two servers from answering is not the address, though, but the lease.
 *
 * A service manager is told when it runs and when it ends, and by the beat that it lives, if it
 * wants to hear that: one that hangs lets its server fall silent, but leaves keepalived's gate as
 * it was, which only the manager can close then.
 *
 * Nothing here waits. The beat is a fifth of the lease: each time the server is asked how it
 * stands, the others are told, and what comes back renews the lease.
 *
 * Threads: one, that calls run(); stop() is for its call-backs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

struct fw_ha_agent;

struct fw_ha_config {
    const char *group;     /* The same at all agents of a cluster. */
    const char *socket;    /* The server's, for administrators. */
    const char *gate;      /* The file. */
    int64_t lease_ns;      /* The same at all, too. */
    int64_t patience_ns;   /* See election.h. */
    uint64_t acknowledged; /* Slaves that replies wait for. */
    uint64_t nodes;        /* Of the cluster; 0: as Corosync says. */
    bool is_allowed;       /* The server may begin with whatever it has, once. */
};

FW_MUST_CHECK int fw_ha_agent_create(struct fw_ha_agent **agent, const struct fw_ha_config *config,
                                     struct fw_reason *reason);

/* SIGTERM and SIGINT end it, also before run(). */
void fw_ha_agent_signals_block(void);

/* Until a signal. Then the gate is closed, and the lease ended. */
void fw_ha_agent_run(struct fw_ha_agent *agent);
void fw_ha_agent_destroy(struct fw_ha_agent *agent);
