/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's commands to a manager that runs, on this host or another: two more rings of the
 * group, one with commands, one with answers.
 *
 *     operator                                                 manager, in its step()
 *     lock, attach, drop old answers
 *     push the command, with a number  ──► commands ──►        do it, durably
 *     pop until the answer of that number   ◄── answers ◄──    push the answer
 *                                                              advance the commands
 *
 * Why rings and not a socket of the manager's process: the manager may be on any host, and who
 * operates a group is not told which; the disk is what they surely share. Why not an agent's up
 * ring: a host that is not connected must be able to connect itself, and an agent is not there.
 *
 * One operator at a time: on a host by a lock of the group's file, between hosts by the rings.
 *
 * A manager may die at any moment, so a command is done at least once: the next manager finds it in
 * the ring. Its number goes to the redo log together with what it changes, so that one that was
 * done is answered, and not done again. One operator at a time means that one number is enough.
 *
 * A command that nobody has answered in time is cancelled, by a message behind it: a manager that
 * comes later finds both and does nothing. An operator who dies leaves a command that is done
 * later, as if the manager had been slow.
 */
#pragma once

#include "volume/queue.h"
#include "volume/store.h"

struct fw_volume_operator {
    struct fw_volume_store *store;
    struct fw_disk *command_part, *answer_part;
    struct fw_ring *commands, *answers;
    uint64_t number; /* Of the command that was asked last. */
};

/* On a disk that stays the caller's. -EBUSY: another operator, on another host. */
FW_MUST_CHECK int fw_volume_operator_open(struct fw_volume_operator *own, struct fw_disk *disk,
                                          uint64_t host_number, struct fw_reason *reason);
void fw_volume_operator_close(struct fw_volume_operator *own);

/* Fills in the command's number and pushes it. */
FW_MUST_CHECK int fw_volume_operator_ask(struct fw_volume_operator *own,
                                         struct fw_volume_message *command,
                                         struct fw_reason *reason);

/* FW_RING_RETRY: there is none yet. 0: `answer` is it, and `text` the manager's reason. */
FW_MUST_CHECK int fw_volume_operator_answer(struct fw_volume_operator *own, int *answer,
                                            struct fw_reason *text, struct fw_reason *reason);

/* Takes the command back, unless it is being done. */
FW_MUST_CHECK int fw_volume_operator_cancel(struct fw_volume_operator *own,
                                            struct fw_reason *reason);

/* ---- the manager's side, remote_operator.c ---- */

struct fw_volume_manager;

/* Attaches to both rings; damaged ones are made anew. */
FW_MUST_CHECK int fw_volume_orders_attach(struct fw_volume_manager *manager,
                                          struct fw_reason *reason);
void fw_volume_orders_detach(struct fw_volume_manager *manager);

/* Does what operators want. */
FW_MUST_CHECK int fw_volume_orders_round(struct fw_volume_manager *manager,
                                         struct fw_reason *reason);

/* ---- an answer as bytes: u64 number | u32 error | text ---- */

enum { FW_VOLUME_ANSWER_HEADER = 12 };
