/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every address that comes or goes is reported once, nothing is lost between subscription and
 * dump or when the kernel drops messages, and bad messages do no harm.
 * Method: first messages made by hand, fed where the simulator feeds them, for the cases no kernel
 * produces on demand. Then the kernel itself, in a network namespace of the test's own where a
 * child process adds and removes addresses: with quiet in between, and by the hundred into a
 * receive buffer that holds next to none.
 */
#include "io/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/random.h"
#include "support/reactor_backend.h"
#include "support/skip.h"

static struct fw_netlink netlink;
static struct fw_reason reason;
static char heard[4096]; /* "+address " and "-address " for changes, "=result " for complete. */
static bool close_at_change;
static uint32_t dumps_asked;
static int dump_answer;
static int closings, closed_count;

static void hear(const char *format, ...) FW_PRINTF(1, 2);

static void hear(const char *format, ...)
{
    size_t length = strlen(heard);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(heard + length, sizeof heard - length, format, arguments);
    va_end(arguments);
}

static void on_changed(struct fw_netlink *from, const struct fw_address *address, bool present)
{
    char text[INET6_ADDRSTRLEN];
    bool ipv4 = address->any.sa_family == AF_INET;
    const void *bytes =
        ipv4 ? (const void *)&address->ipv4.sin_addr : (const void *)&address->ipv6.sin6_addr;
    if (inet_ntop(address->any.sa_family, bytes, text, sizeof text) == NULL) {
        abort();
    }
    hear("%c%s", present ? '+' : '-', text);
    if (!ipv4 && address->ipv6.sin6_scope_id != 0) {
        hear("%%%u", address->ipv6.sin6_scope_id);
    }
    hear(" ");
    if (close_at_change) {
        fw_netlink_close(from);
    }
}

static void on_complete(struct fw_netlink *from, int result)
{
    (void)from;
    hear("=%d ", result);
}

static void on_closed(struct fw_netlink *from)
{
    (void)from;
    closed_count++;
}

static const struct fw_netlink_events events = {on_changed, on_complete, on_closed};

static void heard_check(const char *expected)
{
    assert_string_equal(heard, expected);
    heard[0] = '\0';
}

/* ---- messages by hand */

static int hook_open(struct fw_netlink *from)
{
    assert_ptr_equal(from, &netlink);
    return 0;
}

static int hook_dump(struct fw_netlink *from, uint32_t number)
{
    assert_int_equal(number, from->dump);
    dumps_asked++;
    return dump_answer;
}

static void hook_close(struct fw_netlink *from)
{
    assert_ptr_equal(from, &netlink);
    closings++;
}

static const struct fw_netlink_hooks hooks = {hook_open, hook_dump, hook_close};

static int set_up(void **state)
{
    (void)state;
    fw_netlink_hooks = &hooks;
    heard[0] = '\0';
    close_at_change = false;
    dumps_asked = 0;
    dump_answer = 0;
    closings = 0;
    closed_count = 0;
    return fw_netlink_open(&netlink, NULL, &events, &reason);
}

static int tear_down(void **state)
{
    (void)state;
    if (!netlink.closing) {
        fw_netlink_close(&netlink);
    }
    fw_netlink_closed(&netlink);
    fw_netlink_hooks = NULL;
    return closings == 1 && closed_count == 1 ? 0 : -1;
}

/* A batch of messages under construction. */
static struct {
    alignas(NLMSG_ALIGNTO) char bytes[4096];
    size_t size;
} batch;

static struct nlmsghdr *batch_add(uint16_t type, uint16_t flags, uint32_t sequence)
{
    struct nlmsghdr *header = (void *)&batch.bytes[batch.size];
    *header = (struct nlmsghdr){.nlmsg_len = NLMSG_LENGTH(0),
                                .nlmsg_type = type,
                                .nlmsg_flags = flags,
                                .nlmsg_seq = sequence};
    batch.size += NLMSG_LENGTH(0);
    return header;
}

static void batch_append(struct nlmsghdr *header, const void *bytes, size_t size)
{
    memcpy(&batch.bytes[batch.size], bytes, size);
    batch.size += NLMSG_ALIGN(size);
    header->nlmsg_len = (uint32_t)(&batch.bytes[batch.size] - (char *)header);
}

