/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thin volumes on a disk that hosts share. A host grows its volumes without asking anyone, and goes
 * on doing so while the network and the manager are down.
 *
 * A *group* is a disk, cut into extents. A *volume* is a list of logical extents, some of which
 * have an extent of the disk behind them; the rest are holes. Each host has an *agent* (the
 * document's local allocator), the group has one *manager* (the remote allocator). The agent has a
 * pool of extents that the manager gave it in advance, and places them in volumes on its own. They
 * talk through two rings of the group (fairway/ring.h) per host and through nothing else.
 *
 *      manager                                              agent of host h
 *      ┌────────────────────┐   FREE, KEEP      ┌──────────┐   ┌───────────────────────────┐
 *      │ metadata, redo log ├──────────────────►│ down ring├──►│ pool ──allocate──► volume │
 *      │ pools' sizes       │◄──────────────────┤ up ring  │◄──┤      ◄──────────── discard│
 *      └────────────────────┘  PLACE, GIVE_BACK └──────────┘   └───────────────────────────┘
 *                              RETURN, OPEN, CLOSE
 *
 * A host leaves the group by LEAVE and LEFT, or by an operator's word (src/volume/local.h).
 *
 * Who owns an extent. At any moment exactly one of these:
 *
 *      the manager's free pool          metadata: FREE
 *        │ GRANT in the redo log: the extent gets a new generation
 *        ▼
 *      host h: on its way to it, in     metadata: HOST h. Which of the three it is only h knows,
 *      its pool, or placed and not      and only while it lives: when it comes back, what was not
 *      yet announced                    announced is free for h again
 *        │ PLACE in the up ring         the agent may write to the extent from here on
 *        ▼
 *      volume v at logical extent y     metadata: HOST h and the ring; then the redo log; then
 *        │                              metadata: VOLUME v, y
 *        │ GIVE_BACK in the up ring     the agent unmapped it before
 *        ▼
 *      the manager's free pool          (RETURN leads there from the host's pool)
 *
 * What makes it safe
 *   - Durable first. A grant is in the redo log before the host can hear of it; a placement is in
 *     the up ring before the extent is written to; a message leaves a ring when its effect is in
 *     the redo log, and a record leaves the redo log when it is in the metadata. So an allocation
 *     is always in the ring, the log or the metadata, and looking in that order finds it.
 *   - Generations. Every grant has a number that no other grant ever had. A message about an
 *     extent names the generation; where that is not the extent's, the message is old and does
 *     nothing. So messages can come twice, or after their time.
 *   - A host takes in a grant once in its life: they come in the order of their numbers, and it
 *     remembers the last. So the manager can send again whatever it is not sure of.
 *   - Resync. An agent begins with an empty pool, suspends the down ring, drops what is in it and
 *     resumes. The manager first takes in all that is in the up ring, and then answers with the
 *     complete list of what is HOST h, in parts, of which the first and the last are marked, all
 *     published by the very write that clears the acknowledgement.
 *
 * What each crash leaves
 *   agent            placements in the up ring, which count. Pool: the next life asks for it.
 *   host             the same. What was mapped is read again from ring, log and metadata.
 *   manager          the redo log. Replayed on start; records carry numbers, old ones are skipped.
 *                    What was granted and not sent is sent again.
 *   power of all     both of the above; no order of writes between two flushes matters.
 *
 * The document lets the agent journal an allocation locally before it is pushed. Here nothing is
 * journalled: what the journal would hold is in the up ring, and a map is always made whole from
 * what is on the disk (docs/departures.md).
 *
 * Results are 0, one of enum fw_volume_outcome, or a negative errno with the reason:
 *
 *     -ENOENT    no such volume or host      -EEXIST   there is one of that name already
 *     -ENOSPC    the group is full           -EBUSY    another agent or manager, or a user, lives
 *     -EBADMSG   what is on the disk cannot be         -ESHUTDOWN   the host has been disconnected
 *     -EINVAL    the arguments are wrong     others    what the disk said
 *
 * After an error of the disk nobody knows what it holds: an agent or a manager that has met one
 * answers it to all further calls, and is closed and opened anew.
 *
 * Threads. A manager belongs to one thread at a time. An agent: any thread may allocate, discard
 * and look at maps, at any time, and threads that allocate together share flushes; step(), open and
 * close of volumes take turns behind a lock. All of them block, so in a server they run as jobs.
 *
 * Limits: FW_VOLUME_EXTENTS_MAX extents in a group and in a volume, FW_VOLUME_VOLUMES_MAX volumes,
 * FW_VOLUME_HOSTS_MAX hosts. One host at a time uses a volume. Of two that open it at the same
 * moment at most one gets it, and possibly none: who opens says so in its ring, and then looks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/ring.h>

