/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a set of tenants keeps names and dues, refuses what it should and then changes nothing,
 * holds as many as it says, and adds up the figures of all heads, also of those that are gone.
 * Heads that share one serve by weight together, also from several threads.
 * Method: configurations good and bad; two or four heads, on one thread by turns of the test's
 * choosing, then on threads of their own.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <fairway/sched.h>

#include "base/base.h"
#include "base/thread.h"
#include "sched/tenant_metrics.h"
#include "sched/tenants.h"
#include "support/fail_memory.h"

enum { HEADS = 4, EACH = 8, ROUNDS = 20000 };

static struct fw_tenants *tenants;

static int setup(void **state)
{
    (void)state;
    return fw_tenants_create(&tenants);
}

static int teardown(void **state)
{
    (void)state;
    fw_tenants_destroy(tenants);
    return 0;
}

static struct fw_tenant_config dues(uint32_t tenant)
{
    struct fw_tenant_config config;
    fw_tenants_read(tenants, tenant, &config, NULL);
    return config;
}

static void test_configure(void **state)
{
    (void)state;
    assert_int_equal(fw_tenants_count(tenants), 1);
    assert_string_equal(fw_tenants_name(tenants, 0), "default");
    assert_int_equal(fw_tenants_find(tenants, "default"), 0);
    assert_int_equal(fw_tenants_find(tenants, "web"), -ENOENT);
    assert_int_equal(dues(0).weight, 1);
    char name[] = "web";
    const struct fw_tenant_config first[] = {
        {.name = name, .weight = 3, .rate = 10, .burst = 5, .delay_max_ns = 7},
        {.name = "batch", .weight = 2, .cluster_rate = 9},
    };
    assert_int_equal(fw_tenants_configure(tenants, first, 2), 0);
    name[0] = 'X'; /* It was copied. */
    assert_int_equal(fw_tenants_count(tenants), 3);
    assert_int_equal(fw_tenants_find(tenants, "web"), 1);
    assert_int_equal(fw_tenants_find(tenants, "batch"), 2);
    struct fw_tenant_config config = dues(1);
    assert_string_equal(config.name, "web");
    assert_int_equal(config.weight, 3);
    assert_int_equal(config.rate, 10);
    assert_int_equal(config.burst, 5);
    assert_int_equal(config.delay_max_ns, 7);
    assert_int_equal(dues(2).cluster_rate, 9);
    /* Numbers stay; who is not named has the default's dues. */
    const struct fw_tenant_config second[] = {
        {.name = "new", .weight = 4},
        {.name = "default", .weight = 6, .rate = 100},
        {.name = "batch", .weight = 5},
    };
    assert_int_equal(fw_tenants_configure(tenants, second, 3), 0);
    assert_int_equal(fw_tenants_count(tenants), 4);
    assert_int_equal(dues(0).weight, 6);
    assert_int_equal(dues(1).weight, 6);
    assert_int_equal(dues(1).rate, 100);
    assert_string_equal(dues(1).name, "web");
    assert_int_equal(dues(2).weight, 5);
    assert_int_equal(fw_tenants_find(tenants, "new"), 3);
    assert_int_equal(fw_tenants_configure(tenants, NULL, 0), 0);
    assert_int_equal(dues(0).weight, 1);
    assert_int_equal(dues(3).weight, 1);
}

