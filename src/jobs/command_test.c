/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: commands are answered exactly once, can be extended, replaced and timed; what they show is
 * what there is; a slow one stops neither monitor nor other commands. Ageing is exact.
 * Method: answers are kept and compared. Time is a virtual clock that the test moves.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <fairway/log.h>

#include "base/base.h"
#include "io/clock.h"
#include "jobs/answer.h"
#include "support/jobs.h"

/* The virtual clock. */
static _Atomic int64_t clock_ns = 1000000000;

static int64_t clock_now(void)
{
    return atomic_load(&clock_ns);
}
static const struct fw_clock_hooks clock_hooks = {.now_ns = clock_now, .wall_ns = clock_now};

static struct fw_jobs *jobs;
static struct fw_jobs_policy policy;

static int setup(void **state)
{
    (void)state;
    fw_jobs_policy_init(&policy);
    policy.workers = 4;
    policy.slots = 100;
    policy.review_interval_ns = 1000000;
    return 0;
}

struct answer {
    _Atomic uint32_t count;
    int status;
    char text[FW_ANSWER_LAID_OUT_SIZE];
};

static void answer_note(void *context, int status, const char *text, size_t length)
{
    struct answer *answer = context;
    answer->status = status;
    memcpy(answer->text, text, length);
    answer->text[length] = '\0';
    atomic_fetch_add(&answer->count, 1);
}

/* For many answers at once. */
static _Atomic uint32_t answers_counted;

static void answer_count(void *context, int status, const char *text, size_t length)
{
    (void)context;
    (void)status;
    (void)text;
    (void)length;
    atomic_fetch_add(&answers_counted, 1);
}

static struct answer answer;

/* Runs a command and returns its status. */
static int ask(const char *line)
{
    atomic_store(&answer.count, 0);
    assert_int_equal(fw_jobs_command(jobs, line, answer_note, &answer), 0);
    while (atomic_load(&answer.count) == 0) {
        pause_briefly();
    }
    assert_int_equal(atomic_load(&answer.count), 1);
    return answer.status;
}

/* The worker of the last command is available again some time after the answer. */
static void await_idle(void)
{
    struct fw_jobs_statistics statistics;
    do {
        fw_jobs_statistics(jobs, &statistics);
    } while (statistics.running[3] > 0);
}

#define SHOWS(word) assert_non_null(strstr(answer.text, word))

static void test_system_commands(void **state)
{
    (void)state;
    jobs = jobs_start(&policy);
    assert_int_equal(ask("status"), 0);
    SHOWS("unclaimed         0\nrefused_pool      0\nrefused_lane      0\n"
          "waited_for_slot   0\nhelped            0\nworkers           4\nworkers_active    4\n");
    await_idle();
    assert_int_equal(ask("  pools  "), 0);
    SHOWS("pool     used  size\n"
          "ready       0   100\n"
          "threads     1     4\n"); /* The command itself. */
    await_idle();
    assert_int_equal(ask("lanes"), 0);
    SHOWS("lane  name      waiting  running  slots_sum_max  workers_sum_max\n"
          "   0  services        0        0             10                1\n");
    SHOWS("   3  parts           0        1            100                4\n");
    await_idle();
    assert_int_equal(ask(" json  lanes"), 0);
    SHOWS("{\"lanes\":[{\"lane\":0,\"name\":\"services\",\"waiting\":0,\"running\":0,"
          "\"slots_sum_max\":10,\"workers_sum_max\":1},");
    assert_int_equal(ask("threads"), 0);
    SHOWS("\n     0  main     ");
    SHOWS("\n     4  worker   ");
    SHOWS("\n   500  monitor  ");
    SHOWS("\n   600  scheduler   a role  ");
    SHOWS("\n   700  dispatcher  a role  ");
    assert_int_equal(ask("settings"), 0);
    SHOWS("workers-active      4\n");
    SHOWS("lane-percent        10 20 20\n");
    assert_int_equal(ask("nonsense with arguments"), -ENOENT);
    SHOWS("no command 'nonsense'");
    assert_int_equal(ask("json nonsense"), -ENOENT);
    assert_string_equal(answer.text, "there is no command 'nonsense'; try help\n");
    assert_int_equal(ask("help"), 0);
    SHOWS("\nowner     ADDRESS: ");
    jobs_end(jobs);
}

