# SPDX-License-Identifier: Apache-2.0
"""Goal: whatever an administrator types and whatever dies meanwhile, nothing that a client was told to be written is
lost, and nothing of one volume appears in another.
Method: three hosts, a few volumes and a manager; random commands of docs/volume.md beside SIGKILL and SIGSTOP, by a
seed. A model has what each extent of each volume must hold; a write that was not answered may be there or not. `check`
must call the group sound after each round. The group is in a file, on a loop device, and in a volume group of LVM.
FAIRWAY_TORTURE is how many rounds to play on each, and FAIRWAY_SEED which."""

import contextlib
import os
import pathlib
import random
import signal
import struct
import time

import pytest

from client import READ, Client
from group import OK
from lvm import VolumeGroup, loop_device
from test_nbd import EXTENT, Attached, has_ended

pytestmark = pytest.mark.needs("nbdkit")

ROUNDS = int(os.environ.get("FAIRWAY_TORTURE", "20"))
SEED = int(os.environ.get("FAIRWAY_SEED", "0"))
HOSTS = ("one", "two", "three")
BLOCK = 512
SIZE = 24 << 20


@contextlib.contextmanager
def in_a_file(_, host):
    host.make(hosts=3)
    yield host.path


@contextlib.contextmanager
def on_a_device(_, host):
    host.make(hosts=3)
    with loop_device(host.path) as device:
        yield device


@contextlib.contextmanager
def in_lvm(fairway, host):
    with open(host.path, "wb") as file:
        file.truncate(SIZE)
    with loop_device(host.path) as device:
        group = VolumeGroup(fairway, device)
        group.make()
        group.do("adopt", "--hosts", "3", "--ring-size", "64k", "--backup", host.path.with_name("before"), device)
        group.do("create", "--extents", "40", device, "web")
        group.do("connect", device, "one")
        yield device


device_needs = pytest.mark.needs("root", "loop-devices")
STORES = [in_a_file, pytest.param(on_a_device, marks=device_needs),
          pytest.param(in_lvm, marks=[device_needs, pytest.mark.needs("lvm")])]


