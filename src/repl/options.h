/* SPDX-License-Identifier: Apache-2.0 */
/* The options of replication. The rows are in options.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

enum fw_repl_role { FW_REPL_ROLE_AUTO, FW_REPL_ROLE_MASTER, FW_REPL_ROLE_SLAVE };

struct fw_repl_config {
    bool is_enabled;
    struct fw_option_list listen; /* Addresses; those without a port get `port`. */
    uint64_t port;
    const char *master;          /* Whom a slave follows, or NULL. */
    enum fw_repl_role role;      /* To begin with. AUTO: slave if there is a master to follow. */
    const char *virtual_address; /* Who has it is master; or NULL. */
    const char *master_file;     /* Who finds it is master; or NULL. */
    int64_t reads_ns; /* Clients of a slave may read what is no older; 0: they may not read. */
    struct fw_option_list admit; /* Addresses of who may be a slave; none: this machine's own. */
    const char *secret_file;     /* NULL: there is none. */
    struct fw_option_list fetch; /* Where to fetch items from, before it serves with none. */
    bool allows_smaller;         /* To follow a master that has more memory. */
    bool admits_others;          /* Slaves that do not greet, as yrmcds'. */
    uint64_t backlog;
    uint64_t slaves;
    int64_t timeout_ns;
    int64_t retry_ns;
    uint64_t ack; /* Slaves that have to confirm a change before it is answered. */
    int64_t ack_timeout_ns;
};

extern const struct fw_option fw_repl_options[];
extern const size_t fw_repl_options_count;
