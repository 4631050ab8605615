/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation for the tests of a file, with cmocka's set-up and tear-down: for files whose tests
 * begin with an empty cache and one client. They name setup() and teardown() in their lists, for
 * each test or for all of them.
 */
#pragma once

#include <string.h>

#include "support/converse.h"

static struct converse *converse;

static int setup(void **state)
{
    (void)state;
    converse = converse_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    converse_destroy(converse);
    return 0;
}

/* Says it at once. What is answered is lent until the next call. */
static inline const char *ask(const char *said)
{
    converse_say(converse, said, strlen(said), 0);
    return converse_answer(converse);
}
