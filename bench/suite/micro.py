# SPDX-License-Identifier: Apache-2.0
"""Micro-benchmarks: programs made with bench/harness.h, which do all the measuring themselves. They
are not pinned: some need a second processor for a thread of their own."""

import functools
import json
import os
import subprocess

from .context import Benchmark, Unavailable

RUNS_MIN = 7  # The harness takes no fewer, and that many in each pass; those of servers take longer and may.


def benchmarks(build):
    """All there are, by name, also those that could not be built. bench/meson.build writes the list."""
    try:
        lines = (build / "bench" / "list").read_text().splitlines()
    except OSError as error:
        raise Unavailable(f"{build} has no benchmarks in it: run `make` first "
                          "(and not with -Dbench=false)") from error
    for line in lines:
        if line:
            name, program = line.split(" ", 1)
            about = os.path.basename(program) if not program.startswith("!") else "which is missing"
            yield name, Benchmark(f"a loop beside its peer, {about}",
                                  functools.partial(run, program))


def run(program, context):
    """Shows what the program prints, and returns the object on its last line."""
    if program.startswith("!"):
        raise Unavailable(f"it was not built, because its peer is not installed: run `make packages GROUP={program[1:]}`, "
                          "then `make`")
    if not os.access(program, os.X_OK):
        raise Unavailable(f"{program} is missing: run `make` first")
    command = [program]
    if context.runs is not None:
        command += ["--runs", str(context.runs if context.quick else max(context.runs, RUNS_MIN))]
    elif context.passes > 1 and not context.quick:
        command += ["--runs", str(RUNS_MIN)]
    if context.quick:
        command += ["--quick"]

    last = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if last is not None:
                    print(last, flush=True)
                last = line.rstrip("\n")
        except BaseException:
            process.kill()
            raise
    try:
        result = json.loads(last or "")
    except ValueError:
        raise Unavailable(f"{program} ended with status {process.returncode} and without a "
                          "result") from None
    if "parts" in result:
        result["worst"] = result["bench"]
    return result
