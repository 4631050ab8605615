/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: from one table come the defaults, the command line, the file, the help and the listing; a
 * stronger source wins whatever the order; and every mistake of a user comes back as the one line
 * that he needs.
 * Method: a module with an option of every type, and tenants as the repeatable section. Mistakes
 * are tables of input and the exact line expected. Mistakes of a programmer must assert.
 */
#include "base/option.h"
#include "base/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/fail_memory.h"

enum policy { POLICY_FIFO, POLICY_CRR, POLICY_WFQ };
static const char *const policy_names[] = {"fifo", "crr", "wfq", NULL};

struct config {
    uint64_t port;
    int64_t nice;
    uint64_t mode;
    uint64_t memory;
    uint64_t item;
    int64_t idle_ns;
    bool daemon;
    bool cas;
    uint64_t verbose;
    enum policy policy;
    const char *user;
    struct fw_option_list listen;
    const char *log_file;
    bool help;
};

static const struct fw_option server_options[] = {
    FW_OPTION_UINT(struct config, port, .section = "server", .name = "port", .flag = 'p',
                   .default_text = "11211", .max = 65535, .help = "TCP port to listen on"),
    FW_OPTION_INT(struct config, nice, .section = "server", .name = "nice", .default_text = "0",
                  .min = -20, .max = 19, .help = "Priority of the process"),
    FW_OPTION_OCTAL(struct config, mode, .section = "server", .name = "unix-mask", .flag = 'a',
                    .default_text = "700", .max = 0777, .help = "Mode of the UNIX socket"),
    FW_OPTION_SIZE(struct config, memory, .section = "server", .name = "memory-limit", .flag = 'm',
                   .unit = "MiB", .default_text = "64", .min = FW_MIB, .live = true,
                   .help = "Memory for items"),
    FW_OPTION_SIZE(struct config, item, .section = "server", .name = "max-item-size", .flag = 'I',
                   .default_text = "1m", .min = FW_KIB, .max = FW_GIB,
                   .help = "Largest item, which is a sentence long enough to be broken in two"),
    FW_OPTION_DURATION(struct config, idle_ns, .section = "server", .name = "idle-timeout",
                       .unit = "s", .default_text = "0", .help = "Close after so long"),
    FW_OPTION_BOOL(struct config, daemon, .section = "server", .name = "daemon", .flag = 'd',
                   .default_text = "no", .help = "Run in the background"),
    FW_OPTION_BOOL(struct config, cas, .section = "server", .name = "cas", .default_text = "yes",
                   .help = "Give no unique numbers"),
    FW_OPTION_COUNT(struct config, verbose, .section = "server", .name = "verbose", .flag = 'v',
                    .default_text = "0", .max = 3, .help = "Say more"),
    FW_OPTION_ENUM(struct config, policy, .section = "server", .name = "policy",
                   .default_text = "fifo", .names = policy_names, .help = "Who goes next"),
    FW_OPTION_STRING(struct config, user, .section = "server", .name = "user", .flag = 'u',
                     .min = 1, .max = 32, .value_name = "NAME", .help = "Run as this user"),
    FW_OPTION_LIST(struct config, listen, .section = "server", .name = "listen", .flag = 'l',
                   .default_text = "0.0.0.0", .value_name = "ADDRESS",
                   .help = "Listen on these addresses"),
    FW_OPTION_EXTENDED(.name = "extended", .flag = 'o', .help = "Other options in one"),
    FW_OPTION_BOOL(struct config, help, .name = "help", .flag = 'h', .default_text = "no",
                   .help = "Show this help"),
};

static const struct fw_option log_options[] = {
    FW_OPTION_STRING(struct config, log_file, .section = "log", .name = "file",
                     .default_text = "stderr", .value_name = "FILE", .help = "Where lines go"),
};

enum { TENANTS_MAX = 3 };
struct tenant {
    const char *name;
    uint64_t weight;
    struct fw_option_list match;
};
struct tenants {
    struct tenant all[TENANTS_MAX];
    size_t count;
};

static const struct fw_option tenant_options[] = {
    FW_OPTION_UINT(struct tenant, weight, .section = "tenant", .name = "weight",
                   .default_text = "1", .min = 1, .max = 1000, .help = "Share of the server"),
    FW_OPTION_LIST(struct tenant, match, .section = "tenant", .name = "match", .value_name = "RULE",
                   .help = "Who belongs to it"),
};

static int tenant_add(void *config, const char *name, void **instance, struct fw_reason *reason)
{
    struct tenants *tenants = config;
    if (tenants->count == TENANTS_MAX) {
        return fw_reason_set(reason, -ENOSPC, "there are %d tenants already", TENANTS_MAX);
    }
    struct tenant *tenant = &tenants->all[tenants->count];
    tenants->count++;
    tenant->name = name;
    *instance = tenant;
    return 0;
}

static struct config config;
static struct tenants tenants;
static const struct fw_option_table tables[] = {
    {.module = "server",
     .options = server_options,
     .count = FW_ARRAY_LENGTH(server_options),
     .config = &config,
     .bare = true},
    {.module = "log",
     .options = log_options,
     .count = FW_ARRAY_LENGTH(log_options),
     .config = &config},
    {.module = "sched",
     .options = tenant_options,
     .count = FW_ARRAY_LENGTH(tenant_options),
     .config = &tenants,
     .instance_add = tenant_add},
};

static struct fw_options options;
static struct fw_reason reason;

