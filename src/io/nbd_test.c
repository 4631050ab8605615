/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a server of NBD is asked for an export in the protocol's words, and whatever it answers is
 * an export that can be used or an error; the kernel gets the connection with what it must know,
 * and whatever it answers is a device or an error. No descriptor is left over.
 * Method: socket() gives out one end of a pair. At the other end stands the test: it has put there
 * what a server or the kernel would say, and looks at what was said to them. recv() and send() are
 * told to do little at a time, and to be interrupted. What real servers and kernels say to the same
 * words, volume/nbd and volume/machines show.
 */
#include "io/nbd.h"

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/nbd-netlink.h>
#include <linux/nbd.h>
#include <linux/netlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/endian.h"

enum {
    FAMILY = 0x1d,
    BYTES_MAX = 4096,
    GOOD = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA,
    REQUEST_HEAD = 20, /* Flags, magic, option, length. */
};

static struct fw_reason reason;
static int far = -1, near = -1; /* The test's end, and theirs. */
static size_t piece;            /* So many bytes at a time; 0: as many as they like. */
static bool is_interrupted;     /* Every second call. */
static bool is_send_spared;     /* But of recv() only: the kernel takes all at once. */
static int connect_error;
static char connected_to[sizeof(struct sockaddr_un)];

/* ---- between us and the system ---- */

int __wrap_socket(int domain, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
ssize_t __real_recv(int fd, void *into, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *into, size_t size, int flags);
ssize_t __real_send(int fd, const void *from, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *from, size_t size, int flags);

int __wrap_socket(int domain, int type, int protocol)
{
    (void)type;
    (void)protocol;
    assert_true(domain == AF_UNIX || domain == AF_NETLINK);
    if (near < 0) {
        errno = EMFILE;
        return -1;
    }
    int fd = near;
    near = -1;
    return fd;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    (void)fd;
    (void)length;
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)address;
    memcpy(connected_to, un->sun_path, sizeof un->sun_path);
    errno = connect_error;
    return connect_error == 0 ? 0 : -1;
}

static bool interrupt(void)
{
    static bool is_turn;
    is_turn = is_interrupted && !is_turn;
    errno = is_turn ? EINTR : errno;
    return is_turn;
}

static size_t least(size_t size)
{
    return piece != 0 && piece < size ? piece : size;
}

ssize_t __wrap_recv(int fd, void *into, size_t size, int flags)
{
    return interrupt() ? -1 : __real_recv(fd, into, least(size), flags);
}

ssize_t __wrap_send(int fd, const void *from, size_t size, int flags)
{
    return !is_send_spared && interrupt() ? -1 : __real_send(fd, from, least(size), flags);
}

static void pair_open(int type)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
    near = ends[0];
    far = ends[1];
}

static void pair_close(void)
{
    if (near >= 0) {
        (void)close(near);
    }
    (void)close(far);
    near = far = -1;
    piece = 0;
    is_interrupted = is_send_spared = false;
}

static void say(const void *bytes, size_t size)
{
    assert_int_equal(__real_send(far, bytes, size, 0), (ssize_t)size);
}

/* Nobody else holds the other end: what is left to read ends. */
static void assert_closed(void)
{
    uint8_t rest[BYTES_MAX];
    ssize_t got;
    while ((got = __real_recv(far, rest, sizeof rest, MSG_DONTWAIT)) > 0) {
    }
    assert_true(got == 0 || errno == ECONNRESET);
}

/* ---- the server ---- */

struct script {
    uint8_t bytes[64];
    size_t size;
};

/* What a good server says: greeting, size and flags of the export. */
static struct script script_make(uint64_t size, uint16_t flags)
{
    struct script script = {.size = 28};
    memcpy(script.bytes, "NBDMAGICIHAVEOPT\0\3", 18);
    fw_be64_put(script.bytes + 18, size);
    script.bytes[26] = (uint8_t)(flags >> 8);
    script.bytes[27] = (uint8_t)flags;
    return script;
}

