/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: listening sockets get their options, and UNIX sockets' files their mode; a dead server's
 * file is replaced and nothing else is; every refusal says what to do.
 * Method: real sockets on loopback and in a folder of the test's own. A dead server is one whose
 * socket was closed without removing its file. Calls that fail only on broken machines are wrapped
 * by the linker and told to fail.
 */
#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "support/network.h"

int __real_chmod(const char *name, mode_t mode);
int __wrap_chmod(const char *name, mode_t mode);
int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);
int __real_lstat64(const char *name, struct stat *found);
int __wrap_lstat64(const char *name, struct stat *found);

/* What the next calls fail with; 0: they do not. */
static int chmod_error;
static int listen_error;
static int lstat_error;

static int chmod_count;

/* Sees the file in its first moments, when it may not be more open than it is going to be. */
int __wrap_chmod(const char *name, mode_t mode)
{
    struct stat found;
    assert_int_equal(lstat(name, &found), 0);
    assert_int_equal(found.st_mode & 0777 & ~mode, 0);
    chmod_count++;
    errno = chmod_error;
    return chmod_error != 0 ? -1 : __real_chmod(name, mode);
}

int __wrap_lstat64(const char *name, struct stat *found)
{
    errno = lstat_error;
    return lstat_error != 0 ? -1 : __real_lstat64(name, found);
}

int __wrap_listen(int fd, int backlog)
{
    errno = listen_error;
    return listen_error != 0 ? -1 : __real_listen(fd, backlog);
}

static char folder[64];
static char path[80];
static struct fw_address local_address; /* Of `path`. */
static struct fw_reason reason;
static const struct fw_listener_options options = {.backlog = 16, .mode = 0640};

static struct fw_address address_of(const char *text)
{
    struct fw_address address;
    assert_int_equal(fw_address_parse(text, 0, 0, &address, 1, NULL), 1);
    return address;
}

static int listen_on(const struct fw_address *address, struct fw_address *bound,
                     struct fw_socket_file *file)
{
    reason.text[0] = '\0';
    return fw_socket_listen(address, &options, bound, file, &reason);
}

static void assert_reason(const char *because)
{
    if (strstr(reason.text, because) == NULL) {
        fail_msg("the reason is '%s', not '%s'", reason.text, because);
    }
}

static void assert_refused(const struct fw_address *address, int error, const char *because)
{
    struct fw_address bound;
    struct fw_socket_file file;
    assert_int_equal(listen_on(address, &bound, &file), error);
    assert_reason(because);
}

static int option_of(int fd, int level, int option)
{
    int value = 0;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(fd, level, option, &value, &length), 0);
    return value;
}

static int descriptor_next(void)
{
    int fd = dup(0);
    assert_int_equal(close(fd), 0);
    return fd;
}

/* Blocks until `fd` is ready, without end: a test that waits for ever is ended by its runner. */
static void wait_for(int fd, short events)
{
    struct pollfd item = {.fd = fd, .events = events};
    assert_int_equal(poll(&item, 1, -1), 1);
}

static int setup_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/fairway-socket-test-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    local_address = address_of(path);
    return 0;
}

