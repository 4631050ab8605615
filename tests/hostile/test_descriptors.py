# SPDX-License-Identifier: Apache-2.0
"""Goal: clients that use up all descriptors neither make the server busy nor fill its log, and administrators and
health checks are still served. Method: a server with few descriptors, more clients than it can have, and then
the processor time, the log and the replies of the other listeners."""

import pathlib
import re
import resource
import socket
import subprocess
import time

import pytest

from served import Served, Watched, wait_for

DESCRIPTORS = 80
CLIENTS = 120


def cpu_s(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def open_files(server):
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))


def crowd(server):
    """More clients than there are descriptors; returns when the server has taken all that it takes."""
    clients = [server.connect() for _ in range(CLIENTS)]
    wait_for(lambda: open_files(server) >= DESCRIPTORS - DESCRIPTORS // 4 - 1)
    return clients


def close(clients):
    for client in clients:
        client.close()


def slaves(port):
    """Connections to the replication port, which nobody greets from."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]


@pytest.fixture
def crowded(fairway, tmp_path):
    admin = str(tmp_path / "admin")
    with Watched(fairway, "--admin-socket", admin, "--repl-enable", "--repl-port", "0",
                 descriptors=(DESCRIPTORS, DESCRIPTORS)) as server:
        clients = crowd(server)
        server.admin, server.repl = admin, int(re.search(r"replication on \S+:(\d+)", server.read_log())[1])
        yield server
        close(clients)


def test_administrators_and_health_checks_are_served(fairway, crowded):
    for _ in range(3):
        answer = subprocess.run([fairway, "admin", "--socket", crowded.admin, "help"], capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        assert crowded.ask("/healthz").text == "ok\n"


def test_slow_requests_leave_descriptors_for_administrators(fairway, crowded):
    """Requests to the page's port that never end take their part of what is kept, and no more."""
    slow = []
    for _ in range(20):
        slow.append(socket.create_connection(crowded.http))
        slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert crowded.ask("/healthz").text == "ok\n"
        assert open_files(crowded) <= DESCRIPTORS - 5
    answer = subprocess.run([fairway, "admin", "--socket", crowded.admin, "help"], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    for one in slow:
        one.close()


def test_neither_busy_nor_talkative(crowded):
    """Also if the reserve is used up: here by slaves, or by a limit that is lowered later."""
    idle = slaves(crowded.repl)
    resource.prlimit(crowded.process.pid, resource.RLIMIT_NOFILE, (16, DESCRIPTORS))
    administrators = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    for one in administrators:
        one.connect(crowded.admin)
    more = [crowded.connect() for _ in range(4)]
    before = cpu_s(crowded)
    time.sleep(4)  # The length of the measurement; nothing is waited for.
    assert cpu_s(crowded) - before < 1
    resource.prlimit(crowded.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    for one in idle + administrators:
        one.close()
    close(more)
    crowded.process.terminate()
    _, rest = crowded.process.communicate()
    lines = re.findall("cannot accept", crowded.read_log() + rest)
    assert len(lines) == 1, rest


def test_clients_come_in_when_others_go(fairway):
    with Served(fairway, descriptors=(DESCRIPTORS, DESCRIPTORS)) as server:
        clients = crowd(server)
        late = server.connect()
        close(clients)
        assert late.get(b"k") is None
        late.close()
