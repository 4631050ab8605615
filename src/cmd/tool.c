/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/reason.h"
#include "base/text.h"
#include "io/content.h"

enum { JSON_BUFFER = 64 << 10 };

enum fw_cmd_status fw_tool_run(const struct fw_option_table *table, int count, char **arguments,
                               enum fw_cmd_status (*run)(void *config,
                                                         const struct fw_option_list *words))
{
    struct fw_options options;
    struct fw_option_list words = {.count = 0};
    struct fw_reason reason;
    int rc = fw_options_init(&options, table, 1, &reason);
    if (rc != 0) {
        return fw_cmd_fail(FW_CMD_FAILED, "%s", reason.text);
    }
    rc = fw_options_parse_arguments(&options, count, arguments, &words, &reason);
    enum fw_cmd_status status =
        rc == 0 ? run(table->config, &words)
                : fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason.text);
    fw_options_fini(&options);
    return status;
}

static int stdout_sink(const char *bytes, size_t length, void *context)
{
    (void)context;
    return fwrite(bytes, 1, length, stdout) == length ? 0 : -EIO;
}

void fw_tool_json_begin(struct fw_json *json)
{
    fw_tool_json_begin_as(json, FW_JSON_PRETTY);
}

void fw_tool_json_begin_as(struct fw_json *json, enum fw_json_layout layout)
{
    static char memory[JSON_BUFFER];
    static struct fw_text buffer;
    fw_text_init(&buffer, memory, sizeof memory);
    fw_json_init_sink(json, &buffer, layout, stdout_sink, NULL);
}

void fw_tool_json_end(struct fw_json *json)
{
    (void)!fw_json_finish(json);
    (void)fputc('\n', stdout);
}

void fw_tool_tell_lost(const char *path)
{
    struct fw_content content;
    struct fw_reason reason;
    int rc = fw_content_look(path, &content, &reason);
    if (rc != 0) {
        (void)fprintf(stderr, "%s: %s\n", path, reason.text);
    } else if (content.kind != FW_CONTENT_NOTHING) {
        (void)fprintf(stderr, "%s: it holds %s, which is lost\n", path, content.text);
    }
}

void fw_tool_json_value(struct fw_json *json, const char *value)
{
    uint64_t number;
    if (fw_parse_uint(value, strlen(value), 0, UINT64_MAX, &number) == 0) {
        fw_json_unsigned(json, number);
    } else {
        fw_json_string(json, value);
    }
}