/* Every test starts from structs full of rubbish, so that a forgotten default is seen. */
static int setup(void **state)
{
    (void)state;
    memset(&config, 0xa5, sizeof config);
    memset(&tenants, 0xa5, sizeof tenants);
    tenants.count = 0;
    reason.text[0] = '\0';
    return fw_options_init(&options, tables, FW_ARRAY_LENGTH(tables), &reason);
}

static int teardown(void **state)
{
    (void)state;
    fw_options_fini(&options);
    return 0;
}

/* Splits `line` at spaces and parses that; '~' stands for a space inside an argument. */
static int arguments_parse(const char *line, struct fw_option_list *rest)
{
    char copy[256];
    char *arguments[32];
    int count = 0;
    (void)snprintf(copy, sizeof copy, "%s", line);
    char *next = copy;
    for (char *word = strsep(&next, " "); word != NULL; word = strsep(&next, " ")) {
        assert_true((size_t)count < FW_ARRAY_LENGTH(arguments));
        for (char *letter = word; *letter != '\0'; letter++) {
            if (*letter == '~') {
                *letter = ' ';
            }
        }
        if (*word != '\0') {
            arguments[count] = word;
            count++;
        }
    }
    int rc = fw_options_parse_arguments(&options, count, arguments, rest, &reason);
    memset(copy, 'x', sizeof copy); /* Nothing may still point here. */
    return rc;
}

/* The copy has no byte behind its last one, so ASan sees a parser that looks there. */
static int file_parse(const char *text)
{
    size_t length = strlen(text);
    char *copy = malloc(length);
    assert_non_null(copy);
    memcpy(copy, text, length);
    int rc = fw_options_parse_file(&options, "f.conf", copy, length, &reason);
    memset(copy, 'x', length);
    free(copy);
    return rc;
}

static void assert_list(const struct fw_option_list *list, const char *joined)
{
    char text[256] = "";
    for (size_t i = 0; i < list->count; i++) {
        size_t length = strlen(text);
        (void)snprintf(text + length, sizeof text - length, "%s|", list->items[i]);
    }
    assert_string_equal(text, joined);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(config.port, 11211);
    assert_int_equal(config.nice, 0);
    assert_int_equal(config.mode, 0700);
    assert_int_equal(config.memory, 64 * 1024 * 1024);
    assert_int_equal(config.item, 1024 * 1024);
    assert_int_equal(config.idle_ns, 0);
    assert_false(config.daemon);
    assert_true(config.cas);
    assert_int_equal(config.verbose, 0);
    assert_int_equal(config.policy, POLICY_FIFO);
    assert_null(config.user);
    assert_list(&config.listen, "0.0.0.0|");
    assert_string_equal(config.log_file, "stderr");
    assert_int_equal(tenants.count, 0);
}

static void test_arguments_long(void **state)
{
    (void)state;
    assert_int_equal(arguments_parse("--port 1 --nice=-3 --unix-mask 0660 --memory-limit=1g "
                                     "--max_item_size 2m --idle-timeout 1500ms --daemon --no-cas "
                                     "--verbose=2 --policy wfq --user a~b --log-file=",
                                     NULL),
                     0);
    assert_int_equal(config.port, 1);
    assert_int_equal(config.nice, -3);
    assert_int_equal(config.mode, 0660);
    assert_int_equal(config.memory, 1024 * 1024 * 1024);
    assert_int_equal(config.item, 2 * 1024 * 1024);
    assert_true(config.idle_ns == 1500000000);
    assert_true(config.daemon);
    assert_false(config.cas);
    assert_int_equal(config.verbose, 2);
    assert_int_equal(config.policy, POLICY_WFQ);
    assert_string_equal(config.user, "a b");
    assert_string_equal(config.log_file, "");
}

static void test_arguments_short(void **state)
{
    (void)state;
    assert_int_equal(arguments_parse("-p 1 -m128 -vvd -Inine", NULL), -EINVAL);
    assert_int_equal(config.port, 1);
    assert_int_equal(config.memory, 128 * 1024 * 1024);
    assert_int_equal(config.verbose, 2);
    assert_true(config.daemon);
    assert_int_equal(arguments_parse("-v -p2 -dp 3", NULL), 0);
    assert_int_equal(config.port, 3); /* The last one counts. */
    assert_int_equal(config.verbose, 3);
    assert_int_equal(arguments_parse("-vvvvv --daemon=off -h", NULL), 0);
    assert_true(config.help);
    assert_int_equal(config.verbose, 3); /* Its limit. */
    assert_false(config.daemon);
}

static void test_arguments_rest(void **state)
{
    (void)state;
    struct fw_option_list rest;
    assert_int_equal(arguments_parse("one -p 1 - two -- -p 2 --", &rest), 0);
    assert_list(&rest, "one|-|two|-p|2|--|");
    assert_int_equal(config.port, 1);
    assert_int_equal(arguments_parse("-p 4", &rest), 0);
    assert_list(&rest, "");
}

static void test_arguments_list(void **state)
{
    (void)state;
    assert_int_equal(arguments_parse("-l a,~b~ --listen c -ld", NULL), 0);
    assert_list(&config.listen, "a|b|c|d|");
}

static void test_extended(void **state)
{
    (void)state;
    assert_int_equal(arguments_parse("-o idle_timeout=5,no_cas,daemon,user=x=y", NULL), 0);
    assert_true(config.idle_ns == 5000000000);
    assert_false(config.cas);
    assert_true(config.daemon);
    assert_string_equal(config.user, "x=y");
}

