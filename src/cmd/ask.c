/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/login.h"
#include "io/address.h"

int fw_ask_open(struct fw_peer *peer, const struct fw_ask_server *server,
                const atomic_bool *must_end, struct fw_reason *reason)
{
    struct fw_address address;
    struct fw_login login;
    if (fw_address_parse(server->address, FW_PEER_PORT, FW_ADDRESS_RESOLVE, &address, 1, reason) <
        0) {
        return -EINVAL;
    }
    int rc = fw_login_read(&login, server->login_file, reason);
    if (rc == 0) {
        rc = fw_peer_open(peer, &address, server->patience_ns, must_end, reason);
    }
    if (rc != 0) {
        return rc;
    }
    rc = fw_login_send(&login, peer, reason);
    if (rc != 0) {
        fw_peer_close(peer);
    }
    return rc;
}

static bool begins_with(const char *line, size_t length, const char *beginning)
{
    size_t size = strlen(beginning);
    return length >= size && memcmp(line, beginning, size) == 0;
}

/* The last line that has come whole, without its end; NULL: what came last is none. */
static const char *line_last(const struct fw_peer *peer, size_t *length)
{
    const char *input = fw_peer_input(peer);
    size_t size = fw_peer_input_length(peer);
    if (size < 2 || input[size - 1] != '\n') {
        return NULL;
    }
    const char *before = memrchr(input, '\n', size - 1);
    const char *line = before != NULL ? before + 1 : input;
    *length = (size_t)(input + size - 1 - line);
    *length -= *length > 0 && line[*length - 1] == '\r';
    return line;
}

/* -EINPROGRESS: the answer goes on. */
static int answer_look(const struct fw_peer *peer, const char *last, struct fw_reason *reason)
{
    size_t length;
    const char *line = line_last(peer, &length);
    if (line == NULL) {
        return -EINPROGRESS;
    }
    if (begins_with(line, length, last)) {
        return 0;
    }
    if (begins_with(line, length, "ERROR") || begins_with(line, length, "CLIENT_ERROR") ||
        begins_with(line, length, "SERVER_ERROR")) {
        static const char demand[] = "CLIENT_ERROR unauthenticated";
        return fw_reason_set(reason, -EPROTO, "the server answers: %.*s%s",
                             length < 200 ? (int)length : 200, line,
                             begins_with(line, length, demand) ? "; give --login FILE" : "");
    }
    return -EINPROGRESS;
}

int fw_ask_peer(struct fw_peer *peer, const char *question, const char *last, char **answer,
                struct fw_reason *reason)
{
    int rc = fw_peer_send(peer, question, strlen(question), reason);
    if (rc != 0) {
        return rc;
    }
    do {
        rc = fw_peer_receive(peer, reason);
        if (rc != 0) {
            return rc;
        }
        if (fw_peer_input_length(peer) > FW_ASK_ANSWER_MAX) {
            return fw_reason_set(reason, -EMSGSIZE, "the server's answer is too long");
        }
        rc = answer_look(peer, last, reason);
    } while (rc == -EINPROGRESS);
    size_t length = fw_peer_input_length(peer);
    if (rc == 0) {
        *answer = strndup(fw_peer_input(peer), length);
        rc = *answer != NULL ? 0 : fw_reason_errno(reason, -ENOMEM, "no memory for the answer");
    }
    fw_peer_take(peer, length);
    return rc;
}

int fw_ask(const struct fw_ask_server *server, const char *question, const char *last,
           char **answer, struct fw_reason *reason)
{
    static const atomic_bool never = false;
    struct fw_peer peer;
    int rc = fw_ask_open(&peer, server, &never, reason);
    if (rc == 0) {
        rc = fw_ask_peer(&peer, question, last, answer, reason);
        fw_peer_close(&peer);
    }
    return rc;
}
