/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever a power failure leaves of the writes under way, the ring is whole: all that was
 * pushed is there, nothing that was not, and nothing that was given back comes again as rubbish.
 * Method: a disk that records every write and flush; then every disk that a crash could have left
 * is looked at: every prefix, every order and subset of what was not flushed, every tear at 512
 * bytes, and in format 2 at 64. The operations are done one after the other; and by two rings at
 * once on a disk that answers late and in any order, so that each sees what the other has written
 * and not flushed. Some crashed disks are recovered and used on.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io/disk_record.h"
#include "io/random.h"
#include "ring/inspect.h"
#include "support/ring.h"

enum { MESSAGES_MAX = 120, SIZE_1 = 8 * 512, SIZE_2 = 7 * 4096, LENGTH_MAX = 4096 };

/* What has been promised at a moment; a mark is all of it in 64 bits. */
struct promise {
    uint8_t pushed;    /* Messages that a push has answered 0 to... */
    uint8_t tried;     /* ... and that were begun to be pushed. */
    uint8_t popped;    /* Messages that were ever handed out. */
    uint8_t advanced;  /* Messages given back... */
    uint8_t returning; /* ... or begun to be. */
    bool suspended;    /* The acknowledgement was seen, and no resume has begun. */
};

static struct fw_disk_record *record;
static struct fw_disk *disk;
static struct promise now;
static uint64_t ends[MESSAGES_MAX + 1]; /* Where message i ends; 0 before the first. */
static uint8_t content[MESSAGES_MAX][LENGTH_MAX];
static size_t lengths[MESSAGES_MAX];
static uint64_t recoveries;

static void promise_mark(void)
{
    fw_disk_record_mark(record, (uint64_t)now.pushed | (uint64_t)now.tried << 8 |
                                    (uint64_t)now.popped << 16 | (uint64_t)now.advanced << 24 |
                                    (uint64_t)now.returning << 32 | (uint64_t)now.suspended << 40);
}

static struct promise promise_of(uint64_t mark)
{
    return (struct promise){
        .pushed = (uint8_t)mark,
        .tried = (uint8_t)(mark >> 8),
        .popped = (uint8_t)(mark >> 16),
        .advanced = (uint8_t)(mark >> 24),
        .returning = (uint8_t)(mark >> 32),
        .suspended = (mark >> 40 & 1) != 0,
    };
}

static void begin(int format, uint32_t sector_size, bool deferred, uint64_t seed)
{
    struct fw_random chance;
    uint64_t large = format == 1 ? (sector_size == 512 ? 700 : 3500) : 2500;
    fw_random_init(&chance, seed);
    for (int i = 0; i < MESSAGES_MAX; i++) {
        lengths[i] = fw_random_chance(&chance, 1, 2) ? fw_random_below(&chance, large)
                                                     : fw_random_below(&chance, 60);
        memset(content[i], 'A' + i, sizeof content[i]);
    }
    const struct fw_disk_memory_options options = {
        .size = format == 1 ? (sector_size == 512 ? SIZE_1 : 6 * 4096) : SIZE_2,
        .sector_size = sector_size,
        .deferred = deferred,
        .seed = seed};
    assert_int_equal(fw_disk_record_create(&record, &options), 0);
    disk = fw_disk_record_disk(record);
    ring_test_create(disk, format);
    memset(&now, 0, sizeof now);
}

/* ---- looking at what a crash left ---- */

struct found {
    const struct fw_disk_crash *crash;
    struct promise promise;
    uint64_t producer, consumer;
    bool suspended;
    uint32_t first; /* The message at the consumer. */
    uint32_t count;
    bool is_ring;
};

static void crash_fail(const struct found *found, const char *what)
{
    char text[FW_DISK_CRASH_TEXT_SIZE];
    fail_msg("%s; %s", what, fw_disk_crash_describe(found->crash, text, sizeof text));
}

static uint32_t index_of(const struct found *found, uint64_t position)
{
    for (uint32_t i = 0; i <= found->promise.tried; i++) {
        if (ends[i] == position) {
            return i;
        }
    }
    crash_fail(found, "a pointer is between messages");
    return 0;
}

static void on_head(void *context, const struct fw_ring_geometry *geometry,
                    const struct fw_ring_pointer *producer, const struct fw_ring_pointer *consumer)
{
    struct found *found = context;
    (void)geometry;
    found->is_ring = true;
    if (producer == NULL || consumer == NULL) {
        crash_fail(found, "a side is lost");
    } else {
        found->producer = producer->position;
        found->consumer = consumer->position;
        found->suspended = producer->flag;
        found->first = index_of(found, consumer->position);
    }
}

