/* SPDX-License-Identifier: Apache-2.0 */
#include "io/netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

enum { BUFFER_SIZE = 32 << 10 }; /* The kernel's largest message of a dump. */

const struct fw_netlink_hooks *fw_netlink_hooks;

/* An address on an interface. */
struct fw_netlink_entry {
    uint32_t interface;
    uint32_t dump; /* The last one that was under way or over when we heard of it. */
    uint8_t family;
    uint8_t prefix;
    uint8_t bytes[16]; /* An IPv4 address has 4, the others are 0. */
};

static bool entry_same(const struct fw_netlink_entry *one, const struct fw_netlink_entry *other)
{
    return one->interface == other->interface && one->family == other->family &&
           one->prefix == other->prefix && memcmp(one->bytes, other->bytes, sizeof one->bytes) == 0;
}

static bool entry_is_link_local(const struct fw_netlink_entry *entry)
{
    return entry->family == AF_INET6 && entry->bytes[0] == 0xfe && (entry->bytes[1] & 0xc0) == 0x80;
}

/* Whether users would call it the same address. */
static bool entry_same_address(const struct fw_netlink_entry *one,
                               const struct fw_netlink_entry *other)
{
    return one->family == other->family &&
           memcmp(one->bytes, other->bytes, sizeof one->bytes) == 0 &&
           (!entry_is_link_local(one) || one->interface == other->interface);
}

static bool address_is_known(const struct fw_netlink *netlink, const struct fw_netlink_entry *like)
{
    for (uint32_t i = 0; i < netlink->entry_count; i++) {
        if (entry_same_address(&netlink->entries[i], like)) {
            return true;
        }
    }
    return false;
}

static void entry_report(struct fw_netlink *netlink, const struct fw_netlink_entry *entry,
                         bool present)
{
    struct fw_address address = {0};
    if (entry->family == AF_INET) {
        address.length = sizeof address.ipv4;
        address.ipv4.sin_family = AF_INET;
        memcpy(&address.ipv4.sin_addr, entry->bytes, sizeof address.ipv4.sin_addr);
    } else {
        address.length = sizeof address.ipv6;
        address.ipv6.sin6_family = AF_INET6;
        memcpy(&address.ipv6.sin6_addr, entry->bytes, sizeof address.ipv6.sin6_addr);
        address.ipv6.sin6_scope_id = entry_is_link_local(entry) ? entry->interface : 0;
    }
    netlink->events->changed(netlink, &address, present);
}

static struct fw_netlink_entry *entry_find(struct fw_netlink *netlink,
                                           const struct fw_netlink_entry *like)
{
    for (uint32_t i = 0; i < netlink->entry_count; i++) {
        if (entry_same(&netlink->entries[i], like)) {
            return &netlink->entries[i];
        }
    }
    return NULL;
}

static void entry_add(struct fw_netlink *netlink, const struct fw_netlink_entry *like)
{
    struct fw_netlink_entry *entry = entry_find(netlink, like);
    if (entry != NULL) {
        entry->dump = netlink->dump;
        return;
    }
    if (netlink->entry_count == FW_NETLINK_ADDRESSES_MAX) {
        netlink->overflown = true;
        return;
    }
    bool known = address_is_known(netlink, like);
    netlink->entries[netlink->entry_count] = *like;
    netlink->entries[netlink->entry_count++].dump = netlink->dump;
    if (!known) {
        entry_report(netlink, like, true);
    }
}

static void entry_remove(struct fw_netlink *netlink, struct fw_netlink_entry *entry)
{
    struct fw_netlink_entry removed = *entry;
    *entry = netlink->entries[--netlink->entry_count];
    if (!address_is_known(netlink, &removed)) {
        entry_report(netlink, &removed, false);
    }
}

