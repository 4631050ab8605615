/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: no text crashes the parser of rules; what it accepts can be made into a set and asked.
 * Each line of the input is a rule, and each is asked about as a key as well.
 */
#include "sched/rules.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"

enum { TEXT_MAX = 4096, RULES_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const struct fw_rules *rules, size_t count, const char *key)
{
    struct fw_address listener;
    struct fw_rule_scope scope;
    int found = fw_address_parse("127.0.0.1:11211", 0, 0, &listener, 1, NULL);
    FW_ASSERT(found == 1);
    struct fw_rule_facts facts = {
        .listener = &listener, .peer = &listener, .login = key, .login_length = strlen(key)};
    fw_rules_scope(rules, &facts, &scope);
    for (int class = 0; class < FW_RULE_CLASSES; class ++) {
        struct fw_rule_verdict verdict =
            fw_rules_classify(rules, &scope, (enum fw_rule_class) class, key, strlen(key));
        FW_ASSERT(verdict.tenant <= count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_MAX + 1];
    struct fw_rule list[RULES_MAX] = {{.conditions = 0}};
    size_t count = 0;
    size_t length = size < TEXT_MAX ? size : TEXT_MAX;
    memcpy(text, data, length);
    text[length] = '\0';
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line != NULL && count < RULES_MAX;
         line = strsep(&rest, "\n")) {
        struct fw_reason reason = {""};
        list[count].verdict.tenant = (uint32_t)count + 1;
        int rc = fw_rule_parse(&list[count], line, &reason);
        FW_ASSERT((rc != 0) == (reason.text[0] != '\0'));
        count += rc == 0;
    }
    struct fw_rules *rules;
    if (fw_rules_create(&rules, list, count, (struct fw_rule_verdict){.tenant = 0}) == 0) {
        for (size_t i = 0; i < count; i++) {
            ask(rules, count, list[i].prefix != NULL ? list[i].prefix : "key");
        }
        fw_rules_destroy(rules);
    }
    return 0;
}
