# SPDX-License-Identifier: Apache-2.0
"""Goal: whoever guesses passwords gets few tries, and the operator sees it; whoever knows theirs is let in at once.
Method: connections that fail again and again, in both protocols, many tries in one packet too, beside clients that
log in. Times are compared with each other, and with the delays that the server states in its log."""

import re
import struct
import time

import pytest

from served import Served, wait_for

CLOSED_AFTER = 6
FAILED = {"text": b"CLIENT_ERROR authentication failure\r\n", "binary": b"\x81\x21"}


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users"
    path.write_text("ann:secret\nbob:secret\n")
    path.chmod(0o600)
    return str(path)


def login(protocol, user, password):
    if protocol == "text":
        words = f"{user} {password}".encode()
        return b"set auth 0 0 %d\r\n%s\r\n" % (len(words), words)
    words = f"\0{user}\0{password}".encode()
    return struct.pack(">BBHBBHIIQ", 0x80, 0x21, 5, 0, 0, 0, 5 + len(words), 0, 0) + b"PLAIN" + words


def serve(fairway, users, protocol):
    return Served(fairway, "-t", "1", *(["-Y", users] if protocol == "text" else ["-S", "--sasl-file", users]))


def answer(client, protocol):
    """The beginning of one, whole ones read; b"" at the end."""
    if protocol == "text":
        return client.line()
    head = client.file.read(24)
    client.file.read(struct.unpack(">8xI12x", head)[0] if head else 0)
    return head[:2]


def errors(client):
    client.send(b"stats\r\n")
    rows = dict(line.decode().split()[1:3] for line in iter(client.line, b"END\r\n"))
    return int(rows["auth_errors"])


@pytest.mark.parametrize("protocol", FAILED)
def test_tries_become_slower_and_the_connection_is_closed(fairway, users, protocol):
    with serve(fairway, users, protocol) as server:
        with server.connect() as client:
            client.send(login(protocol, "ann", "wrong") * 1000)
            began, delays = time.monotonic(), []
            while (said := answer(client, protocol)) != b"":
                assert said == FAILED[protocol]
                delays.append(time.monotonic() - began)
                began = time.monotonic()
            assert len(delays) == CLOSED_AFTER
            assert sum(delays) >= 0.1 * (2**CLOSED_AFTER - 1)
    lines = re.findall(r"login failed: user 'ann' from 127\.0\.0\.1:\d+; (\d+) failures .* (\d+) ms", server.read_log_at_end)
    assert lines == [("1", "100"), ("2", "200"), ("4", "800")]


def test_others_do_not_wait(fairway, users):
    """Neither who knows the password, of the same address and name, nor who is in already; on one core."""
    with serve(fairway, users, "text") as server, server.connect() as inside:
        assert inside.ask(login("text", "ann", "secret")) == b"STORED\r\n"
        guessers = [server.connect() for _ in range(20)]
        for client in guessers:
            client.send(login("text", "ann", "wrong") * 10)
        wait_for(lambda: errors(inside) >= len(guessers))
        for _ in range(20):
            with server.connect() as client:
                assert client.ask(login("text", "ann", "secret")) == b"STORED\r\n"
                assert client.get(b"k") is None
        assert errors(inside) < len(guessers) * CLOSED_AFTER  # Most answers are still held.
        for client in guessers:
            client.close()


def test_a_stop_does_not_wait_for_them(fairway, users):
    with serve(fairway, users, "text") as server, server.connect() as client:
        for _ in range(3):
            assert client.ask(login("text", "ann", "wrong")) == FAILED["text"]
        client.send(login("text", "ann", "wrong"))
        with server.connect() as other:
            assert other.ask(login("text", "bob", "secret")) == b"STORED\r\n"
            wait_for(lambda: errors(other) == 4)
        server.process.terminate()
        assert server.process.wait() == 0
        assert client.line() == FAILED["text"]