bool fw_netlink_has(const struct fw_netlink *netlink, const struct fw_address *address)
{
    struct fw_netlink_entry like = {.family = (uint8_t)address->any.sa_family};
    if (address->any.sa_family == AF_INET) {
        memcpy(like.bytes, &address->ipv4.sin_addr, sizeof address->ipv4.sin_addr);
    } else if (address->any.sa_family == AF_INET6) {
        memcpy(like.bytes, &address->ipv6.sin6_addr, sizeof address->ipv6.sin6_addr);
        like.interface = address->ipv6.sin6_scope_id;
    } else {
        return false;
    }
    return address_is_known(netlink, &like);
}

static int dump_send(struct fw_netlink *netlink)
{
    if (fw_netlink_hooks != NULL) {
        return fw_netlink_hooks->dump(netlink, netlink->dump);
    }
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg message;
    } request = {
        .header = {.nlmsg_len = sizeof request,
                   .nlmsg_type = RTM_GETADDR,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                   .nlmsg_seq = netlink->dump},
        .message = {.ifa_family = AF_UNSPEC},
    };
    ssize_t size;
    do {
        size = send(netlink->fd, &request, sizeof request, 0);
    } while (size < 0 && errno == EINTR);
    return size < 0 ? -errno : 0;
}

/* Asks for everything. If even that fails, the next change brings another attempt. */
static int dump_begin(struct fw_netlink *netlink)
{
    FW_ASSERT(!netlink->dumping);
    netlink->dump++;
    netlink->dump_wanted = false;
    netlink->overflown = false;
    int rc = dump_send(netlink);
    netlink->dumping = rc == 0;
    netlink->dump_wanted = rc != 0;
    return rc;
}

/* The dump has shown all there is: what it did not show is gone. */
static void dump_sweep(struct fw_netlink *netlink)
{
    for (uint32_t i = 0; i < netlink->entry_count && !netlink->closing;) {
        if (netlink->entries[i].dump != netlink->dump) {
            entry_remove(netlink, &netlink->entries[i]); /* Another one takes its place. */
        } else {
            i++;
        }
    }
}

static void dump_end(struct fw_netlink *netlink, int result)
{
    netlink->dumping = false;
    if (result == 0 && netlink->dump_wanted) {
        return; /* It is not to be trusted; the next one is on its way. */
    }
    if (result == 0) {
        dump_sweep(netlink);
        result = netlink->overflown ? -ENOSPC : 0;
    } else {
        netlink->dump_wanted = false; /* Or it would fail again at once, for ever. */
    }
    if (!netlink->closing) {
        netlink->events->complete(netlink, result);
    }
}

/* NLMSG_DATA() would take the const away. */
static const void *message_payload(const struct nlmsghdr *header)
{
    return (const char *)header + NLMSG_HDRLEN;
}

/* Reads a message about an address. False if it is none, or of no use. */
static bool entry_parse(const struct nlmsghdr *header, struct fw_netlink_entry *entry,
                        uint32_t *flags)
{
    if (header->nlmsg_len < NLMSG_LENGTH(sizeof(struct ifaddrmsg))) {
        return false;
    }
    const struct ifaddrmsg *message = message_payload(header);
    size_t address_size = message->ifa_family == AF_INET ? 4 : 16;
    if (message->ifa_family != AF_INET && message->ifa_family != AF_INET6) {
        return false;
    }
    *entry = (struct fw_netlink_entry){
        .interface = message->ifa_index,
        .family = message->ifa_family,
        .prefix = message->ifa_prefixlen,
    };
    *flags = message->ifa_flags;

    bool found = false;
    bool local = false; /* Behind point-to-point links IFA_ADDRESS is the other end's. */
    size_t left = header->nlmsg_len - NLMSG_LENGTH(sizeof *message);
    const char *next = (const char *)message + NLMSG_ALIGN(sizeof *message);
    while (left >= sizeof(struct rtattr)) {
        struct rtattr attribute;
        memcpy(&attribute, next, sizeof attribute);
        if (attribute.rta_len < sizeof attribute || attribute.rta_len > left) {
            return false;
        }
        const char *value = next + RTA_LENGTH(0);
        size_t size = attribute.rta_len - RTA_LENGTH(0);
        if (attribute.rta_type == IFA_FLAGS && size == sizeof *flags) {
            memcpy(flags, value, sizeof *flags);
        } else if (size == address_size && (attribute.rta_type == IFA_LOCAL ||
                                            (attribute.rta_type == IFA_ADDRESS && !local))) {
            memcpy(entry->bytes, value, size);
            local = attribute.rta_type == IFA_LOCAL;
            found = true;
        }
        size_t step = RTA_ALIGN(attribute.rta_len);
        if (step > left) {
            break;
        }
        next += step;
        left -= step;
    }
    return found;
}

