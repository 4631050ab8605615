/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's own options: where it listens, how much it may take. The rows are in options.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

struct fw_server_config {
    struct fw_option_list listen; /* Addresses; those without a port get `port`. */
    uint64_t port;
    const char *unix_socket; /* A path, or NULL. Then no TCP unless `listen` was given. */
    uint64_t unix_mode;
    uint64_t backlog;
    uint64_t memory;      /* Bytes for items and table. */
    uint64_t item_size;   /* Bytes of the largest value. */
    uint64_t connections; /* At the same time. */
};

extern const struct fw_option fw_server_options[];
extern const size_t fw_server_options_count;
