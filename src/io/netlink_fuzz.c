/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no message crashes the watch for addresses, and what it reports fits together: an address
 * comes before it goes, and comes again only after it went. The first byte of the input says after
 * how many bytes each batch ends; the rest are messages as a kernel would send them.
 */
#include "io/netlink.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { INPUT_MAX = 4096, PRESENT_MAX = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fw_address present[PRESENT_MAX];
static size_t present_count;

static void on_changed(struct fw_netlink *netlink, const struct fw_address *address,
                       bool is_present)
{
    size_t found = 0;
    while (found < present_count && !fw_address_equal(&present[found], address)) {
        found++;
    }
    FW_ASSERT((found == present_count) == is_present);
    FW_ASSERT(fw_netlink_has(netlink, address) == is_present);
    if (is_present) {
        FW_ASSERT(present_count < PRESENT_MAX); /* The input is not long enough for more. */
        present[present_count++] = *address;
    } else {
        present[found] = present[--present_count];
    }
}

static void on_complete(struct fw_netlink *netlink, int result)
{
    (void)netlink;
    FW_ASSERT(result <= 0);
}

static void on_closed(struct fw_netlink *netlink)
{
    FW_ASSERT(netlink->closing);
}

static int hook_open(struct fw_netlink *netlink)
{
    (void)netlink;
    return 0;
}

static int hook_dump(struct fw_netlink *netlink, uint32_t number)
{
    FW_ASSERT(number == netlink->dump);
    return 0;
}

static void hook_close(struct fw_netlink *netlink)
{
    (void)netlink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fw_netlink_hooks hooks = {hook_open, hook_dump, hook_close};
    static const struct fw_netlink_events events = {on_changed, on_complete, on_closed};
    struct fw_netlink netlink;
    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    present_count = 0;
    fw_netlink_hooks = &hooks;
    int rc = fw_netlink_open(&netlink, NULL, &events, NULL);
    FW_ASSERT(rc == 0);
    size_t step = ((size_t)data[0] + 1) * 4;
    for (size_t done = 1; done < size; done += step) {
        size_t part = size - done < step ? size - done : step;
        void *batch = malloc(part); /* Aligned, and ASan knows its end. */
        FW_ASSERT(batch != NULL);
        memcpy(batch, data + done, part);
        fw_netlink_feed(&netlink, batch, part);
        fw_netlink_drained(&netlink);
        free(batch);
    }
    fw_netlink_close(&netlink);
    fw_netlink_closed(&netlink);
    return 0;
}
