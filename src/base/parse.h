/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers, sizes, durations and booleans from text, strictly: the whole text is the value, or it is
 * an error.
 *
 * strtol() and its kin skip spaces, take "+5", let strtoul("-1") be a very large number, stop in
 * silence at the first strange character and report overflow through errno. Each of these was a bug
 * in some server. Here there are no leading spaces, no plus sign, no minus for what is unsigned, no
 * rest, and overflow is told apart from nonsense. The text is a pointer and a length, so that it
 * can stand in the middle of a line or a network buffer; it needs no final zero.
 *
 * All functions answer 0, -EINVAL if the text is not of the form, or -ERANGE if it is but lies
 * outside the limits. `*value` changes only with 0. They touch nothing else: any thread may call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Decimal digits; leading zeros do not mean octal. */
FW_MUST_CHECK int fw_parse_uint(const char *text, size_t length, uint64_t min, uint64_t max,
                                uint64_t *value);

/* The same with an optional minus sign. */
FW_MUST_CHECK int fw_parse_int(const char *text, size_t length, int64_t min, int64_t max,
                               int64_t *value);

/* Octal digits, as in the mode of a file. */
FW_MUST_CHECK int fw_parse_octal(const char *text, size_t length, uint64_t max, uint64_t *value);

/*
 * A number of bytes: digits and perhaps a suffix, such as 500k, 64m, 2GiB. A bare number counts in
 * `unit` bytes, because memcached's -m means MiB and its -I bytes. The suffixes are b, k, m, g and
 * t in either case, the last four perhaps with "b" or "ib" behind, and all of them are powers of
 * 1024: who writes "64kb" about memory means 65536, and nobody is served by a cache that differs by
 * 2 %.
 */
FW_MUST_CHECK int fw_parse_size(const char *text, size_t length, uint64_t unit, uint64_t *value);

/* The bytes that a suffix of fw_parse_size() stands for. */
FW_MUST_CHECK int fw_parse_size_unit(const char *text, size_t length, uint64_t *unit);

/*
 * A duration in nanoseconds: digits and perhaps one of ns, us, ms, s, m, h and d. A bare number
 * counts in `unit_ns`. Durations are signed like all times, but none parsed here is negative.
 */
FW_MUST_CHECK int fw_parse_duration(const char *text, size_t length, int64_t unit_ns,
                                    int64_t *value);

/* The nanoseconds that a suffix of fw_parse_duration() stands for. */
FW_MUST_CHECK int fw_parse_duration_unit(const char *text, size_t length, int64_t *unit_ns);

/* yes, true, on, 1 or no, false, off, 0, in either case. Never -ERANGE. */
FW_MUST_CHECK int fw_parse_bool(const char *text, size_t length, bool *value);
