/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes as block devices: bytes are read and written, holes are zeros, and extents come and go
 * underneath. What attaches volumes (nbdkit.c) is a thin layer over this.
 *
 * A `thin_host` is the host's agent with a thread that looks after it, so one process of a host has
 * one for a group; a `thin` is a volume in it. There are as many of these as somebody uses: who
 * opens a volume that is open gets the same one, and the last who closes it closes the volume.
 *
 *     write ──► is the place mapped? ──no──► allocate: zero the extent, push PLACE ──► again
 *                 │ yes                        └ pool empty: wait for the manager
 *                 ▼
 *               write to the extent
 *
 * What an extent holds when it gets into a volume is what was there before: somebody else's data.
 * So it is zeroed before, while it is in the host's pool. Then no crash can show it, for the same
 * flush that makes the placement durable has made the zeros durable first. Zeroing it afterwards
 * would leave a moment in which a crash turns zeros that somebody has read into old data. Nobody
 * else may write to extents of a host's pool, so this is as safe as writing to the host's volumes.
 *
 * Discarding. Extents that a discard covers whole are given back, and become another host's. A
 * write that is still under way would then go to its data. So discards wait until no read or write
 * is under way, and hold back new ones; who waits for an extent is not under way.
 *
 * Who writes in order would stop at every extent until it is placed. After some in order the next
 * one is placed meanwhile, by the thread of the host; it is told as a hole until it is written to,
 * and given back when the volume is closed. `bench/run volume-nbd` is what it is for.
 *
 * Leaving. A host leaves the group only when no volume is open (local.h), so nobody notices. But an
 * operator may have said that it is off when it was not. Then its rings are not its own any more;
 * the thread of the host finds that, and from then on all transfers fail with -EIO.
 *
 * Durability is that of a disk: what was written before a flush is there after it. The map needs no
 * flush, for a placement is durable before its extent is written to.
 *
 * Threads: any number, blocking. Each transfer has a disk of its own while it lasts, one of the
 * host's FW_VOLUME_THIN_DISKS; who finds none waits.
 */
#pragma once

#include <fairway/volume.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_VOLUME_THIN_DISKS = 16,
    FW_VOLUME_THINS_MAX = 256, /* Volumes that a host has attached at a time. */
};

struct fw_volume_thin_host;
struct fw_volume_thin;

struct fw_volume_thin_options {
    const char *path;
    const char *host;
    int64_t interval_ns; /* How often the agent looks into its rings; 0: 100 ms. */
    int64_t full_ns;     /* How long a write waits for extents in a full group; 0: 5 s. */
    /* Called once, by the thread that looks after the agent, when the host has left the group. */
    void (*left)(void);
};

/* Opens the agent, and starts the thread that looks after it. Blocks. */
FW_MUST_CHECK int fw_volume_thin_host_open(struct fw_volume_thin_host **host,
                                           const struct fw_volume_thin_options *options,
                                           struct fw_reason *reason);

/*
 * Those who wait for an extent give up with -ESHUTDOWN, now and later. For who is about to close it
 * and waits until no call is under way. Any thread.
 */
void fw_volume_thin_host_stop(struct fw_volume_thin_host *host);

/*
 * No other call may be under way. Closes the volumes that are still open, whoever has opened them,
 * and gives the pool back. nbdkit closes no handles once it has been told to end.
 */
void fw_volume_thin_host_close(struct fw_volume_thin_host *host);

/* As fw_volume_open(). Any thread, as all that follows. */
FW_MUST_CHECK int fw_volume_thin_open(struct fw_volume_thin **thin,
                                      struct fw_volume_thin_host *host, const char *volume,
                                      struct fw_reason *reason);

/* No call of the same user may be under way. */
void fw_volume_thin_close(struct fw_volume_thin *thin);

uint64_t fw_volume_thin_size(const struct fw_volume_thin *thin); /* Bytes. */
uint64_t fw_volume_thin_extent_size(const struct fw_volume_thin *thin);
uint32_t fw_volume_thin_sector_size(const struct fw_volume_thin *thin);

/* The extent, if any, that was placed in advance, because others before it were written in order;
 * else UINT64_MAX. For tests: it is a hole to who asks. */
uint64_t fw_volume_thin_spare(struct fw_volume_thin *thin);

/* Whether the extent with this byte is there, or a hole. */
bool fw_volume_thin_is_placed(struct fw_volume_thin *thin, uint64_t offset);

/*
 * Transfers. The range is inside of the volume. -EIO: the disk's; or this host is known to be out
 * of the group, and its extents may be somebody else's.
 */
FW_MUST_CHECK int fw_volume_thin_read(struct fw_volume_thin *thin, void *into, uint64_t size,
                                      uint64_t offset, struct fw_reason *reason);
FW_MUST_CHECK int fw_volume_thin_write(struct fw_volume_thin *thin, const void *from, uint64_t size,
                                       uint64_t offset, bool durable, struct fw_reason *reason);
FW_MUST_CHECK int fw_volume_thin_flush(struct fw_volume_thin *thin, struct fw_reason *reason);

/* Gives back the extents that are wholly in the range; the rest stays as it is. */
FW_MUST_CHECK int fw_volume_thin_discard(struct fw_volume_thin *thin, uint64_t size,
                                         uint64_t offset, struct fw_reason *reason);

/* Makes zeros of the range: with `may_discard` by holes, where whole extents are in it. */
FW_MUST_CHECK int fw_volume_thin_zero(struct fw_volume_thin *thin, uint64_t size, uint64_t offset,
                                      bool may_discard, struct fw_reason *reason);
