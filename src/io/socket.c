/* SPDX-License-Identifier: Apache-2.0 */
#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/syscall.h"

enum { PERMISSIONS = 0777 };

static int socket_create(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

static int socket_enable(int fd, int level, int option)
{
    const int on = 1;
    return setsockopt(fd, level, option, &on, sizeof on) == 0 ? 0 : -errno;
}

/* What the user can do about `error`, or NULL where the system's own words must do. */
static const char *listen_advice(const struct fw_address *address, int error)
{
    bool is_local = address->any.sa_family == AF_UNIX;
    switch (-error) {
    case EADDRINUSE:
        return is_local ? "a server is running on it; stop that one or choose another path"
                        : "it is in use; stop what listens there or choose another port";
    case EACCES:
    case EPERM:
        return is_local ? "no permission to make this file; choose a folder that the server may "
                          "write to"
                        : "no permission for this port; choose one above 1023 or grant "
                          "CAP_NET_BIND_SERVICE";
    case EADDRNOTAVAIL:
        return "this machine has no such address; 'ip address' lists those it has";
    case EAFNOSUPPORT:
        return "this machine does not support this kind of address; choose another one";
    case ENOENT:
    case ENOTDIR:
        return "its folder does not exist; make it or choose another path";
    case EROFS:
        return "its file system is read-only; choose another path";
    case EMFILE:
    case ENFILE:
        return "there are no descriptors left; raise the limit on open files (ulimit -n)";
    default:
        return NULL;
    }
}

static int listen_refuse(const struct fw_address *address, int error, struct fw_reason *reason)
{
    char text[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(address, text);
    const char *advice = listen_advice(address, error);
    return advice == NULL ? fw_reason_errno(reason, error, "cannot listen on %s", text)
                          : fw_reason_set(reason, error, "cannot listen on %s: %s", text, advice);
}

/*
 * Whether the file at `address` is the rest of a dead server, or has gone meanwhile: 0. Otherwise
 * -EADDRINUSE if a socket is bound to it, or why that cannot be found out.
 */
static int local_is_dead(const struct fw_address *address)
{
    int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) {
        return -errno;
    }
    int error = connect(probe, &address->any, address->length) == 0 ? 0 : errno;
    fw_socket_close(probe);
    switch (error) {
    case ECONNREFUSED:
    case ENOENT:
        return 0;
    case 0: /* Of all things a datagram socket. */
    case EPROTOTYPE:
        return -EADDRINUSE;
    default:
        return -error;
    }
}

/* Removes a dead server's file. Two who do this at once would remove each other's new ones. */
static int local_remove_dead(const struct fw_address *address)
{
    int rc = local_is_dead(address);
    if (rc != 0) {
        return rc;
    }
    return unlink(fw_address_path(address)) == 0 || errno == ENOENT ? 0 : -errno;
}

static int local_bind(int fd, const struct fw_address *address)
{
    return bind(fd, &address->any, address->length) == 0 ? 0 : -errno;
}

/* Opens and locks the folder that `path` is in. */
static int folder_lock(const char *path)
{
    char folder[sizeof((struct sockaddr_un *)NULL)->sun_path];
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 0 : (int)(slash - path) + 1;
    (void)snprintf(folder, sizeof folder, "%.*s", length, path);
    int fd = open(length == 0 ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = -errno;
        (void)close(fd);
        return error;
    }
    return fd;
}

/* There is something at the path already. */
static int local_bind_again(int fd, const struct fw_address *address, struct fw_reason *reason)
{
    const char *path = fw_address_path(address);
    struct stat found;
    if (path == NULL) {
        return listen_refuse(address, -EADDRINUSE, reason); /* An abstract name: never dead. */
    }
    if (lstat(path, &found) == 0 && !S_ISSOCK(found.st_mode)) {
        return fw_reason_set(reason, -EADDRINUSE,
                             "cannot listen on unix:%s: there is a file that is not a socket; "
                             "remove it or choose another path",
                             path);
    }
    int lock = folder_lock(path);
    if (lock == -EWOULDBLOCK) {
        return fw_reason_set(reason, -EADDRINUSE,
                             "cannot listen on unix:%s: another process has locked its folder, "
                             "probably to start a server there; try again",
                             path);
    }
    if (lock < 0) {
        return fw_reason_errno(reason, lock,
                               "cannot listen on unix:%s: there is a socket, and its folder cannot "
                               "be locked to replace it; remove it or choose another path",
                               path);
    }
    int rc = local_remove_dead(address);
    if (rc == 0) {
        rc = local_bind(fd, address);
    }
    (void)close(lock); /* Which unlocks. */
    return rc == 0 ? 0 : listen_refuse(address, rc, reason);
}

/* Binds a UNIX socket, see the top of socket.h. */
static int local_listen(int fd, const struct fw_address *address, mode_t mode,
                        struct fw_socket_file *file, struct fw_reason *reason)
{
    const char *path = fw_address_path(address);
    if (fchmod(fd, mode & PERMISSIONS) != 0) {
        return listen_refuse(address, -errno, reason);
    }
    int rc = local_bind(fd, address);
    if (rc == -EADDRINUSE) {
        rc = local_bind_again(fd, address, reason);
        if (rc != 0) {
            return rc;
        }
    }
    if (rc != 0) {
        return listen_refuse(address, rc, reason);
    }
    if (path == NULL) {
        return 0;
    }

    struct stat made;
    if (lstat(path, &made) != 0) {
        return listen_refuse(address, -errno, reason);
    }
    *file = (struct fw_socket_file){.device = made.st_dev, .inode = made.st_ino};
    /* The umask may have taken permissions away. Giving them back opens nothing unasked. */
    if ((made.st_mode & PERMISSIONS) != (mode & PERMISSIONS) &&
        chmod(path, mode & PERMISSIONS) != 0) {
        rc = -errno;
        fw_socket_unlink(address, file);
        return listen_refuse(address, rc, reason);
    }
    return 0;
}

/* Binds a TCP socket. Linux lets accepted sockets inherit the options of the listening one. */
static int tcp_listen(int fd, const struct fw_address *address, struct fw_reason *reason)
{
    int rc = socket_enable(fd, SOL_SOCKET, SO_REUSEADDR);
    if (rc == 0 && address->any.sa_family == AF_INET6) {
        rc = socket_enable(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    }
    if (rc == 0) {
        rc = socket_enable(fd, IPPROTO_TCP, TCP_NODELAY);
    }
    if (rc == 0) {
        rc = socket_enable(fd, SOL_SOCKET, SO_KEEPALIVE);
    }
    if (rc == 0 && bind(fd, &address->any, address->length) != 0) {
        rc = -errno;
    }
    return rc == 0 ? 0 : listen_refuse(address, rc, reason);
}

static int socket_name(int fd, struct fw_address *address)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &length) != 0) {
        return -errno;
    }
    return fw_address_from_socket(address, (const struct sockaddr *)&name, length);
}

