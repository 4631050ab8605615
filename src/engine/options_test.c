/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every option of the engine reaches the domain, defaults are the domain's own, and what
 * contradicts itself is refused. Method: command lines in, a domain's configuration out.
 */
#include "engine/options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/core.h"
#include "io/clock.h"

/* Parses, and configures `domain`. Returns what the first to refuse it said. */
static int parse(int count, const char *const *arguments, struct fw_domain_config *domain,
                 struct fw_reason *reason)
{
    struct fw_engine_config config;
    const struct fw_option_table table = {.module = "engine",
                                          .options = fw_engine_options,
                                          .count = fw_engine_options_count,
                                          .config = &config};
    struct fw_options options;
    assert_int_equal(fw_options_init(&options, &table, 1, reason), 0);
    int rc = fw_options_parse_arguments(&options, count, (char *const *)(uintptr_t)arguments, NULL,
                                        reason);
    if (rc == 0) {
        rc = fw_engine_configure(&config, domain, reason);
    }
    fw_options_fini(&options);
    return rc;
}

static void test_defaults(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_domain_config options = {.locality_count = 7};
    assert_int_equal(parse(0, NULL, &options, &reason), 0);
    assert_int_equal(options.locality_count, 0);
    assert_false(options.is_pinned);
    assert_int_equal(options.balance, FW_BALANCE_OFF);
    /* A domain that is told nothing comes to the same numbers. */
    struct fw_domain *domain;
    assert_int_equal(fw_domain_create(&domain, &(struct fw_domain_config){.locality_count = 1}), 0);
    assert_int_equal(options.cores_per_locality, domain->config.cores_per_locality);
    assert_int_equal(options.bracket_limit, domain->config.bracket_limit);
    assert_int_equal(options.spare_limit, domain->config.spare_limit);
    assert_int_equal(options.wait_min_ns, domain->config.wait_min_ns);
    assert_int_equal(options.wait_max_ns, domain->config.wait_max_ns);
    assert_int_equal(options.stall_ns, domain->config.stall_ns);
    fw_domain_destroy(domain);
}

static void test_all(void **state)
{
    (void)state;
    static const char *const arguments[] = {
        "--engine-localities=3",     "--engine-cores-per-locality=2", "--engine-pin",
        "--engine-bracket-limit=17", "--engine-spare-limit=5",        "--engine-wait-min=20ms",
        "--engine-wait-max=3s",      "--engine-stall=40ms",           "--engine-balance=cores",
    };
    struct fw_reason reason;
    int context;
    struct fw_domain_config domain = {.stalled_context = &context};
    assert_int_equal(parse(FW_ARRAY_LENGTH(arguments), arguments, &domain, &reason), 0);
    assert_int_equal(domain.locality_count, 3);
    assert_int_equal(domain.cores_per_locality, 2);
    assert_true(domain.is_pinned);
    assert_int_equal(domain.bracket_limit, 17);
    assert_int_equal(domain.spare_limit, 5);
    assert_int_equal(domain.wait_min_ns, 20 * FW_NS_PER_MS);
    assert_int_equal(domain.wait_max_ns, 3 * (int64_t)FW_NS_PER_S);
    assert_int_equal(domain.stall_ns, 40 * FW_NS_PER_MS);
    assert_int_equal(domain.balance, FW_BALANCE_CORES);
    assert_ptr_equal(domain.stalled_context, &context);
}

static void check_refused(const char *one, const char *two, const char *word)
{
    const char *const arguments[] = {one, two};
    struct fw_reason reason;
    struct fw_domain_config domain = {.locality_count = 7};
    assert_int_equal(parse(2, arguments, &domain, &reason), -EINVAL);
    assert_non_null(strstr(reason.text, word));
    assert_int_equal(domain.locality_count, 7);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("--engine-localities=100", "--engine-cores-per-locality=3", "at most 256");
    check_refused("--engine-wait-min=2s", "--engine-wait-max=1s", "wait-max");
    check_refused("--engine-bracket-limit=0", "--engine-pin", "bracket-limit");
    check_refused("--engine-balance=all", "--engine-pin", "balance");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
