/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway volume manager, fairway volume agent: both run until a signal ends them. They may be
 * killed too: that is what they are made for.
 *
 * An agent with --commands serves a script: it reads a line from standard input, does what it says
 * and answers with a line, and ends in an orderly way when there are no more.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/volume.h>

#include "base/thread.h"
#include "cmd/volume.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/reactor.h"
#include "io/signal.h"
#include "volume/queue.h"
#include "volume/remote.h"
#include "volume/sanlock.h"

enum { LINE_SIZE = 256, OPERATOR_S = 30 };

/* ---- until a signal ---- */

struct runner {
    struct fw_signals signals;
    bool is_over;
    bool is_closed;
};

static void on_signal(struct fw_signals *signals, int number, pid_t sender)
{
    (void)number;
    (void)sender;
    FW_CONTAINER_OF(signals, struct runner, signals)->is_over = true;
}

static void on_closed(struct fw_signals *signals)
{
    FW_CONTAINER_OF(signals, struct runner, signals)->is_closed = true;
}

static const struct fw_signal_event events[] = {{.number = SIGTERM, .received = on_signal},
                                                {.number = SIGINT, .received = on_signal}};

void fw_cmd_volume_run_prepare(void)
{
    fw_signals_block(events, FW_ARRAY_LENGTH(events));
}

int fw_cmd_volume_run(int64_t interval_ns, int (*step)(void *what, struct fw_ring_reason *),
                      void *what, struct fw_ring_reason *reason)
{
    struct fw_reactor *reactor;
    struct runner runner = {.is_over = false};
    struct fw_reason why;
    int rc = fw_reactor_create(&reactor, &why);
    if (rc == 0) {
        rc = fw_signals_open(&runner.signals, reactor, events, FW_ARRAY_LENGTH(events), &why);
        if (rc != 0) {
            fw_reactor_destroy(reactor);
        }
    }
    if (rc != 0) {
        (void)snprintf(reason->text, sizeof reason->text, "%s", why.text);
        return rc;
    }
    while (rc == 0 && !runner.is_over) {
        rc = step(what, reason);
        (void)fw_reactor_poll(reactor, rc == 0 ? interval_ns : 0);
    }
    fw_signals_close(&runner.signals, on_closed);
    while (!runner.is_closed) {
        (void)fw_reactor_poll(reactor, -1);
    }
    fw_reactor_destroy(reactor);
    return rc;
}

/* Told to whoever started it, so that a script can wait for it. */
static void tell_ready(const char *what)
{
    (void)printf("%s\n", what);
    (void)fflush(stdout);
}

static enum fw_cmd_status failed(const struct fw_cmd_volume *config,
                                 const struct fw_ring_reason *reason)
{
    return fw_cmd_fail(FW_CMD_FAILED, "%s: %s", config->path, reason->text);
}

/* ---- the manager ---- */

static int manager_step(void *what, struct fw_ring_reason *reason)
{
    return fw_volume_manager_step(what, reason);
}

/*
 * Who gives a command while no manager runs is one for a moment, as long as a slow disk makes that,
 * and holds the operators' lock meanwhile. So a group that is taken is taken by a manager only if
 * it still is while that lock is ours.
 */
static int manager_open(const struct fw_cmd_volume *config,
                        const struct fw_volume_manager_options *options,
                        struct fw_volume_manager **manager, struct fw_ring_reason *reason)
{
    int64_t deadline_ns = fw_clock_now_ns() + OPERATOR_S * (int64_t)FW_NS_PER_S;
    struct fw_file_lock lock;
    struct fw_parker parker;
    fw_parker_init(&parker);
    for (;;) {
        int rc = fw_volume_manager_open(manager, options, reason);
        if (rc != -EBUSY) {
            return rc;
        }
        int busy = fw_file_lock_take(&lock, config->path, FW_VOLUME_LOCK_OPERATOR, NULL);
        if (busy == 0) {
            rc = fw_volume_manager_open(manager, options, reason);
            fw_file_lock_release(&lock);
            return rc;
        }
        if (busy != -EBUSY || fw_clock_now_ns() >= deadline_ns) {
            return rc;
        }
        (void)fw_park_for(&parker, config->interval_ns);
    }
}

