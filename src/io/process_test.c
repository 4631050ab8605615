/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who starts a daemon learns whether it serves; a user is changed to wholly or not at all;
 * limits are raised as far as they can be; and what the system refuses is told.
 * Method: real daemons, started by a child of the test and asked through pipes. Users and limits
 * are the test's own: calls to the system are noted and answered by it.
 */
#include "io/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    bool no_pipe, no_fork, no_null;
    int interruptions; /* So many calls of read() and waitpid() are interrupted first. */
    bool is_root;
    char calls[64];   /* What was asked for, in order. */
    const char *fail; /* The call that fails. */
    struct rlimit limit;
    int limit_kind;
    int limit_failures; /* So many calls of setrlimit() fail first. */
    bool no_limit;      /* getrlimit() fails. */
    int lock_flags;
} fake;

static struct fw_reason reason;

static int reset(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    reason.text[0] = '\0';
    return 0;
}

/* ---- the system, as our code sees it: the linker (--wrap) sends its calls here ---- */

pid_t __real_fork(void);
pid_t __wrap_fork(void);
int __real_pipe2(int *ends, int flags);
int __wrap_pipe2(int *ends, int flags);
ssize_t __real_read(int fd, void *into, size_t size);
ssize_t __wrap_read(int fd, void *into, size_t size);
pid_t __real_waitpid(pid_t child, int *status, int options);
pid_t __wrap_waitpid(pid_t child, int *status, int options);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
uid_t __wrap_geteuid(void);
struct passwd *__wrap_getpwnam(const char *name);
struct passwd *__wrap_getpwuid(uid_t number);
int __wrap_initgroups(const char *name, gid_t group);
int __wrap_setgid(gid_t group);
int __wrap_setuid(uid_t user);
int __wrap_getrlimit64(int kind, struct rlimit *limit);
int __wrap_setrlimit64(int kind, const struct rlimit *limit);
int __wrap_mlockall(int flags);
int __wrap_getrusage(int who, struct rusage *usage);

static int refused(int error)
{
    errno = error;
    return -1;
}

static bool interrupted(void)
{
    if (fake.interruptions == 0) {
        return false;
    }
    fake.interruptions--;
    errno = EINTR;
    return true;
}

pid_t __wrap_fork(void)
{
    return fake.no_fork ? refused(EAGAIN) : __real_fork();
}

int __wrap_pipe2(int *ends, int flags)
{
    return fake.no_pipe ? refused(EMFILE) : __real_pipe2(ends, flags);
}

ssize_t __wrap_read(int fd, void *into, size_t size)
{
    return interrupted() ? -1 : __real_read(fd, into, size);
}

pid_t __wrap_waitpid(pid_t child, int *status, int options)
{
    return interrupted() ? -1 : __real_waitpid(child, status, options);
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    bool is_null = strcmp(path, "/dev/null") == 0;
    return is_null && fake.no_null ? refused(ENOENT) : __real_open64(path, flags, mode);
}

uid_t __wrap_geteuid(void)
{
    return fake.is_root ? 0 : 1000;
}

static char user_name[] = "fairway";
static struct passwd the_user = {.pw_name = user_name, .pw_uid = 77, .pw_gid = 88};

struct passwd *__wrap_getpwnam(const char *name)
{
    return strcmp(name, user_name) == 0 ? &the_user : NULL;
}

struct passwd *__wrap_getpwuid(uid_t number)
{
    return number == the_user.pw_uid || number == UINT32_MAX ? &the_user : NULL;
}

/* Notes a call of the process's user, which fails if the test wants it. */
static int user_call(const char *name, unsigned argument)
{
    size_t length = strlen(fake.calls);
    (void)snprintf(fake.calls + length, sizeof fake.calls - length, "%s %u ", name, argument);
    return fake.fail != NULL && strcmp(fake.fail, name) == 0 ? refused(EPERM) : 0;
}

int __wrap_initgroups(const char *name, gid_t group)
{
    assert_string_equal(name, user_name);
    return user_call("groups", group);
}

int __wrap_setgid(gid_t group)
{
    return user_call("group", group);
}

int __wrap_setuid(uid_t user)
{
    return user_call("user", user);
}

