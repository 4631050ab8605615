# SPDX-License-Identifier: Apache-2.0
"""Goal: a volume attached through NBD is a disk: what is written is read back, holes are zeros and told as
holes, a discard gives extents back, a flush is kept whatever is killed, and a volume grows while it is written,
with and without a manager. A host has several at a time, and hosts do not disturb each other.
Method: nbdkit with our plugin, started by `fairway volume attach`; other people's clients (qemu-io, nbdcopy,
nbdinfo) write and read; processes are killed with SIGKILL."""

import errno
import os
import pathlib
import random
import signal
import struct
import subprocess
import threading
import time

import pytest

from client import TRIM, WRITE, Client
from group import FAILED, Group, owners, placed
from lvm import loop_device
from support.patience import PATIENCE_S
from support.stopped import stop

EXTENT = 64 << 10
EXTENTS = 40
PLUGIN = pathlib.Path(os.environ["FAIRWAY_BUILD"]) / "src/volume/nbdkit-fairway-plugin.so"

TOOLS = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}

pytestmark = pytest.mark.needs("nbdkit")


class Attached(Group):
    """A group whose volumes are attached on a socket of a host."""

    def __init__(self, fairway, folder, host="one"):
        super().__init__(fairway, folder / "group")
        self.host = host
        self.socket = folder / f"nbd-{host}"

    def make(self, hosts=2):
        # What nobody wrote must not be what was there before.
        self.path.write_bytes(b"\xa5" * (16 << 20))
        self.do("format", "--force", "--hold", "1s", "--extent-size", EXTENT, "--ring-size", "64k", "--hosts", hosts,
                self.path)
        self.do("create", "--extents", EXTENTS, self.path, "web")
        self.do("connect", self.path, "one")

    def uri(self, volume="web"):
        return f"nbd+unix:///{volume}?socket={self.socket}"

    def attach_command(self, volume="web"):
        return ["attach", "--nbd", self.socket, "--host", self.host, "--plugin", PLUGIN, self.path, volume]

    def attach(self, volume="web"):
        assert self.do(*self.attach_command(volume)).decode() == f"{self.uri(volume)}\n"

    def detach(self):
        """In the orderly way, however long a busy machine takes for it."""
        self.do("detach", "--wait", "100s", self.socket)

    def pid(self):
        return int(pathlib.Path(f"{self.socket}.pid").read_text())

    def kill(self):
        process = self.pid()
        os.kill(process, signal.SIGKILL)
        while not has_ended(process):
            pass

    def qemu(self, *commands, volume="web"):
        arguments = [word for command in commands for word in ("-c", command)]
        done = subprocess.run(["qemu-io", "-f", "raw", *arguments, self.uri(volume)], timeout=120,
                              capture_output=True, check=False)
        assert done.returncode == 0 and b"failed" not in done.stdout + done.stderr, done
        return done.stdout

    def map(self, volume="web"):
        done = subprocess.run(["nbdinfo", "--map", self.uri(volume)], timeout=120, capture_output=True,
                              check=True)
        rows = [line.split() for line in done.stdout.decode().splitlines()]
        return [(int(row[0]) // EXTENT, int(row[1]) // EXTENT, row[3]) for row in rows]


def has_ended(process):
    """All its threads, though its parent may not have asked for it yet."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):  # The latter if it goes between the two steps of a read.
        return True
    return fields[0] == "Z" and int(fields[17]) <= 1


def at_once(*actions):
    """All of them at the same time."""
    wrong = []

    def act(action):
        try:
            action()
        except BaseException as error:  # pylint: disable=broad-except
            wrong.append(repr(error))

    threads = [threading.Thread(target=act, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


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
    group.attach()  # It is served already, and that is what was wanted.
    done = group.run("attach", "--nbd", group.socket, "--host", "two", group.path, "web")
    assert done.returncode == FAILED and b"serves another group or host" in done.stderr
    done = group.run("attach", "--nbd", group.socket, "--host", "one", group.path, "wiki")
    assert done.returncode == FAILED and b"there is no volume 'wiki'" in done.stderr
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
    subprocess.run(["nbdcopy", "--flush", source, group.uri()], check=True, timeout=120)
    group.kill()
    manager.kill()
    group.attach()
    subprocess.run(["nbdcopy", group.uri(), copy], check=True, timeout=120)
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


def test_attached_again_at_once(group, manager):
    """Whether the one before is dead already or about to die: who is told a URI can use it."""
    for _ in range(10):
        group.attach()
        os.kill(group.pid(), signal.SIGKILL)
        group.attach()
        assert group.map()
        group.detach()
    assert manager.process.poll() is None


def is_closed(group):
    return group.dump()["volumes"][0]["open_on"] == []


def test_detached_under_a_client(group, manager):
    """A client that is idle: nbdkit would wait for it to go. It is disconnected, what it wrote is there, and
    another host can have the volume."""
    group.attach()
    client = Client(group.socket, "web")
    assert client.write(3 * EXTENT, b"x" * 512) == 0
    group.detach()
    assert client.answer() is None
    client.close()
    assert manager.end() == 0 and is_closed(group)
    assert list(placed(group.dump(), "web")) == [3]


def refuses(group, action, *arguments):
    done = group.run(action, "--wait", "60s", *arguments)
    assert done.returncode == FAILED and b"host 'one' has 'web' open" in done.stderr, done


def test_not_disconnected_under_a_client(group, manager, tmp_path):
    """V24: a host that has a volume open keeps it, whatever an administrator types; no other host gets it. When it
    is closed the host leaves, its process ends, and it may come back."""
    other = Attached(group.fairway, tmp_path, "two")
    group.do("connect", group.path, "two")
    group.attach()
    client = Client(group.socket, "web")
    assert client.write(0, b"x" * 512) == 0
    refuses(group, "disconnect", group.path, "one")
    refuses(group, "shutdown", group.path, "one")
    refuses(group, "shutdown", group.path)
    done = group.run("disconnect", "--fenced", group.path, "one")
    assert done.returncode == FAILED and b"lives" in done.stderr, done
    done = other.run(*other.attach_command())
    assert done.returncode == FAILED and b"host one has 'web' open" in done.stderr
    assert client.write(EXTENT, b"y" * 512) == 0 and manager.process.poll() is None
    process = group.pid()
    client.close()
    while not is_closed(group):
        pass
    group.do("disconnect", "--wait", "60s", group.path, "one")
    while not has_ended(process):
        pass
    other.attach()
    other.qemu("read -P 120 0 512", f"read -P 121 {EXTENT} 512", f"discard 0 {EXTENT}")
    group.do("connect", group.path, "one")
    done = group.run(*group.attach_command())  # It is in other hands only while a client is connected.
    assert done.returncode == 0, done
    other.detach()


@pytest.mark.needs("root", "loop-devices")
def test_disconnected_host_cannot_write(group, tmp_path):
    """V11: a host stands still until an operator says that it is off, and another has its volume. When it goes on it
    finds that out, and from then on every write of its client fails. Each of them has the disk by a device of its
    own, as hosts have: by one and the same, the operator would be told that the agent lives."""
    with loop_device(group.path) as one, loop_device(group.path) as two:
        frozen, other = (Attached(group.fairway, tmp_path, host) for host in ("one", "two"))
        frozen.path, other.path = one, two
        manager = other.manager()
        other.do("connect", two, "two")
        frozen.attach()
        client = Client(frozen.socket, "web")
        assert client.write(0, b"x" * 512) == 0
        process = frozen.pid()
        stop(process)
        other.do("disconnect", "--fenced", two, "one")
        other.attach()
        other.qemu(f"write -P 121 0 {EXTENT}", "flush")
        os.kill(process, signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE_S
        while (answer := client.write(EXTENT, b"z" * 512)) == 0:  # Until its next look at the disk.
            assert time.monotonic() < deadline, "it is never told"
        assert answer == errno.EIO
        assert client.write(0, b"z" * 512) == errno.EIO
        client.close()
        other.qemu(f"read -P 121 0 {EXTENT}")
        other.detach()
        frozen.detach()
        assert manager.end() == 0
        assert b"sound" in other.do("check", two)


def test_disconnected_while_clients_come_and_go(group, manager):
    """V24, at any moment: either the host leaves, and then no client can open the volume or write to it; or it
    stays, and then what a client has written is there."""
    left = 0
    for number in range(20):
        group.attach()
        process = group.pid()
        outcome = []
        # pylint: disable-next=cell-var-from-loop
        leaver = threading.Thread(target=lambda: outcome.append(group.run("disconnect", "--wait", "60s", group.path,
                                                                          "one")))
        leaver.start()
        wrote = []
        while not wrote and leaver.is_alive():
            try:
                client = Client(group.socket, "web")
            except (OSError, AssertionError, struct.error):  # It has left, or is about to.
                continue
            wrote.append(client.write(number * EXTENT, bytes([number + 1]) * 512))
            leaver.join(0.01 * (number % 3))
            client.close()
        leaver.join()
        if outcome[0].returncode == 0:
            left += 1
            while not has_ended(process):
                pass
            group.do("connect", group.path, "one")
            group.attach()
        else:
            assert b"has 'web' open" in outcome[0].stderr or b"a volume open" in outcome[0].stderr, outcome
        if wrote == [0]:
            group.qemu(f"read -P {number + 1} {number * EXTENT} 512")
        group.detach()
    assert manager.end() == 0 and is_closed(group)
    print(f"left {left} times of 20")


def test_detached_while_clients_come_and_go(group, manager):
    """At any moment of a client's life: nothing aborts, and the volume is closed."""
    for _ in range(10):
        group.attach()
        clients = [Client(group.socket, "web") for _ in range(3)]
        assert clients[0].write(EXTENT, b"x" * 512) == 0
        clients[1].close()
        detacher = threading.Thread(target=group.detach)
        detacher.start()
        clients[2].ask(WRITE, 2 * EXTENT, 512, b"y" * 512)
        clients[0].close()
        assert clients[2].answer() in (0, errno.ESHUTDOWN, None)
        clients[2].close()
        detacher.join()
        assert is_closed(group)
    assert manager.end() == 0


def test_detached_while_a_write_waits(group, manager):
    """There is no manager, and the pool is empty: the writer is told, and the rest is closed in order."""
    group.attach()
    client = Client(group.socket, "web")
    assert client.write(0, b"x" * 512) == 0
    manager.kill()
    answers = []
    for extent in range(1, EXTENTS):
        client.ask(WRITE, extent * EXTENT, 512, b"x" * 512)
    detacher = None
    for _ in range(1, EXTENTS):
        answers.append(client.answer())
        if detacher is None and not group.dump()["hosts"][0]["pool"]:
            detacher = threading.Thread(target=group.detach)
            detacher.start()
        if answers[-1] != 0:
            break
    assert detacher is not None and answers[-1] in (errno.ESHUTDOWN, None), answers
    detacher.join()
    client.close()
    assert is_closed(group)


def test_another_process_has_the_number(group, manager):
    """A process that is gone has left its number, which another has since. That one is not taken for ours, and
    not ended."""
    with subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            for again in (True, False):
                group.attach()
                group.kill()
                for name in ("pid", "ready"):
                    pathlib.Path(f"{group.socket}.{name}").write_text(f"{bystander.pid}\n")
                if again:
                    group.attach()
                    assert group.map()
                    assert group.pid() != bystander.pid
                group.detach()
                assert not group.socket.exists()
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert manager.process.poll() is None


def test_full(group, tmp_path):
    """V30: a write that finds no extent fails with ENOSPC, both sides log it, and it works again when some are
    given back. What is there can be used all the time."""
    log = tmp_path / "log"
    extents = group.dump()["extents"]
    group.do("resize", "--extents", 2 * extents, group.path, "web")
    with open(log, "wb") as file, subprocess.Popen(
            [group.fairway, "volume", "manager", "--interval", "1ms", "--pool-min", "8", group.path],
            stdout=subprocess.PIPE, stderr=file) as manager:
        assert manager.stdout.readline() == b"managing\n"
        group.do("connect", group.path, "two")  # Its agent never runs, and it gets nothing.
        command = group.attach_command()
        group.do(command[0], "--full-wait", "1ms", *command[1:])
        client = Client(group.socket, "web")
        assert b"WARNING" not in group.do("list", group.path)
        placed_now, answer = 0, 0
        while answer == 0:
            answer = client.write(placed_now * EXTENT, b"x" * 512)
            placed_now += answer == 0
        assert (answer, placed_now) == (errno.ENOSPC, extents)
        assert client.write(0, b"y" * 512) == 0
        assert f"WARNING: only 0 of {extents} extents are free".encode() in group.do("list", group.path)
        client.ask(TRIM, EXTENT, EXTENT)
        assert client.answer() == 0
        answer = errno.ENOSPC
        while answer == errno.ENOSPC:  # Until the extent has been to the manager and back.
            answer = client.write(placed_now * EXTENT, b"z" * 512)
        assert answer == 0
        client.close()
        assert pathlib.Path(f"{group.socket}.log").read_bytes().count(b"the group is full: this host has") == 1
        group.detach()
        manager.terminate()
        assert manager.wait(timeout=120) == 0
    assert log.read_bytes().count(b"the group is full: host one wants extents") == 1
    assert log.read_bytes().count(b"extents are free;") == 1


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


def test_several_volumes(group, manager):
    """Attached at the same moment, by one process, which is the host's agent."""
    group.do("create", "--extents", EXTENTS, group.path, "mail")
    at_once(group.attach, lambda: group.attach("mail"))
    at_once(lambda: group.qemu(*(f"write -P 1 {n * EXTENT} {EXTENT}" for n in range(8))),
            lambda: group.qemu(*(f"write -P 2 {n * EXTENT} {EXTENT}" for n in range(4, 12)), volume="mail"))
    assert group.map() == [(0, 8, "data"), (8, EXTENTS - 8, "hole,zero")]
    assert group.map("mail") == [(0, 4, "hole,zero"), (4, 8, "data"), (12, EXTENTS - 12, "hole,zero")]
    group.qemu(f"discard 0 {8 * EXTENT}", f"read -P 0 0 {8 * EXTENT}")
    group.qemu(f"read -P 2 {4 * EXTENT} {8 * EXTENT}", volume="mail")
    group.kill()
    group.attach("mail")  # Either one starts it again.
    group.qemu(f"read -P 2 {4 * EXTENT} {8 * EXTENT}", volume="mail")
    group.qemu(f"read -P 0 0 {EXTENTS * EXTENT}")
    group.detach()
    assert manager.end() == 0
    assert list(placed(group.dump(), "mail")) == list(range(4, 12)) and not placed(group.dump(), "web")


def test_two_hosts(group, manager, tmp_path):
    """One manager for both; while there is none they go on from their pools, and another takes over."""
    hosts = [group, Attached(group.fairway, tmp_path, "two")]
    group.do("connect", group.path, "two")
    for name in ("web2", "mail", "mail2"):
        group.do("create", "--extents", EXTENTS, group.path, name)
    volumes = [(hosts[0], "web", 1), (hosts[0], "web2", 2), (hosts[1], "mail", 3), (hosts[1], "mail2", 4)]

    def write(first, count):
        return [lambda host=host, name=name, byte=byte: host.qemu(
            *(f"write -P {byte} {n * EXTENT} {EXTENT}" for n in range(first, first + count)), volume=name)
            for host, name, byte in volumes]

    try:
        at_once(*(lambda host=host, name=name: host.attach(name) for host, name, _ in volumes))
        at_once(*write(0, 4))
        while min(host["pool"] for host in group.dump()["hosts"]) < 4:
            pass
        assert manager.end() == 0  # What it has granted it has sent.
        pools = [host["pool"] for host in group.dump()["hosts"]]
        at_once(*write(4, min(pools) // 2))  # Each host writes to two volumes.
        writers = threading.Thread(target=at_once, args=write(4 + min(pools) // 2, 12))
        writers.start()
        manager = group.manager()
        writers.join()
        for host, name, byte in volumes:
            host.qemu(f"read -P {byte} 0 {(16 + min(pools) // 2) * EXTENT}", volume=name)
    finally:
        hosts[1].detach()
    group.detach()
    assert manager.end() == 0
    dump = group.dump()
    assert all(sorted(placed(dump, name)) == list(range(16 + min(pools) // 2)) for _, name, _ in volumes), dump
    assert len(owners(dump)) == len(set(owners(dump))) == dump["extents"] - dump["free"]


def test_one_host_at_a_time(group, manager, tmp_path):
    other = Attached(group.fairway, tmp_path, "two")
    group.do("connect", group.path, "two")
    group.attach()
    with subprocess.Popen(["qemu-io", "-f", "raw", group.uri()], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as client:
        client.stdin.write(f"write -P 5 0 {EXTENT}\n".encode())
        client.stdin.flush()
        assert b"wrote" in client.stdout.readline()  # It is connected, and stays so.
        done = other.run(*other.attach_command())
        assert done.returncode == FAILED and b"host one has 'web' open" in done.stderr
        client.stdin.close()
        client.stdout.read()
    while group.dump()["volumes"][0]["open_on"]:  # The server learns later than we do that its client is gone.
        pass
    other.attach()
    other.qemu(f"read -P 5 0 {EXTENT}")
    other.detach()
    assert manager.end() == 0


class Mapped:
    """The volume as a file, by nbdfuse, as long as this lasts."""

    def __init__(self, group, folder):
        self.uri, self.path = group.uri(), folder / "mapped"
        self.path.touch()
        self.process = None

    def __enter__(self):
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(["nbdfuse", self.path, self.uri])
        while self.path.stat().st_size != EXTENTS * EXTENT:
            assert self.process.poll() is None
        return self.path

    def __exit__(self, *_):
        subprocess.run(["umount", self.path], check=True, timeout=120, env=TOOLS)
        self.process.wait(timeout=120)


@pytest.mark.needs("fuse", "root")
def test_a_file_system(group, manager, tmp_path):
    """Made while managers are killed, and checked after the agent was."""
    files, back = tmp_path / "files", tmp_path / "back"
    chance = random.Random(7)
    files.mkdir()
    back.mkdir()
    for number in range(12):
        (files / str(number)).write_bytes(chance.randbytes(EXTENT))
    group.attach()
    over = threading.Event()

    def kill_managers():
        alive = manager
        while not over.is_set():
            if group.dump()["hosts"][0]["pool"] >= 4:  # Else it gets nowhere in so short a life.
                alive.kill()
                alive = group.manager()
        alive.kill()

    killer = threading.Thread(target=kill_managers)
    killer.start()
    try:
        with Mapped(group, tmp_path) as disk:
            subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", files, disk], check=True, timeout=120,
                           env=TOOLS)
            with open(disk, "r+b") as file:
                os.fsync(file.fileno())
            group.kill()
    finally:
        over.set()
        killer.join()
    group.attach()
    with Mapped(group, tmp_path) as disk:
        subprocess.run(["e2fsck", "-fn", disk], check=True, timeout=120, capture_output=True, env=TOOLS)
        subprocess.run(["debugfs", "-R", f"rdump / {back}", disk], check=True, timeout=120,
                       capture_output=True, env=TOOLS)
    assert all((back / file.name).read_bytes() == file.read_bytes() for file in files.iterdir())


@pytest.mark.needs("loop-devices", "root")
def test_flushes_reach_the_disk(fairway, tmp_path):
    """No killed process shows that: what it wrote is the kernel's. But the kernel counts what it makes a device flush."""
    group = Attached(fairway, tmp_path)
    group.make()
    done = subprocess.run(["losetup", "--find", "--show", group.path], check=True, timeout=120, capture_output=True,
                          env=TOOLS)
    group.path = pathlib.Path(done.stdout.decode().strip())

    def flushes(*commands):
        """How many there were while these were given, a hundred times."""
        def count():
            return int(pathlib.Path("/sys/block", group.path.name, "stat").read_text().split()[15])
        before = count()
        words = [word for command in commands * 100 for word in ("-c", command)]
        subprocess.run(["qemu-io", "-t", "writeback", "-f", "raw", *words, group.uri()], check=True, timeout=120,
                       capture_output=True)
        return count() - before

    manager = group.manager()
    try:
        group.attach()
        group.qemu("write 0 4096")  # The extent is there from now on.
        assert manager.end() == 0
        # Of two that meet, one may do for both.
        assert flushes("write 0 4096", "flush") >= 75
        assert flushes("write -f 0 4096") >= 75
    finally:
        if manager.process.poll() is None:
            manager.kill()
        if group.socket.exists():
            group.detach()
        subprocess.run(["losetup", "--detach", group.path], check=True, timeout=120, env=TOOLS)


class Mounted:
    """A file system on the volume, mounted by the kernel with an option, as long as this lasts."""

    def __init__(self, disk, folder, option):
        self.disk, self.folder, self.option, self.loop = disk, folder, option, None

    def run(self, *command):
        return subprocess.run(list(map(str, command)), check=True, timeout=120, capture_output=True, env=TOOLS).stdout

    def __enter__(self):
        self.folder.mkdir()
        self.loop = self.run("losetup", "--find", "--show", self.disk).decode().strip()
        try:
            self.run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-E", "nodiscard", "-O", "^has_journal", self.loop)
            self.run("mount", "-o", self.option, self.loop, self.folder)
        except subprocess.CalledProcessError:
            self.run("losetup", "--detach", self.loop)
            raise
        return self

    def __exit__(self, *_):
        self.run("umount", self.folder)
        self.run("losetup", "--detach", self.loop)
        while self.run("losetup", "--associated", self.disk):  # Somebody who watches devices may look at it still.
            pass


@pytest.mark.needs("fuse", "loop-devices", "root")
@pytest.mark.parametrize("way", ["discard", "fstrim"])
def test_a_file_system_gives_back(group, manager, tmp_path, way):
    """What files leave behind, when they are removed or when somebody asks for it."""
    group.attach()
    kept = random.Random(5).randbytes(4 * EXTENT)
    with Mapped(group, tmp_path) as disk:
        with Mounted(disk, tmp_path / "mounted", "discard" if way == "discard" else "nodiscard") as system:
            for name, content in (("gone", bytes([7]) * (20 * EXTENT)), ("kept", kept)):
                (system.folder / name).write_bytes(content)
            system.run("sync", "--file-system", system.folder)
            before = len(placed(group.dump(), "web"))
            assert before >= 24
            (system.folder / "gone").unlink()
            system.run("sync", "--file-system", system.folder)
            if way == "fstrim":
                assert len(placed(group.dump(), "web")) >= before
                system.run("fstrim", system.folder)
            # At the ends of its pieces there may be extents that it had only a part of.
            assert len(placed(group.dump(), "web")) <= before - 14
            assert (system.folder / "kept").read_bytes() == kept
        subprocess.run(["e2fsck", "-fn", disk], check=True, timeout=120, capture_output=True, env=TOOLS)
    group.detach()
    assert manager.end() == 0


def test_what_cannot_be(group, tmp_path, monkeypatch):
    def fails(says, *arguments):
        done = group.run("attach", "--nbd", tmp_path / "no", "--plugin", PLUGIN, *arguments)
        assert done.returncode == FAILED and says in done.stderr, done
    fails(b"there is no volume 'wiki'", "--host", "one", group.path, "wiki")
    fails(b"there is no host 'two'", "--host", "two", group.path, "web")
    fails(b"No such file", "--host", "one", tmp_path / "nothing", "web")
    fails(b"cannot open plugin", "--host", "one", "--plugin", "/nowhere.so", group.path, "web")
    fails(b"GROUP=optional/nbdkit && make", "--host", "one", "--plugin", "/nowhere.so", group.path, "web")
    monkeypatch.setenv("PATH", str(tmp_path))
    fails(b"GROUP=optional/nbdkit && make", "--host", "one", group.path, "web")  # There is no nbdkit.
    done = group.run("detach", tmp_path / "no")
    assert done.returncode == FAILED and b"is it attached?" in done.stderr