/* J5: what a command sets is adopted at the next review. */
static void test_set(void **state)
{
    (void)state;
    jobs = jobs_start(&policy);
    assert_int_equal(ask("set timing 1"), 0);
    assert_int_equal(ask("set timing 2"), -EINVAL);
    SHOWS("timing cannot be '2'");
    assert_int_equal(ask("set timing x"), -EINVAL);
    assert_int_equal(ask("set colour 2"), -EINVAL);
    SHOWS("no setting 'colour'");
    assert_int_equal(ask("set workers-active 3"), -EINVAL);
    struct fw_jobs_policy now;
    do {
        atomic_fetch_add(&clock_ns, policy.review_interval_ns);
        pause_briefly();
        fw_jobs_policy_get(jobs, &now);
    } while (!now.timing);
    jobs_end(jobs);
}

FW_LOG_MODULE(tested);

static void test_log_level(void **state)
{
    (void)state;
    jobs = jobs_start(&policy);
    assert_int_equal(ask("log tested debug"), 0);
    assert_true(FW_LOG_IS_ON(tested, DEBUG));
    assert_int_equal(ask("log notice"), 0);
    assert_false(FW_LOG_IS_ON(tested, DEBUG));
    assert_int_equal(ask("log nobody debug"), -ENOENT);
    SHOWS("no module 'nobody'");
    assert_int_equal(ask("log tested loud"), -EINVAL);
    SHOWS("no level 'loud'");
    jobs_end(jobs);
}

/* J9: a tree of requests in all states. */
static void test_owner_tree(void **state)
{
    (void)state;
    policy.ageing = true;
    jobs = jobs_start(&policy);
    struct gate gate = {.is_open = false}, open = {.is_open = true};
    struct gated busy = {.gate = &gate}, unit[3], child = {.gate = &gate}, done = {.gate = &open};
    assert_int_equal(fw_jobs_post(jobs, &done.job, &gated_runnable, &gate, 0, FW_JOB_REJOINABLE),
                     0);
    assert_int_equal(fw_jobs_post(jobs, &busy.job, &gated_runnable, &gate, 3, FW_JOB_FEEDER), 0);
    gate_await(&gate, 1);
    while (fw_job_state(&done.job) != FW_JOB_DONE) {
        pause_briefly();
    }
    for (int i = 0; i < 3; i++) { /* Two of them run beside the feeder, one waits. */
        unit[i] = (struct gated){.gate = &gate};
        assert_int_equal(fw_jobs_post(jobs, &unit[i].job, &gated_runnable, &busy.job, 7 - i,
                                      FW_JOB_UNIT | FW_JOB_BOOST),
                         0);
    }
    gate_await(&gate, 3);
    assert_int_equal(fw_jobs_post(jobs, &child.job, &gated_runnable, &unit[2].job, 1,
                                  FW_JOB_FEEDER | FW_JOB_REJOINABLE),
                     0);
    atomic_fetch_add(&clock_ns, 4 * policy.ageing_interval_ns);
    char line[64], expected[320];
    (void)snprintf(line, sizeof line, "json owner %p", (void *)&gate);
    assert_int_equal(ask(line), 0);
    (void)snprintf(expected, sizeof expected,
                   "{\"request\":\"%p\",\"state\":\"busy\",\"owner\":\"%p\",\"lane\":1,"
                   "\"priority\":3,\"now\":3,\"inspected\":0,\"thread\":",
                   (void *)&busy.job, (void *)&gate);
    SHOWS(expected);
    (void)snprintf(expected, sizeof expected,
                   "{\"request\":\"%p\",\"state\":\"done\",\"owner\":\"%p\",\"lane\":3,"
                   "\"priority\":0,\"now\":0,\"inspected\":0,\"thread\":-1,\"rejoinable\":1,"
                   "\"boost\":0,\"cancelled\":0}",
                   (void *)&done.job, (void *)&gate);
    SHOWS(expected);
    (void)snprintf(expected, sizeof expected,
                   "{\"request\":\"%p\",\"state\":\"ready\",\"owner\":\"%p\",\"lane\":2,"
                   "\"priority\":5,\"now\":9,\"inspected\":4,\"thread\":-1,\"rejoinable\":0,"
                   "\"boost\":1,\"cancelled\":0}",
                   (void *)&unit[2].job, (void *)&busy.job);
    SHOWS(expected);
    (void)snprintf(expected, sizeof expected,
                   "{\"request\":\"%p\",\"state\":\"ready\",\"owner\":\"%p\",\"lane\":1",
                   (void *)&child.job, (void *)&unit[2].job);
    SHOWS(expected);
    assert_int_equal(ask("owner 1"), 0);
    SHOWS("no request of owner 0x1");
    assert_int_equal(ask("owner x"), -EINVAL);
    atomic_store(&gate.is_open, true);
    assert_int_equal(rejoin_all(jobs, &gate), 1);
    assert_int_equal(rejoin_all(jobs, &unit[2].job), 1);
    jobs_end(jobs);
}

