/* SPDX-License-Identifier: Apache-2.0 */
#include "server/input.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/core.h"
#include "server/connection.h"
#include "server/state.h"

static bool core_erases(const struct fw_server_core *core)
{
    return FW_UNLIKELY(fw_table_erases(core->cache.table));
}

struct fw_rest {
    struct fw_holding claim;
    char bytes[];
};

static void rest_free(struct fw_connection *connection)
{
    struct fw_rest *rest = connection->rest;
    if (rest == NULL) {
        return;
    }
    if (core_erases(connection->core)) {
        explicit_bzero(rest->bytes, connection->rest_length);
    }
    fw_holding_end(&rest->claim, &connection->core->server->holdings);
    free(rest);
    connection->rest = NULL;
}

/* Memory for so much input. NULL: there is none, or its tenant holds too much. */
static struct fw_rest *rest_make(const struct fw_connection *connection, size_t length)
{
    struct fw_holding claim = {.bytes = 0};
    struct fw_holdings *holdings = &connection->core->server->holdings;
    struct fw_rest *made = NULL;
    size_t size = sizeof *made + length;
    if (fw_holding_grow(&claim, holdings, fw_connection_tenant(connection), size)) {
        made = malloc(size);
        if (made == NULL) {
            fw_holding_end(&claim, holdings);
        } else {
            made->claim = claim;
        }
    }
    return made;
}

/* As memcached says it, where nothing else is on its way to the client. */
static void rest_refuse(struct fw_connection *connection)
{
    static char text[] = "SERVER_ERROR out of memory reading request\r\n";
    struct iovec words = {.iov_base = text, .iov_len = sizeof text - 1};
    if (connection->unsent == NULL && connection->session.protocol == FW_PROTOCOL_TEXT) {
        (void)!fw_stream_send_now(&connection->stream, &words, 1); /* It is closed in any case. */
    }
}

void fw_connection_input_evict(struct fw_server_core *core)
{
    struct fw_connection *owner = core->owner;
    core->owner = NULL;
    FW_ASSERT(owner->rest == NULL && core->end > core->begin);
    owner->rest_length = core->end - core->begin;
    owner->rest = rest_make(owner, owner->rest_length);
    if (owner->rest == NULL) {
        rest_refuse(owner);
        owner->is_broken = true; /* It has lost bytes, and learns of it when it next looks. */
        fw_fom_wake(&owner->fom);
        return;
    }
    memcpy(owner->rest->bytes, core->input + core->begin, owner->rest_length);
}

void fw_connection_input_claim(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    if (core->owner == connection) {
        return;
    }
    if (core->owner != NULL) {
        fw_connection_input_evict(core);
    }
    core->owner = connection;
    core->begin = 0;
    core->end = 0;
    if (connection->rest != NULL) {
        memcpy(core->input, connection->rest->bytes, connection->rest_length);
        core->end = connection->rest_length;
        rest_free(connection);
    }
}

/* All but what is still wanted. */
static void input_erase(struct fw_server_core *core)
{
    if (core_erases(core)) {
        uint32_t end = core->owner != NULL ? core->end : core->begin;
        memset(core->input, 0, core->begin);
        memset(core->input + end, 0, sizeof core->input - end);
    }
}

void fw_connection_input_leave(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    FW_ASSERT(core->owner == connection);
    core->owner = core->end > core->begin ? connection : NULL;
    input_erase(core);
}

void fw_connection_input_drop(struct fw_connection *connection)
{
    if (connection->core->owner == connection) {
        connection->core->owner = NULL;
        input_erase(connection->core);
    }
    rest_free(connection);
}

bool fw_connection_input_suffices(const struct fw_connection *connection)
{
    const struct fw_server_core *core = connection->core;
    return core->end - core->begin >= connection->wanted;
}

ssize_t fw_connection_input_receive(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    uint32_t length = core->end - core->begin;
    size_t room = 0;
    char *body = length == 0 ? fw_session_body(&connection->session, &room) : NULL;
    if (body != NULL && room > 0) {
        size_t limit = room < FW_CONNECTION_SLICE ? room : FW_CONNECTION_SLICE;
        uint32_t rest = fw_session_body_rest(&connection->session);
        if (FW_UNLIKELY(limit < rest && !connection->is_held_back)) {
            connection->is_held_back = true;
            fw_stream_hold_back(&connection->stream, FW_CONNECTION_AHEAD);
        }
        ssize_t received = fw_stream_receive_now(&connection->stream, body, limit);
        connection->has_input = limit < rest && received == (ssize_t)limit;
        if (received > 0) {
            fw_session_body_received(&connection->session, (size_t)received);
            connection->wanted = (size_t)received < room ? 1 : 0;
        }
        return received;
    }
    if (core->begin > 0) {
        memmove(core->input, core->input + core->begin, length);
        core->begin = 0;
        core->end = length;
    }
    FW_ASSERT(length < sizeof core->input);
    ssize_t received = fw_stream_receive_now(&connection->stream, core->input + core->end,
                                             sizeof core->input - length);
    connection->has_input = false;
    core->end += received > 0 ? (uint32_t)received : 0;
    return received;
}
