/* SPDX-License-Identifier: Apache-2.0 */
#include "http/status.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/parse.h"
#include "base/text.h"

enum { BUFFER = 16 << 10, THING_SIZE = 256, PERCENT_MIDDLE = 50, PERCENT_TAIL = 99 };

/* Those that a server has not are empty. */
static const char *const groups[] = {"", "tenants", "threads", "epochs", "replication", "volumes"};

struct page {
    struct fw_json json;
    char thing[THING_SIZE]; /* Whose object is open; "" if none. */
};

static int file_sink(const char *bytes, size_t length, void *context)
{
    return fwrite(bytes, 1, length, context) == length ? 0 : -ENOMEM;
}

static void value_write(struct fw_json *json, const char *value)
{
    uint64_t number;
    if (fw_parse_uint(value, strlen(value), 0, UINT64_MAX, &number) == 0) {
        fw_json_unsigned(json, number);
    } else {
        fw_json_string(json, value);
    }
}

static void thing_end(struct page *page)
{
    if (page->thing[0] != '\0') {
        fw_json_object_end(&page->json);
        page->thing[0] = '\0';
    }
}

/* The rows of a thing follow each other. */
static void row_write(void *context, const char *name, const char *value)
{
    struct page *page = context;
    const char *colon = strrchr(name, ':');
    size_t length = colon != NULL ? (size_t)(colon - name) : 0;
    if (length >= sizeof page->thing) {
        return;
    }
    if (strlen(page->thing) != length || memcmp(page->thing, name, length) != 0) {
        thing_end(page);
        if (length > 0) {
            memcpy(page->thing, name, length);
            page->thing[length] = '\0';
            fw_json_key(&page->json, page->thing);
            fw_json_object_begin(&page->json);
        }
    }
    fw_json_key(&page->json, colon != NULL ? colon + 1 : name);
    value_write(&page->json, value);
}

static void metric_write(const struct fw_metric_value *value, void *context)
{
    struct fw_json *json = context;
    if (value->label_name != NULL) {
        return; /* Of things that have a group of their own, above. */
    }
    fw_json_key(json, value->name);
    switch (value->row->type) {
    case FW_METRIC_TYPE_COUNTER:
        fw_json_unsigned(json, value->counter);
        break;
    case FW_METRIC_TYPE_GAUGE:
        fw_json_signed(json, value->gauge);
        break;
    case FW_METRIC_TYPE_HISTOGRAM:
        fw_json_object_begin(json);
        fw_json_key(json, "count");
        fw_json_unsigned(json, fw_histogram_count(value->histogram));
        fw_json_key(json, "p50");
        fw_json_unsigned(json, fw_histogram_percentile(value->histogram, PERCENT_MIDDLE));
        fw_json_key(json, "p99");
        fw_json_unsigned(json, fw_histogram_percentile(value->histogram, PERCENT_TAIL));
        fw_json_key(json, "max");
        fw_json_unsigned(json, fw_histogram_max(value->histogram));
        fw_json_object_end(json);
        break;
    }
}

int fw_status_write(const struct fw_http_shown *shown, FILE *out)
{
    char memory[BUFFER];
    struct fw_text buffer;
    struct page page = {.thing = ""};
    fw_text_init(&buffer, memory, sizeof memory);
    fw_json_init_sink(&page.json, &buffer, FW_JSON_COMPACT, file_sink, out);
    fw_json_object_begin(&page.json);
    fw_json_key(&page.json, "ready");
    fw_json_bool(&page.json, shown->is_ready(shown->context));
    fw_json_key(&page.json, "groups");
    fw_json_object_begin(&page.json);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(groups); i++) {
        fw_json_key(&page.json, groups[i][0] != '\0' ? groups[i] : "general");
        fw_json_object_begin(&page.json);
        (void)shown->stats(shown->context, groups[i], row_write, &page);
        thing_end(&page);
        fw_json_object_end(&page.json);
    }
    fw_json_object_end(&page.json);
    fw_json_key(&page.json, "metrics");
    fw_json_object_begin(&page.json);
    fw_metrics_visit(shown->metrics, metric_write, &page.json);
    fw_json_object_end(&page.json);
    fw_json_object_end(&page.json);
    return fw_json_finish(&page.json);
}
