/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: one line per event, for the people who run the program.
 *
 *     FW_LOG_MODULE(server);                       in one file of the module
 *     FW_LOG_MODULE_USE(server);                   in its other files, or a header of its own
 *
 *     FW_LOG(server, NOTICE, "listening on %s", text);
 *
 *     2026-03-01T12:00:00.123456Z notice  server [fairway] listening on 127.0.0.1:11211
 *
 * A module is a name with a level of its own, which can change at any time. A call below the level
 * costs one load and one branch; its arguments are not even evaluated. A call that is written
 * becomes exactly one line: control characters in it are escaped, so what a client sent cannot
 * forge a second line, and it is cut at FW_LOG_MESSAGE_MAX. Lines of several threads never mix, and
 * the lines of one thread keep their order.
 *
 * The log works from the first statement of main(), before any option is read (to stderr, up to
 * notice), and needs no shutdown. A line that cannot be written (a full disk, a closed pipe) is
 * counted in fw_log_lost() and forgotten: the log never fails and never stops its caller. It leaves
 * errno alone.
 *
 * Today a line is formatted and written by the caller. The calls are made so that this can change
 * without them: a format is a literal, which the macro enforces, and each place in the source has a
 * constant description that a ring buffer can point to, with the arguments beside it unformatted.
 * So the format may not use %n, and what %s points to is read before the call returns.
 *
 * Any thread may call anything here at any time, except under a lock that is a leaf.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include <fairway/api.h>

/* More detail, higher number; the syslog priorities that journald knows, and trace. */
enum fw_log_level {
    FW_LOG_ERROR,   /* Something asked for did not happen; somebody must act. */
    FW_LOG_WARNING, /* It works, but it will not for long, or not as meant. */
    FW_LOG_NOTICE,  /* What an operator wants to see of a healthy server: start, stop, changes. */
    FW_LOG_INFO,    /* Single connections, slow requests. */
    FW_LOG_DEBUG,   /* For who looks for a fault. */
    FW_LOG_TRACE,   /* Every step. */
};

enum { FW_LOG_MESSAGE_MAX = 1024 }; /* Bytes of a message; a longer one ends in "...". */

struct fw_log_module {
    const char *name;
    _Atomic int level; /* Lines up to this level are written. */
    struct fw_log_module *next;
};

/* A place in the source that logs. */
struct fw_log_site {
    struct fw_log_module *module;
    enum fw_log_level level;
    const char *format;
    const char *file;
    int line;
};

/* Defines the module `identifier` and makes it known before main() begins. */
#define FW_LOG_MODULE(identifier)                                                        \
    FW_LOG_MODULE_USE(identifier);                                                       \
    __attribute__((constructor)) static void fw_log_module_##identifier##_register(void) \
    {                                                                                    \
        fw_log_register(&fw_log_module_##identifier);                                    \
    }                                                                                    \
    struct fw_log_module fw_log_module_##identifier = {.name = #identifier, .level = FW_LOG_NOTICE}

/* Declares a module that another file defines. */
#define FW_LOG_MODULE_USE(identifier) extern struct fw_log_module fw_log_module_##identifier

/*
 * True if a line of this level would be written now; for what takes work to prepare. Relaxed: a
 * changed level orders nothing, and a thread that sees it a moment late just logs a line more or
 * less.
 */
#define FW_LOG_IS_ON(identifier, log_level)                                                \
    __builtin_expect(                                                                      \
        (int)FW_LOG_##log_level <=                                                         \
            atomic_load_explicit(&fw_log_module_##identifier.level, memory_order_relaxed), \
        FW_LOG_##log_level <= FW_LOG_NOTICE)

/* Logs: FW_LOG(module, ERROR, "printf-like format", arguments...). */
#define FW_LOG(identifier, log_level, ...)                                                   \
    do {                                                                                     \
        if (FW_LOG_IS_ON(identifier, log_level)) {                                           \
            static const struct fw_log_site fw_log_site_here = {                             \
                .module = &fw_log_module_##identifier,                                       \
                .level = FW_LOG_##log_level,                                                 \
                .format = "" FW_LOG_FIRST(__VA_ARGS__, 0), /* Compiles for literals only. */ \
                .file = __FILE__,                                                            \
                .line = __LINE__,                                                            \
            };                                                                               \
            fw_log_write(&fw_log_site_here, __VA_ARGS__);                                    \
        }                                                                                    \
    } while (0)
#define FW_LOG_FIRST(first, ...) first

/* What the macros call. `format` is the site's, given again so that the compiler checks it. */
FW_PUBLIC void fw_log_register(struct fw_log_module *module);
FW_PUBLIC void fw_log_write(const struct fw_log_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Sets the level of the module of that name, or for NULL of all modules, those still to be loaded
 * included. Returns 0, or -ENOENT if there is no such module.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_set_level(const char *module_name, enum fw_log_level level);

/*
 * Appends to the file at `path` from now on, which is made if it is not there; NULL is stderr.
 * Returns 0 or a negative errno, and then goes on with what it had.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_set_file(const char *path);

/*
 * Opens the file again by its name, after logrotate has moved it away. Nothing happens if the log
 * goes to stderr. Returns as fw_log_set_file().
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_reopen(void);

/* Lines that could not be written since the program began. */
FW_PUBLIC uint64_t fw_log_lost(void);
