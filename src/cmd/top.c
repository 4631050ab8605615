/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway top: what a running server does, as a picture that lives.
 *
 * On a terminal the picture stays where it is and changes; elsewhere one follows another, so that a
 * pipe or a file gets them all. It asks by `stats`, in memcached's protocol, over one connection
 * that stays open: so it works for every server that has the answers, also another machine's, and a
 * memcached shows what it has. A server that has gone is asked again until it is back.
 *
 * One thread. While it waits for the server it looks for keys and signals too, so that `q` ends it
 * at once also when the server hangs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/reason.h"
#include "base/text.h"
#include "base/thread.h"
#include "cmd/ask.h"
#include "cmd/tool.h"
#include "cmd/top.h"
#include "io/clock.h"
#include "io/process.h"
#include "io/terminal.h"

enum { FRAME_SIZE = 1 << 20, QUESTION_SIZE = 64 };

#define FIRST_NS (200 * (int64_t)FW_NS_PER_MS) /* From the first sample to the first rates. */

struct top_config {
    struct fw_ask_server server;
    int64_t interval_ns;
    bool is_once;
    bool json;
};

static const struct fw_option top_options[] = {
    FW_OPTION_STRING(struct top_config, server.address, .name = "server",
                     .default_text = "127.0.0.1", .value_name = "ADDRESS",
                     .help = "whom to watch; with or without a port, or unix:PATH"),
    FW_OPTION_STRING(struct top_config, server.login_file, .name = "login", .value_name = "FILE",
                     .help = "a file with the line user:password, for a server that demands it"),
    FW_OPTION_DURATION(struct top_config, interval_ns, .name = "interval", .default_text = "1s",
                       .unit = "s", .min = 100 * (int64_t)FW_NS_PER_MS,
                       .help = "how often to look, and what rates are taken over"),
    FW_OPTION_BOOL(struct top_config, is_once, .name = "once", .default_text = "no",
                   .help = "show one picture, of one interval, and end"),
    FW_OPTION_BOOL(struct top_config, json, .name = "json", .default_text = "no",
                   .help = "print JSON objects, one per line and interval"),
    FW_OPTION_DURATION(struct top_config, server.patience_ns, .name = "timeout",
                       .default_text = "5s", .unit = "s", .min = FW_NS_PER_MS,
                       .help = "how long to wait for the server"),
};

static struct fw_option_table top_table(struct top_config *config)
{
    return (struct fw_option_table){.module = "top",
                                    .options = top_options,
                                    .count = FW_ARRAY_LENGTH(top_options),
                                    .config = config};
}

struct top {
    const struct top_config *config;
    struct fw_peer peer;
    bool is_connected;
    bool has_terminal;
    struct fw_terminal terminal;
    atomic_bool must_end;            /* For the peer, which looks at it while it waits. */
    struct fw_top_sample samples[3]; /* Two that are shown, and one that is being taken. */
    struct fw_top_sample *now;       /* NULL: there is none yet. */
    struct fw_top_sample *before;
    struct fw_reason trouble;
    bool has_trouble;
    char *frame; /* FRAME_SIZE bytes. */
};

/* ---- samples ------------------------------------------------------------------------------- */

static const char *const group_names[FW_TOP_GROUPS] = {
    [FW_TOP_GENERAL] = "",     [FW_TOP_TENANTS] = " tenants",         [FW_TOP_THREADS] = " threads",
    [FW_TOP_LANES] = " lanes", [FW_TOP_REPLICATION] = " replication", [FW_TOP_VOLUMES] = " volumes",
};