static void batch_attribute(struct nlmsghdr *header, uint16_t type, const void *value, size_t size)
{
    const struct rtattr attribute = {.rta_len = (uint16_t)RTA_LENGTH(size), .rta_type = type};
    batch_append(header, &attribute, sizeof attribute);
    batch_append(header, value, size);
}

/* The start of a message about an address; attributes follow. */
static struct nlmsghdr *batch_address(uint16_t type, uint32_t sequence, int family,
                                      uint32_t interface)
{
    struct nlmsghdr *header = batch_add(type, sequence != 0 ? NLM_F_MULTI : 0, sequence);
    const struct ifaddrmsg message = {.ifa_family = (uint8_t)family,
                                      .ifa_prefixlen = family == AF_INET ? 24 : 64,
                                      .ifa_index = interface};
    batch_append(header, &message, sizeof message);
    return header;
}

/* A whole message. `sequence` 0: an event; else of that dump. */
static struct nlmsghdr *batch_whole(uint16_t type, uint32_t sequence, const char *text,
                                    uint32_t interface)
{
    uint8_t bytes[16];
    int family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    assert_int_equal(inet_pton(family, text, bytes), 1);
    struct nlmsghdr *header = batch_address(type, sequence, family, interface);
    batch_attribute(header, IFA_ADDRESS, bytes, family == AF_INET ? 4 : 16);
    return header;
}

static void batch_done(uint32_t sequence, int error)
{
    struct nlmsghdr *header = batch_add(NLMSG_DONE, NLM_F_MULTI, sequence);
    batch_append(header, &error, sizeof error);
}

static void batch_feed(void)
{
    fw_netlink_feed(&netlink, batch.bytes, batch.size);
    fw_netlink_drained(&netlink);
    batch.size = 0;
}

static void test_dump_and_events(void **state)
{
    (void)state;
    assert_int_equal(dumps_asked, 1);
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.9", 2); /* Changes come before the dump, too. */
    (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 1, "2001:db8::1", 1);
    batch_feed();
    heard_check("+10.0.0.9 +10.0.0.1 +2001:db8::1 ");
    batch_done(1, 0);
    batch_feed();
    heard_check("=0 ");
    assert_int_equal(dumps_asked, 1);

    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1); /* Its lifetime, say, has changed. */
    (void)batch_whole(RTM_DELADDR, 0, "10.0.0.9", 2);
    (void)batch_whole(RTM_DELADDR, 0, "10.0.0.9", 2);
    (void)batch_whole(RTM_DELADDR, 0, "10.0.0.77", 2);
    batch_feed();
    heard_check("-10.0.0.9 ");
    assert_int_equal(dumps_asked, 1);
    batch_done(1, 0); /* Of a dump that is over. */
    batch_feed();
    heard_check("");
}

static void test_has(void **state)
{
    (void)state;
    struct fw_address address = {.length = sizeof address.ipv4};
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = htons(11211);
    assert_int_equal(inet_pton(AF_INET, "10.0.0.1", &address.ipv4.sin_addr), 1);
    assert_false(fw_netlink_has(&netlink, &address));
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 0, "fe80::1", 3);
    (void)batch_whole(RTM_NEWADDR, 0, "2001:db8::1", 3);
    batch_feed();
    assert_true(fw_netlink_has(&netlink, &address));
    struct fw_address other = {.length = sizeof other.ipv6};
    other.ipv6.sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, "fe80::1", &other.ipv6.sin6_addr), 1);
    other.ipv6.sin6_scope_id = 2;
    assert_false(fw_netlink_has(&netlink, &other));
    other.ipv6.sin6_scope_id = 3;
    assert_true(fw_netlink_has(&netlink, &other));
    assert_int_equal(inet_pton(AF_INET6, "2001:db8::1", &other.ipv6.sin6_addr), 1);
    other.ipv6.sin6_scope_id = 0;
    assert_true(fw_netlink_has(&netlink, &other));
    struct fw_address local = {.length = sizeof local.local};
    local.local.sun_family = AF_UNIX;
    assert_false(fw_netlink_has(&netlink, &local));
}

