# SPDX-License-Identifier: Apache-2.0
"""What every benchmark is given: the build, the options of the command line, the machine."""

import dataclasses
import json
import os
import pathlib
import platform
import time
import typing

LOOK_S = 0.2
BUSY = 0.1  # More than that is other work; a load average would still count the build that is over.


class Unavailable(Exception):
    """Something that is needed is missing; the text says what, and what to do about it."""


def siblings(cpu):
    """The processors that are the same core as `cpu`, itself among them."""
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        ranges = [part.split("-") for part in path.read_text().strip().split(",")]
    except OSError:
        return {cpu}
    return {number for part in ranges for number in range(int(part[0]), int(part[-1]) + 1)}


def busy(stat=pathlib.Path("/proc/stat"), wait=time.sleep):
    """The part of the processors' time that somebody uses just now, other guests of the machine included."""
    def look():
        ticks = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]  # All; idle and waiting for a disk.
    all_before, idle_before = look()
    wait(LOOK_S)
    all_after, idle_after = look()
    passed = all_after - all_before
    return (passed - (idle_after - idle_before)) / passed if passed > 0 else 0.0


class Benchmark(typing.NamedTuple):
    """One entry of bench/run --list."""
    about: str  # What is compared with what, in one line.
    run: typing.Callable  # Takes a Context, returns the result object (see measure.py).
    differs: bool = True  # From time to time, so that one pass does not do; False: it counts, or takes no rounds.


@dataclasses.dataclass
class Context:
    """The circumstances of a run."""
    build: pathlib.Path
    runs: typing.Optional[int]
    quick: bool
    trace: typing.Optional[pathlib.Path] = None  # For `hits`: to be replayed.
    brief: bool = False  # What takes a quarter of an hour is to take a third of that.
    passes: int = 1  # This is one of so many, which divide the rounds among them.

    def __post_init__(self):
        # One processor for the server and one for the client, so that neither disturbs the other;
        # of different cores if there are two.
        first, *others = sorted(os.sched_getaffinity(0))
        apart = [cpu for cpu in others if cpu not in siblings(first)] or others
        self.server_cpu, self.client_cpu = (first, apart[0]) if apart else (None, None)

    def rounds(self, default):
        """How many timed runs each side makes."""
        if self.runs is not None:
            return self.runs
        return 1 if self.quick else max(1, round(default / self.passes))

    def scaled(self, count):
        """An amount of work, less of it when only trying out."""
        return max(count // 50, 1) if self.quick else count

    def options(self):
        """The options of the command line, as text."""
        return ([f"--runs {self.runs}"] if self.runs is not None else []) + (
            ["--quick"] if self.quick else []) + (
            ["--brief"] if self.brief else []) + (
            [f"--passes {self.passes}"] if self.passes > 1 else []) + (
                [f"--trace {self.trace}"] if self.trace is not None else [])

    def program(self, *path):
        """A program of the build."""
        program = self.build.joinpath(*path)
        if not os.access(program, os.X_OK):
            raise Unavailable(f"{program} is missing: run `make` first")
        return str(program)

    def notes(self):
        """What makes the figures worth less, in words."""
        if self.server_cpu is None:
            yield "only one processor is available: server and client are not pinned and share it"
        used = busy()
        if used > BUSY:
            yield f"other work is running here (processors {used:.0%} busy): figures are provisional"
        options = self.build_options()
        if options.get("b_sanitize", "none") != "none" or options.get("checks"):
            yield "this build has sanitizers or deep checks in it: its figures mean nothing"
        if options.get("optimization") not in ("2", "3", "s"):
            yield f"this build has optimization={options.get('optimization')}"

    def build_options(self):
        """Meson's options of the build, as a dictionary."""
        try:
            text = (self.build / "meson-info" / "intro-buildoptions.json").read_text()
        except OSError:
            return {}
        return {option["name"]: option["value"] for option in json.loads(text)}

    def machine(self):
        """On what it was measured."""
        model = platform.machine()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
        return {"processor": model, "processors": len(os.sched_getaffinity(0)),
                "pinned": self.server_cpu is not None, "kernel": platform.release()}
