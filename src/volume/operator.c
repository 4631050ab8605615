/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/operator.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/endian.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/random.h"
#include "ring/core.h"
#include "volume/remote.h"

enum { LOOK_MS = 20, ANSWER_S = 30, TELL_S = 1 };

/* ---- one command ---- */

static int part_attach(struct fw_volume_operator *own, enum fw_volume_part which,
                       uint64_t host_number, struct fw_reason *reason)
{
    bool is_commands = which == FW_VOLUME_PART_COMMANDS;
    struct fw_disk **part = is_commands ? &own->command_part : &own->answer_part;
    struct fw_ring **ring = is_commands ? &own->commands : &own->answers;
    const struct fw_ring_options options = {.role =
                                                is_commands ? FW_RING_PRODUCER : FW_RING_CONSUMER,
                                            .queue = is_commands ? "commands" : "answers",
                                            .client = "operator"};
    int rc = own->store->ops->part(own->store, which, 0, part, reason);
    if (rc != 0) {
        *part = NULL;
        return rc;
    }
    rc = fw_ring_attach_on(ring, *part, host_number, &options, reason);
    *ring = rc == 0 ? *ring : NULL;
    return rc;
}

int fw_volume_operator_open(struct fw_volume_operator *own, struct fw_disk *disk,
                            uint64_t host_number, struct fw_reason *reason)
{
    *own = (struct fw_volume_operator){.number = 0};
    int rc = fw_volume_store_open(&own->store, disk, reason);
    if (rc != 0) {
        return rc;
    }
    rc = part_attach(own, FW_VOLUME_PART_COMMANDS, host_number, reason);
    if (rc == 0) {
        rc = part_attach(own, FW_VOLUME_PART_ANSWERS, host_number, reason);
    }
    if (rc != 0) {
        fw_volume_operator_close(own);
    }
    return rc;
}

void fw_volume_operator_close(struct fw_volume_operator *own)
{
    struct fw_ring *rings[] = {own->commands, own->answers};
    struct fw_disk *parts[] = {own->command_part, own->answer_part};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(rings); i++) {
        if (rings[i] != NULL) {
            fw_ring_detach(rings[i]);
        }
        if (parts[i] != NULL) {
            fw_disk_close(parts[i]);
        }
    }
    own->store->ops->close(own->store);
}

/* RETRY: the ring is empty. Answers to others, who are gone, are dropped. */
int fw_volume_operator_answer(struct fw_volume_operator *own, int *answer, struct fw_reason *text,
                              struct fw_reason *reason)
{
    struct fw_ring_message message;
    uint64_t position = 0;
    uint64_t end = 0;
    bool is_ours = false;
    int rc = 0;
    while (rc == 0 && !is_ours) {
        rc = fw_ring_pop(own->answers, &message, &position, fw_volume_ring_reason(reason));
        if (rc != 0) {
            break;
        }
        end = position;
        is_ours = message.length >= FW_VOLUME_ANSWER_HEADER &&
                  fw_le64_get(message.data) == own->number && own->number != 0;
    }
    if (is_ours) {
        const uint8_t *bytes = message.data;
        *answer = -(int)fw_le32_get(bytes + sizeof(uint64_t));
        (void)snprintf(text->text, sizeof text->text, "%.*s",
                       (int)(message.length - FW_VOLUME_ANSWER_HEADER),
                       (const char *)bytes + FW_VOLUME_ANSWER_HEADER);
    }
    if (rc >= 0 && end > 0) {
        int advanced = fw_ring_advance(own->answers, end, fw_volume_ring_reason(reason));
        rc = advanced != 0 ? advanced : rc;
    }
    return rc;
}

int fw_volume_operator_ask(struct fw_volume_operator *own, struct fw_volume_message *command,
                           struct fw_reason *reason)
{
    struct fw_reason ignored;
    int answer = 0;
    int rc = fw_volume_operator_answer(own, &answer, &ignored, reason); /* Makes room. */
    if (rc != FW_RING_RETRY) {
        return rc;
    }
    rc = fw_random_seed(&own->number);
    if (rc != 0) {
        return fw_reason_errno(reason, rc, "cannot draw a random number");
    }
    own->number |= 1; /* 0 is none. */
    command->number = own->number;
    rc = fw_volume_queue_push(own->commands, command, reason);
    return rc == FW_RING_RETRY
               ? fw_reason_set(reason, -EBUSY, "the ring of commands is full; nobody takes them")
               : rc;
}

int fw_volume_operator_cancel(struct fw_volume_operator *own, struct fw_reason *reason)
{
    struct fw_volume_message cancel;
    fw_volume_message_init(&cancel, FW_VOLUME_CANCEL);
    cancel.value = own->number;
    return fw_volume_queue_push(own->commands, &cancel, reason);
}

