/* SPDX-License-Identifier: Apache-2.0 */
#include "io/signal.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/assert.h"

enum { SIGNALS_PER_READ = 8 };

static void set_fill(sigset_t *set, const struct fw_signal_event events[], size_t event_count)
{
    int rc = sigemptyset(set);
    for (size_t i = 0; i < event_count; i++) {
        rc |= sigaddset(set, events[i].number);
    }
    FW_ASSERT(rc == 0); /* The numbers are constants of the caller's. */
}

/* Adds to what the calling thread blocks and tells what it blocked before. */
static void mask_add(const sigset_t *set, sigset_t *before)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): on Linux the mask is the calling thread's. */
    int rc = sigprocmask(SIG_BLOCK, set, before);
    FW_ASSERT(rc == 0);
}

void fw_signals_block(const struct fw_signal_event events[], size_t event_count)
{
    sigset_t set;
    set_fill(&set, events, event_count);
    mask_add(&set, NULL);

    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    int rc = sigaction(SIGPIPE, &ignore, NULL) | sigaction(SIGXFSZ, &ignore, NULL);
    FW_ASSERT(rc == 0);
}

static void signals_deliver(struct fw_signals *signals, const struct signalfd_siginfo *info)
{
    for (size_t i = 0;; i++) {
        FW_ASSERT(i < signals->event_count); /* The descriptor knows the table's signals only. */
        const struct fw_signal_event *event = &signals->events[i];
        if (event->number == (int)info->ssi_signo) {
            /* Only of what a process sent is the sender known; else the field means other things.
             */
            bool sent = info->ssi_code == SI_USER || info->ssi_code == SI_QUEUE ||
                        info->ssi_code == SI_TKILL;
            event->received(signals, event->number, sent ? (pid_t)info->ssi_pid : 0);
            return;
        }
    }
}

static void signals_ready(struct fw_watch *watch)
{
    struct fw_signals *signals = FW_CONTAINER_OF(watch, struct fw_signals, watch);
    for (;;) {
        struct signalfd_siginfo infos[SIGNALS_PER_READ];
        ssize_t size = read(signals->fd, infos, sizeof infos);
        if (size < 0) {
            FW_ASSERT(errno == EAGAIN); /* Nothing interrupts a read that does not wait. */
            return;
        }
        FW_ASSERT((size_t)size % sizeof infos[0] == 0);
        for (size_t i = 0; i < (size_t)size / sizeof infos[0]; i++) {
            if (signals->closed != NULL) {
                return; /* A call-back closed us. */
            }
            signals_deliver(signals, &infos[i]);
        }
    }
}

static void signals_closed(struct fw_watch *watch)
{
    struct fw_signals *signals = FW_CONTAINER_OF(watch, struct fw_signals, watch);
    (void)close(signals->fd);
    signals->fd = -1;
    signals->closed(signals);
}

int fw_signals_open(struct fw_signals *signals, struct fw_reactor *reactor,
                    const struct fw_signal_event events[], size_t event_count,
                    struct fw_reason *reason)
{
    sigset_t set, blocked;
    set_fill(&set, events, event_count);
    mask_add(NULL, &blocked);
    for (size_t i = 0; i < event_count; i++) {
        FW_ASSERT(sigismember(&blocked, events[i].number) ==
                  1); /* fw_signals_block() was called. */
    }

    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot open a descriptor for signals");
    }
    *signals = (struct fw_signals){.events = events, .event_count = event_count, .fd = fd};
    int rc = fw_watch_open(&signals->watch, reactor, fd, signals_ready, signals_closed);
    if (rc != 0) {
        (void)close(fd);
        return fw_reason_errno(reason, rc, "cannot watch the descriptor for signals");
    }
    return 0;
}

void fw_signals_close(struct fw_signals *signals, void (*closed)(struct fw_signals *signals))
{
    FW_ASSERT(signals->closed == NULL);
    FW_ASSERT(closed != NULL);
    signals->closed = closed;
    fw_watch_close(&signals->watch);
}
