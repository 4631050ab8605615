# SPDX-License-Identifier: Apache-2.0
"""Goal: clients cannot make the log say more than the operator allows, nor fill the disk with it. Method: clients
with the command `verbosity`, in both protocols, and then the log; a log of every command beside a flood of them,
in a file with a limit, which can be rotated or not."""

import struct

import pytest

from conform.peer import Peer
from served import Served

MIB = 1 << 20
KEY = "a-key-that-nobody-else-has"
RAISE = {
    "text": (lambda level: b"verbosity %d\r\n" % level, b"OK\r\n"),
    "binary": (lambda level: struct.pack(">BBHBBHIIQI", 0x80, 0x1b, 0, 4, 0, 0, 4, 0, 0, level), b"\x81\x1b"),
}


def logged(fairway, protocol, level, *arguments):
    """What the log has, when a client has asked for a level and then used a key."""
    say, answer = RAISE[protocol]
    with Served(fairway, *arguments) as server:
        with server.connect() as client:
            client.send(say(level))
            assert client.file.read(len(answer)) == answer
        with server.connect() as client:
            client.set(KEY.encode(), b"1")
    return server.read_log_at_end


@pytest.mark.parametrize("protocol", RAISE)
def test_clients_raise_nothing_unless_they_may(fairway, protocol):
    assert KEY not in logged(fairway, protocol, 2)
    assert KEY not in logged(fairway, protocol, 2, "--log-client-level", "info")
    assert KEY in logged(fairway, protocol, 2, "--log-client-level", "debug")


@pytest.mark.parametrize("protocol", RAISE)
def test_clients_lower_nothing(fairway, protocol):
    assert KEY in logged(fairway, protocol, 0, "--log-level", "debug")
    assert KEY in logged(fairway, protocol, 0, "--log-module-level", "cache=debug")


@pytest.mark.parametrize("can_rotate", [True, False])
def test_the_file_is_bounded(fairway, tmp_path, can_rotate):
    log, old = tmp_path / "log", tmp_path / "log.1"
    if not can_rotate:
        (old / "not empty").mkdir(parents=True)
    flags = "--log-level", "debug", "--log-rotate-size", "1m", "--log-rotate-keep", "1", "--log-policy", "block"
    with Peer([str(fairway), "serve"], "--log-file", log, *flags) as server, server.connect() as client:
        for _ in range(40):  # Each command is a line, and its answer another.
            client.send(b"".join(b"get %s-%d\r\n" % (KEY.encode(), i) for i in range(1000)) + b"mn\r\n")
            while client.line() != b"MN\r\n":
                pass
    assert MIB // 2 < log.stat().st_size <= MIB + 1000 or (can_rotate and old.stat().st_size > MIB // 2)
    assert not can_rotate or old.stat().st_size <= MIB
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]


def test_files_are_bounded_unless_the_operator_says_otherwise(fairway, tmp_path):
    """By the default: a file of 64 MiB is too large already."""
    log = tmp_path / "log"
    with open(log, "wb") as file:
        file.truncate(64 * MIB)
    with Peer([str(fairway), "serve"], "--log-file", log):
        pass
    assert (tmp_path / "log.1").stat().st_size == 64 * MIB and log.stat().st_size < MIB
