/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands: taken in as text, run as requests, once or at intervals.
 *
 *     FREE --command()--> UNDER WAY --answered--> FREE
 *          --every()--> TIMED <--answered, due--> UNDER WAY
 */
#include "jobs/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/base.h"
#include "io/clock.h"
#include "jobs/answer.h"
#include "jobs/kernel.h"

struct command_slot {
    struct fw_job job;
    struct fw_jobs *jobs;
    char line[FW_JOBS_COMMAND_SIZE];
    fw_jobs_answer *answer;
    void *context;
    bool used;
    bool under_way;
    bool is_timed;
    int64_t interval_ns; /* 0: not timed, or no longer. */
    int64_t due_ns;
    int number;
};

/* Whom to tell, once no lock is held. */
struct listener {
    fw_jobs_answer *answer; /* NULL: nobody. */
    void *context;
};

struct fw_jobs_commands {
    struct fw_mutex lock; /* FW_RANK_JOBS_COMMANDS; guards all below but `count`. */
    bool stopped;
    int last_number;
    struct command_slot slots[FW_JOBS_COMMANDS_MAX];
    struct fw_job_runnable runnable;
    _Atomic(const struct fw_jobs_handler *) handler; /* Release by attach, acquire by lookups. */
    _Atomic uint64_t count;                          /* Relaxed: a statistic. */
};

static const struct fw_jobs_command *find_in(const struct fw_jobs_command *commands, size_t count,
                                             const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(commands[i].name) == length && memcmp(commands[i].name, name, length) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static void help_row(struct fw_jobs_output *output, const struct fw_jobs_command *command)
{
    fw_jobs_row(output, "commands");
    fw_jobs_text(output, "command", "%s", command->name);
    fw_jobs_text(output, "help", "%s", command->help);
}

static void print_help(struct fw_jobs_output *output, const struct fw_jobs_handler *handler)
{
    for (size_t i = 0; handler != NULL && i < handler->count; i++) {
        help_row(output, &handler->commands[i]);
    }
    for (size_t i = 0; i < fw_jobs_system_commands_count; i++) {
        const struct fw_jobs_command *command = &fw_jobs_system_commands[i];
        if (handler == NULL || find_in(handler->commands, handler->count, command->name,
                                       strlen(command->name)) == NULL) {
            help_row(output, command);
        }
    }
}

/* Cuts the line into name and arguments and runs what the name means. */
static int command_execute(struct fw_jobs *jobs, const char *line, struct fw_jobs_output *output)
{
    const struct fw_jobs_handler *handler =
        atomic_load_explicit(&jobs->commands->handler, memory_order_acquire);
    const char *name = line;
    size_t length = strcspn(name, " ");
    char arguments[FW_JOBS_COMMAND_SIZE];
    struct fw_text rest;
    fw_text_init(&rest, arguments, sizeof arguments);
    const char *begin = name + length;
    begin += strspn(begin, " ");
    size_t end = strlen(begin);
    while (end > 0 && begin[end - 1] == ' ') {
        end--;
    }
    fw_text_append(&rest, begin, end);

    const struct fw_jobs_command *command = NULL;
    void *context = NULL;
    if (handler != NULL) {
        command = find_in(handler->commands, handler->count, name, length);
        context = handler->context;
    }
    if (command == NULL) {
        command = find_in(fw_jobs_system_commands, fw_jobs_system_commands_count, name, length);
        context = NULL;
    }
    if (command != NULL) {
        return command->run(context, jobs, arguments, output);
    }
    if (length == 4 && memcmp(name, "help", 4) == 0) {
        print_help(output, handler);
        return 0;
    }
    fw_jobs_print(output, "there is no command '%.*s'; try help\n", length < 40 ? (int)length : 40,
                  name);
    return -ENOENT;
}

/* Skips spaces, and the word that asks for JSON if it is there. */
static const char *line_begin(const char *line, bool *is_json)
{
    static const char json[] = "json ";
    line += strspn(line, " ");
    *is_json = strncmp(line, json, sizeof json - 1) == 0;
    if (*is_json) {
        line += sizeof json - 1;
        line += strspn(line, " ");
    }
    return line;
}

static void command_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct command_slot *slot = FW_CONTAINER_OF(job, struct command_slot, job);
    struct fw_jobs_commands *commands = slot->jobs->commands;
    /* Large, but only what is written to becomes real. */
    char *memory = malloc(FW_JOBS_OUTPUT_SIZE + FW_ANSWER_LAID_OUT_SIZE);
    if (memory == NULL) {
        slot->answer(slot->context, -ENOMEM, "", 0);
        return;
    }
    struct fw_jobs_output output;
    struct fw_text text;
    bool is_json;
    const char *line = line_begin(slot->line, &is_json);
    fw_answer_init(&output, memory);
    int status = command_execute(slot->jobs, line, &output);
    atomic_fetch_add_explicit(&commands->count, 1, memory_order_relaxed);
    fw_text_init(&text, memory + FW_JOBS_OUTPUT_SIZE, FW_ANSWER_LAID_OUT_SIZE);
    if (is_json && status >= 0) {
        fw_answer_json(&output, &text);
    } else {
        fw_answer_people(&output, &text); /* Why it failed is a line for a person. */
    }
    slot->answer(slot->context, status, text.data, text.length);
    free(memory);
}