static int teardown_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void check_tcp(const char *text, bool is_ipv6)
{
    struct fw_address address = address_of(text);
    struct fw_address bound, peer;
    struct fw_socket_file file;
    int client;
    int fd = listen_on(&address, &bound, &file);
    assert_true(fd >= 0);
    assert_int_not_equal(fw_address_port(&bound), 0);
    assert_int_equal(option_of(fd, SOL_SOCKET, SO_REUSEADDR), 1);
    if (is_ipv6) {
        assert_int_equal(option_of(fd, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    }

    int rc = fw_socket_connect(&bound, &client);
    assert_true(rc == 0 || rc == -EINPROGRESS);
    wait_for(fd, POLLIN);
    int accepted = fw_socket_accept(fd);
    assert_true(accepted >= 0);
    assert_int_equal(fw_socket_accept(fd), -EAGAIN);
    const int made[] = {fd, accepted, client};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(made); i++) {
        assert_int_not_equal(fcntl(made[i], F_GETFD) & FD_CLOEXEC, 0);
        assert_int_not_equal(fcntl(made[i], F_GETFL) & O_NONBLOCK, 0);
        assert_int_equal(option_of(made[i], IPPROTO_TCP, TCP_NODELAY), 1);
    }
    assert_int_equal(option_of(accepted, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(fw_socket_error(client), 0);
    assert_int_equal(fw_socket_peer(client, &peer), 0);
    assert_true(fw_address_equal(&peer, &bound));
    assert_int_equal(fw_socket_peer(fd, &peer), -ENOTCONN);

    assert_refused(&bound, -EADDRINUSE, "it is in use; stop what listens there or choose another");
    fw_socket_unlink(&bound, &file); /* Does nothing. */
    fw_socket_close(accepted);
    fw_socket_close(client);
    fw_socket_close(fd);
    /* The connection was ended from here, so the port is in TIME-WAIT: no obstacle. */
    fd = listen_on(&bound, &bound, &file);
    assert_true(fd >= 0);
    fw_socket_close(fd);
}

static void test_tcp(void **state)
{
    (void)state;
    check_tcp("127.0.0.1:0", false);
}

static void test_tcp_ipv6(void **state)
{
    (void)state;
    fw_test_need_ipv6();
    check_tcp("[::1]:0", true);
}

static void test_both_families_share_a_port(void **state)
{
    (void)state;
    fw_test_need_ipv6();
    struct fw_address bound;
    struct fw_socket_file file;
    int ipv4 = -EADDRINUSE;
    /* The kernel finds a port that is free in one family; in the other a stranger may have it. */
    for (int attempt = 0; ipv4 == -EADDRINUSE && attempt < 100; attempt++) {
        struct fw_address wild = address_of("[::]:0");
        int ipv6 = listen_on(&wild, &bound, &file);
        assert_true(ipv6 >= 0);
        wild = address_of("0.0.0.0:0");
        wild.ipv4.sin_port = htons(fw_address_port(&bound));
        ipv4 = listen_on(&wild, &bound, &file);
        fw_socket_close(ipv6);
    }
    assert_true(ipv4 >= 0);
    fw_socket_close(ipv4);
}

static void test_refusals(void **state)
{
    (void)state;
    struct fw_address address = address_of("198.51.100.1:0"); /* Kept free for documentation. */
    assert_refused(&address, -EADDRNOTAVAIL, "this machine has no such address");
    assert_reason("cannot listen on 198.51.100.1:0: ");
    address = address_of("/no/such/folder/socket");
    assert_refused(&address, -ENOENT, "its folder does not exist");
    address = address_of("/dev/null/socket");
    assert_refused(&address, -ENOTDIR, "its folder does not exist");

    int client;
    address = address_of(path);
    assert_int_equal(fw_socket_connect(&address, &client), -ENOENT);
}

static long unprivileged_port_first(void)
{
    char text[16] = "";
    int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    return length > 0 ? strtol(text, NULL, 10) : 0;
}

static void test_permissions(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    bool is_root = geteuid() == 0;
    struct fw_address port_1 = address_of("127.0.0.1:1");
    struct fw_address bound;
    struct fw_socket_file file;
    assert_int_equal(__real_chmod(folder, 0500), 0);
    if (is_root) {
        assert_int_equal(seteuid(NOBODY), 0);
    }
    int file_rc = listen_on(&local_address, &bound, &file);
    struct fw_reason file_reason = reason;
    int port_rc = listen_on(&port_1, &bound, &file);
    struct fw_reason port_reason = reason;
    if (is_root) {
        assert_int_equal(seteuid(0), 0);
    }

    assert_int_equal(file_rc, -EACCES);
    assert_non_null(strstr(file_reason.text, "choose a folder that the server may write to"));
    if (unprivileged_port_first() > 1) { /* Containers may give all ports to all. */
        assert_int_equal(port_rc, -EACCES);
        assert_non_null(strstr(port_reason.text, "choose one above 1023"));
    } else {
        fw_socket_close(port_rc);
    }
}

/* As somebody who may not touch the dead file: without its permissions, without its folder's. */
static void check_dead_file_of_others(mode_t file_mode)
{
    enum { NOBODY = 65534 };
    struct fw_address bound;
    struct fw_socket_file file;
    int fd = listen_on(&local_address, &bound, &file);
    fw_socket_close(fd);
    assert_int_equal(__real_chmod(path, file_mode), 0);
    assert_int_equal(__real_chmod(folder, 0555), 0);
    int next = descriptor_next();
    assert_int_equal(seteuid(NOBODY), 0);
    int rc = listen_on(&local_address, &bound, &file);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, -EACCES);
    assert_reason("no permission to make this file");
    assert_int_equal(descriptor_next(), next);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_dead_file_of_others(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        fw_test_skip("root", "only root can act as somebody else");
    }
    check_dead_file_of_others(0600);
    check_dead_file_of_others(0666);
}

/* A folder in which nobody makes files, not even root. */
static void test_no_such_file(void **state)
{
    (void)state;
    struct fw_address address, bound;
    struct fw_socket_file file;
    assert_int_equal(fw_address_parse("/sys/fairway-socket", 0, 0, &address, 1, NULL), 1);
    int rc = listen_on(&address, &bound, &file);
    assert_true(rc == -EPERM || rc == -EACCES || rc == -EROFS);
}

/* The file is made and then cannot get its mode, or be listened on: it is removed again. */
static void test_late_failures(void **state)
{
    (void)state;
    struct fw_address bound;
    struct fw_socket_file file;
    int next = descriptor_next();
    mode_t before = umask(0777);
    chmod_error = EIO;
    int rc = listen_on(&local_address, &bound, &file);
    (void)umask(before);
    chmod_error = 0;
    assert_int_equal(rc, -EIO);
    assert_reason("Input/output error");
    assert_int_equal(access(path, F_OK), -1);

    lstat_error = EIO; /* Whose file it is cannot be told, so it stays. */
    assert_refused(&local_address, -EIO, "Input/output error");
    lstat_error = 0;
    assert_int_equal(unlink(path), 0);

    listen_error = EADDRINUSE; /* As two sockets bound to one port get it. */
    assert_refused(&local_address, -EADDRINUSE, "a server is running on it");
    listen_error = 0;
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(descriptor_next(), next);
}

static void test_no_descriptors(void **state)
{
    (void)state;
    struct rlimit before;
    struct fw_address address = address_of("127.0.0.1:0");
    struct fw_address bound;
    struct fw_socket_file file;
    int client;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit limit = {.rlim_cur = (rlim_t)descriptor_next(), .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int listen_rc = listen_on(&address, &bound, &file);
    int connect_rc = fw_socket_connect(&address, &client);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(listen_rc, -EMFILE);
    assert_reason("raise the limit on open files");
    assert_int_equal(connect_rc, -EMFILE);
}

static void test_mode(void **state)
{
    (void)state;
    static const mode_t modes[] = {0600, 0640, 0666, 0777, 0700};
    static const mode_t umasks[] = {0, 022, 0777};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(modes) * FW_ARRAY_LENGTH(umasks); i++) {
        mode_t mode = modes[i % FW_ARRAY_LENGTH(modes)];
        const struct fw_listener_options wanted = {.backlog = 1, .mode = mode};
        struct fw_address bound;
        struct fw_socket_file file;
        struct stat found;
        mode_t mask = umasks[i / FW_ARRAY_LENGTH(modes)];
        mode_t before = umask(mask);
        chmod_count = 0;
        int fd = fw_socket_listen(&local_address, &wanted, &bound, &file, &reason);
        (void)umask(before);
        assert_true(fd >= 0);
        assert_int_equal(lstat(path, &found), 0);
        assert_int_equal(found.st_mode, S_IFSOCK | mode);
        assert_int_equal(chmod_count, (mode & mask) != 0); /* Right from the start, if it can be. */
        fw_socket_unlink(&bound, &file);
        assert_int_equal(lstat(path, &found), -1);
        fw_socket_close(fd);
    }
}

static void test_dead_file(void **state)
{
    (void)state;
    struct fw_address bound, peer;
    struct fw_socket_file file, dead_file;
    int client;
    int fd = listen_on(&local_address, &bound, &dead_file);
    assert_true(fd >= 0);
    fw_socket_close(fd);
    assert_int_equal(fw_socket_connect(&local_address, &client), -ECONNREFUSED);

    fd = listen_on(&local_address, &bound, &file);
    assert_true(fd >= 0);
    assert_true(fw_address_equal(&bound, &local_address));
    assert_int_equal(fw_socket_connect(&local_address, &client), 0);
    assert_int_equal(fw_socket_peer(client, &peer), 0);
    assert_true(fw_address_equal(&peer, &local_address));
    fw_socket_close(client);
    fw_socket_unlink(&bound, &file);
    fw_socket_close(fd);
}

static void test_living_file(void **state)
{
    (void)state;
    struct fw_address bound;
    struct fw_socket_file file;
    int fd = listen_on(&local_address, &bound, &file);
    assert_true(fd >= 0);
    assert_refused(&local_address, -EADDRINUSE, "a server is running on it; stop that one");
    assert_int_equal(fw_socket_accept(fd), -EAGAIN); /* The question left no trace. */
    fw_socket_unlink(&bound, &file);
    fw_socket_close(fd);

    /* One that is bound and does not listen yet is no less alive. */
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, &local_address.any, local_address.length), 0);
    assert_refused(&local_address, -EADDRINUSE, "a server is running on it");
    assert_int_equal(access(path, F_OK), 0);
    fw_socket_close(fd);
    assert_int_equal(unlink(path), 0);

    /* Nor one of another kind. */
    fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, &local_address.any, local_address.length), 0);
    assert_refused(&local_address, -EADDRINUSE, "a server is running on it");
    assert_int_equal(access(path, F_OK), 0);
    fw_socket_close(fd);
}

