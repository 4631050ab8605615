/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line that starts every value a get returns, written with fw_text and with snprintf().
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"
#include "base/text.h"
#include "bench/harness.h"

static const char key[] = "user:1234567890";

struct line {
    char memory[64];
};

static void text_run(void *state, uint64_t count)
{
    struct line *line = state;
    for (uint64_t i = 0; i < count; i++) {
        struct fw_text text;
        fw_text_init(&text, line->memory, sizeof line->memory);
        fw_text_append_string(&text, "VALUE ");
        fw_text_append(&text, key, sizeof key - 1);
        fw_text_append_char(&text, ' ');
        fw_text_append_unsigned(&text, i & 15);
        fw_text_append_char(&text, ' ');
        fw_text_append_unsigned(&text, 1000 + (i & 1023));
        fw_text_append_string(&text, "\r\n");
        fw_bench_use(text.length);
    }
}

static void snprintf_run(void *state, uint64_t count)
{
    struct line *line = state;
    for (uint64_t i = 0; i < count; i++) {
        int length =
            snprintf(line->memory, sizeof line->memory, "VALUE %.*s %" PRIu64 " %" PRIu64 "\r\n",
                     (int)sizeof key - 1, key, i & 15, 1000 + (i & 1023));
        fw_bench_use((uint64_t)length);
    }
}

static void decimal_run(void *state, uint64_t count)
{
    struct line *line = state;
    for (uint64_t i = 0; i < count; i++) {
        fw_bench_use(fw_text_decimal(line->memory, i * 1000003));
    }
}

static void decimal_snprintf_run(void *state, uint64_t count)
{
    struct line *line = state;
    for (uint64_t i = 0; i < count; i++) {
        int length = snprintf(line->memory, sizeof line->memory, "%" PRIu64, i * 1000003);
        fw_bench_use((uint64_t)length);
    }
}

int main(int argc, char **argv)
{
    static struct line line;
    const struct fw_bench benches[] = {
        {
            .name = "base-text-value-line",
            .unit = "ns per line",
            .ours = {"fw_text", text_run, &line},
            .peer = {"snprintf", snprintf_run, &line},
            .bar = 0.5,
            .count = 500000,
        },
        {
            .name = "base-text-decimal",
            .unit = "ns per number",
            .ours = {"fw_text_decimal", decimal_run, &line},
            .peer = {"snprintf", decimal_snprintf_run, &line},
            .bar = 0.4,
            .count = 500000,
        },
    };
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