/* The application's own. */
static struct gate slow;

static int run_slow(void *context, struct fw_jobs *from, const char *arguments,
                    struct fw_jobs_output *output)
{
    (void)from;
    struct gated gated = {.gate = &slow};
    gated_run(NULL, &gated.job);
    fw_jobs_print(output, "%s %s", (const char *)context, arguments);
    return 7;
}

static int run_long(void *context, struct fw_jobs *from, const char *arguments,
                    struct fw_jobs_output *output)
{
    (void)context;
    (void)from;
    (void)arguments;
    for (int i = 0; i < FW_JOBS_OUTPUT_SIZE; i++) {
        fw_jobs_print(output, "0123456789");
    }
    return 0;
}

static const struct fw_jobs_command own_commands[] = {
    {"slow", "waits for a sign", run_slow}, {"status", "instead of the system's", run_long}};
static char own_context[] = "context";
static const struct fw_jobs_handler own_handler = {
    .commands = own_commands, .count = FW_ARRAY_LENGTH(own_commands), .context = own_context};

/* J33 */
static void test_handler(void **state)
{
    (void)state;
    jobs = jobs_start(&policy);
    fw_jobs_attach_handler(jobs, &own_handler);
    atomic_store(&slow.is_open, false);
    atomic_store(&slow.arrived, 0);
    static struct answer late;
    atomic_store(&late.count, 0);
    assert_int_equal(fw_jobs_command(jobs, "slow a b", answer_note, &late), 0);
    gate_await(&slow, 1);
    /* While it blocks, others are answered and the monitor reviews. */
    assert_int_equal(ask("status"), 0);
    SHOWS("0123\n(the answer was cut here)\n");
    struct fw_jobs_statistics statistics;
    fw_jobs_statistics(jobs, &statistics);
    uint64_t before = statistics.reviews;
    while (statistics.reviews < before + 3) {
        atomic_fetch_add(&clock_ns, policy.review_interval_ns);
        pause_briefly();
        fw_jobs_statistics(jobs, &statistics);
    }
    assert_int_equal(atomic_load(&late.count), 0);
    atomic_store(&slow.is_open, true);
    while (atomic_load(&late.count) == 0) {
        pause_briefly();
    }
    assert_int_equal(late.status, 7);
    assert_string_equal(late.text, "context a b");
    assert_int_equal(ask("help"), 0);
    SHOWS("waits for a sign");
    SHOWS("instead of the system's");
    assert_null(strstr(answer.text, "what the kernel has done"));
    fw_jobs_attach_handler(jobs, NULL);
    assert_int_equal(ask("status"), 0);
    SHOWS("posted");
    jobs_end(jobs);
}

