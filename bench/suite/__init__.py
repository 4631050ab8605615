# SPDX-License-Identifier: Apache-2.0
"""The benchmarks that bench/run knows."""

from .context import Benchmark, Context, Unavailable
from . import (
    bulk,
    cache,
    epoch,
    failover,
    hits,
    http,
    idle,
    instructions,
    jobs,
    large,
    log,
    measure,
    memory,
    micro,
    network,
    repl,
    ring,
    sched,
    share,
    simulate,
    two,
    volume,
    volume_nbd,
)

__all__ = ["Benchmark", "Context", "Unavailable", "benchmarks", "measure"]

MODULES = (
    network,
    cache,
    memory,
    hits,
    idle,
    simulate,
    log,
    jobs,
    ring,
    sched,
    instructions,
    epoch,
    volume,
    bulk,
    failover,
    http,
    large,
    repl,
    share,
    two,
    volume_nbd,
)


def benchmarks(build):
    """From name to Benchmark: first the micro-benchmarks that were built, then the servers."""
    found = dict(micro.benchmarks(build))
    for module in MODULES:
        found.update(module.BENCHMARKS)
    return found
