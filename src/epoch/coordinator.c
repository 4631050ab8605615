/* SPDX-License-Identifier: Apache-2.0 */
#include "epoch/coordinator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

int fw_epoch_coordinator_init(struct fw_epoch_coordinator *coordinator, uint64_t self,
                              const struct fw_epoch_config *config,
                              const struct fw_epoch_coordinator_events *events)
{
    FW_ASSERT(config->timeout_ns > 0 && config->combine != NULL);
    *coordinator = (struct fw_epoch_coordinator){.events = events, .config = *config, .self = self};
    coordinator->memory = malloc((size_t)FW_GROUP_MEMBERS_MAX * FW_EPOCH_DATA_MAX);
    if (coordinator->memory == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < FW_GROUP_MEMBERS_MAX; i++) {
        coordinator->peers[i].data = coordinator->memory + i * FW_EPOCH_DATA_MAX;
    }
    return 0;
}

void fw_epoch_coordinator_fini(struct fw_epoch_coordinator *coordinator)
{
    free(coordinator->memory);
    coordinator->memory = NULL;
}

/* ---- peers --------------------------------------------------------------------------------- */

/* Where the member is, or would be. */
static uint32_t peer_place(const struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    uint32_t place = 0;
    while (place < coordinator->count && coordinator->peers[place].member < member) {
        place++;
    }
    return place;
}

static struct fw_epoch_peer *peer_find(struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    uint32_t place = peer_place(coordinator, member);
    struct fw_epoch_peer *peer = &coordinator->peers[place];
    return place < coordinator->count && peer->member == member ? peer : NULL;
}

const struct fw_epoch_peer *
fw_epoch_coordinator_peer(const struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    uint32_t place = peer_place(coordinator, member);
    const struct fw_epoch_peer *peer = &coordinator->peers[place];
    return place < coordinator->count && peer->member == member ? peer : NULL;
}

static struct fw_epoch_peer *peer_add(struct fw_epoch_coordinator *coordinator, uint64_t member)
{
    uint32_t place = peer_place(coordinator, member);
    struct fw_epoch_peer *peers = coordinator->peers;
    FW_ASSERT(coordinator->count < FW_GROUP_MEMBERS_MAX); /* A view has no more. */
    char *data = peers[coordinator->count].data;
    memmove(&peers[place + 1], &peers[place], (coordinator->count - place) * sizeof *peers);
    coordinator->count++;
    peers[place] = (struct fw_epoch_peer){.member = member, .data = data};
    return &peers[place];
}

static void peer_remove(struct fw_epoch_coordinator *coordinator, struct fw_epoch_peer *peer)
{
    struct fw_epoch_peer *end = &coordinator->peers[coordinator->count];
    char *data = peer->data;
    coordinator->ready_count -= peer->is_ready;
    memmove(peer, peer + 1, (size_t)(end - peer - 1) * sizeof *peer);
    coordinator->count--;
    end[-1] = (struct fw_epoch_peer){.data = data};
}

static void peers_clear(struct fw_epoch_coordinator *coordinator)
{
    while (coordinator->count > 0) {
        peer_remove(coordinator, &coordinator->peers[coordinator->count - 1]);
    }
}

/* ---- epochs -------------------------------------------------------------------------------- */

/* Combines what the live ones gave; returns the length. */
static size_t data_reduce(struct fw_epoch_coordinator *coordinator)
{
    const struct fw_epoch_peer *peers = coordinator->peers;
    size_t length = peers[0].length;
    memcpy(coordinator->reduced, peers[0].data, length);
    for (uint32_t i = 1; i < coordinator->count; i++) {
        coordinator->config.combine(coordinator->reduced, coordinator->reduced, length,
                                    peers[i].data, peers[i].length);
        length = peers[i].length < length ? peers[i].length : length;
    }
    return length;
}

/* Nobody is ready. */
static void phase_rest(struct fw_epoch_coordinator *coordinator)
{
    if (coordinator->phase == FW_EPOCH_CLOSING) {
        coordinator->events->clock(coordinator, 0);
    }
    coordinator->phase = coordinator->count > 0 ? FW_EPOCH_WAITING : FW_EPOCH_IDLE;
}

static void epoch_start(struct fw_epoch_coordinator *coordinator)
{
    FW_ASSERT(coordinator->number < INT64_MAX);
    size_t length = data_reduce(coordinator);
    coordinator->number++;
    for (uint32_t i = 0; i < coordinator->count; i++) {
        coordinator->peers[i].is_ready = false;
    }
    coordinator->ready_count = 0;
    phase_rest(coordinator);
    coordinator->events->started(coordinator, peer_find(coordinator, coordinator->self),
                                 coordinator->reduced, length);
}

/* Somebody has become ready, or gone. */
static void epoch_consider(struct fw_epoch_coordinator *coordinator)
{
    if (coordinator->ready_count == 0) {
        phase_rest(coordinator);
    } else if (coordinator->ready_count == coordinator->count) {
        epoch_start(coordinator);
    }
}

