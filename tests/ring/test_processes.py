# SPDX-License-Identifier: Apache-2.0
"""Goal: two processes on one disk lose, double and reorder nothing, however often either is killed and
however often the ring is suspended.
Method: ring_worker as producer and as consumer, each of which checks every message; on a loop device
with direct I/O where the machine has one, by two of them with a page cache each, and in a file. `kill -9` at random moments, and another
worker in place of the killed. FAIRWAY_RING_MESSAGES and FAIRWAY_RING_KILLS make it longer:

    FAIRWAY_RING_MESSAGES=1000000 FAIRWAY_RING_KILLS=500 pytest-3 tests/ring/test_processes.py
"""

import contextlib
import os
import random
import subprocess
import threading
import time

import pytest

from support.patience import PATIENCE_S

MESSAGES = int(os.environ.get("FAIRWAY_RING_MESSAGES", "2000"))
KILLS = int(os.environ.get("FAIRWAY_RING_KILLS", "20"))
SIZE = 64 << 10  # All messages are more than that, so positions begin anew.


@contextlib.contextmanager
def loop_device(file, sector_size):
    device = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", "--sector-size",
                             str(sector_size), file], stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@contextlib.contextmanager
def disk(kind, tmp_path):
    file = tmp_path / "disk"
    file.write_bytes(bytes(SIZE))
    if kind == "file":
        yield file
    else:
        with loop_device(file, kind) as device:
            yield device


class Worker:
    """A ring_worker, and what it has promised last."""

    def __init__(self, program, role, path, count, seed):
        self.promised = 0
        self.is_over = False
        self.has_promised = threading.Event()  # Or it has ended, and never will.
        self.process = subprocess.Popen([program, role, path, str(count), str(seed)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line == "over\n":
                self.is_over = True
            elif line.endswith("\n"):  # A killed one may leave half a line.
                self.promised = int(line.split()[1])
                self.has_promised.set()
        self.has_promised.set()

    def kill(self):
        self.process.kill()
        self.wait()

    def wait(self):
        self.process.wait()
        self.reader.join()
        complaint = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        assert complaint == ""


DISKS = [
    pytest.param("file"),
    pytest.param(512, marks=[pytest.mark.needs("root"), pytest.mark.needs("loop-devices")]),
    pytest.param(4096, marks=[pytest.mark.needs("root"), pytest.mark.needs("loop-devices")]),
]


def create(fairway, path, format_):
    subprocess.run([fairway, "ring", "create", "--format", str(format_), path], check=True)


@pytest.mark.parametrize("format_", [1, 2])
@pytest.mark.parametrize("kind", DISKS)
def test_two_processes(fairway, build, tmp_path, kind, format_):
    program = build / "tests" / "ring_worker"
    with disk(kind, tmp_path) as path:
        create(fairway, path, format_)
        producer = Worker(program, "produce", path, MESSAGES, 1)
        consumer = Worker(program, "consume", path, MESSAGES, 2)
        consumer.wait()
        producer.wait()
    assert consumer.is_over and producer.is_over
    assert consumer.promised == producer.promised == MESSAGES


@pytest.mark.needs("root", "loop-devices")
@pytest.mark.parametrize("format_", [1, 2])
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_two_caches(fairway, build, tmp_path, sector_size, format_):
    """Two loop devices of one file have a page cache each, as two hosts have: only what goes around both is seen by
    the other side. By way of the caches neither worker would see that the other has done anything."""
    program = build / "tests" / "ring_worker"
    with disk(sector_size, tmp_path) as one, loop_device(tmp_path / "disk", sector_size) as other:
        assert one != other
        create(fairway, one, format_)
        workers = [Worker(program, "produce", one, MESSAGES, 1), Worker(program, "consume", other, MESSAGES, 2)]
        for worker in workers:
            worker.reader.join(timeout=PATIENCE_S)
        for worker in workers:
            worker.kill()  # One that has not ended waits for what it cannot see.
    producer, consumer = workers
    assert consumer.is_over and producer.is_over
    assert consumer.promised == producer.promised == MESSAGES


@pytest.mark.parametrize("format_", [1, 2])
@pytest.mark.parametrize("kind", DISKS)
def test_killed_at_random(fairway, build, tmp_path, kind, format_):
    """Nobody gets anywhere near the last message: what ends the test is the number of kills. Every second one
    falls on a worker that has got on in this life; the others may fall at any moment, also before it has begun."""
    program = build / "tests" / "ring_worker"
    chance = random.Random(f"{kind} {format_}")
    roles = ["produce", "consume"]
    promised = dict.fromkeys(roles, 0)
    with disk(kind, tmp_path) as path:
        create(fairway, path, format_)
        workers = {role: Worker(program, role, path, 2**32 - 1, 0) for role in roles}
        for number in range(KILLS):
            role = chance.choice(roles)
            if number % 2 == 0:
                workers[role].has_promised.wait()
            time.sleep(chance.uniform(0.001, 0.06))
            workers[role].kill()
            assert number % 2 != 0 or workers[role].promised > 0
            assert workers[role].promised == 0 or workers[role].promised >= promised[role]
            promised[role] = max(promised[role], workers[role].promised)
            workers[role] = Worker(program, role, path, 2**32 - 1, number + 1)
        for role in roles:
            workers[role].kill()
        # What was promised is there: who goes on begins behind it and agrees with the other side.
        last = max(promised["produce"], workers["produce"].promised) + 100
        producer = Worker(program, "produce", path, last + 1000, 1)
        consumer = Worker(program, "consume", path, last, 1)
        consumer.wait()
        producer.kill()
    assert consumer.is_over and consumer.promised >= last
