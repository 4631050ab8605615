/* SPDX-License-Identifier: Apache-2.0 */
#include "epoch/bus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* On its way: a message or a view. The same `order` at every member that gets it. */
struct event {
    struct fw_list_link link;
    uint64_t order;
    uint64_t sender; /* 0: a view. */
    bool is_lost;
    struct fw_group_view view;
    size_t length;
    char bytes[];
};

static struct event *event_create(const void *bytes, size_t length)
{
    struct event *event = calloc(1, sizeof *event + length);
    FW_ASSERT(event != NULL); /* For tests, where there is memory. */
    event->length = length;
    if (length > 0) {
        memcpy(event->bytes, bytes, length);
    }
    return event;
}

static void events_clear(struct fw_list *list)
{
    struct fw_list_link *link = NULL;
    while ((link = fw_list_pop_front(list)) != NULL) {
        free(FW_LIST_ENTRY(link, struct event, link));
    }
}

static struct fw_bus_member *member_of(struct fw_group *group)
{
    return FW_CONTAINER_OF(group, struct fw_bus_member, group);
}

static int member_send(struct fw_group *group, const void *bytes, size_t length)
{
    struct fw_bus_member *member = member_of(group);
    if (length > FW_GROUP_MESSAGE_MAX) {
        return -EMSGSIZE;
    }
    if (member->outgoing_count == FW_BUS_OUTGOING_MAX) {
        member->is_blocked = true;
        return -EAGAIN;
    }
    struct event *event = event_create(bytes, length);
    event->sender = group->self;
    fw_list_push_back(&member->outgoing, &event->link);
    member->outgoing_count++;
    return 0;
}

void fw_bus_init(struct fw_bus *bus, uint32_t places)
{
    FW_ASSERT(places > 0 && places <= FW_BUS_PLACES_MAX);
    *bus = (struct fw_bus){.place_count = places, .next_member = 1, .next_view = 1};
}

void fw_bus_fini(struct fw_bus *bus)
{
    for (uint32_t i = 0; i < bus->place_count; i++) {
        if (bus->places[i].is_taken) {
            events_clear(&bus->places[i].outgoing);
            events_clear(&bus->places[i].incoming);
        }
    }
}

static bool is_in(const struct fw_bus_member *member, uint32_t component)
{
    return member->is_taken && member->component == component;
}

/* Puts a copy in everybody's way who is in the component. */
static void component_append(struct fw_bus *bus, uint32_t component, const struct event *event)
{
    bus->next_order++;
    for (uint32_t i = 0; i < bus->place_count; i++) {
        if (is_in(&bus->places[i], component)) {
            struct event *copy = event_create(event->bytes, event->length);
            copy->sender = event->sender;
            copy->view = event->view;
            copy->order = bus->next_order;
            fw_list_push_back(&bus->places[i].incoming, &copy->link);
        }
    }
}

/* Tells a component who is in it. Places are in the order of members only by chance. */
static void component_announce(struct fw_bus *bus, uint32_t component)
{
    struct event *event = event_create(NULL, 0);
    struct fw_group_view *view = &event->view;
    view->id = bus->next_view++;
    for (uint32_t i = 0; i < bus->place_count; i++) {
        if (is_in(&bus->places[i], component)) {
            uint32_t place = view->count++;
            for (; place > 0 && view->members[place - 1] > bus->places[i].group.self; place--) {
                view->members[place] = view->members[place - 1];
            }
            view->members[place] = bus->places[i].group.self;
        }
    }
    view->is_quorate = view->count * 2 > bus->place_count;
    component_append(bus, component, event);
    free(event);
}

struct fw_group *fw_bus_join(struct fw_bus *bus, uint32_t place, uint32_t component)
{
    struct fw_bus_member *member = &bus->places[place];
    FW_ASSERT(place < bus->place_count && !member->is_taken);
    *member = (struct fw_bus_member){.bus = bus, .is_taken = true, .component = component};
    member->group = (struct fw_group){.send = member_send, .self = bus->next_member++};
    fw_list_init(&member->outgoing);
    fw_list_init(&member->incoming);
    component_announce(bus, component);
    return &member->group;
}

void fw_bus_leave(struct fw_bus *bus, uint32_t place)
{
    struct fw_bus_member *member = &bus->places[place];
    FW_ASSERT(member->is_taken);
    member->is_taken = false;
    events_clear(&member->outgoing);
    events_clear(&member->incoming);
    component_announce(bus, member->component);
}

