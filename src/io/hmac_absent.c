/* SPDX-License-Identifier: Apache-2.0 */
/* Of a build without libgcrypt. */
#include <errno.h>

#include "io/hmac.h"

int fw_hmac(const void *key, size_t key_size, const void *bytes, size_t size,
            char mac[static FW_HMAC_SIZE])
{
    (void)key, (void)key_size, (void)bytes, (void)size, (void)mac;
    return -EOPNOTSUPP;
}

bool fw_hmac_is_equal(const char mac[static FW_HMAC_SIZE], const char other[static FW_HMAC_SIZE])
{
    (void)mac, (void)other;
    return false;
}
