/* SPDX-License-Identifier: Apache-2.0 */
#include "ha/client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "io/clock.h"

enum { RETRY_MS = 100, FIGURE_MAX = 32 };

/* ---- figures ------------------------------------------------------------------------------- */

/* The value of a row "name value", as the administration's answers have them. False: none. */
static bool figure_find(const char *text, size_t length, const char *name,
                        char value[static FIGURE_MAX])
{
    size_t name_length = strlen(name);
    const char *end = text + length;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop != NULL ? stop : end;
        while (line < stop && *line == ' ') {
            line++;
        }
        const char *rest = line + name_length;
        if (rest < stop && memcmp(line, name, name_length) == 0 && *rest == ' ') {
            while (rest < stop && *rest == ' ') {
                rest++;
            }
            while (stop > rest && stop[-1] == ' ') {
                stop--;
            }
            size_t size = (size_t)(stop - rest);
            if (size == 0 || size >= FIGURE_MAX) {
                return false;
            }
            memcpy(value, rest, size);
            value[size] = '\0';
            return true;
        }
        line = stop + 1;
    }
    return false;
}

static int hexadecimal_read(const char *text, uint64_t *number)
{
    *number = 0;
    for (const char *digit = text; *digit != '\0'; digit++) {
        static const char digits[] = "0123456789abcdef";
        const char *found = strchr(digits, *digit);
        if (found == NULL || *number >> 60 != 0) {
            return -EPROTO;
        }
        *number = *number << 4 | (uint64_t)(found - digits);
    }
    return 0;
}

int fw_ha_standing_read(struct fw_ha_standing *standing, const char *text, size_t length)
{
    char value[FIGURE_MAX];
    *standing = (struct fw_ha_standing){.is_alive = true};
    if (!figure_find(text, length, "role", value)) {
        return -EPROTO;
    }
    standing->is_master = strcmp(value, "master") == 0;
    standing->has_address =
        figure_find(text, length, "address_here", value) && strcmp(value, "yes") == 0;
    if (!figure_find(text, length, "complete", value)) {
        return -EPROTO;
    }
    standing->is_complete = strcmp(value, "yes") == 0;
    if (!figure_find(text, length, "history", value) ||
        hexadecimal_read(value, &standing->history) != 0 ||
        !figure_find(text, length, "position", value) ||
        fw_parse_uint(value, strlen(value), 0, UINT64_MAX, &standing->position) != 0) {
        return -EPROTO;
    }
    return 0;
}

/* ---- the connection ------------------------------------------------------------------------ */

static struct fw_ha_client *client_of(struct fw_stream *stream)
{
    return FW_CONTAINER_OF(stream, struct fw_ha_client, stream);
}

static void client_closed_if_done(struct fw_ha_client *client)
{
    if (client->is_over && !client->has_stream && !client->has_alarm) {
        client->events->closed(client);
    }
}

static void alarm_closed(struct fw_alarm *alarm)
{
    struct fw_ha_client *client = FW_CONTAINER_OF(alarm, struct fw_ha_client, alarm);
    client->has_alarm = false;
    client_closed_if_done(client);
}

static void stream_closed(struct fw_stream *stream)
{
    struct fw_ha_client *client = client_of(stream);
    client->has_stream = false;
    client->is_closing = false;
    client_closed_if_done(client);
}

static void stream_end(struct fw_ha_client *client)
{
    client->is_connected = false;
    client->is_busy = false;
    if (client->has_stream && !client->is_closing) {
        client->is_closing = true;
        fw_stream_close(&client->stream);
    }
}

/* The server has gone, or does not answer. */
static void client_fail(struct fw_ha_client *client)
{
    static const struct fw_ha_standing dead;
    stream_end(client);
    client->lease_ns = 0;
    client->wants_end = false;
    client->wants_resignation = false;
    if (!client->is_over) {
        fw_alarm_set(&client->alarm, fw_clock_now_ns() + RETRY_MS * (int64_t)FW_NS_PER_MS);
        client->events->stands(client, &dead, fw_clock_boot_ns());
    }
}

