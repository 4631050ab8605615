/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a ring is a queue: whole messages, in order, refused exactly at its limits; it suspends and
 * resumes as the protocol says; it costs no more flushes and reads than it must; damage is told
 * with its place and nothing is written over it.
 * Method: disks in memory in both formats and both sector sizes, small ones and ones larger than
 * the window; a model that is a plain array; an observer that counts what reaches the disk and
 * makes it fail; images spoilt byte by byte.
 */
#include "ring/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/text.h"
#include "io/random.h"
#include "ring/inspect.h"
#include "support/fail_memory.h"
#include "support/ring.h"

enum { LARGE = 1 << 20, MESSAGE_MAX = 70000 };

static struct fw_disk_memory *memory;
static struct fw_ring *producer;
static struct fw_ring *consumer;
static char letters[LARGE];

static void begin_with(int format, uint64_t size, uint32_t sector_size, unsigned flags)
{
    for (size_t i = 0; i < sizeof letters; i++) {
        letters[i] = (char)('a' + i % 26);
    }
    memory = ring_test_disk(size, sector_size, 0xa5);
    ring_test_create(&memory->disk, format);
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, flags);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, flags);
}

static void begin(int format)
{
    begin_with(format, format == 1 ? 4096 : 32768, 512, 0);
}

static void end(void)
{
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    memory->observer = NULL;
    fw_disk_close(&memory->disk);
}

/* ---- limits ---- */

static void test_limits(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        struct fw_ring_state known;
        struct fw_ring_message message;
        struct fw_ring_reason reason;
        uint64_t position;
        begin(format);
        fw_ring_state(producer, &known);
        uint64_t header = format == 1 ? 4 : 16;
        assert_int_equal(known.format, format);
        assert_int_equal(known.capacity, format == 1 ? 5 * 512 : 3 * 4096);
        assert_int_equal(known.message_max, known.capacity - header);
        RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position);
        assert_int_equal(fw_ring_push(producer, letters, known.message_max + 1, &reason),
                         -EMSGSIZE);
        assert_non_null(strstr(reason.text, "never fit"));
        RING_OK(fw_ring_push, producer, letters, known.message_max);
        RING_IS(FW_RING_RETRY, fw_ring_push, producer, "", 0);
        RING_IS(-EMSGSIZE, fw_ring_push, producer, letters, known.message_max + 1);
        position = ring_test_pop(consumer, letters, known.message_max);
        RING_IS(FW_RING_RETRY, fw_ring_push, producer, "", 0); /* Popped is not given back. */
        RING_OK(fw_ring_advance, consumer, position);
        RING_OK(fw_ring_push, producer, "", 0);
        /* Again, with an odd start: all around and back into its own first sector. */
        RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, "", 0));
        RING_OK(fw_ring_push, producer, letters, known.message_max);
        RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, letters, known.message_max));
        /* A batch that is too large is so for ever, even if its messages are not. */
        struct fw_ring_message batch[2] = {{letters, known.message_max - 100}, {letters, 200}};
        RING_IS(-EMSGSIZE, fw_ring_push_batch, producer, batch, 2);
        RING_OK(fw_ring_push_batch, producer, batch, 1);
        RING_IS(FW_RING_RETRY, fw_ring_push, producer, letters, 200);
        end();
    }
}

/*
 * The longest message, from inside of a sector all around to the same sector: it is written once.
 * The disk answers late, so that it sees two writers of a sector.
 */
static void test_all_around(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {4096, LARGE};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(sizes); i++) {
        const struct fw_disk_memory_options options = {.size = sizes[i], .deferred = true};
        struct fw_ring_state known;
        assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
        ring_test_create(&memory->disk, 1);
        producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
        consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
        fw_ring_state(producer, &known);
        for (int round = 0; round < 3; round++) {
            RING_OK(fw_ring_push, producer, "odd", 3);
            RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, "odd", 3));
            RING_OK(fw_ring_push, producer, letters, known.message_max);
            RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, letters, known.message_max));
        }
        end();
    }
}

