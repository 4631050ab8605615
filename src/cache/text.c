/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/text.h"

#include "base/assert.h"
#include "cache/table.h"

enum { LEADING_SPACES_MAX = 100, WORDS_ANY = FW_TEXT_WORDS_MAX };

size_t fw_text_cut_words(const char *begin, const char *end,
                         struct fw_word words[FW_TEXT_WORDS_MAX])
{
    size_t count = 0;
    const char *at = begin;
    while (count < FW_TEXT_WORDS_MAX) {
        while (at < end && *at == ' ') {
            at++;
        }
        if (at == end) {
            break;
        }
        const char *stop = memchr(at, ' ', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        words[count] = (struct fw_word){.text = at, .length = (size_t)(stop - at)};
        count++;
        at = stop;
    }
    return count;
}

bool fw_text_key_word(const struct fw_text_line *line, size_t index, struct fw_key *key)
{
    const struct fw_word *word = &line->words[index];
    if (word->length > FW_ITEM_KEY_MAX) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR bad command line format");
        return false;
    }
    *key = fw_table_key(line->local->table, word->text, word->length);
    return true;
}

struct command {
    const char *name;
    uint8_t length;
    uint8_t words_min; /* With the name; fewer or more are an ERROR. */
    uint8_t words_max;
    fw_text_run *run;
};

#define COMMAND(text, min, max, function)                                                   \
    {                                                                                       \
        .name = (text), .length = sizeof(text) - 1, .words_min = (min), .words_max = (max), \
        .run = (function)                                                                   \
    }

/* The most frequent first. */
static const struct command commands[] = {
    COMMAND("get", 2, WORDS_ANY, fw_command_get),
    COMMAND("set", 5, 6, fw_command_set),
    COMMAND("gets", 2, WORDS_ANY, fw_command_gets),
    COMMAND("incr", 3, 4, fw_command_incr),
    COMMAND("decr", 3, 4, fw_command_decr),
    COMMAND("delete", 2, 4, fw_command_delete),
    COMMAND("add", 5, 6, fw_command_add),
    COMMAND("cas", 6, 7, fw_command_cas),
    COMMAND("touch", 3, 4, fw_command_touch),
    COMMAND("gat", 2, WORDS_ANY, fw_command_gat),
    COMMAND("gats", 2, WORDS_ANY, fw_command_gats),
    COMMAND("replace", 5, 6, fw_command_replace),
    COMMAND("append", 5, 6, fw_command_append),
    COMMAND("prepend", 5, 6, fw_command_prepend),
    COMMAND("version", 1, WORDS_ANY, fw_command_version),
    COMMAND("quit", 1, WORDS_ANY, fw_command_quit),
    COMMAND("stats", 1, WORDS_ANY, fw_command_stats),
    COMMAND("flush_all", 1, 3, fw_command_flush_all),
    COMMAND("verbosity", 2, 3, fw_command_verbosity),
    COMMAND("bget", 2, WORDS_ANY, fw_command_get), /* So old that nobody remembers why. */
    COMMAND("lru_crawler", 1, WORDS_ANY, fw_command_lru_crawler),
    COMMAND("lru", 1, WORDS_ANY, fw_command_lru),
    COMMAND("slabs", 1, WORDS_ANY, fw_command_slabs),
    COMMAND("watch", 1, WORDS_ANY, fw_command_watch),
    COMMAND("cache_memlimit", 2, 3, fw_command_memlimit),
    COMMAND("shutdown", 1, WORDS_ANY, fw_command_shutdown),
    COMMAND("extstore", 1, WORDS_ANY, fw_command_extstore),
    COMMAND("dump", 3, 4, fw_command_dump),
    COMMAND("refresh_certs", 1, WORDS_ANY, fw_command_refresh_certs),
#if defined(FW_CHECKS)
    COMMAND("debugtime", 1, WORDS_ANY, fw_command_debugtime),
#endif
};

/* Of yrmcds. Without --enable-locking they are not known, as to memcached. */
static const struct command extensions[] = {
    COMMAND("lock", 2, 2, fw_command_lock),
    COMMAND("unlock", 2, 2, fw_command_unlock),
    COMMAND("unlock_all", 1, 1, fw_command_unlock_all),
    COMMAND("keys", 1, 2, fw_command_keys),
};

static const struct command *row_find(const struct command *rows, size_t count,
                                      const struct fw_word *name)
{
    for (size_t i = 0; i < count; i++) {
        if (fw_word_is(name, rows[i].name, rows[i].length)) {
            return &rows[i];
        }
    }
    return NULL;
}

