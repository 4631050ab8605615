/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every public header needs. FW_PUBLIC marks the functions that libfairway.so exports; all
 * others are hidden, so that a program cannot come to depend on what we mean to change.
 */
#pragma once

#define FW_PUBLIC         __attribute__((visibility("default")))
#define FW_API_MUST_CHECK __attribute__((warn_unused_result))
