/* SPDX-License-Identifier: Apache-2.0 */
/* libdevmapper, which only groups inside of LVM need; see io/library.h. */
#include <libdevmapper.h>

#include "io/library.h"

static struct fw_library devmapper = {.name = "libdevmapper.so.1.02.1"};

FW_LIBRARY_CALL(&devmapper, struct dm_config_tree *, dm_config_from_string, (const char *text),
                (text), NULL)
FW_LIBRARY_CALL(&devmapper, struct dm_config_node *, dm_config_find_node,
                (const struct dm_config_node *node, const char *path), (node, path), NULL)
FW_LIBRARY_CALL(&devmapper, int, dm_config_has_node,
                (const struct dm_config_node *node, const char *path), (node, path), 0)
FW_LIBRARY_CALL(&devmapper, int, dm_config_write_node,
                (const struct dm_config_node *node, dm_putline_fn putline, void *context),
                (node, putline, context), 0)

FW_LIBRARY_CALL(&devmapper, int64_t, dm_config_find_int64,
                (const struct dm_config_node *node, const char *path, int64_t fail),
                (node, path, fail), fail)

/* There is a tree, so there is the library. */
void dm_config_destroy(struct dm_config_tree *tree)
{
    ((void (*)(struct dm_config_tree *))fw_library_find(&devmapper, "dm_config_destroy"))(tree);
}
