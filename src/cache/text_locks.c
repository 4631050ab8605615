/* SPDX-License-Identifier: Apache-2.0 */
/* yrmcds' extensions of the text protocol: locks on items. Its list of keys is in text_dump.c. */
#include "cache/locks.h"
#include "cache/table.h"
#include "cache/text.h"

enum fw_parsed fw_command_lock(struct fw_text_line *line)
{
    struct fw_cache_local *local = line->local;
    struct fw_key key;
    if (!fw_text_key_word(line, 1, &key)) {
        return FW_PARSED;
    }
    struct fw_lock *spare = fw_lock_create(local->cache->locks, &key);
    if (spare == NULL) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR out of memory");
        return FW_PARSED;
    }
    struct fw_hold hold;
    fw_operation_find(local, &hold, &key);
    enum fw_lock_answer answer =
        fw_locks_acquire(local->cache->locks, &hold, line->session->client, &spare);
    fw_hold_release(&hold);
    fw_lock_destroy(spare);
    switch (answer) {
    case FW_LOCK_TAKEN:
        line->session->has_locks = true;
        FW_TEXT_ANSWER(line, "OK");
        break;
    case FW_LOCK_OF_ANOTHER:
        FW_TEXT_ANSWER(line, "LOCKED");
        break;
    case FW_LOCK_TOO_MANY:
        FW_TEXT_ANSWER(line, "SERVER_ERROR too many locks");
        break;
    case FW_LOCK_NO_ITEM:
        FW_TEXT_ANSWER(line, "NOT_FOUND");
        break;
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_unlock(struct fw_text_line *line)
{
    struct fw_cache_local *local = line->local;
    struct fw_key key;
    if (!fw_text_key_word(line, 1, &key)) {
        return FW_PARSED;
    }
    struct fw_hold hold;
    fw_table_hold(local->table, &hold, &key);
    bool was_owner = fw_locks_release(local->cache->locks, &hold, line->session->client);
    fw_hold_release(&hold);
    if (was_owner) {
        FW_TEXT_ANSWER(line, "OK");
    } else {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR not locked");
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_unlock_all(struct fw_text_line *line)
{
    fw_session_unlock_all(line->session, line->local);
    FW_TEXT_ANSWER(line, "OK");
    return FW_PARSED;
}
