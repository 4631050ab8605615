# SPDX-License-Identifier: Apache-2.0
"""Goal: the server keeps its limits, tells of them as memcached does, and who misbehaves harms only
himself (C6, C7). Method: real connections to a real process, each kind of misbehaviour beside a client
that must not notice; memory from /proc."""

import contextlib
import os
import signal
import socket

import pytest

import binary as b
from binary import BinaryClient, packet, store
from peer import wait_until
from support.stopped import stop

MIB = 1024 * 1024


def test_too_many_connections(start):
    """Over the limit a connection is told so and closed, counted, and the others go on. memcached
    keeps some of its descriptors for itself, so fewer than the limit get in."""
    limit, tries = 100, 120
    with start("-c", limit) as peer:
        clients = [peer.connect() for _ in range(tries)]
        accepted = []
        for client in clients:
            try:
                client.send(b"mn\r\n")
            except ConnectionError:
                pass
            if (line := client.line()) == b"MN\r\n":
                accepted.append(client)
            else:
                assert line == b"ERROR Too many open connections\r\n"
                assert client.ended()
        assert limit // 2 < len(accepted) <= limit
        stats = accepted[0].stats()
        assert int(stats["rejected_connections"]) == tries - len(accepted)
        assert stats["max_connections"] == str(limit)
        for client in accepted[1:]:
            client.close()
        wait_until(lambda: int(accepted[0].stats()["curr_connections"]) < limit // 2, "closed")
        with peer.connect() as late:
            late.settled()
        for client in clients:
            client.close()


@pytest.mark.parametrize("size, reply", [(1 * MIB + 1, b"SERVER_ERROR object too large for cache"),
                                         (3 * MIB, b"SERVER_ERROR object too large for cache"),
                                         (1000 * 1000, b"STORED")])
def test_default_item_size(shared, size, reply):
    with shared.connect() as client:
        client.ask(b"set k 0 0 %d\r\n%s\r\n" % (size, bytes(size)), reply + b"\r\n")
        client.settled()


@pytest.mark.parametrize("flags, fits, too_large", [
    (["-I", "4m"], 4 * MIB - 10000, 4 * MIB + 1),
    (["-I", "524288"], 500 * 1000, 512 * 1024 + 1)], ids=["4m", "524288"])
def test_item_size(start, flags, fits, too_large):
    with start(*flags) as peer, peer.connect() as client:
        value = os.urandom(fits)
        client.set(b"k", value)
        assert client.get(b"k") == value
        client.ask(b"set k 0 0 %d\r\n%s\r\n" % (too_large, bytes(too_large)),
                   b"SERVER_ERROR object too large for cache\r\n")
        client.settled()
        with BinaryClient(peer.address) as other:
            assert other.succeed(store(b.SET, b"b", value)).cas
            assert other.succeed(packet(b.GET, b"b")).value == value
            other.fail(store(b.SET, b"b", bytes(too_large)), b.TOO_LARGE)


def fill(client, size, number):
    """Stores that many values and returns the replies."""
    value = b"x" * size
    replies = []
    for index in range(number):
        client.send(b"set key-%d 0 0 %d\r\n%s\r\n" % (index, size, value))
        replies.append(client.line())
    return replies


def test_full_without_eviction(start):
    """-M: an error instead, in each protocol; what is there stays and can be removed."""
    with start("-M", "-m", "8") as peer, peer.connect() as client:
        replies = fill(client, 100000, 120)
        full = b"SERVER_ERROR out of memory storing object\r\n"
        assert set(replies) == {b"STORED\r\n", full}
        first = replies.index(full)
        assert 40 < first < 90
        assert client.get(b"key-0") == b"x" * 100000
        with BinaryClient(peer.address) as other:
            other.fail(store(b.SET, b"more", b"x" * 100000), b.OUT_OF_MEMORY)
            other.settled()
        client.ask(b"ms more 100000\r\n%s\r\n" % (b"x" * 100000), full)
        for index in range(first):
            client.ask(b"delete key-%d\r\n" % index, b"DELETED\r\n")
        client.set(b"key-0", b"y" * 100000)
        client.settled()


def test_full_with_eviction(start):
    with start("-m", "8") as peer, peer.connect() as client:
        assert set(fill(client, 10000, 2000)) == {b"STORED\r\n"}
        assert client.get(b"key-1999") == b"x" * 10000
        assert client.get(b"key-0") is None
        assert int(client.stats()["evictions"]) > 0


def test_smaller_memory_limit_at_run_time(start):
    with start("-m", "64") as peer, peer.connect() as client:
        client.ask(b"cache_memlimit 16\r\n", b"OK\r\n")
        assert client.stats()["limit_maxbytes"] == str(16 * MIB)
        fill(client, 10000, 3000)
        assert client.get(b"key-0") is None
        assert int(client.stats()["bytes"]) <= 16 * MIB


def test_idle_connections_are_closed(start):
    """A client of this test may be late itself, and closed before it has said anything."""
    with start("-o", "idle_timeout=1") as peer:
        stop(peer.process.pid)  # So that the command is there when the connection is accepted.
        with peer.connect() as idle:
            idle.send(b"mn\r\n")
            peer.process.send_signal(signal.SIGCONT)
            assert idle.rest() == b"MN\r\n"

        def kicks():
            with contextlib.suppress(ValueError, ConnectionError):  # It was closed meanwhile.
                return int(peer.stat("idle_kicks"))
            return 0

        wait_until(lambda: kicks() >= 1, "counted")


def test_half_closed(shared):
    """A client that has said all and waits gets its replies, then the end."""
    with shared.connect() as client:
        client.send(b"set k 0 0 1\r\nx\r\nget k\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.rest() == b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"


def test_cut_off_in_the_middle(shared):
    """Nothing of a value that did not come whole is stored."""
    with shared.connect() as other:
        other.set(b"whole", b"old")
        for part in (b"set whole 0 0 1000\r\nonly a part", b"set whole 0 0 3\r\nabc\r", b"set whol",
                     b"set whole 0 0 3", store(b.SET, b"whole", b"new")[:-1],
                     packet(b.DELETE, b"whole")[:-1], b"ms whole 3\r\nne"):
            for reset in (False, True):
                with shared.connect() as client:
                    client.send(part)
                    if reset:
                        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                 b"\1\0\0\0\0\0\0\0")
        assert other.get(b"whole") == b"old"


def test_who_does_not_read_is_not_read_from(start):
    """A client that asks and asks but takes no reply: memory stays bounded, others are served."""
    with start() as peer, peer.connect() as other:
        other.set(b"k", b"v" * 100000)
        before = peer.anonymous_kib()
        with peer.connect() as greedy:
            greedy.socket.setblocking(False)
            sent = 0
            with pytest.raises(BlockingIOError):
                while sent < 256 * MIB:
                    sent += greedy.socket.send(b"get k\r\n" * 1000)
            assert other.get(b"k") == b"v" * 100000
            assert peer.anonymous_kib() - before < 8 * 1024
        other.settled()


def test_slow_readers_together(start):
    """Fifty clients with large replies pending cost no copy of the value each."""
    with start("-I", "4m") as peer, peer.connect() as other:
        other.set(b"k", b"v" * (3 * MIB))
        before = peer.anonymous_kib()
        slow = [peer.connect() for _ in range(50)]
        for client in slow:
            client.send(b"get k\r\n" * 3)
        for client in slow:
            assert client.line() == b"VALUE k 0 %d\r\n" % (3 * MIB)
        assert other.get(b"nope") is None
        assert peer.anonymous_kib() - before < 32 * 1024
        for client in slow:
            client.close()
        other.settled()


def test_half_a_command_from_many(start):
    """Half-open peers: each sent a part and is silent. They cost little and hold nobody up."""
    number = 500
    with start("-c", "2000") as peer, peer.connect() as other:
        other.set(b"k", b"v")
        before = peer.anonymous_kib()
        halves = [b"get ", b"set k 0 0 10\r\nabc", b"mg k", packet(b.GET, b"k")[:10], b"g"]
        silent = [peer.connect() for _ in range(number)]
        for index, client in enumerate(silent):
            client.send(halves[index % len(halves)])
        wait_until(lambda: int(other.stats()["curr_connections"]) > number, "accepted")
        assert other.get(b"k") == b"v"
        # memcached keeps a read buffer of 16 KiB for each that has sent something.
        assert peer.anonymous_kib() - before < number * 20
        for client in silent:
            client.close()
        assert other.get(b"k") == b"v"


def test_many_commands_in_one_turn(start):
    """C8, -R: one long pipeline and a client beside it; both get all their answers."""
    with start("-t", "1", "-R", "5") as peer, peer.connect() as long, peer.connect() as short:
        long.set(b"k", b"v")
        long.send(b"get k\r\n" * 50000)
        short.settled()
        answer = b"VALUE k 0 1\r\nv\r\nEND\r\n"
        assert long.read(50000 * len(answer)) == answer * 50000
        assert int(short.stats()["conn_yields"]) > 0


def test_large_values_and_long_multigets(shared):
    value = os.urandom(1000 * 1000)
    with shared.connect() as client:
        client.ask(b"flush_all\r\n", b"OK\r\n")
        client.set(b"large", value)
        client.set(b"k", b"v")
        client.send(b"get k large k\r\n" * 3)
        for _ in range(3):
            client.expect(b"VALUE k 0 1\r\nv\r\nVALUE large 0 %d\r\n" % len(value))
            assert client.read(len(value)) == value
            client.expect(b"\r\nVALUE k 0 1\r\nv\r\nEND\r\n")
        client.send(b"get " + b"k " * 5000 + b"k\r\n")
        client.expect(b"VALUE k 0 1\r\nv\r\n" * 5001 + b"END\r\n")
        client.settled()
