# SPDX-License-Identifier: Apache-2.0
"""Goal: a manager can hold a lease of sanlock's too: a second one is refused, and gets it when the first is gone,
however that ended.
Method: two daemons of sanlock's, each of which takes itself for a host, with leases in a file, and again on a block
device; nobody is fenced. A manager by each."""

import os
import subprocess

import pytest

from group import FAILED, OK, Group, Process

pytestmark = pytest.mark.needs("root", "sanlock")

PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


class Host:
    """A daemon, and what is done through it."""

    def __init__(self, folder, number):
        self.environment = {"PATH": PATH, "SANLOCK_RUN_DIR": str(folder), "SANLOCK_PRIVILEGED": "0"}
        folder.mkdir()
        # pylint: disable=consider-using-with
        self.daemon = subprocess.Popen(["sanlock", "daemon", "-D", "-w", "0", "-U", "root", "-G", "root"],
                                       env=self.environment, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        self.number = number

    def run(self, *arguments, check=True):
        return subprocess.run(["sanlock", *map(str, arguments)], env=self.environment, check=check,
                              capture_output=True, timeout=120)

    def join(self, lease):
        while self.run("client", "status", check=False).returncode != 0:  # Until it listens.
            assert self.daemon.poll() is None
        self.run("client", "add_lockspace", "-s", f"test:{self.number}:{lease}:0", "-o", "1")

    def end(self):
        self.daemon.kill()
        self.daemon.wait()


@pytest.fixture(params=["file", pytest.param("device", marks=pytest.mark.needs("loop-devices"))])
def lease(request, tmp_path):
    """Where leases are."""
    path = tmp_path / "lease"
    with open(path, "wb") as file:
        file.truncate(2 << 20)
    if request.param == "file":
        yield path
        return
    done = subprocess.run(["losetup", "--find", "--show", path], env={"PATH": PATH}, check=True, capture_output=True)
    device = done.stdout.decode().strip()
    yield device
    subprocess.run(["losetup", "--detach", device], env={"PATH": PATH}, check=True)


@pytest.fixture
def hosts(tmp_path, lease):
    hosts = [Host(tmp_path / f"host{number}", number) for number in (1, 2)]
    try:
        hosts[0].run("direct", "init", "-s", f"test:0:{lease}:0", "-o", "1")
        hosts[0].run("direct", "init", "-r", f"test:manager:{lease}:{1 << 20}", "-o", "1")
        for host in hosts:
            host.join(lease)
        yield hosts
    finally:
        for host in hosts:
            host.end()


def test_one_manager(fairway, tmp_path, lease, hosts, monkeypatch):
    group = Group(fairway, tmp_path / "group")
    group.make()
    options = ["manager", "--interval", "1ms", "--sanlock", f"test:manager:{lease}:{1 << 20}", group.path]

    def manager(host):
        monkeypatch.setenv("SANLOCK_RUN_DIR", host.environment["SANLOCK_RUN_DIR"])
        return Process([fairway, "volume", *options], b"managing\n")

    def refused(host, says=b"another manager holds sanlock's test:manager"):
        monkeypatch.setenv("SANLOCK_RUN_DIR", host.environment["SANLOCK_RUN_DIR"])
        done = group.run(*options)
        assert done.returncode == FAILED and says in done.stderr, done
        return True

    first = manager(hosts[0])
    assert refused(hosts[1]) and refused(hosts[0], b"sanlock")
    assert first.end() == OK
    second = manager(hosts[1])
    assert refused(hosts[0])
    second.kill()
    group.do("create", "--extents", "2", group.path, "web")  # Who gives commands knows our own lease.
    while True:  # Until its sanlock has noticed.
        status = hosts[1].run("client", "status").stdout
        if b"test:manager" not in status:
            break
    third = manager(hosts[0])
    assert third.end() == OK
    done = group.run(*options[:-2], "nonsense", group.path)
    assert done.returncode == FAILED and b"LOCKSPACE:NAME:PATH:OFFSET" in done.stderr
    monkeypatch.setenv("SANLOCK_RUN_DIR", str(tmp_path / "nowhere"))
    done = group.run(*options)
    assert done.returncode == FAILED and b"sanlock does not run on this host" in done.stderr
