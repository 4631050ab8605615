/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiler attributes and constants every module may use. Depends on nothing.
 */
#pragma once

#include <stddef.h>

#define FW_CACHE_LINE 64

/* Every function that returns a negative errno carries this. */
#define FW_MUST_CHECK __attribute__((warn_unused_result))

/* The format of a printf-like function is argument `nth`, what it prints starts at `first`. */
#define FW_PRINTF(nth, first) __attribute__((format(printf, nth, first)))

/*
 * Before the declaration of a variable that hot code reads: it is never another library's, so that
 * no table of addresses needs to be asked where it is.
 */
#define FW_INTERNAL __attribute__((visibility("hidden")))

#define FW_LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define FW_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* The struct of `type` whose member `member` is at `pointer`. */
#define FW_CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* 1 in builds that look for data races, else 0. */
#if defined(__SANITIZE_THREAD__)
#define FW_TSAN 1
#elif defined(__has_feature)
#define FW_TSAN __has_feature(thread_sanitizer)
#else
#define FW_TSAN 0
#endif

#define FW_ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/*
 * Clang thread-safety attributes; gcc sees nothing. In C, clang 14 cannot name a sibling member in
 * guarded_by(), so guarded fields carry a comment and the functions that touch them FW_REQUIRES().
 */
#if defined(__clang__)
#define FW_TSA(attribute) __attribute__((attribute))
#else
#define FW_TSA(attribute)
#endif
#define FW_CAPABILITY(name) FW_TSA(capability(name))
#define FW_ACQUIRES(lock)   FW_TSA(acquire_capability(lock))
#define FW_RELEASES(lock)   FW_TSA(release_capability(lock))
#define FW_REQUIRES(lock)   FW_TSA(requires_capability(lock))
#define FW_EXCLUDES(lock)   FW_TSA(locks_excluded(lock))
#define FW_TSA_TRUSTED      FW_TSA(no_thread_safety_analysis) /* For locks themselves. */
