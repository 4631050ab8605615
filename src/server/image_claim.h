/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server's claim on its image (image.h): the file FILE.lock beside it, which is locked while the
 * server lives, so that two servers never write one image.
 *
 * The image of the last clean stop is kept until the next one replaces it: somebody may have no
 * other copy of these items. But a server that was killed must not start with them again, since
 * clients have changed some of them meanwhile. So before the first client is served, mark() notes
 * in the lock file which version of the image was read, by size and time; an image of that version
 * is out of date. The note outlives the process, and becomes void when the image is replaced, by
 * the server or by a person.
 *
 * Rejected: to lock the image, which is replaced as a whole and would take the lock along; to
 * rename it, which needs a rule for what is at the new name already; to remove the lock file at the
 * end, since another server may have opened it and would hold a lock on nothing.
 */
#pragma once

#include <stdbool.h>

#include "base/base.h"
#include "base/reason.h"
#include "io/file.h"

struct fw_image_claim {
    struct fw_file_lock lock;
    bool is_held;
};

/* Whether an image could be written there. 0, or -EINVAL with the reason. */
FW_MUST_CHECK int fw_image_check(const char *path, struct fw_reason *reason);

/*
 * Returns 0; -EINVAL, with the reason, if no image could be written there; or -EBUSY if another
 * server has it.
 */
FW_MUST_CHECK int fw_image_claim_take(struct fw_image_claim *claim, const char *path,
                                      struct fw_reason *reason);

/* Was the image that is there read by a server that did not write another? */
bool fw_image_claim_is_spent(const struct fw_image_claim *claim, const char *path);

/* From now on it is. 0, or a negative errno. */
FW_MUST_CHECK int fw_image_claim_spend(const struct fw_image_claim *claim, const char *path);

/* Also of one that is not held. */
void fw_image_claim_release(struct fw_image_claim *claim);
