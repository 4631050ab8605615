/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the load generator says and what it wants to hear: memcached's text protocol, seen from the
 * client's side, without any network.
 *
 * The requests of a connection are a pure function of a seed. The connection keeps two equal
 * generators of it, one that composes and one, as many requests behind as are in flight, that knows
 * what the next reply must be. So nothing is stored per request, and the header of every reply is
 * compared byte by byte: the right key, flags and length, in the right order.
 *
 * The value of a key depends on the key alone, so that a get can be checked whoever set it last. It
 * begins with the key's number and goes on with bytes of every kind, line ends among them: a server
 * that looks for the end of a value instead of counting is found out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum {
    FW_TRAFFIC_KEY_MIN = 8, /* The digits of its number. */
    FW_TRAFFIC_KEY_MAX = 250,
    FW_TRAFFIC_VALUE_MAX = 4 << 20,
    FW_TRAFFIC_MULTIGET_MAX = 100,
    FW_TRAFFIC_HEADER_SIZE = FW_TRAFFIC_KEY_MAX + 40,
};

/* Set by the caller down to `verify`; constant once fw_traffic_init() has made the rest. */
struct fw_traffic {
    uint64_t keys; /* How many different ones. */
    uint64_t key_size;
    uint64_t value_size;
    uint64_t set_percent;
    uint64_t multiget; /* Keys per get. */
    bool verify;       /* Compare the values too. */

    /* A text with an all-zero key number, the number's place in it and its length. */
    struct fw_traffic_text {
        char text[FW_TRAFFIC_HEADER_SIZE];
        size_t number_at;
        size_t size;
    } key, set, value; /* " <key>", "set <key> 0 0 <bytes>\r\n", "VALUE <key> 0 <bytes>\r\n". */
    char *pattern;     /* Where values are cut from. */
};

/* One connection's requests. Copying it makes the second generator. */
struct fw_traffic_source {
    uint64_t state;
    uint64_t step; /* 0: drawn at random. Otherwise sets of the keys state, state + step, ... */
};

/* The reply that is due, as far as it has been seen. */
struct fw_traffic_reply {
    struct fw_traffic_source source; /* The second generator. */
    uint64_t key;                    /* Whose value may come next. */
    uint32_t keys;                   /* Of the request. */
    uint32_t keys_left;              /* Not yet seen or missed. */
    bool set;
    bool done; /* Seen to its end. */
};

struct fw_traffic_counts {
    uint64_t requests;
    uint64_t keys;
    uint64_t hits;
    uint64_t misses;
    uint64_t stores;
    uint64_t errors; /* Replies that begin with SERVER_ERROR, such as "out of memory". */
};

/* Returns 0, -EINVAL if the keys do not fit their size, or -ENOMEM. */
FW_MUST_CHECK int fw_traffic_init(struct fw_traffic *traffic);
void fw_traffic_fini(struct fw_traffic *traffic);

/* The most bytes that one request takes, and one piece of a reply. */
size_t fw_traffic_request_max(const struct fw_traffic *traffic);
size_t fw_traffic_piece_max(const struct fw_traffic *traffic);

/* Writes the next request of `source` to `to` and returns its end. */
char *fw_traffic_compose(const struct fw_traffic *traffic, struct fw_traffic_source *source,
                         char *to);

/* Makes the reply to the next request the one that is due. */
void fw_traffic_expect(const struct fw_traffic *traffic, struct fw_traffic_reply *reply);

/*
 * Checks one piece (a value, or the last line) of the reply that is due and returns how many bytes
 * it was; 0 if it has not arrived whole, -EBADMSG if it is wrong.
 */
FW_MUST_CHECK ptrdiff_t fw_traffic_check(const struct fw_traffic *traffic,
                                         struct fw_traffic_reply *reply, const char *at,
                                         const char *end, struct fw_traffic_counts *counts);
