/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions this project does not use; the build includes this file before every source, so that
 * a use is a compile error and not a discussion. Next to each stands what to call instead.
 *
 * The system's own headers come first: a poisoned name may not be declared after the pragma.
 */
#pragma once

#include <stdio.h>  /* IWYU pragma: keep */
#include <stdlib.h> /* IWYU pragma: keep */
#include <string.h> /* IWYU pragma: keep */
#include <time.h>   /* IWYU pragma: keep */

/* A library's header that uses one of the names as its own; a meson.build says which. */
#if defined(FW_INCLUDE_FIRST)
#include FW_INCLUDE_FIRST
#endif

/* No bound on what is written: fw_text, snprintf. */
#pragma GCC poison strcpy strcat sprintf vsprintf gets stpcpy
/* A bound that does not end the string, or truncates in silence: fw_text, snprintf. */
#pragma GCC poison strncpy strncat
/* No report of overflow or rest: fw_parse_uint and its kin. */
#pragma GCC poison atoi atol atoll atof
/* Hidden state, one per process: strsep, localtime_r, gmtime_r, io/random. */
#pragma GCC poison strtok localtime gmtime ctime asctime rand srand random srandom
/* Allocation by the size of the input on the stack. */
#undef alloca
#pragma GCC poison alloca
