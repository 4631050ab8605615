# SPDX-License-Identifier: Apache-2.0
"""Goal: the allocators run as services of the server, live with its end and its death, and a group that is
not as it should be does not keep the cache from serving.
Method: servers with a group in a file, `fairway volume` beside them, SIGKILL, and wrong options."""

import os
import pathlib
import random
import re
import socket
import subprocess

import pytest

from group import FAILED, OK, Group, owners
from served import Served, wait_for


@pytest.fixture
def group(fairway, tmp_path):
    group = Group(fairway, tmp_path / "group")
    group.make()
    return group


def serve(group, *options):
    return Served(group.fairway, "--volume-interval", "1ms", "--volume-group", str(group.path), *options)


def stat(server, name):
    host, port = server.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"stats\r\n")
        told = b""
        while not told.endswith(b"END\r\n"):
            part = client.recv(65536)
            assert part, told
            told += part
    return int(re.search(rb"STAT %s (\d+)" % name, told)[1])


def test_both_in_one_server(group):
    """It needs no operator: the manager connects its own host."""
    with serve(group, "--volume-manager", "--volume-host", "one") as server:
        wait_for(lambda: stat(server, b"volume_pool") >= 16)
        assert stat(server, b"volume_managers") == stat(server, b"volume_agents") == 1
        wait_for(lambda: stat(server, b"volume_free") == stat(server, b"volume_extents") - 16)
        assert stat(server, b"volume_low") == 0
        group.do("create", "--extents", "10", group.path, "web")  # The server's manager does it.
        assert [host["name"] for host in group.dump()["hosts"]] == ["one"]
    dump = group.dump()
    assert dump["free"] == dump["extents"]  # The agent has given its pool back.
    assert [volume["name"] for volume in dump["volumes"]] == ["web"]


def test_two_servers(group):
    with serve(group, "--volume-manager") as manager:
        wait_for(lambda: stat(manager, b"volume_managers") == 1)
        with serve(group, "--volume-host", "two") as host:
            group.do("connect", group.path, "two")  # It waits for that.
            wait_for(lambda: stat(host, b"volume_pool") >= 16)
            host.process.kill()
            host.process.wait()
            host.process.returncode = 0  # Which is what we wanted.
        with serve(group, "--volume-host", "two") as host:
            wait_for(lambda: stat(host, b"volume_pool") >= 16)
            dump = group.dump()
            assert len(owners(dump)) == len(set(owners(dump)))
            group.do("shutdown", "--wait", "60s", group.path)
            wait_for(lambda: stat(host, b"volume_agents") == 0)
            wait_for(lambda: stat(manager, b"volume_managers") == 0)
    assert group.dump()["hosts"] == []


def test_a_group_that_is_not_there(group, tmp_path):
    group.path = tmp_path / "nothing"
    with serve(group, "--volume-manager", "--volume-host", "one") as server:
        assert stat(server, b"volume_managers") == 0
        group.make()
        wait_for(lambda: stat(server, b"volume_pool") >= 16)


@pytest.mark.needs("nbdkit")
def test_a_server_that_is_the_agent(group, tmp_path):
    """attach would be a second agent of the host: it is refused at once, and says what to do."""
    plugin = pathlib.Path(os.environ["FAIRWAY_BUILD"]) / "src/volume/nbdkit-fairway-plugin.so"
    with serve(group, "--volume-manager", "--volume-host", "one") as server:
        wait_for(lambda: stat(server, b"volume_agents") == 1)
        group.do("create", "--extents", "10", group.path, "web")
        done = group.run("attach", "--nbd", tmp_path / "nbd", "--host", "one", "--plugin", plugin, group.path,
                         "web")
        assert done.returncode == FAILED and b"--volume-host" in done.stderr and b"end that one first" in done.stderr
        assert done.stdout == b"" and not (tmp_path / "nbd").exists()


@pytest.mark.parametrize("options", [["--volume-host", "one"], ["--volume-manager"]], ids=" ".join)
def test_options_that_make_no_sense(fairway, options):
    done = subprocess.run([fairway, "serve", "-p", "0", *options], capture_output=True, timeout=120, check=False)
    assert done.returncode not in (OK, None) and b"need --volume-group" in done.stderr


