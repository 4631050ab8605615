/* SPDX-License-Identifier: Apache-2.0 */
#include "io/nbd.h"

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/nbd-netlink.h>
#include <linux/nbd.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/endian.h"
#include "io/clock.h"

static const size_t ATTRIBUTE_HEADER = sizeof(struct nlattr);

enum {
    GREETING_SIZE = 18, /* Two magic words and the server's flags. */
    ANSWER_SIZE = 10,   /* To the name of an export: its size and flags. */
    NAME_MAX_BYTES = 255,
    OPTION_EXPORT_NAME = 1,
    NO_ZEROES = 2, /* Both sides: the answer has no 124 zero bytes. */
    FIXED_NEWSTYLE = 1,
    /* What the kernel is told of an export, and so what it must have. */
    EXPORT_FLAGS = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA,
    MESSAGE_SIZE = 1024,
    ANSWER_MAX = 4096,
    BLOCK_SIZE = 4096,
};

static const uint64_t PATIENCE_S = UINT64_C(365) * 86400; /* Without a connection. */
static const char magic_option[] = "IHAVEOPT";

/* ---- the server ---- */

static int bytes_send(int connection, const void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t sent = send(connection, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return -errno;
        }
        done += sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

static int bytes_receive(int connection, void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = recv(connection, (char *)bytes + done, size - done, 0);
        if (got == 0) {
            return -ECONNRESET; /* That is how a server says that there is no such export. */
        }
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int fw_nbd_negotiate(int connection, const char *export_name, uint64_t *size)
{
    uint8_t greeting[GREETING_SIZE];
    uint8_t answer[ANSWER_SIZE];
    uint8_t request[4 + 16 + NAME_MAX_BYTES] = {0};
    size_t length = strlen(export_name);
    if (length > NAME_MAX_BYTES) {
        return -ENAMETOOLONG;
    }
    int rc = bytes_receive(connection, greeting, sizeof greeting);
    if (rc != 0) {
        return rc;
    }
    if (memcmp(greeting, "NBDMAGIC", 8) != 0 || memcmp(greeting + 8, magic_option, 8) != 0 ||
        (fw_be16_get(greeting + 16) & NO_ZEROES) == 0) {
        return -EPROTO;
    }
    fw_be32_put(request, FIXED_NEWSTYLE | NO_ZEROES);
    memcpy(request + 4, magic_option, 8);
    fw_be32_put(request + 12, OPTION_EXPORT_NAME);
    fw_be32_put(request + 16, (uint32_t)length);
    memcpy(request + 20, export_name, length);
    rc = bytes_send(connection, request, 20 + length);
    if (rc == 0) {
        rc = bytes_receive(connection, answer, sizeof answer);
    }
    if (rc != 0) {
        return rc;
    }
    uint16_t flags = fw_be16_get(answer + 8);
    if ((flags & EXPORT_FLAGS) != EXPORT_FLAGS || (flags & NBD_FLAG_READ_ONLY) != 0) {
        return -EOPNOTSUPP;
    }
    *size = fw_be64_get(answer);
    return *size <= INT64_MAX ? 0 : -EPROTO;
}

static int socket_open(const char *socket_path, int *connection, struct fw_reason *reason)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(socket_path) >= sizeof address.sun_path) {
        return fw_reason_set(reason, -ENAMETOOLONG, "the name of a socket has at most %zu bytes",
                             sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, socket_path, strlen(socket_path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int rc = -errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return fw_reason_errno(reason, rc, "cannot connect to %.120s", socket_path);
    }
    *connection = fd;
    return 0;
}

int fw_nbd_greeting(const char *socket_path, int64_t patience_ns, struct fw_reason *reason)
{
    uint8_t magic[sizeof(uint64_t)];
    int fd = -1;
    int rc = socket_open(socket_path, &fd, reason);
    if (rc != 0) {
        return rc;
    }
    struct timeval patience = {.tv_sec = patience_ns / FW_NS_PER_S,
                               .tv_usec = patience_ns % FW_NS_PER_S / FW_NS_PER_US};
    ssize_t size = -1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0) {
        do {
            size = recv(fd, magic, sizeof magic, MSG_WAITALL);
        } while (size < 0 && errno == EINTR);
    }
    rc = size == (ssize_t)sizeof magic             ? 0
         : size >= 0                               ? -ECONNRESET
         : errno == EAGAIN || errno == EWOULDBLOCK ? -ETIMEDOUT
                                                   : -errno;
    if (rc == 0 && memcmp(magic, "NBDMAGIC", sizeof magic) != 0) {
        rc = -EPROTO;
    }
    (void)close(fd);
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "no answer by NBD from %.120s", socket_path);
}

