/* SPDX-License-Identifier: Apache-2.0 */
#include "server/doubt.h"

#include <stdlib.h>

#include "base/assert.h"
#include "engine/core.h"
#include "engine/mail.h"
#include "server/state.h"

static struct fw_repl *repl_of(const struct fw_connection *connection)
{
    return &connection->core->server->replication.repl;
}

static bool doubt_is_over(const struct fw_doubt *doubt)
{
    return fw_repl_is_confirmed(repl_of(doubt->connection), doubt->slaves, doubt->position);
}

/* ---- runs ---------------------------------------------------------------------------------- */

void fw_doubts_begin_run(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    struct fw_doubts *doubts = &core->doubts;
    uint32_t tenant = connection->request.class.tenant;
    FW_ASSERT(tenant < core->ruling->tenant_count);
    doubts->slaves = core->ruling->slaves[tenant];
    /* A slave's own clients change nothing. */
    doubts->is_short = !fw_repl_has_whole(repl_of(connection), doubts->slaves);
    core->cache.notice.is_on = doubts->slaves > 0;
    core->cache.notice.refuses_write = doubts->is_short;
}

void fw_doubts_end_run(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    struct fw_doubts *doubts = &core->doubts;
    if (core->cache.notice.has_change && doubts->slaves > doubts->batch) {
        doubts->batch = doubts->slaves;
    }
    doubts->is_short = false;
    core->cache.notice.is_on = false;
}

/* ---- one connection ------------------------------------------------------------------------ */

bool fw_doubt_note(struct fw_connection *connection)
{
    struct fw_server_core *core = connection->core;
    struct fw_notice *notice = &core->cache.notice;
    struct fw_repl *repl = repl_of(connection);
    if (connection->doubt != NULL && doubt_is_over(connection->doubt)) {
        fw_doubt_drop(connection);
    }
    struct fw_doubt *doubt = connection->doubt;
    if (doubt == NULL) { /* Else something is in doubt before this, to which nothing was replied. */
        doubt = malloc(sizeof *doubt);
        if (doubt != NULL) {
            *doubt = (struct fw_doubt){.connection = connection, .change = notice->change};
            fw_list_link_init(&doubt->link);
            connection->doubt = doubt;
        }
    }
    notice->has_change = false;
    if (doubt != NULL) {
        doubt->slaves = core->doubts.batch > doubt->slaves ? core->doubts.batch : doubt->slaves;
        doubt->position = fw_changes_head(repl->changes);
        doubt->deadline_ns = fw_fom_now(&connection->fom) + repl->config.ack_timeout_ns;
    }
    core->doubts.batch = 0;
    return doubt != NULL;
}

bool fw_doubt_holds(struct fw_connection *connection)
{
    if (!doubt_is_over(connection->doubt)) {
        return true;
    }
    fw_doubt_drop(connection);
    return false;
}

void fw_doubt_enter(struct fw_connection *connection)
{
    struct fw_doubts *doubts = &connection->core->doubts;
    fw_list_push_back(&doubts->held, &connection->doubt->link);
    fw_repl_count(&repl_of(connection)->metrics.held, 1);
    /* Relaxed: links take their time no longer, from soon on. */
    atomic_store_explicit(&repl_of(connection)->is_urgent, true, memory_order_relaxed);
    atomic_fetch_add(&doubts->held_count, 1);
    FW_YIELD_POINT("doubt: is about to wait");
    /* Listed first, looked then, in HOLD; who confirms does so first and looks then. */
    atomic_thread_fence(memory_order_seq_cst);
}

void fw_doubt_fail(struct fw_connection *connection)
{
    char error[FW_NOTICE_ERROR_MAX];
    const struct fw_notice_change *change = &connection->doubt->change;
    size_t length = fw_notice_error(change, error);
    fw_unsent_cut(connection->unsent, connection->core->cache.table, (size_t)change->before, error,
                  length);
    fw_repl_count(&repl_of(connection)->metrics.unconfirmed, 1);
    fw_doubt_drop(connection);
}

void fw_doubt_drop(struct fw_connection *connection)
{
    struct fw_doubt *doubt = connection->doubt;
    if (doubt != NULL && fw_list_is_linked(&doubt->link)) {
        fw_list_remove(&doubt->link);
        atomic_fetch_sub(&connection->core->doubts.held_count, 1);
    }
    free(doubt);
    connection->doubt = NULL;
}

/* ---- cores --------------------------------------------------------------------------------- */

/* On the core's turn: a slave has confirmed something. */
static void doubts_look(struct fw_message *message)
{
    struct fw_doubts *doubts = FW_CONTAINER_OF(message, struct fw_doubts, message);
    /* First: what is confirmed from now on is another message. Pairs with who sends. */
    atomic_store(&doubts->is_sent, false);
    FW_LIST_FOR_EACH (&doubts->held, struct fw_doubt, link, doubt) {
        if (doubt_is_over(doubt)) {
            fw_fom_wake(&doubt->connection->fom); /* And then it leaves the list. */
        }
    }
}

void fw_doubts_init(struct fw_doubts *doubts)
{
    *doubts = (struct fw_doubts){.message = {.run = doubts_look}};
    fw_list_init(&doubts->held);
}

void fw_doubts_fini(struct fw_doubts *doubts)
{
    FW_ASSERT(fw_list_is_empty(&doubts->held));
}

void fw_doubts_look(struct fw_server *server)
{
    FW_YIELD_POINT("doubt: a slave has confirmed");
    atomic_thread_fence(memory_order_seq_cst); /* See fw_doubt_enter(). */
    for (uint32_t i = 0; i < server->core_count; i++) {
        struct fw_doubts *doubts = &server->cores[i]->doubts;
        /* Relaxed: the fence orders it. */
        if (atomic_load_explicit(&doubts->held_count, memory_order_relaxed) > 0 &&
            !atomic_exchange(&doubts->is_sent, true)) {
            fw_mail_send_message(server->cores[i]->engine, &doubts->message);
        }
    }
}
