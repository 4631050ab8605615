/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of cache/gate.h: whose a command is, and whether it may go now. */
#include "base/base.h"
#include "server/connection.h"
#include "server/state.h"

/* Why nobody may give such a command now; NULL: there is no reason. */
static const char *gate_refusal(const struct fw_server *server, bool is_write)
{
    const char *refusal = fw_replication_refusal(&server->replication, is_write);
    if (refusal != NULL) {
        return refusal;
    }
    /* Relaxed: it is never taken back. */
    if (is_write && atomic_load_explicit(&server->cache.is_used_up, memory_order_relaxed)) {
        return "the item numbers are used up, the server has to be restarted";
    }
    return NULL;
}

/* The gate: may this command go in the turn that was admitted? */
enum fw_gate fw_connection_gate(struct fw_cache_gate *gate, enum fw_command_class class,
                                const char *key, size_t length)
{
    static const enum fw_rule_class classes[] = {[FW_COMMAND_READ] = FW_RULE_READ,
                                                 [FW_COMMAND_READ_CHANGES] = FW_RULE_READ,
                                                 [FW_COMMAND_WRITE] = FW_RULE_WRITE,
                                                 [FW_COMMAND_FLUSH] = FW_RULE_ADMIN,
                                                 [FW_COMMAND_ADMIN] = FW_RULE_ADMIN};
    struct fw_server_core *core = FW_CONTAINER_OF(gate, struct fw_server_core, gate);
    struct fw_connection *connection = core->serving;
    struct fw_rule_verdict verdict =
        fw_rules_classify(core->ruling->rules, &connection->scope, classes[class], key, length);
    if (verdict.tenant != connection->request.class.tenant ||
        verdict.is_urgent != connection->request.class.is_urgent) {
        connection->held = verdict;
        return FW_GATE_HOLD;
    }
    bool is_flush = class == FW_COMMAND_FLUSH;
    bool is_write = class == FW_COMMAND_WRITE || class == FW_COMMAND_READ_CHANGES;
    /* A flush needs no numbers, and costs so little that it is done while others are shed. */
    gate->refusal = is_flush ? fw_replication_refusal(&core->server->replication, true)
                             : gate_refusal(core->server, is_write);
    return (connection->is_shed && !is_flush) || gate->refusal != NULL ||
                   (core->doubts.is_short && (is_write || is_flush))
               ? FW_GATE_REFUSE
               : FW_GATE_PASS;
}
