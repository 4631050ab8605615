/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what Corosync calls becomes views as group.h promises them, with the quorum, the members
 * and the id that belong together; a busy Corosync stops nobody, a dead one is noticed and joined
 * anew, a stuck one is not waited for. Method: Corosync's library is replaced by the functions
 * here, which play what it was seen to do, call by call. How it really behaves is tests/cluster's.
 */
#include "epoch/corosync.h"

#include <corosync/cmap.h>
#include <corosync/corotypes.h>
#include <corosync/cpg.h>
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/thread.h"
#include "io/clock.h"

enum { CALLS_MAX = 512, VIEWS_MAX = 32, NODES_MAX = 70, NODE_KEYS = 6 };

/* ---- the library --------------------------------------------------------------------------- */

/* One thing that cpg_dispatch() does: a call, or an error. */
struct call {
    enum call_kind { DELIVER, MEMBERS, RING, FAIL } kind;
    struct cpg_address members[NODES_MAX], left[NODES_MAX], joined[NODES_MAX];
    size_t member_count, left_count, joined_count;
    uint64_t ring;
    uint32_t nodes[NODES_MAX];
    uint32_t node_count;
};

/*
 * What it plays. Set before a group is opened, or while the attempt's thread waits: it takes the
 * rest from here, and the socket by which it answers orders the two.
 */
static cpg_model_v1_data_t model;
static void *context;
static int ends[2] = {-1, -1}; /* The connection: ours, which is the group's; Corosync's. */
static struct call calls[CALLS_MAX];
static uint32_t call_next, call_count;
static cs_error_t initialize_error, join_error, mcast_error;
static uint32_t node_keys; /* Keys of the configuration that the iterator shows. */
static uint32_t mcast_count;
static atomic_int initialize_count, finalize_count;
static atomic_bool is_stuck; /* Whoever connects waits until it is not. */
static char joined_name[CPG_MAX_NAME_LENGTH];

static void nap(void)
{
    struct fw_parker parker;
    fw_parker_init(&parker);
    (void)fw_park_for(&parker, FW_NS_PER_MS);
}

cs_error_t cpg_model_initialize(cpg_handle_t *handle, cpg_model_t version, cpg_model_data_t *given,
                                void *given_context)
{
    assert_int_equal(version, CPG_MODEL_V1);
    assert_null(given_context);
    (void)atomic_fetch_add(&initialize_count, 1);
    while (atomic_load(&is_stuck)) {
        nap();
    }
    if (initialize_error != CS_OK) {
        return initialize_error;
    }
    memcpy(&model, given, sizeof model);
    int rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
    *handle = 7;
    return rc == 0 ? CS_OK : CS_ERR_LIBRARY;
}

cs_error_t cpg_finalize(cpg_handle_t handle)
{
    assert_int_equal(handle, 7);
    char byte;
    assert_int_equal(recv(ends[1], &byte, 1, 0), 0); /* It was shut down before. */
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)atomic_fetch_add(&finalize_count, 1);
    return CS_OK;
}

cs_error_t cpg_local_get(cpg_handle_t handle, unsigned int *node)
{
    assert_int_equal(handle, 7);
    *node = 1;
    return CS_OK;
}

cs_error_t cpg_join(cpg_handle_t handle, const struct cpg_name *name)
{
    assert_int_equal(handle, 7);
    memcpy(joined_name, name->value, name->length);
    joined_name[name->length] = '\0';
    return join_error;
}

cs_error_t cpg_fd_get(cpg_handle_t handle, int *fd)
{
    assert_int_equal(handle, 7);
    *fd = ends[0];
    return CS_OK;
}

cs_error_t cpg_context_set(cpg_handle_t handle, void *given)
{
    assert_int_equal(handle, 7);
    context = given;
    return CS_OK;
}

cs_error_t cpg_context_get(cpg_handle_t handle, void **given)
{
    assert_int_equal(handle, 7);
    *given = context;
    return CS_OK;
}

