# SPDX-License-Identifier: Apache-2.0
"""Goal: commands that take the server long are charged for it, so that shares and rates hold for them too. Method: what
a tenant is charged for a pipeline of them, how many turns it takes, and that a rate bounds how many are answered."""

import time

import pytest

from served import Served

CONFIG = "[server]\npolicy = wfq\n[tenant flood]\nmatch = address 127.0.0.1\n{}"
COUNT = 40


@pytest.fixture
def serve(fairway, tmp_path):
    def serve(more=""):
        path = tmp_path / "fairway.conf"
        path.write_text(CONFIG.format(more))
        return Served(fairway, "-t", "1", "--enable-locking", "--config", str(path))
    return serve


def rows(client, group):
    client.send(b"stats " + group + b"\r\n")
    return dict(line.decode().rstrip().split(maxsplit=2)[1:] for line in iter(client.line, b"END\r\n"))


def spent(client):
    """What the tenant was charged, and how many turns the only core has had."""
    return int(rows(client, b"tenants")["flood:cost"]), int(rows(client, b"threads")["0:turns"])


def pipeline(client, command):
    """Answers a number of these commands; returns how many lines each had."""
    client.send((command + b"\r\n") * COUNT + b"mn\r\n")
    lines = 0
    while client.line() != b"MN\r\n":
        lines += 1
    return lines / COUNT


@pytest.mark.parametrize("command", [b"stats", b"stats settings", b"stats conns", b"stats tenants", b"stats detail dump"])
def test_stats_cost_their_rows(serve, command):
    with serve() as server, server.connect() as client:
        if command.startswith(b"stats detail"):
            client.send(b"stats detail on\r\n" + b"".join(b"get p%d:k\r\n" % i for i in range(100)) + b"mn\r\n")
            while client.line() != b"MN\r\n":
                pass
        before = spent(client)
        lines = pipeline(client, command)
        after = spent(client)
        assert after[0] - before[0] >= COUNT * lines
        assert after[1] - before[1] >= COUNT / 2  # Others come in between.


def test_lists_cost_what_they_look_at(serve):
    items = 2000
    with serve() as server, server.connect() as client:
        for i in range(items):
            client.send(b"set k%d 0 0 1 noreply\r\nv\r\n" % i)
        client.set(b"last", b"v")
        before = spent(client)
        assert pipeline(client, b"keys nothing-begins-like-this") == 1
        assert spent(client)[0] - before[0] >= COUNT * items


def test_a_rate_holds_for_stats(serve):
    rate = 10_000
    with serve(f"rate = {rate}\nburst = 100\n") as server, server.connect() as client:
        began = time.monotonic()
        lines = pipeline(client, b"stats")
        assert time.monotonic() - began >= 0.5 * COUNT * lines / rate