static void client_advance(struct fw_ha_client *client);

/* The bytes of an answer: "OK 12", or "ERROR NAME 12", a line each, and so many bytes. 0: not all
 * of it is there; -EPROTO. */
static ssize_t answer_length(const struct fw_ha_client *client, const char **body, bool *is_good)
{
    const char *end = memchr(client->input, '\n', client->length);
    if (end == NULL) {
        return client->length < FW_HA_CLIENT_LINE ? 0 : -EPROTO;
    }
    const char *space = memrchr(client->input, ' ', (size_t)(end - client->input));
    uint64_t size;
    if (space == NULL ||
        fw_parse_uint(space + 1, (size_t)(end - space) - 1, 0, FW_HA_CLIENT_INPUT, &size) != 0) {
        return -EPROTO;
    }
    *body = end + 1;
    *is_good = client->length > 3 && memcmp(client->input, "OK ", 3) == 0;
    size_t whole = (size_t)(*body - client->input) + size;
    if (whole > FW_HA_CLIENT_INPUT) {
        return -EPROTO;
    }
    return client->length >= whole ? (ssize_t)whole : 0;
}

/* Takes an answer, if there is one. False: the connection is of no use any more. */
static bool answer_take(struct fw_ha_client *client)
{
    const char *body;
    bool is_good;
    ssize_t whole = answer_length(client, &body, &is_good);
    if (whole <= 0) {
        return whole == 0;
    }
    struct fw_ha_standing standing;
    bool is_right = !client->is_asking ||
                    (is_good && fw_ha_standing_read(&standing, body,
                                                    (size_t)(client->input + whole - body)) == 0);
    if (!is_right || (size_t)whole != client->length) {
        return false;
    }
    bool was_asking = client->is_asking;
    client->is_busy = false;
    client->is_asking = false;
    client->length = 0;
    fw_alarm_set(&client->alarm, INT64_MAX);
    if (was_asking) {
        client->events->stands(client, &standing, client->asked_ns);
    }
    return true;
}

static void input_receive(struct fw_ha_client *client)
{
    while (client->is_busy && client->is_connected) {
        ssize_t result = fw_stream_receive(&client->stream, client->input + client->length,
                                           FW_HA_CLIENT_INPUT - client->length);
        if (result == -EINPROGRESS) {
            return;
        }
        if (result > 0) {
            client->length += (size_t)result;
        }
        if (result <= 0 || !answer_take(client)) {
            client_fail(client);
        }
    }
}

static void stream_received(struct fw_stream *stream, ssize_t result)
{
    struct fw_ha_client *client = client_of(stream);
    if (result > 0) {
        client->length += (size_t)result;
    }
    client->is_advancing = true;
    if (result <= 0 || !answer_take(client)) {
        client_fail(client);
    }
    input_receive(client);
    client->is_advancing = false;
    client_advance(client);
}

/* A line is so short that the socket takes all of it or nothing. */
static void stream_sent(struct fw_stream *stream, ssize_t result)
{
    struct fw_ha_client *client = client_of(stream);
    client->is_advancing = true;
    if (result != (ssize_t)client->piece.iov_len) {
        client_fail(client);
    }
    input_receive(client);
    client->is_advancing = false;
    client_advance(client);
}

static void stream_connected(struct fw_stream *stream, int result)
{
    struct fw_ha_client *client = client_of(stream);
    if (result != 0) {
        client_fail(client);
        return;
    }
    client->is_connected = true;
    fw_alarm_set(&client->alarm, INT64_MAX);
    client_advance(client);
}

static const struct fw_stream_events stream_events = {.received = stream_received,
                                                      .sent = stream_sent,
                                                      .connected = stream_connected,
                                                      .closed = stream_closed};

static void client_connect(struct fw_ha_client *client)
{
    client->length = 0;
    int rc = fw_stream_connect(&client->stream, client->reactor, &client->address, &stream_events);
    client->has_stream = rc == 0 || rc == -EINPROGRESS;
    if (rc == 0) {
        stream_connected(&client->stream, 0);
    } else if (rc == -EINPROGRESS) {
        fw_alarm_set(&client->alarm, fw_clock_now_ns() + client->patience_ns);
    } else {
        client_fail(client);
    }
}

