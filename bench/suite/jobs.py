# SPDX-License-Identifier: Apache-2.0
"""The job kernel beside other pools of threads, and beside itself with more requests waiting."""

import json
import subprocess

from . import measure
from .context import Benchmark, Unavailable

ROUNDS = 7
COUNT = 500_000
WAKES = 20_000
DISPATCHES = 100_000
WAITING = 1_000_000
LIMIT_NS = 150
MIXED = 10_000  # About 2 s, after a search of 30 windows.
FIXED = (4, 6, 8, 10, 12, 16)
HANDS = (1, 4, 16, 64)
HAND_WORKERS = 4

# The programs of the peers, and what they are told beside the count. Those that keep strict priorities
# are compared with our strict order, the others with our relaxed one.
STRICT = {"glib": ["jobs_glib"], "apr": ["jobs_apr"]}
GOMP_IN_FLIGHT = 120  # Beyond 128 libgomp calls tasks in place.
RELAXED = {"uv": ["jobs_uv"], "tbb": ["jobs_tbb"], "gomp handed over": ["jobs_gomp", GOMP_IN_FLIGHT],
           "gomp": ["jobs_gomp"]}


def measured(context, program, *arguments):
    """Nanoseconds per request, as one of the programs of bench/jobs prints them."""
    command = [context.program("bench", "jobs", program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return float(done.stdout)


def against_limit(name, figures, limit_ns, unit):
    ratios = [figure / limit_ns for figure in figures]
    ratio = measure.median(ratios)
    return {"bench": name, "ratio": round(ratio, 4), "better": "lower",
            "peer": f"the limit of {limit_ns} ns", "bar": 1.0, "ok": ratio <= 1,
            "runs": len(ratios), "spread": round(measure.spread(ratios), 4),
            "ours_ns": round(measure.median(figures), 2), "unit": unit}


def run_post(context):
    peers = {}
    for peer, (program, *limit) in {**STRICT, **RELAXED}.items():
        if (context.build / "bench" / "jobs" / program).exists():
            peers[peer] = (program, limit)
        else:
            print(f"  {peer} is left out: its library was not there when the build was set up; "
                  "see packaging/packages")
    figures = {side: [] for side in ["jobs", "jobs-relaxed", "jobs-timing", *peers]}
    rounds = context.rounds(ROUNDS)
    count = context.scaled(COUNT)
    for number in range(rounds):
        for side in measure.alternate(list(figures), number):
            if side in peers:
                program, limit = peers[side]
                figures[side].append(measured(context, program, count, *limit))
            else:
                figures[side].append(measured(context, "jobs_post", side, count))
    unit = "ns per request, posted, run and rejoined"
    measure.print_table(f"jobs-post: {unit}; one producer, one worker", figures.items())
    parts = [against_limit("jobs-post-limit", figures["jobs"], LIMIT_NS, unit)]
    for peer in peers:
        ours, bar = ("jobs", 1.0) if peer in STRICT else ("jobs-relaxed", 1.5)
        part = measure.compare(f"jobs-post-{peer.replace(' ', '-')}", figures[ours], figures[peer],
                               peer=peer, bar=bar, unit=unit)
        # Nearly all of its tasks are called by who makes them: bench/jobs/gomp.c.
        parts.append({**part, "informational": True} if peer == "gomp" else part)
    parts.append({**measure.compare("jobs-post-timing", figures["jobs-timing"], figures["jobs"],
                                    peer="without measured latencies", bar=2.0, unit=unit),
                  "informational": True})
    return measure.combine("jobs-post", parts)


def run_ageing(context):
    """Cost per dispatch with a million waiting, beside a thousand."""
    count, waiting = context.scaled(DISPATCHES), context.scaled(WAITING)
    sides = {"a million waiting": waiting, "a thousand waiting": 1000}
    figures = {side: [] for side in sides}
    for number in range(context.rounds(ROUNDS)):
        for side in measure.alternate(list(sides), number):
            figures[side].append(measured(context, "jobs_post", "jobs-ageing", count, sides[side]))
    unit = "ns of the worker's processor time per dispatch"
    measure.print_table(f"jobs-ageing: {unit}", figures.items())
    return measure.compare("jobs-ageing", *figures.values(), peer="a thousand waiting", bar=2.0,
                           unit=unit)


def run_autonomic(context):
    """A mixed load on as many workers as the kernel finds best, beside the best fixed number."""
    count = context.scaled(MIXED)
    figures = {active: [] for active in (0, *FIXED)}
    for number in range(context.rounds(ROUNDS)):
        for active in measure.alternate(list(figures), number):
            figures[active].append(measured(context, "jobs_post", "jobs-mixed", count, active))
    unit = "ns per request of a mixed load"
    names = {0: "autonomic", **{active: f"{active} workers" for active in FIXED}}
    measure.print_table(f"jobs-autonomic: {unit}",
                        [(names[active], samples) for active, samples in figures.items()])
    best = min(FIXED, key=lambda active: measure.median(figures[active]))
    return measure.compare("jobs-autonomic", figures[0], figures[best],
                           peer=f"{best} workers, the best fixed number", bar=1 / 0.95, unit=unit)


def run_relaxed(context):
    """Requests taken one, and several, at a time: what it costs and how far the order is off."""
    program = context.program("bench", "jobs", "jobs_rank")
    found = {hand: [] for hand in HANDS}
    for number in range(context.rounds(ROUNDS)):
        for hand in measure.alternate(list(HANDS), number):
            command = [program, str(hand), str(HAND_WORKERS), str(context.scaled(COUNT))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()}")
            found[hand].append(json.loads(done.stdout))
    unit = f"ns per request; one producer, {HAND_WORKERS} workers"
    figures = {hand: [report["ns"] for report in reports] for hand, reports in found.items()}
    measure.print_table(f"jobs-relaxed: {unit}",
                        [(f"hand of {hand}", samples) for hand, samples in figures.items()])
    for hand, reports in found.items():
        mean = measure.median([report["mean"] for report in reports])
        most = max(report["max"] for report in reports)
        print(f"  hand of {hand:2}: rank error {mean:.2f} in the mean, {most} at most")
    parts = [measure.compare(f"jobs-relaxed-{hand}", figures[hand], figures[1],
                             peer="strict order", bar=1.0, unit=unit) for hand in HANDS[1:]]
    return {**measure.combine("jobs-relaxed", parts), "informational": True}


def run_wake(context):
    """From a post to a sleeping worker and back; for information, the kernel's part is the most."""
    figures = [measured(context, "jobs_post", "jobs-wake", context.scaled(WAKES))
               for _ in range(context.rounds(ROUNDS))]
    unit = "ns from post to rejoin, worker and poster asleep in turns"
    measure.print_table(f"jobs-wake: {unit}", [("jobs", figures)])
    return {**against_limit("jobs-wake", figures, 20_000, unit), "informational": True}


BENCHMARKS = {
    "jobs-post": Benchmark("an empty request posted, run and rejoined, beside other pools",
                           run_post),
    "jobs-ageing": Benchmark("a dispatch while a million requests wait and age", run_ageing),
    "jobs-autonomic": Benchmark("the number of workers that the kernel finds, beside the best fixed one",
                                run_autonomic),
    "jobs-relaxed": Benchmark("workers that take several requests at once, beside strict order",
                              run_relaxed),
    "jobs-wake": Benchmark("waking an idle worker and its poster", run_wake),
}
