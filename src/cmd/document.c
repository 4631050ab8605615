/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document man COMMAND | program | configuration | sample | bash | zsh
 */
#include "cmd/document.h"

#include <string.h>

static bool is_same(const char *left, const char *right)
{
    return left == NULL || right == NULL ? left == right : strcmp(left, right) == 0;
}

void fw_document_options(const struct fw_option_table *tables, size_t count, const char *section,
                         fw_document_visit visit)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            if (is_same(tables[i].options[j].section, section)) {
                visit(&tables[i], &tables[i].options[j]);
            }
        }
    }
}

/* Whether option `row` of table `number` is the first of its section. */
static bool is_first(const struct fw_option_table *tables, size_t number, size_t row)
{
    const char *section = tables[number].options[row].section;
    for (size_t i = 0; i <= number; i++) {
        size_t count = i < number ? tables[i].count : row;
        for (size_t j = 0; j < count; j++) {
            if (is_same(tables[i].options[j].section, section)) {
                return false;
            }
        }
    }
    return true;
}

void fw_document_sections(const struct fw_option_table *tables, size_t count,
                          void (*visit)(const struct fw_option_table *tables, size_t count,
                                        const char *section, bool is_named))
{
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            if (is_first(tables, i, j)) {
                visit(tables, count, tables[i].options[j].section, tables[i].instance_add != NULL);
            }
        }
    }
}

const char *fw_document_default(const struct fw_option *option, char text[FW_OPTION_NAME_MAX + 1])
{
    const char *value = option->default_text;
    bool is_measure =
        option->type == FW_OPTION_TYPE_SIZE || option->type == FW_OPTION_TYPE_DURATION;
    if (value == NULL || value[0] == '\0') {
        return NULL;
    }
    bool is_bare = strspn(value, "0123456789") == strlen(value) && strcmp(value, "0") != 0;
    (void)snprintf(text, FW_OPTION_NAME_MAX + 1, "%s%s", value,
                   is_measure && is_bare && option->unit != NULL ? option->unit : "");
    return text;
}

bool fw_document_is_path(const struct fw_option *option)
{
    static const char *const names[] = {"FILE", "FOLDER", "PATH"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(names); i++) {
        if (option->value_name != NULL && strcmp(option->value_name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* What has no name behind it. False: it is not known. */
static bool write_one(const char *what)
{
    struct fw_option_table tables[FW_COMMAND_TABLES_MAX];
    size_t count = fw_command_tables(&fw_cmd_serve, tables);
    if (strcmp(what, "program") == 0) {
        fw_document_program();
    } else if (strcmp(what, "configuration") == 0) {
        fw_document_configuration(tables, count);
    } else if (strcmp(what, "sample") == 0) {
        fw_document_sample(tables, count);
    } else if (strcmp(what, "bash") == 0) {
        fw_document_bash();
    } else if (strcmp(what, "zsh") == 0) {
        fw_document_zsh();
    } else {
        return false;
    }
    return true;
}

static int usage(void)
{
    (void)fputs("usage: document man COMMAND | program | configuration | sample | bash | zsh\n",
                stderr);
    return FW_CMD_USAGE;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "man") == 0) {
        const struct fw_command *command = fw_command_find(argv[2]);
        if (command == NULL) {
            return FW_CMD_USAGE;
        }
        fw_document_command(command);
    } else if (argc != 2 || !write_one(argv[1])) {
        return usage();
    }
    return fflush(stdout) == 0 ? FW_CMD_OK : FW_CMD_FAILED;
}