/* One address on two interfaces, or with two prefixes, is one address; link-local ones are two. */
static void test_same_address_twice(void **state)
{
    (void)state;
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 2);
    struct nlmsghdr *header = batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 2);
    ((struct ifaddrmsg *)NLMSG_DATA(header))->ifa_prefixlen = 32;
    batch_feed();
    heard_check("+10.0.0.1 ");
    (void)batch_whole(RTM_DELADDR, 0, "10.0.0.1", 1);
    (void)batch_whole(RTM_DELADDR, 0, "10.0.0.1", 2);
    batch_feed();
    heard_check("");
    header = batch_whole(RTM_DELADDR, 0, "10.0.0.1", 2);
    ((struct ifaddrmsg *)NLMSG_DATA(header))->ifa_prefixlen = 32;
    batch_feed();
    heard_check("-10.0.0.1 ");

    (void)batch_whole(RTM_NEWADDR, 0, "fe80::1", 1);
    (void)batch_whole(RTM_NEWADDR, 0, "fe80::1", 2);
    (void)batch_whole(RTM_DELADDR, 0, "fe80::1", 1);
    batch_feed();
    heard_check("+fe80::1%1 +fe80::1%2 -fe80::1%1 ");

    /* Only half like an address of a link: in the second byte, or in the first. */
    static const char *const others[] = {"10.128.0.1", "2080::1", "fec0::1"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(others); i++) {
        char text[64];
        (void)batch_whole(RTM_NEWADDR, 0, others[i], 1);
        (void)batch_whole(RTM_NEWADDR, 0, others[i], 2);
        batch_feed();
        (void)snprintf(text, sizeof text, "+%s ", others[i]);
        heard_check(text);
    }
}

