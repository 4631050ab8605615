# SPDX-License-Identifier: Apache-2.0
"""Goal: the length that a client states for a value costs other clients nothing. Items are evicted for bytes
that have come, in memory and in the file of large values; and a value that comes in small portions is stored.
Method: a full set of items, then connections that send the line of a `set` and little or nothing else, in each
protocol. Then all items are read back."""

import pathlib
import re
import struct

import pytest

from served import Served, wait_for

KIB, MIB = 1 << 10, 1 << 20
ITEMS, ITEM_SIZE = 40_000, 1000  # 42 of 64 MiB.
DECLARED = 1_048_000  # As much as the default --max-item-size lets pass.
LINES = {
    "text": lambda size: b"set e 0 0 %d\r\n" % size,
    "meta": lambda size: b"ms e %d\r\n" % size,
    # Eight bytes of flags and expiry stand before the key.
    "binary": lambda size: struct.pack(">BBHBBHIIQII", 0x80, 1, 1, 8, 0, 0, 9 + size, 0, 0, 0, 0) + b"e",
}


def stats(client):
    client.send(b"stats\r\n")
    return dict(line.decode().split(maxsplit=2)[1:] for line in iter(client.line, b"END\r\n"))


def stat(client, name):
    return int(stats(client)[name])


def store(client, count, size):
    for first in range(0, count, 1000):
        batch = range(first, min(first + 1000, count))
        client.send(b"".join(b"set item-%d 0 0 %d noreply\r\n%s\r\n" % (i, size, b"x" * size) for i in batch) + b"mn\r\n")
        assert client.line() == b"MN\r\n"


def still_there(client, count):
    found = 0
    for first in range(0, count, 1000):
        client.send(b"".join(b"mg item-%d\r\n" % i for i in range(first, min(first + 1000, count))) + b"mn\r\n")
        found += list(iter(client.line, b"MN\r\n")).count(b"HD\r\n")
    return found


def senders(server, client, count, said):
    """So many connections, each of which has said that, all of it read by the server."""
    before = stat(client, "bytes_read")
    opened = [server.connect() for _ in range(count)]
    for one in opened:
        one.send(said)
    wait_for(lambda: stat(client, "bytes_read") >= before + count * len(said))
    return opened


def close(connections):
    for one in connections:
        one.close()


def is_plain(fairway):
    """A sanitizer has memory of its own."""
    program = pathlib.Path(fairway).read_bytes()
    return b"__asan_init" not in program and b"__tsan_init" not in program


def resident(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * KIB


@pytest.mark.parametrize("protocol", LINES)
@pytest.mark.parametrize("count", [64, 200])
def test_idle_senders_evict_nothing(fairway, protocol, count):
    with Served(fairway, "-m", "64") as server, server.connect() as client:
        store(client, ITEMS, ITEM_SIZE)
        before = resident(server)
        idle = senders(server, client, count, LINES[protocol](DECLARED))
        assert still_there(client, ITEMS) == ITEMS
        assert stat(client, "evictions") == 0
        assert resident(server) < before + 8 * MIB or not is_plain(fairway)
        close(idle)


def test_senders_of_a_part_hold_five_times_that_at_most(fairway):
    with Served(fairway, "-m", "64") as server, server.connect() as client:
        store(client, ITEMS, ITEM_SIZE)
        part = 16 * KIB
        slow = senders(server, client, 100, LINES["text"](DECLARED) + b"y" * part)
        assert still_there(client, ITEMS) == ITEMS
        assert stat(client, "evictions") == 0
        assert resident(server) < (64 + 16) * MIB or not is_plain(fairway)
        for one in slow:  # And they can go on.
            one.send(b"y" * (DECLARED - part) + b"\r\n")
            assert one.line() == b"STORED\r\n"
        close(slow)


def test_large_values_in_memory(fairway):
    with Served(fairway, "-m", "256", "-I", "128m", "--large-value-min", "1g") as server, server.connect() as client:
        store(client, 40, 4_000_000)
        idle = senders(server, client, 9, b"set e 0 0 120000000\r\n" + b"y" * 20_000)
        assert still_there(client, 40) == 40
        close(idle)


def test_large_values_in_a_file(fairway, tmp_path):
    with Served(fairway, "-m", "64", "-I", "128m", "--large-limit", "128m",
                "--large-directory", str(tmp_path)) as server, server.connect() as client:
        store(client, 40, 3_000_000)
        idle = senders(server, client, 9, b"set e 0 0 120000000\r\n" + b"y" * 20_000)
        assert still_there(client, 40) == 40
        assert stat(client, "large_values") == 40
        # The others go for what does come.
        idle[0].send(b"y" * (120_000_000 - 20_000) + b"\r\n")
        assert idle[0].line() == b"STORED\r\n"
        assert still_there(client, 40) < 20
        close(idle)


@pytest.mark.parametrize("flags", [(), ("-I", "4m", "--large-value-min", "64k")], ids=["memory", "file"])
@pytest.mark.parametrize("protocol", LINES)
def test_a_value_in_small_portions(fairway, tmp_path, protocol, flags):
    if flags:
        flags += ("--large-directory", str(tmp_path))
    value = bytes(range(256)) * 800  # 200 KiB, through three steps.
    with Served(fairway, "-m", "64", *flags) as server, server.connect() as client, server.connect() as other:
        said = LINES[protocol](len(value)) + value + (b"" if protocol == "binary" else b"\r\n")
        for begin in range(0, len(said), 997):
            client.send(said[begin:begin + 997])
            assert other.ask(b"mn\r\n") == b"MN\r\n"  # Between any two portions somebody else is served.
        wait_for(lambda: other.get(b"e") == value)


def test_a_value_that_does_not_fit_is_refused_at_the_first_line(fairway):
    with Served(fairway, "-m", "64", "-I", "128m", "--large-value-min", "1g") as server, server.connect() as client:
        answer = client.ask(b"set e 0 0 100000000\r\n")
        assert answer == b"SERVER_ERROR out of memory storing object\r\n"