static void test_other_files(void **state)
{
    (void)state;
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_refused(&local_address, -EADDRINUSE, "a file that is not a socket; remove it");
    assert_int_equal(access(path, F_OK), 0);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_refused(&local_address, -EADDRINUSE, "a file that is not a socket; remove it");
}

static void test_locked_folder(void **state)
{
    (void)state;
    struct fw_address bound;
    struct fw_socket_file file;
    int fd = listen_on(&local_address, &bound, &file);
    assert_true(fd >= 0);
    fw_socket_close(fd); /* Leaves a dead file. */
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    int next = descriptor_next();
    assert_refused(&local_address, -EADDRINUSE, "locked its folder");
    assert_int_equal(descriptor_next(), next);
    assert_int_equal(access(path, F_OK), 0);
    (void)close(lock);

    /* The lock is given back, so a second replacement works like the first. */
    for (int i = 0; i < 2; i++) {
        fd = listen_on(&local_address, &bound, &file);
        assert_true(fd >= 0);
        fw_socket_close(fd);
    }
}

static void test_relative_path(void **state)
{
    (void)state;
    struct fw_address address = address_of("unix:socket");
    struct fw_address bound;
    struct fw_socket_file file;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    int fd = listen_on(&address, &bound, &file);
    fw_socket_close(fd);
    fd = listen_on(&address, &bound, &file); /* Over the dead file, with "." locked. */
    fw_socket_unlink(&bound, &file);
    fw_socket_close(fd);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_unlink_own_only(void **state)
{
    (void)state;
    struct fw_address bound, other_bound;
    struct fw_socket_file file, other_file;
    int fd = listen_on(&local_address, &bound, &file);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0); /* Someone tidies up, and another server starts. */
    int other = listen_on(&local_address, &other_bound, &other_file);
    assert_true(other >= 0);
    fw_socket_unlink(&bound, &file);
    assert_int_equal(access(path, F_OK), 0);
    fw_socket_unlink(&other_bound, &other_file);
    assert_int_equal(access(path, F_OK), -1);
    fw_socket_unlink(&other_bound, &other_file); /* Twice does no harm. */
    fw_socket_close(fd);
    fw_socket_close(other);
}

