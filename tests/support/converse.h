/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache with one session on it, and no server: for tests, fuzz targets and benchmarks that talk
 * to it in bytes. What is said arrives in portions of a size that the caller chooses, and what is
 * answered is gathered as one text.
 *
 * It does what a connection does with a session, in the smallest form: it keeps what was not
 * consumed, gives bytes of large values straight to their body, and takes the reply away whenever a
 * run has ended. Values that belong into a file go into one of memory, which can be told to fail.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metrics.h"
#include "cache/cache.h"
#include "cache/large.h"
#include "cache/session.h"

enum { CONVERSE_INPUT_MAX = 2 * FW_SESSION_INPUT_MAX };

struct converse {
    struct fw_metrics registry;
    struct fw_cache cache;
    struct fw_cache_local local;
    struct fw_session session;
    char input[CONVERSE_INPUT_MAX];
    size_t input_length;
    size_t wanted; /* No run makes sense before so many bytes are there. */
    char *replies; /* A string; its bytes may have zeros too. */
    size_t replies_length;
    size_t replies_size;
    struct fw_large large; /* With `file`, or not made. */
    char *file;
    int disk_error;     /* With which windows are refused, */
    uint32_t disk_good; /* once so many more were written. */
    uint64_t runs[6];   /* How many ended in which way, by enum fw_session_end. */
    uint64_t commands;
    uint64_t keys;
    size_t input_most; /* The longest input that was kept. */
    bool is_closed;
    bool is_shut_down; /* By the command. */
    bool may_shut_down;
    unsigned verbosity;
    unsigned resets;
};

/* memcached's settings, and a table of 64 MiB, or of `memory`. Aborts if there is no memory. */
struct converse *converse_create(void);
struct converse *converse_create_large(uint64_t memory);
/* One of 64 MiB that has a file of `space` bytes for values longer than `value_min`. */
struct converse *converse_create_stored(uint32_t value_min, uint64_t space, bool is_evicting);
void converse_destroy(struct converse *converse);

/* The session is closed, and another begins on the same cache. What was answered is dropped. */
void converse_reconnect(struct converse *converse);

/* Says it in portions of `piece` bytes; 0: in portions as large as they may be. */
void converse_say(struct converse *converse, const char *bytes, size_t size, size_t piece);

/* What was answered since the last call, as a string. Lent until the next call. */
const char *converse_answer(struct converse *converse);
