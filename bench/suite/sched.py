# SPDX-License-Identifier: Apache-2.0
"""Tenants: does one's flood touch another's latency, and does a rate hold?

The victim (bench/victim.c) asks at a fixed modest rate on four connections, whatever happens; the
aggressor (bench/load.c) keeps its connections full of gets of a hundred keys. Each side, a server
with one policy, is measured with the victim alone and beside the aggressor. The server has one
processor, both clients another; the victim's runs at real-time priority, so that the clients do not
disturb each other.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

from . import measure, plot, servers
from .context import Benchmark, Unavailable

ROUNDS = 3
VICTIM_RATE = 1000
VICTIM_SECONDS = 4
FLOOD_FIRST = 1  # Seconds of flood before the victim begins.
LATENCY_BAR = 1.5
THROUGHPUT_BAR = 1 / 0.9  # The total with fifo / the total with wfq.
PRIORITY = ["chrt", "-f", "50"]
POLICIES = ("wfq", "fifo")

RATE = 20_000
RATE_SECONDS = 10
RATE_BAR = 1.02


@dataclasses.dataclass(frozen=True)
class Variant:
    """One kind of flood."""
    name: str
    about: str
    flood: tuple = ("--multiget", "100", "--sets", "0")
    data: tuple = ()
    keys: int = 100_000
    connections: int = 64
    in_flight: int = 10
    threads: int = 1
    by_prefix: bool = False
    has_memcached: bool = False


VARIANTS = (
    Variant("multigets", "64 connections, gets of 100 keys", has_memcached=True),
    Variant("large", "values of 100 KiB", flood=("--multiget", "4", "--sets", "0"), keys=2_000,
            data=("--value-size", "102400"), in_flight=4),
    Variant("sets", "sets of 10 KiB", flood=("--sets", "100"), keys=5_000,
            data=("--value-size", "10240")),
    Variant("2000", "2,000 connections", connections=2_000, in_flight=2),
    Variant("two-localities", "two localities, on two processors", threads=2),
    Variant("prefix", "tenants told apart by key prefix", by_prefix=True),
)


class Fairway:
    """`fairway serve` with two tenants; a command for servers.running()."""

    def __init__(self, folder, policy, threads=1, by_prefix=False, batch=""):
        self.path = pathlib.Path(folder, "fairway.conf")
        self.policy, self.threads, self.by_prefix, self.batch = policy, threads, by_prefix, batch
        self.flood_port = None

    def __call__(self, context, port):
        self.flood_port = servers.free_port()
        rules = (("prefix victim:", "address 127.0.0.0/8") if self.by_prefix else
                 (f"listener 127.0.0.1:{port}", f"listener 127.0.0.1:{self.flood_port}"))
        self.path.write_text(f"""[server]
listen = 127.0.0.1:{port}, 127.0.0.1:{self.flood_port}
policy = {self.policy}
threads = {self.threads}
[tenant web]
match = {rules[0]}
[tenant batch]
match = {rules[1]}
{self.batch}
""")
        options = servers.cache_options(port)
        return [*self.processors(context), context.program("fairway"), "serve", "--config",
                str(self.path), *options[options.index("-m"):]]

    def processors(self, context):
        """One for each locality; those of the clients come last."""
        if self.threads == 1 or context.server_cpu is None:
            return []
        others = [cpu for cpu in sorted(os.sched_getaffinity(0))
                  if cpu not in (context.server_cpu, context.client_cpu)] + [context.client_cpu]
        chosen = [context.server_cpu, *others][:self.threads]
        return ["taskset", "-c", ",".join(map(str, chosen))]


class Memcached:
    """The same for memcached, which has one port and knows no tenants."""

    def __call__(self, context, port):
        self.flood_port = port
        return servers.memcached(context, port)


def tenants(port):
    """What `stats tenants` answers, by name."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"stats tenants\r\n")
        answer = connection.makefile("r", newline="\n")
        found = {}
        while not (line := answer.readline()).startswith("END"):
            if not line.startswith("STAT "):
                raise Unavailable(f"the server has no tenants: {line.strip()}")
            _, name, value = line.strip().split(" ", 2)
            found[name] = value
        return found


def priority():
    """How to start the victim; real-time priority may be forbidden."""
    allowed = subprocess.run([*PRIORITY, "true"], stderr=subprocess.DEVNULL, check=False)
    return PRIORITY if allowed.returncode == 0 else []


def pinned(context):
    return [] if context.client_cpu is None else ["--cpu", str(context.client_cpu)]


def checked(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          preexec_fn=lambda: servers.prepare_child(None))
    if done.returncode != 0:
        raise Unavailable(f"{pathlib.Path(command[0]).name} gave up: {done.stderr.strip()}")
    return json.loads(done.stdout)