cs_error_t cpg_mcast_joined(cpg_handle_t handle, cpg_guarantee_t guarantee,
                            const struct iovec *pieces, unsigned int count)
{
    assert_int_equal(handle, 7);
    assert_int_equal(guarantee, CPG_TYPE_AGREED);
    assert_int_equal(count, 1);
    assert_memory_equal(pieces[0].iov_base, "word", 4);
    mcast_count += mcast_error == CS_OK;
    return mcast_error;
}

cs_error_t cpg_dispatch(cpg_handle_t handle, cs_dispatch_flags_t flags)
{
    assert_int_equal(handle, 7);
    assert_int_equal(flags, CS_DISPATCH_ONE_NONBLOCKING);
    char byte;
    (void)!read(ends[0], &byte, 1);
    if (call_next == call_count) {
        return CS_ERR_TRY_AGAIN;
    }
    const struct call *call = &calls[call_next++];
    switch (call->kind) {
    case DELIVER:
        model.cpg_deliver_fn(handle, NULL, 2, 22, (char[]){"word"}, 4);
        return CS_OK;
    case MEMBERS:
        model.cpg_confchg_fn(handle, NULL, call->members, call->member_count, call->left,
                             call->left_count, call->joined, call->joined_count);
        return CS_OK;
    case RING:
        model.cpg_totem_confchg_fn(handle, (struct cpg_ring_id){.nodeid = 1, .seq = call->ring},
                                   call->node_count, call->nodes);
        return CS_OK;
    case FAIL:
        break;
    }
    return CS_ERR_LIBRARY;
}

cs_error_t cmap_initialize(cmap_handle_t *handle)
{
    *handle = 8;
    return CS_OK;
}

cs_error_t cmap_finalize(cmap_handle_t handle)
{
    assert_int_equal(handle, 8);
    return CS_OK;
}

static uint32_t key_next;

cs_error_t cmap_iter_init(cmap_handle_t handle, const char *prefix, cmap_iter_handle_t *iterator)
{
    assert_int_equal(handle, 8);
    assert_string_equal(prefix, "nodelist.node.");
    *iterator = 9;
    key_next = 0;
    return CS_OK;
}

cs_error_t cmap_iter_next(cmap_handle_t handle, cmap_iter_handle_t iterator, char key[],
                          size_t *length, cmap_value_types_t *type)
{
    static const char *const keys[NODE_KEYS] = {
        "nodelist.node.0.nodeid",     "nodelist.node.0.ring0_addr", "nodelist.node.1.nodeid",
        "nodelist.node.1.ring0_addr", "nodelist.node.2.ring0_addr", "nodelist.node.2.ring1_addr",
    };
    assert_int_equal(handle, 8);
    assert_int_equal(iterator, 9);
    if (key_next == node_keys) {
        return CS_ERR_NO_SECTIONS;
    }
    (void)snprintf(key, CMAP_KEYNAME_MAXLEN + 1, "%s", keys[key_next++]);
    *length = 0;
    *type = CMAP_VALUETYPE_STRING;
    return CS_OK;
}

cs_error_t cmap_iter_finalize(cmap_handle_t handle, cmap_iter_handle_t iterator)
{
    assert_int_equal(handle, 8);
    assert_int_equal(iterator, 9);
    return CS_OK;
}

cs_error_t cmap_get_uint32(cmap_handle_t handle, const char *key, uint32_t *value)
{
    assert_int_equal(handle, 8);
    *value = strcmp(key, "runtime.config.totem.token") == 0 ? 300 : 360;
    return CS_OK;
}

/* ---- a group, and who uses it -------------------------------------------------------------- */

static struct fw_reactor *reactor;
static struct fw_group *group;
static struct fw_group_view views[VIEWS_MAX];
static uint32_t view_count;
static uint32_t delivered_count;
static uint32_t writable_count;
static bool is_closed;
static uint32_t own_pid;

static void on_delivered(struct fw_group *of, uint64_t sender, const void *bytes, size_t length)
{
    assert_ptr_equal(of, group);
    assert_int_equal(sender, UINT64_C(2) << 32 | 22);
    assert_int_equal(length, 4);
    assert_memory_equal(bytes, "word", 4);
    delivered_count++;
}

