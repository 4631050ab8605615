# SPDX-License-Identifier: Apache-2.0
"""Goal: the victim charges a server for all who would have asked while it stood still, and does not charge it for the
time in which the system says that a hypervisor had the processors; it tells of both.
Method: a server that answers every get but stands still once, for longer than any machine should; a file in place of
/proc/stat that tells of a theft in that time, of none, or of nothing but thefts."""

import json
import socketserver
import subprocess
import threading
import time

import pytest

from support.patience import PATIENCE_S

SECONDS = 4
RATE = 100
STILL_S = 2  # From the first second on.
ANSWER = b"VALUE %s 0 100\r\n" + 100 * b"v" + b"\r\nEND\r\n"


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, on_pause):
        super().__init__(("127.0.0.1", 0), Handler)
        self.on_pause = on_pause
        self.count = 0
        self.lock = threading.Lock()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            with self.server.lock:
                self.server.count += 1
                if self.server.count == RATE:
                    time.sleep(STILL_S / 2)
                    self.server.on_pause()
                    time.sleep(STILL_S / 2)
                self.wfile.write(ANSWER % line.split()[1])


def stat_line(steal):
    return f"cpu  1 2 3 4 5 6 7 {steal} 9 10\ncpu0 1 2 3 4 5 6 7 99 9 10\n"


@pytest.fixture
def suffer(build, tmp_path):
    """Runs the victim, with `steal(file)` called when it is under way, or in the middle of the pause."""
    def suffer(at_begin=None, at_pause=None):
        stat = tmp_path / "stat"
        stat.write_text(stat_line(0))
        with Server(lambda: at_pause(stat) if at_pause else None) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            if at_begin:
                threading.Thread(target=at_begin, args=(stat,), daemon=True).start()
            done = subprocess.run(
                [build / "bench" / "victim", "--port", str(server.server_address[1]), "--connections", "1", "--rate",
                 str(RATE), "--seconds", str(SECONDS), "--stat", stat], capture_output=True, text=True, check=False,
                timeout=PATIENCE_S)
            server.shutdown()
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["requests"], found["answered"], found["errors"]) == (RATE * SECONDS, RATE * SECONDS, 0)
        assert found["windows"] >= 10 * SECONDS
        return found
    return suffer


def test_who_stands_still_is_charged(suffer):
    found = suffer()
    assert found["stolen"] == 0
    assert found["latency_us"]["p90"] >= 1e6 * STILL_S / 2, "a quarter would have asked in its first half"
    assert found["latency_us"]["max"] >= 1e6 * STILL_S


def test_a_hypervisor_is_not_charged_to_the_server(suffer):
    found = suffer(at_pause=lambda stat: stat.write_text(stat_line(3)))
    assert found["stolen"] >= 1
    assert found["latency_us"]["max"] < 1e6 * STILL_S, "the first of them, who waited all the time, is left out"


def test_nothing_is_left_out_where_little_would_be_left(suffer):
    is_over = threading.Event()

    def steal(stat):
        ticks = 0
        while not is_over.wait(0.01):
            ticks += 1
            stat.write_text(stat_line(ticks))
    found = suffer(at_begin=steal)
    is_over.set()
    assert found["stolen"] > 0.75 * found["windows"]
    assert found["latency_us"]["max"] >= 1e6 * STILL_S
