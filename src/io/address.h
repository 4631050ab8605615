/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a socket is: an IPv4 or IPv6 address with a port, or a UNIX socket's path or abstract name.
 *
 * The struct is what the kernel wants, with its length, so that no call converts anything. It is a
 * plain value: copied by assignment, owned by whoever declared it, without a lock or a pointer.
 *
 * As text, in configuration and in messages:
 *
 *     127.0.0.1:11211    [::1]:11211    [fe80::1%eth0]:11211
 *     127.0.0.1          ::1            the default port is added
 *     :11211                            all addresses of this machine
 *     localhost:11211                   a name, only if the caller lets names be resolved
 *     unix:/run/f.sock   /run/f.sock    a file
 *     unix:@name                        an abstract name: no file, and no permissions on it either
 *
 * Texts come from people, so parsing is strict and its reason says what is allowed. Names are not
 * resolved unless asked for: that blocks, for seconds if a name server is down, and so has no place
 * on a thread that serves requests. The resolver is not asked about localhost, which is the
 * loopback interface by RFC 6761: the name works on a system without /etc/hosts, and no name server
 * can make another host of it.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"
#include "base/reason.h"

enum {
    FW_ADDRESS_TEXT_SIZE = 128, /* Of the longest text, with its final zero. */
    FW_ADDRESS_NAME_MAX = 253,  /* Of a host's name: the limit of the domain name system. */
};

/* Members of the union other than that of the family are never read. */
struct fw_address {
    socklen_t length; /* 0: no address. */
    union {
        struct sockaddr any; /* any.sa_family is AF_INET, AF_INET6 or AF_UNIX. */
        struct sockaddr_in ipv4;
        struct sockaddr_in6 ipv6;
        struct sockaddr_un local;
    };
};

/* What fw_address_parse() may do. */
enum {
    FW_ADDRESS_RESOLVE = 1, /* Ask the resolver about names. Blocks. */
};

/*
 * Reads `text` into `addresses`, at most `capacity` (at least 1) of them. A name can stand for
 * several: an empty host for 0.0.0.0 and [::], localhost for 127.0.0.1 and, if the machine has it,
 * [::1], in this order. Addresses beyond the capacity are left out.
 * An address without a port gets `port_default`.
 *
 * Returns how many there are, at least 1, or with the reason: -EINVAL if the text is not an
 * address, -ENAMETOOLONG for a path no socket can have, -ENODEV for an unknown interface behind
 * '%'; and of the resolver -ENOENT (no such name), -EAGAIN (no answer now), -ENOMEM or -EIO.
 */
FW_MUST_CHECK int fw_address_parse(const char *text, uint16_t port_default, unsigned flags,
                                   struct fw_address addresses[], int capacity,
                                   struct fw_reason *reason);

/*
 * Takes over what the kernel reported. Returns 0, or -EAFNOSUPPORT for a family that is none of
 * ours or a length that does not fit it.
 */
FW_MUST_CHECK int fw_address_from_socket(struct fw_address *address, const struct sockaddr *any,
                                         socklen_t length);

/*
 * Writes the address as text, which parses to an equal address, except where a path or a name has
 * bytes that do not print: those become '?', for the text goes into messages of one line. A UNIX
 * socket without a name, as most clients' are, is "unix:".
 */
void fw_address_format(const struct fw_address *address, char text[FW_ADDRESS_TEXT_SIZE]);

bool fw_address_equal(const struct fw_address *left, const struct fw_address *right);

/* The port; 0 for a UNIX socket. */
uint16_t fw_address_port(const struct fw_address *address);

/* The path of a UNIX socket's file, or NULL if it has none. Lends from `address`. */
const char *fw_address_path(const struct fw_address *address);