/* The slot is free. Returns whom to tell that no answer follows; a timed command's is its last. */
static struct listener slot_release(struct command_slot *slot)
{
    slot->used = false;
    return (struct listener){.answer = slot->answer, .context = slot->context};
}

static void listener_tell(struct listener listener)
{
    if (listener.answer != NULL) {
        listener.answer(listener.context, -ECANCELED, "", 0);
    }
}

static void command_completed(struct fw_job_runnable *runnable, struct fw_job *job)
{
    struct command_slot *slot = FW_CONTAINER_OF(job, struct command_slot, job);
    struct fw_jobs_commands *commands =
        FW_CONTAINER_OF(runnable, struct fw_jobs_commands, runnable);
    struct listener listener = {.answer = NULL};
    fw_mutex_lock(&commands->lock);
    slot->under_way = false;
    if (!slot->is_timed && !fw_job_was_cancelled(job)) {
        slot->used = false;
    } else if (slot->interval_ns == 0) {
        listener = slot_release(slot);
    }
    fw_mutex_unlock(&commands->lock);
    listener_tell(listener);
}

int fw_jobs_commands_create(struct fw_jobs *jobs)
{
    struct fw_jobs_commands *commands = calloc(1, sizeof *commands);
    if (commands == NULL) {
        return -ENOMEM;
    }
    fw_mutex_init(&commands->lock, FW_RANK_JOBS_COMMANDS);
    commands->runnable =
        (struct fw_job_runnable){.run = command_run, .completed = command_completed};
    jobs->commands = commands;
    return 0;
}

void fw_jobs_commands_destroy(struct fw_jobs *jobs)
{
    fw_mutex_fini(&jobs->commands->lock);
    free(jobs->commands);
    jobs->commands = NULL;
}

uint64_t fw_jobs_commands_count(struct fw_jobs *jobs)
{
    return atomic_load_explicit(&jobs->commands->count, memory_order_relaxed);
}

void fw_jobs_attach_handler(struct fw_jobs *jobs, const struct fw_jobs_handler *handler)
{
    atomic_store_explicit(&jobs->commands->handler, handler, memory_order_release);
}

static int slot_post(struct fw_jobs *jobs, struct command_slot *slot)
    FW_REQUIRES(jobs->commands->lock);
static int slot_post(struct fw_jobs *jobs, struct command_slot *slot)
{
    slot->under_way = true;
    int rc = fw_jobs_post(jobs, &slot->job, &jobs->commands->runnable, jobs->commands, INT32_MAX,
                          FW_JOB_PART);
    slot->under_way = rc == 0;
    return rc == -EBUSY ? -EAGAIN : rc;
}

/* Takes a slot for the line. Returns 0 or why not. */
static int slot_take(struct fw_jobs *jobs, const char *line, fw_jobs_answer *answer, void *context,
                     struct command_slot **slot_out) FW_REQUIRES(jobs->commands->lock);
