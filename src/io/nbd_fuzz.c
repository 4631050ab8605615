/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a server of NBD says is an export with the size that it said, or an error; and
 * whatever the kernel says is an answer, an error, or too little, whatever follows an answer. The
 * first byte of the input says who speaks; the rest is what is said.
 */
#include "io/nbd.h"

#include <errno.h>
#include <linux/nbd-netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/endian.h"

enum { INPUT_MAX = 4096, GREETING_SIZE = 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void server_says(const uint8_t *data, size_t size)
{
    int ends[2];
    uint64_t export_size = 0;
    int rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    FW_ASSERT(rc == 0);
    ssize_t sent = send(ends[1], data, size, 0);
    FW_ASSERT(sent == (ssize_t)size); /* There is room for all of it. */
    rc = shutdown(ends[1], SHUT_WR);
    FW_ASSERT(rc == 0);
    rc = fw_nbd_negotiate(ends[0], "web", &export_size);
    FW_ASSERT(rc <= 0);
    if (rc == 0) {
        FW_ASSERT(size >= GREETING_SIZE + 10 && memcmp(data, "NBDMAGICIHAVEOPT", 16) == 0);
        FW_ASSERT(export_size == fw_be64_get(data + GREETING_SIZE) && export_size <= INT64_MAX);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void kernel_says(const uint8_t *data, size_t size)
{
    uint32_t value = UINT32_MAX;
    uint8_t *exact = malloc(size > 0 ? size : 1); /* ASan knows its end. */
    FW_ASSERT(exact != NULL);
    memcpy(exact, data, size);
    int rc = fw_nbd_answer(exact, size, NBD_ATTR_INDEX, &value, sizeof value);
    FW_ASSERT(rc <= 0 || rc == FW_NBD_MORE);
    if (rc != FW_NBD_MORE) { /* What comes after the end does not matter. */
        uint32_t again = UINT32_MAX;
        uint8_t longer[INPUT_MAX + 64];
        memset(longer, 0xff, sizeof longer);
        memcpy(longer, data, size);
        int other = fw_nbd_answer(longer, sizeof longer, NBD_ATTR_INDEX, &again, sizeof again);
        FW_ASSERT(rc == -EPROTO || (other == rc && again == value));
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        server_says(data + 1, size - 1);
    } else {
        kernel_says(data + 1, size - 1);
    }
    return 0;
}