/* What is refused leaves no trace, not even the names that came before the mistake. */
static void test_refused(void **state)
{
    (void)state;
    char long_name[FW_SCHED_NAME_MAX + 2];
    memset(long_name, 'x', sizeof long_name);
    long_name[FW_SCHED_NAME_MAX + 1] = 0;
    const struct fw_tenant_config bad[] = {
        {.name = "", .weight = 1},
        {.name = NULL, .weight = 1},
        {.name = long_name, .weight = 1},
        {.name = "y", .weight = 0},
        {.name = "y", .weight = FW_SCHED_WEIGHT_MAX + 1},
        {.name = "y", .weight = 1, .rate = FW_SCHED_RATE_MAX + 1},
        {.name = "y", .weight = 1, .cluster_rate = FW_SCHED_RATE_MAX + 1},
        {.name = "y", .weight = 1, .burst = FW_SCHED_RATE_MAX + 1},
        {.name = "y", .weight = 1, .delay_max_ns = -1},
        {.name = "a", .weight = 1},
    };
    const struct fw_tenant_config old = {.name = "old", .weight = 8};
    assert_int_equal(fw_tenants_configure(tenants, &old, 1), 0);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(bad); i++) {
        const struct fw_tenant_config configs[] = {
            {.name = "old", .weight = 9}, {.name = "a", .weight = 1}, bad[i]};
        assert_int_equal(fw_tenants_configure(tenants, configs, 3), -EINVAL);
        assert_int_equal(fw_tenants_count(tenants), 2);
        assert_int_equal(fw_tenants_find(tenants, "a"), -ENOENT);
        assert_int_equal(dues(1).weight, 8);
    }
    const struct fw_tenant_config good[] = {
        {.name = "a", .weight = FW_SCHED_WEIGHT_MAX, .rate = FW_SCHED_RATE_MAX},
        {.name = &long_name[1], .weight = 1}};
    assert_int_equal(fw_tenants_configure(tenants, good, 2), 0);
    assert_int_equal(fw_tenants_find(tenants, "a"), 2);
    assert_int_equal(fw_tenants_find(tenants, &long_name[1]), 3);
}