int __wrap_getrlimit64(int kind, struct rlimit *limit)
{
    fake.limit_kind = kind;
    *limit = fake.limit;
    return fake.no_limit ? refused(EFAULT) : 0;
}

int __wrap_setrlimit64(int kind, const struct rlimit *limit)
{
    fake.limit_kind = kind;
    if (fake.limit_failures > 0) {
        fake.limit_failures--;
        return refused(EPERM);
    }
    fake.limit = *limit;
    return 0;
}

int __wrap_mlockall(int flags)
{
    fake.lock_flags = flags;
    return fake.fail != NULL ? refused(ENOMEM) : 0;
}

int __wrap_getrusage(int who, struct rusage *usage)
{
    assert_int_equal(who, RUSAGE_SELF);
    *usage = (struct rusage){.ru_utime = {3, 5}, .ru_stime = {7, 11}};
    return 0;
}

/* ---- daemons ---- */

/* The daemon tells something, in a byte, and waits for an answer. */
static int told[2], answered[2];

static void daemon_tell(char what)
{
    if (write(told[1], &what, 1) != 1) {
        _exit(99);
    }
}

static void daemon_wait(void)
{
    char answer;
    if (__real_read(answered[0], &answer, 1) != 1) {
        _exit(98);
    }
}

static char hear(void)
{
    char what = '\0';
    assert_int_equal(__real_read(told[0], &what, 1), 1);
    return what;
}

static bool is_null(int fd)
{
    struct stat one, other;
    return fstat(fd, &one) == 0 && stat("/dev/null", &other) == 0 && one.st_rdev == other.st_rdev;
}

static int descriptors_open(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

/* Runs `serve` as a daemon of a child's and returns that child. */
static pid_t daemon_start(void (*serve)(void))
{
    assert_int_equal(__real_pipe2(told, O_CLOEXEC), 0);
    assert_int_equal(__real_pipe2(answered, O_CLOEXEC), 0);
    pid_t starter = __real_fork();
    assert_true(starter >= 0);
    if (starter == 0) {
        (void)close(answered[1]); /* So that the end of the test ends the daemon. */
        if (fw_process_fork(NULL) == 0) {
            serve();
        }
        _exit(97);
    }
    (void)close(told[1]);
    (void)close(answered[0]);
    return starter;
}

static int daemon_status(pid_t starter)
{
    int status;
    assert_int_equal(__real_waitpid(starter, &status, 0), starter);
    (void)close(told[0]);
    (void)close(answered[1]);
    return status;
}

static void serve_well(void)
{
    daemon_tell(getsid(0) == getpid() ? 's' : '-');
    daemon_wait();
    for (int fd = 0; fd <= 3; fd++) { /* Whatever they were, they are not /dev/null. */
        if (fd != told[1] && fd != answered[0]) {
            (void)dup2(told[1], fd);
        }
    }
    int before = descriptors_open();
    fw_process_detach();
    daemon_tell(descriptors_open() == before - 1 ? 'c' : '-'); /* That to the old process. */
    daemon_tell(is_null(0) && is_null(1) && is_null(2) && !is_null(3) ? 'n' : '-');
    fw_process_detach(); /* Nothing happens any more. */
    daemon_tell('d');
    _exit(96);
}

static void test_daemon(void **state)
{
    (void)state;
    fake.interruptions = 3;
    pid_t starter = daemon_start(serve_well);
    assert_int_equal(hear(), 's');
    int status;
    assert_int_equal(__real_waitpid(starter, &status, WNOHANG), 0); /* It waits. */
    assert_int_equal(write(answered[1], "", 1), 1);
    assert_int_equal(hear(), 'c');
    assert_int_equal(hear(), 'n');
    assert_int_equal(hear(), 'd');
    assert_int_equal(daemon_status(starter), 0); /* Not what became of it later. */
}

/* Without a standard input, /dev/null becomes it and must stay. */
static void serve_without_input(void)
{
    (void)close(0);
    fw_process_detach();
    daemon_tell(is_null(0) && is_null(1) && is_null(2) ? 'n' : '-');
    _exit(96);
}

static void serve_without_null(void)
{
    fake.no_null = true;
    struct stat before, after;
    if (fstat(1, &before) != 0) {
        _exit(95);
    }
    fw_process_detach();
    bool same = fstat(1, &after) == 0 && before.st_ino == after.st_ino;
    daemon_tell(same ? 'n' : '-');
    _exit(96);
}

/* What is closed is filled, what is open stays, and no more is opened. */
static void serve_without_standard(void)
{
    struct stat before, after;
    if (fstat(1, &before) != 0 || close(0) != 0 || close(2) != 0) {
        _exit(95);
    }
    int open_before = descriptors_open();
    fw_process_fill_standard();
    bool same = fstat(1, &after) == 0 && before.st_ino == after.st_ino;
    bool filled = is_null(0) && is_null(2) && descriptors_open() == open_before + 2;
    fw_process_fill_standard(); /* Now there is nothing to do. */
    filled = filled && descriptors_open() == open_before + 2;
    fw_process_detach();
    daemon_tell(same && filled ? 'n' : '-');
    _exit(96);
}

static void test_daemon_in_odd_surroundings(void **state)
{
    (void)state;
    static void (*const serve[])(void) = {serve_without_input, serve_without_null,
                                          serve_without_standard};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(serve); i++) {
        pid_t starter = daemon_start(serve[i]);
        assert_int_equal(hear(), 'n');
        assert_int_equal(daemon_status(starter), 0);
    }
}