static void test_file(void **state)
{
    (void)state;
    assert_int_equal(file_parse("# comment\n"
                                "; comment\r\n"
                                "\n"
                                "  [server] # the main one\n"
                                "listen = 127.0.0.1:11211, 127.0.0.1:11212 ; both\n"
                                "listen=[::1]:11211\t,\ta b\r\n"
                                "\tmemory_limit\t=\t2g\n"
                                "policy = wfq\n"
                                "daemon = on\n"
                                "verbose = 1\n"
                                "user = a#b;c # not this\n"
                                "[log]\n"
                                "file = \"/a \\\"b\\\" # \\\\c \" # comment\n"
                                "[ tenant   web ]\n"
                                "match = listener 127.0.0.1:11211\n"
                                "[tenant batch.2]\n"
                                "weight = 3\n"
                                "[server]\n"
                                "port = 2"), /* No newline at the end. */
                     0);
    assert_list(&config.listen, "127.0.0.1:11211|127.0.0.1:11212|[::1]:11211|a b|");
    assert_true(config.memory == UINT64_C(2) << 30);
    assert_int_equal(config.policy, POLICY_WFQ);
    assert_true(config.daemon);
    assert_int_equal(config.verbose, 1);
    assert_string_equal(config.user, "a#b;c");
    assert_string_equal(config.log_file, "/a \"b\" # \\c ");
    assert_int_equal(config.port, 2);
    assert_int_equal(tenants.count, 2);
    assert_string_equal(tenants.all[0].name, "web");
    assert_int_equal(tenants.all[0].weight, 1);
    assert_list(&tenants.all[0].match, "listener 127.0.0.1:11211|");
    assert_string_equal(tenants.all[1].name, "batch.2");
    assert_int_equal(tenants.all[1].weight, 3);
    assert_list(&tenants.all[1].match, "");
}

/* What ends a value, a comment and a name, and what does not. */
static void test_file_text(void **state)
{
    static const struct {
        const char *text;
        const char *file;
    } cases[] = {
        {"file = a #", "a"},
        {"\r\nfile = a", "a"},
        {"file = ~", "~"},
        {"file = a # b", "a"},
        {"file = a\t; b", "a"},
        {"file = a#b ;c # d", "a#b"},
        {"file = # b", ""},
        {"file = ; b", ""},
        {"file =", ""},
        {"file = \"a\"#b", "a"},
        {"file = \"a\" ; b", "a"},
        {"file = \"\"", ""},
        {"file = a\"b\"", "a\"b\""},
        {"file = \" a\t\" ", " a\t"},
        {"file = \"\\a\"", "a"},
        {"  file\t= a  b \t", "a  b"},
        {"file = a\r", "a"},
        {"file = = a", "= a"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "[log]\n%s", cases[i].text);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        assert_int_equal(file_parse(text), 0);
        assert_string_equal(config.log_file, cases[i].file);
    }
    assert_int_equal(file_parse("[tenant azAZ09-_.]\nweight = 2"), 0);
    assert_string_equal(tenants.all[0].name, "azAZ09-_.");
    /* The neighbours of the letters and digits in ASCII, and of the dash and the dot. */
    for (const char *letter = "`{@[/:,^"; *letter != '\0'; letter++) {
        char text[64];
        char expected[FW_REASON_SIZE];
        (void)snprintf(text, sizeof text, "[tenant a%cb]", *letter);
        (void)snprintf(expected, sizeof expected,
                       "f.conf:1: '%s' is not a section; write [section] or [section NAME]", text);
        assert_int_equal(file_parse(text), -EINVAL);
        assert_string_equal(reason.text, expected);
    }
}

/* Two modules describe [tenant], and a third section has names of its own. */
static void test_named_sections(void **state)
{
    (void)state;
    static const struct fw_option quota_options[] = {
        FW_OPTION_UINT(struct tenant, weight, .section = "tenant", .name = "quota",
                       .default_text = "7", .help = "x"),
    };
    static const struct fw_option pool_options[] = {
        FW_OPTION_UINT(struct tenant, weight, .section = "pool", .name = "size",
                       .default_text = "8", .help = "x"),
    };
    static struct tenants quotas;
    static struct tenants pools;
    static const struct fw_option_table named[] = {
        {.module = "sched",
         .options = tenant_options,
         .count = FW_ARRAY_LENGTH(tenant_options),
         .config = &tenants,
         .instance_add = tenant_add},
        {.module = "memory",
         .options = quota_options,
         .count = FW_ARRAY_LENGTH(quota_options),
         .config = &quotas,
         .instance_add = tenant_add},
        {.module = "pool",
         .options = pool_options,
         .count = FW_ARRAY_LENGTH(pool_options),
         .config = &pools,
         .instance_add = tenant_add},
        {.module = "log",
         .options = log_options,
         .count = FW_ARRAY_LENGTH(log_options),
         .config = &config},
    };
    static const char text[] = "[tenant a]\nweight = 2\n"
                               "[pool a]\nsize = 3\n"
                               "[tenant b]\nweight = 4\nquota = 5\n"
                               "[pool c]\n";
    quotas.count = 0;
    pools.count = 0;
    struct fw_options own;
    config.log_file = NULL;
    assert_int_equal(fw_options_init(&own, named, FW_ARRAY_LENGTH(named), &reason), 0);
    assert_string_equal(config.log_file, "stderr");
    assert_int_equal(fw_options_parse_file(&own, "f", text, sizeof text - 1, &reason), 0);
    assert_int_equal(tenants.count, 2);
    assert_string_equal(tenants.all[0].name, "a");
    assert_int_equal(tenants.all[0].weight, 2);
    assert_string_equal(tenants.all[1].name, "b");
    assert_int_equal(tenants.all[1].weight, 4);
    assert_int_equal(quotas.count, 2);
    assert_string_equal(quotas.all[0].name, "a");
    assert_int_equal(quotas.all[0].weight, 7);
    assert_string_equal(quotas.all[1].name, "b");
    assert_int_equal(quotas.all[1].weight, 5);
    assert_int_equal(pools.count, 2);
    assert_string_equal(pools.all[0].name, "a");
    assert_int_equal(pools.all[0].weight, 3);
    assert_string_equal(pools.all[1].name, "c");
    assert_int_equal(pools.all[1].weight, 8);
    char misspelt[] = "--log-fil";
    assert_int_equal(fw_options_parse_arguments(&own, 1, (char *const[]){misspelt}, NULL, &reason),
                     -EINVAL);
    assert_string_equal(reason.text,
                        "--log-fil: there is no such option; did you mean --log-file?");
    fw_options_fini(&own);
}

