/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "http/page.h"
#include "http/prometheus.h"
#include "http/status.h"
#include "io/address.h"
#include "io/clock.h"

/* Twice as many connections as places: who is displaced is open for a moment longer. */
enum { MEMORY = 16 << 10, PATIENCE_S = 10 };

/* That are open at the same time: some that were displaced are still being closed. */
#define CONNECTIONS(places) ((places) + (places) / 4 + 2)
#define DEADLINE_NS         (20 * (int64_t)FW_NS_PER_S)
#define LOOK_NS             ((int64_t)FW_NS_PER_S)

struct client {
    int fd;
    int64_t since_ns; /* When it came, or when its last request was answered. */
    bool is_shut;
};

struct fw_http {
    struct MHD_Daemon *daemon;
    struct fw_http_shown shown;
    uint32_t places;
    struct fw_address address;
    bool is_loopback;
    struct fw_parker all_gone; /* Unparked for each client that goes while it is being closed. */
    struct fw_thread warden;
    struct fw_parker news;
    struct fw_mutex lock; /* Guards what follows. */
    bool is_closing;
    uint32_t client_count;
    uint32_t shut_count;                                /* Of these. */
    struct client clients[CONNECTIONS(FW_HTTP_PLACES)]; /* In any order. */
};

/* ---- answers ---- */

static enum MHD_Result answer_send(struct MHD_Connection *connection, unsigned status,
                                   struct MHD_Response *response, const char *type)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
    };
    if (response == NULL) {
        return MHD_NO; /* No memory: the connection is closed. */
    }
    enum MHD_Result done = MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(headers) && done == MHD_YES; i++) {
        done = MHD_add_response_header(response, headers[i][0], headers[i][1]);
    }
    if (done == MHD_YES && status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        done = MHD_add_response_header(response, "Allow", "GET, HEAD");
    }
    if (done == MHD_YES) {
        done = MHD_queue_response(connection, status, response);
    }
    MHD_destroy_response(response);
    return done;
}

/* `text` is constant. */
static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status,
                                   const char *text)
{
    return answer_send(connection, status,
                       MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                       MHD_RESPMEM_PERSISTENT),
                       "text/plain; charset=utf-8");
}

/* What `write` writes, whole: a page that ends in the middle is worse than none. */
static enum MHD_Result answer_written(struct MHD_Connection *connection, const struct fw_http *http,
                                      int (*write)(const struct fw_http_shown *shown, FILE *out),
                                      const char *type)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) {
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
    }
    int rc = write(&http->shown, out);
    if (fclose(out) != 0 || rc != 0) {
        free(text);
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
    }
    return answer_send(connection, MHD_HTTP_OK, response, type);
}

/* ---- requests ---- */

/* Does the request say that it came here by a name of the loopback? */
static bool host_is_loopback(struct MHD_Connection *connection)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    for (size_t i = 0; host != NULL && i < FW_ARRAY_LENGTH(names); i++) {
        size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) == 0 &&
            (host[length] == '\0' || host[length] == ':')) {
            return true;
        }
    }
    return host == NULL; /* HTTP/1.0: no browser. */
}

static enum MHD_Result answer_page(struct MHD_Connection *connection, const char *path)
{
    for (const struct fw_http_page *page = fw_http_pages; page->path != NULL; page++) {
        if (strcmp(page->path, path) == 0) {
            return answer_send(connection, MHD_HTTP_OK,
                               MHD_create_response_from_buffer(page->length,
                                                               (void *)(uintptr_t)page->bytes,
                                                               MHD_RESPMEM_PERSISTENT),
                               page->type);
        }
    }
    return answer_text(connection, MHD_HTTP_NOT_FOUND,
                       "there is /, /metrics, /status.json, /healthz and /readyz\n");
}

static enum MHD_Result answer(const struct fw_http *http, struct MHD_Connection *connection,
                              const char *path)
{
    if (strcmp(path, "/metrics") == 0) {
        return answer_written(connection, http, fw_prometheus_write,
                              "text/plain; version=0.0.4; charset=utf-8");
    }
    if (strcmp(path, "/status.json") == 0) {
        return answer_written(connection, http, fw_status_write, "application/json");
    }
    if (strcmp(path, "/healthz") == 0) {
        return answer_text(connection, MHD_HTTP_OK, "ok\n");
    }
    if (strcmp(path, "/readyz") == 0) {
        bool is_ready = http->shown.is_ready(http->shown.context);
        return is_ready ? answer_text(connection, MHD_HTTP_OK, "ready\n")
                        : answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready\n");
    }
    return answer_page(connection, path);
}

