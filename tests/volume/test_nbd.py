# SPDX-License-Identifier: Apache-2.0
"""Goal: a volume attached through NBD is a disk: what is written is read back, holes are zeros and told as
holes, a discard gives extents back, a flush is kept whatever is killed, and a volume grows while it is written,
with and without a manager.
Method: nbdkit with our plugin, started by `fairway volume attach`; other people's clients (qemu-io, nbdcopy,
nbdinfo) write and read; processes are killed with SIGKILL."""

import os
import pathlib
import random
import signal
import subprocess
import threading

import pytest

from group import FAILED, Group, placed

EXTENT = 64 << 10
EXTENTS = 40
PLUGIN = pathlib.Path(os.environ["FAIRWAY_BUILD"]) / "src/volume/nbdkit-fairway-plugin.so"

pytestmark = pytest.mark.needs("nbdkit")


class Attached(Group):
    """A group whose volume `web` is attached on a socket."""

    def __init__(self, fairway, folder):
        super().__init__(fairway, folder / "group")
        self.socket = folder / "nbd"
        self.uri = f"nbd+unix:///?socket={self.socket}"

    def make(self):
        # What nobody wrote must not be what was there before.
        self.path.write_bytes(b"\xa5" * (8 << 20))
        self.do("format", "--extent-size", EXTENT, "--ring-size", "64k", "--hosts", "2", self.path)
        self.do("create", "--extents", EXTENTS, self.path, "web")
        self.do("connect", self.path, "one")

    def attach(self):
        self.do("attach", "--nbd", self.socket, "--host", "one", "--plugin", PLUGIN, self.path, "web")

    def detach(self):
        self.do("detach", self.socket)

    def pid(self):
        return int(pathlib.Path(f"{self.socket}.pid").read_text())

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)
        while os.path.exists(f"/proc/{self.pid()}"):
            pass

    def qemu(self, *commands):
        arguments = [word for command in commands for word in ("-c", command)]
        done = subprocess.run(["qemu-io", "-f", "raw", *arguments, self.uri], timeout=120,
                              capture_output=True, check=False)
        assert done.returncode == 0 and b"failed" not in done.stdout + done.stderr, done
        return done.stdout

    def map(self):
        done = subprocess.run(["nbdinfo", "--map", self.uri], timeout=120, capture_output=True, check=True)
        rows = [line.split() for line in done.stdout.decode().splitlines()]
        return [(int(row[0]) // EXTENT, int(row[1]) // EXTENT, row[3]) for row in rows]


@pytest.fixture
def group(fairway, tmp_path):
    group = Attached(fairway, tmp_path)
    group.make()
    yield group
    if pathlib.Path(f"{group.socket}.pid").exists():
        group.detach()


@pytest.fixture
def manager(group):
    manager = group.manager()
    yield manager
    if manager.process.poll() is None:
        manager.kill()


def test_a_disk(group, manager):
    group.attach()
    assert group.map() == [(0, EXTENTS, "hole,zero")]
    group.qemu("write -P 7 65536 131072", "read -P 7 65536 131072", "read -P 0 0 65536",
               "write -P 9 655360 513", "read -P 9 655360 513", "read -P 0 655873 65023",
               "write -f -P 3 657000 7", "read -P 3 657000 7", "flush")
    assert group.map() == [(0, 1, "hole,zero"), (1, 2, "data"), (3, 7, "hole,zero"), (10, 1, "data"),
                           (11, EXTENTS - 11, "hole,zero")]
    group.qemu("discard 131072 65536", "read -P 0 131072 65536", "read -P 7 65536 65536",
               "discard 65537 65535", "read -P 7 65537 65535", "write -z -u 655360 65536",
               "read -P 0 655360 65536", "write -z 2097152 65536")
    assert group.map() == [(0, 1, "hole,zero"), (1, 1, "data"), (2, 30, "hole,zero"), (32, 1, "data"),
                           (33, EXTENTS - 33, "hole,zero")]
    done = group.run("attach", "--nbd", group.socket, "--host", "one", group.path, "web")
    assert done.returncode == FAILED and b"serves it already" in done.stderr
    group.detach()
    assert manager.end() == 0
    dump = group.dump()
    assert list(placed(dump, "web")) == [1, 32]
    assert dump["volumes"][0]["open_on"] == []
    assert dump["free"] + dump["hosts"][0]["pool"] == dump["extents"] - 2


def test_copied_through(group, manager, tmp_path):
    group.attach()
    source, copy, files = tmp_path / "source", tmp_path / "copy", tmp_path / "files"
    chance = random.Random(3)
    files.mkdir()
    for number in range(20):
        (files / str(number)).write_bytes(chance.randbytes(EXTENT))
    subprocess.run(["mke2fs", "-q", "-t", "ext2", "-d", files, source, f"{EXTENTS * EXTENT >> 10}"],
                   check=True, timeout=120, env={"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
    subprocess.run(["nbdcopy", "--flush", source, group.uri], check=True, timeout=120)
    group.kill()
    manager.kill()
    group.attach()
    subprocess.run(["nbdcopy", group.uri, copy], check=True, timeout=120)
    assert copy.read_bytes() == source.read_bytes()
    assert any("hole" in row[2] for row in group.map())
    subprocess.run(["e2fsck", "-fn", copy], check=True, timeout=120, capture_output=True,
                   env={"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})


def test_killed_after_flush(group, manager):
    group.attach()
    for number in range(1, 4):
        offset = number * 3 * EXTENT // 2
        group.qemu(f"write -P {number} {offset} {EXTENT}", "flush")
        if number % 2 == 0:
            manager.kill()
            manager = group.manager()
        group.kill()
        group.attach()
        group.qemu(*(f"read -P {n} {n * 3 * EXTENT // 2} {EXTENT}" for n in range(1, number + 1)))
    manager.kill()


def test_without_a_manager(group, manager):
    group.attach()
    group.qemu(f"write -P 1 0 {EXTENT}")
    manager.kill()
    pool = group.dump()["hosts"][0]["pool"]
    assert 0 < pool < EXTENTS - 2
    group.qemu(*(f"write -P 2 {n * EXTENT} {EXTENT}" for n in range(1, 1 + pool)))
    writer = threading.Thread(target=group.qemu, args=[
        f"write -P 3 {(1 + pool) * EXTENT} {EXTENT}", f"read -P 2 {EXTENT} {EXTENT}"])
    writer.start()
    group.qemu(f"read -P 1 0 {EXTENT}")  # What is there can be used meanwhile.
    assert writer.is_alive()
    manager = group.manager()
    writer.join(120)
    assert not writer.is_alive()
    group.qemu(f"read -P 3 {(1 + pool) * EXTENT} {EXTENT}")
    manager.kill()


def test_what_cannot_be(group, tmp_path):
    def fails(says, *arguments):
        done = group.run("attach", "--nbd", tmp_path / "no", "--plugin", PLUGIN, *arguments)
        assert done.returncode == FAILED and says in done.stderr, done
    fails(b"there is no volume 'wiki'", "--host", "one", group.path, "wiki")
    fails(b"there is no host 'two'", "--host", "two", group.path, "web")
    fails(b"No such file", "--host", "one", tmp_path / "nothing", "web")
    fails(b"cannot open", "--host", "one", "--plugin", "/nowhere.so", group.path, "web")
    done = group.run("detach", tmp_path / "no")
    assert done.returncode == FAILED and b"is it attached?" in done.stderr