static const struct command *command_find(const struct fw_word *name, bool has_extensions)
{
    const struct command *row = row_find(commands, FW_ARRAY_LENGTH(commands), name);
    return row != NULL || !has_extensions ? row
                                          : row_find(extensions, FW_ARRAY_LENGTH(extensions), name);
}

/*
 * A browser is not answered but hung up on: a page that makes it talk to us shall not get commands
 * through in the lines that follow. memcached looks for that only in lines whose first letter
 * begins none of most of its commands, and so do we.
 */
static enum fw_parsed command_unknown(const struct fw_text_line *line)
{
    const struct fw_word *last = &line->words[line->count - 1];
    if (line->words[0].length >= 2 && memchr("gsacidt", line->words[0].text[0], 7) == NULL &&
        last->length >= 5 && memcmp(last->text, "HTTP/", 5) == 0) {
        return FW_PARSED_CLOSE;
    }
    FW_TEXT_ANSWER(line, "ERROR");
    return FW_PARSED;
}

static bool is_meta(const struct fw_word *name)
{
    return name->length == 2 && name->text[0] == 'm' && memchr("gsdnae", name->text[1], 6) != NULL;
}

/* Does it begin as most meta commands do? Then it is not cut into words twice. */
static bool is_meta_line(const char *line, const char *end)
{
    const struct fw_word name = {.text = line, .length = 2};
    return end - line > 2 && line[2] == ' ' && is_meta(&name);
}

/* Looks at a line whose end is known, where it stands, without the end. */
static enum fw_parsed line_run(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input, const char *line_end, const char *data)
{
    if (fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    struct fw_text_line
        line; /* Filled by hand: to clear its words would cost more than a delete. */
    line.session = session;
    line.local = local;
    line.input = input;
    line.begin = input->next;
    line.is_quiet = false;
    /* A zero byte ends the line for memcached, which takes lines for strings. */
    line.length = strnlen(line.begin, (size_t)(line_end - line.begin));
    line.count = fw_text_cut_words(line.begin, line.begin + line.length, line.words);
    const struct fw_word *name = &line.words[0];
    if (line.count > 0 && is_meta(name)) {
        input->next = name->text;
        return fw_meta_command(session, local, input, line.begin + line.length, data);
    }
    input->next = data;
    const struct command *command =
        line.count > 0 ? command_find(name, local->cache->settings.has_locking) : NULL;
    if (line.count == 0 ||
        (command != NULL && (line.count < command->words_min || line.count > command->words_max))) {
        FW_TEXT_ANSWER(&line, "ERROR");
        return FW_PARSED;
    }
    return command != NULL ? command->run(&line) : command_unknown(&line);
}

/* There is no end of the line. Most lines may not be longer than that, and are waited for. */
static enum fw_parsed line_incomplete(struct fw_session *session, struct fw_cache_local *local,
                                      struct fw_input *input)
{
    size_t length = (size_t)(input->end - input->next);
    if (length <= FW_SESSION_LINE_MAX) {
        input->wanted = length + 1;
        return FW_PARSED_INPUT;
    }
    const char *at = input->next;
    while (at < input->end && *at == ' ') {
        at++;
    }
    bool is_get =
        input->end - at >= 5 && (memcmp(at, "get ", 4) == 0 || memcmp(at, "gets ", 5) == 0);
    if (!is_get || at - input->next > LEADING_SPACES_MAX) {
        return FW_PARSED_CLOSE;
    }
    input->next = at;
    return fw_text_get_long(session, local, input);
}

enum fw_parsed fw_text_command(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input)
{
    if (FW_UNLIKELY(local->cache->settings.needs_login && !session->has_logged_in)) {
        return fw_text_login(session, local, input);
    }
    size_t length = (size_t)(input->end - input->next);
    enum fw_parsed parsed;
    if (FW_LIKELY(length > 4)) {
        if (memcmp(input->next, "get ", 4) == 0) {
            if (FW_LIKELY(fw_text_get_hot(session, local, input, &parsed))) {
                return parsed;
            }
        } else if (memcmp(input->next, "set ", 4) == 0) {
            if (FW_LIKELY(fw_text_set_hot(session, local, input, &parsed))) {
                return parsed;
            }
        }
    }
    const char *end = memchr(input->next, '\n', length);
    if (end == NULL) {
        return line_incomplete(session, local, input);
    }
    const char *data = end + 1;
    /* Of a line that is just that, memcached leaves the \r: it is then an unknown command. */
    if (end - input->next > 1 && end[-1] == '\r') {
        end--;
    }
    if (is_meta_line(input->next, end)) {
        if (data < input->end) {
            fw_look_ahead(local, input, fw_text_sight);
        }
        return fw_meta_command(session, local, input, end, data);
    }
    return line_run(session, local, input, end, data);
}