/* Messages were lost: the next dump tells what has come and gone meanwhile. */
static void test_lost(void **state)
{
    (void)state;
    (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.2", 1);
    (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.3", 1);
    batch_done(1, 0);
    batch_feed();
    heard_check("+10.0.0.1 +10.0.0.2 +10.0.0.3 =0 ");
    fw_netlink_lost(&netlink);
    /* Heard of before the dump has begun: whether it is there still, the dump must tell. */
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.8", 1);
    fw_netlink_feed(&netlink, batch.bytes, batch.size);
    batch.size = 0;
    assert_int_equal(dumps_asked, 1);
    fw_netlink_drained(&netlink);
    assert_int_equal(dumps_asked, 2);
    (void)batch_whole(RTM_NEWADDR, 2, "10.0.0.3", 1);
    (void)batch_whole(RTM_NEWADDR, 2, "10.0.0.4", 1);
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.5", 1); /* Since then, so it is there. */
    batch_feed();
    heard_check("+10.0.0.8 +10.0.0.4 +10.0.0.5 ");
    batch_done(2, 0);
    batch_feed();
    heard_check("-10.0.0.1 -10.0.0.2 -10.0.0.8 =0 ");
    assert_int_equal(dumps_asked, 2);
}

/* A dump that cannot be trusted removes nothing and is not called complete. */
static void test_disturbed_dump(void **state)
{
    (void)state;
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    struct nlmsghdr *header = batch_whole(RTM_NEWADDR, 1, "10.0.0.2", 1);
    header->nlmsg_flags |= NLM_F_DUMP_INTR;
    batch_feed();
    assert_int_equal(dumps_asked, 1); /* One at a time. */
    batch_done(1, 0);
    batch_feed();
    heard_check("+10.0.0.1 +10.0.0.2 ");
    assert_int_equal(dumps_asked, 2);

    /* The removal overtakes the dump, which shows the address still; the next one does not. */
    (void)batch_whole(RTM_DELADDR, 0, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 2, "10.0.0.1", 1);
    batch_done(2, 0);
    batch_feed();
    heard_check("-10.0.0.1 +10.0.0.1 ");
    assert_int_equal(dumps_asked, 3);
    (void)batch_whole(RTM_NEWADDR, 3, "10.0.0.2", 1);
    batch_done(3, 0);
    batch_feed();
    heard_check("-10.0.0.1 =0 ");
    assert_int_equal(dumps_asked, 3);

    (void)batch_add(NLMSG_OVERRUN, 0, 0);
    batch_feed();
    assert_int_equal(dumps_asked, 4);
    fw_netlink_lost(&netlink); /* While it is under way: another one follows. */
    fw_netlink_drained(&netlink);
    assert_int_equal(dumps_asked, 4);
    batch_done(4, 0);
    batch_feed();
    heard_check("");
    assert_int_equal(dumps_asked, 5);
    (void)batch_add(NLMSG_OVERRUN, 0, 5); /* In the middle of it, which it does not end. */
    batch_feed();
    assert_int_equal(dumps_asked, 5);
}

static void test_dump_fails(void **state)
{
    (void)state;
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    batch_done(1, -EIO);
    batch_feed();
    heard_check("+10.0.0.1 =-5 "); /* And nothing removed. */
    assert_int_equal(dumps_asked, 1);

    fw_netlink_lost(&netlink);
    fw_netlink_drained(&netlink);
    int error = 0;
    batch_append(batch_add(NLMSG_ERROR, 0, 2), &error, sizeof error); /* An acknowledgement. */
    batch_feed();
    heard_check("");
    error = -EPERM;
    batch_append(batch_add(NLMSG_ERROR, 0, 7), &error, sizeof error); /* Not of this dump. */
    batch_feed();
    heard_check("");
    batch_append(batch_add(NLMSG_ERROR, 0, 2), &error, sizeof error);
    batch_feed();
    heard_check("=-1 ");

    /* The request itself fails; the next occasion brings another. */
    dump_answer = -ENOBUFS;
    fw_netlink_lost(&netlink);
    fw_netlink_drained(&netlink);
    heard_check("=-105 ");
    dump_answer = 0;
    batch_feed();
    assert_int_equal(dumps_asked, 4);
    batch_done(4, 0);
    batch_feed();
    heard_check("-10.0.0.1 =0 ");
}

static void test_flags(void **state)
{
    (void)state;
    struct nlmsghdr *header = batch_whole(RTM_NEWADDR, 1, "2001:db8::1", 1);
    ((struct ifaddrmsg *)NLMSG_DATA(header))->ifa_flags = IFA_F_TENTATIVE;
    batch_feed();
    heard_check("");
    batch_done(1, 0); /* A dump is disturbed by that no less than by a removal. */
    batch_feed();
    heard_check("");
    batch_done(2, 0);
    batch_feed();
    heard_check("=0 ");

    (void)batch_whole(RTM_NEWADDR, 0, "2001:db8::1", 1); /* No duplicate was found. */
    batch_feed();
    heard_check("+2001:db8::1 ");

    /* The attribute has more bits than the field, and counts. */
    header = batch_whole(RTM_NEWADDR, 0, "2001:db8::1", 1);
    batch_attribute(header, IFA_FLAGS, &(uint32_t){IFA_F_DADFAILED | IFA_F_OPTIMISTIC}, 4);
    batch_feed();
    heard_check("-2001:db8::1 ");
    header = batch_whole(RTM_NEWADDR, 0, "2001:db8::1", 1);
    ((struct ifaddrmsg *)NLMSG_DATA(header))->ifa_flags = IFA_F_DADFAILED;
    batch_attribute(header, IFA_FLAGS, &(uint32_t){IFA_F_TENTATIVE | IFA_F_OPTIMISTIC}, 4);
    batch_feed();
    heard_check("+2001:db8::1 ");
}

/* With a peer, IFA_ADDRESS is the peer's and IFA_LOCAL ours, in either order. */
static void test_point_to_point(void **state)
{
    (void)state;
    struct nlmsghdr *header = batch_address(RTM_NEWADDR, 0, AF_INET, 1);
    batch_attribute(header, IFA_ADDRESS, "\x0a\x00\x00\x02", 4);
    batch_attribute(header, IFA_LABEL, "abc", 4);
    batch_attribute(header, IFA_LOCAL, "\x0a\x00\x00\x01", 4);
    header = batch_address(RTM_NEWADDR, 0, AF_INET, 1);
    batch_attribute(header, IFA_LOCAL, "\x0a\x00\x00\x03", 4);
    batch_attribute(header, IFA_ADDRESS, "\x0a\x00\x00\x04", 4);
    batch_feed();
    heard_check("+10.0.0.1 +10.0.0.3 ");
}

static void test_too_many(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= FW_NETLINK_ADDRESSES_MAX; i++) {
        char text[INET_ADDRSTRLEN];
        (void)snprintf(text, sizeof text, "10.1.%u.%u", i / 256, i % 256);
        (void)batch_whole(RTM_NEWADDR, 1, text, 1);
        batch_feed();
        heard[0] = '\0';
    }
    batch_done(1, 0);
    batch_feed();
    heard_check("=-28 ");
    fw_netlink_lost(&netlink); /* The next time they are fewer. */
    fw_netlink_drained(&netlink);
    for (uint32_t i = 0; i < FW_NETLINK_ADDRESSES_MAX; i++) {
        char text[INET_ADDRSTRLEN];
        (void)snprintf(text, sizeof text, "10.1.%u.%u", i / 256, i % 256);
        (void)batch_whole(RTM_NEWADDR, 2, text, 1);
        batch_feed();
    }
    batch_done(2, 0);
    batch_feed();
    heard_check("=0 ");
}

static void test_close_by_call_back(void **state)
{
    (void)state;
    close_at_change = true;
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 0, "10.0.0.2", 1);
    batch_done(1, 0);
    batch_feed();
    heard_check("+10.0.0.1 ");
}

