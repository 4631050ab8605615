/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it takes to say whose a request is, by 10,000 rules with a prefix each, of four lengths;
 * beside a single one.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench/harness.h"
#include "sched/rules.h"

enum { RULES = 10000, TEXT_SIZE = 64, KEYS = 1 << 16 };

struct side {
    struct fw_rules *rules;
    struct fw_rule_scope scope;
};

static char texts[RULES][TEXT_SIZE];
static char keys[KEYS][TEXT_SIZE];
static struct fw_address listener;

static void classify_run(void *state, uint64_t count)
{
    const struct side *side = state;
    for (uint64_t i = 0; i < count; i++) {
        const char *key = keys[i * 40503 % KEYS]; /* Odd: it goes through all of them. */
        fw_bench_use(
            fw_rules_classify(side->rules, &side->scope, FW_RULE_READ, key, strlen(key)).tenant);
    }
}

static int side_make(struct side *side, uint32_t count)
{
    static struct fw_rule list[RULES];
    struct fw_reason reason;
    for (uint32_t i = 0; i < count; i++) {
        list[i].verdict.tenant = i + 1;
        int rc = fw_rule_parse(&list[i], texts[i], &reason);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = fw_rules_create(&side->rules, list, count, (struct fw_rule_verdict){.tenant = 0});
    if (rc == 0) {
        fw_rules_scope(side->rules, &(struct fw_rule_facts){.listener = &listener}, &side->scope);
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct side many, one;
    static const char *const ends[] = {":", "::", ":obj:", ":session:"};
    for (uint32_t i = 0; i < RULES; i++) {
        (void)snprintf(texts[i], TEXT_SIZE, "prefix app%05u%s", i, ends[i % 4]);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t rule = i * 7919U % RULES;
        (void)snprintf(keys[i], TEXT_SIZE, "app%05u%skey-%08u", rule, ends[rule % 4], i);
    }
    struct fw_reason reason;
    if (fw_address_parse("127.0.0.1:11211", 0, 0, &listener, 1, &reason) != 1 ||
        side_make(&many, RULES) != 0 || side_make(&one, 1) != 0) {
        return 1;
    }
    const struct fw_bench benches[] = {{
        .name = "sched-rules",
        .unit = "ns per request",
        .ours = {"10,000 rules", classify_run, &many},
        .peer = {"one rule", classify_run, &one},
        .bar = 20,
        .bar_ns = 150,
        .count = 2000000,
    }};
    return fw_bench_main(argc, argv, benches, FW_ARRAY_LENGTH(benches));
}
