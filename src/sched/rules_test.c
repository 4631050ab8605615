/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rule is read as it is written or refused with a reason; the first rule that holds
 * decides, for every mixture of conditions.
 * Method: each condition alone at its edges; then thousands of random rules, whose verdicts are
 * compared with those of a model that tries one rule after the other and hashes nothing.
 */
#include "sched/rules.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/random.h"

enum { TEXT_SIZE = 128, MODEL_RULES = 300, MODEL_REQUESTS = 3000, MODEL_ROUNDS = 10 };

static struct fw_address address_of(const char *text)
{
    struct fw_address address;
    struct fw_reason reason;
    if (fw_address_parse(text, 0, 0, &address, 1, &reason) < 1) {
        fail_msg("%s: %s", text, reason.text);
    }
    return address;
}

/* Rule i is tenant i + 1's. */
static struct fw_rules *make(const char *const *texts, size_t count)
{
    struct fw_rules *rules = NULL;
    struct fw_rule *list = calloc(count + 1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < count; i++) {
        struct fw_reason reason;
        list[i].verdict.tenant = (uint32_t)i + 1;
        if (fw_rule_parse(&list[i], texts[i], &reason) != 0) {
            fail_msg("%s: %s", texts[i], reason.text);
        }
    }
    assert_int_equal(
        fw_rules_create(&rules, list, count, (struct fw_rule_verdict){.is_urgent = true}), 0);
    free(list);
    return rules;
}

#define MAKE(...)                            \
    make((const char *const[]){__VA_ARGS__}, \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

struct client {
    const char *listener;
    const char *peer;
    const char *login;
};

static uint32_t judge(const struct fw_rules *rules, struct client client, enum fw_rule_class class,
                      const char *key)
{
    struct fw_rule_scope scope;
    struct fw_address listener =
        address_of(client.listener != NULL ? client.listener : "127.0.0.1:1");
    struct fw_address peer = address_of(client.peer != NULL ? client.peer : "127.0.0.1:2");
    struct fw_rule_facts facts = {.listener = &listener, .peer = &peer, .login = client.login};
    facts.login_length = client.login != NULL ? strlen(client.login) : 0;
    fw_rules_scope(rules, &facts, &scope);
    return fw_rules_classify(rules, &scope, class, key, key != NULL ? strlen(key) : 0).tenant;
}

#define AT(address)   ((struct client){.listener = (address)})
#define FROM(address) ((struct client){.peer = (address)})
#define AS(name)      ((struct client){.login = (name)})

static void test_listener(void **state)
{
    (void)state;
    struct fw_rules *rules =
        MAKE("listener 127.0.0.1:11211", "listener 127.0.0.2", "listener [::1]:11211",
             "listener unix:/run/f.sock", "listener :7");
    assert_int_equal(judge(rules, AT("127.0.0.1:11211"), FW_RULE_READ, "k"), 1);
    assert_int_equal(judge(rules, AT("127.0.0.1:11212"), FW_RULE_READ, "k"), 0);
    assert_int_equal(judge(rules, AT("127.0.0.2:80"), FW_RULE_ADMIN, NULL), 2);
    assert_int_equal(judge(rules, AT("[::1]:11211"), FW_RULE_WRITE, "k"), 3);
    assert_int_equal(judge(rules, AT("unix:/run/f.sock"), FW_RULE_READ, "k"), 4);
    assert_int_equal(judge(rules, AT("unix:/run/g.sock"), FW_RULE_READ, "k"), 0);
    assert_int_equal(judge(rules, AT("10.0.0.1:7"), FW_RULE_READ, "k"), 5);
    assert_int_equal(judge(rules, AT("[::2]:7"), FW_RULE_READ, "k"), 5);
    assert_false(fw_rules_look_at_requests(rules));
    assert_false(fw_rules_look_at_peers(rules));
    struct fw_address known = address_of("127.0.0.2:5");
    struct fw_address unknown = address_of("127.0.0.3:5");
    /* The rules that name none of the two: all but the second. */
    const struct fw_address *listeners[] = {&unknown, &known};
    uint32_t from = 0;
    static const uint32_t lost[] = {1, 3, 4, 5};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lost); i++) {
        const struct fw_rule *rule = fw_rules_next_lost(rules, &from, listeners, 2);
        assert_non_null(rule);
        assert_int_equal(rule->verdict.tenant, lost[i]);
    }
    assert_null(fw_rules_next_lost(rules, &from, listeners, 2));
    fw_rules_destroy(rules);
}

