/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of counters, as yrmcds documents it: packets with a header of 12 bytes, numbers
 * with the highest byte first.
 *
 *     0 magic   1 opcode   2 flags, in replies the status   3 reserved
 *     4 length of the body                8 opaque, which replies repeat
 *
 *     opcode         body of the request                    of the reply
 *     0x00 Noop
 *     0x01 Get       length 2, name                         consumption 4
 *     0x02 Acquire   count 4, total 4, length 2, name       count 4
 *     0x03 Release   count 4, length 2, name
 *     0x10 Stats                                            for each: lengths 2 and 2, name, value
 *     0x11 Dump                                             for each counter a reply: consumption
 *                                                           4, peak 4, length 2, name; an empty one
 *
 * What a reply of an error has in its body is for people. Flags and the reserved byte are ignored.
 * There is no login. A connection that sends something else than a request is closed; a request
 * that is too long is refused and swallowed, however long it is.
 *
 * Here is only what others need; sessions get to it through cache/parser.h.
 */
#pragma once

#include <stddef.h>

#include "base/text.h"

enum {
    FW_COUNTER_HEADER = 12,
    FW_COUNTER_REQUEST = 0x90,
    FW_COUNTER_REPLY = 0x91,
};

/* For the log: the opcode of the request, and the status of the answer, that begin there. */
void fw_counter_show_request(struct fw_text *text, const char *bytes, size_t size);
void fw_counter_show_answer(struct fw_text *text, const char *bytes, size_t size);
