# SPDX-License-Identifier: Apache-2.0
"""Goal: every key of a get counts for the tenant that the rules give it to, wherever in the line it stands. Method: a
tenant with a rate, and gets that begin with a key of somebody else: what comes back, what each tenant is charged, and
that the rate holds. Lines are short, longer than the input buffer's share, and longer than the buffer."""

import time

import pytest

from served import Served

CONFIG = """
[server]
policy = tbf
[tenant images]
match = prefix img:
rate = {rate}
[tenant rest]
match = prefix x
"""
BURST_PART = 10  # A tenth of the rate may be had at once.


@pytest.fixture
def serve(fairway, tmp_path):
    def serve(rate):
        path = tmp_path / "fairway.conf"
        path.write_text(CONFIG.format(rate=rate))
        return Served(fairway, "-t", "1", "--config", str(path))
    return serve


def costs(client):
    """What each tenant was charged so far."""
    client.send(b"stats tenants\r\n")
    rows = (line.decode().split()[1:3] for line in iter(client.line, b"END\r\n"))
    return {name.rsplit(":", 1)[0]: int(value) for name, value in rows if name.endswith(":cost")}


def get(client, keys):
    client.send(b"get " + b" ".join(keys) + b"\r\n")
    found = []
    while (line := client.line()) != b"END\r\n":
        assert line.startswith(b"VALUE "), line
        found.append(line.split()[1])
        assert client.line() == found[-1] + b"\r\n"
    return found


@pytest.mark.parametrize("count", [3, 400, 20_000])
def test_each_key_is_its_tenants(serve, count):
    with serve(1_000_000) as server, server.connect() as client:
        stored = [b"x%d" % i for i in range(0, count, 7)] + [b"img:%d" % i for i in range(0, count, 3)]
        for key in stored:
            client.send(b"set %s 0 0 %d noreply\r\n%s\r\n" % (key, len(key), key))
        keys = [b"x%d" % i if i % 5 == 0 else b"img:%d" % i for i in range(count)]
        before = costs(client)
        known = set(stored)
        assert get(client, keys) == [key for key in keys if key in known]
        after = costs(client)
        images = sum(key.startswith(b"img:") for key in keys)
        assert after["images"] - before["images"] >= images
        assert after["rest"] - before["rest"] >= count - images


def test_a_foreign_key_in_front_does_not_help(serve):
    rate, gets, keys = 500, 100, 10
    with serve(rate) as server, server.connect() as client:
        began = time.monotonic()
        for i in range(gets):
            assert get(client, [b"x"] + [b"img:%d" % k for k in range(keys)]) == []
        least = (gets * keys - rate / BURST_PART) / rate - 2 * keys / rate  # The last may be in debt.
        assert time.monotonic() - began >= 0.9 * least


def test_a_key_that_is_too_long_is_still_an_error(serve):
    with serve(1_000_000) as server, server.connect() as client:
        client.set(b"x", b"x")
        client.send(b"get x img:1 " + b"k" * 300 + b" x\r\nget x\r\n")
        lines = [client.line() for _ in range(4)]
        while lines[-1] != b"END\r\n":
            lines.append(client.line())
        assert b"CLIENT_ERROR bad command line format\r\n" in lines
        assert lines[-3:] == [b"VALUE x 0 1\r\n", b"x\r\n", b"END\r\n"]