/* Says the script and no more, and asks for "web". */
static int script_play(const struct script *script, uint64_t *size)
{
    pair_open(SOCK_STREAM);
    say(script->bytes, script->size);
    assert_int_equal(shutdown(far, SHUT_WR), 0);
    return fw_nbd_negotiate(near, "web", size);
}

static void assert_asked(const char *name)
{
    uint8_t request[REQUEST_HEAD + 255 + 1];
    size_t length = strlen(name);
    assert_int_equal(__real_recv(far, request, sizeof request, MSG_DONTWAIT),
                     REQUEST_HEAD + length);
    assert_memory_equal(request, "\0\0\0\3IHAVEOPT\0\0\0\1", 16);
    assert_int_equal(fw_be32_get(request + 16), length);
    assert_memory_equal(request + REQUEST_HEAD, name, length);
}

static void test_negotiate(void **state)
{
    (void)state;
    const struct script script = script_make(UINT64_C(0x123456789a000), GOOD);
    for (size_t i = 0; i < 20; i++) { /* In pieces of any size, interrupted or not. */
        uint64_t size = 0;
        piece = i / 2;
        is_interrupted = i % 2 == 1;
        assert_int_equal(script_play(&script, &size), 0);
        assert_true(size == UINT64_C(0x123456789a000));
        assert_asked("web");
        pair_close();
    }
}

/* A server may end at any byte, or be none, or have an export that is of no use. */
static void test_bad_servers(void **state)
{
    (void)state;
    const struct script good = script_make(1 << 20, GOOD);
    uint64_t size;
    for (size_t i = 0; i < good.size; i++) {
        struct script script = good;
        script.size = i;
        assert_int_equal(script_play(&script, &size), -ECONNRESET);
        pair_close();
    }
    for (size_t i = 0; i < 16; i++) { /* Both magic words, each byte. */
        struct script script = good;
        script.bytes[i] ^= 1;
        assert_int_equal(script_play(&script, &size), -EPROTO);
        uint8_t byte;
        assert_int_equal(__real_recv(far, &byte, 1, MSG_DONTWAIT), -1); /* Not a word to it. */
        pair_close();
    }
    struct script script = good;
    script.bytes[17] = 1; /* It would send 124 zeros that nobody reads. */
    assert_int_equal(script_play(&script, &size), -EPROTO);
    pair_close();
    static const uint16_t bad[] = {
        0,
        GOOD & ~NBD_FLAG_HAS_FLAGS,
        GOOD & ~NBD_FLAG_SEND_FLUSH,
        GOOD & ~NBD_FLAG_SEND_FUA,
        GOOD | NBD_FLAG_READ_ONLY,
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        script = script_make(1 << 20, bad[i]);
        assert_int_equal(script_play(&script, &size), -EOPNOTSUPP);
        pair_close();
    }
    static const uint64_t sizes[] = {0, 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        script = script_make(sizes[i], GOOD | NBD_FLAG_SEND_TRIM | NBD_FLAG_CAN_MULTI_CONN);
        assert_int_equal(script_play(&script, &size), sizes[i] <= INT64_MAX ? 0 : -EPROTO);
        pair_close();
    }
}

/* A server that is gone when we ask: an error, and no signal. */
static void test_server_gone(void **state)
{
    (void)state;
    const struct script script = script_make(1 << 20, GOOD);
    uint64_t size;
    pair_open(SOCK_STREAM);
    say(script.bytes, 18);
    (void)close(far);
    far = -1;
    assert_int_equal(fw_nbd_negotiate(near, "web", &size), -EPIPE);
    (void)close(near);
    near = -1;
}

