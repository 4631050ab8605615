/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in two steps that are done whole although the program may die in between.
 *
 *     journal JOURNAL FOLDER NAME...      for each name makes FOLDER/NAME and then FOLDER/NAME.done
 *
 * With DIE=NAME in its environment the program dies between the two steps of that name. Started
 * again, with names or without, it finishes first what it had begun. Each step bears to be done
 * twice, which is all that the journal asks for.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fairway/journal.h>

enum { PATH_SIZE = 4096, JOURNAL_SIZE = 64 << 10 };

static int file_make(const char *folder, const char *name, size_t length, const char *suffix)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/%.*s%s", folder, (int)length, name, suffix);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -errno;
    }
    return fclose(file) == 0 ? 0 : -EIO;
}

static int perform(const void *data, size_t length, void *context)
{
    const char *folder = context;
    const char *victim = getenv("DIE"); /* NOLINT(concurrency-mt-unsafe): nobody sets it. */
    int rc = file_make(folder, data, length, "");
    if (rc != 0) {
        return rc; /* It is tried again. */
    }
    if (victim != NULL && strlen(victim) == length && memcmp(victim, data, length) == 0) {
        _exit(3);
    }
    return file_make(folder, data, length, ".done");
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fputs("usage: journal JOURNAL FOLDER NAME...\n", stderr);
        return EXIT_FAILURE;
    }
    const struct fw_journal_options options = {.path = argv[1],
                                               .size = JOURNAL_SIZE,
                                               .client = "example",
                                               .perform = perform,
                                               .context = argv[2],
                                               .attempts_max = 5};
    struct fw_journal *journal;
    struct fw_ring_reason reason;
    int rc = fw_journal_open(&journal, &options, &reason);
    if (rc != 0) {
        (void)fprintf(stderr, "journal: %s\n", reason.text);
        return EXIT_FAILURE;
    }
    for (int i = 3; rc == 0 && i < argc; i++) {
        rc = fw_journal_perform(journal, argv[i], strlen(argv[i]), &reason);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "journal: %s\n", reason.text);
    }
    fw_journal_close(journal);
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
