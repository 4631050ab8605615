/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/secret.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/file.h"
#include "io/random.h"

int fw_repl_secret_read(struct fw_repl_secret *secret, const char *path, struct fw_reason *reason)
{
    char *contents;
    size_t size;
    char mac[FW_HMAC_SIZE];
    int rc = fw_file_read_secret(path, FW_REPL_SECRET_MAX + 1, &contents, &size, reason);
    if (rc != 0) {
        return rc;
    }
    size -= size > 0 && contents[size - 1] == '\n';
    if (size < FW_REPL_SECRET_MIN || size > FW_REPL_SECRET_MAX) {
        rc = fw_reason_set(reason, -EINVAL, "'%s': a secret has %d to %d bytes", path,
                           FW_REPL_SECRET_MIN, FW_REPL_SECRET_MAX);
    } else if ((rc = fw_hmac(contents, size, "", 0, mac)) != 0) {
        (void)fw_reason_set(reason, rc, "cannot use the secret in '%.200s': %s", path,
                            rc == -EOPNOTSUPP ? FW_REASON_ABSENT("libgcrypt", "secrets")
                                              : "libgcrypt is not installed");
    } else {
        memcpy(secret->bytes, contents, size);
        secret->length = size;
    }
    explicit_bzero(contents, size);
    free(contents);
    return rc;
}

int fw_repl_nonce(char nonce[static FW_REPL_NONCE])
{
    uint64_t halves[2];
    int rc = fw_random_seed(&halves[0]);
    if (rc == 0) {
        rc = fw_random_seed(&halves[1]);
    }
    static_assert(sizeof halves == FW_REPL_NONCE, "it is all of it");
    memcpy(nonce, halves, sizeof halves);
    return rc;
}

int fw_repl_prove(const struct fw_repl_secret *secret, enum fw_repl_prover prover,
                  const char master[static FW_REPL_NONCE], const char slave[static FW_REPL_NONCE],
                  char mac[static FW_HMAC_SIZE])
{
    static const char labels[][16] = {
        [FW_REPL_SLAVE_PROVES] = "fairway slave", [FW_REPL_MASTER_PROVES] = "fairway master"};
    char text[sizeof labels[0] + FW_REPL_NONCE + FW_REPL_NONCE];
    memcpy(text, labels[prover], sizeof labels[0]);
    memcpy(text + sizeof labels[0], master, FW_REPL_NONCE);
    memcpy(text + sizeof labels[0] + FW_REPL_NONCE, slave, FW_REPL_NONCE);
    return fw_hmac(secret->bytes, secret->length, text, sizeof text, mac);
}

bool fw_repl_is_proven(const struct fw_repl_secret *secret, enum fw_repl_prover prover,
                       const char master[static FW_REPL_NONCE],
                       const char slave[static FW_REPL_NONCE], const char mac[static FW_HMAC_SIZE])
{
    char right[FW_HMAC_SIZE];
    return fw_repl_prove(secret, prover, master, slave, right) == 0 && fw_hmac_is_equal(right, mac);
}
