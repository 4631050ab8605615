/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network: stream sockets between nodes, with everything that can happen to them.
 *
 * It does what TCP promises and nothing more: bytes arrive in order and at most once, after a delay
 * that the seed draws; a send may take fewer bytes than offered and a receive may give fewer than
 * there are; buffers are finite, so who does not read stops who sends. Beyond the promise:
 *
 *   - reset: a connection dies at a segment the seed chooses; both ends see -ECONNRESET;
 *   - cut: nothing passes between two nodes; after a heal the bytes arrive late, and a sender that
 *     has waited SIM_NETWORK_PATIENCE_NS gives up with -ETIMEDOUT;
 *   - half-open: a node dies without a word; its peers go on sending into the void, and are reset
 *     once it is back;
 *   - slow readers are scenarios' own: they receive seldom, into windows the seed makes small.
 *
 * Its reactor back end (reactor.c here) answers each operation at once or later, as the seed says,
 * so that callers meet what epoll does and what io_uring does, in one run.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/list.h"
#include "io/address.h"

#define SIM_NETWORK_PATIENCE_NS (INT64_C(15) * 1000000000)

/* What the network does to everyone; set by the scenario, zeroed at the start of a run. */
struct sim_network_weather {
    int64_t delay_min_ns;
    int64_t delay_max_ns;
    uint32_t reset_one_in; /* Segments; 0: never. */
    uint32_t short_one_in; /* Sends and receives that move fewer bytes than they could; 0: never. */
    uint32_t later_one_in; /* Operations answered later although they could be at once; 0: never. */
    size_t window_min;     /* Bytes a socket holds for its reader, drawn for each. */
    size_t window_max;
};
extern struct sim_network_weather sim_weather;

/* Mild: no resets, delays of 50 to 500 microseconds, windows as Linux has them. */
void sim_weather_mild(void);

/* Drawn from the seed: anything from mild to all faults at once. */
void sim_weather_draw(void);

void sim_network_cut(uint32_t node, uint32_t other);
void sim_network_heal(uint32_t node, uint32_t other);

/* The node's sockets are gone without a word. Its fibres must have ended or never use them again.
 */
void sim_network_crash(uint32_t node);

/* For the back end. */

struct sim_socket {
    int fd;
    uint32_t node;
    struct sim_socket *peer; /* NULL: not connected. */
    struct fw_address address;
    bool listening;
    bool closed;  /* By its owner: nothing more is reported. */
    bool crashed; /* Its node died. */
    int error;    /* Negative: what every operation answers from now on. */

    /* Bytes on their way to this socket: those sent, and of them those that have arrived. */
    char *bytes;
    size_t capacity; /* The window. */
    size_t head;
    size_t sent;
    size_t arrived;
    bool end_sent;
    bool end_arrived;
    int64_t last_arrival_ns;
    int64_t waiting_since_ns; /* Since when a segment from here has found the way cut; 0: not. */

    struct fw_list accepted;                    /* Of a listener: connections not yet taken. */
    struct fw_list_link accepted_link;          /* In its listener's. */
    void (*changed)(struct sim_socket *socket); /* It may be readable, writable or broken now. */
    void *owner;                                /* The back end's: a struct fw_source. */
    struct fw_list_link event_link;             /* The back end's. */
    bool was_put_off;                           /* The back end's. */
};

/* Makes every reactor created from now on a simulated one. */
void sim_reactor_install(void);

/* A descriptor that is no socket: what an eventfd is outside. fw_watch_open() takes its `fd`. */
struct sim_socket *sim_event_new(void);
void sim_event_signal(struct sim_socket *event);

struct sim_socket *sim_socket_get(int fd);

/* A listener on that address of this node; port 0 is replaced. NULL: in use. */
struct sim_socket *sim_socket_listen(const struct fw_address *address);

/* The next connection that has arrived, or NULL. */
struct sim_socket *sim_socket_accept(struct sim_socket *listener);

/* Begins to connect. `changed` tells when `peer` is there, or `error`. */
struct sim_socket *sim_socket_connect(const struct fw_address *address);

/* Bytes, 0 at the end, -EAGAIN, or the socket's error. */
ssize_t sim_socket_receive(struct sim_socket *socket, void *buffer, size_t size);
ssize_t sim_socket_send(struct sim_socket *socket, const struct iovec *vector, int count);
bool sim_socket_readable(const struct sim_socket *socket);
bool sim_socket_writable(const struct sim_socket *socket);
void sim_socket_shutdown(struct sim_socket *socket);
void sim_socket_close(struct sim_socket *socket);