/* ---- orders ---- */

struct ordering {
    const struct fw_volume_order *order;
    struct fw_parker parker;
    int64_t begin_ns;
    int64_t told_ns;
    uint64_t host_number;
};

/* Waits a moment and tells whoever wants to know, if it takes long. False: too long. */
static bool pause_for(struct ordering *ordering, int64_t wait_ns, const char *what)
{
    const struct fw_volume_order *order = ordering->order;
    int64_t now_ns = fw_clock_now_ns();
    if (now_ns - ordering->begin_ns >= wait_ns) {
        return false;
    }
    if (order->progress != NULL && now_ns - ordering->told_ns >= TELL_S * (int64_t)FW_NS_PER_S) {
        char text[FW_RING_REASON_SIZE];
        (void)snprintf(text, sizeof text, "waiting for %s, %" PRId64 " s", what,
                       (now_ns - ordering->begin_ns) / FW_NS_PER_S);
        order->progress(order->context, text);
        ordering->told_ns = now_ns;
    }
    (void)fw_park_for(&ordering->parker, LOOK_MS * (int64_t)FW_NS_PER_MS);
    return true;
}

static int not_gone(const struct fw_volume_order *order, struct fw_reason *reason)
{
    return fw_reason_set(reason, -ETIMEDOUT,
                         "'%.80s' was told to leave and has not answered; it leaves when its agent "
                         "runs, or say --fenced once the host is off",
                         order->name);
}

static const enum fw_volume_kind kinds[] = {
    [FW_VOLUME_DO_CREATE] = FW_VOLUME_CREATE,         [FW_VOLUME_DO_RESIZE] = FW_VOLUME_RESIZE,
    [FW_VOLUME_DO_REMOVE] = FW_VOLUME_REMOVE,         [FW_VOLUME_DO_CONNECT] = FW_VOLUME_CONNECT,
    [FW_VOLUME_DO_DISCONNECT] = FW_VOLUME_DISCONNECT, [FW_VOLUME_DO_RECLAIM] = FW_VOLUME_RECLAIM,
    [FW_VOLUME_DO_FLUSH] = FW_VOLUME_FLUSH,           [FW_VOLUME_DO_SHUTDOWN] = FW_VOLUME_SHUTDOWN,
};

static int command_make(const struct fw_volume_order *order, struct fw_volume_message *command,
                        struct fw_reason *reason)
{
    fw_volume_message_init(command, kinds[order->action]);
    command->value = order->size;
    if (order->name != NULL) {
        int rc = fw_volume_name_check(order->name, reason);
        if (rc != 0) {
            return rc;
        }
        memcpy(command->name, order->name, strlen(order->name) + 1);
    }
    return order->size <= FW_VOLUME_EXTENTS_MAX
               ? 0
               : fw_reason_set(reason, -EINVAL, "a volume has at most %d extents",
                               FW_VOLUME_EXTENTS_MAX);
}

/* Whether a host that was told to leave is gone: 0; FW_VOLUME_WAIT: not yet; -EBUSY: it stays. */
static int host_judge(const struct fw_volume_metadata *metadata, const char *name,
                      struct fw_reason *reason)
{
    char names[FW_RING_REASON_SIZE / 2];
    uint32_t host = fw_volume_metadata_find_host(metadata, name);
    if (host == FW_VOLUME_NONE) {
        return 0;
    }
    if (metadata->hosts[host].leaving != 0) {
        return FW_VOLUME_WAIT;
    }
    (void)fw_volume_metadata_open_on(metadata, host, names, sizeof names);
    return fw_volume_stays(name, names, reason);
}

/* The same, from what is on the disk. */
static int host_look(struct fw_volume_store *store, const char *name, struct fw_reason *reason)
{
    struct fw_volume_metadata metadata;
    int rc = fw_volume_view(store, FW_VOLUME_NONE, &metadata, reason);
    if (rc == 0) {
        rc = host_judge(&metadata, name, reason);
        fw_volume_metadata_fini(&metadata);
    }
    return rc;
}

