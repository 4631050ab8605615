/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of `fairway top`, as lines of text.
 *
 * Three lines about the whole, then sections: a heading and a line per thing. Where the screen is
 * too low for all, every section keeps a few lines and the rest goes to those further up; a section
 * that is cut says how much it left out. Lines are cut at the right edge before any sequence for
 * colours is put around them, so that none is torn.
 *
 * What a server says is shown as printable ASCII: a name must not be able to steer the terminal.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cmd/top.h"

enum {
    LINE_SIZE = 512,
    CELL_SIZE = 24,
    KEPT_ROWS = 4, /* Of a section, however low the screen is. */
    SECONDS_PER_DAY = 86400,
    SECONDS_PER_HOUR = 3600,
    SECONDS_PER_MINUTE = 60,
    KIB = 1024,
};

#define PLAIN  ""
#define BOLD   "\033[1m"
#define TITLE  "\033[7m"
#define YELLOW "\033[33m"
#define RED    "\033[31m"
#define USUAL  "\033[m"

struct drawing {
    struct fw_text *out;
    const struct fw_top_view *view;
    const struct fw_top_screen *screen;
    unsigned line; /* How many there are. */
    char memory[LINE_SIZE];
    struct fw_text text; /* The present one. */
};

/* ---- numbers for people -------------------------------------------------------------------- */

struct cell {
    char text[CELL_SIZE];
};

/* 9999, 12.3k, 4.5M. */
static struct cell short_number(double value)
{
    static const char units[] = "kMGTPE";
    struct cell cell;
    if (value < 10000) {
        (void)snprintf(cell.text, sizeof cell.text, value > 0 && value < 10 ? "%.1f" : "%.0f",
                       value);
        return cell;
    }
    size_t unit = 0;
    for (value /= 1000; value >= 1000 && units[unit + 1] != '\0'; value /= 1000) {
        unit++;
    }
    (void)snprintf(cell.text, sizeof cell.text, "%.1f%c", value, units[unit]);
    return cell;
}

static struct cell whole_number(uint64_t value)
{
    struct cell cell;
    if (value < 10000) {
        (void)snprintf(cell.text, sizeof cell.text, "%" PRIu64, value);
        return cell;
    }
    return short_number((double)value);
}

static struct cell byte_number(double value)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct cell cell;
    size_t unit = 0;
    for (; value >= KIB && unit + 1 < FW_ARRAY_LENGTH(units); value /= KIB) {
        unit++;
    }
    (void)snprintf(cell.text, sizeof cell.text, unit == 0 ? "%.0f %s" : "%.1f %s", value,
                   units[unit]);
    return cell;
}

static struct cell time_span(uint64_t ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    struct cell cell = {.text = "-"};
    double value = (double)ns;
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < FW_ARRAY_LENGTH(units); value /= 1000) {
        unit++;
    }
    if (ns > 0) {
        (void)snprintf(cell.text, sizeof cell.text, unit > 0 && value < 10 ? "%.1f %s" : "%.0f %s",
                       value, units[unit]);
    }
    return cell;
}