static void test_address(void **state)
{
    (void)state;
    struct fw_rules *rules = MAKE("address 10.1.2.3", "address 10.0.0.0/9", "address fd00::/8",
                                  "address 192.168.4.0/22", "address ::/0");
    assert_int_equal(judge(rules, FROM("10.1.2.3:9"), FW_RULE_READ, "k"), 1);
    assert_int_equal(judge(rules, FROM("10.127.255.255:9"), FW_RULE_READ, "k"), 2);
    assert_int_equal(judge(rules, FROM("10.128.0.0:9"), FW_RULE_READ, "k"), 0);
    assert_int_equal(judge(rules, FROM("[fdff::1]:9"), FW_RULE_READ, "k"), 3);
    assert_int_equal(judge(rules, FROM("[fe00::1]:9"), FW_RULE_READ, "k"), 5);
    assert_int_equal(judge(rules, FROM("192.168.7.255:9"), FW_RULE_READ, "k"), 4);
    assert_int_equal(judge(rules, FROM("192.168.8.0:9"), FW_RULE_READ, "k"), 0);
    assert_int_equal(judge(rules, FROM("unix:@nobody"), FW_RULE_READ, "k"), 0);
    assert_true(fw_rules_look_at_peers(rules));
    fw_rules_destroy(rules);
}

static void test_login_prefix_and_command(void **state)
{
    (void)state;
    struct fw_rules *rules =
        MAKE("login ann", "login bob and command write",
             "prefix img:", "prefix img:large:", "command admin", "prefix x and login bob");
    assert_int_equal(judge(rules, AS("ann"), FW_RULE_READ, "img:"), 1);
    assert_int_equal(judge(rules, AS("bob"), FW_RULE_WRITE, "img:1"), 2);
    assert_int_equal(judge(rules, AS("bob"), FW_RULE_READ, "img:1"), 3);
    assert_int_equal(judge(rules, AS("bo"), FW_RULE_READ, "x1"), 0);
    assert_int_equal(judge(rules, AS("bob"), FW_RULE_READ, "x1"), 6);
    assert_int_equal(judge(rules, AS(NULL), FW_RULE_READ, "x1"), 0);
    assert_int_equal(judge(rules, AS(NULL), FW_RULE_READ, "img"), 0);
    assert_int_equal(judge(rules, AS(NULL), FW_RULE_READ, "img:large:1"), 3); /* Written first. */
    assert_int_equal(judge(rules, AS(NULL), FW_RULE_ADMIN, NULL), 5);
    assert_true(fw_rules_look_at_requests(rules));
    fw_rules_destroy(rules);
}

