/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairway serve: reads the options, then is the server until a signal ends it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fairway/log.h>

#include "base/metrics.h"
#include "base/option.h"
#include "base/reason.h"
#include "cmd/cmd.h"
#include "cmd/serve.h"
#include "engine/options.h"
#include "http/http.h"
#include "http/options.h"
#include "io/address.h"
#include "io/file.h"
#include "io/notify.h"
#include "io/process.h"
#include "io/reactor.h"
#include "jobs/options.h"
#include "log/options.h"
#include "log/writer.h"
#include "repl/options.h"
#include "sched/options.h"
#include "sched/tenant_options.h"
#include "server/listen.h"
#include "server/options.h"
#include "server/server.h"

FW_LOG_MODULE(cmd);

enum { FILES_BESIDE = 64 + FW_LISTEN_RESERVE }; /* Descriptors beside those of clients. */

/* What the command line says to the command itself. */
struct serve_config {
    bool help;
    bool version;
    bool license;
    bool tls;
    bool daemon;
    bool lock_memory;
    bool core_dumps;
    const char *user;
    const char *pid_file;
    const char *trace_file;
    const char *file;
    uint64_t verbose;
};

static const struct fw_option serve_options[] = {
    FW_OPTION_STRING(struct serve_config, file, .name = "config", .value_name = "FILE",
                     .help = "read options from this file too; the command line wins"),
    FW_OPTION_BOOL(struct serve_config, daemon, .name = "daemon", .flag = 'd', .default_text = "no",
                   .help = "go on in the background once it serves"),
    FW_OPTION_STRING(struct serve_config, user, .name = "user", .flag = 'u', .value_name = "USER",
                     .help = "become this user, when started by root"),
    FW_OPTION_STRING(struct serve_config, pid_file, .name = "pidfile", .flag = 'P',
                     .value_name = "FILE", .help = "write the process's number there"),
    FW_OPTION_BOOL(struct serve_config, lock_memory, .name = "lock-memory", .flag = 'k',
                   .default_text = "no", .help = "keep all memory in RAM"),
    FW_OPTION_BOOL(struct serve_config, core_dumps, .name = "enable-coredumps", .flag = 'r',
                   .default_text = "no", .help = "dump cores however large"),
    FW_OPTION_STRING(struct serve_config, trace_file, .name = "trace-file", .value_name = "FILE",
                     .help = "trace what the engine does, and write the last of it there at the "
                             "end, for ui.perfetto.dev"),
    FW_OPTION_COUNT(struct serve_config, verbose, .name = "verbose", .flag = 'v',
                    .default_text = "0", .max = FW_LOG_TRACE - FW_LOG_NOTICE,
                    .help = "log more: -v up to info, -vv debug and each command, -vvv trace"),
    FW_OPTION_EXTENDED(.name = "extended", .flag = 'o',
                       .help = "options of any section as memcached writes them: "
                               "idle_timeout=60,no_maxconns_fast,..."),
    FW_OPTION_BOOL(struct serve_config, tls, .name = "enable-ssl", .flag = 'Z',
                   .default_text = "no", .help = "refused: there is no TLS here"),
    FW_OPTION_BOOL(struct serve_config, license, .name = "license", .flag = 'i',
                   .default_text = "no", .help = "print the license and exit"),
    FW_OPTION_BOOL(struct serve_config, version, .name = "version", .flag = 'V',
                   .default_text = "no", .help = "print the version and exit"),
    FW_OPTION_BOOL(struct serve_config, help, .name = "help", .flag = 'h', .default_text = "no",
                   .help = "print this help and exit"),
};

/* One per module, in the order of the help. */
enum {
    TABLE_SERVER,
    TABLE_COUNTER,
    TABLE_LARGE,
    TABLE_REPL,
    TABLE_LEASE,
    TABLE_VOLUME,
    TABLE_CLUSTER,
    TABLE_SCHED,
    TABLE_ENGINE,
    TABLE_JOBS,
    TABLE_TENANT,
    TABLE_LOG,
    TABLE_HTTP,
    TABLE_CMD,
    TABLE_IGNORED,
    TABLES,
};

