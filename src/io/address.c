/* SPDX-License-Identifier: Apache-2.0 */
#include "io/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/parse.h"

/* Beside the path there must be room for a final zero, so that it can be lent as a string. */
enum { PATH_LENGTH_MAX = sizeof((struct sockaddr_un *)NULL)->sun_path - 1 };

static_assert(FW_ADDRESS_TEXT_SIZE > sizeof "unix:@" + PATH_LENGTH_MAX, "any path must fit");
static_assert(FW_ADDRESS_TEXT_SIZE > INET6_ADDRSTRLEN + IF_NAMESIZE + sizeof "[%]:65535",
              "any IPv6 address must fit");

/* How many bytes of sun_path count, without a path's final zero. */
static size_t local_length(const struct fw_address *address)
{
    size_t size = address->length - offsetof(struct sockaddr_un, sun_path);
    bool is_path = size > 0 && address->local.sun_path[0] != '\0';
    return is_path ? strnlen(address->local.sun_path, size) : size;
}

/* The caller's array while it is being filled. */
struct address_list {
    struct fw_address *addresses;
    int capacity;
    int count;
};

/* A text like HOST:PORT taken apart, before anyone asks what the host is. */
struct address_parts {
    char host[FW_ADDRESS_NAME_MAX + 1];
    uint16_t port;
    bool is_ipv6; /* In brackets, or with colons of its own. */
};

static int address_refuse(const char *text, struct fw_reason *reason)
{
    return fw_reason_set(reason, -EINVAL,
                         "'%.64s' is not an address: write 127.0.0.1:11211, [::1]:11211, :11211, "
                         "localhost:11211, unix:/path or unix:@name",
                         text);
}

static void list_add(struct address_list *list, const struct fw_address *address)
{
    for (int i = 0; i < list->count; i++) {
        if (fw_address_equal(&list->addresses[i], address)) {
            return; /* A hosts file may give one address twice. */
        }
    }
    if (list->count < list->capacity) {
        list->addresses[list->count++] = *address;
    }
}

static void list_add_ipv4(struct address_list *list, struct in_addr host, uint16_t port)
{
    struct fw_address address = {.length = sizeof address.ipv4};
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = htons(port);
    address.ipv4.sin_addr = host;
    list_add(list, &address);
}

static void list_add_ipv6(struct address_list *list, const struct in6_addr *host, uint32_t scope_id,
                          uint16_t port)
{
    struct fw_address address = {.length = sizeof address.ipv6};
    address.ipv6.sin6_family = AF_INET6;
    address.ipv6.sin6_port = htons(port);
    address.ipv6.sin6_addr = *host;
    address.ipv6.sin6_scope_id = scope_id;
    list_add(list, &address);
}

static int parse_local(const char *name, struct address_list *list, struct fw_reason *reason)
{
    struct fw_address address = {.length = 0};
    size_t length = strlen(name);
    bool is_abstract = name[0] == '@';
    if (length == 0 || (is_abstract && length == 1)) {
        return fw_reason_set(reason, -EINVAL,
                             "'unix:' needs a path or an abstract name: write unix:/path or "
                             "unix:@name");
    }
    if (length > PATH_LENGTH_MAX) {
        return fw_reason_set(reason, -ENAMETOOLONG,
                             "'%.64s...' is too long for a UNIX socket: its path has at most %d "
                             "bytes",
                             name, (int)PATH_LENGTH_MAX);
    }

    address.local.sun_family = AF_UNIX;
    memcpy(address.local.sun_path, name, length);
    address.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (is_abstract) {
        address.local.sun_path[0] = '\0'; /* What marks an abstract name to the kernel. */
    } else {
        address.length++; /* The final zero, which the kernel too counts. */
    }
    list_add(list, &address);
    return 0;
}

/* Copies [begin, end) into the zeroed host, if it fits. */
static bool parts_set_host(struct address_parts *parts, const char *begin, const char *end)
{
    size_t length = (size_t)(end - begin);
    if (length >= sizeof parts->host) {
        return false;
    }
    memcpy(parts->host, begin, length);
    return true;
}

