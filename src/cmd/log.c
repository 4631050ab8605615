/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway log recover FILE: prints the lines that a process had logged but not yet written when it
 * was killed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/reason.h"
#include "cmd/tool.h"
#include "io/file.h"
#include "log/recover.h"

struct log_config {
    int format;
};

static const char *const formats[] = {"text", "json", NULL};

static const struct fw_option log_options[] = {
    FW_OPTION_ENUM(struct log_config, format, .name = "format", .default_text = "text",
                   .names = formats, .help = "print lines as text or as JSON objects"),
};

static struct fw_option_table log_table(struct log_config *config)
{
    return (struct fw_option_table){.module = "log",
                                    .options = log_options,
                                    .count = FW_ARRAY_LENGTH(log_options),
                                    .config = config};
}

static void line_print(void *context, const char *line, size_t length)
{
    (void)fwrite(line, 1, length, context); /* main() looks whether it worked. */
}

static enum fw_cmd_status recover(const char *path, enum fw_log_layout layout)
{
    char *contents;
    size_t size;
    struct fw_reason reason;
    struct fw_log_recovered recovered;
    int rc = fw_file_read(path, FW_FILE_SIZE_MAX, &contents, &size, &reason);
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    }
    const struct fw_log_printer printer = {
        .layout = layout, .print = line_print, .context = stdout};
    rc = fw_log_recover(contents, size, &printer, &recovered, &reason);
    free(contents);
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "cannot recover %s: %s", path, reason.text);
    }
    (void)fprintf(stderr, "%" PRIu64 " lines of process %" PRIu32 " recovered\n", recovered.lines,
                  recovered.process);
    if (recovered.damaged > 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s is damaged: what could be read has been printed",
                           path);
    }
    return FW_CMD_OK;
}

static enum fw_cmd_status log_with(void *context, const struct fw_option_list *words)
{
    const struct log_config *config = context;
    if (words->count != 2 || strcmp(words->items[0], "recover") != 0) {
        return fw_cmd_fail(FW_CMD_USAGE,
                           "log takes 'recover' and one file; see 'fairway help log'");
    }
    return recover(words->items[1], config->format == 1 ? FW_LOG_LAYOUT_JSON : FW_LOG_LAYOUT_TEXT);
}

static enum fw_cmd_status log_run(int count, char **arguments)
{
    struct log_config config;
    const struct fw_option_table table = log_table(&config);
    return fw_tool_run(&table, count, arguments, log_with);
}

const struct fw_command fw_cmd_log = {
    .name = "log",
    .summary = "recover what a killed server had logged",
    .usage = "log recover [OPTIONS] FILE",
    .about = "Prints the lines that a server had logged but not yet written when it was\n"
             "killed or crashed. FILE is fairway-log.PROCESS.N in its --log-map-directory.\n"
             "The last lines of its log may be among them once more. FILE is left as it is;\n"
             "remove it when you have seen it.",
    .options = log_options,
    .option_count = FW_ARRAY_LENGTH(log_options),
    .run = log_run,
};
