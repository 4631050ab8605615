/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate before commands: the server is asked, before one is executed, whether it may be.
 *
 * For what cannot be known of a connection but only of a request: whose key it is, whether it reads
 * or writes. The server hangs a gate on the local (struct fw_cache_gate) and answers for each
 * command: it passes; it is held, and the run ends before it with HELD, to be given again when the
 * server likes; or it is refused, which the client is told in its protocol, and what belongs to the
 * command is swallowed, so that the next one is found where it begins. Commands that administer are
 * asked about like all others, but never refused: a client can see why the server refuses. Only
 * a flush may be, since it changes items.
 *
 * Each key of a get is asked about: it is answered up to the first that is held, the run ends with
 * HELD there, and the next goes on with that key. Else one key of somebody who may have all would
 * bring in any number of another's. A value that is on its way is not asked about again.
 *
 * Without a gate nothing here runs, and a command pays one branch.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cache/meta.h"
#include "cache/parser.h"

/* What can be said of a command before it runs. */
struct fw_gate_view {
    enum fw_command_class class;
    const char *key; /* NULL: it has none. */
    size_t key_length;
    char decoded[FW_META_KEY_DECODED_MAX]; /* Of a key in base64. */
};

/* The session's command at input->next, if the gate lets it. */
enum fw_parsed fw_gate_command(struct fw_session *session, struct fw_cache_local *local,
                               struct fw_input *input);

/* Of the protocols. View: false, it has not all come, or is no command. Refuse: as parsers do. */
bool fw_text_view(const struct fw_input *input, struct fw_gate_view *view);
bool fw_binary_view(const struct fw_input *input, struct fw_gate_view *view);
enum fw_parsed fw_text_refuse(struct fw_session *session, struct fw_cache_local *local,
                              struct fw_input *input);
/* What is said then. There is room for it. */
void fw_text_refusal(struct fw_cache_local *local);
enum fw_parsed fw_binary_refuse(struct fw_session *session, struct fw_cache_local *local,
                                struct fw_input *input);
