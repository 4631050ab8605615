# SPDX-License-Identifier: Apache-2.0
"""Goal: tools/fuzz finds a bug where there is one, with either fuzzer, and none where there is
none; the replay of a corpus fails when it should.

Method: the targets in tests/fuzz/selftest, one of which has a bug planted in it. Each fuzzer must
find it, shrink it and give a command that shows it again. Skipped where a fuzzer is not installed.
"""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUZZ = ROOT / "tests" / "fuzz"
BREAKS = b"FW\x07\xff"  # What breaks the planted target.
SECONDS = "60"  # At most: a fuzzer stops at its first find, which takes it a second.


@pytest.fixture(scope="module", params=[
    pytest.param("libfuzzer", marks=pytest.mark.needs("libfuzzer")),
    pytest.param("afl", marks=pytest.mark.needs("afl"))])
def fuzz(request, tmp_path_factory):
    """Calls tools/fuzz with one of the fuzzers, on a build directory of its own."""
    folder = tmp_path_factory.mktemp(request.param)

    def run(*arguments):
        return subprocess.run(
            [ROOT / "tools" / "fuzz", "--engine", request.param, "--build", folder, *arguments],
            capture_output=True, text=True, check=False, timeout=280)
    run.folder = folder
    return run


def test_the_planted_bug_is_found_and_can_be_seen_again(fuzz):
    done = fuzz(SECONDS, "selftest-planted")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "selftest-planted: BROKE" in done.stdout
    found = sorted((fuzz.folder / "crashes" / "selftest-planted").glob("crash-*"))
    # AFL++ may have found more than one when it stops.
    assert found and [path.suffix for path in found] == ["", ".min"] * (len(found) // 2)
    assert all(path.read_bytes()[:3] == BREAKS[:3] for path in found)

    lines = [line for line in done.stdout.splitlines() if "see again" in line]
    assert len(lines) == len(found) // 2
    for line in lines:
        again = subprocess.run(line.split()[2:], capture_output=True, text=True, check=False)
        assert again.returncode != 0
        assert "1..1" in again.stdout and "ok 1" not in again.stdout


def test_nothing_is_found_where_nothing_is(fuzz):
    for seconds in ("3", SECONDS):  # The first is enough unless the machine is so busy that a fuzzer hardly begins.
        done = fuzz(seconds, "selftest-sound")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("\n1 passed, 0 failed, 0 skipped\n")
        assert "selftest-sound: ok" in done.stdout
        assert list((fuzz.folder / "crashes").glob("selftest-sound/*")) == []
        if has_looked := list((fuzz.folder / "corpus" / "selftest-sound").iterdir()):
            break
    assert has_looked


def test_unknown_targets_are_an_error(fuzz):
    done = fuzz("1", "plantde")
    assert done.returncode == 2
    assert "no such target: plantde; there are" in done.stderr


# Replaying, in a plain build.

@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    program = tmp_path_factory.mktemp("replay") / "replay-planted"
    subprocess.run(["cc", "-D_GNU_SOURCE", FUZZ / "fuzz_main.c",
                    FUZZ / "selftest" / "planted_fuzz.c", "-o", program], check=True)

    def run(*arguments, data=b""):
        return subprocess.run([program, *arguments], input=data, capture_output=True, check=False)
    return run


def test_a_folder_is_replayed_in_order(replay, tmp_path):
    for name in ("b", "a", ".hidden", "README.md"):
        (tmp_path / name).write_bytes(BREAKS if name in (".hidden", "README.md") else b"FW")
    done = replay(tmp_path, tmp_path / "a")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "1..3", f"ok 1 - {tmp_path}/a", f"ok 2 - {tmp_path}/b", f"ok 3 - {tmp_path}/a"]


def test_an_input_that_breaks_ends_the_replay(replay, tmp_path):
    (tmp_path / "good").write_bytes(b"FW\x07\x00")
    (tmp_path / "wrong").write_bytes(BREAKS)
    done = replay(tmp_path)
    assert done.returncode != 0
    assert done.stdout.decode().splitlines() == ["1..2", f"ok 1 - {tmp_path}/good"]
    assert done.stderr.decode().splitlines()[-1] == f"# {tmp_path}/wrong"


def test_a_corpus_without_inputs_fails(replay, tmp_path):
    assert replay(tmp_path).returncode == 1
    assert replay(tmp_path / "missing").stdout.startswith(b"Bail out!")


def test_inputs_beyond_the_limit_fail(replay, tmp_path):
    (tmp_path / "most").write_bytes(bytes(1 << 20))
    assert replay(tmp_path).returncode == 0
    (tmp_path / "more").write_bytes(bytes((1 << 20) + 1))
    done = replay(tmp_path)
    assert done.returncode == 1
    assert b"not ok 1" in done.stdout and b"ok 2" in done.stdout


def test_standard_input_is_one_input(replay):
    assert replay(data=b"FW").returncode == 0
    assert replay(data=BREAKS).returncode != 0
