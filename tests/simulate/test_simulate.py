# SPDX-License-Identifier: Apache-2.0
"""Goal: the simulator finds what it is for, replays it byte for byte, and runs much faster than time.
Method: every planted bug must fail within 1,000 seeds and fail again, with the same trace, from the seed
that was printed; every honest scenario must pass, twice with the same trace."""

import os
import re
import subprocess

import pytest

PLANTED = {
    "planted-wakeup": "deadlock",
    "planted-publish": "expected",
    "planted-close": "FW_SOURCE_CLOSED",
    "planted-flush": "version >= made",
    "planted-log": "rc >= 0",
    "planted-ring": "scenario_ring.c:",
    "planted-volume": "is in the pool of host",
    "jobs-planted-admission": "expected",
    "jobs-planted-exist": "!early.none_exist",
    "jobs-planted-wakeup": "deadlock",
}
HONEST = [
    "disk",
    "engine-block",
    "engine-block-stop",
    "engine-cancel",
    "engine-drain",
    "engine-idle",
    "engine-leave",
    "engine-level",
    "engine-level-cores",
    "engine-level-told",
    "engine-mail",
    "engine-move",
    "engine-quiesce",
    "engine-refuse",
    "engine-resource",
    "engine-stop",
    "engine-timeout",
    "engine-trace",
    "engine-wake",
    "engine-watchdog",
    "epoch",
    "handoff",
    "jobs-hang",
    "jobs-order",
    "jobs-race",
    "jobs-relaxed",
    "jobs-slots",
    "lease",
    "log",
    "repl",
    "repl-ack",
    "repl-copying",
    "repl-faults",
    "ring",
    "ring-owner",
    "sched-rate",
    "sched-share",
    "server",
    "server-faults",
    "server-large",
    "server-move",
    "server-stop",
    "share",
    "table",
    "volume",
    "volume-fleet",
    "volume-thousand",
]
SEEDS = {"jobs-relaxed": 200, "volume-fleet": 50, "volume-thousand": 1}  # Of others 10; `make simulate` tries more.


@pytest.fixture
def simulate(build):
    def simulate(*arguments):
        done = subprocess.run([build / "simulate", *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        # ASan announces, with the process's number, that it is careful about fibres.
        done.stderr = re.sub(r"^==\d+==WARNING: .*\n", "", done.stderr, flags=re.MULTILINE)
        return done
    return simulate


def test_the_list_is_complete(simulate):
    names = [line.split()[0] for line in simulate("--list").stdout.splitlines()]
    assert sorted(names) == sorted([*PLANTED, *HONEST])


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found_and_replayed(simulate, name, tmp_path):
    found = simulate("--scenario", name, "--seeds", "1000")
    assert found.returncode == 1
    assert "FAILED: " in found.stderr and PLANTED[name] in found.stderr
    seed = re.search(rf"scenario {name}, seed (\d+)", found.stderr)[1]
    traces = []
    for run in ("first", "second"):
        again = simulate("--scenario", name, "--seed", seed, "--trace", str(tmp_path / run))
        assert again.returncode == 1
        assert again.stderr == found.stderr
        traces.append((tmp_path / run).read_bytes())
    assert traces[0] == traces[1] != b""


@pytest.mark.parametrize("name", HONEST)
def test_same_seed_same_trace(simulate, name, tmp_path):
    traces = []
    for run, seed in (("one", "5"), ("two", "5"), ("other", "6")):
        done = simulate("--scenario", name, "--seed", seed, "--trace", str(tmp_path / run))
        assert done.returncode == 0, done.stderr
        traces.append((tmp_path / run).read_bytes())
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


@pytest.mark.parametrize("name", [name for name in HONEST if name != "server"])
def test_seeds_pass(simulate, name):
    part = int(os.environ.get("FAIRWAY_SEEDS_PART", "1"))
    done = simulate("--scenario", name, "--seeds", str(max(SEEDS.get(name, 10) // part, 1)))
    assert done.returncode == 0, done.stderr


def test_usage(simulate):
    assert simulate("--scenario", "none").returncode == 2
    assert simulate("--seed", "x").returncode == 2
    assert simulate("--nonsense").returncode == 2
