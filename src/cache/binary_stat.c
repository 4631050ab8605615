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

static enum fw_parsed stat_send_with(struct stat *stat, fw_rows_make *make, const void *state,
                                     size_t state_size)
{
    if (!fw_rows_send(&stat->rows, stat->request->session, make, state, state_size)) {
        return fw_binary_answer_text(stat->request, FW_BINARY_NO_MEMORY,
                                     "Out of memory generating stats");
    }
    return FW_PARSED;
}

static enum fw_parsed stat_send(struct stat *stat)
{
    row_add(stat, "", "", 0);
    return stat_send_with(stat, NULL, NULL, 0);
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

/* The answer to a dump of prefixes, between two steps. */
struct prefixes {
    struct fw_binary request;
    uint64_t next;
};

static const char prefixes_name[] = "detailed";

/* All prefixes are one row, with the text that the text protocol sends: its length comes last. */
static bool prefixes_make(struct fw_rows *rows, struct fw_cache_local *local, void *state)
{
    struct prefixes *prefixes = state;
    struct stat stat = {.request = &prefixes->request, .rows = *rows};
    const size_t begin = FW_BINARY_HEADER + sizeof prefixes_name - 1;
    if (prefixes->next == 0) {
        row_add(&stat, prefixes_name, "", 0);
    }
    bool has_more = fw_detail_visit(local->cache->detail, &prefixes->next, line_add, &stat.rows);
    stat.rows.is_held = has_more;
    if (!has_more) {
        fw_rows_add(&stat.rows, "END\r\n", 5);
    }
    if (!has_more && !stat.rows.is_lost) {
        const struct fw_binary_answer answer = {.key_length = sizeof prefixes_name - 1,
                                                .value_length =
                                                    (uint32_t)(stat.rows.length - begin)};
        (void)fw_binary_header(stat.rows.text, &prefixes->request, &answer);
        row_add(&stat, "", "", 0);
    }
    *rows = stat.rows;
    return has_more;
}

static enum fw_parsed stat_detail(struct stat *stat)
{
    struct fw_detail *detail = stat->request->local->cache->detail;
    if (key_begins(stat->request, "detail dump")) {
        struct prefixes prefixes = {.request = *stat->request};
        return stat_send_with(stat, prefixes_make, &prefixes, sizeof prefixes);
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
        request->input->keys += FW_SESSION_COST_STATS;
        return stat_send(&stat);
    }
    if (key_begins(request, "detail")) {
        return stat_detail(&stat);
    }
    const char *group = stat_group(request);
    if (group == NULL || !fw_stats_visit_all(request->local->cache, group, row_emit, &stat)) {
        fw_rows_fini(&stat.rows);
        return fw_binary_fail(request, FW_BINARY_NOT_FOUND);
    }
    return stat_send(&stat);
}
