/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of messages on a disk that two programs share, on one host or on two. One produces, one
 * consumes; they need no network, and either may crash at any time.
 *
 *     struct fw_ring *ring;
 *     struct fw_ring_options options = {.path = "/dev/vg/queue", .role = FW_RING_PRODUCER};
 *     rc = fw_ring_attach(&ring, &options, &reason);
 *     rc = fw_ring_push(ring, "hello", 5, &reason);            the producer: durable on return
 *
 *     rc = fw_ring_pop(ring, &message, &position, &reason);    the consumer, attached likewise
 *     ... do what message.data says, such that it may be done twice ...
 *     rc = fw_ring_advance(ring, position, &reason);
 *
 * What is promised
 *   - Messages come out whole, in order, and those whose push returned 0 come out at least once.
 *     What was popped and not advanced over is popped again by the next consumer.
 *   - A push returns 0 when a power failure can no longer take the message back. A pop returns only
 *     messages of which the same is true. That holds on disks with caches, with tears and with
 *     writes that change places; src/ring/README.md has the order of writes and flushes.
 *   - When the consumer has seen the acknowledgement of its suspend, nothing more appears until it
 *     resumes, however many threads push and poll.
 *
 * Results. A function returns 0, one of `enum fw_ring_outcome` (positive: nothing is wrong, but not
 * now), or a negative errno (something is wrong), with the reason in words if one is wanted:
 *
 *     -EMSGSIZE  the message will never fit
 *     -EBADMSG   what is on the disk cannot be; the reason names the sector. Nothing was written
 *     -EBUSY     somebody else is attached in this role
 *     -ESTALE    another host took over this role (format 2): detach
 *     -EINVAL    the arguments are wrong, or not for this role
 *     others     what the disk said. When the write of a pointer fails, nobody knows what the disk
 *                holds: all further calls fail, and attaching anew shows how it ended
 *
 * Formats. Format 1 is that of the queues of xenvm (mirage shared-block-ring), byte for byte, on
 * sectors of 512 or 4,096 bytes. Format 2 has checksums over everything and two places for each
 * pointer, so that a torn or rotten sector is noticed and the former state used, and it tells who
 * is attached. Two hosts should use it unless they must talk to the old one. docs/ring.md has both.
 *
 * One of each role. Attaching is refused with -EBUSY while another lives. On one host a file lock
 * says so, and the kernel drops it when the process dies. Between hosts, and between two device
 * nodes of one disk, which have no lock in common, in format 2 a heartbeat does: poll writes it, so
 * call that at least once every FW_RING_BEAT_MS; who attaches to a ring whose other-host owner went
 * away without detaching watches it for FW_RING_SILENCE_MS first. Format 1 has no room for that:
 * there something else must see to it, such as a lease.
 *
 * Threads. There are two ways to use a ring, and a ring is used in one of them.
 *   - Blocking: any thread calls the functions below at any time, except attach and detach. What
 *     threads push at the same time shares its flushes.
 *   - Asynchronous: the ring belongs to one thread, or one locality's turn, which fills in a struct
 *     fw_ring_op and calls fw_ring_start(). Either the answer is the result, at once, and the
 *     call-back never runs, or it is -EINPROGRESS, and `done` runs exactly once, later, out of
 *     fw_ring_reap(), to be called when fw_ring_fd() is readable. Operations are done in the order
 *     they were started; pushes that wait together become one batch.
 *
 * Why one queue of operations and no finer locks: the promise about suspending is broken by
 * exactly the code that checks for a suspend and publishes in two steps. Here checking,
 * acknowledging and publishing are one operation of one actor.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/types.h>

struct fw_ring;

enum {
    FW_RING_REASON_SIZE = 512,
    FW_RING_NAME_MAX = 128,          /* Bytes of the names of queue and client. */
    FW_RING_MESSAGE_MAX = 256 << 20, /* Also where the ring is larger. */
    FW_RING_MESSAGES_MAX = 1 << 16,  /* Of one push. */
    FW_RING_BEAT_MS = 1000,          /* Format 2: how often an owner shows that it lives. */
    FW_RING_SILENCE_MS = 5000,       /* ...and how long it must be silent to be dead. */
};