struct serve {
    struct serve_config config;
    struct fw_server_config server;
    struct fw_server_ignored ignored;
    struct fw_log_config log;
    struct fw_http_config http;
    struct fw_tenant_sections tenants;
    struct fw_option_table tables[TABLES];
    int argument_count; /* For SIGHUP, which reads them again. */
    char **arguments;
    struct fw_server *running; /* For SIGHUP too. */
};

static void serve_tables(struct serve *serve)
{
#define TABLE(name, rows, row_count, struct_to_fill, is_bare)                                  \
    {                                                                                          \
        .module = (name), .options = (rows), .count = (row_count), .config = (struct_to_fill), \
        .bare = (is_bare)                                                                      \
    }
    struct fw_option_table tables[TABLES] = {
        [TABLE_SERVER] =
            TABLE("server", fw_server_options, fw_server_options_count, &serve->server, true),
        [TABLE_COUNTER] = TABLE("counter", fw_server_counters_options,
                                fw_server_counters_options_count, &serve->server.counters, false),
        [TABLE_LARGE] = TABLE("large", fw_server_large_options, fw_server_large_options_count,
                              &serve->server.large, false),
        [TABLE_REPL] =
            TABLE("repl", fw_repl_options, fw_repl_options_count, &serve->server.repl, false),
        [TABLE_LEASE] = TABLE("lease", fw_server_lease_options, fw_server_lease_options_count,
                              &serve->server.lease, false),
        [TABLE_VOLUME] = TABLE("volume", fw_server_volume_options, fw_server_volume_options_count,
                               &serve->server.volume, false),
        [TABLE_CLUSTER] = TABLE("cluster", fw_server_cluster_options,
                                fw_server_cluster_options_count, &serve->server.cluster, false),
        [TABLE_SCHED] =
            TABLE("sched", fw_sched_options, fw_sched_options_count, &serve->server.sched, true),
        [TABLE_ENGINE] = TABLE("engine", fw_engine_options, fw_engine_options_count,
                               &serve->server.engine, false),
        [TABLE_JOBS] =
            TABLE("jobs", fw_jobs_options, fw_jobs_options_count, &serve->server.jobs, false),
        [TABLE_TENANT] =
            TABLE("tenant", fw_tenant_options, fw_tenant_options_count, &serve->tenants, false),
        [TABLE_LOG] = TABLE("log", fw_log_options, fw_log_options_count, &serve->log, false),
        [TABLE_HTTP] = TABLE("http", fw_http_options, fw_http_options_count, &serve->http, false),
        [TABLE_CMD] =
            TABLE("cmd", serve_options, FW_ARRAY_LENGTH(serve_options), &serve->config, false),
        [TABLE_IGNORED] = TABLE("memcached", fw_server_ignored_options,
                                fw_server_ignored_options_count, &serve->ignored, true),
    };
#undef TABLE
    tables[TABLE_TENANT].instance_add = fw_tenant_section_add;
    memcpy(serve->tables, tables, sizeof tables);
}

/* But for those of memcached's that mean nothing here. */
static size_t serve_list_tables(struct fw_option_table tables[FW_COMMAND_TABLES_MAX])
{
    static struct serve nobody; /* Its structs are not looked at. */
    static_assert((int)TABLE_IGNORED <= (int)FW_COMMAND_TABLES_MAX, "there must be room for all");
    serve_tables(&nobody);
    memcpy(tables, nobody.tables, TABLE_IGNORED * sizeof *tables);
    return TABLE_IGNORED;
}

