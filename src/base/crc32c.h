/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and Btrfs: what we write to disks carries it.
 *
 *     uint32_t crc = fw_crc32c(0, header, sizeof header);
 *     crc = fw_crc32c(crc, payload, payload_length);
 *
 * It finds every burst of up to 32 bits and every error of up to 3 single bits (5 in up to 650
 * bytes), which a hash of the same size does not promise, and processors compute it. It is no
 * defence against someone who means harm.
 *
 * Two implementations. The hardware's: SSE4.2 with PCLMULQDQ on x86-64, asked for at run time; the
 * CRC extension on ARMv8, where the build must target it. And tables, eight bytes a step, for all
 * others. In pages of 4 KiB the first does 20 GiB/s and the second 1.5 (Ice Lake at 2.8 GHz, gcc
 * 12).
 *
 * The first call chooses, without a lock: whoever gets there at the same time comes to the
 * same answer and stores the same pointer. A constructor would choose earlier, in every program
 * that links us, whether it needs a checksum or not; GNU's ifunc is not for static libraries on
 * every libc.
 *
 * Any thread may call it. `data` need not be aligned, and may be NULL if `length` is 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of what gave `crc`, followed by these bytes. Start with 0. */
uint32_t fw_crc32c(uint32_t crc, const void *data, size_t length);

/*
 * The two by name, for the test, which compares them, and the benchmark. The hardware's may only be
 * called if fw_crc32c_has_hardware().
 */
uint32_t fw_crc32c_table(uint32_t crc, const void *data, size_t length);
uint32_t fw_crc32c_hardware(uint32_t crc, const void *data, size_t length);
bool fw_crc32c_has_hardware(void);