static void test_abstract_name(void **state)
{
    (void)state;
    char text[128];
    int client;
    (void)snprintf(text, sizeof text, "unix:@%s", path); /* As unique as the folder. */
    struct fw_address address = address_of(text);
    struct fw_address bound;
    struct fw_socket_file file;
    int fd = listen_on(&address, &bound, &file);
    assert_true(fd >= 0);
    assert_true(fw_address_equal(&bound, &address));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(fw_socket_connect(&address, &client), 0);
    assert_refused(&address, -EADDRINUSE, "a server is running on it");
    fw_socket_unlink(&bound, &file);
    fw_socket_close(client);
    fw_socket_close(fd);
}

static void test_transfer(void **state)
{
    (void)state;
    int pair[2];
    char buffer[16];
    char text[] = "abcdef";
    const struct iovec pieces[] = {
        {.iov_base = text, .iov_len = 1}, {.iov_base = text, .iov_len = 0}, {text + 1, 5}};
    /* Blocking on purpose: the calls must not wait even so. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(fw_socket_receive(pair[0], buffer, sizeof buffer), -EAGAIN);
    assert_int_equal(fw_socket_send(pair[1], pieces, 1), 1);
    assert_int_equal(fw_socket_send(pair[1], pieces + 1, 2), 5);
    assert_int_equal(fw_socket_receive(pair[0], buffer, sizeof buffer), 6);
    assert_memory_equal(buffer, text, 6);
    while (fw_socket_send(pair[1], pieces, 3) > 0) {
    }
    assert_int_equal(fw_socket_send(pair[1], pieces, 3), -EAGAIN);
    assert_int_equal(fw_socket_send(pair[1], pieces, 1), -EAGAIN);
    fw_socket_close(pair[0]);
    assert_int_equal(fw_socket_send(pair[1], pieces, 1), -EPIPE); /* And no SIGPIPE. */
    assert_int_equal(fw_socket_send(pair[1], pieces, 3), -EPIPE);
    fw_socket_close(pair[1]);
    expect_assert_failure(fw_socket_close(pair[1]));
    expect_assert_failure(fw_socket_close(-1));
}