int fw_nbd_connect(const char *socket_path, const char *export_name, int *connection,
                   uint64_t *size, struct fw_reason *reason)
{
    int fd = -1;
    int rc = socket_open(socket_path, &fd, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_nbd_negotiate(fd, export_name, size);
    if (rc != 0) {
        (void)close(fd);
        return fw_reason_errno(reason, rc, "cannot get '%.80s' by NBD from %.120s", export_name,
                               socket_path);
    }
    *connection = fd;
    return 0;
}

/* ---- the kernel: generic netlink ---- */

static size_t aligned(size_t size)
{
    return (size + NLA_ALIGNTO - 1) / NLA_ALIGNTO * NLA_ALIGNTO;
}

struct message {
    uint8_t bytes[MESSAGE_SIZE] __attribute__((aligned(NLMSG_ALIGNTO)));
    size_t size;
};

static void message_init(struct message *message, uint16_t family, uint8_t command)
{
    const struct genlmsghdr command_header = {.cmd = command, .version = 1};
    const struct nlmsghdr header = {
        .nlmsg_type = family, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK, .nlmsg_seq = 1};
    memset(message, 0, sizeof *message);
    memcpy(message->bytes, &header, sizeof header);
    memcpy(message->bytes + NLMSG_HDRLEN, &command_header, sizeof command_header);
    message->size = NLMSG_HDRLEN + GENL_HDRLEN;
}

/* Returns where it begins, for one that is nested and ended later. */
static size_t attribute_add(struct message *message, uint16_t type, const void *value, size_t size)
{
    size_t at = message->size;
    const struct nlattr attribute = {.nla_len = (uint16_t)(ATTRIBUTE_HEADER + size),
                                     .nla_type = type};
    FW_ASSERT(at + ATTRIBUTE_HEADER + aligned(size) <= MESSAGE_SIZE);
    memcpy(message->bytes + at, &attribute, sizeof attribute);
    if (size > 0) {
        memcpy(message->bytes + at + ATTRIBUTE_HEADER, value, size);
    }
    message->size += ATTRIBUTE_HEADER + aligned(size);
    return at;
}

static void attribute_end(struct message *message, size_t at)
{
    uint16_t length = (uint16_t)(message->size - at);
    memcpy(message->bytes + at + offsetof(struct nlattr, nla_len), &length, sizeof length);
}

static void number_add(struct message *message, uint16_t type, uint64_t value)
{
    (void)attribute_add(message, type, &value, sizeof value);
}

static void socket_add(struct message *message, int connection)
{
    uint32_t number = (uint32_t)connection;
    size_t list = attribute_add(message, NBD_ATTR_SOCKETS | NLA_F_NESTED, NULL, 0);
    size_t item = attribute_add(message, NBD_SOCK_ITEM | NLA_F_NESTED, NULL, 0);
    (void)attribute_add(message, NBD_SOCK_FD, &number, sizeof number);
    attribute_end(message, item);
    attribute_end(message, list);
}

/* The first `size` bytes of an attribute of an answer. */
static bool attribute_find(const uint8_t *bytes, size_t length, uint16_t type, void *value,
                           size_t size)
{
    size_t at = NLMSG_HDRLEN + GENL_HDRLEN;
    while (at + ATTRIBUTE_HEADER <= length) {
        struct nlattr attribute;
        memcpy(&attribute, bytes + at, sizeof attribute);
        if (attribute.nla_len < ATTRIBUTE_HEADER || attribute.nla_len > length - at) {
            return false;
        }
        if ((attribute.nla_type & NLA_TYPE_MASK) == type &&
            attribute.nla_len >= ATTRIBUTE_HEADER + size) {
            memcpy(value, bytes + at + ATTRIBUTE_HEADER, size);
            return true;
        }
        at += aligned(attribute.nla_len);
    }
    return false;
}

int fw_nbd_answer(const void *from, size_t size, uint16_t type, void *value, size_t value_size)
{
    const uint8_t *bytes = from;
    struct nlmsghdr header;
    for (size_t at = 0; at + sizeof header <= size; at += NLMSG_ALIGN(header.nlmsg_len)) {
        memcpy(&header, bytes + at, sizeof header);
        if (header.nlmsg_len < sizeof header || header.nlmsg_len > size - at) {
            return -EPROTO;
        }
        if (header.nlmsg_type == NLMSG_ERROR) { /* Or that there was none. */
            int error = -EPROTO;
            if (header.nlmsg_len >= NLMSG_HDRLEN + sizeof error) {
                memcpy(&error, bytes + at + NLMSG_HDRLEN, sizeof error);
            }
            return error <= 0 ? error : -EPROTO;
        }
        (void)attribute_find(bytes + at, header.nlmsg_len, type, value, value_size);
    }
    return FW_NBD_MORE;
}

/* Reads until the kernel says that it is done; an attribute of what it said before, if wanted. */
static int answer_read(int netlink, uint16_t type, void *value, size_t size)
{
    int rc = FW_NBD_MORE;
    while (rc == FW_NBD_MORE) {
        uint8_t bytes[ANSWER_MAX];
        ssize_t got = recv(netlink, bytes, sizeof bytes, 0);
        if (got > 0) {
            rc = fw_nbd_answer(bytes, (size_t)got, type, value, size);
        } else if (got == 0 || errno != EINTR) {
            rc = got < 0 ? -errno : -EPROTO;
        }
    }
    return rc;
}

static int message_ask(int netlink, struct message *message, uint16_t type, void *value,
                       size_t size)
{
    uint32_t length = (uint32_t)message->size;
    memcpy(message->bytes + offsetof(struct nlmsghdr, nlmsg_len), &length, sizeof length);
    if (send(netlink, message->bytes, message->size, 0) < 0) {
        return -errno;
    }
    return answer_read(netlink, type, value, size);
}

/* Opens netlink and finds the number by which the module is spoken to today. */
static int netlink_open(int *made, uint16_t *family, struct fw_reason *reason)
{
    struct message message;
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    if (netlink < 0) {
        return fw_reason_errno(reason, -errno, "cannot speak with the kernel");
    }
    message_init(&message, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    (void)attribute_add(&message, CTRL_ATTR_FAMILY_NAME, NBD_GENL_FAMILY_NAME,
                        sizeof NBD_GENL_FAMILY_NAME);
    *family = 0;
    int rc = message_ask(netlink, &message, CTRL_ATTR_FAMILY_ID, family, sizeof *family);
    if (rc == 0 && *family != 0) {
        *made = netlink;
        return 0;
    }
    (void)close(netlink);
    return fw_reason_set(reason, rc != 0 ? rc : -ENOENT,
                         "the kernel has no NBD; 'modprobe nbd' may load it");
}

int fw_nbd_attach(int connection, uint64_t size, uint32_t *device, struct fw_reason *reason)
{
    struct message message;
    uint16_t family = 0;
    int netlink = -1;
    int rc = netlink_open(&netlink, &family, reason);
    if (rc == 0) {
        message_init(&message, family, NBD_CMD_CONNECT);
        number_add(&message, NBD_ATTR_SIZE_BYTES, size);
        number_add(&message, NBD_ATTR_BLOCK_SIZE_BYTES, BLOCK_SIZE);
        number_add(&message, NBD_ATTR_SERVER_FLAGS, EXPORT_FLAGS);
        number_add(&message, NBD_ATTR_DEAD_CONN_TIMEOUT, PATIENCE_S);
        socket_add(&message, connection);
        uint32_t index = UINT32_MAX;
        rc = message_ask(netlink, &message, NBD_ATTR_INDEX, &index, sizeof index);
        rc = rc == 0 && index == UINT32_MAX ? -EPROTO : rc; /* Which one is it? */
        *device = index;
        (void)close(netlink);
        if (rc != 0) {
            (void)fw_reason_errno(reason, rc, "the kernel takes no connection by NBD");
        }
    }
    (void)close(connection);
    return rc;
}

/* A request about a device, with or without another connection. */
static int device_ask(uint32_t device, uint8_t command, int connection, struct fw_reason *reason)
{
    struct message message;
    uint16_t family = 0;
    int netlink = -1;
    int rc = netlink_open(&netlink, &family, reason);
    if (rc != 0) {
        return rc;
    }
    message_init(&message, family, command);
    (void)attribute_add(&message, NBD_ATTR_INDEX, &device, sizeof device);
    if (connection >= 0) {
        number_add(&message, NBD_ATTR_DEAD_CONN_TIMEOUT, PATIENCE_S);
        socket_add(&message, connection);
    }
    uint32_t nothing;
    rc = message_ask(netlink, &message, NBD_ATTR_INDEX, &nothing, sizeof nothing);
    (void)close(netlink);
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "/dev/nbd%u", device);
}

int fw_nbd_reattach(int connection, uint32_t device, struct fw_reason *reason)
{
    int rc = device_ask(device, NBD_CMD_RECONFIGURE, connection, reason);
    (void)close(connection);
    return rc;
}

int fw_nbd_detach(uint32_t device, struct fw_reason *reason)
{
    return device_ask(device, NBD_CMD_DISCONNECT, -1, reason);
}
