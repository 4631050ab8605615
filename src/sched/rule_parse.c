/* SPDX-License-Identifier: Apache-2.0 */
/* The text of one rule: words by twos, a condition and its value, with `and` in between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/parse.h"
#include "sched/rules.h"

struct word {
    const char *text;
    size_t length;
};

/* The next word from `*at` on; empty at the end. */
static struct word word_next(const char **at)
{
    const char *begin = *at + strspn(*at, " \t");
    size_t length = strcspn(begin, " \t");
    *at = begin + length;
    return (struct word){.text = begin, .length = length};
}

/* A copy that ends with a zero; false: it is too long for one. */
static bool word_copy(const struct word *word, char *to, size_t size)
{
    if (word->length >= size) {
        return false;
    }
    memcpy(to, word->text, word->length);
    to[word->length] = '\0';
    return true;
}

static int parse_listener(struct fw_rule *rule, const struct word *word, struct fw_reason *reason)
{
    char text[FW_ADDRESS_TEXT_SIZE + sizeof "unix:"];
    if (!word_copy(word, text, sizeof text)) {
        return fw_reason_set(reason, -EINVAL, "the address of a listener is too long");
    }
    rule->has_any_host = text[0] == ':';
    int count = fw_address_parse(text, 0, 0, &rule->listener, 1, reason);
    return count < 0 ? -EINVAL : 0;
}

/* The bits of the address beyond `length` must be 0: else it is not clear what was meant. */
static bool network_is_clean(const uint8_t *network, size_t size, unsigned length)
{
    for (unsigned bit = length; bit < 8 * size; bit++) {
        if ((network[bit / 8] & (0x80U >> (bit % 8))) != 0) {
            return false;
        }
    }
    return true;
}

/* An address without a port. False: it is none. */
static bool parse_network(struct fw_rule *rule, const char *text)
{
    struct fw_address address;
    bool is_any = text[0] == ':' && text[1] != ':'; /* ":80" and "" stand for several. */
    if (is_any || text[0] == '\0' || fw_address_parse(text, 0, 0, &address, 1, NULL) != 1 ||
        fw_address_port(&address) != 0) {
        return false;
    }
    rule->network_family = (uint8_t)address.any.sa_family;
    if (address.any.sa_family == AF_INET) {
        memcpy(rule->network, &address.ipv4.sin_addr, sizeof address.ipv4.sin_addr);
    } else if (address.any.sa_family == AF_INET6) {
        memcpy(rule->network, &address.ipv6.sin6_addr, sizeof address.ipv6.sin6_addr);
    }
    return address.any.sa_family != AF_UNIX;
}

