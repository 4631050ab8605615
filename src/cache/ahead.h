/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking ahead. Who sends many commands at once lets us see which keys they are about before their
 * turn comes. The buckets of all of them are fetched into the caches together, and then their
 * items, so that the waits for memory overlap instead of adding up: a pipeline of 16 takes a third
 * of the time.
 *
 *     if (something is behind the command at input->next) {
 *         fw_look_ahead(local, input, sight_take);
 *     }
 *
 * Nothing is decided here. A protocol's look is quick and sees just the usual forms: a command that
 * looks odd ends it, one that is mistaken for another has memory fetched that nobody wants, and
 * each is parsed when its turn comes, as if nobody had looked. (Plain gets are not looked for: they
 * are parsed and answered several at a time, see text_get.c.)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cache/parser.h"

/* What is seen of a command. */
struct fw_sight {
    const char *key;
    size_t key_length; /* Any; one that cannot be ends the look. */
    const char *end;   /* Where the next command begins, at most the input's end. */
};

/* Looks at the command at `at`, before `end`. False: it is odd, or has not all come. */
typedef bool fw_sight_take(struct fw_sight *sight, const char *at, const char *end);

/* Looks from input->next on, and fetches, if there are several. */
void fw_fetch_ahead(const struct fw_cache_local *local, struct fw_input *input,
                    fw_sight_take *take);

/* The same, unless that was looked at before. */
static inline void fw_look_ahead(const struct fw_cache_local *local, struct fw_input *input,
                                 fw_sight_take *take)
{
    if (input->next >= input->fetched) {
        fw_fetch_ahead(local, input, take);
    }
}
