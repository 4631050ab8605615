# SPDX-License-Identifier: Apache-2.0
"""Goal: the load generator sends what it claims and notices every wrong reply, and the servers that
set the limit give the right answers under every load, or their figures would mean nothing.
Method: bounded loads of every kind with --verify against each server, memcached among them, with
counts that must add up; raw sockets for what the generator never does (torn requests, a client that
does not read, nonsense); and a server in this file that lies in one way at a time.
"""

import contextlib
import json
import socket
import socketserver
import subprocess
import threading

import pytest

from suite import servers
from support.patience import PATIENCE_S

REQUESTS = 3000
KEYS = 500


def generate(context, port, *options):
    command = [context.program("bench", "load"), "--port", str(port), *map(str, options)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S, check=False)


def report_of(context, port, *options):
    done = generate(context, port, "--requests", REQUESTS, "--warm-up", 100, "--keys", KEYS,
                    "--connections", 7, "--verify", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOADS = {
    "one in flight": (),
    "sixteen in flight": ("--in-flight", 16),
    "multiget": ("--multiget", 50, "--sets", 2, "--in-flight", 3),
    "sets only": ("--sets", 100, "--in-flight", 4),
    "gets only": ("--sets", 0, "--in-flight", 5),
    "large values": ("--value-size", 10240, "--in-flight", 16, "--sets", 30),
    "multiget of large values": ("--value-size", 10240, "--multiget", 20, "--requests", 300),
    "in small pieces": ("--value-size", 10240, "--piece", 1000, "--in-flight", 4, "--sets", 50),
    "empty values": ("--value-size", 0, "--in-flight", 2),
    "values too short for a number": ("--value-size", 7, "--sets", 50),
    "shortest keys": ("--key-size", 8, "--multiget", 3),
    "longest keys": ("--key-size", 250, "--in-flight", 20),
    "idle ones beside": ("--idle", 100),
    "many connections": ("--connections", 300),
}


@pytest.mark.parametrize("load", LOADS)
def test_every_reply_is_right(context, server, load):
    report = report_of(context, server.port, "--prefill", *LOADS[load])
    expected = 300 if load == "multiget of large values" else REQUESTS
    assert report["requests"] == expected
    assert report["errors"] == report["misses"] == 0
    assert report["keys"] == report["hits"] + report["stores"]
    if load == "sets only":
        assert report["stores"] == expected and report["hits"] == 0
    if load == "gets only":
        assert report["stores"] == 0
    if load == "multiget":
        assert report["keys"] == report["stores"] + 50 * (report["requests"] - report["stores"])


def test_share_of_sets(context, server):
    report = report_of(context, server.port, "--prefill", "--sets", 30, "--requests", 20000)
    # Binomial: 6000 expected, standard deviation 65. The seed is fixed, so this cannot flicker
    # by chance; connections differ in how far they get, which moves it by less than that.
    assert 5600 < report["stores"] < 6400


def test_misses_are_counted(context, server):
    report = report_of(context, server.port, "--sets", 0, "--multiget", 5, "--in-flight", 3)
    assert report["misses"] == report["keys"] == 5 * REQUESTS
    assert report["hits"] == 0


def test_some_keys_missing(context, server):
    """Hits and misses within one multiget are told apart: only the lower half exists."""
    report_of(context, server.port, "--prefill", "--keys", KEYS // 2, "--requests", 1)
    report = report_of(context, server.port, "--sets", 0, "--multiget", 10)
    assert report["hits"] + report["misses"] == report["keys"]
    assert abs(report["hits"] - report["misses"]) < report["keys"] / 10


def test_report(context, server):
    done = generate(context, server.port, "--server-pid", server.pid, "--requests", 2000, "--keys",
                    KEYS, "--prefill", "--seconds", 600)
    report = json.loads(done.stdout)
    latency = report["latency_us"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert report["server_cpu_ns_per_request"] == report["server_cpu_ns_per_key"] > 0
    assert report["server_wait_ns_per_request"] >= 0
    assert report["own_cpu_ns_per_key"] > 0
    assert report["seconds"] > 0
    assert report["requests_per_second"] == pytest.approx(2000 / report["seconds"], rel=0.01)


def test_time_limit_ends_it(context, server):
    done = generate(context, server.port, "--seconds", 1, "--requests", 10**15, "--keys", KEYS)
    assert json.loads(done.stdout)["requests"] < 10**15


@pytest.mark.parametrize("options", [
    ["--nonsense"], ["--keys", "0"], ["--keys", "12x"], ["--keys", "-5"], ["--sets", "101"],
    ["--key-size", "7"], ["--keys"], ["stray"]])
def test_bad_options(context, options):
    done = generate(context, 1, *options)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and options[0] in done.stderr


def test_no_server(context):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # It does not listen.
        done = generate(context, silent.getsockname()[1])
    assert done.returncode == 1 and "connect" in done.stderr


def receive(connection, size):
    """`size` bytes, or what came before the end of the stream."""
    received = b""
    while len(received) < size and (more := connection.recv(size - len(received))):
        received += more
    return received


def exchange(server, pieces, size):
    """Sends the pieces one by one and returns `size` bytes of what comes back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        return receive(connection, size)


DIALOGUE = [
    (b"get missing\r\n", b"END\r\n"),
    (b"set one 0 0 5\r\nhello\r\n", b"STORED\r\n"),
    (b"set two 4294967 0 0\r\n\r\n", b"STORED\r\n"),
    (b"get one missing two\r\n", b"VALUE one 0 5\r\nhello\r\nVALUE two 4294967 0\r\n\r\nEND\r\n"),
    (b"set one 7 0 12\r\nget x\r\nEND\r\n\r\n", b"STORED\r\n"),  # Longer, and it looks like lines.
    (b"get one\r\n", b"VALUE one 7 12\r\nget x\r\nEND\r\n\r\nEND\r\n"),
    (b"set one 1 0 2\r\nhi\r\n", b"STORED\r\n"),
    (b"get one one\r\n", b"VALUE one 1 2\r\nhi\r\nVALUE one 1 2\r\nhi\r\nEND\r\n"),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_torn_requests(server, step):
    sent = b"".join(request for request, _ in DIALOGUE)
    expected = b"".join(reply for _, reply in DIALOGUE)
    pieces = [sent[at:at + step] for at in range(0, len(sent), step)]
    assert exchange(server, pieces, len(expected)) == expected


def test_values_that_grow(server):
    """A value that no longer fits where it was must not run into its neighbour."""
    sent, expected = b"", b""
    for size in range(60):
        for key in (b"first", b"second"):
            sent += b"set %s 0 0 %d\r\n%s\r\n" % (key, size, key[:1] * size)
            expected += b"STORED\r\n"
        sent += b"get first second\r\n"
        expected += b"".join(b"VALUE %s 0 %d\r\n%s\r\n" % (key, size, key[:1] * size)
                             for key in (b"first", b"second")) + b"END\r\n"
    assert exchange(server, [sent], len(expected)) == expected


def test_client_that_does_not_read(server):
    """More replies than the sockets can hold: the server keeps them, and serves others."""
    value = bytes(range(256)) * 200
    count = 400  # Times 50 KiB.
    stored = exchange(server, [b"set big 0 0 %d\r\n%s\r\n" % (len(value), value)], 8)
    assert stored == b"STORED\r\n"
    reply = b"VALUE big 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as slow:
        slow.sendall(b"get big\r\n" * count)
        for _ in range(20):
            assert exchange(server, [b"get big\r\n"], len(reply)) == reply
        for _ in range(count):
            assert receive(slow, len(reply)) == reply


NONSENSE = {
    "unknown command": b"nonsense\r\n",
    "long key": b"get " + b"k" * 251 + b"\r\n",
    "key without end": b"get " + b"k" * 1000,
    "bare line end": b"get one\n\n",
    "too many keys": b"get" + b" k" * 101 + b"\r\n",
    "word missing": b"set one 0 0\r\n",
    "word too many": b"set one 0 0 1 noreply\r\n",
    "long key of a set": b"set " + b"k" * 1000,
    "flags not a number": b"set one x 0 1\r\n",
    "negative length": b"set one 0 0 -1\r\n",
    "length of too many digits": b"set one 0 0 99999999999\r\n",
    "length beyond the limit": b"set one 0 0 65537\r\n",
    "longer than it says": b"set one 0 0 2\r\nabc\r\n",
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_ends_the_connection(our_server, nonsense):
    said = exchange(our_server, [NONSENSE[nonsense]], 1000)
    assert said == b"CLIENT_ERROR bad command line format\r\n"
    assert servers.answers(our_server.port)


@pytest.mark.parametrize("name", ["bare_loop", "reactor_server"])
@pytest.mark.parametrize("limit", [["--memory", "1"], ["--items", "400"]])
def test_full_table(context, name, limit):
    def command(context, port):
        return [*getattr(servers, name)(context, port), *limit]

    with servers.running(command, context) as server:
        report = report_of(context, server.port, "--sets", 100, "--value-size", 4000)
        assert 0 < report["errors"] < REQUESTS
        assert report["errors"] + report["stores"] == REQUESTS
        # What was stored before is still there, and right.
        report = report_of(context, server.port, "--sets", 0, "--value-size", 4000)
        assert report["hits"] > 0 and report["errors"] == 0
        done = generate(context, server.port, "--prefill", "--value-size", 60000, "--keys", KEYS)
        assert done.returncode == 1 and "refused" in done.stderr


class Liar(socketserver.StreamRequestHandler):
    """Answers sets, and gets by what the test put into `server.reply`."""

    def handle(self):
        values = self.server.values
        with contextlib.suppress(ConnectionError):
            while words := self.rfile.readline().split():
                if words[0] == b"set":
                    size = int(words[4])
                    values[words[1]] = self.rfile.read(size + 2)[:size]
                    self.wfile.write(self.server.set_reply)
                else:
                    key = words[1]
                    self.wfile.write(self.server.reply(key, values[key]))


@contextlib.contextmanager
def lying_server(reply, set_reply=b"STORED\r\n"):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Liar) as liar:
        liar.daemon_threads = True
        liar.values, liar.reply, liar.set_reply = {}, reply, set_reply
        thread = threading.Thread(target=liar.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield liar.server_address[1]
        finally:
            liar.shutdown()
            thread.join()


def value_reply(key, value, size=None, end=b"\r\nEND\r\n"):
    return b"VALUE %s 0 %d\r\n%s%s" % (key, len(value) if size is None else size, value, end)


def other(key):
    return key[:-1] + (b"0" if key.endswith(b"1") else b"1")


LIES = {
    "last byte of the value": lambda key, value: value_reply(key, value[:-1] + b"?"),
    "a byte in its middle": lambda key, value: value_reply(
        key, value[:50] + bytes([value[50] ^ 1]) + value[51:]),
    "its number": lambda key, value: value_reply(key, b"ffffffff" + value[8:]),
    "another key": lambda key, value: value_reply(other(key), value),
    "too short": lambda key, value: value_reply(key, value[:-1]),
    "too long": lambda key, value: value_reply(key, value + b"x"),
    "wrong length": lambda key, value: value_reply(key, value, size=99),
    "no line end": lambda key, value: value_reply(key, value, end=b"xxEND\r\n"),
    "flags": lambda key, value: value_reply(key, value).replace(b" 0 ", b" 1 ", 1),
    "twice": lambda key, value: value_reply(key, value, end=b"\r\n") + value_reply(key, value),
    "more than asked": lambda key, value: value_reply(key, value) + b"END\r\n",
    "wrong end": lambda key, value: value_reply(key, value, end=b"\r\nEND\n\n"),
    "an error": lambda key, value: b"ERROR\r\n",
    "the reply to a set": lambda key, value: b"STORED\r\n",
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_noticed(context, lie):
    with lying_server(LIES[lie]) as port:
        done = generate(context, port, "--connections", 1, "--keys", 10, "--requests", 1,
                        "--warm-up", 0, "--sets", 0, "--prefill", "--verify")
    assert done.returncode == 1
    assert "wrong reply" in done.stderr


def test_lie_about_a_set(context):
    with lying_server(value_reply, set_reply=b"STOREX\r\n") as port:
        done = generate(context, port, "--connections", 1, "--keys", 10, "--prefill")
    assert done.returncode == 1 and "wrong reply" in done.stderr


def test_truth_passes(context):
    """The same server without a lie: what the tests above notice is the lie."""
    with lying_server(value_reply) as port:
        done = generate(context, port, "--connections", 1, "--keys", 10, "--requests", 20,
                        "--warm-up", 0, "--sets", 0, "--prefill", "--verify")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hits"] == 20


def test_values_unchecked_without_verify(context):
    with lying_server(LIES["its number"]) as port:
        done = generate(context, port, "--connections", 1, "--keys", 10, "--requests", 20,
                        "--warm-up", 0, "--sets", 0, "--prefill")
    assert done.returncode == 0, done.stderr


def test_server_that_goes_away(context):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def hang_up():
            connection, _ = listener.accept()
            connection.recv(1)
            connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        done = generate(context, listener.getsockname()[1], "--connections", 1)
        thread.join()
    assert done.returncode == 1 and "the server ended a connection" in done.stderr
