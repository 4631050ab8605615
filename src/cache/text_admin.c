/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that ask about the server or steer it. Those that tune what memcached has and we have
 * not (slab classes, its lists of recently used items) are answered as memcached answers them and
 * do nothing, since scripts send them at start.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "cache/number.h"
#include "cache/stats.h"
#include "cache/table.h"
#include "cache/text.h"

enum {
    MIB = 1024 * 1024,
    MEMORY_MIN_MIB = 8,
    MEMORY_MAX_MIB = 1000000000,
    CLASSES = 64, /* memcached's slab classes are numbered below that. */
    CRAWL_SLEEP_MAX_US = 1000000,
    VERBOSITY_MAX = 2,
    NUMBER_TEXT_MAX = 63,
};

enum fw_parsed fw_command_version(struct fw_text_line *line)
{
    FW_TEXT_ANSWER(line, "VERSION " FW_CACHE_VERSION);
    return FW_PARSED;
}

enum fw_parsed fw_command_quit(struct fw_text_line *line)
{
    (void)line;
    return FW_PARSED_CLOSE;
}

static bool word_u32(const struct fw_text_line *line, size_t index, uint32_t *value)
{
    return index < line->count &&
           fw_number_u32(line->words[index].text, line->words[index].length, value);
}

/* As strtod() reads it. */
static bool word_double(const struct fw_text_line *line, size_t index, double *value)
{
    if (index >= line->count || line->words[index].length > NUMBER_TEXT_MAX) {
        return false;
    }
    char text[NUMBER_TEXT_MAX + 1] = {0};
    char *end;
    memcpy(text, line->words[index].text, line->words[index].length);
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

enum fw_parsed fw_command_verbosity(struct fw_text_line *line)
{
    uint32_t level;
    fw_text_line_set_quiet(line);
    if (!word_u32(line, 1, &level)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
        return FW_PARSED;
    }
    const struct fw_cache_host *host = &line->local->cache->host;
    host->set_verbosity(host->server, level > VERBOSITY_MAX ? VERBOSITY_MAX : level);
    FW_TEXT_ANSWER(line, "OK");
    return FW_PARSED;
}

enum fw_parsed fw_command_shutdown(struct fw_text_line *line)
{
    const struct fw_cache_host *host = &line->local->cache->host;
    bool is_graceful = line->count == 2 && FW_WORD_IS(&line->words[1], "graceful");
    if (line->count != 1 && !is_graceful) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR invalid shutdown mode");
        return FW_PARSED;
    }
    if (host->shutdown(host->server, is_graceful) != 0) {
        FW_TEXT_ANSWER(line, "ERROR: shutdown not enabled");
        return FW_PARSED;
    }
    return FW_PARSED_CLOSE;
}

enum fw_parsed fw_command_memlimit(struct fw_text_line *line)
{
    uint32_t mib;
    fw_text_line_set_quiet(line);
    /* Relaxed: a rule of thumb. */
    if (atomic_load_explicit(&line->local->cache->is_read_only, memory_order_relaxed)) {
        FW_TEXT_ANSWER(line, "SERVER_ERROR this server is a slave and needs as much memory as its "
                             "master; restart it with another -m");
    } else if (!word_u32(line, 1, &mib)) {
        FW_TEXT_ANSWER(line, "ERROR");
    } else if (mib < MEMORY_MIN_MIB) {
        FW_TEXT_ANSWER(line, "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
    } else if (mib > MEMORY_MAX_MIB) {
        FW_TEXT_ANSWER(line, "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes");
    } else if (fw_table_set_memory(line->local->cache->table, (uint64_t)mib * MIB) != 0) {
        FW_TEXT_ANSWER(line, "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust");
    } else {
        FW_TEXT_ANSWER(line, "OK");
    }
    return FW_PARSED;
}

static void lru_tune(struct fw_text_line *line)
{
    uint32_t hot, warm;
    double hot_factor, warm_factor;
    if (!word_u32(line, 2, &hot) || !word_u32(line, 3, &warm) ||
        !word_double(line, 4, &hot_factor) || !word_double(line, 5, &warm_factor)) {
        FW_TEXT_ANSWER(line, "ERROR");
    } else if (hot + warm > 80) {
        FW_TEXT_ANSWER(line, "ERROR hot and warm pcts must not exceed 80");
    } else if (hot_factor <= 0 || warm_factor <= 0) {
        FW_TEXT_ANSWER(line, "ERROR hot/warm age factors must be greater than 0");
    } else {
        FW_TEXT_ANSWER(line, "OK");
    }
}

enum fw_parsed fw_command_lru(struct fw_text_line *line)
{
    int32_t seconds;
    fw_text_line_set_quiet(line);
    bool is_sound = false;
    if (FW_LINE_HAS(line, 1, "tune") && line->count >= 6) {
        lru_tune(line);
        return FW_PARSED;
    }
    if (FW_LINE_HAS(line, 1, "mode")) {
        is_sound = FW_LINE_HAS(line, 2, "flat") || FW_LINE_HAS(line, 2, "segmented");
    } else if (FW_LINE_HAS(line, 1, "temp_ttl") && line->count >= 3) {
        is_sound = fw_number_i32(line->words[2].text, line->words[2].length, &seconds);
    }
    if (is_sound) {
        FW_TEXT_ANSWER(line, "OK");
    } else {
        FW_TEXT_ANSWER(line, "ERROR");
    }
    return FW_PARSED;
}

static void slabs_automove(struct fw_text_line *line)
{
    uint32_t level;
    double ratio;
    fw_text_line_set_quiet(line);
    if (FW_WORD_IS(&line->words[2], "ratio")) {
        if (word_double(line, 3, &ratio)) {
            FW_TEXT_ANSWER(line, "OK");
        } else {
            FW_TEXT_ANSWER(line, "ERROR");
        }
    } else if (!word_u32(line, 2, &level)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
    } else if (level > 2) {
        FW_TEXT_ANSWER(line, "ERROR");
    } else {
        FW_TEXT_ANSWER(line, "OK");
    }
}

enum fw_parsed fw_command_slabs(struct fw_text_line *line)
{
    int32_t from, to;
    if (FW_LINE_HAS(line, 1, "reassign") && line->count == 4) {
        if (!fw_number_i32(line->words[2].text, line->words[2].length, &from) ||
            !fw_number_i32(line->words[3].text, line->words[3].length, &to)) {
            FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
        } else if (from == to) {
            FW_TEXT_ANSWER(line, "SAME src and dst class are identical");
        } else {
            FW_TEXT_ANSWER(line, "BADCLASS invalid src or dst class id");
        }
    } else if (FW_LINE_HAS(line, 1, "automove") && line->count >= 3) {
        slabs_automove(line);
    } else {
        FW_TEXT_ANSWER(line, "ERROR");
    }
    return FW_PARSED;
}

/*
 * "all", "hash", or numbers of classes with commas between. `has_items`: with the class that has
 * all items.
 */
static bool is_class_list(const struct fw_word *word, bool *has_items)
{
    *has_items = FW_WORD_IS(word, "all") || FW_WORD_IS(word, "hash");
    if (*has_items) {
        return true;
    }
    const char *at = word->text;
    const char *end = word->text + word->length;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        uint32_t number;
        if (!fw_number_u32(at, (size_t)(stop - at), &number) || number == 0 || number >= CLASSES) {
            return false;
        }
        *has_items = *has_items || number == FW_STATS_CLASS;
        at = comma != NULL ? comma + 1 : end;
    }
    return true;
}

