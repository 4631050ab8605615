/* SPDX-License-Identifier: Apache-2.0 */
#include "server/options.h"

#include <fairway/volume.h>

#include "base/base.h"
#include "engine/core.h"
#include "io/clock.h"

static const char *const protocols[] = {"auto", "ascii", "binary", NULL};
const char *const fw_server_io_engines[] = {"epoll", "io_uring", NULL};

#define ROW(type, field, option_name, ...)                                                     \
    FW_OPTION_##type(struct fw_server_config, field, .section = "server", .name = option_name, \
                     __VA_ARGS__)

const struct fw_option fw_server_options[] = {
    ROW(LIST, listen, "listen", .flag = 'l', .value_name = "ADDRESS",
        .help = "addresses to listen on, each with or without a port, separated by "
                "commas; 127.0.0.1 if none is given, 0.0.0.0 for all of IPv4"),
    ROW(UINT, port, "port", .flag = 'p', .default_text = "11211", .max = 65535,
        .help = "TCP port for addresses without one; 0 lets the system choose"),
    ROW(STRING, unix_socket, "unix-socket", .flag = 's', .value_name = "PATH",
        .help = "UNIX socket to listen on; then TCP only if --listen is given too"),
    ROW(OCTAL, unix_mode, "unix-mask", .flag = 'a', .default_text = "0700", .max = 0777,
        .help = "permissions of the UNIX socket's file"),
    ROW(STRING, admin_socket, "admin-socket", .value_name = "PATH",
        .help = "UNIX socket for 'fairway admin', which only this user and root may use; none if "
                "not given"),
    ROW(UINT, backlog, "listen-backlog", .flag = 'b', .default_text = "1024", .min = 1,
        .max = 65535, .unit = "connections", .help = "connections that may wait to be accepted"),
    ROW(SIZE, memory, "memory-limit", .flag = 'm', .unit = "MiB", .default_text = "64",
        .min = 2 << 20, .max = INT64_C(1) << 40, .help = "memory for items and their table"),
    ROW(SIZE, client_memory, "client-memory", .unit = "MiB", .default_text = "256",
        .max = INT64_C(1) << 40,
        .help = "memory for requests that are not complete and replies that clients do not take, "
                "beside --memory-limit; 0: no limit"),
    ROW(SIZE, client_memory, "read-buf-mem-limit", .unit = "MiB", .default_text = "256",
        .max = INT64_C(1) << 40, .help = "memcached's name of --client-memory"),
    ROW(STRING, memory_file, "memory-file", .flag = 'e', .value_name = "FILE",
        .help = "keep all items over a restart: they are written there at a clean stop, and read "
                "at the next start"),
    ROW(BOOL, no_evictions, "disable-evictions", .flag = 'M', .default_text = "no",
        .help = "answer an error when memory is used up instead of dropping items"),
    ROW(SIZE, item_size, "max-item-size", .flag = 'I', .default_text = "1m", .min = 1024,
        .max = 1 << 30, .help = "size of the largest item"),
    ROW(UINT, connections, "conn-limit", .flag = 'c', .default_text = "1024", .min = 1,
        .max = 1000000, .unit = "connections", .help = "clients served at the same time"),
    ROW(BOOL, refuses_fast, "maxconns-fast", .default_text = "yes",
        .help = "tell clients beyond the limit so and close; else they wait until others go"),
    ROW(UINT, threads, "threads", .flag = 't', .default_text = "0", .max = FW_CORES_MAX,
        .unit = "threads", .help = "threads that serve; 0: one for each processor"),
    ROW(UINT, turn_commands, "max-reqs-per-event", .flag = 'R', .default_text = "20", .min = 1,
        .max = 1000000, .unit = "commands",
        .help = "commands of one connection before others have a turn"),
    ROW(DURATION, idle_timeout_ns, "idle-timeout", .default_text = "0", .unit = "s",
        .help = "close connections on which nothing has come for so long; 0: never"),
    ROW(DURATION, drain_ns, "drain-limit", .default_text = "5s", .unit = "s",
        .help = "how long clients may take to fetch their replies after SIGTERM"),
    ROW(BOOL, no_cas, "disable-cas", .flag = 'C', .default_text = "no",
        .help = "show no CAS numbers, and compare none"),
    ROW(BOOL, no_flush, "disable-flush-all", .flag = 'F', .default_text = "no",
        .help = "refuse flush_all"),
    ROW(BOOL, no_dump, "disable-dumping", .flag = 'X', .default_text = "no",
        .help = "refuse commands that list keys"),
    ROW(BOOL, has_sizes, "track-sizes", .default_text = "no",
        .help = "answer stats sizes, for which all items are gone through"),
    ROW(BOOL, has_shutdown, "enable-shutdown", .flag = 'A', .default_text = "no",
        .help = "let clients stop the server with the command shutdown"),
    ROW(BOOL, has_locking, "enable-locking", .default_text = "no",
        .help = "let clients lock items and list keys, with the commands of yrmcds"),
    ROW(BOOL, erases, "secure-erase", .default_text = "no",
        .help = "overwrite values with zeros in memory as soon as they are gone"),
    ROW(STRING, auth_file, "auth-file", .flag = 'Y', .value_name = "FILE",
        .help = "users of the text protocol, a line user:password each; then all must log in"),
    ROW(BOOL, has_sasl, "enable-sasl", .flag = 'S', .default_text = "no",
        .help = "binary protocol with SASL PLAIN only; users are in --sasl-file or --auth-file"),
    ROW(STRING, sasl_file, "sasl-file", .value_name = "FILE",
        .help = "users for --enable-sasl, as in --auth-file; the environment's "
                "MEMCACHED_SASL_PWDB if not given"),
    ROW(ENUM, protocol, "protocol", .flag = 'B', .default_text = "auto", .names = protocols,
        .help = "which protocol to speak; auto: whichever a connection begins with, but ascii with "
                "--auth-file and binary with --enable-sasl"),
    ROW(ENUM, io_engine, "io-engine", .default_text = "epoll", .names = fw_server_io_engines,
        .help = "how to reach the network"),
};
const size_t fw_server_options_count = FW_ARRAY_LENGTH(fw_server_options);