/* As many as there may be, and one more is refused as a whole. */
static void test_many(void **state)
{
    (void)state;
    static struct fw_tenant_config configs[FW_SCHED_TENANTS_MAX];
    static char names[FW_SCHED_TENANTS_MAX][16];
    for (uint32_t i = 0; i < FW_SCHED_TENANTS_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "tenant%u", i);
        configs[i] = (struct fw_tenant_config){.name = names[i], .weight = 1 + i % 100};
    }
    assert_int_equal(fw_tenants_configure(tenants, configs, FW_SCHED_TENANTS_MAX), -ENOSPC);
    assert_int_equal(fw_tenants_count(tenants), 1);
    for (uint32_t i = 0; i < FW_SCHED_TENANTS_MAX; i++) {
        assert_int_equal(fw_tenants_find(tenants, names[i]), -ENOENT);
    }
    assert_int_equal(fw_tenants_configure(tenants, configs, FW_SCHED_TENANTS_MAX - 1), 0);
    assert_int_equal(fw_tenants_count(tenants), FW_SCHED_TENANTS_MAX);
    for (uint32_t i = 0; i < FW_SCHED_TENANTS_MAX - 1; i++) {
        assert_int_equal(fw_tenants_find(tenants, names[i]), i + 1);
        assert_int_equal(dues(i + 1).weight, 1 + i % 100);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    for (int good = 0;; good++) {
        struct fw_tenants *made = NULL;
        fail_memory_after(good);
        int rc = fw_tenants_create(&made);
        if (rc == 0) {
            assert_true(good > 4);
            fw_tenants_destroy(made);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
    }
    for (int good = 0;; good++) {
        struct fw_sched sched;
        fail_memory_after(good);
        int rc = fw_sched_init(&sched, &(struct fw_sched_config){.policy = FW_SCHED_WFQ});
        if (rc == 0) {
            assert_true(good > 8);
            fw_sched_fini(&sched);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
    }
    fail_memory_after(1 << 30);
}

/* ---- buckets ------------------------------------------------------------------------------- */

/* Tokens are what the clock put in, up to the burst; whoever finds one may take more. */
static void test_bucket(void **state)
{
    (void)state;
    const struct fw_tenant_config config = {
        .name = "default", .weight = 1, .rate = 1000, .burst = 4};
    assert_int_equal(fw_tenants_configure(tenants, &config, 1), 0);
    struct fw_tenant *tenant = &tenants->of[0];
    int64_t now_ns = 5000000000;
    int64_t again_ns;
    for (int i = 0; i < 4; i++) {
        assert_true(fw_tenant_take(tenant, 1000, 1, now_ns, &again_ns));
    }
    assert_false(fw_tenant_take(tenant, 1000, 1, now_ns, &again_ns));
    assert_int_equal(again_ns, now_ns + 1000001);
    assert_false(fw_tenant_take(tenant, 1000, 1, now_ns + 999999, &again_ns));
    assert_true(fw_tenant_take(tenant, 1000, 10, now_ns + 1000000, &again_ns));
    assert_false(fw_tenant_take(tenant, 1000, 1, now_ns + 10999999, &again_ns));
    fw_tenant_correct(tenant, fw_tenant_ticks(3, 1000));
    assert_false(fw_tenant_take(tenant, 1000, 1, now_ns + 13999999, &again_ns));
    fw_tenant_correct(tenant, -fw_tenant_ticks(3, 1000));
    assert_true(fw_tenant_take(tenant, 1000, 1, now_ns + 11000000, &again_ns));
    /* The largest debt there can be does not run over. */
    assert_true(fw_tenant_take(tenant, 1000, UINT32_MAX, now_ns + 20000000, &again_ns));
    for (int i = 0; i < 10; i++) {
        fw_tenant_correct(tenant, fw_tenant_ticks(UINT32_MAX, 1));
    }
    assert_false(fw_tenant_take(tenant, 1000, 1, now_ns + 30000000, &again_ns));
    assert_true(again_ns > now_ns);
}

/* ---- heads --------------------------------------------------------------------------------- */

struct head {
    struct fw_sched sched;
    struct fw_sched_getter getter;
    struct fw_sched_request requests[EACH];
    struct fw_sched_request *got;
    uint64_t had[3]; /* By tenant. */
    uint32_t first_client;
};

static struct head heads[HEADS];

static int head_ready(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    FW_CONTAINER_OF(getter, struct head, getter)->got = request;
    return 0;
}

/* Every request of tenants 1 and 2 by turns, or of tenant 1 alone. */
static void head_start(struct head *head, bool has_both)
{
    *head =
        (struct head){.getter.ready = head_ready, .first_client = (uint32_t)(head - heads) * EACH};
    int rc = fw_sched_init(&head->sched,
                           &(struct fw_sched_config){.policy = FW_SCHED_WFQ, .tenants = tenants});
    assert_int_equal(rc, 0);
    for (uint32_t i = 0; i < EACH; i++) {
        head->requests[i].class = (struct fw_sched_class){.tenant = has_both ? 1 + i % 2 : 1,
                                                          .client = head->first_client + i,
                                                          .cost = 1 + i % 3};
        fw_sched_incoming(&head->sched, &head->requests[i]);
    }
}

static void head_serve(struct head *head)
{
    fw_sched_get_next(&head->sched, &head->getter);
    head->had[head->got->class.tenant] += head->got->class.cost;
    fw_sched_incoming(&head->sched, head->got);
}

static void head_stop(struct head *head)
{
    for (uint32_t i = 0; i < EACH; i++) {
        fw_sched_cancel(&head->sched, &head->requests[i]);
    }
    fw_sched_shutdown(&head->sched);
    fw_sched_fini(&head->sched);
}

static void weights_set(uint64_t one, uint64_t two)
{
    const struct fw_tenant_config configs[] = {{.name = "one", .weight = one},
                                               {.name = "two", .weight = two}};
    assert_int_equal(fw_tenants_configure(tenants, configs, 2), 0);
}

/* Both tenants wait at both heads: together they get their shares, not at each head by itself. */
static void test_shares_over_heads(void **state)
{
    (void)state;
    weights_set(1, 3);
    head_start(&heads[0], true);
    head_start(&heads[1], true);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        head_serve(&heads[0]);
        if (i % 3 == 0) { /* One head is faster. */
            head_serve(&heads[1]);
        }
    }
    uint64_t one = heads[0].had[1] + heads[1].had[1];
    uint64_t two = heads[0].had[2] + heads[1].had[2];
    assert_in_range(one * 3 + 200 - two, 0, 400);
    head_stop(&heads[0]);
    head_stop(&heads[1]);
}

/*
 * The same where the system lets one thread run for a while and then the other: what a head finds
 * that the other has given is more than is held against anybody, and is cut by the same for both.
 */
static void test_shares_over_slices(void **state)
{
    (void)state;
    enum { SLICE = 4000, SLICES = 40 };
    weights_set(1, 3);
    head_start(&heads[0], true);
    head_start(&heads[1], true);
    for (uint32_t i = 0; i < SLICES; i++) {
        for (uint32_t j = 0; j < SLICE; j++) {
            head_serve(&heads[i % 2]);
        }
    }
    uint64_t one = heads[0].had[1] + heads[1].had[1];
    uint64_t two = heads[0].had[2] + heads[1].had[2];
    assert_in_range(two * 100 / one, 295, 305);
    head_stop(&heads[0]);
    head_stop(&heads[1]);
}

/*
 * Of equal weight, but one of them waits at a second head too, where it is alone. Where that head
 * gives it as much as the first gives in all, the first is the other's; where it gives less, the
 * first makes up for it.
 */
static void test_share_elsewhere(void **state)
{
    (void)state;
    for (uint32_t speed = 1; speed <= 3; speed++) {
        weights_set(1, 1);
        head_start(&heads[0], true);
        head_start(&heads[1], false);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            head_serve(&heads[0]);
            if (i % 3 < speed) {
                head_serve(&heads[1]);
            }
        }
        uint64_t one = heads[0].had[1] + heads[1].had[1];
        assert_in_range(one + 200 - heads[0].had[2], 0, 400);
        head_stop(&heads[0]);
        head_stop(&heads[1]);
    }
}

