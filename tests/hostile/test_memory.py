# SPDX-License-Identifier: Apache-2.0
"""Goal: what clients make the server hold is bounded, whatever they send or leave unread, and a tenant that holds much
is refused before one that holds little. Method: crowds of connections with requests that never end and replies that
nobody reads, in one tenant; the resident memory, and a client of another tenant, who needs some of that too."""

import contextlib
import pathlib
import re
import socket

import pytest

from served import Served

KIB, MIB = 1 << 10, 1 << 20
MEMORY, BUDGET, CONSTANT = 64 * MIB, 16 * MIB, 16 * MIB
TENANTS = """
[server]
policy = wfq
[tenant flood]
match = address 127.0.0.2
[tenant modest]
match = address 127.0.0.1
"""


def is_plain(fairway):
    """A sanitizer has memory of its own."""
    program = pathlib.Path(fairway).read_bytes()
    return b"__asan_init" not in program and b"__tsan_init" not in program


def resident(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * KIB


def stats(client):
    client.send(b"stats\r\n")
    return dict(line.decode().split(maxsplit=2)[1:] for line in iter(client.line, b"END\r\n"))


def ended_line(_):
    return b"get " + b"k" * 200 + (b" " + b"k" * 200) * 5000  # A line of 1 MiB without an end.


def unread_pipeline(_):
    return b"get value\r\n" * 20000


def half_values(number):
    return b"set half-%d 0 0 8000\r\n" % number + b"v" * 7900


ATTACKS = {"lines without an end": ended_line, "replies that nobody reads": unread_pipeline, "half values": half_values}


class Crowd:
    """Connections from 127.0.0.2 that send what they are told, as far as the server takes it, and read nothing."""

    def __init__(self, server, count, said):
        host, port = server.addresses[0].rsplit(":", 1)
        self.clients = []
        for number in range(count):
            client = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
            client.setblocking(False)
            self.clients.append([client, said(number)])

    def push(self):
        """True: somebody could send something."""
        is_going_on = False
        for one in self.clients:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                while one[1]:
                    one[1] = one[1][one[0].send(one[1]):]
                    is_going_on = True
        return is_going_on

    def close(self):
        for client, _ in self.clients:
            client.close()


def fill(client):
    """The cache, all of its 64 MiB."""
    client.set(b"value", b"v" * 2000)
    for first in range(0, 80_000, 1000):
        client.send(b"".join(b"set fill-%d 0 0 1000 noreply\r\n%s\r\n" % (i, b"x" * 1000) for i in range(first, first + 1000))
                    + b"mn\r\n")
        assert client.line() == b"MN\r\n"
    client.set(b"value", b"v" * 2000)


@pytest.fixture
def config(tmp_path, monkeypatch):
    # With it, which `meson test` sets, the C library writes to all memory that it is asked for, used or not.
    monkeypatch.delenv("MALLOC_PERTURB_", raising=False)
    path = tmp_path / "fairway.conf"
    path.write_text(TENANTS)
    return str(path)


@pytest.mark.parametrize("option", [("--client-memory", "16"), ("-o", "read_buf_mem_limit=16")], ids=["ours", "memcached's"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_memory_is_bounded(fairway, config, attack, option):
    with Served(fairway, "-t", "2", "-m", "64", *option, "--config", config) as server, server.connect() as modest:
        fill(modest)
        crowd = Crowd(server, 600, ATTACKS[attack])
        while crowd.push():
            assert modest.get(b"value") == b"v" * 2000  # It is served meanwhile.
        rows = stats(modest)
        while attack != "half values" and int(rows["client_memory_refused"]) == 0:  # It has not read all yet.
            rows = stats(modest)
        assert int(rows["client_memory"]) <= BUDGET and int(rows["client_memory_limit"]) == BUDGET
        assert resident(server) <= MEMORY + BUDGET + CONSTANT or not is_plain(fairway)
        # Who holds little may still hold something: half a request, and a pipeline of 500 KiB of replies.
        with server.connect() as other:
            modest.send(b"set part 0 0 8000\r\n" + b"p" * 4000)
            assert other.get(b"value") == b"v" * 2000
            modest.send(b"p" * 4000 + b"\r\n" + b"get value\r\n" * 250)
            assert modest.line() == b"STORED\r\n"
            for _ in range(250):
                assert modest.file.read(len(b"VALUE value 0 2000\r\n") + 2002 + 5).endswith(b"END\r\n")
        crowd.close()


def test_memcached_s_reply(fairway):
    """To one whose half request cannot be kept."""
    with Served(fairway, "-t", "1", "--client-memory", "1") as server, server.connect() as client:
        crowd = [server.connect() for _ in range(400)]  # Enough, even if the server has read only a part of each request.
        refused = 0
        for one in crowd:
            one.send(b"set half 0 0 8000\r\n" + b"v" * 7900)
            client.set(b"k", b"v")  # Another takes the buffer.
        client.set(b"k", b"v")
        held = int(stats(client)["client_memory"])
        assert abs(held - MIB // 2) <= 8000  # Its tenant is alone, and may hold as much as is left.
        for one in crowd:
            one.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                refused += one.socket.recv(100) == b"SERVER_ERROR out of memory reading request\r\n"
        assert refused == int(stats(client)["client_memory_refused"]) > 10
        for one in crowd:
            one.close()
        while int(stats(client)["client_memory"]) > 0:
            pass