static int64_t timeout_of_all(const struct fw_epoch_coordinator *coordinator)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < coordinator->count; i++) {
        int64_t timeout = coordinator->peers[i].timeout_ns;
        longest = timeout > longest ? timeout : longest;
    }
    return longest;
}

/* With a number that is new, also if all who knew the last one have gone. */
static void life_begin(struct fw_epoch_coordinator *coordinator)
{
    uint64_t view = coordinator->view.id;
    coordinator->incarnation =
        coordinator->incarnation < view ? view : coordinator->incarnation + 1;
}

static void next_take(struct fw_epoch_coordinator *coordinator, uint64_t sender,
                      const struct fw_epoch_message *next)
{
    struct fw_epoch_peer *peer = peer_find(coordinator, sender);
    bool is_first = next->number == FW_EPOCH_FIRST;
    bool is_current = peer != NULL && next->number == coordinator->number &&
                      next->incarnation == coordinator->incarnation;
    if (!is_first && !is_current) {
        return; /* It was evicted, or speaks of another life. */
    }
    if (peer == NULL) {
        if (coordinator->count == 0) {
            life_begin(coordinator);
        }
        peer = peer_add(coordinator, sender);
    }
    coordinator->ready_count += !peer->is_ready;
    peer->is_ready = true;
    peer->ticket = next->ticket;
    peer->timeout_ns = next->timeout_ns;
    peer->length = next->length;
    memcpy(peer->data, next->data, next->length);
    if (next->is_foreign && coordinator->config.swab != NULL) {
        coordinator->config.swab(peer->data, next->length);
    }
    if (coordinator->phase != FW_EPOCH_CLOSING) {
        coordinator->phase = FW_EPOCH_CLOSING;
        coordinator->events->clock(coordinator, timeout_of_all(coordinator));
    }
    epoch_consider(coordinator);
}

static void last_take(struct fw_epoch_coordinator *coordinator, uint64_t sender)
{
    struct fw_epoch_peer *peer = peer_find(coordinator, sender);
    if (peer != NULL) {
        peer_remove(coordinator, peer);
        epoch_consider(coordinator);
    }
}

static void timeout_take(struct fw_epoch_coordinator *coordinator,
                         const struct fw_epoch_message *timeout)
{
    if (coordinator->phase != FW_EPOCH_CLOSING || timeout->view != 0 ||
        timeout->incarnation != coordinator->incarnation ||
        timeout->number != coordinator->number) {
        return; /* Of an epoch that has started since. */
    }
    for (uint32_t i = coordinator->count; i-- > 0;) {
        struct fw_epoch_peer *peer = &coordinator->peers[i];
        if (!peer->is_ready) {
            uint64_t member = peer->member;
            peer_remove(coordinator, peer);
            coordinator->events->evicted(coordinator, member);
        }
    }
    epoch_consider(coordinator);
}

/* ---- views --------------------------------------------------------------------------------- */

static bool view_has(const struct fw_group_view *view, uint64_t member)
{
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->members[i] == member) {
            return true;
        }
    }
    return false;
}

/* All have told what they know: from here on all know the best of it. */
static void ask_finish(struct fw_epoch_coordinator *coordinator)
{
    const struct fw_epoch_message *best = &coordinator->best;
    coordinator->is_asking = false;
    coordinator->is_synchronised = true;
    coordinator->events->clock(coordinator, 0);
    peers_clear(coordinator);
    coordinator->incarnation =
        coordinator->has_best ? best->incarnation : coordinator->incarnation_max;
    coordinator->number = coordinator->has_best ? best->number : coordinator->number_max;
    for (uint32_t i = 0; coordinator->has_best && i < best->length; i++) {
        if (view_has(&coordinator->view, best->live[i].member)) {
            struct fw_epoch_peer *peer = peer_add(coordinator, best->live[i].member);
            peer->timeout_ns = best->live[i].timeout_ns;
        }
    }
    phase_rest(coordinator);
    coordinator->events->synchronised(coordinator);
}

static void ask_begin(struct fw_epoch_coordinator *coordinator)
{
    const struct fw_group_view *view = &coordinator->view;
    coordinator->is_asking = true;
    coordinator->asked_view = view->id;
    coordinator->awaited_count = view->count;
    memcpy(coordinator->awaited, view->members, view->count * sizeof view->members[0]);
    coordinator->has_best = false;
    coordinator->incarnation_max = 0;
    coordinator->number_max = 0;
    coordinator->events->clock(coordinator, coordinator->config.timeout_ns);
    coordinator->events->asks(coordinator);
}