static void test_names(void **state)
{
    (void)state;
    const struct script script = script_make(1 << 20, GOOD);
    char name[257];
    uint64_t size;
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    pair_open(SOCK_STREAM);
    say(script.bytes, script.size);
    assert_int_equal(fw_nbd_negotiate(near, name, &size), 0);
    assert_asked(name);
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal(fw_nbd_negotiate(near, name, &size), -ENAMETOOLONG);
    pair_close();
}

static void test_connect(void **state)
{
    (void)state;
    const struct script script = script_make(1 << 20, GOOD);
    int connection = -1;
    uint64_t size = 0;
    pair_open(SOCK_STREAM);
    int given = near;
    say(script.bytes, script.size);
    assert_int_equal(fw_nbd_connect("/run/web.nbd", "web", &connection, &size, &reason), 0);
    assert_int_equal(connection, given);
    assert_int_equal(size, 1 << 20);
    assert_string_equal(connected_to, "/run/web.nbd");
    assert_asked("web");
    (void)close(connection);
    pair_close();

    pair_open(SOCK_STREAM); /* A wrong word: the connection is closed. */
    say("SSH-2.0-OpenSSH_9.2 hello", 25);
    assert_int_equal(fw_nbd_connect("/run/web.nbd", "web", &connection, &size, &reason), -EPROTO);
    assert_non_null(strstr(reason.text, "cannot get 'web' by NBD from /run/web.nbd"));
    assert_closed();
    pair_close();

    pair_open(SOCK_STREAM);
    connect_error = ECONNREFUSED;
    assert_int_equal(fw_nbd_connect("/run/web.nbd", "web", &connection, &size, &reason),
                     -ECONNREFUSED);
    connect_error = 0;
    assert_closed();
    pair_close();

    assert_int_equal(fw_nbd_connect("/run/web.nbd", "web", &connection, &size, &reason), -EMFILE);
    char path[sizeof((struct sockaddr_un *)0)->sun_path + 1];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(fw_nbd_connect(path, "web", &connection, &size, &reason), -ENAMETOOLONG);
}

/* ---- the kernel ---- */

static const size_t ATTRIBUTE_HEADER = sizeof(struct nlattr);
static const size_t HEADERS = NLMSG_HDRLEN + GENL_HDRLEN;

static size_t aligned(size_t size)
{
    return (size + 3) / 4 * 4;
}

struct packet {
    _Alignas(NLMSG_ALIGNTO) uint8_t bytes[BYTES_MAX];
    size_t size;
};

static void packet_header(struct packet *packet, uint16_t type, const void *body, size_t size)
{
    const struct nlmsghdr header = {.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + size),
                                    .nlmsg_type = type};
    memcpy(packet->bytes + packet->size, &header, sizeof header);
    memcpy(packet->bytes + packet->size + NLMSG_HDRLEN, body, size);
    packet->size += aligned(NLMSG_HDRLEN + size);
}

static void packet_error(struct packet *packet, int error)
{
    const struct nlmsgerr body = {.error = error};
    packet_header(packet, NLMSG_ERROR, &body, sizeof body);
}

/* A message with an attribute that nobody asked for, and then one of `size` bytes. */
static void packet_attribute(struct packet *packet, uint16_t type, const void *value, size_t size)
{
    uint8_t body[64] = {0};
    const struct nlattr other = {.nla_len = sizeof other + 3, .nla_type = 77};
    const struct nlattr wanted = {.nla_len = (uint16_t)(ATTRIBUTE_HEADER + size), .nla_type = type};
    memcpy(body + GENL_HDRLEN, &other, sizeof other);
    memcpy(body + GENL_HDRLEN + 8, &wanted, sizeof wanted);
    memcpy(body + GENL_HDRLEN + 12, value, size);
    packet_header(packet, FAMILY, body, GENL_HDRLEN + 12 + aligned(size));
}

/* The kernel knows NBD. */
static void family_say(void)
{
    const uint16_t family = FAMILY;
    struct packet packet = {.size = 0};
    packet_attribute(&packet, CTRL_ATTR_FAMILY_ID, &family, sizeof family);
    packet_error(&packet, 0);
    say(packet.bytes, packet.size);
}

