/* SPDX-License-Identifier: Apache-2.0 */
/* fairway ha-agent: lets the server of this machine serve while a quorum agrees (src/ha). */
#include <errno.h>

#include <fairway/log.h>

#include "base/option.h"
#include "base/reason.h"
#include "cmd/tool.h"
#include "epoch/group.h"
#include "ha/agent.h"
#include "io/clock.h"
#include "log/options.h"

FW_LOG_MODULE_USE(cmd);

#define ROW(type, field, option_name, ...) \
    FW_OPTION_##type(struct fw_ha_config, field, .name = option_name, __VA_ARGS__)

static const struct fw_option agent_options[] = {
    ROW(STRING, socket, "socket", .value_name = "PATH", .default_text = "/run/fairway/admin.sock",
        .help = "the --admin-socket of the server, which needs --lease-limit"),
    ROW(STRING, gate, "gate", .value_name = "FILE", .default_text = "/run/fairway-ha/gate",
        .help = "the file that keepalived tracks: 0 in it lets the address come here"),
    ROW(STRING, group, "group", .value_name = "NAME", .default_text = "fairway-ha",
        .help = "the Corosync group of the agents, the same on all nodes"),
    ROW(DURATION, lease_ns, "lease", .default_text = "400ms", .unit = "s",
        .min = 50 * (int64_t)FW_NS_PER_MS, .max = 60 * (int64_t)FW_NS_PER_S,
        .help = "how long a server may go on to serve when nothing is heard, the same on all "
                "nodes"),
    ROW(DURATION, patience_ns, "patience", .default_text = "10s", .unit = "s", .min = FW_NS_PER_S,
        .max = 3600 * (int64_t)FW_NS_PER_S,
        .help = "a server that was chosen and does not get the address for so long is passed over"),
    ROW(UINT, acknowledged, "acknowledged", .default_text = "0", .max = FW_GROUP_MEMBERS_MAX,
        .unit = "slaves",
        .help = "slaves that replies wait for: a server becomes master only if it is sure to have "
                "all that they have confirmed"),
    ROW(UINT, nodes, "nodes", .default_text = "0", .max = FW_GROUP_MEMBERS_MAX,
        .help = "nodes of the cluster; 0: as Corosync's nodelist says"),
    ROW(BOOL, is_allowed, "begin", .default_text = "no",
        .help = "let this server begin with whatever it has, once, if nobody has a whole copy"),
};

static struct fw_option_table agent_table(struct fw_ha_config *config)
{
    return (struct fw_option_table){.module = "ha-agent",
                                    .options = agent_options,
                                    .count = FW_ARRAY_LENGTH(agent_options),
                                    .config = config};
}

static enum fw_cmd_status agent_with(void *context, const struct fw_option_list *words)
{
    const struct fw_ha_config *config = context;
    struct fw_ha_agent *agent;
    struct fw_reason reason;
    if (words->count > 0) {
        return fw_cmd_fail(FW_CMD_USAGE, "ha-agent takes no arguments, but '%s' was given",
                           words->items[0]);
    }
    fw_ha_agent_signals_block();
    int rc = fw_ha_agent_create(&agent, config, &reason);
    if (rc != 0) {
        return fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason.text);
    }
    fw_ha_agent_run(agent);
    fw_ha_agent_destroy(agent);
    return FW_CMD_OK;
}

static enum fw_cmd_status agent_run(int count, char **arguments)
{
    struct fw_ha_config config;
    const struct fw_option_table table = agent_table(&config);
    return fw_tool_run(&table, count, arguments, agent_with);
}

const struct fw_command fw_cmd_ha_agent = {
    .name = "ha-agent",
    .summary = "let the server of this node serve while a quorum agrees",
    .usage = "ha-agent [OPTIONS]",
    .about = "Runs beside a server on each node of a Corosync cluster: lets the server answer\n"
             "while a quorum agrees that it is the master, and tells keepalived whether the\n"
             "virtual address may come to this node. See docs/high-availability.md.",
    .options = agent_options,
    .option_count = FW_ARRAY_LENGTH(agent_options),
    .run = agent_run,
};
