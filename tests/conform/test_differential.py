# SPDX-License-Identifier: Apache-2.0
"""Goal: random commands get the same replies as memcached's (C1, C2, C3, C6), and the test that says
so can tell servers apart. Method: a short run of differential.py against memcached; the long one is a
stage of CI. Then memcached against itself, with the same and with other settings."""

import re
import shlex
import subprocess
import sys

import pytest

import differential

REFERENCE = "memcached -m 1024"
COMMANDS = 20000


def compare(source, left, right, *options):
    """Its exit status and what it printed."""
    done = subprocess.run([sys.executable, source / "tests" / "conform" / "differential.py",
                           "--left", left, "--right", right, *map(str, options)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def test_same_replies(source, command):
    status, output = compare(source, REFERENCE, f"{shlex.join(command)} -m 1024",
                             "--commands", COMMANDS)
    assert status == 0, output


@pytest.mark.parametrize("flags, shortest", [
    ("-C", 1),  # No CAS values: the first store tells.
    ("-F", 1),  # No flush_all.
    ("-B ascii", 1),  # No binary protocol.
])
def test_other_settings_are_found(source, flags, shortest):
    """And cut down to as few commands as there can be."""
    status, output = compare(source, REFERENCE, f"{REFERENCE} {flags}", "--commands", COMMANDS,
                             "--shrink-seconds", "inf")
    assert status == 1, output
    case = output.split("the shortest that still differs")[1].split("connection:")[1]
    assert len(re.findall(r"^    b['\"]", case, re.MULTILINE)) == shortest, output


def test_explained_differences(tmp_path):
    """Both sides must match from end to end, uses are counted, and what has no reason is not taken."""
    path = tmp_path / "explained.ini"
    path.write_text("[no flush]\nleft = OK\\r\\n\nright = CLIENT_ERROR .*\nreason = a test\n")
    explained = differential.Explained(path)
    assert explained.covers(b"OK\r\n", b"CLIENT_ERROR flush_all not allowed\r\n")
    assert not explained.covers(b"OK\r\n", b"SERVER_ERROR\r\n")
    assert not explained.covers(b"NOT OK\r\n", b"CLIENT_ERROR\r\n")
    assert not explained.covers(b"CLIENT_ERROR x\r\n", b"OK\r\n")
    assert explained.used == {"no flush": 1}
    path.write_text("[no flush]\nleft = OK\nright = x\n")
    with pytest.raises(SystemExit, match="no reason"):
        differential.Explained(path)
