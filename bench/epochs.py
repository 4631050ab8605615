#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/run epoch-... runs inside namespaces: a cluster of three nodes, measured.

    epochs.py round BUILD RUNS ROUNDS     three rounds' latencies, in turns
    epochs.py evict BUILD RUNS            from a fault until the others go on

Each prints one JSON object on its last line: from the name of a side to its samples, in nanoseconds.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
sys.path.insert(0, str(HERE))

import cluster as clusters  # noqa: E402
from schedulers import Schedulers  # noqa: E402
from suite import measure  # noqa: E402

QUIET_TOKEN_MS, QUIET_CONSENSUS_MS = 1000, 1200  # Where nothing is to be lost.
TOKEN_MS, CONSENSUS_MS = 300, 360
DEADLINE_S = 120


def one_round(program, cluster, modes, group, rounds):
    """The median of the medians that the members saw, but for those who only listened."""
    members = [node.start([program, mode, group, len(modes), rounds], stdout=subprocess.PIPE, text=True)
               for mode, node in zip(modes, cluster.nodes)]
    found = [member.communicate(timeout=DEADLINE_S)[0] for member in members]
    assert all(member.returncode == 0 for member in members), f"{modes}: {found}"
    return measure.median([json.loads(text)["median"] for mode, text in zip(modes, found) if mode != "listen"])


def rounds(folder, build, runs, count):
    program = build / "bench" / "epoch_round"
    sides = {"epoch": ["epoch"] * 3, "bare": ["bare"] * 3, "lone": ["speak", "listen", "listen"]}
    found = {side: [] for side in sides}
    with clusters.Cluster(folder, 3, QUIET_TOKEN_MS, QUIET_CONSENSUS_MS) as cluster:
        for node in cluster.nodes:
            node.corosync_start()
        cluster.settle()
        for number in range(runs):
            for side in measure.alternate(list(sides), number):
                found[side].append(one_round(program, cluster, sides[side], f"{side}{number}", count))
    return found


def gone_on(schedulers, since_ns, *numbers):
    """Nanoseconds from that time until the last of these was told of an epoch in which they are alone."""
    schedulers.wait_in_step(*numbers)
    chosen = [schedulers.running[number - 1] for number in numbers]
    wanted = sum(scheduler.mask for scheduler in chosen)
    return max(min(at for at, epoch in zip(scheduler.told_ns, scheduler.told)
                   if at >= since_ns and epoch[2] == wanted) for scheduler in chosen) - since_ns


def evictions(folder, build, runs):
    found = {"killed": [], "cut": []}
    with clusters.Cluster(folder, 3, TOKEN_MS, CONSENSUS_MS) as cluster:
        for node in cluster.nodes:
            node.corosync_start()
        with Schedulers(build / "tests" / "epoch_node", cluster, pace_ms=1) as schedulers:
            schedulers.start()
            for _ in range(runs):
                schedulers.wait_in_step()
                since_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                schedulers.kill(1)
                found["killed"].append(gone_on(schedulers, since_ns, 2, 3))
                schedulers.start(1)
                schedulers.wait_in_step()
                since_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                cluster.nodes[0].cut()
                found["cut"].append(gone_on(schedulers, since_ns, 2, 3))
                cluster.nodes[0].heal()
            schedulers.wait_in_step()
    return found


def main():
    what, build, *numbers = sys.argv[1:]
    clusters.prepare()
    with tempfile.TemporaryDirectory() as folder:
        measured = {"round": rounds, "evict": evictions}[what]
        print(json.dumps(measured(folder, pathlib.Path(build), *map(int, numbers))))


if __name__ == "__main__":
    main()
