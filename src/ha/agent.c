/* SPDX-License-Identifier: Apache-2.0 */
#include "ha/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/assert.h"
#include "epoch/corosync.h"
#include "ha/client.h"
#include "ha/election.h"
#include "io/alarm.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/notify.h"
#include "io/reactor.h"
#include "io/signal.h"

FW_LOG_MODULE(ha);

enum { BEATS = 5 /* In a lease. */, GATE_MODE = 0644 };

struct fw_ha_agent {
    struct fw_ha_config config;
    struct fw_reactor *reactor;
    struct fw_group *group;
    struct fw_election election;
    struct fw_ha_client client;
    struct fw_alarm alarm;
    struct fw_signals signals;
    uint32_t open_count; /* What is not closed yet. */
    bool is_over;
    bool is_blocked;            /* The group takes nothing just now. */
    enum fw_election_gate gate; /* As in the file; KEEP: not known. */
    int64_t granted_ns;         /* The lease that the server was told of last. */
    int64_t beat_ns;            /* The next, by fw_clock_boot_ns(). */
    int64_t alive_every_ns;     /* As the service manager wants to hear it; 0: never. */
    int64_t alive_ns;           /* When it was told last, by the same clock. */
    bool was_alive;
    uint64_t shown; /* The holder that the log knows of. */
};

/* ---- what follows from the election -------------------------------------------------------- */

static void gate_write(struct fw_ha_agent *agent, enum fw_election_gate gate)
{
    struct fw_reason reason;
    const char *text = gate == FW_ELECTION_OPEN ? "0\n" : "1\n";
    if (gate == FW_ELECTION_KEEP || gate == agent->gate) {
        return;
    }
    int rc = fw_file_replace(agent->config.gate, text, strlen(text), GATE_MODE, &reason);
    if (rc != 0) {
        FW_LOG(ha, ERROR, "cannot tell keepalived: %s", reason.text);
        return;
    }
    agent->gate = gate;
    FW_LOG(ha, NOTICE, "the address may %s",
           gate == FW_ELECTION_OPEN ? "come here" : "not be here");
}

static void holder_log(struct fw_ha_agent *agent)
{
    const struct fw_election *election = &agent->election;
    uint64_t holder = election->view != 0 ? election->holder : 0;
    if (holder == agent->shown || (holder == 0 && election->view != 0)) {
        return; /* Nobody, with a quorum: it is being found out. */
    }
    agent->shown = holder;
    if (holder == 0) {
        FW_LOG(ha, WARNING, "no quorum: this server may not serve");
    } else if (holder == election->self) {
        FW_LOG(ha, NOTICE, "this server may serve");
    } else {
        FW_LOG(ha, NOTICE, "the server of node %u may serve", (unsigned)(holder >> 32));
    }
}

static void agent_follow(struct fw_ha_agent *agent)
{
    const struct fw_election *election = &agent->election;
    int64_t now_ns = fw_clock_boot_ns();
    int64_t until_ns = fw_election_until(election);
    if (until_ns > now_ns && until_ns > agent->granted_ns) {
        agent->granted_ns = until_ns;
        fw_ha_client_lease(&agent->client, until_ns);
    } else if (until_ns == 0 && agent->granted_ns > now_ns) {
        agent->granted_ns = 0;
        fw_ha_client_end_lease(&agent->client);
    }
    if (fw_election_must_resign(election)) {
        fw_ha_client_resign(&agent->client);
    }
    gate_write(agent, fw_election_gate(election, now_ns));
    holder_log(agent);
}

static void alarm_arm(struct fw_ha_agent *agent)
{
    int64_t now_ns = fw_clock_boot_ns();
    int64_t due_ns = fw_election_due_ns(&agent->election);
    bool is_due_first = due_ns > now_ns && due_ns < agent->beat_ns;
    int64_t left_ns = (is_due_first ? due_ns : agent->beat_ns) - now_ns;
    fw_alarm_set(&agent->alarm, fw_clock_now_ns() + (left_ns > 0 ? left_ns : 0));
}

static void agent_say(struct fw_ha_agent *agent)
{
    struct fw_ha_word word;
    char bytes[FW_HA_WORD_SIZE];
    if (agent->is_blocked || !fw_election_say(&agent->election, fw_clock_boot_ns(), &word)) {
        return;
    }
    fw_ha_word_write(&word, bytes);
    int rc = fw_group_send(agent->group, bytes, sizeof bytes);
    if (rc != 0) {
        agent->is_blocked = rc == -EAGAIN;
        fw_election_say_again(&agent->election);
    }
}

/* It is told, not asked: what it does not hear changes nothing here. */
static void manager_told(int rc, const struct fw_reason *reason)
{
    if (rc != 0) {
        FW_LOG(ha, WARNING, "%s", reason->text);
    }
}