/* False if the text has not even the form of HOST, HOST:PORT or [HOST]:PORT. */
static bool parse_parts(const char *text, uint16_t port_default, struct address_parts *parts)
{
    const char *host_begin = text;
    const char *host_end;
    const char *port_text = NULL;
    const char *colon = strchr(text, ':');

    *parts = (struct address_parts){.port = port_default};
    if (text[0] == '[') {
        host_begin++;
        host_end = strchr(text, ']');
        if (host_end == NULL || (host_end[1] != '\0' && host_end[1] != ':')) {
            return false;
        }
        parts->is_ipv6 = true;
        port_text = host_end[1] == ':' ? host_end + 2 : NULL;
    } else if (colon != NULL && strchr(colon + 1, ':') != NULL) {
        host_end = text + strlen(text);
        parts->is_ipv6 = true;
    } else if (colon != NULL) {
        host_end = colon;
        port_text = colon + 1;
    } else {
        host_end = text + strlen(text);
    }

    if (port_text != NULL) {
        uint64_t port;
        if (fw_parse_uint(port_text, strlen(port_text), 0, UINT16_MAX, &port) != 0) {
            return false;
        }
        parts->port = (uint16_t)port;
    }
    /* An empty host means all addresses, but only with the port that shows it is meant so. */
    bool is_empty = host_begin == host_end;
    return !(is_empty && port_text == NULL) && parts_set_host(parts, host_begin, host_end);
}

/* The number of a network interface, by name or as a number; 0 if there is none. */
static uint32_t parse_scope(const char *scope)
{
    uint64_t number;
    uint32_t named = if_nametoindex(scope);
    if (named != 0) {
        return named;
    }
    return fw_parse_uint(scope, strlen(scope), 1, UINT32_MAX, &number) == 0 ? (uint32_t)number : 0;
}

static int parse_ipv6(const char *text, struct address_parts *parts, struct address_list *list,
                      struct fw_reason *reason)
{
    struct in6_addr host;
    uint32_t scope_id = 0;
    char *scope = strchr(parts->host, '%');
    if (scope != NULL) {
        *scope++ = '\0';
    }
    if (inet_pton(AF_INET6, parts->host, &host) != 1) {
        return address_refuse(text, reason);
    }
    if (scope != NULL) {
        scope_id = parse_scope(scope);
        if (scope_id == 0) {
            return fw_reason_set(reason, -ENODEV,
                                 "'%.64s' names the network interface '%.15s', which does not "
                                 "exist: 'ip link' lists those that do",
                                 text, scope);
        }
    }
    list_add_ipv6(list, &host, scope_id, parts->port);
    return 0;
}

/* The kernel may be without IPv6, or the loopback interface without ::1. */
static bool has_ipv6_loopback(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool is_there = bind(fd, (const struct sockaddr *)&loopback, sizeof loopback) == 0;
    (void)close(fd);
    return is_there;
}

/* IPv4 first: callers that take one address ask servers whose default is 127.0.0.1. */
static void list_add_localhost(struct address_list *list, uint16_t port)
{
    list_add_ipv4(list, (struct in_addr){.s_addr = htonl(INADDR_LOOPBACK)}, port);
    if (has_ipv6_loopback()) {
        list_add_ipv6(list, &in6addr_loopback, 0, port);
    }
}

static int resolve_error(int status)
{
    switch (status) {
    case EAI_NONAME:
    case EAI_NODATA:
        return -ENOENT;
    case EAI_AGAIN:
        return -EAGAIN;
    case EAI_MEMORY:
        return -ENOMEM;
    default:
        return -EIO;
    }
}

