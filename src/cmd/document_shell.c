/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion for bash and zsh: commands, their actions and options, and the values of options that
 * are one of a few names or a file.
 *
 * bash's needs nothing of the package bash-completion, so that it works where it is sourced by
 * hand. bash breaks words at '=', so that --name=value is three of them.
 */
#include <string.h>

#include "cmd/document.h"

/* Each of the command's options. */
static void options_visit(const struct fw_command *command, fw_document_visit visit)
{
    struct fw_option_table tables[FW_COMMAND_TABLES_MAX];
    size_t count = fw_command_tables(command, tables);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            if (tables[i].instance_add == NULL) {
                visit(&tables[i], &tables[i].options[j]);
            }
        }
    }
}

static void commands_print(void)
{
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        (void)printf("%s%s", i > 0 ? " " : "", fw_commands[i]->name);
    }
}

static void actions_print(const struct fw_command *command)
{
    struct fw_command_action action;
    for (size_t i = 0; command->action != NULL && command->action(i, &action); i++) {
        (void)printf("%s%s", i > 0 ? " " : "", action.name);
    }
}

/* ---- bash ---------------------------------------------------------------------------------- */

static void bash_value(const struct fw_option_table *table, const struct fw_option *option)
{
    struct fw_option_text text;
    fw_option_describe(table, option, &text);
    if (text.value_name[0] == '\0') {
        return;
    }
    (void)printf("        --%s", text.long_name);
    if (option->flag != 0) {
        (void)printf("|-%c", option->flag);
    }
    (void)fputs(") ", stdout);
    if (option->type == FW_OPTION_TYPE_ENUM) {
        (void)fputs("values='", stdout);
        for (size_t i = 0; option->names[i] != NULL; i++) {
            (void)printf("%s%s", i > 0 ? " " : "", option->names[i]);
        }
        (void)puts("' ;;");
    } else {
        (void)puts(fw_document_is_path(option) ? "kind=file ;;" : "kind=other ;;");
    }
}

static void bash_name(const struct fw_option_table *table, const struct fw_option *option)
{
    struct fw_option_text text;
    fw_option_describe(table, option, &text);
    (void)printf(" --%s%s", text.is_on ? "no-" : "", text.long_name);
}

static void bash_command(const struct fw_command *command)
{
    (void)printf("    %s)\n        case $before in\n", command->name);
    options_visit(command, bash_value);
    (void)fputs("        esac\n        options='--help", stdout);
    options_visit(command, bash_name);
    (void)fputs("'\n        actions='", stdout);
    if (command == &fw_cmd_help) {
        commands_print();
    } else {
        actions_print(command);
    }
    (void)puts("'\n        ;;");
}

void fw_document_bash(void)
{
    (void)puts("# Completion of fairway for bash, written from the tables of options.\n"
               "_fairway()\n{\n"
               "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
               "    local options='' actions='' values='' kind=''\n"
               "    COMPREPLY=()\n"
               "    if [[ $COMP_CWORD -eq 1 ]]; then");
    (void)fputs("        COMPREPLY=($(compgen -W '", stdout);
    commands_print();
    (void)puts(" --help --version' -- \"$word\"))\n"
               "        return\n    fi\n"
               "    if [[ $word == '=' ]]; then\n        word=''\n"
               "    elif [[ $before == '=' ]]; then\n"
               "        before=${COMP_WORDS[COMP_CWORD - 2]}\n    fi\n"
               "    case ${COMP_WORDS[1]} in");
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        bash_command(fw_commands[i]);
    }
    (void)puts("    esac\n"
               "    if [[ -n $values ]]; then\n"
               "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
               "    elif [[ $kind == other ]]; then\n"
               "        return\n"
               "    elif [[ $kind != file && $word == -* ]]; then\n"
               "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
               "    elif [[ $kind != file && $COMP_CWORD -eq 2 && -n $actions ]]; then\n"
               "        COMPREPLY=($(compgen -W \"$actions\" -- \"$word\"))\n"
               "    else\n"
               "        compopt -o filenames 2> /dev/null\n"
               "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
               "    fi\n}\n"
               "complete -F _fairway fairway");
}

/* ---- zsh ----------------------------------------------------------------------------------- */

/* Inside of single quotes and of the brackets of _arguments. */
static void zsh_print(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)fputs("'\\''", stdout);
        } else if (strchr("[]:\\", *text) != NULL) {
            (void)printf("\\%c", *text);
        } else {
            (void)putchar(*text);
        }
    }
}

static void zsh_option(const struct fw_option_table *table, const struct fw_option *option)
{
    struct fw_option_text text;
    fw_option_describe(table, option, &text);
    (void)printf(" \\\n        '%s--%s%s[", option->type == FW_OPTION_TYPE_LIST ? "*" : "",
                 text.is_on ? "no-" : "", text.long_name);
    zsh_print(option->help);
    (void)putchar(']');
    if (option->type == FW_OPTION_TYPE_ENUM) {
        (void)printf(":%s:(", text.value_name);
        for (size_t i = 0; option->names[i] != NULL; i++) {
            (void)printf("%s%s", i > 0 ? " " : "", option->names[i]);
        }
        (void)putchar(')');
    } else if (text.value_name[0] != '\0') {
        (void)putchar(':');
        zsh_print(text.value_name);
        (void)fputs(fw_document_is_path(option) ? ":_files" : ": ", stdout);
    }
    (void)putchar('\'');
}

static void zsh_command(const struct fw_command *command)
{
    (void)printf("    %s)\n        _arguments '--help[print the help]'", command->name);
    options_visit(command, zsh_option);
    if (command == &fw_cmd_help) {
        (void)fputs(" \\\n        '1:COMMAND:(", stdout);
        commands_print();
        (void)fputs(")'", stdout);
    } else if (command->action != NULL) {
        (void)fputs(" \\\n        '1:ACTION:(", stdout);
        actions_print(command);
        (void)fputs(")'", stdout);
    }
    (void)puts(" \\\n        '*:FILE:_files'\n        ;;");
}

void fw_document_zsh(void)
{
    (void)puts("#compdef fairway\n"
               "# Completion of fairway for zsh, written from the tables of options.\n"
               "_fairway()\n{\n    local -a commands\n    commands=(");
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        (void)printf("        '%s:", fw_commands[i]->name);
        zsh_print(fw_commands[i]->summary);
        (void)puts("'");
    }
    (void)puts("    )\n    if (( CURRENT == 2 )); then\n"
               "        _describe command commands\n        return\n    fi\n"
               "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
               "    case $command in");
    for (size_t i = 0; fw_commands[i] != NULL; i++) {
        zsh_command(fw_commands[i]);
    }
    (void)puts("    esac\n}\n_fairway \"$@\"");
}
