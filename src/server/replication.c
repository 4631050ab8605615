/* SPDX-License-Identifier: Apache-2.0 */
#include "server/replication.h"

#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "io/address.h"
#include "repl/stream.h"
#include "server/listen.h"
#include "server/state.h"

FW_LOG_MODULE_USE(server);

enum { FETCH_COPIES_MAX = 3 };

static struct fw_server *server_of(struct fw_replication *replication)
{
    return FW_CONTAINER_OF(replication, struct fw_server, replication);
}

/* ---- the host of replication --------------------------------------------------------------- */

static struct fw_cache_local *host_local(void *context, uint32_t core)
{
    struct fw_server *server = context;
    return &server->cores[core]->cache;
}

static void host_gone(void *context)
{
    struct fw_server *server = context;
    fw_reactor_wake(server->reactor);
}

static void host_confirmed(void *context)
{
    struct fw_server *server = context;
    fw_doubts_look(server);
    if (fw_replication_stage(&server->replication) == FW_REPLICATION_RESIGNING) {
        fw_reactor_wake(server->reactor);
    }
}

int fw_replication_init(struct fw_server *server)
{
    const struct fw_repl_host host = {.server = server,
                                      .domain = server->domain,
                                      .jobs = server->jobs,
                                      .cache = &server->cache,
                                      .registry = &server->metrics,
                                      .local = host_local,
                                      .gone = host_gone,
                                      .confirmed = host_confirmed};
    server->replication.lease.limit_ns = server->config.lease.limit_ns;
    return fw_repl_init(&server->replication.repl, &server->config.repl, &host);
}

void fw_replication_fini(struct fw_server *server)
{
    fw_repl_fini(&server->replication.repl);
}

/* ---- slaves come --------------------------------------------------------------------------- */

static void door_accepted(struct fw_listener *listener, int fd)
{
    struct fw_replication_door *door =
        FW_CONTAINER_OF(listener, struct fw_replication_door, listener);
    if (fd < 0) {
        fw_listen_failed(door->server, "a slave", fd);
        door->is_paused = true;
        return;
    }
    const struct fw_replication *replication = &door->server->replication;
    int rc = fw_replication_is_silent(replication)
                 ? -ESHUTDOWN
                 : fw_repl_admit(&door->server->replication.repl, listener, fd);
    if (rc != 0) {
        struct iovec nothing = {.iov_base = NULL, .iov_len = 0};
        FW_LOG(server, NOTICE, "refused a slave: %s",
               rc == -EUSERS      ? "too many others have come that have not greeted"
               : rc == -ESHUTDOWN ? "this is no master"
                                  : strerrordesc_np(-rc));
        fw_listener_refuse(listener, fd, &nothing);
    }
}

static void door_closed(struct fw_listener *listener)
{
    FW_CONTAINER_OF(listener, struct fw_replication_door, listener)->server->open_count--;
}

static const struct fw_listener_events door_events = {.accepted = door_accepted,
                                                      .closed = door_closed};

