/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What -vv adds to the log: each command and the beginning of each answer, as memcached shows them.
 *
 *     <7 set key 0 0 5
 *     >7 STORED
 *
 * 7 is the number of the connection. Of a command the first line is shown, and of an answer too:
 * never a value, so no password either (a login's is in its value). Binary requests are shown as
 * the name of their opcode and the key, answers as the text of their status.
 *
 * Threads: those of the session.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <fairway/log.h>

#include "cache/session.h"

FW_LOG_MODULE_USE(cache);

/* The one check that costs anything while nobody wants to see it. */
static inline bool fw_verbose_is_on(void)
{
    return FW_LOG_IS_ON(cache, DEBUG);
}

/* What the session has begun to execute, and `size` bytes that came, from its first on. */
void fw_verbose_command(const struct fw_session *session, const char *bytes, size_t size);

/* What it answered; nothing is shown if that is nothing. */
void fw_verbose_answer(const struct fw_session *session, const char *bytes, size_t size);
