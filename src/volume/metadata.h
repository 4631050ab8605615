/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns which extent, in memory: the same struct for the manager, whose truth it is; for an
 * agent, which reads a volume's map from it; and for whoever checks. No I/O.
 *
 * It changes in one way only: by changes (message.h), which the manager writes to its redo log. A
 * snapshot is a list of changes that make it from nothing. So there is one piece of code that says
 * what a change does, whether it comes from a decision made now, from the log or from a snapshot.
 *
 *     host's message ──receive()──► changes ──apply()──► metadata
 *                                      └──► the redo log, before anyone hears of it
 *
 * receive() is what makes messages harmless that come twice or too late: it looks at each extent of
 * the message and lets through what is true now. An extent that a host places where it cannot be
 * (no such volume, beyond its end, another one there already) is *set aside*: it stays out of use,
 * with a line in the log, for it may hold data that somebody misses.
 *
 * Belongs to one thread.
 */
#pragma once

#include "volume/message.h"

enum fw_volume_state {
    FW_VOLUME_IS_FREE,
    FW_VOLUME_IS_HOSTS,    /* `index` is the host. */
    FW_VOLUME_IS_PLACED,   /* `index` is the volume, at `logical`. */
    FW_VOLUME_IS_SET_ASIDE /* `index` is the host that placed it. */
};

static const uint32_t FW_VOLUME_NONE = UINT32_MAX;

struct fw_volume_extent {
    uint64_t generation; /* Of its last grant. */
    uint32_t logical;
    uint32_t index;
    uint32_t next; /* In a chain of the places. */
    uint8_t state; /* enum fw_volume_state */
};

struct fw_volume_entry {
    bool is_used;
    char name[FW_VOLUME_NAME_MAX + 1];
    struct fw_volume_uuid uuid;
    uint64_t size;   /* Logical extents. */
    uint64_t placed; /* Of those the ones that are no holes. */
    uint64_t users;  /* A bit for each host that has it open. */
};

struct fw_volume_host {
    bool is_used;
    char name[FW_VOLUME_NAME_MAX + 1];
    uint64_t pool;      /* Extents that are the host's. */
    uint64_t set_aside; /* Extents that it placed wrongly. */
    uint64_t leaving;   /* The number of the order to leave that it has not answered; 0: none. */
    bool has_left;      /* Its answer is in its ring: it writes no more. Never in a snapshot. */
};

struct fw_volume_metadata {
    uint64_t extent_count;
    uint64_t free_count;
    uint64_t number;     /* Of the last change. */
    uint64_t generation; /* Of the last grant. */
    uint64_t command;    /* Of an operator, that was done last; 0: none. */
    uint64_t cursor;     /* Where to look for free extents next. */
    struct fw_volume_extent *extents;
    uint32_t *places; /* Heads of chains of extents, by volume and logical extent. */
    uint32_t places_mask;
    struct fw_volume_entry *volumes; /* The index is the volume's number. */
    uint32_t volumes_end;            /* None from here on has ever been used... */
    uint32_t volumes_room;           /* ... though there is memory for these. */
    struct fw_volume_host hosts[FW_VOLUME_HOSTS_MAX];
};

/* Takes a change that was made or applied, to be logged. Not 0: stop, with that error. */
struct fw_volume_sink {
    int (*take)(void *context, const struct fw_volume_message *change);
    void *context;
};

/* All extents are free. Returns 0, -EINVAL or -ENOMEM. */
FW_MUST_CHECK int fw_volume_metadata_init(struct fw_volume_metadata *metadata,
                                          uint64_t extent_count);
void fw_volume_metadata_fini(struct fw_volume_metadata *metadata);

/*
 * Makes the change. One whose number is not above ours has been made already and is skipped; 0 is
 * for snapshots. -EBADMSG: it cannot be; then part of it may have been made.
 */
FW_MUST_CHECK int fw_volume_metadata_apply(struct fw_volume_metadata *metadata,
                                           const struct fw_volume_message *change,
                                           struct fw_reason *reason);

/* Numbers the change, applies it, which must be possible, and gives it to the sink. */
FW_MUST_CHECK int fw_volume_metadata_change(struct fw_volume_metadata *metadata,
                                            struct fw_volume_message *change,
                                            const struct fw_volume_sink *sink);

/* What happened to the extents of a message. */
struct fw_volume_receipt {
    uint64_t done;
    uint64_t old;       /* Those that are not as the message says any more. */
    uint64_t set_aside; /* Those that were placed where they cannot be. */
    const char *why;    /* ... the last of them. */
};

/*
 * Takes in a message of the host: makes the changes that it asks for. Returns 0, what the sink
 * said, or -EBADMSG for a message that is none of a host.
 */
FW_MUST_CHECK int fw_volume_metadata_receive(struct fw_volume_metadata *metadata, uint32_t host,
                                             const struct fw_volume_message *message,
                                             const struct fw_volume_sink *sink,
                                             struct fw_volume_receipt *receipt,
                                             struct fw_reason *reason);

/* Gives the sink what makes this metadata from nothing. */
FW_MUST_CHECK int fw_volume_metadata_snapshot(const struct fw_volume_metadata *metadata,
                                              const struct fw_volume_sink *sink);

/*
 * Fills a change that grants up to `count` free extents, with a new generation; its runs may be
 * fewer than that. Returns how many. The change is not made yet.
 */
uint64_t fw_volume_metadata_grant(struct fw_volume_metadata *metadata, uint32_t host,
                                  uint64_t count, struct fw_volume_message *change);

/*
 * Fills `message` with the extents that are the host's and whose generation is above `above`, from
 * extent *cursor on, which moves; at most `runs_max` runs. False: there are no more.
 */
bool fw_volume_metadata_pool(const struct fw_volume_metadata *metadata, uint32_t host,
                             uint64_t above, uint32_t runs_max, uint64_t *cursor,
                             struct fw_volume_message *message);

/* Numbers, or FW_VOLUME_NONE. */
uint32_t fw_volume_metadata_find(const struct fw_volume_metadata *metadata, const char *name);
uint32_t fw_volume_metadata_find_uuid(const struct fw_volume_metadata *metadata,
                                      const struct fw_volume_uuid *uuid);
uint32_t fw_volume_metadata_find_host(const struct fw_volume_metadata *metadata, const char *name);

/* The names of the volumes that the host has open, for people. False: there are none. */
bool fw_volume_metadata_open_on(const struct fw_volume_metadata *metadata, uint32_t host,
                                char *text, size_t size);

/* The extent at this place of the volume, or FW_VOLUME_NONE. */
uint32_t fw_volume_metadata_at(const struct fw_volume_metadata *metadata, uint32_t volume,
                               uint64_t logical);

/*
 * Walks over everything: counts, chains, and that no place has two extents. 0 or -EBADMSG. That no
 * extent has two owners needs no walk: it has one state.
 */
FW_MUST_CHECK int fw_volume_metadata_check(const struct fw_volume_metadata *metadata,
                                           struct fw_reason *reason);
