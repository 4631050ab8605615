/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading. Keys are taken in windows: the hashes of all of them first, with their buckets and then
 * their records fetched into the cache, and only then is each looked up. A window holds the keys of
 * one get of many, or of several gets of one key each that a client has sent ahead; so the waits
 * for memory of some ten keys overlap instead of adding up.
 *
 * A line of more than FW_SESSION_LINE_MAX bytes goes through the session's state KEYS, which
 * gathers what it can of it (see session.c) and has it answered in portions.
 */
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "cache/gate.h"
#include "cache/number.h"
#include "cache/table.h"
#include "cache/text.h"

enum { WINDOW = 16, GET_LENGTH = 4 /* "get " */ };

/* fw_session.get_form */
enum {
    FORM_CAS = 1,
    FORM_TOUCH = 2,
    FORM_FAILED = 4,  /* A key was too long: the rest of the line is dropped, then that is said. */
    FORM_REFUSED = 8, /* The same for a key that the gate has refused. */
};

struct window {
    uint32_t count;
    uint32_t done;
    struct fw_key keys[WINDOW];
};

/* Why a window has no more keys. */
enum ended {
    ENDED_FULL,  /* There may be more. */
    ENDED_LINE,  /* So does the line. */
    ENDED_INPUT, /* The line goes on, but has not come. */
    ENDED_KEY,   /* A key is too long. */
    ENDED_HELD,  /* The gate wants the next to wait. */
    ENDED_REFUSED,
};

/*
 * The usual numbers are short, and written without a call. The branches are foretold well: most
 * flags are 0, and values that are asked for together have the same length.
 */
static inline char *put_number(char *to, uint64_t value)
{
    if (value < 10) {
        to[0] = (char)('0' + value);
        return to + 1;
    }
    if (value >= 1000) {
        return to + fw_text_decimal(to, value);
    }
    uint32_t small = (uint32_t)value;
    uint32_t tens = small / 10;
    char last = (char)('0' + (small - tens * 10));
    if (small < 100) {
        to[0] = (char)('0' + tens);
        to[1] = last;
        return to + 2;
    }
    uint32_t hundreds = small / 100;
    to[0] = (char)('0' + hundreds);
    to[1] = (char)('0' + (tens - hundreds * 10));
    to[2] = last;
    return to + 3;
}

static inline char *put_bytes(char *to, const char *bytes, size_t length)
{
    memcpy(to, bytes, length);
    return to + length;
}

/* Is there room for any item, and for what ends a get? */
static inline bool has_room(struct fw_reply *reply)
{
    return fw_reply_room(reply, FW_REPLY_ROOM_MIN) != NULL && fw_reply_has_pieces(reply);
}

/* Inside the hold. There is room. */
static inline void put_item(struct fw_cache_local *local, struct fw_item *item, unsigned form)
{
    struct fw_reply *reply = &local->reply;
    char *to = reply->next;
    to = put_bytes(to, "VALUE ", 6);
    to = put_bytes(to, item->key, item->key_length);
    *to++ = ' ';
    to = put_number(to, fw_item_flags(item));
    *to++ = ' ';
    to = put_number(to, fw_item_length(item));
    if ((form & FORM_CAS) != 0) {
        *to++ = ' ';
        to = put_number(to, fw_operation_cas(local, item));
    }
    to = put_bytes(to, "\r\n", 2);
    to = fw_reply_put_value(reply, to, item);
    to = put_bytes(to, "\r\n", 2);
    fw_reply_advance(reply, to);
}

/* One key. There is room. */
static inline void get_key(struct fw_session *session, struct fw_cache_local *local,
                           const struct fw_key *key, unsigned form, struct fw_finds *finds)
{
    struct fw_hold hold;
    if (FW_UNLIKELY((form & FORM_TOUCH) != 0)) {
        fw_operation_touch(local, &hold, key, session->get_expires);
    } else {
        fw_operation_find_next(local, &hold, key, finds);
    }
    if (FW_LIKELY(hold.item != NULL)) {
        put_item(local, hold.item, form);
    }
    fw_hold_release(&hold);
}

