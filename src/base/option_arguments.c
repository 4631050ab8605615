/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options on the command line.
 */
#include <errno.h>
#include <string.h>

#include "base/nearest.h"
#include "base/option_internal.h"

/* The walk over the arguments; `next` is the one to look at. */
struct arguments {
    struct fw_options *options;
    char *const *all;
    int count;
    int next;
    struct fw_reason *reason;
};

/* What a name or a letter stands for. */
struct match {
    struct fw_option_instance *instance;
    const struct fw_option *option;
    bool negated; /* --no-NAME */
};

/* "--port" or "-p", for messages. */
enum { PLACE_SIZE = FW_OPTION_QUOTE_SIZE + 8 };

static bool long_name_equal(const struct fw_option_table *table, const struct fw_option *option,
                            const char *text, size_t length)
{
    char long_name[FW_OPTION_LONG_SIZE];
    fw_option_long_name(table, option, long_name);
    return fw_option_name_equal(long_name, text, length);
}

static bool is_negation(const char *text, size_t length)
{
    return length > 3 && fw_option_name_equal("no-", text, 3);
}

static bool find_long(const struct fw_options *options, const char *text, size_t length,
                      struct match *match)
{
    FW_LIST_FOR_EACH (&options->instances, struct fw_option_instance, link, instance) {
        const struct fw_option_table *table = instance->table;
        for (size_t i = 0; i < table->count && !fw_option_is_file_only(table); i++) {
            const struct fw_option *option = &table->options[i];
            bool plain = long_name_equal(table, option, text, length);
            bool can_be_no = option->type == FW_OPTION_TYPE_BOOL || option->yes_text != NULL;
            bool negated = can_be_no && is_negation(text, length) &&
                           long_name_equal(table, option, text + 3, length - 3);
            if (plain || negated) {
                *match = (struct match){instance, option, negated};
                return true;
            }
        }
    }
    return false;
}

static bool find_flag(const struct fw_options *options, char flag, struct match *match)
{
    FW_LIST_FOR_EACH (&options->instances, struct fw_option_instance, link, instance) {
        for (size_t i = 0; i < instance->table->count; i++) {
            if (instance->table->options[i].flag == flag) {
                *match = (struct match){instance, &instance->table->options[i], false};
                return true;
            }
        }
    }
    return false;
}

static int refuse_unknown(const struct arguments *arguments, const char *place, const char *text,
                          size_t length)
{
    const struct fw_options *options = arguments->options;
    struct match match;
    if (is_negation(text, length) && find_long(options, text + 3, length - 3, &match)) {
        return fw_reason_set(arguments->reason, -EINVAL,
                             "%s: only options that are yes or no can be turned off with no-",
                             place);
    }
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, text, length);
    for (size_t i = 0; i < options->count; i++) {
        const struct fw_option_table *table = &options->tables[i];
        for (size_t j = 0; j < table->count && !fw_option_is_file_only(table); j++) {
            char long_name[FW_OPTION_LONG_SIZE];
            fw_option_long_name(table, &table->options[j], long_name);
            fw_nearest_offer(&nearest, long_name, strlen(long_name));
        }
    }
    if (fw_nearest_found(&nearest)) {
        return fw_reason_set(arguments->reason, -EINVAL,
                             "%s: there is no such option; did you mean --%s?", place,
                             nearest.best);
    }
    return fw_reason_set(arguments->reason, -EINVAL,
                         "%s: there is no such option; --help lists them", place);
}

static int refuse_missing(const struct arguments *arguments, const char *place,
                          const struct fw_option *option)
{
    char allowed[FW_OPTION_ALLOWED_SIZE];
    fw_option_allowed(option, allowed);
    return fw_reason_set(arguments->reason, -EINVAL, "%s: a value is missing; give %s", place,
                         allowed);
}

static int assign(struct arguments *arguments, const struct match *match, const char *place,
                  const char *text)
{
    const struct fw_option_assignment assignment = {.instance = match->instance,
                                                    .option = match->option,
                                                    .source = FW_OPTION_SOURCE_COMMAND_LINE,
                                                    .place = place,
                                                    .text = match->negated ? "no" : text,
                                                    .length = match->negated ? strlen("no")
                                                              : text != NULL ? strlen(text)
                                                                             : 0};
    return fw_option_assign(arguments->options, &assignment, arguments->reason);
}

static bool needs_no_value(const struct fw_option *option)
{
    return fw_option_is_flag(option) || option->yes_text != NULL;
}

