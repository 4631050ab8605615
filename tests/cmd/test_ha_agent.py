# SPDX-License-Identifier: Apache-2.0
"""Goal: an agent without a cluster or a server keeps the gate closed, says what it lacks, and ends when it is told to.
A service manager hears that it lives, as often as it wants to, and when it ends.
Method: `fairway ha-agent` beside nothing. What it does in a cluster is tested by tests/cluster/test_ha.py, and as a
service by tests/deb."""

import contextlib
import signal
import subprocess

import pytest
from manager import Manager
from served import START_S


def run(fairway, *arguments):
    return subprocess.run([fairway, "ha-agent", *arguments], capture_output=True, text=True, check=False, timeout=START_S)


@contextlib.contextmanager
def running(*command, **options):
    """An agent that does not outlive a test that fails."""
    with subprocess.Popen(command, **options) as agent:
        try:
            yield agent
        finally:
            agent.kill()


@pytest.mark.needs("corosync")
def test_alone(fairway, tmp_path):
    gate = tmp_path / "gate"
    gate.write_text("0\n", encoding="ascii")  # Left open by somebody.
    with running(fairway, "ha-agent", "--gate", gate, "--socket", tmp_path / "none", "--group", "nobody-else",
                 stderr=subprocess.PIPE, text=True) as agent:
        line = ""
        while "cannot join the group nobody-else" not in line:
            line = agent.stderr.readline()
            assert line != "", "it has ended"
        assert gate.read_text(encoding="ascii") == "1\n"
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=START_S)
    assert agent.returncode == 0
    assert gate.read_text(encoding="ascii") == "1\n"


@pytest.mark.needs("corosync")
def test_the_service_manager_hears_that_it_lives(fairway, tmp_path, monkeypatch):
    gate, name = tmp_path / "gate", str(tmp_path / "notify")
    manager = Manager(name)
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    command = [fairway, "ha-agent", "--gate", gate, "--socket", tmp_path / "none", "--lease", "50ms"]
    with manager.socket, running(*command, stderr=subprocess.DEVNULL) as agent:
        assert manager.hear() == {"READY": "1"}
        assert gate.read_text(encoding="ascii") == "1\n"
        for _ in range(3):
            assert manager.hear() == {"WATCHDOG": "1"}
        agent.send_signal(signal.SIGTERM)
        while (heard := manager.hear()) != {"STOPPING": "1"}:
            assert heard == {"WATCHDOG": "1"}
        agent.wait(timeout=START_S)
        manager.has_nothing()


def test_mistakes(fairway, tmp_path):
    done = run(fairway, "--gate", tmp_path / "no" / "gate")
    assert done.returncode == 1 and "gate" in done.stderr and len(done.stderr.splitlines()) == 1
    done = run(fairway, "word")
    assert done.returncode == 64 and "'word'" in done.stderr
    done = run(fairway, "--lease", "1ms")
    assert done.returncode == 64 and "--lease" in done.stderr