static void serve_not(void)
{
    _exit(42);
}

static void serve_and_die(void)
{
    (void)kill(getpid(), SIGKILL);
}

static void test_daemon_that_fails(void **state)
{
    (void)state;
    fake.interruptions = 3; /* Of the old process: in read() and in waitpid(). */
    int status = daemon_status(daemon_start(serve_not));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    fake.interruptions = 1;
    status = daemon_status(daemon_start(serve_and_die));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_FAILURE);
}

static void test_no_daemon(void **state)
{
    (void)state;
    int open_before = descriptors_open();
    fake.no_pipe = true;
    assert_int_equal(fw_process_fork(&reason), -EMFILE);
    assert_non_null(strstr(reason.text, "pipe()"));
    fake.no_pipe = false;
    fake.no_fork = true;
    assert_int_equal(fw_process_fork(&reason), -EAGAIN);
    assert_non_null(strstr(reason.text, "fork()"));
    assert_int_equal(descriptors_open(), open_before);
    struct stat before, after;
    assert_int_equal(fstat(STDOUT_FILENO, &before), 0);
    fw_process_detach(); /* There is nothing to detach from. */
    assert_int_equal(fstat(STDOUT_FILENO, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

/* ---- users ---- */

static void test_become(void **state)
{
    (void)state;
    assert_false(fw_process_is_root());
    assert_int_equal(fw_process_become("nobody-knows", &reason), 0); /* We stay who we are. */
    assert_string_equal(fake.calls, "");

    fake.is_root = true;
    assert_true(fw_process_is_root());
    static const char *const unknown[] = {"nobody-knows", "78", "", "4294967296"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(unknown); i++) {
        assert_int_equal(fw_process_become(unknown[i], &reason), -ENOENT);
        assert_non_null(strstr(reason.text, "no user '"));
    }
    assert_string_equal(fake.calls, "");
    static const char *const known[] = {user_name, "77", "4294967295"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(known); i++) {
        fake.calls[0] = '\0';
        assert_int_equal(fw_process_become(known[i], &reason), 0);
        assert_string_equal(fake.calls, "groups 88 group 88 user 77 ");
    }
    static const char *const calls[][2] = {
        {"groups", "groups 88 "},
        {"group", "groups 88 group 88 "},
        {"user", "groups 88 group 88 user 77 "},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(calls); i++) {
        fake.calls[0] = '\0';
        fake.fail = calls[i][0];
        assert_int_equal(fw_process_become(user_name, &reason), -EPERM);
        assert_non_null(strstr(reason.text, "cannot become the user 'fairway'"));
        assert_string_equal(fake.calls, calls[i][1]);
    }
}

/* ---- limits ---- */

static void test_files(void **state)
{
    (void)state;
    static const struct {
        uint64_t wanted, soft, failures, got;
    } cases[] = {
        {100, 200, 0, 200}, {200, 200, 9, 200},   {201, 200, 0, 201},  {1000, 200, 0, 1000},
        {999, 200, 0, 999}, {1001, 200, 0, 1000}, {1000, 200, 1, 200},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        fake.limit = (struct rlimit){.rlim_cur = cases[i].soft, .rlim_max = 1000};
        fake.limit_failures = (int)cases[i].failures;
        assert_int_equal(fw_process_allow_files(cases[i].wanted), cases[i].got);
        assert_int_equal(fake.limit.rlim_cur, cases[i].got);
        assert_int_equal(fake.limit.rlim_max, 1000);
        assert_int_equal(fake.limit_kind, RLIMIT_NOFILE);
    }
}

/* The number of a new descriptor says how many are left. */
static void test_files_left(void **state)
{
    (void)state;
    int lowest = dup(STDERR_FILENO);
    assert_true(lowest > 0);
    (void)close(lowest);
    assert_false(fw_process_has_files((uint64_t)lowest));
    assert_true(fw_process_has_files((uint64_t)lowest + 1));
    assert_true(fw_process_has_files((uint64_t)lowest + 1)); /* It keeps none. */
}

static void test_core(void **state)
{
    (void)state;
    assert_int_equal(fw_process_allow_core(), 0);
    assert_true(fake.limit.rlim_cur == RLIM_INFINITY && fake.limit.rlim_max == RLIM_INFINITY);
    assert_int_equal(fake.limit_kind, RLIMIT_CORE);
    fake.limit = (struct rlimit){.rlim_cur = 0, .rlim_max = 4096};
    fake.limit_failures = 1; /* No more than the hard limit, then. */
    assert_int_equal(fw_process_allow_core(), 0);
    assert_int_equal(fake.limit.rlim_cur, 4096);
    assert_int_equal(fake.limit.rlim_max, 4096);
    fake.limit_failures = 2;
    assert_int_equal(fw_process_allow_core(), -EPERM);
    fake.limit_failures = 1;
    fake.no_limit = true;
    assert_int_equal(fw_process_allow_core(), -EFAULT);
}

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(fw_process_lock_memory(), 0);
    assert_int_equal(fake.lock_flags, MCL_CURRENT | MCL_FUTURE);
    fake.fail = "mlockall";
    assert_int_equal(fw_process_lock_memory(), -ENOMEM);
}

/* ---- the rest ---- */

static void test_pid_file(void **state)
{
    (void)state;
    char path[] = "/tmp/fairway-process-XXXXXX";
    char expected[32], found[32] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(fw_process_pid_file(path, &reason), 0);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t length = fread(found, 1, sizeof found - 1, file);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(expected, sizeof expected, "%d\n", (int)fw_process_id());
    assert_int_equal(fw_process_id(), getpid());
    char whole[256];
    char cut[2];
    fw_process_host_name(whole, sizeof whole);
    fw_process_host_name(cut, sizeof cut);
    assert_true(whole[0] != '\0' && cut[0] == whole[0] && cut[1] == '\0');
    assert_string_equal(found, expected);
    assert_int_equal(length, strlen(expected));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0644);
    fw_process_pid_file_remove(path);
    assert_int_equal(access(path, F_OK), -1);
    fw_process_pid_file_remove(path); /* Somebody else was faster. */
}

static void test_questions(void **state)
{
    (void)state;
    assert_int_equal(setenv("FAIRWAY_PROCESS_TEST", "here", 1), 0); /* NOLINT(*-mt-unsafe) */
    assert_string_equal(fw_process_variable("FAIRWAY_PROCESS_TEST"), "here");
    assert_null(fw_process_variable("FAIRWAY_PROCESS_TEST_NOT"));
    struct fw_process_usage usage = fw_process_usage();
    assert_int_equal(usage.user_us, 3000005);
    assert_int_equal(usage.system_us, 7000011);
}

#define TEST(test) cmocka_unit_test_setup(test, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_daemon),
        TEST(test_daemon_in_odd_surroundings),
        TEST(test_daemon_that_fails),
        TEST(test_no_daemon),
        TEST(test_become),
        TEST(test_files),
        TEST(test_files_left),
        TEST(test_core),
        TEST(test_memory),
        TEST(test_pid_file),
        TEST(test_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
