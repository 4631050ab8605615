/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attached ring, inside. Private to src/ring, its tests and the simulator.
 *
 * The ring is an actor: a list of operations and one job at a time. A job is an operation, or all
 * pushes that were waiting together, and goes through steps. A step starts a wave of up to
 * FW_RING_IOS disk operations and names the next step, which runs when the last of the wave is over
 * and is told how it went. Nothing else ever happens between two steps of a job, which is what
 * makes "look for a suspend, then publish" one thing.
 *
 *     queued ──► job: look ─► write data ─► flush ─► write pointer ─► finish ──► done()
 *                     └ suspended: write the acknowledgement ────────────┘
 *
 * Who makes the steps? In the asynchronous form the owner, out of fw_ring_start() and
 * fw_ring_reap(). In the blocking form one of the threads that wait: it drives until its own
 * operation is over and hands on to another. It waits for the disk without the lock; so whoever
 * comes meanwhile only puts his operation on the list, and finds company there.
 */
#pragma once

#include <fairway/journal.h>
#include <fairway/ring.h>

#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "io/disk.h"
#include "io/file.h"
#include "ring/format.h"

enum {
    FW_RING_IOS = 4,
    FW_RING_WINDOW = 256 << 10, /* Bytes of messages kept in memory; more if one is longer. */
    FW_RING_BATCH_MAX = FW_RING_WINDOW - FW_DISK_SECTOR_MAX, /* Of what is pushed together. */
};

/*
 * A piece of the message area in memory: positions from `base` on, of which `end` is the first that
 * was not loaded. The producer's can be `whole`: then it is the area itself, and a position is
 * found at its remainder. That is how messages that go all around come to share a sector with
 * themselves and still write it once.
 */
struct fw_ring_window {
    uint8_t *bytes;
    size_t size;
    uint64_t base;
    uint64_t end; /* Equal to `base`: nothing is loaded. */
    bool whole;
};

struct fw_ring_io {
    struct fw_disk_op op;
    struct fw_ring *ring;
};

struct fw_ring {
    /* Constant while attached. */
    struct fw_disk *disk;
    bool owns_disk;
    bool is_locked[2];
    struct fw_file_lock locks[2];
    struct fw_ring_geometry geometry;
    unsigned role;
    unsigned flags;
    uint64_t owner; /* Format 2: who we are. */
    uint64_t host;
    char queue[FW_RING_NAME_MAX + 1];
    char client[FW_RING_NAME_MAX + 1];

    struct fw_mutex lock; /* FW_RANK_RING. Guards all below but the waves' own. */
    struct fw_list queued;
    struct fw_list batch; /* The operations of the job. */
    struct fw_list finished;
    struct fw_list waiters;  /* Threads in blocking calls. */
    bool driven;             /* One of them drives. */
    int broken;              /* Not 0: what every operation fails with. */
    struct fw_reason reason; /* Why the job fails. */

    /* What is on the disk, as far as we know; of our own roles it is the truth. */
    struct fw_ring_pointer sides[2];

    /* The producer's. */
    uint64_t staged;        /* Where the next message goes; from sides[] on until published. */
    uint64_t consumer_safe; /* Up to where room is free for good: no crash moves it back. */
    uint64_t batch_size;    /* Bytes that the job adds. */
    bool looked;            /* The job has seen the consumer's side. */
    bool data_synced;       /* The job's data is durable without a flush. */
    struct fw_ring_window out;

    /* The consumer's. */
    uint64_t cursor;        /* Where the next pop reads. */
    uint64_t producer_safe; /* Up to where messages are there for good. */
    uint64_t load_end;      /* What that will be when the wave is over. */
    struct fw_ring_window in;

    /* The wave and the step after it. Belong to whoever drives. */
    struct fw_ring_io ios[FW_RING_IOS];
    uint32_t io_count;
    uint32_t io_pending;
    int io_error;
    void (*step)(struct fw_ring *ring, int rc);
    uint8_t *area_in[2]; /* Where areas are read to, by side. */
    uint8_t *state_out;  /* Where a state is made. */
    struct {
        enum fw_ring_side side;
        struct fw_ring_pointer pointer;
        void (*then)(struct fw_ring *ring, int rc);
    } writing;             /* The state that is being written. */
    int64_t written_ns[2]; /* When our states were written last. */
};

/* ---- attach.c ---- */

/*
 * As fw_ring_create() and fw_ring_attach(), on a disk that is open. It stays the caller's, is not
 * locked, and may be shared by several rings of one thread. `host` is who we are for format 2; who
 * has the same number had the lock that we have now, and so is dead (fw_ring_host_number()).
 */
FW_MUST_CHECK int fw_ring_create_on(struct fw_disk *disk, const struct fw_ring_create *create,
                                    struct fw_reason *reason);
FW_MUST_CHECK int fw_ring_attach_on(struct fw_ring **ring, struct fw_disk *disk, uint64_t host,
                                    const struct fw_ring_options *options,
                                    struct fw_reason *reason);

/*
 * A number for whoever shares this lock with us: processes of this boot of this host that came by
 * the same file or device node. If one of them has left something, and the lock is ours, it is
 * dead. A process that came by another node of the same disk (a second path, a container, a loop
 * device) has another lock and so another number: it is watched like one on another host.
 */
