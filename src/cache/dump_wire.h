/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items of dumps on the wire, as a client of a running server sees them: read from what `dump`,
 * `mg` and `lru_crawler metadump` answer, written as `ms`. The other side of text_bulk.c and
 * meta_set.c, and of any memcached since 1.6.
 *
 * Times to live are what servers tell and want, since their clocks may differ from ours; dumps have
 * dates. So `now_s`, our own clock, stands in between.
 *
 * What a server says is looked at as anything from outside: wrong is an answer, never an assertion.
 * No I/O, no memory of its own. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "cache/dump.h"
#include "cache/item.h"

enum {
    /* The longest line before a value, that of a key in base64, and what is behind it. */
    FW_DUMP_LINE_MAX = 1024,
    FW_DUMP_KEY_ENCODED_MAX = (FW_ITEM_KEY_MAX + 2) / 3 * 4,
};

/*
 * Reads "VA LENGTH flags...", a line without its end, with the flags k, b, f, t, c, h, l, X and Z;
 * others are passed over. The item's key is in `key`; its value is what follows the line. False:
 * this is no such line.
 */
FW_MUST_CHECK bool fw_dump_wire_read(const char *line, size_t length, int64_t now_s,
                                     struct fw_dump_item *item, char key[FW_ITEM_KEY_MAX]);

/* Reads a line of metadump, "key=... exp=...", and returns how long the key is; 0: there is none.
 */
size_t fw_dump_wire_read_key(const char *line, size_t length, char key[FW_ITEM_KEY_MAX]);

/* Must a line have it in base64? */
bool fw_dump_wire_is_binary(const char *key, size_t length);

/* Writes "mg KEY k f t c h l v u q" with its end, and returns the end. FW_DUMP_LINE_MAX suffices.
 */
char *fw_dump_wire_put_get(char *to, const char *key, size_t length);

/*
 * Writes "ms KEY LENGTH ... q" with its end, and returns the end; the value and an end of line are
 * to follow. `adds`: only if nothing is there. NULL: the item has expired.
 */
char *fw_dump_wire_put_set(char *to, const struct fw_dump_item *item, int64_t now_s, bool adds);
