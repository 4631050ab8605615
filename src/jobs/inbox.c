/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MIN = FW_CACHE_LINE / sizeof(struct fw_inbox_entry) };

int fw_inbox_init(struct fw_inbox *inbox, uint32_t slots)
{
    uint64_t size = SIZE_MIN;
    while (size < slots) {
        size *= 2;
    }
    *inbox = (struct fw_inbox){.size = size, .key_max = INT64_MIN};
    inbox->entries = aligned_alloc(FW_CACHE_LINE, size * sizeof *inbox->entries);
    if (inbox->entries == NULL) {
        return -ENOMEM;
    }
    memset(inbox->entries, 0, size * sizeof *inbox->entries);
    return 0;
}

void fw_inbox_fini(struct fw_inbox *inbox)
{
    free(inbox->entries);
    inbox->entries = NULL;
}

/* Both lines of a request will be written soon. Any address will do: this is a hint. */
static void inbox_prefetch(const struct fw_inbox *inbox, uint64_t number)
{
    uintptr_t word =
        atomic_load_explicit(&fw_inbox_entry(inbox, number)->word, memory_order_relaxed);
    __builtin_prefetch((const void *)word, 1);                   // NOLINT
    __builtin_prefetch((const void *)(word + FW_CACHE_LINE), 1); // NOLINT
}

bool fw_inbox_is_below(struct fw_inbox *inbox, int64_t key)
{
    while (inbox->key_max <= key) {
        if (fw_inbox_job(inbox, inbox->seen) == NULL) {
            return true;
        }
        int64_t seen_key = fw_inbox_entry(inbox, inbox->seen)->key;
        inbox->key_max = seen_key > inbox->key_max ? seen_key : inbox->key_max;
        inbox->seen++;
    }
    return false;
}

struct fw_job *fw_inbox_take(struct fw_inbox *inbox)
{
    uint64_t head = atomic_load_explicit(&inbox->head, memory_order_relaxed);
    struct fw_job *job = fw_inbox_job(inbox, head);
    if (job == NULL) {
        inbox->key_max = INT64_MIN; /* Nothing is left that was seen. */
        return NULL;
    }
    inbox_prefetch(inbox, head + FW_INBOX_AHEAD);
    atomic_store_explicit(&inbox->head, head + 1, memory_order_relaxed);
    if (inbox->seen == head) {
        inbox->seen = head + 1;
    }
    return job;
}
