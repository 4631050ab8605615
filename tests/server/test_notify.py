# SPDX-License-Identifier: Apache-2.0
"""Goal: a service manager hears READY when clients are served, RELOADING and READY around SIGHUP, STOPPING when the end begins
and not when it is over; and one that does not listen keeps nobody from being served.
Method: the test is the manager: it binds the socket that NOTIFY_SOCKET names, as systemd does."""

import signal
import socket
import subprocess

import pytest
from manager import Manager
from served import START_S, Client, Served, wait_for


@pytest.fixture
def manager(tmp_path, monkeypatch):
    name = str(tmp_path / "notify")
    manager = Manager(name)
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with manager.socket:
        yield manager


def test_ready_reload_stopping(fairway, manager):
    with Served(fairway, "--drain-limit", "1000s", "-t", "1") as server, server.connect() as client:
        assert manager.hear() == {"READY": "1"}
        client.set(b"a", b"1")
        server.process.send_signal(signal.SIGHUP)
        assert set(manager.hear()) == {"RELOADING", "MONOTONIC_USEC"}
        assert manager.hear() == {"READY": "1"}
        manager.has_nothing()
        # A reply that nobody fetches keeps the server from ending.
        client.set(b"big", b"x" * 1000000)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(b"get big\r\n" * 40)
        with server.connect() as watcher:
            wait_for(lambda: b"STAT cmd_get 0" not in figures(watcher))
        server.process.terminate()
        assert manager.hear() == {"STOPPING": "1"}
        assert server.process.poll() is None
        client.close()
    manager.has_nothing()


def figures(client):
    client.send(b"stats\r\n")
    return b"".join(iter(client.line, b"END\r\n"))


def test_ready_is_not_said_too_early_and_after_a_failed_reload_too(fairway, manager, tmp_path):
    configuration = tmp_path / "fairway.ini"
    configuration.write_text("[log]\nlevel = error\n")
    path = tmp_path / "clients"
    process = subprocess.Popen([fairway, "serve", "--config", configuration, "-t", "1", "-s", path],
                               stderr=subprocess.DEVNULL)
    try:
        assert manager.hear() == {"READY": "1"}
        with Client(f"unix:{path}") as client:
            client.set(b"a", b"1")
        configuration.write_text("[log]\nlevel = loud\n")
        process.send_signal(signal.SIGHUP)
        assert "RELOADING" in manager.hear()
        assert manager.hear() == {"READY": "1"}
        process.terminate()
        assert manager.hear() == {"STOPPING": "1"}
        assert process.wait(START_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_manager_that_does_not_listen(fairway, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    with Served(fairway, "-t", "1") as server, server.connect() as client:
        client.set(b"a", b"1")
        assert client.get(b"a") == b"1"