static void test_wrong_calls(void **state)
{
    (void)state;
    begin(1);
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(-EINVAL, fw_ring_pop, producer, &message, &position);
    RING_IS(-EINVAL, fw_ring_suspend, producer);
    RING_IS(-EINVAL, fw_ring_push, consumer, "a", 1);
    RING_IS(-EALREADY, fw_ring_sync, producer, NULL, 0);
    RING_OK(fw_ring_push, producer, "a", 1);
    RING_OK(fw_ring_push, producer, "b", 1);
    position = ring_test_pop(consumer, "a", 1);
    RING_IS(-EINVAL, fw_ring_advance, consumer, position + 8); /* Not popped yet. */
    RING_IS(-EINVAL, fw_ring_advance, consumer, position - 1);
    RING_OK(fw_ring_advance, consumer, position);
    RING_IS(-EINVAL, fw_ring_advance, consumer, position - 8); /* Never back. */
    struct fw_ring_message *many = calloc(FW_RING_MESSAGES_MAX + 1, sizeof *many);
    RING_IS(-EINVAL, fw_ring_push_batch, producer, many, FW_RING_MESSAGES_MAX + 1);
    free(many);
    struct fw_ring *none;
    struct fw_ring_options options = {.role = 0};
    assert_int_equal(fw_ring_attach_on(&none, &memory->disk, 1, &options, NULL), -EINVAL);
    char name[FW_RING_NAME_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    options = (struct fw_ring_options){.role = FW_RING_CONSUMER, .queue = name};
    assert_int_equal(fw_ring_attach_on(&none, &memory->disk, 1, &options, NULL), -EINVAL);
    options = (struct fw_ring_options){.role = FW_RING_CONSUMER, .sector_size = 1024};
    assert_int_equal(fw_ring_attach_on(&none, &memory->disk, 1, &options, NULL), -EINVAL);
    end();
}

/* ---- against a model ---- */

enum { MODEL_MAX = 4096, STEPS = 3000 };

static struct {
    struct {
        uint32_t start; /* In letters. */
        uint32_t length;
        uint64_t position; /* Where it ends. */
    } items[MODEL_MAX];
    uint32_t pushed, popped, advanced;
} model;

static int model_count; /* Messages seen by the inspection. */

static void on_head(void *context, const struct fw_ring_geometry *geometry,
                    const struct fw_ring_pointer *p, const struct fw_ring_pointer *c)
{
    (void)context;
    (void)geometry;
    assert_non_null(p);
    assert_non_null(c);
}

static void on_message(void *context, uint64_t position, const struct fw_ring_message *message)
{
    (void)context;
    (void)position;
    uint32_t i = model.advanced + (uint32_t)model_count++;
    assert_true(i < model.pushed);
    assert_int_equal(message->length, model.items[i].length);
    assert_memory_equal(message->data, letters + model.items[i].start, message->length);
}

static void on_damage(void *context, const char *text)
{
    (void)context;
    fail_msg("%s", text);
}

/* From consumer to producer the bytes parse, and are what they should be. */
static void model_check(void)
{
    const struct fw_ring_visitor visitor = {
        .head = on_head, .message = on_message, .damage = on_damage};
    model_count = 0;
    assert_int_equal(fw_ring_inspect(&memory->disk, 0, &visitor, NULL), 0);
    assert_int_equal(model_count, model.pushed - model.advanced);
}

static void model_push(struct fw_random *chance, uint32_t length_max)
{
    struct fw_ring_message batch[4];
    uint32_t count = (uint32_t)fw_random_between(chance, 1, 4);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = (uint32_t)fw_random_below(chance, length_max);
        uint32_t start = (uint32_t)fw_random_below(chance, 26);
        model.items[model.pushed + i].start = start;
        model.items[model.pushed + i].length = length;
        batch[i] = (struct fw_ring_message){.data = letters + start, .length = length};
    }
    int rc = fw_ring_push_batch(producer, batch, count, NULL);
    if (rc == 0) {
        model.pushed += count;
    } else {
        assert_true(rc == FW_RING_RETRY || rc == -EMSGSIZE);
    }
}

static void model_pop(void)
{
    struct fw_ring_message message;
    uint64_t position;
    int rc = fw_ring_pop(consumer, &message, &position, NULL);
    assert_int_equal(rc, model.popped < model.pushed ? 0 : FW_RING_RETRY);
    if (rc == 0) {
        assert_int_equal(message.length, model.items[model.popped].length);
        assert_memory_equal(message.data, letters + model.items[model.popped].start,
                            message.length);
        model.items[model.popped++].position = position;
    }
}

static void model_step(struct fw_random *chance, uint32_t length_max)
{
    uint64_t what = fw_random_below(chance, 100);
    if (what < 40) {
        model_push(chance, length_max);
    } else if (what < 85) {
        model_pop();
    } else if (what < 97 && model.popped > model.advanced) {
        uint32_t to = (uint32_t)fw_random_between(chance, model.advanced + 1, model.popped);
        RING_OK(fw_ring_advance, consumer, model.items[to - 1].position);
        model.advanced = to;
    } else if (what == 97) { /* Whoever comes next starts where this one has given back. */
        fw_ring_detach(consumer);
        consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
        model.popped = model.advanced;
    } else if (what == 98) {
        fw_ring_detach(producer);
        producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    } else {
        model_check();
    }
}

