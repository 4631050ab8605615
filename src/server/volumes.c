/* SPDX-License-Identifier: Apache-2.0 */
#include "server/volumes.h"

#include <errno.h>
#include <string.h>

#include <fairway/log.h>
#include <fairway/volume.h>

#include "base/assert.h"
#include "io/clock.h"

FW_LOG_MODULE_USE(volume);

#define RETRY_NS ((int64_t)FW_NS_PER_S)

static bool must_end(struct fw_volumes *volumes)
{
    /* Acquire, for the release in fw_volumes_end(). */
    return atomic_load_explicit(&volumes->must_end, memory_order_acquire);
}

static void figure_set(_Atomic uint64_t *figure, uint64_t value)
{
    atomic_store_explicit(figure, value, memory_order_relaxed);
}

/* Says why a service does not run, unless it is what was said last, and waits. */
static void service_tell(struct fw_volumes_service *service, const char *what,
                         const struct fw_ring_reason *why)
{
    if (strcmp(service->told.text, why->text) != 0) {
        memcpy(service->told.text, why->text, sizeof service->told.text);
        FW_LOG(volume, WARNING, "the %s of %s does not run, and is tried again: %s", what,
               service->volumes->config->group, why->text);
    }
    (void)fw_park_for(&service->parker, RETRY_NS);
}

/* Whether a service is over: an operator wants it. Else, if it failed, it is opened anew. */
static bool service_is_over(struct fw_volumes_service *service, const char *what, int rc,
                            const struct fw_ring_reason *why)
{
    if (rc == -ESHUTDOWN) {
        FW_LOG(volume, NOTICE, "the %s of %s ends: %s", what, service->volumes->config->group,
               why->text);
    } else if (rc != 0) {
        service_tell(service, what, why);
    }
    return rc == -ESHUTDOWN;
}

/* If both are to end: until the other service has come so far that its figure is 0. */
static void other_wait(struct fw_volumes_service *service, const _Atomic uint64_t *figure)
{
    struct fw_volumes *volumes = service->volumes;
    /* Relaxed: what the two have in common is on the disk. */
    while (must_end(volumes) && atomic_load_explicit(figure, memory_order_relaxed) != 0) {
        (void)fw_park_for(&service->parker, volumes->config->interval_ns);
    }
}

/* ---- the manager ---- */

/* The host of this server's own agent needs no operator to be connected. */
static int host_connect(struct fw_volume_manager *manager, const char *host,
                        struct fw_ring_reason *why)
{
    return host == NULL || fw_volume_manager_has_host(manager, host)
               ? 0
               : fw_volume_manager_connect(manager, host, why);
}

/* What the manager knows of the group; NULL: nothing. */
static void figures_set(struct fw_volumes *volumes, const struct fw_volume_manager *manager)
{
    struct fw_volume_figures figures = {.extents = 0};
    if (manager != NULL) {
        fw_volume_manager_figures(manager, &figures);
    }
    figure_set(&volumes->extents, figures.extents);
    figure_set(&volumes->free, figures.free);
    figure_set(&volumes->low, figures.is_low ? 1 : 0);
}

static void manager_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_volumes_service *service = FW_CONTAINER_OF(job, struct fw_volumes_service, job);
    struct fw_volumes *volumes = service->volumes;
    const struct fw_server_volume_config *config = volumes->config;
    const struct fw_volume_manager_options options = {.path = config->group,
                                                      .pool_min = config->pool_min,
                                                      .low_percent = (uint32_t)config->low_percent};
    bool is_over = false;
    while (!is_over && !must_end(volumes)) {
        struct fw_volume_manager *manager;
        struct fw_ring_reason why = {.text = ""};
        struct fw_ring_reason close_why = {.text = ""};
        int rc = fw_volume_manager_open(&manager, &options, &why);
        if (rc != 0) {
            service_tell(service, "manager", &why);
            continue;
        }
        service->told.text[0] = '\0';
        rc = host_connect(manager, config->host, &why);
        figure_set(&volumes->managers, 1);
        while (rc == 0 && !must_end(volumes)) {
            rc = fw_volume_manager_step(manager, &why);
            figures_set(volumes, manager);
            (void)fw_park_for(&service->parker, config->interval_ns);
        }
        figure_set(&volumes->managers, 0);
        figures_set(volumes, NULL);
        other_wait(service, &volumes->agents); /* It gives its pool back, which close() takes in. */
        int closed = fw_volume_manager_close(manager, &close_why);
        is_over = service_is_over(service, "manager", rc, &why);
        if (closed != 0 && (rc == 0 || is_over)) {
            FW_LOG(volume, ERROR, "the manager of %s could not flush: %s", config->group,
                   close_why.text);
        }
    }
}

