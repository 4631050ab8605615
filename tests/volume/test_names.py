# SPDX-License-Identifier: Apache-2.0
"""Goal: V29. One manager, one agent of a host and one producer and consumer of a ring for each disk, by whatever
name it is opened: a second one notices the first, harms nothing, and gets in when the first was killed.
Method: a file by a symbolic link, a hard link and a bind mount; a loop device by a second node and by a second loop
device of the same file. Locks of the kernel's belong to a node, so the last two share none."""

import contextlib
import os
import subprocess

import pytest

from group import FAILED, OK, Group
from lvm import QUIET, loop_device

device_needs = pytest.mark.needs("root", "loop-devices")


@contextlib.contextmanager
def symbolic(path):
    alias = path.with_name("alias")
    alias.symlink_to(path)
    yield path, alias


@contextlib.contextmanager
def hard(path):
    alias = path.with_name("alias")
    alias.hardlink_to(path)
    yield path, alias


@contextlib.contextmanager
def bound(path):
    alias = path.with_name("alias")
    alias.touch()
    subprocess.run(["mount", "--bind", path, alias], check=True, env=QUIET)
    try:
        yield path, alias
    finally:
        subprocess.run(["umount", alias], check=True, env=QUIET)


@contextlib.contextmanager
def second_node(path):
    """As a container has it."""
    with loop_device(path) as device:
        node = path.with_name("node")
        os.mknod(node, 0o60600, os.stat(device).st_rdev)
        yield device, node


@contextlib.contextmanager
def second_device(path):
    """As multipath has it."""
    with loop_device(path) as one, loop_device(path) as other:
        assert one != other
        yield one, other


KINDS = [symbolic, hard, pytest.param(bound, marks=pytest.mark.needs("root")),
         pytest.param(second_node, marks=device_needs), pytest.param(second_device, marks=device_needs)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def names(fairway, request, tmp_path):
    """One group, by two names. A manager that is killed is followed by another after three times the hold at most."""
    path = tmp_path / "group"
    Group(fairway, path).make("--hold", "1s")
    with request.param(path) as (one, other):
        yield Group(fairway, one), Group(fairway, other)


def refused(group, says, action, *arguments):
    done = group.run(action, *arguments)
    assert done.returncode == FAILED and says in done.stderr, done


def test_one_of_each(names):
    one, other = names
    manager = one.manager()
    other.do("create", "--extents", "20", other.path, "web")  # It is told, whatever its name is.
    other.do("connect", other.path, "h")
    refused(other, b"manage", "manager", other.path)
    agent = one.agent("h", "--wait", "60s")
    assert agent.ask("open web") == "ok" and agent.ask("allocate 0 3") == "ok"
    refused(other, b"an agent of 'h' runs", "agent", "--commands", other.path, "h")
    refused(other, b"lives", "disconnect", "--fenced", other.path, "h")
    assert agent.ask("allocate 3 3") == "ok"
    assert b"sound" in other.do("check", other.path)
    assert manager.process.poll() is None and agent.process.poll() is None
    manager.kill()
    manager = other.manager()  # Nobody lives: it may, at once or when that is certain.
    assert agent.ask("allocate 6 3") == "ok"
    assert agent.end() == OK and manager.end() == OK
    assert one.dump()["volumes"][0]["placed"] == 9


# With a lock of the kernel's in common, and without: there both rings are watched, 5 s each.
@pytest.mark.parametrize("names", [hard, pytest.param(second_device, marks=device_needs)], indirect=True,
                         ids=lambda kind: kind.__name__)
def test_after_an_agent_that_was_killed(names):
    one, other = names
    manager = other.manager()
    one.do("create", "--extents", "20", one.path, "web")
    one.do("connect", one.path, "h")
    agent = one.agent("h", "--wait", "60s")
    assert agent.ask("open web") == "ok" and agent.ask("allocate 0 3") == "ok"
    agent.kill()
    agent = other.agent("h", "--wait", "60s")
    assert agent.ask("open web") == "ok" and agent.ask("allocate 3 3") == "ok"
    assert agent.end() == OK and manager.end() == OK
    assert one.dump()["volumes"][0]["placed"] == 6
