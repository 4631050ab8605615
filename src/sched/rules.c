/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "io/random.h"

enum { WORD_BITS = 64, LENGTH_WORDS = FW_RULE_PREFIX_MAX / WORD_BITS + 1 };

/* The rules of one prefix, in a hash table with open addressing; empty if `length` is 0. */
struct prefix {
    uint64_t hash;
    const char *text;
    uint32_t length;
    uint32_t first; /* Of its rules, in their order. */
    uint32_t last;
};

struct fw_rules {
    struct fw_rule_verdict fallback;
    uint8_t conditions; /* All that occur. */
    uint32_t count;
    uint64_t seed; /* Of the hash: clients choose what is hashed. */
    struct fw_rule *rules;
    uint32_t *next;   /* Of the same prefix; FW_RULE_NONE: none. */
    uint32_t *logins; /* Of each rule with a login: its number, from 1. */
    struct prefix *prefixes;
    uint32_t prefix_mask;           /* How many places there are, less 1. */
    uint32_t length_max;            /* Of a prefix. */
    uint64_t lengths[LENGTH_WORDS]; /* A bit for each length that a prefix has. */
    char texts[];
};

/* ---- prefixes -------------------------------------------------------------------------------- */

/* The place of a prefix, or the empty one where it would be. */
static inline struct prefix *prefix_find(const struct fw_rules *rules, uint64_t hash,
                                         const char *text, uint32_t length)
{
    uint32_t place = (uint32_t)hash & rules->prefix_mask;
    for (;;) {
        struct prefix *prefix = &rules->prefixes[place];
        if (prefix->length == 0 || (prefix->hash == hash && prefix->length == length &&
                                    memcmp(prefix->text, text, length) == 0)) {
            return prefix;
        }
        place = (place + 1) & rules->prefix_mask;
    }
}

/* ---- made ------------------------------------------------------------------------------------ */

static void prefix_add(struct fw_rules *rules, uint32_t index)
{
    const struct fw_rule *rule = &rules->rules[index];
    uint64_t hash = fw_hash(rule->prefix, rule->prefix_length, rules->seed);
    struct prefix *prefix = prefix_find(rules, hash, rule->prefix, rule->prefix_length);
    if (prefix->length == 0) {
        *prefix = (struct prefix){.hash = hash,
                                  .text = rule->prefix,
                                  .length = rule->prefix_length,
                                  .first = index,
                                  .last = index};
    } else {
        rules->next[prefix->last] = index;
        prefix->last = index;
    }
    rules->lengths[rule->prefix_length / WORD_BITS] |= UINT64_C(1)
                                                       << (rule->prefix_length % WORD_BITS);
    if (rule->prefix_length > rules->length_max) {
        rules->length_max = rule->prefix_length;
    }
}

static bool login_is(const struct fw_rule *rule, const char *login, size_t length)
{
    return (rule->conditions & FW_RULE_LOGIN) != 0 && rule->login_length == length &&
           memcmp(rule->login, login, length) == 0;
}

/* The number of a login that some rule names; 0: none does. It is that of the first rule, plus 1.
 */
static uint32_t login_number(const struct fw_rules *rules, const char *login, size_t length)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        if (login_is(&rules->rules[i], login, length)) {
            return i + 1;
        }
    }
    return 0;
}

/* Copies the rule with its texts, and returns where the next text goes. */
static char *rule_copy(struct fw_rules *rules, uint32_t index, const struct fw_rule *from, char *to)
{
    struct fw_rule *rule = &rules->rules[index];
    *rule = *from;
    if ((from->conditions & FW_RULE_LOGIN) != 0) {
        rule->login = memcpy(to, from->login, from->login_length);
        to += from->login_length;
    }
    if ((from->conditions & FW_RULE_PREFIX) != 0) {
        rule->prefix = memcpy(to, from->prefix, from->prefix_length);
        to += from->prefix_length;
    }
    rules->next[index] = FW_RULE_NONE;
    rules->conditions |= from->conditions;
    return to;
}

/* Twice as many places as prefixes, at least: most are found where they are looked for first. */
static uint32_t place_count(size_t rule_count)
{
    uint32_t count = 2;
    while (count < 2 * rule_count) {
        count *= 2;
    }
    return count;
}