/* What was written wrongly comes back as -EINVAL. */
static enum fw_cmd_status fail(int rc, const struct fw_reason *reason)
{
    enum fw_cmd_status status = rc == -EINVAL          ? FW_CMD_USAGE
                                : rc == -EADDRNOTAVAIL ? FW_CMD_NO_SOCKET
                                                       : FW_CMD_FAILED;
    return fw_cmd_fail(status, "%s", reason->text);
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

/* Where an option of a named section stands. */
struct place {
    const char *instance;
    const char *name;
    unsigned line;
};

static void place_find(const struct fw_option_row *row, void *context)
{
    struct place *place = context;
    if (row->instance == place->instance && strcmp(row->option->name, place->name) == 0) {
        place->line = row->line;
    }
}

/* Rules are read by the server, but what is wrong with them is told with its line. */
static int serve_check_tenants(struct serve *serve, const struct fw_options *options,
                               struct fw_reason *reason)
{
    const struct fw_tenant_section *wrong;
    struct fw_reason why;
    int rc = fw_tenant_sections_check(&serve->tenants, &wrong, &why);
    if (rc != 0) {
        struct place place = {.instance = wrong->due.name, .name = "match"};
        fw_options_list(options, place_find, &place);
        return fw_reason_set(reason, rc, "%s:%u: %s", serve->config.file, place.line, why.text);
    }
    serve->server.tenants = &serve->tenants;
    return 0;
}

static void serve_forget(struct serve *serve, struct fw_options *options)
{
    fw_options_fini(options);
    fw_tenant_sections_fini(&serve->tenants);
}

/* Fills the structs from command line and file. On success serve_forget() is due. */
static int serve_read(struct serve *serve, struct fw_options *options, struct fw_reason *reason)
{
    serve_tables(serve);
    int rc = fw_options_init(options, serve->tables, TABLES, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_options_parse_arguments(options, serve->argument_count, serve->arguments, NULL, reason);
    if (rc == 0 && serve->config.file != NULL) {
        rc = config_file_read(options, serve->config.file, reason);
    }
    if (rc == 0) {
        rc = serve_check_tenants(serve, options, reason);
    }
    if (rc != 0) {
        serve_forget(serve, options);
        return rc;
    }
    raise_level(serve);
    return 0;
}

/* ---- the service manager ---- */

/* It is told, not asked: what it does not hear keeps nobody from being served. */
static void manager_tell(const char *lines)
{
    struct fw_reason reason;
    if (fw_notify(lines, &reason) != 0) {
        FW_LOG(cmd, WARNING, "%s", reason.text);
    }
}

static void manager_tell_end(void *context)
{
    (void)context;
    manager_tell(FW_NOTIFY_STOPPING);
}

/* SIGHUP: what may change while it serves is taken over: the log's settings, tenants, the policy.
 */
static void configuration_read_again(const struct serve *old)
{
    struct serve fresh = {.argument_count = old->argument_count, .arguments = old->arguments};
    struct fw_options options;
    struct fw_reason reason;
    int rc = serve_read(&fresh, &options, &reason);
    if (rc != 0) {
        FW_LOG(cmd, ERROR, "the configuration stays as it is: %s", reason.text);
        return;
    }
    rc = fw_log_configure(&fresh.log, &reason);
    if (rc != 0) {
        FW_LOG(cmd, ERROR, "the log stays as it is: %s", reason.text);
    }
    int tenants_rc = fw_server_change(old->running, &fresh.server, &reason);
    if (tenants_rc != 0) {
        FW_LOG(cmd, ERROR, "the tenants stay as they are: %s", reason.text);
    }
    if (rc == 0 && tenants_rc == 0) {
        FW_LOG(cmd, NOTICE, "read the configuration again");
    }
    serve_forget(&fresh, &options);
}

static void serve_reload(void *context)
{
    struct fw_reason reason;
    if (fw_notify_reloading(&reason) != 0) {
        FW_LOG(cmd, WARNING, "%s", reason.text);
    }
    configuration_read_again(context);
    manager_tell(FW_NOTIFY_READY);
}

static int trace_sink(const char *bytes, size_t length, void *context)
{
    return fwrite(bytes, 1, length, context) == length ? 0 : -EIO;
}

static void serve_write_trace(struct serve *serve, struct fw_server *server)
{
    FILE *file = fopen(serve->config.trace_file, "we");
    int rc = file != NULL ? fw_server_trace_write(server, trace_sink, file) : -errno;
    if (file != NULL && fclose(file) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc != 0) {
        FW_LOG(cmd, ERROR, "cannot write the trace to %s: %s", serve->config.trace_file,
               strerrordesc_np(-rc));
    }
}

/* ---- HTTP ---- */

static bool show_stats(void *context, const char *group, fw_http_emit emit, void *emit_context)
{
    return fw_server_visit_stats(context, group, emit, emit_context);
}

static bool show_is_ready(void *context)
{
    return fw_server_is_ready(context);
}

/* Half of the descriptors that clients leave; administrators, slaves and files get the others. */
static uint32_t serve_http_places(const struct serve *serve)
{
    uint64_t places = fw_server_files_kept(serve->server.descriptors) / 2;
    return (uint32_t)(places > 2 ? places : 2);
}

static int serve_open_http(const struct serve *serve, struct fw_server *server,
                           struct fw_http **http, struct fw_reason *reason)
{
    const struct fw_http_shown shown = {.metrics = fw_server_metrics(server),
                                        .stats = show_stats,
                                        .is_ready = show_is_ready,
                                        .context = server,
                                        .places = serve_http_places(serve)};
    *http = NULL;
    if (serve->http.listen == NULL) {
        return 0;
    }
    int rc = fw_http_open(http, serve->http.listen, &shown, reason);
    if (rc == 0) {
        char text[FW_ADDRESS_TEXT_SIZE];
        fw_address_format(fw_http_address(*http), text);
        FW_LOG(cmd, NOTICE, "the page for browsers is at http://%s/", text);
    }
    return rc;
}

/* With everything open. */
static enum fw_cmd_status serve_run_server(struct serve *serve, struct fw_server *server)
{
    struct fw_http *http;
    struct fw_reason reason;
    serve->running = server;
    int rc = fw_server_signals_open(server, serve_reload, serve, &reason);
    if (rc == 0 && serve->config.pid_file != NULL) {
        rc = fw_process_pid_file(serve->config.pid_file, &reason);
    }
    if (rc == 0 && serve->config.trace_file != NULL) {
        rc = fw_server_trace(server);
        (void)(rc != 0 ? fw_reason_errno(&reason, rc, "cannot trace") : 0);
    }
    if (rc == 0) {
        rc = serve_open_http(serve, server, &http, &reason);
    }
    if (rc != 0) {
        return fail(rc, &reason);
    }
    if (fw_process_is_root() && serve->config.user == NULL) {
        FW_LOG(cmd, WARNING, "running as root, which nothing here needs; give -u USER");
    }
    fw_process_detach();
    fw_server_on_end(server, manager_tell_end, NULL);
    manager_tell(FW_NOTIFY_READY);
    int kept = fw_server_run(server);
    fw_http_close(http);
    if (serve->config.trace_file != NULL) {
        serve_write_trace(serve, server);
    }
    if (serve->config.pid_file != NULL) {
        fw_process_pid_file_remove(serve->config.pid_file);
    }
    return kept == 0 ? FW_CMD_OK : FW_CMD_FAILED;
}

static enum fw_cmd_status serve_until_stopped(struct serve *serve)
{
    struct fw_reason reason;
    struct fw_server *server;
    fw_server_signals_block();
    /* The program's choice, not the server's: in the simulator reactors are neither. */
    int rc = fw_reactor_choose(fw_server_io_engines[serve->server.io_engine], &reason);
    if (rc == 0) {
        serve->server.is_traced = serve->config.trace_file != NULL;
        rc = fw_server_create(&server, &serve->server, &reason);
    }
    if (rc != 0) {
        return fail(rc, &reason);
    }
    struct fw_metrics *metrics = fw_server_metrics(server);
    rc = fw_metrics_register(metrics, &fw_log_metric_table, &fw_log_metrics.source);
    if (rc != 0) {
        fw_server_destroy(server);
        (void)fw_reason_errno(&reason, rc, "cannot start");
        return fail(rc, &reason);
    }
    enum fw_cmd_status status = serve_run_server(serve, server);
    fw_log_stop(); /* What it counts has no other writer from here on. */
    fw_metrics_unregister(metrics, &fw_log_metrics.source);
    fw_server_destroy(server);
    return status;
}

/* What has to be done as root, and before there is a second thread. */
static int serve_prepare(struct serve *serve, struct fw_reason *reason)
{
    const struct serve_config *config = &serve->config;
    if (config->core_dumps && fw_process_allow_core() != 0) {
        return fw_reason_set(reason, -EPERM, "cannot allow core dumps: the limit is too low");
    }
    if (config->lock_memory && fw_process_lock_memory() != 0) {
        FW_LOG(cmd, WARNING, "cannot lock memory (-k): the limit is too low; it may be swapped");
    }
    uint64_t wanted = serve->server.connections + FILES_BESIDE;
    uint64_t allowed = fw_process_allow_files(wanted);
    serve->server.descriptors = allowed;
    if (allowed < wanted) {
        FW_LOG(cmd, WARNING,
               "%" PRIu64 " connections are asked for, but only %" PRIu64
               " descriptors allowed: raise the limit (ulimit -n), or lower -c",
               serve->server.connections, allowed);
    }
    int rc = config->user != NULL ? fw_process_become(config->user, reason) : 0;
    if (rc == 0 && config->daemon) {
        rc = fw_process_fork(reason);
    }
    return rc;
}

static void tell_ignored(const struct fw_option_row *row, void *context)
{
    const struct serve *serve = context;
    if (row->table == &serve->tables[TABLE_IGNORED] && row->source != FW_OPTION_SOURCE_DEFAULT) {
        FW_LOG(cmd, NOTICE, "--%s is accepted for memcached's sake, and does nothing here",
               row->long_name);
    }
}

static enum fw_cmd_status serve_start(struct serve *serve, struct fw_options *options)
{
    struct fw_reason reason;
    if (serve->config.tls) {
        return fw_cmd_fail(FW_CMD_USAGE, "-Z: there is no TLS here; put a proxy before it");
    }
    if (serve->server.sasl_file == NULL) {
        serve->server.sasl_file = fw_process_variable("MEMCACHED_SASL_PWDB");
    }
    int rc = serve_prepare(serve, &reason);
    if (rc == 0) {
        rc = fw_log_configure(&serve->log, &reason);
    }
    if (rc == 0) {
        rc = fw_log_start_configured(&serve->log, &reason);
    }
    if (rc != 0) {
        return fail(rc, &reason);
    }
    fw_options_list(options, tell_ignored, serve);
    enum fw_cmd_status status = serve_until_stopped(serve);
    fw_log_stop();
    return status;
}

static enum fw_cmd_status serve_run(int count, char **arguments)
{
    struct serve serve = {.argument_count = count, .arguments = arguments};
    struct fw_options options;
    struct fw_reason reason;
    int rc = serve_read(&serve, &options, &reason);
    if (rc != 0) {
        return fail(rc, &reason);
    }
    enum fw_cmd_status status = FW_CMD_OK;
    if (serve.config.help) {
        fw_command_print_help(&fw_cmd_serve, stdout);
    } else if (serve.config.version) {
        status = fw_cmd_version.run(0, NULL);
    } else if (serve.config.license) {
        (void)puts("Fairway is licensed under the Apache License, Version 2.0.");
    } else {
        status = serve_start(&serve, &options);
    }
    serve_forget(&serve, &options);
    return status;
}

int fw_serve_settings_init(struct fw_serve_settings *settings, struct fw_reason *reason)
{
    struct serve *serve = calloc(1, sizeof *serve);
    if (serve == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read a configuration");
    }
    serve_tables(serve);
    *settings = (struct fw_serve_settings){
        .tables = serve->tables,
        .table_count = TABLES,
        .ignored = &serve->tables[TABLE_IGNORED],
        .server = &serve->server,
        .log = &serve->log,
        .http = &serve->http,
        .tenants = &serve->tenants,
        .serve = serve,
    };
    int rc = fw_options_init(&settings->options, serve->tables, TABLES, reason);
    if (rc != 0) {
        free(serve);
    }
    return rc;
}

void fw_serve_settings_fini(struct fw_serve_settings *settings)
{
    serve_forget(settings->serve, &settings->options);
    free(settings->serve);
}

const struct fw_command fw_cmd_serve = {
    .name = "serve",
    .summary = "be a memcached server",
    .usage = "serve [OPTIONS]",
    .about = "Serves until SIGTERM or SIGINT. Names in [brackets] are the sections of the\n"
             "configuration file, where options have the same names without the dashes (and\n"
             "without the section, where the long form begins with it). Options of memcached\n"
             "that mean nothing here are accepted and ignored.",
    .tables = serve_list_tables,
    .run = serve_run,
};