static void on_viewed(struct fw_group *of, const struct fw_group_view *view)
{
    assert_ptr_equal(of, group);
    assert_true(view_count < VIEWS_MAX);
    views[view_count++] = *view;
}

static void on_writable(struct fw_group *of)
{
    assert_ptr_equal(of, group);
    writable_count++;
}

static const struct fw_group_events events = {
    .delivered = on_delivered,
    .viewed = on_viewed,
    .writable = on_writable,
};

static void on_closed(void *argument)
{
    assert_ptr_equal(argument, &is_closed);
    is_closed = true;
}

static void group_open(uint32_t node_count)
{
    struct fw_reason reason;
    struct fw_corosync_options options = {.group_name = "cache", .node_count = node_count};
    assert_int_equal(fw_corosync_open(&group, reactor, &options, &reason), 0);
    group->events = &events;
}

static void group_close(void)
{
    is_closed = false;
    fw_corosync_close(group, on_closed, &is_closed);
    while (!is_closed) {
        (void)fw_reactor_poll(reactor, -1);
    }
    group = NULL;
}

static int descriptors_count(void)
{
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    int count = 0;
    while (readdir(folder) != NULL) { /* NOLINT(concurrency-mt-unsafe): a stream of our own. */
        count++;
    }
    (void)closedir(folder);
    return count;
}

static int descriptors_at_first;

/* Until no attempt plays any more with what is about to be changed: it closes its end last. */
static void attempts_wait(void)
{
    while (descriptors_count() > descriptors_at_first) {
        nap();
    }
}

static bool is_joined(void)
{
    struct fw_corosync_status status;
    fw_corosync_status(group, &status);
    return status.is_joined;
}

/* Corosync has something to say. */
static void ring_bell(void)
{
    assert_int_equal(write(ends[1], "!", 1), 1);
}

/* Until everything that it was to play has been played. */
static void play(void)
{
    ring_bell();
    while (call_next < call_count) {
        (void)fw_reactor_poll(reactor, -1);
    }
}

static struct call *call_add(enum call_kind kind)
{
    assert_true(call_count < CALLS_MAX);
    struct call *call = &calls[call_count++];
    *call = (struct call){.kind = kind};
    return call;
}

/* Addresses of a process on each of the nodes, which "123" names; 22 and 33 on 2 and 3. */
static size_t addresses_fill(struct cpg_address *addresses, const char *nodes, uint32_t reason)
{
    size_t count = strlen(nodes);
    for (size_t i = 0; i < count; i++) {
        uint32_t node = (uint32_t)(nodes[i] - '0');
        addresses[i] = (struct cpg_address){
            .nodeid = node, .pid = node == 1 ? own_pid : node * 11, .reason = reason};
    }
    return count;
}

static void add_members(const char *members, const char *left, uint32_t left_reason,
                        const char *joined, uint32_t joined_reason)
{
    struct call *call = call_add(MEMBERS);
    call->member_count = addresses_fill(call->members, members, 0);
    call->left_count = addresses_fill(call->left, left, left_reason);
    call->joined_count = addresses_fill(call->joined, joined, joined_reason);
}

static void add_ring(uint64_t ring, const char *nodes)
{
    struct call *call = call_add(RING);
    call->ring = ring;
    call->node_count = (uint32_t)strlen(nodes);
    for (uint32_t i = 0; i < call->node_count; i++) {
        call->nodes[i] = (uint32_t)(nodes[i] - '0');
    }
}

/* The view that was told last, but for so many. */
static const struct fw_group_view *view_last(uint32_t back)
{
    assert_true(view_count > back);
    return &views[view_count - 1 - back];
}

