/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that users' structs contain, so their size must be known. What is inside is the
 * library's: users never read or write a member of these. (Inside, base/list.h and base/wheel.h
 * are their modules.)
 */
#pragma once

#include <stdint.h>

/* Place in a list. */
struct fw_list_link {
    struct fw_list_link *next; /* Both NULL while on no list. */
    struct fw_list_link *previous;
};

/* The head is a link too: an empty list points at itself, so that no end is a special case. */
struct fw_list {
    struct fw_list_link head;
};

/* Place in a timer wheel. */
struct fw_timer {
    struct fw_list_link link;
    int64_t deadline; /* As it was started, for the call-back to read. */
    uint64_t placed;  /* The tick by which it was put where it is; not after the deadline's. */
    void (*expired)(struct fw_timer *timer);
};