/* Not while IPv6 still looks for others who have it, nor if it found one. */
static bool flags_allow_use(uint32_t flags)
{
    return (flags & IFA_F_DADFAILED) == 0 &&
           ((flags & IFA_F_TENTATIVE) == 0 || (flags & IFA_F_OPTIMISTIC) != 0);
}

static void address_message_take(struct fw_netlink *netlink, const struct nlmsghdr *header)
{
    struct fw_netlink_entry like;
    uint32_t flags;
    if (!entry_parse(header, &like, &flags)) {
        return;
    }
    if (header->nlmsg_type == RTM_NEWADDR && flags_allow_use(flags)) {
        entry_add(netlink, &like);
        return;
    }
    if (netlink->dumping) {
        netlink->dump_wanted = true; /* The dump may show it still. */
    }
    struct fw_netlink_entry *entry = entry_find(netlink, &like);
    if (entry != NULL) {
        entry_remove(netlink, entry);
    }
}

/* The number behind the header of a DONE or ERROR message. */
static int message_error(const struct nlmsghdr *header)
{
    int error = 0;
    if (header->nlmsg_len >= NLMSG_LENGTH(sizeof error)) {
        memcpy(&error, message_payload(header), sizeof error);
    }
    return error < 0 ? error : 0;
}

static void message_take(struct fw_netlink *netlink, const struct nlmsghdr *header)
{
    bool of_dump = netlink->dumping && header->nlmsg_seq == netlink->dump;
    if (of_dump && (header->nlmsg_flags & NLM_F_DUMP_INTR) != 0) {
        netlink->dump_wanted = true;
    }
    switch (header->nlmsg_type) {
    case RTM_NEWADDR:
    case RTM_DELADDR:
        address_message_take(netlink, header);
        break;
    case NLMSG_OVERRUN:
        netlink->dump_wanted = true;
        break;
    case NLMSG_DONE:
        if (of_dump) {
            dump_end(netlink, message_error(header));
        }
        break;
    case NLMSG_ERROR:
        if (of_dump && message_error(header) != 0) {
            dump_end(netlink, message_error(header));
        }
        break;
    default:
        break;
    }
}

void fw_netlink_feed(struct fw_netlink *netlink, const void *messages, size_t size)
{
    const char *next = messages;
    while (!netlink->closing && size >= sizeof(struct nlmsghdr)) {
        const struct nlmsghdr *header = (const void *)next;
        if (header->nlmsg_len < sizeof *header || header->nlmsg_len > size) {
            break;
        }
        message_take(netlink, header);
        size_t step = NLMSG_ALIGN(header->nlmsg_len);
        if (step >= size) {
            break;
        }
        next += step;
        size -= step;
    }
}

void fw_netlink_lost(struct fw_netlink *netlink)
{
    netlink->dump_wanted = true;
}

/*
 * Only now may a dump begin. What still waits in the socket is older than the dump, but would count
 * as heard of during it: an address whose removal was lost would be taken for seen.
 */
void fw_netlink_drained(struct fw_netlink *netlink)
{
    if (netlink->dump_wanted && !netlink->dumping && !netlink->closing) {
        int rc = dump_begin(netlink);
        if (rc != 0) {
            netlink->events->complete(netlink, rc);
        }
    }
}

