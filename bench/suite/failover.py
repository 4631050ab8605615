# SPDX-License-Identifier: Apache-2.0
"""A host dies: how soon its clients are served by another, with the samples of packaging/ha, beside what keepalived
itself needs to move the address in the same run, and beside Redis with Sentinel (bench/failover.py)."""

import json
import pathlib
import shutil
import subprocess
import sys

from . import measure
from .context import Benchmark, Unavailable
from .epoch import clusters

BENCH = pathlib.Path(__file__).resolve().parent.parent

RUNS, REDIS_RUNS = 10, 3
BEHIND_S = 0.1  # So much later than keepalived.
MS = 1000


def run_failover(context):
    if not (context.build / "tests" / "epoch_node").exists():
        raise Unavailable("this build is without Corosync: run `make packages GROUP=optional/corosync && make`")
    if shutil.which("keepalived", path=clusters.path()) is None:
        raise Unavailable("keepalived is not installed: run `apt-get install keepalived`")
    command = clusters.command([sys.executable, BENCH / "failover.py", context.build.resolve(), context.rounds(RUNS),
                                min(context.rounds(REDIS_RUNS), REDIS_RUNS)])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"a cluster in namespaces of this machine: {(done.stderr.splitlines() or ['?'])[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    served, moved, redis = found["served"], found["moved"], found["redis"]
    behind = [at - before for at, before in zip(served, moved)]
    measure.print_table("repl-failover: ms after the host died",
                        [("keepalived has the address", [at * MS for at in moved]),
                         ("Fairway answers there", [at * MS for at in served]),
                         ("how much later", [time * MS for time in behind]),
                         *([("Redis with Sentinel", [at * MS for at in redis])] if redis else [])])
    parts = [measure.compare("repl-failover-behind", [max(time, 0) for time in behind], [BEHIND_S] * len(behind),
                             peer="100 ms after keepalived has moved the address, in the same run", bar=1.0, unit="s")]
    if redis:
        middle = measure.median(redis)
        parts.append({**measure.compare("repl-failover-redis", served, [middle] * len(served),
                                        peer="Redis with Sentinel, down after 1 s", bar=1.0, unit="s"),
                      "informational": True})
    else:
        print("  Redis with Sentinel was left out: run `apt-get install redis-server redis-sentinel`")
    return measure.combine("repl-failover", parts)


BENCHMARKS = {
    "repl-failover": Benchmark("a host dies: served by another, beside keepalived and Redis with Sentinel", run_failover),
}