static void view_check(const struct fw_group_view *view, const char *members, bool has_joined,
                       bool is_quorate)
{
    assert_int_equal(view->count, strlen(members));
    for (uint32_t i = 0; i < view->count; i++) {
        uint64_t node = (uint64_t)(members[i] - '0');
        assert_int_equal(view->members[i], node << 32 | (node == 1 ? own_pid : node * 11));
    }
    assert_int_equal(view->has_joined, has_joined);
    assert_int_equal(view->is_quorate, is_quorate);
    assert_true(view->id != 0);
}

static int set_up(void **state)
{
    (void)state;
    own_pid = (uint32_t)getpid();
    initialize_error = join_error = mcast_error = CS_OK;
    node_keys = NODE_KEYS;
    call_next = call_count = 0;
    view_count = delivered_count = writable_count = mcast_count = 0;
    atomic_store(&initialize_count, 0);
    atomic_store(&finalize_count, 0);
    atomic_store(&is_stuck, false);
    int rc = fw_reactor_create(&reactor, NULL);
    descriptors_at_first = descriptors_count();
    return rc;
}

/* As the third of three that come, in a ring of three. */
static int set_up_joined(void **state)
{
    int rc = set_up(state);
    group_open(0);
    while (!is_joined()) {
        (void)fw_reactor_poll(reactor, -1);
    }
    add_members("321", "", 0, "1", CPG_REASON_JOIN);
    add_ring(4, "123");
    play();
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    if (group != NULL) {
        group_close();
    }
    attempts_wait();
    fw_reactor_destroy(reactor);
    return 0;
}

/* ---- views --------------------------------------------------------------------------------- */

static void test_first_view_waits_for_the_ring(void **state)
{
    (void)set_up(state);
    group_open(0);
    while (!is_joined()) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_string_equal(joined_name, "cache");
    add_members("321", "", 0, "1", CPG_REASON_JOIN);
    (void)call_add(DELIVER);
    play();
    assert_int_equal(view_count, 0);
    add_ring(4, "123");
    play();
    assert_int_equal(view_count, 1);
    view_check(view_last(0), "123", true, true);
    assert_int_equal(group->self, UINT64_C(1) << 32 | own_pid);
    struct fw_corosync_status status;
    fw_corosync_status(group, &status);
    assert_int_equal(status.node_count, 3);
    assert_int_equal(status.ring_count, 3);
    assert_int_equal(status.token_ns, INT64_C(300) * FW_NS_PER_MS);
    assert_int_equal(status.consensus_ns, INT64_C(360) * FW_NS_PER_MS);
}

/* Processes come and go: told at once, as it is in the ring that is known. */
static void test_processes(void **state)
{
    (void)state;
    uint64_t all = view_last(0)->id;
    add_members("12", "3", CPG_REASON_PROCDOWN, "", 0);
    play();
    view_check(view_last(0), "12", false, true);
    add_members("1", "2", CPG_REASON_LEAVE, "", 0);
    play();
    view_check(view_last(0), "1", false, true);
    add_members("12", "", 0, "2", CPG_REASON_JOIN);
    play();
    view_check(view_last(0), "12", true, true);
    assert_int_equal(view_count, 4);
    for (uint32_t i = 0; i < 3; i++) { /* That with 2 again has one more who is new. */
        assert_int_not_equal(view_last(i)->id, view_last(i + 1)->id);
    }
    assert_int_not_equal(view_last(0)->id, view_last(2)->id);
    assert_int_not_equal(view_last(0)->id, all);
}

/* Who was there and who is new compute the same id from what they are told. */
static void test_id_is_the_same_for_all(void **state)
{
    (void)state;
    uint64_t as_new = view_last(0)->id; /* 1 came to 2 and 3, as 1 saw it. */
    add_members("12", "3", CPG_REASON_PROCDOWN, "", 0);
    add_members("123", "", 0, "3", CPG_REASON_JOIN); /* As one sees it who was there. */
    play();
    assert_int_equal(view_last(0)->id, as_new);
    add_members("123", "", 0, "3", CPG_REASON_NODEUP);
    add_ring(8, "123");
    play();
    assert_int_not_equal(view_last(0)->id, as_new); /* Another ring. */
}

