# SPDX-License-Identifier: Apache-2.0
"""Goal: the administration socket answers who may use it, whatever others do with it, and stands in nobody's
way.
Method: `fairway admin` and a plain socket against a running server. No test waits for time to pass: each waits
for the answer that must come."""

import json
import os
import pwd
import signal
import socket
import subprocess
import tempfile

import pytest
from served import START_S, Client, Served, wait_for

FAILED, USAGE, NO_SOCKET = 1, 64, 71
CLIENTS = 8  # Of which the one that was silent longest is closed if more come.
SLOTS = 16


class Admin(Client):
    """A connection that speaks what server/admin.h describes."""

    def __init__(self, path):
        super().__init__(f"unix:{path}")

    def answer(self):
        """(None or the error's name, text); or None at the end."""
        words = self.file.readline().split()
        if not words:
            return None
        text = self.file.read(int(words[-1])).decode(errors="replace")
        assert words[0] == b"OK" and len(words) == 2 or words[0] == b"ERROR" and len(words) == 3
        return (words[1].decode() if words[0] == b"ERROR" else None), text

    def ask(self, line):
        self.send(line + b"\n")
        return self.answer()

    def figures(self, line):
        error, text = self.ask(b"json " + line)
        assert error is None, text
        return json.loads(text)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "admin.sock"


@pytest.fixture
def server(fairway, path):
    with Served(fairway, "--admin-socket", str(path), "-t", "2") as server:
        yield server


@pytest.fixture
def admin(fairway, path):
    """Runs `fairway admin` on the test's socket."""
    def admin(*arguments, **options):
        return subprocess.run([fairway, "admin", "--socket", path, *arguments], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=START_S, check=False, **options)
    return admin


def assert_failed(done, message, status=FAILED):
    assert (done.stdout, done.stderr, done.returncode) == ("", f"fairway: {message}\n", status)


# ---- what is answered


def test_tables_and_json(server, admin):
    done = admin("lanes")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "lane  name      waiting  running  slots_sum_max  workers_sum_max"
    assert [line.split()[1] for line in lines[1:]] == ["services", "feeders", "units", "parts"]
    done = admin("--json", "lanes")
    assert done.returncode == 0
    lanes = json.loads(done.stdout)["lanes"]
    assert [lane["lane"] for lane in lanes] == [0, 1, 2, 3]
    wait_for(lambda: json.loads(admin("--json", "lanes").stdout)["lanes"][0]["running"] == 1)  # The sweeper.
    commands = json.loads(admin("--json", "help").stdout)["commands"]
    names = {command["command"] for command in commands}
    assert names >= {"status", "pools", "lanes", "settings", "set", "threads", "log", "owner",
                     "connections", "stats"}


def test_connections(server, path):
    with Admin(path) as admin, server.connect() as first, server.connect() as second:
        first.set(b"a", b"1")
        second.set(b"b", b"1")
        shown = admin.figures(b"connections")
        assert shown["open"] == 2 and shown["limit"] == 1024
        ports = [client.socket.getsockname()[1] for client in (first, second)]
        assert sorted(row["peer"] for row in shown["connections"]) == sorted(
            f"127.0.0.1:{port}" for port in ports)
        assert all(row["local"] == server.addresses[0] for row in shown["connections"])
        assert len(admin.figures(b"connections 1")["connections"]) == 1
        assert "connections" not in admin.figures(b"connections 0")
        assert admin.ask(b"connections x") == ("EINVAL", "connections [LIMIT], up to 1000\n")
        assert admin.ask(b"connections 1001")[0] == "EINVAL"
        first.close()
        second.close()
        while admin.figures(b"connections")["open"] > 0:
            pass


def test_stats(server, path):
    with Admin(path) as admin, server.connect() as client:
        client.set(b"key", b"value")
        stats = admin.figures(b"stats")
        assert stats["curr_items"] == 1 and stats["pid"] == server.process.pid
        assert admin.figures(b"stats settings")["maxconns"] == 1024
        assert any(name.endswith(":addr") for name in admin.figures(b"stats conns"))
        assert admin.ask(b"stats reset") == ("EINVAL", "there is no group 'reset' of stats\n")


def test_settings_change(server, admin, path):
    assert admin("set", "timing", "1").returncode == 0
    with Admin(path) as connection:
        while connection.figures(b"settings")["timing"] == 0:  # Adopted at the next review.
            pass
        while connection.figures(b"lanes")["latencies"][0]["count"] == 0:  # A command counts when it has ended.
            pass
    assert_failed(admin("set", "timing", "2"), "timing cannot be '2'", USAGE)


