/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs: schedulers that go in step, and what they agree on at each step.
 *
 * A scheduler says that it is ready for the next epoch and adds some data of its own. When all who
 * take part have said so, the epoch starts: each is called with the epoch's number and with the
 * data of all, combined to one. So many nodes take one decision without a central server:
 *
 *     fw_epoch_next(epoch, number, data, length, started, argument)
 *         ... the others do the same ...
 *     started(argument, number + 1, combined, length)
 *
 * It follows a public document, "Network Request Scheduler", section 5. What that calls by another
 * name:
 *
 *     document                                 here
 *     --------                                 ----
 *     struct epoch_handler                     struct fw_epoch
 *     eh_next_epoch, lrs_epoch_start_cb        fw_epoch_next(), fw_epoch_started
 *     eh_last_epoch                            fw_epoch_last()
 *     eh_combine, eh_swab, eh_timeout          struct fw_epoch_config
 *     EH_FIRST_EPOCH, EH_EPOCH_ERROR           FW_EPOCH_FIRST, a number below 0
 *
 * Numbers are positive, 64 bits wide, and never wrap; what is negative is an errno. A scheduler
 * that does not know the number, because it is new or was evicted, says FW_EPOCH_FIRST.
 *
 * Data belongs to the handler from next() until the call-back, and may be read and overwritten
 * meanwhile. The combined data may lie in that very buffer; it is valid until the call-back
 * returns. Its length is the smallest of those that took part. FW_EPOCH_DATA_MAX bytes always work.
 *
 * Exactly one call-back follows each next(), from inside that call or later, unless last() cancels
 * it: then none does. A handler that cannot reach its peers says so by a negative number within a
 * bound; the scheduler then goes on by itself, and calls next() with FW_EPOCH_FIRST to come back.
 *
 * A life of a handler lasts from a first next() until the last participant leaves. Numbers go on
 * rising over all lives, and whoever speaks of an epoch that does not run any more is answered
 * -ESTALE: nothing of an earlier life is taken for the present one.
 *
 * Handlers. `local` knows nobody else: next() starts the epoch at once, with the own data, which is
 * what all data of one participant reduces to. It is what a scheduler uses that does not care.
 * Handlers that span a cluster have the same interface.
 *
 * Threads: a handler's calls and call-backs belong to one thread, or one turn, at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>

struct fw_epoch;

enum { FW_EPOCH_FIRST = 0, FW_EPOCH_DATA_MAX = 4096 };

/* What a scheduler gives to its handler. */
struct fw_epoch_config {
    int64_t timeout_ns; /* Of a peer that stays silent while another is ready. */
    /* Both at least as long as the shorter; `combined` may be either. Any order gives the same. */
    void (*combine)(void *combined, const void *a, size_t a_length, const void *b, size_t b_length);
    /* Data of a peer with the other byte order. */
    void (*swab)(void *data, size_t length);
};

typedef void (*fw_epoch_started)(void *argument, int64_t number, void *data, size_t length);

/* One table per kind of handler. */
struct fw_epoch_handler {
    const char *name;
    void (*next)(struct fw_epoch *epoch, int64_t number, void *data, size_t length,
                 fw_epoch_started started, void *argument);
    void (*last)(struct fw_epoch *epoch, int64_t number);
};

/* A scheduler's place among those who go in step. The handler's struct begins with it. */
struct fw_epoch {
    const struct fw_epoch_handler *handler;
    struct fw_epoch_config config;
    int64_t number;     /* Of the epoch that runs; 0: none. */
    int64_t number_max; /* Of all that have ever run. */
};

/*
 * Makes a handler that knows nobody else, in the caller's memory. It has nothing to give back. It
 * never asks for what `config` says of peers, which may be NULL.
 */
FW_PUBLIC void fw_epoch_local_init(struct fw_epoch *epoch, const struct fw_epoch_config *config);

/* Ready for the epoch after `number`, which runs or is FW_EPOCH_FIRST, with so much data. */
static inline void fw_epoch_next(struct fw_epoch *epoch, int64_t number, void *data, size_t length,
                                 fw_epoch_started started, void *argument)
{
    epoch->handler->next(epoch, number, data, length, started, argument);
}

/* Leaves the epoch of that number. A next() that has not been answered will not be. */
static inline void fw_epoch_last(struct fw_epoch *epoch, int64_t number)
{
    epoch->handler->last(epoch, number);
}
