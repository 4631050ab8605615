#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a program that logs, at random moments, and looks for every line whose call had returned:
tests/log/kill.py [--kills N] [--seed N] BUILD

A line must be in the log or in what `fairway log recover` prints, and the lines of a thread in
order. The last ones may be in both. Prints how often it was well, and as its last line the counts
that .ci/run adds up.
"""

import argparse
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

THREADS = 3
RUN_SECONDS_MAX = 0.08
LINE = re.compile(r"^\S+Z notice  killed \[[\w-]+\] (\d) (\d+)(?: [0-9]* +[0-9.]+)?$")


class Failure(Exception):
    """Lines are missing, or out of order, or the recovery failed."""


def counts(progress):
    """The lines of each thread whose calls have returned."""
    try:
        return struct.unpack(f"={THREADS}Q", progress.read_bytes())
    except (OSError, struct.error):
        return (0,) * THREADS


def numbers(text):
    """The numbers of each thread's lines, as they come."""
    found = [[] for _ in range(THREADS)]
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            raise Failure(f"not a line: {line!r}")
        found[int(match[1])].append(int(match[2]))
    return found


def run_and_kill(build, folder, delay, is_enough=any):
    """Kills it so long after what it has logged is enough. Returns how many lines each thread had logged."""
    progress = folder / "progress"
    with subprocess.Popen([build / "tests" / "logger", progress, folder / "log", folder],
                          stdin=subprocess.DEVNULL) as process:
        while not is_enough(counts(progress)):
            if process.poll() is not None:
                raise Failure(f"it ended by itself: {process.returncode}")
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    return counts(progress)


def check(build, folder, logged):
    """Every line is there. Returns how many of them were recovered."""
    rings = list(folder.glob("fairway-log.*"))
    if len(rings) != 1:
        raise Failure(f"one file of rings expected: {rings}")
    done = subprocess.run([build / "fairway", "log", "recover", rings[0]], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"recover says {done.returncode}: {done.stderr}")
    text = (folder / "log").read_text()
    text = text[:text.rfind("\n") + 1]  # A write may have been cut; its lines are in the rings too.
    recovered = numbers(done.stdout)
    for thread, (written, rescued) in enumerate(zip(numbers(text), recovered, strict=True)):
        if written != sorted(set(written)) or rescued != sorted(set(rescued)):
            raise Failure(f"lines of thread {thread} are out of order")
        missing = set(range(logged[thread])) - set(written) - set(rescued)
        if missing:
            raise Failure(f"of the {logged[thread]} lines of thread {thread} {len(missing)} are "
                          f"missing, the first is {min(missing)}; {len(written)} written, "
                          f"{len(rescued)} recovered")
    return sum(map(len, recovered))


def kill_once(build, chance):
    """One life and death. Returns how many lines were logged, and how many recovered."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        logged = run_and_kill(build, folder, chance.uniform(0, RUN_SECONDS_MAX))
        return sum(logged), check(build, folder, logged)


def main():
    parser = argparse.ArgumentParser(description="Kills a program that logs, and looks for lines.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    failed = logged = recovered = 0
    for number in range(arguments.kills):
        try:
            lines, rescued = kill_once(arguments.build.resolve(), chance)
        except Failure as failure:
            print(f"kill {number + 1}: {failure}")
            failed += 1
            continue
        logged += lines
        recovered += rescued
    print(f"{arguments.kills} kills, {logged} lines logged, {recovered} of them recovered from the "
          "rings")
    print(f"{arguments.kills - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
