/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives a fuzz target a main() of its own, where libFuzzer is not there to do so.
 *
 *     replay-NAME FILE|FOLDER...   runs each file once, and all files of a folder in the order of
 *                                  their names, one sub-test (TAP) per file
 *     replay-NAME                  runs what comes on standard input once; compiled by AFL++'s
 *                                  compilers, serves afl-fuzz, thousands of inputs per process
 *
 * The same program is thus AFL++'s target, the regression test that runs the corpora in every
 * build, and the way to see a crash again under a debugger. A target that crashes ends the program,
 * and a plan not fulfilled is a failure.
 */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_SIZE_MAX = 1 << 20, INPUTS_MAX = 100000, PATH_SIZE = 4096 };

#if defined(__AFL_COMPILER)
__AFL_FUZZ_INIT(); /* Declares the memory that AFL++ shares its inputs in. */
#endif

/* Gives the target a copy that ends where its memory ends, so that ASan sees a read beyond it. */
static void run_input(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size);
    if (copy == NULL && size > 0) {
        abort();
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* Reads all of `file` and runs it. Returns 0 or a negative errno. */
static int run_stream(FILE *file)
{
    static uint8_t input[INPUT_SIZE_MAX + 1];
    size_t size = fread(input, 1, sizeof input, file);
    if (ferror(file) != 0) {
        return -EIO;
    }
    if (size > INPUT_SIZE_MAX) {
        return -EFBIG;
    }
    run_input(input, size);
    return 0;
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return -errno;
    }
    int rc = run_stream(file);
    (void)fclose(file);
    return rc;
}

/* The paths to run. Owned here; the program ends before it would free them. */
static char *paths[INPUTS_MAX];
static int path_count;

static int add_path(const char *folder, const char *name)
{
    char path[PATH_SIZE];
    int length = snprintf(path, sizeof path, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
    if (length >= PATH_SIZE || path_count == INPUTS_MAX) {
        return -E2BIG;
    }
    paths[path_count] = strdup(path);
    if (paths[path_count] == NULL) {
        return -ENOMEM;
    }
    path_count++;
    return 0;
}

/* Hidden files, and what explains a corpus to its readers, are no inputs. */
static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "README.md") != 0;
}

/* An empty folder is an error: a test that ran nothing has tested nothing. */
static int add_folder(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_input, alphasort);
    if (count < 0) {
        return -errno;
    }
    int rc = count == 0 ? -ENOENT : 0;
    for (int i = 0; i < count; i++) {
        if (rc == 0) {
            rc = add_path(folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int add_argument(const char *argument)
{
    struct stat status;
    if (stat(argument, &status) != 0) {
        return -errno;
    }
    return S_ISDIR(status.st_mode) ? add_folder(argument) : add_path("", argument);
}

static int run_paths(void)
{
    int failed = 0;
    (void)printf("1..%d\n", path_count);
    for (int i = 0; i < path_count; i++) {
        /* Said before it runs, should these be the last words. */
        (void)fflush(stdout);
        (void)fprintf(stderr, "# %s\n", paths[i]);
        int rc = run_file(paths[i]);
        (void)printf("%s %d - %s%s%s\n", rc == 0 ? "ok" : "not ok", i + 1, paths[i],
                     rc == 0 ? "" : ": ", rc == 0 ? "" : strerrordesc_np(-rc));
        failed += rc == 0 ? 0 : 1;
    }
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Standard input, or whatever afl-fuzz sends. */
static int run_standard_input(void)
{
#if defined(__AFL_COMPILER)
    enum { INPUTS_PER_PROCESS = 10000 };
    __AFL_INIT();
    const uint8_t *data = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(INPUTS_PER_PROCESS)) {
        run_input(data, (size_t)__AFL_FUZZ_TESTCASE_LEN);
    }
    return EXIT_SUCCESS;
#else
    int rc = run_stream(stdin);
    if (rc != 0) {
        (void)fprintf(stderr, "standard input: %s\n", strerrordesc_np(-rc));
    }
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
#endif
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return run_standard_input();
    }
    for (int i = 1; i < argc; i++) {
        int rc = add_argument(argv[i]);
        if (rc != 0) {
            (void)printf("Bail out! %s: %s\n", argv[i], strerrordesc_np(-rc));
            return EXIT_FAILURE;
        }
    }
    return run_paths();
}
