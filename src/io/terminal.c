/* SPDX-License-Identifier: Apache-2.0 */
#include "io/terminal.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/clock.h"

enum { COLUMNS = 80, LINES = 24 };

/* The other screen, a hidden cursor, no wrapping of long lines; and back. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[H\033[2J"
#define LEAVE "\033[?7h\033[?25h\033[m\033[?1049l"

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

/* For the handler, which gets no argument: how the terminal was. Set before `is_taken`. */
static struct termios mode_before;
static volatile sig_atomic_t has_mode;
static volatile sig_atomic_t is_taken;

bool fw_terminal_is_there(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

/* Only what a handler may call. Leaves errno as it was. */
static void terminal_leave(void)
{
    int error = errno;
    if (is_taken) {
        is_taken = 0;
        (void)!write(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1);
        if (has_mode) {
            (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &mode_before);
        }
    }
    errno = error;
}

/* It is installed for one time: what is raised here ends the process when the handler returns. */
static void crashed(int number)
{
    terminal_leave();
    (void)raise(number);
}

static void terminal_enter(struct fw_terminal *terminal)
{
    if (terminal->has_keys && tcgetattr(STDIN_FILENO, &mode_before) == 0) {
        struct termios mode = mode_before;
        mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        mode.c_cc[VMIN] = 1;
        mode.c_cc[VTIME] = 0;
        has_mode = 1;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
    }
    is_taken = 1;
    (void)!fw_terminal_write(terminal, ENTER, sizeof ENTER - 1);
}

int fw_terminal_open(struct fw_terminal *terminal, struct fw_reason *reason)
{
    sigset_t set;
    *terminal = (struct fw_terminal){.has_keys = isatty(STDIN_FILENO) == 1};
    int rc = sigemptyset(&set);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(watched); i++) {
        rc |= sigaddset(&set, watched[i]);
    }
    FW_ASSERT(rc == 0);
    terminal->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (terminal->signals < 0) {
        return fw_reason_errno(reason, -errno, "cannot watch for signals");
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): on Linux the mask is the calling thread's. */
    rc = sigprocmask(SIG_BLOCK, &set, &terminal->mask_before);
    const struct sigaction action = {.sa_handler = crashed, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(fatal); i++) {
        rc |= sigaction(fatal[i], &action, NULL);
    }
    FW_ASSERT(rc == 0);
    terminal_enter(terminal);
    return 0;
}

void fw_terminal_close(struct fw_terminal *terminal)
{
    terminal_leave();
    has_mode = 0;
    const struct sigaction action = {.sa_handler = SIG_DFL};
    int rc = 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(fatal); i++) {
        rc |= sigaction(fatal[i], &action, NULL);
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): on Linux the mask is the calling thread's. */
    rc |= sigprocmask(SIG_SETMASK, &terminal->mask_before, NULL);
    rc |= close(terminal->signals);
    FW_ASSERT(rc == 0);
}

void fw_terminal_size(const struct fw_terminal *terminal, unsigned *columns, unsigned *lines)
{
    (void)terminal;
    struct winsize size;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *columns = is_known && size.ws_col > 0 ? size.ws_col : COLUMNS;
    *lines = is_known && size.ws_row > 0 ? size.ws_row : LINES;
}

int fw_terminal_write(struct fw_terminal *terminal, const char *bytes, size_t length)
{
    (void)terminal;
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, length);
        if (written < 0 && errno == EAGAIN) { /* Somebody made it so; it is shared. */
            struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT};
            (void)poll(&room, 1, -1);
        } else if (written < 0 && errno != EINTR) {
            return -errno;
        } else if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        }
    }
    return 0;
}

/* Stops the process as SIGTSTP would have, with the terminal as it was before. */
static enum fw_terminal_event terminal_stop(struct fw_terminal *terminal)
{
    terminal_leave();
    (void)raise(SIGSTOP);
    terminal_enter(terminal);
    return FW_TERMINAL_CHANGE;
}

/* One signal that is there. */
static enum fw_terminal_event signal_take(struct fw_terminal *terminal)
{
    struct signalfd_siginfo info;
    ssize_t size = read(terminal->signals, &info, sizeof info);
    FW_ASSERT(size == (ssize_t)sizeof info);
    switch (info.ssi_signo) {
    case SIGTSTP:
        return terminal_stop(terminal);
    case SIGWINCH:
        return FW_TERMINAL_CHANGE;
    default:
        terminal->signal = (int)info.ssi_signo;
        return FW_TERMINAL_END;
    }
}

enum fw_terminal_event fw_terminal_wait(struct fw_terminal *terminal, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ns = deadline_ns - fw_clock_now_ns();
        left_ns = left_ns > 0 ? left_ns : 0;
        const struct timespec left = {.tv_sec = left_ns / FW_NS_PER_S,
                                      .tv_nsec = left_ns % FW_NS_PER_S};
        struct pollfd ready[] = {
            {.fd = terminal->signals, .events = POLLIN},
            {.fd = terminal->has_keys ? STDIN_FILENO : -1, .events = POLLIN},
        };
        int count = ppoll(ready, FW_ARRAY_LENGTH(ready), &left, NULL);
        if (count > 0 && ready[0].revents != 0) {
            return signal_take(terminal);
        }
        if (count > 0 && ready[1].revents != 0) {
            if (read(STDIN_FILENO, &terminal->key, 1) == 1) {
                return FW_TERMINAL_KEY;
            }
            terminal->has_keys = false; /* It has ended: hung up. */
        }
        if (count == 0 && left_ns == 0) {
            return FW_TERMINAL_TIME;
        }
    }
}
