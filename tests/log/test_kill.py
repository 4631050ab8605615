# SPDX-License-Identifier: Apache-2.0
"""Goal: kill -9 loses no line whose call had returned, and the check for it can fail.
Method: kill.py, some ten times here and 200 times in CI; then its check on a log with a line taken
out, one doubled and one moved."""

import random
import subprocess

import kill
import pytest

KILLS = 10


def test_no_line_is_lost(build):
    chance = random.Random(1)
    logged = recovered = 0
    for _ in range(KILLS):
        lines, rescued = kill.kill_once(build, chance)
        logged += lines
        recovered += rescued
    assert logged > 0
    assert recovered > 0  # Or it did not test what it is for.


@pytest.fixture
def corpse(build, tmp_path):
    """What one of them left behind, with some lines in the log."""
    logged = kill.run_and_kill(build, tmp_path, 0, lambda counts: min(counts) >= 1000)
    kill.check(build, tmp_path, logged)
    return tmp_path, logged


@pytest.mark.parametrize("spoil, message", [
    (lambda lines: lines[:10] + lines[11:], "missing"),
    (lambda lines: lines[:11] + lines[10:], "out of order"),
    (lambda lines: lines[:10] + ["nonsense\n"] + lines[10:], "not a line"),
])
def test_the_check_can_fail(build, corpse, spoil, message):
    folder, logged = corpse
    log = folder / "log"
    log.write_text("".join(spoil(log.read_text().splitlines(keepends=True))))
    with pytest.raises(kill.Failure, match=message):
        kill.check(build, folder, logged)


def test_recovery_needs_the_file(build, corpse):
    folder, logged = corpse
    ring, = folder.glob("fairway-log.*")
    ring.write_bytes(b"x" * 10)
    with pytest.raises(kill.Failure, match="too short"):
        kill.check(build, folder, logged)


def test_a_clean_stop_leaves_no_file(fairway, tmp_path):
    with subprocess.Popen([fairway, "serve", "-p", "0", "--log-map-directory", tmp_path],
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert "listening on" in process.stderr.readline()
        ring, = tmp_path.glob("fairway-log.*")
        assert ring.stat().st_mode & 0o777 == 0o600
        process.terminate()
        assert "stopping" in process.stderr.read()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