enum {
    FW_VOLUME_NAME_MAX = 63,
    FW_VOLUME_UUID_SIZE = 16,
    FW_VOLUME_EXTENTS_MAX = 1 << 24,
    FW_VOLUME_VOLUMES_MAX = 4096,
    FW_VOLUME_HOSTS_MAX = 64,
};

enum fw_volume_outcome {
    FW_VOLUME_WAIT = 1, /* The pool is empty, or the ring is full: again when step() was called. */
};

/* ---- the group ---- */

struct fw_volume_format {
    const char *path;     /* A block device or a file. */
    uint64_t size;        /* If not 0: a file is made, or extended to this. */
    uint64_t extent_size; /* A multiple of 4 KiB; 0: 4 MiB. */
    uint32_t hosts_max;   /* 0: 16. */
    uint64_t ring_size;   /* Of each ring, a multiple of 4 KiB; 0: 1 MiB. */
    uint64_t log_size;    /* Likewise. */
    uint32_t lease_ms;    /* How long a manager may be silent before another takes over; 0: 8 s. */
    bool replace;         /* Also where there is a group already. */
    bool force;           /* Also over whatever else is there, which is lost. */
};

/*
 * Makes an empty group. Blocks. -EEXIST: there is one, or anything else that would be lost: a block
 * device with a known signature, a file with other content. -EBUSY: a manager runs, or the device
 * is mounted or held by a driver, which no flag changes.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_format(const struct fw_volume_format *format,
                                                 struct fw_ring_reason *reason);

/* ---- the agent ---- */

struct fw_volume_agent;
struct fw_volume;

struct fw_volume_agent_options {
    const char *path;
    const char *host; /* The name under which it was connected. */
    int64_t full_ns;  /* How long allocate() says WAIT in a full group; 0: 5 s. */
};

/* Attaches. The pool is empty until step() has been called a few times. Blocks. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_agent_open(struct fw_volume_agent **agent,
                                                     const struct fw_volume_agent_options *options,
                                                     struct fw_ring_reason *reason);

/* No other call may be under way, no volume open. With `give_back`, so is the pool. */
FW_PUBLIC void fw_volume_agent_close(struct fw_volume_agent *agent, bool give_back);

/*
 * Does what there is to do: looks into the down ring, answers the manager, shrinks the pool. To be
 * called every now and then, at least every FW_RING_BEAT_MS, and when the pool is empty.
 * -ESHUTDOWN: the manager has disconnected this host.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_agent_step(struct fw_volume_agent *agent,
                                                     struct fw_ring_reason *reason);

/* Extents in the pool. Any thread. */
FW_PUBLIC uint64_t fw_volume_agent_pool(struct fw_volume_agent *agent);

/* Reads the volume's map. -EBUSY: another host has it open. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_open(struct fw_volume **volume,
                                               struct fw_volume_agent *agent, const char *name,
                                               struct fw_ring_reason *reason);
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_close(struct fw_volume *volume,
                                                struct fw_ring_reason *reason);

/* In logical extents. */
FW_PUBLIC uint64_t fw_volume_size(const struct fw_volume *volume);

/* Where on the disk a logical extent is, in bytes; false: a hole. */
FW_PUBLIC bool fw_volume_lookup(struct fw_volume *volume, uint64_t logical, uint64_t *offset);

/*
 * Puts extents behind those of the `count` logical ones that have none, all or none. When it
 * returns 0 that is durable, and they may be written; what they hold is whatever was there.
 * -EALREADY: another thread is at one of them. -ENOSPC: the manager has said, the options' time
 * ago, that the group is full. Without a manager nobody knows, and the answer is FW_VOLUME_WAIT.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_allocate(struct fw_volume *volume, uint64_t logical,
                                                   uint64_t count, struct fw_ring_reason *reason);

/* Makes holes of them. Nobody may be writing there. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_discard(struct fw_volume *volume, uint64_t logical,
                                                  uint64_t count, struct fw_ring_reason *reason);

/* ---- the manager ---- */

struct fw_volume_manager;