/* Asks for all groups. After a failure the sample is empty. */
static int sample_take(struct top *top, struct fw_top_sample *sample)
{
    char *answer;
    struct fw_reason *reason = &top->trouble;
    *sample = (struct fw_top_sample){.at_ns = fw_clock_now_ns()};
    int rc = fw_ask_peer(&top->peer, "version\r\n", "VERSION", &answer, reason);
    if (rc == 0) {
        free(answer);
        sample->answer_ns = fw_clock_now_ns() - sample->at_ns;
    }
    for (size_t i = 0; i < FW_TOP_GROUPS && rc == 0; i++) {
        char question[QUESTION_SIZE];
        (void)snprintf(question, sizeof question, "stats%s\r\n", group_names[i]);
        rc = fw_ask_peer(&top->peer, question, "END", &answer, reason);
        if (rc == 0 && !fw_figures_init(&sample->groups[i], answer)) {
            rc = fw_reason_errno(reason, -ENOMEM, "no memory for the figures");
        } else if (rc == -EPROTO && i != FW_TOP_GENERAL) {
            rc = 0; /* It does not know the group. */
        }
    }
    if (rc != 0) {
        fw_top_sample_fini(sample);
    }
    return rc;
}

static void terminal_look(void *context);

/* Connects if need be, and asks. 0, or a negative errno with what to say in top->trouble. */
static int top_look(struct top *top)
{
    struct fw_top_sample *fresh = top->samples;
    int rc = 0;
    while (fresh == top->now || fresh == top->before) {
        fresh++;
    }
    if (!top->is_connected) {
        rc = fw_ask_open(&top->peer, &top->config->server, &top->must_end, &top->trouble);
        top->is_connected = rc == 0;
        top->peer.waiting = terminal_look;
        top->peer.waiting_context = top;
    }
    if (rc == 0) {
        fw_top_sample_fini(fresh);
        rc = sample_take(top, fresh);
    }
    if (rc == 0) {
        top->before = top->now;
        top->now = fresh;
    } else if (top->is_connected) {
        fw_peer_close(&top->peer);
        top->is_connected = false;
    }
    top->has_trouble = rc != 0;
    return rc;
}

/* ---- showing ------------------------------------------------------------------------------- */

