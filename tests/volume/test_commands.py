# SPDX-License-Identifier: Apache-2.0
"""Goal: every command does the same on a group of our own format and on one in a volume group of LVM,
beside a manager that runs and without one.
Method: one table of commands, each a function that gives the command and looks at what became of it; every
entry runs on both stores, with and without a manager. Each run begins with a group that was made
once per store: hosts `one` and `two` are connected, and the volume `web` has ten extents."""

import contextlib
import json
import os
import pathlib
import shutil

import pytest

from client import Client
from group import FAILED, OK, Group
from lvm import VolumeGroup, loop_device

PLUGIN = pathlib.Path(os.environ["FAIRWAY_BUILD"]) / "src/volume/nbdkit-fairway-plugin.so"
SIZE = 24 << 20

STORES = [pytest.param("plain", id="plain"),
          pytest.param("lvm", id="lvm", marks=pytest.mark.needs("root", "loop-devices", "lvm"))]


@contextlib.contextmanager
def opened(fairway, store, image):
    """The group in the image: the file itself, or a loop device with LVM on it."""
    if store == "plain":
        yield Group(fairway, image)
        return
    with loop_device(image) as device:
        yield VolumeGroup(fairway, device)


@pytest.fixture(scope="module")
def images(fairway, tmp_path_factory):
    """Makes the image of a store when it is first wanted, and then puts it back. It stays the same file: by another
    one a manager would wait until the lease of the last is over for certain."""
    folder = tmp_path_factory.mktemp("images")

    def image(store):
        path = folder / store
        if not path.exists():
            with open(path, "wb") as file:
                file.truncate(SIZE)
            with opened(fairway, store, path) as group:
                group.make()
                if store == "lvm":
                    group.adopt(folder / "before.vg")
                group.do("create", "--extents", "10", group.path, "web")
                group.do("connect", group.path, "one")
                group.do("connect", group.path, "two")
            shutil.copyfile(path, folder / f"{store}.made")
        shutil.copyfile(folder / f"{store}.made", path)
        return path
    return image


def volumes(group):
    told = json.loads(group.do("list", "--json", group.path))
    return {volume["name"]: volume["size"] for volume in told["volumes"]}


def hosts(group):
    return [host["name"] for host in json.loads(group.do("hosts", "--json", group.path))["hosts"]]


def refused(group, says, action, *arguments):
    done = group.run(action, *arguments)
    assert done.returncode == FAILED and says in done.stderr, done


def create(group, _):
    group.do("create", "--extents", "3", group.path, "new")
    assert volumes(group) == {"web": 10, "new": 3}


def resize(group, _):
    group.do("resize", "--extents", "12", group.path, "web")
    assert volumes(group) == {"web": 12}


def remove(group, _):
    group.do("remove", group.path, "web")
    assert not volumes(group)


def list_them(group, _):
    assert group.do("list", group.path).splitlines()[1].split() == [b"web", b"10", b"0", b"-"]


def hosts_shown(group, _):
    assert [line.split()[0] for line in group.do("hosts", group.path).splitlines()] == [b"HOST", b"one", b"two"]


def dump(group, _):
    assert [host["name"] for host in group.dump()["hosts"]] == ["one", "two"]


def check(group, _):
    assert b"sound" in group.do("check", group.path)


def connect(group, _):
    group.do("reclaim", group.path, "two")  # There is a place for two.
    group.do("connect", group.path, "three")
    assert hosts(group) == ["one", "three"]


def disconnect(group, _):
    agent = group.agent("one")
    group.do("disconnect", "--wait", "60s", group.path, "one")
    assert hosts(group) == ["two"]
    assert agent.end() == OK


def disconnect_silent(group, _):
    refused(group, b"has not answered", "disconnect", group.path, "one")
    assert hosts(group) == ["one", "two"]


def reclaim(group, _):
    group.do("reclaim", group.path, "one")
    assert hosts(group) == ["two"]


def flush(group, _):
    group.do("flush", group.path)
    assert b"sound" in group.do("check", group.path)


def shutdown_host(group, manager):
    agent = group.agent("one")
    group.do("shutdown", "--wait", "60s", group.path, "one")
    assert hosts(group) == ["two"] and (manager is None or manager.process.poll() is None)
    assert agent.end() == OK


def shutdown_manager(group, manager):
    group.do("shutdown", "--manager-only", group.path)
    assert manager is None or manager.process.wait(timeout=60) == OK
    assert hosts(group) == ["one", "two"]


def shutdown_all(group, manager):
    agents = [group.agent(host) for host in ("one", "two")]
    group.do("shutdown", "--wait", "60s", group.path)
    assert not hosts(group)
    assert manager is None or manager.process.wait(timeout=60) == OK
    assert [agent.end() for agent in agents] == [OK, OK]


def manager_again(group, manager):
    if manager is not None:
        refused(group, b"runs on this host already", "manager", group.path)
    else:
        assert group.manager().end() == OK


def agent_serves(group, manager):
    agent = group.agent("one", *(["--wait", "60s"] if manager is not None else []))
    assert agent.ask("open web") == "ok"
    assert agent.ask("allocate 3 1") == ("ok" if manager is not None else "wait")
    assert agent.end() == OK


def attach_and_detach(group, manager):
    """Under a client, who stays connected."""
    socket = group.socket
    told = group.do("attach", "--nbd", socket, "--host", "one", "--plugin", PLUGIN, group.path, "web")
    assert told.decode() == f"nbd+unix:///web?socket={socket}\n"
    client = Client(socket, "web")
    assert manager is None or client.write(0, b"x" * 512) == 0
    group.do("detach", socket)
    assert not socket.exists() and client.answer() is None
    client.close()
    assert group.dump()["volumes"][0]["open_on"] == []


def adopt(group, _):
    refused(group, b"adopted already" if isinstance(group, VolumeGroup) else b"there is no volume group of LVM", "adopt",
            "--backup", group.socket, group.path)


COMMANDS = [create, resize, remove, list_them, hosts_shown, dump, check, connect, disconnect,
            disconnect_silent, reclaim, flush, shutdown_host, shutdown_manager, shutdown_all,
            manager_again, agent_serves, adopt,
            pytest.param(attach_and_detach, marks=pytest.mark.needs("nbdkit"))]


# pylint: disable-next=too-many-arguments
@pytest.mark.parametrize("runs", [True, False], ids=["beside-a-manager", "alone"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_command(fairway, images, tmp_path, command, store, runs):
    with opened(fairway, store, images(store)) as group:
        group.socket = tmp_path / "nbd"
        manager = group.manager() if runs else None
        try:
            command(group, manager)
            assert b"sound" in group.do("check", group.path)
        finally:
            if manager is not None and manager.process.poll() is None:
                assert manager.end() == OK
