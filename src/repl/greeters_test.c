/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: peers that have proved nothing make way for others, those of the machine that has the most
 * first; and a peer of another machine stays.
 * Method: places are taken by hand, with addresses and without links.
 */
#include "repl/greeters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>

#include <cmocka.h>

static struct fw_address machine(uint8_t number, uint16_t port)
{
    struct fw_address address = {.length = sizeof address.ipv4};
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = htons(port);
    address.ipv4.sin_addr.s_addr = htonl(0x0a000000U | number);
    return address;
}

/* Comes, and is told apart by a ticket of that generation. */
static struct fw_repl_greeter *come(struct fw_repl_greeters *greeters, uint8_t number,
                                    uint16_t port, uint64_t *displaced)
{
    struct fw_ticket ticket = {.generation = 0};
    bool is_displacing;
    struct fw_repl_greeter *greeter = fw_repl_greeters_take(greeters, &is_displacing, &ticket);
    *displaced = is_displacing ? ticket.generation : 0;
    if (greeter != NULL) {
        struct fw_address address = machine(number, port);
        fw_repl_greeter_settle(greeter, &address, (struct fw_ticket){.generation = port});
    }
    return greeter;
}

static void test_one_machine_displaces_its_own(void **state)
{
    (void)state;
    static struct fw_repl_greeters greeters;
    greeters = (struct fw_repl_greeters){.next_order = 0};
    struct fw_repl_greeter *places[1000];
    uint64_t displaced;
    struct fw_repl_greeter *slave = come(&greeters, 1, 999, &displaced);
    for (uint16_t i = 1; i < 900; i++) {
        places[i] = come(&greeters, 2, i, &displaced);
        assert_non_null(places[i]);
        /* The oldest of that machine, once the slave and 23 of them are there. */
        assert_int_equal(displaced, i >= FW_REPL_GREETERS_CALM ? i - FW_REPL_GREETERS_CALM + 1 : 0);
        if (displaced != 0) {
            assert_true(fw_repl_greeter_must_go(places[displaced]));
            fw_repl_greeter_leave(places[displaced]);
        }
        assert_false(fw_repl_greeter_must_go(slave));
    }
    fw_repl_greeter_leave(slave);
}

/* Those who have to go and have not gone yet: the last places are for who comes meanwhile. */
static void test_all_are_taken(void **state)
{
    (void)state;
    static struct fw_repl_greeters greeters;
    greeters = (struct fw_repl_greeters){.next_order = 0};
    uint64_t displaced;
    struct fw_repl_greeter *first = NULL;
    for (int i = 1; i <= FW_REPL_GREETERS_MAX; i++) {
        struct fw_repl_greeter *place = come(&greeters, 1, (uint16_t)i, &displaced);
        assert_non_null(place);
        assert_false(fw_repl_greeter_must_go(place));
        first = first == NULL ? place : first;
    }
    assert_true(fw_repl_greeter_must_go(first));
    assert_null(come(&greeters, 1, 100, &displaced));
    fw_repl_greeter_leave(first);
    assert_ptr_equal(come(&greeters, 1, 101, &displaced), first);
    assert_false(fw_repl_greeter_must_go(first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_machine_displaces_its_own),
        cmocka_unit_test(test_all_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