/* ---- the agent ---- */

static void agent_run(struct fw_job_runnable *runnable, struct fw_job *job)
{
    (void)runnable;
    struct fw_volumes_service *service = FW_CONTAINER_OF(job, struct fw_volumes_service, job);
    struct fw_volumes *volumes = service->volumes;
    const struct fw_server_volume_config *config = volumes->config;
    const struct fw_volume_agent_options options = {.path = config->group, .host = config->host};
    bool is_over = false;
    while (!is_over && !must_end(volumes)) {
        struct fw_volume_agent *agent;
        struct fw_ring_reason why = {.text = ""};
        int rc = fw_volume_agent_open(&agent, &options, &why);
        if (rc != 0) {
            service_tell(service, "agent", &why);
            continue;
        }
        service->told.text[0] = '\0';
        figure_set(&volumes->agents, 1);
        while (rc == 0 && !must_end(volumes)) {
            rc = fw_volume_agent_step(agent, &why);
            figure_set(&volumes->pool, fw_volume_agent_pool(agent));
            (void)fw_park_for(&service->parker, config->interval_ns);
        }
        /* A manager that still steps would fill the pool again that is given back here. */
        other_wait(service, &volumes->managers);
        figure_set(&volumes->pool, 0);
        fw_volume_agent_close(agent, rc == 0);
        figure_set(&volumes->agents, 0);
        is_over = service_is_over(service, "agent", rc, &why);
    }
}

/* ---- both ---- */

static struct fw_job_runnable manager_runnable = {.run = manager_run, .name = "manager of volumes"};
static struct fw_job_runnable agent_runnable = {.run = agent_run, .name = "agent of volumes"};

static int service_begin(struct fw_volumes_service *service, struct fw_volumes *volumes,
                         struct fw_job_runnable *runnable)
{
    service->volumes = volumes;
    fw_parker_init(&service->parker);
    int rc = fw_jobs_post(volumes->jobs, &service->job, runnable, service, 0,
                          FW_JOB_SERVICE | FW_JOB_REJOINABLE);
    service->is_posted = rc == 0;
    return rc;
}

static void service_end(struct fw_volumes_service *service)
{
    struct fw_job *job;
    if (service->is_posted) {
        fw_unpark(&service->parker);
        enum fw_rejoin rejoin =
            fw_jobs_rejoin_wait(service->volumes->jobs, service, 0, FW_JOBS_FOREVER, &job);
        FW_ASSERT(rejoin == FW_REJOIN_RETURNED && job == &service->job);
    }
}

int fw_volumes_check(const struct fw_server_volume_config *config, struct fw_reason *reason)
{
    return config->group != NULL || (!config->is_manager && config->host == NULL)
               ? 0
               : fw_reason_set(reason, -EINVAL,
                               "--volume-manager and --volume-host need --volume-group");
}

uint32_t fw_volumes_services(const struct fw_server_volume_config *config)
{
    bool has_group = config->group != NULL;
    return (has_group && config->is_manager ? 1U : 0U) +
           (has_group && config->host != NULL ? 1U : 0U);
}

int fw_volumes_begin(struct fw_volumes *volumes, struct fw_jobs *jobs,
                     const struct fw_server_volume_config *config, struct fw_reason *reason)
{
    *volumes = (struct fw_volumes){.config = config, .jobs = jobs};
    int rc = 0;
    if (config->group != NULL && config->is_manager) {
        rc = service_begin(&volumes->manager, volumes, &manager_runnable);
    }
    if (rc == 0 && config->group != NULL && config->host != NULL) {
        rc = service_begin(&volumes->agent, volumes, &agent_runnable);
    }
    if (rc != 0) {
        fw_volumes_end(volumes);
        return fw_reason_errno(reason, rc, "cannot start the services of volumes");
    }
    return 0;
}

void fw_volumes_end(struct fw_volumes *volumes)
{
    /* Release, for the acquires of the services. The agent first: the manager hears of its pool. */
    atomic_store_explicit(&volumes->must_end, true, memory_order_release);
    service_end(&volumes->agent);
    service_end(&volumes->manager);
}
