# SPDX-License-Identifier: Apache-2.0
"""What an idle connection costs in the server's own memory."""

import contextlib
import pathlib
import resource
import socket

from . import measure, servers
from .context import Benchmark, Unavailable

CONNECTIONS = 10_000
LIMIT_BYTES = 1024
ROUNDS = 3  # Memory hardly varies.


def private_bytes(pid):
    """Memory that the process alone uses. What the kernel keeps for its sockets is not in it."""
    total = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            total += int(rest.split()[0]) * 1024
    return total


def open_connection(port):
    """A connection that has been used once and is idle since."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"get nothing\r\n")
    if connection.recv(64) != b"END\r\n":
        raise Unavailable("the server does not answer on a further connection")
    return connection


def bytes_per_connection(context, make_command):
    count = context.scaled(CONNECTIONS)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(servers.running(make_command, context))
        # The first ones make the server touch what it needs once, whatever their number.
        for _ in range(10):
            stack.enter_context(open_connection(server.port))
        before = private_bytes(server.pid)
        for _ in range(count):
            stack.enter_context(open_connection(server.port))
        return (private_bytes(server.pid) - before) / count


def raise_descriptor_limit():
    """Ours; servers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 2 * servers.SPARE_DESCRIPTORS
    if soft < needed:
        if hard < needed and hard != resource.RLIM_INFINITY:
            raise Unavailable(f"only {hard} descriptors allowed, {needed} needed: see `ulimit -Hn`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def run(context):
    raise_descriptor_limit()
    sides = {"fairway": servers.fairway, "memcached": servers.memcached}
    figures = {side: [] for side in sides}
    rounds = context.rounds(ROUNDS)
    for number in range(rounds):
        for side in measure.alternate(list(sides), number):
            figures[side].append(bytes_per_connection(context, sides[side]))
            print(f"  round {number + 1} of {rounds}: {side}: {figures[side][-1]:.0f} bytes",
                  flush=True)
    measure.print_table("idle-connections: bytes of private memory per connection",
                        figures.items())
    ratios = [figure / LIMIT_BYTES for figure in figures["fairway"]]
    ratio = measure.median(ratios)
    print(f"  {ratio * LIMIT_BYTES:.0f} bytes, at most {LIMIT_BYTES}: "
          f"{'ok' if ratio <= 1 else 'NOT MET'}")
    return {"bench": "idle-connections", "ratio": round(ratio, 4), "better": "lower",
            "peer": f"the limit of {LIMIT_BYTES} bytes", "bar": 1.0, "ok": ratio <= 1,
            "runs": rounds, "spread": round(measure.spread(ratios), 4),
            "bytes_per_connection": round(ratio * LIMIT_BYTES, 1),
            "memcached_bytes_per_connection": round(measure.median(figures["memcached"]), 1),
            "connections": context.scaled(CONNECTIONS), "unit": "bytes per connection"}


BENCHMARKS = {
    "idle-connections": Benchmark("memory per idle connection, 10,000 of them", run),
}
