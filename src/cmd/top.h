/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `fairway top` share: two samples of a server's figures become a view, which is
 * drawn as text (top_draw.c) or written as JSON (top_json.c). top.c asks, waits and ends.
 *
 * A server counts; people want to know how fast. So whatever only rises is shown as a rate between
 * the two samples, and what fell (the server was started again) as 0. Before there are two samples
 * all rates are 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/text.h"
#include "cmd/figures.h"

/* Groups of figures that a server is asked for; those that it does not know are empty. */
enum fw_top_group {
    FW_TOP_GENERAL,
    FW_TOP_TENANTS,
    FW_TOP_THREADS,
    FW_TOP_LANES,
    FW_TOP_REPLICATION,
    FW_TOP_VOLUMES,
    FW_TOP_GROUPS,
};

struct fw_top_sample {
    int64_t at_ns;
    int64_t answer_ns; /* How long the server took for a question that takes no work. */
    struct fw_figures groups[FW_TOP_GROUPS];
};

void fw_top_sample_fini(struct fw_top_sample *sample);

struct fw_top_summary {
    const char *version; /* Lent by the sample, as all names below. */
    uint64_t process;
    uint64_t uptime_s;
    double requests;  /* Of all kinds, per second; so are all doubles but the ratio. */
    double hit_ratio; /* From 0 to 1; below 0: nobody asked for anything. */
    double evictions;
    double bytes_in;
    double bytes_out;
    uint64_t items;
    uint64_t bytes;
    uint64_t bytes_max;
    uint64_t connections;
    int64_t answer_ns;
};

enum fw_top_state { FW_TOP_SERVED, FW_TOP_HELD, FW_TOP_REFUSED };

struct fw_top_tenant {
    const char *name;
    enum fw_top_state state; /* Since the last sample. */
    uint64_t weight;
    uint64_t rate; /* 0: no limit. */
    uint64_t waiting;
    double served;
    double share; /* Of what was served, by cost, from 0 to 1. */
    double delayed;
    double throttled;
    double shed;
    uint64_t wait_p50_ns; /* Of those served since the last sample. */
    uint64_t wait_p99_ns;
};

/* A core: the localities' part that has a queue of its own. */
struct fw_top_core {
    const char *name;
    uint64_t queue;
    double turns;
    double yields;
    double bytes_in;
    double bytes_out;
};

struct fw_top_lane {
    const char *name;
    uint64_t waiting;
    uint64_t running;
    double started;
    uint64_t wait_p99_ns;
    uint64_t run_p99_ns;
};

struct fw_top_slave {
    const char *name;
    const char *address;
    const char *state;
    uint64_t behind_bytes;
    uint64_t behind_ms;
    double bytes_out;
};

struct fw_top_view {
    const struct fw_top_sample *now;
    struct fw_top_summary summary;
    struct fw_top_tenant *tenants; /* Who is refused or held back first, then who is served most. */
    size_t tenant_count;
    struct fw_top_core *cores;
    size_t core_count;
    struct fw_top_lane *lanes;
    size_t lane_count;
    struct fw_top_slave *slaves;
    size_t slave_count;
    bool has_replication;
    bool has_volumes;
    double seconds; /* Between the samples; 0: there was none before. */
};

/* `before` may be NULL. Both samples must outlive the view. False: no memory. */
FW_MUST_CHECK bool fw_top_view_init(struct fw_top_view *view, const struct fw_top_sample *now,
                                    const struct fw_top_sample *before);
void fw_top_view_fini(struct fw_top_view *view);

extern const char *const fw_top_states[]; /* By enum fw_top_state; of one that is served "". */

/* How to draw. */
struct fw_top_screen {
    unsigned columns; /* 0: as long as lines and picture are. */
    unsigned lines;
    bool has_sequences; /* It is a terminal: the picture goes over the one before. */
    bool has_colours;
    const char *server;
    const char *trouble; /* Why there is nothing newer; NULL: all is well. */
};

/* Appends the picture; `view` may be NULL where there is trouble. */
void fw_top_draw(struct fw_text *out, const struct fw_top_view *view,
                 const struct fw_top_screen *screen);

/* The same as an object on stdout: one line of it if `is_compact`. */
void fw_top_print_json(const struct fw_top_view *view, const struct fw_top_screen *screen,
                       bool is_compact);
