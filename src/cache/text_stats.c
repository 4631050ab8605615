/* SPDX-License-Identifier: Apache-2.0 */
/* `stats`. */
#include <string.h>

#include "cache/detail.h"
#include "cache/rows.h"
#include "cache/stats.h"
#include "cache/text.h"

static void rows_emit(void *context, const char *name, const char *value)
{
    fw_rows_add(context, "STAT ", 5);
    fw_rows_add(context, name, strlen(name));
    fw_rows_add(context, " ", 1);
    fw_rows_add(context, value, strlen(value));
    fw_rows_add(context, "\r\n", 2);
}

static void rows_emit_line(void *context, const char *line, size_t length)
{
    fw_rows_add(context, line, length);
    fw_rows_add(context, "\r\n", 2);
}

/* Sends the rows, which are taken over. */
static enum fw_parsed rows_send(struct fw_text_line *line, struct fw_rows *rows)
{
    fw_rows_add(rows, "END\r\n", 5);
    if (!fw_rows_send(rows, line->session)) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR out of memory writing stats");
    }
    return FW_PARSED;
}

static enum fw_parsed stats_detail(struct fw_text_line *line)
{
    struct fw_detail *detail = line->local->cache->detail;
    if (FW_LINE_HAS(line, 2, "on") || FW_LINE_HAS(line, 2, "off")) {
        fw_detail_enable(detail, FW_WORD_IS(&line->words[2], "on"));
        FW_TEXT_ANSWER(line, "OK");
    } else if (FW_LINE_HAS(line, 2, "dump")) {
        struct fw_rows rows = {0};
        fw_detail_visit(detail, rows_emit_line, &rows);
        return rows_send(line, &rows);
    } else {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR usage: stats detail on|off|dump");
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_stats(struct fw_text_line *line)
{
    char group[FW_STATS_GROUP_MAX + 1] = "";
    if (FW_LINE_HAS(line, 1, "reset")) {
        fw_stats_reset(line->local->cache);
        FW_TEXT_ANSWER(line, "RESET");
        return FW_PARSED;
    }
    if (FW_LINE_HAS(line, 1, "detail")) {
        return stats_detail(line);
    }
    if (FW_LINE_HAS(line, 1, "cachedump")) {
        return fw_command_cachedump(line);
    }
    if (line->local->cache->settings.has_sizes && FW_LINE_HAS(line, 1, "sizes")) {
        return fw_command_sizes(line);
    }
    bool is_known = line->count == 1 || line->words[1].length <= FW_STATS_GROUP_MAX;
    if (is_known && line->count > 1) {
        memcpy(group, line->words[1].text, line->words[1].length);
    }
    struct fw_rows rows = {0};
    if (!is_known || !fw_stats_visit(line->local->cache, group, rows_emit, &rows)) {
        fw_rows_fini(&rows);
        FW_TEXT_ANSWER(line, "ERROR");
        return FW_PARSED;
    }
    return rows_send(line, &rows);
}