static void index_say(uint32_t index)
{
    struct packet packet = {.size = 0};
    packet_attribute(&packet, NBD_ATTR_INDEX, &index, sizeof index);
    say(packet.bytes, packet.size);
}

static void error_say(int error)
{
    struct packet packet = {.size = 0};
    packet_error(&packet, error);
    say(packet.bytes, packet.size);
}

/* The next request, which must be one of a type and a command. */
static void request_take(struct packet *packet, uint16_t type, uint8_t command)
{
    struct nlmsghdr header;
    ssize_t got = __real_recv(far, packet->bytes, sizeof packet->bytes, MSG_DONTWAIT);
    assert_true(got > 0 && (size_t)got >= HEADERS);
    packet->size = (size_t)got;
    memcpy(&header, packet->bytes, sizeof header);
    assert_int_equal(header.nlmsg_len, got);
    assert_int_equal(header.nlmsg_type, type);
    assert_int_equal(header.nlmsg_flags, NLM_F_REQUEST | NLM_F_ACK);
    assert_int_equal(packet->bytes[NLMSG_HDRLEN], command);
}

/* Where an attribute's value is, between two offsets; they must be laid out without a gap. */
static const uint8_t *attribute_get(const struct packet *packet, size_t begin, size_t end,
                                    uint16_t type, size_t *size)
{
    const uint8_t *found = NULL;
    size_t at = begin;
    while (at < end) {
        struct nlattr attribute;
        memcpy(&attribute, packet->bytes + at, sizeof attribute);
        assert_true(attribute.nla_len >= ATTRIBUTE_HEADER && attribute.nla_len <= end - at);
        if ((attribute.nla_type & NLA_TYPE_MASK) == type) {
            found = packet->bytes + at + ATTRIBUTE_HEADER;
            *size = attribute.nla_len - ATTRIBUTE_HEADER;
        }
        at += aligned(attribute.nla_len);
    }
    assert_int_equal(at, end);
    return found;
}

static uint64_t number_get(const struct packet *packet, uint16_t type)
{
    uint64_t number = UINT64_MAX;
    size_t size = 0;
    const uint8_t *value = attribute_get(packet, HEADERS, packet->size, type, &size);
    assert_true(value == NULL || size == 4 || size == 8);
    if (value != NULL) {
        number = 0;
        memcpy(&number, value, size); /* Little-endian, or the test says so. */
    }
    return number;
}

/* The descriptor in a list of one. */
static uint32_t socket_get(const struct packet *packet)
{
    size_t size = 0;
    uint32_t number;
    const uint8_t *at = attribute_get(packet, HEADERS, packet->size, NBD_ATTR_SOCKETS, &size);
    assert_true(at != NULL && size == 2 * ATTRIBUTE_HEADER + sizeof number);
    size_t begin = (size_t)(at - packet->bytes);
    at = attribute_get(packet, begin, begin + size, NBD_SOCK_ITEM, &size);
    assert_true(at != NULL && size == ATTRIBUTE_HEADER + sizeof number);
    begin = (size_t)(at - packet->bytes);
    at = attribute_get(packet, begin, begin + size, NBD_SOCK_FD, &size);
    assert_true(at != NULL && size == sizeof number);
    memcpy(&number, at, sizeof number);
    return number;
}

