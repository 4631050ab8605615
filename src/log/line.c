/* SPDX-License-Identifier: Apache-2.0 */
#include "log/line.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/text.h"
#include "io/clock.h"
#include "log/module.h"

enum { NAME_MAX_SHOWN = 32 };

/* As in syslog.h; there is no priority below debug. */
static const char priorities[] = {
    [FW_LOG_ERROR] = '3', [FW_LOG_WARNING] = '4', [FW_LOG_NOTICE] = '5',
    [FW_LOG_INFO] = '6',  [FW_LOG_DEBUG] = '7',   [FW_LOG_TRACE] = '7',
};

static void calendar_turn(struct fw_log_calendar *calendar, int64_t second)
{
    time_t seconds = second;
    struct tm utc;
    if (gmtime_r(&seconds, &utc) == NULL) { /* Beyond the year 2 billion: a damaged file. */
        utc = (struct tm){.tm_mday = 1, .tm_year = 70};
    }
    int length = snprintf(calendar->text, sizeof calendar->text, "%04u-%02u-%02uT%02u:%02u:%02u",
                          (unsigned)(utc.tm_year + 1900) % 10000, (unsigned)(utc.tm_mon + 1) % 100,
                          (unsigned)utc.tm_mday % 100, (unsigned)utc.tm_hour % 100,
                          (unsigned)utc.tm_min % 100, (unsigned)utc.tm_sec % 100);
    FW_ASSERT(length > 0 && (size_t)length < sizeof calendar->text);
    calendar->second = second;
}

/* "2026-03-01T12:00:00.123456Z" */
static void append_time(struct fw_text *text, struct fw_log_calendar *calendar, int64_t wall_ns)
{
    int64_t second = wall_ns / FW_NS_PER_S;
    int64_t rest_ns = wall_ns % FW_NS_PER_S;
    if (rest_ns < 0) {
        second--;
        rest_ns += FW_NS_PER_S;
    }
    if (second != calendar->second || calendar->text[0] == '\0') {
        calendar_turn(calendar, second);
    }
    fw_text_append_string(text, calendar->text);
    char fraction[] = ".000000Z";
    int64_t micros = rest_ns / FW_NS_PER_US;
    for (size_t digit = 6; digit > 0; digit--, micros /= 10) {
        fraction[digit] = (char)('0' + micros % 10);
    }
    fw_text_append(text, fraction, sizeof fraction - 1);
}

/* Bytes that print as themselves are taken over in one piece, others are written as C would. */
static void append_escaped(struct fw_text *text, const char *message, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    size_t plain = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)message[i];
        if (byte >= ' ' && byte != 0x7f) {
            continue;
        }
        fw_text_append(text, message + plain, i - plain);
        plain = i + 1;
        char escape[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        if (byte == '\n' || byte == '\t') {
            escape[1] = byte == '\n' ? 'n' : 't';
            fw_text_append(text, escape, 2);
        } else {
            fw_text_append(text, escape, sizeof escape);
        }
    }
    fw_text_append(text, message + plain, length - plain);
}

/* Names too: those in a file that is recovered were not chosen by us. */
static void append_name(struct fw_text *text, const char *name)
{
    append_escaped(text, name, strnlen(name, NAME_MAX_SHOWN));
}

static void make_json(struct fw_text *text, struct fw_log_calendar *calendar,
                      const struct fw_log_line *line)
{
    char moment[40];
    struct fw_text moment_text;
    fw_text_init(&moment_text, moment, sizeof moment);
    append_time(&moment_text, calendar, line->wall_ns);
    char message[FW_LOG_MESSAGE_MAX + sizeof "..."];
    struct fw_text message_text;
    fw_text_init(&message_text, message, sizeof message);
    fw_text_append(&message_text, line->message, line->length);
    fw_text_append_string(&message_text, line->cut ? "..." : "");

    struct fw_json json;
    fw_json_init(&json, text, FW_JSON_COMPACT);
    fw_json_object_begin(&json);
    fw_json_key(&json, "time");
    fw_json_string(&json, moment);
    fw_json_key(&json, "level");
    fw_json_string(&json, fw_log_level_names[line->level]);
    fw_json_key(&json, "module");
    fw_json_string_bytes(&json, line->module, strnlen(line->module, NAME_MAX_SHOWN));
    fw_json_key(&json, "thread");
    fw_json_string_bytes(&json, line->thread, strnlen(line->thread, NAME_MAX_SHOWN));
    fw_json_key(&json, "message");
    fw_json_string_bytes(&json, message, message_text.length);
    fw_json_object_end(&json);
    int rc = fw_json_finish(&json);
    FW_ASSERT(rc == 0);
}

static void make_text(struct fw_text *text, struct fw_log_calendar *calendar,
                      const struct fw_log_line *line, bool is_journal)
{
    if (is_journal) {
        const char priority[] = {'<', priorities[line->level], '>'};
        fw_text_append(text, priority, sizeof priority);
    } else {
        static const char spaces[] = "         ";
        const char *level = fw_log_level_names[line->level];
        append_time(text, calendar, line->wall_ns);
        fw_text_append_char(text, ' ');
        fw_text_append_string(text, level);
        fw_text_append(text, spaces, strlen("warning ") - strlen(level));
    }
    append_name(text, line->module);
    fw_text_append_string(text, " [");
    append_name(text, line->thread);
    fw_text_append_string(text, "] ");
    append_escaped(text, line->message, line->length);
    fw_text_append_string(text, line->cut ? "..." : "");
}

void fw_log_lost_message(char message[FW_LOG_LOST_MAX], uint32_t count)
{
    (void)snprintf(message, FW_LOG_LOST_MAX, "%u line%s lost: the ring was full", count,
                   count > 1 ? "s" : "");
}

size_t fw_log_line_make(struct fw_log_calendar *calendar, enum fw_log_layout layout,
                        const struct fw_log_line *line, char out[FW_LOG_LINE_MAX])
{
    struct fw_text text;
    FW_ASSERT(line->length <= FW_LOG_MESSAGE_MAX);
    fw_text_init(&text, out, FW_LOG_LINE_MAX);
    if (layout == FW_LOG_LAYOUT_JSON) {
        make_json(&text, calendar, line);
    } else {
        make_text(&text, calendar, line, layout == FW_LOG_LAYOUT_JOURNAL);
    }
    FW_ASSERT(!text.truncated && fw_text_room(&text) > 0);
    out[text.length] = '\n';
    return text.length + 1;
}