static int parse_address(struct fw_rule *rule, const struct word *word, struct fw_reason *reason)
{
    char text[INET6_ADDRSTRLEN + sizeof "/128"];
    const char *wanted = "give an address such as 10.0.0.1 or fd00::1, or a range such as "
                         "10.0.0.0/8 or fd00::/8";
    if (!word_copy(word, text, sizeof text)) {
        return fw_reason_set(reason, -EINVAL, "no address: %s", wanted);
    }
    char *slash = strchr(text, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    if (!parse_network(rule, text)) {
        return fw_reason_set(reason, -EINVAL, "'%s' is no address: %s", text, wanted);
    }
    size_t size = rule->network_family == AF_INET ? sizeof(struct in_addr) : sizeof rule->network;
    uint64_t bits = 8 * size;
    if (slash != NULL && fw_parse_uint(slash + 1, strlen(slash + 1), 0, 8 * size, &bits) != 0) {
        return fw_reason_set(reason, -EINVAL, "behind the / of a range comes a number up to %zu",
                             8 * size);
    }
    if (!network_is_clean(rule->network, size, (unsigned)bits)) {
        return fw_reason_set(reason, -EINVAL,
                             "%s has bits beyond the %u that count: make them 0, or the number "
                             "larger",
                             text, (unsigned)bits);
    }
    rule->network_bits = (uint8_t)bits;
    return 0;
}

static int parse_login(struct fw_rule *rule, const struct word *word, struct fw_reason *reason)
{
    if (word->length > FW_RULE_LOGIN_MAX) {
        return fw_reason_set(reason, -EINVAL, "a login has at most %d bytes", FW_RULE_LOGIN_MAX);
    }
    rule->login = word->text;
    rule->login_length = (uint8_t)word->length;
    return 0;
}

static int parse_prefix(struct fw_rule *rule, const struct word *word, struct fw_reason *reason)
{
    if (word->length > FW_RULE_PREFIX_MAX) {
        return fw_reason_set(reason, -EINVAL, "a key has at most %d bytes, and so has a prefix",
                             FW_RULE_PREFIX_MAX);
    }
    rule->prefix = word->text;
    rule->prefix_length = (uint8_t)word->length;
    return 0;
}

static int parse_command(struct fw_rule *rule, const struct word *word, struct fw_reason *reason)
{
    static const char *const names[] = {
        [FW_RULE_READ] = "read", [FW_RULE_WRITE] = "write", [FW_RULE_ADMIN] = "admin"};
    for (unsigned i = 0; i < FW_RULE_CLASSES; i++) {
        if (word->length == strlen(names[i]) && memcmp(word->text, names[i], word->length) == 0) {
            rule->class = (uint8_t)i;
            return 0;
        }
    }
    return fw_reason_set(reason, -EINVAL, "a command is one of read, write and admin");
}

/* In the order of their bits. */
static const struct condition {
    const char *name;
    int (*parse)(struct fw_rule *rule, const struct word *word, struct fw_reason *reason);
} conditions[] = {
    {"listener", parse_listener}, {"address", parse_address}, {"login", parse_login},
    {"prefix", parse_prefix},     {"command", parse_command},
};

/* The index of the condition, or -EINVAL. */
static int condition_find(const struct word *name, struct fw_reason *reason)
{
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, name->text, name->length);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(conditions); i++) {
        size_t length = strlen(conditions[i].name);
        if (name->length == length && memcmp(name->text, conditions[i].name, length) == 0) {
            return (int)i;
        }
        fw_nearest_offer(&nearest, conditions[i].name, length);
    }
    return fw_reason_set(reason, -EINVAL,
                         "there is no condition '%.*s'; did you mean '%s'? Conditions are "
                         "listener, address, login, prefix and command",
                         (int)(name->length < 64 ? name->length : 64), name->text,
                         fw_nearest_found(&nearest) ? nearest.best : conditions[0].name);
}

static int condition_parse(struct fw_rule *rule, const char **at, struct fw_reason *reason)
{
    struct word name = word_next(at);
    if (name.length == 0) {
        return fw_reason_set(reason, -EINVAL,
                             "a condition is missing: listener, address, login, prefix or "
                             "command, each with a value");
    }
    int index = condition_find(&name, reason);
    if (index < 0) {
        return index;
    }
    struct word value = word_next(at);
    uint8_t bit = (uint8_t)(1U << (unsigned)index);
    if (value.length == 0) {
        return fw_reason_set(reason, -EINVAL, "'%s' has no value", conditions[index].name);
    }
    if ((rule->conditions & bit) != 0) {
        return fw_reason_set(reason, -EINVAL,
                             "'%s' stands twice in one rule; alternatives are separated by commas",
                             conditions[index].name);
    }
    rule->conditions |= bit;
    return conditions[index].parse(rule, &value, reason);
}

int fw_rule_parse(struct fw_rule *rule, const char *text, struct fw_reason *reason)
{
    struct fw_rule_verdict verdict = rule->verdict;
    const char *at = text;
    *rule = (struct fw_rule){.verdict = verdict};
    for (;;) {
        int rc = condition_parse(rule, &at, reason);
        if (rc != 0) {
            return rc;
        }
        struct word joint = word_next(&at);
        if (joint.length == 0) {
            return 0;
        }
        if (joint.length != 3 || memcmp(joint.text, "and", 3) != 0) {
            return fw_reason_set(reason, -EINVAL,
                                 "after '%.*s' comes 'and' with another condition, or nothing",
                                 (int)(joint.text - text < 64 ? joint.text - text : 64), text);
        }
    }
}
