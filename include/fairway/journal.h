/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal: operations that, once they have begun, are done, whatever crashes meanwhile.
 *
 *     static int perform(const void *data, size_t length, void *context) { ... }
 *
 *     struct fw_journal_options options = {.path = "/run/fairway/journal", .size = 1 << 20,
 *                                          .perform = perform};
 *     rc = fw_journal_open(&journal, &options, &reason);       does what was left over, first
 *     rc = fw_journal_perform(journal, "place 7 in a", 12, &reason);
 *
 * What is promised: an operation given to fw_journal_perform() is performed never, if that did not
 * return 0 and a crash came before it was durable, or else at least once. Operations are performed
 * one at a time in the order in which they became durable, those of an earlier life first. So
 * perform() must bear to do the same operation twice; nothing is undone.
 *
 * It is a ring (fairway/ring.h) with both roles in one process: an operation is pushed, performed,
 * and advanced over. The file is an ordinary ring, and `fairway ring dump` shows what is pending.
 *
 * perform() returns 0, or a negative errno if it could not be done. Then it is called again with
 * the same operation, after a while that doubles from retry_ms_min to retry_ms_max; the log tells.
 * Nothing overtakes it. After attempts_max times (0: no limit) the callers who wait get that error;
 * the operation stays in the journal, before all others, and is tried again by the next call or the
 * next open. fw_journal_close() by another thread ends the waiting with -ECANCELED likewise.
 *
 * Where the file should be. If what the operations change does not survive a reboot, neither should
 * the journal: put it below /run, which is empty after one (systemd: RuntimeDirectory= with
 * RuntimeDirectoryPreserve=yes). Otherwise put it beside what they change.
 *
 * A journal belongs to one host: a second process there is refused by a file lock, but no heartbeat
 * tells another host that this one lives.
 *
 * Threads. Any thread may call fw_journal_perform() at any time; several share flushes. perform()
 * runs on one of the calling threads, one at a time, and may not call into its own journal.
 * fw_journal_close() may be called while others perform: it waits until they have returned.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <fairway/api.h>
#include <fairway/ring.h>

struct fw_journal;

struct fw_journal_options {
    const char *path;
    /*
     * Of a file that is not there yet; 0: it must be there. A shorter one is extended, unless
     * operations wait in it: then they are performed, and the next open extends it.
     */
    uint64_t size;
    int format;         /* Of a journal that is not there yet: 1 or 2; 0: 1. */
    unsigned flags;     /* FW_RING_BUFFERED and FW_RING_FUA of fairway/ring.h. */
    const char *client; /* A name for people who look at the file. */
    int (*perform)(const void *data, size_t length, void *context);
    void *context;
    uint32_t retry_ms_min; /* 0: 10 ms. */
    uint32_t retry_ms_max; /* 0: 10 s. If it is less, retry_ms_min. */
    uint32_t attempts_max; /* 0: no limit. */
};

/*
 * Opens the journal, making it if needed, and performs what is pending. Blocks until that is done.
 * Returns 0, what fw_ring_create() and fw_ring_attach() return, or after attempts_max times what
 * perform() returned.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_journal_open(struct fw_journal **journal,
                                                const struct fw_journal_options *options,
                                                struct fw_ring_reason *reason);

/*
 * Does the operation: makes it durable, then performs it, after all before it. Returns 0 when it
 * has been performed; -EMSGSIZE if it will never fit; -ECANCELED if the journal is being closed,
 * -EIO and the like if the disk or perform() failed: then the next open may perform it yet.
 */
FW_PUBLIC FW_API_MUST_CHECK int fw_journal_perform(struct fw_journal *journal, const void *data,
                                                   size_t length, struct fw_ring_reason *reason);

/*
 * Closes it, when the calls under way have returned; none may begin from now on. What could not be
 * performed stays for the next open.
 */
FW_PUBLIC void fw_journal_close(struct fw_journal *journal);