struct fw_ring_reason {
    char text[FW_RING_REASON_SIZE]; /* One line for a person. */
};

enum fw_ring_outcome {
    FW_RING_RETRY = 1, /* Full, or empty, or the other side has not answered the last request. */
    FW_RING_SUSPENDED, /* The consumer has suspended the ring. Staged messages are forgotten. */
    FW_RING_RESYNC,    /* The consumer has resumed; with FW_RING_SYNCS a sync is due. */
};

enum fw_ring_role {
    FW_RING_PRODUCER = 1 << 0,
    FW_RING_CONSUMER = 1 << 1,
    FW_RING_BOTH = FW_RING_PRODUCER | FW_RING_CONSUMER, /* A journal. */
};

enum fw_ring_flag {
    /*
     * Of a producer: a resume is answered only by FW_RING_SYNC, which clears the acknowledgement in
     * the very write that publishes the messages, so that no crash can lose the sync. Push and poll
     * answer FW_RING_RESYNC until then, also when the resume was found on attaching.
     */
    FW_RING_SYNCS = 1 << 0,
    /* Through the page cache. Not for two hosts: they would not see each other's writes. */
    FW_RING_BUFFERED = 1 << 1,
    /*
     * Durable by writes that are so in themselves (forced unit access), not by a flush behind plain
     * writes. As many waits for the disk with half as many commands; but not on every disk faster,
     * and on a busy machine much slower: `bench/run ring-durable` tells.
     */
    FW_RING_FUA = 1 << 2,
    /*
     * Something else, such as a lease, has seen to it that nobody else is attached in this role: an
     * owner on another host that has not detached is not watched, but taken for dead.
     */
    FW_RING_ALONE = 1 << 3,
};

struct fw_ring_options {
    const char *path; /* A block device or a file. */
    enum fw_ring_role role;
    unsigned flags;
    const char *queue; /* Names for people who look at the disk; NULL: "unknown". */
    const char *client;
    /*
     * Of format 1: 512 or 4096; 0: what the ring has that is there, or else the device's own, which
     * for a file is 512.
     */
    uint32_t sector_size;
};

struct fw_ring_create {
    const char *path;
    int format;           /* 1 or 2. */
    uint64_t size;        /* If not 0: a file is made, or extended to this if it may be. */
    uint32_t sector_size; /* As above. */
    bool replace;         /* Also where there is a ring of another format already. */
    bool force;           /* Also over whatever else is there, which is lost. */
};

/*
 * Makes an empty ring. Where there is one of this format already, nothing happens, but that a
 * shorter file is extended: an empty ring of format 1 grows with it, one of format 2 keeps its own
 * size. Blocks. Returns 0, -EEXIST if there is one of the other format or one of format 1 that
 * would have to grow and holds messages, or anything else that would be lost: a block device with a
 * known signature, a file with other content. -EINVAL if the disk is too small; -EBUSY if somebody
 * is attached to what would be replaced or grow, or the device is mounted or held by a driver,
 * which no flag changes. Where it is refused the disk is as it was.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_create(const struct fw_ring_create *create,
                                               struct fw_ring_reason *reason);

/*
 * Attaches. Blocks, for FW_RING_SILENCE_MS if another host's owner has to be watched. A producer
 * acknowledges a suspend or resume that is pending, except a resume with FW_RING_SYNCS.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_attach(struct fw_ring **ring,
                                               const struct fw_ring_options *options,
                                               struct fw_ring_reason *reason);

/* No operation may be under way. Messages that were staged and not published are forgotten. */
FW_PUBLIC void fw_ring_detach(struct fw_ring *ring);

struct fw_ring_message {
    const void *data; /* May be NULL if length is 0. */
    size_t length;
};

struct fw_ring_state {
    int format;
    uint32_t sector_size;
    uint64_t capacity;    /* Bytes, headers and padding included. */
    uint64_t message_max; /* The longest message. */
    uint64_t producer;    /* Positions; they only grow. */
    uint64_t consumer;
    bool suspend_requested;
    bool suspend_acknowledged;
    bool direct; /* Around the page cache. */
};

