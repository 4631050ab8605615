# SPDX-License-Identifier: Apache-2.0
"""The log: what a call costs its caller, and how many lines a second can be written."""

import json
import os
import pathlib
import subprocess
import tempfile

from . import measure
from .context import Benchmark, Unavailable

ROUNDS = 7
BURSTS = 3000  # Of 20 lines, in each of two threads.
PAUSE_NS = 100_000  # Of other work between two of them: 400,000 lines a second in all.
CALL_NS = 20  # The limit.
RATE_LINES = 2_000_000
RATE_PER_SECOND = 1_000_000  # The limit.


def ask(*command):
    """The object that the program prints."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} ended with status {done.returncode}")
    return json.loads(done.stdout)


def call_ns(program, file, bursts):
    file.unlink(missing_ok=True)
    return ask(program, "call", file, bursts, PAUSE_NS)


def against_limit(name, ours, limit, unit):
    """As measure.compare(), with a number for a peer."""
    return measure.compare(name, ours, [limit] * len(ours), peer=f"a limit of {limit} {unit}",
                           bar=1.0, unit=unit)


def run_call(context):
    """Median of the caller's time per call, beside the limit and beside libqb."""
    sides = {"fairway": context.program("bench", "log_fairway")}
    peer = context.build / "bench" / "log_libqb"
    if os.access(peer, os.X_OK):
        sides["libqb"] = str(peer)
    else:
        print("  libqb is missing: run `apt-get install libqb-dev` and build again; only the "
              "limit is judged")
    found = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(context.rounds(ROUNDS)):
            for side in measure.alternate(list(sides), number):
                found[side].append(call_ns(sides[side], pathlib.Path(folder) / side,
                                           context.scaled(BURSTS)))
    medians = {side: [report["median"] for report in found[side]] for side in sides}
    measure.print_table("log-call: the caller's ns per call, two threads, three numbers",
                        medians.items())
    for side in sides:
        tail = [measure.median([report[name] for report in found[side]]) for name in ("p90", "p99")]
        print(f"  {side}: p90 {tail[0]:.1f} ns, p99 {tail[1]:.1f} ns")
    parts = [against_limit("log-call-limit", medians["fairway"], CALL_NS, "ns per call")]
    if "libqb" in sides:
        parts.append(measure.compare("log-call-libqb", medians["fairway"], medians["libqb"],
                                     peer="libqb, threaded", bar=1.0, unit="ns per call"))
    return measure.combine("log-call", parts)


def run_rate(context):
    """Two threads log as fast as they can and wait for room; every line must be in the file."""
    lines = context.scaled(RATE_LINES)
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "log"
        for _ in range(context.rounds(ROUNDS)):
            file.unlink(missing_ok=True)
            report = ask(context.program("bench", "log_fairway"), "rate", file, lines)
            with open(file, "rb") as opened:
                written = sum(1 for _ in opened)
            if written != lines or report["lost"] != 0:
                raise Unavailable(f"{written} of {lines} lines were written, {report['lost']} lost")
            taken.append(report["seconds"] / lines * 1e9)
    measure.print_table("log-rate: ns per line until it is in the file, two threads that wait for "
                        "room", [("fairway", taken)])
    print(f"  {1e9 / measure.median(taken):.0f} lines a second, none lost")
    return against_limit("log-rate", taken, 1_000_000_000 // RATE_PER_SECOND, "ns per line")


BENCHMARKS = {
    "log-call": Benchmark("a log call beside a limit of 20 ns and beside libqb's threaded log",
                          run_call),
    "log-rate": Benchmark("lines a second to a file, none lost, beside a limit of 1,000,000",
                          run_rate),
}