static int parse_name(const struct address_parts *parts, struct address_list *list,
                      struct fw_reason *reason)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *results;
    int status = getaddrinfo(parts->host, NULL, &hints, &results);
    if (status != 0) {
        return fw_reason_set(reason, resolve_error(status), "cannot resolve the name '%.64s': %s",
                             parts->host, gai_strerror(status));
    }
    for (const struct addrinfo *result = results; result != NULL; result = result->ai_next) {
        struct fw_address address;
        if (fw_address_from_socket(&address, result->ai_addr, result->ai_addrlen) != 0) {
            continue; /* A family we do not serve. */
        }
        if (address.any.sa_family == AF_INET) {
            list_add_ipv4(list, address.ipv4.sin_addr, parts->port);
        } else if (address.any.sa_family == AF_INET6) {
            list_add_ipv6(list, &address.ipv6.sin6_addr, address.ipv6.sin6_scope_id, parts->port);
        }
    }
    freeaddrinfo(results);
    if (list->count == 0) {
        return fw_reason_set(reason, -ENOENT, "the name '%.64s' has no IPv4 or IPv6 address",
                             parts->host);
    }
    return 0;
}

/*
 * Tells names from mistyped IPv4 addresses: a name has a letter. The resolver must not see what
 * only inet_aton() takes for an address, such as "127.0x1": it would make 127.0.0.1 of it.
 */
static bool is_name(const char *host)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char others[] = "0123456789-_.";
    bool has_letter = false;
    struct in_addr ignored;
    for (const char *byte = host; *byte != '\0'; byte++) {
        bool is_letter = strchr(letters, *byte) != NULL;
        if (!is_letter && strchr(others, *byte) == NULL) {
            return false;
        }
        has_letter = has_letter || is_letter;
    }
    return has_letter && inet_aton(host, &ignored) == 0;
}

static int parse_host(const char *text, uint16_t port_default, unsigned flags,
                      struct address_list *list, struct fw_reason *reason)
{
    struct address_parts parts;
    struct in_addr host;
    if (!parse_parts(text, port_default, &parts)) {
        return address_refuse(text, reason);
    }
    if (parts.is_ipv6) {
        return parse_ipv6(text, &parts, list, reason);
    }
    if (parts.host[0] == '\0') {
        list_add_ipv4(list, (struct in_addr){.s_addr = htonl(INADDR_ANY)}, parts.port);
        list_add_ipv6(list, &in6addr_any, 0, parts.port);
        return 0;
    }
    if (inet_pton(AF_INET, parts.host, &host) == 1) {
        list_add_ipv4(list, host, parts.port);
        return 0;
    }
    if (!is_name(parts.host)) {
        return address_refuse(text, reason);
    }
    if ((flags & FW_ADDRESS_RESOLVE) == 0) {
        return fw_reason_set(reason, -EINVAL,
                             "'%.64s' is a name, which is not resolved here: write an address such "
                             "as 127.0.0.1:11211, [::1]:11211 or unix:/path",
                             text);
    }
    if (strcasecmp(parts.host, "localhost") == 0) {
        list_add_localhost(list, parts.port);
        return 0;
    }
    return parse_name(&parts, list, reason);
}

int fw_address_parse(const char *text, uint16_t port_default, unsigned flags,
                     struct fw_address addresses[], int capacity, struct fw_reason *reason)
{
    static const char scheme[] = "unix:";
    size_t scheme_length = sizeof scheme - 1;
    struct address_list list = {.addresses = addresses, .capacity = capacity};
    FW_ASSERT(capacity > 0);

    int rc;
    if (strncmp(text, scheme, scheme_length) == 0) {
        rc = parse_local(text + scheme_length, &list, reason);
    } else if (text[0] == '/') {
        rc = parse_local(text, &list, reason);
    } else {
        rc = parse_host(text, port_default, flags, &list, reason);
    }
    FW_ASSERT(rc != 0 || (list.count > 0 && list.count <= capacity));
    return rc != 0 ? rc : list.count;
}

int fw_address_from_socket(struct fw_address *address, const struct sockaddr *any, socklen_t length)
{
    size_t size = length;
    if (size < sizeof any->sa_family) {
        return -EAFNOSUPPORT;
    }
    *address = (struct fw_address){.length = length};
    switch (any->sa_family) {
    case AF_INET:
        if (size != sizeof address->ipv4) {
            return -EAFNOSUPPORT;
        }
        memcpy(&address->ipv4, any, size);
        return 0;
    case AF_INET6:
        if (size != sizeof address->ipv6) {
            return -EAFNOSUPPORT;
        }
        memcpy(&address->ipv6, any, size);
        return 0;
    case AF_UNIX:
        if (size > sizeof address->local) {
            return -EAFNOSUPPORT;
        }
        memcpy(&address->local, any, size);
        /* A path may fill the whole field, without a final zero: the kernel bears it, we do not. */
        return local_length(address) > PATH_LENGTH_MAX && address->local.sun_path[0] != '\0'
                   ? -EAFNOSUPPORT
                   : 0;
    default:
        return -EAFNOSUPPORT;
    }
}