int fw_socket_listen(const struct fw_address *address, const struct fw_listener_options *options,
                     struct fw_address *bound, struct fw_socket_file *file,
                     struct fw_reason *reason)
{
    *file = (struct fw_socket_file){0};
    int fd = socket_create(address->any.sa_family);
    if (fd < 0) {
        return listen_refuse(address, fd, reason);
    }
    int rc = address->any.sa_family == AF_UNIX
                 ? local_listen(fd, address, options->mode, file, reason)
                 : tcp_listen(fd, address, reason);
    if (rc != 0) {
        goto fail_bind;
    }
    rc = listen(fd, options->backlog) == 0 ? socket_name(fd, bound) : -errno;
    if (rc != 0) {
        rc = listen_refuse(address, rc, reason);
        goto fail_listen;
    }
    return fd;

fail_listen:
    fw_socket_unlink(address, file);
fail_bind:
    fw_socket_close(fd);
    return rc;
}

void fw_socket_unlink(const struct fw_address *bound, const struct fw_socket_file *file)
{
    struct stat found;
    const char *path = fw_address_path(bound);
    if (path == NULL || lstat(path, &found) != 0) {
        return;
    }
    if (found.st_dev == file->device && found.st_ino == file->inode) {
        (void)unlink(path); /* If that fails, the next server replaces it as a dead one's. */
    }
}

int fw_socket_accept(int fd)
{
    int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return accepted < 0 ? -errno : accepted;
}

int fw_socket_connect(const struct fw_address *address, int *fd)
{
    int made = socket_create(address->any.sa_family);
    if (made < 0) {
        return made;
    }
    int rc = address->any.sa_family == AF_UNIX ? 0 : socket_enable(made, IPPROTO_TCP, TCP_NODELAY);
    if (rc == 0) {
        rc = connect(made, &address->any, address->length) == 0 ? 0 : -errno;
    }
    if (rc == 0 || rc == -EINPROGRESS) {
        *fd = made;
    } else {
        fw_socket_close(made);
    }
    return rc;
}

int fw_socket_error(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? -error : -errno;
}

int fw_socket_peer(int fd, struct fw_address *peer)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    if (getpeername(fd, (struct sockaddr *)&name, &length) != 0) {
        return -errno;
    }
    return fw_address_from_socket(peer, (const struct sockaddr *)&name, length);
}

void fw_socket_hold_back(int fd, uint32_t size)
{
    const int most = (int)size;
    /* Where it may not be set (a security module says so), others wait a little longer. */
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, sizeof most);
}

ssize_t fw_socket_receive(int fd, void *buffer, size_t size)
{
    ssize_t received = fw_syscall_recv(fd, buffer, size, MSG_DONTWAIT);
    return FW_LIKELY(received >= 0) ? received : -errno;
}

ssize_t fw_socket_send(int fd, const struct iovec *vector, int count)
{
    ssize_t sent;
    if (count == 1) {
        /* A reply in one piece is the common case, and the kernel has less to copy for it. */
        sent = fw_syscall_send(fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        /* The call does not write through the vector; its type only forgot to say so. */
        struct iovec *pieces = (struct iovec *)(uintptr_t)vector;
        const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        sent = fw_syscall_sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return FW_LIKELY(sent >= 0) ? sent : -errno;
}

void fw_socket_close(int fd)
{
    FW_ASSERT(fd >= 0);
    /* Linux has let the descriptor go whatever close() answers; trying again would hit another. */
    int rc = close(fd);
    FW_ASSERT(rc == 0 || errno != EBADF);
}
