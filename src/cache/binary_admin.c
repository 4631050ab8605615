/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about the server: flush, stat, version, quit, and logging in. */
#include "base/version.h"
#include "cache/auth.h"
#include "cache/binary.h"

enum fw_parsed fw_binary_noop(struct fw_binary *request)
{
    return fw_binary_succeed(request, 0);
}

enum fw_parsed fw_binary_quit(struct fw_binary *request)
{
    (void)fw_binary_succeed(request, 0);
    return FW_PARSED_CLOSE;
}

enum fw_parsed fw_binary_flush(struct fw_binary *request)
{
    struct fw_cache_local *local = request->local;
    if (!fw_cache_can_flush(local->cache)) {
        return fw_binary_fail(request, FW_BINARY_LOGIN_FAILED);
    }
    uint32_t given = request->extras_length > 0 ? fw_be32_get(request->extras) : 0;
    fw_operation_flush(local, fw_operation_flush_time(local, given));
    return fw_binary_succeed(request, 0);
}

enum fw_parsed fw_binary_verbosity(struct fw_binary *request)
{
    const struct fw_cache_host *host = &request->local->cache->host;
    host->set_verbosity(host->server, fw_be32_get(request->extras));
    return fw_binary_succeed(request, 0);
}

/* Answers success with a body, which also quiet requests get. */
static enum fw_parsed succeed_text(const struct fw_binary *request, const char *text)
{
    return fw_binary_answer_text(request, FW_BINARY_OK, text);
}

enum fw_parsed fw_binary_version(struct fw_binary *request)
{
    return succeed_text(request, FW_CACHE_VERSION);
}

/* The lengths are right, so the value can be dropped and the connection lives. */
static enum fw_parsed sasl_refuse(const struct fw_binary *request, enum fw_binary_status status)
{
    if (request->value_length > 0) {
        fw_session_swallow(request->session, request->value_length);
    }
    return fw_binary_fail(request, status);
}

enum fw_parsed fw_binary_sasl_list(struct fw_binary *request)
{
    if (request->local->cache->auth == NULL) {
        return sasl_refuse(request, FW_BINARY_UNKNOWN);
    }
    return succeed_text(request, "PLAIN");
}

/* PLAIN is: whom to act as (which is not looked at), a zero, the user, a zero, the password. */
static bool plain_log_in(const struct fw_binary *request, const struct fw_auth *auth,
                         const char *value, size_t length)
{
    const char *end = value + length;
    const char *user = memchr(value, 0, length);
    if (user == NULL) {
        return false;
    }
    user++;
    const char *password = memchr(user, 0, (size_t)(end - user));
    if (password == NULL) {
        return false;
    }
    size_t user_length = (size_t)(password - user);
    password++;
    if (!fw_auth_check(auth, user, user_length, password, (size_t)(end - password))) {
        fw_session_fail_login(request->session, request->input, user, user_length);
        return false;
    }
    fw_session_log_in(request->session, user, user_length);
    return true;
}

/*
 * The key is the mechanism, the value what that needs. Beginning without a value is answered with
 * "go on", and then the value comes with the second opcode, which here is the same as the first.
 * Without a password file both are unknown. Whoever fails is no longer logged in, though the
 * connection stays open, as with memcached.
 */
enum fw_parsed fw_binary_sasl_login(struct fw_binary *request)
{
    enum { BEGIN = 0x21, MECHANISM_LENGTH = 5, MECHANISM_MAX = 32 };
    const struct fw_auth *auth = request->local->cache->auth;
    if (auth == NULL) {
        return sasl_refuse(request, FW_BINARY_UNKNOWN);
    }
    if (request->key_length > MECHANISM_MAX) {
        return sasl_refuse(request, FW_BINARY_INVALID);
    }
    if (request->value_length > FW_ITEM_INLINE_MAX) {
        return sasl_refuse(request, FW_BINARY_NO_MEMORY);
    }
    if (!fw_binary_has_value(request)) {
        return FW_PARSED_INPUT;
    }
    const char *value = request->value;
    request->value += request->value_length;
    fw_session_log_in(request->session, NULL, 0);
    bool is_plain = request->key_length == MECHANISM_LENGTH &&
                    memcmp(request->key, "PLAIN", MECHANISM_LENGTH) == 0;
    if (is_plain && request->value_length == 0 && request->opcode == BEGIN) {
        return fw_binary_answer_text(request, FW_BINARY_LOGIN_MORE, "");
    }
    fw_counter_increment(&request->local->metrics->auth_cmds);
    if (!is_plain || !plain_log_in(request, auth, value, request->value_length)) {
        fw_counter_increment(&request->local->metrics->auth_errors);
        return fw_binary_fail(request, FW_BINARY_LOGIN_FAILED);
    }
    return succeed_text(request, "Authenticated");
}
