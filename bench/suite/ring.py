# SPDX-License-Identifier: Apache-2.0
"""The ring: durable pushes beside what fio does with the same writes and flushes on the same file;
pops beside pushes; the two ways to make a write durable; and how soon a consumer sees a message.

All of it is time on the wall, most of which is the device's. It is measured in the folder named by
FAIRWAY_BENCH_FOLDER, by default where the build is, since /tmp may be memory; or on the block device
named by FAIRWAY_BENCH_DEVICE, whose contents are lost.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from . import measure
from .context import Benchmark, Unavailable

ROUNDS = 7
PUSHES = 400
SIZES = (64, 1024, 4096)
RING_SIZE = 4 << 20
BATCH = 16
FUA = 1 << 2  # FW_RING_FUA
UNIT = "ns per push, on the wall"


class Place:
    """A file with a ring in it, or the device that was named."""

    def __init__(self, context):
        self.context = context

    def __enter__(self):
        device = os.environ.get("FAIRWAY_BENCH_DEVICE")
        self.folder = None
        if device is not None:
            self.path = pathlib.Path(device)
        else:
            self.folder = tempfile.TemporaryDirectory(
                dir=os.environ.get("FAIRWAY_BENCH_FOLDER", self.context.build))
            self.path = pathlib.Path(self.folder.name) / "ring"
            # Written, not only reserved: else the file system would note each first write.
            self.path.write_bytes(b"\xff" * RING_SIZE)
        force = [] if device is not None else ["--force"]
        self.program("fairway", "ring", "create", "--replace", *force, self.path)
        return self

    def __exit__(self, *_):
        if self.folder is not None:
            self.folder.cleanup()

    def program(self, name, *arguments):
        path = self.context.build / name
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise Unavailable(f"{name} failed: {done.stderr.strip()}")
        return done.stdout

    def rate(self, what, size, count, batch=1, flags=0):
        return float(self.program("bench/ring_rate", what, self.path, size, count, batch, flags))

    def fio(self, count, block_size, size, offset, sync):
        """Nanoseconds of one write until it is durable."""
        command = ["fio", "--name=ring", f"--filename={self.path}", "--rw=write", "--direct=1",
                   "--ioengine=psync", f"--bs={block_size}", f"--size={size}", f"--offset={offset}",
                   f"--io_size={block_size * count}", *sync, "--output-format=json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"fio failed: {done.stderr.strip()}")
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        return job["job_runtime"] * 1e6 / job["write"]["total_ios"]

    def fio_push(self, size, count, flags=0):
        """The data's sectors in sequence, and one sector again and again as the pointer is, each
        made durable. All of it lies where the ring, which is empty, has room for messages."""
        sync = ["--sync=dsync"] if flags & FUA else ["--fdatasync=1"]
        block = (size + 4 + 511) // 512 * 512
        room = (RING_SIZE - 2048 - 512) // block * block
        return (self.fio(count, block, room, 2048, sync) +
                self.fio(count, 512, 512, RING_SIZE - 512, sync))


def need_fio():
    if shutil.which("fio") is None:
        raise Unavailable("fio is not installed: run `tools/install-packages bench`")


def run_push(context):
    need_fio()
    parts = []
    count = context.scaled(PUSHES)
    with Place(context) as place:
        for size in SIZES:
            ours, theirs = [], []
            for number in range(context.rounds(ROUNDS)):
                for side in measure.alternate(["ours", "fio"], number):
                    if side == "ours":
                        ours.append(place.rate("push", size, count))
                    else:
                        theirs.append(place.fio_push(size, count))
            measure.print_table(f"ring-push: {UNIT}; messages of {size} bytes, one at a time",
                                [("fairway", ours), ("fio", theirs)])
            parts.append(measure.compare(f"ring-push-{size}", ours, theirs,
                                         peer="fio, the same durable writes", bar=1 / 0.8,
                                         unit=UNIT))
    return measure.combine("ring-push", parts)


def run_sides(context, name, sides, *, peer, bar, unit, informational=False):
    """`sides` are two functions of a place, by name."""
    figures = {side: [] for side in sides}
    with Place(context) as place:
        for number in range(context.rounds(ROUNDS)):
            for side in measure.alternate(list(sides), number):
                figures[side].append(sides[side](place))
    measure.print_table(f"{name}: {unit}", figures.items())
    result = measure.compare(name, *figures.values(), peer=peer, bar=bar, unit=unit)
    return {**result, "informational": True} if informational else result


def run_batch(context):
    count = context.scaled(PUSHES)
    return run_sides(context, "ring-batch", {
        "16 in a batch": lambda place: place.rate("push", 64, count, BATCH),
        "one at a time": lambda place: place.rate("push", 64, count),
    }, peer="pushes of one message", bar=1.25, unit=UNIT)


def run_pop(context):
    """As many messages popped and given back, 16 at a time, as are pushed so."""
    count = context.scaled(PUSHES)
    return run_sides(context, "ring-pop", {
        "popped": lambda place: place.rate("pop", 1024, count, BATCH),
        "pushed": lambda place: place.rate("push", 1024, count, BATCH),
    }, peer="the pushes", bar=1.0, unit="ns per 16 messages, on the wall")


def run_durable(context):
    count = context.scaled(PUSHES)
    return run_sides(context, "ring-durable", {
        "writes and flushes": lambda place: place.rate("push", 1024, count),
        "durable writes": lambda place: place.rate("push", 1024, count, 1, FUA),
    }, peer="writes that are durable in themselves (FUA)", bar=1.0, unit=UNIT, informational=True)


def run_follow(context):
    """From the beginning of a push to the return of a pop that polls; beside the push alone."""
    count = context.scaled(PUSHES)
    return run_sides(context, "ring-follow", {
        "until it is popped": lambda place: place.rate("follow", 64, count),
        "the push alone": lambda place: place.rate("push", 64, count),
    }, peer="the push alone", bar=3.0, unit="ns, median", informational=True)


BENCHMARKS = {
    "ring-push": Benchmark("durable pushes beside fio with the same durable writes", run_push),
    "ring-batch": Benchmark("a batch of 16 beside a push of one", run_batch),
    "ring-pop": Benchmark("popping and giving back beside pushing", run_pop),
    "ring-durable": Benchmark("writes with flushes beside writes that are durable in themselves",
                              run_durable),
    "ring-follow": Benchmark("how soon a message is seen by who polls", run_follow),
}
