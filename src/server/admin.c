/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "base/thread.h"
#include "io/address.h"
#include "io/reactor.h"
#include "server/admin_line.h"
#include "server/listen.h"
#include "server/state.h"

FW_LOG_MODULE_USE(server);

enum { HEADER_SIZE = 64, BACKLOG = 128, FILE_MODE = 0600 };

struct reply {
    size_t length;
    char bytes[];
};

/*
 * FREE ──accepted──► OPEN ──close()──► CLOSING ──closed, and no answer is to come──► FREE
 *
 * All but the two atomics is the thread's that runs the server.
 */
struct client {
    struct fw_admin *admin;
    struct fw_stream stream;
    struct fw_admin_input input;
    uint64_t last_used; /* By the count of all uses. */
    bool is_used;
    bool is_open;
    bool is_closed;    /* The reactor has let go of the stream. */
    bool is_over;      /* The client has said all. */
    bool is_receiving; /* A receive is under way, */
    bool is_sending;   /* and a send. */
    bool is_pending;   /* An answer is to come. */
    int timed;         /* The number of the timed command that is pending, or 0. */
    struct reply *reply;
    size_t sent; /* Of it. */
    struct iovec piece;
    _Atomic(struct reply *) mailbox; /* Release by the worker, acquire here, as the next. */
    atomic_bool is_answered;         /* No answer comes any more; after the last one is there. */
};

struct fw_admin {
    struct fw_server *server;
    struct fw_listener listener;
    struct fw_jobs_handler handler;
    struct client clients[FW_ADMIN_SLOTS];
    uint64_t use_count;
    bool is_short; /* It cannot accept for want of something. */
    bool is_full;  /* It accepts no more until a slot is free. */
    bool is_over;
    atomic_bool has_news; /* Of a worker: a client's mailbox is to be looked at. */
};

/* ---- answers, on a worker ------------------------------------------------------------------ */

/* NULL: no memory. An error without words gets the system's. */
static struct reply *reply_make(int status, const char *text, size_t length)
{
    char words[HEADER_SIZE];
    if (status < 0 && length == 0) {
        length = (size_t)snprintf(words, sizeof words, "%s\n", strerrordesc_np(-status));
        text = words;
    }
    struct reply *reply = malloc(sizeof *reply + HEADER_SIZE + length);
    if (reply == NULL) {
        return NULL;
    }
    int header = status < 0 ? snprintf(reply->bytes, HEADER_SIZE, "ERROR %s %zu\n",
                                       strerrorname_np(-status), length)
                            : snprintf(reply->bytes, HEADER_SIZE, "OK %zu\n", length);
    memcpy(reply->bytes + header, text, length);
    reply->length = (size_t)header + length;
    return reply;
}

/* What it writes is seen by the thread that returns from the poll that this wakes. */
static void news_tell(struct fw_admin *admin)
{
    atomic_store_explicit(&admin->has_news, true, memory_order_release);
    fw_reactor_wake(admin->server->reactor);
}

static void mailbox_put(struct client *client, int status, const char *text, size_t length)
{
    struct reply *none = NULL;
    struct reply *reply = reply_make(status, text, length);
    FW_YIELD_POINT("admin: about to answer");
    if (reply != NULL &&
        !atomic_compare_exchange_strong_explicit(&client->mailbox, &none, reply,
                                                 memory_order_release, memory_order_relaxed)) {
        free(reply); /* Of a timed command, faster than its client reads. */
    }
}

static void answer_once(void *context, int status, const char *text, size_t length)
{
    struct client *client = context;
    struct fw_admin *admin = client->admin; /* From the last store on the client may be gone. */
    mailbox_put(client, status, text, length);
    atomic_store_explicit(&client->is_answered, true, memory_order_release);
    news_tell(admin);
}

static void answer_timed(void *context, int status, const char *text, size_t length)
{
    struct client *client = context;
    struct fw_admin *admin = client->admin;
    if (status == -ECANCELED) {
        atomic_store_explicit(&client->is_answered, true, memory_order_release);
    } else {
        mailbox_put(client, status, text, length);
    }
    news_tell(admin);
}

/* ---- a client ------------------------------------------------------------------------------ */