/* Sanlock's lease first, where it is wanted: who is refused has disturbed nobody. */
static int manager_take(const struct fw_cmd_volume *config,
                        const struct fw_volume_manager_options *options, int *held,
                        struct fw_volume_manager **manager, struct fw_ring_reason *reason)
{
    if (config->sanlock[0] != '\0') {
        int rc = fw_volume_sanlock_take(config->sanlock, held, fw_volume_reason(reason));
        if (rc != 0) {
            return rc;
        }
    }
    return manager_open(config, options, manager, reason);
}

enum fw_cmd_status fw_cmd_volume_manager(const struct fw_cmd_volume *config)
{
    const struct fw_volume_manager_options options = {.path = config->path,
                                                      .pool_min = config->pool_min,
                                                      .pool_max = config->pool_max,
                                                      .quiet_ns = config->quiet_ns,
                                                      .low_percent = (uint32_t)config->low};
    struct fw_volume_manager *manager;
    struct fw_ring_reason reason = {.text = ""};
    fw_cmd_volume_run_prepare();
    int held = -1;
    int rc = manager_take(config, &options, &held, &manager, &reason);
    if (rc != 0) {
        return failed(config, &reason);
    }
    tell_ready("managing");
    rc = fw_cmd_volume_run(config->interval_ns, manager_step, manager, &reason);
    if (rc == -ESHUTDOWN) { /* That is an orderly end too. */
        tell_ready(reason.text);
        rc = 0;
    }
    struct fw_ring_reason why = {.text = ""};
    int closed = fw_volume_manager_close(manager, &why);
    if (held >= 0) {
        fw_volume_sanlock_drop(held);
    }
    if (rc != 0) {
        return failed(config, &reason);
    }
    return closed == 0 ? FW_CMD_OK : failed(config, &why);
}

/* ---- the agent ---- */

static int agent_step(void *what, struct fw_ring_reason *reason)
{
    return fw_volume_agent_step(what, reason);
}

/* Steps beside the thread that reads commands. */
struct stepper {
    struct fw_thread thread;
    struct fw_parker parker;
    struct fw_volume_agent *agent;
    int64_t interval_ns;
    _Atomic bool is_over; /* Set before the parker's token, which orders it. */
};

static void stepper_run(void *argument)
{
    struct stepper *stepper = argument;
    while (!atomic_load(&stepper->is_over)) {
        struct fw_ring_reason reason;
        int rc = fw_volume_agent_step(stepper->agent, &reason);
        if (rc != 0) { /* The commands find out by themselves. */
            break;
        }
        (void)fw_park_for(&stepper->parker, stepper->interval_ns);
    }
}

struct script {
    const struct fw_cmd_volume *config;
    struct fw_volume_agent *agent;
    struct fw_volume *volume;
    struct stepper stepper;
};

/* Repeats what has to wait for the manager, as long as the options say. */
static int script_try(struct script *script,
                      int (*act)(struct fw_volume *volume, uint64_t logical, uint64_t count,
                                 struct fw_ring_reason *),
                      const uint64_t numbers[2], struct fw_ring_reason *reason)
{
    int64_t deadline_ns = fw_clock_now_ns() + script->config->wait_ns;
    struct fw_parker parker;
    fw_parker_init(&parker);
    for (;;) {
        int rc = act(script->volume, numbers[0], numbers[1], reason);
        if (rc != FW_VOLUME_WAIT || fw_clock_now_ns() >= deadline_ns) {
            return rc;
        }
        fw_unpark(&script->stepper.parker);
        (void)fw_park_for(&parker, script->config->interval_ns);
    }
}

static int script_close(struct script *script, struct fw_ring_reason *reason)
{
    int rc = 0;
    if (script->volume != NULL) {
        rc = fw_volume_close(script->volume, reason);
        script->volume = rc == FW_VOLUME_WAIT ? script->volume : NULL;
    }
    return rc;
}

static int script_open(struct script *script, const char *name, struct fw_ring_reason *reason)
{
    int rc = script_close(script, reason);
    if (rc == 0) {
        rc = fw_volume_open(&script->volume, script->agent, name, reason);
        script->volume = rc == 0 ? script->volume : NULL;
    }
    return rc;
}

