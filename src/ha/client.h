/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The own server, as its agent sees it: how it stands, and the lease that it is given.
 *
 * A connection to the server's administration socket (server/admin.h), one command under way, the
 * next when that is answered. What is to be said is kept as wishes, not as a queue, so that a
 * server which answers late is told what is true then: the newest lease, and how it stands now.
 *
 *     CLOSED ── connect ──► IDLE ◄── answered ── BUSY
 *        ▲                     └──── a wish ──────┘
 *        └── after a while, if the server closes or does not answer for too long
 *
 * A server that does not answer within `patience_ns` counts as dead, and the connection is given
 * up: a process that is stopped keeps its sockets open.
 *
 * What the figures of `stats replication` mean is known in client.c alone.
 *
 * Threads: the reactor's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "ha/word.h"
#include "io/address.h"
#include "io/alarm.h"
#include "io/reactor.h"

enum { FW_HA_CLIENT_INPUT = 64 * 1024, FW_HA_CLIENT_LINE = 80 };

struct fw_ha_client;

struct fw_ha_client_events {
    /* How it stands, by a question sent at `asked_ns`. Not alive: it has gone, or does not answer.
     */
    void (*stands)(struct fw_ha_client *client, const struct fw_ha_standing *standing,
                   int64_t asked_ns);
    void (*closed)(struct fw_ha_client *client);
};

struct fw_ha_client {
    const struct fw_ha_client_events *events;
    struct fw_reactor *reactor;
    struct fw_address address;
    int64_t patience_ns;
    struct fw_stream stream;
    struct fw_alarm alarm; /* The answer is late; or another attempt is due. */
    bool has_stream;       /* Until `closed` of it. */
    bool has_alarm;
    bool is_connected;
    bool is_closing;
    bool is_over;

    /* Wishes. */
    bool wants_standing;
    bool wants_resignation;
    bool wants_end;
    int64_t lease_ns; /* 0: none. */

    /* Under way. */
    bool is_busy;
    bool is_asking; /* How it stands. */
    bool is_advancing;
    int64_t asked_ns;
    char line[FW_HA_CLIENT_LINE];
    struct iovec piece;
    size_t length;
    char input[FW_HA_CLIENT_INPUT];
};

/* `path` is that of the socket. Returns 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_ha_client_open(struct fw_ha_client *client, struct fw_reactor *reactor,
                                    const char *path, int64_t patience_ns,
                                    const struct fw_ha_client_events *events,
                                    struct fw_reason *reason);

/* `closed` follows from a later poll. */
void fw_ha_client_close(struct fw_ha_client *client);

/* Wishes. */
void fw_ha_client_ask(struct fw_ha_client *client);
void fw_ha_client_lease(struct fw_ha_client *client, int64_t until_ns);
void fw_ha_client_end_lease(struct fw_ha_client *client);
void fw_ha_client_resign(struct fw_ha_client *client);

/* For tests and the fuzzer: reads the figures. 0, or -EPROTO: a figure is missing or strange. */
FW_MUST_CHECK int fw_ha_standing_read(struct fw_ha_standing *standing, const char *text,
                                      size_t length);