static void on_message(void *context, uint64_t position, const struct fw_ring_message *message)
{
    struct found *found = context;
    uint32_t i = found->first + found->count;
    found->count++;
    if (i >= found->promise.tried || position != ends[i] || message->length != lengths[i] ||
        memcmp(message->data, content[i], message->length) != 0) {
        crash_fail(found, "a message is wrong");
    }
}

static void on_damage(void *context, const char *text)
{
    struct found *found = context;
    if (strstr(text, "one of the two states is torn") == NULL) { /* That may be. */
        crash_fail(found, text);
    }
}

static struct found crash_look(const struct fw_disk_crash *crash)
{
    struct found found = {.crash = crash, .promise = promise_of(crash->mark)};
    const struct fw_ring_visitor visitor = {
        .head = on_head, .message = on_message, .damage = on_damage, .context = &found};
    int rc = fw_ring_inspect(crash->disk, 0, &visitor, NULL);
    if (rc < 0) {
        crash_fail(&found, "it cannot be read");
    }
    return found;
}

static int crash_check(const struct fw_disk_crash *crash, void *context)
{
    (void)context;
    if (crash->mark == 0) { /* While it was being made: none, or an empty one. */
        struct found found = {.crash = crash};
        const struct fw_ring_visitor visitor = {
            .head = on_head, .message = on_message, .damage = on_damage, .context = &found};
        int rc = fw_ring_inspect(crash->disk, 0, &visitor, NULL);
        if (rc != 0 && rc != -ENOENT) {
            crash_fail(&found, "half a ring");
        }
        return 0;
    }
    struct found found = crash_look(crash);
    const struct promise *promise = &found.promise;
    uint32_t last = index_of(&found, found.producer);
    if (last < promise->pushed) {
        crash_fail(&found, "a message that was pushed is lost");
    }
    if (last < promise->popped) {
        crash_fail(&found, "a message that was handed out was never there");
    }
    if (found.first < promise->advanced || found.first > promise->returning) {
        crash_fail(&found, "the consumer is not where it was");
    }
    if (found.count != last - found.first) {
        crash_fail(&found, "messages are missing");
    }
    if (promise->suspended && !found.suspended) {
        crash_fail(&found, "a suspend that was acknowledged is forgotten");
    }
    return 0;
}

/* The same, and then life goes on: what is there is popped, and one more message goes through. */
static int crash_recover(const struct fw_disk_crash *crash, void *context)
{
    (void)crash_check(crash, context);
    if (crash->mark == 0 || ++recoveries % 7 != 0) {
        return 0;
    }
    struct found found = crash_look(crash);
    struct fw_ring *producer = ring_test_attach(crash->disk, FW_RING_PRODUCER, 0);
    struct fw_ring *consumer = ring_test_attach(crash->disk, FW_RING_CONSUMER, 0);
    uint64_t position = found.consumer;
    for (uint32_t i = 0; i < found.count; i++) {
        position = ring_test_pop(consumer, content[found.first + i], lengths[found.first + i]);
    }
    RING_OK(fw_ring_advance, consumer, position);
    if (fw_ring_poll(producer, NULL) == FW_RING_SUSPENDED) {
        RING_OK(fw_ring_resume, consumer);
    }
    RING_OK(fw_ring_push, producer, "alive", 5);
    (void)ring_test_pop(consumer, "alive", 5);
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    return 0;
}

static void crash_everywhere(uint32_t tear_size)
{
    struct fw_disk_record_summary summary;
    const struct fw_disk_record_limits limits = {
        .tear_size = tear_size, .exact_max = 2048, .samples = 64};
    assert_int_equal(fw_disk_record_enumerate(record, &limits, &summary, crash_recover, NULL), 0);
    assert_true(summary.images > summary.points);
    fw_disk_record_destroy(record);
    print_message("# %d crash points, %d images, %d points sampled\n", (int)summary.points,
                  (int)summary.images, (int)summary.points_sampled);
}

/* ---- one operation after the other ---- */

