/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever other agents and the own server say, an agent neither reads nor writes where it
 * should not, what it takes for a word it would say in the same bytes, and nobody else's word gives
 * it a lease.
 * Method: the input is read as figures; then as a series of words, each behind a byte that names
 * its sender, said to a member that has two peers and says nothing itself.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "ha/client.h"
#include "ha/election.h"

enum { SELF = 1, MEMBERS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void word_try(struct fw_election *election, uint64_t sender, const uint8_t *bytes,
                     int64_t now_ns)
{
    struct fw_ha_word word;
    char again[FW_HA_WORD_SIZE];
    if (fw_ha_word_read(&word, bytes, FW_HA_WORD_SIZE) != 0) {
        return;
    }
    fw_ha_word_write(&word, again);
    FW_ASSERT(memcmp(again, bytes, sizeof again) == 0);
    word.view = election->view; /* Else nothing of it would count. */
    fw_election_hear(election, sender, &word, now_ns);
    FW_ASSERT(election->holder <= MEMBERS);
    FW_ASSERT(sender == SELF || fw_election_until(election) == 0);
    (void)fw_election_gate(election, now_ns);
    (void)fw_election_must_resign(election);
    (void)fw_election_due_ns(election);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fw_election_config config = {
        .lease_ns = 1000, .patience_ns = 10000, .nodes = MEMBERS, .acks = 1};
    const struct fw_group_view view = {
        .id = 7, .members = {1, 2, 3}, .count = MEMBERS, .has_joined = true, .is_quorate = true};
    struct fw_election election;
    struct fw_ha_standing standing;
    struct fw_ha_word own;
    int64_t now_ns = 1;
    if (fw_ha_standing_read(&standing, (const char *)data, size) == 0) {
        FW_ASSERT(standing.is_alive);
    }
    fw_election_init(&election, &config);
    fw_election_view(&election, SELF, &view, now_ns);
    while (size > FW_HA_WORD_SIZE) {
        now_ns += data[0];
        word_try(&election, 2 + data[0] % 2, data + 1, now_ns);
        data += FW_HA_WORD_SIZE + 1;
        size -= FW_HA_WORD_SIZE + 1;
        if (fw_election_say(&election, now_ns, &own)) {
            FW_ASSERT(!own.holds && !own.frees); /* It never had it. */
            fw_election_say_again(&election);
        }
    }
    return 0;
}
