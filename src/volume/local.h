/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent, inside. Private to src/volume, its tests and the simulator.
 *
 * Its life on the down ring:
 *
 *     START ──suspend──► ASKED ──acknowledged──► drop all, resume ──► RESUMED ──list──► RUNNING
 *         the pool is empty from here                                                   │
 *                       OUT ◄── SHUT ◄── told to leave, and no volume is open ──────────┘
 *                       (for good: the rings may be another host's, once it has said goodbye)
 *
 * and one allocation:
 *
 *     take extents from the pool, reserve the places in the map      under `lock`
 *     push PLACE into the up ring: two durable writes                without any lock
 *     the places are mapped                                          under `lock`
 *
 * The push is the only durable step: before it the extents are the pool's, after it the volume's,
 * and nobody has written to them. An agent that dies anywhere leaves nothing to undo.
 *
 * No resync begins while a push is under way: its extents are in no pool, and a list made before
 * the push arrived would call them free.
 *
 * Leaving. What a host has, its volumes and its pool, is somebody else's once the host is off the
 * list. So it gets off the list by its own word, and by nothing that somebody concludes:
 *
 *     operator          manager                                agent
 *     disconnect ─────► takes in the up ring
 *         ◄─ refused ── a volume is open there, and which
 *                       LEAVING into the redo log
 *                       LEAVE into the down ring ────────────► with `turn`: nobody opens or closes
 *                                                              a volume is open: STAYS ──┐
 *         ◄─ refused ── STAYS into the log ◄─────────────────────────────────────────────┤
 *                                                              none is: the gate is shut │
 *                                                              for opens; push LEFT ─────┘
 *         ◄─ done ───── HOST_REMOVED into the log ◄───────────────
 *
 *   Why no late write gets into an extent that is given to another. All writes to extents are
 *   system calls inside of a call about an open volume, and return when the disk has them; a volume
 *   is closed when no such call is under way (thin.c waits for that). So where no volume is open
 *   nothing is on its way, and behind the gate nothing sets out. LEFT is pushed after that, and
 *   the manager frees nothing before it has read LEFT. What arrives later than LEFT cannot exist.
 *   If the manager dies at any step, LEAVING is in its log, and the next one says LEAVE again. If
 *   the agent dies before LEFT, the next one is told again; behind a LEFT none starts (host_check()
 *   in local.c). If it is silent, nothing happens: silence is what a frozen process sounds like.
 *   models/leave.pml has this, and what goes wrong without each of them; leave_test.c plays it.
 *
 *   The other way out is an operator's word that the host is off (`--fenced`): then the manager
 * takes the up ring over. An agent that lives after all finds its ring suspended or another's, and
 * fails all access to its volumes from then on (thin.c).
 *
 *   An agent of a release that does not know LEAVE skips it with a line in its log, and the
 * operator is told that it has not answered. A manager of such a release suspends the up ring
 * instead and takes that for the answer, so the manager is the first to be upgraded.
 *
 * Disks. The up ring has a disk of its own, driven by whoever allocates; all else is done by one
 * thread at a time, on another.
 */
#pragma once

#include "base/list.h"
#include "base/mutex.h"
#include "io/file.h"
#include "volume/queue.h"
#include "volume/store.h"

enum fw_volume_phase {
    FW_VOLUME_START,
    FW_VOLUME_ASKED,
    FW_VOLUME_RESUMED,
    FW_VOLUME_RUNNING,
    FW_VOLUME_SHUT, /* No volume is open, and none is opened any more. */
    FW_VOLUME_OUT,
};

/* Runs of extents, used from the front. */
struct fw_volume_pool {
    struct fw_volume_run *runs; /* From the heap. */
    uint32_t first;
    uint32_t count; /* Of runs, those before `first` included. */
    uint32_t room;
    uint64_t extents;
};

enum fw_volume_place_state {
    FW_VOLUME_HOLE,
    FW_VOLUME_MAPPED,
    FW_VOLUME_BUSY, /* Being placed or given back; nobody may use it. */
};

struct fw_volume_place {
    uint64_t generation;
    uint32_t extent;
    uint8_t state; /* enum fw_volume_place_state */
};

struct fw_volume {
    struct fw_volume_agent *agent;
    struct fw_list_link link;
    struct fw_volume_uuid uuid;
    char name[FW_VOLUME_NAME_MAX + 1];
    uint64_t size;
    struct fw_volume_place *places;
};

/* Called for extents of the pool before they are placed, without a lock. Not 0: they are not. */
typedef int fw_volume_prepare(void *context, uint64_t offset, uint64_t size,
                              struct fw_reason *reason);

struct fw_volume_agent {
    /* Constant. */
    fw_volume_prepare *prepare; /* NULL: nobody wants to know. */
    void *prepare_context;
    struct fw_disk *disk, *up_disk;
    bool owns_disks;
    bool is_locked;
    struct fw_file_lock file_lock;
    int64_t full_wait_ns; /* How long to wait for extents in a full group. */
    struct fw_volume_store *store, *up_store;
    uint32_t host;
    struct fw_disk *up_part, *down_part;
    struct fw_ring *up, *down;

    struct fw_mutex turn;           /* FW_RANK_VOLUME_TURN. Guards what follows, and `disk`. */
    struct fw_volume_pool incoming; /* A complete list, until its last part is there. */
    bool is_incoming;
    uint64_t keep;       /* The manager wants no more in the pool than that. */
    int64_t full_log_ns; /* When the log was told last that the group is full; 0: never. */
    uint64_t leave;      /* The order to leave that has not been answered; 0: none. */
    uint64_t stayed;     /* The last one to which the answer was that we stay. */

    struct fw_mutex lock; /* FW_RANK_VOLUME. Guards what follows. */
    enum fw_volume_phase phase;
    int broken;
    uint32_t under_way; /* Pushes. */
    bool is_full;       /* The manager has no extents for us. */
    int64_t dry_ns;     /* When somebody first found too few in the pool since then; 0: nobody. */
    uint64_t seen;      /* Grants up to this generation have been taken in. */
    struct fw_volume_pool pool;
    struct fw_list volumes;
};

struct fw_volume_agent_disks {
    struct fw_disk *rest;
    struct fw_disk *up; /* May be the same where there is one thread. */
};

/* As fw_volume_agent_open(), on disks that stay the caller's and are not locked. */
FW_MUST_CHECK int fw_volume_agent_open_on(struct fw_volume_agent **agent,
                                          const struct fw_volume_agent_disks *disks,
                                          uint64_t host_number, const char *host,
                                          struct fw_reason *reason);

/* Before any volume is open. */
void fw_volume_agent_prepare(struct fw_volume_agent *agent, fw_volume_prepare *prepare,
                             void *context);

/* Lets go of everything, open volumes too, as a crash would. For tests, and after an error. */
void fw_volume_agent_drop(struct fw_volume_agent *agent);

/* ---- local_pool.c: no locks, no I/O ---- */

/* Returns 0 or -ENOMEM; then nothing was added. */
FW_MUST_CHECK int fw_volume_pool_add(struct fw_volume_pool *pool, const struct fw_volume_run *run);

/* Takes up to `count` extents that lie together; the pool is not empty. */
struct fw_volume_run fw_volume_pool_take(struct fw_volume_pool *pool, uint64_t count);
void fw_volume_pool_clear(struct fw_volume_pool *pool); /* Keeps its memory. */
void fw_volume_pool_fini(struct fw_volume_pool *pool);

/* ---- local_volume.c ---- */

void fw_volume_free(struct fw_volume *volume); /* Its memory; it is on no list. */

/* ---- local.c: for local_volume.c ---- */

/*
 * Pushes the batch into the up ring, between under_way_begin() and _end(), without the lock. What
 * is left over of an error is said here: 0, FW_VOLUME_WAIT, -ESHUTDOWN, -EMSGSIZE: not pushed;
 * others: the agent is broken, nobody knows.
 */
FW_MUST_CHECK int fw_volume_agent_push(struct fw_volume_agent *agent,
                                       const struct fw_volume_batch *batch,
                                       struct fw_reason *reason);

/* Why nothing can be pushed now, or 0. Under the lock. */
FW_MUST_CHECK int fw_volume_agent_check(const struct fw_volume_agent *agent,
                                        struct fw_reason *reason);