static void test_model(void **state)
{
    (void)state;
    static const struct {
        int format;
        uint64_t size;
        uint32_t sector_size;
        uint32_t length_max;
    } cases[] = {
        {1, 4096, 512, 700},          {1, 2048, 512, 508},          {1, 65536, 4096, 9000},
        {1, LARGE, 512, MESSAGE_MAX}, {1, LARGE, 4096, 600000},     {2, 24576, 512, 700},
        {2, 65536, 4096, 9000},       {2, LARGE, 512, MESSAGE_MAX},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        struct fw_random chance;
        fw_random_init(&chance, i);
        memset(&model, 0, sizeof model);
        begin_with(cases[i].format, cases[i].size, cases[i].sector_size,
                   i % 2 == 0 ? 0 : FW_RING_FUA);
        for (int step = 0; step < STEPS && model.pushed + 4 <= MODEL_MAX; step++) {
            model_step(&chance, cases[i].length_max);
        }
        model_check();
        assert_true(model.advanced > 100); /* Or it went nowhere. */
        end();
    }
}

/* ---- redelivery, suspending ---- */

static void test_redelivery(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        begin(format);
        RING_OK(fw_ring_push, producer, "one", 3);
        RING_OK(fw_ring_push, producer, "two", 3);
        uint64_t position = ring_test_pop(consumer, "one", 3);
        (void)ring_test_pop(consumer, "two", 3);
        RING_OK(fw_ring_advance, consumer, position);
        fw_ring_detach(consumer);
        consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
        (void)ring_test_pop(consumer, "two", 3);
        end();
    }
}

static bool acknowledged(void)
{
    struct fw_ring_state known;
    RING_OK(fw_ring_poll, consumer);
    fw_ring_state(consumer, &known);
    return known.suspend_acknowledged;
}

static void test_handshake(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        begin(format);
        RING_OK(fw_ring_suspend, consumer);
        RING_IS(FW_RING_RETRY, fw_ring_resume, consumer); /* Not before the answer. */
        RING_IS(FW_RING_RETRY, fw_ring_suspend, consumer);
        assert_false(acknowledged());
        RING_IS(FW_RING_SUSPENDED, fw_ring_poll, producer);
        assert_true(acknowledged());
        RING_OK(fw_ring_suspend, consumer); /* It is; nothing changes. */
        RING_IS(FW_RING_SUSPENDED, fw_ring_push, producer, "x", 1);
        RING_IS(FW_RING_SUSPENDED, fw_ring_stage, producer, "x", 1);
        RING_OK(fw_ring_resume, consumer);
        RING_IS(FW_RING_RETRY, fw_ring_suspend, consumer);
        RING_OK(fw_ring_push, producer, "go", 2); /* A push answers too. */
        assert_false(acknowledged());
        (void)ring_test_pop(consumer, "go", 2);

        /* A push is the first to see it. */
        RING_OK(fw_ring_suspend, consumer);
        RING_IS(FW_RING_SUSPENDED, fw_ring_push, producer, "late", 4);
        assert_true(acknowledged());
        struct fw_ring_message message;
        uint64_t position;
        RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position);

        /* And whoever attaches. */
        fw_ring_detach(producer);
        RING_OK(fw_ring_resume, consumer);
        producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
        assert_false(acknowledged());
        end();
    }
}

