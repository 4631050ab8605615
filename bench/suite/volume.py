# SPDX-License-Identifier: Apache-2.0
"""Volumes: what it takes to allocate an extent, beside the durable writes that the order needs.

The 99th percentile of both, from turns of ten in one process on one file, with the manager at work, and
with the manager killed: then until the host's pool is empty, whereupon the host must wait, and go on when
there is a manager again. Where it is measured is said in ring.py.
"""

import json
import os
import pathlib
import subprocess
import tempfile

from . import measure
from .context import Benchmark, Unavailable

ROUNDS = 7
COUNT = 1000  # Allocations of a round; so the 99th percentile has ten above it.
BARE = 64  # Extents that the bare writes go to; as bench/volume_rate.c has it.
SIZE = 64 << 20
UNIT = "ns per allocation, on the wall, 99th percentile"
PEER = "2 bare writes, each with its flush"


class Group:
    """A group in a file, or on the device that was named, with a manager."""

    def __init__(self, context, count):
        self.context, self.count = context, count
        self.folder = self.manager = None

    def __enter__(self):
        device = os.environ.get("FAIRWAY_BENCH_DEVICE")
        if device is not None:
            self.path = pathlib.Path(device)
        else:
            self.folder = tempfile.TemporaryDirectory(
                dir=os.environ.get("FAIRWAY_BENCH_FOLDER", self.context.build))
            self.path = pathlib.Path(self.folder.name) / "group"
            # Written, not only reserved: else the file system would note each first write.
            self.path.write_bytes(b"\xff" * SIZE)
        force = [] if device is not None else ["--force"]
        self.fairway("format", "--replace", *force, "--extent-size", "4k", "--hosts", "2", self.path)
        self.fairway("connect", self.path, "host")
        self.fairway("create", "--extents", self.count + BARE + 1, self.path, "volume")
        self.manage()
        return self

    def __exit__(self, *_):
        self.kill()
        if self.folder is not None:
            self.folder.cleanup()

    def fairway(self, *arguments):
        command = [self.context.program("fairway"), "volume", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()}")

    def manage(self):
        # The pool is large enough for a round, so that nobody waits while the manager lives.
        command = [self.context.program("fairway"), "volume", "manager", "--pool-min",
                   str(2 * (self.count + BARE)), str(self.path)]
        # pylint: disable=consider-using-with
        self.manager = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if self.manager.stdout.readline() != b"managing\n":
            raise Unavailable("the manager did not start")

    def kill(self):
        if self.manager is not None:
            self.manager.kill()
            self.manager.communicate()
            self.manager = None


def line_of(process):
    line = process.stdout.readline()
    if not line:
        raise Unavailable(f"volume_rate ended with status {process.wait()}")
    return line.split()


def allocate(context, count, manager_dies):
    """The figures of one round, in a group of its own. When the manager dies one more is wanted than
    the pool has."""
    with Group(context, count) as group:
        wanted = 3 * (count + BARE) if manager_dies else count
        if manager_dies:
            group.kill()
            group.fairway("resize", "--extents", wanted + BARE + 1, group.path, "volume")
            group.manage()
        command = [context.program("bench", "volume_rate"), str(group.path), "host", "volume",
                   str(wanted)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                line_of(process)
                if manager_dies:
                    group.kill()
                process.stdin.write(b"go\n")
                process.stdin.flush()
                line = line_of(process)
                if (line[0] == b"waits") != manager_dies:
                    raise Unavailable("writers waited" if line[0] == b"waits" else
                                      "writers did not wait though the manager was dead")
                if manager_dies:
                    group.manage()
                    line = line_of(process)
                figures = json.loads(b" ".join(line))
            finally:
                process.kill()
    return figures


def run_part(context, name, manager_dies):
    count = context.scaled(COUNT)
    rounds = [allocate(context, count, manager_dies) for _ in range(context.rounds(ROUNDS))]
    ours = [figures["ours"]["p99"] for figures in rounds]
    bare = [figures["bare"]["p99"] for figures in rounds]
    measure.print_table(f"{name}: {UNIT}; {rounds[0]['count']} allocations in a round", [
        ("an allocation", ours), (PEER, bare),
        ("an allocation, median", [figures["ours"]["p50"] for figures in rounds]),
        ("bare writes, median", [figures["bare"]["p50"] for figures in rounds])])
    return measure.compare(name, ours, bare, peer=PEER, bar=1.3, unit=UNIT)


def run_allocate(context):
    return measure.combine("volume-allocate", [
        run_part(context, "volume-allocate-managed", False),
        run_part(context, "volume-allocate-alone", True)])


BENCHMARKS = {
    "volume-allocate": Benchmark("allocating an extent beside the durable writes that it needs, with the "
                                 "manager and without", run_allocate),
}
