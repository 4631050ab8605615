# SPDX-License-Identifier: Apache-2.0
"""Servers under load, compared by the CPU time they take per request.

All servers of a comparison are up at the same time and are loaded in turns, for half a second each:
the shorter the turns, the more alike are the circumstances of the two halves of a ratio. An idle
server sleeps and does not disturb. Every few rounds all are started anew, so that a lucky or unlucky
layout of memory does not decide the whole benchmark.
"""

import contextlib
import dataclasses
import json
import subprocess

from . import measure, servers
from .context import Benchmark, Unavailable

ROUNDS = 25
ROUNDS_PER_START = 5
KEYS = 300_000
BUSY_SHARE = 0.10  # Of the server's time that it waited for its processor: others are in the way.


@dataclasses.dataclass(frozen=True)
class Load:
    """What the generator is told; see `load --help`."""
    name: str
    requests: int
    options: tuple = ()
    keys: int = KEYS
    data: tuple = ()  # Options that say what is stored; the fill before it needs them too.


# 50 connections, keys of 32 bytes, values of 100 bytes, 9 % sets: the generator's defaults.
ONE_IN_FLIGHT = Load("1", 50_000, ("--in-flight", "1"))
SIXTEEN_IN_FLIGHT = Load("16", 300_000, ("--in-flight", "16"))


