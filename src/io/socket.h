/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reactor's back ends on real sockets share: making them, naming them, ending them.
 *
 * Every socket made here is non-blocking and close-on-exec from its first moment. A descriptor
 * belongs to who got it, until fw_socket_close(). Nothing here waits, except for the file system.
 *
 * Listening on a UNIX socket's file has three traps, which fw_socket_listen() steps around:
 *
 *   - A server that was killed leaves its file behind. The file is replaced, but only if no socket
 *     is bound to it. That is asked with a datagram socket: connecting one to a living stream
 *     socket is refused with EPROTOTYPE, to a dead file with ECONNREFUSED. Unlike a connection, the
 *     question leaves no trace in the living server, and is answered also between its bind() and
 *     its listen(). Of two servers that find the same dead file a lock on its folder lets only one
 *     replace it.
 *   - bind() makes the file as open as the umask allows. The umask is the whole process's, so it
 *     is not touched; the wanted mode is given to the socket itself before, from where bind()
 *     takes it. The file so is never more open than it should be, not even for a moment.
 *   - At the end the file is removed, unless another server has put its own in its place. The
 *     bound socket keeps its file's inode alive, so device and inode number tell for certain.
 */
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/address.h"

/* How to listen. */
struct fw_listener_options {
    int backlog; /* Connections that wait to be accepted; the kernel has a limit of its own. */
    mode_t mode; /* Of a UNIX socket's file. */
};

/* The file that a UNIX socket was bound to; all zero where there is none. */
struct fw_socket_file {
    dev_t device;
    ino_t inode;
};

/*
 * A socket that listens on `address`. `bound` is the address with the port that the kernel chose
 * for port 0, `file` is what fw_socket_unlink() wants. TCP: the address can be bound again at once
 * after a restart, an IPv6 socket takes no IPv4 connections, and accepted sockets send without
 * delay and notice dead peers.
 *
 * Returns the descriptor, or a negative errno with a reason that says what to do.
 */
FW_MUST_CHECK int fw_socket_listen(const struct fw_address *address,
                                   const struct fw_listener_options *options,
                                   struct fw_address *bound, struct fw_socket_file *file,
                                   struct fw_reason *reason);

/* Removes the file of a UNIX socket that is still open, if it is still its own. */
void fw_socket_unlink(const struct fw_address *bound, const struct fw_socket_file *file);

/* The next connection, or a negative errno of accept(), -EAGAIN if there is none. */
FW_MUST_CHECK int fw_socket_accept(int fd);

/*
 * A socket that is being connected to `address`, in `fd`. Returns 0 if it is connected already,
 * -EINPROGRESS if it will be: then it becomes writable and fw_socket_error() says how it ended.
 * After any other error there is no descriptor; -EAGAIN is a UNIX socket's full backlog.
 */
FW_MUST_CHECK int fw_socket_connect(const struct fw_address *address, int *fd);

/* Takes the error that the socket has met and not reported yet: 0 or a negative errno. */
FW_MUST_CHECK int fw_socket_error(int fd);

/* Who is on the other side. Returns 0, -ENOTCONN, or -EAFNOSUPPORT (not an address of ours). */
FW_MUST_CHECK int fw_socket_peer(int fd, struct fw_address *peer);

/*
 * From now on the kernel keeps no more than about twice `size` bytes that have come and were not
 * received: the peer waits with the rest. By itself it would keep up to net.ipv4.tcp_rmem.
 */
void fw_socket_hold_back(int fd, uint32_t size);

/* Bytes received, 0 at the end of the stream, or a negative errno; never waits. */
FW_MUST_CHECK ssize_t fw_socket_receive(int fd, void *buffer, size_t size);

/* Bytes sent, maybe fewer than all, or a negative errno; never waits, never raises SIGPIPE. */
FW_MUST_CHECK ssize_t fw_socket_send(int fd, const struct iovec *vector, int count);

void fw_socket_close(int fd);
