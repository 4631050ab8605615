# SPDX-License-Identifier: Apache-2.0
"""Goal: a running server logs as its options say: to a file that is opened again on SIGHUP, as JSON,
with priorities where stderr is journald's; and when it is killed, what it had said is found.
Method: start the server with each, and read what it wrote."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from support.patience import PATIENCE_S


def wait_for(condition):
    """Lines come when the writer has written them; that they come at all is what is tested."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def serve(fairway):
    """Starts servers with these options, and ends them."""
    processes = []

    def serve(*options, **more):
        process = subprocess.Popen([fairway, "serve", "-p", "0", *map(str, options)],
                                   stdin=subprocess.DEVNULL, **more)
        processes.append(process)
        return process
    yield serve
    for process in processes:
        process.kill()
        process.wait()


def contents(path):
    return path.read_text() if path.exists() else ""


def test_sighup_opens_the_file_again(serve, tmp_path):
    log, moved = tmp_path / "log", tmp_path / "moved"
    process = serve("--log-file", log)
    wait_for(lambda: "listening on" in contents(log))
    log.rename(moved)
    process.send_signal(signal.SIGHUP)
    wait_for(log.exists)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert "listening on" in moved.read_text()
    assert "stopping: signal TERM" in log.read_text()
    assert "stopping" not in moved.read_text()


def test_json(serve):
    process = serve("--log-format", "json", stderr=subprocess.PIPE, text=True)
    line = json.loads(process.stderr.readline())
    assert list(line) == ["time", "level", "module", "thread", "message"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
    assert (line["level"], line["module"], line["thread"]) == ("notice", "server", "fairway")
    assert line["message"].startswith("listening on 127.0.0.1:")


def test_journald_gets_priorities(serve):
    ours, servers = socket.socketpair()  # As journald gives its services a socket for stderr.
    status = os.fstat(servers.fileno())
    serve(stderr=servers, env={"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    servers.close()
    ours.settimeout(PATIENCE_S)
    with ours.makefile() as lines:
        assert lines.readline().startswith("<5>server [fairway] listening on ")
    ours.close()


def test_rotation(serve, tmp_path):
    log = tmp_path / "log"
    log.write_text("x" * (1 << 20) + "\n")
    serve("--log-file", log, "--log-rotate-size", "1m")
    wait_for(lambda: "listening on" in contents(log))
    assert (tmp_path / "log.1").read_text() == "x" * (1 << 20) + "\n"
    assert len(log.read_text()) < 1000


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_server_is_recovered(fairway, serve, tmp_path, signal_number):
    log = tmp_path / "log"
    process = serve("--log-file", log, "--log-map-directory", tmp_path)
    wait_for(lambda: "listening on" in contents(log))
    process.send_signal(signal_number)
    assert process.wait(PATIENCE_S) != 0  # Sanitizers make an exit of their own of SIGSEGV.
    ring, = tmp_path.glob(f"fairway-log.{process.pid}.*")
    done = subprocess.run([fairway, "log", "recover", "--format", "json", ring],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for line in done.stdout.splitlines():
        json.loads(line)
    assert re.fullmatch(rf"\d+ lines of process {process.pid} recovered\n", done.stderr)


def test_options_that_make_no_sense(fairway, tmp_path):
    for options, message in (
            (["--log-ring-size", "100000"],
             "log ring-size: give a power of two from 8 KiB to 16 MiB"),
            (["--log-map-directory", tmp_path / "none"],
             f"cannot make a file of .* KiB in {tmp_path}/none: No such file or directory")):
        done = subprocess.run([fairway, "serve", *options], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        assert done.returncode in (1, os.EX_USAGE)
        assert re.fullmatch(f"fairway: {message}\n", done.stderr)