static const char precedence_file[] = "[server]\n"
                                      "port = 1\n"
                                      "nice = 1\n"
                                      "verbose = 1\n"
                                      "user = file\n"
                                      "listen = f, g\n";
static const char precedence_arguments[] = "--port=2 -vv -u line -l c -l d";

static void assert_precedence(void)
{
    assert_int_equal(config.port, 2);
    assert_int_equal(config.nice, 1);
    assert_int_equal(config.verbose, 2);
    assert_string_equal(config.user, "line");
    assert_list(&config.listen, "c|d|");
}

static void test_precedence(void **state)
{
    assert_int_equal(file_parse(precedence_file), 0);
    assert_int_equal(arguments_parse(precedence_arguments, NULL), 0);
    assert_precedence();
    assert_int_equal(teardown(state), 0);
    assert_int_equal(setup(state), 0);
    assert_int_equal(arguments_parse(precedence_arguments, NULL), 0);
    assert_int_equal(file_parse(precedence_file), 0);
    assert_precedence();
    /* Beaten, but still wrong. */
    assert_int_equal(file_parse("[server]\nport = x\n"), -EINVAL);
}

struct mistake {
    const char *line;
    const char *reason; /* Empty: it is none. */
};

static void check_mistakes(void **state, const struct mistake *mistakes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        assert_int_equal(arguments_parse(mistakes[i].line, NULL),
                         mistakes[i].reason[0] != '\0' ? -EINVAL : 0);
        assert_string_equal(reason.text, mistakes[i].reason);
    }
}

static void test_arguments_unknown(void **state)
{
    static const struct mistake mistakes[] = {
        {"--prot 1", "--prot: there is no such option; did you mean --port?"},
        {"--xort 1", "--xort: there is no such option; did you mean --port?"},
        {"--porx 1", "--porx: there is no such option; did you mean --port?"},
        {"--p_rt 1", "--p_rt: there is no such option; did you mean --port?"},
        {"--unixxmask 1", "--unixxmask: there is no such option; did you mean --unix-mask?"},
        {"--frobnicate", "--frobnicate: there is no such option; --help lists them"},
        {"--log-fil x", "--log-fil: there is no such option; did you mean --log-file?"},
        {"--file x", "--file: there is no such option; --help lists them"},
        {"--weight 1", "--weight: there is no such option; --help lists them"},
        {"--tenant-weight 1", "--tenant-weight: there is no such option; --help lists them"},
        {"--no-port", "--no-port: only options that are yes or no can be turned off with no-"},
        {"--on-cas", "--on-cas: there is no such option; --help lists them"},
        {"--extended=0123456789012345678901234567890123456789012345678901234567",
         "--extended 01234567890123456789012345678901234567890123...: there is no such option; "
         "--help lists them"},
        {"--no-", "--no-: there is no such option; --help lists them"},
        {"--", ""},
        {"---", "---: there is no such option; --help lists them"},
        {"--=x", "--: there is no such option; --help lists them"},
        {"-x", "-x: there is no such option; --help lists them"},
        {"-dx", "-x: there is no such option; --help lists them"},
        {"-o idle_timout=5",
         "-o idle_timout: there is no such option; did you mean --idle-timeout?"},
        {"-o extended=port", "-o extended: there is no such option; did you mean --extended?"},
        {"word", "'word' is not an option; only options are taken, see --help"},
        {"-- -p", "'-p' is not an option; only options are taken, see --help"},
    };
    check_mistakes(state, mistakes, FW_ARRAY_LENGTH(mistakes));
}

