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
 * counted in fw_log_lost() and forgotten: the log never fails. It leaves errno alone.
 *
 * Synchronous, asynchronous. At first a call makes its line and writes it. From fw_log_start() to
 * fw_log_stop() it only copies its arguments, unformatted, into a ring of its thread: some 20 ns.
 * A writer takes them from there in batches. Going from one way to the other neither loses nor
 * reorders lines of a thread. Lines of different threads are put in order by their time as far as
 * one batch reaches.
 *
 *     caller                 ring of its thread             whoever is the writer
 *     pack arguments ──────► [ site, ticks, arguments ] ──► order by ticks, make text, one write()
 *     ring the bell if the writer sleeps  ◄──────────────── sleep when all rings are empty
 *
 * What a call stores. A format is a literal, which the macro enforces, and is parsed once for each
 * place in the source; numbers are copied as they are, strings byte by byte. What printf() can do
 * but a copy cannot (%m, wide strings, positions) is formatted by the caller. %n is not allowed.
 *
 * When the ring is full, the policy says what happens: the call waits, or the line is dropped and
 * counted, or that depends on its level. A line "N lines lost" stands where they are missing. No
 * call ever waits for anything else: not for a lock that a writer holds, not for the disk.
 *
 * The time of a line is that of the call. An exact clock would cost as much as all the rest, and a
 * coarse one stands still for milliseconds, in which lines of two threads could not be ordered. So
 * a line carries the processor's counter, where the kernel itself trusts it, and the writer, who
 * looks at the true clock once per batch, converts it (io/clock.h, fw_clock_ticks()). Two threads'
 * lines closer than some 100 ns may come in either order.
 *
 * The writer is a role, taken by one thread at a time: by the thread that fw_log_start() makes, or
 * by one that has other work too, such as the job kernel's monitor (fw_log_drain()). A caller that
 * must wait for room takes the role itself if it is free, so nobody waits for a sleeping writer.
 *
 * kill -9. With a `map_directory`, rings are in a file there; when the process is gone, `fairway
 * log recover FILE` prints what its calls had stored and the writer had not written. Every line
 * whose call had returned is in the log or in that file; the last batch may be in both. The file is
 * removed by fw_log_stop(). A crash of the machine is not covered.
 *
 * Threads. Any thread may call anything here at any time, except under a lock that is a leaf, and
 * except that start() and stop() are called by one thread. A thread that ends gives its ring to the
 * next. When all rings are taken, further threads share one, with a lock. fork() without exec() is
 * not supported once the log is started: the child would write into its parent's rings.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
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
    int own;           /* The log's: that level, had nobody raised it. */
    struct fw_log_module *next;
};

/* A place in the source that logs. */
struct fw_log_known;
struct fw_log_site {
    struct fw_log_module *module;
    enum fw_log_level level;
    const char *format;
    const char *file;
    int line;
    /* The log's: the format taken apart, or that it cannot be. */
    _Atomic(const struct fw_log_known *) known;
    atomic_bool is_text;
};

/* Defines the module `identifier` and makes it known before main() begins. */
#define FW_LOG_MODULE(identifier)                                                        \
    FW_LOG_MODULE_USE(identifier);                                                       \
    __attribute__((constructor)) static void fw_log_module_##identifier##_register(void) \
    {                                                                                    \
        fw_log_register(&fw_log_module_##identifier);                                    \
    }                                                                                    \
    struct fw_log_module fw_log_module_##identifier = {                                  \
        .name = #identifier, .level = FW_LOG_NOTICE, .own = FW_LOG_NOTICE}

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
            static struct fw_log_site fw_log_site_here = {                                   \
                .module = &fw_log_module_##identifier,                                       \
                .level = FW_LOG_##log_level,                                                 \
                .format = "" FW_LOG_FIRST(__VA_ARGS__, 0), /* Compiles for literals only. */ \
                .file = __FILE__,                                                            \
                .line = __LINE__,                                                            \
            };                                                                               \
            FW_LOG_CALL(&fw_log_site_here, __VA_ARGS__);                                     \
        }                                                                                    \
    } while (0)
#define FW_LOG_FIRST(first, ...) first

/*
 * Most lines have a few numbers and nothing else. Those go to fw_log_write_words() in registers,
 * once the log knows the site; to take them out of a variable list would be a good part of what the
 * whole call costs. Of the two calls one is made, and the compiler knows which numbers are; the
 * other is still there for it to check the format.
 */
#define FW_LOG_CALL(site, ...)                                                            \
    FW_LOG_PICK(__VA_ARGS__, FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY,  \
                FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY, FW_LOG_ANY,   \
                FW_LOG_ANY, FW_LOG_4, FW_LOG_3, FW_LOG_2, FW_LOG_1, FW_LOG_0, FW_LOG_ANY) \
    (site, __VA_ARGS__)
#define FW_LOG_PICK(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, name, ...) name

#define FW_LOG_ANY(site, ...) fw_log_write(site, __VA_ARGS__)
#define FW_LOG_0(site, f)     FW_LOG_WORDS(site, true, (f), 0, 0, 0, 0)
#define FW_LOG_1(site, f, a)  FW_LOG_WORDS(site, FW_LOG_NUMBER(a), (f, a), a, 0, 0, 0)
#define FW_LOG_2(site, f, a, b) \
    FW_LOG_WORDS(site, FW_LOG_NUMBER(a) && FW_LOG_NUMBER(b), (f, a, b), a, b, 0, 0)