static void format_local(const struct fw_address *address, char text[FW_ADDRESS_TEXT_SIZE])
{
    size_t length = local_length(address);
    size_t used = (size_t)snprintf(text, FW_ADDRESS_TEXT_SIZE, "unix:");
    FW_ASSERT(used + length < FW_ADDRESS_TEXT_SIZE);
    char *name = text + used;
    memcpy(name, address->local.sun_path, length);
    name[length] = '\0';
    if (length > 0 && name[0] == '\0') {
        name[0] = '@';
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == '\x7f') {
            name[i] = '?';
        }
    }
}

static void format_ipv6(const struct sockaddr_in6 *ipv6, char text[FW_ADDRESS_TEXT_SIZE])
{
    char host[INET6_ADDRSTRLEN];
    char scope[IF_NAMESIZE] = "";
    const char *written = inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof host);
    FW_ASSERT(written != NULL);
    if (ipv6->sin6_scope_id != 0 && if_indextoname(ipv6->sin6_scope_id, scope) == NULL) {
        (void)snprintf(scope, sizeof scope, "%u", ipv6->sin6_scope_id);
    }
    (void)snprintf(text, FW_ADDRESS_TEXT_SIZE, "[%s%s%s]:%u", host, scope[0] != '\0' ? "%" : "",
                   scope, ntohs(ipv6->sin6_port));
}

void fw_address_format(const struct fw_address *address, char text[FW_ADDRESS_TEXT_SIZE])
{
    char host[INET_ADDRSTRLEN];
    const char *written;
    switch (address->any.sa_family) {
    case AF_INET:
        written = inet_ntop(AF_INET, &address->ipv4.sin_addr, host, sizeof host);
        FW_ASSERT(written != NULL);
        (void)snprintf(text, FW_ADDRESS_TEXT_SIZE, "%s:%u", host, ntohs(address->ipv4.sin_port));
        return;
    case AF_INET6:
        format_ipv6(&address->ipv6, text);
        return;
    default:
        FW_ASSERT(address->any.sa_family == AF_UNIX);
        format_local(address, text);
        return;
    }
}

bool fw_address_equal(const struct fw_address *left, const struct fw_address *right)
{
    if (left->any.sa_family != right->any.sa_family) {
        return false;
    }
    switch (left->any.sa_family) {
    case AF_INET:
        return left->ipv4.sin_port == right->ipv4.sin_port &&
               left->ipv4.sin_addr.s_addr == right->ipv4.sin_addr.s_addr;
    case AF_INET6: /* Not the flow label, which is no part of where something is. */
        return left->ipv6.sin6_port == right->ipv6.sin6_port &&
               left->ipv6.sin6_scope_id == right->ipv6.sin6_scope_id &&
               memcmp(&left->ipv6.sin6_addr, &right->ipv6.sin6_addr, sizeof left->ipv6.sin6_addr) ==
                   0;
    default:
        FW_ASSERT(left->any.sa_family == AF_UNIX);
        return local_length(left) == local_length(right) &&
               memcmp(left->local.sun_path, right->local.sun_path, local_length(left)) == 0;
    }
}

uint16_t fw_address_port(const struct fw_address *address)
{
    switch (address->any.sa_family) {
    case AF_INET:
        return ntohs(address->ipv4.sin_port);
    case AF_INET6:
        return ntohs(address->ipv6.sin6_port);
    default:
        return 0;
    }
}

const char *fw_address_path(const struct fw_address *address)
{
    bool is_path = address->any.sa_family == AF_UNIX && local_length(address) > 0 &&
                   address->local.sun_path[0] != '\0';
    return is_path ? address->local.sun_path : NULL;
}