/* A manager runs: it is told, and what it answers is the answer. */
static int tell(struct ordering *ordering, struct fw_volume_operator *own, struct fw_reason *reason)
{
    const struct fw_volume_order *order = ordering->order;
    struct fw_volume_message command;
    int answer = 0;
    int rc = command_make(order, &command, reason);
    if (rc == 0) {
        rc = fw_volume_operator_ask(own, &command, reason);
    }
    if (rc != 0) {
        return rc;
    }
    while ((rc = fw_volume_operator_answer(own, &answer, reason, reason)) == FW_RING_RETRY) {
        if (!pause_for(ordering, ANSWER_S * (int64_t)FW_NS_PER_S, "the manager")) {
            rc = fw_volume_operator_cancel(own, reason);
            return rc < 0 ? rc
                          : fw_reason_set(reason, -ETIMEDOUT,
                                          "the manager has not answered, and the command is taken "
                                          "back unless it is being done; look at the group");
        }
    }
    rc = rc == 0 ? answer : rc;
    if (rc != 0 || order->action != FW_VOLUME_DO_DISCONNECT) {
        return rc;
    }
    while ((rc = host_look(own->store, order->name, reason)) == FW_VOLUME_WAIT) {
        if (!pause_for(ordering, order->wait_ns, order->name)) {
            return not_gone(order, reason);
        }
    }
    return rc;
}

static int order_told(struct ordering *ordering, struct fw_reason *reason)
{
    const struct fw_disk_options options = {.path = ordering->order->path, .flags = FW_DISK_DIRECT};
    struct fw_volume_operator own;
    struct fw_disk *disk;
    int rc = fw_disk_open(&disk, &options, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_volume_operator_open(&own, disk, ordering->host_number, reason);
    if (rc == 0) {
        rc = tell(ordering, &own, reason);
        fw_volume_operator_close(&own);
    }
    fw_disk_close(disk);
    return rc;
}

/* ---- no manager runs: we are one for that moment ---- */

static int act(struct fw_volume_manager *manager, struct ordering *ordering,
               struct fw_ring_reason *reason)
{
    const struct fw_volume_order *order = ordering->order;
    int rc = 0;
    switch (order->action) {
    case FW_VOLUME_DO_CREATE:
        return fw_volume_manager_create(manager, order->name, order->size, reason);
    case FW_VOLUME_DO_RESIZE:
        return fw_volume_manager_resize(manager, order->name, order->size, reason);
    case FW_VOLUME_DO_REMOVE:
        return fw_volume_manager_remove(manager, order->name, reason);
    case FW_VOLUME_DO_CONNECT:
        return fw_volume_manager_connect(manager, order->name, reason);
    case FW_VOLUME_DO_RECLAIM:
        return fw_volume_manager_reclaim(manager, order->name, reason);
    case FW_VOLUME_DO_FLUSH:
    case FW_VOLUME_DO_SHUTDOWN:
        return 0; /* Closing does that. */
    case FW_VOLUME_DO_DISCONNECT:
        break;
    }
    rc = fw_volume_manager_disconnect(manager, order->name, reason);
    rc = rc == 0 ? FW_VOLUME_WAIT : rc;
    while (rc == FW_VOLUME_WAIT) {
        rc = fw_volume_manager_step(manager, reason);
        if (rc == 0) {
            rc = host_judge(&manager->metadata, order->name, fw_volume_reason(reason));
        }
        if (rc == FW_VOLUME_WAIT && !pause_for(ordering, order->wait_ns, order->name)) {
            rc = not_gone(order, fw_volume_reason(reason));
        }
    }
    return rc;
}

static int order_do(struct ordering *ordering, struct fw_ring_reason *reason)
{
    const struct fw_volume_manager_options options = {.path = ordering->order->path};
    struct fw_volume_manager *manager;
    struct fw_ring_reason why = {.text = ""};
    int rc = fw_volume_manager_open(&manager, &options, reason);
    if (rc == -EBUSY) {
        return order_told(ordering, fw_volume_reason(reason));
    }
    if (rc != 0) {
        return rc;
    }
    rc = act(manager, ordering, reason);
    int closed = fw_volume_manager_close(manager, &why);
    if (rc == 0 && closed != 0) {
        *reason = why;
    }
    return rc != 0 ? rc : closed;
}

int fw_volume_order(const struct fw_volume_order *order, struct fw_ring_reason *reason)
{
    struct ordering ordering = {.order = order, .begin_ns = fw_clock_now_ns()};
    struct fw_file_lock lock;
    ordering.told_ns = ordering.begin_ns;
    fw_parker_init(&ordering.parker);
    int rc;
    /* Before we look for a manager: another operator may be one for a moment. */
    while ((rc = fw_file_lock_take(&lock, order->path, FW_VOLUME_LOCK_OPERATOR,
                                   fw_volume_reason(reason))) == -EBUSY &&
           pause_for(&ordering, ANSWER_S * (int64_t)FW_NS_PER_S, "another operator")) {
    }
    if (rc == -EBUSY) {
        return fw_reason_set(fw_volume_reason(reason), rc, "another operator is at work");
    }
    if (rc == 0) {
        ordering.begin_ns = fw_clock_now_ns();
        ordering.host_number = fw_ring_host_number(&lock);
        rc = order_do(&ordering, reason);
        fw_file_lock_release(&lock);
    }
    return rc;
}
