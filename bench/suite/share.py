# SPDX-License-Identifier: Apache-2.0
"""A cluster's rate: three servers in network namespaces of one machine (bench/share.py)."""

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


def run_share(context):
    if not (context.build / "tests" / "epoch_node").exists():
        raise Unavailable("this build is without Corosync: run `apt-get install corosync libcpg-dev libcmap-dev` "
                          "and build again")
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


BENCHMARKS = {
    "epoch-share": Benchmark("what three servers serve of a cluster's rate, second by second", run_share),
}
