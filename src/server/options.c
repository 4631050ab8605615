/* SPDX-License-Identifier: Apache-2.0 */
#include "server/options.h"

#include "base/base.h"

const char *const fw_server_io_engines[] = {"epoll", "io_uring", NULL};

const struct fw_option fw_server_options[] = {
    FW_OPTION_LIST(struct fw_server_config, listen, .section = "server", .name = "listen",
                   .flag = 'l', .value_name = "ADDRESS",
                   .help = "addresses to listen on, each with or without a port, separated by "
                           "commas; 127.0.0.1 if none is given, 0.0.0.0 for all of IPv4"),
    FW_OPTION_UINT(struct fw_server_config, port, .section = "server", .name = "port", .flag = 'p',
                   .default_text = "11211", .max = 65535,
                   .help = "TCP port for addresses without one; 0 lets the system choose"),
    FW_OPTION_STRING(struct fw_server_config, unix_socket, .section = "server",
                     .name = "unix-socket", .flag = 's', .value_name = "PATH",
                     .help = "UNIX socket to listen on; then TCP only if --listen is given too"),
    FW_OPTION_OCTAL(struct fw_server_config, unix_mode, .section = "server", .name = "unix-mask",
                    .flag = 'a', .default_text = "0700", .max = 0777,
                    .help = "permissions of the UNIX socket's file"),
    FW_OPTION_UINT(struct fw_server_config, backlog, .section = "server", .name = "listen-backlog",
                   .flag = 'b', .default_text = "1024", .min = 1, .max = 65535,
                   .unit = "connections", .help = "connections that may wait to be accepted"),
    FW_OPTION_SIZE(struct fw_server_config, memory, .section = "server", .name = "memory-limit",
                   .flag = 'm', .unit = "MiB", .default_text = "64", .min = 2 << 20,
                   .max = INT64_C(1) << 44, .help = "memory for items and their table"),
    FW_OPTION_SIZE(struct fw_server_config, item_size, .section = "server", .name = "max-item-size",
                   .flag = 'I', .default_text = "1m", .min = 1024, .max = 1 << 30,
                   .help = "size of the largest value"),
    FW_OPTION_UINT(struct fw_server_config, connections, .section = "server", .name = "conn-limit",
                   .flag = 'c', .default_text = "1024", .min = 1, .max = 1000000,
                   .unit = "connections", .help = "clients served at the same time"),
    FW_OPTION_ENUM(struct fw_server_config, io_engine, .section = "server", .name = "io-engine",
                   .default_text = "epoll", .names = fw_server_io_engines,
                   .help = "how to reach the network; io_uring sends a busy round's replies in "
                           "one call"),
};

const size_t fw_server_options_count = FW_ARRAY_LENGTH(fw_server_options);
