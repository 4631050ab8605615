# SPDX-License-Identifier: Apache-2.0
"""Replication: what a slave costs its master and the master's clients.

    repl-async   sets at a master with one slave beside the same server without: CPU time per set, and throughput
    repl-ack     by how much a set takes longer if a slave has to confirm it, beside one round trip to that slave
    repl-copy    a slave is sent a million items, again and again, while the victim asks: its p99 alone and beside

The master has one processor; the clients have another, and the slave is there too unless there is a third. On a machine of two
the throughput of a master that is flooded by a pipeline is therefore for information: its slave and its clients have to share.
Clients that flood give way to the slave then, and what the master spends after the flood, until its slave has everything, counts
as well: else a slave that gets no processor would make replication look cheap.
"""

import contextlib
import os
import socket
import threading
import time

from . import measure, sched, servers
from .context import Benchmark, Unavailable

ROUNDS = 7
COPY_ROUNDS = 3
ITEMS = 1_000_000
VALUE_SIZE = 100
CPU_BAR = 1.25
RATE_BAR = round(1 / 0.85, 4)  # Sets per second without a slave / with one.
ACK_BAR = 1.5
COPY_BAR = 1.5
SETTLE_SECONDS = 120
FLOOD_NICE = 10
LOADS = {"1": ("--in-flight", "1", "--requests", "100000"), "16": ("--in-flight", "16", "--requests", "600000")}


def stats(port):
    """`stats replication`, or nothing if the server refuses."""
    with contextlib.suppress(OSError, ValueError), socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"stats replication\r\n")
        with connection.makefile("rb") as lines:
            rows = {}
            for line in lines:
                if line == b"END\r\n":
                    return rows
                _, name, value = line.decode().split(" ", 2)
                rows[name] = value.strip()
    return {}


def master(port_of_replication, *more):
    return lambda context, port: [*servers.fairway(context, port), "--repl-enable", "--repl-port",
                                  str(port_of_replication), *more]


def slave_cpu(context):
    """A processor of its own if there is one, else the clients'."""
    others = sorted(os.sched_getaffinity(0) - {context.server_cpu, context.client_cpu})
    return others[0] if others and context.client_cpu is not None else context.client_cpu


class Elsewhere:
    """The context, with the slave's processor for the server's."""

    def __init__(self, context):
        self._context = context
        self.server_cpu = slave_cpu(context)

    def __getattr__(self, name):
        return getattr(self._context, name)


@contextlib.contextmanager
def following(context, port_of_replication):
    """A slave that has everything."""
    def command(inner, port):
        return [*servers.fairway(inner, port), "--repl-enable", "--repl-port", "0", "--repl-serve-reads",
                "--repl-master", f"127.0.0.1:{port_of_replication}"]
    with servers.running(command, Elsewhere(context)) as slave:
        deadline = time.monotonic() + SETTLE_SECONDS
        while stats(slave.port).get("complete") != "yes":
            if time.monotonic() > deadline:
                raise Unavailable("the slave does not get everything")
            time.sleep(0.01)
        yield slave


def generate(context, server, *options, cpu=None, nice=0):
    """The report of a generator on the clients' processor, or on another."""
    pinned = sched.pinned(context) if cpu is None else ["--cpu", str(cpu)]
    return sched.checked(["nice", "-n", str(nice), context.program("bench", "load"), "--port", str(server.port),
                          "--server-pid", str(server.pid), "--keys", str(context.scaled(300_000)),
                          "--value-size", str(VALUE_SIZE), *options, *pinned])


def cpu_ns(server):
    """The CPU time of a server so far: the kernel's clock of another process."""
    return time.clock_gettime_ns(~server.pid << 3 | 2)


def catch_up(server, slave):
    """Waits until the slave has everything. Returns the master's CPU time for that, in nanoseconds."""
    begin = cpu_ns(server)
    position = stats(server.port).get("position")
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        rows = stats(slave.port)
        if rows.get("position") == position and rows.get("complete") == "yes":
            return cpu_ns(server) - begin
        if time.monotonic() > deadline:
            raise Unavailable("the slave does not catch up")
        time.sleep(0.01)


def shown(parts):
    for part in parts:
        verdict = "for information" if part.get("informational") else "ok" if part["ok"] else "NOT MET"
        print(f"  {part['bench']:24} {part['ratio']:6.2f}, bar {part['bar']:.2f}: {verdict}", flush=True)


def async_rounds(context, options):
    """Reports of both, in turns: with a slave and without."""
    ports = {"alone": servers.free_port(), "slave": servers.free_port()}
    reports = {"alone": [], "slave": []}
    with servers.running(master(ports["alone"]), context) as alone, \
            servers.running(master(ports["slave"]), context) as followed, following(context, ports["slave"]) as slave:
        sides = {"alone": alone, "slave": followed}
        options = [*options, "--sets", "100", "--warm-up", "10000"]
        if context.quick:
            options[options.index("--requests") + 1] = "20000"
        requests = int(options[options.index("--requests") + 1])
        for number in range(context.rounds(ROUNDS)):
            for side in measure.alternate(list(sides), number):
                report = generate(context, sides[side], *options, nice=FLOOD_NICE)
                if side == "slave":
                    report["server_cpu_ns_per_request"] += catch_up(followed, slave) / requests
                reports[side].append(report)
    return reports