static void script_map(const struct script *script)
{
    uint64_t offset;
    for (uint64_t i = 0; i < fw_volume_size(script->volume); i++) {
        if (fw_volume_lookup(script->volume, i, &offset)) {
            (void)printf("%" PRIu64 ":%" PRIu64 " ", i, offset);
        }
    }
}

static bool number_take(char **words, uint64_t *number)
{
    char *word = strsep(words, " \n");
    char *end = NULL;
    *number = word != NULL ? strtoull(word, &end, 10) : 0;
    return word != NULL && end != word && *end == '\0';
}

static void script_line(struct script *script, char *line)
{
    char *words = line;
    const char *verb = strsep(&words, " \n");
    struct fw_ring_reason reason = {.text = "open VOLUME, close, allocate N COUNT, "
                                            "discard N COUNT, map, pool"};
    uint64_t numbers[2];
    int rc = -EINVAL;
    if (strcmp(verb, "open") == 0) {
        const char *name = strsep(&words, " \n");
        rc = name != NULL ? script_open(script, name, &reason) : rc;
    } else if (strcmp(verb, "close") == 0) {
        rc = script_close(script, &reason);
    } else if (strcmp(verb, "pool") == 0) {
        (void)printf("%" PRIu64 " ", fw_volume_agent_pool(script->agent));
        rc = 0;
    } else if (strcmp(verb, "map") == 0 && script->volume != NULL) {
        script_map(script);
        rc = 0;
    } else if (script->volume != NULL && number_take(&words, &numbers[0]) &&
               number_take(&words, &numbers[1])) {
        bool allocates = strcmp(verb, "allocate") == 0;
        if (allocates || strcmp(verb, "discard") == 0) {
            rc = script_try(script, allocates ? fw_volume_allocate : fw_volume_discard, numbers,
                            &reason);
        }
    }
    if (rc == FW_VOLUME_WAIT) {
        (void)printf("wait\n");
    } else {
        (void)printf(rc == 0 ? "ok\n" : "failed: %s\n", reason.text);
    }
    (void)fflush(stdout);
}

static enum fw_cmd_status script_run(struct script *script)
{
    char line[LINE_SIZE];
    struct fw_ring_reason reason;
    struct stepper *stepper = &script->stepper;
    stepper->agent = script->agent;
    stepper->interval_ns = script->config->interval_ns;
    fw_parker_init(&stepper->parker);
    if (fw_thread_create(&stepper->thread, "volume-agent", stepper_run, stepper) != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "cannot create a thread");
    }
    tell_ready("serving");
    while (fgets(line, sizeof line, stdin) != NULL) {
        script_line(script, line);
    }
    int rc = 0;
    do {
        rc = script->volume != NULL ? fw_volume_close(script->volume, &reason) : 0;
    } while (rc == FW_VOLUME_WAIT && fw_volume_agent_step(script->agent, &reason) == 0);
    atomic_store(&stepper->is_over, true);
    fw_unpark(&stepper->parker);
    fw_thread_join(&stepper->thread);
    return FW_CMD_OK;
}

enum fw_cmd_status fw_cmd_volume_agent(const struct fw_cmd_volume *config)
{
    const struct fw_volume_agent_options options = {
        .path = config->path, .host = config->name, .full_ns = config->full_ns};
    struct fw_volume_agent *agent;
    struct fw_ring_reason reason = {.text = ""};
    if (!config->commands) {
        fw_cmd_volume_run_prepare();
    }
    int rc = fw_volume_agent_open(&agent, &options, &reason);
    if (rc != 0) {
        return failed(config, &reason);
    }
    enum fw_cmd_status status = FW_CMD_OK;
    if (config->commands) {
        struct script script = {.config = config, .agent = agent};
        status = script_run(&script);
    } else {
        tell_ready("serving");
        rc = fw_cmd_volume_run(config->interval_ns, agent_step, agent, &reason);
        if (rc == -ESHUTDOWN) { /* That is an orderly end too. */
            tell_ready(reason.text);
        } else if (rc != 0) {
            status = failed(config, &reason);
        }
    }
    fw_volume_agent_close(agent, rc == 0);
    return status;
}
