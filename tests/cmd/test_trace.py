# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway trace` takes a trace of a server that runs, in the form that Perfetto reads, and leaves nothing behind: no
tracing that stays on, no half file.
Method: a real server under load; the file is checked by the rules of the Trace Event Format."""

import json
import signal
import subprocess

import pytest

from served import START_S, Busy, Client, Served, wait_for

PHASES = {"X", "B", "E", "b", "e", "n", "s", "f", "M"}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "admin")


@pytest.fixture
def server(fairway, path):
    with Served(fairway, "--admin-socket", path, "-t", "2") as running:
        yield running


@pytest.fixture
def trace(fairway, path):
    def trace(*arguments):
        return subprocess.run([fairway, "trace", "--socket", path, *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=START_S, check=False)
    return trace


def admin(path, line):
    """What the server answers to one line."""
    with Client(f"unix:{path}") as client:
        client.send(line + b"\n")
        head = client.line().split()
        return head[0], client.file.read(int(head[-1]))


def check(text):
    """As https://ui.perfetto.dev demands it."""
    trace = json.loads(text)
    assert trace["displayTimeUnit"] in ("ns", "ms")
    for event in trace["traceEvents"]:
        assert event["ph"] in PHASES
        assert event["name"] and isinstance(event["pid"], int)
        if event["name"] == "process_name":
            continue  # Which has no thread and no time.
        assert isinstance(event["tid"], int) and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        elif event["ph"] in "bensf":
            assert event["id"] and event["cat"]
    return trace["traceEvents"]


def load(server):
    """Clients that ask all the time, on both cores."""
    clients = [server.connect() for _ in range(4)]

    def once():
        for client in clients:
            client.ask(b"get none\r\n")
    return Busy(once, *clients)


def cores_of(events):
    return {event["tid"] for event in events if event["ph"] == "X" and event["name"] == "connection:SERVE"}


def test_a_trace_of_what_runs(server, trace, tmp_path):
    file = tmp_path / "trace.json"
    events = []

    def has_both_cores():
        """The clients are this process's, and may not get to ask within one trace."""
        done = trace("--duration", "500ms", str(file))
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.endswith(" KiB; open it at https://ui.perfetto.dev\n")
        events[:] = check(file.read_text())
        return cores_of(events) == {0, 1}
    with load(server):
        wait_for(has_both_cores)
    assert {"core 0", "core 1", "job kernel"} <= {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert any(event["name"] == "lane 0: sweeper" for event in events)
    assert any(event["name"] == "ADMIT" for event in events)
    assert file.stat().st_mode & 0o777 == 0o600


def test_nothing_stays_on(server, path, trace, tmp_path):
    """A second trace begins anew; what was read to its end is gone."""
    assert trace("--duration", "100ms", str(tmp_path / "first")).returncode == 0
    assert admin(path, b"trace read 0") == (b"OK", b"")
    with server.connect() as client:
        client.set(b"k", b"v")
    wait_for(lambda: json.loads(admin(path, b"json connections")[1])["open"] == 0)  # Its end is served too.
    done = trace("--duration", "100ms", "-")
    assert done.returncode == 0
    assert cores_of(check(done.stdout)) == set()


def test_one_at_a_time(server, path, trace, tmp_path):
    with Client(f"unix:{path}") as first:
        first.send(b"trace 60s\n")
        wait_for(lambda: admin(path, b"trace read 0")[0] == b"ERROR")
        done = trace("--duration", "1s", str(tmp_path / "second"))
        assert (done.returncode, done.stderr) == (1, "fairway: a trace is being taken; try again later\n")
        assert list(tmp_path.glob("second*")) == []
        server.process.send_signal(signal.SIGINT)  # It does not wait for the end of the trace.
        assert server.process.wait(START_S) == 0


@pytest.mark.parametrize("line", [b"trace", b"trace 0", b"trace 61s", b"trace read", b"trace read x", b"trace -1"])
def test_wrong_lines(server, path, line):
    assert admin(path, line)[0] == b"ERROR"


def test_a_server_that_traces_already(fairway, path, trace, tmp_path):
    with Served(fairway, "--admin-socket", path, "--trace-file", str(tmp_path / "own")):
        done = trace("--duration", "1s", str(tmp_path / "trace"))
        assert (done.returncode, done.stderr) == (1, "fairway: this server traces to its --trace-file\n")
    assert check((tmp_path / "own").read_text())


def test_what_cannot_be_traced(server, trace, path, tmp_path):
    done = trace(str(tmp_path / "no" / "folder"))
    assert done.returncode == 1 and done.stderr.startswith("fairway: ")
    done = trace()
    assert (done.returncode, done.stderr) == (64, "fairway: trace takes one file; see 'fairway help trace'\n")
    done = trace("--socket", str(tmp_path / "nowhere"), str(tmp_path / "x"))
    assert done.returncode == 1 and "No such file" in done.stderr
    done = trace("--socket", "x" * 200, str(tmp_path / "x"))
    assert done.returncode == 64
