# SPDX-License-Identifier: Apache-2.0
"""Goal: the binary protocol is complete (C3): every command, its quiet form, every error with its
words, and what closes the connection. Method: packets built by hand; after each test a no-operation
shows that no reply was left over."""

import struct

import pytest

import binary as b
from binary import BinaryClient, count, packet, store, touch

NEVER_CREATE = 0xFFFFFFFF


@pytest.fixture
def client(shared):
    with BinaryClient(shared.address) as client:
        client.succeed(packet(b.FLUSH))
        yield client
        client.settled()


@pytest.fixture
def doomed(shared):
    """A connection that the test gets closed."""
    with BinaryClient(shared.address) as client:
        yield client


def flags(number):
    return struct.pack(">I", number)


def test_set_and_get(client):
    client.fail(packet(b.GET, b"k", opaque=1), b.NOT_FOUND)
    stored = client.succeed(store(b.SET, b"k", b"value", flags=0xDEADBEEF, opaque=2))
    assert stored.cas != 0
    assert (stored.extras, stored.key, stored.value) == (b"", b"", b"")
    got = client.succeed(packet(b.GET, b"k", opaque=0xFFFFFFFF))
    assert (got.extras, got.key, got.value) == (flags(0xDEADBEEF), b"", b"value")
    assert got.cas == stored.cas
    got = client.succeed(packet(b.GETK, b"k"))
    assert (got.extras, got.key, got.value) == (flags(0xDEADBEEF), b"k", b"value")


def test_a_miss_with_key_names_the_key(client):
    for request in (packet(b.GETK, b"nope"), touch(b.GATK, b"nope")):
        miss = client.call(request)
        assert (miss.status, miss.key, miss.value) == (b.NOT_FOUND, b"nope", b"")


def test_quiet_gets_answer_hits_only(client):
    client.succeed(store(b.SET, b"k", b"v"))
    client.send(packet(b.GETQ, b"nope", opaque=1) + packet(b.GETQ, b"k", opaque=2) +
                packet(b.GETKQ, b"nope", opaque=3) + packet(b.GETKQ, b"k", opaque=4) +
                touch(b.GATQ, b"nope", opaque=5) + touch(b.GATQ, b"k", opaque=6) +
                touch(b.GATKQ, b"nope", opaque=7) + touch(b.GATKQ, b"k", opaque=8))
    answers = [client.reply() for _ in range(4)]
    assert [(answer.opcode, answer.opaque, answer.key) for answer in answers] == [
        (b.GETQ, 2, b""), (b.GETKQ, 4, b"k"), (b.GATQ, 6, b""), (b.GATKQ, 8, b"k")]
    assert all(answer.value == b"v" and answer.extras == flags(0) for answer in answers)


def test_add_and_replace(client):
    client.fail(store(b.REPLACE, b"k", b"x"), b.NOT_FOUND)
    client.succeed(store(b.ADD, b"k", b"one", flags=1))
    client.fail(store(b.ADD, b"k", b"two"), b.EXISTS)
    client.succeed(store(b.REPLACE, b"k", b"three", flags=3))
    got = client.succeed(packet(b.GET, b"k"))
    assert (got.value, got.extras) == (b"three", flags(3))


def test_append_and_prepend(client):
    client.fail(packet(b.APPEND, b"k", b"x"), b.NOT_STORED)
    client.fail(packet(b.PREPEND, b"k", b"x"), b.NOT_STORED)
    client.succeed(store(b.SET, b"k", b"mid", flags=7))
    client.succeed(packet(b.APPEND, b"k", b"-end"))
    client.succeed(packet(b.PREPEND, b"k", b"begin-"))
    got = client.succeed(packet(b.GET, b"k"))
    assert (got.value, got.extras) == (b"begin-mid-end", flags(7))


