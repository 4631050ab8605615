/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's side of operators' commands: operator.h draws it.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <fairway/log.h>

#include "base/endian.h"
#include "ring/core.h"
#include "volume/operator.h"
#include "volume/remote.h"

FW_LOG_MODULE_USE(volume);

static int part_attach(struct fw_volume_manager *manager, enum fw_volume_part which,
                       struct fw_disk **part, struct fw_ring **ring, struct fw_reason *reason)
{
    bool is_commands = which == FW_VOLUME_PART_COMMANDS;
    const struct fw_ring_options options = {.role =
                                                is_commands ? FW_RING_CONSUMER : FW_RING_PRODUCER,
                                            .flags = FW_RING_ALONE, /* We hold the lease. */
                                            .queue = is_commands ? "commands" : "answers",
                                            .client = "manager"};
    int rc = manager->store->ops->part(manager->store, which, 0, part, reason);
    if (rc != 0) {
        *part = NULL;
        return rc;
    }
    rc = fw_ring_attach_on(ring, *part, manager->host_number, &options, reason);
    if (rc == -EBADMSG || rc == -ENOENT) {
        FW_LOG(volume, WARNING, "the ring of %s is damaged and made anew: %s", options.queue,
               reason != NULL ? reason->text : "");
        rc = fw_volume_queue_make(*part, reason);
        if (rc == 0) {
            rc = fw_ring_attach_on(ring, *part, manager->host_number, &options, reason);
        }
    }
    *ring = rc == 0 ? *ring : NULL;
    return rc;
}

int fw_volume_orders_attach(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    int rc = part_attach(manager, FW_VOLUME_PART_COMMANDS, &manager->command_part,
                         &manager->commands, reason);
    return rc == 0 ? part_attach(manager, FW_VOLUME_PART_ANSWERS, &manager->answer_part,
                                 &manager->answers, reason)
                   : rc;
}

void fw_volume_orders_detach(struct fw_volume_manager *manager)
{
    struct fw_ring *rings[] = {manager->commands, manager->answers};
    struct fw_disk *parts[] = {manager->command_part, manager->answer_part};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rings); i++) {
        if (rings[i] != NULL) {
            fw_ring_detach(rings[i]);
        }
        if (parts[i] != NULL) {
            fw_disk_close(parts[i]);
        }
    }
    manager->commands = manager->answers = NULL;
    manager->command_part = manager->answer_part = NULL;
}

static int command_do(struct fw_volume_manager *manager, const struct fw_volume_message *command,
                      struct fw_ring_reason *reason)
{
    switch ((int)command->kind) {
    case FW_VOLUME_CREATE:
        return fw_volume_manager_create(manager, command->name, command->value, reason);
    case FW_VOLUME_RESIZE:
        return fw_volume_manager_resize(manager, command->name, command->value, reason);
    case FW_VOLUME_REMOVE:
        return fw_volume_manager_remove(manager, command->name, reason);
    case FW_VOLUME_CONNECT:
        return fw_volume_manager_connect(manager, command->name, reason);
    case FW_VOLUME_DISCONNECT:
        return fw_volume_manager_disconnect(manager, command->name, reason);
    case FW_VOLUME_RECLAIM:
        return fw_volume_manager_reclaim(manager, command->name, reason);
    case FW_VOLUME_FLUSH: {
        int rc = fw_volume_manager_receive(manager, fw_volume_reason(reason));
        return rc == 0 ? fw_volume_manager_flush(manager, reason) : rc;
    }
    case FW_VOLUME_SHUTDOWN: /* Noted, or it would end the next life too. */
        manager->is_ending = true;
        return fw_volume_manager_commit_command(manager, fw_volume_reason(reason));
    case FW_VOLUME_CANCEL: /* Too late, or of a command of long ago. */
        return 0;
    default:
        return fw_reason_set(fw_volume_reason(reason), -EINVAL, "'%s' is no command",
                             fw_volume_kind_name(command->kind));
    }
}

static int answer_push(struct fw_volume_manager *manager, uint64_t number, int result,
                       const char *text, struct fw_reason *reason)
{
    uint8_t bytes[FW_VOLUME_ANSWER_HEADER + FW_RING_REASON_SIZE];
    size_t length = strnlen(text, FW_RING_REASON_SIZE - 1);
    fw_le64_put(bytes, number);
    fw_le32_put(bytes + sizeof(uint64_t), (uint32_t)-result);
    memcpy(bytes + FW_VOLUME_ANSWER_HEADER, text, length);
    int rc = fw_ring_push(manager->answers, bytes, FW_VOLUME_ANSWER_HEADER + length,
                          fw_volume_ring_reason(reason));
    return rc < 0 ? rc : 0; /* It is full of answers that nobody wanted: neither will this. */
}

/* Whether this is an answer, and not what became of us while we looked for one. */
static bool is_decision(int rc)
{
    static const int answers[] = {0, -EINVAL, -ENOENT, -EEXIST, -EBUSY, -ENOSPC, -EBADMSG, -ENOMEM};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(answers); i++) {
        if (rc == answers[i]) {
            return true;
        }
    }
    return false;
}

static int command_run(struct fw_volume_manager *manager, const struct fw_volume_message *command,
                       struct fw_reason *reason)
{
    struct fw_ring_reason why = {.text = ""};
    int rc = 0;
    if (command->number != manager->metadata.command) { /* Or an earlier life has done it. */
        manager->command = command->number;
        rc = command_do(manager, command, &why);
        manager->command = 0;
        FW_LOG(volume, NOTICE, "an operator: %s %s: %s", fw_volume_kind_name(command->kind),
               command->name, rc == 0 ? "done" : why.text);
    }
    if (manager->broken == 0 && !is_decision(rc)) {
        manager->broken = rc; /* The disk has failed. */
    }
    if (manager->broken != 0) { /* Nobody knows. The next life does it. */
        return fw_reason_set(reason, manager->broken, "%s", why.text);
    }
    return command->kind != FW_VOLUME_CANCEL
               ? answer_push(manager, command->number, rc, why.text, reason)
               : 0;
}

/* What the ring has next; RETRY: nothing. What is none of ours is skipped. */
static int command_pop(struct fw_volume_manager *manager, struct fw_volume_message *command,
                       uint64_t *position, struct fw_reason *reason)
{
    uint64_t end = 0;
    int rc = fw_volume_queue_pop(manager->commands, command, &end, reason);
    if (rc == -EBADMSG && end > 0) {
        fw_volume_message_init(command, FW_VOLUME_CANCEL);
        rc = 0;
    }
    *position = end;
    return rc;
}

int fw_volume_orders_round(struct fw_volume_manager *manager, struct fw_reason *reason)
{
    struct fw_volume_message command, next;
    uint64_t end = 0;
    uint64_t next_end = 0;
    int rc = command_pop(manager, &command, &end, reason);
    while (rc == 0) {
        int more = command_pop(manager, &next, &next_end, reason);
        bool is_cancelled =
            more == 0 && next.kind == FW_VOLUME_CANCEL && next.value == command.number;
        rc = more < 0 ? more : is_cancelled ? 0 : command_run(manager, &command, reason);
        if (rc == 0) { /* Only now: who dies before does it again. */
            rc = fw_ring_advance(manager->commands, end, fw_volume_ring_reason(reason));
        }
        command = next;
        end = next_end;
        rc = rc == 0 ? more : rc;
    }
    return rc == FW_RING_RETRY ? 0 : rc;
}
