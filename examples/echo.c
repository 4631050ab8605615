/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line-echo server: sends every line back. One fom accepts, one fom per connection echoes; both
 * wait for their descriptor and hold no thread meanwhile.
 *
 *     echo 7000 &    listens on 127.0.0.1:7000 (0: on a port that it prints), until it is told to
 *                    stop by SIGINT or SIGTERM
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fairway/engine.h>

enum { ACCEPT = FW_PHASE_FIRST };      /* Of a listener. */
enum { READ = FW_PHASE_FIRST, WRITE }; /* Of a connection. */
enum { LINE_MAX = 4096, CONNECTIONS_MAX = 10000, GRACE_S = 5 };

/* Both kinds of fom wait for a descriptor, in the same way. */
struct source {
    struct fw_fom fom; /* Comes first. */
    int fd;
    struct fw_channel channel; /* Signalled when the descriptor may be ready again. */
    struct fw_clink clink;
    struct fw_descriptor *descriptor;
};

struct connection {
    struct source source;
    size_t have; /* Bytes in `line`. */
    size_t sent;
    size_t to_send; /* Up to the last whole line. */
    char line[LINE_MAX];
};

/* In INITIALISE, on the fom's own turn: there its channel belongs. */
static int source_initialise(struct fw_fom *fom)
{
    struct source *source = FW_FOM_OF(fom, struct source);
    fw_channel_init(&source->channel);
    fw_channel_set_name(&source->channel, "socket");
    return fw_descriptor_open(&source->descriptor, source->fd, &source->channel);
}

static void source_finish(struct fw_fom *fom)
{
    struct source *source = FW_FOM_OF(fom, struct source);
    if (source->descriptor != NULL) {
        fw_descriptor_close(source->descriptor);
        fw_channel_fini(&source->channel);
    }
    (void)close(source->fd);
}

/* After a call that failed: would it have blocked? */
static enum fw_step wait_or_fail(struct fw_fom *fom)
{
    return errno == EAGAIN ? fw_fom_wait(fom, fom->phase) : fw_fom_fail(fom, -errno);
}

static enum fw_step connection_tick(struct fw_fom *fom)
{
    struct connection *self = FW_FOM_OF(fom, struct connection);
    struct source *source = &self->source;
    if (fom->phase == FW_PHASE_FAILED) {
        return fw_fom_finish(fom); /* The client went away, or the server stops. */
    }
    fw_fom_arm(fom, &source->clink, &source->channel); /* 1. arm */
    if (fom->phase == READ) {
        ssize_t got =
            read(source->fd, self->line + self->have, LINE_MAX - self->have); /* 2. look */
        if (got < 0) {
            return wait_or_fail(fom); /* 3. wait */
        }
        self->have += (size_t)got;
        const char *end = memrchr(self->line, '\n', self->have);
        bool is_full = self->have == LINE_MAX; /* A longer line is echoed in parts. */
        self->to_send = end != NULL ? (size_t)(end + 1 - self->line) : is_full ? LINE_MAX : 0;
        return got == 0 ? fw_fom_finish(fom) : fw_fom_goto(fom, self->to_send > 0 ? WRITE : READ);
    }
    ssize_t put =
        send(source->fd, self->line + self->sent, self->to_send - self->sent, MSG_NOSIGNAL);
    if (put < 0) {
        return wait_or_fail(fom);
    }
    self->sent += (size_t)put;
    if (self->sent < self->to_send) {
        return fw_fom_goto(fom, WRITE);
    }
    self->have -= self->sent;
    memmove(self->line, self->line + self->sent, self->have);
    self->sent = 0;
    return fw_fom_goto(fom, READ);
}

static const struct fw_phase connection_phases[] = {
    {"READ", FW_PHASE_BIT(WRITE) | FW_PHASE_BIT(FW_PHASE_FINISHED), .is_patient = true},
    {"WRITE", FW_PHASE_BIT(READ), .is_patient = false}, /* Who does not read for long is failed. */
};
static const struct fw_fom_type connection_type = {
    .name = "connection",
    .size = sizeof(struct connection),
    .limit_count = CONNECTIONS_MAX,
    .phases = connection_phases,
    .phase_count = 2,
    .initialise = source_initialise,
    .tick = connection_tick,
    .finish = source_finish,
};

static enum fw_step listener_tick(struct fw_fom *fom)
{
    struct source *self = FW_FOM_OF(fom, struct source);
    if (fom->phase == FW_PHASE_FAILED) {
        return fw_fom_finish(fom);
    }
    fw_fom_arm(fom, &self->clink, &self->channel);
    int fd = accept4(self->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return errno == ECONNABORTED ? fw_fom_yield(fom, ACCEPT) : wait_or_fail(fom);
    }
    struct fw_fom *made;
    struct fw_domain *domain = fw_fom_domain(fom);
    struct fw_locality *home = fw_domain_home_by_load(domain);
    if (fw_fom_create(&made, domain, &connection_type, home) != 0) {
        (void)close(fd); /* Too many, or the server stops. */
    } else {
        FW_FOM_OF(made, struct source)->fd = fd;
        fw_fom_start(made);
    }
    return fw_fom_yield(fom, ACCEPT); /* There may be more; the others first. */
}

static const struct fw_phase listener_phases[] = {{"ACCEPT", 0, .is_patient = true}};
static const struct fw_fom_type listener_type = {
    .name = "listener",
    .size = sizeof(struct source),
    .limit_count = 1,
    .phases = listener_phases,
    .phase_count = 1,
    .initialise = source_initialise,
    .tick = listener_tick,
    .finish = source_finish,
};

/* A socket that listens, or -1 and a message. */
static int listen_on(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        perror("echo: cannot listen");
        return -1;
    }
    (void)printf("listening on 127.0.0.1:%u\n", ntohs(address.sin_port));
    (void)fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    int fd = listen_on(argc > 1 ? (uint16_t)strtoul(argv[1], NULL, 10) : 0);
    struct fw_domain *domain;
    struct fw_fom *listener;
    const struct fw_domain_config config = {.locality_count = 0}; /* As the machine suggests. */
    if (fd < 0 || fw_domain_create(&domain, &config) != 0 ||
        fw_domain_add_type(domain, &listener_type) != 0 ||
        fw_domain_add_type(domain, &connection_type) != 0 || fw_domain_start(domain) != 0 ||
        fw_fom_create(&listener, domain, &listener_type, NULL) != 0) {
        (void)fputs("echo: cannot start\n", stderr);
        return EXIT_FAILURE;
    }
    FW_FOM_OF(listener, struct source)->fd = fd;
    fw_fom_start(listener);
    int number;
    (void)sigwait(&signals, &number);
    uint64_t failed = fw_domain_stop(domain, GRACE_S * INT64_C(1000000000));
    fw_domain_destroy(domain);
    (void)printf("stopped, %llu failed\n", (unsigned long long)failed);
    return EXIT_SUCCESS;
}