static void push_some(struct fw_ring *ring, const struct fw_ring_geometry *geometry, uint32_t count)
{
    struct fw_ring_message messages[4];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = now.pushed + i;
        messages[i] = (struct fw_ring_message){.data = content[number], .length = lengths[number]};
        ends[number + 1] = ends[number] + fw_ring_message_size(geometry, lengths[number]);
    }
    now.tried = (uint8_t)(now.pushed + count);
    promise_mark();
    int rc = fw_ring_push_batch(ring, messages, count, NULL);
    if (rc == 0) {
        now.pushed = now.tried;
    } else {
        assert_int_equal(rc, FW_RING_RETRY);
        now.tried = now.pushed;
    }
    promise_mark();
}

static void pop_and_return(struct fw_ring *ring)
{
    if (now.popped == now.pushed) {
        return;
    }
    uint64_t position = ring_test_pop(ring, content[now.popped], lengths[now.popped]);
    now.popped++;
    now.returning = now.popped;
    promise_mark();
    RING_OK(fw_ring_advance, ring, position);
    now.advanced = now.returning;
    promise_mark();
}

static void suspend_and_resume(struct fw_ring *producer, struct fw_ring *consumer)
{
    RING_OK(fw_ring_suspend, consumer);
    RING_IS(FW_RING_SUSPENDED, fw_ring_push, producer, "x", 1);
    RING_OK(fw_ring_poll, consumer);
    now.suspended = true;
    promise_mark();
    now.suspended = false;
    promise_mark();
    RING_OK(fw_ring_resume, consumer);
    RING_OK(fw_ring_poll, producer);
}

static void one_by_one(int format, uint32_t sector_size, unsigned flags, uint32_t tear_size)
{
    begin(format, sector_size, false, 1);
    struct fw_ring *producer = ring_test_attach(disk, FW_RING_PRODUCER, flags);
    struct fw_ring *consumer = ring_test_attach(disk, FW_RING_CONSUMER, flags);
    /* Round the end a few times. */
    for (uint32_t i = 0; ends[now.advanced] < 2 * producer->geometry.capacity; i++) {
        push_some(producer, &producer->geometry, i % 5 == 4 ? 3 : 1);
        if (i % 2 == 1) {
            pop_and_return(consumer);
        }
        if (i % 3 == 2) {
            pop_and_return(consumer);
        }
        if (i == 9) {
            suspend_and_resume(producer, consumer);
        }
    }
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    crash_everywhere(tear_size);
}

static void test_format_1(void **state)
{
    (void)state;
    one_by_one(1, 512, FW_RING_FUA, 512);
    one_by_one(1, 512, 0, 512);
}

static void test_format_1_large_sectors(void **state)
{
    (void)state;
    one_by_one(1, 4096, FW_RING_FUA, 512);
    one_by_one(1, 4096, 0, 512);
}

static void test_format_2(void **state)
{
    (void)state;
    one_by_one(2, 512, FW_RING_FUA, 64);
    one_by_one(2, 512, 0, 64);
    one_by_one(2, 4096, 0, 64);
}

/* ---- both sides at once, on a slow disk ---- */

struct side {
    struct fw_ring *ring;
    struct fw_ring_op op;
    struct fw_ring_message message;
    bool busy;
    bool returning;
};

static struct side both[2];

static void pushed(struct fw_ring_op *op)
{
    both[0].busy = false;
    if (op->result == 0) {
        now.pushed = now.tried;
        assert_int_equal(op->position, ends[now.pushed]);
    } else {
        assert_int_equal(op->result, FW_RING_RETRY);
        now.tried = now.pushed;
    }
    promise_mark();
}

static void consumed(struct fw_ring_op *op)
{
    both[1].busy = false;
    if (op->kind == FW_RING_ADVANCE) {
        assert_int_equal(op->result, 0);
        now.advanced = now.returning;
    } else if (op->kind == FW_RING_POLL) {
        assert_int_equal(op->result, 0);
    } else if (op->result == 0) {
        assert_int_equal(op->message.length, lengths[now.popped]);
        assert_memory_equal(op->message.data, content[now.popped], op->message.length);
        now.popped++;
    } else {
        assert_int_equal(op->result, FW_RING_RETRY);
    }
    promise_mark();
}

static void side_start(struct side *side, void (*done)(struct fw_ring_op *op))
{
    side->op.done = done;
    side->busy = true;
    promise_mark();
    if (fw_ring_start(side->ring, &side->op) != -EINPROGRESS) {
        done(&side->op);
    }
}

