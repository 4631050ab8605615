/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/auth.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"

/* User and password, with zeros behind them, so that all entries take equally long to compare. */
struct entry {
    uint16_t user_length;
    uint16_t password_length;
    char user[FW_AUTH_LINE_MAX];
    char password[FW_AUTH_LINE_MAX];
};

struct fw_auth {
    size_t count;
    struct entry entries[];
};

/* Both lengths fit. */
static void entry_fill(struct entry *entry, const char *user, size_t user_length,
                       const char *password, size_t password_length)
{
    memset(entry, 0, sizeof *entry);
    entry->user_length = (uint16_t)user_length;
    entry->password_length = (uint16_t)password_length;
    memcpy(entry->user, user, user_length);
    memcpy(entry->password, password, password_length);
}

static int entry_parse(struct entry *entry, const char *line, size_t length, size_t number,
                       const char *path, struct fw_reason *reason)
{
    if (length > FW_AUTH_LINE_MAX) {
        return fw_reason_set(reason, -EINVAL, "line %zu of '%s' has more than %d characters",
                             number, path, FW_AUTH_LINE_MAX);
    }
    const char *colon = memchr(line, ':', length);
    if (colon == NULL) {
        return fw_reason_set(reason, -EINVAL, "line %zu of '%s' should be 'user:password'", number,
                             path);
    }
    if (line[length - 1] == '\r') {
        return fw_reason_set(reason, -EINVAL, "line %zu of '%s' ends with a carriage return",
                             number, path);
    }
    size_t user_length = (size_t)(colon - line);
    entry_fill(entry, line, user_length, colon + 1, length - user_length - 1);
    return 0;
}

static size_t line_count(const char *contents, size_t size)
{
    size_t count = size > 0 && contents[size - 1] != '\n';
    for (size_t i = 0; i < size; i++) {
        count += contents[i] == '\n';
    }
    return count;
}

static int auth_parse(struct fw_auth **auth, const char *contents, size_t size, const char *path,
                      struct fw_reason *reason)
{
    size_t count = line_count(contents, size);
    if (count > FW_AUTH_ENTRIES_MAX) {
        return fw_reason_set(reason, -E2BIG, "'%s' has more than %d lines", path,
                             FW_AUTH_ENTRIES_MAX);
    }
    struct fw_auth *made = malloc(sizeof *made + count * sizeof made->entries[0]);
    if (made == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot keep the passwords of '%s'", path);
    }
    const char *end = contents + size;
    for (made->count = 0; made->count < count; made->count++) {
        const char *newline = memchr(contents, '\n', (size_t)(end - contents));
        size_t length = (size_t)((newline != NULL ? newline : end) - contents);
        int error = entry_parse(&made->entries[made->count], contents, length, made->count + 1,
                                path, reason);
        if (error != 0) {
            fw_auth_destroy(made);
            return error;
        }
        contents += length + 1;
    }
    *auth = made;
    return 0;
}

int fw_auth_load(struct fw_auth **auth, const char *path, struct fw_reason *reason)
{
    char *contents;
    size_t size;
    int error = fw_file_read_secret(path, (size_t)FW_AUTH_ENTRIES_MAX * (FW_AUTH_LINE_MAX + 1),
                                    &contents, &size, reason);
    if (error != 0) {
        return error;
    }
    error = auth_parse(auth, contents, size, path, reason);
    explicit_bzero(contents, size);
    free(contents);
    return error;
}

void fw_auth_destroy(struct fw_auth *auth)
{
    if (auth != NULL) {
        explicit_bzero(auth->entries, auth->count * sizeof auth->entries[0]);
        free(auth);
    }
}

/* Looks at every byte, wherever the first difference is. */
static bool entry_equals(const struct entry *entry, const struct entry *given)
{
    const unsigned char *left = (const unsigned char *)entry;
    const unsigned char *right = (const unsigned char *)given;
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof *entry; i++) {
        difference |= (unsigned)(left[i] ^ right[i]);
    }
    return difference == 0;
}

bool fw_auth_check(const struct fw_auth *auth, const char *user, size_t user_length,
                   const char *password, size_t password_length)
{
    if (user_length > FW_AUTH_LINE_MAX || password_length > FW_AUTH_LINE_MAX) {
        return false;
    }
    struct entry given;
    entry_fill(&given, user, user_length, password, password_length);
    bool found = false;
    for (size_t i = 0; i < auth->count; i++) {
        found |= entry_equals(&auth->entries[i], &given);
    }
    explicit_bzero(&given, sizeof given);
    return found;
}
