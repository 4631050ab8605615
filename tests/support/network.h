/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the network need from the machine. Include it after <cmocka.h>.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/skip.h"

/* Whether there is an IPv6 loopback address. */
static inline bool fw_test_has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_there = bind(fd, (const struct sockaddr *)&loopback, sizeof loopback) == 0;
    (void)close(fd);
    return is_there;
}

/* Ends the running test as skipped if there is no IPv6 loopback address. */
static inline void fw_test_need_ipv6(void)
{
    if (!fw_test_has_ipv6()) {
        fw_test_skip("ipv6", "no IPv6 loopback address");
    }
}