static void test_arguments_mistakes(void **state)
{
    static const struct mistake mistakes[] = {
        {"-o", "-o: a value is missing; give other options separated by commas"},
        {"-p", "-p: a value is missing; give a number from 0 to 65535"},
        {"--port", "--port: a value is missing; give a number from 0 to 65535"},
        {"--port=", "--port: '' is not understood; give a number from 0 to 65535"},
        {"--port 65536", "--port: '65536' is out of range; give a number from 0 to 65535"},
        {"-p-1", "-p: '-1' is not understood; give a number from 0 to 65535"},
        {"--nice 20", "--nice: '20' is out of range; give a number from -20 to 19"},
        {"-a 800", "-a: '800' is not understood; give an octal number from 0 to 0777"},
        {"-m 0", "-m: '0' is out of range; give a size such as 512k or 64m of at least 1MiB"},
        {"-m 9999999999999", "-m: '9999999999999' is out of range; give a size such as 512k or 64m "
                             "of at least 1MiB"},
        {"-I 2g", "-I: '2g' is out of range; give a size such as 512k or 64m from 1KiB to 1GiB"},
        {"--idle-timeout 1min",
         "--idle-timeout: '1min' is not understood; give a duration such as 500ms or 10s"},
        {"--daemon=maybe", "--daemon: 'maybe' is not understood; give yes or no"},
        {"--no-daemon=no", "--no-daemon: takes no value"},
        {"--verbose=4", "--verbose: '4' is out of range; give a number from 0 to 3"},
        {"--policy wqf",
         "--policy: 'wqf' is not known, did you mean 'wfq'? Give one of fifo, crr, wfq"},
        {"--policy fifoo",
         "--policy: 'fifoo' is not known, did you mean 'fifo'? Give one of fifo, crr, wfq"},
        {"--policy best", "--policy: 'best' is not understood; give one of fifo, crr, wfq"},
        {"--user=", "--user: '' is out of range; give a text from 1 to 32 characters long"},
        {"-l a,,b",
         "-l: 'a,,b' is not understood; give items separated by commas, none of them empty"},
        {"-l a,~,b",
         "-l: 'a, ,b' is not understood; give items separated by commas, none of them empty"},
        {"-l a,", "-l: 'a,' is not understood; give items separated by commas, none of them empty"},
        {"-o port", "-o port: a value is missing; give a number from 0 to 65535"},
        {"-o port=x", "-o port: 'x' is not understood; give a number from 0 to 65535"},
        {"-o no_cas=1", "-o no_cas: takes no value"},
        {"--user=0123456789012345678901234567890123456789012345678901234567890",
         "--user: '01234567890123456789012345678901234567890123...' is out of range; give a text "
         "from 1 to 32 characters long"},
        {"--policy \x1b[31m\n", "--policy: '?[31m?' is not understood; give one of fifo, crr, wfq"},
    };
    check_mistakes(state, mistakes, FW_ARRAY_LENGTH(mistakes));
}

/* The longest texts that are taken. */
static void test_lengths(void **state)
{
    (void)state;
    static char argument[FW_OPTION_VALUE_MAX + 32];
    char *const arguments[] = {argument};
    (void)snprintf(argument, sizeof argument, "-u%032d", 0);
    assert_int_equal(fw_options_parse_arguments(&options, 1, arguments, NULL, &reason), 0);
    assert_int_equal(strlen(config.user), 32);
    (void)snprintf(argument, sizeof argument, "-u%033d", 0);
    assert_int_equal(fw_options_parse_arguments(&options, 1, arguments, NULL, &reason), -EINVAL);
    assert_int_equal(strlen(config.user), 32);

    (void)snprintf(argument, sizeof argument, "-olog_file=%0*d", FW_OPTION_VALUE_MAX, 0);
    assert_int_equal(fw_options_parse_arguments(&options, 1, arguments, NULL, &reason), 0);
    assert_int_equal(strlen(config.log_file), FW_OPTION_VALUE_MAX);
    (void)snprintf(argument, sizeof argument, "-olog_file=%0*d", FW_OPTION_VALUE_MAX + 1, 0);
    assert_int_equal(fw_options_parse_arguments(&options, 1, arguments, NULL, &reason), -EINVAL);
    assert_string_equal(reason.text, "-o log_file: the value is too long");
    (void)snprintf(argument, sizeof argument, "--log-file=%0*d", FW_OPTION_VALUE_MAX + 1, 0);
    assert_int_equal(fw_options_parse_arguments(&options, 1, arguments, NULL, &reason), -EINVAL);
    assert_int_equal(strlen(config.log_file), FW_OPTION_VALUE_MAX);
}

