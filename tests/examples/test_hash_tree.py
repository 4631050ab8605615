# SPDX-License-Identifier: Apache-2.0
"""Goal: the bulk tool hashes every file once, whatever its size, and needs its lanes to end.
Method: a tree whose hashes are computed here too; then the same tree without lanes, which must get stuck, with
every thread asleep."""

import pathlib
import re
import subprocess
import time

import pytest

PART_SIZE = 64 * 1024
SIZES = [0, 1, 1000, PART_SIZE - 1, PART_SIZE, PART_SIZE + 1, 3 * PART_SIZE + 17]


def fnv(data, value=0xCBF29CE484222325):
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def file_hash(data):
    value = 0
    for begin in range(0, len(data), PART_SIZE):
        value = fnv(fnv(data[begin:begin + PART_SIZE]).to_bytes(8, "little"), value)
    return value


@pytest.fixture
def program(build):
    return build / "examples" / "hash_tree"


@pytest.fixture
def tree(tmp_path):
    """More files than there are slots, in two folders, some of several parts."""
    expected = {}
    for number in range(140):
        path = tmp_path / f"folder{number % 2}" / f"deep{number % 5}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = SIZES[number] if number < len(SIZES) else number
        data = bytes((number * 7 + i) % 251 for i in range(size))
        path.write_bytes(data)
        expected[str(path)] = (size, file_hash(data))
    return tmp_path, expected


def test_hashes(program, tree):
    folder, expected = tree
    done = subprocess.run([program, folder / "folder0", folder / "folder1"], capture_output=True,
                          text=True, timeout=120, check=True)
    found = {}
    for line in done.stdout.splitlines():
        value, size, path = line.split(maxsplit=2)
        assert path not in found
        found[path] = (int(size), int(value, 16))
    assert found == expected
    assert re.search(r"140 files, \d+ KiB\n$", done.stderr)


def workers_asleep(pid):
    """How long each worker has run, if all of them sleep and so does who waits for them; None if not."""
    times = {}
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            name, fields = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            is_worker = re.fullmatch(r"job-\d+", name)
            if (is_worker or int(task.name) == pid) and fields.split()[0] != "S":
                return None
            if is_worker:
                times[task.name] = (task / "schedstat").read_text().split()[0]
    except (FileNotFoundError, ProcessLookupError):  # A thread has ended.
        return None
    return times or None


def hangs(command):
    """Whether it gets stuck. It is if all sleep at two moments and nobody has run in between: nobody is left who
    could wake them, however slow the machine is."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        before = None
        while process.poll() is None:
            now = workers_asleep(process.pid)
            if now is not None and now == before:
                return True
            before = now
            time.sleep(0.05)
        return False
    finally:
        process.kill()
        process.wait()


def test_hangs_without_lanes(program, tree):
    folder, _ = tree
    feeders = [folder] * 12  # More than there are workers.
    # It needs all workers to wait at once, which a lucky run may escape; twenty do not.
    assert any(hangs([program, "--no-lanes", *feeders]) for _ in range(20))
    subprocess.run([program, *feeders], capture_output=True, timeout=120, check=True)


def test_usage(program, tmp_path):
    assert subprocess.run([program], capture_output=True, check=False).returncode == 2
    missing = subprocess.run([program, tmp_path / "none"], capture_output=True, check=False)
    assert missing.returncode == 0 and missing.stdout == b""
