/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's lease: a block of the group that says who may write what only the manager writes.
 * It needs nothing but the disk, as all of a group.
 *
 * The block has one record: a host, a number drawn by the process that holds the lease, a count
 * that each renewal raises, and a state.
 *
 *                      another host: after W in which it stayed as it was
 *           ┌────────────────────────────────────────────────────────────────────┐
 *       HELD ──release──► RELEASED ──another host: at once──► CLAIMED ──after W──► HELD
 *        ▲ └──crash, and the host's next process: at once──┐      │ raised all the time
 *        └─────────────────────────────────────────────────┘      └ overwritten: not got
 *
 * Times. `hold` is how long a right lasts, W is half as long again. It is chosen when the group is
 * made, and the record has it, so that hosts need not be told and may differ.
 *
 * Why there is one holder at a time.
 *   - A right is counted from the beginning of a *read* that found the holder's own record, and
 *     lasts `hold`. What was read may be overwritten at any time; the right is not prolonged then.
 *   - A claim is a write over somebody else's record. From its end on, whoever reads finds that
 *     the record is not his, so nobody gets a right that began later, and all that began earlier
 *     are over when W has passed. Only if the claimer then still finds its own record, it holds.
 *   - Somebody may have read before the claim and write after it. Then the claimer finds that
 *     and gives up. So that this cannot happen when W is over, nobody starts to write more than
 *     `hold` after it has read, and who finds that a write took W or longer begins anew, by
 *     claiming.
 *   - A process may take over at once what a dead process of its own host has left: it goes on with
 *     that process's right, by the same rule. That the other is dead is known by a lock that the
 *     kernel drops (FW_VOLUME_LOCK_MANAGER). `host` stands for that lock: boot and device node (see
 *     fw_ring_host_number()), so who came by another node is another host here.
 *   models/lease.pml has this, and what goes wrong without each of them.
 *
 * What is assumed. Clocks of hosts need not agree, but run equally fast, within 25 %. A write that
 * was started gets to the disk within hold / 2 or never; this matters only for one whose process
 * was stopped at just this instant, for others see for themselves how long it took.
 *
 * The holder notices that it has lost the lease before it writes: the manager's disk asks
 * fw_volume_lease_check() about each write (io/disk_part.h). A holder that slept and finds its
 * record as it left it goes on: nobody else has been a manager meanwhile.
 *
 * Nothing here waits: who wants the lease calls try() again and again, FW_VOLUME_LEASE_PAUSE of
 * `hold` apart. A lease belongs to one thread, with its disk.
 */
#pragma once

#include "io/disk.h"
#include "volume/message.h"

enum {
    FW_VOLUME_LEASE_SIZE = 4096,
    FW_VOLUME_LEASE_HOLDER_MAX = 127,
    FW_VOLUME_LEASE_HOLD_MS = 8000,
    FW_VOLUME_LEASE_HOLD_MS_MIN = 100,
    FW_VOLUME_LEASE_HOLD_MS_MAX = 600000,
    FW_VOLUME_LEASE_PAUSE = 16, /* So many looks while a right lasts, and a fourth as many beats. */
};

enum fw_volume_lease_state {
    FW_VOLUME_LEASE_RELEASED = 1,
    FW_VOLUME_LEASE_CLAIMED = 2,
    FW_VOLUME_LEASE_HELD = 3,
};

struct fw_volume_lease_record {
    enum fw_volume_lease_state state;
    uint32_t hold_ms;
    uint64_t host;   /* 0: unknown, equal to none. */
    uint64_t number; /* Of the process. */
    uint64_t beat;
    uint64_t term; /* How many have held it. */
    char holder[FW_VOLUME_LEASE_HOLDER_MAX + 1];
};

enum fw_volume_lease_phase {
    FW_VOLUME_LEASE_IDLE,
    FW_VOLUME_LEASE_WATCHES,
    FW_VOLUME_LEASE_CLAIMS,
    FW_VOLUME_LEASE_HOLDS,
    FW_VOLUME_LEASE_LOST,
};

struct fw_volume_lease {
    struct fw_disk *disk; /* FW_VOLUME_LEASE_SIZE bytes. The caller's. */
    enum fw_volume_lease_phase phase;
    bool is_writing;  /* The lease itself: its writes need no right. */
    bool is_doubtful; /* A write took too long: our own record proves nothing. */
    bool inherits;    /* `hold_ms` is that of the record that was found. */
    struct fw_volume_lease_record ours;
    struct fw_volume_lease_record seen; /* While watching. */
    int64_t since_ns;                   /* Watching: first seen. Claiming: claimed. */
    int64_t wait_ns;                    /* For as long as that. */
    int64_t read_ns;                    /* When the last renewal began to read. */
    int64_t right_ns;                   /* Until then. */
};

struct fw_volume_lease_options {
    uint64_t host;      /* Who we are, until the next boot. */
    const char *holder; /* For people: who holds it, and where. */
    uint32_t hold_ms;   /* 0: as the record has it. */
};

/* 0, or -EINVAL: nobody may hold a lease for so long, or so short a time. */
FW_MUST_CHECK int fw_volume_lease_hold_check(uint32_t hold_ms, struct fw_reason *reason);

/* Writes a record that this host has released, whatever was there before. */
FW_MUST_CHECK int fw_volume_lease_format(struct fw_disk *disk, uint64_t host, uint32_t hold_ms,
                                         struct fw_reason *reason);

/* No I/O. -EINVAL: `hold_ms` is out of its limits. */
FW_MUST_CHECK int fw_volume_lease_init(struct fw_volume_lease *lease, struct fw_disk *disk,
                                       const struct fw_volume_lease_options *options,
                                       struct fw_reason *reason);

/*
 * A step towards holding it. 0: held; FW_VOLUME_WAIT: again, later; -EBUSY: another holds or claims
 * it and lives, and the reason names it; others: what the disk said.
 */
FW_MUST_CHECK int fw_volume_lease_try(struct fw_volume_lease *lease, struct fw_reason *reason);

/* Prolongs the right, if that is due. -ESTALE: another has taken it. */
FW_MUST_CHECK int fw_volume_lease_renew(struct fw_volume_lease *lease, struct fw_reason *reason);

/* Whether to write is right now: 0 or -ESTALE. No I/O. */
FW_MUST_CHECK int fw_volume_lease_check(const struct fw_volume_lease *lease);

/* Lets it go, so that others need not wait until it has run out. Nothing, if it is not held. */
void fw_volume_lease_release(struct fw_volume_lease *lease);

/* How long to wait between two tries. */
int64_t fw_volume_lease_pause_ns(const struct fw_volume_lease *lease);

/* What is on the disk. -EBADMSG: no record, or a damaged one. */
FW_MUST_CHECK int fw_volume_lease_read(struct fw_disk *disk, struct fw_volume_lease_record *record,
                                       struct fw_reason *reason);
