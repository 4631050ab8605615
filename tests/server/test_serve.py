# SPDX-License-Identifier: Apache-2.0
"""Goal: the server answers on every kind of socket, keeps its limits when clients misbehave, and says
what to do when it cannot start.
Method: real sockets to a real process; each kind of misbehaviour once, beside a client that must not
notice."""

import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import time

import pytest

from served import START_S, Served


def test_set_get_delete(fairway):
    with Served(fairway) as server, server.connect() as client:
        assert client.ask(b"version\r\n").startswith(b"VERSION ")
        assert client.get(b"k") is None
        client.set(b"k", b"hello")
        assert client.get(b"k") == b"hello"
        assert client.ask(b"delete k\r\n") == b"DELETED\r\n"
        assert client.get(b"k") is None
        client.send(b"quit\r\n")
        assert client.at_end()


@pytest.mark.needs("io-uring")
def test_io_uring(fairway):
    with Served(fairway, "--io-engine", "io_uring") as server:
        clients = [server.connect() for _ in range(20)]
        for number, client in enumerate(clients):
            client.set(b"k-%d" % number, b"v" * number)
        for client in clients:
            client.send(b"get k-19\r\n" * 100)
        reply = b"VALUE k-19 0 19\r\n" + b"v" * 19 + b"\r\nEND\r\n"
        for client in clients:
            assert client.file.read(100 * len(reply)) == 100 * reply
            client.close()


@pytest.mark.needs("ipv6")
def test_ipv6(fairway):
    with Served(fairway, listen="[::1]:0") as server, server.connect() as client:
        client.set(b"k", b"six")
        assert client.get(b"k") == b"six"


def test_unix_socket(fairway, tmp_path):
    path = tmp_path / "socket"
    with Served(fairway, "--unix-socket", str(path), "-a", "0750", listen=None) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o750
        with server.connect() as client:
            client.set(b"k", b"local")
            assert client.get(b"k") == b"local"
    assert not path.exists()


def test_several_listeners_share_the_table(fairway, tmp_path):
    path = str(tmp_path / "socket")
    with Served(fairway, "--unix-socket", path) as server:
        assert len(server.addresses) == 2
        with server.connect(server.addresses[0]) as one, server.connect(server.addresses[1]) as two:
            one.set(b"k", b"shared")
            assert two.get(b"k") == b"shared"


def test_large_values_and_long_pipelines(fairway):
    """Far more than any buffer, in both directions, and every byte right."""
    value = os.urandom(1000 * 1000)
    with Served(fairway) as server, server.connect() as client:
        client.set(b"large", value)
        assert client.get(b"large") == value
        client.set(b"k", b"v")
        client.send(b"get k large k\r\n" * 3)
        for _ in range(3):
            assert client.line() + client.line() == b"VALUE k 0 1\r\nv\r\n"
            assert client.line() == b"VALUE large 0 %d\r\n" % len(value)
            assert client.file.read(len(value) + 2) == value + b"\r\n"
            assert client.line() + client.line() + client.line() == b"VALUE k 0 1\r\nv\r\nEND\r\n"
        count = 20000
        client.send(b"get k\r\n" * count)
        reply = b"VALUE k 0 1\r\nv\r\nEND\r\n"
        assert client.file.read(count * len(reply)) == reply * count


def test_one_byte_at_a_time(fairway):
    with Served(fairway) as server, server.connect() as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"set k 0 0 3\r\nabc\r\nget k\r\n":
            client.send(bytes([byte]))
        reply = b"STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\n"
        assert client.file.read(len(reply)) == reply


def test_too_many_connections(fairway):
    with Served(fairway, "--conn-limit", "2") as server:
        with server.connect() as one, server.connect() as two:
            assert one.get(b"k") is None and two.get(b"k") is None
            with server.connect() as three:
                assert three.line() == b"ERROR Too many open connections\r\n"
                assert three.at_end()
            one.send(b"quit\r\n")
            assert one.at_end()
            with server.connect() as again:
                assert again.get(b"k") is None


def test_descriptors_run_out(fairway):
    """Connections beyond the limit of descriptors wait in the backlog, and are served when one ends."""
    with Served(fairway, descriptors=(32, 32)) as server:
        clients = [server.connect() for _ in range(40)]
        clients[0].set(b"k", b"v")
        for client in clients[1:]:
            client.send(b"get k\r\n")
        for client in clients[:30]:  # Those who were in time.
            client.close()
        assert clients[39].line() == b"VALUE k 0 1\r\n"
        for client in clients[30:]:
            client.close()
        lines = iter(server.process.stderr.readline, "")  # Root is warned first.
        assert any("cannot accept connections" in line for line in lines)


def resident_kib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.fixture
def allowance(build):
    """How much more memory than asked for a build may take: sanitizers keep what was freed."""
    options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    sanitizer = next(option["value"] for option in options if option["name"] == "b_sanitize")
    return 1 if sanitizer == "none" else 8


