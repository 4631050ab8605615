# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks one after the other, each in a process of its own, in several passes, within a budget of time.

One that does not end in time, or dies, costs its own figure and no other's. What was found is kept after
each, so that an interrupted run leaves a report of what it had; after the first pass that is all of it.
"""

import json
import subprocess
import time

from . import passes

BUDGET_S = 57 * 60  # All of it together: `make bench` promises an hour.
LIMIT_S = 12 * 60  # Of one benchmark.
END_S = 30  # For bench/run to end its servers, once told to.


def read_result(name, output):
    """The object on the last line, or one that says that there is none."""
    lines = output.strip().splitlines()
    try:
        result = json.loads(lines[-1])
        return result if isinstance(result, dict) and "ratio" in result else nothing(name, "it ended without a result")
    except (IndexError, ValueError):
        return nothing(name, "it ended without a result: " + (lines[-1] if lines else "it said nothing"))


def nothing(name, why):
    """The result of what could not be measured, as bench/run has it."""
    return {"bench": name, "ratio": None, "peer": None, "bar": None, "ok": False, "runs": 0, "spread": None,
            "unavailable": why}


def run_one(command, name, log, limit_s):
    """Runs one benchmark; its output goes to `log`, its complaints too."""
    with open(log, "w+", encoding="utf-8", errors="replace") as file:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file,
                              text=True) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    process.communicate(timeout=END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                return nothing(name, f"it did not end within {limit_s:.0f} s")
            except BaseException:
                process.terminate()
                raise
        file.write(output)
    return read_result(name, output)


def describe(result):
    """How it went, in a few words."""
    if "unavailable" in result:
        return f"not measured: {result['unavailable']}"
    verdict = "ok" if result["ok"] else "MISSED"
    if result.get("informational"):
        verdict = "for information"
    return f"ratio {result['ratio']:.3f}, bar {result['bar']:.2f}, {verdict}"


def run_all(plan, make_command, folder, keep, clock=time.monotonic, budget_s=BUDGET_S):
    """Runs the plan, a list of names for each pass, and calls keep(results) after each, with what its passes so far
    come to. Returns the results, in the order of the first pass. Those for which no time is left in any are told as not
    measured."""
    found = {}
    merged = {}
    begin = clock()
    for number, name in enumerate(every := [name for names in plan for name in names], 1):
        found.setdefault(name, [])
        left_s = budget_s - (clock() - begin)
        print(f"[{number}/{len(every)}] {name} ...", end=" ", flush=True)
        started = clock()
        if left_s <= 0:
            result = nothing(name, f"the budget of {budget_s / 60:.0f} minutes was used up")
        else:
            result = run_one(make_command(name), name, folder / f"{name}-{len(found[name]) + 1}.txt", min(LIMIT_S, left_s))
        result["seconds"] = round(clock() - started, 1)
        found[name].append(result)
        merged[name] = {**passes.merge(found[name]), "seconds": round(sum(each["seconds"] for each in found[name]), 1)}
        keep(list(merged.values()))
        print(f"{describe(result)}, {result['seconds']:.0f} s", flush=True)
    return list(merged.values())
