/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the addresses of this machine come and go. A node that shares a virtual address with
 * others (keepalived moves it) learns from here that it has become the one who is asked.
 *
 * The kernel sends changes but not what was before, and tells what is but not what changes. So we
 * subscribe first and ask for everything then: what changes in between is heard twice, which does
 * no harm, and never missed. All known addresses are kept here, and only differences are reported.
 * The whole is asked for again, and differences reported as if they had just happened,
 *
 *   - after the kernel dropped changes because we were slow (ENOBUFS);
 *   - after a dump that says of itself that it was disturbed;
 *   - after an address went away during a dump: the dump may still have shown it.
 *
 * An address is reported when it can be used, so an IPv6 address only after its check for
 * duplicates; and once, however many interfaces have it. Link-local addresses differ by interface.
 *
 * Polling getifaddrs() was rejected: it is late by half its interval, or busy with nothing.
 *
 * Threads: as all of the reactor's. Call-backs come out of fw_reactor_poll() and may close.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/address.h"
#include "io/reactor.h"

enum { FW_NETLINK_ADDRESSES_MAX = 4096 }; /* On all interfaces together. */

struct fw_netlink;
struct fw_netlink_entry;

struct fw_netlink_events {
    /* Has come or gone. Its port is 0. */
    void (*changed)(struct fw_netlink *netlink, const struct fw_address *address, bool present);
    /*
     * 0: everything that is there has been reported now; the first time some while after open().
     * Negative: it could not be found out, or there are more than FW_NETLINK_ADDRESSES_MAX
     * (-ENOSPC) and some of them are not known here.
     */
    void (*complete)(struct fw_netlink *netlink, int result);
    void (*closed)(struct fw_netlink *netlink);
};

/* Embedded in its owner's struct; stays there until `closed` has run. */
struct fw_netlink {
    struct fw_watch watch;
    const struct fw_netlink_events *events;
    int fd;
    struct fw_netlink_entry *entries;
    uint32_t entry_count;
    uint32_t dump;    /* The number of the last dump, which is how many were asked for. */
    bool dumping;     /* It has not ended yet. */
    bool dump_wanted; /* Another one is needed. */
    bool overflown;   /* An address found no room since the last dump began. */
    bool closing;
    char *buffer;
};

/* The simulator's side, which answers through fw_netlink_feed(). NULL in the server. */
struct fw_netlink_hooks {
    int (*open)(struct fw_netlink *netlink);
    /* Asks for the dump of this number, the sequence number of the messages that answer. */
    int (*dump)(struct fw_netlink *netlink, uint32_t number);
    void (*close)(struct fw_netlink *netlink); /* fw_netlink_closed() is to follow, but later. */
};
extern const struct fw_netlink_hooks *fw_netlink_hooks;

/* Starts to watch. Returns 0, or a negative errno with the reason. */
FW_MUST_CHECK int fw_netlink_open(struct fw_netlink *netlink, struct fw_reactor *reactor,
                                  const struct fw_netlink_events *events, struct fw_reason *reason);

/* No call-back but `closed` runs any more, which follows from a later poll. */
void fw_netlink_close(struct fw_netlink *netlink);

/* Whether the address is known to be here, whatever its port. */
bool fw_netlink_has(const struct fw_netlink *netlink, const struct fw_address *address);

/*
 * For the simulator and the fuzzer, which stand in for the socket: messages as the kernel sends
 * them, aligned as malloc() aligns; that some were lost; and that all that had arrived was fed,
 * which is when the whole is asked for again if need be.
 */
void fw_netlink_feed(struct fw_netlink *netlink, const void *messages, size_t size);
void fw_netlink_lost(struct fw_netlink *netlink);
void fw_netlink_drained(struct fw_netlink *netlink);

/* Frees what open() took. Called by the simulator when it closes; the reactor's way calls it too.
 */
void fw_netlink_closed(struct fw_netlink *netlink);
