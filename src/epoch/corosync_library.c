/* SPDX-License-Identifier: Apache-2.0 */
/* Corosync's libraries, which most servers never need; see io/library.h. */
#include <corosync/cmap.h>
#include <corosync/corotypes.h>
#include <corosync/cpg.h>

#include "io/library.h"

static struct fw_library cpg = {.name = "libcpg.so.4"};
static struct fw_library cmap = {.name = "libcmap.so.4"};

#define CPG(name, parameters, arguments) \
    FW_LIBRARY_CALL(&cpg, cs_error_t, name, parameters, arguments, CS_ERR_LIBRARY)
#define CMAP(name, parameters, arguments) \
    FW_LIBRARY_CALL(&cmap, cs_error_t, name, parameters, arguments, CS_ERR_LIBRARY)

CPG(cpg_model_initialize,
    (cpg_handle_t * handle, cpg_model_t model, cpg_model_data_t *data, void *context),
    (handle, model, data, context))
CPG(cpg_finalize, (cpg_handle_t handle), (handle))
CPG(cpg_fd_get, (cpg_handle_t handle, int *fd), (handle, fd))
CPG(cpg_context_get, (cpg_handle_t handle, void **context), (handle, context))
CPG(cpg_context_set, (cpg_handle_t handle, void *context), (handle, context))
CPG(cpg_dispatch, (cpg_handle_t handle, cs_dispatch_flags_t flags), (handle, flags))
CPG(cpg_join, (cpg_handle_t handle, const struct cpg_name *group), (handle, group))
CPG(cpg_local_get, (cpg_handle_t handle, unsigned *node), (handle, node))
CPG(cpg_mcast_joined,
    (cpg_handle_t handle, cpg_guarantee_t guarantee, const struct iovec *pieces, unsigned count),
    (handle, guarantee, pieces, count))

CMAP(cmap_initialize, (cmap_handle_t * handle), (handle))
CMAP(cmap_finalize, (cmap_handle_t handle), (handle))
CMAP(cmap_get_uint32, (cmap_handle_t handle, const char *key, uint32_t *value),
     (handle, key, value))
CMAP(cmap_iter_init, (cmap_handle_t handle, const char *prefix, cmap_iter_handle_t *iter),
     (handle, prefix, iter))
CMAP(cmap_iter_next,
     (cmap_handle_t handle, cmap_iter_handle_t iter, char key[], size_t *length,
      cmap_value_types_t *type),
     (handle, iter, key, length, type))
CMAP(cmap_iter_finalize, (cmap_handle_t handle, cmap_iter_handle_t iter), (handle, iter))
