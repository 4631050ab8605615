# SPDX-License-Identifier: Apache-2.0
"""Two localities beside memcached with two threads: how many requests a second the machine serves.

Nothing is pinned: server and client share all processors, as the system likes. So what is measured
is the whole machine, of which the client is a part: bench/load, one thread, 50 connections. What it
takes per key is reported beside the servers' rates; where it takes most of the machine, no server
can be much faster than another.

Rates are compared as nanoseconds per request, so that lower is better here too.
"""

import copy

from . import measure, network, servers
from .context import Benchmark

ROUNDS = 15
LOCALITIES = 2
CLIENT = "bench/load, one thread, 50 connections"
# A load, and how many times memcached's rate ours must be at least.
LOADS = {network.ONE_IN_FLIGHT: 1.1, network.SIXTEEN_IN_FLIGHT: 2.0}


def threads(make_command):
    """The same server with two threads; the last -t counts, for both."""
    return lambda context, port: [*make_command(context, port), "-t", str(LOCALITIES)]


def request_ns(reports):
    return [1e9 / report["requests_per_second"] for report in reports]


def details(reports):
    """Medians of what is worth knowing about one side under one load."""
    def middle(name):
        return round(measure.median([report[name] for report in reports]), 1)

    return {"requests_per_second": middle("requests_per_second"),
            "server_cpu_ns_per_key": middle("server_cpu_ns_per_key"),
            "client_cpu_ns_per_key": middle("own_cpu_ns_per_key")}


def compare(load, reports, times):
    ours, theirs = reports["fairway"][load], reports["memcached"][load]
    part = measure.compare(f"cache-two-{load.name}", request_ns(ours), request_ns(theirs),
                           peer="memcached -t 2", bar=round(1 / times, 4),
                           unit="ns of time per request")
    part["client"] = CLIENT
    part["ours"], part["peers"] = details(ours), details(theirs)
    print(f"cache-two, {load.name} in flight on each connection; the client is {CLIENT}")
    print(f"  {'':10} {'requests/s':>11} {'server ns/key':>14} {'client ns/key':>14}")
    for side, found in (("fairway", part["ours"]), ("memcached", part["peers"])):
        print(f"  {side:10} {found['requests_per_second']:11.0f} "
              f"{found['server_cpu_ns_per_key']:14.0f} {found['client_cpu_ns_per_key']:14.0f}")
    print(f"  {1 / part['ratio']:.2f} times memcached's rate, at least {times:.2f} wanted: "
          f"{'ok' if part['ok'] else 'NOT MET'}")
    return part


def run(context):
    unpinned = copy.copy(context)
    unpinned.server_cpu = unpinned.client_cpu = None
    sides = {"fairway": threads(servers.fairway), "memcached": threads(servers.memcached)}
    reports = network.measure_rounds(unpinned, sides, tuple(LOADS), ROUNDS)
    return measure.combine("cache-two", [compare(load, reports, times)
                                         for load, times in LOADS.items()])


BENCHMARKS = {
    "cache-two": Benchmark("two localities beside memcached with two threads: requests a second",
                           run),
}