static void test_sync(void **state)
{
    (void)state;
    const struct fw_ring_message list[] = {{"first", 5}, {"last", 4}};
    for (int format = 1; format <= 2; format++) {
        begin_with(format, format == 1 ? 4096 : 32768, 512, FW_RING_SYNCS);
        RING_OK(fw_ring_suspend, consumer);
        RING_IS(FW_RING_SUSPENDED, fw_ring_poll, producer);
        RING_IS(FW_RING_SUSPENDED, fw_ring_sync, producer, list, 2);
        RING_OK(fw_ring_resume, consumer);
        RING_IS(FW_RING_RESYNC, fw_ring_poll, producer);
        RING_IS(FW_RING_RESYNC, fw_ring_push, producer, "delta", 5);
        assert_true(acknowledged()); /* Nothing but the sync clears it... */
        fw_ring_detach(producer);
        producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, FW_RING_SYNCS);
        assert_true(acknowledged()); /* ... nor who attaches. */
        RING_IS(FW_RING_RESYNC, fw_ring_poll, producer);
        RING_OK(fw_ring_sync, producer, list, 2);
        assert_false(acknowledged());
        RING_IS(-EALREADY, fw_ring_sync, producer, list, 2);
        RING_OK(fw_ring_push, producer, "delta", 5);
        (void)ring_test_pop(consumer, "first", 5);
        (void)ring_test_pop(consumer, "last", 4);
        (void)ring_test_pop(consumer, "delta", 5);

        /* A sync may be empty. */
        RING_OK(fw_ring_suspend, consumer);
        RING_IS(FW_RING_SUSPENDED, fw_ring_poll, producer);
        RING_OK(fw_ring_resume, consumer);
        RING_OK(fw_ring_sync, producer, NULL, 0);
        assert_false(acknowledged());
        end();
    }
}

/* ---- what reaches the disk ---- */

static struct {
    uint32_t reads, writes, syncs, flushes;
    uint64_t fail_offset; /* Writes there fail... */
    int fail_error;       /* ... with this, if not 0. */
    bool fail_flush;
} seen;

static int on_started(void *context, struct fw_disk_op *op)
{
    (void)context;
    seen.reads += op->kind == FW_DISK_READ ? 1 : 0;
    seen.flushes += op->kind == FW_DISK_FLUSH ? 1 : 0;
    if (op->kind == FW_DISK_WRITE) {
        seen.writes++;
        seen.syncs += op->sync ? 1 : 0;
        if (seen.fail_error != 0 && op->offset == seen.fail_offset) {
            return seen.fail_error;
        }
    }
    return op->kind == FW_DISK_FLUSH && seen.fail_flush ? -EIO : 0;
}

static void on_finished(void *context, struct fw_disk_op *op)
{
    (void)context;
    (void)op;
}

static const struct fw_disk_memory_observer observer = {.started = on_started,
                                                        .finished = on_finished};

static void observe(void)
{
    memset(&seen, 0, sizeof seen);
    memory->observer = &observer;
}

/* Durable writes and flushes: what costs a turn of the disk. */
static uint32_t barriers(void)
{
    return seen.syncs + seen.flushes;
}

static void test_costs(void **state)
{
    (void)state;
    struct fw_ring_message batch[16];
    for (int flushes = 0; flushes < 2; flushes++) {
        for (int format = 1; format <= 2; format++) {
            begin_with(format, 65536, 512, flushes == 0 ? FW_RING_FUA : 0);
            RING_OK(fw_ring_push, producer, letters, 64); /* Loads the window. */
            observe();
            RING_OK(fw_ring_push, producer, letters, 64);
            assert_int_equal(barriers(), 2); /* The data, the pointer. */
            assert_int_equal(seen.writes, 2);
            assert_int_equal(seen.reads, 1); /* The consumer. */
            for (size_t i = 0; i < FW_ARRAY_LENGTH(batch); i++) {
                batch[i] = (struct fw_ring_message){.data = letters, .length = 64};
            }
            observe();
            RING_OK(fw_ring_push_batch, producer, batch, FW_ARRAY_LENGTH(batch));
            assert_int_equal(barriers(), 2);
            assert_int_equal(seen.writes, 2);

            observe();
            uint64_t position = ring_test_pop(consumer, letters, 64);
            assert_int_equal(seen.reads, 2); /* The producer, and all messages at once. */
            assert_int_equal(barriers(), 1);
            for (int i = 1; i < 18; i++) {
                position = ring_test_pop(consumer, letters, 64);
            }
            assert_int_equal(seen.reads, 2);
            RING_OK(fw_ring_advance, consumer, position);
            assert_int_equal(barriers(), 2); /* For all eighteen. */
            end();
        }
    }
}

static void test_journal_costs(void **state)
{
    (void)state;
    begin(1);
    struct fw_ring *both = ring_test_attach(&memory->disk, FW_RING_BOTH, FW_RING_FUA);
    RING_OK(fw_ring_push, both, "a", 1);
    observe();
    RING_OK(fw_ring_push, both, "b", 1);
    assert_int_equal(seen.reads, 0); /* Who is both knows all. */
    assert_int_equal(barriers(), 2);
    (void)ring_test_pop(both, "a", 1);
    RING_OK(fw_ring_advance, both, ring_test_pop(both, "b", 1));
    assert_int_equal(seen.flushes, 0);
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(FW_RING_RETRY, fw_ring_pop, both, &message, &position);
    RING_IS(-EINVAL, fw_ring_suspend, both);
    RING_OK(fw_ring_poll, both);
    fw_ring_detach(both);
    end();
}

