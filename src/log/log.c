/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/log.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/file.h"
#include "log/module.h"

enum {
    PREFIX_MAX = 128, /* Time, level, module, thread. */
    MODE = 0640,      /* Of a new file: what clients do is not for everyone to read. */
};

const char *const fw_log_level_names[] = {[FW_LOG_ERROR] = "error",
                                          [FW_LOG_WARNING] = "warning",
                                          [FW_LOG_NOTICE] = "notice",
                                          [FW_LOG_INFO] = "info",
                                          [FW_LOG_DEBUG] = "debug",
                                          [FW_LOG_TRACE] = "trace",
                                          NULL};

/* Made without a call, because the log works before main(). The lock guards all but `lost`. */
static struct {
    struct fw_mutex lock;
    struct fw_log_module *modules;
    int level;               /* For modules still to come. */
    bool to_file;            /* To `file`, otherwise to stderr. */
    struct fw_appender file; /* Closed unless `to_file`. */
    _Atomic uint64_t lost;   /* Relaxed: a counter that orders nothing. */
} state = {.lock = FW_MUTEX_INITIALIZER(FW_RANK_LOG), .level = FW_LOG_NOTICE};

/* ---- A line. ---- */

static size_t add_time(char *text, size_t size)
{
    int64_t now_ns = fw_clock_wall_ns();
    time_t seconds = now_ns / FW_NS_PER_S;
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    int length = snprintf(text, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", utc.tm_year + 1900,
                          utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                          (int)(now_ns % FW_NS_PER_S / FW_NS_PER_US));
    FW_ASSERT(length > 0 && (size_t)length < size);
    return (size_t)length;
}

static size_t add_prefix(const struct fw_log_site *site, char text[PREFIX_MAX])
{
    size_t length = add_time(text, PREFIX_MAX);
    int added =
        snprintf(text + length, PREFIX_MAX - length, " %-7s %.32s [%.15s] ",
                 fw_log_level_names[site->level], site->module->name, fw_thread_self()->name);
    FW_ASSERT(added > 0 && (size_t)added < PREFIX_MAX - length);
    return length + (size_t)added;
}

/* One character that prints as itself or is written as C would. Returns how many were added. */
static size_t add_escaped(char *text, char letter)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char byte = (unsigned char)letter;
    if (byte >= ' ' && byte != 0x7f) {
        text[0] = letter;
        return 1;
    }
    text[0] = '\\';
    if (letter == '\n' || letter == '\t') {
        text[1] = letter == '\n' ? 'n' : 't';
        return 2;
    }
    text[1] = 'x';
    text[2] = digits[byte >> 4];
    text[3] = digits[byte & 15];
    return 4;
}

/*
 * One write() per line, which a file opened for appending and a pipe both keep whole even among
 * processes; stderr has no buffer, so that fwrite() is one too. What is taken only in part is
 * finished under the same lock.
 */
static bool line_write(const char *line, size_t length) FW_REQUIRES(state.lock)
{
    if (state.to_file) {
        return fw_appender_write(&state.file, line, length, NULL) == 0;
    }
    return fwrite(line, 1, length, stderr) == length;
}

void fw_log_write(const struct fw_log_site *site, const char *format, ...)
{
    int errno_before = errno;
    char message[FW_LOG_MESSAGE_MAX + 1];
    char line[PREFIX_MAX + 4 * FW_LOG_MESSAGE_MAX + 4]; /* Escapes, "..." and the newline. */
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);

    size_t length = add_prefix(site, line);
    for (const char *letter = message; wanted > 0 && *letter != '\0'; letter++) {
        length += add_escaped(line + length, *letter);
    }
    if (wanted > FW_LOG_MESSAGE_MAX) {
        length += (size_t)snprintf(line + length, sizeof line - length, "...");
    }
    line[length] = '\n';
    length++;

    fw_mutex_lock(&state.lock);
    bool written = line_write(line, length);
    fw_mutex_unlock(&state.lock);
    if (!written) {
        (void)atomic_fetch_add_explicit(&state.lost, 1, memory_order_relaxed);
    }
    errno = errno_before;
}

uint64_t fw_log_lost(void)
{
    return atomic_load_explicit(&state.lost, memory_order_relaxed);
}

/* ---- Modules and levels. ---- */

void fw_log_register(struct fw_log_module *module)
{
    fw_mutex_lock(&state.lock);
    module->next = state.modules;
    state.modules = module;
    atomic_store_explicit(&module->level, state.level, memory_order_relaxed);
    fw_mutex_unlock(&state.lock);
}

int fw_log_set_level(const char *module_name, enum fw_log_level level)
{
    bool found = module_name == NULL;
    fw_mutex_lock(&state.lock);
    if (module_name == NULL) {
        state.level = (int)level;
    }
    for (struct fw_log_module *module = state.modules; module != NULL; module = module->next) {
        if (module_name == NULL || strcmp(module->name, module_name) == 0) {
            atomic_store_explicit(&module->level, (int)level, memory_order_relaxed);
            found = true;
        }
    }
    fw_mutex_unlock(&state.lock);
    return found ? 0 : -ENOENT;
}

struct fw_log_module *fw_log_module_find(const char *name, size_t length,
                                         struct fw_nearest *nearest)
{
    struct fw_log_module *found = NULL;
    fw_nearest_init(nearest, name, length);
    fw_mutex_lock(&state.lock);
    for (struct fw_log_module *module = state.modules; module != NULL; module = module->next) {
        size_t module_length = strlen(module->name);
        fw_nearest_offer(nearest, module->name, module_length);
        if (module_length == length && memcmp(module->name, name, length) == 0) {
            found = module;
        }
    }
    fw_mutex_unlock(&state.lock);
    return found;
}

/* ---- Where the lines go. ---- */

int fw_log_open(const char *path, struct fw_reason *reason)
{
    struct fw_appender file = {.path = NULL};
    if (path != NULL) {
        int rc = fw_appender_open(&file, path, MODE, reason);
        if (rc != 0) {
            return rc;
        }
    }
    fw_mutex_lock(&state.lock);
    struct fw_appender file_before = state.file;
    bool to_file_before = state.to_file;
    state.file = file;
    state.to_file = path != NULL;
    fw_mutex_unlock(&state.lock);
    if (to_file_before) {
        fw_appender_close(&file_before);
    }
    return 0;
}

int fw_log_set_file(const char *path)
{
    return fw_log_open(path, NULL);
}

int fw_log_reopen(void)
{
    fw_mutex_lock(&state.lock);
    int rc = state.to_file ? fw_appender_reopen(&state.file, NULL) : 0;
    fw_mutex_unlock(&state.lock);
    return rc;
}
