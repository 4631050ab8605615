# SPDX-License-Identifier: Apache-2.0
"""Goal: the examples of the ring and the journal do what they and docs/ring.md say, and see no more of
the library than users do.
Method: each is run as a user would, also killed and started again; their includes are read."""

import os
import re
import subprocess

import pytest


@pytest.mark.parametrize("name, header", [("disk_queue", "ring"), ("journal", "journal")])
def test_only_public_headers(source, name, header):
    text = (source / "examples" / f"{name}.c").read_text()
    assert not re.findall(r'#include "', text)
    assert re.findall(r"#include <fairway/(\w+)\.h>", text) == [header]


def test_lines_go_through(build, tmp_path):
    program, path = build / "examples" / "disk_queue", tmp_path / "queue"
    lines = "".join(f"line {number}\n" for number in range(100))
    subprocess.run([program, "send", path], input=lines, text=True, check=True, timeout=60)
    got = ""
    for count in ("30", "70"):
        got += subprocess.run([program, "receive", path, count], stdout=subprocess.PIPE, text=True,
                              check=True, timeout=60).stdout
    assert got == lines


def test_both_at_once(build, tmp_path):
    program, path = build / "examples" / "disk_queue", tmp_path / "queue"
    subprocess.run([program, "send", path], stdin=subprocess.DEVNULL, check=True, timeout=60)
    lines = "".join(f"{number} {'x' * 3000}\n" for number in range(400))  # More than fits.
    with (open(tmp_path / "got", "wb") as got,
          subprocess.Popen([program, "receive", path, "400"], stdout=got) as receiver):
        try:
            subprocess.run([program, "send", path], input=lines, text=True, check=True, timeout=200)
            assert receiver.wait(timeout=60) == 0
        finally:
            receiver.kill()
    assert (tmp_path / "got").read_text() == lines


def test_journal_finishes_what_was_begun(build, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [build / "examples" / "journal", tmp_path / "journal", folder]
    died = subprocess.run([*command, "a", "b", "c"], env={**os.environ, "DIE": "b"}, check=False,
                          timeout=60)
    assert died.returncode == 3
    assert sorted(os.listdir(folder)) == ["a", "a.done", "b"]
    again = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True, timeout=60)
    assert sorted(os.listdir(folder)) == ["a", "a.done", "b", "b.done"]  # c was never begun.
    assert "performing what the journal" in again.stderr
