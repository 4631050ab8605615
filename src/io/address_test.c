/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every form of text gives the address it says and comes back as text; everything else is
 * refused with a reason that says what is allowed.
 * Method: tables of good and bad texts. The linker puts a resolver of the test in the place of the
 * system's, so nothing depends on the names that the machine knows.
 */
#include "io/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/network.h"

enum { PORT_DEFAULT = 11211, ADDRESSES_MAX = 8, PATH_LENGTH_MAX = 107 };

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **results);
void __wrap_freeaddrinfo(struct addrinfo *results);

/* What the resolver answers; with neither, nobody may ask it. */
static int resolver_status;
static struct addrinfo *resolver_results;

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **results)
{
    (void)service;
    (void)hints;
    if (resolver_status == 0 && resolver_results == NULL) {
        fail_msg("the resolver was asked about '%s'", name);
    }
    *results = resolver_results;
    return resolver_status;
}

void __wrap_freeaddrinfo(struct addrinfo *results)
{
    assert_ptr_equal(results, resolver_results);
}

static struct fw_address addresses[ADDRESSES_MAX];
static struct fw_reason reason;

static int parse(const char *text, unsigned flags)
{
    reason.text[0] = '\0';
    return fw_address_parse(text, PORT_DEFAULT, flags, addresses, ADDRESSES_MAX, &reason);
}

static void assert_refused(const char *text, int error, const char *because)
{
    assert_int_equal(parse(text, 0), error);
    if (strstr(reason.text, because) == NULL) {
        fail_msg("'%s' is refused with '%s', not with '%s'", text, reason.text, because);
    }
}

static void assert_formatted(int number, const char *text)
{
    char formatted[FW_ADDRESS_TEXT_SIZE];
    fw_address_format(&addresses[number], formatted);
    assert_string_equal(formatted, text);
}

static void test_good_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *formatted;
    } rows[] = {
        {"127.0.0.1:80", "127.0.0.1:80"},
        {"127.0.0.1", "127.0.0.1:11211"},
        {"255.255.255.255:65535", "255.255.255.255:65535"},
        {"0.0.0.0:0", "0.0.0.0:0"},
        {"[::1]:80", "[::1]:80"},
        {"[::1]", "[::1]:11211"},
        {"::1", "[::1]:11211"},
        {"[2001:DB8:0::A]:007", "[2001:db8::a]:7"},
        {"[fe80::1%lo]:80", "[fe80::1%lo]:80"},
        {"fe80::1%lo", "[fe80::1%lo]:11211"},
        {"[fe80::1%1]:80", "[fe80::1%lo]:80"},
        {"[fe80::1%4000000000]:80", "[fe80::1%4000000000]:80"},
        {"[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.1]:80"},
        {"/run/f.sock", "unix:/run/f.sock"},
        {"unix:/run/f.sock", "unix:/run/f.sock"},
        {"unix:f.sock", "unix:f.sock"},
        {"unix:@fairway", "unix:@fairway"},
        {"unix:/with:colon", "unix:/with:colon"},
        {"unix:\xc3\xbc", "unix:\xc3\xbc"},
        {"unix:/two\nlines\x7f", "unix:/two?lines?"},
        {"unix:/two words", "unix:/two words"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rows); i++) {
        assert_int_equal(parse(rows[i].text, 0), 1);
        assert_string_equal(reason.text, "");
        assert_formatted(0, rows[i].formatted);
    }
}

static void test_bad_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        ":",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+1",
        "127.0.0.1: 1",
        "127.0.0.1:1x",
        "127.0.0.1:99999999999999999999",
        "127.0.0.256",
        "127.1",
        "127.0x1",
        "1",
        "1.2.3.4.5",
        "[::1",
        "[::1]x",
        "[::1]80",
        "[::1]:",
        "[]:80",
        "[]",
        "::1:::",
        "::g",
        "[127.0.0.1]:80",
        "[localhost]:80",
        "a b:80",
        "localhost:http",
        "a/b",
        "tcp://localhost:80",
        "12:",
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(texts); i++) {
        assert_refused(texts[i], -EINVAL, "is not an address: write 127.0.0.1:11211");
    }
    assert_refused("unix:", -EINVAL, "unix:/path");
    assert_refused("unix:@", -EINVAL, "unix:@name");
    assert_refused("[fe80::1%no-such-if]:80", -ENODEV, "'no-such-if'");
    assert_refused("[fe80::1%0]:80", -ENODEV, "ip link");
    assert_refused("[fe80::1%4294967296]:80", -ENODEV, "ip link");
    assert_int_equal(fw_address_parse("", 0, 0, addresses, 1, NULL), -EINVAL);
}