static void test_close_in_the_middle_of_a_sweep(void **state)
{
    (void)state;
    (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.1", 1);
    (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.2", 1);
    batch_done(1, 0);
    batch_feed();
    fw_netlink_lost(&netlink);
    fw_netlink_drained(&netlink);
    heard[0] = '\0';
    close_at_change = true;
    batch_done(2, 0);
    batch_feed();
    heard_check("-10.0.0.1 ");
}

/* Feeds the one message of the batch from a place whose end ASan sees. */
static void batch_feed_exactly(const struct nlmsghdr *header)
{
    size_t size = header->nlmsg_len;
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, header, size);
    batch.size = 0;
    fw_netlink_feed(&netlink, copy, size);
    fw_netlink_drained(&netlink);
    free(copy);
}

/* The last attribute may lack the bytes that would align the next one. */
static void test_unaligned_end(void **state)
{
    (void)state;
    struct nlmsghdr *header = batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    batch_attribute(header, IFA_LABEL, "lo", 3);
    header->nlmsg_len--; /* Three bytes, and not the fourth that aligns. */
    batch_feed_exactly(header);
    heard_check("+10.0.0.1 ");
    header = batch_whole(RTM_NEWADDR, 0, "10.0.0.2", 1);
    memset(&batch.bytes[batch.size], 0xff, 3);
    header->nlmsg_len += 3; /* Too few for another attribute. */
    batch_feed_exactly(header);
    heard_check("+10.0.0.2 ");
}

/* Truncated and contradictory messages: the rest of the batch is dropped or read, never overrun. */
static void test_bad_messages(void **state)
{
    (void)state;
    struct nlmsghdr *header = batch_whole(RTM_NEWADDR, 0, "10.0.0.1", 1);
    size_t whole = batch.size;
    for (size_t size = 0; size < whole; size++) {
        char *copy = malloc(size + 1); /* So that ASan sees the end. */
        assert_non_null(copy);
        memcpy(copy, batch.bytes, size);
        fw_netlink_feed(&netlink, copy, size); /* Says it is longer than it is. */
        if (size >= sizeof *header) {
            ((struct nlmsghdr *)(void *)copy)->nlmsg_len = (uint32_t)size;
            fw_netlink_feed(&netlink, copy, size); /* Ends in the middle of something. */
        }
        free(copy);
    }
    heard_check("");
    header->nlmsg_len = 3; /* Shorter than itself. */
    batch_feed();
    header = batch_add(NLMSG_OVERRUN, 0, 0);
    header->nlmsg_len--;
    uint32_t asked = dumps_asked;
    batch_done(1, 0);
    batch_feed();
    assert_int_equal(dumps_asked, asked);
    header = batch_address(RTM_NEWADDR, 0, AF_INET, 1);
    const struct rtattr none = {.rta_len = 0, .rta_type = IFA_LOCAL};
    batch_append(header, &none, sizeof none);
    batch_feed();
    header = batch_address(RTM_NEWADDR, 0, AF_INET, 1); /* The size of another family's. */
    batch_attribute(header, IFA_LOCAL, "0123456789abcdef", 16);
    batch_feed();
    header = batch_address(RTM_NEWADDR, 0, AF_UNIX, 1);
    batch_attribute(header, IFA_LOCAL, "0123456789abcdef", 16);
    batch_feed();
    (void)batch_add(RTM_NEWLINK, 0, 0); /* None of ours. */
    batch_feed();
    heard_check("");

    struct fw_random generator;
    fw_random_init(&generator, 1);
    for (int round = 0; round < 20000; round++) {
        (void)batch_whole(RTM_NEWADDR, 1, "10.0.0.1", 1);
        (void)batch_whole(RTM_DELADDR, 0, "10.0.0.1", 1);
        batch_done(1, 0);
        for (int flips = 0; flips < 4; flips++) {
            uint64_t bit = fw_random_below(&generator, batch.size * 8);
            batch.bytes[bit / 8] = (char)(batch.bytes[bit / 8] ^ (1 << bit % 8));
        }
        batch_feed();
        heard[0] = '\0';
    }
}

/* ---- the kernel's own, in a child with a network of its own */

enum { SKIPPED = 200, FLOOD = 300 };

/* In the child cmocka's assertions would return into the parent's copy of the test. */
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            (void)fprintf(stderr, "# line %d: %s (heard: %s)\n", __LINE__, #condition, heard); \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

static int changer; /* The socket through which addresses are changed. */

static void kernel_change(uint16_t type, const char *text, uint8_t prefix)
{
    uint8_t bytes[16];
    int family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    CHECK(inet_pton(family, text, bytes) == 1);
    size_t size = family == AF_INET ? 4 : 16;
    batch.size = 0;
    struct nlmsghdr *header = batch_add(
        type, NLM_F_REQUEST | NLM_F_ACK | (type == RTM_NEWADDR ? NLM_F_CREATE | NLM_F_EXCL : 0),
        77);
    const struct ifaddrmsg message = {.ifa_family = (uint8_t)family,
                                      .ifa_prefixlen = prefix,
                                      .ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
                                      .ifa_index = 1}; /* lo, in every namespace. */
    batch_append(header, &message, sizeof message);
    batch_attribute(header, IFA_LOCAL, bytes, size);
    batch_attribute(header, IFA_ADDRESS, bytes, size);
    CHECK(send(changer, batch.bytes, batch.size, 0) == (ssize_t)batch.size);
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[256];
    } answer;
    CHECK(recv(changer, &answer, sizeof answer, 0) > 0);
    CHECK(answer.header.nlmsg_type == NLMSG_ERROR);
    CHECK(answer.error.error == 0);
}

static void lo_up(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
    CHECK(close(fd) == 0);
}

static void wait_for(struct fw_reactor *reactor, const char *end)
{
    for (;;) {
        size_t length = strlen(heard);
        if (length >= strlen(end) && strcmp(heard + length - strlen(end), end) == 0) {
            return;
        }
        (void)fw_reactor_poll(reactor, -1);
    }
}

/* What is known equals the flood's outcome: every third address was removed again. */
static void flood_check(bool all)
{
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct fw_address address = {.length = sizeof address.ipv4};
        address.ipv4.sin_family = AF_INET;
        address.ipv4.sin_addr.s_addr = htonl(0x0a010000 + i);
        CHECK(fw_netlink_has(&netlink, &address) == (all || i % 3 != 0));
    }
}

