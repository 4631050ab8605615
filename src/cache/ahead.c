/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/ahead.h"

#include "cache/table.h"

enum { AHEAD = 16 }; /* Commands whose items are fetched together. */

static bool sight_is_usual(const struct fw_sight *sight)
{
    return sight->key_length > 0 && sight->key_length <= FW_ITEM_KEY_MAX;
}

void fw_fetch_ahead(const struct fw_cache_local *local, struct fw_input *input, fw_sight_take *take)
{
    struct fw_sight sights[AHEAD];
    struct fw_key keys[AHEAD];
    uint32_t count_max = input->budget < AHEAD ? input->budget : AHEAD;
    uint32_t count = 0;
    const char *at = input->next;
    while (count < count_max && take(&sights[count], at, input->end) &&
           sight_is_usual(&sights[count])) {
        at = sights[count++].end;
    }
    input->fetched = at;
    if (count < 2) {
        return; /* One alone is not worth it. */
    }
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = fw_table_key(local->table, sights[i].key, sights[i].key_length);
        fw_table_prefetch(local->table, &keys[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        fw_table_prefetch_item(local->table, &keys[i]);
    }
}