static void test_disk_fails(void **state)
{
    (void)state;
    struct fw_ring_reason reason;
    begin_with(1, 4096, 512, FW_RING_FUA);
    observe();
    seen.fail_error = -EIO;
    seen.fail_offset = (uint64_t)3 * 512; /* The data: nothing was published, so it can be tried. */
    assert_int_equal(fw_ring_push(producer, "aaaaaaa", 7, &reason), -EIO);
    assert_non_null(strstr(reason.text, "cannot write"));
    seen.fail_error = 0;
    RING_OK(fw_ring_push, producer, "b", 1);
    assert_int_equal(memory->bytes[3 * 512 + 6], 0xa5); /* Nothing is left of it either. */
    (void)ring_test_pop(consumer, "b", 1);

    seen.fail_error = -EIO;
    seen.fail_offset = 512; /* The pointer: nobody knows. */
    assert_int_equal(fw_ring_push(producer, "c", 1, &reason), -EIO);
    seen.fail_error = 0;
    assert_int_equal(fw_ring_push(producer, "d", 1, &reason), -EIO);
    assert_non_null(strstr(reason.text, "detach"));
    fw_ring_detach(producer);
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, FW_RING_FUA);
    RING_OK(fw_ring_push, producer, "e", 1);
    (void)ring_test_pop(consumer, "e", 1);
    seen.fail_flush = true;
    RING_OK(fw_ring_push, producer, "f", 1); /* Needs none. */
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(-EIO, fw_ring_pop, consumer, &message, &position);
    end();
}

static void test_no_memory(void **state)
{
    (void)state;
    begin(1);
    const struct fw_ring_options options = {.role = FW_RING_PRODUCER};
    for (int i = 0; i < 9; i++) {
        struct fw_ring *ring;
        fail_memory_after(i);
        int rc = fw_ring_attach_on(&ring, &memory->disk, 1, &options, NULL);
        assert_true(rc == 0 || rc == -ENOMEM);
        if (rc == 0) {
            fw_ring_detach(ring);
        }
    }
    fail_memory_after(1 << 20); /* None of those to come. */
    struct fw_disk_memory *empty = ring_test_disk(4096, 512, 0);
    const struct fw_ring_create create = {.format = 1};
    for (int i = 0; i < 2; i++) {
        fail_memory_after(i);
        assert_int_equal(fw_ring_create_on(&empty->disk, &create, NULL), -ENOMEM);
    }
    fw_disk_close(&empty->disk);
    fail_memory_after(0); /* The window. */
    RING_IS(-ENOMEM, fw_ring_push, producer, "a", 1);
    RING_OK(fw_ring_push, producer, "a", 1);
    struct fw_ring_message message;
    uint64_t position;
    fail_memory_after(0);
    RING_IS(-ENOMEM, fw_ring_pop, consumer, &message, &position);
    (void)ring_test_pop(consumer, "a", 1);
    end();
}

/* ---- the asynchronous form ---- */

static char done_order[32];

static void on_done(struct fw_ring_op *op)
{
    size_t length = strlen(done_order);
    assert_true(length + 1 < sizeof done_order);
    done_order[length] = "!123456789"[op->result == 0 ? op->count : 0];
}

static void test_asynchronous(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = 65536, .deferred = true, .seed = 3};
    struct fw_ring_message message = {.data = letters, .length = 64};
    struct fw_ring_op ops[9];
    assert_int_equal(fw_disk_memory_create(&memory, &options), 0);
    ring_test_create(&memory->disk, 1);
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
    memset(done_order, 0, sizeof done_order);
    observe();
    struct fw_ring_message many[9];
    for (uint32_t i = 0; i < 9; i++) {
        many[i] = message;
        ops[i] = (struct fw_ring_op){
            .kind = FW_RING_PUSH, .messages = many, .count = i + 1, .done = on_done};
        assert_int_equal(fw_ring_start(producer, &ops[i]), -EINPROGRESS);
    }
    assert_string_equal(done_order, "");
    while (strlen(done_order) < 9) {
        (void)fw_ring_reap(producer);
    }
    assert_string_equal(done_order, "123456789"); /* Each once, in their order. */
    assert_int_equal(ops[8].position, 45 * 68);
    assert_int_equal(barriers(), 4); /* The first alone, the others together. */
    assert_int_equal(fw_ring_reap(producer), 0);

    /* What can be answered at once is, and the call-back never runs. */
    struct fw_ring_op drop = {.kind = FW_RING_DROP, .done = on_done};
    assert_int_equal(fw_ring_start(producer, &drop), 0);
    for (int i = 0; i < 45; i++) {
        struct fw_ring_op pop = {.kind = FW_RING_POP, .done = on_done, .count = 5};
        memset(done_order, 0, sizeof done_order);
        int rc = fw_ring_start(consumer, &pop);
        assert_int_equal(rc, i == 0 ? -EINPROGRESS : 0);
        while (rc != 0 && done_order[0] == '\0') {
            (void)fw_ring_reap(consumer);
        }
        assert_int_equal(pop.result, 0);
        assert_int_equal(pop.message.length, 64);
        assert_memory_equal(pop.message.data, letters, 64);
    }
    assert_string_equal(done_order, "");
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    memory->observer = NULL;
    fw_disk_close(&memory->disk);
}

