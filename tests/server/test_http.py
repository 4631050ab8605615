# SPDX-License-Identifier: Apache-2.0
"""Goal: the door for monitoring and browsers shows what the server does, to whom it should, and nothing that comes
through it disturbs those who are served.
Method: HTTP requests, right and hostile, to a running server with clients beside. promtool judges the metrics."""

import contextlib
import http.client
import json
import pathlib
import random
import re
import socket
import subprocess

import pytest
from served import START_S, Busy, Served, Watched, wait_for

NO_SOCKET, USAGE = 71, 64


def metric(page, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else None


def test_metrics_count_what_clients_do(fairway):
    with Watched(fairway, "-t", "1") as server, server.connect() as client:
        client.set(b"a", b"1")
        for _ in range(3):
            client.get(b"a")
        client.get(b"none")
        answer = server.ask("/metrics")
        assert answer.status == 200
        assert answer.getheader("Content-Type").startswith("text/plain; version=0.0.4")
        assert metric(answer.text, "fairway_cache_get_hits_total") == 3
        assert metric(answer.text, "fairway_cache_get_misses_total") == 1
        assert metric(answer.text, "fairway_items") == 1
        assert metric(answer.text, "fairway_connections") == 1
        assert metric(answer.text, "fairway_server_bytes_read_total") > 0
        assert metric(answer.text, 'fairway_sched_tenant_served_total{tenant="default"}') >= 1


def test_metrics_say_where_slaves_are(fairway):
    repl = ("--repl-enable", "--repl-port", "0")
    with Watched(fairway, *repl) as master:
        address = re.search(r"replication on (\S+)", master.read_log())[1]
        with Watched(fairway, *repl, "--repl-master", address) as slave:
            name = r'fairway_repl_slave_complete\{slave="127.0.0.1:\d+"\} 1'
            wait_for(lambda: re.search(name, master.ask("/metrics").text))
            page = master.ask("/metrics").text
            assert (metric(page, "fairway_repl_follows"), metric(page, "fairway_repl_complete")) == (0, 1)
            assert re.search(r'fairway_repl_slave_behind_bytes\{slave="127.0.0.1:\d+"\} 0', page)
            wait_for(lambda: metric(slave.ask("/metrics").text, "fairway_repl_complete") == 1)
            page = slave.ask("/metrics").text
            assert metric(page, "fairway_repl_follows") == 1 and metric(page, "fairway_repl_age_seconds") >= 0


@pytest.mark.needs("promtool")
def test_promtool_finds_nothing_to_mend(fairway):
    with Watched(fairway, "-t", "2") as server, server.connect() as client:
        client.set(b"a", b"1")
        page = server.ask("/metrics").text
        done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_status_is_json_with_all_groups(fairway):
    with Watched(fairway, "-t", "2") as server, server.connect() as client:
        client.set(b"a", b"1")
        status = json.loads(server.ask("/status.json").text)
        assert status["ready"] is True
        assert status["groups"]["general"]["curr_items"] == 1
        assert set(status["groups"]["threads"]) == {"0", "1"}
        assert status["groups"]["tenants"]["default"]["weight"] == 1
        assert status["metrics"]["cache_cmd_set"] == 1


def test_the_page_needs_nothing_from_elsewhere(fairway):
    with Watched(fairway) as server:
        page = server.ask("/")
        assert page.status == 200 and page.getheader("Content-Type").startswith("text/html")
        assert "default-src 'self'" in page.getheader("Content-Security-Policy")
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert "//" not in path
            assert server.ask("/" + path).status == 200, path
        script = server.ask("/page.js").text
        assert "//" not in re.sub(r"http://www.w3.org/2000/svg|//[^\n]*$", "", script, flags=re.MULTILINE)


def test_healthy_and_ready_until_it_drains(fairway):
    with Watched(fairway, "--drain-limit", "1000s", "-t", "1") as server, server.connect() as slow:
        assert server.ask("/healthz").status == 200
        assert server.ask("/readyz").status == 200
        # A reply that nobody fetches keeps the server from ending.
        slow.set(b"big", b"x" * 1000000)
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(b"get big\r\n" * 40)
        wait_for(lambda: json.loads(server.ask("/status.json").text)["metrics"]["server_replies_kept"] > 0)
        server.process.terminate()
        wait_for(lambda: server.ask("/readyz").status == 503)
        assert server.ask("/healthz").status == 200
        assert json.loads(server.ask("/status.json").text)["ready"] is False
        slow.close()


def test_only_looking_is_allowed(fairway):
    with Watched(fairway) as server:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            answer = server.ask("/metrics", method)
            assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD"), method
        head = server.ask("/metrics", "HEAD")
        assert (head.status, head.text) == (200, "")
        assert server.ask("/nothing").status == 404
        assert server.ask("/../../etc/passwd").status == 404


def test_a_page_of_another_site_cannot_read_it(fairway):
    """A browser sends the name in the address bar, which any site can let resolve to 127.0.0.1."""
    with Watched(fairway) as server:
        for host in ("evil.example", "evil.example:11280", "localhost.evil.example", "127.0.0.1.evil.example"):
            assert server.ask("/status.json", headers={"Host": host}).status == 403, host
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80"):
            assert server.ask("/status.json", headers={"Host": host}).status == 200, host


@pytest.mark.needs("ipv6")
def test_any_port_of_ipv6_too(fairway):
    with Watched(fairway, http="[::1]:0") as server:
        assert server.http[0] == "::1" and server.http[1] != 0
        assert server.ask("/healthz").status == 200


def test_off_unless_asked_for(fairway):
    with Served(fairway) as server:
        listening = pathlib.Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()[1:]
        owned = {int(link.stat().st_ino) for link in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()}
        mine = [line.split() for line in listening if line.split()[3] == "0A" and int(line.split()[9]) in owned]
        assert len(mine) == 1 and mine[0][1].startswith("0100007F:")


def test_addresses_that_do_not_work(fairway):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        for address, status, why in (
                (f"127.0.0.1:{port}", NO_SOCKET, "Address already in use"),
                ("unix:/nowhere", USAGE, "needs an address with a port"),
                ("not an address", USAGE, "not an address")):
            done = subprocess.run([fairway, "serve", "--listen", "127.0.0.1:0", "--http-listen", address],
                                  capture_output=True, text=True, timeout=START_S)
            assert done.returncode == status, done.stderr
            assert why in done.stderr


def hostile(random_):
    """Bytes that are nearly HTTP."""
    lines = [b"GET /metrics HTTP/1.1", b"GET / HTTP/9.9", b"GET  /", b"\x00\xff\xfe", b"A" * 100, b"GET /" + b"%" * 50,
             b"Host: localhost", b"Host:", b"Content-Length: -1", b"Content-Length: 99999999999999999999",
             b"Transfer-Encoding: chunked", b"ffffffffffffffff", b"X: " + b"y" * 40000, b"", b": :", b"Connection: \xe9"]
    end = random_.choice([b"\r\n", b"\n", b"\r", b""])
    return end.join(random_.choice(lines) for _ in range(random_.randrange(1, 12))) + end * random_.randrange(3)


def test_hostile_requests_harm_nobody(fairway):
    random_ = random.Random(20261115)
    with Watched(fairway, "-t", "1") as server, server.connect() as client:
        client.set(b"a", b"1")
        for _ in range(300):
            server.send(hostile(random_))
        assert client.get(b"a") == b"1"
        wait_for(lambda: is_healthy(server))


@pytest.mark.parametrize("seed", range(10))
def test_it_ends_amid_hostile_requests(fairway, seed):
    """In particular while an answer to a bad request is being made."""
    random_ = random.Random(seed)
    with Watched(fairway, "-t", "1") as server:
        def once():
            with contextlib.suppress(OSError):  # It has ended.
                server.send(hostile(random_))
        with Busy(once), Busy(once):
            for _ in range(20):
                server.send(hostile(random_))
            server.process.terminate()
            server.process.wait(START_S)


def is_healthy(server):
    try:
        return server.ask("/healthz").status == 200
    except (OSError, http.client.HTTPException):
        return False  # It has no room for us yet.


def test_silent_connections_keep_nobody_out(fairway):
    """More than it takes at once, saying nothing. They are closed when their time is up; clients do not notice."""
    with Watched(fairway, "-t", "1") as server, server.connect() as client:
        silent = [socket.create_connection(server.http, START_S) for _ in range(64)]
        client.set(b"a", b"1")
        assert client.get(b"a") == b"1"
        for connection in silent:
            connection.close()
        wait_for(lambda: is_healthy(server))
