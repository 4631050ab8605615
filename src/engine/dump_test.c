/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a dump shows every fom with what it does, wherever it lives and was born, within its limit,
 * while the domain runs. Method: one fom in each state, on a clock that stands still; the dump is
 * the text to compare with. Then dumps beside foms that never rest.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fairway/engine.h>

#include "base/text.h"
#include "base/thread.h"
#include "engine/core.h"
#include "support/virtual_clock.h"

enum { FIRST = FW_PHASE_FIRST, TEXT_SIZE = 64 * 1024 };
enum { MS = 1000 * 1000 };

struct actor {
    struct fw_fom fom;
    struct fw_clink clinks[6];
};

static struct fw_domain *domain;
static struct fw_channel channels[6];
static struct fw_parker blocker;
static atomic_bool is_over;
static char output[TEXT_SIZE];

static int sink(const char *bytes, size_t length, void *context)
{
    fw_text_append(context, bytes, length);
    return 0;
}

static int sink_refuse(const char *bytes, size_t length, void *context)
{
    (void)bytes;
    (void)length;
    (void)context;
    return -EPIPE;
}

static const char *dump(uint32_t lines_max)
{
    struct fw_text text;
    fw_text_init(&text, output, sizeof output);
    assert_int_equal(fw_domain_dump(domain, lines_max, sink, &text), 0);
    assert_false(text.truncated);
    return output;
}

static void check_line(const char *line)
{
    const char *place = strstr(output, line);
    if (place == NULL) {
        print_error("no line '%s' in:\n%s", line, output);
    }
    assert_non_null(place);
}

static bool over(void)
{
    return atomic_load(&is_over);
}

/* Waits on all channels; its own deadline is seconds away. */
static enum fw_step many_tick(struct fw_fom *fom)
{
    struct actor *actor = FW_FOM_OF(fom, struct actor);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(channels); i++) {
        fw_fom_arm(fom, &actor->clinks[i], &channels[i]);
    }
    return over() ? fw_fom_finish(fom)
                  : fw_fom_wait_until(fom, FIRST, fw_fom_now(fom) + INT64_C(2500) * MS);
}

static enum fw_step one_tick(struct fw_fom *fom)
{
    fw_fom_arm(fom, &FW_FOM_OF(fom, struct actor)->clinks[0], &channels[1]);
    return over() ? fw_fom_finish(fom) : fw_fom_wait(fom, FIRST);
}

static enum fw_step block_tick(struct fw_fom *fom)
{
    if (!fw_block_enter(fom)) {
        return fw_fom_wait(fom, FIRST);
    }
    fw_park(&blocker);
    fw_unpark(&blocker); /* For the next. */
    fw_block_leave(fom);
    return fw_fom_finish(fom);
}

static enum fw_step spin_tick(struct fw_fom *fom)
{
    return over() ? fw_fom_finish(fom) : fw_fom_yield(fom, FIRST);
}

