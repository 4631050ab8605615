/* SPDX-License-Identifier: Apache-2.0 */
#include "io/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/parse.h"
#include "io/file.h"

enum { US_PER_S = 1000000, PID_TEXT_SIZE = 32 };

void fw_process_fill_standard(void)
{
    int fd;
    do { /* The lowest that is free is taken each time. */
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) {
        (void)close(fd);
    }
}

/* Where the old process listens for the word of the new one; -1: there is none. */
static int detach_fd = -1;

/* The old process: waits for the word, or for the end. */
static _Noreturn void parent_wait(pid_t child, int fd)
{
    char word;
    ssize_t count;
    do {
        count = read(fd, &word, 1);
    } while (count < 0 && errno == EINTR);
    int status = 0;
    if (count != 1) { /* It has ended without a word. */
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
    }
    _exit(status);
}

int fw_process_fork(struct fw_reason *reason)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fw_reason_errno(reason, -errno, "cannot become a daemon: pipe()");
    }
    pid_t child = fork();
    if (child < 0) {
        int rc = fw_reason_errno(reason, -errno, "cannot become a daemon: fork()");
        (void)close(ends[0]);
        (void)close(ends[1]);
        return rc;
    }
    if (child > 0) {
        (void)close(ends[1]);
        parent_wait(child, ends[0]);
    }
    (void)close(ends[0]);
    detach_fd = ends[1];
    (void)setsid();
    return 0;
}

void fw_process_detach(void)
{
    if (detach_fd < 0) {
        return;
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= 2; fd++) {
        (void)dup2(null, fd);
    }
    if (null > 2) {
        (void)close(null);
    }
    ssize_t written = write(detach_fd, "", 1);
    (void)written; /* The old process may have been killed. */
    (void)close(detach_fd);
    detach_fd = -1;
}

bool fw_process_is_root(void)
{
    return geteuid() == 0;
}

/* NOLINTBEGIN(concurrency-mt-unsafe): there is no second thread yet. */
static const struct passwd *user_find(const char *user)
{
    uint64_t number;
    const struct passwd *found = getpwnam(user);
    if (found == NULL && fw_parse_uint(user, strlen(user), 0, UINT32_MAX, &number) == 0) {
        found = getpwuid((uid_t)number);
    }
    return found;
}

int fw_process_errors_keep(void)
{
    return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

void fw_process_errors_restore(int kept)
{
    if (kept >= 0) {
        (void)dup2(kept, STDERR_FILENO);
        (void)close(kept);
    }
}

int fw_process_become(const char *user, struct fw_reason *reason)
{
    if (!fw_process_is_root()) {
        return 0;
    }
    const struct passwd *found = user_find(user);
    if (found == NULL) {
        return fw_reason_set(reason, -ENOENT, "there is no user '%.40s'; name one that exists",
                             user);
    }
    if (initgroups(found->pw_name, found->pw_gid) != 0 || setgid(found->pw_gid) != 0 ||
        setuid(found->pw_uid) != 0) {
        return fw_reason_errno(reason, -errno, "cannot become the user '%.40s'", user);
    }
    return 0;
}

const char *fw_process_variable(const char *name)
{
    return getenv(name);
}
/* NOLINTEND(concurrency-mt-unsafe) */

int fw_process_pid_file(const char *path, struct fw_reason *reason)
{
    char text[PID_TEXT_SIZE];
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    return fw_file_replace(path, text, (size_t)length, 0644, reason);
}

void fw_process_pid_file_remove(const char *path)
{
    (void)unlink(path); /* It may have been removed, or never have been ours to remove. */
}

uint64_t fw_process_allow_files(uint64_t count)
{
    struct rlimit limit;
    int rc = getrlimit(RLIMIT_NOFILE, &limit);
    FW_ASSERT(rc == 0);
    if (limit.rlim_cur >= count) {
        return limit.rlim_cur;
    }
    struct rlimit wanted = {.rlim_cur = limit.rlim_max < count ? limit.rlim_max : count,
                            .rlim_max = limit.rlim_max};
    return setrlimit(RLIMIT_NOFILE, &wanted) == 0 ? wanted.rlim_cur : limit.rlim_cur;
}

bool fw_process_has_files(uint64_t limit)
{
    int fd = eventfd(0, EFD_CLOEXEC); /* The system gives the lowest that is free. */
    if (fd < 0) {
        return false;
    }
    (void)close(fd);
    return (uint64_t)fd < limit;
}

int fw_process_allow_core(void)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &limit) == 0) {
        return 0;
    }
    if (getrlimit(RLIMIT_CORE, &limit) != 0) {
        return -errno;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_CORE, &limit) == 0 ? 0 : -errno;
}

int fw_process_lock_memory(void)
{
    return mlockall(MCL_CURRENT | MCL_FUTURE) == 0 ? 0 : -errno;
}

pid_t fw_process_id(void)
{
    return getpid();
}

void fw_process_host_name(char *name, size_t size)
{
    name[0] = '\0';
    (void)!gethostname(name, size); /* What does not fit is left out, and that is an error. */
    name[size - 1] = '\0';
}

struct fw_process_usage fw_process_usage(void)
{
    struct rusage usage;
    int rc = getrusage(RUSAGE_SELF, &usage);
    FW_ASSERT(rc == 0);
    return (struct fw_process_usage){
        .user_us = usage.ru_utime.tv_sec * US_PER_S + usage.ru_utime.tv_usec,
        .system_us = usage.ru_stime.tv_sec * US_PER_S + usage.ru_stime.tv_usec,
    };
}