def test_log_level(server, admin):
    assert admin("log", "server", "info").returncode == 0
    assert admin("owner", "12ab").returncode == 0
    assert_failed(admin("log", "nobody", "info"), "there is no module 'nobody'", USAGE)
    line = server.process.stderr.readline()
    while "administration: owner 12ab" not in line:
        assert line != ""
        line = server.process.stderr.readline()


def test_errors_have_a_status(server, admin):
    assert_failed(admin("nonsense"), "there is no command 'nonsense'; try help", USAGE)
    assert_failed(admin("--json", "nonsense"), "there is no command 'nonsense'; try help", USAGE)
    assert_failed(admin("every", "1ms", "status"), "every DURATION COMMAND, from 100ms to 1d", USAGE)


# ---- timed commands


def test_timed(server, path):
    with Admin(path) as admin:
        admin.send(b"every 100ms json status\n")
        counts = []
        for _ in range(3):
            error, text = admin.answer()
            assert error is None
            counts.append(json.loads(text)["commands"])
        assert counts == sorted(set(counts))
        # Another line ends it. Until that is read, more answers may come.
        admin.send(b"pools\n")
        while not admin.answer()[1].startswith("unclaimed"):
            pass
        before = admin.figures(b"status")["commands"]
        assert admin.figures(b"status")["commands"] == before + 1
        for line in (b"every", b"every 5s", b"every x status", b"every 99ms status", b"every 2d status"):
            assert admin.ask(line)[0] in ("EINVAL", "ENOENT")


def test_timed_by_the_program(server, admin):
    done = admin("--json", "--every", "100ms", "--times", "3", "pools")
    assert done.returncode == 0, done.stderr
    assert [sorted(json.loads(line)) for line in done.stdout.splitlines()] == 3 * [["pools", "unclaimed"]]


def test_timed_ends_with_its_client(server, path):
    for _ in range(70):  # More than the kernel has places for commands.
        with Admin(path) as admin:
            admin.send(b"every 1h status\n")
            admin.socket.shutdown(socket.SHUT_WR)
            assert admin.answer() is None
    with Admin(path) as admin:
        assert admin.ask(b"status")[0] is None


# ---- clients that do not behave


def test_lines_in_pieces_and_together(server, path):
    with Admin(path) as admin:
        for byte in b"pools":
            admin.send(bytes([byte]))
        admin.send(b"\r\nnonsense\njson pools\n")
        assert admin.answer()[1].startswith("unclaimed")
        assert admin.answer()[0] == "ENOENT"
        assert json.loads(admin.answer()[1])["pools"]


def test_answers_come_after_the_last_line(server, path):
    with Admin(path) as admin:
        admin.send(b"pools\nstatus\n")
        admin.socket.shutdown(socket.SHUT_WR)
        assert admin.answer()[1].startswith("unclaimed")
        assert admin.answer()[1].startswith("posted")
        assert admin.answer() is None


@pytest.mark.parametrize("line, error", [
    (b"x" * 256, "EMSGSIZE"),
    (b"status " * 100_000, "EMSGSIZE"),
    (b"status\0", "EINVAL"),
    (b"\x7fELF\x01", "EINVAL"),
    (b"x" * 255, "ENOENT"),
    (b"", "ENOENT"),
    (b"\xff\xfe", "ENOENT"),
], ids=["long", "longer", "zero", "control", "longest", "empty", "not UTF-8"])
def test_bad_lines(server, path, line, error):
    with Admin(path) as admin:
        name, text = admin.ask(line)
        assert name == error
        assert text.endswith("\n") and text.count("\n") == 1
        assert admin.ask(b"status")[0] is None


def test_a_line_that_is_not_ended_is_none(server, path):
    with Admin(path) as admin:
        admin.send(b"set timing 1")
        admin.socket.shutdown(socket.SHUT_WR)
        assert admin.answer() is None
    with Admin(path) as admin:
        reviews = admin.figures(b"status")["reviews"]
        while admin.figures(b"status")["reviews"] < reviews + 2:
            pass
        assert admin.figures(b"settings")["timing"] == 0


def test_one_that_is_silent_delays_nobody(server, path):
    with Admin(path) as silent, Admin(path) as other:
        silent.send(b"stat")
        assert other.ask(b"status")[0] is None
        silent.send(b"us\n")
        assert silent.answer()[0] is None