static int door_open(struct fw_server *server, const struct fw_address *address,
                     struct fw_reason *reason)
{
    struct fw_replication *replication = &server->replication;
    if (replication->door_count == FW_REPLICATION_DOORS_MAX) {
        return fw_reason_set(reason, -EINVAL, "--repl-listen: too many addresses, at most %d",
                             FW_REPLICATION_DOORS_MAX);
    }
    struct fw_replication_door *door = &replication->doors[replication->door_count];
    const struct fw_listener_options options = {.backlog = FW_REPL_SLAVES_MAX, .mode = 0600};
    door->server = server;
    int rc =
        fw_listener_open(&door->listener, server->reactor, address, &options, &door_events, reason);
    if (rc != 0) {
        return rc;
    }
    replication->door_count++;
    server->open_count++;
    char text[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(&door->listener.address, text);
    FW_LOG(server, NOTICE, "replication on %s", text);
    return 0;
}

static int doors_open(struct fw_server *server, const char *text, struct fw_reason *reason)
{
    struct fw_address addresses[FW_REPLICATION_DOORS_MAX];
    int count = fw_address_parse(text, (uint16_t)server->config.repl.port, FW_ADDRESS_RESOLVE,
                                 addresses, FW_REPLICATION_DOORS_MAX, reason);
    int rc = count < 0 ? count : 0;
    for (int i = 0; i < count && rc == 0; i++) {
        rc = door_open(server, &addresses[i], reason);
    }
    return rc;
}

/* ---- the virtual address ------------------------------------------------------------------- */

static void virtual_changed(struct fw_netlink *netlink, const struct fw_address *address,
                            bool present)
{
    struct fw_replication *replication = FW_CONTAINER_OF(netlink, struct fw_replication, netlink);
    if (fw_address_equal(address, &replication->virtual)) {
        FW_LOG(server, NOTICE, "the virtual address is %s", present ? "here" : "gone");
        atomic_store(&replication->has_address, present);
        atomic_store(&replication->is_ordered, false);
        atomic_store(&replication->wish, present ? FW_REPL_ROLE_MASTER : FW_REPL_ROLE_SLAVE);
    }
}

static void virtual_complete(struct fw_netlink *netlink, int result)
{
    struct fw_replication *replication = FW_CONTAINER_OF(netlink, struct fw_replication, netlink);
    if (result != 0) {
        FW_LOG(server, ERROR, "cannot see the addresses of this machine: %s",
               strerrordesc_np(-result));
    }
    if (!fw_netlink_has(netlink, &replication->virtual)) {
        atomic_store(&replication->wish, FW_REPL_ROLE_SLAVE);
    }
}

static void virtual_closed(struct fw_netlink *netlink)
{
    server_of(FW_CONTAINER_OF(netlink, struct fw_replication, netlink))->open_count--;
}

static const struct fw_netlink_events virtual_events = {
    .changed = virtual_changed, .complete = virtual_complete, .closed = virtual_closed};

static int virtual_open(struct fw_server *server, struct fw_reason *reason)
{
    struct fw_replication *replication = &server->replication;
    int rc = fw_netlink_open(&replication->netlink, server->reactor, &virtual_events, reason);
    if (rc == 0) {
        replication->has_netlink = true;
        server->open_count++;
    }
    return rc;
}

/* ---- the master's file --------------------------------------------------------------------- */

static void file_changed(struct fw_presence *presence, bool is_there)
{
    struct fw_replication *replication = FW_CONTAINER_OF(presence, struct fw_replication, presence);
    uint32_t wish = is_there ? FW_REPL_ROLE_MASTER : FW_REPL_ROLE_SLAVE;
    atomic_store(&replication->is_ordered, !is_there); /* Nobody takes a file away by chance. */
    if (atomic_exchange(&replication->wish, wish) != wish) {
        FW_LOG(server, NOTICE, "'%s' is %s", presence->path, is_there ? "there" : "gone");
    }
}

static void file_closed(struct fw_presence *presence)
{
    server_of(FW_CONTAINER_OF(presence, struct fw_replication, presence))->open_count--;
}

static int file_open(struct fw_server *server, struct fw_reason *reason)
{
    struct fw_replication *replication = &server->replication;
    struct fw_presence *presence = &replication->presence;
    struct fw_reason why;
    presence->changed = file_changed;
    presence->closed = file_closed;
    int rc = fw_presence_open(presence, server->reactor, server->config.repl.master_file, &why);
    if (rc != 0) {
        return fw_reason_set(reason, -EINVAL, "--repl-master-file: %s", why.text);
    }
    replication->has_presence = true;
    server->open_count++;
    file_changed(presence, fw_presence_look(presence)); /* And it becomes that at once. */
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

static int address_read(const char *option, const char *text, uint16_t port,
                        struct fw_address *address, struct fw_reason *reason)
{
    struct fw_reason why;
    int count = fw_address_parse(text, port, FW_ADDRESS_RESOLVE, address, 1, &why);
    return count < 0 ? fw_reason_set(reason, -EINVAL, "--%s: %s", option, why.text) : 0;
}

/*
 * Whom to follow. A name that the resolver does not know now may be known soon, as at the start of
 * a machine: the follower asks again.
 */
static int master_read(const char *text, uint16_t port, struct fw_replication *replication,
                       struct fw_reason *reason)
{
    struct fw_reason why;
    int count =
        fw_address_parse(text, port, FW_ADDRESS_RESOLVE, &replication->master.address, 1, &why);
    replication->master.name = text;
    replication->master.port = port;
    if (count == -ENOENT || count == -EAGAIN || count == -EIO) {
        replication->master.address.length = 0;
        return 0;
    }
    return count < 0 ? fw_reason_set(reason, -EINVAL, "--repl-master: %s", why.text) : 0;
}

/* Whom to follow and what to look out for, and as what to begin. */
static int roles_read(const struct fw_repl_config *config, struct fw_replication *replication,
                      enum fw_repl_role *role, struct fw_reason *reason)
{
    const char *master = config->master != NULL ? config->master : config->virtual_address;
    int rc = 0;
    if (config->virtual_address != NULL) {
        rc = address_read("repl-virtual-address", config->virtual_address, 0, &replication->virtual,
                          reason);
    }
    if (rc == 0 && master != NULL) {
        uint16_t port = config->port != 0 ? (uint16_t)config->port : FW_REPL_PORT;
        rc = master_read(master, port, replication, reason);
        replication->has_master = rc == 0;
    }
    *role = config->role != FW_REPL_ROLE_AUTO ? config->role
            : replication->has_master         ? FW_REPL_ROLE_SLAVE
                                              : FW_REPL_ROLE_MASTER;
    if (rc == 0 && *role == FW_REPL_ROLE_SLAVE && !replication->has_master) {
        return fw_reason_set(reason, -EINVAL,
                             "--repl-role slave: say whom to follow with --repl-master ADDRESS");
    }
    return rc;
}

/* What a slave tells clients. */
static void refusals_write(struct fw_replication *replication)
{
    char master[FW_ADDRESS_TEXT_SIZE];
    fw_repl_master_format(&replication->master, master);
    (void)snprintf(replication->no_writes, sizeof replication->no_writes,
                   "this server is a slave and takes no writes; its master replicates at %s",
                   master);
    (void)snprintf(replication->no_reads, sizeof replication->no_reads,
                   "this server is a slave and serves no clients; its master replicates at %s",
                   master);
    (void)snprintf(replication->torn_reads, sizeof replication->torn_reads,
                   "this server is a slave whose copy is not whole; its master replicates at %s",
                   master);
    (void)snprintf(replication->old_reads, sizeof replication->old_reads,
                   "this slave is too far behind its master, which replicates at %s", master);
}

const char *fw_replication_refusal(const struct fw_replication *replication, bool is_write)
{
    enum fw_replication_stage stage = fw_replication_stage(replication);
    if (stage == FW_REPLICATION_MASTER) {
        return NULL;
    }
    if (stage == FW_REPLICATION_FETCHING || !replication->has_master) {
        return "this server fetches its items back from a slave, and serves when it has them";
    }
    if (fw_replication_refuses_reads(replication)) {
        return replication->no_reads;
    }
    if (is_write) {
        return replication->no_writes;
    }
    switch (fw_repl_freshness(&replication->repl, replication->repl.config.reads_ns)) {
    case FW_REPL_TORN:
        return replication->torn_reads;
    case FW_REPL_OLD:
        return replication->old_reads;
    case FW_REPL_FRESH:
        break;
    }
    return NULL;
}

static void stage_set(struct fw_replication *replication, enum fw_replication_stage stage)
{
    struct fw_server *server = server_of(replication);
    atomic_store(&replication->stage, stage);
    atomic_store(&server->cache.is_read_only, stage != FW_REPLICATION_MASTER);
    if (stage == FW_REPLICATION_SLAVE) {          /* Not before: links tell their slaves of it. */
        atomic_store(&server->cache.flush_at, 0); /* A flush that was to come is its master's. */
    }
}

static int secret_read(struct fw_repl *repl, struct fw_reason *reason)
{
    struct fw_reason why;
    if (repl->config.admits_others) {
        return fw_reason_set(reason, -EINVAL,
                             "--repl-admit-others: other servers know no secret, so they cannot be "
                             "had with --repl-secret-file");
    }
    int rc = fw_repl_secret_read(&repl->secret, repl->config.secret_file, &why);
    return rc == 0 ? 0 : fw_reason_set(reason, -EINVAL, "--repl-secret-file: %s", why.text);
}

/* All that the options say, before anything is opened. */
static int options_read(const struct fw_repl_config *config, struct fw_replication *replication,
                        enum fw_repl_role *role, struct fw_reason *reason)
{
    int rc = roles_read(config, replication, role, reason);
    if (rc == 0) {
        rc = fw_repl_read_admitted(&replication->repl, reason);
    }
    if (rc == 0 && config->secret_file != NULL) {
        rc = secret_read(&replication->repl, reason);
    }
    if (rc == 0 && config->fetch.count > FW_REPL_SLAVES_MAX) {
        rc = fw_reason_set(reason, -EINVAL, "--repl-fetch: too many addresses, at most %d",
                           FW_REPL_SLAVES_MAX);
    }
    return rc;
}

/* Without replication a server would serve alone where it was told who else may be master. */
static int enabled_check(const struct fw_repl_config *config, struct fw_reason *reason)
{
    const char *option = config->master != NULL               ? "repl-master"
                         : config->virtual_address != NULL    ? "repl-virtual-address"
                         : config->master_file != NULL        ? "repl-master-file"
                         : config->role == FW_REPL_ROLE_SLAVE ? "repl-role"
                                                              : NULL;
    if (config->is_enabled || option == NULL) {
        return 0;
    }
    return fw_reason_set(reason, -EINVAL,
                         "--%s: this server does not replicate, and would serve alone; add "
                         "--repl-enable",
                         option);
}

int fw_replication_check(const struct fw_repl_config *config, struct fw_reason *reason)
{
    enum fw_repl_role role;
    int enabled = enabled_check(config, reason);
    if (!config->is_enabled) {
        return enabled;
    }
    struct fw_replication *tried = aligned_alloc(alignof(struct fw_replication), sizeof *tried);
    if (tried == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot replicate");
    }
    memset(tried, 0, sizeof *tried);
    tried->repl.config = *config;
    int rc = options_read(config, tried, &role, reason);
    explicit_bzero(&tried->repl.secret, sizeof tried->repl.secret);
    free(tried);
    return rc;
}

/* ---- fetching back ------------------------------------------------------------------------- */

/* Has it nothing, and may somebody have what it had? That is asked once. */
static bool must_fetch(const struct fw_server *server)
{
    const struct fw_replication *replication = &server->replication;
    struct fw_table_totals totals;
    fw_table_totals(server->cache.table, &totals);
    return server->config.repl.fetch.count > 0 && !replication->has_fetched && totals.items == 0 &&
           !fw_repl_has_copy(&replication->repl);
}

static bool is_known(const struct fw_repl_found *found)
{
    /* Where nothing listens nothing is; and a slave that is started later has nothing. */
    return found->error == 0 || found->error == -ECONNREFUSED || found->error == -ENODATA ||
           found->error == -E2BIG;
}

/* So that all are asked in half of the time, whoever does not answer. */
static int64_t look_ns(const struct fw_repl_config *config)
{
    return config->timeout_ns / 2 / (int64_t)config->fetch.count + 1;
}

static void fetch_ask(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    const struct fw_repl_config *config = &server->config.repl;
    const struct fw_repl_master slave = {
        .name = config->fetch.items[replication->fetch_next],
        .port = config->port != 0 ? (uint16_t)config->port : FW_REPL_PORT,
    };
    int rc =
        fw_repl_fetch(&replication->repl, &slave, replication->is_copying ? 0 : look_ns(config));
    replication->fetch_due_ns = 0;
    if (rc != 0) {
        replication->found[replication->fetch_next].error = rc;
        replication->fetch_due_ns = fw_clock_now_ns() + config->retry_ns;
        FW_LOG(server, ERROR, "cannot fetch items from %s: %s", slave.name, strerrordesc_np(-rc));
    }
}

/* Of nobody is known what it has: all are asked, from now on. */
static void fetch_forget(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    replication->is_copying = false;
    replication->fetch_next = 0;
    for (size_t i = 0; i < server->config.repl.fetch.count; i++) {
        replication->found[i].error = -EAGAIN;
    }
    replication->fetch_until_ns = fw_clock_now_ns() + server->config.repl.timeout_ns;
}

static void fetch_begin(struct fw_server *server)
{
    server->replication.has_fetched = true;
    FW_LOG(server, NOTICE, "looks for what this server had before, at those of --repl-fetch");
    stage_set(&server->replication, FW_REPLICATION_FETCHING);
    fetch_forget(server);
    fetch_ask(server);
}

/* The next that has not answered, after the one that was asked last; as many as there are: none. */
static size_t fetch_unknown(const struct fw_server *server)
{
    const struct fw_replication *replication = &server->replication;
    size_t count = server->config.repl.fetch.count;
    for (size_t i = 1; i <= count; i++) {
        size_t next = (replication->fetch_next + i) % count;
        if (!is_known(&replication->found[next])) {
            return next;
        }
    }
    return count;
}

/* A name that takes long to resolve must not keep others from being asked at all. */
static bool fetch_has_asked_all(const struct fw_server *server)
{
    for (size_t i = 0; i < server->config.repl.fetch.count; i++) {
        if (server->replication.found[i].error == -EAGAIN) {
            return false;
        }
    }
    return true;
}

/* The one that is furthest on; as many as there are: nobody has anything. */
static size_t fetch_newest(const struct fw_server *server)
{
    const struct fw_repl_found *found = server->replication.found;
    size_t count = server->config.repl.fetch.count;
    size_t newest = count;
    for (size_t i = 0; i < count; i++) {
        if (found[i].error == 0 &&
            (newest == count || !fw_repl_is_newer(&found[newest], &found[i]))) {
            newest = i;
        }
    }
    return newest;
}

/* All have answered, or were waited for long enough. True: nobody has anything. */
static bool fetch_choose(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    const struct fw_option_list *names = &server->config.repl.fetch;
    size_t newest = fetch_newest(server);
    for (size_t i = 0; i < names->count; i++) {
        if (!is_known(&replication->found[i])) {
            FW_LOG(server, WARNING,
                   "%s of --repl-fetch did not say what it has: should it be ahead of this server, "
                   "it will not follow",
                   names->items[i]);
        }
    }
    if (newest == names->count) {
        FW_LOG(server, WARNING, "nobody of --repl-fetch has a whole copy: begins with nothing");
        return true;
    }
    FW_LOG(server, NOTICE, "fetches from %s of --repl-fetch, which is furthest on",
           names->items[newest]);
    replication->is_copying = true;
    replication->fetch_next = newest;
    fetch_ask(server);
    return false;
}

/* A slave that was asked what it has has ended. */
static void fetch_note(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    size_t last = replication->fetch_next;
    replication->found[last] = replication->repl.found;
    replication->fetch_next = fetch_unknown(server);
    bool is_round = replication->fetch_next <= last;
    replication->fetch_due_ns = fw_clock_now_ns() + (is_round ? server->config.repl.retry_ns : 0);
}

/* A copy has ended. True: it is whole, or no other is tried. */
static bool fetch_has_copied(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    if (fw_repl_has_copy(&replication->repl)) {
        FW_LOG(server, NOTICE, "has fetched its items back");
        return true;
    }
    replication->broken_copies++;
    if (replication->broken_copies == FETCH_COPIES_MAX) {
        FW_LOG(server, WARNING, "fetching items broke off %d times: begins with nothing",
               FETCH_COPIES_MAX);
        return true;
    }
    fetch_forget(server);
    replication->fetch_due_ns = fw_clock_now_ns() + server->config.repl.retry_ns;
    replication->fetch_until_ns += server->config.repl.retry_ns;
    return false;
}

/* Whoever was asked has ended. False: another is asked, or will be soon. */
static bool fetch_is_over(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    bool was_asking = replication->fetch_due_ns == 0;
    if (was_asking && !replication->is_copying) {
        fetch_note(server);
    } else if (was_asking && fetch_has_copied(server)) {
        return true;
    }
    int64_t now_ns = fw_clock_now_ns();
    if (replication->fetch_next == server->config.repl.fetch.count ||
        (now_ns >= replication->fetch_until_ns && fetch_has_asked_all(server))) {
        return fetch_choose(server);
    }
    if (now_ns >= replication->fetch_due_ns) {
        fetch_ask(server);
    }
    return false;
}

int fw_replication_open(struct fw_server *server, struct fw_reason *reason)
{
    const struct fw_repl_config *config = &server->config.repl;
    struct fw_replication *replication = &server->replication;
    enum fw_repl_role role = FW_REPL_ROLE_MASTER;
    int rc = enabled_check(config, reason);
    if (!config->is_enabled) {
        return rc;
    }
    rc = options_read(config, replication, &role, reason);
    if (rc == 0 && replication->has_master) {
        refusals_write(replication);
    }
    for (size_t i = 0; i < config->listen.count && rc == 0; i++) {
        rc = doors_open(server, config->listen.items[i], reason);
    }
    if (rc == 0 && config->listen.count == 0) {
        rc = doors_open(server, "127.0.0.1", reason);
    }
    if (rc == 0 && role == FW_REPL_ROLE_MASTER && must_fetch(server)) {
        fetch_begin(server);
    } else if (rc == 0 && role == FW_REPL_ROLE_MASTER) {
        fw_repl_serve(&replication->repl);
    } else if (rc == 0) {
        stage_set(replication, FW_REPLICATION_SLAVE);
        rc = fw_repl_follow(&replication->repl, &replication->master);
        if (rc != 0) {
            return fw_reason_errno(reason, rc, "cannot follow a master");
        }
    }
    if (rc == 0 && config->virtual_address != NULL) {
        rc = virtual_open(server, reason);
    }
    if (rc == 0 && config->master_file != NULL) {
        rc = file_open(server, reason);
    }
    return rc;
}

void fw_replication_close(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    if (replication->is_over) {
        return;
    }
    replication->is_over = true;
    for (uint32_t i = 0; i < replication->door_count; i++) {
        fw_listener_close(&replication->doors[i].listener);
    }
    if (replication->has_netlink) {
        fw_netlink_close(&replication->netlink);
    }
    if (replication->has_presence) {
        fw_presence_close(&replication->presence);
    }
}

/* ---- roles --------------------------------------------------------------------------------- */

/* All clients see, on their own turns, that their term is over. */
static void clients_drop(struct fw_server *server)
{
    atomic_fetch_add(&server->replication.term, 1);
    fw_server_wake_connections(server);
}

static void step_resign(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    FW_LOG(server, NOTICE, "no longer master: clients are dropped");
    replication->resign_slots = fw_repl_confirmed_slots(&replication->repl, 0);
    replication->resign_until_ns = 0;
    atomic_store(&replication->outcome, FW_REPLICATION_WAITING);
    stage_set(replication, FW_REPLICATION_RESIGNING);
    clients_drop(server);
}

/* No client is left: have the slaves all that they left behind? Then links end. */
static void step_hand_over(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    struct fw_repl *repl = &replication->repl;
    int64_t now_ns = fw_clock_now_ns();
    if (replication->resign_until_ns == 0) {
        replication->resign_until_ns = now_ns + repl->config.ack_timeout_ns;
        replication->resign_position = fw_changes_head(repl->changes);
    }
    uint32_t slots = replication->resign_slots;
    bool has_all =
        slots != 0 && (slots & ~fw_repl_confirmed_slots(repl, replication->resign_position)) == 0;
    bool is_possible = slots != 0 && (slots & ~fw_repl_confirmed_slots(repl, 0)) == 0 &&
                       now_ns < replication->resign_until_ns &&
                       !atomic_load(&replication->is_hasty);
    if (!has_all && is_possible) {
        return;
    }
    if (slots == 0) {
        FW_LOG(server, WARNING, "no slave has a whole copy of what this server has");
    } else if (!has_all) {
        FW_LOG(server, WARNING,
               "not every slave has all that this server has; compare their "
               "positions before you promote one");
    }
    fw_repl_resign(repl);
    atomic_store(&replication->outcome,
                 has_all ? FW_REPLICATION_HANDED_OVER : FW_REPLICATION_HASTY);
}

static void step_follow(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    if (atomic_load(&server->connection_count) > 0) {
        clients_drop(server); /* One may have come between the two. */
        return;
    }
    if (atomic_load(&replication->repl.is_master)) {
        step_hand_over(server);
    }
    if (atomic_load(&replication->repl.is_master) ||
        atomic_load(&replication->repl.link_count) > 0) {
        return;
    }
    int rc = fw_repl_follow(&replication->repl, &replication->master);
    if (rc != 0) {
        FW_LOG(server, ERROR, "cannot follow a master: %s", strerrordesc_np(-rc));
        return;
    }
    fw_repl_count(&replication->repl.metrics.demotions, 1);
    atomic_store(&replication->is_hasty, false);
    stage_set(replication, FW_REPLICATION_SLAVE);
    FW_LOG(server, NOTICE, "is slave now");
}

static void step_serve(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    if (fw_repl_is_following(&replication->repl)) {
        return;
    }
    if (must_fetch(server)) {
        fetch_begin(server);
        return;
    }
    fw_repl_serve(&replication->repl);
    fw_repl_count(&replication->repl.metrics.promotions, 1);
    stage_set(replication, FW_REPLICATION_MASTER);
    FW_LOG(server, NOTICE, "is master now");
}

/* Until somebody was found who had what this one had, or nobody was. */
static void step_fetch(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    if (fw_repl_is_following(&replication->repl) || !fetch_is_over(server)) {
        return;
    }
    stage_set(replication, FW_REPLICATION_UNFOLLOWING);
}

bool fw_replication_is_paused(const struct fw_replication *replication)
{
    bool is_paused = false;
    for (uint32_t i = 0; i < replication->door_count; i++) {
        is_paused = is_paused || replication->doors[i].is_paused;
    }
    return is_paused;
}

static void doors_resume(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    if (!fw_replication_is_paused(replication) || !fw_listen_may_retry(server)) {
        return;
    }
    for (uint32_t i = 0; i < replication->door_count; i++) {
        if (replication->doors[i].is_paused) {
            replication->doors[i].is_paused = false;
            fw_listener_resume(&replication->doors[i].listener);
        }
    }
}

/* Where a lease is needed the address alone does not make a slave. */
static bool may_resign(const struct fw_replication *replication)
{
    return !fw_lease_is_needed(&replication->lease) || atomic_load(&replication->is_ordered);
}

/* A slave that keeps its items instead of following a master with less waits for an order. */
static bool may_take_over(const struct fw_replication *replication)
{
    return !atomic_load(&replication->repl.followed.is_held) ||
           atomic_load(&replication->is_ordered);
}

/* One step, if it can be made now. */
static void stage_step(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    uint32_t wish = atomic_load(&replication->wish);
    switch (fw_replication_stage(replication)) {
    case FW_REPLICATION_MASTER:
        if (wish == FW_REPL_ROLE_SLAVE && replication->has_master && may_resign(replication)) {
            step_resign(server);
        }
        break;
    case FW_REPLICATION_RESIGNING:
        step_follow(server);
        break;
    case FW_REPLICATION_SLAVE:
        if (wish == FW_REPL_ROLE_MASTER && fw_lease_runs(&replication->lease) &&
            may_take_over(replication)) {
            stage_set(replication, FW_REPLICATION_UNFOLLOWING);
            fw_repl_unfollow(&replication->repl);
        }
        break;
    case FW_REPLICATION_UNFOLLOWING:
        step_serve(server);
        break;
    case FW_REPLICATION_FETCHING:
        step_fetch(server);
        break;
    }
}

/* Whether the lease has begun to run, or is over. */
static void lease_look(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    bool has_lease = fw_lease_runs(&replication->lease);
    if (!fw_lease_is_needed(&replication->lease) || has_lease == replication->had_lease) {
        return;
    }
    replication->had_lease = has_lease;
    if (has_lease) {
        FW_LOG(server, NOTICE, "the lease runs");
        if (atomic_load(&replication->has_address)) { /* Whatever it was told before. */
            atomic_store(&replication->is_ordered, false);
            atomic_store(&replication->wish, FW_REPL_ROLE_MASTER);
        }
    } else if (fw_replication_stage(replication) == FW_REPLICATION_MASTER) {
        FW_LOG(server, WARNING,
               "the lease is over: clients are dropped, and refused until it is renewed");
        clients_drop(server);
    } else {
        FW_LOG(server, NOTICE, "the lease is over");
    }
}

int64_t fw_replication_patience_ns(const struct fw_server *server)
{
    const struct fw_replication *replication = &server->replication;
    if (fw_replication_stage(replication) == FW_REPLICATION_FETCHING &&
        replication->fetch_due_ns != 0) {
        int64_t left_ns = replication->fetch_due_ns - fw_clock_now_ns();
        return left_ns > 0 ? left_ns : 0;
    }
    if (fw_replication_stage(replication) == FW_REPLICATION_RESIGNING &&
        replication->resign_until_ns != 0 && atomic_load(&replication->repl.is_master)) {
        int64_t left_ns = replication->resign_until_ns - fw_clock_now_ns();
        return left_ns > 0 ? left_ns : 0;
    }
    return replication->had_lease ? fw_lease_left_ns(&replication->lease) : -1;
}

void fw_replication_look(struct fw_server *server)
{
    struct fw_replication *replication = &server->replication;
    enum fw_replication_stage before;
    doors_resume(server);
    lease_look(server);
    do { /* Nobody may be left to wake us for the next step. */
        before = fw_replication_stage(replication);
        stage_step(server);
    } while (fw_replication_stage(replication) != before);
}

int fw_replication_wish(struct fw_server *server, enum fw_repl_role role, bool is_forced)
{
    struct fw_replication *replication = &server->replication;
    if (!server->config.repl.is_enabled ||
        (role == FW_REPL_ROLE_SLAVE && !replication->has_master)) {
        return -ENOTSUP;
    }
    /* Relaxed: a copy that ends or begins just now could have done so before. */
    bool is_torn = atomic_load_explicit(&replication->repl.followed.is_torn, memory_order_relaxed);
    if (role == FW_REPL_ROLE_MASTER && is_torn && !is_forced) {
        return -EAGAIN;
    }
    atomic_store(&replication->is_ordered, true);
    atomic_store(&replication->is_hasty, role == FW_REPL_ROLE_SLAVE && is_forced);
    if (fw_replication_stage(replication) == FW_REPLICATION_MASTER) {
        atomic_store(&replication->outcome, FW_REPLICATION_WAITING);
    }
    atomic_store(&replication->wish, role);
    fw_reactor_wake(server->reactor);
    return 0;
}

void fw_replication_stats(struct fw_server *server, fw_stat_emit emit, void *context)
{
    static const char *const roles[] = {
        [FW_REPLICATION_MASTER] = "master",     [FW_REPLICATION_RESIGNING] = "resigning",
        [FW_REPLICATION_SLAVE] = "slave",       [FW_REPLICATION_UNFOLLOWING] = "becoming master",
        [FW_REPLICATION_FETCHING] = "fetching",
    };
    struct fw_replication *replication = &server->replication;
    emit(context, "enabled", server->config.repl.is_enabled ? "yes" : "no");
    emit(context, "role", roles[fw_replication_stage(replication)]);
    if (server->config.repl.virtual_address != NULL) {
        emit(context, "address_here", atomic_load(&replication->has_address) ? "yes" : "no");
    }
    if (fw_lease_is_needed(&replication->lease)) {
        char left[32];
        (void)snprintf(left, sizeof left, "%" PRId64,
                       fw_lease_left_ns(&replication->lease) / FW_NS_PER_MS);
        emit(context, "lease_left_ms", left);
    }
    fw_repl_stats(&replication->repl, emit, context);
}