static void test_file_mistakes(void **state)
{
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {
        {"port = 1\n",
         "f.conf:1: 'port' stands before the first section; write [section] above it"},
        {"\n[sever]\n", "f.conf:2: 'sever' is no known section; did you mean [server]?"},
        {"[lop]\n", "f.conf:1: 'lop' is no known section; did you mean [log]?"},
        {"[xyz]\n", "f.conf:1: 'xyz' is no known section; --help lists them in brackets"},
        {"[server\n", "f.conf:1: '[server' is not a section; write [section] or [section NAME]"},
        {"[", "f.conf:1: '[' is not a section; write [section] or [section NAME]"},
        {"[server", "f.conf:1: '[server' is not a section; write [section] or [section NAME]"},
        {"[server)\n", "f.conf:1: '[server)' is not a section; write [section] or [section NAME]"},
        {"[tenan]\n", "f.conf:1: 'tenan' is no known section; did you mean [tenant]?"},
        {"[]\n", "f.conf:1: '[]' is not a section; write [section] or [section NAME]"},
        {"[server] x\n",
         "f.conf:1: '[server] x' is not a section; write [section] or [section NAME]"},
        {"[tenant a b]\n",
         "f.conf:1: '[tenant a b]' is not a section; write [section] or [section NAME]"},
        {"[server x]\n", "f.conf:1: 'server' takes no name; write the section's name alone"},
        {"[tenant]\n", "f.conf:1: 'tenant' needs a name behind it: [section NAME]"},
        {"[tenant a]\n[tenant b]\n[tenant a]\n", "f.conf:3: 'a' was already described on line 1"},
        {"[tenant a]\nweight = 0\n",
         "f.conf:2: weight: '0' is out of range; give a number from 1 to 1000"},
        {"[tenant a]\nport = 1\n", "f.conf:2: 'port' belongs under [server], not [tenant]"},
        {"[server]\nfile = x\n", "f.conf:2: 'file' belongs under [log], not [server]"},
        {"[server]\nweight = 1\n", "f.conf:2: 'weight' belongs under [tenant], not [server]"},
        {"[server]\nhelp = yes\n", "f.conf:2: 'help' is for the command line only"},
        {"[server]\nprot = 1\n", "f.conf:2: 'prot' is no option of [server]; did you mean 'port'?"},
        {"[server]\nfrobnicate = 1\n",
         "f.conf:2: 'frobnicate' is no option of [server]; --help lists them"},
        {"[server]\nport = x\n",
         "f.conf:2: port: 'x' is not understood; give a number from 0 to 65535"},
        {"[server]\nport\n", "f.conf:2: 'port' is not understood; write name = value"},
        {"[server]\nport", "f.conf:2: 'port' is not understood; write name = value"},
        {"[server]\nuser = \"a", "f.conf:2: '\"a' has no closing quote"},
        {"[server]\nuser = \"a\\", "f.conf:2: '\"a\\' has no closing quote"},
        {"[server]\n= 1\n", "f.conf:2: '= 1' is not understood; write name = value"},
        {"[server]\nport = 1\n\nport = 2\n",
         "f.conf:4: port is already set on line 2; take one of the two away"},
        /* The second value ends where the first, read into the same buffer, had a space. */
        {"[server]\nuser = \"ab  \"\nlisten = \"a,\"\n",
         "f.conf:3: listen: 'a,' is not understood; give items separated by commas, none of them "
         "empty"},
        {"[server]\nuser = \"a\n", "f.conf:2: '\"a' has no closing quote"},
        {"[server]\nuser = \"a\\\"\n", "f.conf:2: '\"a\\\"' has no closing quote"},
        {"[server]\nuser = \"", "f.conf:2: '\"' has no closing quote"},
        {"[server]\nuser = \"a\"b\n", "f.conf:2: '\"a\"b' goes on behind its closing quote"},
        {"[server]\nuser = \"a\" b\n", "f.conf:2: '\"a\" b' goes on behind its closing quote"},
        {"[server]\n\177user = a\n",
         "f.conf:2: '?user = a' has a control character; is this a text file?"},
        {"[server]\n\037user = a\n",
         "f.conf:2: '?user = a' has a control character; is this a text file?"},
        {"[server]\nuser = a\001\n",
         "f.conf:2: 'user = a?' has a control character; is this a text file?"},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        assert_int_equal(file_parse(cases[i].text), -EINVAL);
        assert_string_equal(reason.text, cases[i].reason);
    }
    /* What the module answers is passed on. */
    assert_int_equal(teardown(state), 0);
    assert_int_equal(setup(state), 0);
    assert_int_equal(file_parse("[tenant a]\n[tenant b]\n[tenant c]\n[tenant d]\n"), -ENOSPC);
    assert_string_equal(reason.text, "f.conf:4: [tenant d]: there are 3 tenants already");
}

static void mistake_append(void *context, const struct fw_reason *mistake)
{
    struct fw_text *told = context;
    fw_text_printf(told, "%s\n", mistake->text);
}

static void test_all_mistakes(void **state)
{
    (void)state;
    static const char text[] = "[server]\nprt = 1\nport = 7\n[nowhere]\nport = 8\nnonsense\n"
                               "[tenant a]\n[tenant a]\nweight = 9\n[server]\nuser\nuser = me\n";
    char memory[1024];
    struct fw_text told;
    const struct fw_option_file file = {.name = "f", .text = text, .length = sizeof text - 1};
    fw_text_init(&told, memory, sizeof memory);
    assert_int_equal(fw_options_check_file(&options, &file, mistake_append, &told), 4);
    assert_string_equal(memory,
                        "f:2: 'prt' is no option of [server]; did you mean 'port'?\n"
                        "f:4: 'nowhere' is no known section; --help lists them in brackets\n"
                        "f:8: 'a' was already described on line 7\n"
                        "f:11: 'user' is not understood; write name = value\n");
    /* What was right counts, also behind a mistake. */
    assert_int_equal(config.port, 7);
    assert_string_equal(config.user, "me");
    const struct fw_option_file long_file = {
        .name = "f", .text = text, .length = FW_OPTION_FILE_MAX + 1};
    fw_text_clear(&told);
    assert_int_equal(fw_options_check_file(&options, &long_file, mistake_append, &told), 1);
    assert_string_equal(memory, "f: the file is larger than 1048576 bytes\n");
}

static void test_zero_byte(void **state)
{
    (void)state;
    static const char text[] = "[server]\nuser = a\0b\n";
    assert_int_equal(fw_options_parse_file(&options, "f", text, sizeof text - 1, &reason), -EINVAL);
    assert_string_equal(reason.text,
                        "f:2: 'user = a?b' has a control character; is this a text file?");
}