/* ---- damage ---- */

/* Attaching in every role must fail like this and leave the disk as it is. */
static void refused(int error, const char *says)
{
    static const enum fw_ring_role roles[] = {FW_RING_PRODUCER, FW_RING_CONSUMER, FW_RING_BOTH};
    uint64_t size = memory->disk.properties.size;
    uint8_t *before = malloc(size);
    assert_non_null(before);
    memcpy(before, memory->bytes, size);
    for (size_t i = 0; i < FW_ARRAY_LENGTH(roles); i++) {
        struct fw_ring *ring;
        struct fw_reason reason = {.text = ""};
        const struct fw_ring_options options = {.role = roles[i]};
        int rc = fw_ring_attach_on(&ring, &memory->disk, RING_TEST_HOST, &options, &reason);
        assert_int_equal(rc, error);
        if (strstr(reason.text, says) == NULL) {
            fail_msg("'%s' does not say '%s'", reason.text, says);
        }
        assert_memory_equal(before, memory->bytes, size);
    }
    free(before);
}

static void u64_set(uint64_t offset, uint64_t value)
{
    memcpy(memory->bytes + offset, &value, sizeof value);
}

static void test_damage(void **state)
{
    (void)state;
    memory = ring_test_disk(4096, 512, 0);
    refused(-ENOENT, "sector 0");
    ring_test_create(&memory->disk, 1);
    memory->bytes[29] ^= 1;
    refused(-ENOENT, "sector 0");
    memory->bytes[29] ^= 1;
    memory->bytes[512 + 8] = 3;
    refused(-EBADMSG, "sector 1 (producer): byte 8 is 3");
    memory->bytes[512 + 8] = 0; /* Some versions write 0 for false. */
    fw_ring_detach(ring_test_attach(&memory->disk, FW_RING_BOTH, 0));
    memory->bytes[1024 + 8] = 255;
    refused(-EBADMSG, "sector 2 (consumer): byte 8 is 255");
    memory->bytes[1024 + 8] = 2;
    u64_set(512, 6);
    refused(-EBADMSG, "sector 1 (producer): position 6");
    u64_set(512, UINT64_C(1) << 63);
    refused(-EBADMSG, "sector 1 (producer): position");
    u64_set(512, 2560 + 4);
    refused(-EBADMSG, "sectors 1 and 2: from the consumer at 0");
    u64_set(512, 0);
    u64_set(1024, 4);
    refused(-EBADMSG, "sectors 1 and 2: the consumer at 4 is ahead");
    u64_set(1024, 0);
    fw_disk_close(&memory->disk);

    memory = ring_test_disk(1536, 512, 0); /* Cut off after its third sector. */
    static const char magic[] = "mirage shared-block-device 1.0";
    memcpy(memory->bytes, magic, sizeof magic);
    refused(-EBADMSG, "needs 4 sectors");
    fw_disk_close(&memory->disk);
}