/* A ring that is told of twice makes one view: those who were there are told once. */
static void test_ring_is_told_twice(void **state)
{
    (void)state;
    add_ring(4, "123"); /* As at the start. */
    play();
    assert_int_equal(view_count, 1);
    add_members("12", "3", CPG_REASON_PROCDOWN, "", 0);
    play();
    assert_int_equal(view_count, 2);
    add_ring(8, "123"); /* But another one is news. */
    play();
    assert_int_equal(view_count, 3);
}

/* Nodes go: members first, the ring behind them; one view. */
static void test_node_goes_and_returns(void **state)
{
    (void)state;
    add_members("12", "3", CPG_REASON_NODEDOWN, "", 0);
    play();
    assert_int_equal(view_count, 1);
    add_ring(8, "12");
    play();
    assert_int_equal(view_count, 2);
    view_check(view_last(0), "12", false, true);
    add_members("123", "", 0, "3", CPG_REASON_NODEUP);
    add_ring(12, "123");
    play();
    assert_int_equal(view_count, 3);
    view_check(view_last(0), "123", true, true);
}

static void test_cut_off(void **state)
{
    (void)state;
    add_members("1", "23", CPG_REASON_NODEDOWN, "", 0);
    add_ring(8, "1");
    play();
    assert_int_equal(view_count, 2);
    view_check(view_last(0), "1", false, false);
    add_members("123", "", 0, "23", CPG_REASON_NODEUP);
    add_ring(12, "123");
    play();
    assert_int_equal(view_count, 3);
    view_check(view_last(0), "123", true, true);
}

/* The ring breaks and is whole again before anybody is told: the minority was away. */
static void test_was_away(void **state)
{
    (void)state;
    add_members("1", "23", CPG_REASON_NODEDOWN, "", 0);
    add_members("123", "", 0, "23", CPG_REASON_NODEUP);
    add_ring(8, "123");
    play();
    assert_int_equal(view_count, 3);
    view_check(view_last(1), "1", false, false);
    view_check(view_last(0), "123", true, true);
}

/* The same for those who stayed together. */
static void test_another_was_away(void **state)
{
    (void)state;
    add_members("12", "3", CPG_REASON_NODEDOWN, "", 0);
    add_members("123", "", 0, "3", CPG_REASON_NODEUP);
    add_ring(8, "123");
    play();
    assert_int_equal(view_count, 2);
    view_check(view_last(0), "123", true, true);
    add_members("13", "2", CPG_REASON_NODEDOWN, "", 0); /* What was is not counted again. */
    add_members("123", "", 0, "2", CPG_REASON_NODEUP);
    add_ring(12, "123");
    play();
    assert_int_equal(view_count, 3);
}

/* One comes and another goes before the ring is there. */
static void test_one_comes_another_goes(void **state)
{
    (void)state;
    add_members("12", "3", CPG_REASON_NODEDOWN, "", 0);
    add_ring(8, "12");
    add_members("123", "", 0, "3", CPG_REASON_NODEUP);
    add_members("13", "2", CPG_REASON_NODEDOWN, "", 0);
    add_ring(12, "13");
    play();
    assert_int_equal(view_count, 3);
    view_check(view_last(0), "13", true, true);
}

/* Two processes of one node are one node. */
static void test_nodes_count_once(void **state)
{
    (void)state;
    add_members("12", "33", CPG_REASON_NODEDOWN, "", 0);
    add_members("123", "", 0, "3", CPG_REASON_NODEUP);
    add_ring(8, "123");
    play();
    assert_int_equal(view_count, 2);
    view_check(view_last(0), "123", true, true);
}

/* Nodes that run nothing of ours decide about the quorum too. */
static void test_quorum_without_members(void **state)
{
    (void)state;
    add_members("1", "23", CPG_REASON_LEAVE, "", 0);
    add_ring(8, "1");
    play();
    view_check(view_last(0), "1", false, false);
    add_ring(12, "13");
    play();
    view_check(view_last(0), "1", false, true);
}

