# SPDX-License-Identifier: Apache-2.0
"""Goal: an agent without a cluster or a server keeps the gate closed, says what it lacks, and ends when it is told to.
Method: `fairway ha-agent` beside nothing. What it does in a cluster is tested by tests/cluster/test_ha.py."""

import signal
import subprocess

import pytest


def run(fairway, *arguments):
    return subprocess.run([fairway, "ha-agent", *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.needs("corosync")
def test_alone(fairway, tmp_path):
    gate = tmp_path / "gate"
    gate.write_text("0\n", encoding="ascii")  # Left open by somebody.
    with subprocess.Popen([fairway, "ha-agent", "--gate", gate, "--socket", tmp_path / "none", "--group", "nobody-else"],
                          stderr=subprocess.PIPE, text=True) as agent:
        line = ""
        while "cannot join the group nobody-else" not in line:
            line = agent.stderr.readline()
            assert line != "", "it has ended"
        assert gate.read_text(encoding="ascii") == "1\n"
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=120)
    assert agent.returncode == 0
    assert gate.read_text(encoding="ascii") == "1\n"


def test_mistakes(fairway, tmp_path):
    done = run(fairway, "--gate", tmp_path / "no" / "gate")
    assert done.returncode == 1 and "gate" in done.stderr and len(done.stderr.splitlines()) == 1
    done = run(fairway, "word")
    assert done.returncode == 64 and "'word'" in done.stderr
    done = run(fairway, "--lease", "1ms")
    assert done.returncode == 64 and "--lease" in done.stderr