static void test_damaged_message(void **state)
{
    (void)state;
    struct fw_ring_reason reason;
    struct fw_ring_message message;
    uint64_t position;
    begin(1);
    RING_OK(fw_ring_push, producer, "one", 3);
    uint32_t length = 5; /* One more than there is. */
    memcpy(memory->bytes + 1536, &length, sizeof length);
    assert_int_equal(fw_ring_pop(consumer, &message, &position, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "message at 0 (sector 3)"));
    length = UINT32_MAX;
    memcpy(memory->bytes + 1536, &length, sizeof length);
    RING_IS(-EBADMSG, fw_ring_pop, consumer, &message, &position);
    length = 3;
    memcpy(memory->bytes + 1536, &length, sizeof length);
    fw_ring_detach(consumer); /* Forgets what it has read. */
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
    (void)ring_test_pop(consumer, "one", 3);
    /* The other side goes mad while we are attached. */
    u64_set(512, 3);
    assert_int_equal(fw_ring_pop(consumer, &message, &position, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "sector 1"));
    u64_set(512, 0);
    assert_int_equal(fw_ring_pop(consumer, &message, &position, &reason), -EBADMSG);
    assert_non_null(strstr(reason.text, "went back"));
    u64_set(1024, 4096);
    RING_IS(-EBADMSG, fw_ring_push, producer, "x", 1);
    end();
}

/* ---- format 2 ---- */

static void test_torn_state(void **state)
{
    (void)state;
    begin(2);
    RING_OK(fw_ring_push, producer, "one", 3);
    RING_OK(fw_ring_push, producer, "two", 3);
    fw_ring_detach(producer); /* Writes the states once more: who was here is gone. */
    uint64_t newest = 4096;
    uint64_t a;
    uint64_t b;
    memcpy(&a, memory->bytes + 4096 + 8, 8);
    memcpy(&b, memory->bytes + 8192 + 8, 8);
    newest = a > b ? 4096 : 8192;
    /* Every byte of it counts, and the former state is used: two messages, as before it. */
    for (uint64_t i = 0; i < FW_RING_STATE_SIZE; i++) {
        memory->bytes[newest + i] ^= 0x10;
        struct fw_ring_geometry geometry;
        struct fw_ring_pointer pointer;
        assert_int_equal(fw_ring_read_head(&memory->disk, 512, &geometry, NULL), 0);
        assert_int_equal(
            fw_ring_read_side(&memory->disk, &geometry, FW_RING_SIDE_PRODUCER, &pointer, NULL), 0);
        assert_int_equal(pointer.slots_sound, 1);
        assert_int_equal(pointer.position, 64);
        memory->bytes[newest + i] ^= 0x10;
    }
    memory->bytes[newest + 20] ^= 1;
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    RING_OK(fw_ring_push, producer, "three", 5);
    (void)ring_test_pop(consumer, "one", 3);
    (void)ring_test_pop(consumer, "two", 3);
    (void)ring_test_pop(consumer, "three", 5);
    fw_ring_detach(producer);
    memory->bytes[4096 + 20] ^= 1;
    memory->bytes[8192 + 20] ^= 1;
    refused(-EBADMSG, "blocks 1 and 2 (producer)");
    memory->bytes[4096 + 20] ^= 1;
    memory->bytes[8192 + 20] ^= 1;
    memory->bytes[100] ^= 1;
    refused(-EBADMSG, "block 0: the checksum");
    memory->bytes[100] ^= 1;
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    end();
}

/* No bit of a message can change unnoticed. */
static void test_checksums(void **state)
{
    (void)state;
    struct fw_ring_message message;
    uint64_t position;
    begin(2);
    RING_OK(fw_ring_push, producer, letters, 100);
    for (uint64_t i = 0; i < 116; i++) {
        memory->bytes[20480 + i] ^= 0x40;
        fw_ring_detach(consumer);
        consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
        RING_IS(-EBADMSG, fw_ring_pop, consumer, &message, &position);
        memory->bytes[20480 + i] ^= 0x40;
    }
    fw_ring_detach(consumer);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
    RING_OK(fw_ring_advance, consumer, ring_test_pop(consumer, letters, 100));
    end();
}

/* What a former ring left behind is not taken for this one's. */
static void test_old_ring(void **state)
{
    (void)state;
    struct fw_reason reason;
    struct fw_ring_create create = {.format = 1};
    begin(2);
    RING_OK(fw_ring_push, producer, "old", 3);
    assert_int_equal(fw_ring_create_on(&memory->disk, &create, &reason), -EEXIST);
    create.replace = true;
    fw_ring_detach(producer);
    fw_ring_detach(consumer);
    assert_int_equal(fw_ring_create_on(&memory->disk, &create, &reason), 0);
    create.format = 2;
    assert_int_equal(fw_ring_create_on(&memory->disk, &create, &reason), 0);
    producer = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    consumer = ring_test_attach(&memory->disk, FW_RING_CONSUMER, 0);
    struct fw_ring_message message;
    uint64_t position;
    RING_IS(FW_RING_RETRY, fw_ring_pop, consumer, &message, &position);
    create.format = 3;
    assert_int_equal(fw_ring_create_on(&memory->disk, &create, &reason), -EINVAL);
    end();
    memory = ring_test_disk(1024, 512, 0);
    create.format = 1;
    assert_int_equal(fw_ring_create_on(&memory->disk, &create, &reason), -EINVAL);
    create.format = 2;
    assert_int_equal(fw_ring_create_on(&memory->disk, &create, &reason), -EINVAL);
    fw_disk_close(&memory->disk);
}

