/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dump for people: what every fom of a domain is doing.
 *
 * A fom's members are its core's, so each core describes its own, by message, on its turn, into
 * memory of who asks; that one makes text of it afterwards. The turn is held for as long as it
 * takes to look at the foms, never for a sink that may block.
 *
 * Which foms has a core? Those that are ready are in its queues and those in brackets in its list.
 * Those that wait are in no list at all, only in the pool that they were born in, which may be
 * another core's. So there are two rounds of messages: first every core writes down which foms of
 * its pools wait, wherever they live; then every core describes those that live there. A fom seen
 * PARKED by the turn of the core it lives on was parked by that turn and stays what it is for as
 * long as the turn is busy here: a waker may win it meanwhile, but touches only the word and the
 * link. Foms that are in the mail between two cores are missed, and only counted.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <fairway/engine.h>

#include "base/assert.h"
#include "base/text.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "engine/word.h"
#include "io/clock.h"

enum { NAMES_SHOWN = 4, LINE_SIZE = 512 };

enum row_state { ROW_READY, ROW_WAITS, ROW_WAITS_FOR_PERMIT, ROW_BLOCKED };

/* A fom, as its core described it. */
struct row {
    uint64_t id;
    const struct fw_fom_type *type;
    uint32_t core;
    uint8_t phase;
    uint8_t state; /* enum row_state */
    uint8_t wait;  /* enum fw_trace_wait */
    uint8_t name_count;
    uint32_t channel_count; /* Armed and not fired; the first few are named. */
    const char *names[NAMES_SHOWN];
    int64_t since;
    int64_t deadline;
};

struct waiting {
    struct fw_fom *fom;
};

struct dump {
    struct fw_domain *domain;
    struct waiting *waiting; /* Of all pools, at most `rows_max`. */
    uint32_t waiting_count;
    struct row *rows;
    uint32_t row_count;
    uint32_t rows_max;
};

/* One question to one core. */
struct question {
    struct fw_message message;
    struct dump *dump;
    struct fw_core *core;
    void (*answer)(struct dump *dump, struct fw_core *core);
    atomic_bool is_answered;
};

/* ---- on the turn of each core -------------------------------------------------------------- */

static void gather_one(void *object, void *context)
{
    struct fw_fom *fom = object;
    struct dump *dump = context;
    /* A guess: free memory and foms of other cores are looked at too. */
    if (fw_word_state(fw_word_get(&fom->wake_word)) == FW_WORD_PARKED &&
        dump->waiting_count < dump->rows_max) {
        dump->waiting[dump->waiting_count++].fom = fom;
    }
}

static void gather(struct dump *dump, struct fw_core *core)
{
    for (uint32_t i = 0; i < dump->domain->type_count; i++) {
        fw_pool_visit(&core->pools[i], gather_one, dump);
    }
}

static struct row *row_add(struct dump *dump, const struct fw_core *core, const struct fw_fom *fom,
                           enum row_state state)
{
    if (dump->row_count == dump->rows_max) {
        return NULL;
    }
    struct row *row = &dump->rows[dump->row_count++];
    *row = (struct row){
        .id = fom->id,
        .type = fom->type,
        .core = core->index,
        .phase = fom->phase,
        .state = (uint8_t)state,
        .since = fom->since,
    };
    return row;
}

static void describe_queue(struct dump *dump, const struct fw_core *core,
                           const struct fw_queue_level *level, enum row_state state)
{
    for (const struct fw_fom *fom = level->first; fom != NULL; fom = fom->next) {
        if (row_add(dump, core, fom, state) == NULL) {
            return;
        }
    }
}

static void describe_brackets(struct dump *dump, struct fw_core *core)
{
    fw_mutex_lock(&core->lock);
    FW_LIST_FOR_EACH (&core->bracketed, struct fw_handler, place, handler) {
        struct row *row = row_add(dump, core, handler->fom, ROW_BLOCKED);
        if (row != NULL) {
            row->since = handler->since;
        }
    }
    fw_mutex_unlock(&core->lock);
}

static void describe_waiting(struct dump *dump, const struct fw_core *core, struct fw_fom *fom)
{
    /* Acquire, for the release in fw_word_park(): it is still, or again, a fom that waits. */
    uint64_t word = atomic_load_explicit(&fom->wake_word, memory_order_acquire);
    if (fw_word_state(word) != FW_WORD_PARKED || fw_fom_core(fom) != core) {
        return;
    }
    struct row *row = row_add(dump, core, fom, ROW_WAITS);
    if (row == NULL) {
        return;
    }
    row->wait = (uint8_t)fw_trace_wait_kind(fom);
    row->deadline = fom->timer.deadline;
    struct fw_clink *clink = fw_fom_clink(fom, fom->armed);
    for (; clink != NULL; clink = fw_fom_clink(fom, clink->next)) {
        const char *name;
        if (fw_clink_name(clink, &name)) {
            row->channel_count++;
            if (row->name_count < NAMES_SHOWN) {
                row->names[row->name_count++] = name;
            }
        }
    }
}

static void describe(struct dump *dump, struct fw_core *core)
{
    for (unsigned i = 0; i < FW_FOM_PRIORITIES; i++) {
        describe_queue(dump, core, &core->queue.levels[i], ROW_READY);
    }
    describe_queue(dump, core, &core->permit_queue, ROW_WAITS_FOR_PERMIT);
    describe_brackets(dump, core);
    for (uint32_t i = 0; i < dump->waiting_count; i++) {
        describe_waiting(dump, core, dump->waiting[i].fom);
    }
}