static void flood(uint16_t type, uint32_t step)
{
    for (uint32_t i = 0; i < FLOOD; i += step) {
        char text[INET_ADDRSTRLEN];
        (void)snprintf(text, sizeof text, "10.1.%u.%u", i / 256, i % 256);
        kernel_change(type, text, 32);
    }
}

/* Hundreds of changes while we do not listen, and no room for more than a few. */
static void child_flood(struct fw_reactor *reactor)
{
    int tiny = 1; /* The kernel makes it its minimum. */
    CHECK(setsockopt(netlink.fd, SOL_SOCKET, SO_RCVBUF, &tiny, sizeof tiny) == 0);
    uint32_t dumps = netlink.dump;
    flood(RTM_NEWADDR, 1);
    heard[0] = '\0';
    while (strstr(heard, "=0 ") == NULL) {
        heard[0] = '\0';
        (void)fw_reactor_poll(reactor, -1);
    }
    CHECK(netlink.dump > dumps);
    flood_check(true);

    dumps = netlink.dump;
    flood(RTM_DELADDR, 3);
    heard[0] = '\0';
    while (strstr(heard, "=0 ") == NULL) {
        heard[0] = '\0';
        (void)fw_reactor_poll(reactor, -1);
    }
    CHECK(netlink.dump > dumps);
    flood_check(false);
}