static struct cell percentage(double part)
{
    struct cell cell = {.text = "-"};
    if (part >= 0) {
        (void)snprintf(cell.text, sizeof cell.text, "%.1f %%", 100 * part);
    }
    return cell;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void line_begin(struct drawing *drawing)
{
    fw_text_init(&drawing->text, drawing->memory, sizeof drawing->memory);
}

/* Cut to the width of the screen, with nothing that steers it, in `style`. */
static void line_end(struct drawing *drawing, const char *style)
{
    const struct fw_top_screen *screen = drawing->screen;
    struct fw_text *text = &drawing->text;
    size_t length = text->length;
    if (screen->lines > 0 && drawing->line >= screen->lines) {
        return;
    }
    if (screen->columns > 0 && length > screen->columns) {
        length = screen->columns;
    }
    for (size_t i = 0; i < length; i++) {
        if (text->data[i] < ' ' || text->data[i] > '~') {
            text->data[i] = '?';
        }
    }
    while (length > 0 && text->data[length - 1] == ' ' && strcmp(style, TITLE) != 0) {
        length--;
    }
    if (screen->has_sequences) {
        const char *used = screen->has_colours ? style : PLAIN;
        /* The last line has no end, which would scroll the screen. */
        fw_text_append_string(drawing->out, drawing->line > 0 ? "\r\n" : "");
        fw_text_append_string(drawing->out, used);
        fw_text_append(drawing->out, text->data, length);
        fw_text_append_string(drawing->out, used[0] != '\0' ? USUAL "\033[K" : "\033[K");
    } else {
        fw_text_append(drawing->out, text->data, length);
        fw_text_append_char(drawing->out, '\n');
    }
    drawing->line++;
}

/* ---- sections ------------------------------------------------------------------------------ */

struct section {
    const char *heading; /* NULL: head() writes it. */
    void (*head)(struct drawing *drawing);
    const char *things;                                        /* "tenants". */
    const char *(*row)(struct drawing *drawing, size_t index); /* Its style. */
    size_t count;
    size_t shown; /* Lines of it, of which the last may say how many more there are. */
};

/* What 80 columns do not hold is what changes least. */
static const char tenant_heading[] =
    "TENANT             STATE     SERVED/S   SHARE   HELD/S  SHED/S WAIT P99 WAITING"
    " WAIT P50    RATE WEIGHT";

static const char *tenant_row(struct drawing *drawing, size_t index)
{
    const struct fw_top_tenant *tenant = &drawing->view->tenants[index];
    struct cell limit = {.text = "-"};
    if (tenant->rate > 0) {
        limit = whole_number(tenant->rate);
    }
    fw_text_printf(&drawing->text, "%-18.18s %-9s %8s %7s %8s %7s %8s %7s %8s %7s %6s",
                   tenant->name, fw_top_states[tenant->state], short_number(tenant->served).text,
                   percentage(tenant->share).text, short_number(tenant->throttled).text,
                   short_number(tenant->shed).text, time_span(tenant->wait_p99_ns).text,
                   whole_number(tenant->waiting).text, time_span(tenant->wait_p50_ns).text,
                   limit.text, whole_number(tenant->weight).text);
    return tenant->state == FW_TOP_REFUSED ? RED : tenant->state == FW_TOP_HELD ? YELLOW : PLAIN;
}

static const char core_heading[] =
    "LOCALITY, CORE        QUEUE  TURNS/S     CUT/S         IN/S        OUT/S";

static const char *core_row(struct drawing *drawing, size_t index)
{
    const struct fw_top_core *core = &drawing->view->cores[index];
    fw_text_printf(&drawing->text, "%-18.18s %8s %8s %9s %12s %12s", core->name,
                   whole_number(core->queue).text, short_number(core->turns).text,
                   short_number(core->yields).text, byte_number(core->bytes_in).text,
                   byte_number(core->bytes_out).text);
    return PLAIN;
}

static const char lane_heading[] =
    "LANE                WAITING  RUNNING STARTED/S     WAIT P99      RUN P99";

static const char *lane_row(struct drawing *drawing, size_t index)
{
    const struct fw_top_lane *lane = &drawing->view->lanes[index];
    fw_text_printf(&drawing->text, "%-18.18s %8s %8s %9s %12s %12s", lane->name,
                   whole_number(lane->waiting).text, whole_number(lane->running).text,
                   short_number(lane->started).text, time_span(lane->wait_p99_ns).text,
                   time_span(lane->run_p99_ns).text);
    return PLAIN;
}

static const char *slave_row(struct drawing *drawing, size_t index)
{
    const struct fw_top_slave *slave = &drawing->view->slaves[index];
    fw_text_printf(&drawing->text, "%-26.26s %-12.12s %12s %9" PRIu64 " ms %12s", slave->address,
                   slave->state, byte_number((double)slave->behind_bytes).text, slave->behind_ms,
                   byte_number(slave->bytes_out).text);
    return strcmp(slave->state, "streaming") == 0 ? PLAIN : YELLOW;
}

static const char *or_dash(const char *text)
{
    return text != NULL ? text : "-";
}

static void replication_head(struct drawing *drawing)
{
    const struct fw_figures *figures = &drawing->view->now->groups[FW_TOP_REPLICATION];
    const char *master = fw_figures_get(figures, "master");
    if (master != NULL) {
        fw_text_printf(&drawing->text, "REPLICATION  %s of %s, link %s, age %s ms",
                       or_dash(fw_figures_get(figures, "role")), master,
                       or_dash(fw_figures_get(figures, "link")),
                       or_dash(fw_figures_get(figures, "age_ms")));
    } else if (drawing->view->slave_count == 0) {
        fw_text_printf(&drawing->text, "REPLICATION  %s, no slave",
                       or_dash(fw_figures_get(figures, "role")));
    } else {
        fw_text_printf(&drawing->text, "%-26s %-12s %12s %12s %12s", "REPLICA", "STATE", "BEHIND",
                       "SINCE", "OUT/S");
    }
}

static void volumes_head(struct drawing *drawing)
{
    const struct fw_figures *figures = &drawing->view->now->groups[FW_TOP_VOLUMES];
    fw_text_printf(
        &drawing->text, "VOLUMES  of %s, host %s: managers %s, agents %s, pool %s extents",
        or_dash(fw_figures_get(figures, "group")), or_dash(fw_figures_get(figures, "host")),
        or_dash(fw_figures_get(figures, "managers")), or_dash(fw_figures_get(figures, "agents")),
        or_dash(fw_figures_get(figures, "pool")));
}

/* Those that this server has. Returns how many. */
static size_t sections_list(const struct fw_top_view *view, struct section sections[static 5])
{
    size_t count = 0;
    if (view->tenant_count > 0) {
        sections[count++] = (struct section){.heading = tenant_heading,
                                             .things = "tenants",
                                             .row = tenant_row,
                                             .count = view->tenant_count};
    }
    if (view->core_count > 0) {
        sections[count++] = (struct section){
            .heading = core_heading, .things = "cores", .row = core_row, .count = view->core_count};
    }
    if (view->lane_count > 0) {
        sections[count++] = (struct section){
            .heading = lane_heading, .things = "lanes", .row = lane_row, .count = view->lane_count};
    }
    if (view->has_replication) {
        sections[count++] = (struct section){.head = replication_head,
                                             .things = "replicas",
                                             .row = slave_row,
                                             .count = view->slave_count};
    }
    if (view->has_volumes) {
        sections[count++] = (struct section){.head = volumes_head};
    }
    return count;
}

/* Each section needs its heading and an empty line before it; then rows, while there is room. */
static void sections_fit(struct section *sections, size_t count, size_t lines)
{
    size_t room = lines > 2 * count ? lines - 2 * count : 0;
    for (size_t i = 0; i < count; i++) {
        size_t kept = sections[i].count < KEPT_ROWS ? sections[i].count : KEPT_ROWS;
        sections[i].shown = kept < room ? kept : room;
        room -= sections[i].shown;
    }
    for (size_t i = 0; i < count; i++) {
        size_t more = sections[i].count - sections[i].shown;
        more = more < room ? more : room;
        sections[i].shown += more;
        room -= more;
    }
}

static void section_draw(struct drawing *drawing, const struct section *section)
{
    line_begin(drawing);
    line_end(drawing, PLAIN);
    line_begin(drawing);
    if (section->head != NULL) {
        section->head(drawing);
    } else {
        fw_text_append_string(&drawing->text, section->heading);
    }
    line_end(drawing, TITLE);
    for (size_t i = 0; i < section->shown; i++) {
        line_begin(drawing);
        if (i + 1 == section->shown && section->shown < section->count) {
            fw_text_printf(&drawing->text, "... %zu more %s", section->count - i, section->things);
            line_end(drawing, PLAIN);
        } else {
            line_end(drawing, section->row(drawing, i));
        }
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void head_draw(struct drawing *drawing)
{
    const struct fw_top_summary *summary = &drawing->view->summary;
    uint64_t seconds = summary->uptime_s;
    line_begin(drawing);
    fw_text_printf(&drawing->text, "requests %s/s   hits %s   answer %s   connections %s",
                   short_number(summary->requests).text, percentage(summary->hit_ratio).text,
                   time_span((uint64_t)summary->answer_ns).text,
                   whole_number(summary->connections).text);
    fw_text_printf(&drawing->text, "   up %" PRIu64 "d %02" PRIu64 ":%02" PRIu64 ":%02" PRIu64,
                   seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY / SECONDS_PER_HOUR,
                   seconds % SECONDS_PER_HOUR / SECONDS_PER_MINUTE, seconds % SECONDS_PER_MINUTE);
    line_end(drawing, PLAIN);
    line_begin(drawing);
    fw_text_printf(
        &drawing->text, "items %s   memory %s of %s   evictions %s/s   in %s/s   out %s/s",
        whole_number(summary->items).text, byte_number((double)summary->bytes).text,
        byte_number((double)summary->bytes_max).text, short_number(summary->evictions).text,
        byte_number(summary->bytes_in).text, byte_number(summary->bytes_out).text);
    line_end(drawing, PLAIN);
}

void fw_top_draw(struct fw_text *out, const struct fw_top_view *view,
                 const struct fw_top_screen *screen)
{
    struct drawing drawing = {.out = out, .view = view, .screen = screen};
    fw_text_append_string(out, screen->has_sequences ? "\033[H" : "");
    line_begin(&drawing);
    fw_text_printf(&drawing.text, "fairway top   %s   %s", screen->server,
                   view != NULL ? view->summary.version : "");
    if (screen->trouble != NULL) {
        line_end(&drawing, BOLD);
        line_begin(&drawing);
        fw_text_printf(&drawing.text, "not reachable: %s", screen->trouble);
        line_end(&drawing, RED);
    } else if (view != NULL) {
        fw_text_printf(&drawing.text, "   process %" PRIu64 "%s", view->summary.process,
                       screen->has_sequences ? "   q quits" : "");
        line_end(&drawing, BOLD);
    }
    if (view != NULL) {
        struct section sections[5];
        size_t count = sections_list(view, sections);
        head_draw(&drawing);
        sections_fit(sections, count,
                     screen->lines == 0             ? SIZE_MAX
                     : screen->lines > drawing.line ? screen->lines - drawing.line
                                                    : 0);
        for (size_t i = 0; i < count; i++) {
            section_draw(&drawing, &sections[i]);
        }
    }
    fw_text_append_string(out, screen->has_sequences ? "\033[J" : "");
}
