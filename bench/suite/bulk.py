# SPDX-License-Identifier: Apache-2.0
"""Bulk tools: how fast `fairway dump` and `fairway load` are beside a plain client, and who feels it.

A million items of 100 bytes. The plain client (bench/load.c) reads them with gets of a hundred keys,
or writes them with sets, over as many connections as the tool and with many requests in flight: as
fast as a client of memcached's protocol can. Then the tool does its work. The server has one
processor, the clients another. For the latency the tool works again and again while the victim
(bench/victim.c) asks a thousand times a second; what it feels when the same file is loaded into a
memcached is told beside.
"""

import contextlib
import pathlib
import subprocess
import tempfile
import threading
import time

from . import measure, sched, servers
from .context import Benchmark, Unavailable

ROUNDS = 5
ITEMS = 1_000_000
VALUE_SIZE = 100
CONNECTIONS = 4
IN_FLIGHT = 16
SPEED_BAR = 1 / 0.7  # The plain client's items per second / the tool's.
LATENCY_BAR = 1.5

FLOODS = {"dump": ("--multiget", "100", "--sets", "0"), "load": ("--sets", "100")}


def plain(context, server, name, *more):
    """What the plain client reports."""
    keys = context.scaled(ITEMS)
    requests = keys // 100 if name == "dump" else keys
    return sched.checked([context.program("bench", "load"), "--port", str(server.port), "--keys", str(keys),
                          "--value-size", str(VALUE_SIZE), "--server-pid", str(server.pid),
                          "--connections", str(CONNECTIONS), "--in-flight", str(IN_FLIGHT),
                          "--requests", str(max(requests, 1)), "--warm-up", "0", *FLOODS[name],
                          *sched.pinned(context), *more])


def tool(context, server, name, path):
    """Runs it once, and returns how many items it did in a second."""
    begin = time.monotonic()
    done = subprocess.run([context.program("fairway"), name, "--json", "--connections", str(CONNECTIONS), "--server",
                           f"127.0.0.1:{server.port}", str(path)], capture_output=True, text=True, check=False,
                          preexec_fn=lambda: servers.prepare_child(context.client_cpu))
    if done.returncode != 0:
        raise Unavailable(f"fairway {name} gave up: {done.stderr.strip()}")
    return context.scaled(ITEMS) / (time.monotonic() - begin)


@contextlib.contextmanager
def working(context, server, name, path):
    """The tool at work again and again, for the time of a `with` block."""
    over = threading.Event()
    failures = []

    def work():
        try:
            while not over.is_set():
                tool(context, server, name, path)
        except Unavailable as failure:
            failures.append(failure)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()
    if failures:
        raise failures[0]


def victims_p99(context, server, name, path):
    """Alone, and beside the tool."""
    alone = sched.suffer(context, server.port, "--prefill")["latency_us"]["p99"]
    with working(context, server, name, path):
        return alone, sched.suffer(context, server.port)["latency_us"]["p99"]


def one_round(context, server, peer, name, path, number):
    """Items per second of both, in turns, and the victim's p99 alone and beside."""
    sides = {"plain": lambda: plain(context, server, name)["keys_per_second"],
             "tool": lambda: tool(context, server, name, path)}
    found = {side: sides[side]() for side in measure.alternate(list(sides), number)}
    found["alone"], found["beside"] = victims_p99(context, server, name, path)
    print(f"  plain client {found['plain']:10.0f} items/s, fairway {name} {found['tool']:10.0f}; victim's p99 alone "
          f"{found['alone']:7.0f} us, beside {found['beside']:7.0f}", flush=True)
    if peer is not None:
        found["memcached_alone"], found["memcached_beside"] = victims_p99(context, peer, name, path)
        print(f"  the same with memcached: victim's p99 alone {found['memcached_alone']:7.0f} us, beside "
              f"{found['memcached_beside']:7.0f}", flush=True)
    return found


def beside(name, rounds, prefix=""):
    return sched.judge(name, [found[f"{prefix}beside"] / found[f"{prefix}alone"] for found in rounds],
                       "the victim's p99 alone", LATENCY_BAR)


def run(context, name):
    with contextlib.ExitStack() as stack:
        path = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=context.build)), "items")
        server = stack.enter_context(servers.running(servers.fairway, context))
        peer = stack.enter_context(servers.running(servers.memcached, context)) if name == "load" else None
        plain(context, server, name, "--prefill")
        tool(context, server, "dump", path)
        rounds = [one_round(context, server, peer, name, path, number) for number in range(context.rounds(ROUNDS))]
    speed = sched.judge(f"bulk-{name}-speed", [found["plain"] / found["tool"] for found in rounds],
                        "items per second of a plain client / of the tool", round(SPEED_BAR, 4), figures=rounds)
    parts = [speed, beside(f"bulk-{name}-beside", rounds)]
    if peer is not None:
        parts.append({**beside(f"bulk-{name}-beside-memcached", rounds, "memcached_"), "informational": True})
    for part in parts:
        print(f"  {part['bench']:30} {part['ratio']:6.2f}, bar {part['bar']:.2f}: {'ok' if part['ok'] else 'NOT MET'}")
    return measure.combine(f"bulk-{name}", parts)


BENCHMARKS = {
    "bulk-dump": Benchmark("fairway dump beside a client that reads all items", lambda context: run(context, "dump")),
    "bulk-load": Benchmark("fairway load beside a client that writes all items", lambda context: run(context, "load")),
}
