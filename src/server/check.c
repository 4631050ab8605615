/* SPDX-License-Identifier: Apache-2.0 */
#include "server/check.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/auth.h"
#include "engine/options.h"
#include "io/address.h"
#include "io/reactor.h"
#include "jobs/options.h"
#include "server/state.h"

struct check {
    const struct fw_server_config *config;
    fw_server_tell tell;
    void *context;
};

static void tell_if(const struct check *check, int rc, const struct fw_reason *reason)
{
    if (rc < 0) {
        check->tell(check->context, reason);
    }
}

/* ---- addresses ----------------------------------------------------------------------------- */

/* Returns for how many addresses the text stands. */
static int address_check(const struct check *check, const char *option, const char *text,
                         uint64_t port)
{
    struct fw_address addresses[FW_LISTENERS_MAX];
    struct fw_reason why, reason;
    int count = fw_address_parse(text, (uint16_t)port, FW_ADDRESS_RESOLVE, addresses,
                                 FW_LISTENERS_MAX, &why);
    if (count < 0) {
        tell_if(check, fw_reason_set(&reason, count, "--%s: %s", option, why.text), &reason);
    }
    return count > 0 ? count : 0;
}

static int addresses_check(const struct check *check, const char *option,
                           const struct fw_option_list *list, uint64_t port)
{
    int count = list->count == 0 ? 1 : 0; /* This machine's own. */
    for (size_t i = 0; i < list->count; i++) {
        count += address_check(check, option, list->items[i], port);
    }
    return count;
}

static void too_many(const struct check *check, const char *option, int max)
{
    struct fw_reason reason;
    tell_if(check,
            fw_reason_set(&reason, -EINVAL, "--%s: too many addresses to listen on, at most %d",
                          option, max),
            &reason);
}

static void listeners_check(const struct check *check)
{
    const struct fw_server_config *config = check->config;
    struct fw_reason reason;
    int count = 0;
    if (config->unix_socket != NULL) {
        count += address_check(check, "unix-socket", config->unix_socket, config->port);
    }
    if (config->unix_socket == NULL || config->listen.count > 0) {
        count += addresses_check(check, "listen", &config->listen, config->port);
    }
    if (config->counters.is_enabled) {
        count += addresses_check(check, "counter-listen", &config->counters.listen,
                                 config->counters.port);
    }
    if (count > FW_LISTENERS_MAX) {
        too_many(check, "listen", FW_LISTENERS_MAX);
    }
    if (config->memory_file != NULL) {
        tell_if(check, fw_image_check(config->memory_file, &reason), &reason);
    }
    if (config->admin_socket != NULL) {
        tell_if(check, fw_admin_check(config->admin_socket, &reason), &reason);
    }
    if (config->repl.is_enabled && addresses_check(check, "repl-listen", &config->repl.listen,
                                                   config->repl.port) > FW_REPLICATION_DOORS_MAX) {
        too_many(check, "repl-listen", FW_REPLICATION_DOORS_MAX);
    }
}

/* ---- the rest ------------------------------------------------------------------------------ */

static void auth_check(const struct check *check)
{
    const char *const files[] = {check->config->auth_file,
                                 check->config->has_sasl ? check->config->sasl_file : NULL};
    const char *const options[] = {"auth-file", "sasl-file"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(files); i++) {
        struct fw_auth *auth = NULL;
        struct fw_reason why, reason;
        int rc = files[i] != NULL ? fw_auth_load(&auth, files[i], &why) : 0;
        if (rc == 0) {
            fw_auth_destroy(auth);
        } else {
            tell_if(check, fw_reason_set(&reason, rc, "--%s: %s", options[i], why.text), &reason);
        }
    }
}

static void parts_check(const struct check *check)
{
    const struct fw_server_config *config = check->config;
    struct fw_domain_config domain = {.is_pinned = false};
    struct fw_jobs_policy policy;
    struct fw_jobs_reason why = {.text = ""};
    struct fw_reason reason;
    tell_if(check, fw_engine_configure(&config->engine, &domain, &reason), &reason);
    fw_server_jobs_policy(config, &policy);
    int rc = fw_jobs_policy_check(&policy, &why);
    if (rc != 0) {
        tell_if(check, fw_reason_set(&reason, rc, "jobs: %s", why.text), &reason);
    }
    tell_if(check, fw_reactor_choose(fw_server_io_engines[config->io_engine], &reason), &reason);
}

/* What one option needs of another. */
static void relations_check(const struct check *check)
{
    const struct fw_server_config *config = check->config;
    enum fw_protocol protocol;
    const char *file;
    struct fw_reason reason;
    tell_if(check, fw_server_choose_protocol(config, &protocol, &reason), &reason);
    tell_if(check, fw_server_choose_auth(config, &file, &reason), &reason);
    tell_if(check, fw_volumes_check(&config->volume, &reason), &reason);
    if (config->cluster.name != NULL) {
        tell_if(check, fw_server_cluster_check(&config->cluster, &reason), &reason);
    }
    tell_if(check, fw_replication_check(&config->repl, &reason), &reason);
    if (config->tenants != NULL) {
        tell_if(check, fw_tenancy_check_slaves(config->tenants, &config->repl, &reason), &reason);
        tell_if(check, fw_tenancy_check_connections(config->tenants, config->connections, &reason),
                &reason);
    }
}

void fw_server_check(const struct fw_server_config *config, bool is_complete, fw_server_tell tell,
                     void *context)
{
    const struct check check = {.config = config, .tell = tell, .context = context};
    listeners_check(&check);
    auth_check(&check);
    parts_check(&check);
    if (is_complete) {
        relations_check(&check);
    }
}
