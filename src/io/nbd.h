/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks of the kernel whose blocks are served by somebody through NBD: /dev/nbdN.
 *
 * The connection is made here and handed to the kernel by netlink, so that nobody has to stay for
 * it, and so that it can be replaced: when the server dies, reads and writes wait until there is
 * another connection, for as long as it takes. The tool nbd-client does not do that: with it they
 * fail, and a file system that sees a write fail is broken.
 *
 * A request that was under way when the server died is sent again when the kernel looks for such,
 * every 30 s. The kernel gets no more of what the server can do than flushes: no discards. A server
 * must be able to flush, and to write durably, or it is refused.
 *
 * All calls block, for administration. Linux only, and the module `nbd` must be loaded.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/reason.h"

/* Connects to a server on a Unix socket and asks for an export. */
FW_MUST_CHECK int fw_nbd_connect(const char *socket_path, const char *export_name, int *connection,
                                 uint64_t *size, struct fw_reason *reason);

/*
 * Whether a server of NBD answers there, without asking it for anything. -ECONNREFUSED, -ENOENT:
 * no; -ECONNRESET: it has just ended; -ETIMEDOUT: it has not said a word for so long.
 */
FW_MUST_CHECK int fw_nbd_greeting(const char *socket_path, int64_t patience_ns,
                                  struct fw_reason *reason);

/* Gives the connection, which is closed here, to a device that is free, and says which. */
FW_MUST_CHECK int fw_nbd_attach(int connection, uint64_t size, uint32_t *device,
                                struct fw_reason *reason);

/* Gives it to a device that has lost its own. -EINVAL and others: it has not. */
FW_MUST_CHECK int fw_nbd_reattach(int connection, uint32_t device, struct fw_reason *reason);

FW_MUST_CHECK int fw_nbd_detach(uint32_t device, struct fw_reason *reason);

/*
 * What the calls above are made of, for tests: no path, no kernel.
 */

/* Asks the server at the other end of a connection for an export, and says its size. -ECONNRESET:
 * there is no such export; -EPROTO: that is no server of NBD; -EOPNOTSUPP: the export cannot be
 * flushed or written. */
FW_MUST_CHECK int fw_nbd_negotiate(int connection, const char *export_name, uint64_t *size);

enum { FW_NBD_MORE = 1 };

/*
 * Reads what the kernel said. 0, or the error that it told: it is done; FW_NBD_MORE: it is not.
 * The attribute of this type is put into `value` where there is one.
 */
FW_MUST_CHECK int fw_nbd_answer(const void *bytes, size_t size, uint16_t type, void *value,
                                size_t value_size);