/* The buckets are on their way since the keys were added; with them here, the records. */
static inline void window_fetch(const struct window *window, struct fw_cache_local *local)
{
    if (window->count > 1) {
        for (uint32_t i = 0; i < window->count; i++) {
            fw_table_prefetch_item(local->table, &window->keys[i]);
        }
    }
}

static inline void window_add(struct window *window, const struct fw_cache_local *local,
                              const char *key, size_t length)
{
    window->keys[window->count] = fw_table_key(local->table, key, length);
    fw_table_prefetch(local->table, &window->keys[window->count]);
    window->count++;
}

/*
 * The end of a usual get of one key at `next`, which begins with "get ", or NULL. `*key_end` is
 * that of the key.
 */
static inline const char *single_end(const char *next, const char *end, const char **key_end)
{
    const char *key = next + GET_LENGTH;
    const char *stop = fw_text_scan(key, end);
    *key_end = stop;
    bool is_usual = end - stop >= 2 && stop[0] == '\r' && stop[1] == '\n' && stop != key &&
                    stop - key <= FW_ITEM_KEY_MAX;
    return is_usual ? stop + 2 : NULL;
}

/* Takes gets of one key each, that follow each other, into the window. */
static void window_gather_singles(struct window *window, const struct fw_cache_local *local,
                                  const struct fw_input *input)
{
    uint32_t max = input->budget < WINDOW ? input->budget : WINDOW;
    const char *next = input->next;
    do {
        const char *key_end;
        const char *line_end = single_end(next, input->end, &key_end);
        if (line_end == NULL) {
            return;
        }
        const char *key = next + GET_LENGTH;
        window_add(window, local, key, (size_t)(key_end - key));
        next = line_end;
    } while (window->count < max && input->end - next > GET_LENGTH &&
             memcmp(next, "get ", GET_LENGTH) == 0);
}

/*
 * The end of the word at `at` and what it was ended by: a space, '\n' (with or without '\r' before
 * it), 0 for a zero byte, or -1 if that has not come yet.
 */
static const char *word_end(const char *at, const char *end, int *ended_by)
{
    for (const char *stop = at;; stop++) {
        stop = fw_text_scan(stop, end);
        if (stop == end || (*stop == '\r' && stop + 1 == end)) {
            *ended_by = -1;
            return stop;
        }
        bool is_end = *stop == '\r' && stop[1] == '\n';
        if (is_end || *stop == ' ' || *stop == '\n' || *stop == '\0') {
            *ended_by = is_end ? '\n' : *stop;
            return stop;
        }
    }
}

/* Takes keys of one line from `*at` on, and moves it to where the next would begin. */
static enum ended window_gather(struct window *window, const struct fw_cache_local *local,
                                const char **at, const char *end)
{
    while (window->count < WINDOW) {
        while (*at < end && **at == ' ') {
            (*at)++;
        }
        int ended_by;
        const char *stop = word_end(*at, end, &ended_by);
        size_t length = (size_t)(stop - *at);
        if (length > FW_ITEM_KEY_MAX) {
            return ENDED_KEY;
        }
        if (ended_by == -1) {
            return ENDED_INPUT;
        }
        if (length > 0) {
            window_add(window, local, *at, length);
        }
        *at = stop;
        if (ended_by != ' ') {
            return ENDED_LINE;
        }
    }
    return ENDED_FULL;
}