class Torture:  # pylint: disable=too-many-instance-attributes
    def __init__(self, fairway, folder, path, seed):
        self.chance = random.Random(seed)
        self.hosts = {name: Attached(fairway, folder, name) for name in HOSTS}
        for host in self.hosts.values():
            host.path = path
        self.group = self.hosts["one"]
        self.model, self.told = {"web": {}}, []
        self.clients = {}  # Those that stay connected, by host and volume.
        self.count = {}  # What happened, so that a silent test is noticed.
        self.manager = self.group.manager()
        for name in HOSTS[1:]:
            self.group.do("connect", self.group.path, name)

    def any_host(self):
        return self.chance.choice(HOSTS)

    def any_volume(self):
        return self.chance.choice(sorted(self.model))

    def pid(self, name):
        """Of what serves for this host; None: nothing does."""
        try:
            pid = self.hosts[name].pid()
        except (FileNotFoundError, ValueError):
            return None
        return None if has_ended(pid) else pid

    def run(self, action, *arguments):
        done = self.group.run(action, *arguments)
        self.told.append((action, arguments, done.returncode, done.stderr))
        return done.returncode == OK

    def client(self, name, volume):
        """Attached if need be; None: the host may not have it now."""
        if (name, volume) in self.clients:
            return self.clients.pop((name, volume))
        host = self.hosts[name]
        done = host.run(*host.attach_command(volume))
        self.told.append(("attach", name, volume, done.returncode, done.stderr))
        if done.returncode != OK:
            return None
        try:
            return Client(host.socket, volume)
        except (OSError, AssertionError, struct.error):  # Another host has it, or this one is leaving.
            return None

    def let_go(self, client, name, volume):
        """Some stay."""
        if self.chance.random() < 0.5:
            self.clients[name, volume] = client
        else:
            client.close()

    def write(self):
        """Several, to any extents of one volume."""
        volume, name = self.any_volume(), self.any_host()
        client = self.client(name, volume)
        for _ in range(self.chance.randrange(1, 9) if client is not None else 0):
            extent, value = self.chance.randrange(8), bytes([self.chance.randrange(1, 256)]) * BLOCK
            before = self.model[volume].get(extent, {bytes(BLOCK)})
            answer = client.write(extent * EXTENT, value)
            self.told.append(("write", name, volume, extent, value[:1], answer))
            self.model[volume][extent] = {value} if answer == 0 else before | {value}
            self.count[answer] = self.count.get(answer, 0) + 1
            if answer is None:
                client.close()
                return
        if client is not None:
            self.let_go(client, name, volume)

    def compare(self, name, volume):
        client = self.client(name, volume)
        if client is None:
            return False
        for extent in range(8):
            client.ask(READ, extent * EXTENT, BLOCK)
            answer = client.answer()
            if answer is None:  # It was killed since.
                client.close()
                return False
            assert answer == 0, self.told
            found = client.take(BLOCK)
            assert found in self.model[volume].get(extent, {bytes(BLOCK)}), (volume, extent, found[:1], self.told)
        self.let_go(client, name, volume)
        return True

    def read(self):
        self.compare(self.any_host(), self.any_volume())

    def connect(self):
        name = self.any_host()
        self.run("connect", self.group.path, name)

    def disconnect(self):
        name = self.any_host()
        pid = self.pid(name)
        if self.run(self.chance.choice(["disconnect", "shutdown"]), "--wait", "2s", self.group.path, name):
            self.count["left"] = self.count.get("left", 0) + 1
            assert pid is None or not self.holds(name), self.told  # It was refused.
            while pid is not None and not has_ended(pid):  # Who has left does not stay.
                time.sleep(0.01)

    def holds(self, name):
        return any(host == name for host, _ in self.clients)

    def drop(self, name):
        for key in [key for key in self.clients if key[0] == name]:
            self.clients.pop(key).close()

    def detach(self):
        name = self.any_host()
        if self.pid(name) is not None:
            self.hosts[name].detach()
            self.drop(name)

    def create(self):
        name = f"v{self.chance.randrange(4)}"
        if self.run("create", "--extents", "8", self.group.path, name):
            assert name not in self.model, self.told
            self.model[name] = {}

    def remove(self):
        name = f"v{self.chance.randrange(4)}"
        if self.run("remove", self.group.path, name):
            del self.model[name]

    def grow(self):
        self.run("resize", "--extents", self.chance.randrange(40, 60), self.group.path, "web")

    def format(self):
        assert not self.run("format", self.group.path)

    def kill(self):
        name = self.any_host()
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            while not has_ended(pid):
                time.sleep(0.01)
            self.drop(name)

    def freeze(self):
        """An order to leave meanwhile must not give away what the host has."""
        name = self.any_host()
        pid = self.pid(name)
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)
        assert not self.run("disconnect", "--wait", "1ms", self.group.path, name), self.told
        assert not self.run("disconnect", "--fenced", self.group.path, name), self.told
        os.kill(pid, signal.SIGCONT)

    def restart(self):
        if self.chance.random() < 0.5:
            self.manager.kill()
        else:
            assert self.run("shutdown", "--manager-only", self.group.path), self.told
            self.manager.process.wait(timeout=120)
            self.manager.kill()
        self.manager = self.group.manager()

    def play(self, rounds):
        acts = [self.write] * 6 + [self.read] * 3 + [self.connect] * 3 + [self.disconnect] * 2 + [
            self.detach, self.create, self.remove, self.grow, self.format, self.kill, self.freeze, self.restart]
        for _ in range(rounds):
            act = self.chance.choice(acts)
            self.told = self.told[-30:] + [act.__name__]
            act()
            done = self.group.run("check", self.group.path)
            assert done.returncode == OK and b"sound" in done.stdout, (done, self.told)

    def end(self):
        """A host that has each volume reads all of it: the one that it is open on, if one died with it."""
        for name in HOSTS:
            self.drop(name)
        for volume in sorted(self.model):
            for name in HOSTS:
                self.run("connect", self.group.path, name)
            assert any(self.compare(name, volume) for name in HOSTS), (volume, self.told)

    def clean(self):
        for name in HOSTS:
            pid = self.pid(name)
            if pid is not None:
                os.kill(pid, signal.SIGCONT)
                self.hosts[name].detach()
        self.manager.kill()


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.__name__)
def test_torture(fairway, tmp_path, store):
    folder = pathlib.Path(tmp_path)
    with store(fairway, Attached(fairway, folder)) as path:
        torture = Torture(fairway, folder, path, SEED)
        try:
            torture.play(ROUNDS)
            torture.end()
            assert torture.count.get(0, 0) > 0, torture.count
            print(torture.count)
        finally:
            torture.clean()
