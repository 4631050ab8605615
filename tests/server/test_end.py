# SPDX-License-Identifier: Apache-2.0
"""Goal: SIGTERM lets clients fetch their replies, but not for ever; SIGINT does not wait; a client may
stop the server where that is allowed; SIGHUP reads again what may change. The process ends by itself,
with status 0, whatever was under way.
Method: leave clients in the middle of things, send the signal, look at what they get."""

import re
import signal
import subprocess

import pytest

from served import START_S, Served, wait_for

VALUE = b"x" * 1_000_000


def slow_reader(server):
    """A client with more replies to come than its socket holds."""
    client = server.connect()
    client.set(b"k", VALUE)
    client.send(b"get k\r\n" * 30)
    assert client.line() == b"VALUE k 0 1000000\r\n"
    return client


def test_sigterm_sends_what_was_replied(fairway):
    with Served(fairway, "-t", "1", "--drain-limit", "1000s") as server, server.connect() as idle:
        assert idle.get(b"none") is None
        client = slow_reader(server)
        server.process.send_signal(signal.SIGTERM)
        assert idle.at_end()  # It had nothing to do. The other one still gets all that was under way.
        rest = client.file.read()
        assert rest.startswith(VALUE + b"\r\nEND\r\n")
        assert rest.endswith(b"\r\nEND\r\n")
        assert server.process.wait(START_S) == 0
        client.close()


def test_sigterm_waits_no_longer_than_the_limit(fairway):
    with Served(fairway, "--drain-limit", "100ms") as server:
        client = slow_reader(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(START_S) == 0
        client.close()


def test_sigint_does_not_wait(fairway):
    with Served(fairway, "--drain-limit", "1000s") as server:
        client = slow_reader(server)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(START_S) == 0
        client.close()


@pytest.mark.parametrize("command", [b"shutdown\r\n", b"shutdown graceful\r\n"])
def test_shutdown_command(fairway, command):
    with Served(fairway, "-A") as server, server.connect() as client, server.connect() as idle:
        assert idle.get(b"k") is None
        client.send(command)
        assert client.file.read() in (b"", b"OK\r\n") and idle.at_end()
        assert server.process.wait(START_S) == 0


def test_shutdown_command_is_off(fairway):
    with Served(fairway) as server, server.connect() as client:
        assert client.ask(b"shutdown\r\n") == b"ERROR: shutdown not enabled\r\n"
        assert client.get(b"k") is None


@pytest.mark.parametrize("threads", ["1", "2"])
def test_under_load(fairway, threads):
    """In the middle of commands, of values, of replies; thirty clients at once."""
    with Served(fairway, "-t", threads) as server:
        clients = [server.connect() for _ in range(30)]
        for number, client in enumerate(clients):
            client.send([b"set k 0 0 100000\r\nabc", b"get k\r\n" * 100, b"ge", b""][number % 4])
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(START_S) == 0
        for client in clients:
            client.close()


def test_sighup_reads_the_configuration_again(fairway, tmp_path):
    """A mistake in it changes nothing, and is told."""
    path, log = tmp_path / "fairway.ini", tmp_path / "log"
    text = f"[log]\nfile = {log}\nlevel = LEVEL\n"
    path.write_text(text.replace("LEVEL", "notice"))
    with Served(fairway) as server:
        server.process.send_signal(signal.SIGHUP)
    process = subprocess.Popen([fairway, "serve", "-p", "0", "--config", str(path)])
    try:
        wait_for(lambda: log.exists() and "listening on" in log.read_text())
        path.write_text(text.replace("LEVEL", "loud"))
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the configuration stays as it is" in log.read_text())
        path.write_text(text.replace("LEVEL", "debug"))
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: "read the configuration again" in log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
    finally:
        process.kill()


def test_verbosity(fairway):
    with Served(fairway) as server, server.connect() as client:
        assert client.ask(b"verbosity 1\r\n") == b"OK\r\n"
        client.send(b"stats settings\r\n")
        text = b""
        while (line := client.line()) != b"END\r\n":
            text += line
        assert re.search(rb"STAT verbosity 1\r\n", text)
