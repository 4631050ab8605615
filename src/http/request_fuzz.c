/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends arbitrary bytes to the HTTP door, through its real socket, and reads what it answers.
 *
 * The first byte of the input says what the rest is: a whole conversation, the path of a request,
 * or the host that a request names. What must hold:
 *   - whatever was sent, every answer is one of HTTP, whole as far as it came, with a status that
 *     we know; and the connection is closed once the client has said its last word;
 *   - a path is answered only if it is one of ours, by a reading of it that is written here again;
 *   - a host is answered exactly if it is a name of the loopback, by the same;
 *   - and after all of it the next client is served.
 *
 * The door stays open between inputs, as in server-serve. Sockets are reset and not closed, so that
 * a thousand connections a second do not use up the ports.
 */
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "http/http.h"
#include "io/address.h"

enum {
    INPUT_MAX = 4096,
    ANSWER_MAX = 4 << 20, /* As many answers as an input has room for questions. */
    PATIENCE_MS = 20000,  /* Twice the door's. */
    STATUS_CONTINUE = 100,
    STATUS_OK = 200,
    STATUS_MAX = 505,
};
enum { CONVERSATION, PATH, HOST, KINDS };

static struct fw_http *http;
static struct fw_metrics metrics;
static char answer[ANSWER_MAX + 1];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the door, which shows a server that has next to nothing ---- */

static bool show_stats(void *context, const char *group, fw_http_emit emit, void *emit_context)
{
    (void)context;
    if (group[0] == '\0') {
        emit(emit_context, "curr_items", "7");
    }
    return group[0] == '\0';
}

static bool show_is_ready(void *context)
{
    (void)context;
    return true;
}

static void end(void)
{
    fw_http_close(http);
    fw_metrics_fini(&metrics);
}

/* False: the build has no HTTP. */
static bool begin(void)
{
    struct fw_reason reason;
    fw_metrics_init(&metrics);
    const struct fw_http_shown shown = {
        .metrics = &metrics, .stats = show_stats, .is_ready = show_is_ready};
    int rc = fw_http_open(&http, "127.0.0.1:0", &shown, &reason);
    if (rc == -ENOSYS) {
        return false;
    }
    FW_ASSERT(rc == 0);
    rc = atexit(end);
    FW_ASSERT(rc == 0);
    return true;
}

/* ---- a client ---- */

/* Sends all of it and its last word; returns how much was answered, until the door closed. */
static size_t converse(const char *bytes, size_t size)
{
    const struct fw_address *address = fw_http_address(http);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    size_t length = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FW_ASSERT(fd >= 0);
    /* libFuzzer looks at its clock in a signal's handler, which interrupts this and poll(). */
    long rc = TEMP_FAILURE_RETRY(connect(fd, &address->any, address->length));
    FW_ASSERT(rc == 0);
    rc = setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    FW_ASSERT(rc == 0);
    (void)!send(fd, bytes, size, MSG_NOSIGNAL); /* It may have had enough before the end. */
    (void)shutdown(fd, SHUT_WR);
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        rc = TEMP_FAILURE_RETRY(poll(&ready, 1, PATIENCE_MS));
        FW_ASSERT(rc > 0);
        ssize_t received = recv(fd, answer + length, ANSWER_MAX - length, MSG_DONTWAIT);
        if (received <= 0) {
            break;
        }
        length += (size_t)received;
        FW_ASSERT(length < ANSWER_MAX);
    }
    (void)close(fd);
    answer[length] = '\0';
    return length;
}

/* The status of an answer that begins there. */
static int status_of(const char *text)
{
    FW_ASSERT(strncmp(text, "HTTP/1.", strlen("HTTP/1.")) == 0);
    long status = strtol(text + strlen("HTTP/1.x "), NULL, 10);
    FW_ASSERT(status >= STATUS_CONTINUE && status <= STATUS_MAX);
    return (int)status;
}

/* Walks over all answers. One to HEAD has no body, so only the first is looked at where that may be
 * among the questions. */