static void push_begin(void)
{
    uint32_t number = now.pushed;
    const struct fw_ring_geometry *geometry = &both[0].ring->geometry;
    both[0].message = (struct fw_ring_message){.data = content[number], .length = lengths[number]};
    ends[number + 1] = ends[number] + fw_ring_message_size(geometry, lengths[number]);
    now.tried = (uint8_t)(number + 1);
    both[0].op =
        (struct fw_ring_op){.kind = FW_RING_PUSH, .messages = &both[0].message, .count = 1};
    side_start(&both[0], pushed);
}

static void consume_begin(bool advance, bool poll)
{
    if (advance && now.popped > now.advanced) {
        now.returning = now.popped;
        both[1].op = (struct fw_ring_op){.kind = FW_RING_ADVANCE, .position = ends[now.popped]};
    } else if (poll) { /* Sees the producer's pointer before it is durable, and may not use it. */
        both[1].op = (struct fw_ring_op){.kind = FW_RING_POLL};
    } else {
        both[1].op = (struct fw_ring_op){.kind = FW_RING_POP};
    }
    side_start(&both[1], consumed);
}

/*
 * A write that is durable in itself can be seen by the other side before it is, which this disk
 * does not show: so there are seeds where one side flushes, and can be seen in between, and the
 * other does not and so flushes nothing of the first's by chance.
 */
static void at_once(int format, uint64_t seed, uint32_t tear_size)
{
    unsigned flags[2] = {seed % 2 == 0 ? FW_RING_FUA : 0, seed / 2 % 2 == 0 ? FW_RING_FUA : 0};
    struct fw_random chance;
    fw_random_init(&chance, seed);
    begin(format, 512, true, seed);
    both[0] = (struct side){.ring = ring_test_attach(disk, FW_RING_PRODUCER, flags[0])};
    both[1] = (struct side){.ring = ring_test_attach(disk, FW_RING_CONSUMER, flags[1])};
    promise_mark();
    uint64_t turns = 0;
    while (ends[now.advanced] < 2 * both[0].ring->geometry.capacity && turns++ < 10000) {
        if (!both[0].busy && now.pushed < MESSAGES_MAX && fw_random_chance(&chance, 1, 2)) {
            push_begin();
        }
        if (!both[1].busy && fw_random_chance(&chance, 1, 2)) {
            bool advance = fw_random_chance(&chance, 1, 3);
            bool poll = fw_random_chance(&chance, 1, 4);
            consume_begin(advance, poll);
        }
        (void)fw_ring_reap(both[0].ring);
        (void)fw_ring_reap(both[1].ring);
    }
    while (both[0].busy || both[1].busy) {
        (void)fw_ring_reap(both[0].ring);
        (void)fw_ring_reap(both[1].ring);
    }
    assert_true(turns < 10000);
    fw_ring_detach(both[0].ring);
    fw_ring_detach(both[1].ring);
    crash_everywhere(tear_size);
}

static void test_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        at_once(1, seed, 512);
    }
    for (uint64_t seed = 0; seed < 8; seed++) {
        at_once(2, seed, 128);
    }
}

/* ---- a sync cannot get lost ---- */

static int sync_check(const struct fw_disk_crash *crash, void *context)
{
    (void)context;
    struct fw_ring_geometry geometry;
    struct fw_ring_pointer sides[2];
    if (crash->mark < 2) {
        return 0; /* No resume has been asked for. */
    }
    assert_int_equal(fw_ring_read_head(crash->disk, 512, &geometry, NULL), 0);
    for (int side = 0; side < 2; side++) {
        assert_int_equal(
            fw_ring_read_side(crash->disk, &geometry, (enum fw_ring_side)side, &sides[side], NULL),
            0);
    }
    /* Either the request is pending, or the list is there; never neither. */
    bool pending = sides[0].flag;
    bool synced = sides[0].position > 0;
    if (pending == synced) {
        char text[FW_DISK_CRASH_TEXT_SIZE];
        fail_msg("the sync is lost or came twice; %s",
                 fw_disk_crash_describe(crash, text, sizeof text));
    }
    return 0;
}