# ---- a volume for large values ----


MIB = 1 << 20


def value(name, size):
    return random.Random(name).randbytes(size)


def store(client, key, data):
    return client.ask(b"set %s 0 0 %d\r\n" % (key, len(data)) + data + b"\r\n")


def fetch(client, key):
    client.send(b"get %s\r\n" % key)
    head = client.line()
    if head == b"END\r\n":
        return None
    data = client.file.read(int(head.split()[3]))
    assert client.line() + client.line() == b"\r\nEND\r\n"
    return data


def serve_values(group, *options):
    return Served(group.fairway, "-I", "16m", "-m", "64", "--large-limit", "32m", "--large-volume",
                  f"values@{group.path}", *options)


@pytest.fixture
def large(fairway, tmp_path):
    group = Group(fairway, tmp_path / "large")
    group.do("format", "--size", "64m", "--extent-size", "256k", "--ring-size", "64k", "--hosts", "4", group.path)
    return group


def values_of(group):
    return next(volume for volume in group.dump()["volumes"] if volume["name"] == "values")


def test_one_option_from_attach_to_detach(large):
    """The server connects its host, makes the volume, attaches and detaches it; the manager may be in it."""
    with serve_values(large, "--volume-group", str(large.path), "--volume-manager") as server:
        with server.connect() as client:
            for number in range(4):
                assert store(client, b"k%d" % number, value(number, 3 * MIB)) == b"STORED\r\n"
            for number in range(4):
                assert fetch(client, b"k%d" % number) == value(number, 3 * MIB)
        volume = values_of(large)
        assert volume["open_on"] == [socket.gethostname()] and volume["size"] == 128
        assert volume["placed"] >= 48  # They are there, and not in memory or in another file.
        data = large.path.read_bytes()
        assert value(2, 3 * MIB)[:4096] in data
        done = large.run("remove", large.path, "values")
        assert done.returncode == FAILED and b"has 'values' open" in done.stderr
    volume = values_of(large)
    assert volume["open_on"] == [] and volume["placed"] == 0
    dump = large.dump()
    assert dump["free"] == dump["extents"]
    large.do("remove", large.path, "values")


def test_large_values_after_a_kill(large):
    manager = large.manager()
    with serve_values(large) as server, server.connect() as client:
        assert store(client, b"k", value("a", 3 * MIB)) == b"STORED\r\n"
        with serve_values(large) as second, second.connect() as other:  # A host has one agent.
            assert store(other, b"k", value("b", 3 * MIB)).startswith(b"SERVER_ERROR")
            assert store(other, b"small", b"x") == b"STORED\r\n"
        assert "runs on this host already" in second.read_log_at_end
        assert fetch(client, b"k") == value("a", 3 * MIB)
        server.process.kill()
        server.process.wait()
        server.process.returncode = 0  # Which is what we wanted.
    with serve_values(large) as server, server.connect() as client:
        assert fetch(client, b"k") is None
        assert store(client, b"k", value("c", 3 * MIB)) == b"STORED\r\n"
        assert fetch(client, b"k") == value("c", 3 * MIB)
    assert values_of(large)["placed"] == 0 and b"sound" in large.do("check", large.path)
    assert manager.end() == OK


def test_no_manager_keeps_no_server_from_ending(large):
    """A write waits for extents that nobody gives, and the server ends all the same."""
    with serve_values(large) as server, server.connect() as client, server.connect() as other:
        data = value("a", 3 * MIB)
        client.send(b"set k 0 0 %d\r\n" % len(data) + data + b"\r\n")
        wait_for(lambda: stat(server, b"large_values") == 1)
        assert store(other, b"small", b"x") == b"STORED\r\n"


def test_values_of_no_group(large, tmp_path):
    large.path = tmp_path / "nothing"
    with serve_values(large) as server, server.connect() as client:
        assert store(client, b"k", value("a", 3 * MIB)).startswith(b"SERVER_ERROR")
        assert store(client, b"small", b"x") == b"STORED\r\n"
    assert "nothing" in server.read_log_at_end
