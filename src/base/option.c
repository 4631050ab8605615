/* SPDX-License-Identifier: Apache-2.0 */
#include "base/option.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/option_internal.h"
#include "base/parse.h"

/* Memory that lives until fini(), one block per string, list or instance. */
struct fw_option_owned {
    struct fw_option_owned *next;
    alignas(max_align_t) char bytes[];
};

static void *own(struct fw_options *options, size_t size)
{
    struct fw_option_owned *block = calloc(1, sizeof *block + size);
    if (block == NULL) {
        return NULL;
    }
    block->next = options->owned;
    options->owned = block;
    return block->bytes;
}

static char *own_string(struct fw_options *options, const char *text, size_t length)
{
    char *copy = own(options, length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
    }
    return copy;
}

static int no_memory(struct fw_reason *reason)
{
    return fw_reason_set(reason, -ENOMEM, "no memory for the options");
}

bool fw_option_name_equal(const char *name, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool equal = name[i] == text[i] || (name[i] == '-' && text[i] == '_');
        if (name[i] == '\0' || !equal) {
            return false;
        }
    }
    return name[length] == '\0';
}

bool fw_option_is_flag(const struct fw_option *option)
{
    return option->type == FW_OPTION_TYPE_BOOL || option->type == FW_OPTION_TYPE_COUNT;
}

static bool is_number(const struct fw_option *option)
{
    return option->type != FW_OPTION_TYPE_STRING && option->type != FW_OPTION_TYPE_LIST &&
           option->type != FW_OPTION_TYPE_EXTENDED;
}

bool fw_option_is_file_only(const struct fw_option_table *table)
{
    return table->instance_add != NULL;
}

/* ---- Numbers: all types but strings and lists are one, at most INT64_MAX. ---- */

static int64_t limit_max(const struct fw_option *option)
{
    return option->max == 0 && option->min >= 0 ? INT64_MAX : option->max;
}

static int64_t limit_min(const struct fw_option *option)
{
    bool unlimited = option->type == FW_OPTION_TYPE_INT && option->min == 0 && option->max == 0;
    return unlimited ? INT64_MIN : option->min;
}

static int enum_parse(const struct fw_option *option, const char *text, size_t length,
                      int64_t *number)
{
    for (int64_t i = 0; option->names[i] != NULL; i++) {
        if (fw_option_name_equal(option->names[i], text, length)) {
            *number = i;
            return 0;
        }
    }
    return -EINVAL;
}

static int size_parse(const struct fw_option *option, const char *text, size_t length,
                      uint64_t *bytes)
{
    uint64_t unit = 1;
    if (option->unit != NULL) {
        int rc = fw_parse_size_unit(option->unit, strlen(option->unit), &unit);
        FW_ASSERT(rc == 0);
    }
    return fw_parse_size(text, length, unit, bytes);
}

static int duration_parse(const struct fw_option *option, const char *text, size_t length,
                          int64_t *ns)
{
    bool truth;
    if (option->yes_text != NULL && fw_parse_bool(text, length, &truth) == 0 &&
        (text[0] < '0' || text[0] > '9')) {
        text = truth ? option->yes_text : "0";
        length = strlen(text);
    }
    int64_t unit_ns = 1000000000;
    if (option->unit != NULL) {
        int rc = fw_parse_duration_unit(option->unit, strlen(option->unit), &unit_ns);
        FW_ASSERT(rc == 0);
    }
    return fw_parse_duration(text, length, unit_ns, ns);
}

static int number_parse(const struct fw_option *option, const char *text, size_t length,
                        int64_t *number)
{
    FW_ASSERT(is_number(option));
    uint64_t natural = 0;
    bool truth = false;
    int rc = -EINVAL;
    switch (option->type) {
    case FW_OPTION_TYPE_INT:
        rc = fw_parse_int(text, length, INT64_MIN, INT64_MAX, number);
        break;
    case FW_OPTION_TYPE_DURATION:
        rc = duration_parse(option, text, length, number);
        break;
    case FW_OPTION_TYPE_ENUM:
        return enum_parse(option, text, length, number);
    case FW_OPTION_TYPE_BOOL:
        rc = fw_parse_bool(text, length, &truth);
        *number = truth;
        return rc;
    case FW_OPTION_TYPE_SIZE:
        rc = size_parse(option, text, length, &natural);
        rc = rc == 0 && natural > INT64_MAX ? -ERANGE : rc;
        *number = (int64_t)natural;
        break;
    case FW_OPTION_TYPE_OCTAL:
        rc = fw_parse_octal(text, length, INT64_MAX, &natural);
        *number = (int64_t)natural;
        break;
    case FW_OPTION_TYPE_UINT:
    case FW_OPTION_TYPE_COUNT:
        rc = fw_parse_uint(text, length, 0, INT64_MAX, &natural);
        *number = (int64_t)natural;
        break;
    case FW_OPTION_TYPE_STRING:
    case FW_OPTION_TYPE_LIST:
    case FW_OPTION_TYPE_EXTENDED:
        break;
    }
    if (rc != 0 || (option->yes_text != NULL && *number == 0)) {
        return rc;
    }
    return *number < limit_min(option) || *number > limit_max(option) ? -ERANGE : 0;
}