def test_quiet_stores_answer_failures_only(client):
    client.silent(store(b.SETQ, b"k", b"1"), store(b.REPLACEQ, b"k", b"2"),
                  packet(b.APPENDQ, b"k", b"3"), packet(b.PREPENDQ, b"k", b"1"),
                  store(b.ADDQ, b"new", b"n"), packet(b.DELETEQ, b"new"))
    assert client.succeed(packet(b.GET, b"k")).value == b"123"
    client.fail(store(b.ADDQ, b"k", b"x"), b.EXISTS)
    client.fail(store(b.REPLACEQ, b"nope", b"x"), b.NOT_FOUND)
    client.fail(packet(b.APPENDQ, b"nope", b"x"), b.NOT_STORED)
    client.fail(packet(b.PREPENDQ, b"nope", b"x"), b.NOT_STORED)
    client.fail(packet(b.DELETEQ, b"nope"), b.NOT_FOUND)
    client.fail(store(b.SETQ, b"k", b"x", cas=0x7FFFFFFFFFFFFFFF), b.EXISTS)
    client.fail(count(b.INCREMENTQ, b"nope", expiry=NEVER_CREATE), b.NOT_FOUND)
    client.fail(count(b.DECREMENTQ, b"nope", expiry=NEVER_CREATE), b.NOT_FOUND)


@pytest.mark.parametrize("opcode", [b.SET, b.REPLACE])
def test_store_with_cas(client, opcode):
    client.fail(store(opcode, b"k", b"x", cas=1), b.NOT_FOUND)
    cas = client.succeed(store(b.SET, b"k", b"one")).cas
    client.fail(store(opcode, b"k", b"x", cas=cas + 1000), b.EXISTS)
    renewed = client.succeed(store(opcode, b"k", b"two", cas=cas)).cas
    assert renewed != cas
    client.fail(store(opcode, b"k", b"x", cas=cas), b.EXISTS)
    assert client.succeed(packet(b.GET, b"k")).cas == renewed


def test_others_with_cas(client):
    cas = client.succeed(store(b.SET, b"k", b"1")).cas
    client.fail(packet(b.APPEND, b"k", b"x", cas=cas + 1000), b.EXISTS)
    client.fail(count(b.INCREMENT, b"k", cas=cas + 1000), b.EXISTS)
    client.fail(packet(b.DELETE, b"k", cas=cas + 1000), b.EXISTS)
    cas = client.succeed(packet(b.APPEND, b"k", b"2", cas=cas)).cas
    cas = client.succeed(count(b.INCREMENT, b"k", cas=cas)).cas
    assert client.succeed(packet(b.GET, b"k")).value == b"13"
    client.succeed(packet(b.DELETE, b"k", cas=cas))
    client.fail(packet(b.GET, b"k"), b.NOT_FOUND)


def test_delete(client):
    client.fail(packet(b.DELETE, b"k"), b.NOT_FOUND)
    client.succeed(store(b.SET, b"k", b"v"))
    gone = client.succeed(packet(b.DELETE, b"k"))
    assert (gone.cas, gone.extras, gone.key, gone.value) == (0, b"", b"", b"")
    client.fail(packet(b.GET, b"k"), b.NOT_FOUND)


def test_counters(client):
    client.fail(count(b.INCREMENT, b"n", expiry=NEVER_CREATE), b.NOT_FOUND)
    client.fail(count(b.DECREMENT, b"n", expiry=NEVER_CREATE), b.NOT_FOUND)
    made = client.succeed(count(b.INCREMENT, b"n", 5, initial=10))
    assert made.number == 10 and made.cas != 0 and made.extras == b""
    assert client.succeed(count(b.INCREMENT, b"n", 5)).number == 15
    assert client.succeed(packet(b.GET, b"n")).value == b"15"
    assert client.succeed(count(b.DECREMENT, b"n", 4)).number == 11
    assert client.succeed(count(b.DECREMENT, b"n", 1000)).number == 0
    client.silent(count(b.INCREMENTQ, b"n", 7), count(b.DECREMENTQ, b"n", 2))
    assert client.succeed(count(b.INCREMENT, b"n", 0)).number == 5
    assert client.succeed(count(b.DECREMENT, b"m", 5, initial=99)).number == 99


def test_counters_wrap(client):
    top = (1 << 64) - 1
    assert client.succeed(count(b.INCREMENT, b"n", initial=top)).number == top
    assert client.succeed(packet(b.GET, b"n")).value == b"18446744073709551615"
    assert client.succeed(count(b.INCREMENT, b"n", 1)).number == 0
    assert client.succeed(count(b.INCREMENT, b"n", top)).number == top


