/* SPDX-License-Identifier: Apache-2.0 */
#include "server/guesses.h"

#include <inttypes.h>
#include <string.h>

#include <fairway/log.h>

#include "base/hash.h"
#include "server/state.h"

FW_LOG_MODULE_USE(server);

/* A slot: when, in seconds, and how often it failed, and the rest of the hash. */
enum { COUNT_SHIFT = 32, TAG_SHIFT = 48, COUNT_MAX = UINT16_MAX, NETWORK_BYTES = 8 };

void fw_guesses_init(struct fw_guesses *guesses, uint64_t seed)
{
    memset(guesses, 0, sizeof *guesses);
    guesses->seed = seed;
}

static uint32_t slot_note(_Atomic uint64_t *slots, uint64_t hash, uint32_t now_s)
{
    _Atomic uint64_t *slot = &slots[hash % FW_GUESS_SLOTS];
    /* Relaxed, both: a word of its own, and a lost count is no harm. */
    uint64_t old = atomic_load_explicit(slot, memory_order_relaxed);
    uint64_t tag = hash >> TAG_SHIFT;
    uint64_t count = old >> COUNT_SHIFT & COUNT_MAX;
    if (old >> TAG_SHIFT != tag || now_s - (uint32_t)old > FW_GUESS_FORGET_S) {
        count = 0;
    }
    count += count < COUNT_MAX ? 1 : 0;
    atomic_store_explicit(slot, tag << TAG_SHIFT | count << COUNT_SHIFT | now_s,
                          memory_order_relaxed);
    return (uint32_t)count;
}

static uint64_t address_hash(const struct fw_guesses *guesses, const struct fw_address *peer)
{
    switch (peer->any.sa_family) {
    case AF_INET:
        return fw_hash(&peer->ipv4.sin_addr, sizeof peer->ipv4.sin_addr, guesses->seed);
    case AF_INET6:
        return fw_hash(&peer->ipv6.sin6_addr, NETWORK_BYTES, guesses->seed);
    default:
        return fw_hash(NULL, 0, guesses->seed); /* All of this machine. */
    }
}

uint32_t fw_guesses_note(struct fw_guesses *guesses, const struct fw_address *peer,
                         const char *name, int64_t now_ns)
{
    uint32_t now_s = (uint32_t)(now_ns / FW_NS_PER_S);
    uint32_t of_address = slot_note(guesses->addresses, address_hash(guesses, peer), now_s);
    uint64_t hash = fw_hash(name, strlen(name), guesses->seed);
    uint32_t of_name = slot_note(guesses->names, hash, now_s);
    return of_address > of_name ? of_address : of_name;
}

int64_t fw_guess_delay_ns(uint32_t failures)
{
    int64_t delay = FW_GUESS_DELAY_NS;
    while (--failures > 0 && delay < FW_GUESS_DELAY_MAX_NS) {
        delay *= 2;
    }
    return delay < FW_GUESS_DELAY_MAX_NS ? delay : FW_GUESS_DELAY_MAX_NS;
}

/* The 1st, 2nd, 4th, 8th and so on: a log of each would be a weapon of its own. */
static bool is_worth_a_line(uint32_t failures)
{
    return (failures & (failures - 1)) == 0;
}

void fw_connection_penalise(struct fw_connection *connection)
{
    struct fw_server *server = connection->core->server;
    struct fw_session *session = &connection->session;
    const char *name = session->login != NULL ? session->login : "";
    struct fw_address peer = {.any.sa_family = AF_UNSPEC};
    (void)!fw_stream_peer(&connection->stream, &peer); /* Or it is nowhere. */
    uint32_t failures =
        fw_guesses_note(&server->guesses, &peer, name, fw_fom_now(&connection->fom));
    connection->penalty_ms = (uint16_t)(fw_guess_delay_ns(failures) / FW_NS_PER_MS);
    if (session->login_failures >= FW_GUESS_CLOSE) {
        connection->is_last = true;
        fw_counter_increment(&connection->core->metrics->login_kicks);
    }
    if (is_worth_a_line(failures)) {
        char text[FW_ADDRESS_TEXT_SIZE] = "this machine";
        if (peer.any.sa_family == AF_INET || peer.any.sa_family == AF_INET6) {
            fw_address_format(&peer, text);
        }
        FW_LOG(server, WARNING,
               "login failed: user '%s' from %s; %" PRIu32 " failures of that address or user, "
               "answers are delayed by %" PRId64 " ms",
               name, text, failures, fw_guess_delay_ns(failures) / FW_NS_PER_MS);
    }
    session->has_failed_login = false;
    fw_session_log_in(session, NULL, 0);
}

int64_t fw_connection_atoned_ns(const struct fw_connection *connection)
{
    /* Acquire, for the release in server.c. */
    if (connection->penalty_ms == 0 ||
        atomic_load_explicit(&connection->core->server->is_draining, memory_order_acquire)) {
        return 0;
    }
    /* Relaxed: its own. */
    return atomic_load_explicit(&connection->active_ns, memory_order_relaxed) +
           connection->penalty_ms * (int64_t)FW_NS_PER_MS;
}
