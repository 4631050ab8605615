# SPDX-License-Identifier: Apache-2.0
"""How much faster than time the simulator is."""

import re
import subprocess

from . import measure
from .context import Benchmark, Unavailable

SCENARIO = "server"  # 1,000 connections.
SEEDS = 10
ROUNDS = 5
BAR = 0.01  # Of the time that passes inside: a hundred times faster.


def real_per_simulated(context):
    program = context.build / "simulate"
    if not program.exists():
        raise Unavailable(f"{program} is missing; run `make`")
    done = subprocess.run([program, "--scenario", SCENARIO, "--seeds", str(SEEDS)],
                          capture_output=True, text=True, check=False)
    figures = re.search(r"([\d.]+) s simulated +([\d.]+) s taken", done.stdout)
    if done.returncode != 0 or figures is None:
        raise Unavailable(f"the simulator failed: {done.stderr}")
    return float(figures[2]) / float(figures[1])


def run(context):
    rounds = context.rounds(ROUNDS)
    ratios = [real_per_simulated(context) for _ in range(rounds)]
    measure.print_table("simulate: seconds taken per second simulated, 1,000 connections",
                        [("simulate", ratios)])
    ratio = measure.median(ratios)
    print(f"  {1 / ratio:.0f} times faster than time, at least {1 / BAR:.0f}: "
          f"{'ok' if ratio <= BAR else 'NOT MET'}")
    return {"bench": "simulate", "ratio": round(ratio, 5), "better": "lower",
            "peer": "the time that passes inside", "bar": BAR, "ok": ratio <= BAR,
            "runs": rounds, "spread": round(measure.spread(ratios), 4),
            "unit": "seconds taken per second simulated"}


BENCHMARKS = {
    "simulate": Benchmark("the simulator beside real time, 1,000 connections", run),
}