static int kept_most(int fd)
{
    int most;
    socklen_t length = sizeof most;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, &length), 0);
    return most;
}

static void test_hold_back(void **state)
{
    enum { SIZE = 16384 };
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    int usual = kept_most(pair[1]);
    assert_true(usual > 2 * SIZE);
    fw_socket_hold_back(pair[0], SIZE);
    assert_int_equal(kept_most(pair[0]), 2 * SIZE);
    assert_int_equal(kept_most(pair[1]), usual);
    fw_socket_close(pair[0]);
    fw_socket_close(pair[1]);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup_folder, teardown_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_tcp_ipv6),
        cmocka_unit_test(test_both_families_share_a_port),
        WITH_FOLDER(test_refusals),
        WITH_FOLDER(test_permissions),
        WITH_FOLDER(test_dead_file_of_others),
        WITH_FOLDER(test_no_such_file),
        WITH_FOLDER(test_late_failures),
        cmocka_unit_test(test_no_descriptors),
        WITH_FOLDER(test_mode),
        WITH_FOLDER(test_dead_file),
        WITH_FOLDER(test_living_file),
        WITH_FOLDER(test_other_files),
        WITH_FOLDER(test_locked_folder),
        WITH_FOLDER(test_relative_path),
        WITH_FOLDER(test_unlink_own_only),
        WITH_FOLDER(test_abstract_name),
        cmocka_unit_test(test_transfer),
        cmocka_unit_test(test_hold_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
