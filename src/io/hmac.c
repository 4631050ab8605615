/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hmac.h"

#include <errno.h>
#include <gcrypt.h>
#include <stdint.h>

#include "io/library.h"

static struct fw_library gcrypt = {.name = "libgcrypt.so.20"};

FW_LIBRARY_CALL(&gcrypt, const char *, gcry_check_version, (const char *version), (version), NULL)
FW_LIBRARY_CALL(&gcrypt, gcry_error_t, gcry_md_hash_buffers,
                (int algorithm, unsigned int flags, void *digest, const gcry_buffer_t *buffers,
                 int count),
                (algorithm, flags, digest, buffers, count), GPG_ERR_NOT_IMPLEMENTED)

typedef gcry_error_t control(enum gcry_ctl_cmds command, ...);

/* The library wants to be told that it is in use; to say it again does no harm. */
static bool gcrypt_begin(void)
{
    control *tell = (control *)fw_library_find(&gcrypt, "gcry_control");
    if (tell == NULL || gcry_check_version("1.8.0") == NULL) {
        return false;
    }
    if (tell(GCRYCTL_INITIALIZATION_FINISHED_P) == 0) {
        (void)tell(GCRYCTL_DISABLE_SECMEM, 0);
        (void)tell(GCRYCTL_INITIALIZATION_FINISHED, 0);
    }
    return true;
}

int fw_hmac(const void *key, size_t key_size, const void *bytes, size_t size,
            char mac[static FW_HMAC_SIZE])
{
    const gcry_buffer_t buffers[] = {
        {.data = (void *)(uintptr_t)key, .len = key_size},
        {.data = (void *)(uintptr_t)bytes, .len = size},
    };
    bool is_made = gcrypt_begin() &&
                   gcry_md_hash_buffers(GCRY_MD_SHA256, GCRY_MD_FLAG_HMAC, mac, buffers, 2) == 0;
    return is_made ? 0 : -ENOSYS;
}

bool fw_hmac_is_equal(const char mac[static FW_HMAC_SIZE], const char other[static FW_HMAC_SIZE])
{
    unsigned different = 0;
    for (size_t i = 0; i < FW_HMAC_SIZE; i++) {
        different |= (unsigned char)mac[i] ^ (unsigned char)other[i];
    }
    return different == 0;
}