static void test_file_limits(void **state)
{
    (void)state;
    char *text = malloc(FW_OPTION_FILE_MAX + 1);
    assert_non_null(text);
    memset(text, '\n', FW_OPTION_FILE_MAX + 1);
    assert_int_equal(fw_options_parse_file(&options, "f", text, FW_OPTION_FILE_MAX, &reason), 0);
    assert_int_equal(fw_options_parse_file(&options, "f", text, FW_OPTION_FILE_MAX + 1, &reason),
                     -EINVAL);
    assert_string_equal(reason.text, "f: the file is larger than 1048576 bytes");

    memset(text, '#', FW_OPTION_LINE_MAX + 1);
    assert_int_equal(fw_options_parse_file(&options, "f", text, FW_OPTION_LINE_MAX, &reason), 0);
    assert_int_equal(fw_options_parse_file(&options, "f", text, FW_OPTION_LINE_MAX + 1, &reason),
                     -EINVAL);
    assert_string_equal(reason.text, "f:1: the line is longer than 4096 characters; a list can be "
                                     "given in several lines");
    free(text);

    char name[FW_OPTION_NAME_MAX + 16];
    char section[FW_OPTION_NAME_MAX + 32];
    memset(name, 'n', sizeof name);
    (void)snprintf(section, sizeof section, "[tenant %.*s]", FW_OPTION_NAME_MAX, name);
    assert_int_equal(file_parse(section), 0);
    (void)snprintf(section, sizeof section, "[tenant %.*s]", FW_OPTION_NAME_MAX + 1, name);
    assert_int_equal(file_parse(section), -EINVAL);
    assert_non_null(strstr(reason.text, "is too long for a name"));
}

static void test_long_file_name(void **state)
{
    (void)state;
    char name[300];
    char expected[FW_REASON_SIZE];
    memset(name, 'd', sizeof name);
    for (size_t length = 200; length <= 201; length++) { /* The longest that is shown whole. */
        name[length] = '\0';
        (void)snprintf(expected, sizeof expected, "%s%.197s:1: 'x' is not understood",
                       length == 200 ? "ddd" : "...", name);
        assert_int_equal(fw_options_parse_file(&options, name, "x", 1, &reason), -EINVAL);
        assert_int_equal(strncmp(reason.text, expected, strlen(expected)), 0);
        name[length] = 'd';
    }
    (void)snprintf(name + sizeof name - 13, 13, "fairway.conf");
    assert_int_equal(fw_options_parse_file(&options, name, "x", 1, &reason), -EINVAL);
    assert_int_equal(strncmp(reason.text, "...ddd", 6), 0);
    assert_non_null(strstr(reason.text, "fairway.conf:1: 'x' is not understood"));
}

struct listing {
    char text[4096];
    size_t length;
    char *listen; /* The one that may be long, on the heap. */
};

static void list_visit(const struct fw_option_row *row, void *argument)
{
    struct listing *listing = argument;
    if (strcmp(row->long_name, "listen") == 0) {
        listing->listen = strdup(row->value);
        return;
    }
    listing->length += (size_t)snprintf(
        listing->text + listing->length, sizeof listing->text - listing->length,
        "%s %s%s%s=%s %d:%u\n", row->table->module, row->instance != NULL ? row->instance : "",
        row->instance != NULL ? "." : "", row->long_name, row->value, (int)row->source, row->line);
    assert_true(listing->length < sizeof listing->text);
}

static void test_list(void **state)
{
    (void)state;
    struct listing listing = {.length = 0};
    assert_int_equal(file_parse("[server]\nmemory-limit=100k\n"), -EINVAL);
    assert_int_equal(teardown(state), 0);
    assert_int_equal(setup(state), 0);
    assert_int_equal(file_parse("[server]\nmemory-limit=1025k\nidle-timeout=90\n[tenant t]\n"), 0);
    assert_int_equal(arguments_parse("-vp1 --policy crr -u someone -l a,b", NULL), 0);
    fw_options_list(&options, list_visit, &listing);
    assert_string_equal(listing.text, "server port=1 2:0\n"
                                      "server nice=0 0:0\n"
                                      "server unix-mask=0700 0:0\n"
                                      "server memory-limit=1025KiB 1:2\n"
                                      "server max-item-size=1MiB 0:0\n"
                                      "server idle-timeout=90s 1:3\n"
                                      "server daemon=no 0:0\n"
                                      "server cas=yes 0:0\n"
                                      "server verbose=1 2:0\n"
                                      "server policy=crr 2:0\n"
                                      "server user=someone 2:0\n"
                                      "server extended= 0:0\n"
                                      "server help=no 0:0\n"
                                      "log log-file=stderr 0:0\n"
                                      "sched t.tenant-weight=1 0:0\n"
                                      "sched t.tenant-match= 0:0\n");
    assert_string_equal(listing.listen, "a,b");
    free(listing.listen);
}

/* The longest list that is taken can also be shown; one more character is refused. */
static void test_list_limit(void **state)
{
    (void)state;
    char line[FW_OPTION_LINE_MAX];
    struct listing listing = {.length = 0};
    (void)snprintf(line, sizeof line, "[server]\n");
    for (size_t i = strlen(line); i < sizeof line - 1; i += 64) {
        (void)snprintf(line + i, sizeof line - i, "listen = %054zu\n", i);
    }
    line[9 + 60 * 64] = '\0'; /* 60 lines: 60 * 55 characters. */
    assert_int_equal(file_parse(line), 0);
    assert_int_equal(config.listen.count, 60);
    char more[FW_OPTION_VALUE_MAX];
    size_t left = FW_OPTION_VALUE_MAX - 60 * 55;
    (void)snprintf(more, sizeof more, "[server]\nlisten = %0*d\n", (int)left + 1, 0);
    assert_int_equal(file_parse(more), -EINVAL);
    assert_string_equal(reason.text, "f.conf:2: listen: the list is longer than 4096 characters");
    (void)snprintf(more, sizeof more, "[server]\nlisten = %0*d\n", (int)left, 0);
    assert_int_equal(file_parse(more), 0);
    fw_options_list(&options, list_visit, &listing);
    assert_int_equal(strlen(listing.listen), FW_OPTION_VALUE_MAX);
    free(listing.listen);
}