uint64_t fw_ring_host_number(const struct fw_file_lock *lock);

/* Opens a disk such that its sectors are those of format 1. */
FW_MUST_CHECK int fw_ring_disk_open(struct fw_disk **disk, const struct fw_disk_options *options,
                                    struct fw_reason *reason);

/* The sectors of the ring on the disk, where nobody says: the disk's own, or larger ones. */
uint32_t fw_ring_sector_size(struct fw_disk *disk);

/* Reads what ring is on the disk, and both sides, unchecked against each other. */
FW_MUST_CHECK int fw_ring_read_head(struct fw_disk *disk, uint32_t sector_size,
                                    struct fw_ring_geometry *geometry, struct fw_reason *reason);
FW_MUST_CHECK int fw_ring_read_side(struct fw_disk *disk, const struct fw_ring_geometry *geometry,
                                    enum fw_ring_side side, struct fw_ring_pointer *pointer,
                                    struct fw_reason *reason);

struct fw_ring_watch {
    uint64_t host; /* Ours: an owner of it is known to be gone, by a lock. */
    /* Called at each look, to keep a lease alive, for example. Not 0: ends the watch. */
    int (*meanwhile)(void *context, struct fw_reason *reason);
    void *context;
};

/*
 * Whether the owner of a side of format 2 is gone: 0, or -EBUSY: it lives. `pointer` is what was
 * read just before, and what was read last. Blocks for up to FW_RING_SILENCE_MS.
 */
FW_MUST_CHECK int fw_ring_owner_watch(struct fw_disk *disk, const struct fw_ring_geometry *geometry,
                                      enum fw_ring_side side, const struct fw_ring_watch *watch,
                                      struct fw_ring_pointer *pointer, struct fw_reason *reason);

/* ---- journal.c ---- */

/* How long to wait after that attempt, the first being 1. */
uint32_t fw_journal_delay_ms(const struct fw_journal_options *options, uint32_t attempt);

/* ---- ring.c: for the steps ---- */

/* Starts one operation of the wave; `done` and the rest are filled in here. */
void fw_ring_io(struct fw_ring *ring, const struct fw_disk_op *op);
void fw_ring_io_area(struct fw_ring *ring, enum fw_ring_side side); /* Reads it. */
void fw_ring_io_flush(struct fw_ring *ring);

/*
 * Starts to read or write the message area from `position` on, both multiples of the sector size,
 * in two parts if it goes round the end; returns how many. A write of one part is `sync` if asked.
 */
uint32_t fw_ring_io_data(struct fw_ring *ring, enum fw_disk_kind kind, uint8_t *bytes,
                         uint64_t position, uint64_t size, bool sync);

/*
 * Writes a side's state durably, then goes on with `then`. If that fails the ring is broken. The
 * side changes in memory when it has been written.
 */
void fw_ring_state_write(struct fw_ring *ring, enum fw_ring_side side, uint64_t position, bool flag,
                         void (*then)(struct fw_ring *ring, int rc));

/* Takes the side that was read into its area; compares it with our own. */
FW_MUST_CHECK int fw_ring_side_take(struct fw_ring *ring, enum fw_ring_side side);

/* Makes room for that many bytes. Returns 0 or -ENOMEM; what was loaded is forgotten. */
FW_MUST_CHECK int fw_ring_window_reserve(struct fw_ring *ring, struct fw_ring_window *window,
                                         uint64_t size);

/* The first operation of the job. */
struct fw_ring_op *fw_ring_job(struct fw_ring *ring);

/* The blocking form of any operation. Any thread. `done` is not used. */
FW_MUST_CHECK int fw_ring_run(struct fw_ring *ring, struct fw_ring_op *op,
                              struct fw_ring_reason *reason);

/* Ends the job: all of its operations have this result. */
void fw_ring_finish(struct fw_ring *ring, int result);

/* Whether format 2 wants a sign of life, and the check that the role is still ours. */
bool fw_ring_beat_is_due(const struct fw_ring *ring, enum fw_ring_side side);
FW_MUST_CHECK int fw_ring_ownership_check(struct fw_ring *ring, enum fw_ring_side side);

/*
 * Whether somebody has attached to the other side and not detached, as of the last look at it. A
 * side without an owner is not used by anyone. Format 2; of a ring that has one role.
 */
static inline bool fw_ring_other_is_attached(const struct fw_ring *ring)
{
    return ring->sides[ring->role == FW_RING_PRODUCER ? FW_RING_SIDE_CONSUMER
                                                      : FW_RING_SIDE_PRODUCER]
               .owner != 0;
}

static inline uint64_t fw_ring_sector_floor(const struct fw_ring *ring, uint64_t position)
{
    return position / ring->geometry.sector_size * ring->geometry.sector_size;
}

static inline uint64_t fw_ring_sector_ceil(const struct fw_ring *ring, uint64_t position)
{
    return fw_ring_sector_floor(ring, position + ring->geometry.sector_size - 1);
}

/* ---- producer.c and consumer.c: begin the job, whose operation is of a kind of theirs ---- */

void fw_ring_produce(struct fw_ring *ring);
void fw_ring_consume(struct fw_ring *ring);