static void child_run(void)
{
    struct fw_reactor *reactor;
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        _exit(SKIPPED);
    }
    changer = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(changer >= 0);
    CHECK(fw_reactor_create(&reactor, &reason) == 0);
    kernel_change(RTM_NEWADDR, "10.0.0.1", 8);
    CHECK(fw_netlink_open(&netlink, reactor, &events, &reason) == 0);
    kernel_change(RTM_NEWADDR, "10.0.0.2", 8); /* Between the request and its answer. */
    CHECK(heard[0] == '\0');
    wait_for(reactor, "=0 ");
    CHECK(strcmp(heard, "+10.0.0.1 +10.0.0.2 =0 ") == 0 ||
          strcmp(heard, "+10.0.0.2 +10.0.0.1 =0 ") == 0);
    heard[0] = '\0';
    kernel_change(RTM_NEWADDR, "2001:db8::7", 64);
    wait_for(reactor, "+2001:db8::7 ");
    kernel_change(RTM_DELADDR, "10.0.0.1", 8);
    wait_for(reactor, "-10.0.0.1 ");
    kernel_change(RTM_DELADDR, "2001:db8::7", 64);
    wait_for(reactor, "-2001:db8::7 ");
    heard[0] = '\0';
    lo_up(); /* Gives lo the addresses that every loopback has. */
    while (strstr(heard, "+127.0.0.1 ") == NULL) {
        (void)fw_reactor_poll(reactor, -1);
    }
    child_flood(reactor);

    heard[0] = '\0';
    fw_netlink_close(&netlink);
    kernel_change(RTM_NEWADDR, "10.0.0.3", 8);
    while (closed_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    CHECK(closed_count == 1);
    CHECK(heard[0] == '\0');
    CHECK(netlink.entries == NULL);
    fw_reactor_destroy(reactor);
    _exit(0);
}

static void test_kernel(void **state)
{
    (void)state;
    heard[0] = '\0';
    closed_count = 0;
    close_at_change = false;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        child_run();
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        fw_test_skip("user-namespaces", "may not make a network namespace");
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_no_descriptors(void **state)
{
    (void)state;
    struct rlimit before, none;
    struct fw_reactor *reactor;
    assert_int_equal(fw_reactor_create(&reactor, &reason), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = fw_netlink_open(&netlink, reactor, &events, &reason);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -EMFILE);
    assert_string_equal(reason.text, "cannot open a netlink socket to watch addresses: Too many "
                                     "open files");
    fw_reactor_destroy(reactor);
}

/* The linker (--wrap) sends our calls of recvmsg() here. */
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
static int receive_failures; /* So many calls fail before one is made. */

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    if (receive_failures > 0) {
        receive_failures--;
        errno = EIO;
        return -1;
    }
    return __real_recvmsg(fd, message, flags);
}

/* An error is told, once, and leaves the turn to others instead of trying again at once. */
static void test_receive_fails(void **state)
{
    (void)state;
    struct fw_reactor *reactor;
    heard[0] = '\0';
    closed_count = 0;
    assert_int_equal(fw_reactor_create(&reactor, &reason), 0);
    assert_int_equal(fw_netlink_open(&netlink, reactor, &events, &reason), 0);
    receive_failures = 2;
    while (heard[0] == '\0') { /* Until the answer to its first question is there. */
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(receive_failures, 1);
    heard_check("=-5 ");
    receive_failures = 0;
    int fd = netlink.fd;
    assert_true(fcntl(fd, F_GETFD) >= 0);
    fw_netlink_close(&netlink);
    while (closed_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    fw_reactor_destroy(reactor);
}

#define BY_HAND(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BY_HAND(test_dump_and_events),
        BY_HAND(test_has),
        BY_HAND(test_same_address_twice),
        BY_HAND(test_lost),
        BY_HAND(test_disturbed_dump),
        BY_HAND(test_dump_fails),
        BY_HAND(test_flags),
        BY_HAND(test_point_to_point),
        BY_HAND(test_too_many),
        BY_HAND(test_close_by_call_back),
        BY_HAND(test_close_in_the_middle_of_a_sweep),
        BY_HAND(test_unaligned_end),
        BY_HAND(test_bad_messages),
        cmocka_unit_test(test_kernel),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_receive_fails),
    };
    return fw_test_run_on_backend(tests);
}