static void answers_check(size_t length, bool may_be_head)
{
    const char *at = answer;
    const char *last = answer + length;
    while (at < last) {
        if (last - at < (ptrdiff_t)strlen("HTTP/1.1 200")) {
            return; /* The rest was lost when the door closed with input unread. */
        }
        int status = status_of(at);
        const char *body = strstr(at, "\r\n\r\n");
        if (status == STATUS_CONTINUE && body != NULL) { /* The answer itself follows. */
            at = body + 4;
            continue;
        }
        const char *size = strstr(at, "Content-Length: ");
        const char *ours = strstr(at, "Content-Security-Policy: ");
        if (body == NULL || may_be_head || ours == NULL || ours > body) {
            return; /* The last of what libmicrohttpd says by itself it may say twice. */
        }
        FW_ASSERT(size != NULL && size < body);
        at = body + 4 + strtoul(size + strlen("Content-Length: "), NULL, 10);
    }
}

/* ---- the three kinds ---- */

static void check_conversation(const char *bytes, size_t size)
{
    size_t length = converse(bytes, size);
    answers_check(length, memmem(bytes, size, "HEAD", 4) != NULL);
}

/* As HTTP reads it: up to the question mark, and %XX for a byte. */
static bool path_is_ours(const char *path)
{
    static const char *const ours[] = {"/",        "/page.css", "/page.js",    "/metrics",
                                       "/healthz", "/readyz",   "/status.json"};
    char plain[INPUT_MAX + 1];
    size_t length = 0;
    for (const char *at = path; *at != '\0' && *at != '?'; at++) {
        unsigned byte = (unsigned char)*at;
        if (*at == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
            const char digits[] = {at[1], at[2], '\0'};
            byte = (unsigned)strtoul(digits, NULL, 16);
            at += 2;
        }
        plain[length++] = (char)byte;
    }
    plain[length] = '\0';
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ours); i++) {
        if (strcmp(ours[i], plain) == 0) {
            return true;
        }
    }
    return false;
}

static void check_path(const char *path)
{
    char request[INPUT_MAX + 64];
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\n\r\n", path);
    size_t length = converse(request, (size_t)size);
    answers_check(length, false);
    if (length > 0 && status_of(answer) == STATUS_OK) {
        FW_ASSERT(path_is_ours(path));
    }
}

static bool host_is_ours(const char *host)
{
    static const char *const ours[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *bracket = host[0] == '[' ? strchr(host, ']') : NULL;
    const char *colon = strchr(bracket != NULL ? bracket : host, ':');
    size_t length = colon != NULL ? (size_t)(colon - host) : strlen(host);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ours); i++) {
        if (strlen(ours[i]) == length && strncasecmp(ours[i], host, length) == 0) {
            return true;
        }
    }
    return false;
}

static void check_host(const char *host)
{
    char request[INPUT_MAX + 64];
    int size = snprintf(request, sizeof request, "GET /readyz HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    size_t length = converse(request, (size_t)size);
    answers_check(length, false);
    bool is_answered = length > 0 && status_of(answer) == STATUS_OK;
    FW_ASSERT(is_answered == host_is_ours(host));
}

/* Printable, without blanks, so that what libmicrohttpd trims and folds is not our question. */
static bool text_take(const uint8_t *data, size_t size, char text[INPUT_MAX + 1])
{
    for (size_t i = 0; i < size; i++) {
        if (!isgraph(data[i])) {
            return false;
        }
        text[i] = (char)data[i];
    }
    text[size] = '\0';
    return size > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_absent;
    char text[INPUT_MAX + 1];
    if (size < 2 || size > INPUT_MAX || is_absent) {
        return 0;
    }
    if (http == NULL && !begin()) {
        is_absent = true;
        return 0;
    }
    unsigned kind = data[0] % KINDS;
    if (kind == CONVERSATION) {
        check_conversation((const char *)data + 1, size - 1);
    } else if (text_take(data + 1, size - 1, text)) {
        (kind == PATH ? check_path : check_host)(text);
    }
    size_t length =
        converse("GET /healthz HTTP/1.0\r\n\r\n", strlen("GET /healthz HTTP/1.0\r\n\r\n"));
    FW_ASSERT(length > 0 && status_of(answer) == STATUS_OK);
    return 0;
}