static void test_limits(void **state)
{
    (void)state;
    char line[FW_JOBS_COMMAND_SIZE + 1];
    memset(line, 'x', sizeof line);
    line[FW_JOBS_COMMAND_SIZE] = '\0';
    jobs = jobs_make(&policy);
    assert_int_equal(fw_jobs_command(jobs, line, answer_note, &answer), -EMSGSIZE);
    line[FW_JOBS_COMMAND_SIZE - 1] = '\0';
    for (int i = 0; i < FW_JOBS_COMMANDS_MAX; i++) {
        assert_int_equal(fw_jobs_command(jobs, line, answer_count, NULL), 0);
    }
    assert_int_equal(fw_jobs_command(jobs, "status", answer_note, &answer), -EAGAIN);
    assert_int_equal(fw_jobs_start(jobs, NULL), 0);
    struct fw_jobs_account account;
    assert_int_equal(fw_jobs_stop(jobs, FW_JOBS_ABANDON, &account), 0);
    assert_int_equal(atomic_load(&answers_counted), FW_JOBS_COMMANDS_MAX); /* Each exactly once. */
    assert_int_equal(account.run + account.cancelled, FW_JOBS_COMMANDS_MAX);
    assert_int_equal(fw_jobs_command(jobs, "status", answer_note, &answer), -ESHUTDOWN);
    fw_jobs_destroy(jobs);
}

/* J33: not before its time, and once per interval. */
static void test_timed(void **state)
{
    (void)state;
    static struct answer timed;
    const int64_t interval_ns = 5000000000;
    atomic_store(&timed.count, 0);
    jobs = jobs_start(&policy);
    int number = fw_jobs_command_every(jobs, "status", interval_ns, answer_note, &timed);
    assert_true(number > 0);
    struct fw_jobs_statistics statistics;
    for (uint32_t i = 1; i <= 3; i++) {
        /* The monitor has looked at this time, for it has reviewed twice since, and found nothing.
         */
        fw_jobs_statistics(jobs, &statistics);
        uint64_t before = statistics.reviews;
        atomic_fetch_add(&clock_ns, interval_ns - 10 * policy.review_interval_ns);
        for (int64_t passed = 0; passed < 9 && statistics.reviews < before + 2; passed++) {
            atomic_fetch_add(&clock_ns, policy.review_interval_ns);
            for (uint64_t seen = statistics.reviews; statistics.reviews == seen;) {
                pause_briefly();
                fw_jobs_statistics(jobs, &statistics);
            }
        }
        assert_int_equal(atomic_load(&timed.count), i - 1);
        atomic_fetch_add(&clock_ns, 10 * policy.review_interval_ns);
        while (atomic_load(&timed.count) < i) {
            pause_briefly();
        }
        assert_int_equal(timed.status, 0);
    }
    fw_jobs_command_cancel(jobs, number);
    while (atomic_load(&timed.count) < 4) { /* The last, here or when its worker has ended. */
        pause_briefly();
    }
    assert_int_equal(timed.status, -ECANCELED);
    fw_jobs_command_cancel(jobs, number); /* It is no more. */
    atomic_fetch_add(&clock_ns, 10 * interval_ns);
    assert_int_equal(ask("status"), 0);
    fw_jobs_statistics(jobs, &statistics);
    assert_int_equal(statistics.commands, 4);
    assert_int_equal(fw_jobs_command_every(jobs, "status", interval_ns, answer_note, &timed),
                     number + 1);
    timed.status = 0;
    jobs_end(jobs);
    assert_int_equal(atomic_load(&timed.count), 5);
    assert_int_equal(timed.status, -ECANCELED);
}

/* One that is cancelled while it runs answers that run, and then for the last time. */
static void test_timed_cancelled_while_it_runs(void **state)
{
    (void)state;
    static struct answer timed;
    const int64_t interval_ns = 5000000;
    atomic_store(&timed.count, 0);
    atomic_store(&slow.is_open, false);
    atomic_store(&slow.arrived, 0);
    jobs = jobs_start(&policy);
    fw_jobs_attach_handler(jobs, &own_handler);
    int number = fw_jobs_command_every(jobs, "slow", interval_ns, answer_note, &timed);
    assert_true(number > 0);
    atomic_fetch_add(&clock_ns, interval_ns);
    gate_await(&slow, 1);
    fw_jobs_command_cancel(jobs, number);
    assert_int_equal(atomic_load(&timed.count), 0);
    atomic_store(&slow.is_open, true);
    while (atomic_load(&timed.count) < 2) {
        pause_briefly();
    }
    assert_int_equal(timed.status, -ECANCELED);
    jobs_end(jobs);
    assert_int_equal(atomic_load(&timed.count), 2);
}