int fw_rules_create(struct fw_rules **made, const struct fw_rule *list, size_t count,
                    struct fw_rule_verdict fallback)
{
    if (count > FW_RULES_MAX) {
        return -E2BIG;
    }
    uint64_t seed;
    int rc = fw_random_seed(&seed);
    if (rc != 0) {
        return rc;
    }
    size_t text_size = 0;
    for (size_t i = 0; i < count; i++) {
        text_size += (size_t)list[i].login_length + list[i].prefix_length;
    }
    uint32_t places = place_count(count);
    struct fw_rules *rules = calloc(1, sizeof *rules + text_size);
    if (rules == NULL) {
        return -ENOMEM;
    }
    rules->fallback = fallback;
    rules->seed = seed;
    rules->count = (uint32_t)count;
    rules->prefix_mask = places - 1;
    /* One more of each, so that none asks for nothing. */
    rules->rules = calloc(count + 1, sizeof *rules->rules);
    rules->next = calloc(count + 1, sizeof *rules->next);
    rules->logins = calloc(count + 1, sizeof *rules->logins);
    rules->prefixes = calloc(places, sizeof *rules->prefixes);
    if (rules->rules == NULL || rules->next == NULL || rules->logins == NULL ||
        rules->prefixes == NULL) {
        fw_rules_destroy(rules);
        return -ENOMEM;
    }
    char *to = rules->texts;
    for (uint32_t i = 0; i < count; i++) {
        to = rule_copy(rules, i, &list[i], to);
        const struct fw_rule *rule = &rules->rules[i];
        if ((rule->conditions & FW_RULE_PREFIX) != 0) {
            prefix_add(rules, i);
        }
        if ((rule->conditions & FW_RULE_LOGIN) != 0) {
            rules->logins[i] = login_number(rules, rule->login, rule->login_length);
        }
    }
    *made = rules;
    return 0;
}

void fw_rules_destroy(struct fw_rules *rules)
{
    free(rules->rules);
    free(rules->next);
    free(rules->logins);
    free(rules->prefixes);
    free(rules);
}

bool fw_rules_look_at_requests(const struct fw_rules *rules)
{
    return (rules->conditions & FW_RULE_REQUEST) != 0;
}

