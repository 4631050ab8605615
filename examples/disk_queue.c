/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two programs that share only a disk: one sends the lines of its standard input, the other prints
 * them. Either may be killed and started again at any time; no line is lost, and at most those that
 * were being printed come twice.
 *
 *     disk_queue send PATH < lines        makes the queue if there is none
 *     disk_queue receive PATH COUNT       prints that many lines
 *
 * PATH is a block device that both hosts see, or a file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fairway/ring.h>

enum { LINE_SIZE = 4096, FILE_SIZE = 1 << 20, BATCH = 32 };

static struct fw_ring *ring;
static struct fw_ring_reason reason;

static int complain(const char *what, int rc)
{
    (void)fprintf(stderr, "disk_queue: cannot %s: %s\n", what, rc < 0 ? reason.text : "not now");
    return EXIT_FAILURE;
}

static void pause_a_little(void)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    (void)nanosleep(&moment, NULL);
}

static int attach(const char *path, enum fw_ring_role role)
{
    const struct fw_ring_options options = {
        .path = path, .role = role, .queue = "lines", .client = "disk_queue"};
    return fw_ring_attach(&ring, &options, &reason);
}

static int send_lines(const char *path)
{
    /* Format 2, since nobody else's program has to understand it. */
    const struct fw_ring_create create = {.path = path, .format = 2, .size = FILE_SIZE};
    char line[LINE_SIZE];
    int rc = fw_ring_create(&create, &reason);
    if (rc == 0) {
        rc = attach(path, FW_RING_PRODUCER);
    }
    if (rc != 0) {
        return complain("attach", rc);
    }
    while (rc == 0 && fgets(line, sizeof line, stdin) != NULL) {
        /* Full, or suspended: the push looks again each time, and answers the consumer. */
        while ((rc = fw_ring_push(ring, line, strcspn(line, "\n"), &reason)) > 0) {
            pause_a_little();
        }
    }
    fw_ring_detach(ring);
    return rc == 0 ? EXIT_SUCCESS : complain("push", rc);
}

/*
 * Prints what there is, then gives all of it back at once: after a crash in between it would be
 * printed again. Sets `left` to what is still wanted.
 */
static int receive_some(long *left)
{
    struct fw_ring_message message;
    uint64_t position = 0;
    int rc = 0;
    for (int i = 0; i<BATCH && * left> 0 && rc == 0; i++) {
        rc = fw_ring_pop(ring, &message, &position, &reason);
        if (rc == 0) {
            (void)printf("%.*s\n", (int)message.length, (const char *)message.data);
            --*left;
        }
    }
    if (rc >= 0 && position > 0 && fflush(stdout) == 0) {
        rc = fw_ring_advance(ring, position, &reason);
    } else if (rc == FW_RING_RETRY) {
        pause_a_little(); /* Nothing there. */
    }
    return rc == FW_RING_RETRY ? 0 : rc;
}

static int receive_lines(const char *path, long left)
{
    int rc = attach(path, FW_RING_CONSUMER);
    if (rc != 0) {
        return complain("attach", rc);
    }
    while (rc == 0 && left > 0) {
        rc = receive_some(&left);
    }
    fw_ring_detach(ring);
    return rc == 0 ? EXIT_SUCCESS : complain("receive", rc);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "send") == 0) {
        return send_lines(argv[2]);
    }
    if (argc == 4 && strcmp(argv[1], "receive") == 0) {
        return receive_lines(argv[2], strtol(argv[3], NULL, 10));
    }
    (void)fputs("usage: disk_queue send PATH | disk_queue receive PATH COUNT\n", stderr);
    return EXIT_FAILURE;
}
