# SPDX-License-Identifier: Apache-2.0
"""Goal: tens of thousands of connections, a thousand of them busy, without an error, and an idle one
costs no more than 1 KiB of the server's memory (C7).
Method: one process opens as many as its descriptors allow, 20,000 at most; memory is what /proc says
the server wrote to (RssAnon), before and after. The kernel's own memory for sockets is not counted."""

import json
import resource
import selectors
import socket

import pytest

from peer import PATIENCE_S, wait_until

CONNECTIONS_MAX = 20000
SPARE = 200  # Descriptors for everything else, on both sides.
BUSY = 1000
ROUNDS = 10
IDLE_MAX_BYTES = 1024
PIPELINE = 5
TOGETHER = 50  # So many that come and go may be open at the same time, or memory depends on who is faster.


@pytest.fixture(scope="module")
def number():
    """How many connections two processes with our limits can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(CONNECTIONS_MAX, hard - SPARE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def idle_max_bytes(build):
    """A sanitizer pads all it hands out."""
    options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    sanitizer = next(option["value"] for option in options if option["name"] == "b_sanitize")
    return IDLE_MAX_BYTES if sanitizer == "none" else 8 * IDLE_MAX_BYTES


class Busy:
    """One connection that stores and fetches, a few commands at a time, and checks every byte."""

    def __init__(self, connection, name):
        self.connection = connection
        self.name = name
        self.rounds = 0
        self.received = b""
        self.expected = b""

    def begin(self):
        value = b"value-%d-%d" % (self.name, self.rounds) * 10
        key = b"busy-%d" % self.name
        self.connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value) +
                                b"get %s\r\n" % key * PIPELINE)
        self.expected = b"STORED\r\n" + (b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" %
                                         (key, len(value), value)) * PIPELINE
        self.received = b""

    def readable(self):
        """Whether it has done all its rounds."""
        self.received += self.connection.recv(65536)
        assert self.expected.startswith(self.received), self.received[-100:]
        if len(self.received) < len(self.expected):
            return False
        self.rounds += 1
        if self.rounds == ROUNDS:
            return True
        self.begin()
        return False


def work(connections):
    """All of them at the same time."""
    with selectors.EpollSelector() as selector:
        for name, connection in enumerate(connections):
            busy = Busy(connection, name)
            selector.register(connection, selectors.EVENT_READ, busy)
            busy.begin()
        left = len(connections)
        while left > 0:
            ready = selector.select(PATIENCE_S)
            assert ready, f"{left} connections got no answer"
            for key, _ in ready:
                if key.data.readable():
                    selector.unregister(key.fileobj)
                    left -= 1


def ask_all(connections):
    """Each says something and is answered, so none was closed or forgotten."""
    for connection in connections:
        connection.sendall(b"mn\r\n")
    for connection in connections:
        assert connection.recv(100) == b"MN\r\n"


def test_many(start, number, idle_max_bytes):
    with start("-c", number + SPARE, "-b", "4096") as peer, peer.connect() as control:
        warm = [socket.create_connection(peer.address, PATIENCE_S) for _ in range(100)]
        work(warm)
        for connection in warm:
            connection.close()
        wait_until(lambda: int(control.stats()["curr_connections"]) < 10, "the first ones closed")

        before = peer.anonymous_kib()
        connections = []
        try:
            for _ in range(number - 1):
                connections.append(socket.create_connection(peer.address, PATIENCE_S))
            ask_all(connections)
            assert int(control.stats()["curr_connections"]) >= number
            assert control.stats()["rejected_connections"] == "0"
            each = (peer.anonymous_kib() - before) * 1024 / len(connections)
            print(f"{len(connections)} connections, {each:.0f} bytes each when idle")

            work(connections[::len(connections) // BUSY][:BUSY])
            ask_all(connections)
            assert each <= idle_max_bytes
        finally:
            for connection in connections:
                connection.close()
        wait_until(lambda: int(control.stats()["curr_connections"]) < 10, "all closed")
        control.settled()


def test_come_and_go(start):
    """Connections that open, ask and go, by every kind of leaving, leave nothing behind."""
    with start() as peer, peer.connect() as control:
        reset = b"\1\0\0\0\0\0\0\0"

        def visit(number):
            for index in range(number):
                connection = socket.create_connection(peer.address, PATIENCE_S)
                connection.sendall(b"set k 0 0 1\r\nx\r\nget k\r\nset half 0 0 100\r\n")
                if index % 3 == 0:
                    connection.recv(1000)
                if index % 2 == 0:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                connection.close()
                if index % TOGETHER == TOGETHER - 1:
                    wait_until(lambda: int(control.stats()["curr_connections"]) < 10, "closed")

        visit(500)
        before = peer.anonymous_kib()
        visit(2000)
        assert peer.anonymous_kib() - before < 1024
        control.settled()