#define COUNTERS(type, field, option_name, ...)                                     \
    FW_OPTION_##type(struct fw_server_counters_config, field, .section = "counter", \
                     .name = option_name, __VA_ARGS__)

const struct fw_option fw_server_counters_options[] = {
    COUNTERS(BOOL, is_enabled, "enable", .default_text = "no",
             .help = "serve yrmcds' counters of resources, to whoever can connect"),
    COUNTERS(LIST, listen, "listen", .value_name = "ADDRESS",
             .help = "addresses to serve them on, as for --listen; 127.0.0.1 if none is given"),
    COUNTERS(UINT, port, "port", .default_text = "11215", .max = 65535,
             .help = "TCP port for addresses without one; 0 lets the system choose"),
    COUNTERS(SIZE, memory, "memory", .default_text = "64m", .min = 1 << 20, .max = INT64_C(1) << 36,
             .help = "memory for counters and who has claimed what"),
    COUNTERS(DURATION, interval_ns, "stat-interval", .default_text = "1d", .unit = "s",
             .min = FW_NS_PER_S, .max = 365 * INT64_C(86400) * FW_NS_PER_S,
             .help = "of which a counter's highest consumption is kept"),
};
const size_t fw_server_counters_options_count = FW_ARRAY_LENGTH(fw_server_counters_options);

#define LARGE(type, field, option_name, ...)                                   \
    FW_OPTION_##type(struct fw_server_large_config, field, .section = "large", \
                     .name = option_name, __VA_ARGS__)

const struct fw_option fw_server_large_options[] = {
    LARGE(SIZE, value_min, "value-min", .default_text = "1m", .min = FW_LARGE_VALUE_MIN,
          .max = 1 << 30,
          .help = "values longer than this are kept in a file, as far as --max-item-size allows"),
    LARGE(SIZE, limit, "limit", .default_text = "4g", .min = 1 << 20, .max = INT64_C(1) << 46,
          .help = "how large the file may become; beyond that the oldest of its values go"),
    LARGE(STRING, folder, "directory", .value_name = "PATH",
          .help = "where to make the file, which has no name there; the environment's TMPDIR, or "
                  "/var/tmp, if not given"),
    LARGE(STRING, volume, "volume", .value_name = "PATH",
          .help =
              "block device, file, or volume of a group (NAME@GROUP) to use instead; what is on "
              "it is lost"),
};
const size_t fw_server_large_options_count = FW_ARRAY_LENGTH(fw_server_large_options);

#define VOLUME(type, field, option_name, ...)                                    \
    FW_OPTION_##type(struct fw_server_volume_config, field, .section = "volume", \
                     .name = option_name, __VA_ARGS__)