def test_one_that_does_not_read_delays_nobody(server, path):
    with Admin(path) as slow, Admin(path) as other:
        # Sends until the server takes no more, because its answers are not taken.
        slow.socket.setblocking(False)
        sent = 0
        try:
            while True:
                sent += slow.socket.send(b"stats\n" * 1000)
        except BlockingIOError:
            pass
        assert other.ask(b"status")[0] is None
        with server.connect() as client:
            client.set(b"key", b"value")
        slow.socket.setblocking(True)
        for _ in range(min(sent // len(b"stats\n"), 2000)):
            error, text = slow.answer()
            assert error is None and text.startswith("pid ")


def test_those_that_die_leave_nothing(server, path):
    for i in range(100):
        with Admin(path) as dying:
            dying.send(b"stats\n" * (i % 5))
    with Admin(path) as admin:
        assert admin.ask(b"status")[0] is None


def test_an_administrator_always_gets_in(server, path, admin):
    others = [Admin(path) for _ in range(5)]
    for number in range(3 * SLOTS):
        other = Admin(path)
        assert other.ask(b"status")[0] is None, number
        others.append(other)
    assert admin("status").returncode == 0
    assert others[0].answer() is None  # Closed: nothing had come from it for longest.
    assert others[-1].ask(b"status")[0] is None
    for other in others:
        other.close()


# ---- the socket itself


def test_off_unless_asked_for(fairway, admin, path):
    with Served(fairway) as server:
        assert_failed(admin("status"), f"there is no socket {path}: start the server with "
                                       "--admin-socket, and give its path with --socket")
        assert "administration" not in server.read_log()


def test_file(fairway, admin, path):
    old = os.umask(0)
    try:
        with Served(fairway, "--admin-socket", str(path)):
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
    assert not path.exists()


@pytest.mark.needs("root")
def test_another_user_is_refused(fairway):
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # The socket's own mode is what refuses.
        path = f"{folder}/admin.sock"
        with Served(fairway, "--admin-socket", path):
            try:
                done = subprocess.run([fairway, "admin", "--socket", path, "status"], text=True,
                                      capture_output=True, timeout=START_S, check=False,
                                      user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
            except PermissionError:
                pytest.skip("the program is in a folder that nobody else may enter")
    assert_failed(done, f"{path} belongs to another user: ask as that user or as root")


def test_path_in_use(server, fairway, admin, path):
    done = subprocess.run([fairway, "serve", "--listen", "127.0.0.1:0", "--admin-socket", path],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=START_S)
    assert_failed(done, f"cannot listen on unix:{path}: a server is running on it; stop that one or "
                        "choose another path", NO_SOCKET)
    assert admin("status").returncode == 0  # The first has not noticed.


def test_file_left_behind_is_replaced(fairway, admin, path):
    with subprocess.Popen([fairway, "serve", "--listen", "127.0.0.1:0", "--admin-socket", path],
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as killed:
        while "listening" not in killed.stderr.readline():
            pass
        killed.kill()
        killed.stderr.read()
    assert_failed(admin("status"), f"nobody listens at {path}: its server has ended")
    with Served(fairway, "--admin-socket", str(path)):
        assert admin("status").returncode == 0


@pytest.mark.parametrize("name, status, words", [
    ("nowhere/admin.sock", NO_SOCKET, "its folder does not exist"),
    ("@abstract", USAGE, "'@abstract' is not a file, so everybody could use it; give a path"),
    ("x" * 200, USAGE, "is too long"),
], ids=["no folder", "abstract", "long"])
def test_path_that_cannot_be(fairway, tmp_path, name, status, words):
    done = subprocess.run([fairway, "serve", "--listen", "127.0.0.1:0", "--admin-socket", name],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=START_S, cwd=tmp_path)
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    assert "listening" not in done.stderr


# ---- servers that do not answer


def test_the_server_is_stopped(server, admin, path):
    server.stop()
    done = admin("--timeout", "200ms", "status")
    server.process.send_signal(signal.SIGCONT)
    assert_failed(done, f"no answer from {path} in time: the server is stopped or overloaded")
    assert admin("status").returncode == 0


def test_the_server_ends(server, fairway, path):
    command = [fairway, "admin", "--socket", path, "--every", "100ms", "pools"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout.readline().startswith("unclaimed")
        server.process.send_signal(signal.SIGTERM)
        _, errors = watching.communicate(timeout=START_S)
    assert watching.returncode == FAILED
    assert errors == f"fairway: {path} was closed before an answer came: the server ends\n"


def test_not_an_administration_socket(fairway, tmp_path):
    data = tmp_path / "data.sock"
    with Served(fairway, "--unix-socket", str(data), listen=None):
        done = subprocess.run([fairway, "admin", "--socket", data, "status"], text=True,
                              capture_output=True, timeout=START_S, check=False)
    assert_failed(done, f"{data} is not the administration socket of a fairway")
