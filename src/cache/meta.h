/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the meta protocol: what its files share. The way in is fw_meta_command(), see parser.h.
 *
 * A command is a line of words: what to do (two letters), a key, for `ms` the length of the value
 * that follows, and flags, each a letter with perhaps something behind it. The answer is a line of
 * the same kind; flags that ask for something are answered in the order in which they came. So a
 * line is read twice: once for what the flags ask for (meta.c, all commands alike), once to write
 * the answer, word by word. Nothing is copied out of it but a key that came in base64.
 *
 * Words, limits, errors and their order are memcached 1.6.18's, to the byte. Some of it looks odd
 * and is so on purpose: a zero byte ends the line; a flag that is not known ends the reading of the
 * flags at once, while one with a bad number only counts if no other error comes behind it; a key
 * that was made by `mg` (flag N) is shown as it is, though it came in base64.
 *
 * Threads: those of the local.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/parser.h"

enum {
    FW_META_WORDS_MAX = 19,  /* Of a line. */
    FW_META_OPAQUE_MAX = 32, /* With its letter. */
    FW_META_KEY_DECODED_MAX = FW_ITEM_KEY_MAX / 4 * 3 + 3,
};

struct fw_meta_word {
    const char *bytes;
    size_t length;
};

/* A line, read. */
struct fw_meta {
    struct fw_session *session;
    struct fw_cache_local *local;
    struct fw_input *input;
    const char *data;    /* What comes behind the line; ms moves it behind its value. */
    const char *error;   /* A line that says what is wrong with the flags. */
    uint32_t word_count; /* May be FW_META_WORDS_MAX + 1: there are too many. */
    uint32_t first_flag; /* Which word it is. */
    const char *key;
    uint32_t key_length;
    bool key_is_binary; /* b */
    bool wants_value;   /* v */
    bool is_quiet;      /* q */
    bool is_peek;       /* u: leaves no trace of being read. */
    bool vivifies;      /* N */
    bool touches;       /* T */
    bool invalidates;   /* I */
    bool compares;      /* C */
    char mode;          /* M, or 0. */
    uint32_t vivify_expires;
    uint32_t touch_expires;
    uint32_t recache_expires; /* R */
    uint32_t client_flags;    /* F */
    uint64_t cas;
    uint64_t delta;   /* D */
    uint64_t initial; /* J */
    struct fw_meta_word words[FW_META_WORDS_MAX + 1];
    char key_decoded[FW_META_KEY_DECODED_MAX];
};

/* Answers a line, of which `text` is all but its end. The room is there. Returns FW_PARSED. */
enum fw_parsed fw_meta_answer(struct fw_meta *meta, const char *text);

/* Nothing is asked for yet, and flags begin behind the key. */
void fw_meta_init(struct fw_meta *meta, struct fw_session *session, struct fw_cache_local *local,
                  struct fw_input *input);

/* Reads the flags from meta->first_flag on. False: meta->error says why not. */
FW_MUST_CHECK bool fw_meta_read_flags(struct fw_meta *meta);

/* Finds the words and sets the key. `line_end` is behind the last character. */
void fw_meta_read_words(struct fw_meta *meta, const char *line, const char *line_end);

#define FW_META_BAD_OPAQUE "CLIENT_ERROR opaque token too long"
#define FW_META_BAD_LINE   "CLIENT_ERROR bad command line format"

/* Writers: each writes to where there is room and returns the end. */
char *fw_meta_put_number(char *to, char letter, uint64_t number);
char *fw_meta_put_expiry(char *to, const struct fw_meta *meta, uint32_t expires);
char *fw_meta_put_key(char *to, const char *key, size_t length, bool is_binary);

/* Writes the flags O and k, which every answer has, if they were asked for, and nothing for the
 * others. NULL: the opaque is too long. */
char *fw_meta_put_word(char *to, const struct fw_meta *meta, const struct fw_meta_word *word);

/* A short answer: the code, O and k, the end of the line. */
enum fw_parsed fw_meta_answer_code(struct fw_meta *meta, const char code[2]);

/* The commands. */
enum fw_parsed fw_meta_get(struct fw_meta *meta);
enum fw_parsed fw_meta_set(struct fw_meta *meta);
enum fw_parsed fw_meta_delete(struct fw_meta *meta);
enum fw_parsed fw_meta_count(struct fw_meta *meta);
enum fw_parsed fw_meta_debug(struct fw_meta *meta);
