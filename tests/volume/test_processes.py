# SPDX-License-Identifier: Apache-2.0
"""Goal: manager and agents are processes that may be killed at any time, need no network, and lose
nothing that they have answered.
Method: agents that allocate and discard as fast as they can, and an operator who makes and removes volumes,
on a file and on a block device; one after the other of agents and manager is killed and started again; then
all that was answered is compared with what is on the disk."""

import os
import random
import subprocess
import threading

import pytest

from group import OK, Group, owners, placed

KILLS = int(os.environ.get("FAIRWAY_VOLUME_KILLS", "8"))
SIZE = 20
HOSTS = ("one", "two")


@pytest.fixture
def loop_device(tmp_path):
    """A block device, which is a file; gone when the test is over."""
    backing = tmp_path / "backing"
    backing.write_bytes(bytes(4 << 20))
    attached = subprocess.run(["losetup", "--find", "--show", backing], capture_output=True, text=True,
                              check=True)
    yield attached.stdout.strip()
    subprocess.run(["losetup", "--detach", attached.stdout.strip()], check=True)


@pytest.fixture
def disk(request, tmp_path):
    if getattr(request, "param", "file") == "device":
        return request.getfixturevalue("loop_device")
    return tmp_path / "group"


@pytest.fixture
def group(fairway, disk):
    group = Group(fairway, disk)
    group.make()
    for host in HOSTS:
        group.do("connect", group.path, host)
        group.do("create", "--extents", SIZE, group.path, host)
    return group


@pytest.mark.needs("user-namespaces")
def test_without_a_network(group):
    group.prefix = ["unshare", "-rn", "--"]
    manager, agent = group.manager(), group.agent("one", "--wait", "60s")
    assert agent.ask("open one") == "ok"
    for logical in range(SIZE):
        assert agent.ask(f"allocate {logical} 1") == "ok"
    agent.kill()
    manager.kill()
    assert len(placed(group.dump(), "one")) == SIZE


def test_manager_away(group):
    manager, agent = group.manager(), group.agent("one", "--wait", "60s")
    assert agent.ask("open one") == "ok"
    assert agent.ask("allocate 0 1") == "ok"
    manager.kill()
    agent.kill()
    agent = group.agent("one")  # Its pool is the manager's to tell.
    assert agent.ask("open one") == "ok"
    assert agent.ask("allocate 1 1") == "wait"
    manager = group.manager()
    while agent.ask("allocate 1 1") != "ok":
        pass
    manager.kill()
    done = 2
    while agent.ask(f"allocate {done} 1") == "ok":  # From the pool, and then it waits.
        done += 1
    assert 2 < done < SIZE
    manager = group.manager()
    while agent.ask(f"allocate {done} 1") != "ok":
        pass
    assert agent.end() == OK and manager.end() == OK
    assert list(placed(group.dump(), "one")) == list(range(done + 1))


class Writer(threading.Thread):
    """Asks its agent for one thing after the other, and starts it again when it is dead."""

    def __init__(self, group, host, seed):
        super().__init__()
        self.group, self.host = group, host
        self.random = random.Random(seed)
        self.promised = {}  # Logical extent: where, None for a hole; missing: in doubt.
        self.promised.update(dict.fromkeys(range(SIZE)))
        self.over = False
        self.answers = 0
        self.wrong = None
        self.agent = None

    def begin(self):
        self.agent = self.group.agent(self.host, "--wait", "1ms")
        if self.agent.ask(f"open {self.host}") != "ok":
            return
        answer = self.agent.ask("map")
        if answer is None:
            return
        mapped = dict(map(int, pair.split(":")) for pair in answer.split()[:-1])
        for logical, where in self.promised.items():
            if mapped.get(logical) != where:
                self.wrong = f"{self.host}: {logical} was at {where} and is in {mapped}"
        self.promised = {logical: mapped.get(logical) for logical in range(SIZE)}

    def turn(self):
        logical = self.random.randrange(SIZE)
        where = self.promised.pop(logical)
        answer = self.agent.ask(f"{'allocate' if where is None else 'discard'} {logical} 1")
        if answer == "wait":
            self.promised[logical] = where
        elif answer == "ok":
            self.answers += 1
            self.promised[logical] = None
            if where is None:
                pairs = (self.agent.ask("map") or "").split()[:-1]
                del self.promised[logical]
                self.promised.update((logical, int(place)) for number, place in
                                     (pair.split(":") for pair in pairs) if int(number) == logical)
        else:
            assert answer is None, answer

    def run(self):
        try:
            self.begin()
            while not self.over and self.wrong is None:
                if len(self.promised) < SIZE:  # It has died of something.
                    self.agent.kill()
                    self.begin()
                else:
                    self.turn()
        except BaseException as error:  # pylint: disable=broad-except
            self.wrong = repr(error)


class Operator(threading.Thread):
    """Makes volumes and removes them again beside all that, through whichever manager runs."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.done = 0
        self.wrong = None
        self.over = False

    def turn(self):
        for action in ("create", "resize", "remove"):
            done = self.group.run(action, "--extents", 3, self.group.path, "extra")
            if done.returncode != OK:
                self.wrong = f"{action}: {done.stderr}"
        self.done += 1

    def run(self):
        while not self.over and self.wrong is None:
            self.turn()


@pytest.mark.parametrize("disk", [
    "file",
    pytest.param("device", marks=[pytest.mark.needs("root"), pytest.mark.needs("loop-devices")]),
], indirect=True)
def test_killed_at_random(group):
    chance = random.Random(7)
    manager = group.manager()
    writers = [Writer(group, host, seed) for seed, host in enumerate(HOSTS)]
    operator = Operator(group)
    for thread in [*writers, operator]:
        thread.start()
    for _ in range(KILLS):
        victim = chance.choice([*writers, None])
        before = [writer.answers for writer in writers]
        while not all(writer.answers > count or writer.wrong
                      for writer, count in zip(writers, before)):
            writers[0].join(chance.uniform(0.001, 0.05))  # Until both have got on.
        if victim is None:
            manager.kill()
            manager = group.manager()
        else:
            victim.agent.process.kill()
        dump = group.dump()
        assert len(owners(dump)) == len(set(owners(dump)))
    operator.over = True
    operator.join()
    assert operator.wrong is None, operator.wrong
    for writer in writers:
        writer.over = True
        writer.join()
        assert writer.wrong is None, writer.wrong
        writer.agent.kill()
    manager.kill()
    dump = group.dump()
    for writer in writers:
        there = placed(dump, writer.host)
        for logical, where in writer.promised.items():
            assert there.get(logical) == where
    group.do("check", group.path)
