/* SPDX-License-Identifier: Apache-2.0 */
#include "io/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/parse.h"
#include "io/clock.h"
#include "io/process.h"

enum { LINES_SIZE = 64 };

/* The manager's own notation, which is not that of addresses: '@' alone says abstract. */
static int socket_address(const char *name, struct sockaddr_un *address, socklen_t *length)
{
    size_t size = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || size < 2) {
        return -EAFNOSUPPORT;
    }
    if (size >= sizeof address->sun_path) {
        return -ENAMETOOLONG;
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, name, size);
    if (name[0] == '@') {
        address->sun_path[0] = '\0';
    }
    /* An abstract name is as long as it is said to be, a path ends with a zero byte. */
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (name[0] == '/'));
    return 0;
}

/* Flags: of sendto(), beyond that a manager who has gone is an error and not a signal. */
static int manager_send(const char *lines, int flags, struct fw_reason *reason)
{
    const char *name = fw_process_variable("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t length;
    if (name == NULL) {
        return 0;
    }
    int rc = socket_address(name, &address, &length);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot tell $NOTIFY_SOCKET '%.100s'", name);
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot tell the service manager");
    }
    ssize_t sent;
    do {
        sent = sendto(fd, lines, strlen(lines), MSG_NOSIGNAL | flags,
                      (const struct sockaddr *)&address, length);
    } while (sent < 0 && errno == EINTR);
    rc = sent < 0 ? -errno : 0;
    (void)close(fd);
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot tell $NOTIFY_SOCKET '%.100s'", name);
}

int fw_notify(const char *lines, struct fw_reason *reason)
{
    return manager_send(lines, 0, reason);
}

int fw_notify_reloading(struct fw_reason *reason)
{
    char lines[LINES_SIZE];
    /* The time lets it tell the end of this reload from that of an earlier one. */
    (void)snprintf(lines, sizeof lines, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
                   fw_clock_now_ns() / 1000);
    return fw_notify(lines, reason);
}

/* A variable that is a number, or 0. */
static uint64_t variable_number(const char *name)
{
    const char *text = fw_process_variable(name);
    uint64_t number;
    if (text == NULL || fw_parse_uint(text, strlen(text), 1, INT64_MAX / 1000, &number) != 0) {
        return 0;
    }
    return number;
}

int64_t fw_notify_alive_ns(void)
{
    uint64_t process = variable_number("WATCHDOG_PID");
    if (process != 0 && process != (uint64_t)getpid()) {
        return 0; /* It was told to the one who started us. */
    }
    return (int64_t)variable_number("WATCHDOG_USEC") * 1000 / 2;
}

int fw_notify_alive(struct fw_reason *reason)
{
    int rc = manager_send("WATCHDOG=1", MSG_DONTWAIT, reason);
    return rc == -EAGAIN ? 0 : rc;
}