/* J19, J20: through the whole kernel, exactly at the difference. */
enum { BETWEEN = 6 };
static struct fw_job *order[2 + BETWEEN];
static _Atomic uint32_t order_count;

static void order_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    order[atomic_fetch_add(&order_count, 1)] = job;
}
static struct fw_job_runnable order_runnable = {.run = order_run};

static void test_ageing(void **state)
{
    (void)state;
    policy.workers = 1;
    policy.mode = 0;
    memset(policy.lane_waits_for, 0, sizeof policy.lane_waits_for);
    for (int i = 0; i < 4; i++) {
        policy.ageing = i < 2;
        int64_t intervals = i % 2 == 0 ? 10 : 9;
        jobs = jobs_start(&policy);
        struct gate gate = {.is_open = false};
        struct gated held = {.gate = &gate};
        struct fw_job low = {0}, high = {0}, between[BETWEEN] = {{0}};
        atomic_store(&order_count, 0);
        assert_int_equal(fw_jobs_post(jobs, &held.job, &gated_runnable, NULL, 0, 0), 0);
        gate_await(&gate, 1);
        assert_int_equal(fw_jobs_post(jobs, &low, &order_runnable, NULL, 0, 0), 0);
        /* Half an interval that has passed when others are posted is not forgotten. */
        for (int j = 0; j < BETWEEN; j++) {
            atomic_fetch_add(&clock_ns, 3 * policy.ageing_interval_ns / 2);
            assert_int_equal(fw_jobs_post(jobs, &between[j], &order_runnable, NULL, -100, 0), 0);
        }
        atomic_fetch_add(&clock_ns, (intervals - 3 * BETWEEN / 2) * policy.ageing_interval_ns);
        assert_int_equal(fw_jobs_post(jobs, &high, &order_runnable, NULL, 10, 0), 0);
        atomic_store(&gate.is_open, true);
        jobs_end(jobs);
        bool low_first = policy.ageing && intervals == 10;
        assert_ptr_equal(order[0], low_first ? &low : &high);
    }
}

/* J5, J33: the monitor writes the log, also while a command blocks. */
static bool log_has(const char *path, const char *words)
{
    char text[8192] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    assert_int_equal(fclose(file), 0);
    return strstr(text, words) != NULL;
}

static void test_drains_log(void **state)
{
    (void)state;
    char path[] = "/tmp/fairway-jobs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(fw_log_set_file(path), 0);
    struct fw_log_setup log_setup = {.ring_size = 65536, .rings = 16, .without_thread = true};
    assert_int_equal(fw_log_start(&log_setup), 0);
    policy.drain_log = true;
    policy.review_interval_ns = 3600000000000; /* So that the line itself wakes the monitor. */
    jobs = jobs_start(&policy);
    fw_jobs_attach_handler(jobs, &own_handler);
    atomic_store(&slow.is_open, false);
    atomic_store(&slow.arrived, 0);
    assert_int_equal(fw_jobs_command(jobs, "slow", answer_note, &answer), 0);
    gate_await(&slow, 1);
    for (int i = 0; i < 3; i++) {
        char words[32];
        (void)snprintf(words, sizeof words, "line %d of three", i);
        FW_LOG(tested, ERROR, "line %d of three", i);
        while (!log_has(path, words)) {
            pause_briefly();
        }
    }
    atomic_store(&slow.is_open, true);
    FW_LOG(tested, ERROR, "at the end");
    jobs_end(jobs);
    assert_true(log_has(path, "at the end"));
    fw_log_stop();
    assert_int_equal(fw_log_set_file(NULL), 0);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    fw_clock_hooks = &clock_hooks;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_system_commands, setup),
        cmocka_unit_test_setup(test_set, setup),
        cmocka_unit_test_setup(test_log_level, setup),
        cmocka_unit_test_setup(test_owner_tree, setup),
        cmocka_unit_test_setup(test_handler, setup),
        cmocka_unit_test_setup(test_limits, setup),
        cmocka_unit_test_setup(test_timed, setup),
        cmocka_unit_test_setup(test_timed_cancelled_while_it_runs, setup),
        cmocka_unit_test_setup(test_ageing, setup),
        cmocka_unit_test_setup(test_drains_log, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