/* Who has more than its share elsewhere gets a little here too: it does not starve. */
static void test_more_than_its_share_elsewhere(void **state)
{
    (void)state;
    weights_set(1, 1);
    head_start(&heads[0], true);
    head_start(&heads[1], false);
    uint64_t since = 0; /* Units that the other had since it had one. */
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t before = heads[0].had[1];
        head_serve(&heads[0]);
        since = heads[0].had[1] == before ? since + heads[0].got->class.cost : 0;
        assert_true(since <= FW_SCHED_ELSEWHERE_MAX + 10);
        for (uint32_t j = 0; j < 5; j++) {
            head_serve(&heads[1]);
        }
    }
    assert_true(heads[0].had[1] < heads[0].had[2] / 200);
    head_stop(&heads[0]);
    head_stop(&heads[1]);
}

/*
 * A tenant had a head for itself for long. Where it comes to wait beside others it is held back for
 * no more than FW_SCHED_ELSEWHERE_MAX units of that, and they share alike from then on.
 */
static void test_past_elsewhere_is_bounded(void **state)
{
    (void)state;
    weights_set(1, 1);
    head_start(&heads[1], false);
    for (uint32_t i = 0; i < 10 * ROUNDS; i++) {
        head_serve(&heads[1]);
    }
    head_start(&heads[0], true);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        head_serve(&heads[0]);
    }
    assert_true(heads[0].had[2] - heads[0].had[1] <= FW_SCHED_ELSEWHERE_MAX + 10);
    head_stop(&heads[0]);
    head_stop(&heads[1]);
}

/* Figures are the sum of all heads, and stay when heads go. */
static void test_figures_of_heads(void **state)
{
    (void)state;
    struct fw_tenant_figures figures;
    weights_set(1, 1);
    head_start(&heads[0], true);
    head_start(&heads[1], true);
    for (uint32_t i = 0; i < 100; i++) {
        head_serve(&heads[0]);
        head_serve(&heads[1]);
    }
    uint64_t cost = heads[0].had[1] + heads[1].had[1];
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.cost, cost);
    assert_int_equal(figures.waiting, EACH);
    uint64_t served = figures.served;
    head_stop(&heads[0]);
    head_stop(&heads[1]);
    fw_tenants_read(tenants, 1, NULL, &figures);
    assert_int_equal(figures.cost, cost);
    assert_int_equal(figures.served, served);
    assert_int_equal(figures.waiting, 0);
    fw_tenants_read(tenants, 2, NULL, &figures);
    assert_int_equal(figures.served + served, 200);
}

/* ---- threads ------------------------------------------------------------------------------- */

static void head_run(void *argument)
{
    struct head *head = argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        head_serve(head);
        fw_sched_charge(&head->sched, head->got, 2);
    }
}

/*
 * Heads on threads of their own, while another configures and reads: nothing is torn, and what was
 * served is what was counted. Shares are not judged: that is for who decides which thread runs.
 */
