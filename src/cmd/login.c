/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/login.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"

enum { FILE_MAX = 64 * 1024, QUESTION_SIZE = FW_LOGIN_MAX + 64 };

int fw_login_read(struct fw_login *login, const char *path, struct fw_reason *reason)
{
    char *text;
    size_t size;
    login->words[0] = '\0';
    int rc = path != NULL ? fw_file_read_secret(path, FILE_MAX, &text, &size, reason) : 0;
    if (rc != 0 || path == NULL) {
        return rc;
    }
    size_t length = strcspn(text, "\r\n");
    char *colon = memchr(text, ':', length);
    if (colon == NULL || colon == text || length > FW_LOGIN_MAX || strcspn(text, " \t") < length) {
        rc = fw_reason_set(reason, -EINVAL,
                           "--login: %s has no line user:password, without spaces, of at most %d "
                           "characters",
                           path, FW_LOGIN_MAX);
    } else {
        *colon = ' ';
        memcpy(login->words, text, length);
        login->words[length] = '\0';
    }
    explicit_bzero(text, size);
    free(text);
    return rc;
}

/* Sends, and tells whether the line that comes back begins so. 0 or a negative errno. */
static int ask_line(struct fw_peer *peer, const char *question, const char *beginning, bool *is_so,
                    struct fw_reason *reason)
{
    size_t length, used;
    int rc = fw_peer_send(peer, question, strlen(question), reason);
    const char *line = rc == 0 ? fw_peer_line(peer, &length, &used, &rc, reason) : NULL;
    if (line != NULL) {
        size_t size = strlen(beginning);
        *is_so = length >= size && memcmp(line, beginning, size) == 0;
        fw_peer_take(peer, used);
    }
    return rc;
}

int fw_login_send(const struct fw_login *login, struct fw_peer *peer, struct fw_reason *reason)
{
    char question[QUESTION_SIZE];
    bool is_demanded = false;
    bool is_in = false;
    int rc = login->words[0] == '\0'
                 ? 0
                 : ask_line(peer, "version\r\n", "CLIENT_ERROR", &is_demanded, reason);
    if (rc != 0 || !is_demanded) {
        return rc;
    }
    (void)snprintf(question, sizeof question, "set login 0 0 %zu\r\n%s\r\n", strlen(login->words),
                   login->words);
    rc = ask_line(peer, question, "STORED", &is_in, reason);
    explicit_bzero(question, sizeof question);
    return rc != 0 || is_in
               ? rc
               : fw_reason_set(reason, -EACCES, "the server refuses the user or the password");
}
