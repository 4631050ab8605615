# SPDX-License-Identifier: Apache-2.0
"""Volumes through NBD: a volume that grows while it is written, beside one whose extents were placed before.

A client of NBD writes 1 MiB after the other to both, through one nbdkit, by turns in one group. Preallocated
means that each extent was placed by a small write at its begin, and holds as many zeros as one that is placed
now: both sides write to blocks that nobody has written before. What it costs the file system below to find
such blocks is the growing side's, though. The manager is at work, with its usual options; between the turns,
while nobody writes, it is looked up how many extents the host has in advance. Where it is measured is said in
ring.py.

A 99.9th percentile of one round is its second or third worst write, and says more about the machine than about
the volume. So it is taken of all writes of all rounds, some ten thousand on each side; the spread is that of
the rounds.
"""

import gc
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import time

from . import measure
from .context import Benchmark, Unavailable

ROUNDS = 5
COUNT = 2048  # Writes of a round and a side.
TURN = 32  # Writes to one before those to the other.
BLOCK = 1 << 20
EXTENT = 4 << 20
REQUEST = struct.Struct(">IHHQQI")
WRITE, FLUSH, END = 1, 3, 2
FIGURES = {
    "mean": statistics.fmean,
    "median": measure.median,
    "p99": lambda taken: measure.quantile(taken, 0.99),
    "p99.9": lambda taken: measure.quantile(taken, 0.999),
}


class Client:
    """One connection to an export; a write at a time."""

    def __init__(self, path, export):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.receive(18)
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(export)) + export.encode())
        self.receive(10)

    def receive(self, size):
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            if not part:
                raise Unavailable("nbdkit has closed the connection")
            got += part
        return got

    def ask(self, command, offset=0, data=b""):
        head = REQUEST.pack(0x25609513, 0, command, 0, offset, len(data))
        self.socket.sendall(head + data)
        error = struct.unpack(">II", self.receive(16)[:8])[1]
        if error != 0:
            raise Unavailable(f"a write failed with error {error}")

    def write(self, numbers, data):
        """The nanoseconds of each."""
        taken = []
        for number in numbers:
            before = time.perf_counter_ns()
            self.ask(WRITE, number * BLOCK, data)
            taken.append(time.perf_counter_ns() - before)
        return taken

    def close(self):
        self.socket.sendall(REQUEST.pack(0x25609513, 0, END, 0, 0, 0))
        self.socket.close()


class Export:
    """A group with two volumes, its manager, and the nbdkit that serves both."""

    def __init__(self, context, count):
        self.context, self.count = context, count
        self.folder = self.manager = None

    def fairway(self, *arguments):
        command = [self.context.program("fairway"), "volume", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return done.stdout

    def __enter__(self):
        extents = self.count * BLOCK // EXTENT
        self.folder = tempfile.TemporaryDirectory(
            dir=os.environ.get("FAIRWAY_BENCH_FOLDER", self.context.build))
        # A socket's name is short, whatever the folder's is.
        self.sockets = tempfile.TemporaryDirectory()
        self.socket = pathlib.Path(self.sockets.name) / "nbd"
        device = os.environ.get("FAIRWAY_BENCH_DEVICE")
        self.path = pathlib.Path(device) if device else pathlib.Path(self.folder.name) / "group"
        size = [] if device else ["--size", (2 * extents + 200) * EXTENT]
        self.fairway("format", "--replace", *size, "--extent-size", EXTENT, "--hosts", "2", self.path)
        self.fairway("connect", self.path, "host")
        for name in ("grows", "placed"):
            self.fairway("create", "--extents", extents, self.path, name)
        # pylint: disable=consider-using-with
        self.manager = subprocess.Popen([self.context.program("fairway"), "volume", "manager", str(self.path)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if self.manager.stdout.readline() != b"managing\n":
            raise Unavailable("the manager did not start")
        self.fairway("attach", "--nbd", self.socket, "--host", "host", "--plugin",
                     self.context.program("src", "volume", "nbdkit-fairway-plugin.so"), self.path, "grows")
        client = Client(self.socket, "placed")
        for number in range(extents):
            client.ask(WRITE, number * EXTENT, bytes(4096))
        client.close()
        return self

    def __exit__(self, *_):
        if self.socket.with_suffix(".pid").exists():
            self.fairway("detach", self.socket)
        if self.manager is not None:
            self.manager.kill()
            self.manager.communicate()
        self.folder.cleanup()
        self.sockets.cleanup()

    def pool(self):
        """How many extents the host has in advance."""
        return json.loads(self.fairway("hosts", "--json", self.path))["hosts"][0]["pool"]

    def write(self):
        """Both, a few extents by turns, so that other work on the machine meets both. How long each write
        took, and the smallest pool."""
        data = os.urandom(BLOCK)
        clients = {name: Client(self.socket, name) for name in ("grows", "placed")}
        taken = {name: [] for name in clients}
        least = self.pool()
        gc.disable()  # Its pauses are nobody's.
        for first in range(0, self.count, TURN):
            for name in measure.alternate(clients, first // TURN):
                taken[name] += clients[name].write(range(first, first + TURN), data)
                if name == "grows":
                    least = min(least, self.pool())
        gc.enable()
        for client in clients.values():
            client.ask(FLUSH)
            client.close()
        return taken, least


def compare_tails(rounds, peer, unit):
    """The 99.9th percentiles of all rounds together."""
    ours, theirs = ([taken[name] for taken in rounds] for name in ("grows", "placed"))
    result = measure.compare("volume-nbd-tail", *([measure.quantile(taken, 0.999) for taken in side]
                                                  for side in (ours, theirs)), peer=peer, bar=2.0, unit=unit)
    our, their = (measure.quantile([each for taken in side for each in taken], 0.999) for side in (ours, theirs))
    result.update(ratio=round(our / their, 4), ok=our <= 2.0 * their, ours_ns=round(our, 2),
                  peer_ns=round(their, 2), samples=sum(map(len, ours)))
    return result


def run_nbd(context):
    plugin = pathlib.Path(context.program("src", "volume", "nbdkit-fairway-plugin.so"))
    if shutil.which("nbdkit") is None or not plugin.exists():
        raise Unavailable("there is no nbdkit, or no plugin for it")
    count = max(64, context.scaled(COUNT))
    rounds, pools = [], []
    for _ in range(context.rounds(ROUNDS)):
        with Export(context, count) as export:
            taken, least = export.write()
            rounds.append(taken)
            pools.append(least)
    unit = "us per write of 1 MiB, on the wall"
    measure.print_table(f"volume-nbd: {unit}; {count} writes in a round", [
        (f"{label}, {name}", [figure(taken[name]) / 1000 for taken in rounds])
        for label, figure in FIGURES.items() for name in ("grows", "placed")])
    print(f"  the host had at least {min(pools)} extents in advance")
    peer = "the same export, preallocated"
    means = ([statistics.fmean(taken[name]) for taken in rounds] for name in ("grows", "placed"))
    speed = measure.compare("volume-nbd-rate", *means, peer=peer, bar=round(1 / 0.9, 4), unit=unit)
    result = measure.combine("volume-nbd", [speed, compare_tails(rounds, peer, unit)])
    result["pool_least"] = min(pools)
    result["ok"] = result["ok"] and min(pools) > 0
    return result


BENCHMARKS = {
    "volume-nbd": Benchmark("sequential writes of 1 MiB by NBD to a volume that grows, beside one whose extents "
                            "were placed before: time per write, 99.9th percentile, and the host's pool", run_nbd),
}