static struct client *client_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct client, stream);
}

static void client_release_if_done(struct client *client)
{
    if (client->is_used && client->is_closed && !client->is_pending) {
        free(client->reply);
        /* Relaxed: nobody else has it any more. */
        free(atomic_load_explicit(&client->mailbox, memory_order_relaxed));
        struct fw_admin *admin = client->admin;
        *client = (struct client){.admin = admin};
        if (admin->is_full && !admin->is_over) {
            admin->is_full = false;
            fw_listener_resume(&admin->listener);
        }
    }
}

static void client_untime(struct client *client)
{
    if (client->timed > 0) {
        int number = client->timed;
        client->timed = 0;
        fw_jobs_command_cancel(client->admin->server->jobs, number);
    }
}

static void client_close(struct client *client)
{
    if (client->is_open) {
        client->is_open = false;
        client_untime(client);
        fw_stream_close(&client->stream);
    }
}

static void client_closed(struct fw_stream *stream)
{
    struct client *client = client_of(stream);
    client->admin->server->open_count--;
    client->is_closed = true;
    client_release_if_done(client);
}

static void client_refuse(struct client *client, int error, const char *why)
{
    client->reply = reply_make(error, why, strlen(why));
    if (client->reply == NULL) {
        client_close(client);
    }
}

static void client_execute(struct client *client, const char *line)
{
    struct fw_server *server = client->admin->server;
    int64_t interval_ns;
    const char *command;
    FW_LOG(server, INFO, "administration: %s", line);
    if (fw_admin_every(line, &interval_ns, &command) != 0) {
        client_refuse(client, -EINVAL, "every DURATION COMMAND, from 100ms to 1d\n");
        return;
    }
    client->is_pending = true; /* It may be answered before the call returns. */
    int rc = interval_ns > 0
                 ? fw_jobs_command_every(server->jobs, command, interval_ns, answer_timed, client)
                 : fw_jobs_command(server->jobs, command, answer_once, client);
    client->is_pending = rc >= 0;
    client->timed = rc > 0 ? rc : 0;
    if (rc < 0) {
        client_refuse(client, rc,
                      rc == -EAGAIN ? "too many commands are under way; try again\n" : "");
    }
}

/* True: there was a line, and it has been handed in or refused. */
static bool client_take_line(struct client *client)
{
    char line[FW_JOBS_COMMAND_SIZE];
    switch (fw_admin_input_next(&client->input, line)) {
    case FW_ADMIN_LINE:
        client_execute(client, line);
        return true;
    case FW_ADMIN_LONG:
        client_refuse(client, -EMSGSIZE, "the line is too long, at most 255 characters are one\n");
        return true;
    case FW_ADMIN_STRANGE:
        client_refuse(client, -EINVAL, "the line has control characters, so it is no command\n");
        return true;
    case FW_ADMIN_NONE:
        break;
    }
    return false;
}

/* Sends the reply as far as the socket takes it. True: it is sent. */
static bool client_send(struct client *client)
{
    while (client->sent < client->reply->length) {
        client->piece = (struct iovec){.iov_base = client->reply->bytes + client->sent,
                                       .iov_len = client->reply->length - client->sent};
        ssize_t result = fw_stream_send(&client->stream, &client->piece, 1);
        if (result == -EINPROGRESS) {
            client->is_sending = true;
            return false;
        }
        if (result < 0) {
            client_close(client); /* It has gone. */
            return false;
        }
        client->sent += (size_t)result;
    }
    free(client->reply);
    client->reply = NULL;
    client->sent = 0;
    client->last_used = ++client->admin->use_count;
    return true;
}

static void client_take_input(struct client *client, ssize_t result)
{
    if (result <= 0) {
        client->is_over = true; /* Of a connection that is broken, sending will tell. */
        return;
    }
    client->last_used = ++client->admin->use_count;
    fw_admin_input_received(&client->input, (size_t)result);
}

/* Receives until there is a line or nothing more. True: there may be a line. */
static bool client_receive(struct client *client)
{
    size_t room;
    char *place = fw_admin_input_room(&client->input, &room);
    if (client->is_over || client->is_receiving || room == 0) {
        return false;
    }
    ssize_t result = fw_stream_receive(&client->stream, place, room);
    client->is_receiving = result == -EINPROGRESS;
    if (!client->is_receiving) {
        client_take_input(client, result);
    }
    return !client->is_receiving;
}

