/* SPDX-License-Identifier: Apache-2.0 */
#include "ha/election.h"

#include <string.h>

#include "base/assert.h"

enum { CLOCKS_DIFFER_ONE_IN = 16 }; /* Far more than any clocks of machines do. */

/* How long it takes until a lease that has just begun is over, by anybody's clock. */
static int64_t lease_over_ns(const struct fw_election *election)
{
    return election->config.lease_ns + election->config.lease_ns / CLOCKS_DIFFER_ONE_IN;
}

static struct fw_election_member *member_find(struct fw_election *election, uint64_t number)
{
    for (uint32_t i = 0; i < election->member_count; i++) {
        if (election->members[i].number == number) {
            return &election->members[i];
        }
    }
    return NULL;
}

static uint64_t sequence_of(struct fw_election *election, uint64_t number)
{
    const struct fw_election_member *member = member_find(election, number);
    return member != NULL ? member->sequence : 0;
}

void fw_election_init(struct fw_election *election, const struct fw_election_config *config)
{
    FW_ASSERT(config->lease_ns > 0);
    *election = (struct fw_election){.config = *config};
}

void fw_election_view(struct fw_election *election, uint64_t self, const struct fw_group_view *view,
                      int64_t now_ns)
{
    bool is_holder =
        fw_election_is_holder(election) || (election->view != 0 && election->was_holder);
    election->self = self;
    election->was_holder = view->is_quorate && is_holder;
    election->view = view->is_quorate ? view->id : 0;
    election->holder = 0;
    election->is_free = false;
    election->quiet_ns = now_ns;
    election->said = 0;
    election->member_count = view->count;
    for (uint32_t i = 0; i < view->count; i++) {
        election->members[i] = (struct fw_election_member){.number = view->members[i]};
    }
}

void fw_election_stand(struct fw_election *election, const struct fw_ha_standing *standing,
                       int64_t asked_ns)
{
    election->standing = *standing;
    election->asked_ns = asked_ns;
}

