# SPDX-License-Identifier: Apache-2.0
"""Memory: what an item costs, and whether a change of sizes strands any of it."""

import pathlib
import socket

from . import measure, network, servers
from .context import Benchmark, Unavailable
from .network import Load

ITEMS = (  # How many, bytes of the value, bar as a ratio to memcached's.
    (1_000_000, 10, 0.90),
    (1_000_000, 100, 0.80),
    (5_000_000, 100, 0.80),
    (1_000_000, 1000, 0.90),
)
MEMORY_MIB = 4096  # Nothing is evicted.
SHIFT_MIB = 256
SHIFT_SIZES = (100, 1000, 100)
SHIFT_BAR = 1 / 0.95  # As many items as in a fresh server, within 5 %.


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise Unavailable(f"/proc/{pid}/status has no VmRSS")


def limited(make_command, mebibytes):
    """The server with so much memory; the last -m counts."""
    return lambda context, port: [*make_command(context, port), "-m", str(mebibytes)]


def fill(context, server, items, value_size):
    load = Load("fill", 1, keys=items, data=("--value-size", str(value_size)))
    network.generate(context, server, load, "--prefill", may_miss=True)


def bytes_per_item(context, make_command, items, value_size):
    with servers.running(limited(make_command, MEMORY_MIB), context) as server:
        fill(context, server, items, value_size)
        return resident_bytes(server.pid) / context.scaled(items)


def run_memory(context):
    parts = []
    for items, value_size, bar in ITEMS:
        figures = {side: bytes_per_item(context, make_command, items, value_size)
                   for side, make_command in (("fairway", servers.fairway),
                                              ("memcached", servers.memcached))}
        name = f"cache-memory-{items // 1_000_000}m-{value_size}"
        part = measure.compare(name, [figures["fairway"]], [figures["memcached"]],
                               peer="memcached", bar=bar, unit="resident bytes per item")
        print(f"  {items:9,} items of {value_size:4} bytes: fairway {figures['fairway']:7.1f}, "
              f"memcached {figures['memcached']:7.1f}, ratio {part['ratio']:.3f}, bar {bar:.2f}: "
              f"{'ok' if part['ok'] else 'NOT MET'}", flush=True)
        parts.append(part)
    return measure.combine("cache-memory", parts)


def item_count(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            text += connection.recv(65536)
    rows = dict(line.split()[1:3] for line in text.splitlines() if line.startswith(b"STAT "))
    return int(rows[b"curr_items"])


def count_after(context, server, value_size):
    """How many items of that size fit: more are stored than can, three times over."""
    fill(context, server, 3 * SHIFT_MIB * (1 << 20) // (value_size + 60), value_size)
    return item_count(server.port)


def run_shift(context):
    """Fills with small values, then with large ones, then with small ones again."""
    command = limited(servers.fairway, SHIFT_MIB)
    fresh = {}
    for value_size in set(SHIFT_SIZES):
        with servers.running(command, context) as server:
            fresh[value_size] = count_after(context, server, value_size)
    parts = []
    with servers.running(command, context) as server:
        for number, value_size in enumerate(SHIFT_SIZES):
            count = count_after(context, server, value_size)
            part = measure.compare(f"cache-shift-{number + 1}-{value_size}", [fresh[value_size]],
                                   [count], peer="a fresh server", bar=round(SHIFT_BAR, 4),
                                   unit="items")
            part["resident_bytes"] = resident_bytes(server.pid)
            print(f"  {value_size:4} bytes: {count} items, a fresh server {fresh[value_size]}, "
                  f"resident {part['resident_bytes'] / (1 << 20):.0f} of {SHIFT_MIB} MiB: "
                  f"{'ok' if part['ok'] else 'NOT MET'}", flush=True)
            parts.append(part)
    return measure.combine("cache-shift", parts)


BENCHMARKS = {
    "cache-memory": Benchmark("resident bytes per item beside memcached", run_memory, differs=False),
    "cache-shift": Benchmark("items that fit after a change of sizes beside a fresh server",
                             run_shift, differs=False),
}
