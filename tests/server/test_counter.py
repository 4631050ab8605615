# SPDX-License-Identifier: Apache-2.0
"""Goal: counters of resources are served at an address of their own, as yrmcds documents them: to several
clients at the same time, who together never have more than there is, and until their connections end.
Method: a small client that knows the protocol's document and nothing of us. What a test waits for is asked
for until it is so; nothing is measured by the clock."""

import socket
import struct
import subprocess
import threading

from served import START_S, Client, Served
from test_trace import check_admissions, traced

NOOP, GET, ACQUIRE, RELEASE, STATS, DUMP = 0x00, 0x01, 0x02, 0x03, 0x10, 0x11
OK, NOT_FOUND, INVALID, NOT_AVAILABLE, NOT_ACQUIRED = 0x00, 0x01, 0x04, 0x21, 0x22
UNKNOWN, NO_MEMORY = 0x81, 0x82
HEADER = struct.Struct(">BBBBII")


class Counters(Client):
    """A client of the counters' protocol."""

    def __init__(self, address):
        super().__init__(address)
        self.opaque = 0

    def send(self, opcode, body=b""):
        self.opaque += 1
        self.socket.sendall(HEADER.pack(0x90, opcode, 0, 0, len(body), self.opaque) + body)

    def receive(self, opcode):
        """Status and body of the next reply."""
        magic, of, status, reserved, length, opaque = HEADER.unpack(self.file.read(HEADER.size))
        assert (magic, of, reserved, opaque) == (0x91, opcode, 0, self.opaque)
        return status, self.file.read(length)

    def ask(self, opcode, body=b""):
        self.send(opcode, body)
        return self.receive(opcode)

    def acquire(self, name, count, total):
        status, body = self.ask(ACQUIRE, struct.pack(">IIH", count, total, len(name)) + name)
        assert status != OK or body == struct.pack(">I", count)
        return status

    def release(self, name, count):
        status, body = self.ask(RELEASE, struct.pack(">IH", count, len(name)) + name)
        assert status != OK or body == b""
        return status

    def get(self, name):
        """The consumption, or None."""
        status, body = self.ask(GET, struct.pack(">H", len(name)) + name)
        assert status in (OK, NOT_FOUND)
        return struct.unpack(">I", body)[0] if status == OK else None

    def stats(self):
        status, body = self.ask(STATS)
        assert status == OK
        rows = {}
        while body:
            name_length, value_length = struct.unpack_from(">HH", body)
            name, value = body[4:4 + name_length], body[4 + name_length:][:value_length]
            rows[name.decode()] = int(value)
            body = body[4 + name_length + value_length:]
        return rows

    def dump(self):
        """Consumption and peak by name."""
        self.send(DUMP)
        rows = {}
        while True:
            status, body = self.receive(DUMP)
            assert status == OK
            if not body:
                return rows
            consumption, peak, length = struct.unpack_from(">IIH", body)
            name = body[10:]
            assert len(name) == length and name not in rows
            rows[name] = consumption, peak


def serve(fairway, *arguments):
    return Served(fairway, "--counter-enable", "--counter-listen", "127.0.0.1:0", *arguments)


def counters_of(server):
    return Counters(server.addresses[1])


