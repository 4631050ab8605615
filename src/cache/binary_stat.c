/* SPDX-License-Identifier: Apache-2.0 */
/* Stat: each row is a reply of its own, its name the key; one without a name ends them. */
#include "cache/binary.h"
#include "cache/detail.h"
#include "cache/rows.h"
#include "cache/stats.h"

/* What the call-backs write to. */
struct stat {
    const struct fw_binary *request;
    struct fw_rows rows;
};

static void row_add(struct stat *stat, const char *name, const char *value, size_t value_length)
{
    char header[FW_BINARY_HEADER];
    const struct fw_binary_answer answer = {.key_length = (uint16_t)strlen(name),
                                            .value_length = (uint32_t)value_length};
    (void)fw_binary_header(header, stat->request, &answer);
    fw_rows_add(&stat->rows, header, sizeof header);
    fw_rows_add(&stat->rows, name, answer.key_length);
    fw_rows_add(&stat->rows, value, value_length);
}

static void row_emit(void *context, const char *name, const char *value)
{
    row_add(context, name, value, strlen(value));
}

static enum fw_parsed stat_send(struct stat *stat)
{
    row_add(stat, "", "", 0);
    if (!fw_rows_send(&stat->rows, stat->request->session)) {
        return fw_binary_answer_text(stat->request, FW_BINARY_NO_MEMORY,
                                     "Out of memory generating stats");
    }
    return FW_PARSED;
}

static bool key_begins(const struct fw_binary *request, const char *word)
{
    size_t length = strlen(word);
    return request->key_length >= length && memcmp(request->key, word, length) == 0;
}

static void line_add(void *context, const char *line, size_t length)
{
    fw_rows_add(context, line, length);
    fw_rows_add(context, "\r\n", 2);
}

/* All prefixes in one row, as the text that the text protocol sends. */
static enum fw_parsed detail_dump(struct stat *stat)
{
    struct fw_rows lines = {0};
    fw_detail_visit(stat->request->local->cache->detail, line_add, &lines);
    fw_rows_add(&lines, "END\r\n", 5);
    if (lines.is_lost) {
        stat->rows.is_lost = true;
    } else {
        row_add(stat, "detailed", lines.text, lines.length);
    }
    fw_rows_fini(&lines);
    return stat_send(stat);
}

static enum fw_parsed stat_detail(struct stat *stat)
{
    struct fw_detail *detail = stat->request->local->cache->detail;
    if (key_begins(stat->request, "detail dump")) {
        return detail_dump(stat);
    }
    bool is_on = key_begins(stat->request, "detail on");
    if (!is_on && !key_begins(stat->request, "detail off")) {
        return fw_binary_fail(stat->request, FW_BINARY_NOT_FOUND);
    }
    fw_detail_enable(detail, is_on);
    return stat_send(stat);
}

/* The group that the key names; NULL: none that this protocol shows. */
static const char *stat_group(const struct fw_binary *request)
{
    static const char *const groups[] = {"",      "items",        "slabs",
                                         "sizes", "sizes_enable", "sizes_disable"};
    if (key_begins(request, "settings")) {
        return "settings";
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(groups); i++) {
        if (strlen(groups[i]) == request->key_length && key_begins(request, groups[i])) {
            return groups[i];
        }
    }
    return NULL;
}

enum fw_parsed fw_binary_stat(struct fw_binary *request)
{
    struct stat stat = {.request = request};
    if (key_begins(request, "reset")) {
        fw_stats_reset(request->local->cache);
        return stat_send(&stat);
    }
    if (key_begins(request, "detail")) {
        return stat_detail(&stat);
    }
    const char *group = stat_group(request);
    if (group == NULL || !fw_stats_visit(request->local->cache, group, row_emit, &stat)) {
        fw_rows_fini(&stat.rows);
        return fw_binary_fail(request, FW_BINARY_NOT_FOUND);
    }
    return stat_send(&stat);
}
