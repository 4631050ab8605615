/* SPDX-License-Identifier: Apache-2.0 */
#include "log/arena.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

static_assert(sizeof(struct fw_log_arena) <= FW_LOG_PAGE, "the header has a page");
static_assert(FW_LOG_RECORD_MAX * 4 <= FW_LOG_RING_SIZE_MIN, "padding must leave room for more");
static_assert(FW_LOG_RECORD_MAX <= UINT16_MAX, "the size of a record has 16 bits");
static_assert(sizeof(struct fw_log_record) == 16, "arguments stay aligned");

int fw_log_cursor_peek(struct fw_log_cursor *cursor, struct fw_log_view *view)
{
    struct fw_log_record record;
    for (;;) {
        if (cursor->at == cursor->end) {
            return 0;
        }
        uint64_t offset = cursor->at & (cursor->size - 1);
        uint64_t full = cursor->end - cursor->at;
        uint64_t room = cursor->size - offset < full ? cursor->size - offset : full;
        if (room < offsetof(struct fw_log_record, lost)) {
            return -EBADMSG;
        }
        memcpy(&record, cursor->data + offset, offsetof(struct fw_log_record, lost));
        if (record.size % 8 != 0 || record.size == 0 || record.size > room) {
            return -EBADMSG;
        }
        if (record.site != FW_LOG_SITE_PADDING) {
            break;
        }
        cursor->at += record.size;
    }
    const unsigned char *at = cursor->data + (cursor->at & (cursor->size - 1));
    size_t before = sizeof record + (cursor->shared ? sizeof view->name : 0);
    if (record.size < before) {
        return -EBADMSG;
    }
    memcpy(&record, at, sizeof record);
    *view = (struct fw_log_view){.site = record.site,
                                 .lost = record.lost,
                                 .ticks = record.ticks,
                                 .packed = at + before,
                                 .packed_size = record.size - before,
                                 .next = cursor->at + record.size};
    if (cursor->shared) {
        memcpy(view->name, at + sizeof record, sizeof view->name - 1);
    }
    return 1;
}

/* FW_LOG_SITE_TEXT: level, module and message, as fw_log_pack() packs "%d%s%s". */
static int text_read(const struct fw_log_view *view, char message[FW_LOG_MESSAGE_MAX + 1],
                     struct fw_log_line *line)
{
    const unsigned char *end = view->packed + view->packed_size;
    const unsigned char *at = view->packed;
    uint64_t words[2]; /* The level, and the length of the module's name. */
    if (view->packed_size < sizeof words) {
        return -EBADMSG;
    }
    memcpy(words, at, sizeof words);
    at += sizeof words;
    if (words[0] > FW_LOG_TRACE || words[1] > FW_LOG_MODULE_NAME_MAX) {
        return -EBADMSG;
    }
    size_t room = ((size_t)words[1] + 8) & ~(size_t)7;
    if ((size_t)(end - at) < room || at[words[1]] != '\0') {
        return -EBADMSG;
    }
    line->level = (enum fw_log_level)words[0];
    line->module = (const char *)at;
    at += room;
    struct fw_log_format format;
    bool parsed = fw_log_format_parse(&format, "%s");
    FW_ASSERT(parsed);
    return fw_log_format_render(&format, at, (size_t)(end - at), message);
}

int fw_log_view_read(const struct fw_log_view *view, struct fw_log_known *const known[],
                     size_t known_count, char message[FW_LOG_MESSAGE_MAX + 1],
                     struct fw_log_line *line)
{
    int length;
    if (view->site == FW_LOG_SITE_TEXT) {
        length = text_read(view, message, line);
    } else if (view->site < known_count && known[view->site] != NULL) {
        const struct fw_log_known *site = known[view->site];
        line->level = site->level;
        line->module = site->module;
        length = fw_log_format_render(&site->format, view->packed, view->packed_size, message);
    } else {
        return -EBADMSG;
    }
    if (length < 0) {
        return length;
    }
    line->message = message;
    line->cut = length > FW_LOG_MESSAGE_MAX;
    line->length = line->cut ? FW_LOG_MESSAGE_MAX : (size_t)length;
    return 0;
}

int64_t fw_log_anchor_wall_ns(const struct fw_log_anchor *anchor, int64_t ticks)
{
    /* In unsigned numbers, which may wrap, and as a double, which does not care. */
    int64_t since = (int64_t)((uint64_t)ticks - (uint64_t)anchor->ticks);
    double since_ns = (double)since * anchor->ns_per_tick;
    if (!(since_ns > -9e18 && since_ns < 9e18)) { /* Or no number at all. */
        since_ns = 0;
    }
    return (int64_t)((uint64_t)anchor->wall_ns + (uint64_t)(int64_t)since_ns);
}