/* Drops the rest of the line, and says `answer` where it ends. */
static enum fw_parsed line_finish(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input)
{
    if (fw_reply_room(&local->reply, FW_TEXT_ANSWER_MAX) == NULL) {
        return FW_PARSED_OUTPUT;
    }
    const char *end = memchr(input->next, '\n', (size_t)(input->end - input->next));
    if (end == NULL) {
        input->next = input->end;
        input->wanted = 1;
        return FW_PARSED_INPUT;
    }
    input->next = end + 1;
    session->state = FW_SESSION_COMMAND;
    if ((session->get_form & FORM_FAILED) != 0) {
        FW_REPLY_ADD(&local->reply, "CLIENT_ERROR bad command line format\r\n");
    } else if ((session->get_form & FORM_REFUSED) != 0) {
        fw_text_refusal(local);
    } else {
        FW_REPLY_ADD(&local->reply, "END\r\n");
    }
    return FW_PARSED;
}

/* Answers the window's keys; false: the reply is full before all are done. */
static bool window_run(struct fw_session *session, struct fw_cache_local *local,
                       struct window *window)
{
    struct fw_finds finds = {0};
    window_fetch(window, local);
    for (window->done = 0; window->done < window->count; window->done++) {
        const struct fw_key *key = &window->keys[window->done];
        if (!has_room(&local->reply)) {
            break;
        }
        fw_operation_note_get(local, key);
        get_key(session, local, key, session->get_form, &finds);
    }
    fw_operation_finds_end(local, &finds);
    return window->done == window->count;
}

/*
 * Asks the gate about each key, and cuts the window before the first that does not pass, which
 * `*at` then is. What ends the window is that, or still what ended it.
 */
static enum ended window_judge(struct window *window, const struct fw_cache_local *local,
                               const char **at, enum ended ended)
{
    for (uint32_t i = 0; i < window->count; i++) {
        const struct fw_key *key = &window->keys[i];
        enum fw_gate answer =
            local->gate->ask(local->gate, FW_COMMAND_READ, key->bytes, key->length);
        if (answer != FW_GATE_PASS) {
            window->count = i;
            *at = key->bytes;
            return answer == FW_GATE_HOLD ? ENDED_HELD : ENDED_REFUSED;
        }
    }
    return ended;
}

/*
 * Goes through the keys from input->next on. If one is too long nothing of the whole get is
 * answered but that; `mark` says where its answer began, if none of it is sent yet, else NULL.
 */
static enum fw_parsed keys_run(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input, const struct fw_reply_mark *mark)
{
    enum ended ended = ENDED_FULL;
    while (ended == ENDED_FULL) {
        struct window window;
        window.count = 0;
        const char *at = input->next;
        ended = window_gather(&window, local, &at, input->end);
        if (FW_UNLIKELY(local->gate != NULL)) {
            ended = window_judge(&window, local, &at, ended);
        }
        bool is_done = window_run(session, local, &window);
        input->keys += window.done;
        if (!is_done) {
            input->next = window.keys[window.done].bytes;
            return FW_PARSED_OUTPUT;
        }
        input->next = at;
        /* What could not be taken back any more may as well go on in another run. */
        if (mark == NULL && ended == ENDED_FULL && input->keys >= FW_SESSION_KEYS_MAX) {
            return FW_PARSED;
        }
    }
    if (ended == ENDED_INPUT) {
        input->wanted = (size_t)(input->end - input->next) + 1;
        return FW_PARSED_INPUT;
    }
    if (ended == ENDED_HELD) {
        return FW_PARSED_HELD;
    }
    if (ended == ENDED_KEY || ended == ENDED_REFUSED) {
        session->get_form = ended == ENDED_KEY ? FORM_FAILED : FORM_REFUSED;
        if (mark != NULL) {
            fw_reply_rewind(&local->reply, *mark);
        }
    }
    return line_finish(session, local, input);
}

enum fw_parsed fw_text_key(struct fw_session *session, struct fw_cache_local *local,
                           struct fw_input *input)
{
    if ((session->get_form & (FORM_FAILED | FORM_REFUSED)) != 0) {
        return line_finish(session, local, input);
    }
    return keys_run(session, local, input, NULL);
}

