# SPDX-License-Identifier: Apache-2.0
"""Epochs over Corosync: three nodes in network namespaces of one machine (bench/epochs.py)."""

import json
import pathlib
import subprocess
import sys

from . import measure
from .context import Benchmark, Unavailable

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH.parent / "tests" / "cluster"))

import cluster as clusters  # noqa: E402

ROUND_RUNS = 9
ROUNDS = 3000
ROUND_BAR = 1.5
EVICT_RUNS = 15
KILLED_MS = 50  # The limit.
CUT_SLACK_MS = 100  # Beyond token and consensus.
RING_MS = 660  # Token and consensus of the cluster in bench/epochs.py.
NS_PER_MS = 1_000_000


def ask(context, what, *numbers):
    """The samples of each side."""
    if not (context.build / "tests" / "epoch_node").exists():
        raise Unavailable("this build is without Corosync: run `make packages GROUP=optional/corosync && make`")
    command = clusters.command([sys.executable, BENCH / "epochs.py", what, context.build.resolve(), *numbers])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"a cluster in namespaces of this machine: {(done.stderr.splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_round(context):
    found = ask(context, "round", context.rounds(ROUND_RUNS), context.scaled(ROUNDS))
    names = {"epoch": "an epoch", "bare": "a bare round", "lone": "one member's multicast"}
    measure.print_table("epoch-round: microseconds on the wall, three nodes, messages of 128 bytes",
                        [(name, [sample / 1000 for sample in found[side]]) for side, name in names.items()])
    lone = measure.compare("epoch-round-lone", found["epoch"], found["lone"],
                           peer="one member's multicast until it has it back", bar=ROUND_BAR, unit="ns per epoch")
    lone["informational"] = True
    return measure.combine("epoch-round", [
        measure.compare("epoch-round-bare", found["epoch"], found["bare"],
                        peer="three members' multicasts until all have all", bar=ROUND_BAR, unit="ns per epoch"),
        lone])


def run_evict(context):
    found = ask(context, "evict", context.rounds(EVICT_RUNS))
    measure.print_table("epoch-evict: milliseconds from the fault until the others go on in step",
                        [(side, [sample / NS_PER_MS for sample in samples]) for side, samples in found.items()])
    limits = {"killed": KILLED_MS, "cut": RING_MS + CUT_SLACK_MS}
    return measure.combine("epoch-evict", [
        measure.compare(f"epoch-evict-{side}", found[side], [limit * NS_PER_MS] * len(found[side]),
                        peer=f"a limit of {limit} ms", bar=1.0, unit="ns")
        for side, limit in limits.items()])


BENCHMARKS = {
    "epoch-round": Benchmark("an epoch over three nodes beside the multicasts it consists of", run_round),
    "epoch-evict": Benchmark("from a fault until the others go on, beside limits", run_evict),
}
