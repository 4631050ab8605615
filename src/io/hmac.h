/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HMAC with SHA-256, by which one who knows a secret proves it without telling. libgcrypt computes
 * it; the library is loaded when the first is asked for (io/library.h). Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

enum { FW_HMAC_SIZE = 32 };

/* Returns 0; -ENOSYS: this machine has no libgcrypt; -EOPNOTSUPP: the program was built without. */
FW_MUST_CHECK int fw_hmac(const void *key, size_t key_size, const void *bytes, size_t size,
                          char mac[static FW_HMAC_SIZE]);

/* Takes equally long wherever they differ. Call it with what fw_hmac() has made. */
bool fw_hmac_is_equal(const char mac[static FW_HMAC_SIZE], const char other[static FW_HMAC_SIZE]);
