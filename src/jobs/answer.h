/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command answers: kept as it is said, laid out when the command has ended.
 *
 * A command says figures, rows of tables and text (fw_jobs_number() and its neighbours in
 * <fairway/jobs.h>) and does not know who reads them. People get aligned tables, for which all rows
 * must be known before the first is written; programs get one JSON object, valid also where the
 * answer had to be cut. So that no command is written twice, neither is made by commands.
 *
 * Kept are marked pieces in one buffer of FW_JOBS_OUTPUT_SIZE bytes, so memory does not depend on
 * how much a command has to say. Marks are control characters, which are taken out of what is said.
 *
 * Threads: an answer is its command's, and so of one worker.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <fairway/jobs.h>

#include "base/text.h"

/*
 * Memory that suffices for any answer as JSON: each byte may become an escape of six. A table for
 * people that is larger is cut.
 */
enum { FW_ANSWER_LAID_OUT_SIZE = 6 * FW_JOBS_OUTPUT_SIZE + 256 };

struct fw_jobs_output {
    struct fw_text said;
    size_t whole;  /* Of `said`, if it was cut: half a figure and half a row are not shown. */
    char last;     /* The mark of the last piece. */
    bool has_rows; /* Then numbers and texts are theirs. */
};

/* Nothing was said yet. `memory` has FW_JOBS_OUTPUT_SIZE bytes, and stays the caller's. */
void fw_answer_init(struct fw_jobs_output *output, char *memory);

void fw_answer_people(const struct fw_jobs_output *output, struct fw_text *text);
void fw_answer_json(const struct fw_jobs_output *output, struct fw_text *text);
