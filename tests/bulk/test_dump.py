# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway dump` and `fairway load` bring all items from server to server as they were, whichever of the
two are Fairway's and memcached's; what is damaged is refused with its place; and whatever goes wrong, no half
file is left and nothing is said but why.
Method: real servers, filled with items of all kinds; the programs as a user runs them, with full disks,
signals, terminals and pipes."""

import contextlib
import json
import os
import pty
import resource
import signal
import socketserver
import subprocess
import threading
import time

import pytest

from contents import Item, check, fill, some
from conform.peer import Peer, wait_until
from support.patience import PATIENCE_S
from support.ports import ADDRESS, bound_port
from support.stopped import stop

FAILED, USAGE = 1, 64


@pytest.fixture
def start(fairway):
    """start("fairway", flags...) or start("memcached", flags...)."""
    commands = {"fairway": [str(fairway), "serve"], "memcached": ["memcached", "-U", "0"]}
    return lambda kind="fairway", *flags: Peer(commands[kind], *flags)


def place(peer):
    return f"{peer.address[0]}:{peer.address[1]}"


@pytest.fixture
def run(fairway, tmp_path):
    """Runs a tool in a folder of the test's own."""
    def run(*arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, **options}
        return subprocess.run([str(fairway), *map(str, arguments)], cwd=tmp_path, timeout=PATIENCE_S,
                              check=False, **options)
    return run


def assert_done(done):
    assert done.returncode == 0 and done.stderr == b"", done


def assert_failed(done, *words, status=FAILED):
    """One line that says all of it."""
    message = done.stderr.decode()
    assert done.returncode == status and done.stdout == b"", done
    assert message.startswith("fairway: ") and message.count("\n") == 1, message
    for word in words:
        assert word in message


@pytest.mark.parametrize("origin, target", [("fairway", "fairway"), ("memcached", "fairway"),
                                            ("fairway", "memcached"), ("memcached", "memcached")])
def test_from_server_to_server(start, run, tmp_path, origin, target):
    items = some()
    with start(origin) as old, start(target) as new, old.connect() as client:
        fill(client, items)
        done = run("dump", "--server", place(old), "all.dump")
        assert_done(done)
        assert done.stdout.startswith(b"all.dump: dumped %d items, " % len(items))
        assert os.listdir(tmp_path) == ["all.dump"]
        done = run("load", "--server", place(new), "all.dump")
        assert_done(done)
        assert done.stdout.startswith(b"all.dump: loaded %d items, " % len(items))
        with new.connect() as client:
            check(client, items)
        assert int(new.stat("curr_items")) == len(items)


@pytest.mark.parametrize("kind", ["fairway", "memcached"])
def test_prefix(start, run, kind):
    with start(kind) as old, start() as new, old.connect() as client:
        fill(client, some(1000))
        assert_done(run("dump", "--server", place(old), "--prefix", "item:9", "--connections", "1", "nine.dump"))
        assert json.loads(run("load", "--check", "--json", "nine.dump").stdout)["items"] == 111
        assert_done(run("load", "--server", place(new), "--prefix", "item:99", "nine.dump"))
        assert int(new.stat("curr_items")) == 11


def test_empty_server(start, run):
    for kind in ("fairway", "memcached"):
        with start(kind) as old:
            assert_done(run("dump", "--server", place(old), "none.dump"))
            assert_done(run("load", "--server", place(old), "none.dump"))


def test_pipes(start, run, fairway, tmp_path):
    """What goes to stdout is the dump alone; the figures go to stderr then."""
    items = some(500)
    with start() as old, start() as new, old.connect() as client:
        fill(client, items)
        done = run("dump", "--server", place(old), "-")
        assert done.returncode == 0 and done.stderr.startswith(b"-: dumped %d items" % len(items))
        (tmp_path / "piped.dump").write_bytes(done.stdout)
        done = run("load", "--server", place(new), "-", stdin=None, input=done.stdout)
        assert_done(done)
        with new.connect() as client:
            check(client, items)
        assert_done(run("load", "--check", "piped.dump"))


def test_json(start, run):
    with start() as old, old.connect() as client:
        fill(client, [Item(b"a", b"12345"), Item(b"b", b"")])
        told = json.loads(run("dump", "--json", "--server", place(old), "two.dump").stdout)
        assert told.pop("seconds") > 0
        assert told == {"file": "two.dump", "items": 2, "bytes": 7, "expired": 0, "present": 0, "failed": 0}