static void *field_of(const struct fw_option_instance *instance, const struct fw_option *option)
{
    return (char *)instance->config + option->offset;
}

static void number_store(const struct fw_option_instance *instance, const struct fw_option *option,
                         int64_t number)
{
    FW_ASSERT(is_number(option));
    void *field = field_of(instance, option);
    switch (option->type) {
    case FW_OPTION_TYPE_UINT:
    case FW_OPTION_TYPE_COUNT:
    case FW_OPTION_TYPE_OCTAL:
    case FW_OPTION_TYPE_SIZE:
        *(uint64_t *)field = (uint64_t)number;
        return;
    case FW_OPTION_TYPE_INT:
    case FW_OPTION_TYPE_DURATION:
        *(int64_t *)field = number;
        return;
    case FW_OPTION_TYPE_BOOL:
        *(bool *)field = number != 0;
        return;
    case FW_OPTION_TYPE_ENUM:
        *(int *)field = (int)number;
        return;
    case FW_OPTION_TYPE_STRING:
    case FW_OPTION_TYPE_LIST:
    case FW_OPTION_TYPE_EXTENDED:
        return;
    }
}

static int64_t number_load(const struct fw_option_instance *instance,
                           const struct fw_option *option)
{
    FW_ASSERT(is_number(option));
    const void *field = field_of(instance, option);
    switch (option->type) {
    case FW_OPTION_TYPE_UINT:
    case FW_OPTION_TYPE_COUNT:
    case FW_OPTION_TYPE_OCTAL:
    case FW_OPTION_TYPE_SIZE:
        return (int64_t) * (const uint64_t *)field;
    case FW_OPTION_TYPE_INT:
    case FW_OPTION_TYPE_DURATION:
        return *(const int64_t *)field;
    case FW_OPTION_TYPE_BOOL:
        return *(const bool *)field;
    case FW_OPTION_TYPE_ENUM:
        return *(const int *)field;
    case FW_OPTION_TYPE_STRING:
    case FW_OPTION_TYPE_LIST:
    case FW_OPTION_TYPE_EXTENDED:
        break;
    }
    return 0;
}

/* ---- Assignments. ---- */

static struct fw_option_state *state_of(const struct fw_option_assignment *assignment)
{
    struct fw_option_instance *instance = assignment->instance;
    return &instance->states[assignment->option - instance->table->options];
}

static bool is_beaten(const struct fw_option_assignment *assignment)
{
    return state_of(assignment)->source > assignment->source;
}

static void note_source(const struct fw_option_assignment *assignment)
{
    *state_of(assignment) =
        (struct fw_option_state){.source = assignment->source, .line = assignment->line};
}

/* "PLACE: 'VALUE' is ...; did you mean 'NAME'? give ..." */
static int refuse_value(const struct fw_option_assignment *assignment, int error,
                        struct fw_reason *reason)
{
    const struct fw_option *option = assignment->option;
    char quote[FW_OPTION_QUOTE_SIZE];
    char allowed[FW_OPTION_ALLOWED_SIZE];
    (void)fw_option_quote(assignment->text, assignment->length, quote);
    fw_option_allowed(option, allowed);
    if (option->type == FW_OPTION_TYPE_ENUM) {
        struct fw_nearest nearest;
        fw_nearest_init(&nearest, assignment->text, assignment->length);
        for (size_t i = 0; option->names[i] != NULL; i++) {
            fw_nearest_offer(&nearest, option->names[i], strlen(option->names[i]));
        }
        if (fw_nearest_found(&nearest)) {
            return fw_reason_set(reason, -EINVAL,
                                 "%s: '%s' is not known, did you mean '%s'? Give %s",
                                 assignment->place, quote, nearest.best, allowed);
        }
    }
    return fw_reason_set(reason, -EINVAL, "%s: '%s' is %s; give %s", assignment->place, quote,
                         error == -ERANGE ? "out of range" : "not understood", allowed);
}