static const struct fw_phase phases[] = {{"IDLE", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};
static const struct fw_phase patient_phases[] = {{"CALM", FW_PHASE_BIT(FW_PHASE_FINISHED), true}};

#define TYPE(type_name, type_phases, type_tick)                               \
    {                                                                         \
        .name = (type_name), .size = sizeof(struct actor), .limit_count = 64, \
        .phases = (type_phases), .phase_count = 1, .tick = (type_tick),       \
    }
static const struct fw_fom_type many_type = TYPE("many", phases, many_tick);
static const struct fw_fom_type one_type = TYPE("one", phases, one_tick);
static const struct fw_fom_type calm_type = TYPE("calm", patient_phases, one_tick);
static const struct fw_fom_type block_type = TYPE("block", phases, block_tick);
static const struct fw_fom_type spin_type = TYPE("spin", phases, spin_tick);

static enum fw_step maker_tick(struct fw_fom *fom)
{
    struct fw_fom *made; /* Born here, at home in the other locality. */
    assert_int_equal(fw_fom_create(&made, domain, &calm_type, fw_domain_locality(domain, 1)), 0);
    fw_fom_start(made);
    return fw_fom_finish(fom);
}
static const struct fw_fom_type maker_type = TYPE("maker", phases, maker_tick);

static void start(const struct fw_fom_type *type, uint32_t locality)
{
    struct fw_fom *fom;
    assert_int_equal(fw_fom_create(&fom, domain, type, fw_domain_locality(domain, locality)), 0);
    fw_fom_start(fom);
}

static void begin(void)
{
    static const char *const names[] = {"zero", NULL, "two", "three", "four", "five"};
    static const struct fw_fom_type *const types[] = {&many_type,  &one_type,  &calm_type,
                                                      &block_type, &spin_type, &maker_type};
    const struct fw_domain_config config = {.locality_count = 2, .bracket_limit = 1};
    assert_int_equal(fw_domain_create(&domain, &config), 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(types); i++) {
        assert_int_equal(fw_domain_add_type(domain, types[i]), 0);
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(channels); i++) {
        fw_channel_init_shared(&channels[i], domain);
        fw_channel_set_name(&channels[i], names[i]);
    }
    fw_parker_init(&blocker);
    atomic_store(&is_over, false);
    struct fw_text text;
    fw_text_init(&text, output, sizeof output);
    assert_int_equal(fw_domain_dump(domain, 10, sink, &text), -ESHUTDOWN);
    assert_int_equal(fw_domain_start(domain), 0);
}

static void end(void)
{
    atomic_store(&is_over, true);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(channels); i++) {
        (void)fw_channel_broadcast(&channels[i]);
    }
    fw_unpark(&blocker);
    (void)fw_domain_stop(domain, INT64_MAX / 2);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(channels); i++) {
        fw_channel_fini(&channels[i]);
    }
    fw_domain_destroy(domain);
}

/* Until each of the lines is there: foms get where they go in their own time, and then stay. */
static void dump_until(const char *const *lines, size_t count)
{
    for (;;) {
        dump(100);
        size_t found = 0;
        for (size_t i = 0; i < count; i++) {
            found += strstr(output, lines[i]) != NULL;
        }
        if (found == count) {
            return;
        }
    }
}

static void test_states(void **state)
{
    (void)state;
    begin();
    static const char *const lines[] = {" many:IDLE waits", " one:IDLE waits", "core 1: fom ",
                                        " calm:CALM waits", "in a bracket",    "leave to enter"};
    start(&many_type, 0);
    start(&one_type, 0);
    start(&block_type, 0);
    dump_until(lines + 4, 1);
    start(&block_type, 0);
    start(&maker_type, 0);
    dump_until(lines, FW_ARRAY_LENGTH(lines));
    virtual_clock_advance(INT64_C(500) * MS);
    dump(100);
    /* Clinks are found from the one armed last. */
    check_line(" many:IDLE waits for 0.500 s on five, four, three, two and 2 more, or for the "
               "time, in 2.000 s\n");
    check_line(" one:IDLE waits for 0.500 s on a channel without a name, and fails in 0.500 s\n");
    check_line(" calm:CALM waits for 0.500 s on a channel without a name\n");
    check_line(" block:IDLE in a bracket for 0.500 s\n");
    check_line(" block:IDLE waits for 0.500 s for leave to enter a bracket\n");
    check_line("\n5 foms shown of 5\n");
    assert_null(strstr(output, "maker"));
    /* Only the one that the maker made is at home in the other locality, and it says so. */
    const char *other = strstr(output, "core 1: fom 1000000000001 calm");
    assert_non_null(other);
    assert_null(strstr(other + 1, "core 1"));
    dump(2);
    check_line("\n2 foms shown of 5\n");
    dump(0);
    assert_string_equal(output, "0 foms shown of 5\n");
    assert_int_equal(fw_domain_dump(domain, 10, sink_refuse, NULL), -EPIPE);
    end();
}

static void test_while_foms_run(void **state)
{
    (void)state;
    begin();
    for (uint32_t i = 0; i < 20; i++) {
        start(&spin_type, i % 2);
        start(&one_type, i % 2);
    }
    uint32_t ready = 0;
    for (int i = 0; i < 50 || ready == 0; i++) {
        const char *place = dump(100);
        while ((place = strstr(place, " spin:IDLE ready for ")) != NULL) {
            ready++;
            place++;
        }
        for (size_t j = 0; j < FW_ARRAY_LENGTH(channels); j++) {
            (void)fw_channel_broadcast(&channels[j]);
        }
    }
    end();
}

int main(void)
{
    virtual_clock_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_while_foms_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