static void test_help(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fw_options_print_help(tables, FW_ARRAY_LENGTH(tables), out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(
        text, "[server]\n"
              "  -p, --port NUMBER           TCP port to listen on (default 11211)\n"
              "      --nice NUMBER           Priority of the process (default 0)\n"
              "  -a, --unix-mask MODE        Mode of the UNIX socket (default 700)\n"
              "  -m, --memory-limit SIZE     Memory for items (in MiB; default 64)\n"
              "  -I, --max-item-size SIZE    Largest item, which is a sentence long enough to\n"
              "                              be broken in two (default 1m)\n"
              "      --idle-timeout TIME     Close after so long (in s; default 0)\n"
              "  -d, --daemon                Run in the background\n"
              "      --no-cas                Give no unique numbers\n"
              "  -v, --verbose               Say more\n"
              "      --policy NAME           Who goes next (one of fifo, crr, wfq; default\n"
              "                              fifo)\n"
              "  -u, --user NAME             Run as this user\n"
              "  -l, --listen ADDRESS        Listen on these addresses (default 0.0.0.0)\n"
              "\n"
              "On the command line only:\n"
              "  -o, --extended OPTIONS      Other options in one\n"
              "  -h, --help                  Show this help\n"
              "\n"
              "[log]\n"
              "      --log-file FILE         Where lines go (default stderr)\n"
              "\n"
              "[tenant NAME], in the configuration file only:\n"
              "  weight = NUMBER             Share of the server (default 1)\n"
              "  match = RULE                Who belongs to it\n");
    free(text);
}

/*
 * Whichever allocation fails, the call says so and keeps nothing. The round in which none fails has
 * to come, and before it one for each call.
 */
static void test_no_memory(void **state)
{
    (void)state;
    enum { INIT, PARSE_FILE, PARSE_ARGUMENTS, CALLS };
    static const char text[] = "[server]\nuser = a\nlisten = b, c, d\n"
                               "[tenant web]\nmatch = e, f\n";
    unsigned failures[CALLS] = {0};
    for (int count = 0;; count++) {
        struct fw_option_list rest;
        tenants.count = 0;
        fail_memory_after(count);
        int call = INIT;
        int rc = fw_options_init(&options, tables, FW_ARRAY_LENGTH(tables), &reason);
        bool is_made = rc == 0;
        if (rc == 0) {
            call = PARSE_FILE;
            rc = fw_options_parse_file(&options, "f.conf", text, sizeof text - 1, &reason);
        }
        if (rc == 0) {
            call = PARSE_ARGUMENTS;
            rc = arguments_parse("-u g -l h,i,j k l m", &rest);
        }
        fail_memory_after(-1);
        if (is_made) {
            fw_options_fini(&options);
        }
        if (rc == 0) {
            break;
        }
        assert_int_equal(rc, -ENOMEM);
        assert_non_null(strstr(reason.text, "no memory for the options"));
        failures[call]++;
    }
    /* One for each struct, each text, and each time that a list has 0, 1 or 2 items and grows. */
    assert_int_equal(failures[INIT], 2 + 2 + 1);
    assert_int_equal(failures[PARSE_FILE], 1 + 7 + 5);
    assert_int_equal(failures[PARSE_ARGUMENTS], 7 + 6);
}

static void test_programmers_mistakes(void **state)
{
    (void)state;
    struct fw_options other;
    const struct fw_option bad_default[] = {FW_OPTION_UINT(struct config, port, .section = "s",
                                                           .name = "a", .default_text = "2",
                                                           .max = 1, .help = "x")};
    const struct fw_option same_flag[] = {
        FW_OPTION_UINT(struct config, port, .section = "s", .name = "a", .default_text = "1",
                       .flag = 'a', .help = "x"),
        FW_OPTION_UINT(struct config, mode, .section = "s", .name = "b", .default_text = "1",
                       .flag = 'a', .help = "x")};
    const struct fw_option same_name[] = {
        FW_OPTION_UINT(struct config, port, .section = "s", .name = "a", .default_text = "1",
                       .help = "x"),
        FW_OPTION_UINT(struct config, mode, .section = "t", .name = "a", .default_text = "1",
                       .help = "x")};
    const struct fw_option no_default[] = {
        FW_OPTION_BOOL(struct config, cas, .section = "s", .name = "a", .help = "x")};
    struct fw_option_table table = {
        .module = "m", .config = &config, .options = bad_default, .count = 1, .bare = true};
    expect_assert_failure((void)(fw_options_init(&other, &table, 1, &reason) == 0));
    fw_options_fini(&other);
    table.options = no_default;
    expect_assert_failure((void)(fw_options_init(&other, &table, 1, &reason) == 0));
    fw_options_fini(&other);
    table.options = same_flag;
    table.count = 2;
    expect_assert_failure((void)(fw_options_init(&other, &table, 1, &reason) == 0));
    table.options = same_name;
    expect_assert_failure((void)(fw_options_init(&other, &table, 1, &reason) == 0));
    table.bare = false; /* --s-a and --t-a: now they differ. */
    assert_int_equal(fw_options_init(&other, &table, 1, &reason), 0);
    fw_options_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_short, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_rest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_extended, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_named_sections, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arguments_mistakes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_mistakes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_mistakes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zero_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_file_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_help, setup, teardown),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test_setup_teardown(test_programmers_mistakes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
