/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU time that the process's control group (version 2) may use, as containers and systemd's
 * CPUQuota= set it. A child cannot use more than its parents may, so the smallest quota on the way
 * up counts.
 */
#pragma once

#include <stdint.h>

/*
 * Thousandths of a CPU, rounded up: "50000 100000" in cpu.max is 500. Returns 0 if there is no
 * limit, and also if it cannot be found out, for a wrong guess would be worse than none.
 * `root` is put before every path: "" outside of tests.
 */
uint32_t fw_cgroup_cpu_quota_milli(const char *root);