/* What was known after the last operation; poll looks anew. Any thread. */
FW_PUBLIC void fw_ring_state(struct fw_ring *ring, struct fw_ring_state *state);

/* ---- the blocking forms ---- */

/* Appends one message and publishes it, durably. */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_push(struct fw_ring *ring, const void *data, size_t length,
                                             struct fw_ring_reason *reason);

/* Several: they are published all together or not at all, with the flushes of one. */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_push_batch(struct fw_ring *ring,
                                                   const struct fw_ring_message *messages,
                                                   uint32_t count, struct fw_ring_reason *reason);

/*
 * The two steps of a push apart. stage() writes, publish() publishes all that was staged, drop()
 * forgets it. publish() looks for a suspend again, and then answers SUSPENDED and has forgotten it
 * too.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_stage(struct fw_ring *ring, const void *data, size_t length,
                                              struct fw_ring_reason *reason);
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_publish(struct fw_ring *ring,
                                                struct fw_ring_reason *reason);
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_drop(struct fw_ring *ring, struct fw_ring_reason *reason);

/*
 * Answers a resume with these messages, of which there may be none: one write publishes them all
 * and clears the acknowledgement. -EALREADY: no resume is pending.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_sync(struct fw_ring *ring,
                                             const struct fw_ring_message *messages, uint32_t count,
                                             struct fw_ring_reason *reason);

/*
 * The next message; `position` is where it ends, for advance(). The data is lent until the next
 * pop, so only one thread pops. RETRY: there is none.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_pop(struct fw_ring *ring, struct fw_ring_message *message,
                                            uint64_t *position, struct fw_ring_reason *reason);

/* Gives all messages before `position`, which was a pop's, back to the producer, durably. */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_advance(struct fw_ring *ring, uint64_t position,
                                                struct fw_ring_reason *reason);

/*
 * Asks the producer to stop, or to go on. 0 means asked; the state tells when it has answered.
 * RETRY: it has not answered the last request.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_suspend(struct fw_ring *ring,
                                                struct fw_ring_reason *reason);
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_resume(struct fw_ring *ring, struct fw_ring_reason *reason);

/*
 * Looks at the other side, and shows that this one lives. A producer that has nothing to push calls
 * it every now and then to acknowledge what the consumer asks for; it answers SUSPENDED and RESYNC
 * as a push does.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_poll(struct fw_ring *ring, struct fw_ring_reason *reason);

/* ---- the asynchronous form ---- */

enum fw_ring_kind {
    FW_RING_PUSH,
    FW_RING_STAGE,
    FW_RING_PUBLISH,
    FW_RING_DROP,
    FW_RING_SYNC,
    FW_RING_POP,
    FW_RING_ADVANCE,
    FW_RING_SUSPEND,
    FW_RING_RESUME,
    FW_RING_POLL,
};

struct fw_ring_op {
    /* The caller's to fill in. Messages stay in place until the operation is done. */
    enum fw_ring_kind kind;
    const struct fw_ring_message *messages; /* Push, stage, sync. */
    uint32_t count;
    uint64_t position; /* Advance: to where. Push, stage, sync, pop: where it ended. */
    void (*done)(struct fw_ring_op *op);
    struct fw_ring_reason *reason; /* May be NULL. */

    /* The ring's to fill in. */
    int result;
    struct fw_ring_message message; /* Pop: lent until the next pop. */

    /* Private to the ring. */
    struct fw_list_link link;
    uint64_t size;
    void *waiter;
};

/* The essay says all about it. */
FW_PUBLIC FW_API_MUST_CHECK int fw_ring_start(struct fw_ring *ring, struct fw_ring_op *op);

/* Runs the call-backs of what has finished and returns how many. Never waits. */
FW_PUBLIC int fw_ring_reap(struct fw_ring *ring);

/* Readable while fw_ring_reap() has something to do. */
FW_PUBLIC int fw_ring_fd(const struct fw_ring *ring);
