/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as memcached reads them in commands and in values that are counted up.
 *
 * base/parse.h is strict; this is what a drop-in has to be. Space (of any kind) before the number
 * and a sign are taken; behind the number may stand nothing, or a space and then anything; and what
 * does not fit into the 32 bits that are wanted loses its upper bits, unless it is beyond 64 bits
 * too. An unsigned number may have a minus if the result is below 2^63: "-0" is 0. Clients are
 * seen to rely on some of that: a value that was counted down has spaces behind it.
 *
 * All answer false if the text is no such number, and `*value` is as it was. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

FW_MUST_CHECK bool fw_number_u64(const char *text, size_t length, uint64_t *value);
FW_MUST_CHECK bool fw_number_u32(const char *text, size_t length, uint32_t *value);
FW_MUST_CHECK bool fw_number_i64(const char *text, size_t length, int64_t *value);
FW_MUST_CHECK bool fw_number_i32(const char *text, size_t length, int32_t *value);
