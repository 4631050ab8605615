# SPDX-License-Identifier: Apache-2.0
"""Goal: items live as long as they were told to, in every protocol, and flush_all with a delay hits what
was there before (C1, C10). Method: all that expires is stored first, then the tests wait for it
together; what must stay is looked at when the rest has gone. No test says how long that takes. Commands
that must come before something expires are sent in one piece with it: then it does not matter how fast
the test is."""

import time

import binary as b
from binary import BinaryClient, packet, store, touch
from peer import wait_until

DAY = 24 * 60 * 60


def test_expiry(start):
    now = int(time.time())
    with start() as peer, peer.connect() as text, BinaryClient(peer.address) as packets:
        going = [b"set", b"absolute", b"touched", b"gat", b"ms", b"binary", b"btouch", b"stale",
                 b"vivified", b"cas", b"counter", b"mg-touched", b"last"]
        staying = [b"forever", b"long", b"far", b"retouched", b"replaced", b"appended"]
        text.set(b"set", b"v", expiry=1)
        text.set(b"absolute", b"v", expiry=now + 2)
        text.set(b"touched", b"v")
        text.ask(b"touch touched 1\r\n", b"TOUCHED\r\n")
        text.set(b"gat", b"v")
        text.ask(b"gat 1 gat\r\n", b"VALUE gat 0 1\r\nv\r\nEND\r\n")
        text.ask(b"ms ms 1 T1\r\nv\r\n", b"HD\r\n")
        text.set(b"mg-touched", b"v")
        text.ask(b"mg mg-touched T1\r\n", b"HD\r\n")
        text.ask(b"ms stale 1\r\nv\r\nmd stale I T1\r\n", b"HD\r\nHD\r\n")
        text.ask(b"mg vivified N1\r\n", b"HD W\r\n")
        text.ask(b"ma counter N1 J5\r\n", b"HD\r\n")
        text.set(b"cas", b"v")
        text.send(b"gets cas\r\n")
        unique = text.line().split()[4]
        text.expect(b"v\r\nEND\r\n")
        text.ask(b"cas cas 0 1 1 %s\r\nw\r\n" % unique, b"STORED\r\n")
        packets.succeed(store(b.SET, b"binary", b"v", expiry=1))
        packets.succeed(store(b.SET, b"btouch", b"v"))
        packets.succeed(touch(b.TOUCH, b"btouch", 1))

        text.set(b"forever", b"v")
        text.set(b"long", b"v", expiry=1000)
        text.set(b"far", b"v", expiry=now + 60 * DAY)
        text.ask(b"set retouched 0 2 1\r\nv\r\ntouch retouched 1000\r\n", b"STORED\r\nTOUCHED\r\n")
        text.set(b"replaced", b"v", expiry=2)
        text.set(b"replaced", b"v", expiry=0)
        text.set(b"appended", b"", expiry=1000)
        text.ask(b"append appended 0 1 1\r\nv\r\n", b"STORED\r\n")
        text.set(b"last", b"v", expiry=2)  # When it has gone, so would have what was to stay.

        for key in going:
            wait_until(lambda key=key: text.get(key) is None, f"expired: {key}")
            packets.fail(packet(b.GET, key), b.NOT_FOUND)
            text.ask(b"mg %s v\r\n" % key, b"EN\r\n")
            text.ask(b"touch %s 0\r\n" % key, b"NOT_FOUND\r\n")
            text.ask(b"incr %s 1\r\n" % key, b"NOT_FOUND\r\n")
            text.ask(b"replace %s 0 0 1\r\nx\r\n" % key, b"NOT_STORED\r\n")
            text.ask(b"delete %s\r\n" % key, b"NOT_FOUND\r\n")
            text.ask(b"add %s 0 0 1\r\nx\r\n" % key, b"STORED\r\n")
        for key in staying:
            assert text.get(key) == b"v", key
        text.send(b"mg long t\r\nmg far t\r\nmg forever t\r\n")
        left = [int(text.line()[4:]) for _ in range(3)]
        assert 0 < left[0] < 1000 and 59 * DAY < left[1] <= 60 * DAY and left[2] == -1


def test_flush_all_with_a_delay(start):
    with start() as peer, peer.connect() as text:
        text.set(b"before", b"v")
        text.ask(b"flush_all 2\r\nget before\r\nset between 0 0 1\r\nv\r\n",
                 b"OK\r\nVALUE before 0 1\r\nv\r\nEND\r\nSTORED\r\n")
        wait_until(lambda: text.get(b"before") is None, "flushed")
        wait_until(lambda: text.get(b"between") is None, "flushed")
        wait_until(lambda: survives(text), "over: what is stored after a flush stays")
        with BinaryClient(peer.address) as packets:
            packets.send(packet(b.FLUSH, extras=(2).to_bytes(4, "big")) + packet(b.GET, b"after"))
            assert packets.reply().status == b.OK
            assert packets.reply().value == b"v"
        wait_until(lambda: text.get(b"after") is None, "flushed by a packet")


def survives(text):
    text.set(b"after", b"v")
    return text.get(b"after") == b"v"


def test_the_sweeper_removes_what_nobody_asks_for(start):
    """Expired items leave by themselves, in the end: their number goes down without a get."""
    with start() as peer, peer.connect() as text:
        for index in range(1000):
            text.set(b"key-%d" % index, b"v", expiry=1)
        text.set(b"stays", b"v")

        def gone():
            text.send(b"lru_crawler crawl all\r\n")
            text.line()  # memcached's crawler may be told to hurry; another needs no order.
            return int(text.stats()["curr_items"]) == 1

        wait_until(gone, "swept")
        assert text.get(b"stays") == b"v"