static void family_taken(void)
{
    struct packet packet;
    size_t size = 0;
    request_take(&packet, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    const uint8_t *name =
        attribute_get(&packet, HEADERS, packet.size, CTRL_ATTR_FAMILY_NAME, &size);
    assert_non_null(name);
    assert_int_equal(size, sizeof "nbd");
    assert_string_equal((const char *)name, "nbd");
}

static int connection_make(void)
{
    int fd = dup(far);
    assert_true(fd >= 0);
    return fd;
}

static void assert_no_descriptor(int fd)
{
    assert_int_equal(dup(fd), -1);
}

static void test_attach(void **state)
{
    (void)state;
    struct packet packet;
    uint32_t device = 99;
    pair_open(SOCK_SEQPACKET);
    int connection = connection_make();
    is_interrupted = is_send_spared = true;
    family_say();
    index_say(5);
    error_say(0);
    assert_int_equal(fw_nbd_attach(connection, UINT64_C(3) << 32, &device, &reason), 0);
    assert_int_equal(device, 5);
    assert_no_descriptor(connection);
    family_taken();
    request_take(&packet, FAMILY, NBD_CMD_CONNECT);
    assert_true(number_get(&packet, NBD_ATTR_SIZE_BYTES) == UINT64_C(3) << 32);
    assert_int_equal(number_get(&packet, NBD_ATTR_BLOCK_SIZE_BYTES), 4096);
    assert_int_equal(number_get(&packet, NBD_ATTR_SERVER_FLAGS), GOOD); /* No trim, no zeroes. */
    assert_int_equal(number_get(&packet, NBD_ATTR_DEAD_CONN_TIMEOUT), 365 * 86400);
    assert_int_equal(number_get(&packet, NBD_ATTR_INDEX), UINT64_MAX); /* Any that is free. */
    assert_int_equal(socket_get(&packet), connection);
    assert_closed();
    pair_close();
}

static void test_reattach_and_detach(void **state)
{
    (void)state;
    struct packet packet;
    pair_open(SOCK_SEQPACKET);
    int connection = connection_make();
    family_say();
    error_say(0);
    assert_int_equal(fw_nbd_reattach(connection, 7, &reason), 0);
    assert_no_descriptor(connection);
    family_taken();
    request_take(&packet, FAMILY, NBD_CMD_RECONFIGURE);
    assert_int_equal(number_get(&packet, NBD_ATTR_INDEX), 7);
    assert_int_equal(number_get(&packet, NBD_ATTR_DEAD_CONN_TIMEOUT), 365 * 86400);
    assert_int_equal(socket_get(&packet), connection);
    assert_closed();
    pair_close();

    pair_open(SOCK_SEQPACKET);
    family_say();
    error_say(0);
    assert_int_equal(fw_nbd_detach(7, &reason), 0);
    family_taken();
    request_take(&packet, FAMILY, NBD_CMD_DISCONNECT);
    assert_int_equal(number_get(&packet, NBD_ATTR_INDEX), 7);
    assert_int_equal(number_get(&packet, NBD_ATTR_DEAD_CONN_TIMEOUT), UINT64_MAX);
    assert_closed();
    pair_close();
}

/* The kernel says no: at the first question, or at the second; or nothing that helps. */
static void test_kernel_refuses(void **state)
{
    (void)state;
    uint32_t device;
    pair_open(SOCK_SEQPACKET);
    int connection = connection_make();
    error_say(-ENOENT);
    assert_int_equal(fw_nbd_attach(connection, 4096, &device, &reason), -ENOENT);
    assert_non_null(strstr(reason.text, "modprobe nbd"));
    assert_no_descriptor(connection);
    assert_closed();
    pair_close();

    pair_open(SOCK_SEQPACKET);
    error_say(0); /* There is one, and no word of which. */
    assert_int_equal(fw_nbd_detach(3, &reason), -ENOENT);
    pair_close();

    pair_open(SOCK_SEQPACKET);
    connection = connection_make();
    family_say();
    error_say(-EBUSY);
    assert_int_equal(fw_nbd_attach(connection, 4096, &device, &reason), -EBUSY);
    assert_non_null(strstr(reason.text, "takes no connection"));
    assert_no_descriptor(connection);
    assert_closed();
    pair_close();

    pair_open(SOCK_SEQPACKET);
    family_say();
    error_say(0); /* Done, but which device is it? */
    assert_int_equal(fw_nbd_attach(connection_make(), 4096, &device, &reason), -EPROTO);
    pair_close();

    pair_open(SOCK_SEQPACKET);
    connection = connection_make();
    family_say();
    error_say(-ENOSPC);
    assert_int_equal(fw_nbd_reattach(connection, 2, &reason), -ENOSPC);
    assert_non_null(strstr(reason.text, "/dev/nbd2"));
    assert_no_descriptor(connection);
    pair_close();

    pair_open(SOCK_SEQPACKET);
    family_say();
    assert_int_equal(shutdown(far, SHUT_WR), 0);
    assert_int_equal(fw_nbd_detach(2, &reason), -EPROTO);
    pair_close();
    assert_int_equal(fw_nbd_detach(2, &reason), -EMFILE);
}

static int answer(const struct packet *packet, uint32_t *value)
{
    return fw_nbd_answer(packet->bytes, packet->size, NBD_ATTR_INDEX, value, sizeof *value);
}

static void test_answers(void **state)
{
    (void)state;
    struct packet packet = {.size = 0};
    uint32_t index = 11;
    uint32_t value = 0;
    assert_int_equal(answer(&packet, &value), FW_NBD_MORE);
    packet_attribute(&packet, NBD_ATTR_INDEX, &index, sizeof index);
    assert_int_equal(answer(&packet, &value), FW_NBD_MORE);
    assert_int_equal(value, 11);
    packet_error(&packet, -EBUSY);
    assert_int_equal(answer(&packet, &value), -EBUSY);
    const size_t whole = packet.size;

    for (size_t i = 0; i < whole; i++) { /* Cut anywhere, nothing is read behind the end. */
        void *exact = malloc(i > 0 ? i : 1);
        assert_non_null(exact);
        memcpy(exact, packet.bytes, i);
        int rc = fw_nbd_answer(exact, i, NBD_ATTR_INDEX, &value, sizeof value);
        assert_true(rc == -EPROTO || rc == FW_NBD_MORE);
        free(exact);
    }
    packet.size = 0;
    value = 0;
    packet_attribute(&packet, NBD_ATTR_INDEX, &index, 2); /* Too short to be it. */
    assert_int_equal(answer(&packet, &value), FW_NBD_MORE);
    packet.size = 0;
    packet_attribute(&packet, NBD_ATTR_INDEX, &index, sizeof index);
    static const uint16_t lengths[] = {0, 3, 200, UINT16_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) { /* Of the first attribute. */
        memcpy(packet.bytes + HEADERS, &lengths[i], sizeof lengths[i]);
        assert_int_equal(answer(&packet, &value), FW_NBD_MORE);
    }
    packet.size = 0;
    packet_attribute(&packet, NBD_ATTR_INDEX, &index, sizeof index);
    packet.size -= sizeof index; /* The message ends before the attribute does. */
    uint32_t length = (uint32_t)packet.size;
    memcpy(packet.bytes, &length, sizeof length);
    assert_int_equal(answer(&packet, &value), FW_NBD_MORE);
    assert_int_equal(value, 0);
    for (length = 0; length < sizeof(struct nlmsghdr); length++) { /* It might never end. */
        memcpy(packet.bytes, &length, sizeof length);
        assert_int_equal(answer(&packet, &value), -EPROTO);
    }

    packet.size = 0;
    packet_header(&packet, NLMSG_ERROR, "", 0); /* No room for an error. */
    assert_int_equal(answer(&packet, &value), -EPROTO);
    packet.size = 0;
    packet_error(&packet, 5); /* Errors are negative. */
    assert_int_equal(answer(&packet, &value), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiate),
        cmocka_unit_test(test_bad_servers),
        cmocka_unit_test(test_server_gone),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_reattach_and_detach),
        cmocka_unit_test(test_kernel_refuses),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