static bool wants_colours(void)
{
    const char *terminal = fw_process_variable("TERM");
    return fw_process_variable("NO_COLOR") == NULL &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

/* Returns 0, or a negative errno: nobody sees it. */
static int view_show(struct top *top, const struct fw_top_view *view)
{
    struct fw_text out;
    struct fw_top_screen screen = {.server = top->config->server.address,
                                   .trouble = top->has_trouble ? top->trouble.text : NULL};
    if (top->config->json) {
        fw_top_print_json(view, &screen, !top->config->is_once);
        return fflush(stdout) == 0 ? 0 : -EIO;
    }
    fw_text_init(&out, top->frame, FRAME_SIZE);
    if (top->has_terminal) {
        screen.has_sequences = true;
        screen.has_colours = wants_colours();
        fw_terminal_size(&top->terminal, &screen.columns, &screen.lines);
    }
    fw_top_draw(&out, view, &screen);
    if (top->has_terminal) {
        return fw_terminal_write(&top->terminal, out.data, out.length);
    }
    (void)fwrite(out.data, 1, out.length, stdout);
    (void)fputs(top->config->is_once ? "" : "\n", stdout);
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int top_show(struct top *top)
{
    struct fw_top_view view;
    if (top->now == NULL) {
        return view_show(top, NULL);
    }
    if (!fw_top_view_init(&view, top->now, top->before)) {
        return -ENOMEM;
    }
    int rc = view_show(top, &view);
    fw_top_view_fini(&view);
    return rc;
}

/* ---- waiting ------------------------------------------------------------------------------- */

static bool is_end_key(char key)
{
    return key == 'q' || key == 'Q' || key == '\003';
}

/* Takes one event, or waits for it. True: it is time to look again. */
static bool terminal_wait(struct top *top, int64_t deadline_ns)
{
    switch (fw_terminal_wait(&top->terminal, deadline_ns)) {
    case FW_TERMINAL_TIME:
        return true;
    case FW_TERMINAL_KEY:
        if (is_end_key(top->terminal.key)) {
            atomic_store(&top->must_end, true);
        }
        break;
    case FW_TERMINAL_CHANGE:
        (void)top_show(top);
        break;
    case FW_TERMINAL_END:
        atomic_store(&top->must_end, true);
        break;
    }
    return atomic_load(&top->must_end);
}

/* While the server is waited for, some times a second. */
static void terminal_look(void *context)
{
    struct top *top = context;
    while (top->has_terminal && !terminal_wait(top, 0)) {
    }
}

static void top_wait(struct top *top, int64_t deadline_ns)
{
    if (top->has_terminal) {
        while (!terminal_wait(top, deadline_ns)) {
        }
        return;
    }
    struct fw_parker parker;
    fw_parker_init(&parker);
    for (int64_t left = deadline_ns - fw_clock_now_ns(); left > 0;
         left = deadline_ns - fw_clock_now_ns()) {
        (void)fw_park_for(&parker, left);
    }
}

/* ---- the command --------------------------------------------------------------------------- */

static void top_fini(struct top *top)
{
    if (top->has_terminal) {
        fw_terminal_close(&top->terminal);
    }
    if (top->is_connected) {
        fw_peer_close(&top->peer);
    }
    for (size_t i = 0; i < FW_ARRAY_LENGTH(top->samples); i++) {
        fw_top_sample_fini(&top->samples[i]);
    }
    free(top->frame);
}

static enum fw_cmd_status top_once(struct top *top)
{
    top_wait(top, top->now->at_ns + top->config->interval_ns);
    if (top_look(top) != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", top->trouble.text);
    }
    (void)top_show(top); /* main() looks whether stdout took it. */
    return FW_CMD_OK;
}

/* Until somebody ends it, or nobody sees it any more. */
static void top_watch(struct top *top)
{
    int64_t next_ns = top->now->at_ns + FIRST_NS;
    int rc = top->has_terminal ? top_show(top) : 0;
    while (rc == 0) {
        top_wait(top, next_ns);
        if (atomic_load(&top->must_end)) {
            return;
        }
        int64_t now_ns = fw_clock_now_ns();
        (void)top_look(top); /* What was wrong is shown. */
        if (!atomic_load(&top->must_end)) {
            rc = top_show(top);
        }
        next_ns = now_ns + top->config->interval_ns;
    }
}

static enum fw_cmd_status top_with(void *context, const struct fw_option_list *words)
{
    struct top top = {.config = context, .frame = malloc(FRAME_SIZE)};
    enum fw_cmd_status status = FW_CMD_OK;
    if (words->count > 0) {
        status = fw_cmd_fail(FW_CMD_USAGE, "top takes no words, but got '%.64s'", words->items[0]);
    } else if (top.frame == NULL) {
        status = fw_cmd_fail(FW_CMD_FAILED, "no memory");
    }
    /* Who was given a wrong address is told so before the terminal is another. */
    int rc = status == FW_CMD_OK ? top_look(&top) : 0;
    if (rc == 0 && status == FW_CMD_OK && !top.config->is_once && !top.config->json &&
        fw_terminal_is_there()) {
        rc = fw_terminal_open(&top.terminal, &top.trouble);
        top.has_terminal = rc == 0;
    }
    if (rc != 0) {
        status = fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", top.trouble.text);
    } else if (status == FW_CMD_OK && top.config->is_once) {
        status = top_once(&top);
    } else if (status == FW_CMD_OK) {
        top_watch(&top);
    }
    top_fini(&top);
    return status;
}

static enum fw_cmd_status top_run(int count, char **arguments)
{
    struct top_config config;
    const struct fw_option_table table = top_table(&config);
    return fw_tool_run(&table, count, arguments, top_with);
}

const struct fw_command fw_cmd_top = {
    .name = "top",
    .summary = "watch a running server",
    .usage = "top [OPTIONS]",
    .about = "Shows what a running server does, and goes on showing it: requests, hits and\n"
             "how long an answer takes; tenants, and who is held back or refused; the queues\n"
             "of cores and lanes; replicas and volumes. Figures are per second. The key q\n"
             "ends it. Where the output is no terminal, one picture follows another.",
    .options = top_options,
    .option_count = FW_ARRAY_LENGTH(top_options),
    .run = top_run,
};
