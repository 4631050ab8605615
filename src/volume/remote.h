/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager, inside. Private to src/volume, its tests, the simulator and `fairway volume`.
 *
 * A round looks after one host after the other:
 *
 *     pop from the up ring ──► changes, in memory ──► redo log, durable ──► advance the up ring
 *     poll the down ring ──┬─ RESYNC: all of the above until the up ring is empty, then the list
 *                          ├─ SUSPENDED: nothing
 *                          ├─ grant: change ──► redo log, durable ──► FREE into the down ring
 *                          └─ none to grant: pools of hosts without an agent are taken back; if
 * that does not help, FULL into the down ring LEAVING in the log: LEAVE into the down ring; LEFT in
 * the up ring: the pool is freed, the host removed (local.h draws it)
 *
 * Memory runs ahead of the log by the changes in `pending`, which nobody has heard of. If writing
 * them fails, memory is worth nothing any more: the manager is broken, and reopened.
 *
 * When the log is full the metadata are saved; they have all changes, those in `pending` too. So
 * that is another way to make them durable, and then the log is emptied.
 */
#pragma once

#include "io/file.h"
#include "volume/lease.h"
#include "volume/pool.h"
#include "volume/queue.h"
#include "volume/store.h"

struct fw_volume_peer {
    struct fw_disk *up_part, *down_part;
    struct fw_ring *up, *down; /* NULL: none, or damaged. */
    uint64_t sent;             /* Grants up to this generation are in the down ring. */
    uint64_t kept;             /* What the last KEEP said. */
    bool is_attached;          /* Its agent is, or died without a word. */
    bool is_told_full;
    uint64_t told; /* Which order to leave is in the down ring; 0: none. */
    struct fw_volume_demand demand;
};

struct fw_volume_manager {
    struct fw_disk *disk;
    struct fw_disk *leased; /* The same, but writes pass only while the lease is ours. */
    struct fw_disk *lease_part;
    struct fw_volume_lease lease;
    char holder[FW_VOLUME_LEASE_HOLDER_MAX + 1]; /* Who we are, for people. */
    bool owns_disk;
    bool is_locked;
    struct fw_file_lock lock;
    char *path; /* NULL: there are no locks. */
    struct fw_volume_store *store;
    uint64_t host_number; /* Who we are, for the rings. */
    struct fw_volume_limits limits;
    uint32_t parts_max;
    uint32_t low_percent;
    bool is_low;         /* Fewer extents than that are free. */
    int64_t full_log_ns; /* When the log was told last that there are none; 0: never. */
    int broken;

    struct fw_volume_metadata metadata;
    struct fw_disk *log_part;
    struct fw_ring *log;
    uint64_t log_end; /* Where the last record popped ends; 0: none was. */
    struct fw_volume_batch pending;
    struct fw_volume_peer peers[FW_VOLUME_HOSTS_MAX];

    /* Of operators: operator.h. */
    struct fw_disk *command_part, *answer_part;
    struct fw_ring *commands, *answers;
    uint64_t command; /* Being done; 0: none. */
    bool is_ending;
};

/* Bytes of the disk that are locked: one for the manager, one for the operator, one per host. */
enum {
    FW_VOLUME_LOCK_OPERATOR = (1 << 10) - 1,
    FW_VOLUME_LOCK_MANAGER = 1 << 10,
    FW_VOLUME_LOCK_HOSTS = FW_VOLUME_LOCK_MANAGER + 1,
};

/* As fw_volume_manager_open(), on a disk that stays the caller's and is not locked. */
FW_MUST_CHECK int fw_volume_manager_open_on(struct fw_volume_manager **manager,
                                            struct fw_disk *disk, uint64_t host_number,
                                            const struct fw_volume_manager_options *options,
                                            struct fw_reason *reason);

/* Lets go of everything as a crash would, but for the memory. For tests, and after an error. */
void fw_volume_manager_drop(struct fw_volume_manager *manager);

/* ---- remote_hosts.c ---- */

FW_MUST_CHECK int fw_volume_peer_attach(struct fw_volume_manager *manager, uint32_t host,
                                        struct fw_reason *reason);
void fw_volume_peer_detach(struct fw_volume_peer *peer);

/* One round for this host; `receive` only takes in what is in the up ring, until it is empty. */
FW_MUST_CHECK int fw_volume_peer_round(struct fw_volume_manager *manager, uint32_t host,
                                       struct fw_reason *reason);
FW_MUST_CHECK int fw_volume_peer_receive(struct fw_volume_manager *manager, uint32_t host,
                                         struct fw_reason *reason);

/*
 * Frees the pool of a host that can place no more, and takes the host off the list. If it is not
 * known what it has placed, for its ring is damaged, the pool is set aside: there may be data in
 * it.
 */
FW_MUST_CHECK int fw_volume_peer_remove(struct fw_volume_manager *manager, uint32_t host,
                                        bool is_known, struct fw_reason *reason);

/* Looks whether the group runs out of extents, and logs it when that changes. */
void fw_volume_manager_low(struct fw_volume_manager *manager);

/* ---- remote.c ---- */

/* Makes a change and remembers it for the log. */
FW_MUST_CHECK int fw_volume_manager_change(struct fw_volume_manager *manager,
                                           struct fw_volume_message *change);

/* Makes what is pending durable. */
FW_MUST_CHECK int fw_volume_manager_commit(struct fw_volume_manager *manager,
                                           struct fw_reason *reason);

/* The same for what an operator's command changes: together with the command's number, if any. */
FW_MUST_CHECK int fw_volume_manager_commit_command(struct fw_volume_manager *manager,
                                                   struct fw_reason *reason);

/* Takes in all that is in the up rings. */
FW_MUST_CHECK int fw_volume_manager_receive(struct fw_volume_manager *manager,
                                            struct fw_reason *reason);

/* -EBUSY: the host has these volumes open, and so it is not disconnected. */
FW_MUST_CHECK int fw_volume_stays(const char *host, const char *names, struct fw_reason *reason);

/* The sink of changes that does the second half of change(). */
struct fw_volume_sink fw_volume_manager_sink(struct fw_volume_manager *manager);