def suffer(context, port, *more):
    """The victim's report."""
    seconds = 1 if context.quick else VICTIM_SECONDS
    found = checked([*priority(), context.program("bench", "victim"), "--port", str(port),
                     "--rate", str(VICTIM_RATE), "--seconds", str(seconds), *pinned(context), *more])
    if 4 * found["stolen"] > found["windows"]:
        print(f"  note: the hypervisor had the processors in {found['stolen']} of {found['windows']} tenths of a second"
              f"{', which are left out' if 4 * found['stolen'] <= 3 * found['windows'] else '; nothing is left out'}")
    return found


def load(context, variant, server, port):
    return [context.program("bench", "load"), "--port", str(port), "--keys",
            str(context.scaled(variant.keys)), "--server-pid", str(server.pid), *variant.data,
            *pinned(context)]


@contextlib.contextmanager
def at_work(command, first):
    """The load generator at work, after its first seconds; its report is in the list when the block
    has ended."""
    report = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: servers.prepare_child(None))
    try:
        time.sleep(first)
        yield report
        out, err = process.communicate()
        if process.returncode != 0:
            raise Unavailable(f"the load generator gave up: {err.strip()}")
        report.append(json.loads(out))
    finally:
        process.kill()
        process.wait()


def flooded(context, variant, server, port):
    """The aggressor at work."""
    seconds = FLOOD_FIRST + 1 + (1 if context.quick else VICTIM_SECONDS)
    command = [*load(context, variant, server, port), "--connections", str(variant.connections),
               "--in-flight", str(variant.in_flight), "--requests", str(1 << 60), "--warm-up", "0",
               "--seconds", str(seconds), *variant.flood]
    return at_work(command, FLOOD_FIRST)


def run_side(context, variant, command):
    """The victim alone and beside, and what the aggressor got."""
    with servers.running(command, context) as server:
        checked([*load(context, variant, server, command.flood_port), "--requests", "1",
                 "--warm-up", "0", "--prefill"])
        alone = suffer(context, server.port, "--prefill")
        with flooded(context, variant, server, command.flood_port) as flood:
            beside = suffer(context, server.port)
        found = {"alone": alone, "beside": beside, "flood": flood[0]}
        if isinstance(command, Fairway):
            rows = tenants(server.port)
            found["shed"] = int(rows["web:shed"]) + int(rows["batch:shed"])
            found["server_delay_p99_us"] = int(rows["web:delay_p99_ns"]) / 1000
        return found


def side_line(name, found):
    victim = found["beside"]
    return (f"    {name:10} alone p50 {found['alone']['latency_us']['p50']:8.0f} us, p99 "
            f"{found['alone']['latency_us']['p99']:8.0f}; beside p50 "
            f"{victim['latency_us']['p50']:8.0f}, p99 {victim['latency_us']['p99']:8.0f}; "
            f"server's own delay p99 {found.get('server_delay_p99_us', float('nan')):6.0f}; flood "
            f"{found['flood']['keys_per_second']:9.0f} keys/s; answered "
            f"{victim['answered'] - victim['errors']} of {victim['requests']}")


def judge(name, ratios, peer, bar, **more):
    ratio = measure.median(ratios)
    return {"bench": name, "ratio": round(ratio, 4), "better": "lower", "peer": peer, "bar": bar,
            "ok": ratio <= bar, "runs": len(ratios), "spread": round(measure.spread(ratios), 4),
            **more}


def p99(rounds, side, when):
    return [found[side][when]["latency_us"]["p99"] for found in rounds]


def ratios(above, below):
    return [one / other if other > 0 else float("inf") for one, other in zip(above, below,
                                                                             strict=True)]


def is_sound(rounds):
    """Every request of the victim's was served: none refused, none lost, nothing shed."""
    return all(found["wfq"][when]["errors"] == 0 and
               found["wfq"][when]["answered"] == found["wfq"][when]["requests"] and
               found["wfq"]["shed"] == 0
               for found in rounds for when in ("alone", "beside"))


def is_crowded(variant, context):
    """Two localities and a client need three processors: with fewer, the system's turns between the
    threads are measured, and not the server's between tenants."""
    return variant.threads > 1 and context.machine()["processors"] <= variant.threads