def test_progress_is_for_terminals(start, fairway, tmp_path):
    """On a terminal a line grows; elsewhere test_from_server_to_server has seen that nothing is said."""
    with start() as old, old.connect() as client:
        fill(client, some(100))
        ours, theirs = pty.openpty()
        done = subprocess.run([str(fairway), "dump", "--server", place(old), "seen.dump"], cwd=tmp_path, check=True,
                              stdout=subprocess.PIPE, stderr=theirs, timeout=PATIENCE_S)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # All was read, and nobody has the other end.
            while True:
                shown += os.read(ours, 4096)
        os.close(ours)
    assert b"items/s" in shown and shown.endswith(b"\r\033[K")
    assert done.stdout.startswith(b"seen.dump: dumped ")


def damage(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_damage_is_refused(start, run, tmp_path):
    dump = tmp_path / "bad.dump"
    items = some(300)
    with start() as old, start() as new, old.connect() as client:
        fill(client, items)
        assert_done(run("dump", "--server", place(old), dump.name))
        whole = dump.read_bytes()
        damage(dump, len(whole) - 200)
        for extra in (["--check"], ["--server", place(new)]):
            assert_failed(run("load", *extra, dump.name), "bad.dump: damaged at byte ", "the checksum of block ")
        dump.write_bytes(whole[:-1])
        assert_failed(run("load", "--server", place(new), dump.name), f"cut short at byte {len(whole) - 1}")
        dump.write_bytes(b"key=value\n" * 100)
        assert_failed(run("load", "--server", place(new), dump.name), "this is no dump")
        dump.write_bytes(b"")
        assert_failed(run("load", "--server", place(new), dump.name), "this is no dump")
        assert int(new.stat("cmd_set")) == 0, "something of a damaged file was loaded"
        # A pipe cannot be looked at before: it is loaded up to the damage.
        done = run("load", "--server", place(new), "-", stdin=None, input=whole[:-1])
        assert_failed(done, f"-: cut short at byte {len(whole) - 1}")


def test_no_half_file(start, run, tmp_path):
    """Neither a full disk, nor a file size limit, nor a server that refuses leaves something behind."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

    with start() as old, start("fairway", "-X") as closed, old.connect() as client:
        fill(client, some(1000))
        assert_failed(run("dump", "--server", place(old), "/dev/full"), "/dev/full", "No space left", "make room")
        assert_failed(run("dump", "--server", place(old), "big.dump", preexec_fn=limit), "big.dump", "ulimit -f")
        assert_failed(run("dump", "--server", place(closed), "no.dump"), "the server answers: CLIENT_ERROR dump not allowed")
        assert_failed(run("dump", "--server", place(old), "no/such.dump"), "no/such.dump", "No such file")
        (tmp_path / "kept.dump").write_bytes(b"from yesterday")
        assert_failed(run("dump", "--server", place(closed), "kept.dump"))
        assert (tmp_path / "kept.dump").read_bytes() == b"from yesterday"
    assert os.listdir(tmp_path) == ["kept.dump"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(start, run, fairway, tmp_path, number):
    """A server that stands still keeps the tools waiting until a signal ends them."""
    with start() as old, old.connect() as client:
        fill(client, some(100))
        assert_done(run("dump", "--server", place(old), "all.dump"))
        stop(old.process.pid)
        try:
            for tool in (["dump", "new.dump"], ["load", "all.dump"]):
                waiting = subprocess.Popen([str(fairway), *tool, "--server", place(old), "--timeout", "1h"],
                                           cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                # It blocks the signals before it connects, so this one cannot come too early.
                wait_until(lambda: signals_are_blocked(waiting.pid, number), "waiting for the server")
                waiting.send_signal(number)
                out, errors = waiting.communicate(timeout=PATIENCE_S)
                assert (out, waiting.returncode) == (b"", FAILED)
                assert b": interrupted" in errors
        finally:
            os.kill(old.process.pid, signal.SIGCONT)
    assert os.listdir(tmp_path) == ["all.dump"]


def signals_are_blocked(pid, number):
    with open(f"/proc/{pid}/status") as status:
        blocked = next(line for line in status if line.startswith("SigBlk:"))
    return int(blocked.split()[1], 16) >> (number - 1) & 1 == 1


def test_silent_server(start, run):
    with start() as old:
        stop(old.process.pid)
        try:
            assert_failed(run("dump", "--server", place(old), "--timeout", "100ms", "x"), "the server does not answer")
        finally:
            os.kill(old.process.pid, signal.SIGCONT)
    with bound_port() as port:
        assert_failed(run("dump", "--server", f"{ADDRESS}:{port}", "x"),
                      f"cannot connect to the server at {ADDRESS}:{port}", "Connection refused")


class Jealous(socketserver.StreamRequestHandler):
    """A memcached that answers no get before its list of keys was taken, as if it held a lock meanwhile."""

    def handle(self):
        while line := self.rfile.readline():
            if line.startswith(b"lru_crawler metadump"):
                self.wfile.write(self.server.keys + b"END\r\n")
                self.server.is_taken.set()
            elif line.startswith(b"mg "):
                self.server.is_taken.wait(PATIENCE_S)  # It is asked quietly: a miss has no answer.
            else:
                self.wfile.write({b"mn\r\n": b"MN\r\n", b"stats\r\n": b"END\r\n"}.get(line, b"ERROR\r\n"))


def test_a_list_of_keys_is_read_whatever_becomes_of_the_items(run):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Jealous) as server:
        server.daemon_threads = True
        server.is_taken = threading.Event()
        # More than sockets have room for.
        server.keys = b"".join(b"key=%0250d exp=-1 la=1 cas=1 fetch=no cls=1 size=100\r\n" % i for i in range(60_000))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = run("dump", "--server", "127.0.0.1:%d" % server.server_address[1], "items.dump")
        server.shutdown()
    assert_done(done)
    assert b"dumped 0 items" in done.stdout


def test_what_is_there_can_stay(start, run):
    with start() as old, start() as new, old.connect() as client, new.connect() as other:
        fill(client, [Item(b"a", b"old"), Item(b"b", b"old")])
        fill(other, [Item(b"b", b"new")])
        assert_done(run("dump", "--server", place(old), "two.dump"))
        told = json.loads(run("load", "--add", "--json", "--server", place(new), "two.dump").stdout)
        assert (told["items"], told["present"]) == (1, 1)
        check(other, [Item(b"a", b"old"), Item(b"b", b"new")])
        assert_done(run("load", "--server", place(new), "two.dump"))
        check(other, [Item(b"b", b"old")])


def test_items_that_do_not_fit(start, run):
    """They are counted, the others are loaded, and the first answer of the server is shown."""
    items = [Item(b"small%d" % i, b"x") for i in range(100)]
    with start("fairway", "-I", "4m") as old, start() as new, old.connect() as client:
        fill(client, items + [Item(b"big%d" % i, b"y" * 3000000) for i in range(3)])
        assert_done(run("dump", "--server", place(old), "mixed.dump"))
        done = run("load", "--server", place(new), "mixed.dump")
        assert done.returncode == FAILED and done.stdout.startswith(b"mixed.dump: loaded 100 items")
        assert b"3 items could not be loaded; the server answered: SERVER_ERROR object too large" in done.stderr
        with new.connect() as other:
            check(other, items)


def test_expired_items_stay_behind(start, run):
    with start() as old, start() as new, old.connect() as client:
        fill(client, [Item(b"short", b"1", ttl=1), Item(b"long", b"2", ttl=5000)])
        assert_done(run("dump", "--server", place(old), "two.dump"))
        # By the wall clock, which the loader looks at.
        start_s = time.time()
        wait_until(lambda: time.time() >= start_s + 2, "two seconds later")
        told = json.loads(run("load", "--json", "--server", place(new), "two.dump").stdout)
        assert (told["items"], told["expired"]) == (1, 1)
        with new.connect() as other:
            assert other.get(b"short") is None and other.get(b"long") == b"2"


def test_while_clients_write(start, run):
    """What is there during all of the dump is in it, while others come, change and go."""
    items = some(3000)
    with start() as old, start() as new, old.connect() as client:
        fill(client, items)
        over = threading.Event()
        rounds = []

        def write():
            with old.connect() as other:
                while not over.is_set():
                    number = 500 * len(rounds)
                    lines = [b"ms other%d 10 q\r\n0123456789\r\n" % (number + i) for i in range(500)]
                    if rounds:
                        lines += [b"md other%d q\r\n" % (number + i - 500) for i in range(500)]
                    other.send(b"".join(lines))
                    other.settled()
                    rounds.append(number)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            wait_until(lambda: len(rounds) > 1, "writing")
            for _ in range(5):
                assert_done(run("dump", "--server", place(old), "busy.dump"))
            assert writer.is_alive()
        finally:
            over.set()
            writer.join()
        assert_done(run("load", "--server", place(new), "busy.dump"))
        with new.connect() as other:
            check(other, items)


@pytest.mark.parametrize("arguments, message", [
    (["dump"], "dump takes one file, or - for standard output"),
    (["dump", "a", "b"], "dump takes one file"),
    (["dump", "--prefix", "a b", "x"], "--prefix: no spaces"),
    (["dump", "--server", "127.0.0.1:port", "x"], "127.0.0.1:port"),
    (["dump", "--connections", "65", "x"], "--connections: '65' is out of range"),
    (["load"], "load takes one file, or - for standard input"),
    (["load", "--ad", "x"], "--ad: there is no such option"),
])
def test_usage(run, tmp_path, arguments, message):
    assert_failed(run(*arguments), message, status=USAGE)
    assert os.listdir(tmp_path) == []


def test_missing_file(run):
    assert_failed(run("load", "no.dump"), "no.dump: cannot open no.dump: No such file")