#define FW_LOG_3(site, f, a, b, c)                                                                \
    FW_LOG_WORDS(site, FW_LOG_NUMBER(a) && FW_LOG_NUMBER(b) && FW_LOG_NUMBER(c), (f, a, b, c), a, \
                 b, c, 0)
#define FW_LOG_4(site, f, a, b, c, d)                                                          \
    FW_LOG_WORDS(site,                                                                         \
                 FW_LOG_NUMBER(a) && FW_LOG_NUMBER(b) && FW_LOG_NUMBER(c) && FW_LOG_NUMBER(d), \
                 (f, a, b, c, d), a, b, c, d)
#define FW_LOG_NUMBER(argument) (__builtin_classify_type(argument) == 1) /* An integer. */
#define FW_LOG_WORDS(site, all_numbers, list, a, b, c, d)                                       \
    ((all_numbers) && atomic_load_explicit(&(site)->known, memory_order_relaxed) != NULL        \
         ? fw_log_write_words(site, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d)) \
         : fw_log_write(site, FW_LOG_UNPACK list))
#define FW_LOG_UNPACK(...) __VA_ARGS__

/* What the macros call. `format` is the site's, given again so that the compiler checks it. */
FW_PUBLIC void fw_log_register(struct fw_log_module *module);
FW_PUBLIC void fw_log_write(struct fw_log_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the arguments as words, the first ones of as many as the format has. */
FW_PUBLIC void fw_log_write_words(struct fw_log_site *site, uint64_t a, uint64_t b, uint64_t c,
                                  uint64_t d);

/*
 * Sets the level of the module of that name, or for NULL of all modules, those still to be loaded
 * included. Returns 0, or -ENOENT if there is no such module.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_set_level(const char *module_name, enum fw_log_level level);

/*
 * Asks for more lines on behalf of somebody who does not run the program, such as a client with the
 * command `verbosity`. Every module logs up to `level`, but nothing beyond the limit, which is
 * FW_LOG_ERROR unless set otherwise, and never less than what fw_log_set_level() says. A new level
 * replaces what was asked for before.
 */
FW_PUBLIC void fw_log_raise(enum fw_log_level level);
FW_PUBLIC void fw_log_set_raise_limit(enum fw_log_level limit);

/*
 * Appends to the file at `path` from now on, which is made if it is not there; NULL is stderr,
 * where journald gets its priorities. Returns 0 or a negative errno, and then goes on with what it
 * had.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_set_file(const char *path);

/*
 * Opens the file again by its name, after logrotate has moved it away. Nothing happens if the log
 * goes to stderr. Returns as fw_log_set_file(); while the log is asynchronous it returns 0 at once,
 * the writer does it, and says in the log if it could not.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_reopen(void);

/*
 * A file that has grown to `size` bytes becomes FILE.1, that FILE.2, up to FILE.`keep`, and a new
 * one is begun. 0: never. If that fails, lines are dropped and counted until it works: the file
 * does not grow beyond its limit.
 */
FW_PUBLIC void fw_log_set_rotation(uint64_t size, uint32_t keep);

/* A JSON object per line, with time, level, module, thread and message. */
FW_PUBLIC void fw_log_set_json(bool is_json);

/* What happens to a line for which its thread's ring has no room. */
enum fw_log_policy {
    FW_LOG_BLOCK,      /* The call waits for the writer. None is lost. */
    FW_LOG_DROP,       /* The line is dropped. No call ever waits. */
    FW_LOG_DROP_BELOW, /* Lines of a level, and those more urgent, wait; others are dropped. */
};
FW_PUBLIC void fw_log_set_policy(enum fw_log_policy policy, enum fw_log_level waiting_level);

/*
 * Lines that were not written since the program began: dropped by the policy, or refused by the
 * target.
 */
FW_PUBLIC uint64_t fw_log_lost(void);

struct fw_log_setup {
    uint64_t ring_size;        /* Bytes per thread, a power of two from 8 KiB to 16 MiB. */
    uint32_t rings;            /* Threads with a ring of their own, 1 to 1,024. */
    const char *map_directory; /* NULL or empty: rings are in plain memory. */
    bool without_thread;       /* The caller sees to it that fw_log_drain() is called. */
};

/*
 * Makes the log asynchronous; NULL is 128 KiB for each of 64 threads, plain memory, own thread.
 * All memory is taken now. Returns 0, -EINVAL, -EALREADY, or why there is no memory, file or
 * thread.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_log_start(const struct fw_log_setup *setup);

/* Writes what is in the rings and makes the log synchronous again. */
FW_PUBLIC void fw_log_stop(void);

/*
 * Takes the writer's role, if it is free, and writes what was in the rings when it began. True if
 * that was something. Harmless at any time.
 */
FW_PUBLIC bool fw_log_drain(void);

/*
 * For a thread that drains besides other work, and sleeps: `wake` is called, by any thread that
 * logs and with `context`, when there is something to do. NULL: nobody wants to know, and once this
 * returns nobody is being told.
 *
 *     fw_log_set_waker(wake, me);
 *     for (;;) {
 *         while (fw_log_drain()) { }
 *         if (fw_log_arm()) { sleep until woken }
 *         fw_log_disarm();
 *     }
 *
 * arm() asks to be woken by the next line; false: there is one already, so do not sleep. It
 * interrupts the other threads for a moment, so it is for who has found nothing to do.
 */
FW_PUBLIC void fw_log_set_waker(void (*wake)(void *context), void *context);
FW_PUBLIC FW_API_MUST_CHECK bool fw_log_arm(void);
FW_PUBLIC void fw_log_disarm(void);
