# SPDX-License-Identifier: Apache-2.0
"""Goal: a command that walks over all connections, tenants or prefixes does so in bounded steps, between which others
are served. Method: many of each, and the number of turns that the command takes; what comes and goes between two
steps; and that whatever is there all the time is shown exactly once."""

import collections
import re
import socket

import pytest

from served import Served

PER_TURN_MAX = 64  # Connections, tenants or prefixes in one turn.
TENANTS, PREFIXES, CONNECTIONS = 2000, 5000, 800


def rows(client, command):
    client.send(command + b"\r\n")
    return [line.decode().rstrip("\r\n") for line in iter(client.line, b"END\r\n")]


def turns(client):
    return sum(int(row.split()[2]) for row in rows(client, b"stats threads") if row.split()[1].endswith(":turns"))


def turns_of(client, command):
    """How many turns the command takes, and what it shows."""
    before = turns(client)
    shown = rows(client, command)
    return turns(client) - before, shown


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "fairway.conf"
    path.write_text("".join(f"[tenant t{i}]\nmatch = prefix t{i}:\n" for i in range(TENANTS)))
    return str(path)


def test_tenants(fairway, config):
    with Served(fairway, "-t", "1", "--config", config) as server, server.connect() as client:
        taken, shown = turns_of(client, b"stats tenants")
        names = [row.split()[1] for row in shown if row.split()[1].endswith(":match")]
        assert names == ["default:match"] + [f"t{i}:match" for i in range(TENANTS)]
        assert taken >= TENANTS / PER_TURN_MAX


def test_prefixes(fairway):
    with Served(fairway, "-t", "1") as server, server.connect() as client:
        client.send(b"stats detail on\r\n" + b"".join(b"get p%d:k\r\n" % i for i in range(PREFIXES)) + b"mn\r\n")
        while client.line() != b"MN\r\n":
            pass
        taken, shown = turns_of(client, b"stats detail dump")
        assert sorted(row.split()[1] for row in shown) == sorted(f"p{i}" for i in range(PREFIXES))
        assert taken >= PREFIXES / PER_TURN_MAX


def addresses(shown):
    """How often each address of a client is shown."""
    return collections.Counter(re.findall(r"STAT \d+:addr tcp:(\S+)", "\n".join(shown)))


def name_of(client):
    return "%s:%d" % client.socket.getsockname()


def test_connections(fairway):
    with Served(fairway, "-t", "1", "-c", "2000") as server, server.connect() as client:
        others = [server.connect() for _ in range(CONNECTIONS)]
        for other in others:
            assert other.get(b"k") is None  # It is there.
        taken, shown = turns_of(client, b"stats conns")
        names = addresses(shown)
        assert all(names[name_of(other)] == 1 for other in [client, *others])
        assert taken >= CONNECTIONS / PER_TURN_MAX
        for other in others:
            other.close()


def test_connections_that_come_and_go_meanwhile(fairway):
    """A client asks and does not read: who goes meanwhile may be shown or not, who stays is shown once."""
    with Served(fairway, "-t", "1", "-c", "4000") as server:
        others = [server.connect() for _ in range(CONNECTIONS)]
        for other in others:
            assert other.get(b"k") is None
        with server.connect() as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(b"stats conns\r\n" * 10)
            first = [line for line in iter(client.line, b"END\r\n")]
            for other in others[::2]:
                other.close()
            new = [server.connect() for _ in range(CONNECTIONS)]
            for other in new:
                assert other.get(b"k") is None
            stay = [name_of(other) for other in [client, *others[1::2]]]
            for _ in range(9):
                names = addresses(line.decode() for line in iter(client.line, b"END\r\n"))
                assert all(names[name] == 1 for name in stay)
            names = addresses(rows(client, b"stats conns"))
            assert all(names[name] == 1 for name in stay + [name_of(other) for other in new])
            assert len(first) > 4 * CONNECTIONS
        for other in others[1::2] + new:
            other.close()
