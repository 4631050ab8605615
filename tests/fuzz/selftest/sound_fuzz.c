/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same messages as in planted_fuzz.c, read without the bug: shows what a run looks like that
 * finds nothing.
 */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VERSION = 7, HEADER_SIZE = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER_SIZE || data[0] != 'F' || data[1] != 'W' || data[2] != VERSION) {
        return 0;
    }
    uint8_t sum = 0;
    for (size_t i = HEADER_SIZE; i < size && i - HEADER_SIZE < data[3]; i++) {
        sum = (uint8_t)(sum + data[i]);
    }
    return sum == 0 ? 0 : -1; /* -1: not worth keeping. */
}