def test_counters_want_numbers(client):
    client.succeed(store(b.SET, b"n", b"abc"))
    client.fail(count(b.INCREMENT, b"n"), b.NOT_A_NUMBER)
    client.fail(count(b.DECREMENTQ, b"n"), b.NOT_A_NUMBER)


def test_touch_and_gat(client):
    client.fail(touch(b.TOUCH, b"k"), b.NOT_FOUND)
    client.fail(touch(b.GAT, b"k"), b.NOT_FOUND)
    cas = client.succeed(store(b.SET, b"k", b"v", flags=9)).cas
    touched = client.succeed(touch(b.TOUCH, b"k", 1000))
    assert (touched.value, touched.key, touched.cas) == (b"", b"", cas)
    got = client.succeed(touch(b.GAT, b"k", 500))
    assert (got.extras, got.key, got.value, got.cas) == (flags(9), b"", b"v", cas)
    got = client.succeed(touch(b.GATK, b"k", 2592001))  # An absolute time, long ago.
    assert (got.extras, got.key, got.value) == (flags(9), b"k", b"v")
    client.fail(packet(b.GET, b"k"), b.NOT_FOUND)


def test_expired_at_once(client):
    client.succeed(store(b.SET, b"k", b"v", expiry=2592001))
    client.fail(packet(b.GET, b"k"), b.NOT_FOUND)


def test_flush(client):
    for request in (packet(b.FLUSH), packet(b.FLUSH, extras=bytes(4))):
        client.succeed(store(b.SET, b"k", b"v"))
        client.succeed(request)
        client.fail(packet(b.GET, b"k"), b.NOT_FOUND)
    client.succeed(store(b.SET, b"k", b"v"))
    client.silent(packet(b.FLUSHQ), packet(b.FLUSHQ, extras=bytes(4)))
    client.fail(packet(b.GET, b"k"), b.NOT_FOUND)


def test_version_and_noop(client):
    assert client.succeed(packet(b.VERSION)).value[:1].isdigit()
    client.succeed(packet(b.NOOP, opaque=0xCAFE))


def read_stats(client, group=b""):
    client.send(packet(b.STAT, group, opaque=3))
    found = {}
    while (reply := client.reply()).key or reply.value:
        assert (reply.opcode, reply.status, reply.opaque) == (b.STAT, b.OK, 3)
        found[reply.key.decode()] = reply.value.decode()
    assert reply.status == b.OK
    return found


def test_stats(client, shared):
    client.succeed(store(b.SET, b"k", b"v"))
    assert int(read_stats(client)["curr_items"]) >= 1
    with shared.connect() as text:
        assert read_stats(client).keys() == text.stats().keys()
        assert read_stats(client, b"settings").keys() == text.stats("settings").keys()
    assert read_stats(client, b"reset") == {}
    client.fail(packet(b.STAT, b"nonsense"), b.NOT_FOUND)


def test_any_bytes_are_a_key(client):
    for key in (bytes(4), b" \r\n", bytes(range(250)), b"k" * 250):
        client.succeed(store(b.SET, key, key))
        got = client.succeed(packet(b.GETK, key))
        assert (got.key, got.value) == (key, key)


def test_empty_and_large_values(client):
    for value in (b"", b"x" * 100000, bytes(range(256)) * 4000):
        client.succeed(store(b.SET, b"k", value))
        assert client.succeed(packet(b.GET, b"k")).value == value


def test_too_large(client):
    client.succeed(store(b.SET, b"k", b"v"))
    client.fail(store(b.SET, b"k", bytes(1048577)), b.TOO_LARGE)
    client.fail(packet(b.GET, b"k"), b.NOT_FOUND)
    client.fail(store(b.SETQ, b"k", bytes(1048577)), b.TOO_LARGE)


def test_unknown_command(client):
    for opcode in (0x1F, 0x25, 0x30, 0x50, 0xFF):
        client.fail(packet(opcode), b.UNKNOWN)


def test_fields_that_are_passed_over(client):
    client.succeed(store(b.SET, b"k", b"v", data_type=1, bucket=3))
    assert client.succeed(packet(b.GET, b"k", data_type=5, bucket=9)).value == b"v"