/* From here on the session is inside the get. */
static void keys_begin(struct fw_session *session, struct fw_input *input, const char *keys,
                       unsigned form)
{
    session->state = FW_SESSION_KEYS;
    session->get_form = (uint8_t)form;
    input->next = keys;
}

/* Gets of one key each. */
static enum fw_parsed singles_run(struct fw_session *session, struct fw_cache_local *local,
                                  struct fw_input *input, const struct window *window)
{
    struct fw_finds finds = {0};
    window_fetch(window, local);
    uint32_t done = 0;
    while (done < window->count && has_room(&local->reply)) {
        const struct fw_key *key = &window->keys[done];
        fw_operation_note_get(local, key);
        get_key(session, local, key, 0, &finds);
        FW_REPLY_ADD(&local->reply, "END\r\n");
        input->next = key->bytes + key->length + 2;
        done++;
    }
    fw_operation_finds_end(local, &finds);
    /* The session pays for one itself if all were done, and for none if not. */
    bool is_done = done == window->count;
    input->budget -= is_done ? done - 1 : done;
    return is_done ? FW_PARSED : FW_PARSED_OUTPUT;
}

bool fw_text_get_hot(struct fw_session *session, struct fw_cache_local *local,
                     struct fw_input *input, enum fw_parsed *parsed)
{
    struct window window;
    window.count = 0;
    window_gather_singles(&window, local, input);
    if (window.count > 0) {
        *parsed = singles_run(session, local, input, &window);
        return true;
    }
    size_t length = (size_t)(input->end - input->next);
    const char *end = memchr(input->next, '\n', length);
    bool is_whole = end != NULL && end - input->next <= FW_SESSION_LINE_MAX;
    /* At least one key: none is an error, which is not for here. */
    if (!is_whole || (uint8_t)input->next[GET_LENGTH] <= ' ') {
        return false;
    }
    struct fw_reply_mark mark = fw_reply_mark(&local->reply);
    keys_begin(session, input, input->next + GET_LENGTH, 0);
    *parsed = keys_run(session, local, input, &mark);
    return true;
}

static enum fw_parsed get_line(struct fw_text_line *line, size_t first_key, unsigned form)
{
    /* The words may have been cut short, and there may be no key at all: behind the word before. */
    const struct fw_word *before = &line->words[first_key - 1];
    struct fw_reply_mark mark = fw_reply_mark(&line->local->reply);
    bool is_whole = line->length <= FW_SESSION_LINE_MAX;
    keys_begin(line->session, line->input, before->text + before->length, form);
    return keys_run(line->session, line->local, line->input, is_whole ? &mark : NULL);
}

enum fw_parsed fw_command_get(struct fw_text_line *line)
{
    return get_line(line, 1, 0);
}

enum fw_parsed fw_command_gets(struct fw_text_line *line)
{
    return get_line(line, 1, FORM_CAS);
}

static enum fw_parsed gat_line(struct fw_text_line *line, unsigned form)
{
    int32_t given;
    if (!fw_number_i32(line->words[1].text, line->words[1].length, &given)) {
        FW_TEXT_ANSWER(line, "CLIENT_ERROR invalid exptime argument");
        return FW_PARSED;
    }
    line->session->get_expires = fw_cache_expiry(line->local, given);
    return get_line(line, 2, form);
}

enum fw_parsed fw_command_gat(struct fw_text_line *line)
{
    return gat_line(line, FORM_TOUCH);
}

enum fw_parsed fw_command_gats(struct fw_text_line *line)
{
    return gat_line(line, FORM_TOUCH | FORM_CAS);
}

enum fw_parsed fw_text_get_long(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_input *input)
{
    bool has_cas = input->next[3] == 's';
    (void)local;
    keys_begin(session, input, input->next + (has_cas ? 4 : 3), has_cas ? FORM_CAS : 0);
    return FW_PARSED; /* The session goes on with the keys. */
}