static void netlink_ready(struct fw_watch *watch)
{
    struct fw_netlink *netlink = FW_CONTAINER_OF(watch, struct fw_netlink, watch);
    while (!netlink->closing) {
        struct sockaddr_nl sender = {0};
        struct iovec vector = {.iov_base = netlink->buffer, .iov_len = BUFFER_SIZE};
        struct msghdr message = {
            .msg_name = &sender, .msg_namelen = sizeof sender, .msg_iov = &vector, .msg_iovlen = 1};
        ssize_t size = recvmsg(netlink->fd, &message, 0);
        bool lost = size >= 0 ? (message.msg_flags & MSG_TRUNC) != 0 : errno == ENOBUFS;
        bool from_kernel = sender.nl_pid == 0; /* Others can send to us as well. */
        if (lost) {
            fw_netlink_lost(netlink);
        } else if (size >= 0 && from_kernel) {
            fw_netlink_feed(netlink, netlink->buffer, (size_t)size);
        } else if (size < 0 && errno == EAGAIN) {
            fw_netlink_drained(netlink);
            return;
        } else if (size < 0 && errno != EINTR) {
            netlink->events->complete(netlink, -errno);
            return;
        }
    }
}

void fw_netlink_closed(struct fw_netlink *netlink)
{
    free(netlink->entries);
    free(netlink->buffer);
    netlink->entries = NULL;
    netlink->buffer = NULL;
    netlink->events->closed(netlink);
}

static void netlink_watch_closed(struct fw_watch *watch)
{
    struct fw_netlink *netlink = FW_CONTAINER_OF(watch, struct fw_netlink, watch);
    (void)close(netlink->fd);
    fw_netlink_closed(netlink);
}

/* Opens the socket, subscribed: before anything is asked, so that nothing falls in between. */
static int socket_open(struct fw_netlink *netlink, struct fw_reason *reason)
{
    netlink->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (netlink->fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot open a netlink socket to watch addresses");
    }
    const struct sockaddr_nl own = {.nl_family = AF_NETLINK,
                                    .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    if (bind(netlink->fd, (const struct sockaddr *)&own, sizeof own) != 0) {
        int rc = fw_reason_errno(reason, -errno, "cannot subscribe to changes of addresses");
        (void)close(netlink->fd);
        return rc;
    }
    return 0;
}

static int netlink_connect(struct fw_netlink *netlink, struct fw_reactor *reactor,
                           struct fw_reason *reason)
{
    int rc = socket_open(netlink, reason);
    if (rc != 0) {
        return rc;
    }
    rc = dump_begin(netlink);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot ask for the addresses of this machine");
        goto fail_socket;
    }
    rc = fw_watch_open(&netlink->watch, reactor, netlink->fd, netlink_ready, netlink_watch_closed);
    if (rc != 0) {
        (void)fw_reason_errno(reason, rc, "cannot watch the netlink socket");
        goto fail_socket;
    }
    return 0;

fail_socket:
    (void)close(netlink->fd);
    return rc;
}

int fw_netlink_open(struct fw_netlink *netlink, struct fw_reactor *reactor,
                    const struct fw_netlink_events *events, struct fw_reason *reason)
{
    *netlink = (struct fw_netlink){
        .events = events,
        .fd = -1,
        .entries = calloc(FW_NETLINK_ADDRESSES_MAX, sizeof *netlink->entries),
        .buffer = malloc(BUFFER_SIZE),
    };
    int rc;
    if (netlink->entries == NULL || netlink->buffer == NULL) {
        rc = fw_reason_errno(reason, -ENOMEM, "cannot watch the addresses of this machine");
    } else if (fw_netlink_hooks != NULL) {
        rc = fw_netlink_hooks->open(netlink);
        rc = rc != 0 ? rc : dump_begin(netlink);
    } else {
        rc = netlink_connect(netlink, reactor, reason);
    }
    if (rc != 0) {
        free(netlink->entries);
        free(netlink->buffer);
    }
    return rc;
}

void fw_netlink_close(struct fw_netlink *netlink)
{
    FW_ASSERT(!netlink->closing);
    netlink->closing = true;
    if (fw_netlink_hooks != NULL) {
        fw_netlink_hooks->close(netlink);
    } else {
        fw_watch_close(&netlink->watch);
    }
}
