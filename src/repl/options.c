/* SPDX-License-Identifier: Apache-2.0 */
#include "repl/options.h"

#include "base/base.h"
#include "cache/changes.h"
#include "io/clock.h"
#include "repl/repl.h"

static const char *const roles[] = {"auto", "master", "slave", NULL};

#define ROW(type, field, option_name, ...)                                                 \
    FW_OPTION_##type(struct fw_repl_config, field, .section = "repl", .name = option_name, \
                     __VA_ARGS__)

const struct fw_option fw_repl_options[] = {
    ROW(BOOL, is_enabled, "enable", .default_text = "no",
        .help = "replicate: admit slaves as master, or follow one as slave"),
    ROW(LIST, listen, "listen", .value_name = "ADDRESS",
        .help = "addresses where slaves connect, as for --listen; 127.0.0.1 if none is given"),
    ROW(UINT, port, "port", .default_text = "11213", .max = 65535,
        .help = "TCP port for addresses without one; 0 lets the system choose"),
    ROW(STRING, master, "master", .value_name = "ADDRESS",
        .help = "whom to follow as slave: the address of the master's replication, or the virtual "
                "address that masters have"),
    ROW(ENUM, role, "role", .default_text = "auto", .names = roles,
        .help = "what to begin as; auto: slave if --repl-master is given, else master; with "
                "--repl-virtual-address or --repl-master-file whatever that says"),
    ROW(STRING, virtual_address, "virtual-address", .value_name = "ADDRESS",
        .help = "who has this address is master, and who loses it becomes slave"),
    ROW(STRING, master_file, "master-file", .value_name = "FILE",
        .help = "who finds this file is master, and who finds it gone becomes slave"),
    ROW(DURATION, reads_ns, "serve-reads", .default_text = "no", .unit = "s", .yes_text = "10s",
        .min = 250 * INT64_C(1000000), .max = 3600 * (int64_t)FW_NS_PER_S,
        .help = "let clients read from a slave while its copy is whole and no older than that, 10 "
                "seconds if no time is given; else they are told why not, and who is master"),
    ROW(LIST, admit, "admit", .value_name = "ADDRESS",
        .help = "addresses of machines that may follow; if none is given only this machine, by "
                "127.0.0.1 and ::1"),
    ROW(STRING, secret_file, "secret-file", .value_name = "FILE",
        .help = "master and slaves prove to each other that they know what is in this file; it is "
                "the same at all of them"),
    ROW(LIST, fetch, "fetch", .value_name = "ADDRESS",
        .help = "addresses of the replication of servers that may have what this one had before it "
                "was restarted: it fetches that before it serves as master with nothing"),
    ROW(BOOL, allows_smaller, "smaller", .default_text = "no",
        .help = "follow a master that has more memory (-m): what does not fit is dropped, and the "
                "copy never counts as whole"),
    ROW(BOOL, admits_others, "admit-others", .default_text = "no",
        .help = "replicate with other servers too, which do not say what they are, as yrmcds"),
    ROW(SIZE, backlog, "backlog", .default_text = "16m", .min = FW_CHANGES_SIZE_MIN,
        .max = INT64_C(1) << 36,
        .help = "memory for the keys of changes; a slave that falls further behind begins anew"),
    ROW(UINT, slaves, "slaves", .default_text = "5", .min = 1, .max = FW_REPL_SLAVES_MAX,
        .unit = "slaves", .help = "slaves at the same time"),
    ROW(DURATION, timeout_ns, "timeout", .default_text = "10s", .unit = "s",
        .min = 100 * INT64_C(1000000), .max = 3600 * (int64_t)FW_NS_PER_S,
        .help = "master and slave that have not heard from each other for so long part"),
    ROW(DURATION, retry_ns, "retry", .default_text = "200ms", .unit = "s",
        .min = 10 * INT64_C(1000000), .max = 3600 * (int64_t)FW_NS_PER_S,
        .help = "how long a slave waits before it connects again"),
    ROW(UINT, ack, "ack", .default_text = "0", .max = FW_REPL_SLAVES_MAX, .unit = "slaves",
        .help = "answer a command that changes something only when so many slaves have confirmed "
                "it; 0: at once"),
    ROW(DURATION, ack_timeout_ns, "ack-timeout", .default_text = "1s", .unit = "s",
        .min = INT64_C(1000000), .max = 3600 * (int64_t)FW_NS_PER_S,
        .help = "a client whose change was not confirmed for so long is told an error"),
};
const size_t fw_repl_options_count = FW_ARRAY_LENGTH(fw_repl_options);