static void manager_tell(const char *lines)
{
    struct fw_reason reason;
    manager_told(fw_notify(lines, &reason), &reason);
}

/* Said by the beat: who hangs anywhere does not say it. */
static void manager_tell_alive(struct fw_ha_agent *agent, int64_t now_ns)
{
    struct fw_reason reason;
    if (agent->alive_every_ns > 0 && now_ns - agent->alive_ns >= agent->alive_every_ns) {
        agent->alive_ns = now_ns;
        manager_told(fw_notify_alive(&reason), &reason);
    }
}

/* ---- events -------------------------------------------------------------------------------- */

static struct fw_ha_agent *agent_of_client(struct fw_ha_client *client)
{
    return FW_CONTAINER_OF(client, struct fw_ha_agent, client);
}

static void client_stands(struct fw_ha_client *client, const struct fw_ha_standing *standing,
                          int64_t asked_ns)
{
    struct fw_ha_agent *agent = agent_of_client(client);
    struct fw_ha_standing told = *standing;
    if (standing->is_alive != agent->was_alive) {
        agent->was_alive = standing->is_alive;
        FW_LOG(ha, NOTICE, "the server at %s %s", agent->config.socket,
               standing->is_alive ? "answers" : "does not answer");
    }
    if (standing->is_master && fw_election_is_holder(&agent->election)) {
        agent->config.is_allowed = false; /* It has begun. */
    }
    told.is_allowed = agent->config.is_allowed;
    fw_election_stand(&agent->election, &told, asked_ns);
    if (!agent->is_over) {
        agent_say(agent);
        agent_follow(agent);
    }
}

static void part_closed(struct fw_ha_agent *agent)
{
    agent->open_count--;
}

static void client_closed(struct fw_ha_client *client)
{
    part_closed(agent_of_client(client));
}

static const struct fw_ha_client_events client_events = {.stands = client_stands,
                                                         .closed = client_closed};

static void group_delivered(struct fw_group *group, uint64_t sender, const void *bytes,
                            size_t length)
{
    struct fw_ha_agent *agent = group->user;
    struct fw_ha_word word;
    if (fw_ha_word_read(&word, bytes, length) != 0) {
        return; /* Of another version, or of somebody else. */
    }
    bool was_free = agent->election.is_free;
    fw_election_hear(&agent->election, sender, &word, fw_clock_boot_ns());
    if (agent->election.is_free && !was_free) {
        fw_ha_client_ask(&agent->client); /* Somebody will have to be chosen. */
    }
    if (sender == agent->election.self && word.claims) {
        agent_say(agent); /* If it was heard, the lease begins with the next word. */
    }
    agent_follow(agent);
    alarm_arm(agent);
}

static void group_viewed(struct fw_group *group, const struct fw_group_view *view)
{
    struct fw_ha_agent *agent = group->user;
    struct fw_corosync_status status;
    fw_corosync_status(group, &status);
    if (agent->config.nodes == 0) {
        agent->election.config.nodes = status.node_count;
    }
    fw_election_view(&agent->election, group->self, view, fw_clock_boot_ns());
    agent->is_blocked = false;
    agent_say(agent);
    agent_follow(agent);
    alarm_arm(agent);
}

static void group_writable(struct fw_group *group)
{
    struct fw_ha_agent *agent = group->user;
    agent->is_blocked = false;
    agent_say(agent);
}

static const struct fw_group_events group_events = {
    .delivered = group_delivered, .viewed = group_viewed, .writable = group_writable};

static void alarm_rang(struct fw_alarm *alarm)
{
    struct fw_ha_agent *agent = FW_CONTAINER_OF(alarm, struct fw_ha_agent, alarm);
    int64_t now_ns = fw_clock_boot_ns();
    bool is_beat = now_ns >= agent->beat_ns;
    if (is_beat) {
        agent->beat_ns = now_ns + agent->config.lease_ns / BEATS;
        manager_tell_alive(agent, now_ns);
    }
    fw_ha_client_ask(&agent->client);
    if (is_beat && !agent->election.standing.is_alive) {
        agent_say(agent); /* Else it speaks when the server has answered. */
    }
    agent_follow(agent);
    alarm_arm(agent);
}

static void alarm_closed(struct fw_alarm *alarm)
{
    part_closed(FW_CONTAINER_OF(alarm, struct fw_ha_agent, alarm));
}

static void signal_received(struct fw_signals *signals, int number, pid_t sender)
{
    (void)sender;
    struct fw_ha_agent *agent = FW_CONTAINER_OF(signals, struct fw_ha_agent, signals);
    FW_LOG(ha, NOTICE, "ends: %s", sigabbrev_np(number));
    agent->is_over = true;
}