/* The worker is seen to be through before its answer is looked for, which so is there. */
static void client_look(struct client *client)
{
    if (client->is_pending &&
        atomic_exchange_explicit(&client->is_answered, false, memory_order_acquire)) {
        client->is_pending = false;
        client->timed = 0;
    }
    if (client->reply == NULL) {
        client->reply = atomic_exchange_explicit(&client->mailbox, NULL, memory_order_acquire);
    }
}

/* Does all that can be done now, in the order: send, take the next line, receive. */
static void client_advance(struct client *client)
{
    while (client->is_open && !client->is_sending) {
        client_look(client);
        if (client->reply != NULL) {
            if (!client_send(client)) {
                return;
            }
        } else if (client->is_pending && client->timed == 0) {
            return; /* Waits for the answer. */
        } else if (client->is_pending && client->input.length > 0) {
            client_untime(client);
        } else if (!client->is_pending && client_take_line(client)) {
            continue;
        } else if (!client_receive(client)) {
            if (client->is_over) {
                client_close(client);
            }
            return;
        }
    }
}

static void client_received(struct fw_stream *stream, ssize_t result)
{
    struct client *client = client_of(stream);
    client->is_receiving = false;
    client_take_input(client, result);
    client_advance(client);
}

static void client_sent(struct fw_stream *stream, ssize_t result)
{
    struct client *client = client_of(stream);
    client->is_sending = false;
    if (result < 0) {
        client_close(client);
        return;
    }
    client->sent += (size_t)result;
    client_advance(client);
}

static const struct fw_stream_events client_events = {
    .received = client_received, .sent = client_sent, .closed = client_closed};

/* ---- the socket ---------------------------------------------------------------------------- */

/*
 * A free slot, which there is. Of too many clients, the one that has done nothing for longest is
 * closed; not while it waits for an answer.
 */
static struct client *admin_take_slot(struct fw_admin *admin)
{
    struct client *slot = NULL, *oldest = NULL;
    uint32_t open_count = 0;
    for (uint32_t i = 0; i < FW_ADMIN_SLOTS; i++) {
        struct client *client = &admin->clients[i];
        if (!client->is_used) {
            slot = client;
        } else if (client->is_open) {
            bool is_older = oldest == NULL || client->last_used < oldest->last_used;
            bool is_waiting = client->is_pending && client->timed == 0;
            oldest = is_older && !is_waiting ? client : oldest;
            open_count++;
        }
    }
    if (open_count >= FW_ADMIN_CLIENTS && oldest != NULL) {
        client_close(oldest);
    }
    FW_ASSERT(slot != NULL);
    return slot;
}

/* Accepts no more while all slots are taken. */
static void admin_pause_if_full(struct fw_admin *admin)
{
    for (uint32_t i = 0; i < FW_ADMIN_SLOTS; i++) {
        if (!admin->clients[i].is_used) {
            return;
        }
    }
    admin->is_full = true;
    fw_listener_pause(&admin->listener);
}

static void admin_accepted(struct fw_listener *listener, int fd)
{
    struct fw_admin *admin = FW_CONTAINER_OF(listener, struct fw_admin, listener);
    struct fw_server *server = admin->server;
    if (fd < 0) {
        fw_listen_failed(server, "an administrator", fd);
        admin->is_short = true;
        return;
    }
    struct client *client = admin_take_slot(admin);
    int rc = fw_stream_open(&client->stream, server->reactor, fd, &client_events);
    if (rc != 0) {
        struct iovec nothing = {.iov_base = NULL, .iov_len = 0};
        fw_listener_refuse(listener, fd, &nothing);
        return;
    }
    server->open_count++;
    client->is_used = true;
    client->is_open = true;
    client->last_used = ++admin->use_count;
    admin_pause_if_full(admin);
    client_advance(client);
}

static void admin_closed(struct fw_listener *listener)
{
    FW_CONTAINER_OF(listener, struct fw_admin, listener)->server->open_count--;
}