/* ---- commands ------------------------------------------------------------------------------ */

/* The next command, as the most urgent wish has it. False: there is none. */
static bool command_make(struct fw_ha_client *client)
{
    int length = 0;
    if (client->wants_end) {
        client->wants_end = false;
        length = snprintf(client->line, sizeof client->line, "lease end\n");
    } else if (client->lease_ns != 0) {
        length =
            snprintf(client->line, sizeof client->line, "lease %" PRId64 "\n", client->lease_ns);
        client->lease_ns = 0;
    } else if (client->wants_resignation) {
        client->wants_resignation = false;
        length = snprintf(client->line, sizeof client->line, "demote force\n");
    } else if (client->wants_standing) {
        client->wants_standing = false;
        client->is_asking = true;
        client->asked_ns = fw_clock_boot_ns();
        length = snprintf(client->line, sizeof client->line, "stats replication\n");
    }
    client->piece = (struct iovec){.iov_base = client->line, .iov_len = (size_t)length};
    return length > 0;
}

static void client_advance(struct fw_ha_client *client)
{
    if (client->is_advancing) {
        return; /* Called by who was told something from here: what it wants is next. */
    }
    client->is_advancing = true;
    while (client->is_connected && !client->is_busy && command_make(client)) {
        client->is_busy = true;
        client->length = 0;
        fw_alarm_set(&client->alarm, fw_clock_now_ns() + client->patience_ns);
        ssize_t sent = fw_stream_send(&client->stream, &client->piece, 1);
        if (sent == -EINPROGRESS) {
            break;
        }
        if (sent != (ssize_t)client->piece.iov_len) {
            client_fail(client);
            break;
        }
        input_receive(client);
    }
    client->is_advancing = false;
}

/* What was waited for has not come; or it is time to try again. */
static void alarm_rang(struct fw_alarm *alarm)
{
    struct fw_ha_client *client = FW_CONTAINER_OF(alarm, struct fw_ha_client, alarm);
    if (client->has_stream) {
        client_fail(client);
    } else if (!client->is_over) {
        client_connect(client);
    }
}

void fw_ha_client_ask(struct fw_ha_client *client)
{
    client->wants_standing = true;
    client_advance(client);
}

void fw_ha_client_lease(struct fw_ha_client *client, int64_t until_ns)
{
    client->lease_ns = until_ns;
    client->wants_end = false;
    client_advance(client);
}

void fw_ha_client_end_lease(struct fw_ha_client *client)
{
    client->lease_ns = 0;
    client->wants_end = true;
    client_advance(client);
}

void fw_ha_client_resign(struct fw_ha_client *client)
{
    client->wants_resignation = true;
    client_advance(client);
}

/* ---- life ---------------------------------------------------------------------------------- */

int fw_ha_client_open(struct fw_ha_client *client, struct fw_reactor *reactor, const char *path,
                      int64_t patience_ns, const struct fw_ha_client_events *events,
                      struct fw_reason *reason)
{
    char text[FW_ADDRESS_TEXT_SIZE];
    int length = snprintf(text, sizeof text, "unix:%s", path);
    *client =
        (struct fw_ha_client){.events = events, .reactor = reactor, .patience_ns = patience_ns};
    if (length >= (int)sizeof text) {
        return fw_reason_set(reason, -EINVAL, "the path of the server's socket is too long");
    }
    int rc = fw_address_parse(text, 0, 0, &client->address, 1, reason);
    if (rc < 0) {
        return rc;
    }
    rc = fw_alarm_open(&client->alarm, reactor, alarm_rang, reason);
    if (rc == 0) {
        client->has_alarm = true;
        fw_alarm_set(&client->alarm, fw_clock_now_ns()); /* Not from inside this call. */
    }
    return rc;
}

void fw_ha_client_close(struct fw_ha_client *client)
{
    client->is_over = true;
    stream_end(client);
    fw_alarm_close(&client->alarm, alarm_closed);
}
