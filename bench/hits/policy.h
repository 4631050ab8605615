/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eviction policies from the literature, simulated: what a server's hit ratio is compared with.
 *
 *     LRU       the object that was not asked for the longest goes
 *     S3-FIFO   three queues: a small one for what is new, a main one for what was asked for again
 *               there, and the numbers of those that went (Yang and others, SOSP 2023)
 *     SIEVE     one queue and a hand that spares what was asked for since it last came by (Zhang
 *               and others, NSDI 2024)
 *
 * All count bytes. An object that has expired is a miss when it is asked for and takes room until
 * it is evicted, as none of the three knows of time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fw_policy;

enum fw_policy_kind { FW_POLICY_LRU, FW_POLICY_S3FIFO, FW_POLICY_SIEVE, FW_POLICY_KINDS };
extern const char *const fw_policy_names[FW_POLICY_KINDS];

struct fw_policy *fw_policy_create(enum fw_policy_kind kind, uint64_t capacity, size_t objects);
void fw_policy_destroy(struct fw_policy *policy);

/*
 * An object is asked for at a second; true: a hit. After a miss it is stored, with its size, until
 * the second `expires` (0: for ever).
 */
bool fw_policy_access(struct fw_policy *policy, uint32_t object, uint32_t size, uint32_t now,
                      uint32_t expires);
