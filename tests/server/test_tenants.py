# SPDX-License-Identifier: Apache-2.0
"""Goal: each tenant gets what its section says, whatever the others do, and an operator can see it.
Method: real servers with a configuration file. Floods are put into the sockets while the server is
stopped, so that all of a test's requests are there when it goes on: then shares do not depend on how
fast this test is. What is compared are counts of the server's own, over its own clock."""

import json
import re
import signal
import socket
import subprocess
import time

import pytest

from served import START_S, Served
from support.ports import ADDRESS, bound_port, free_ports

USAGE = 64
LINE = b"get " + b" ".join(b"k%02d" % i for i in range(40)) + b"\r\n"  # Costs 41 and is answered "END".
LINE_COST = 41


@pytest.fixture
def serve(fairway, tmp_path):
    def serve(text, *arguments, listeners=2):
        path = tmp_path / "fairway.conf"
        path.write_text(text)
        server = Served(fairway, "--config", str(path), *arguments, listen=None, listeners=listeners)
        server.path = path
        return server
    return serve


def rows(client, group="tenants"):
    client.send(b"stats %s\r\n" % group.encode())
    return answered_rows(client)


def answered_rows(client):
    found = {}
    while (line := client.line()) != b"END\r\n":
        _, name, value = line.decode().rstrip("\r\n").split(" ", 2)
        found[name] = value
    return found


def number(found, name):
    return int(found[name])


def assert_counted(found, name, expected):
    """What is asking now counts as 1, and so does news of a connection with nothing to read."""
    assert expected <= number(found, name) <= expected + 3, (name, found[name])