/* One of memcached's -o: name, no_name or name=value. */
static int extended_item(struct arguments *arguments, const char *flag, const char *text,
                         size_t length)
{
    char place[2 * PLACE_SIZE];
    char quote[FW_OPTION_QUOTE_SIZE];
    char value[FW_OPTION_VALUE_MAX + 1];
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals != NULL ? (size_t)(equals - text) : length;
    (void)snprintf(place, sizeof place, "%s %s", flag, fw_option_quote(text, name_length, quote));

    struct match match;
    if (!find_long(arguments->options, text, name_length, &match) ||
        match.option->type == FW_OPTION_TYPE_EXTENDED) {
        return refuse_unknown(arguments, place, text, name_length);
    }
    if (equals == NULL) {
        return needs_no_value(match.option) ? assign(arguments, &match, place, NULL)
                                            : refuse_missing(arguments, place, match.option);
    }
    size_t value_length = length - name_length - 1;
    if (match.negated || value_length > FW_OPTION_VALUE_MAX) {
        return fw_reason_set(arguments->reason, -EINVAL, "%s: %s", place,
                             match.negated ? "takes no value" : "the value is too long");
    }
    memcpy(value, equals + 1, value_length);
    value[value_length] = '\0';
    return assign(arguments, &match, place, value);
}

static int extended(struct arguments *arguments, const char *flag, const char *text)
{
    for (;;) {
        size_t length = strcspn(text, ",");
        int rc = extended_item(arguments, flag, text, length);
        if (rc != 0 || text[length] == '\0') {
            return rc;
        }
        text += length + 1;
    }
}

/* Gives the option its value: the one at hand, or the next argument. */
static int with_value(struct arguments *arguments, const struct match *match, const char *place,
                      const char *value)
{
    bool has_next = arguments->next < arguments->count;
    const char *next = has_next ? arguments->all[arguments->next] : "";
    if (match->negated ||
        (value == NULL && match->option->yes_text != NULL && (next[0] < '0' || next[0] > '9'))) {
        return assign(arguments, match, place, NULL);
    }
    if (value == NULL) {
        if (arguments->next == arguments->count) {
            return refuse_missing(arguments, place, match->option);
        }
        value = arguments->all[arguments->next];
        arguments->next++;
    }
    return match->option->type == FW_OPTION_TYPE_EXTENDED ? extended(arguments, place, value)
                                                          : assign(arguments, match, place, value);
}

/* --name, --name=value; `text` begins behind the dashes. */
static int long_option(struct arguments *arguments, const char *text)
{
    size_t length = strcspn(text, "=");
    const char *value = text[length] == '=' ? text + length + 1 : NULL;
    char place[PLACE_SIZE];
    char quote[FW_OPTION_QUOTE_SIZE];
    (void)snprintf(place, sizeof place, "--%s", fw_option_quote(text, length, quote));

    struct match match;
    if (!find_long(arguments->options, text, length, &match)) {
        return refuse_unknown(arguments, place, text, length);
    }
    if (match.negated && value != NULL) {
        return fw_reason_set(arguments->reason, -EINVAL, "%s: takes no value", place);
    }
    if (fw_option_is_flag(match.option)) {
        return assign(arguments, &match, place, value);
    }
    return with_value(arguments, &match, place, value);
}

/* -vvd, -p11211, -p 11211; `text` begins behind the dash. */
static int short_options(struct arguments *arguments, const char *text)
{
    for (; *text != '\0'; text++) {
        char place[PLACE_SIZE];
        char quote[FW_OPTION_QUOTE_SIZE];
        (void)snprintf(place, sizeof place, "-%s", fw_option_quote(text, 1, quote));

        struct match match;
        if (!find_flag(arguments->options, *text, &match)) {
            return refuse_unknown(arguments, place, "", 0);
        }
        if (!fw_option_is_flag(match.option)) {
            return with_value(arguments, &match, place, text[1] != '\0' ? text + 1 : NULL);
        }
        int rc = assign(arguments, &match, place, NULL);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* What is no option. */
static int positional(const struct arguments *arguments, const char *text,
                      struct fw_option_list *rest)
{
    if (rest != NULL) {
        return fw_option_list_append(arguments->options, rest, text, strlen(text),
                                     arguments->reason);
    }
    char quote[FW_OPTION_QUOTE_SIZE];
    return fw_reason_set(arguments->reason, -EINVAL,
                         "'%s' is not an option; only options are taken, see --help",
                         fw_option_quote(text, strlen(text), quote));
}

int fw_options_parse_arguments(struct fw_options *options, int count, char *const *all,
                               struct fw_option_list *rest, struct fw_reason *reason)
{
    struct arguments arguments = {.options = options, .all = all, .count = count, .reason = reason};
    bool is_over = false; /* Behind "--". */
    if (rest != NULL) {
        *rest = (struct fw_option_list){.count = 0};
    }
    while (arguments.next < count) {
        const char *text = all[arguments.next];
        arguments.next++;
        int rc = 0;
        if (is_over || text[0] != '-' || text[1] == '\0') {
            rc = positional(&arguments, text, rest);
        } else if (strcmp(text, "--") == 0) {
            is_over = true;
        } else if (text[1] == '-') {
            rc = long_option(&arguments, text + 2);
        } else {
            rc = short_options(&arguments, text + 1);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