static void test_limits(void **state)
{
    (void)state;
    char text[512] = "unix:";
    char formatted[FW_ADDRESS_TEXT_SIZE];
    memset(text + 5, 'p', PATH_LENGTH_MAX);
    assert_int_equal(parse(text, 0), 1);
    assert_string_equal(fw_address_path(&addresses[0]), text + 5);
    fw_address_format(&addresses[0], formatted);
    assert_string_equal(formatted, text);

    text[5] = '@';
    assert_int_equal(parse(text, 0), 1);
    assert_int_equal(addresses[0].length, sizeof addresses[0].local - 1);
    fw_address_format(&addresses[0], formatted);
    assert_string_equal(formatted, text);

    text[5 + PATH_LENGTH_MAX] = 'p';
    assert_refused(text, -ENAMETOOLONG, "at most 107 bytes");
    text[5] = '/';
    assert_refused(text + 5, -ENAMETOOLONG, "at most 107 bytes");

    memset(text, 'n', FW_ADDRESS_NAME_MAX + 1);
    text[FW_ADDRESS_NAME_MAX] = '\0';
    assert_refused(text, -EINVAL, "is a name");
    text[FW_ADDRESS_NAME_MAX] = 'n';
    assert_refused(text, -EINVAL, "is not an address");
}

static void test_all_addresses(void **state)
{
    (void)state;
    assert_int_equal(parse(":80", 0), 2);
    assert_formatted(0, "0.0.0.0:80");
    assert_formatted(1, "[::]:80");

    addresses[1].length = 0;
    assert_int_equal(fw_address_parse(":80", 0, 0, addresses, 1, NULL), 1);
    assert_int_equal(addresses[1].length, 0); /* Beyond the capacity nothing is written. */
}

static void test_names(void **state)
{
    (void)state;
    assert_refused("localhost:80", -EINVAL, "is a name, which is not resolved here");
    assert_refused("cache-1.example", -EINVAL, "is a name, which is not resolved here");

    struct sockaddr_in one = {.sin_family = AF_INET, .sin_addr = {htonl(0x0a000001)}};
    struct sockaddr_in6 two = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct addrinfo results[] = {
        {.ai_addr = (struct sockaddr *)&one, .ai_addrlen = sizeof one, .ai_next = &results[1]},
        {.ai_addr = (struct sockaddr *)&two, .ai_addrlen = sizeof two, .ai_next = NULL},
    };
    resolver_results = results;
    assert_int_equal(parse("cache-1.example:80", FW_ADDRESS_RESOLVE), 2);
    assert_formatted(0, "10.0.0.1:80");
    assert_formatted(1, "[::1]:80");
    assert_int_equal(fw_address_parse("a.example", 1, FW_ADDRESS_RESOLVE, addresses, 1, NULL), 1);
    assert_formatted(0, "10.0.0.1:1");
    resolver_results = NULL;

    assert_int_equal(parse("127.1", FW_ADDRESS_RESOLVE), -EINVAL);
    assert_int_equal(parse("127.0x1", FW_ADDRESS_RESOLVE), -EINVAL);
}

/* It is known without a resolver, and whatever one would say. */
static void test_localhost(void **state)
{
    (void)state;
    static const char *const texts[] = {"localhost:80", "LocalHost:80"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(texts); i++) {
        int count = parse(texts[i], FW_ADDRESS_RESOLVE);
        assert_int_equal(count, fw_test_has_ipv6() ? 2 : 1);
        assert_formatted(0, "127.0.0.1:80");
        if (count == 2) {
            assert_formatted(1, "[::1]:80");
        }
    }
    assert_int_equal(fw_address_parse("localhost", 1, FW_ADDRESS_RESOLVE, addresses, 1, NULL), 1);
    assert_formatted(0, "127.0.0.1:1");
    resolver_status = EAI_NONAME; /* But not the names that only look like it. */
    assert_int_equal(parse("localhost.example:80", FW_ADDRESS_RESOLVE), -ENOENT);
    resolver_status = 0;
}

static void test_resolver_fails(void **state)
{
    (void)state;
    static const struct {
        int status;
        int error;
    } rows[] = {
        {EAI_NONAME, -ENOENT}, {EAI_NODATA, -ENOENT}, {EAI_AGAIN, -EAGAIN},
        {EAI_MEMORY, -ENOMEM}, {EAI_FAIL, -EIO},      {EAI_SYSTEM, -EIO},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rows); i++) {
        resolver_status = rows[i].status;
        assert_int_equal(parse("some.name:80", FW_ADDRESS_RESOLVE), rows[i].error);
        assert_non_null(strstr(reason.text, "cannot resolve the name 'some.name': "));
    }
    resolver_status = 0;
}

static void test_resolver_is_odd(void **state)
{
    (void)state;
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = 1};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr other = {.sa_family = AF_APPLETALK};
    struct addrinfo results[] = {
        {.ai_addr = &other, .ai_addrlen = sizeof other, .ai_next = &results[1]},
        {.ai_addr = (struct sockaddr *)&local, .ai_addrlen = sizeof local, .ai_next = &results[2]},
        {.ai_addr = (struct sockaddr *)&ipv4, .ai_addrlen = sizeof ipv4, .ai_next = &results[3]},
        {.ai_addr = (struct sockaddr *)&ipv4, .ai_addrlen = sizeof ipv4, .ai_next = NULL},
    };
    resolver_results = results;
    assert_int_equal(parse("some.name:80", FW_ADDRESS_RESOLVE), 1);
    assert_int_equal(fw_address_port(&addresses[0]), 80);
    results[1].ai_next = NULL;
    assert_int_equal(parse("some.name:80", FW_ADDRESS_RESOLVE), -ENOENT);
    assert_non_null(strstr(reason.text, "has no IPv4 or IPv6 address"));
    resolver_results = NULL;
}