/* The number of nodes can be given. */
static void test_node_count_given(void **state)
{
    (void)set_up(state);
    node_keys = 0;
    group_open(4);
    while (!is_joined()) {
        (void)fw_reactor_poll(reactor, -1);
    }
    add_members("1", "", 0, "1", CPG_REASON_JOIN);
    add_ring(4, "12");
    play();
    view_check(view_last(0), "1", true, false);
    add_ring(8, "123");
    play();
    view_check(view_last(0), "1", false, true);
}

/* ---- sending ------------------------------------------------------------------------------- */

static void test_busy(void **state)
{
    (void)state;
    assert_int_equal(fw_group_send(group, "word", 4), 0);
    assert_int_equal(mcast_count, 1);
    mcast_error = CS_ERR_TRY_AGAIN;
    assert_int_equal(fw_group_send(group, "word", 4), -EAGAIN);
    assert_int_equal(writable_count, 0); /* Never from inside the call. */
    while (writable_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    mcast_error = CS_OK;
    assert_int_equal(fw_group_send(group, "word", 4), 0);
    play();
    (void)fw_reactor_poll(reactor, 0);
    assert_int_equal(writable_count, 1);
    struct fw_corosync_status status;
    fw_corosync_status(group, &status);
    assert_int_equal(status.refused, 1);
}

static void test_too_long(void **state)
{
    (void)state;
    static char bytes[FW_GROUP_MESSAGE_MAX + 1];
    assert_int_equal(fw_group_send(group, bytes, sizeof bytes), -EMSGSIZE);
}

/* Whoever else has something to do gets a turn in between. */
static void test_flood(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        (void)call_add(DELIVER);
    }
    ring_bell();
    while (delivered_count < 300) {
        uint32_t before = delivered_count;
        (void)fw_reactor_poll(reactor, -1);
        assert_true(delivered_count - before <= 150); /* By the watch, and by the alarm. */
    }
    assert_int_equal(delivered_count, 300);
}

/* ---- coming and going ---------------------------------------------------------------------- */

static void test_corosync_dies_and_returns(void **state)
{
    (void)state;
    (void)call_add(FAIL);
    play();
    view_check(view_last(0), "1", false, false);
    assert_false(is_joined());
    assert_int_equal(fw_group_send(group, "word", 4), -ENOTCONN);
    struct fw_corosync_status status;
    fw_corosync_status(group, &status);
    assert_non_null(strstr(status.reason, "ended"));
    while (!is_joined()) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(atomic_load(&finalize_count), 1);
    add_members("321", "", 0, "1", CPG_REASON_JOIN);
    play();
    assert_int_equal(view_count, 2); /* The old ring is not taken for the new one. */
    add_ring(8, "123");
    play();
    view_check(view_last(0), "123", true, true);
    fw_corosync_status(group, &status);
    assert_int_equal(status.connected, 2);
    assert_string_equal(status.reason, "");
}

static void test_send_finds_it_dead(void **state)
{
    (void)state;
    mcast_error = CS_ERR_LIBRARY;
    assert_int_equal(fw_group_send(group, "word", 4), -ENOTCONN);
    assert_int_equal(view_count, 1); /* Not from inside the call. */
    while (view_count < 2) {
        (void)fw_reactor_poll(reactor, -1);
    }
    view_check(view_last(0), "1", false, false);
}

static void test_too_many_members(void **state)
{
    (void)state;
    struct call *call = call_add(MEMBERS);
    call->member_count = FW_GROUP_MEMBERS_MAX + 1;
    for (uint32_t i = 0; i < call->member_count; i++) {
        call->members[i] = (struct cpg_address){.nodeid = 1, .pid = own_pid + i};
    }
    play();
    view_check(view_last(0), "1", false, false);
    assert_false(is_joined());
}

static void test_dropped(void **state)
{
    (void)state;
    add_members("23", "1", CPG_REASON_LEAVE, "", 0);
    play();
    assert_false(is_joined());
    view_check(view_last(0), "1", false, false);
}