/* What a producer does that dies between its write and its flush. */
static void state_write_unflushed(struct fw_ring *ring, uint64_t position, bool flag)
{
    const struct fw_ring_names names = {.queue = "q", .client = "gen"};
    struct fw_ring_pointer *pointer = &ring->sides[FW_RING_SIDE_PRODUCER];
    uint8_t *sector = fw_disk_buffer(512);
    assert_non_null(sector);
    pointer->position = position;
    pointer->flag = flag;
    pointer->sequence++;
    struct fw_disk_op op = {.kind = FW_DISK_WRITE,
                            .from = sector,
                            .size = 512,
                            .offset = fw_ring_pointer_write(&ring->geometry, FW_RING_SIDE_PRODUCER,
                                                            pointer, &names, sector)};
    assert_int_equal(fw_disk_run(disk, &op, NULL), 0);
    free(sector);
}

/* The next consumer pops what that producer left; a power failure may not take it back then. */
static void test_dead_producer(void **state)
{
    (void)state;
    begin(1, 512, false, 1);
    struct fw_ring *producer = ring_test_attach(disk, FW_RING_PRODUCER, FW_RING_FUA);
    push_some(producer, &producer->geometry, 1);
    ends[2] = ends[1] + fw_ring_message_size(&producer->geometry, lengths[1]);
    now.tried = 2;
    promise_mark();
    RING_OK(fw_ring_stage, producer, content[1], lengths[1]);
    state_write_unflushed(producer, ends[2], false);
    fw_ring_detach(producer);
    struct fw_ring *consumer = ring_test_attach(disk, FW_RING_CONSUMER, FW_RING_FUA);
    (void)ring_test_pop(consumer, content[0], lengths[0]);
    uint64_t position = ring_test_pop(consumer, content[1], lengths[1]);
    now.popped = 2;
    now.returning = 2;
    promise_mark();
    RING_OK(fw_ring_advance, consumer, position);
    fw_ring_detach(consumer);
    crash_everywhere(512);
}

/*
 * A consumer that is attached sees the pointer between its write and its flush, at once or by a
 * poll; what it then hands out must stay.
 */
static void unflushed_pointer(bool poll)
{
    begin(1, 512, false, 1);
    struct fw_ring *producer = ring_test_attach(disk, FW_RING_PRODUCER, FW_RING_FUA);
    push_some(producer, &producer->geometry, 1);
    struct fw_ring *consumer = ring_test_attach(disk, FW_RING_CONSUMER, FW_RING_FUA);
    ends[2] = ends[1] + fw_ring_message_size(&producer->geometry, lengths[1]);
    now.tried = 2;
    promise_mark();
    RING_OK(fw_ring_stage, producer, content[1], lengths[1]);
    state_write_unflushed(producer, ends[2], false);
    if (poll) {
        RING_OK(fw_ring_poll, consumer);
    }
    (void)ring_test_pop(consumer, content[0], lengths[0]);
    (void)ring_test_pop(consumer, content[1], lengths[1]);
    now.popped = 2;
    promise_mark();
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    crash_everywhere(512);
}

static void test_unflushed_pointer(void **state)
{
    (void)state;
    unflushed_pointer(false);
    unflushed_pointer(true);
}

static void test_sync(void **state)
{
    (void)state;
    const struct fw_ring_message list[] = {{content[0], 300}, {content[1], 300}};
    for (int format = 1; format <= 2; format++) {
        for (int flushes = 0; flushes < 2; flushes++) {
            unsigned flags = FW_RING_SYNCS | (flushes == 0 ? FW_RING_FUA : 0U);
            begin(format, 512, false, 1);
            struct fw_ring *producer = ring_test_attach(disk, FW_RING_PRODUCER, flags);
            struct fw_ring *consumer = ring_test_attach(disk, FW_RING_CONSUMER, flags);
            RING_OK(fw_ring_suspend, consumer);
            state_write_unflushed(producer, 0, true);
            fw_disk_record_mark(record, 1);
            RING_OK(fw_ring_resume, consumer);
            fw_disk_record_mark(record, 2);
            fw_ring_detach(producer);
            producer = ring_test_attach(disk, FW_RING_PRODUCER, flags);
            RING_IS(FW_RING_RESYNC, fw_ring_push, producer, "delta", 5);
            RING_OK(fw_ring_sync, producer, list, 2);
            fw_ring_detach(producer);
            fw_ring_detach(consumer);
            assert_int_equal(fw_disk_record_enumerate(record, NULL, NULL, sync_check, NULL), 0);
            fw_disk_record_destroy(record);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format_1),      cmocka_unit_test(test_format_1_large_sectors),
        cmocka_unit_test(test_format_2),      cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_dead_producer), cmocka_unit_test(test_unflushed_pointer),
        cmocka_unit_test(test_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
