/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP for who watches the server: monitoring systems, load balancers, people with a browser.
 *
 *     GET /              a page that shows the live picture, and the files it needs
 *     GET /metrics       all metrics, as Prometheus reads them
 *     GET /status.json   all figures, as the page reads them
 *     GET /healthz       200 while the process answers at all
 *     GET /readyz        200 while it takes clients, 503 while it starts or ends
 *
 * It shows and changes nothing: administration has a socket of its own (server/admin.h). It is off
 * unless an address is given, for the same reasons as there. On a loopback address it answers only
 * requests that name the loopback as their host: otherwise any page that a browser on this machine
 * has open could read it, by a domain name that resolves to 127.0.0.1.
 *
 * Threads. One, libmicrohttpd's, which waits for requests and answers them, and one that looks
 * after the deadlines. Nothing of it runs on a
 * locality: figures are read from atomics and under the metrics' lock, as `stats` reads them. So a
 * scrape costs clients nothing but the processor that it uses.
 *
 * Limits: MEMORY for the head of a request, PATIENCE_S without progress, DEADLINE_NS for a request
 * and its answer, however slowly they come and go. There are FW_HTTP_PLACES for clients, or fewer
 * if there are few descriptors; a quarter more may be open while they are being closed. Who comes
 * while all are taken displaces the one whose request has taken longest: so a health check, which
 * takes no time, gets in whoever else is there. Bodies are refused.
 *
 * Why libmicrohttpd: parsing HTTP by hand is a classic of avoidable holes, and it is small, in
 * Debian, and fit to be embedded. It brings its own sockets, so the simulator does not run it. Why
 * not on the reactor of the thread that accepts connections: a page of 10,000 tenants takes
 * milliseconds to write, for which nobody could connect.
 */
#pragma once

#include <stdbool.h>

#include "base/base.h"
#include "base/metrics.h"
#include "base/reason.h"

enum { FW_HTTP_PORT = 11280, FW_HTTP_PLACES = 32 };

typedef void (*fw_http_emit)(void *context, const char *name, const char *value);

/* Whom it shows. All is called on the thread of HTTP, and lent until close(). */
struct fw_http_shown {
    struct fw_metrics *metrics;
    /* Calls emit() for each row of a group of figures. False: there is no such group. */
    bool (*stats)(void *context, const char *group, fw_http_emit emit, void *emit_context);
    bool (*is_ready)(void *context);
    void *context;
    uint32_t places; /* For clients; 0: FW_HTTP_PLACES. */
};

struct fw_http;
struct fw_address;

/*
 * Listens at `address`, with or without a port. Returns 0, or a negative errno with the reason:
 * -EINVAL for what is no address, -EADDRNOTAVAIL where it cannot listen, -ENOSYS if the build has
 * no libmicrohttpd.
 */
FW_MUST_CHECK int fw_http_open(struct fw_http **http, const char *address,
                               const struct fw_http_shown *shown, struct fw_reason *reason);

/* Where it listens, with the port that the system chose for 0. */
const struct fw_address *fw_http_address(const struct fw_http *http);

/* Ends requests that are being answered. `http` may be NULL. */
void fw_http_close(struct fw_http *http);
