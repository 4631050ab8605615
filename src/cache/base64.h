/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 for keys of the meta protocol (flag b), with the standard alphabet.
 *
 * Decoding is as lenient as memcached's, since a client that gets by there must get by here: bytes
 * outside of the alphabet are passed over; what counts is that the others, '=' among them, are a
 * multiple of four, and that no group of four has more than two '='. The first group with one ends
 * the text. Bits that a '=' leaves over are dropped, so several texts may mean the same key; what
 * is shown is always the key encoded anew.
 *
 * Both are pure functions: any thread, no allocation.
 */
#pragma once

#include <stddef.h>

/* How long `length` bytes become. */
static inline size_t fw_base64_size(size_t length)
{
    return (length + 2) / 3 * 4;
}

/*
 * Writes what `text` stands for to `bytes`, which has room for 3 bytes per 4 characters. Returns
 * how many, or 0 if the text is not base64. The two must not overlap.
 */
size_t fw_base64_decode(const char *text, size_t length, char *bytes);

/* Writes fw_base64_size() characters, no zero at the end, and returns their end. */
char *fw_base64_encode(const char *bytes, size_t length, char *text);