@pytest.mark.parametrize("name, packed", [
    ("get without a key", packet(b.GET)),
    ("get with extras", packet(b.GET, b"k", extras=bytes(4))),
    ("get with a value", packet(b.GET, b"k", b"v")),
    ("get with a key of 251", packet(b.GET, b"k" * 251)),
    ("set without extras", packet(b.SET, b"k", b"v")),
    ("set with half the extras", packet(b.SET, b"k", b"v", bytes(4))),
    ("set without a key", store(b.SET, b"", b"v")),
    ("set with a key of 251", store(b.SET, b"k" * 251, b"v")),
    ("append with extras", packet(b.APPEND, b"k", b"v", bytes(8))),
    ("delete with a value", packet(b.DELETE, b"k", b"v")),
    ("delete without a key", packet(b.DELETE)),
    ("increment without extras", packet(b.INCREMENT, b"k")),
    ("increment with a value", packet(b.INCREMENT, b"k", b"v", bytes(20))),
    ("touch without extras", packet(b.TOUCH, b"k")),
    ("gat without extras", packet(b.GAT, b"k")),
    ("flush with two bytes of extras", packet(b.FLUSH, extras=bytes(2))),
    ("version with a key", packet(b.VERSION, b"k")),
    ("noop with a key", packet(b.NOOP, b"k")),
    ("a body of two gigabytes", packet(b.GET, b"k", body_size=0x7FFFFFFF)),
], ids=lambda value: value if isinstance(value, str) else "")
def test_invalid_arguments_close(doomed, name, packed):
    doomed.fail(packed, b.INVALID)
    assert doomed.ended()


def test_quit(doomed):
    doomed.send(packet(b.NOOP) + packet(b.QUIT, opaque=5) + packet(b.NOOP))
    assert doomed.reply().opcode == b.NOOP
    quit_reply = doomed.reply()
    assert (quit_reply.opcode, quit_reply.status, quit_reply.opaque) == (b.QUIT, b.OK, 5)
    assert doomed.ended()


def test_quiet_quit(doomed):
    doomed.send(packet(b.NOOP) + packet(b.QUITQ) + packet(b.NOOP))
    assert doomed.reply().opcode == b.NOOP
    assert doomed.ended()


@pytest.mark.parametrize("wrong", [b"get k\r\n" + bytes(24), packet(b.NOOP, magic=0x81),
                                   packet(b.NOOP, magic=0x00)], ids=["text", "reply", "zero"])
def test_wrong_magic_later_closes(doomed, wrong):
    doomed.send(packet(b.NOOP) + wrong)
    assert doomed.reply().opcode == b.NOOP
    assert doomed.ended()


def test_byte_by_byte(client):
    requests = (store(b.SET, b"k", b"value", 5) + packet(b.GETK, b"k") + count(b.INCREMENT, b"n") +
                packet(b.GETQ, b"nope") + touch(b.GATKQ, b"k"))
    for byte in requests:
        client.send(bytes([byte]))
    replies = [client.reply() for _ in range(4)]
    assert [reply.opcode for reply in replies] == [b.SET, b.GETK, b.INCREMENT, b.GATKQ]
    assert replies[1].value == replies[3].value == b"value"


def test_long_pipeline(client):
    """Far more than any buffer holds, in both directions."""
    number = 5000
    client.silent(*(store(b.SETQ, b"key-%d" % i, b"value-%d" % i) for i in range(number)))
    client.send(b"".join(packet(b.GETKQ, b"key-%d" % i, opaque=i) for i in range(number)))
    for i in range(number):
        reply = client.reply()
        assert (reply.opaque, reply.key, reply.value) == (i, b"key-%d" % i, b"value-%d" % i)


def test_the_first_byte_chooses(shared):
    """C4: text and binary on one port, and each sees what the other stored."""
    with shared.connect() as text, BinaryClient(shared.address) as client:
        text.set(b"first", b"v", flags=77)
        got = client.succeed(packet(b.GET, b"first"))
        assert (got.value, got.extras) == (b"v", flags(77))
        client.succeed(store(b.SET, b"first", b"w", flags=78))
        text.ask(b"get first\r\n", b"VALUE first 78 1\r\nw\r\nEND\r\n")
    with shared.connect() as late:  # 0x81 is no request: it is a word of the text protocol.
        late.ask(b"\x81 k\r\n", b"ERROR\r\n")
        late.settled()