static void question_run(struct fw_message *message)
{
    struct question *question = FW_CONTAINER_OF(message, struct question, message);
    struct fw_parker *dumper = &question->dump->domain->dumper;
    question->answer(question->dump, question->core);
    /* Release, for the acquire in ask(): this is the last that is done to the question. */
    atomic_store_explicit(&question->is_answered, true, memory_order_release);
    FW_YIELD_POINT("dump: answered");
    fw_unpark(dumper);
}

/* ---- by who asks --------------------------------------------------------------------------- */

/* One core after the other, so that the dump has one writer at a time. */
static void ask(struct dump *dump, void (*answer)(struct dump *dump, struct fw_core *core))
{
    for (uint32_t i = 0; i < dump->domain->core_count; i++) {
        struct question question = {
            .message = {.run = question_run},
            .dump = dump,
            .core = &dump->domain->cores[i],
            .answer = answer,
        };
        fw_mail_send_message(question.core, &question.message);
        /* Acquire, for the release in question_run(). A token may be that of the last question. */
        while (!atomic_load_explicit(&question.is_answered, memory_order_acquire)) {
            fw_park(&dump->domain->dumper);
        }
    }
}

static void append_duration(struct fw_text *text, int64_t ns)
{
    fw_text_printf(text, "%.3f s", (double)(ns > 0 ? ns : 0) / FW_NS_PER_S);
}

static void append_wait(struct fw_text *text, const struct row *row, int64_t now)
{
    for (uint32_t i = 0; i < row->name_count; i++) {
        fw_text_printf(text, "%s%s", i == 0 ? " on " : ", ",
                       row->names[i] != NULL ? row->names[i] : "a channel without a name");
    }
    if (row->channel_count > row->name_count) {
        fw_text_printf(text, " and %u more", row->channel_count - row->name_count);
    }
    if (row->channel_count == 0) {
        fw_text_append_string(text, " to be woken");
    }
    if (row->wait == FW_TRACE_WAIT_DEADLINE || row->wait == FW_TRACE_WAIT_LIMITED) {
        fw_text_append_string(text, row->wait == FW_TRACE_WAIT_DEADLINE ? ", or for the time, in "
                                                                        : ", and fails in ");
        append_duration(text, row->deadline - now);
    }
}

static int write_row(const struct row *row, int64_t now,
                     int (*sink)(const char *bytes, size_t length, void *context), void *context)
{
    static const char *const state_names[] = {
        [ROW_READY] = "ready",
        [ROW_WAITS] = "waits",
        [ROW_WAITS_FOR_PERMIT] = "waits",
        [ROW_BLOCKED] = "in a bracket",
    };
    char line[LINE_SIZE];
    struct fw_text text;
    fw_text_init(&text, line, sizeof line - 1);
    fw_text_printf(&text, "core %u: fom %" PRIx64 " %s:%s %s for ", row->core, row->id,
                   row->type->name, fw_phase_name(row->type, row->phase), state_names[row->state]);
    append_duration(&text, now - row->since);
    if (row->state == ROW_WAITS_FOR_PERMIT) {
        fw_text_append_string(&text, " for leave to enter a bracket");
    } else if (row->state == ROW_WAITS) {
        append_wait(&text, row, now);
    }
    line[text.length] = '\n'; /* The byte that was held back for it. */
    return sink(line, text.length + 1, context);
}

static int write_rows(const struct dump *dump,
                      int (*sink)(const char *bytes, size_t length, void *context), void *context)
{
    int64_t now = fw_clock_now_ns();
    int rc = 0;
    for (uint32_t i = 0; i < dump->row_count && rc == 0; i++) {
        rc = write_row(&dump->rows[i], now, sink, context);
    }
    if (rc != 0) {
        return rc;
    }
    char line[LINE_SIZE];
    struct fw_text text;
    fw_text_init(&text, line, sizeof line);
    fw_text_printf(&text, "%" PRIu32 " foms shown of %" PRId64 "\n", dump->row_count,
                   fw_domain_live_count(dump->domain));
    return sink(line, text.length, context);
}

int fw_domain_dump(struct fw_domain *domain, uint32_t lines_max,
                   int (*sink)(const char *bytes, size_t length, void *context), void *context)
{
    FW_ASSERT(fw_core_self() == NULL && fw_thread_self()->handler == NULL);
    enum fw_domain_state state = fw_domain_state(domain);
    if (state == FW_DOMAIN_INIT || state == FW_DOMAIN_STOP) {
        return -ESHUTDOWN;
    }
    fw_mutex_lock(&domain->lock);
    bool is_busy = domain->is_dumping;
    domain->is_dumping = true;
    fw_mutex_unlock(&domain->lock);
    if (is_busy) {
        return -EBUSY;
    }
    struct dump dump = {.domain = domain};
    dump.rows_max = lines_max < FW_DUMP_LINES_MAX ? lines_max : FW_DUMP_LINES_MAX;
    dump.rows = calloc((size_t)dump.rows_max + 1, sizeof *dump.rows);
    dump.waiting = calloc((size_t)dump.rows_max + 1, sizeof *dump.waiting);
    int rc = dump.rows == NULL || dump.waiting == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        fw_mutex_lock(&domain->lock);
        for (uint32_t i = 0; i < domain->type_count; i++) {
            fw_pool_visit(&domain->foreign_pools[i], gather_one, &dump);
        }
        fw_mutex_unlock(&domain->lock);
        ask(&dump, gather);
        ask(&dump, describe);
        rc = write_rows(&dump, sink, context);
    }
    free(dump.rows);
    free(dump.waiting);
    fw_mutex_lock(&domain->lock);
    domain->is_dumping = false;
    fw_mutex_unlock(&domain->lock);
    return rc;
}