static void test_none_and_the_verdict(void **state)
{
    (void)state;
    struct fw_rules *rules = NULL;
    struct fw_rule_scope scope;
    struct fw_address listener = address_of("127.0.0.1:1");
    struct fw_rule_facts facts = {.listener = &listener};
    struct fw_rule rule = {.verdict = {.tenant = 9, .is_urgent = true}};
    struct fw_reason reason;
    assert_int_equal(fw_rule_parse(&rule, "  command   read ", &reason), 0);
    assert_int_equal(fw_rules_create(&rules, &rule, 1, (struct fw_rule_verdict){.tenant = 0}), 0);
    fw_rules_scope(rules, &facts, &scope);
    struct fw_rule_verdict verdict = fw_rules_judge_connection(rules, &scope);
    assert_int_equal(verdict.tenant, 9); /* As if it were to read. */
    assert_true(verdict.is_urgent);
    verdict = fw_rules_classify(rules, &scope, FW_RULE_WRITE, "k", 1);
    assert_int_equal(verdict.tenant, 0);
    assert_false(verdict.is_urgent);
    fw_rules_destroy(rules);

    rules = make(NULL, 0);
    fw_rules_scope(rules, &facts, &scope);
    assert_true(fw_rules_classify(rules, &scope, FW_RULE_READ, "key", 3).is_urgent);
    uint32_t from = 0;
    assert_null(fw_rules_next_lost(rules, &from, NULL, 0)); /* None is named, so none is missed. */
    fw_rules_destroy(rules);
    assert_int_equal(fw_rules_create(&rules, NULL, FW_RULES_MAX + 1, verdict), -E2BIG);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const char long_prefix[] = "prefix 0123456789";
    static const struct {
        const char *text;
        const char *why; /* A part of the reason. */
    } wrong[] = {
        {"", "is missing"},
        {"listener", "has no value"},
        {"lisener 127.0.0.1", "did you mean 'listener'"},
        {"logn anna", "did you mean 'login'"},
        {"nothing like it", "did you mean 'listener'"}, /* The first. */
        {"listener 127.0.0.1:99999", ""},
        {"listener somewhere", ""},
        {"address 10.0.0", "no address"},
        {"address 10.0.0.1:80", "no address"},
        {"address :80", "no address"},
        {"address /8", "no address"},
        {"address unix:/run/f", "no address"},
        {"address 10.0.0.0/33", "up to 32"},
        {"address fd00::/129", "up to 128"},
        {"address 10.0.0.0/", "up to 32"},
        {"address 10.0.0.1/8", "bits beyond"},
        {"address fd00::1/64", "bits beyond"},
        {"command delete", "read, write and admin"},
        {"prefix a prefix b", "comes 'and'"},
        {"prefix a or prefix b", "comes 'and'"},
        {"prefix a and prefix b", "twice"},
        {"prefix a and", "is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct fw_rule rule = {.conditions = 0};
        struct fw_reason reason = {""};
        assert_int_equal(fw_rule_parse(&rule, wrong[i].text, &reason), -EINVAL);
        assert_true(reason.text[0] != '\0');
        if (strstr(reason.text, wrong[i].why) == NULL) {
            fail_msg("'%s': %s", wrong[i].text, reason.text);
        }
    }
    char text[FW_RULE_PREFIX_MAX + sizeof long_prefix];
    struct fw_rule rule = {.conditions = 0};
    struct fw_reason reason;
    memset(text, 'p', sizeof text);
    memcpy(text, "prefix ", 7);
    text[7 + FW_RULE_PREFIX_MAX] = '\0';
    assert_int_equal(fw_rule_parse(&rule, text, &reason), 0);
    assert_int_equal(rule.prefix_length, FW_RULE_PREFIX_MAX);
    text[7 + FW_RULE_PREFIX_MAX] = 'p';
    text[8 + FW_RULE_PREFIX_MAX] = '\0';
    assert_int_equal(fw_rule_parse(&rule, text, &reason), -EINVAL);
}

/* ---- against a model ------------------------------------------------------------------------- */

static const char *const listeners[] = {"127.0.0.1:1", "127.0.0.2:2", "unix:/run/x"};
static const char *const peers[] = {"10.0.0.1:5", "10.9.0.1:5", "[fd00::1]:5"};
static const char *const ranges[] = {"10.0.0.0/16", "10.0.0.0/8", "fd00::/16"};
static const char *const logins[] = {"ann", "bob", "eve"};
static const char *const classes[] = {"read", "write", "admin"};

/* What rule i says, in the words of the model; -1: nothing about that. */
struct said {
    int listener, range, login, class;
    char prefix[8];
};

static void letters(struct fw_random *dice, char *to, size_t max)
{
    size_t length = 1 + fw_random_below(dice, max);
    for (size_t i = 0; i < length; i++) {
        to[i] = (char)('a' + fw_random_below(dice, 2));
    }
    to[length] = '\0';
}

static int maybe(struct fw_random *dice)
{
    return fw_random_below(dice, 3) == 0 ? (int)fw_random_below(dice, 3) : -1;
}

static void condition_add(char *text, const char *name, const char *value)
{
    size_t length = strlen(text);
    (void)snprintf(text + length, TEXT_SIZE - length, "%s%s %s", length > 0 ? " and " : "", name,
                   value);
}

static void rule_draw(struct fw_random *dice, struct said *said, char *text)
{
    said->listener = maybe(dice);
    said->range = maybe(dice);
    said->login = maybe(dice);
    said->class = maybe(dice);
    letters(dice, said->prefix, 6);
    text[0] = '\0';
    condition_add(text, "prefix", said->prefix);
    if (said->listener >= 0 && fw_random_below(dice, 2) == 0) {
        text[0] = '\0'; /* A rule that does not look at keys. */
        said->prefix[0] = '\0';
    }
    if (said->listener >= 0) {
        condition_add(text, "listener", listeners[said->listener]);
    }
    if (said->range >= 0) {
        condition_add(text, "address", ranges[said->range]);
    }
    if (said->login >= 0) {
        condition_add(text, "login", logins[said->login]);
    }
    if (said->class >= 0) {
        condition_add(text, "command", classes[said->class]);
    }
}

/* 10.0.0.1 is in the first two ranges, 10.9.0.1 in the second, fd00::1 in the third. */
static bool is_in(int range, int peer)
{
    return range == 2 ? peer == 2 : peer == 0 || (peer == 1 && range == 1);
}

static uint32_t model(const struct said *said, const int *client, int class, const char *key)
{
    for (uint32_t i = 0; i < MODEL_RULES; i++) {
        if ((said[i].listener < 0 || said[i].listener == client[0]) &&
            (said[i].range < 0 || is_in(said[i].range, client[1])) &&
            (said[i].login < 0 || said[i].login == client[2]) &&
            (said[i].class < 0 || said[i].class == class) &&
            strncmp(key, said[i].prefix, strlen(said[i].prefix)) == 0) {
            return i + 1;
        }
    }
    return 0;
}

static void test_like_the_model(void **state)
{
    (void)state;
    static struct said said[MODEL_RULES];
    static char texts[MODEL_RULES][TEXT_SIZE];
    const char *pointers[MODEL_RULES];
    struct fw_random dice;
    fw_random_init(&dice, 7);
    uint32_t decided = 0;
    for (int round = 0; round < MODEL_ROUNDS; round++) {
        for (int i = 0; i < MODEL_RULES; i++) {
            rule_draw(&dice, &said[i], texts[i]);
            pointers[i] = texts[i];
        }
        struct fw_rules *rules = make(pointers, MODEL_RULES);
        for (int i = 0; i < MODEL_REQUESTS; i++) {
            char key[16];
            int client[3];
            for (int j = 0; j < 3; j++) {
                client[j] = (int)fw_random_below(&dice, 3);
            }
            int class = (int)fw_random_below(&dice, 3);
            letters(&dice, key, 10);
            struct client who = {.listener = listeners[client[0]],
                                 .peer = peers[client[1]],
                                 .login = logins[client[2]]};
            uint32_t expected = model(said, client, class, key);
            decided += expected > 10;
            assert_int_equal(judge(rules, who, (enum fw_rule_class) class, key), expected);
        }
        fw_rules_destroy(rules);
    }
    assert_true(decided > MODEL_REQUESTS); /* Not always by the first few. */
}

static uint32_t seed_count;

static uint64_t seed_next(void)
{
    return ++seed_count;
}

/* Clients choose the keys that are looked up: each set of rules hashes them in its own way. */
static void test_seed(void **state)
{
    (void)state;
    uint32_t before = seed_count;
    struct fw_rules *rules = MAKE("prefix a", "prefix ab");
    assert_int_equal(seed_count, before + 1);
    assert_int_equal(judge(rules, AS(NULL), FW_RULE_READ, "abc"), 1);
    fw_rules_destroy(rules);
}

int main(void)
{
    static const struct fw_random_hooks hooks = {.seed = seed_next};
    fw_random_hooks = &hooks;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listener),
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_login_prefix_and_command),
        cmocka_unit_test(test_none_and_the_verdict),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_like_the_model),
        cmocka_unit_test(test_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
