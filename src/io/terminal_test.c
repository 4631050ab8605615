/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a terminal is taken over, tells of keys, signals and time, and is given back as it was,
 * whichever way the process goes.
 * Method: each test runs in a child whose stdin and stdout are a pseudo-terminal; the parent looks
 * at its modes, at what was written to it, and at how the child ended.
 */
#include "io/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/clock.h"

static int terminal_fd; /* The parent's side. */
static int child_fd;
static struct termios mode_first;
static struct fw_terminal terminal;
static struct fw_reason reason;

#define ENTERED "\033[?1049h"
#define LEFT    "\033[?1049l"
enum { PATIENCE_MS = 60 * 1000 };
#define LONG_NS (60 * (int64_t)FW_NS_PER_S)

static int setup(void **state)
{
    (void)state;
    struct winsize size = {.ws_row = 7, .ws_col = 33};
    return openpty(&terminal_fd, &child_fd, NULL, NULL, &size) == 0 &&
                   tcgetattr(child_fd, &mode_first) == 0
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    return close(terminal_fd) | close(child_fd);
}

/* In the child: ends it, with the number of the line, unless `condition`. */
#define CHILD_CHECK(condition) \
    do {                       \
        if (!(condition)) {    \
            _exit(__LINE__);   \
        }                      \
    } while (false)

/* Runs `body` in a child. Returns how that has ended, as waitpid() tells it. */
static int child_run(void (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        CHILD_CHECK(dup2(child_fd, STDIN_FILENO) >= 0 && dup2(child_fd, STDOUT_FILENO) >= 0);
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* What was written up to the terminal's being left: it may come in pieces, and late. */
static const char *written(void)
{
    static char text[4096];
    size_t length = 0;
    do {
        struct pollfd readable = {.fd = terminal_fd, .events = POLLIN};
        assert_int_equal(poll(&readable, 1, PATIENCE_MS), 1);
        ssize_t size = read(terminal_fd, text + length, sizeof text - 1 - length);
        assert_true(size > 0);
        length += (size_t)size;
        text[length] = '\0';
    } while (strstr(text, LEFT) == NULL);
    return text;
}

static void assert_given_back(void)
{
    struct termios mode;
    assert_int_equal(tcgetattr(child_fd, &mode), 0);
    assert_int_equal(mode.c_lflag, mode_first.c_lflag);
    assert_int_equal(mode.c_cc[VMIN], mode_first.c_cc[VMIN]);
    const char *entered = strstr(written(), ENTERED);
    assert_non_null(entered);
    assert_non_null(strstr(entered, LEFT));
}

static void open_and_close(void)
{
    struct termios mode;
    unsigned columns, lines;
    CHILD_CHECK(fw_terminal_is_there());
    CHILD_CHECK(fw_terminal_open(&terminal, &reason) == 0);
    CHILD_CHECK(tcgetattr(child_fd, &mode) == 0);
    CHILD_CHECK((mode.c_lflag & (tcflag_t)(ICANON | ECHO)) == 0 && (mode.c_lflag & ISIG) != 0);
    fw_terminal_size(&terminal, &columns, &lines);
    CHILD_CHECK(columns == 33 && lines == 7);
    const struct winsize none = {.ws_row = 0};
    CHILD_CHECK(ioctl(child_fd, TIOCSWINSZ, &none) == 0);
    fw_terminal_size(&terminal, &columns, &lines);
    CHILD_CHECK(columns == 80 && lines == 24);
    CHILD_CHECK(fw_terminal_write(&terminal, "picture", 7) == 0);
    CHILD_CHECK(fw_terminal_wait(&terminal, 0) == FW_TERMINAL_TIME);
    fw_terminal_close(&terminal);
}

static void test_open_and_close(void **state)
{
    (void)state;
    assert_int_equal(child_run(open_and_close), 0);
    assert_given_back();
}

static void take_events(void)
{
    CHILD_CHECK(fw_terminal_open(&terminal, &reason) == 0);
    CHILD_CHECK(fw_terminal_wait(&terminal, fw_clock_now_ns() + LONG_NS) == FW_TERMINAL_KEY);
    CHILD_CHECK(terminal.key == 'x');
    CHILD_CHECK(raise(SIGWINCH) == 0);
    CHILD_CHECK(fw_terminal_wait(&terminal, fw_clock_now_ns() + LONG_NS) == FW_TERMINAL_CHANGE);
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(ends); i++) {
        CHILD_CHECK(raise(ends[i]) == 0);
        CHILD_CHECK(fw_terminal_wait(&terminal, fw_clock_now_ns() + LONG_NS) == FW_TERMINAL_END);
        CHILD_CHECK(terminal.signal == ends[i]);
    }
    CHILD_CHECK(fw_terminal_wait(&terminal, 0) == FW_TERMINAL_KEY && terminal.key == '\n');
    CHILD_CHECK(fw_terminal_wait(&terminal, fw_clock_now_ns() + FW_NS_PER_MS) == FW_TERMINAL_TIME);
    fw_terminal_close(&terminal);
}

static void test_events(void **state)
{
    (void)state;
    assert_int_equal(write(terminal_fd, "x\n", 2), 2); /* A line, should it come before open(). */
    assert_int_equal(child_run(take_events), 0);
    assert_given_back();
}

static void end_by_term(void)
{
    CHILD_CHECK(fw_terminal_open(&terminal, &reason) == 0);
    fw_terminal_close(&terminal);
    (void)raise(SIGTERM); /* Which is not blocked any more. */
}

static void test_signals_are_as_before(void **state)
{
    (void)state;
    int status = child_run(end_by_term);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_given_back();
}

static void crash(void)
{
    CHILD_CHECK(fw_terminal_open(&terminal, &reason) == 0);
    (void)raise(SIGILL);
}

static void abort_it(void)
{
    CHILD_CHECK(fw_terminal_open(&terminal, &reason) == 0);
    abort();
}

static void test_crashes(void **state)
{
    (void)state;
    int status = child_run(crash);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGILL);
    assert_given_back();
    status = child_run(abort_it);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_given_back();
}

static void without_keys(void)
{
    CHILD_CHECK(close(STDIN_FILENO) == 0 && open("/dev/null", O_RDONLY) == STDIN_FILENO);
    CHILD_CHECK(fw_terminal_open(&terminal, &reason) == 0);
    CHILD_CHECK(!terminal.has_keys);
    CHILD_CHECK(fw_terminal_wait(&terminal, 0) == FW_TERMINAL_TIME);
    fw_terminal_close(&terminal);
    CHILD_CHECK(dup2(STDIN_FILENO, STDOUT_FILENO) >= 0 && !fw_terminal_is_there());
}

static void test_without_keys(void **state)
{
    (void)state;
    assert_int_equal(child_run(without_keys), 0);
    assert_given_back();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_open_and_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signals_are_as_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crashes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_keys, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