bool fw_rules_look_at_peers(const struct fw_rules *rules)
{
    return (rules->conditions & FW_RULE_ADDRESS) != 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool listener_matches(const struct fw_rule *rule, const struct fw_address *listener)
{
    if (listener->any.sa_family == AF_UNIX) {
        return !rule->has_any_host && fw_address_equal(&rule->listener, listener);
    }
    uint16_t port = fw_address_port(&rule->listener);
    if (port != 0 && port != fw_address_port(listener)) {
        return false;
    }
    if (rule->has_any_host) {
        return true;
    }
    if (rule->listener.any.sa_family != listener->any.sa_family) {
        return false;
    }
    if (listener->any.sa_family == AF_INET) {
        return rule->listener.ipv4.sin_addr.s_addr == listener->ipv4.sin_addr.s_addr;
    }
    return memcmp(&rule->listener.ipv6.sin6_addr, &listener->ipv6.sin6_addr,
                  sizeof listener->ipv6.sin6_addr) == 0;
}

static bool network_contains(const struct fw_rule *rule, const struct fw_rule_scope *scope)
{
    if (rule->network_family != scope->family) {
        return false;
    }
    size_t bytes = rule->network_bits / 8;
    unsigned rest = rule->network_bits % 8;
    unsigned mask = 0xff00U >> rest & 0xffU;
    return memcmp(rule->network, scope->peer, bytes) == 0 &&
           (rest == 0 || (scope->peer[bytes] & mask) == rule->network[bytes]);
}

/* What is known of the connection; not the request's conditions. */
static bool connection_matches(const struct fw_rules *rules, uint32_t index,
                               const struct fw_rule_scope *scope)
{
    const struct fw_rule *rule = &rules->rules[index];
    unsigned conditions = rule->conditions;
    return ((conditions & FW_RULE_LISTENER) == 0 || listener_matches(rule, scope->listener)) &&
           ((conditions & FW_RULE_ADDRESS) == 0 || network_contains(rule, scope)) &&
           ((conditions & FW_RULE_LOGIN) == 0 || rules->logins[index] == scope->login);
}

static void scope_set_peer(struct fw_rule_scope *scope, const struct fw_address *peer)
{
    if (peer != NULL && peer->any.sa_family == AF_INET) {
        scope->family = AF_INET;
        memcpy(scope->peer, &peer->ipv4.sin_addr, sizeof peer->ipv4.sin_addr);
    } else if (peer != NULL && peer->any.sa_family == AF_INET6) {
        scope->family = AF_INET6;
        memcpy(scope->peer, &peer->ipv6.sin6_addr, sizeof peer->ipv6.sin6_addr);
    }
}

const struct fw_rule *fw_rules_next_lost(const struct fw_rules *rules, uint32_t *from,
                                         const struct fw_address *const *listeners, size_t count)
{
    while (*from < rules->count) {
        const struct fw_rule *rule = &rules->rules[(*from)++];
        bool is_known = (rule->conditions & FW_RULE_LISTENER) == 0;
        for (size_t i = 0; i < count && !is_known; i++) {
            is_known = listener_matches(rule, listeners[i]);
        }
        if (!is_known) {
            return rule;
        }
    }
    return NULL;
}

void fw_rules_scope(const struct fw_rules *rules, const struct fw_rule_facts *facts,
                    struct fw_rule_scope *scope)
{
    *scope = (struct fw_rule_scope){.listener = facts->listener};
    scope_set_peer(scope, facts->peer);
    if (facts->login != NULL) {
        scope->login = login_number(rules, facts->login, facts->login_length);
    }
    for (uint32_t class = 0; class < FW_RULE_CLASSES; class ++) {
        scope->first[class] = FW_RULE_NONE;
    }
    uint32_t missing = FW_RULE_CLASSES;
    for (uint32_t i = 0; i < rules->count && missing > 0; i++) {
        const struct fw_rule *rule = &rules->rules[i];
        if ((rule->conditions & FW_RULE_PREFIX) != 0 || !connection_matches(rules, i, scope)) {
            continue;
        }
        for (uint32_t class = 0; class < FW_RULE_CLASSES; class ++) {
            bool holds = (rule->conditions & FW_RULE_COMMAND) == 0 || rule->class == class;
            if (holds && scope->first[class] == FW_RULE_NONE) {
                scope->first[class] = i;
                missing--;
            }
        }
    }
}

static inline struct fw_rule_verdict verdict_of(const struct fw_rules *rules, uint32_t index)
{
    return index == FW_RULE_NONE ? rules->fallback : rules->rules[index].verdict;
}

struct fw_rule_verdict fw_rules_judge_connection(const struct fw_rules *rules,
                                                 const struct fw_rule_scope *scope)
{
    return verdict_of(rules, scope->first[FW_RULE_READ]);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The first rule of that prefix that holds and comes before `best`, or `best`. */
static uint32_t prefix_judge(const struct fw_rules *rules, const struct prefix *prefix,
                             const struct fw_rule_scope *scope, enum fw_rule_class class,
                             uint32_t best)
{
    for (uint32_t i = prefix->first; i < best; i = rules->next[i]) {
        const struct fw_rule *rule = &rules->rules[i];
        bool is_class = (rule->conditions & FW_RULE_COMMAND) == 0 || rule->class == class;
        if (is_class && connection_matches(rules, i, scope)) {
            return i;
        }
    }
    return best;
}

struct fw_rule_verdict fw_rules_classify(const struct fw_rules *rules,
                                         const struct fw_rule_scope *scope,
                                         enum fw_rule_class class, const char *key, size_t length)
{
    uint32_t best = scope->first[class];
    uint32_t end = length < rules->length_max ? (uint32_t)length : rules->length_max;
    for (uint32_t word = 0; word <= end / WORD_BITS; word++) {
        for (uint64_t bits = rules->lengths[word]; bits != 0; bits &= bits - 1) {
            uint32_t seen = word * WORD_BITS + (uint32_t)__builtin_ctzll(bits);
            if (seen > end) {
                break;
            }
            uint64_t hash = fw_hash(key, seen, rules->seed);
            const struct prefix *prefix = prefix_find(rules, hash, key, seen);
            if (prefix->length != 0) {
                best = prefix_judge(rules, prefix, scope, class, best);
            }
        }
    }
    return verdict_of(rules, best);
}