static void crawler_set(struct fw_text_line *line, uint32_t max)
{
    uint32_t value;
    if (!word_u32(line, 2, &value)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
    } else if (value > max) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR sleep must be one second or less");
    } else {
        FW_TEXT_ANSWER(line, "OK");
    }
}

/* The table's sweeper runs by itself: memcached's crawler is never off and always done. */
enum fw_parsed fw_command_lru_crawler(struct fw_text_line *line)
{
    bool has_argument = line->count == 3;
    bool has_items;
    if (has_argument && FW_LINE_HAS(line, 1, "metadump")) {
        if (!line->local->cache->settings.has_dump) {
            FW_TEXT_ANSWER(line, "ERROR metadump not allowed");
        } else if (is_class_list(&line->words[2], &has_items)) {
            if (has_items) {
                return fw_command_metadump(line);
            }
            FW_TEXT_ANSWER(line, "END");
        } else {
            FW_TEXT_ANSWER(line, "BADCLASS invalid class id");
        }
    } else if (has_argument && FW_LINE_HAS(line, 1, "crawl")) {
        if (is_class_list(&line->words[2], &has_items)) {
            FW_TEXT_ANSWER(line, "OK");
        } else {
            FW_TEXT_ANSWER(line, "BADCLASS invalid class id");
        }
    } else if (has_argument && FW_LINE_HAS(line, 1, "tocrawl")) {
        crawler_set(line, UINT32_MAX);
    } else if (has_argument && FW_LINE_HAS(line, 1, "sleep")) {
        crawler_set(line, CRAWL_SLEEP_MAX_US);
    } else if (line->count == 2 &&
               (FW_LINE_HAS(line, 1, "enable") || FW_LINE_HAS(line, 1, "disable"))) {
        FW_TEXT_ANSWER(line, "OK");
    } else {
        FW_TEXT_ANSWER(line, "ERROR");
    }
    return FW_PARSED;
}

/* memcached would turn the connection into a stream of its log; ours has a file for that. */
enum fw_parsed fw_command_watch(struct fw_text_line *line)
{
    fw_text_line_set_quiet(line);
    FW_TEXT_ANSWER(line, "CLIENT_ERROR watch commands not allowed");
    return FW_PARSED;
}

/* Tunes how memcached puts values on flash. */
enum fw_parsed fw_command_extstore(struct fw_text_line *line)
{
    fw_text_line_set_quiet(line);
    FW_TEXT_ANSWER(line, "ERROR");
    return FW_PARSED;
}

enum fw_parsed fw_command_refresh_certs(struct fw_text_line *line)
{
    fw_text_line_set_quiet(line);
    if (!line->is_quiet) {
        FW_REPLY_ADD(&line->local->reply, "Error TLS not enabled\r\n");
    }
    return FW_PARSED;
}

#if defined(FW_CHECKS)
/* For memcached's own tests: shifts the clock by seconds, or stops it (p), or lets it go (r). */
enum fw_parsed fw_command_debugtime(struct fw_text_line *line)
{
    struct fw_cache *cache = line->local->cache;
    int64_t seconds = 0;
    if (FW_LINE_HAS(line, 1, "p")) {
        fw_cache_pause(cache, true);
    } else if (FW_LINE_HAS(line, 1, "r")) {
        fw_cache_pause(cache, false);
    } else if (line->count < 2 ||
               !fw_number_i64(line->words[1].text, line->words[1].length, &seconds)) {
        FW_TEXT_ANSWER(line, "ERROR");
        return FW_PARSED;
    }
    fw_cache_shift(line->local, seconds);
    FW_TEXT_ANSWER(line, "OK");
    return FW_PARSED;
}
#endif
