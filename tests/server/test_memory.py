# SPDX-License-Identifier: Apache-2.0
"""Goal: the memory limit bounds the process, whatever sizes come and however they change, and a change of
sizes strands none of it.
Method: fill a small server several times over with values of random sizes, and with one size after the
other; read what the process had at most from the kernel, and compare the number of items with that of a
fresh server. Nothing depends on time: the stores are waited for."""

import pathlib
import random
import re

from served import Served

MIB = 1 << 20
BATCH = 1000
VALUE = b"v" * (512 << 10)


def fill(client, prefix, lengths):
    """Stores a value of each length under a new key; returns when all were stored."""
    batch = []
    for number, length in enumerate(lengths):
        batch.append(b"set %s%d 0 0 %d noreply\r\n%s\r\n" % (prefix, number, length, VALUE[:length]))
        if len(batch) == BATCH:
            client.send(b"".join(batch))
            batch.clear()
    client.send(b"".join(batch))
    assert client.ask(b"mn\r\n") == b"MN\r\n"


def stat(client, name):
    client.send(b"stats\r\n")
    rows = {}
    while (line := client.line()) != b"END\r\n":
        _, key, value = line.split()
        rows[key] = value
    return int(rows[name])


def resident_max(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) * 1024


def lengths_of(total, draw):
    """Lengths until they are `total` bytes together, keys and headers not counted."""
    while total > 0:
        length = draw()
        yield length
        total -= length + 50


def test_the_limit_bounds_the_process(fairway):
    program = pathlib.Path(fairway).read_bytes()
    # A sanitizer has memory of its own: then only the fill is tried.
    is_plain = b"__asan_init" not in program and b"__tsan_init" not in program
    dice = random.Random(12)
    limit = 64 * MIB
    draws = {
        b"all": lambda: int(2 ** dice.uniform(0, 19)),
        b"small": lambda: dice.randrange(1, 300),
        b"large": lambda: dice.randrange(9000, 500_000),
        b"medium": lambda: dice.randrange(1000, 12_000),
        b"same": lambda: 100,
        b"again": lambda: int(2 ** dice.uniform(0, 19)),
    }
    with Served(fairway, "-m", "64", "-t", "2") as server, server.connect() as client:
        for name, draw in draws.items():
            fill(client, name, lengths_of(limit * 5 // 4, draw))
            assert resident_max(server) <= limit * 105 // 100 + 64 * MIB or not is_plain
        assert stat(client, b"limit_maxbytes") == limit
        assert stat(client, b"evictions") > 0
        assert resident_max(server) > limit // 2  # Else nothing was tried.


def test_a_shift_of_sizes_strands_nothing(fairway):
    megabytes = 32  # Some hundred kilobytes are in lists for a moment, whatever the limit.

    def count(client, prefix, length):
        fill(client, prefix, [length] * (2 * megabytes * MIB // (length + 50)))
        return stat(client, b"curr_items")

    fresh = {}
    for length in (100, 1000, 20_000):
        with Served(fairway, "-m", str(megabytes)) as server, server.connect() as client:
            fresh[length] = count(client, b"f", length)
            assert stat(client, b"evictions") > 0
    with Served(fairway, "-m", str(megabytes)) as server, server.connect() as client:
        for phase, length in enumerate((100, 1000, 100, 20_000, 1000, 100)):
            items = count(client, b"p%d-" % phase, length)
            assert items >= fresh[length] * 95 // 100, (length, phase)


def test_libraries_that_nobody_needs_are_not_loaded(fairway):
    """hwloc would bring libxml2, ICU and the C++ library along, a megabyte of the process."""
    with Served(fairway) as server:
        maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
        assert "libhwloc" in maps
        for library in ("libxml2", "libicu", "/hwloc/"):
            assert library not in maps
