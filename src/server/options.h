/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's own options: where it listens, how much it may take. The rows are in options.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

enum fw_server_io_engine { FW_SERVER_EPOLL, FW_SERVER_IO_URING };

struct fw_server_config {
    struct fw_option_list listen; /* Addresses; those without a port get `port`. */
    uint64_t port;
    const char *unix_socket; /* A path, or NULL. Then no TCP unless `listen` was given. */
    uint64_t unix_mode;
    uint64_t backlog;
    uint64_t memory;      /* Bytes for items and table. */
    uint64_t item_size;   /* Bytes of the largest value. */
    uint64_t connections; /* At the same time. */
    enum fw_server_io_engine io_engine;
};

/* In the order of the enum, NULL at the end; as fw_reactor_choose() knows them. */
extern const char *const fw_server_io_engines[];

extern const struct fw_option fw_server_options[];
extern const size_t fw_server_options_count;
