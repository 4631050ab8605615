# SPDX-License-Identifier: Apache-2.0
"""Goal: a server that needs a lease answers nobody without one, and one that was stopped and goes on when the lease
is over closes its clients instead of answering. It becomes master only with a lease, and admits no slaves without.
Method: a server, its administration socket, and the clock of the machine. Where a lease has to end by itself the test
waits for that time; if the machine is so slow that it ended before, the answer is the same."""

import contextlib
import re
import signal
import subprocess
import time

import pytest
from served import Served, wait_for

HOUR_NS = 3600 * 10**9


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "admin"


@pytest.fixture
def lease(fairway, path):
    """Runs `lease ...` and returns why it failed, "" if it did not."""
    def lease(argument):
        done = subprocess.run([fairway, "admin", "--socket", path, "lease", str(argument)], capture_output=True,
                              text=True, check=False)
        assert (done.returncode == 0) == (done.stderr == "")
        return done.stderr
    return lease


@contextlib.contextmanager
def served(fairway, path, *arguments):
    with Served(fairway, "-t", "2", "--admin-socket", str(path), "--lease-limit", "1h", *arguments) as server:
        yield server


def is_refused(server):
    with server.connect() as client:
        try:
            return client.ask(b"mn\r\n") == b""
        except (ConnectionResetError, BrokenPipeError):
            return True


def is_closed(client):
    """Nothing came but the end."""
    try:
        return client.at_end()
    except ConnectionResetError:
        return True


def test_answers_only_while_it_runs(fairway, path, lease):
    with served(fairway, path) as server:
        assert is_refused(server)
        assert lease(now_ns() + HOUR_NS // 2) == ""
        with server.connect() as client:
            client.set(b"a", b"1")
            assert lease("end") == ""
            assert is_closed(client)
        assert is_refused(server)
        assert lease(now_ns() + HOUR_NS // 2) == ""
        with server.connect() as client:
            assert client.get(b"a") == b"1"


def test_wrong_renewals(fairway, path, lease):
    with served(fairway, path) as server:
        assert "further ahead than --lease-limit" in lease(now_ns() + HOUR_NS + 60 * 10**9)
        assert "that time has passed" in lease(now_ns())
        assert "lease UNTIL" in lease("soon")
        assert is_refused(server)


def test_no_lease_is_needed(fairway, path, lease):
    with Served(fairway, "--admin-socket", str(path)) as server, server.connect() as client:
        assert "--lease-limit" in lease(now_ns() + 10**9)
        client.set(b"a", b"1")


def test_stopped_and_silent(fairway, path, lease):
    """With a request that came while it was stopped, and with one client that says nothing."""
    with served(fairway, path) as server:
        until = now_ns() + 2 * 10**9
        assert lease(until) == "" or now_ns() > until
        with server.connect() as client, server.connect() as silent:
            server.stop()
            with contextlib.suppress(ConnectionError):  # It was closed before it was stopped.
                client.send(b"set a 0 0 1\r\n1\r\n" * 100)
            while now_ns() < until:
                time.sleep(0.05)
            server.process.send_signal(signal.SIGCONT)
            assert is_closed(client) and is_closed(silent)
        assert is_refused(server)


def test_no_promotion_without_a_lease(fairway, path, lease):
    with served(fairway, path, "--repl-enable", "--repl-port", "0", "--repl-master", "127.0.0.1:1",
                "--repl-retry", "10s") as server:
        assert subprocess.run([fairway, "admin", "--socket", path, "promote", "force"], check=False).returncode == 0
        assert role(fairway, path) == "slave"
        with server.connect() as client:
            assert client.ask(b"get a\r\n").startswith(b"SERVER_ERROR this server is a slave")
        assert lease(now_ns() + HOUR_NS // 2) == ""
        wait_for(lambda: role(fairway, path) == "master")
        with server.connect() as client:
            client.set(b"a", b"1")


def role(fairway, path):
    shown = subprocess.run([fairway, "admin", "--socket", path, "stats", "replication"], capture_output=True, text=True,
                           check=True).stdout
    return next(line.split()[1] for line in shown.splitlines() if line.split()[:1] == ["role"])


def test_slaves_are_refused_without_a_lease(fairway, path, lease):
    """Who follows a master forgets what it had: not for one that may have been replaced."""
    with served(fairway, path, "--repl-enable", "--repl-port", "0") as server:
        address = re.search(r"replication on (\S+)", server.read_log())[1]
        with Served(fairway, "--repl-enable", "--repl-port", "0", "--repl-master", address, "--repl-retry", "10ms",
                    "--repl-serve-reads") as slave:
            def is_following():
                with slave.connect() as client:
                    client.send(b"stats replication\r\n")
                    rows = iter(client.line, b"END\r\n")
                    return b"STAT link streaming\r\n" in list(rows)
            while "refused a slave" not in server.process.stderr.readline():
                pass
            assert not is_following()
            assert lease(now_ns() + HOUR_NS // 2) == ""
            wait_for(is_following)


@pytest.mark.needs("user-namespaces")
def test_lease_outranks_the_address(fairway, path, lease, tmp_path):
    program = tmp_path / "fairway"  # In a network of its own, which is the process's.
    program.write_text(f"#!/bin/sh\nexec unshare -Urn sh -c 'PATH=$PATH:/sbin:/usr/sbin; ip link set lo up;"
                       f" exec \"$@\"' sh {fairway} \"$@\"\n")
    program.chmod(0o755)
    with served(program, path, "--repl-enable", "--repl-virtual-address", "10.9.8.7", "--repl-retry", "10ms") as server:
        def move(what):
            subprocess.run(["nsenter", "-t", str(server.process.pid), "-U", "-n", "--preserve-credentials", "sh", "-c",
                            f"PATH=$PATH:/sbin:/usr/sbin; ip address {what} 10.9.8.7/32 dev lo"], check=True)

        def wait_for_line(text):
            while text not in server.process.stderr.readline():
                pass
        assert role(fairway, path) == "slave"
        move("add")
        wait_for_line("the virtual address is here")
        assert role(fairway, path) == "slave"  # Not without a lease.
        assert lease(now_ns() + HOUR_NS // 2) == ""
        wait_for(lambda: role(fairway, path) == "master")
        move("delete")
        wait_for_line("the virtual address is gone")
        assert role(fairway, path) == "master"  # It may serve, whoever has the address for a moment.
        assert lease("end") == ""
        assert role(fairway, path) == "master"  # What it has may be all there is.
        assert subprocess.run([fairway, "admin", "--socket", path, "demote", "force"], check=False).returncode == 0
        wait_for(lambda: role(fairway, path) == "slave")