/* libmicrohttpd's call-back: once for the head, then for each piece of the body. */
/* NOLINTNEXTLINE(readability-function-size): the parameters are libmicrohttpd's. */
static enum MHD_Result request_take(void *context, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    const char *body, size_t *body_length, void **state)
{
    const struct fw_http *http = context;
    static char head_seen;
    (void)version;
    (void)body;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    if (*state == NULL) {
        *state = &head_seen;
        return MHD_YES;
    }
    if (*body_length > 0) {
        return MHD_NO;
    }
    if (http->is_loopback && !host_is_loopback(connection)) {
        return answer_text(connection, MHD_HTTP_FORBIDDEN,
                           "ask for localhost: this address is the loopback's\n");
    }
    return answer(http, connection, path);
}

/* ---- clients ---- */

/* The lock is held. Its place is free from now on. */
static void client_shut(struct fw_http *http, struct client *client)
{
    if (!client->is_shut) {
        client->is_shut = true;
        http->shut_count++;
        (void)shutdown(client->fd, SHUT_RDWR);
    }
}

/* The lock is held. The one whose request takes longest makes room for one that is new. */
static void clients_displace(struct fw_http *http)
{
    struct client *oldest = NULL;
    for (uint32_t i = 0; i < http->client_count; i++) {
        struct client *client = &http->clients[i];
        if (!client->is_shut && (oldest == NULL || client->since_ns < oldest->since_ns)) {
            oldest = client;
        }
    }
    if (oldest != NULL) {
        client_shut(http, oldest);
    }
}

static void client_came(struct fw_http *http, int fd)
{
    fw_mutex_lock(&http->lock);
    if (http->client_count == FW_ARRAY_LENGTH(http->clients)) {
        (void)shutdown(fd, SHUT_RDWR); /* Not while libmicrohttpd keeps to its limit. */
    } else {
        if (http->client_count - http->shut_count >= http->places) {
            clients_displace(http);
        }
        struct client *client = &http->clients[http->client_count++];
        *client = (struct client){.fd = fd, .since_ns = fw_clock_now_ns()};
        if (http->is_closing) {
            client_shut(http, client);
        }
    }
    fw_mutex_unlock(&http->lock);
}

/* The lock is held. NULL: there was no place for it. */
static struct client *client_find(struct fw_http *http, int fd)
{
    for (uint32_t i = 0; i < http->client_count; i++) {
        if (http->clients[i].fd == fd) {
            return &http->clients[i];
        }
    }
    return NULL;
}

static void client_went(struct fw_http *http, int fd)
{
    fw_mutex_lock(&http->lock);
    struct client *client = client_find(http, fd);
    if (client != NULL) {
        http->shut_count -= client->is_shut ? 1 : 0;
        *client = http->clients[--http->client_count];
    }
    if (http->is_closing) {
        fw_unpark(&http->all_gone);
    }
    fw_mutex_unlock(&http->lock);
}

/* Its request was answered: its time begins anew. */
static void client_answered(struct fw_http *http, int fd)
{
    fw_mutex_lock(&http->lock);
    struct client *client = client_find(http, fd);
    if (client != NULL) {
        client->since_ns = fw_clock_now_ns();
    }
    fw_mutex_unlock(&http->lock);
}

/* Shuts those whose time is up. True: it is closing. */
static bool clients_look(struct fw_http *http)
{
    int64_t now = fw_clock_now_ns();
    fw_mutex_lock(&http->lock);
    for (uint32_t i = 0; i < http->client_count; i++) {
        if (now - http->clients[i].since_ns >= DEADLINE_NS) {
            client_shut(http, &http->clients[i]);
        }
    }
    bool is_closing = http->is_closing;
    fw_mutex_unlock(&http->lock);
    return is_closing;
}

/* libmicrohttpd only knows how long nothing came, and a byte a second is something. */
static void warden_run(void *argument)
{
    struct fw_http *http = argument;
    while (!clients_look(http)) {
        (void)fw_park_for(&http->news, LOOK_NS);
    }
}

/* libmicrohttpd's call-backs. The socket is open in all of them. */
static void client_notice(void *context, struct MHD_Connection *connection, void **place,
                          enum MHD_ConnectionNotificationCode what)
{
    (void)place;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL) {
        (what == MHD_CONNECTION_NOTIFY_STARTED ? client_came : client_went)(context,
                                                                            info->connect_fd);
    }
}

static void request_over(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)state;
    (void)how;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL) {
        client_answered(context, info->connect_fd);
    }
}

