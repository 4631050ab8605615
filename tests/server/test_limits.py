# SPDX-License-Identifier: Apache-2.0
"""Goal: the limits of connections are memcached's: how many, for how long idle; who is beyond them
learns it as there, and others do not.
Method: start the server with small limits and go beyond them. Waiting is for what must come; what must
not come is shown by what comes instead. A client that this test keeps waiting for a second is idle for the server."""

import contextlib
import re
import signal
import time

from served import Served, wait_for

IDLE_S = 1


def stats(client, group=b""):
    client.send(b"stats" + (b" " + group if group else b"") + b"\r\n")
    return read_stats(client)


def read_stats(client):
    rows = {}
    while (line := client.line()) != b"END\r\n":
        _, name, value = line.decode().split(maxsplit=2)
        rows[name] = value.strip()
    return rows


def test_too_many_are_refused_and_counted(fairway):
    with Served(fairway, "-c", "2") as server, server.connect() as one, server.connect() as two:
        assert one.get(b"k") is None and two.get(b"k") is None
        for _ in range(3):
            with server.connect() as three:
                assert three.line() == b"ERROR Too many open connections\r\n"
                assert three.at_end()
        rows = stats(one)
        assert rows["max_connections"] == "2"
        assert rows["curr_connections"] == "2"
        assert rows["rejected_connections"] == "3"
        assert rows["total_connections"] == "5"
        assert rows["listen_disabled_num"] == "0"
        assert one.ask(b"stats reset\r\n") == b"RESET\r\n"
        rows = stats(one)
        assert rows["rejected_connections"] == rows["total_connections"] == "0"
        assert rows["curr_connections"] == "2"


def test_too_many_wait(fairway):
    """Without maxconns_fast the third is not accepted before another has gone."""
    with Served(fairway, "-c", "2", "-o", "no_maxconns_fast") as server:
        one, two, three = (server.connect() for _ in range(3))
        one.set(b"k", b"v")
        assert two.get(b"k") == b"v"
        wait_for(lambda: stats(one)["accepting_conns"] == "0")
        assert stats(one)["listen_disabled_num"] == "1"
        three.send(b"get k\r\n")
        one.send(b"quit\r\n")
        assert one.at_end()
        assert three.line() == b"VALUE k 0 1\r\n"
        assert stats(two)["rejected_connections"] == "0"
        for client in (one, two, three):
            client.close()


def test_idle_connections_are_closed(fairway):
    """One that stops in the middle of a command too; one that is told off does not come back."""
    with Served(fairway, "-o", f"idle_timeout={IDLE_S}") as server:
        server.stop()  # So that the commands are there when the connection is accepted.
        with server.connect() as idle, server.connect() as half:
            half.send(b"get k\r\nset k 0 0 10\r\nabc")
            server.process.send_signal(signal.SIGCONT)
            assert half.line() == b"END\r\n"
            assert idle.at_end() and half.at_end()
        server.stop()
        with server.connect() as client:
            client.send(b"stats\r\n")
            server.process.send_signal(signal.SIGCONT)
            rows = read_stats(client)
            assert rows["idle_kicks"] == "2"
            assert rows["curr_connections"] == "1"


def is_closed(client):
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1) == b""
    except BlockingIOError:
        return False


def stays_beside_an_idle_one(server):
    """Asks until the idle one has been closed, and once more. False: this test was too slow, and so was idle itself."""
    asked = time.monotonic()
    with server.connect() as idle, server.connect() as busy:
        is_over = False
        while not is_over:
            is_over = is_closed(idle)
            before, asked = asked, time.monotonic()
            answer = b""
            with contextlib.suppress(ConnectionError):
                answer = busy.ask(b"get k\r\n")
            if answer != b"END\r\n":
                assert time.monotonic() - before > IDLE_S / 2, "a busy connection was closed"
                return False
    return True


def test_a_busy_connection_stays(fairway):
    with Served(fairway, "-o", f"idle_timeout={IDLE_S}") as server:
        wait_for(lambda: stays_beside_an_idle_one(server))


def test_settings_and_conns(fairway):
    with Served(fairway, "-c", "77", "-t", "3", "-R", "9", "-I", "2m", "-m", "100", "-C", "-F",
                "-X", "-A") as server, server.connect() as client:
        rows = stats(client, b"settings")
        for name, value in {"maxconns": "77", "num_threads": "3", "reqs_per_event": "9",
                            "item_size_max": "2097152", "maxbytes": "104857600",
                            "cas_enabled": "no", "flush_enabled": "no", "dump_enabled": "no",
                            "shutdown_command": "yes", "evictions": "on", "udpport": "0",
                            "maxconns_fast": "yes", "idle_timeout": "0"}.items():
            assert rows[name] == value, name
        rows = stats(client, b"conns")
        numbers = {name.split(":")[0] for name in rows}
        assert len(numbers) == 2  # The listener and this client.
        states = {value for name, value in rows.items() if name.endswith(":state")}
        assert states == {"conn_listening", "conn_parse_cmd"}
        assert re.fullmatch(r"tcp:127\.0\.0\.1:\d+",
                            next(value for name, value in rows.items()
                                 if name.endswith("listen_addr")))
        rows = stats(client, b"threads")
        assert {name.split(":")[0] for name in rows} == {"0", "1", "2"}
        assert sum(int(value) for name, value in rows.items() if name.endswith(":turns")) >= 2
