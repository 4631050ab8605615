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

/* What is being shown, between two steps. */
struct showing {
    struct fw_stat_walk walk;
    char group[FW_STATS_GROUP_MAX + 1];
};

/* Ends the rows if they are the last. */
static bool rows_end(struct fw_rows *rows, bool has_more)
{
    if (!has_more) {
        fw_rows_add(rows, "END\r\n", 5);
    }
    return has_more;
}

static bool group_make(struct fw_rows *rows, struct fw_cache_local *local, void *state)
{
    struct showing *showing = state;
    bool is_known = fw_stats_visit(local->cache, showing->group, &showing->walk, rows_emit, rows);
    return rows_end(rows, is_known && showing->walk.has_more);
}

static bool prefixes_make(struct fw_rows *rows, struct fw_cache_local *local, void *state)
{
    uint64_t *next = state;
    return rows_end(rows, fw_detail_visit(local->cache->detail, next, rows_emit_line, rows));
}

/* Sends the rows, which are taken over, and those that follow. */
static enum fw_parsed rows_send(struct fw_text_line *line, struct fw_rows *rows, fw_rows_make *make,
                                const void *state, size_t state_size)
{
    if (!fw_rows_send(rows, line->session, make, state, state_size)) {
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
        uint64_t next = 0;
        return rows_send(line, &rows, prefixes_make, &next, sizeof next);
    } else {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR usage: stats detail on|off|dump");
    }
    return FW_PARSED;
}

enum fw_parsed fw_command_stats(struct fw_text_line *line)
{
    struct showing showing = {.group = ""};
    if (FW_LINE_HAS(line, 1, "reset")) {
        fw_stats_reset(line->local->cache);
        line->input->keys += FW_SESSION_COST_STATS;
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
        memcpy(showing.group, line->words[1].text, line->words[1].length);
    }
    struct fw_rows rows = {0};
    if (!is_known ||
        !fw_stats_visit(line->local->cache, showing.group, &showing.walk, rows_emit, &rows)) {
        fw_rows_fini(&rows);
        FW_TEXT_ANSWER(line, "ERROR");
        return FW_PARSED;
    }
    bool has_more = rows_end(&rows, showing.walk.has_more);
    return rows_send(line, &rows, has_more ? group_make : NULL, &showing, sizeof showing);
}
