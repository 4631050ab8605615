# SPDX-License-Identifier: Apache-2.0
"""`fairway serve` beside memcached: the server's CPU time per key under the loads that matter.

One locality beside one thread, on one processor, the client on another. The bare loop is measured
in the same rounds: what it takes is the price of moving the bytes. A bar is a ratio to memcached's.
"""

import dataclasses

from . import measure, network, servers
from .context import Benchmark
from .network import Load

ROUNDS = 15


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One benchmark: a load, what is said about it, and its bar."""
    about: str
    load: Load
    bar: float


COMPARISONS = {
    "cache-1": Comparison("1 request in flight on each of 50 connections, 9 % sets",
                          network.ONE_IN_FLIGHT, 0.80),
    "cache-16": Comparison("16 in flight on each of 50 connections, 9 % sets",
                           network.SIXTEEN_IN_FLIGHT, 0.20),
    "cache-multiget": Comparison("gets of 50 keys, 50 connections",
                                 Load("multiget", 12_000, ("--multiget", "50", "--sets", "0")),
                                 0.32),
    "cache-sets": Comparison("sets only, 50 connections",
                             Load("sets", 50_000, ("--sets", "100")), 0.85),
    "cache-10k": Comparison("values of 10 KiB, 50 connections, 9 % sets",
                            Load("10k", 40_000, keys=5_000, data=("--value-size", "10240")), 1.05),
    "cache-idle": Comparison("1,000 idle connections beside 50 busy ones",
                             Load("idle", 50_000, ("--idle", "1000")), 0.90),
}


def run(context, name):
    """All three servers in each round; the bare loop is for information."""
    comparison = COMPARISONS[name]
    sides = {"fairway": servers.fairway, "memcached": servers.memcached,
             "bare_loop": servers.bare_loop}
    reports = network.measure_rounds(context, sides, (comparison.load,), ROUNDS)
    parts = network.compare_servers(name, reports, "fairway", "memcached", (comparison.load,),
                                    comparison.bar)
    result = {**parts[0], "bench": name}
    ratios = [bare / peer for bare, peer in
              zip(network.cpu_ns(reports["bare_loop"][comparison.load]),
                  network.cpu_ns(reports["memcached"][comparison.load]), strict=True)]
    result["limit_ratio"] = round(measure.median(ratios), 4)
    result["limit_spread"] = round(measure.spread(ratios), 4)
    print(f"  bare_loop / memcached {result['limit_ratio']:.3f}: the limit")
    return result


BENCHMARKS = {
    name: Benchmark(f"fairway serve beside memcached: {comparison.about}",
                    lambda context, name=name: run(context, name))
    for name, comparison in COMPARISONS.items()
}
