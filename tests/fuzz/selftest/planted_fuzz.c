/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target with a bug in it, so that the fuzzers can be seen to find one: a message "FW", a length
 * and as many bytes, whose length is believed once the mark and a version are right. Random bytes
 * get there once in four thousand million tries; who looks at coverage gets there byte by byte.
 *
 * No part of the normal run of tools/fuzz. tests/tools/test_fuzz.py runs it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VERSION = 7, HEADER_SIZE = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER_SIZE || data[0] != 'F' || data[1] != 'W' || data[2] != VERSION) {
        return 0;
    }
    size_t length = data[3];
    if (HEADER_SIZE + length > size) {
        abort(); /* Planted: it should have been refused. */
    }
    return 0;
}