bool fw_bus_order(struct fw_bus *bus, uint32_t place)
{
    struct fw_bus_member *member = &bus->places[place];
    struct fw_list_link *link = member->is_taken ? fw_list_pop_front(&member->outgoing) : NULL;
    if (link == NULL) {
        return false;
    }
    struct event *event = FW_LIST_ENTRY(link, struct event, link);
    member->outgoing_count--;
    component_append(bus, member->component, event);
    free(event);
    return true;
}

/* Somebody is new to this member: all are, at first. */
static bool member_hears(struct fw_bus_member *member, const struct fw_group_view *view)
{
    bool has_joined = false;
    for (uint32_t i = 0; i < view->count; i++) {
        uint32_t place = 0;
        while (place < member->heard_count && member->heard[place] != view->members[i]) {
            place++;
        }
        has_joined = has_joined || place == member->heard_count;
    }
    memcpy(member->heard, view->members, view->count * sizeof view->members[0]);
    member->heard_count = view->count;
    return has_joined;
}

bool fw_bus_step(struct fw_bus *bus, uint32_t place)
{
    struct fw_bus_member *member = &bus->places[place];
    if (!member->is_taken) {
        return false;
    }
    struct fw_group *group = &member->group;
    if (member->is_blocked && member->outgoing_count < FW_BUS_OUTGOING_MAX) {
        member->is_blocked = false;
        group->events->writable(group);
    }
    struct fw_list_link *link = fw_list_pop_front(&member->incoming);
    if (link == NULL) {
        return false;
    }
    struct event *event = FW_LIST_ENTRY(link, struct event, link);
    if (event->sender != 0) {
        group->events->delivered(group, event->sender, event->bytes, event->length);
    } else {
        event->view.has_joined = member_hears(member, &event->view);
        group->events->viewed(group, &event->view);
    }
    free(event);
    return true;
}

/* ---- components ---------------------------------------------------------------------------- */

static bool event_was_delivered(const struct fw_bus_member *member, uint64_t order)
{
    FW_LIST_FOR_EACH (&member->incoming, struct event, link, event) {
        if (event->order >= order) {
            return event->order > order;
        }
    }
    return true;
}

/* Of those who were with `member` and stay with it: has one got it, or is one its sender? */
static bool event_is_known(const struct fw_bus *bus, const struct fw_bus_member *member,
                           const uint32_t *components, const struct event *event)
{
    uint32_t own = (uint32_t)(member - bus->places);
    for (uint32_t i = 0; i < bus->place_count; i++) {
        const struct fw_bus_member *other = &bus->places[i];
        if (is_in(other, member->component) && components[i] == components[own] &&
            (other->group.self == event->sender || event_was_delivered(other, event->order))) {
            return true;
        }
    }
    return false;
}

/* Marks what the member will not get: of what stands behind all views, what none of them knows. */
static void member_mark(const struct fw_bus *bus, struct fw_bus_member *member,
                        const uint32_t *components)
{
    uint64_t begin = 0;
    FW_LIST_FOR_EACH (&member->incoming, struct event, link, event) {
        begin = event->sender == 0 ? event->order : begin;
    }
    FW_LIST_FOR_EACH (&member->incoming, struct event, link, event) {
        event->is_lost = event->order > begin && !event_is_known(bus, member, components, event);
    }
}

static void member_sweep(struct fw_bus_member *member)
{
    struct fw_list kept;
    struct fw_list lost;
    struct fw_list_link *link = NULL;
    fw_list_init(&kept);
    fw_list_init(&lost);
    while ((link = fw_list_pop_front(&member->incoming)) != NULL) {
        const struct event *event = FW_LIST_ENTRY(link, struct event, link);
        fw_list_push_back(event->is_lost ? &lost : &kept, link);
    }
    fw_list_append(&member->incoming, &kept);
    events_clear(&lost);
}

void fw_bus_arrange(struct fw_bus *bus, const uint32_t *components, bool loses)
{
    for (uint32_t i = 0; loses && i < bus->place_count; i++) {
        if (bus->places[i].is_taken) {
            member_mark(bus, &bus->places[i], components);
        }
    }
    for (uint32_t i = 0; i < bus->place_count; i++) {
        if (bus->places[i].is_taken) {
            member_sweep(&bus->places[i]);
        }
        bus->places[i].component = components[i];
    }
    for (uint32_t i = 0; i < bus->place_count; i++) {
        bool is_told = false;
        for (uint32_t j = 0; j < i; j++) {
            is_told = is_told || is_in(&bus->places[j], components[i]);
        }
        if (bus->places[i].is_taken && !is_told) {
            component_announce(bus, components[i]);
        }
    }
}