def test_off_unless_enabled(fairway):
    """Their address is taken: a server that wanted it could not start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Served(fairway, "--counter-listen", address) as server, server.connect() as client:
            assert client.ask(b"mn\r\n") == b"MN\r\n"
        done = subprocess.run([str(fairway), "serve", "--listen", "127.0.0.1:0", "--counter-enable",
                               "--counter-listen", address], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=START_S)
        assert done.returncode == 71 and address in done.stderr


def test_default_address(fairway):
    with Served(fairway, "--counter-enable", "--counter-port", "0") as server:
        assert server.addresses[1].startswith("127.0.0.1:")
        with counters_of(server) as client:
            assert client.ask(NOOP) == (OK, b"")


def test_commands(fairway):
    with serve(fairway) as server, counters_of(server) as one, counters_of(server) as two:
        assert one.ask(NOOP) == (OK, b"")
        assert one.get(b"a") is None
        assert one.release(b"a", 0) == NOT_FOUND
        assert one.acquire(b"a", 2, 3) == OK
        assert two.acquire(b"a", 2, 3) == NOT_AVAILABLE
        assert two.acquire(b"a", 2, 4) == OK
        assert one.get(b"a") == two.get(b"a") == 4
        assert two.release(b"a", 3) == NOT_ACQUIRED
        assert two.release(b"a", 2) == OK
        assert one.release(b"a", 0) == OK
        assert one.acquire(b"a", 0, 4) == one.acquire(b"a", 5, 4) == INVALID
        assert one.acquire(b"", 1, 1) == INVALID
        assert one.ask(0x77, b"whatever") == (UNKNOWN, b"Unknown command")
        assert one.dump() == {b"a": (2, 4)}
        rows = one.stats()
        assert rows["objects"] == 1 and rows["claims"] == 1 and rows["refused"] == 1


def test_connections_give_back(fairway):
    """However they end, and on whichever core."""
    with serve(fairway, "-t", "2") as server, counters_of(server) as other:
        for end in ("close", "reset", "nonsense"):
            clients = [counters_of(server) for _ in range(4)]
            for client in clients:
                assert client.acquire(b"a", 1, 4) == OK
                assert client.acquire(b"b", 7, 100) == OK
            assert other.acquire(b"a", 1, 4) == NOT_AVAILABLE
            for client in clients:
                if end == "reset":
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                             struct.pack("ii", 1, 0))
                elif end == "nonsense":
                    client.socket.sendall(b"get a\r\nget b\r\n")
                    assert client.file.read() == b""
                client.close()
            while other.acquire(b"a", 4, 4) != OK:
                pass
            while other.get(b"b") != 0:
                pass
            assert other.release(b"a", 4) == OK


def test_many_at_once(fairway):
    """A counter of 3: never are there more than 3 inside, and each gets in so often as it wants."""
    inside, most, rounds = [0], [0], 100
    guard = threading.Lock()

    def work(address):
        with Counters(address) as client:
            for _ in range(rounds):
                while client.acquire(b"room", 1, 3) != OK:
                    pass
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with guard:
                    inside[0] -= 1
                assert client.release(b"room", 1) == OK
            done.append(address)

    done = []
    with serve(fairway, "-t", "2") as server:
        threads = [threading.Thread(target=work, args=(server.addresses[1],)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 5 and most[0] <= 3
        with counters_of(server) as client:
            assert client.get(b"room") == 0
            assert client.stats()["acquired"] == 5 * rounds
            (consumption, peak), = client.dump().values()
            assert consumption == 0 and peak <= 3


def test_pipeline_and_dump(fairway):
    """Thousands of requests in one go; the replies are more than a socket takes at once."""
    with serve(fairway, "-R", "5") as server, counters_of(server) as client:
        names = [b"%05d" % i + b"n" * 500 for i in range(5000)]
        sender = threading.Thread(target=lambda: [
            client.socket.sendall(HEADER.pack(0x90, ACQUIRE, 0, 0, 10 + len(name), 0) +
                                  struct.pack(">IIH", i + 1, 5000, len(name)) + name)
            for i, name in enumerate(names)])
        sender.start()
        for _ in names:
            assert client.receive(ACQUIRE)[0] == OK
        sender.join()
        assert client.dump() == {name: (i + 1, i + 1) for i, name in enumerate(names)}


def test_every_request_was_admitted(fairway, tmp_path):
    """By the request scheduler, as those of every other protocol."""
    path = tmp_path / "trace.json"
    with serve(fairway, "-t", "1", "--trace-file", str(path)) as server:
        with counters_of(server) as client:
            for _ in range(20):
                assert client.acquire(b"a", 1, 20) == OK
    assert check_admissions(traced(path)) >= 20


def test_limits(fairway):
    """Memory, and connections, which all addresses share."""
    with serve(fairway, "--counter-memory", "1m", "-c", "2") as server:
        with counters_of(server) as client, server.connect() as other:
            assert other.ask(b"mn\r\n") == b"MN\r\n"
            count = 0
            while (status := client.acquire(b"%08d" % count + b"n" * 8000, 1, 1)) == OK:
                count += 1
            assert status == NO_MEMORY and 100 < count < 140
            assert client.acquire(b"n" * 8192, 1, 1) == NO_MEMORY
            assert client.acquire(b"n" * 8193, 1, 1) == INVALID
            with counters_of(server) as third:
                assert third.file.read() == b""
            assert client.ask(NOOP) == (OK, b"")


def test_both_protocols_are_themselves(fairway):
    """A counter's packet is no command of memcached's, and neither is the other way round."""
    with serve(fairway) as server:
        with Counters(server.addresses[0]) as client:
            client.socket.sendall(HEADER.pack(0x90, NOOP, 0, 0, 0, 1) + b"\r\n")
            assert client.file.readline() == b"ERROR\r\n"
        with server.connect(server.addresses[1]) as client:
            client.send(b"set a 0 0 1\r\n1\r\n")
            assert client.at_end()
        with counters_of(server) as client, server.connect() as other:
            assert client.acquire(b"a", 1, 1) == OK
            assert other.get(b"a") is None