static int slot_take(struct fw_jobs *jobs, const char *line, fw_jobs_answer *answer, void *context,
                     struct command_slot **slot_out)
{
    struct fw_jobs_commands *commands = jobs->commands;
    if (commands->stopped) {
        return -ESHUTDOWN;
    }
    size_t length = strlen(line);
    if (length >= FW_JOBS_COMMAND_SIZE) {
        return -EMSGSIZE;
    }
    for (size_t i = 0; i < FW_JOBS_COMMANDS_MAX; i++) {
        struct command_slot *slot = &commands->slots[i];
        if (!slot->used) {
            *slot = (struct command_slot){
                .jobs = jobs, .answer = answer, .context = context, .used = true};
            memcpy(slot->line, line, length);
            *slot_out = slot;
            return 0;
        }
    }
    return -EAGAIN;
}

int fw_jobs_command(struct fw_jobs *jobs, const char *line, fw_jobs_answer *answer, void *context)
{
    FW_ASSERT(answer != NULL);
    struct command_slot *slot;
    fw_mutex_lock(&jobs->commands->lock);
    int rc = slot_take(jobs, line, answer, context, &slot);
    if (rc == 0) {
        rc = slot_post(jobs, slot);
        slot->used = rc == 0;
    }
    fw_mutex_unlock(&jobs->commands->lock);
    return rc;
}

int fw_jobs_command_every(struct fw_jobs *jobs, const char *line, int64_t interval_ns,
                          fw_jobs_answer *answer, void *context)
{
    FW_ASSERT(answer != NULL && interval_ns > 0);
    struct command_slot *slot;
    fw_mutex_lock(&jobs->commands->lock);
    int rc = slot_take(jobs, line, answer, context, &slot);
    if (rc == 0) {
        slot->is_timed = true;
        slot->interval_ns = interval_ns;
        slot->due_ns = fw_clock_now_ns() + interval_ns;
        slot->number = ++jobs->commands->last_number;
        rc = slot->number;
    }
    fw_mutex_unlock(&jobs->commands->lock);
    if (rc > 0) {
        fw_jobs_monitor_wake(jobs);
    }
    return rc;
}

/* It is run no more. Its last answer is due now, or when the run that is under way has ended. */
static struct listener slot_untime(struct command_slot *slot)
{
    slot->interval_ns = 0;
    return slot->under_way ? (struct listener){.answer = NULL} : slot_release(slot);
}

void fw_jobs_command_cancel(struct fw_jobs *jobs, int number)
{
    struct fw_jobs_commands *commands = jobs->commands;
    struct listener listener = {.answer = NULL};
    fw_mutex_lock(&commands->lock);
    for (size_t i = 0; i < FW_JOBS_COMMANDS_MAX; i++) {
        struct command_slot *slot = &commands->slots[i];
        if (slot->used && slot->interval_ns > 0 && slot->number == number) {
            listener = slot_untime(slot);
        }
    }
    fw_mutex_unlock(&commands->lock);
    listener_tell(listener);
}

void fw_jobs_commands_stop(struct fw_jobs *jobs)
{
    struct fw_jobs_commands *commands = jobs->commands;
    struct listener listeners[FW_JOBS_COMMANDS_MAX] = {0};
    fw_mutex_lock(&commands->lock);
    commands->stopped = true;
    for (size_t i = 0; i < FW_JOBS_COMMANDS_MAX; i++) {
        struct command_slot *slot = &commands->slots[i];
        if (slot->used && slot->interval_ns > 0) {
            listeners[i] = slot_untime(slot);
        }
    }
    fw_mutex_unlock(&commands->lock);
    for (size_t i = 0; i < FW_JOBS_COMMANDS_MAX; i++) {
        listener_tell(listeners[i]);
    }
}

int64_t fw_jobs_commands_due(struct fw_jobs *jobs, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    fw_mutex_lock(&jobs->commands->lock);
    for (size_t i = 0; i < FW_JOBS_COMMANDS_MAX; i++) {
        struct command_slot *slot = &jobs->commands->slots[i];
        if (!slot->used || slot->interval_ns == 0) {
            continue;
        }
        if (slot->due_ns <= now_ns) {
            int rc = slot->under_way ? 0 : slot_post(jobs, slot);
            if (rc != 0) {
                FW_LOG(jobs, WARNING, "the timed command '%s' was left out: the kernel is busy",
                       slot->line);
            }
            int64_t late_ns = now_ns - slot->due_ns;
            slot->due_ns += (1 + late_ns / slot->interval_ns) * slot->interval_ns;
        }
        next_ns = slot->due_ns < next_ns ? slot->due_ns : next_ns;
    }
    fw_mutex_unlock(&jobs->commands->lock);
    return next_ns;
}
