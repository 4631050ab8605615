/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/cmls.h"

#include <errno.h>

/* The shares of the lanes 0 to 2; returns their sum. */
static uint32_t cmls_shares(uint32_t shares[3], uint32_t count, const uint32_t percent[3])
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < 3; l++) {
        shares[l] = (uint32_t)((uint64_t)count * percent[l] / 100);
        if (shares[l] == 0 && percent[l] > 0) {
            shares[l] = 1;
        }
        sum += shares[l];
    }
    return sum;
}

static void cmls_sum(struct fw_cmls *cmls, uint32_t count, const uint32_t shares[3])
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < 3; l++) {
        sum += shares[l];
        cmls->sums[l] = sum;
    }
    FW_ASSERT(sum < count);
    cmls->sums[3] = count;
}

static void cmls_off(struct fw_cmls *cmls, uint32_t count)
{
    for (uint32_t k = 0; k < FW_CMLS_LANES; k++) {
        cmls->sums[k] = count;
    }
}

int fw_cmls_init(struct fw_cmls *cmls, uint32_t count, const uint32_t percent[3], bool lanes_on)
{
    if (!lanes_on) {
        cmls_off(cmls, count);
        return count > 0 ? 0 : -EINVAL;
    }
    uint32_t shares[3];
    if (cmls_shares(shares, count, percent) >= count) {
        return -EINVAL;
    }
    cmls_sum(cmls, count, shares);
    return 0;
}

void fw_cmls_fit(struct fw_cmls *cmls, uint32_t count, const uint32_t percent[3], bool lanes_on)
{
    FW_ASSERT(count >= fw_cmls_least(percent, lanes_on));
    if (!lanes_on) {
        cmls_off(cmls, count);
        return;
    }
    uint32_t shares[3];
    uint32_t sum = cmls_shares(shares, count, percent);
    for (; sum >= count; sum--) {
        uint32_t largest = 0;
        for (uint32_t l = 1; l < 3; l++) {
            if (shares[l] > shares[largest]) {
                largest = l;
            }
        }
        FW_ASSERT(shares[largest] > 1);
        shares[largest]--;
    }
    cmls_sum(cmls, count, shares);
}

uint32_t fw_cmls_least(const uint32_t percent[3], bool lanes_on)
{
    uint32_t least = 1;
    for (uint32_t l = 0; lanes_on && l < 3; l++) {
        least += percent[l] > 0 ? 1 : 0;
    }
    return least;
}

uint64_t fw_cmls_pack(const struct fw_cmls *cmls)
{
    uint64_t word = 0;
    for (uint32_t k = 0; k < FW_CMLS_LANES; k++) {
        FW_ASSERT(cmls->sums[k] <= FW_CMLS_FIELD_MAX);
        word += cmls->sums[k] * fw_cmls_unit(k);
    }
    return word;
}