static int number_assign(const struct fw_option_assignment *assignment, struct fw_reason *reason)
{
    const struct fw_option *option = assignment->option;
    int64_t number;
    if (assignment->text != NULL) {
        int rc = number_parse(option, assignment->text, assignment->length, &number);
        if (rc != 0) {
            return refuse_value(assignment, rc, reason);
        }
    } else if (option->type == FW_OPTION_TYPE_COUNT) {
        bool first = state_of(assignment)->source != assignment->source;
        number = first ? 1 : number_load(assignment->instance, option) + 1;
        if (number > limit_max(option)) {
            number = limit_max(option); /* -vvvvvvvv asks for all there is. */
        }
    } else if (option->yes_text != NULL) {
        int rc = number_parse(option, "yes", strlen("yes"), &number);
        FW_ASSERT(rc == 0);
    } else {
        FW_ASSERT(option->type == FW_OPTION_TYPE_BOOL);
        number = true;
    }
    if (!is_beaten(assignment)) {
        number_store(assignment->instance, option, number);
        note_source(assignment);
    }
    return 0;
}

static bool length_is_allowed(const struct fw_option *option, size_t length)
{
    size_t max = option->max != 0 ? (size_t)option->max : FW_OPTION_VALUE_MAX;
    return length >= (size_t)option->min && length <= max;
}

static int string_assign(struct fw_options *options, const struct fw_option_assignment *assignment,
                         struct fw_reason *reason)
{
    if (!length_is_allowed(assignment->option, assignment->length)) {
        return refuse_value(assignment, -ERANGE, reason);
    }
    if (is_beaten(assignment)) {
        return 0;
    }
    const char *copy = own_string(options, assignment->text, assignment->length);
    if (copy == NULL) {
        return no_memory(reason);
    }
    *(const char **)field_of(assignment->instance, assignment->option) = copy;
    note_source(assignment);
    return 0;
}

int fw_option_list_append(struct fw_options *options, struct fw_option_list *list, const char *text,
                          size_t length, struct fw_reason *reason)
{
    /* The array grows by doubling; the old one waits for fini() like all else. */
    bool is_full = (list->count & (list->count - 1)) == 0; /* 0 or a power of two. */
    if (is_full) {
        size_t capacity = list->count == 0 ? 1 : 2 * list->count;
        const char **items = own(options, capacity * sizeof *items);
        if (items == NULL) {
            return no_memory(reason);
        }
        if (list->count > 0) {
            memcpy(items, list->items, list->count * sizeof *items);
        }
        list->items = items;
    }
    const char *item = own_string(options, text, length);
    if (item == NULL) {
        return no_memory(reason);
    }
    list->items[list->count] = item;
    list->count++;
    return 0;
}

static size_t list_text_length(const struct fw_option_list *list)
{
    size_t length = 0;
    for (size_t i = 0; i < list->count; i++) {
        length += strlen(list->items[i]) + 1;
    }
    return length;
}

/* An item is what stands between commas, without the spaces around. */
static int list_assign(struct fw_options *options, const struct fw_option_assignment *assignment,
                       struct fw_reason *reason)
{
    struct fw_option_list *field = field_of(assignment->instance, assignment->option);
    struct fw_option_list list = {.count = 0};
    if (state_of(assignment)->source == assignment->source) {
        list = *field; /* One more of the same source; otherwise it starts anew. */
    }
    if (list_text_length(&list) + assignment->length > FW_OPTION_VALUE_MAX) {
        return fw_reason_set(reason, -EINVAL, "%s: the list is longer than %d characters",
                             assignment->place, FW_OPTION_VALUE_MAX);
    }
    const char *end = assignment->text + assignment->length;
    for (const char *item = assignment->text;;) {
        const char *comma = memchr(item, ',', (size_t)(end - item));
        const char *item_end = comma != NULL ? comma : end;
        while (item < item_end && (*item == ' ' || *item == '\t')) {
            item++;
        }
        while (item < item_end && (item_end[-1] == ' ' || item_end[-1] == '\t')) {
            item_end--;
        }
        size_t length = (size_t)(item_end - item);
        if (length == 0 || !length_is_allowed(assignment->option, length)) {
            return refuse_value(assignment, length == 0 ? -EINVAL : -ERANGE, reason);
        }
        int rc = fw_option_list_append(options, &list, item, length, reason);
        if (rc != 0) {
            return rc;
        }
        if (comma == NULL) {
            break;
        }
        item = comma + 1;
    }
    if (!is_beaten(assignment)) {
        *field = list;
        note_source(assignment);
    }
    return 0;
}

