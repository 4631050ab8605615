/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the text protocol: what text.c and the text_*.c share.
 *
 *     text.c         finds lines and words, knows the commands, sends what is hot ahead
 *     text_get.c     get, gets, gat, gats
 *     text_store.c   set, add, replace, append, prepend, cas
 *     text_change.c  delete, incr, decr, touch, flush_all
 *     text_admin.c   what asks about the server or steers it, but for
 *     text_stats.c   stats
 *     text_dump.c    the dumps of keys
 *     text_sizes.c   stats sizes
 *     text_locks.c   lock and unlock, of yrmcds
 *     text_login.c   the `set` that logs in
 *     text_ahead.c   what is seen of commands that were sent ahead
 *
 * A get of keys and a set of a short value are read where they stand, by a parser that knows just
 * their usual form. Whatever looks otherwise (other commands, two spaces, a strange number) is cut
 * into words and goes through the table of commands, so that odd input is handled in one place and
 * usual input is fast.
 *
 * Replies are memcached's to the letter; where it loses replies or items on the way the reply is
 * what it would be without that. docs/departures.md lists these.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/base.h"
#include "cache/ahead.h"
#include "cache/parser.h"

enum {
    /* memcached cuts a line into that many words at a time, so what comes behind is not seen. */
    FW_TEXT_WORDS_MAX = 23,
    /* Room that is found before a command runs; no reply is longer but items and lists. */
    FW_TEXT_ANSWER_MAX = 128,
};

struct fw_word {
    const char *text;
    size_t length;
};

/* A command's line, cut into words, and who said it. */
struct fw_text_line {
    struct fw_session *session;
    struct fw_cache_local *local;
    struct fw_input *input; /* `next` is behind the line while a command runs. */
    const char *begin;
    size_t length; /* Without what ends it, and up to a zero byte at the most. */
    size_t count;  /* Of words, at least 1. */
    bool is_quiet; /* Said `noreply`. */
    struct fw_word words[FW_TEXT_WORDS_MAX];
};

static inline bool fw_word_is(const struct fw_word *word, const char *text, size_t length)
{
    return word->length == length && memcmp(word->text, text, length) == 0;
}

/* For a string constant. */
#define FW_WORD_IS(word, constant) fw_word_is((word), (constant), sizeof(constant) - 1)

/* Is the word there, and this? For a string constant. */
#define FW_LINE_HAS(line, index, constant) \
    ((index) < (line)->count && FW_WORD_IS(&(line)->words[index], constant))

/* The last word of some commands can be `noreply`, whatever the others are. */
static inline void fw_text_line_set_quiet(struct fw_text_line *line)
{
    line->is_quiet = FW_WORD_IS(&line->words[line->count - 1], "noreply");
}

/* Answers with a line, unless the client wants no reply. For a string constant. */
#define FW_TEXT_ANSWER(line, constant)                            \
    do {                                                          \
        if (!(line)->is_quiet) {                                  \
            FW_REPLY_ADD(&(line)->local->reply, constant "\r\n"); \
        }                                                         \
    } while (0)

/* The word as a key; false: it is too long, which was answered. */
FW_MUST_CHECK bool fw_text_key_word(const struct fw_text_line *line, size_t index,
                                    struct fw_key *key);

/*
 * The first byte from `begin` on that is a space or a control character, or `end`: where a key
 * ends, unless it is an odd one.
 */
static inline const char *fw_text_scan(const char *begin, const char *end)
{
#if defined(__SSE2__)
    const __m128i space = _mm_set1_epi8(' ');
    while (end - begin >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)begin);
        /* A byte that is its own minimum with a space is not above one, without a sign. */
        int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(bytes, space), bytes));
        if (mask != 0) {
            return begin + __builtin_ctz((unsigned)mask);
        }
        begin += 16;
    }
#endif
    while (begin < end && (uint8_t)*begin > ' ') {
        begin++;
    }
    return begin;
}

/* Cuts [begin, end) into words, of which there are at least as many as are asked for by a command.
 * Returns how many. */
size_t fw_text_cut_words(const char *begin, const char *end,
                         struct fw_word words[FW_TEXT_WORDS_MAX]);

/* The hot commands. False: not in their usual form; nothing has happened, *parsed is not set. */
bool fw_text_get_hot(struct fw_session *session, struct fw_cache_local *local,
                     struct fw_input *input, enum fw_parsed *parsed);
bool fw_text_set_hot(struct fw_session *session, struct fw_cache_local *local,
                     struct fw_input *input, enum fw_parsed *parsed);

/* What is seen of a command that was sent ahead: a usual set, mg or ms. */
bool fw_text_sight(struct fw_sight *sight, const char *at, const char *end);

/* A get whose line has not come to its end yet, but is longer than any other may be. */
enum fw_parsed fw_text_get_long(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_input *input);

/* While the session has not logged in and must. */
enum fw_parsed fw_text_login(struct fw_session *session, struct fw_cache_local *local,
                             struct fw_input *input);

/* The commands, as they stand in the table of text.c. */
typedef enum fw_parsed fw_text_run(struct fw_text_line *line);
fw_text_run fw_command_get, fw_command_gets, fw_command_gat, fw_command_gats;
fw_text_run fw_command_set, fw_command_add, fw_command_replace, fw_command_append,
    fw_command_prepend, fw_command_cas;
fw_text_run fw_command_delete, fw_command_incr, fw_command_decr, fw_command_touch,
    fw_command_flush_all;
fw_text_run fw_command_version, fw_command_verbosity, fw_command_quit, fw_command_shutdown,
    fw_command_memlimit;
fw_text_run fw_command_slabs, fw_command_lru, fw_command_lru_crawler, fw_command_watch,
    fw_command_debugtime;
fw_text_run fw_command_extstore, fw_command_refresh_certs;
fw_text_run fw_command_stats;
fw_text_run fw_command_metadump, fw_command_cachedump, fw_command_sizes, fw_command_dump;
fw_text_run fw_command_lock, fw_command_unlock, fw_command_unlock_all, fw_command_keys;
