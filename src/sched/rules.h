/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a connection or a request is: rules that map it to a tenant.
 *
 * A rule is what an operator writes behind `match`, conditions that must all hold:
 *
 *     listener 127.0.0.1:11211         where the client came in, as the server listens there;
 *                                      without a port any, ":11211" any address
 *     listener unix:/run/f.sock
 *     address 10.1.0.0/16              where it comes from; IPv4 or IPv6, or one address
 *     login batch                      as whom it has logged in
 *     prefix img:                      how the key begins; of a get of several, the first
 *     command write                    read, write or admin
 *     listener :11211 and prefix img:  both
 *
 * The first rule that holds decides, in the order in which they were written. So what is special
 * stands before what is general, as in a packet filter, and nobody has to know how an address range
 * compares with a prefix. What no rule holds for is tenant 0's.
 *
 * What is known of a connection (listener, address, login) is looked at once, when it is accepted
 * and again when it has logged in. That leaves in its *scope* the first rule for each class of
 * command, of those that do not look at the key. If some look at it, each request is classified by
 * fw_rules_classify(): for each length that some rule's prefix has, the beginning of the key is
 * looked up in a hash table, however many rules there are. The hash has a seed that nobody else
 * knows, as clients choose the keys.
 *
 * Ownership: a set of rules is made from parsed ones, copies their texts, and is constant. A scope
 * is the connection's and belongs to the rules it was made with; it refers to the listener's
 * address. Threads: any, as nothing changes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/address.h"

enum fw_rule_class { FW_RULE_READ, FW_RULE_WRITE, FW_RULE_ADMIN, FW_RULE_CLASSES };

enum {
    FW_RULES_MAX = 65536,
    FW_RULE_PREFIX_MAX = 250,
    FW_RULE_LOGIN_MAX = 255,
    FW_RULE_NONE = FW_RULES_MAX, /* Behind all of them. */
};

/* Conditions that a rule has; bits. */
enum {
    FW_RULE_LISTENER = 1,
    FW_RULE_ADDRESS = 2,
    FW_RULE_LOGIN = 4,
    FW_RULE_PREFIX = 8,
    FW_RULE_COMMAND = 16,
    FW_RULE_REQUEST = FW_RULE_PREFIX | FW_RULE_COMMAND, /* Not known before it is parsed. */
};

/* What a rule says. */
struct fw_rule_verdict {
    uint32_t tenant;
    bool is_urgent;
};

/* One rule. Only what `conditions` names is set. */
struct fw_rule {
    struct fw_rule_verdict verdict; /* The caller's; parsing leaves it alone. */
    uint8_t conditions;
    uint8_t class;
    uint8_t network_family;
    uint8_t network_bits;
    uint8_t network[sizeof(struct in6_addr)];
    struct fw_address listener; /* Port 0: any. */
    bool has_any_host;          /* Of the listener. */
    const char *login;          /* These two lie in the text. */
    const char *prefix;
    uint8_t login_length;
    uint8_t prefix_length;
};

/*
 * Reads a rule, which refers to `text` from then on. Returns 0, or -EINVAL with a reason that says
 * what is allowed.
 */
FW_MUST_CHECK int fw_rule_parse(struct fw_rule *rule, const char *text, struct fw_reason *reason);

struct fw_rules;

/*
 * Makes a set of rules in this order; `fallback` is what is said where none holds. Returns 0,
 * -E2BIG (more than FW_RULES_MAX), -ENOMEM, or why there is no random seed.
 */
FW_MUST_CHECK int fw_rules_create(struct fw_rules **rules, const struct fw_rule *list, size_t count,
                                  struct fw_rule_verdict fallback);
void fw_rules_destroy(struct fw_rules *rules);

/* Does some rule look at requests? Else what connections are due is all there is to know. */
bool fw_rules_look_at_requests(const struct fw_rules *rules);
/* Does some rule look at where clients come from? Else facts.peer may be NULL. */
bool fw_rules_look_at_peers(const struct fw_rules *rules);
/*
 * The next rule, beginning with number *from, that names a listener which is none of these, and so
 * will never hold; *from is behind it then. NULL: there is none.
 */
const struct fw_rule *fw_rules_next_lost(const struct fw_rules *rules, uint32_t *from,
                                         const struct fw_address *const *listeners, size_t count);

/* What is known of a connection. */
struct fw_rule_facts {
    const struct fw_address *listener; /* Lasts as long as the scope. */
    const struct fw_address *peer;     /* NULL: not known. */
    const char *login;                 /* NULL: has not logged in. */
    size_t login_length;
};

struct fw_rule_scope {
    uint32_t first[FW_RULE_CLASSES]; /* Of the rules that do not look at keys; or NONE. */
    uint32_t login;                  /* A number for those that a rule names; 0: none does. */
    uint8_t family;                  /* Of the peer's address; 0: has none. */
    uint8_t peer[sizeof(struct in6_addr)];
    const struct fw_address *listener;
};

void fw_rules_scope(const struct fw_rules *rules, const struct fw_rule_facts *facts,
                    struct fw_rule_scope *scope);

/* For a connection of which no request is known: as if it were going to read. */
struct fw_rule_verdict fw_rules_judge_connection(const struct fw_rules *rules,
                                                 const struct fw_rule_scope *scope);

/* For a request; `key` may be NULL if it has none. */
struct fw_rule_verdict fw_rules_classify(const struct fw_rules *rules,
                                         const struct fw_rule_scope *scope,
                                         enum fw_rule_class class, const char *key, size_t length);
