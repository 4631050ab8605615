/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer: whoever holds its lock (FW_RANK_LOG) turns what is in the rings into lines, orders
 * them by time, and gives them to the target in batches. The lock is the role.
 *
 * The target belongs to the role too: a file with its rotation, stderr, or a function (for tests).
 * Only who holds the role touches it, and nobody but a writer waits for a target that is slow.
 *
 * A batch is one write(). Positions in the rings move only when it is done, so that what a killed
 * process had taken but not written is still there.
 *
 * The writer's own lines (lines lost, trouble with the file) go straight into its batch: it must
 * never log, since it could come to wait for itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/metrics.h"
#include "base/reason.h"
#include "log/line.h"

struct fw_log_metrics {
    struct fw_metric_source source;
    struct fw_counter lines;
    struct fw_counter bytes;
    struct fw_counter batches;
    struct fw_counter dropped;
    struct fw_counter blocked;
    struct fw_counter failed;
    struct fw_counter rotations;
    struct fw_gauge ring_high_water;
};
/* Written by the writer. A program that has a registry registers it there. */
extern struct fw_log_metrics fw_log_metrics;
extern const struct fw_metric_table fw_log_metric_table;

/* Writes a line that its caller has made, behind all that is in the rings. */
void fw_log_writer_write(struct fw_log_line *line);

/* fw_log_drain(), which also tells whether the role was free. */
enum fw_log_drained { FW_LOG_DRAIN_BUSY, FW_LOG_DRAIN_NOTHING, FW_LOG_DRAIN_SOME };
enum fw_log_drained fw_log_writer_drain(void);

/* The same, waiting for the role. */
void fw_log_writer_drain_all(void);

/* Begins to look at the rings: learns how fast ticks run. And the last look, and no more. */
void fw_log_writer_begin(void);
void fw_log_writer_end(void);

/* fw_log_reopen() asks the writer; true until it has been done. */
bool fw_log_writer_is_asked(void);

/* Counted by those who log, on their slow path; the writer brings them to the metrics. */
void fw_log_writer_count_dropped(void);
void fw_log_writer_count_blocked(void);

/*
 * For tests: lines go to `sink`, which says in `done` how many bytes it took and returns 0 or a
 * negative errno. NULL: to where they went before.
 */
void fw_log_writer_set_sink(int (*sink)(void *context, const char *lines, size_t size,
                                        size_t *done),
                            void *context);