const struct fw_option fw_server_volume_options[] = {
    VOLUME(STRING, group, "group", .value_name = "PATH",
           .help = "disk of a group of volumes ('fairway volume'); none if not given"),
    VOLUME(STRING, host, "host", .value_name = "NAME",
           .help = "be the agent of this host of the group"),
    VOLUME(BOOL, is_manager, "manager", .default_text = "no",
           .help = "be the manager of the group; it has one"),
    VOLUME(UINT, pool_min, "pool-min", .default_text = "16", .min = 1, .max = FW_VOLUME_EXTENTS_MAX,
           .unit = "extents", .help = "what the manager always gives a host in advance"),
    VOLUME(UINT, low_percent, "low", .default_text = "10", .min = 1, .max = 99, .unit = "%",
           .help = "the manager warns when less than this of the group is free"),
    VOLUME(DURATION, interval_ns, "interval", .unit = "ms", .default_text = "100",
           .min = FW_NS_PER_MS, .max = (int64_t)FW_RING_BEAT_MS * FW_NS_PER_MS,
           .help = "how often to look into the rings"),
};
const size_t fw_server_volume_options_count = FW_ARRAY_LENGTH(fw_server_volume_options);

/* With memcached's letter, or 0. */
#define TEXT(option_flag, option_name)                                                             \
    FW_OPTION_STRING(struct fw_server_ignored, text, .name = (option_name), .flag = (option_flag), \
                     .help = "of memcached, ignored")
#define YES(option_flag, option_name)                                                           \
    FW_OPTION_BOOL(struct fw_server_ignored, yes, .name = (option_name), .flag = (option_flag), \
                   .default_text = "no", .help = "of memcached, ignored")
/* With or without a value. */
#define COUNT(option_name)                                                                       \
    FW_OPTION_COUNT(struct fw_server_ignored, count, .name = (option_name), .default_text = "0", \
                    .max = 1000000, .help = "of memcached, ignored")

const struct fw_option fw_server_ignored_options[] = {
    TEXT('U', "udp-port"),
    TEXT('f', "slab-growth-factor"),
    TEXT('n', "slab-min-size"),
    YES('L', "enable-largepages"),
    TEXT('D', "prefix-delimiter"),
    YES('W', "disable-watch"),
    TEXT('N', "napi-ids"),
    TEXT(0, "hashpower"),
    TEXT(0, "tail-repair-time"),
    TEXT(0, "hash-algorithm"),
    YES(0, "lru-crawler"),
    TEXT(0, "lru-crawler-sleep"),
    TEXT(0, "lru-crawler-tocrawl"),
    TEXT(0, "resp-obj-mem-limit"),
    YES(0, "lru-maintainer"),
    YES(0, "lru-segmented"),
    TEXT(0, "hot-lru-pct"),
    TEXT(0, "warm-lru-pct"),
    TEXT(0, "hot-max-factor"),
    TEXT(0, "warm-max-factor"),
    TEXT(0, "temporary-ttl"),
    TEXT(0, "slab-chunk-max"),
    YES(0, "slab-reassign"),
    COUNT("slab-automove"),
    TEXT(0, "slab-automove-ratio"),
    TEXT(0, "slab-automove-window"),
    TEXT(0, "slab-automove-freeratio"),
    TEXT(0, "watcher-logbuf-size"),
    TEXT(0, "worker-logbuf-size"),
    YES(0, "hashexpand"),
    YES(0, "inline-ascii-resp"),
    YES(0, "drop-privileges"),
    YES(0, "modern"),
    TEXT(0, "sock-cookie-id"),
    TEXT(0, "ext-path"),
    TEXT(0, "ext-page-size"),
    TEXT(0, "ext-wbuf-size"),
    TEXT(0, "ext-threads"),
    TEXT(0, "ext-item-size"),
    TEXT(0, "ext-item-age"),
    TEXT(0, "ext-low-ttl"),
    YES(0, "ext-drop-unread"),
    TEXT(0, "ext-recache-rate"),
    TEXT(0, "ext-compact-under"),
    TEXT(0, "ext-drop-under"),
    TEXT(0, "ext-max-frag"),
    TEXT(0, "ext-max-sleep"),
};
const size_t fw_server_ignored_options_count = FW_ARRAY_LENGTH(fw_server_ignored_options);
