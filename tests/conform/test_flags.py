# SPDX-License-Identifier: Apache-2.0
"""Goal: memcached's command line works as it does there (C5): each flag has its effect, a wrong one
ends the program with memcached's status, and signals and `shutdown` end it well.
Method: the real program with each flag; the effect is seen through a client or in /proc."""

import os
import pwd
import signal
import stat
import subprocess

import pytest

from peer import PATIENCE_S, Peer, user_flags, wait_until
from support.ports import ADDRESS, free_port, free_ports


def run(command, *flags, user=True):
    """What the program says when it does not stay: status, standard output, standard error."""
    done = subprocess.run([*command, *(user_flags() if user else []), *map(str, flags)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(command, flag):
    status, output, _ = run(command, flag)
    assert status == 0
    name, version = output.split()[:2]
    assert name == os.path.basename(command[0]) and version[:1].isdigit()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(command, flag):
    """It names every flag, and starts no server."""
    status, output, _ = run(command, flag)
    assert status == 0
    for name in ("-p, --port", "-s, --unix-socket", "-a, --unix-mask", "-A, --enable-shutdown",
                 "-l, --listen", "-d, --daemon", "-u, --user", "-m, --memory-limit",
                 "-M, --disable-evictions", "-c, --conn-limit", "-v, --verbose", "-h, --help",
                 "-V, --version", "-P, --pidfile", "-t, --threads", "-R, --max-reqs-per-event",
                 "-C, --disable-cas", "-b, --listen-backlog", "-B, --protocol",
                 "-I, --max-item-size", "-S, --enable-sasl", "-F, --disable-flush-all",
                 "-Y, --auth-file", "-o, --extended", "idle_timeout", "maxconns_fast"):
        assert name in output, name


# memcached's choice between the two follows no rule; which one it is, nobody can depend on.
WRONG = (1, os.EX_USAGE)
NO_SOCKET = (os.EX_OSERR,)


@pytest.mark.parametrize("flags, statuses", [
    (["-p", "70000"], WRONG), (["-c", "0"], WRONG), (["-c", "x"], WRONG), (["-R", "0"], WRONG),
    (["-I", "100"], WRONG), (["-I", "2048m"], WRONG), (["-m", "0"], WRONG),
    (["-B", "nonsense"], WRONG), (["-S", "-B", "ascii"], WRONG),
    (["-Y", "/nonexistent/users", "-B", "binary"], WRONG),
    (["-o", "nonsense"], WRONG), (["-o", "idle_timeout"], WRONG),
    (["--bogus"], WRONG), (["-p"], WRONG),
    (["-Y", "/nonexistent/users"], WRONG),
    (["-s", "/nonexistent/folder/socket"], NO_SOCKET),
    (["-l", "192.0.2.1", "-p", "11999"], NO_SOCKET),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_refused(command, flags, statuses):
    listen = [] if {"-l", "-s"} & set(flags) else ["-l", ADDRESS]
    port = [] if {"-p", "-s"} & set(flags) else ["-p", free_port()]
    got, output, error = run(command, *listen, *port, *flags)
    assert got in statuses, error
    assert error != "" and output == ""


@pytest.mark.needs("root")
def test_user_that_does_not_exist(command):
    status, _, error = run(command, "-l", ADDRESS, "-p", free_port(), "-u", "no-such-user",
                           user=False)
    assert status in (1, os.EX_NOUSER) and "no-such-user" in error


@pytest.mark.needs("root")
def test_user(start):
    with start("-u", "nobody", user=False) as peer:
        status = open(f"/proc/{peer.process.pid}/status", encoding="ascii").read()
        identity = str(pwd.getpwnam("nobody").pw_uid)
        assert status.split("Uid:")[1].split()[:4] == [identity] * 4
        with peer.connect() as client:
            client.set(b"k", b"v")


def test_port_in_use(start, command):
    with start() as peer:
        status, _, error = run(command, "-l", ADDRESS, "-p", peer.address[1])
        assert status in NO_SOCKET and "in use" in error


def test_several_addresses(command):
    port, other = free_ports(2)
    with Peer(command, "-l", f"{ADDRESS}:{port},{ADDRESS}:{other}", listen=False,
              address=(ADDRESS, other)) as peer:  # It accepts there last.
        with peer.connect((ADDRESS, port)) as one, peer.connect() as two:
            one.set(b"k", b"v")
            assert two.get(b"k") == b"v"


def test_unix_socket(command, tmp_path):
    path = tmp_path / "socket"
    with Peer(command, "-s", path, "-a", "0750", listen=False, address=path) as peer:
        assert stat.S_IMODE(path.stat().st_mode) == 0o750
        with peer.connect() as one, peer.connect() as two:
            one.set(b"k", b"v" * 500000)
            assert two.get(b"k") == b"v" * 500000
        assert peer.stat("domain_socket", "settings") == str(path)


def test_unix_socket_left_over(command, tmp_path):
    """A socket of a server that was killed is taken over."""
    path = tmp_path / "socket"
    with Peer(command, "-s", path, listen=False, address=path) as peer:
        peer.process.kill()
        peer.process.wait()
        peer.process.returncode = 0  # As we wished.
        assert path.exists()
    with Peer(command, "-s", path, listen=False, address=path) as peer, peer.connect() as client:
        client.set(b"k", b"v")


def test_settings_show_the_flags(start):
    with start("-m", "100", "-c", "200", "-t", "2", "-R", "33", "-b", "77", "-I", "2m", "-M", "-F",
               "-A", "-o", "idle_timeout=300") as peer, peer.connect() as client:
        settings = client.stats("settings")
        assert settings["maxbytes"] == str(100 * 1024 * 1024)
        assert settings["maxconns"] == "200"
        assert settings["num_threads"] == "2"
        assert settings["reqs_per_event"] == "33"
        assert settings["tcp_backlog"] == "77"
        assert settings["item_size_max"] == str(2 * 1024 * 1024)
        assert settings["evictions"] == "off"
        assert settings["flush_enabled"] == "no"
        assert settings["shutdown_command"] == "yes"
        assert settings["idle_timeout"] == "300"
        assert settings["tcpport"] == str(peer.address[1])
        client.ask(b"flush_all\r\n", b"CLIENT_ERROR flush_all not allowed\r\n")


def test_long_flags(start):
    with start("--memory-limit=100", "--conn-limit", "200", "--threads=2", "--disable-cas",
               "--max-reqs-per-event=5", "--listen-backlog=10", "--max-item-size=2m",
               "--protocol=auto", "--extended", "idle_timeout=0") as peer, peer.connect() as client:
        settings = client.stats("settings")
        assert settings["maxbytes"] == str(100 * 1024 * 1024)
        assert settings["cas_enabled"] == "no"
        client.set(b"k", b"v")
        client.ask(b"gets k\r\n", b"VALUE k 0 1 0\r\nv\r\nEND\r\n")
        client.ask(b"mg k c\r\n", b"HD c0\r\n")


def test_protocol_ascii(start):
    with start("-B", "ascii") as peer, peer.connect() as client:
        client.ask(b"\x80\n", b"ERROR\r\n")
        client.settled()


def test_very_verbose(start):
    with start("-vv") as peer:
        with peer.connect() as client:
            client.set(b"a-key", b"v")
            client.get(b"a-key")
        wait_until(lambda: "get a-key" in peer.read_log(), "a log of the command")
        assert "set a-key 0 0 1" in peer.read_log() and "STORED" in peer.read_log()


def test_not_verbose(start):
    with start() as peer:
        with peer.connect() as client:
            client.set(b"a-key", b"v")
        assert "a-key" not in peer.read_log()


def test_daemon(command, tmp_path):
    """-d leaves the terminal, -P writes the number of the process, SIGTERM ends it and removes that."""
    pidfile, port = tmp_path / "pid", free_port()
    status, output, error = run(command, "-d", "-P", pidfile, "-l", ADDRESS, "-p", port)
    assert (status, output) == (0, ""), error
    wait_until(lambda: pidfile.exists() and pidfile.read_text().endswith("\n"), "a pid file")
    pid = int(pidfile.read_text())
    try:
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        probe = Peer(command, address=(ADDRESS, port))

        def answers():
            try:
                return int(probe.stat("pid")) == pid
            except ConnectionRefusedError:
                return False

        wait_until(answers, "answering")
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: has_ended(pid), "ended")
    assert not pidfile.exists()


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat_file:
            return stat_file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(start, number):
    with start() as peer, peer.connect() as client:
        client.set(b"k", b"v")
        peer.process.send_signal(number)
        assert client.ended()
        assert peer.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("words", [b"shutdown", b"shutdown graceful"])
def test_shutdown(start, words):
    with start("-A") as peer, peer.connect() as client:
        client.ask(b"shutdown nonsense\r\n", b"CLIENT_ERROR invalid shutdown mode\r\n")
        client.send(words + b"\r\n")
        assert client.ended()
        assert peer.process.wait(PATIENCE_S) == 0


def test_sighup_does_not_end_it(start):
    with start() as peer, peer.connect() as client:
        client.set(b"k", b"v")
        peer.process.send_signal(signal.SIGHUP)
        assert client.get(b"k") == b"v"
        with peer.connect() as another:
            assert another.get(b"k") == b"v"
        assert peer.process.poll() is None