/* Another host that took the role over is noticed at the next poll. */
static void test_taken_over(void **state)
{
    (void)state;
    struct fw_ring_reason reason;
    begin(2);
    struct fw_ring *other = ring_test_attach(&memory->disk, FW_RING_PRODUCER, 0);
    assert_int_equal(fw_ring_poll(producer, &reason), -ESTALE);
    assert_non_null(strstr(reason.text, "another host"));
    RING_IS(-ESTALE, fw_ring_push, producer, "x", 1);
    fw_ring_detach(producer);
    producer = other;
    RING_OK(fw_ring_poll, producer);
    RING_OK(fw_ring_push, producer, "y", 1);
    (void)ring_test_pop(consumer, "y", 1);
    end();
}

/* ---- inspection of damaged rings ---- */

static char told_bytes[4096];
static struct fw_text told;

static void tell_head(void *context, const struct fw_ring_geometry *geometry,
                      const struct fw_ring_pointer *p, const struct fw_ring_pointer *c)
{
    (void)context;
    (void)geometry;
    (void)p;
    (void)c;
}

static void tell_message(void *context, uint64_t position, const struct fw_ring_message *message)
{
    (void)context;
    (void)position;
    fw_text_append(&told, message->data, message->length);
    fw_text_append_char(&told, ' ');
}

static void tell_damage(void *context, const char *text)
{
    (void)context;
    fw_text_append_string(&told, text);
    fw_text_append_string(&told, "! ");
}

static int tell(void)
{
    const struct fw_ring_visitor visitor = {
        .head = tell_head, .message = tell_message, .damage = tell_damage};
    fw_text_init(&told, told_bytes, sizeof told_bytes);
    return fw_ring_inspect(&memory->disk, 0, &visitor, NULL);
}

static void test_inspect(void **state)
{
    (void)state;
    for (int format = 1; format <= 2; format++) {
        begin(format);
        uint64_t data = format == 1 ? 1536 : 20480;
        uint64_t second = data + (format == 1 ? 8 : 32);
        RING_OK(fw_ring_push, producer, "one", 3);
        RING_OK(fw_ring_push, producer, "two", 3);
        RING_OK(fw_ring_push, producer, "three", 5);
        assert_int_equal(tell(), 0);
        assert_string_equal(told.data, "one two three ");
        memory->bytes[second + 3] ^= 1; /* A length of 16 million. */
        assert_int_equal(tell(), 2);
        if (format == 1) {
            assert_string_equal(told.data,
                                "one message at 8 (sector 3): its length 16777219 reaches "
                                "beyond the producer, which is 20 bytes away! the bytes from "
                                "8 to 28 cannot be read! ");
        } else { /* The one behind it is found again. */
            assert_non_null(strstr(told.data, "one message at 32 (sector 40): its length"));
            assert_non_null(strstr(told.data, "the bytes from 32 to 64 cannot be read! three "));
            memory->bytes[4096 + 30] ^= 1;
            memory->bytes[8192 + 30] ^= 1;
            assert_int_equal(tell(), 1);
            assert_string_equal(told.data, "blocks 1 and 2 (producer): no state is sound! ");
            memory->bytes[30] ^= 1;
            assert_int_equal(tell(), 1);
            memory->bytes[0] ^= 1;
            assert_int_equal(tell(), -ENOENT);
            memory->bytes[0] ^= 1;
            memory->bytes[30] ^= 1;
            memory->bytes[4096 + 30] ^= 1;
            memory->bytes[8192 + 30] ^= 1;
        }
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_all_around),
        cmocka_unit_test(test_wrong_calls),   cmocka_unit_test(test_model),
        cmocka_unit_test(test_redelivery),    cmocka_unit_test(test_handshake),
        cmocka_unit_test(test_sync),          cmocka_unit_test(test_costs),
        cmocka_unit_test(test_journal_costs), cmocka_unit_test(test_disk_fails),
        cmocka_unit_test(test_no_memory),     cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_damaged_message),
        cmocka_unit_test(test_torn_state),    cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_old_ring),      cmocka_unit_test(test_taken_over),
        cmocka_unit_test(test_inspect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