int fw_option_assign(struct fw_options *options, const struct fw_option_assignment *assignment,
                     struct fw_reason *reason)
{
    const struct fw_option_state *state = state_of(assignment);
    if (assignment->source == FW_OPTION_SOURCE_FILE && state->source == FW_OPTION_SOURCE_FILE &&
        assignment->option->type != FW_OPTION_TYPE_LIST) {
        return fw_reason_set(reason, -EINVAL,
                             "%s is already set on line %u; take one of the two away",
                             assignment->place, state->line);
    }
    if (assignment->text != NULL && memchr(assignment->text, '\0', assignment->length) != NULL) {
        return fw_reason_set(reason, -EINVAL, "%s: the value has a zero byte", assignment->place);
    }
    if (assignment->option->type == FW_OPTION_TYPE_STRING) {
        return string_assign(options, assignment, reason);
    }
    if (assignment->option->type == FW_OPTION_TYPE_LIST) {
        return list_assign(options, assignment, reason);
    }
    return number_assign(assignment, reason);
}

/* ---- Instances and defaults. ---- */

static int default_assign(struct fw_options *options, struct fw_option_instance *instance,
                          const struct fw_option *option, struct fw_reason *reason)
{
    if (option->type == FW_OPTION_TYPE_STRING) {
        *(const char **)field_of(instance, option) = NULL;
    } else if (option->type == FW_OPTION_TYPE_LIST) {
        *(struct fw_option_list *)field_of(instance, option) = (struct fw_option_list){.count = 0};
    }
    if (option->default_text == NULL) {
        FW_ASSERT(!is_number(option));
        return 0;
    }
    const struct fw_option_assignment assignment = {.instance = instance,
                                                    .option = option,
                                                    .source = FW_OPTION_SOURCE_DEFAULT,
                                                    .place = option->name,
                                                    .text = option->default_text,
                                                    .length = strlen(option->default_text)};
    int rc = fw_option_assign(options, &assignment, reason);
    FW_ASSERT(rc == 0 || rc == -ENOMEM); /* The table's default breaks the table's limits. */
    return rc;
}