def variant_parts(variant, rounds, peer_alone, informational):
    """What is judged of one variant."""
    name = f"sched-isolation-{variant.name}"
    parts = [
        judge(f"{name}-beside", ratios(p99(rounds, "wfq", "beside"), p99(rounds, "wfq", "alone")),
              "the victim's p99 alone", LATENCY_BAR, figures=rounds),
        judge(f"{name}-memcached", [each / peer_alone for each in p99(rounds, "wfq", "beside")],
              "the victim's p99 with memcached alone", LATENCY_BAR),
        judge(f"{name}-throughput",
              [found["fifo"]["flood"]["keys_per_second"] / found["wfq"]["flood"]["keys_per_second"]
               for found in rounds], "keys per second with fifo / with wfq", THROUGHPUT_BAR),
    ]
    if not is_sound(rounds):
        for part in parts:
            part.update(ok=False, unsound="not every request of the victim's was served")
    for part in parts:
        part.update({"informational": True} if informational else {})
        print(f"  {part['bench']:42} {part['ratio']:6.2f}, bar {part['bar']:.2f}: "
              f"{'ok' if part['ok'] else 'NOT MET'}"
              f"{', for information: too few processors' if informational else ''}")
    return parts


def run_isolation(context):
    parts, peer_alone = [], None
    if not priority():
        print("  note: real-time priority is not allowed; the victim is disturbed by the aggressor's "
              "client")
    with tempfile.TemporaryDirectory() as folder:
        for variant in VARIANTS:
            rounds = []
            print(f"  {variant.name}: {variant.about}")
            for _ in range(context.rounds(ROUNDS)):
                sides = {policy: Fairway(folder, policy, variant.threads, variant.by_prefix)
                         for policy in POLICIES}
                if variant.has_memcached:
                    sides["memcached"] = Memcached()
                found = {side: run_side(context, variant, command)
                         for side, command in sides.items()}
                for side, figures in found.items():
                    print(side_line(side, figures), flush=True)
                rounds.append(found)
            if variant.has_memcached:
                peer_alone = measure.median(p99(rounds, "memcached", "alone"))
                path = context.build / "sched-isolation.svg"
                path.write_text(plot.latencies(rounds))
                print(f"  a picture of it is in {os.path.relpath(path)}")
            parts += variant_parts(variant, rounds, peer_alone, is_crowded(variant, context))
    return measure.combine("sched-isolation", parts)


def measure_rate(context, folder, policy, threads):
    """What a flooding tenant got / what its rate allows, over the server's own clock."""
    variant = Variant("rate", "", flood=("--sets", "0"), keys=1_000, in_flight=20)
    command = Fairway(folder, policy, threads, batch=f"rate = {RATE}\n")
    seconds = 2 if context.quick else RATE_SECONDS
    with servers.running(command, context) as server:
        checked([*load(context, variant, server, server.port), "--requests", "1", "--warm-up", "0",
                 "--prefill"])
        flood = subprocess.Popen(
            [*load(context, variant, server, command.flood_port), "--connections", "64",
             "--in-flight", "20", "--requests", str(1 << 60), "--seconds", str(seconds + 30),
             "--warm-up", "0", "--sets", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: servers.prepare_child(None))
        try:
            time.sleep(FLOOD_FIRST)  # The burst is used up.
            first = tenants(server.port)
            time.sleep(seconds)
            last = tenants(server.port)
        finally:
            flood.kill()
            flood.wait()
    lasted = (int(last["uptime_ms"]) - int(first["uptime_ms"])) / 1000
    got = int(last["batch:cost"]) - int(first["batch:cost"])
    all_allowed = RATE * int(last["uptime_ms"]) / 1000 + RATE / 10
    return got / (RATE * lasted), int(last["batch:cost"]) / all_allowed


def run_rates(context):
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("tbf", "wfq"):
            for threads in (1, 2):
                found = [measure_rate(context, folder, policy, threads)
                         for _ in range(context.rounds(1))]
                off = [max(share, 1 / share) if share > 0 else float("inf") for share, _ in found]
                part = judge(f"sched-rates-{policy}-{threads}", off,
                             f"{RATE} per second for {RATE_SECONDS} s", RATE_BAR,
                             shares=[round(share, 4) for share, _ in found])
                part["ok"] = part["ok"] and all(burst <= 1 for _, burst in found)
                print(f"  {policy}, {threads} localities: {found[0][0]:.4f} of the rate, "
                      f"{found[0][1]:.4f} of what rate and burst allow since the start: "
                      f"{'ok' if part['ok'] else 'NOT MET'}", flush=True)
                parts.append(part)
    return measure.combine("sched-rates", parts)


BENCHMARKS = {
    "sched-isolation": Benchmark("a victim's latency beside a flood of another tenant's, and beside "
                                 "memcached's", run_isolation),
    "sched-rates": Benchmark("what a tenant with a rate gets, with one and two localities",
                             run_rates, differs=False),
}