static enum MHD_Result client_admit(void *context, const struct sockaddr *address, socklen_t length)
{
    struct fw_http *http = context;
    (void)address;
    (void)length;
    fw_mutex_lock(&http->lock);
    enum MHD_Result is_admitted = http->is_closing ? MHD_NO : MHD_YES;
    fw_mutex_unlock(&http->lock);
    return is_admitted;
}

static bool clients_are_gone(struct fw_http *http)
{
    fw_mutex_lock(&http->lock);
    bool are_gone = http->client_count == 0;
    fw_mutex_unlock(&http->lock);
    return are_gone;
}

/*
 * Lets nobody in any more, and waits until all have gone, which is soon: their sockets are shut.
 *
 * Without that libmicrohttpd 0.9.75 crashes if it is stopped while its thread answers a request
 * that it cannot read.
 */
static void clients_end(struct fw_http *http)
{
    fw_mutex_lock(&http->lock);
    http->is_closing = true;
    for (uint32_t i = 0; i < http->client_count; i++) {
        client_shut(http, &http->clients[i]);
    }
    fw_mutex_unlock(&http->lock);
    fw_unpark(&http->news);
    while (!clients_are_gone(http)) {
        fw_park(&http->all_gone);
    }
}

/* ---- open and close ---- */

static bool address_is_loopback(const struct fw_address *address)
{
    enum { LOOPBACK_NET = 127, NET_SHIFT = 24 };
    return address->any.sa_family == AF_INET
               ? ntohl(address->ipv4.sin_addr.s_addr) >> NET_SHIFT == LOOPBACK_NET
               : IN6_IS_ADDR_LOOPBACK(&address->ipv6.sin6_addr);
}

static int daemon_start(struct fw_http *http, const struct fw_address *address)
{
    /* Not MHD_USE_EPOLL: with it some clients that have gone are noticed only when time is up. */
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC;
    flags |= address->any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0U;
    errno = 0;
    http->daemon = MHD_start_daemon(
        flags, 0, client_admit, http, request_take, http, MHD_OPTION_SOCK_ADDR, &address->any,
        MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS(http->places), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PATIENCE_S,
        MHD_OPTION_NOTIFY_CONNECTION, client_notice, http, MHD_OPTION_NOTIFY_COMPLETED,
        request_over, http, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1U, MHD_OPTION_END);
    return http->daemon != NULL ? 0 : errno != 0 ? -errno : -EIO;
}

int fw_http_open(struct fw_http **http, const char *address, const struct fw_http_shown *shown,
                 struct fw_reason *reason)
{
    struct fw_address parsed;
    int rc = fw_address_parse(address, FW_HTTP_PORT, 0, &parsed, 1, reason);
    if (rc < 0) {
        return -EINVAL;
    }
    if (parsed.any.sa_family == AF_UNIX) {
        return fw_reason_set(reason, -EINVAL, "HTTP needs an address with a port, not '%s'",
                             address);
    }
    struct fw_http *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot serve HTTP");
    }
    fw_mutex_init(&made->lock, FW_RANK_HTTP);
    fw_parker_init(&made->all_gone);
    made->shown = *shown;
    made->places =
        shown->places != 0 && shown->places < FW_HTTP_PLACES ? shown->places : FW_HTTP_PLACES;
    made->is_loopback = address_is_loopback(&parsed);
    fw_parker_init(&made->news);
    rc = fw_thread_create(&made->warden, "http", warden_run, made);
    if (rc != 0) {
        fw_mutex_fini(&made->lock);
        free(made);
        return fw_reason_errno(reason, rc, "cannot serve HTTP");
    }
    rc = daemon_start(made, &parsed);
    if (rc != 0) {
        clients_end(made);
        fw_thread_join(&made->warden);
        fw_mutex_fini(&made->lock);
        free(made);
        (void)fw_reason_errno(reason, rc, "cannot serve HTTP at %s", address);
        return -EADDRNOTAVAIL;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(made->daemon, MHD_DAEMON_INFO_BIND_PORT);
    made->address = parsed;
    if (info != NULL && parsed.any.sa_family == AF_INET) {
        made->address.ipv4.sin_port = htons(info->port);
    } else if (info != NULL) {
        made->address.ipv6.sin6_port = htons(info->port);
    }
    *http = made;
    return 0;
}

const struct fw_address *fw_http_address(const struct fw_http *http)
{
    return &http->address;
}

void fw_http_close(struct fw_http *http)
{
    if (http != NULL) {
        clients_end(http);
        MHD_stop_daemon(http->daemon);
        fw_thread_join(&http->warden);
        fw_mutex_fini(&http->lock);
        free(http);
    }
}