int fw_option_instance_create(struct fw_options *options, const struct fw_option_table *table,
                              const char *name, size_t name_length, unsigned line,
                              struct fw_reason *reason)
{
    struct fw_option_instance *instance =
        own(options, sizeof *instance + table->count * sizeof instance->states[0]);
    if (instance == NULL) {
        return no_memory(reason);
    }
    instance->table = table;
    instance->config = table->config;
    instance->line = line;
    if (name != NULL) {
        instance->name = own_string(options, name, name_length);
        if (instance->name == NULL) {
            return no_memory(reason);
        }
        int rc = table->instance_add(table->config, instance->name, &instance->config, reason);
        if (rc != 0) {
            return rc;
        }
    }
    fw_list_push_back(&options->instances, &instance->link);
    for (size_t i = 0; i < table->count; i++) {
        int rc = default_assign(options, instance, &table->options[i], reason);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* What a programmer can get wrong in one row. */
static void option_check(const struct fw_option_table *table, const struct fw_option *option)
{
    size_t section_length = option->section != NULL ? strlen(option->section) : 0;
    FW_ASSERT(option->name != NULL && option->name[0] != '\0' && option->help != NULL);
    FW_ASSERT(section_length + 1 + strlen(option->name) <= FW_OPTION_NAME_MAX);
    FW_ASSERT(option->names != NULL || option->type != FW_OPTION_TYPE_ENUM);
    FW_ASSERT(option->max == 0 || option->min <= option->max);
    if (option->type == FW_OPTION_TYPE_STRING || option->type == FW_OPTION_TYPE_LIST) {
        FW_ASSERT(option->min >= 0 && option->max <= FW_OPTION_VALUE_MAX);
    }
    if (fw_option_is_file_only(table)) {
        FW_ASSERT(option->section != NULL && option->flag == 0);
        FW_ASSERT(strcmp(option->section, table->options[0].section) == 0);
    }
}

/* No two options share a long name or a flag: the command line could not tell them apart. */
static void options_check_distinct(const struct fw_option_table *table,
                                   const struct fw_option *option,
                                   const struct fw_option_table *other_table,
                                   const struct fw_option *other)
{
    char name[FW_OPTION_LONG_SIZE];
    char other_name[FW_OPTION_LONG_SIZE];
    fw_option_long_name(table, option, name);
    fw_option_long_name(other_table, other, other_name);
    FW_ASSERT(strcmp(name, other_name) != 0 ||
              fw_option_is_file_only(table) != fw_option_is_file_only(other_table));
    FW_ASSERT(option->flag == 0 || option->flag != other->flag);
}

static void tables_check(const struct fw_option_table *tables, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        FW_ASSERT(tables[i].count > 0);
        for (size_t j = 0; j < tables[i].count; j++) {
            const struct fw_option *option = &tables[i].options[j];
            option_check(&tables[i], option);
            for (size_t k = 0; k <= i; k++) {
                size_t others = k < i ? tables[k].count : j;
                for (size_t l = 0; l < others; l++) {
                    options_check_distinct(&tables[i], option, &tables[k], &tables[k].options[l]);
                }
            }
        }
    }
}

int fw_options_init(struct fw_options *options, const struct fw_option_table *tables, size_t count,
                    struct fw_reason *reason)
{
    tables_check(tables, count);
    *options = (struct fw_options){.tables = tables, .count = count};
    fw_list_init(&options->instances);
    for (size_t i = 0; i < count; i++) {
        if (fw_option_is_file_only(&tables[i])) {
            continue; /* Its instances come with the file. */
        }
        int rc = fw_option_instance_create(options, &tables[i], NULL, 0, 0, reason);
        if (rc != 0) {
            fw_options_fini(options);
            return rc;
        }
    }
    return 0;
}

void fw_options_fini(struct fw_options *options)
{
    while (options->owned != NULL) {
        struct fw_option_owned *block = options->owned;
        options->owned = block->next;
        free(block);
    }
    fw_list_init(&options->instances);
}

/* ---- Listing. ---- */

static void list_text(const struct fw_option_list *list, char text[FW_OPTION_VALUE_MAX + 1])
{
    size_t length = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t item_length = strlen(list->items[i]);
        FW_ASSERT(length + item_length + 1 <= FW_OPTION_VALUE_MAX + 1);
        if (i > 0) {
            text[length] = ',';
            length++;
        }
        memcpy(text + length, list->items[i], item_length);
        length += item_length;
    }
    text[length] = '\0';
}

static void value_text(const struct fw_option_instance *instance, const struct fw_option *option,
                       char text[FW_OPTION_VALUE_MAX + 1])
{
    text[0] = '\0';
    if (option->type == FW_OPTION_TYPE_STRING) {
        const char *string = *(const char *const *)field_of(instance, option);
        if (string != NULL) {
            memcpy(text, string, strlen(string) + 1);
        }
    } else if (option->type == FW_OPTION_TYPE_LIST) {
        list_text(field_of(instance, option), text);
    } else if (is_number(option)) {
        fw_option_number_text(option, number_load(instance, option), text);
    }
}

void fw_options_list(const struct fw_options *options,
                     void (*visit)(const struct fw_option_row *row, void *argument), void *argument)
{
    FW_LIST_FOR_EACH (&options->instances, struct fw_option_instance, link, instance) {
        for (size_t i = 0; i < instance->table->count; i++) {
            const struct fw_option *option = &instance->table->options[i];
            char long_name[FW_OPTION_LONG_SIZE];
            char value[FW_OPTION_VALUE_MAX + 1];
            fw_option_long_name(instance->table, option, long_name);
            value_text(instance, option, value);
            const struct fw_option_row row = {.table = instance->table,
                                              .option = option,
                                              .instance = instance->name,
                                              .long_name = long_name,
                                              .value = value,
                                              .source = instance->states[i].source,
                                              .line = instance->states[i].line};
            visit(&row, argument);
        }
    }
}
