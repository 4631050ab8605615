# SPDX-License-Identifier: Apache-2.0
"""What epochs are for: a cluster's rate, by three servers in network namespaces of one machine (bench/share.py),
and requests that fan out, in virtual time (bench/gang.c)."""

import json
import pathlib
import subprocess
import sys

from . import measure
from .context import Benchmark, Unavailable
from .epoch import clusters

BENCH = pathlib.Path(__file__).resolve().parent.parent

RUNS = 3
MOST, LEAST = 1.05, 0.95
GANG_RUNS, GANG_SECONDS = 5, 10
GANG_LOAD = "80"  # Where it is judged.
PAYS = 0.99


def run_share(context):
    if not (context.build / "tests" / "epoch_node").exists():
        raise Unavailable("this build is without Corosync: run `make packages GROUP=optional/corosync && make`")
    command = clusters.command([sys.executable, BENCH / "share.py", context.build.resolve(), context.rounds(RUNS)])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"a cluster in namespaces of this machine: {(done.stderr.splitlines() or ['?'])[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    measure.print_table("epoch-share: % of the cluster's rate in a second, all nodes together",
                        [("any second", [100 * part for part in found["seconds"]]),
                         *((f"2 s after: {name}", [100 * part for part in parts])
                           for name, parts in found["settled"].items())])
    return measure.combine("epoch-share", [
        measure.compare("epoch-share-most", [max(found["seconds"])], [1.0],
                        peer="the cluster's rate, in any second", bar=MOST, unit="of the rate"),
        *(measure.compare(f"epoch-share-least: {name}", [LEAST] * len(parts), parts,
                          peer="the least of a second, to which 95 % of the rate are compared", bar=1.0,
                          unit="of the rate")
          for name, parts in found["settled"].items())])



def run_gang(context):
    program = context.build / "bench" / "gang"
    found = [json.loads(subprocess.run([program, str(context.scaled(GANG_SECONDS)), str(seed)], check=True,
                                       stdout=subprocess.PIPE, text=True).stdout)
             for seed in range(1, context.rounds(GANG_RUNS) + 1)]
    print("epoch-gang: microseconds until a request that fans out over three nodes is complete, mean and p99")
    print(f"  {'load':>6} {'fifo':>20} {'wfq':>20} {'gang':>20} {'gang / wfq':>16}")
    pays = []
    for load in found[0]:
        figures = {side: [measure.median([run[load][side][place] for run in found]) for place in (0, 1)]
                   for side in ("fifo", "wfq", "gang")}
        ratios = [figures["gang"][place] / figures["wfq"][place] for place in (0, 1)]
        pays += [load] if ratios[0] <= PAYS else []
        print(f"  {load:>4} %", *(f"{mean:10.0f} {p99:9.0f}" for mean, p99 in figures.values()),
              f"{ratios[0]:9.3f} {ratios[1]:6.3f}")
    print(f"  It pays, by 1 % of the mean or more, at loads of {', '.join(pays) or 'none'} %; below it makes no difference.")
    return measure.compare("epoch-gang", [run[GANG_LOAD]["gang"][0] for run in found],
                           [run[GANG_LOAD]["wfq"][0] for run in found],
                           peer=f"wfq on each node, at {GANG_LOAD} % load", bar=1.0, unit="us to completion")


BENCHMARKS = {
    "epoch-gang": Benchmark("requests that fan out over three nodes, in virtual time", run_gang, differs=False),
    "epoch-share": Benchmark("what three servers serve of a cluster's rate, second by second", run_share),
}