void fw_election_leave(struct fw_election *election)
{
    election->is_leaving = true;
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* All places of the cluster are there, their servers answer, and nobody has a whole copy. */
static bool is_beginning(const struct fw_election *election)
{
    if (election->config.nodes == 0 || election->member_count < election->config.nodes) {
        return false;
    }
    for (uint32_t i = 0; i < election->member_count; i++) {
        const struct fw_election_member *member = &election->members[i];
        if (member->sequence == 0 || !member->standing.is_alive || member->standing.is_complete) {
            return false;
        }
    }
    return true;
}

/* Everything that was acknowledged is at one of those who have been heard, or at this one. */
static bool is_enough(const struct fw_election *election, const struct fw_ha_standing *standing)
{
    uint32_t heard = 0;
    bool is_last = election->reign == 0 || standing->history == election->reign;
    if (election->config.acks == 0 || (is_last && standing->is_master)) {
        return true;
    }
    if (!is_last || election->config.nodes == 0) {
        return false;
    }
    for (uint32_t i = 0; i < election->member_count; i++) {
        const struct fw_ha_standing *other = &election->members[i].standing;
        heard += election->members[i].sequence != 0 && other->is_alive && other->is_complete &&
                 other->history == standing->history;
    }
    return heard + election->config.acks >= election->config.nodes;
}

static bool is_eligible(const struct fw_election *election, const struct fw_ha_standing *standing)
{
    if (!standing->is_alive) {
        return false;
    }
    if (standing->is_allowed) {
        return true;
    }
    return standing->is_complete ? is_enough(election, standing) : is_beginning(election);
}

/* Is the first one better? Both are eligible. */
static bool is_better(const struct fw_election *election, const struct fw_election_member *a,
                      const struct fw_election_member *b)
{
    const struct fw_ha_standing *left = &a->standing;
    const struct fw_ha_standing *right = &b->standing;
    if (left->is_complete != right->is_complete) {
        return left->is_complete;
    }
    bool is_left_last = left->history == election->reign;
    bool is_right_last = right->history == election->reign;
    if (is_left_last != is_right_last) {
        return is_left_last;
    }
    if (left->history == right->history && left->position != right->position) {
        return left->position > right->position;
    }
    return left->is_master != right->is_master ? left->is_master : a->number < b->number;
}

/* Since when no lease can run any more, if nothing is said. */
static int64_t over_ns(const struct fw_election *election)
{
    return election->is_free ? election->quiet_ns : election->quiet_ns + lease_over_ns(election);
}

/* One that says nothing does not keep the others waiting for ever, if nothing hangs on it. */
static bool is_patience_over(const struct fw_election *election, int64_t now_ns)
{
    return election->config.acks == 0 && now_ns >= over_ns(election) + lease_over_ns(election);
}

/* The best of those that have been heard, and are still; NULL: nobody may serve. */
static const struct fw_election_member *best_find(const struct fw_election *election,
                                                  int64_t now_ns)
{
    const struct fw_election_member *best = NULL;
    bool is_late = is_patience_over(election, now_ns);
    for (uint32_t i = 0; i < election->member_count; i++) {
        const struct fw_election_member *member = &election->members[i];
        if (member->sequence != 0 && (member->is_settled || !is_late) &&
            is_eligible(election, &member->standing) &&
            (best == NULL || is_better(election, member, best))) {
            best = member;
        }
    }
    return best;
}

/* Have all been heard? `settled`: and said how they stand now that no lease can run. */
static bool are_all_heard(const struct fw_election *election, bool settled)
{
    for (uint32_t i = 0; i < election->member_count; i++) {
        const struct fw_election_member *member = &election->members[i];
        if (member->sequence == 0 ||
            (settled && member->standing.is_alive && !member->is_settled)) {
            return false;
        }
    }
    return true;
}

/* ---- speaking ------------------------------------------------------------------------------ */

static bool is_settled(const struct fw_election *election)
{
    return election->asked_ns >= over_ns(election);
}

/* May the own server go on to serve, or begin to? */
static bool is_fit(const struct fw_election *election, int64_t now_ns)
{
    const struct fw_ha_standing *standing = &election->standing;
    if (election->is_leaving || !standing->is_alive) {
        return false;
    }
    if (standing->is_master) {
        return true;
    }
    bool is_late =
        election->held_ns != 0 && now_ns - election->held_ns > election->config.patience_ns;
    return !is_late && (standing->is_complete || standing->is_allowed || election->is_beginning);
}

/* It is there, but does not want to be chosen. */
static bool is_shy(const struct fw_election *election, int64_t now_ns)
{
    return election->is_leaving || now_ns < election->shy_ns;
}

static bool may_claim(const struct fw_election *election, int64_t now_ns)
{
    const struct fw_election_member *best = best_find(election, now_ns);
    return !is_shy(election, now_ns) && now_ns >= over_ns(election) && best != NULL &&
           best->number == election->self &&
           (are_all_heard(election, true) || is_patience_over(election, now_ns));
}

bool fw_election_say(struct fw_election *election, int64_t now_ns, struct fw_ha_word *word)
{
    if (election->view == 0 || election->said != 0) {
        return false;
    }
    bool has = fw_election_is_holder(election) || election->was_holder;
    bool holds = has && is_fit(election, now_ns);
    *word = (struct fw_ha_word){
        .standing = is_shy(election, now_ns) ? (struct fw_ha_standing){0} : election->standing,
        .is_settled = is_settled(election),
        .holds = holds,
        .frees = has && !holds && now_ns >= election->until_ns,
        .claims = !has && may_claim(election, now_ns),
        .holder = election->holder,
        .holder_sequence = sequence_of(election, election->holder),
        .view = election->view,
        .sequence = ++election->sequence,
        .term = election->term,
        .reign = election->reign,
    };
    election->said = election->sequence;
    election->said_ns = now_ns;
    return true;
}

void fw_election_say_again(struct fw_election *election)
{
    election->said = 0;
}

/* ---- hearing ------------------------------------------------------------------------------- */

static void holder_set(struct fw_election *election, uint64_t holder, int64_t now_ns)
{
    election->holder = holder;
    election->is_free = false;
    election->quiet_ns = now_ns;
}

static void history_hear(struct fw_election *election, const struct fw_ha_word *word)
{
    if (word->term > election->term || (word->term == election->term && election->reign == 0)) {
        election->term = word->term;
        election->reign = word->reign;
    }
}

/* A claim counts if nothing has happened since. */
static void claim_hear(struct fw_election *election, uint64_t sender, uint64_t sequence_before,
                       const struct fw_ha_word *word, int64_t now_ns)
{
    if (word->holder != election->holder || word->holder_sequence != sequence_before) {
        return;
    }
    holder_set(election, sender, now_ns);
    election->term++;
    if (sender == election->self) {
        election->held_ns = now_ns;
        election->is_beginning = !word->standing.is_complete;
        election->until_ns = 0;
    }
}

static void own_hear(struct fw_election *election, const struct fw_ha_word *word, int64_t now_ns)
{
    election->said = election->said == word->sequence ? 0 : election->said;
    election->was_holder = false; /* It has said so, and the others have agreed or not. */
    if (word->holds && election->holder == election->self) {
        election->until_ns = election->said_ns + election->config.lease_ns;
        if (word->standing.is_master) {
            election->held_ns = 0;
            election->is_beginning = false;
        } else if (election->held_ns == 0) {
            election->held_ns = now_ns;
        }
    }
    if (word->frees) { /* If it never got the role others shall have the time to try. */
        bool is_late = election->standing.is_alive && !election->standing.is_master;
        election->shy_ns = is_late ? now_ns + election->config.patience_ns : 0;
        election->held_ns = 0;
    }
}

void fw_election_hear(struct fw_election *election, uint64_t sender, const struct fw_ha_word *word,
                      int64_t now_ns)
{
    struct fw_election_member *member = member_find(election, sender);
    if (election->view == 0 || word->view != election->view || member == NULL) {
        return;
    }
    uint64_t holder_sequence = sequence_of(election, election->holder);
    member->sequence = word->sequence;
    member->standing = word->standing;
    member->is_settled = word->is_settled;
    history_hear(election, word);
    if (word->claims) {
        claim_hear(election, sender, holder_sequence, word, now_ns);
    } else if (word->holds && (election->holder == 0 || election->holder == sender)) {
        holder_set(election, sender, now_ns);
        if (word->standing.is_master) {
            election->reign = word->standing.history;
        }
    } else if (word->frees && (election->holder == 0 || election->holder == sender)) {
        election->holder = 0;
        election->is_free = true;
        election->quiet_ns = now_ns;
    }
    if (sender == election->self) {
        own_hear(election, word, now_ns);
    }
}

/* ---- what follows -------------------------------------------------------------------------- */

int64_t fw_election_until(const struct fw_election *election)
{
    bool has = election->view != 0 && (election->holder == election->self || election->was_holder);
    return has ? election->until_ns : 0;
}

bool fw_election_must_resign(const struct fw_election *election)
{
    if (election->view == 0 || !election->standing.is_master || election->holder == 0 ||
        election->holder == election->self) {
        return false;
    }
    for (uint32_t i = 0; i < election->member_count; i++) {
        if (election->members[i].number == election->holder) {
            return election->members[i].standing.is_master;
        }
    }
    return false;
}

enum fw_election_gate fw_election_gate(const struct fw_election *election, int64_t now_ns)
{
    if (election->view == 0 || !election->standing.is_alive || is_shy(election, now_ns)) {
        return FW_ELECTION_CLOSED;
    }
    if (election->holder == election->self) {
        return is_fit(election, now_ns) ? FW_ELECTION_OPEN : FW_ELECTION_CLOSED;
    }
    for (uint32_t i = 0; i < election->member_count; i++) {
        const struct fw_election_member *member = &election->members[i];
        if (member->number == election->holder && now_ns < over_ns(election)) {
            /* One that has got the address by mistake passes it on. */
            bool can_succeed = member->standing.is_master && election->standing.is_complete &&
                               election->standing.history == election->reign &&
                               !election->standing.has_address;
            return can_succeed ? FW_ELECTION_OPEN : FW_ELECTION_CLOSED;
        }
    }
    /*
     * What is known of who has most changes with each word until no lease can run any more. A gate
     * that is closed and opened again costs what keepalived waits before it takes the address.
     */
    if (!are_all_heard(election, true) && now_ns < over_ns(election) + lease_over_ns(election)) {
        return FW_ELECTION_KEEP;
    }
    const struct fw_election_member *best = best_find(election, now_ns);
    return best != NULL && best->number == election->self ? FW_ELECTION_OPEN : FW_ELECTION_CLOSED;
}

int64_t fw_election_due_ns(const struct fw_election *election)
{
    if (election->view == 0 || fw_election_is_holder(election) || is_settled(election)) {
        return INT64_MAX;
    }
    return over_ns(election);
}
