/* SPDX-License-Identifier: Apache-2.0 */
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file.h"

enum {
    SAID_SIZE = 4096,
    VARIABLES = 8,
    LOG_MODE = 0640,
    STAT_THREADS = 20, /* Which field of /proc/PID/stat has the number of threads. */
};

/* What the program sees of our environment: where things are, and no more. */
struct surroundings {
    char path[SAID_SIZE];
    char *variables[VARIABLES];
};

static void surroundings_make(struct surroundings *around)
{
    static char language[] = "LC_ALL=C";
    const char *path = getenv("PATH"); /* NOLINT(concurrency-mt-unsafe): nobody sets it. */
    (void)snprintf(around->path, sizeof around->path, "PATH=%s:/usr/sbin:/sbin",
                   path != NULL ? path : "/usr/bin:/bin");
    memset(around->variables, 0, sizeof around->variables);
    around->variables[0] = around->path;
    around->variables[1] = language;
}

/* posix_spawnp() looks in our own PATH, which need not have /usr/sbin. */
static int spawn_anywhere(pid_t *child, const char *const *arguments,
                          const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes)
{
    static const char *const folders[] = {"/usr/sbin/", "/sbin/"};
    struct surroundings around;
    char path[SAID_SIZE];
    surroundings_make(&around);
    char *const *own = (char *const *)(const void *)arguments;
    int rc = posix_spawnp(child, arguments[0], actions, attributes, own, around.variables);
    for (size_t i = 0; rc == ENOENT && i < FW_ARRAY_LENGTH(folders); i++) {
        (void)snprintf(path, sizeof path, "%s%s", folders[i], arguments[0]);
        rc = posix_spawn(child, path, actions, attributes, own, around.variables);
    }
    return -rc;
}

/* Starts it with these descriptors for stdout and stderr. */
static int spawn(pid_t *child, const char *const *arguments, const int outs[2], bool session,
                 struct fw_reason *reason)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    (void)sigemptyset(&none);
    (void)sigemptyset(&usual);
    (void)sigaddset(&usual, SIGPIPE);
    (void)sigaddset(&usual, SIGXFSZ);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, outs[0], STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, outs[1], STDERR_FILENO);
    (void)posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &usual);
    (void)posix_spawnattr_setflags(&attributes,
                                   (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                           (session ? POSIX_SPAWN_SETSID : 0)));
    int rc = spawn_anywhere(child, arguments, &actions, &attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot run %.100s", arguments[0]);
}

/* ---- one that ends ---- */

struct said {
    int fd;
    char *text;
    size_t size; /* Room, with the zero byte; 0: not wanted. */
    size_t length;
};

/* Reads what is there. False: there will be no more. What does not fit is forgotten. */
static bool said_read(struct said *said)
{
    char scratch[SAID_SIZE];
    ssize_t count = read(said->fd, scratch, sizeof scratch);
    if (count <= 0) {
        return count < 0 && errno == EINTR;
    }
    size_t room = said->size > 0 ? said->size - 1 - said->length : 0;
    size_t fits = (size_t)count < room ? (size_t)count : room;
    if (fits > 0) {
        memcpy(said->text + said->length, scratch, fits);
        said->length += fits;
    }
    return true;
}

/* Both at once: a program that has much to say to the one must not wait for the other. */
static void said_all(struct said said[2])
{
    bool is_open[2] = {true, true};
    while (is_open[0] || is_open[1]) {
        struct pollfd polls[2] = {{.fd = is_open[0] ? said[0].fd : -1, .events = POLLIN},
                                  {.fd = is_open[1] ? said[1].fd : -1, .events = POLLIN}};
        if (poll(polls, 2, -1) < 0) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (polls[i].revents != 0) {
                is_open[i] = said_read(&said[i]);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        if (said[i].size > 0) {
            said[i].text[said[i].length] = '\0';
        }
    }
}

static const char *last_line(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '\n') {
        text[--length] = '\0';
    }
    const char *line = strrchr(text, '\n');
    line = line != NULL ? line + 1 : text;
    return line + strspn(line, " ");
}

int fw_spawn_wait(pid_t child)
{
    int status = 0;
    pid_t ended;
    do {
        ended = waitpid(child, &status, 0);
    } while (ended < 0 && errno == EINTR);
    return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

static int failed(const char *program, char *errors, struct fw_reason *reason)
{
    const char *line = last_line(errors);
    return line[0] != '\0' ? fw_reason_set(reason, -ECHILD, "%.40s: %.180s", program, line)
                           : fw_reason_set(reason, -ECHILD, "%.100s failed", program);
}

int fw_spawn_run(const char *const *arguments, char *output, size_t size, struct fw_reason *reason)
{
    char errors[SAID_SIZE];
    int pipes[2][2] = {{-1, -1}, {-1, -1}};
    pid_t child;
    int rc = 0;
    if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0) {
        rc = fw_reason_errno(reason, -errno, "cannot run %.100s", arguments[0]);
    }
    if (rc == 0) {
        const int outs[2] = {pipes[0][1], pipes[1][1]};
        rc = spawn(&child, arguments, outs, false, reason);
    }
    for (int i = 0; i < 2; i++) {
        if (pipes[i][1] >= 0) {
            (void)close(pipes[i][1]);
        }
    }
    if (rc == 0) {
        struct said said[2] = {
            {.fd = pipes[0][0], .text = output, .size = output != NULL ? size : 0},
            {.fd = pipes[1][0], .text = errors, .size = sizeof errors}};
        said_all(said);
        rc = fw_spawn_wait(child) == 0 ? 0 : failed(arguments[0], errors, reason);
    }
    for (int i = 0; i < 2; i++) {
        if (pipes[i][0] >= 0) {
            (void)close(pipes[i][0]);
        }
    }
    return rc;
}

/* ---- one that stays ---- */

int fw_spawn_start(const char *const *arguments, const char *log_path, pid_t *child,
                   struct fw_reason *reason)
{
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, LOG_MODE);
    if (fd < 0) {
        return fw_reason_errno(reason, -errno, "cannot open %.150s", log_path);
    }
    const int outs[2] = {fd, fd};
    int rc = spawn(child, arguments, outs, true, reason);
    (void)close(fd);
    return rc;
}

/*
 * One that has ended keeps its number until its parent asks for it, and a parent that adopted it
 * may take its time. Its first thread may end before others do: what the process has open is open
 * until the last one has ended.
 */
static bool has_ended(pid_t process)
{
    char path[64];
    char *text;
    size_t size;
    bool is_zombie = false;
    int threads = 2;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    if (fw_file_read(path, SAID_SIZE, &text, &size, NULL) != 0) {
        return false;
    }
    const char *rest = strrchr(text, ')'); /* Behind the name, which may be anything. */
    for (int field = 2; rest != NULL && field < STAT_THREADS; field++) {
        is_zombie = is_zombie || (field == 2 && rest[1] == ' ' && rest[2] == 'Z');
        rest = strchr(rest + 1, ' ');
    }
    if (rest != NULL) {
        threads = (int)strtol(rest, NULL, 10);
    }
    free(text);
    return is_zombie && threads <= 1;
}

bool fw_spawn_is_alive(pid_t process)
{
    return kill(process, 0) == 0 ? !has_ended(process) : errno == EPERM;
}

int fw_spawn_signal(pid_t process, int number)
{
    return kill(process, number) == 0 ? 0 : -errno;
}
