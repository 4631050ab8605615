/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway serve: reads the options, then is the server until a signal ends it.
 */
#include <errno.h>
#include <stdlib.h>

#include <fairway/log.h>

#include "base/option.h"
#include "base/reason.h"
#include "cmd/cmd.h"
#include "io/file.h"
#include "io/reactor.h"
#include "log/options.h"
#include "server/options.h"
#include "server/server.h"

/* What the command line says to the command itself. */
struct serve_config {
    bool help;
    bool version;
    const char *file;
    uint64_t verbose;
};

static const struct fw_option serve_options[] = {
    FW_OPTION_STRING(struct serve_config, file, .name = "config", .value_name = "FILE",
                     .help = "read options from this file too; the command line wins"),
    FW_OPTION_COUNT(struct serve_config, verbose, .name = "verbose", .flag = 'v',
                    .default_text = "0", .max = FW_LOG_TRACE - FW_LOG_NOTICE,
                    .help = "log more: -v up to info, -vv debug, -vvv trace"),
    FW_OPTION_EXTENDED(.name = "extended", .flag = 'o',
                       .help = "options of any section as memcached writes them: "
                               "name=value,no_name,..."),
    FW_OPTION_BOOL(struct serve_config, version, .name = "version", .flag = 'V',
                   .default_text = "no", .help = "print the version and exit"),
    FW_OPTION_BOOL(struct serve_config, help, .name = "help", .flag = 'h', .default_text = "no",
                   .help = "print this help and exit"),
};

struct serve {
    struct serve_config config;
    struct fw_server_config server;
    struct fw_log_config log;
    struct fw_option_table tables[3];
};

static void serve_tables(struct serve *serve)
{
    serve->tables[0] = (struct fw_option_table){.module = "server",
                                                .options = fw_server_options,
                                                .count = fw_server_options_count,
                                                .config = &serve->server,
                                                .bare = true};
    serve->tables[1] = (struct fw_option_table){.module = "log",
                                                .options = fw_log_options,
                                                .count = fw_log_options_count,
                                                .config = &serve->log};
    serve->tables[2] = (struct fw_option_table){.module = "cmd",
                                                .options = serve_options,
                                                .count = FW_ARRAY_LENGTH(serve_options),
                                                .config = &serve->config};
}

static void serve_print_help(FILE *out)
{
    struct serve serve;
    serve_tables(&serve);
    (void)fputs("usage: fairway serve [OPTIONS]\n"
                "\n"
                "Serves until SIGTERM or SIGINT. Names in [brackets] are the sections of the\n"
                "configuration file, where options have the same names without the dashes (and\n"
                "without the section, where the long form begins with it).\n"
                "\n",
                out);
    fw_options_print_help(serve.tables, FW_ARRAY_LENGTH(serve.tables), out);
}

/* What was written wrongly comes back as -EINVAL. */
static enum fw_cmd_status fail(int rc, const struct fw_reason *reason)
{
    return fw_cmd_fail(rc == -EINVAL ? FW_CMD_USAGE : FW_CMD_FAILED, "%s", reason->text);
}

static int config_file_read(struct fw_options *options, const char *path, struct fw_reason *reason)
{
    char *text;
    size_t size;
    int rc = fw_file_read(path, FW_OPTION_FILE_MAX, &text, &size, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_options_parse_file(options, path, text, size, reason);
    free(text);
    return rc;
}

/* -v never makes the log say less than the configuration asks for. */
static void raise_level(struct serve *serve)
{
    enum fw_log_level wanted = FW_LOG_NOTICE + (enum fw_log_level)serve->config.verbose;
    if (serve->config.verbose > 0 && wanted > serve->log.level) {
        serve->log.level = wanted;
    }
}

static enum fw_cmd_status serve_until_stopped(struct serve *serve)
{
    struct fw_reason reason;
    struct fw_server *server;
    fw_server_signals_block();
    /* The program's choice, not the server's: in the simulator reactors are neither. */
    int rc = fw_reactor_choose(fw_server_io_engines[serve->server.io_engine], &reason);
    if (rc == 0) {
        rc = fw_server_create(&server, &serve->server, &reason);
    }
    if (rc != 0) {
        return fail(rc, &reason);
    }
    rc = fw_server_signals_open(server, &reason);
    if (rc == 0) {
        fw_server_run(server);
    }
    fw_server_destroy(server);
    return rc == 0 ? FW_CMD_OK : fail(rc, &reason);
}

/* With the options read. */
static enum fw_cmd_status serve_configured(struct serve *serve)
{
    if (serve->config.help) {
        serve_print_help(stdout);
        return FW_CMD_OK;
    }
    if (serve->config.version) {
        return fw_command_version.run(0, NULL);
    }
    struct fw_reason reason;
    raise_level(serve);
    int rc = fw_log_configure(&serve->log, &reason);
    if (rc == 0) {
        rc = fw_log_start_configured(&serve->log, &reason);
    }
    if (rc != 0) {
        return fail(rc, &reason);
    }
    enum fw_cmd_status status = serve_until_stopped(serve);
    fw_log_stop();
    return status;
}

static enum fw_cmd_status serve_run(int count, char **arguments)
{
    struct serve serve;
    struct fw_options options;
    struct fw_reason reason;
    serve_tables(&serve);
    int rc = fw_options_init(&options, serve.tables, FW_ARRAY_LENGTH(serve.tables), &reason);
    if (rc != 0) {
        return fail(rc, &reason);
    }
    enum fw_cmd_status status;
    rc = fw_options_parse_arguments(&options, count, arguments, NULL, &reason);
    if (rc == 0 && serve.config.file != NULL) {
        rc = config_file_read(&options, serve.config.file, &reason);
    }
    if (rc == 0) {
        status = serve_configured(&serve);
    } else {
        status = fail(rc, &reason);
    }
    fw_options_fini(&options);
    return status;
}

const struct fw_command fw_command_serve = {
    .name = "serve",
    .summary = "be a memcached server",
    .run = serve_run,
    .print_help = serve_print_help,
};