def generate(context, server, load, *more, may_miss=False):
    """Puts the load on the server; returns the generator's report. A server that evicts may miss."""
    requests = context.scaled(load.requests)
    command = [context.program("bench", "load"), "--port", str(server.port),
               "--server-pid", str(server.pid), "--keys", str(context.scaled(load.keys)),
               "--requests", str(requests), "--warm-up", str(requests // 10), *load.data,
               *load.options, *more]
    if context.client_cpu is not None:
        command += ["--cpu", str(context.client_cpu)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: servers.prepare_child(None), check=False)
    if done.returncode != 0:
        raise Unavailable(f"the load generator gave up: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    if report["errors"] > 0 or (report["misses"] > 0 and not may_miss):
        raise Unavailable(f"{report['misses']} misses and {report['errors']} errors: what was "
                          "measured is not what was meant")
    return report


@contextlib.contextmanager
def filled_servers(context, sides, load):
    """All servers, with every key of the load in them."""
    with contextlib.ExitStack() as stack:
        found = {}
        for side, make_command in sides.items():
            found[side] = stack.enter_context(servers.running(make_command, context))
            fill = dataclasses.replace(load, requests=1, options=())
            generate(context, found[side], fill, "--prefill")
        yield found


def measure_rounds(context, sides, loads, rounds=ROUNDS):
    """Reports by side and load, one of each per round. All loads use the same keys and values."""
    rounds = context.rounds(rounds)
    reports = {side: {load: [] for load in loads} for side in sides}
    for first in range(0, rounds, ROUNDS_PER_START):
        with filled_servers(context, sides, loads[0]) as found:
            for number in range(first, min(first + ROUNDS_PER_START, rounds)):
                for load in loads:
                    for side in measure.alternate(list(sides), number):
                        reports[side][load].append(generate(context, found[side], load))
                    figures = ", ".join(f"{side} {cpu_ns(reports[side][load])[-1]:.0f}"
                                        for side in sides)
                    print(f"  round {number + 1} of {rounds}, load {load.name}, ns: {figures}",
                          flush=True)
    return reports


def cpu_ns(reports):
    return [report["server_cpu_ns_per_request"] for report in reports]


def idle_share(report):
    """Of the time of the run: the server neither ran nor waited for its processor. One thread."""
    busy_ns = report["server_cpu_ns_per_request"] + report["server_wait_ns_per_request"]
    return max(0.0, 1 - busy_ns * report["requests_per_second"] / 1e9)


def details(reports):
    """What else is worth knowing about one side's runs under one load: medians."""
    def middle(read):
        return round(measure.median([read(report) for report in reports]), 2)

    return {
        "requests_per_second": middle(lambda report: report["requests_per_second"]),
        "latency_p50_us": middle(lambda report: report["latency_us"]["p50"]),
        "latency_p99_us": middle(lambda report: report["latency_us"]["p99"]),
        "latency_p99.9_us": middle(lambda report: report["latency_us"]["p99.9"]),
        "latency_max_us": middle(lambda report: report["latency_us"]["max"]),
        "client_cpu_ns_per_key": middle(lambda report: report["own_cpu_ns_per_key"]),
        "server_wait_share": middle(lambda report: report["server_wait_ns_per_request"]
                                    / report["server_cpu_ns_per_request"]),
        "server_idle_share": middle(idle_share),
    }


def compare_servers(name, reports, ours, peer, loads, bar):
    """One part per load, with its table."""
    parts = []
    for load in loads:
        mine, theirs = reports[ours][load], reports[peer][load]
        measure.print_table(f"{name}, load {load.name}: server's CPU ns per request",
                            [(side, cpu_ns(reports[side][load])) for side in reports])
        part = measure.compare(f"{name}-{load.name}", cpu_ns(mine), cpu_ns(theirs), peer=peer,
                               bar=bar, unit="ns of CPU per request")
        part["ours"] = details(mine)
        part["peers"] = details(theirs)
        print(f"  {ours} / {peer} {part['ratio']:.3f}, bar {bar:.2f}, lower is better: "
              f"{'ok' if part['ok'] else 'NOT MET'}")
        for side in reports:
            waited = details(reports[side][load])["server_wait_share"]
            if waited > BUSY_SHARE:
                print(f"  note: {side} waited for its processor for {waited:.0%} of its own time: "
                      "the machine is busy, and these figures are provisional")
        parts.append(part)
    return parts


def run_reactor(context):
    """What io/reactor costs beside the least that a loop can do, and whether that least is one."""
    loads = (ONE_IN_FLIGHT, SIXTEEN_IN_FLIGHT)
    sides = {"reactor_server": servers.reactor_server, "bare_loop": servers.bare_loop,
             "memcached": servers.memcached}
    reports = measure_rounds(context, sides, loads)
    parts = compare_servers("reactor", reports, "reactor_server", "bare_loop", loads, 1.10)
    result = measure.combine("reactor", parts)
    for load in loads:
        ratios = [bare / peer for bare, peer in zip(cpu_ns(reports["bare_loop"][load]),
                                                    cpu_ns(reports["memcached"][load]),
                                                    strict=True)]
        result[f"bare_to_memcached_{load.name}"] = round(measure.median(ratios), 4)
        result[f"bare_to_memcached_{load.name}_spread"] = round(measure.spread(ratios), 4)
        print(f"bare_loop / memcached under load {load.name}: {measure.median(ratios):.3f}, "
              f"spread {measure.spread(ratios):.1%}")
    return result


def run_reactor_uring(context):
    """For information: epoll is what a server gets without asking. A second server on epoll stands
    beside the two; what it differs from the first is what the machine makes of no difference."""
    loads = (ONE_IN_FLIGHT, SIXTEEN_IN_FLIGHT)
    sides = {"io_uring": servers.reactor_server_uring, "epoll": servers.reactor_server,
             "epoll again": servers.reactor_server}
    reports = measure_rounds(context, sides, loads)
    parts = compare_servers("reactor-uring", reports, "io_uring", "epoll", loads, 1.0)
    for part, load in zip(parts, loads, strict=True):
        control = measure.compare("control", cpu_ns(reports["epoll again"][load]),
                                  cpu_ns(reports["epoll"][load]), peer="epoll", bar=1.0, unit="")
        part["control_ratio"], part["control_spread"] = control["ratio"], control["spread"]
        print(f"  epoll again / epoll {control['ratio']:.3f}, spread {control['spread']:.1%}; at "
              f"load {load.name}:")
        for side in ("io_uring", "epoll"):
            found = details(reports[side][load])
            print(f"  {side:10} p50 {found['latency_p50_us']:.0f} us, p99 "
                  f"{found['latency_p99_us']:.0f}, p99.9 {found['latency_p99.9_us']:.0f}, max "
                  f"{found['latency_max_us']:.0f}; {found['requests_per_second']:.0f} requests/s, "
                  f"server idle {found['server_idle_share']:.0%}")
    return {**measure.combine("reactor-uring", parts), "informational": True}


BENCHMARKS = {
    "reactor": Benchmark("io/reactor on epoll beside a bare epoll loop, 50 connections",
                         run_reactor),
    "reactor-uring": Benchmark("io/reactor on io_uring beside io/reactor on epoll, 50 connections",
                               run_reactor_uring),
}