void fw_epoch_coordinator_tell(const struct fw_epoch_coordinator *coordinator,
                               struct fw_epoch_message *state)
{
    *state = (struct fw_epoch_message){
        .kind = FW_EPOCH_STATE,
        .view = coordinator->asked_view,
        .is_synchronised = coordinator->is_synchronised,
        .incarnation = coordinator->incarnation,
        .number = coordinator->number,
        .length = coordinator->is_synchronised ? coordinator->count : 0,
    };
    for (uint32_t i = 0; i < state->length; i++) {
        state->live[i] = (struct fw_epoch_live){.member = coordinator->peers[i].member,
                                                .timeout_ns = coordinator->peers[i].timeout_ns};
    }
}

void fw_epoch_coordinator_complain(const struct fw_epoch_coordinator *coordinator,
                                   struct fw_epoch_message *timeout)
{
    *timeout = (struct fw_epoch_message){
        .kind = FW_EPOCH_TIMEOUT,
        .view = coordinator->is_asking ? coordinator->asked_view : 0,
        .incarnation = coordinator->incarnation,
        .number = coordinator->number,
    };
}

static bool state_is_better(const struct fw_epoch_coordinator *coordinator,
                            const struct fw_epoch_message *state)
{
    const struct fw_epoch_message *best = &coordinator->best;
    if (!coordinator->has_best || state->incarnation != best->incarnation) {
        return !coordinator->has_best || state->incarnation > best->incarnation;
    }
    return state->number > best->number;
}

static void awaited_remove(struct fw_epoch_coordinator *coordinator, uint32_t place)
{
    coordinator->awaited[place] = coordinator->awaited[--coordinator->awaited_count];
}

static void state_take(struct fw_epoch_coordinator *coordinator, uint64_t sender,
                       const struct fw_epoch_message *state)
{
    uint32_t place = 0;
    while (place < coordinator->awaited_count && coordinator->awaited[place] != sender) {
        place++;
    }
    if (state->view != coordinator->asked_view || place == coordinator->awaited_count) {
        return; /* For a view that is past. */
    }
    awaited_remove(coordinator, place);
    if (state->incarnation > coordinator->incarnation_max) {
        coordinator->incarnation_max = state->incarnation;
    }
    if (state->number > coordinator->number_max) {
        coordinator->number_max = state->number;
    }
    if (state->is_synchronised && state_is_better(coordinator, state)) {
        coordinator->best = *state;
        coordinator->has_best = true;
    }
    if (coordinator->awaited_count == 0) {
        ask_finish(coordinator);
    }
}

/* Those who are not in the view any more will say nothing. */
static void ask_reduce(struct fw_epoch_coordinator *coordinator)
{
    for (uint32_t i = coordinator->awaited_count; i-- > 0;) {
        if (!view_has(&coordinator->view, coordinator->awaited[i])) {
            awaited_remove(coordinator, i);
        }
    }
    if (coordinator->awaited_count == 0) {
        ask_finish(coordinator);
    }
}

static void peers_reduce(struct fw_epoch_coordinator *coordinator)
{
    for (uint32_t i = coordinator->count; i-- > 0;) {
        if (!view_has(&coordinator->view, coordinator->peers[i].member)) {
            peer_remove(coordinator, &coordinator->peers[i]);
        }
    }
    epoch_consider(coordinator);
}

void fw_epoch_coordinator_view(struct fw_epoch_coordinator *coordinator,
                               const struct fw_group_view *view)
{
    coordinator->view = *view;
    if (!view->is_quorate) {
        coordinator->is_asking = false;
        coordinator->is_synchronised = false;
        coordinator->events->clock(coordinator, 0);
        peers_clear(coordinator);
        coordinator->phase = FW_EPOCH_IDLE;
        coordinator->events->lost(coordinator);
    } else if (view->has_joined || (!coordinator->is_synchronised && !coordinator->is_asking)) {
        ask_begin(coordinator);
    } else if (coordinator->is_asking) {
        ask_reduce(coordinator);
    } else {
        peers_reduce(coordinator);
    }
}

void fw_epoch_coordinator_deliver(struct fw_epoch_coordinator *coordinator, uint64_t sender,
                                  const struct fw_epoch_message *message)
{
    if (!view_has(&coordinator->view, sender)) {
        return;
    }
    if (coordinator->is_asking) {
        if (message->kind == FW_EPOCH_STATE) {
            state_take(coordinator, sender, message);
        } else if (message->kind == FW_EPOCH_TIMEOUT && message->view == coordinator->asked_view) {
            ask_finish(coordinator); /* Without those who are silent. */
        }
        return; /* The rest will be said again. */
    }
    if (!coordinator->is_synchronised) {
        return;
    }
    switch (message->kind) {
    case FW_EPOCH_NEXT:
        next_take(coordinator, sender, message);
        break;
    case FW_EPOCH_LAST:
        last_take(coordinator, sender);
        break;
    case FW_EPOCH_TIMEOUT:
        timeout_take(coordinator, message);
        break;
    case FW_EPOCH_STATE:
        break; /* For a view that is past. */
    }
}
