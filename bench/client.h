/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load generator's connections, all on one epoll instance and one thread.
 *
 * Load is closed: each connection keeps a fixed number of requests in flight and sends the next
 * when a reply has come. A phase begins and ends with nothing in flight, so that what the server
 * did between two readings of its CPU clock is exactly the phase's requests.
 *
 * The client is lean so that it does not become what is measured: per readiness one recv(), all
 * replies in it checked, as many new requests composed, one send(). It reads the clock once per
 * readiness; the latency of a request therefore goes from the moment its batch was composed to the
 * moment its reply was taken from the socket.
 *
 * A reply that is wrong, a connection that ends, a server that is silent for half a minute: there
 * is no way to go on, so these say what happened on standard error and end the process with 1.
 */
#pragma once

#include <stdint.h>

#include "base/histogram.h"
#include "bench/traffic.h"

struct fw_client_connection;

struct fw_client {
    const struct fw_traffic *traffic;
    int poll_fd;
    uint32_t count;
    uint32_t in_flight_max;
    size_t piece_max; /* Bytes per system call; as many as there are unless the caller sets it. */
    struct fw_client_connection *connections;
};

struct fw_client_phase {
    /* Set by the caller. */
    uint32_t in_flight;   /* Per connection, at most the client's in_flight_max. */
    bool prefill;         /* Sets every key once. Otherwise until either limit is reached: */
    uint64_t requests;    /* Not counting those in flight when the time is over. */
    uint64_t duration_ns; /* UINT64_MAX for none. */
    uint64_t seed;

    /* Filled by fw_client_run(). */
    uint64_t issued;
    uint64_t elapsed_ns;
    struct fw_traffic_counts counts;
    struct fw_histogram latency_ns;
};

/* Connects `count` times to `host` and `port`. */
void fw_client_open(struct fw_client *client, const struct fw_traffic *traffic, const char *host,
                    const char *port, uint32_t count, uint32_t in_flight_max);
void fw_client_close(struct fw_client *client);

void fw_client_run(struct fw_client *client, struct fw_client_phase *phase);

/* A connected socket without delay, close-on-exec. */
int fw_client_connect(const char *host, const char *port);
