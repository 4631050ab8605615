# SPDX-License-Identifier: Apache-2.0
"""Goal: the examples do what they say, and see no more of the library than users do; the manual shows
code that compiles.
Method: each is run as a user would; their includes are read; the pieces of code in the manual are
compiled, one file each, against the public headers."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest

PROGRAMS = ["echo", "two_channels"]


class Echo:
    """The echo server, on a port that it chose."""

    def __init__(self, build):
        self.process = subprocess.Popen([build / "examples" / "echo", "0"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest


def receive(client, length):
    data = b""
    while len(data) < length:
        piece = client.recv(length - len(data))
        assert piece != b"", f"the server hung up after {len(data)} bytes"
        data += piece
    return data


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_public_headers(source, name):
    text = (source / "examples" / f"{name}.c").read_text()
    ours = [header for header in re.findall(r'#include (["<].*?[">])', text) if "/" in header]
    assert not re.findall(r'#include "', text)
    assert {header for header in ours if header.startswith("<fairway/")} == {"<fairway/engine.h>"}


def test_echo_sends_lines_back(build):
    with Echo(build) as server, server.connect() as client:
        client.sendall(b"first\nsec")
        assert receive(client, 6) == b"first\n"
        client.sendall(b"ond\nthird\n")
        assert receive(client, 13) == b"second\nthird\n"
        long = b"x" * 10_000 + b"\n"  # More than it holds at a time.
        client.sendall(long)
        assert receive(client, len(long)) == long
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_echo_serves_many(build):
    with Echo(build) as server:
        clients = [server.connect() for _ in range(200)]
        for number, client in enumerate(clients):
            client.sendall(b"line %d\n" % number)
        for number, client in enumerate(clients):
            expected = b"line %d\n" % number
            assert receive(client, len(expected)) == expected
        for client in clients:
            client.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_echo_stops_with_clients_connected(build, number):
    with Echo(build) as server, server.connect() as client:
        client.sendall(b"hello\n")
        assert receive(client, 6) == b"hello\n"
        assert server.stop(number) == (0, "stopped, 0 failed\n")
        assert client.recv(1) == b""


def test_two_channels(build, tmp_path):
    done = subprocess.run([build / "examples" / "two_channels", tmp_path / "trace"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          check=True)
    assert done.stdout == "news\nmail\ntime-out\n"
    events = json.loads((tmp_path / "trace").read_text())["traceEvents"]
    waits = [event["args"]["on"] for event in events if event["name"] == "waiter:WAIT waits"
             and event["ph"] == "b"]
    assert waits == [["news", "mail"]] * 3
    ends = [event["args"]["by"] for event in events if event["name"] == "waiter:WAIT waits"
            and event["ph"] == "e"]
    assert ends == ["event", "event", "deadline"]


@pytest.mark.parametrize("name, least", [("engine", 5), ("jobs", 1), ("log", 1), ("scheduler", 1)])
def test_code_in_the_manual_compiles(source, tmp_path, name, least):
    pieces = re.findall(r"^```c\n(.*?)^```$", (source / "docs" / f"{name}.md").read_text(),
                        re.MULTILINE | re.DOTALL)
    assert len(pieces) >= least
    for number, piece in enumerate(pieces):
        path = tmp_path / f"piece_{number}.c"
        path.write_text(piece)
        done = subprocess.run([os.environ.get("CC", "cc"), "-std=gnu17", "-D_GNU_SOURCE", "-Wall",
                               "-Wextra", "-Werror", "-Wno-unused-function",
                               "-Wno-unused-const-variable", "-fsyntax-only",
                               f"-I{source / 'include'}", path],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 0, f"piece {number}:\n{piece}\n{done.stderr}"
