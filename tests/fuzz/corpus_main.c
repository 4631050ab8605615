/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the files of a corpus through a fuzz target once, without a fuzzer: one sub-test (TAP) per
 * file. An input that broke us once is kept in the corpus and fails `make check` if it does again.
 * A target that crashes ends the program before its plan is fulfilled, which counts as a failure.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_SIZE_MAX = 1 << 20 };

static uint8_t input[INPUT_SIZE_MAX];

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "README.md") != 0;
}

/* False if the file cannot be read, or is longer than any input should be. */
static bool run_file(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    size_t size = fread(input, 1, sizeof input, file);
    bool whole = size < sizeof input && ferror(file) == 0;
    (void)fclose(file);
    if (!whole) {
        return false;
    }
    /* A buffer of exactly this size, so that AddressSanitizer sees a read beyond it. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, input, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return true;
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int count = argc == 2 ? scandir(argv[1], &entries, is_input, alphasort) : -1;
    if (count <= 0) {
        printf("Bail out! no corpus: %s\n", argc == 2 ? argv[1] : "name its folder");
        return 1;
    }
    printf("1..%d\n", count);
    int failed = 0;
    for (int i = 0; i < count; i++) {
        bool ok = run_file(argv[1], entries[i]->d_name);
        printf("%s %d - %s\n", ok ? "ok" : "not ok", i + 1, entries[i]->d_name);
        (void)fflush(stdout); /* Before the next input may crash. */
        failed += ok ? 0 : 1;
        free(entries[i]);
    }
    free(entries);
    return failed > 0 ? 1 : 0;
}