def wait_until(look, wanted):
    """Looks until it sees what is wanted; the limit is only there to end what went wrong."""
    deadline = time.monotonic() + START_S
    while not wanted(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
    return seen


def fill(client, line, count, last=b""):
    """Sends so many lines and the last one, as far as the sockets take them while nobody reads."""
    client.rest = line * count + last
    client.count = count
    client.socket.settimeout(0)
    try:
        while client.rest:
            client.rest = client.rest[client.socket.send(client.rest):]
    except BlockingIOError:
        pass  # The rest goes out when the server reads.
    client.socket.settimeout(START_S)


def flooded(server, addresses, line, connections, count=1000, last=b""):
    """Connections to each address, full of requests when the server goes on."""
    clients = [[server.connect(address) for _ in range(connections)] for address in addresses]
    for several in clients:
        for client in several:
            client.set(b"k", b"v")  # The server knows it: nothing is left to accept.
    server.stop()
    for several in clients:
        for client in several:
            fill(client, line, count, last)
    server.process.send_signal(signal.SIGCONT)
    return clients


def drain(clients, answer):
    """Sends what is left and reads all replies, which must be complete."""
    for several in clients:
        for client in several:
            if client.rest:
                client.send(client.rest)
    for several in clients:
        for client in several:
            for _ in range(client.count):
                assert client.line() == answer
            client.close()


TWO = """
[server]
listen = 127.0.0.1:0, 127.0.0.2:0, 127.0.0.3:0
policy = {policy}
threads = {threads}
[tenant web]
match = listener 127.0.0.1
weight = {web}
[tenant batch]
match = listener 127.0.0.2
weight = {batch}
"""


def test_the_file_an_operator_writes(serve):
    one, two = free_ports(2)
    text = f"""
[server]
listen = {ADDRESS}:{one}, {ADDRESS}:{two}
policy = wfq
[tenant web]
match = listener {ADDRESS}:{one}
weight = 1
[tenant batch]
match = listener {ADDRESS}:{two}
weight = 1
"""
    with serve(text) as server:
        with server.connect(server.addresses[0]) as web, server.connect(server.addresses[1]) as batch:
            web.set(b"a", b"1")
            for _ in range(9):
                assert web.get(b"a") == b"1"
            batch.send(LINE)
            assert batch.line() == b"END\r\n"
            found = rows(batch)
    assert found["policy"] == "wfq"
    assert_counted(found, "web:cost", 10)
    assert_counted(found, "web:served", 10)
    assert_counted(found, "batch:cost", LINE_COST)
    assert number(found, "default:served") == 0
    assert found["web:match"] == f"listener {ADDRESS}:{one}"
    assert found["default:match"] == "-"


def when_the_first_is_done(server):
    """Floods both addresses. Returns the figures of the moment at which the first connection was done: each asks for them behind
    its flood. So both tenants have had something to do all the time, however late this test looks."""
    clients = flooded(server, server.addresses[:2], LINE, 32, 250, b"stats tenants\r\n")
    assert not any(client.rest for several in clients for client in several), "a flood does not fit the sockets"
    found = []
    for several in clients:
        for client in several:
            for _ in range(client.count):
                assert client.line() == b"END\r\n"
            found.append(answered_rows(client))
            client.close()
    return min(found, key=lambda seen: number(seen, "cost"))


@pytest.mark.parametrize("threads", [1, 2])
def test_weights(serve, threads):
    """Three to one, while both have more to do than the server can; within a half where two heads
    that the system runs when it likes have to agree."""
    with serve(TWO.format(policy="wfq", threads=threads, web=3, batch=1), listeners=3) as server:
        found = when_the_first_is_done(server)
    ratio = number(found, "web:cost") / number(found, "batch:cost")
    waiting = number(found, "web:waiting"), number(found, "batch:waiting")
    least, most = (2.5, 3.5) if threads == 1 else (2, 4.5)
    assert least < ratio < most, (ratio, waiting)
    assert number(found, "batch:delayed") > 0


def test_fifo_knows_no_weights(serve):
    """The same with the other policy: so the test above can fail."""
    with serve(TWO.format(policy="fifo", threads=1, web=10, batch=1), listeners=3) as server:
        found = when_the_first_is_done(server)
    assert 0.5 < number(found, "web:cost") / number(found, "batch:cost") < 2


@pytest.mark.parametrize("policy", ["tbf", "wfq"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rate(serve, policy, threads):
    """Never more than the bucket and the rate allow, and that much in the end. The bucket is large, so that
    nothing is lost if the machine is elsewhere for a second."""
    rate, burst, turn = 2000, 10000, 25
    text = TWO.format(policy=policy, threads=threads, web=1, batch=1)
    text += f"rate = {rate}\nburst = {burst}\n"
    with serve(text, listeners=3) as server, server.connect(server.addresses[2]) as watcher:
        begin = rows(watcher)
        clients = flooded(server, [server.addresses[1]], b"get k\r\n", 4, 20000)
        found = wait_until(lambda: rows(watcher),
                           lambda seen: number(seen, "batch:cost") > burst + rate)
        end = rows(watcher)
        for client in clients[0]:
            client.close()
    # The clock was read somewhat before the cost, and that before the clock of the next answer.
    most = (number(end, "uptime_ms") - number(begin, "uptime_ms")) / 1000
    slack = turn * threads + rate * 0.002  # And the clock shows milliseconds.
    cost = number(found, "batch:cost")
    assert cost <= burst + rate * most + slack
    assert number(found, "batch:throttled") > 0
    assert number(found, "web:throttled") == 0


def test_shed(serve):
    """What waits too long is refused in words that clients know, one for one, and is counted."""
    text = TWO.format(policy="wfq", threads=1, web=1, batch=1) + "rate = 1\nburst = 1\ndelay-limit = 50ms\n"
    with serve(text, listeners=3) as server, server.connect(server.addresses[1]) as client:
        client.send(b"get k\r\nset k 0 0 7\r\nget k\r\n\r\nincr n 1\r\n" * 100 + b"mn\r\n")
        replies = list(iter(client.line, b"MN\r\n"))
        with server.connect(server.addresses[2]) as watcher:
            found = rows(watcher)
        assert client.ask(b"version\r\n").startswith(b"VERSION")  # Never refused, and in step.
    refused = replies.count(b"SERVER_ERROR out of capacity, try again later\r\n")
    served = sum(replies.count(each) for each in (b"END\r\n", b"STORED\r\n", b"NOT_FOUND\r\n"))
    assert refused > 100 and served > 0
    assert refused + served == 300
    values = replies.count(b"VALUE k 0 7\r\n")
    assert len(replies) == 300 + 3 * values and replies.count(b"get k\r\n") == values
    assert number(found, "batch:shed") > 0
    assert number(found, "web:shed") == 0


def test_prefixes_and_commands(serve):
    text = """
[server]
listen = 127.0.0.1:0
policy = wfq
[tenant writers]
match = prefix img: and command write
[tenant images]
match = prefix img:, prefix thumb:
[tenant operators]
match = command admin
urgent = yes
"""
    with serve(text, listeners=1) as server, server.connect() as client:
        client.send(b"get img:1\r\n" * 30 + b"get other\r\n" * 7 + b"get thumb:1 other other\r\n")
        assert [client.line() for _ in range(38)] == [b"END\r\n"] * 38
        client.set(b"img:1", b"x")
        client.set(b"other", b"x")
        client.send(b"mg aW1nOjE= b v\r\nmn\r\n")
        assert [client.line() for _ in range(3)] == [b"VA 1\r\n", b"x\r\n", b"MN\r\n"]
        found = rows(client)
    assert_counted(found, "writers:cost", 1)
    assert_counted(found, "images:cost", 30 + 2 + 1)  # A get of several is a command and its keys,
    assert_counted(found, "default:cost", 7 + 2 + 1)  # each of which is its tenant's.
    assert_counted(found, "operators:cost", 1)


def test_login(serve, tmp_path):
    users = tmp_path / "users"
    users.write_text("ann:secret\nbob:secret\n")
    users.chmod(0o600)
    text = """
[server]
listen = 127.0.0.1:0
policy = wfq
[tenant bobs]
match = login bob
"""
    with serve(text, "--auth-file", str(users), listeners=1) as server:
        with server.connect() as ann, server.connect() as bob:
            for client, name in ((ann, b"ann"), (bob, b"bob")):
                assert client.ask(b"set x 0 0 10\r\n%s secret\r\n" % name) == b"STORED\r\n"
            for _ in range(20):
                assert bob.get(b"k") is None
                assert ann.get(b"k") is None
            found = rows(ann)
    assert_counted(found, "bobs:cost", 20)
    assert_counted(found, "default:cost", 22)  # And both logins.


def test_address(serve):
    text = """
[server]
listen = 127.0.0.1:0
policy = wfq
[tenant near]
match = address 127.0.0.5
[tenant far]
match = address 127.0.0.0/8
"""
    with serve(text, listeners=1) as server:
        port = int(server.addresses[0].rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), START_S, ("127.0.0.5", 0)) as near:
            near.sendall(b"get a\r\n")
            assert near.recv(100) == b"END\r\n"
            with server.connect() as far:
                found = rows(far)
    assert_counted(found, "near:served", 1)
    assert number(found, "default:served") == 0


def test_reload_while_busy(serve):
    """Policy, weights and rules change under a flood: every request is answered once."""
    texts = [TWO.format(policy=policy, threads=2, web=web, batch=1)
             for policy, web in (("wfq", 1), ("fifo", 2), ("tbf", 3), ("crr", 4), ("wfq", 5))]
    texts[2] = texts[2].replace("match = listener 127.0.0.1", "match = prefix k and listener 127.0.0.1")
    with serve(texts[0], listeners=3) as server:
        clients = flooded(server, server.addresses[:2], LINE, 4, 2000)
        with server.connect(server.addresses[2]) as watcher:
            for turn, text in enumerate(texts[1:] * 3):
                server.path.write_text(text)
                server.process.send_signal(signal.SIGHUP)
                weight = re.search(r"weight = (\d)", text)[1]
                policy = re.search(r"policy = (\w+)", text)[1]
                wait_until(lambda: rows(watcher), lambda seen: seen["web:weight"] == weight and
                           seen["policy"] == policy)
                assert turn < 100
            assert rows(watcher)["web:match"] == "listener 127.0.0.1"
            drain(clients, b"END\r\n")
            # The ends of the connections wait their turn as well.
            found = wait_until(lambda: rows(watcher), lambda seen: number(seen, "web:waiting") ==
                               number(seen, "batch:waiting") == 0)
    asked = [sum(client.count for client in several) for several in clients]
    assert number(found, "cost") >= LINE_COST * sum(asked)


def test_open_to_all_and_back(serve):
    """Without tenants nobody is asked to wait; with some again, who was let in meanwhile is served too."""
    closed = TWO.format(policy="wfq", threads=2, web=2, batch=1)
    texts = [closed, closed[:closed.index("[tenant")].replace("wfq", "fifo")]
    with serve(texts[1], listeners=3) as server:
        clients = flooded(server, server.addresses[:2], LINE, 4, 2000)
        with server.connect(server.addresses[2]) as watcher:
            wait_until(lambda: rows(watcher), lambda seen: number(seen, "default:cost") > LINE_COST)
            for turn in range(12):
                server.path.write_text(texts[turn % 2])
                server.process.send_signal(signal.SIGHUP)
                policy = ("wfq", "fifo")[turn % 2]
                wait_until(lambda: rows(watcher), lambda seen: seen["policy"] == policy)
            drain(clients, b"END\r\n")
            found = wait_until(lambda: rows(watcher), lambda seen: number(seen, "web:waiting") ==
                               number(seen, "batch:waiting") == number(seen, "default:waiting") == 0)
    asked = sum(client.count for several in clients for client in several)
    assert number(found, "cost") >= LINE_COST * asked
    assert number(found, "default:cost") > LINE_COST


URGENT = """
[server]
listen = 127.0.0.1:0, 127.0.0.2:0
policy = {policy}
threads = 1
[tenant operators]
match = listener 127.0.0.1
urgent = yes
[tenant batch]
match = listener 127.0.0.2
"""
URGENT_RATIO = 8


@pytest.mark.parametrize("policy", ["fifo", "wfq"])
@pytest.mark.parametrize("flooder, modest", [("batch", "operators"), ("operators", "batch")])
def test_urgent(serve, policy, flooder, modest):
    """All requests are there when the server goes on, the modest one's last. What is urgent is next, also
    where others stand in one queue; and a flood of urgent ones lets others in between."""
    addresses = {"operators": 0, "batch": 1}
    with serve(URGENT.format(policy=policy)) as server:
        with server.connect(server.addresses[addresses[modest]]) as client:
            before = rows(client)
            clients = [[server.connect(server.addresses[addresses[flooder]]) for _ in range(32)]]
            for each in clients[0]:
                each.set(b"k", b"v")
            server.stop()
            for each in clients[0]:
                fill(each, LINE, 100)
            client.send(b"stats tenants\r\n")
            server.process.send_signal(signal.SIGCONT)
            found = answered_rows(client)
            drain(clients, b"END\r\n")
    flood = number(found, f"{flooder}:served") - number(before, f"{flooder}:served") - 32  # Sets.
    assert flood <= (3 if modest == "operators" else URGENT_RATIO + 3)


def test_rule_without_listener(serve):
    """It can never hold, so the log says so: at the start, and when the file is read again."""
    text = TWO.format(policy="wfq", threads=1, web=1, batch=1)
    lost = text.replace("match = listener 127.0.0.2", "match = listener 127.0.0.9:1")

    def warning(server):
        while "will never hold" not in (line := server.process.stderr.readline()):
            assert line
        return line

    with serve(lost, listeners=3) as server:
        line = warning(server)
        assert "tenant batch" in line and "127.0.0.9:1" in line
        server.path.write_text(lost.replace("127.0.0.9:1", "127.0.0.8:1"))
        server.process.send_signal(signal.SIGHUP)
        assert "127.0.0.8:1" in warning(server)


def test_reload_of_what_is_wrong(serve):
    """The server keeps what it has, and says what is wrong."""
    with serve(TWO.format(policy="wfq", threads=1, web=3, batch=1), listeners=3) as server:
        server.path.write_text(TWO.format(policy="fifo", threads=1, web=1, batch=0))
        server.process.send_signal(signal.SIGHUP)
        line = server.process.stderr.readline()
        while "stays as it is" not in line:
            line = server.process.stderr.readline()
            assert line
        with server.connect() as client:
            found = rows(client)
    assert found["policy"] == "wfq"
    assert number(found, "web:weight") == 3


def test_drain_knows_no_rates(serve):
    """Of a tenant that would have to wait for minutes everything is answered when the server ends."""
    text = TWO.format(policy="tbf", threads=1, web=1, batch=1) + "rate = 1\nburst = 1\n"
    with serve(text, "--drain-limit", "1000s", listeners=3) as server:
        with server.connect(server.addresses[1]) as client:
            client.send(b"get k\r\n" * 300)
            assert client.line() == b"END\r\n"
            server.process.send_signal(signal.SIGTERM)
            assert [client.line() for _ in range(299)] == [b"END\r\n"] * 299
            assert client.at_end()


@pytest.mark.parametrize("text, line, why", [
    ("[tenant a]\nmatch = lstener 127.0.0.1", 2, "did you mean 'listener'"),
    ("[tenant a]\nweight = 2\nmatch = address 10.0.0.1/8", 3, "bits beyond"),
    ("[tenant a]\nmatch = prefix x and", 2, "is missing"),
    ("[tenant a]\nmatch = command steal", 2, "read, write and admin"),
    ("[tenant a]\nweight = 0", 2, "weight"),
    ("[tenant a]\nweight = 10001", 2, "weight"),
    ("[tenant a]\nrate = fast", 2, "rate"),
    ("[tenant a]\nwait = 2", 2, "wait"),
    ("[tenant]\nweight = 2", 1, "tenant"),
    ("[server]\npolicy = wqf", 2, "wfq"),
])
def test_what_is_refused(fairway, tmp_path, text, line, why):
    path = tmp_path / "fairway.conf"
    path.write_text(text)
    done = subprocess.run([fairway, "serve", "--config", str(path), "-l", "127.0.0.1:0"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=START_S)
    assert done.returncode == USAGE, done
    assert f"{path}:{line}" in done.stderr
    assert why in done.stderr


def test_stats_command(serve, fairway):
    def stats(*arguments):
        return subprocess.run([fairway, "stats", "--timeout", f"{START_S}s", *arguments], stdin=subprocess.DEVNULL,
                              check=False, capture_output=True, text=True, timeout=2 * START_S)
    with serve(TWO.format(policy="wfq", threads=1, web=3, batch=1), listeners=3) as server:
        table = stats("--server", server.addresses[0], "tenants")
        assert table.returncode == 0, table
        lines = table.stdout.splitlines()
        assert lines[0].split() == ["policy", "wfq"]
        web = next(each for each in lines if each.startswith("web "))
        assert web.endswith("listener 127.0.0.1") and web.split()[1] == "3"
        shown = json.loads(stats("--json", "--server", server.addresses[2], "tenants").stdout)
        assert shown["policy"] == "wfq"
        assert shown["tenants"]["web"]["weight"] == 3
        assert shown["tenants"]["web"]["served"] >= 1
        assert set(shown["tenants"]) == {"default", "web", "batch"}
        assert shown["count"] == 3
        assert json.loads(stats("--json", "--server", server.addresses[0]).stdout)["threads"] == 1
        wrong = stats("--server", server.addresses[0], "tenant")
        assert wrong.returncode == 1 and "'tenant'" in wrong.stderr
    with bound_port() as port:
        gone = stats("--server", f"{ADDRESS}:{port}")
    assert gone.returncode == 1 and "Connection refused" in gone.stderr
    assert stats("--server", "nowhere:x").returncode == USAGE
    assert stats("one", "two").returncode == USAGE