/* Why it cannot join is told, and the group is alone. */
static void refused_check(cs_error_t initialize, cs_error_t join, const char *why)
{
    initialize_error = initialize;
    join_error = join;
    view_count = 0;
    group_open(0);
    while (view_count == 0) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(view_last(0)->count, 1);
    assert_false(view_last(0)->is_quorate);
    struct fw_corosync_status status;
    fw_corosync_status(group, &status);
    assert_false(status.is_joined);
    assert_non_null(strstr(status.reason, why));
    group_close();
    attempts_wait();
}

static void test_tries_again(void **state)
{
    (void)state;
    initialize_error = CS_ERR_LIBRARY;
    group_open(0);
    while (atomic_load(&initialize_count) < 3) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_int_equal(view_count, 1); /* It is alone, and knows that. */
}

static void test_refused(void **state)
{
    (void)state;
    refused_check(CS_ERR_LIBRARY, CS_OK, "is it running?");
    refused_check(CS_ERR_ACCESS, CS_OK, "uidgid.d");
    refused_check(CS_OK, CS_ERR_EXIST, "in the group already");
    refused_check(CS_OK, CS_ERR_INVALID_PARAM, "cpg_join");
    node_keys = 0;
    refused_check(CS_OK, CS_OK, "nodelist");
}

static void test_bad_name(void **state)
{
    (void)state;
    char name[FW_COROSYNC_NAME_MAX + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct fw_corosync_options options = {.group_name = name};
    struct fw_reason reason;
    assert_int_equal(fw_corosync_open(&group, reactor, &options, &reason), -EINVAL);
    options.group_name = "";
    assert_int_equal(fw_corosync_open(&group, reactor, &options, &reason), -EINVAL);
    name[sizeof name - 2] = '\0';
    options.group_name = name;
    assert_int_equal(fw_corosync_open(&group, reactor, &options, &reason), 0);
    group->events = &events;
    while (!is_joined()) {
        (void)fw_reactor_poll(reactor, -1);
    }
    assert_string_equal(joined_name, name);
}

/* A Corosync that is stopped holds up the attempt's thread, and nobody else. */
static void test_close_while_stuck(void **state)
{
    (void)state;
    atomic_store(&is_stuck, true);
    group_open(0);
    while (atomic_load(&initialize_count) == 0) {
        (void)fw_reactor_poll(reactor, FW_NS_PER_MS);
    }
    group_close();
    assert_int_equal(atomic_load(&finalize_count), 0);
    atomic_store(&is_stuck, false);
    while (atomic_load(&finalize_count) == 0) {
        nap(); /* The thread found nobody, and ended the connection. */
    }
}

/* The answer is there, but nobody has looked yet. */
static void test_close_before_the_answer_is_taken(void **state)
{
    (void)state;
    group_open(0);
    while (atomic_load(&initialize_count) == 0) {
        (void)fw_reactor_poll(reactor, FW_NS_PER_MS);
    }
    group_close();
    while (atomic_load(&finalize_count) == 0) {
        nap();
    }
    assert_int_equal(view_count, 0);
}

static void test_descriptors(void **state)
{
    (void)state;
    group_open(0);
    while (!is_joined()) {
        (void)fw_reactor_poll(reactor, -1);
    }
    group_close();
    assert_int_equal(atomic_load(&finalize_count), 1);
    attempts_wait(); /* None of the group's is left; else this waits for ever. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first_view_waits_for_the_ring, NULL, tear_down),
        cmocka_unit_test_setup_teardown(test_processes, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_ring_is_told_twice, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_id_is_the_same_for_all, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_node_goes_and_returns, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_cut_off, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_was_away, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_another_was_away, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_one_comes_another_goes, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_nodes_count_once, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_quorum_without_members, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_node_count_given, NULL, tear_down),
        cmocka_unit_test_setup_teardown(test_busy, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_too_long, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_flood, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_corosync_dies_and_returns, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_send_finds_it_dead, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_too_many_members, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_dropped, set_up_joined, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tries_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close_while_stuck, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close_before_the_answer_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_descriptors, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
