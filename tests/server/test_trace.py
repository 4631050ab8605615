# SPDX-License-Identifier: Apache-2.0
"""Goal: nothing is served that the request scheduler has not admitted, and who has had its share goes
behind the others; and the job kernel does slow work in the lanes that are meant for it.
Method: the shipped program writes a trace of what its engine did while clients of all kinds were busy.
In it every turn of a connection must stand behind a mark that the connection was admitted, one that no
earlier turn has used up. For the order, the server is stopped until two
connections have sent their requests, and then goes on with both before it."""

import json
import signal

import pytest

from served import Served

GETS = 30  # Of a large value: more than sockets hold.
MARKS = ("ADMIT", "TURN", "WITHDRAW")


def traced(path):
    """What happened to connections, in order: (core, fom, one of MARKS or the phase of a tick)."""
    events = json.loads(path.read_text())["traceEvents"]
    happened = []
    for event in events:
        if event["ph"] == "n" and event["name"] in MARKS:
            happened.append((event["tid"], event["id"], event["name"]))
        elif event["ph"] == "X" and event["name"].startswith("connection:"):
            phase = event["name"].removeprefix("connection:")
            happened.append((event["tid"], event["args"]["fom"], phase))
    return happened


def check_admissions(happened):
    """Each turn uses one admission up, unless it was given back. A trace that begins in the middle may begin with a turn."""
    admitted = {}
    served = 0
    for _, fom, what in happened:
        if what == "ADMIT":
            assert not admitted.get(fom, False), "admitted twice"
            admitted[fom] = True
        elif what == "TURN":
            assert admitted.get(fom, True), "served without having been admitted"
            admitted[fom] = False
            served += 1
        elif what == "WITHDRAW":
            admitted[fom] = False
    return served


TENANTS = "[server]\npolicy = {}\n[tenant all]\nmatch = address 127.0.0.0/8\n"


@pytest.fixture(params=["", "fifo", "wfq"])
def tenants(request, tmp_path):
    """Options of a server that is open to all, and of two that schedule."""
    if not request.param:
        return []
    path = tmp_path / "fairway.conf"
    path.write_text(TENANTS.format(request.param))
    return ["--config", str(path)]


def test_every_request_was_admitted(fairway, tmp_path, tenants):
    path = tmp_path / "trace.json"
    value = b"x" * 300_000
    with Served(fairway, "-t", "2", "--trace-file", str(path), *tenants) as server:
        clients = [server.connect() for _ in range(8)]
        for number, client in enumerate(clients):
            client.set(b"large-%d" % number, value)
            client.send(b"get large-%d\r\n" % number * GETS + b"get none\r\n" * 500)
        for number, client in enumerate(clients):
            size = len(b"VALUE large-%d 0 300000\r\n" % number) + len(value) + len(b"\r\nEND\r\n")
            length = GETS * size + 500 * len(b"END\r\n")
            assert len(client.file.read(length)) == length
        for client in clients:
            client.send(b"get none\r\n")
            assert client.line() == b"END\r\n"
            client.send(b"quit\r\n")
            assert client.at_end()
            client.close()
    happened = traced(path)
    assert check_admissions(happened) >= 8 * 3
    assert {core for core, _, _ in happened} == {0, 1}
    # All that a connection did is there: the check would have found a side path in any of them.
    assert {"TURN", "SERVE", "SEND", "CLOSE"} <= {what for _, _, what in happened}


def test_connections_take_turns(fairway, tmp_path, tenants):
    """Each has many shares' worth of commands in one portion: they alternate, share by share."""
    path = tmp_path / "trace.json"
    shares = 30
    with Served(fairway, "-t", "1", "-R", "10", "--trace-file", str(path), *tenants) as server:
        clients = [server.connect(), server.connect()]
        for client in clients:
            client.set(b"k", b"v")
        server.stop()
        for client in clients:
            client.send(b"get k\r\n" * 10 * shares)
        server.process.send_signal(signal.SIGCONT)
        for client in clients:
            reply = b"VALUE k 0 1\r\nv\r\nEND\r\n" * 10 * shares
            assert client.file.read(len(reply)) == reply
        for client in clients:
            client.close()
    happened = traced(path)
    check_admissions(happened)
    order = [fom for _, fom, what in happened if what == "ADMIT"]
    both = order[-2 * shares - 2:-2]  # The last two are the ends of the connections.
    assert len(set(both)) == 2
    changes = sum(1 for a, b in zip(both, both[1:]) if a != b)
    assert changes >= len(both) - 4


def jobs_of(path):
    """What the job kernel did: (lane, name) to how often it began, and its threads in pairs of begin and end."""
    began, running = {}, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") != "job":
            continue
        what = (event["args"]["lane"], event["name"].partition(": ")[2])
        assert event["name"].startswith(f"lane {what[0]}: ")
        stack = running.setdefault(event["tid"], [])
        if event["ph"] == "B":
            began[what] = began.get(what, 0) + 1
            stack.append((what, event["ts"]))
        else:
            begun, since = stack.pop()
            assert begun == what and since <= event["ts"]
    return began, running


def test_the_lanes_of_the_job_kernel(fairway, tmp_path):
    """Services are in lane 0; what copies all items in lane 1; a window of a large value, or a part of the table, in
    lane 2; the pieces of the window in lane 3, run by others or by who waits for them."""
    path = tmp_path / "trace.json"
    value = bytes(range(256)) * 4096 * 3
    with Served(fairway, "-t", "1", "-I", "8m", "--large-directory", str(tmp_path), "--memory-file",
                str(tmp_path / "image"), "--trace-file", str(path)) as server, server.connect() as client:
        client.set(b"large", value)
        assert client.get(b"large") == value
    began, running = jobs_of(path)
    windows = len(value) // (512 * 1024)
    assert began.pop((0, "sweeper")) == 1
    assert began.pop((1, "image")) == 1
    assert began.pop((2, "window of a large value")) == 2 * windows
    assert began.pop((2, "part of the table")) == 16
    assert began.pop((3, "piece of a large value")) == 2 * windows * 4
    assert not began, "all else is unknown here"
    # Only the service goes on, to the end of the server.
    assert [what for stack in running.values() for what, _ in stack] == [(0, "sweeper")]