struct fw_volume_manager_options {
    const char *path;
    uint64_t pool_min;    /* Extents that a host always has in advance; 0: 16. */
    uint64_t pool_max;    /* ... and at most; 0: as many as its ring can list. */
    int64_t quiet_ns;     /* How long demand must be low before a pool shrinks; 0: 60 s. */
    uint32_t parts_max;   /* Runs in one part of a free list; 0: as many as fit. */
    uint32_t lease_ms;    /* As in fw_volume_format; 0: as the group was made. */
    uint32_t low_percent; /* Warn when fewer extents than that are free; 0: 10. */
};

/* Takes the group over: replays the redo log, attaches to the rings of all hosts. Blocks. */
FW_PUBLIC FW_API_MUST_CHECK int
fw_volume_manager_open(struct fw_volume_manager **manager,
                       const struct fw_volume_manager_options *options,
                       struct fw_ring_reason *reason);

/* Takes in what is in the up rings, flushes the redo log to the metadata, and detaches. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_close(struct fw_volume_manager *manager,
                                                        struct fw_ring_reason *reason);

/*
 * One round: all up rings, pools and free lists, hosts that leave, commands of operators, the log
 * if it fills. -ESHUTDOWN: an operator wants it to end; close it.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_step(struct fw_volume_manager *manager,
                                                       struct fw_ring_reason *reason);

/* Writes the metadata and empties the redo log. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_flush(struct fw_volume_manager *manager,
                                                        struct fw_ring_reason *reason);

FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_create(struct fw_volume_manager *manager,
                                                         const char *name, uint64_t size,
                                                         struct fw_ring_reason *reason);

/* -EBUSY: there are extents beyond the new size; discard them first. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_resize(struct fw_volume_manager *manager,
                                                         const char *name, uint64_t size,
                                                         struct fw_ring_reason *reason);

/* -EBUSY: a host has it open. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_remove(struct fw_volume_manager *manager,
                                                         const char *name,
                                                         struct fw_ring_reason *reason);

/* Makes the host's rings and lists it. */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_connect(struct fw_volume_manager *manager,
                                                          const char *host,
                                                          struct fw_ring_reason *reason);

/*
 * Tells the host to leave. -EBUSY: it has a volume open, and the reason says which. Its agent's
 * answer is noticed by a later step(): either it has left, and step() takes its pool back and
 * removes it from the list, or it has opened a volume meanwhile and stays. One that does not answer
 * keeps all it has, and disturbs nobody; it leaves when its agent runs again.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_disconnect(struct fw_volume_manager *manager,
                                                             const char *host,
                                                             struct fw_ring_reason *reason);

/*
 * The operator's word that the host will never write again: its up ring is taken over, so that its
 * agent can push no more, what is in it is taken in, and its pool goes back. -EBUSY: it lives.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_manager_reclaim(struct fw_volume_manager *manager,
                                                          const char *host,
                                                          struct fw_ring_reason *reason);

struct fw_volume_figures {
    uint64_t extents;
    uint64_t free;
    bool is_low; /* Below the threshold of the options. */
};

/* As of the last step(). */
FW_PUBLIC void fw_volume_manager_figures(const struct fw_volume_manager *manager,
                                         struct fw_volume_figures *figures);

/* True while the host is listed. */
FW_PUBLIC bool fw_volume_manager_has_host(struct fw_volume_manager *manager, const char *host);

/* ---- the operator ---- */

enum fw_volume_action {
    FW_VOLUME_DO_CREATE,
    FW_VOLUME_DO_RESIZE,
    FW_VOLUME_DO_REMOVE,
    FW_VOLUME_DO_CONNECT,
    FW_VOLUME_DO_DISCONNECT, /* And waits until the host is gone. -EBUSY: it stays. */
    FW_VOLUME_DO_RECLAIM,    /* The operator knows that the host is off. */
    FW_VOLUME_DO_FLUSH,
    FW_VOLUME_DO_SHUTDOWN, /* Of the manager. */
};

struct fw_volume_order {
    const char *path;
    enum fw_volume_action action;
    const char *name; /* Of the volume or host. */
    uint64_t size;    /* Of the volume. */
    int64_t wait_ns;  /* How long a host may take to go. */
    /* Told about once a second while it takes long; NULL: nobody. */
    void (*progress)(void *context, const char *text);
    void *context;
};

/*
 * Does to the group what the functions above do, whether a manager runs or not: one that runs is
 * told, on whatever host it is, through the disk; else the caller is the manager for that moment.
 * Durable when it returns 0. -ETIMEDOUT: the manager, or the host, has not answered. Blocks.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_volume_order(const struct fw_volume_order *order,
                                                struct fw_ring_reason *reason);
