/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of dumps: items in a file or a pipe. `fairway dump` and `fairway load` speak it, and
 * the image that a server keeps over a restart is one. docs/bulk.md has the layout, byte by byte.
 *
 *     header | block | block | ... | end
 *
 * Every part has its checksum (CRC-32C), every block its index, and the end says how many items and
 * blocks there were. So a reader notices what was changed, cut off, left out, put in twice or
 * added, and can say at which byte. Whatever it meets in a file is an error with that place and
 * never an assertion; memory grows with what has been read, not with what a length claims.
 *
 * A block is filled by one thread in memory, sealed (that is where the checksum of all its bytes is
 * computed), and then put in order by whoever has the writer. So many threads make one dump: what
 * they do one at a time is a write() of 256 KiB. Reading is the same the other way round: one
 * thread takes blocks out of the file, others check them and go through their items.
 *
 * Times are seconds of the unix clock, so that a dump means the same later and elsewhere.
 *
 * Threads: a block, a writer and a reader belong to one thread at a time each.
 *
 * Why not the text of memcached's protocol, which could be sent as it is: it has no place for
 * checksums or for when an item was last read, and relative times to live would begin anew.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_DUMP_HEADER_SIZE = 40,
    FW_DUMP_BLOCK_HEAD = 28,
    FW_DUMP_ITEM_HEAD = 34,
    FW_DUMP_BLOCK_SIZE = 256 * 1024,             /* Of a block, unless one item is longer. */
    FW_DUMP_VALUE_MAX = 1 << 30,                 /* The largest --max-item-size. */
    FW_DUMP_PAYLOAD_MAX = (1 << 30) + (1 << 16), /* Of one block. */
};

/* fw_dump_item.bits */
enum {
    FW_DUMP_FETCHED = 1, /* Was read since it was stored. */
    FW_DUMP_STALE = 2,   /* Meta protocol: invalidated, but still shown. */
    FW_DUMP_WON = 4,     /* Meta protocol: somebody was told to renew it. */
    FW_DUMP_BINARY = 8,  /* Meta protocol: the key is shown in base64. */
    FW_DUMP_AGE = 48,    /* Two bits: how long it was not read, as the cache ages items. */
    FW_DUMP_AGE_SHIFT = 4,
    FW_DUMP_BITS = 63,
};

struct fw_dump_header {
    int64_t made_s;
    uint64_t number; /* Above every CAS of the server it came from; 0: that is not known. Below
                        FW_ITEM_NUMBER_END. */
};

struct fw_dump_item {
    const char *key; /* 1 to FW_ITEM_KEY_MAX bytes. */
    const char *value;
    uint32_t value_length;
    uint32_t flags;
    int64_t expires_s;  /* 0: never. */
    int64_t accessed_s; /* 0: not known. */
    uint64_t cas;       /* 0: not known. */
    uint8_t key_length;
    uint8_t bits;
};

struct fw_dump_block {
    char *bytes; /* The head, and behind it `length` bytes of items. */
    size_t size; /* Of the memory. */
    size_t length;
    uint32_t items;
    uint32_t checksum;
    uint64_t index;
    uint64_t offset; /* Where it begins in the file. */
};

/* Empty, without memory. fini() gives back what it took. */
void fw_dump_block_init(struct fw_dump_block *block);
void fw_dump_block_fini(struct fw_dump_block *block);

/* Nothing is in it, its memory stays. */
void fw_dump_block_clear(struct fw_dump_block *block);

/* Takes memory for a block of the usual size, if it has none. False: there is none. */
FW_MUST_CHECK bool fw_dump_block_reserve(struct fw_dump_block *block);

/*
 * Appends an item. False: it is not, since the memory does not suffice. A block that was reserved
 * has room for FW_DUMP_BLOCK_SIZE bytes; for a longer item add_large() makes room first, in a block
 * that is empty.
 */
FW_MUST_CHECK bool fw_dump_block_add(struct fw_dump_block *block, const struct fw_dump_item *item);
FW_MUST_CHECK bool fw_dump_block_add_large(struct fw_dump_block *block,
                                           const struct fw_dump_item *item);

/* Computes its checksum. */
void fw_dump_block_seal(struct fw_dump_block *block);

/* Writes all of the bytes; 0 or a negative errno with the reason. */
typedef int fw_dump_write(void *context, const void *bytes, size_t size, struct fw_reason *reason);

struct fw_dump_writer {
    fw_dump_write *write;
    void *context;
    uint64_t index;
    uint64_t items;
    uint64_t bytes;
};

/* Each returns 0 or what `write` returned. A block was sealed and is not empty. */
FW_MUST_CHECK int fw_dump_begin(struct fw_dump_writer *writer, const struct fw_dump_header *header,
                                struct fw_reason *reason);
FW_MUST_CHECK int fw_dump_put(struct fw_dump_writer *writer, struct fw_dump_block *block,
                              struct fw_reason *reason);
FW_MUST_CHECK int fw_dump_end(struct fw_dump_writer *writer, struct fw_reason *reason);

/* As many bytes as are asked for, fewer at the end, or a negative errno with the reason. */
typedef ssize_t fw_dump_read(void *context, void *buffer, size_t size, struct fw_reason *reason);

struct fw_dump_reader {
    fw_dump_read *read;
    void *context;
    uint64_t offset;
    uint64_t index;
    uint64_t items;
    struct fw_dump_header header;
};

/*
 * Reads the header. Returns 0, what `read` returned, or with the reason -EBADMSG if this is no dump
 * or a damaged one, -EPROTONOSUPPORT if it is of another version.
 */
FW_MUST_CHECK int fw_dump_open(struct fw_dump_reader *reader, struct fw_reason *reason);

/*
 * Reads the next block. Returns 1; 0 at the end, and then all of the dump was there; -EBADMSG with
 * the place of the damage; -ENOMEM; or what `read` returned. What is in the block is looked at by
 * check() and next().
 */
FW_MUST_CHECK int fw_dump_next_block(struct fw_dump_reader *reader, struct fw_dump_block *block,
                                     struct fw_reason *reason);

/* 0, or -EBADMSG with the place: its bytes are not those that were written. Before next(). */
FW_MUST_CHECK int fw_dump_check(const struct fw_dump_block *block, struct fw_reason *reason);

/* Where one is among the items of a block; zeroed at first. */
struct fw_dump_cursor {
    size_t position;
    uint32_t count;
};

/* The next item, lent from the block. Returns 1; 0: there are no more; -EBADMSG with the place. */
FW_MUST_CHECK int fw_dump_next_item(const struct fw_dump_block *block,
                                    struct fw_dump_cursor *cursor, struct fw_dump_item *item,
                                    struct fw_reason *reason);