static const struct fw_listener_events admin_events = {.accepted = admin_accepted,
                                                       .closed = admin_closed};

/* The address of a file, which has permissions. */
static int admin_address(const char *path, struct fw_address *address, struct fw_reason *reason)
{
    char text[FW_ADDRESS_TEXT_SIZE];
    bool is_prefixed = strncmp(path, "unix:", 5) == 0;
    int length = snprintf(text, sizeof text, "%s%s", is_prefixed ? "" : "unix:", path);
    if (length >= (int)sizeof text) {
        return fw_reason_set(reason, -EINVAL, "--admin-socket: the path '%s' is too long", path);
    }
    struct fw_reason why;
    int rc = fw_address_parse(text, 0, 0, address, 1, &why);
    if (rc < 0) {
        return fw_reason_set(reason, rc, "--admin-socket: %s", why.text);
    }
    if (fw_address_path(address) == NULL) {
        return fw_reason_set(reason, -EINVAL,
                             "--admin-socket: '%s' is not a file, so everybody could use it; give "
                             "a path",
                             path);
    }
    return 0;
}

int fw_admin_check(const char *path, struct fw_reason *reason)
{
    struct fw_address address;
    return admin_address(path, &address, reason);
}

int fw_admin_open(struct fw_server *server, struct fw_reason *reason)
{
    const char *path = server->config.admin_socket;
    if (path == NULL) {
        return 0;
    }
    struct fw_address address;
    int rc = admin_address(path, &address, reason);
    if (rc != 0) {
        return rc;
    }
    struct fw_admin *admin = calloc(1, sizeof *admin);
    if (admin == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot open the administration socket");
    }
    admin->server = server;
    for (uint32_t i = 0; i < FW_ADMIN_SLOTS; i++) {
        admin->clients[i].admin = admin;
    }
    const struct fw_listener_options options = {.backlog = BACKLOG, .mode = FILE_MODE};
    rc = fw_listener_open(&admin->listener, server->reactor, &address, &options, &admin_events,
                          reason);
    if (rc != 0) {
        free(admin);
        return rc;
    }
    server->open_count++;
    server->admin = admin;
    admin->handler = (struct fw_jobs_handler){
        .commands = fw_admin_commands, .count = fw_admin_commands_count, .context = server};
    fw_jobs_attach_handler(server->jobs, &admin->handler);
    FW_LOG(server, NOTICE, "administration at %s", path);
    return 0;
}

bool fw_admin_is_paused(const struct fw_server *server)
{
    return server->admin != NULL && server->admin->is_short;
}

void fw_admin_look(struct fw_server *server)
{
    struct fw_admin *admin = server->admin;
    if (admin == NULL) {
        return;
    }
    if (admin->is_short && !admin->is_full && fw_listen_may_retry(server)) {
        admin->is_short = false;
        fw_listener_resume(&admin->listener);
    }
    if (!atomic_load_explicit(&admin->has_news, memory_order_relaxed)) {
        return;
    }
    /* Acquire, for the release in news_tell(). */
    (void)atomic_exchange_explicit(&admin->has_news, false, memory_order_acquire);
    for (uint32_t i = 0; i < FW_ADMIN_SLOTS; i++) {
        struct client *client = &admin->clients[i];
        if (client->is_open) {
            client_advance(client);
        } else if (client->is_used) {
            client_look(client);
            client_release_if_done(client);
        }
    }
}

void fw_admin_close(struct fw_server *server)
{
    struct fw_admin *admin = server->admin;
    if (admin == NULL || admin->is_over) {
        return;
    }
    admin->is_over = true;
    fw_listener_close(&admin->listener);
    for (uint32_t i = 0; i < FW_ADMIN_SLOTS; i++) {
        client_close(&admin->clients[i]);
    }
}

void fw_admin_fini(struct fw_server *server)
{
    struct fw_admin *admin = server->admin;
    if (admin == NULL) {
        return;
    }
    for (uint32_t i = 0; i < FW_ADMIN_SLOTS; i++) {
        client_look(&admin->clients[i]);
        client_release_if_done(&admin->clients[i]);
        FW_ASSERT(!admin->clients[i].is_used);
    }
    free(admin);
    server->admin = NULL;
}