static void test_threads(void **state)
{
    (void)state;
    struct fw_thread threads[HEADS];
    struct fw_tenant_figures figures[2];
    weights_set(1, 3);
    for (uint32_t i = 0; i < HEADS; i++) {
        head_start(&heads[i], true);
    }
    for (uint32_t i = 0; i < HEADS; i++) {
        assert_int_equal(fw_thread_create(&threads[i], "head", head_run, &heads[i]), 0);
    }
    for (uint32_t i = 0; i < 200; i++) {
        weights_set(1 + i % 3, 3);
        fw_tenants_read(tenants, 1, NULL, &figures[0]);
        assert_true(figures[0].served <= (uint64_t)HEADS * ROUNDS);
    }
    for (uint32_t i = 0; i < HEADS; i++) {
        fw_thread_join(&threads[i]);
    }
    for (uint32_t i = 0; i < HEADS; i++) {
        head_stop(&heads[i]);
    }
    fw_tenants_read(tenants, 1, NULL, &figures[0]);
    fw_tenants_read(tenants, 2, NULL, &figures[1]);
    assert_int_equal(figures[0].served + figures[1].served, HEADS * ROUNDS);
    assert_int_equal(figures[0].cost + figures[1].cost, 2 * HEADS * ROUNDS);
}

/* What the registry tells of one tenant. */
struct told {
    const char *tenant;
    uint32_t count;
    uint64_t served, cost, delayed;
    int64_t waiting, share;
    uint64_t delays, delay_max;
};

static void told_note(const struct fw_metric_value *value, void *context)
{
    struct told *told = context;
    if (strcmp(value->label, told->tenant) != 0) {
        return;
    }
    assert_string_equal(value->label_name, "tenant");
    told->count++;
    const char *name = value->name + strlen("sched_tenant_");
    if (strcmp(name, "served") == 0) {
        told->served = value->counter;
    } else if (strcmp(name, "cost") == 0) {
        told->cost = value->counter;
    } else if (strcmp(name, "delayed") == 0) {
        told->delayed = value->counter;
    } else if (strcmp(name, "waiting") == 0) {
        told->waiting = value->gauge;
    } else if (strcmp(name, "share") == 0) {
        told->share = value->gauge;
    } else if (strcmp(name, "delay") == 0) {
        told->delays = fw_histogram_count(value->histogram);
        told->delay_max = fw_histogram_max(value->histogram);
    }
}

static int64_t metrics_now_ns;

static int64_t metrics_now(struct fw_sched *sched)
{
    (void)sched;
    return metrics_now_ns;
}

static int take(struct fw_sched_getter *getter, struct fw_sched_request *request)
{
    (void)getter;
    (void)request;
    return 0;
}

/* Two of three requests are served, the second after 1,000 ns. */
static void test_metrics(void **state)
{
    (void)state;
    static struct fw_tenant_metrics collected;
    static struct fw_metrics metrics;
    struct fw_sched head;
    struct fw_sched_getter getter = {.ready = take};
    struct fw_sched_request requests[3] = {0};
    assert_int_equal(
        fw_tenants_configure(tenants, &(struct fw_tenant_config){.name = "web", .weight = 1}, 1),
        0);
    fw_metrics_init(&metrics);
    fw_tenant_metrics_begin(&collected, &metrics, tenants);
    metrics_now_ns = 5000;
    assert_int_equal(fw_sched_init(&head, &(struct fw_sched_config){.policy = FW_SCHED_WFQ,
                                                                    .tenants = tenants,
                                                                    .now = metrics_now}),
                     0);
    fw_sched_get_next(&head, &getter);
    for (uint32_t i = 0; i < 3; i++) {
        requests[i].class = (struct fw_sched_class){.tenant = 1, .client = i, .cost = 3};
        fw_sched_incoming(&head, &requests[i]);
    }
    metrics_now_ns += 1000;
    fw_sched_get_next(&head, &getter);
    struct told web = {.tenant = "web"};
    fw_metrics_visit(&metrics, told_note, &web);
    assert_int_equal(web.count, 9);
    assert_int_equal(web.served, 2);
    assert_int_equal(web.cost, 6);
    assert_int_equal(web.delayed, 1);
    assert_int_equal(web.waiting, 1);
    assert_int_equal(web.share, 1000000);
    assert_int_equal(web.delays, 2);
    assert_int_equal(web.delay_max, 1023);
    struct told rest = {.tenant = "default"};
    fw_metrics_visit(&metrics, told_note, &rest);
    assert_int_equal(rest.count, 9);
    assert_int_equal(rest.served + rest.cost + rest.delays, 0);
    fw_sched_cancel(&head, &requests[2]);
    fw_sched_fini(&head);
    fw_tenant_metrics_end(&collected);
    fw_metrics_fini(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_configure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test_setup_teardown(test_bucket, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shares_over_heads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shares_over_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_share_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_than_its_share_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_past_elsewhere_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_figures_of_heads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
