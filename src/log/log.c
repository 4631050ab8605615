/* SPDX-License-Identifier: Apache-2.0 */
#include <fairway/log.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/base.h"
#include "base/mutex.h"
#include "base/thread.h"
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
    int level;  /* For modules still to come. */
    char *path; /* NULL: stderr. */
    int fd;
    _Atomic uint64_t lost; /* Relaxed: a counter that orders nothing. */
} state = {.lock = {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = FW_RANK_LOG},
           .level = FW_LOG_NOTICE,
           .fd = STDERR_FILENO};

/* ---- A line. ---- */

static size_t add_time(char *text, size_t size)
{
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    int length = snprintf(text, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ", utc.tm_year + 1900,
                          utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                          now.tv_nsec / 1000);
    return (size_t)length;
}

/* The name it was created with; a thread that is not ours has what the kernel knows. */
static const char *thread_name(char buffer[FW_THREAD_NAME_SIZE])
{
    const char *name = fw_thread_self()->name;
    if (name != NULL) {
        return name;
    }
    return pthread_getname_np(pthread_self(), buffer, FW_THREAD_NAME_SIZE) == 0 ? buffer : "?";
}

static size_t add_prefix(const struct fw_log_site *site, char text[PREFIX_MAX])
{
    char name[FW_THREAD_NAME_SIZE];
    size_t length = add_time(text, PREFIX_MAX);
    int added = snprintf(text + length, PREFIX_MAX - length, " %-7s %.32s [%.15s] ",
                         fw_log_level_names[site->level], site->module->name, thread_name(name));
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
 * One write() per line: a file opened for appending and a pipe both keep it whole even among
 * processes. What they take only in part is finished under the same lock.
 */
static void line_write(const char *line, size_t length) FW_REQUIRES(state.lock)
{
    while (length > 0) {
        ssize_t written = write(state.fd, line, length);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            (void)atomic_fetch_add_explicit(&state.lost, 1, memory_order_relaxed);
            return;
        }
        line += written;
        length -= (size_t)written;
    }
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
    line_write(line, length);
    fw_mutex_unlock(&state.lock);
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

/* Makes `fd` and `path`, which are the log's from here on, the target. */
static void target_replace(int fd, char *path)
{
    fw_mutex_lock(&state.lock);
    int fd_before = state.fd;
    char *path_before = state.path;
    state.fd = fd;
    state.path = path;
    fw_mutex_unlock(&state.lock);
    if (path_before != NULL) {
        (void)close(fd_before);
        free(path_before);
    }
}

static int file_open(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, MODE);
    return fd >= 0 ? fd : -errno;
}

int fw_log_set_file(const char *path)
{
    if (path == NULL) {
        target_replace(STDERR_FILENO, NULL);
        return 0;
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        return -ENOMEM;
    }
    int fd = file_open(path);
    if (fd < 0) {
        free(copy);
        return fd;
    }
    target_replace(fd, copy);
    return 0;
}

int fw_log_reopen(void)
{
    fw_mutex_lock(&state.lock);
    char *path = state.path != NULL ? strdup(state.path) : NULL;
    bool no_memory = path == NULL && state.path != NULL;
    fw_mutex_unlock(&state.lock);
    if (no_memory) {
        return -ENOMEM;
    }
    if (path == NULL) {
        return 0;
    }
    int rc = fw_log_set_file(path);
    free(path);
    return rc;
}