def test_who_does_not_read_is_not_read_from(fairway, allowance):
    """A client that asks and asks but takes no reply: its requests stay in its own socket."""
    with Served(fairway) as server, server.connect() as other:
        other.set(b"k", b"v" * 100000)
        before = resident_kib(server.process)
        with server.connect() as greedy:
            greedy.socket.setblocking(False)
            sent = 0
            try:
                while sent < 64 * 1024 * 1024:
                    sent += greedy.socket.send(b"get k\r\n" * 1000)
            except BlockingIOError:
                pass
            assert sent < 64 * 1024 * 1024
            assert other.get(b"k") == b"v" * 100000
            assert resident_kib(server.process) - before < 4 * 1024 * allowance


def test_half_closed(fairway):
    """A client that has said all and waits: it gets its replies, then the end."""
    with Served(fairway) as server, server.connect() as client:
        client.send(b"set k 0 0 1\r\nx\r\nget k\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.file.read() == b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"


def test_reset_in_the_middle(fairway):
    with Served(fairway) as server, server.connect() as other:
        for _ in range(50):
            with server.connect() as client:
                client.send(b"set half 0 0 1000\r\nonly a part")
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert other.get(b"half") is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it(fairway, number):
    with Served(fairway) as server, server.connect() as client:
        client.set(b"k", b"v")
        server.process.send_signal(number)
        assert client.at_end()
        assert server.process.wait(START_S) == 0


def test_memory_limit(fairway, allowance):
    """Twice the limit goes in; the process stays near it and the newest items are there."""
    with Served(fairway, "-m", "16") as server, server.connect() as client:
        before = resident_kib(server.process)
        value = b"x" * 10000
        for number in range(3200):
            client.send(b"set key-%d 0 0 %d noreply\r\n%s\r\n" % (number, len(value), value))
        assert client.get(b"key-3199") == value
        assert client.get(b"key-0") is None
        assert resident_kib(server.process) - before < 20 * 1024 * allowance


def refused(fairway, *arguments, **options):
    done = subprocess.run([str(fairway), "serve", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=START_S, check=False, **options)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("fairway: ")
    return done.returncode, lines[0]


def test_port_in_use(fairway):
    with Served(fairway) as server:
        status, line = refused(fairway, "-l", server.addresses[0])
        assert status == os.EX_OSERR
        assert "in use" in line.lower() and server.addresses[0] in line


def test_address_of_somebody_else(fairway):
    status, line = refused(fairway, "-l", "192.0.2.1:0")
    assert status == os.EX_OSERR and "192.0.2.1" in line


def test_bad_option(fairway):
    status, line = refused(fairway, "--memory-limt", "64")
    assert status == os.EX_USAGE and "memory-limit" in line
    status, line = refused(fairway, "-p", "65536")
    assert status == os.EX_USAGE and "65535" in line


def test_no_such_file(fairway, tmp_path):
    status, line = refused(fairway, "--config", str(tmp_path / "none.ini"))
    assert status != 0 and "none.ini" in line


def as_nobody():
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


@pytest.fixture
def open_folder(tmp_path, fairway):
    """A folder and a program that a stranger can reach: pytest's and the build's may not be."""
    folder = pathlib.Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    folder.chmod(0o755)
    program = folder / "fairway"
    program.write_bytes(fairway.read_bytes())
    program.chmod(0o755)
    yield folder
    subprocess.run(["rm", "-r", str(folder)], check=True)


def test_unreadable_file(open_folder):
    path = open_folder / "secret.ini"
    path.write_text("[server]\n")
    path.chmod(0)
    status, line = refused(open_folder / "fairway", "--config", str(path), preexec_fn=as_nobody)
    assert status != 0 and "secret.ini" in line and "ermission" in line


def test_no_permission(open_folder):
    closed = open_folder / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    status, line = refused(open_folder / "fairway", "-s", str(closed / "socket"),
                           preexec_fn=as_nobody)
    assert status == os.EX_OSERR and "ermission" in line


def test_config_file(fairway, tmp_path):
    path = tmp_path / "fairway.ini"
    path.write_text("# a test\n[server]\nlisten = 127.0.0.1:0\nconn-limit = 1\n")
    with Served(fairway, "--config", str(path), listen=None) as server, server.connect() as one:
        assert one.get(b"k") is None
        with server.connect() as two:
            assert two.line().startswith(b"ERROR Too many")


def test_idle_costs_nothing(fairway):
    """Nothing to do: the server sleeps. One that spins or polls never stands still this long."""
    with Served(fairway) as server, server.connect() as client:
        client.set(b"k", b"v")
        schedstat = pathlib.Path(f"/proc/{server.process.pid}/schedstat")
        for _ in range(50):  # It may still be on its way to sleep.
            before = schedstat.read_text()
            time.sleep(0.1)
            if schedstat.read_text() == before:
                return
        raise AssertionError("the server never sleeps")
