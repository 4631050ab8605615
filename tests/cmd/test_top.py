# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway top` shows what a server does and who is held back, on terminals of any size; it ends when asked to, also
while the server hangs; and however it ends, the terminal is as it was.
Method: a real server, real load and a pseudo-terminal whose contents are read as a person would (screen.py). FAIRWAY_SHOT
names a file for the text of a picture."""

import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest

from screen import Terminal
from served import HELD_BACK, START_S, Served, flood, wait_for
from test_repl import replication_address

REPLICATED = ["-t", "2", "--repl-enable", "--repl-port", "0", "--repl-retry", "10ms"]


@pytest.fixture
def server(fairway, tmp_path):
    configuration = tmp_path / "fairway.conf"
    configuration.write_text(HELD_BACK)
    with Served(fairway, "--config", str(configuration), *REPLICATED) as running:
        yield running


@pytest.fixture
def top(fairway, server):
    with Terminal(fairway, "top", "--server", server.addresses[0], "--interval", "200ms") as terminal:
        terminal.wait(lambda screen: "LANE" in screen.text())
        yield terminal


def line_of(screen, name):
    return next((line for line in screen.text().splitlines() if line.split()[:1] == [name]), "")


def test_a_flood_is_seen_to_be_held_back(fairway, server, top):
    assert top.screen.is_other and not top.screen.has_cursor
    assert "held back" not in top.screen.text()
    for name in ("default", "web", "batch", "services", "feeders", "units", "parts", "0", "1"):
        assert line_of(top.screen, name), name
    assert "REPLICATION  master, no slave" in top.screen.text()
    with Served(fairway, *REPLICATED, "--repl-master", replication_address(server)), \
            flood(server, b"web"), flood(server, b"batch"):
        top.wait(lambda screen: "held back" in line_of(screen, "batch") and "50.0 %" in screen.text()
                 and " streaming " in screen.text())
        assert "held back" not in line_of(top.screen, "web")
        assert top.screen.text().splitlines()[5].startswith("batch"), "who is held back comes first"
        assert b"33" in top.screen.styles
        if "FAIRWAY_SHOT" in os.environ:
            with open(os.environ["FAIRWAY_SHOT"], "w", encoding="ascii") as shot:
                shot.write(top.screen.text() + "\n")
    top.wait(lambda screen: "held back" not in screen.text())
    top.press(b"q")
    assert top.end() == 0
    assert top.is_as_before()


def test_small_terminals(top):
    """No line is too long and nothing scrolls: the screen itself would complain."""
    def fits(columns, lines):
        rows = top.screen.text().splitlines()
        return 0 < len(rows) <= lines and all(len(row) <= columns for row in rows)

    for columns, lines in ((60, 24), (40, 12), (10, 3), (1, 1)):
        top.resize(columns, lines)
        top.wait(lambda screen, size=(columns, lines): fits(*size))
    top.resize(104, 30)
    top.wait(lambda screen: "parts" in screen.text())


def test_more_tenants_than_lines(fairway, tmp_path):
    configuration = tmp_path / "fairway.conf"
    configuration.write_text("".join(f"[tenant t{i}]\nmatch = prefix t{i}:\n" for i in range(200)))
    with Served(fairway, "--config", str(configuration), "-t", "1") as server:
        with Terminal(fairway, "top", "--server", server.addresses[0], columns=80, lines=24) as top:
            top.wait(lambda screen: "more tenants" in screen.text() and "parts" in screen.text())
            rows = top.screen.text().splitlines()
            assert len(rows) == 24
            shown = sum(row.startswith("t") for row in rows) + sum(row.startswith("default") for row in rows)
            assert f"... {201 - shown} more tenants" in rows


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_end_it_in_order(top, number):
    top.signal(number)
    assert top.end() == 0
    assert top.is_as_before()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGILL])
def test_a_crash_leaves_the_terminal_as_it_was(fairway, server, number):
    # The sanitizers have handlers of their own, which are told to stay out.
    environment = {f"{name}_OPTIONS": "handle_abort=0:handle_segv=0:handle_sigill=0:allow_user_segv_handler=1"
                   for name in ("ASAN", "TSAN")}
    with Terminal(fairway, "top", "--server", server.addresses[0], environment=environment) as top:
        top.wait(lambda screen: "LANE" in screen.text())
        top.signal(number)
        status = top.end()
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
        assert top.is_as_before()


def test_control_c_ends_it(top):
    top.press(b"\003")
    assert top.end() == 0
    assert top.is_as_before()


def test_it_can_be_stopped_and_goes_on(top):
    top.press(b"\032")
    top.wait_stopped()
    assert top.is_as_before()
    top.signal(signal.SIGCONT)
    top.wait(lambda screen: screen.is_other and "LANE" in screen.text())
    top.press(b"q")
    assert top.end() == 0
    assert top.is_as_before()


def test_a_server_that_hangs_can_be_left(server, top):
    server.stop()
    try:
        top.press(b"q")
        assert top.end() == 0
        assert top.is_as_before()
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_server_that_goes_and_comes_back(fairway, tmp_path):
    path = tmp_path / "socket"
    served = ("--unix-socket", str(path), "-t", "1")
    with Served(fairway, *served, listen=None):
        terminal = Terminal(fairway, "top", "--server", f"unix:{path}", "--interval", "100ms")
        terminal.wait(lambda screen: "LANE" in screen.text())
    with terminal as top:
        top.wait(lambda screen: "not reachable: " in screen.text())
        assert "LANE" in top.screen.text(), "what was known last is still there"
        with Served(fairway, *served, listen=None):
            top.wait(lambda screen: "not reachable: " not in screen.text())
            top.press(b"q")
            assert top.end() == 0


def run(fairway, *arguments):
    return subprocess.run([fairway, "top", "--timeout", f"{START_S}s", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=2 * START_S, check=False)


def wait_until_held_back(fairway, address):
    """What is shown of the first interval in which the flood of `batch`, which this process makes, got as far as its rate, and
    that of `web` anywhere."""
    shown = {}

    def is_held_back():
        shown.update(json.loads(run(fairway, "--once", "--json", "--interval", "500ms", "--server", address).stdout))
        tenants = {tenant["name"]: tenant for tenant in shown["tenants"]}
        return tenants["batch"]["state"] == "held back" and tenants["web"]["served"] > 0
    wait_for(is_held_back)
    return shown


def test_once(fairway, server):
    address = server.addresses[0]
    with flood(server, b"web"), flood(server, b"batch"):
        done = run(fairway, "--once", "--interval", "500ms", "--server", address)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"fairway top   {address}   ")
        assert "\033" not in done.stdout
        shown = wait_until_held_back(fairway, address)
    tenants = {tenant["name"]: tenant for tenant in shown["tenants"]}
    assert tenants["web"]["state"] == "served"
    assert tenants["batch"]["rate"] == 500
    assert shown["requests"] > tenants["web"]["served"]
    assert shown["hit_ratio"] == pytest.approx(0.5, abs=0.1)  # Every other get is for a key that is there.
    assert 0 < shown["answer_ns"] < 10**11
    assert sum(tenant["share"] for tenant in shown["tenants"]) == pytest.approx(1)
    assert [core["name"] for core in shown["cores"]] == ["0", "1"]
    lanes = {lane["name"]: lane for lane in shown["lanes"]}
    assert list(lanes) == ["services", "feeders", "units", "parts"]
    assert lanes["services"]["running"] == 1  # The sweeper.
    assert shown["volumes"] == {"enabled": "no"}
    assert shown["replication"]["enabled"] == "yes" and shown["replication"]["role"] == "master"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_in_a_pipe_one_follows_another(fairway, server, option):
    command = [fairway, "top", "--interval", "100ms", "--server", server.addresses[0], *option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if option:
            assert [json.loads(process.stdout.readline())["version"] for _ in range(3)]
        else:
            heads = 0
            while heads < 3:
                heads += process.stdout.readline().startswith("fairway top")
        process.stdout.close()
        assert process.wait(START_S) in (-signal.SIGPIPE, 1)


def test_a_replica_comes_and_goes(fairway):
    common = ("--repl-enable", "--repl-port", "0", "--repl-retry", "10ms", "-t", "1")
    with Served(fairway, *common) as master:
        address = master.addresses[0]
        with Terminal(fairway, "top", "--server", address, "--interval", "100ms") as top:
            top.wait(lambda screen: "REPLICATION  master, no slave" in screen.text())
            door = re.search(r"replication on (\S+)", master.read_log())[1]
            with Served(fairway, *common, "--repl-master", door, "--repl-serve-reads") as slave:
                top.wait(lambda screen: " streaming " in screen.text())
                assert "REPLICA  " in top.screen.text()
                done = run(fairway, "--once", "--interval", "100ms", "--server", slave.addresses[0])
                assert f"REPLICATION  slave of {door}, link streaming" in done.stdout
            top.wait(lambda screen: "REPLICATION  master, no slave" in screen.text())


def test_volumes_are_shown(fairway, tmp_path):
    group = tmp_path / "group"
    with open(group, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run([fairway, "volume", "format", group], check=True, stdout=subprocess.DEVNULL)
    with Served(fairway, "--volume-group", str(group), "--volume-manager", "--volume-interval", "1ms", "-t", "1") as server:
        def volumes():
            done = run(fairway, "--once", "--json", "--interval", "100ms", "--server", server.addresses[0])
            return json.loads(done.stdout)["volumes"]
        wait_for(lambda: volumes()["managers"] == 1)
        assert volumes()["group"] == str(group)
        done = run(fairway, "--once", "--interval", "100ms", "--server", server.addresses[0])
        assert f"VOLUMES  of {group}, host -: managers 1, agents 0" in done.stdout


def test_a_memcached_shows_what_it_has(fairway, tmp_path):
    path = tmp_path / "socket"
    with subprocess.Popen(["memcached", "-s", path, "-U", "0", "-u", "root"], stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(path.exists)
            wait_for(lambda: run(fairway, "--once", "--interval", "100ms", "--server", f"unix:{path}").returncode == 0)
            done = run(fairway, "--once", "--json", "--interval", "100ms", "--server", f"unix:{path}")
            shown = json.loads(done.stdout)
            assert shown["process"] == process.pid
            assert shown["tenants"] == shown["lanes"] == []
        finally:
            process.terminate()


def answer(listener, lines):
    """A server that says these lines to whatever is asked, to one client."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as questions:
        for question in questions:
            connection.sendall(b"VERSION 1\r\n" if question.startswith(b"version") else lines)


def test_what_a_server_says_cannot_steer_the_terminal(fairway):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        lines = b"STAT version \033[31mred\007\xff\r\nSTAT a\033]0;b:weight 1\r\nEND\r\n"
        thread = threading.Thread(target=answer, args=(listener, lines))
        thread.start()
        with Terminal(fairway, "top", "--server", "127.0.0.1:{}".format(listener.getsockname()[1])) as top:
            top.wait(lambda screen: "?[31mred??" in screen.text() and "a?]0;b" in screen.text())
            top.press(b"q")
            assert top.end() == 0
        thread.join()


@pytest.mark.parametrize("arguments, status, message", [
    (["--server", "127.0.0.1:1"], 1, "cannot connect to the server at 127.0.0.1:1: Connection refused"),
    (["--server", ":::"], 64, None),
    (["--interval", "1ms"], 64, None),
    (["now"], 64, "top takes no words, but got 'now'"),
])
def test_what_cannot_be_watched(fairway, arguments, status, message):
    done = run(fairway, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.count("\n") == 1
    if message is not None:
        assert done.stderr.startswith(f"fairway: {message}")
