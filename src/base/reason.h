/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why something failed, in words for a person: what was tried, with which name, and what the
 * system said. base and io never log; a function of theirs that can fail for reasons a user can act
 * on takes a `struct fw_reason *`, fills it beside its negative errno, and the server says it once.
 *
 * The struct lives on the caller's stack; nothing is allocated, so a reason can be given for
 * -ENOMEM too. A function that succeeds leaves it as it was. NULL is allowed where the caller does
 * not care.
 */
#pragma once

#include "base/base.h"

enum { FW_REASON_SIZE = 512 };

struct fw_reason {
    char text[FW_REASON_SIZE]; /* One line without a full stop at its end; cut if too long. */
};

/* Writes the reason and returns `error` (negative), so that `return fw_reason_set(...)` reads well.
 */
int fw_reason_set(struct fw_reason *reason, int error, const char *format, ...) FW_PRINTF(3, 4);

/* The same, with ": " and the system's text for `error` at the end. */
int fw_reason_errno(struct fw_reason *reason, int error, const char *format, ...) FW_PRINTF(3, 4);

/*
 * Texts for programs that were built without an optional part: the command that adds the part, and
 * the end of a reason that says what is missing. `part` is the name of its Meson option, which is
 * also a group in packaging/packages.
 */
#define FW_REASON_ADD(part) \
    "run 'make packages GROUP=optional/" part " && make' in the source tree of Fairway"
#define FW_REASON_ABSENT(library, part) \
    "this program was built without " library "; to add it, " FW_REASON_ADD(part)