static void signals_closed(struct fw_signals *signals)
{
    part_closed(FW_CONTAINER_OF(signals, struct fw_ha_agent, signals));
}

static const struct fw_signal_event signal_events[] = {
    {.number = SIGTERM, .received = signal_received},
    {.number = SIGINT, .received = signal_received},
};

void fw_ha_agent_signals_block(void)
{
    fw_signals_block(signal_events, FW_ARRAY_LENGTH(signal_events));
}

/* ---- life ---------------------------------------------------------------------------------- */

static int group_open(struct fw_ha_agent *agent, struct fw_reason *reason)
{
    const struct fw_corosync_options options = {.group_name = agent->config.group,
                                                .node_count = (uint32_t)agent->config.nodes};
    int rc = fw_corosync_open(&agent->group, agent->reactor, &options, reason);
    if (rc == 0) {
        agent->group->events = &group_events;
        agent->group->user = agent;
        agent->open_count++;
    }
    return rc;
}

static int parts_open(struct fw_ha_agent *agent, struct fw_reason *reason)
{
    int rc = fw_signals_open(&agent->signals, agent->reactor, signal_events,
                             FW_ARRAY_LENGTH(signal_events), reason);
    if (rc != 0) {
        return rc;
    }
    agent->open_count++;
    rc = fw_alarm_open(&agent->alarm, agent->reactor, alarm_rang, reason);
    if (rc != 0) {
        goto no_alarm;
    }
    agent->open_count++;
    rc = fw_ha_client_open(&agent->client, agent->reactor, agent->config.socket,
                           agent->config.lease_ns, &client_events, reason);
    if (rc != 0) {
        goto no_client;
    }
    agent->open_count++;
    rc = group_open(agent, reason);
    if (rc == 0) {
        return 0;
    }
    fw_ha_client_close(&agent->client);
no_client:
    fw_alarm_close(&agent->alarm, alarm_closed);
no_alarm:
    fw_signals_close(&agent->signals, signals_closed);
    return rc;
}

static void agent_free(struct fw_ha_agent *agent)
{
    while (agent->open_count > 0) {
        (void)fw_reactor_poll(agent->reactor, -1);
    }
    fw_reactor_destroy(agent->reactor);
    free(agent);
}

int fw_ha_agent_create(struct fw_ha_agent **agent, const struct fw_ha_config *config,
                       struct fw_reason *reason)
{
    struct fw_ha_agent *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot start");
    }
    made->config = *config;
    fw_election_init(&made->election,
                     &(struct fw_election_config){.lease_ns = config->lease_ns,
                                                  .patience_ns = config->patience_ns,
                                                  .nodes = (uint32_t)config->nodes,
                                                  .acks = (uint32_t)config->acknowledged});
    int rc = fw_reactor_create(&made->reactor, reason);
    if (rc != 0) {
        free(made);
        return rc;
    }
    /* First of all: whoever was here before may have left it open. */
    rc = fw_file_replace(config->gate, "1\n", 2, GATE_MODE, reason);
    if (rc == 0) {
        made->gate = FW_ELECTION_CLOSED;
        rc = parts_open(made, reason);
    }
    if (rc != 0) {
        agent_free(made);
        return rc;
    }
    fw_alarm_set(&made->alarm, fw_clock_now_ns());
    *agent = made;
    return 0;
}

void fw_ha_agent_run(struct fw_ha_agent *agent)
{
    agent->alive_every_ns = fw_notify_alive_ns();
    manager_tell(FW_NOTIFY_READY);
    while (!agent->is_over) {
        (void)fw_reactor_poll(agent->reactor, -1);
    }
    fw_election_leave(&agent->election);
    gate_write(agent, FW_ELECTION_CLOSED);
    /* The server is told, if it listens; else the lease ends by itself. */
    fw_ha_client_end_lease(&agent->client);
    manager_tell(FW_NOTIFY_STOPPING);
    int64_t deadline_ns = fw_clock_now_ns() + agent->config.lease_ns;
    while (agent->client.is_busy && fw_clock_now_ns() < deadline_ns) {
        (void)fw_reactor_poll(agent->reactor, deadline_ns - fw_clock_now_ns());
    }
}

static void group_closed(void *argument)
{
    part_closed(argument);
}

void fw_ha_agent_destroy(struct fw_ha_agent *agent)
{
    fw_corosync_close(agent->group, group_closed, agent);
    fw_ha_client_close(&agent->client);
    fw_alarm_close(&agent->alarm, alarm_closed);
    fw_signals_close(&agent->signals, signals_closed);
    agent_free(agent);
}