static struct fw_address one(const char *text)
{
    assert_int_equal(parse(text, 0), 1);
    return addresses[0];
}

static void test_equality(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "127.0.0.1:1", "127.0.0.1:2", "127.0.0.2:1", "[::1]:1", "[::1]:2",  "[::1%lo]:1",
        "[::2]:1",     "unix:/a",     "unix:/ab",    "unix:@a", "unix:@ab", "unix:a",
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(texts); i++) {
        for (size_t k = 0; k < FW_ARRAY_LENGTH(texts); k++) {
            struct fw_address left = one(texts[i]);
            struct fw_address right = one(texts[k]);
            assert_int_equal(fw_address_equal(&left, &right), i == k);
        }
    }
    struct fw_address left = one("[::1]:1");
    struct fw_address right = left;
    right.ipv6.sin6_flowinfo = 1;
    assert_true(fw_address_equal(&left, &right));
    left = one("unix:/a");
    right = left;
    right.length--; /* The final zero may be counted or not. */
    assert_true(fw_address_equal(&left, &right));
}

static void test_parts(void **state)
{
    (void)state;
    struct fw_address address = one("127.0.0.1:258");
    assert_int_equal(fw_address_port(&address), 258);
    assert_null(fw_address_path(&address));
    address = one("[::1]:258");
    assert_int_equal(fw_address_port(&address), 258);
    assert_int_equal(address.ipv6.sin6_scope_id, 0);
    address = one("[::1%lo]:258");
    assert_int_equal(address.ipv6.sin6_scope_id, if_nametoindex("lo"));
    address = one("unix:/a");
    assert_int_equal(fw_address_port(&address), 0);
    assert_string_equal(fw_address_path(&address), "/a");
    address = one("unix:@a");
    assert_null(fw_address_path(&address));
}

static void test_from_socket(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:1", "[::1%lo]:1", "unix:/a", "unix:@a"};
    struct fw_address taken;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(texts); i++) {
        struct fw_address address = one(texts[i]);
        memset(&taken, 0xff, sizeof taken);
        assert_int_equal(fw_address_from_socket(&taken, &address.any, address.length), 0);
        assert_true(fw_address_equal(&taken, &address));
    }

    char formatted[FW_ADDRESS_TEXT_SIZE];
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    const struct sockaddr *any = (const struct sockaddr *)&local;
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof local.sun_family), 0);
    fw_address_format(&taken, formatted);
    assert_string_equal(formatted, "unix:"); /* A client that was not bound. */
    assert_null(fw_address_path(&taken));

    assert_int_equal(fw_address_from_socket(&taken, any, 1), -EAFNOSUPPORT);
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof local + 1), -EAFNOSUPPORT);
    memset(local.sun_path, 'p', sizeof local.sun_path);
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof local), -EAFNOSUPPORT);
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof local - 1), 0);
    assert_int_equal(strlen(fw_address_path(&taken)), PATH_LENGTH_MAX);

    local.sun_path[0] = '\0'; /* An abstract name may fill it. */
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof local), 0);
    fw_address_format(&taken, formatted);
    assert_int_equal(strlen(formatted), strlen("unix:@") + PATH_LENGTH_MAX);

    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    struct sockaddr other = {.sa_family = AF_APPLETALK};
    any = (const struct sockaddr *)&ipv4;
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof ipv4 - 1), -EAFNOSUPPORT);
    any = (const struct sockaddr *)&ipv6;
    assert_int_equal(fw_address_from_socket(&taken, any, sizeof ipv6 - 1), -EAFNOSUPPORT);
    assert_int_equal(fw_address_from_socket(&taken, &other, sizeof other), -EAFNOSUPPORT);
}

static void test_abstract_bytes(void **state)
{
    (void)state;
    char formatted[FW_ADDRESS_TEXT_SIZE];
    struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "\0a\0b"};
    struct fw_address taken;
    assert_int_equal(fw_address_from_socket(&taken, (const struct sockaddr *)&local,
                                            offsetof(struct sockaddr_un, sun_path) + 4),
                     0);
    fw_address_format(&taken, formatted);
    assert_string_equal(formatted, "unix:@a?b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_texts),     cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_all_addresses),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_localhost),
        cmocka_unit_test(test_resolver_fails), cmocka_unit_test(test_resolver_is_odd),
        cmocka_unit_test(test_equality),       cmocka_unit_test(test_parts),
        cmocka_unit_test(test_from_socket),    cmocka_unit_test(test_abstract_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