def run_async(context):
    parts = []
    for name, options in LOADS.items():
        reports = async_rounds(context, options)
        cpu = {side: [report["server_cpu_ns_per_request"] for report in found] for side, found in reports.items()}
        rate = {side: [report["requests_per_second"] for report in found] for side, found in reports.items()}
        print(f"  {name:>2} in flight: {measure.median(cpu['alone']):6.0f} ns of the master's CPU per set alone, "
              f"{measure.median(cpu['slave']):6.0f} with a slave; {measure.median(rate['alone']):9.0f} sets/s alone, "
              f"{measure.median(rate['slave']):9.0f} with a slave", flush=True)
        parts.append(measure.compare(f"repl-async-cpu-{name}", cpu["slave"], cpu["alone"], peer="without a slave",
                                     bar=CPU_BAR, unit="ns of CPU per set"))
        ratios = [alone / slave for alone, slave in zip(rate["alone"], rate["slave"], strict=True)]
        crowded = name != "1" and slave_cpu(context) == context.client_cpu
        parts.append(sched.judge(f"repl-async-rate-{name}", ratios, "sets per second without a slave", RATE_BAR,
                                 **({"informational": True} if crowded else {})))
    shown(parts)
    return measure.combine("repl-async", parts)


def run_ack(context):
    """What is added to a set, and what a request to the slave takes from where the master is: medians of a client that
    waits for each reply."""
    one = ("--connections", "1", "--in-flight", "1", "--warm-up", "500",
           "--requests", "1000" if context.quick else "20000")
    ports = {"alone": servers.free_port(), "ack": servers.free_port()}
    ratios = []
    with servers.running(master(ports["alone"]), context) as alone, \
            servers.running(master(ports["ack"], "--repl-ack", "1", "--repl-ack-timeout", "30s"), context) as followed, \
            following(context, ports["alone"]), following(context, ports["ack"]) as slave:
        for number in range(context.rounds(ROUNDS)):
            sides = {"alone": lambda: generate(context, alone, "--sets", "100", *one),
                     "ack": lambda: generate(context, followed, "--sets", "100", *one),
                     "trip": lambda: generate(context, slave, "--sets", "0", *one, cpu=context.server_cpu)}
            found = {side: sides[side]()["latency_us"]["p50"] for side in measure.alternate(list(sides), number)}
            ratios.append((found["ack"] - found["alone"]) / found["trip"])
            print(f"  a set {found['alone']:7.1f} us, confirmed {found['ack']:7.1f}; a round trip to the slave "
                  f"{found['trip']:7.1f}", flush=True)
    part = sched.judge("repl-ack", ratios, "one round trip to the slave", ACK_BAR)
    shown([part])
    return part


def keys_of(port):
    """Every key with its CAS."""
    found = set()
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(b"lru_crawler metadump all\r\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                if line == b"END\r\n":
                    break
                words = dict(word.split(b"=", 1) for word in line.split())
                found.add((words[b"key"], words[b"cas"]))
    return found


def copy_round(context, server, port_of_replication):
    """The victim's p99 alone, and while slaves come one after the other; and how fast they were sent everything."""
    found = {"alone": sched.suffer(context, server.port, "--prefill")["latency_us"]["p99"], "rates": []}
    items = context.scaled(ITEMS)
    over = threading.Event()
    failures = []

    def copies():
        try:
            while not over.is_set():
                begin = time.monotonic()
                with following(context, port_of_replication):
                    found["rates"].append(items / (time.monotonic() - begin))
        except Unavailable as failure:
            failures.append(failure)

    worker = threading.Thread(target=copies)
    worker.start()
    try:
        found["beside"] = sched.suffer(context, server.port)["latency_us"]["p99"]
    finally:
        over.set()
        worker.join()
    if failures:
        raise failures[0]
    print(f"  victim's p99 alone {found['alone']:7.0f} us, beside {found['beside']:7.0f}; "
          f"{measure.median(found['rates']):9.0f} items/s copied, {len(found['rates'])} times", flush=True)
    return found


def run_copy(context):
    port_of_replication = servers.free_port()
    with servers.running(master(port_of_replication), context) as server:
        keys = context.scaled(ITEMS)
        sched.checked([context.program("bench", "load"), "--port", str(server.port), "--keys", str(keys),
                       "--value-size", str(VALUE_SIZE), "--requests", "1", "--prefill", *sched.pinned(context)])
        rounds = [copy_round(context, server, port_of_replication) for _ in range(context.rounds(COPY_ROUNDS))]
        with following(context, port_of_replication) as slave:
            ours, theirs = keys_of(server.port), keys_of(slave.port)
    if ours != theirs or len(ours) < keys:
        raise Unavailable(f"the slave has {len(theirs)} items and the master {len(ours)}, "
                          f"of which {len(ours - theirs)} differ")
    part = sched.judge("repl-copy", [found["beside"] / found["alone"] for found in rounds], "the victim's p99 alone",
                       COPY_BAR, items_per_second=round(measure.median(sum((r["rates"] for r in rounds), []))))
    shown([part])
    return part


BENCHMARKS = {
    "repl-async": Benchmark("sets at a master with a slave beside one without", run_async),
    "repl-ack": Benchmark("what a slave's confirmation adds to a set, beside a round trip to it", run_ack),
    "repl-copy": Benchmark("a copy of a million items while others are served", run_copy),
}
