# SPDX-License-Identifier: Apache-2.0
"""Goal: a slave has what its master has, whatever happens to either, and clients of the master notice nothing.
Method: servers on this machine, clients that write while slaves come, freeze and die. Tables are compared whole,
by what clients can see, once the slave has confirmed the last change. No test waits for time to pass."""

import contextlib
import hmac
import re
import signal
import socket
import struct
import subprocess
import threading
import urllib.parse

import pytest
from served import START_S, Served, wait_for


def stats(client, group=b"replication"):
    client.send(b"stats %s\r\n" % group)
    rows = {}
    while (line := client.line()) != b"END\r\n":
        _, name, value = (line.decode().rstrip("\r\n") + " ").split(" ", 2)
        rows[name] = value.strip()
    return rows


def replication_address(server):
    return re.search(r"replication on (\S+)", server.read_log())[1]


@contextlib.contextmanager
def served(program, *arguments):
    """A server whose administration socket is gone with it, and a client of it."""
    with Served(program, "-t", "2", "--repl-enable", "--repl-port", "0", "--repl-retry", "10ms", *arguments) as server:
        yield server


HELLO_BYTES = b"\x80\xf0\0\0\x14\0\0\0\0\0\0\x14" + bytes(12) + b"\0\1" + bytes(18)
LONG = "600s"  # Time limits that a test must not meet.


def link_to(master, words, source=None):
    """A connection to a master that finds these words when it looks for the first time: it waits for one second only."""
    host, port = replication_address(master).rsplit(":", 1)
    master.stop()
    link = socket.create_connection((host, int(port)), START_S, source)
    link.sendall(words)
    master.process.send_signal(signal.SIGCONT)
    return link


@contextlib.contextmanager
def following(program, master, *arguments):
    with served(program, "--repl-master", replication_address(master), "--repl-serve-reads", *arguments) as slave:
        yield slave


def table_keys(client):
    """Every key with the time when it expires, -1 for never."""
    client.send(b"lru_crawler metadump all\r\n")
    keys = {}
    while (line := client.line()) != b"END\r\n":
        words = dict(word.split(b"=", 1) for word in line.split())
        keys[urllib.parse.unquote(words[b"key"].decode()).encode()] = int(words[b"exp"])
    return keys


def table(client):
    """Every key with value, flags, CAS and the time when it expires."""
    items = {}
    for key, expires in table_keys(client).items():
        first = client.ask(b"mg %s c f v\r\n" % key)
        if first == b"EN\r\n":
            continue  # It has expired meanwhile.
        words = first.split()
        value = client.file.read(int(words[1]) + 2)[:-2]
        flags = {word[:1]: word[1:] for word in words[2:]}
        items[key] = (value, flags[b"f"], flags[b"c"], expires)
    return items


def settle(master, slave):
    """Until every slave has confirmed everything; one that has ended is there for a moment. Returns what that is."""
    head = []

    def is_settled():
        rows = stats(master)
        slaves = [name.partition(":")[0] for name in rows if name.endswith(":state")]
        head[:] = [rows["position"]]
        return (slaves and all(rows[f"{slave}:state"] == "streaming" and
                               rows[f"{slave}:position_confirmed"] == head[0] for slave in slaves)
                and stats(slave).get("link") == "streaming")
    wait_for(is_settled)
    return head[0]


def assert_same(master, slave):
    """Compares all there is, at a moment in which nothing changes: items are also evicted in the background."""
    ours, theirs, begin, end = None, None, 0, 1
    while begin != end:
        begin = settle(master, slave)
        ours, theirs = table(master), table(slave)
        end = stats(master)["position"]
    assert ours.keys() == theirs.keys()
    for key, (value, flags, cas, expires) in ours.items():
        assert theirs[key][:3] == (value, flags, cas), key
        # It may have taken a while to get there.
        assert -2 <= theirs[key][3] - expires < START_S and (expires < 0) == (theirs[key][3] < 0), key
    return ours


def fill(client, count, size=20):
    for i in range(count):
        client.send(b"set key-%d %d %d %d noreply\r\n%s\r\n" % (i, i % 3, 1000 * (i % 2), size, b"%0*d" % (size, i)))
    assert client.ask(b"mn\r\n") == b"MN\r\n"


class Writers:
    """Clients that change a few keys in every way, until told to end."""

    def __init__(self, server, count=2):
        self.is_over = threading.Event()
        self.counts = [0] * count
        self.errors = []
        self.threads = [threading.Thread(target=self._run, args=(server, i)) for i in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        assert self.errors == []

    def _run(self, server, number):
        try:
            with server.connect() as client:
                while not self.is_over.is_set():
                    self._step(client, number, self.counts[number])
                    self.counts[number] += 1
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(error)

    @staticmethod
    def _step(client, number, step):
        shared, own = b"shared-%d" % (step % 50), b"own-%d-%d" % (number, step % 500)
        large = b"L" * 9000 if step % 40 == 0 else b"small"
        words = (b"set %s %d 0 5\r\n%05d\r\n" % (shared, number, step % 100000)
                 + b"set %s 0 500 %d\r\n%s\r\n" % (own, len(large), large)
                 + b"incr counter 1\r\nadd counter 0 0 1\r\n1\r\n"
                 + b"touch %s 300\r\n" % own)
        lines = 5
        if step % 3 == 0:
            words += b"delete shared-%d\r\n" % ((step * 7) % 50)
            lines += 1
        if step % 200 == 199:
            words += b"flush_all\r\n"
            lines += 1
        client.send(words)
        for _ in range(lines):
            assert client.line() != b""

    def proceed(self, steps=100):
        """Until all have done so many more."""
        goals = [count + steps for count in self.counts]
        wait_for(lambda: self.errors or all(count >= goal for count, goal in zip(self.counts, goals)))


def test_a_slave_that_joins_under_writes_misses_nothing(fairway):
    with served(fairway) as master, master.connect() as client:
        fill(client, 5000)
        client.set(b"large", b"v" * 300000)
        with Writers(master) as writers:
            writers.proceed(20)
            with following(fairway, master) as slave, slave.connect() as reader:
                wait_for(lambda: stats(reader)["link"] == "streaming")
                writers.proceed()
                writers.is_over.set()
                for thread in writers.threads:
                    thread.join()
                fill(client, 300)  # The last flush may have left little.
                client.set(b"large", b"w" * 300000)
                assert len(assert_same(client, reader)) > 300


def test_every_change_reaches_the_slave(fairway):
    with served(fairway) as master, master.connect() as client, following(fairway, master) as slave:
        with slave.connect() as reader:
            settle(client, reader)
            for words in (b"set a 5 5000 1\r\n1\r\n", b"incr a 41\r\n", b"touch a 1000\r\n", b"append a 0 0 1\r\nx\r\n",
                          b"set b 0 0 1\r\n1\r\n", b"delete b\r\n", b"set c 0 0 1\r\n1\r\n", b"flush_all\r\n",
                          b"set after 0 0 5\r\nflush\r\n", b"gat 5000 after\r\n"):
                assert client.ask(words) != b""
                if words.startswith(b"gat"):
                    assert client.line() == b"flush\r\n" and client.line() == b"END\r\n"
                items = assert_same(client, reader)
            assert list(items) == [b"after"]
            # An item that has expired is gone at both.
            client.ask(b"set short 0 1 1\r\n1\r\n")
            wait_for(lambda: client.get(b"short") is None and reader.get(b"short") is None)


def test_servers_say_where_they_are(fairway):
    """What a quorum compares: histories, positions and whether a copy is whole; and the registry has the same."""
    with served(fairway) as master, master.connect() as client:
        rows = stats(client, b"repl")
        assert (rows["role"], rows["complete"], rows["history"]) == ("master", "yes", "0" * 16)
        with following(fairway, master) as slave, slave.connect() as reader:
            settle(client, reader)
            client.set(b"a", b"1")
            position = settle(client, reader)
            ours, theirs = stats(client), stats(reader)
            assert ours["history"] == theirs["history"] != "0" * 16
            assert int(position) > 0 and ours["position"] == theirs["position"] == position
            assert (theirs["role"], theirs["complete"], ours["0:complete"]) == ("slave", "yes", "yes")
            assert ours["0:position_sent"] == ours["0:position_confirmed"] == position
            assert (ours["0:behind_bytes"], ours["0:behind_ms"]) == ("0", "0")
        nobody = served(fairway, "--repl-master", "127.0.0.1:1", "--repl-serve-reads")
        with nobody as slave, slave.connect() as reader:
            rows = stats(reader)
            assert (rows["complete"], rows["link"], rows["age_ms"]) == ("no", "connecting", "-1")


def test_evicted_items_are_removed_at_the_slave(fairway):
    with served(fairway, "-m", "2") as master, master.connect() as client, following(fairway, master) as slave:
        with slave.connect() as reader:
            settle(client, reader)
            fill(client, 20000, 200)
            assert int(stats(client, b"")["evictions"]) > 1000
            assert len(assert_same(client, reader)) < 20000


def test_a_slave_refuses_clients_or_serves_reads(fairway):
    with served(fairway) as master, master.connect() as client:
        client.set(b"a", b"1")
        address = replication_address(master)
        with served(fairway, "--repl-master", address) as slave, slave.connect() as refused:
            words = b"SERVER_ERROR this server is a slave and serves no clients; its master replicates at %s\r\n"
            for question in (b"get a\r\n", b"mg a v\r\n", b"set a 0 0 1\r\n2\r\n", b"incr a 1\r\n", b"gat 0 a\r\n"):
                assert refused.ask(question) == words % address.encode(), question
            wait_for(lambda: stats(refused)["complete"] == "yes")
            assert refused.ask(b"version\r\n").startswith(b"VERSION ") and refused.ask(b"mn\r\n") == b"MN\r\n"
            assert list(table_keys(refused)) == [b"a"]
        with following(fairway, master) as slave, slave.connect() as reader:
            settle(client, reader)
            assert reader.get(b"a") == b"1"
            words = b"SERVER_ERROR this server is a slave and takes no writes; its master replicates at %s\r\n"
            for question in (b"set a 0 0 1\r\n2\r\n", b"delete a\r\n", b"incr a 1\r\n"):
                assert reader.ask(question) == words % address.encode(), question
            assert reader.ask(b"flush_all\r\n") == words % address.encode()
            assert b"takes no writes" in reader.ask(b"mg new v N30\r\n")
            assert reader.get(b"a") == b"1"
            assert int(stats(reader)["age_ms"]) >= 0


def test_tools_work_at_a_slave_that_serves_nobody(fairway, tmp_path):
    with served(fairway) as master, master.connect() as client:
        fill(client, 10)
        with served(fairway, "--repl-master", replication_address(master)) as slave:
            wait_for(lambda: stats_of(slave)["complete"] == "yes")
            address = slave.addresses[0]
            for words in (("stats",), ("stats", "replication"), ("top", "--once"), ("dump", tmp_path / "dump")):
                done = subprocess.run([fairway, words[0], "--server", address, *words[1:]], capture_output=True, text=True,
                                      timeout=2 * START_S, check=False)
                assert done.returncode == 0, done.stderr
            assert "dumped 10 items" in done.stdout + done.stderr


def test_a_frozen_slave_is_dropped_at_its_bound_and_begins_anew(fairway):
    with served(fairway, "--repl-backlog", "64k", "--repl-timeout", LONG) as master, master.connect() as client:
        with following(fairway, master) as slave, slave.connect() as reader:
            settle(client, reader)
            slave.stop()
            try:
                # Each is answered while the slave is frozen, and more than the socket and the log hold.
                while stats(client)["drops"] == "0":
                    fill(client, 2000, 1000)
                wait_for(lambda: stats(client)["slaves"] == "0")
            finally:
                slave.process.send_signal(signal.SIGCONT)
            assert_same(client, reader)
            assert int(stats(client)["copies"]) >= 2


class Wire:
    """Between master and slave: what it carries can be cut."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.ends = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            self.ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    @staticmethod
    def _carry(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.is_cut = True
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.ends = []

    def mend(self):
        self.is_cut = False

    def close(self):
        self.cut()
        self.listener.close()


def test_a_short_disconnection_costs_what_was_missed(fairway):
    with served(fairway) as master, master.connect() as client:
        fill(client, 5000)
        wire = Wire(replication_address(master))
        with served(fairway, "--repl-master", wire.address, "--repl-serve-reads") as slave, slave.connect() as reader:
            assert len(assert_same(client, reader)) == 5000
            for cut in range(1, 4):
                before = int(stats(client)["items_sent"])
                wire.cut()
                wait_for(lambda: stats(client)["slaves"] == "0")
                client.set(b"missed-%d" % cut, b"1")
                assert client.ask(b"delete key-%d\r\n" % cut) == b"DELETED\r\n"
                wire.mend()
                assert_same(client, reader)
                rows = stats(client)
                assert (rows["copies"], rows["resumes"]) == ("1", str(cut))
                assert int(rows["items_sent"]) - before == 2
        wire.close()


def test_a_slave_that_was_killed_begins_anew(fairway):
    with served(fairway) as master, master.connect() as client:
        fill(client, 1000)
        with contextlib.suppress(AssertionError), following(fairway, master) as slave:
            with slave.connect() as reader:
                assert_same(client, reader)
            slave.process.kill()
            slave.process.wait()
        with following(fairway, master) as slave, slave.connect() as reader:
            assert len(assert_same(client, reader)) == 1000
        with served(fairway, "--repl-master", replication_address(master)):
            wait_for(lambda: stats(client)["slaves"] == "1")


def test_there_are_only_so_many_slaves(fairway):
    with served(fairway, "--repl-slaves", "1") as master, master.connect() as client:
        with following(fairway, master) as first, first.connect() as reader:
            settle(client, reader)
            with following(fairway, master) as second, second.connect() as other:
                wait_for(lambda: int(stats(client)["refused"]) > 0)
                assert stats(other)["link"] == "connecting"
            assert_same(client, reader)


@pytest.mark.parametrize("words", [b"get a\r\n" * 10, b"\x80" * 64, b"\x81\x0a" + bytes(22), bytes(600)])
def test_strangers_are_refused(fairway, words):
    with served(fairway) as master, master.connect() as client:
        with link_to(master, words) as stranger:
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
        wait_for(lambda: stats(client)["damaged"] == "1")


def test_machines_that_are_not_named_are_refused(fairway):
    with served(fairway, "--repl-admit", "127.0.0.2,127.0.0.3") as master, master.connect() as client:
        host, port = replication_address(master).rsplit(":", 1)
        with socket.create_connection((host, int(port)), START_S) as stranger:
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
        wait_for(lambda: stats(client)["refused"] == "1" and stats(client)["slaves"] == "0")
        with link_to(master, HELLO_BYTES, ("127.0.0.3", 0)) as named:
            assert named.recv(1) + named.recv(1) == b"\x81\xf0"


@pytest.mark.parametrize("round_", range(8))
def test_a_server_ends_while_a_copy_begins(fairway, round_):
    """Whose job it is to end the copy has been failed by the stop, and must notice the copy's end all the same."""
    with served(fairway) as master, link_to(master, HELLO_BYTES) as slave:
        assert slave.recv(1) + slave.recv(1) == b"\x81\xf0"


def message(opcode, extras=b"", key=b"", value=b""):
    body = extras + key + value
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(body), 0, 0) + body


SETQ, DELETEQ, TOUCH, NOOP = 0x11, 0x14, 0x1c, 0x0a


class FakeMaster:
    """A master of ours that says whatever the test wants: greets with a copy, and then sends marks."""
    WHOLE = 3 << 30

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(START_S)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.link = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        if self.link is not None:
            self.link.close()

    def greet(self, knows=0, history=7):
        self.link, _ = self.listener.accept()
        self.link.settimeout(START_S)
        assert self.link.recv(44, socket.MSG_WAITALL)[:2] == b"\x80\xf0"
        self.link.sendall(struct.pack(">BBHBBHIIQHHQQ", 0x81, 0xf0, 0, 20, 0, 0, 20, 0, 0, 1, knows << 8 | 2, history, 0))

    def mark(self, number):
        self.link.sendall(struct.pack(">BBHBBHIIQQ", 0x80, NOOP, 0, 8, 0, 0, 8, self.WHOLE, 1, number))


def test_the_end_of_the_numbers_is_told(fairway, tmp_path):
    """A slave becomes master where hardly any numbers are left: it takes nothing that it could not keep, and says why.
    What it has can be read and flushed, and a restart begins again, with all items."""
    sock, image = tmp_path / "admin", tmp_path / "items"
    slaves = ("--repl-serve-reads", "--admin-socket", sock, "--memory-file", image)
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, *slaves) as server:
        server.may_log_errors = True
        with server.connect() as reader:
            master.greet()
            master.link.sendall(message(SETQ, bytes(8), b"old", b"1"))
            master.mark(2**48 - 2**20 - 5)
            wait_for(lambda: stats(reader)["complete"] == "yes")
        assert admin(fairway, sock, "promote").returncode == 0
        with contextlib.closing(connect_to_master(server)) as client:
            assert client.get(b"old") == b"1"
            for words in (b"set a 0 0 1\r\n2\r\n", b"incr old 1\r\n", b"ms a 1\r\n2\r\n", b"delete old\r\n", b"gat 9 old\r\n",
                          b"mg new v N30\r\n"):
                assert client.ask(words) == (b"SERVER_ERROR the item numbers are used up, "
                                             b"the server has to be restarted\r\n"), words
            assert client.get(b"old") == b"1" and client.get(b"a") is None
    assert "the item numbers are used up" in server.read_log_at_end
    with Served(fairway, "--memory-file", image) as server, server.connect() as client:
        assert client.get(b"old") == b"1"
        assert client.ask(b"flush_all\r\n") == b"OK\r\n"
        client.set(b"a", b"2")
        assert client.get(b"old") is None and client.get(b"a") == b"2"


def connect_to_master(server):
    """A client that stays: those that come before the server is master are closed."""
    while True:
        client = server.connect()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            if client.ask(b"mn\r\n") == b"MN\r\n" and stats(client)["role"] == "master":
                return client
        client.close()


@pytest.mark.parametrize("number", [2**48, 2**64 - 1])
def test_a_mark_with_a_number_that_cannot_be_ends_the_link(fairway, tmp_path, number):
    sock = tmp_path / "admin"
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads",
                                        "--admin-socket", sock) as server:
        with server.connect() as reader:
            master.greet()
            master.mark(1000)
            wait_for(lambda: stats(reader)["complete"] == "yes")
            master.mark(number)
            wait_for(lambda: stats(reader)["damaged"] == "1")
        assert admin(fairway, sock, "promote").returncode == 0
        with contextlib.closing(connect_to_master(server)) as client:
            cas = int(client.ask(b"ms a 1 c\r\n1\r\n").split()[1][1:])
            assert 1000 + 2**30 < cas < 1000 + 2**32


def test_a_master_that_does_not_greet_is_followed(fairway):
    """What yrmcds 1.1.9 does: it takes no notice of the greeting, sends all, and waits for heartbeats."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(START_S)
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        with served(fairway, "--repl-master", address, "--repl-admit-others", "--repl-serve-reads",
                    "--repl-timeout", LONG) as slave:
            master, _ = listener.accept()
            with master, slave.connect() as reader:
                master.settimeout(START_S)
                master.sendall(message(SETQ, struct.pack(">II", 5, 0), b"a", b"abc") +
                               message(SETQ, struct.pack(">II", 0, 2**31), b"b", b"x" * 20000))
                wait_for(lambda: reader.get(b"a") == b"abc" and reader.get(b"b") == b"x" * 20000)
                master.sendall(message(TOUCH, struct.pack(">I", 2**31), b"a") + message(DELETEQ, b"", b"b"))
                wait_for(lambda: reader.get(b"b") is None)
                heard = b""
                while message(NOOP) not in heard:
                    heard += (more := master.recv(100))
                    assert more, "the slave has ended the link"


def test_a_slave_that_does_not_greet_is_told_of_every_item(fairway):
    """As yrmcds 1.1.9, which says a zero byte every second, also before it was sent anything, and takes SetQ, DeleteQ
    and Touch without CAS; anything else it takes for an error."""
    with served(fairway, "--repl-admit-others") as master, master.connect() as client:
        client.set(b"a", b"1")
        client.set(b"large", b"x" * 900000)
        host, port = replication_address(master).rsplit(":", 1)
        with socket.create_connection((host, int(port)), START_S) as slave:
            slave.sendall(b"\0")
            told = Plain(slave)
            told.wait_for(lambda: len(told.items) == 2)
            slave.sendall(b"\0" * 1000)
            client.ask(b"touch a 1000\r\n")
            client.set(b"b", b"2")
            told.wait_for(lambda: b"b" in told.items)
            assert 900 < told.lives[b"a"] <= 1000 and told.items == {b"a": b"1", b"b": b"2", b"large": b"x" * 900000}
            client.ask(b"flush_all\r\n")
            for key in (b"a", b"b", b"large"):
                assert client.get(key) is None  # So it is found that it was flushed.
            told.wait_for(lambda: told.items == {})
            rows = stats(client)
            assert (rows["slaves"], rows["copies"], rows["damaged"], rows["silent"]) == ("1", "1", "0", "0")
            assert (rows["0:ours"], rows["0:position_confirmed"]) == ("no", "0")


class Plain:
    """What a slave is told that knows only the plain form, and fails on anything else."""

    def __init__(self, link):
        self.file = link.makefile("rb")
        self.items, self.lives = {}, {}

    def read(self, length):
        found = self.file.read(length)
        assert len(found) == length, "the link has ended"
        return found

    def hear(self):
        magic, opcode, key_length, extras, kind, vbucket, length, _, cas = struct.unpack(">BBHBBHIIQ", self.read(24))
        assert (magic, kind, vbucket, cas) == (0x80, 0, 0, 0)
        assert extras == {SETQ: 8, DELETEQ: 0}[opcode]  # A touch brings the whole item: this one may have dropped it.
        body = self.read(length)
        key, value = body[extras:extras + key_length], body[extras + key_length:]
        assert len(key) > 0 and (value == b"" or opcode == SETQ)
        if opcode == SETQ:
            self.items[key] = value
            self.lives[key] = int.from_bytes(body[4:8], "big")
        elif opcode == DELETEQ:
            self.items.pop(key, None)

    def wait_for(self, condition):
        while not condition():
            self.hear()


SECRET = "correct horse battery staple"


def secret_file(tmp_path, text=SECRET, name="secret"):
    path = tmp_path / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def test_who_knows_the_secret_may_follow(fairway, tmp_path):
    right, wrong = secret_file(tmp_path), secret_file(tmp_path, "something else entirely", "wrong")
    with served(fairway, "--repl-secret-file", right) as master, master.connect() as client:
        client.set(b"a", b"1")
        slaves = ("--repl-serve-reads", "--repl-master", replication_address(master))
        with served(fairway, *slaves, "--repl-secret-file", right) as slave, slave.connect() as reader:
            assert list(assert_same(client, reader)) == [b"a"]
            for arguments, reason in (((), "the master wants a secret: --repl-secret-file"),
                                      (("--repl-secret-file", wrong), "the master refused the secret")):
                with served(fairway, *slaves, *arguments) as stranger, stranger.connect() as nobody:
                    wait_for(lambda: int(stats(nobody)["connects"]) > 2)  # pylint: disable=cell-var-from-loop
                    wait_for(lambda: stats(nobody).get("reason") == reason)  # pylint: disable=cell-var-from-loop
                    rows = stats(nobody)
                    assert (rows["complete"], rows["history"]) == ("no", "0" * 16)
                    assert stats(nobody, b"")["curr_items"] == "0"
            wait_for(lambda: int(stats(client)["unproven"]) >= 1)
            while "does not know the secret" not in (line := master.process.stderr.readline()):
                assert line != ""
            assert list(assert_same(client, reader)) == [b"a"]


def test_a_master_has_to_prove_it_too(fairway, tmp_path):
    with served(fairway) as master, master.connect() as client:
        client.set(b"a", b"1")
        with following(fairway, master, "--repl-secret-file", secret_file(tmp_path)) as slave, slave.connect() as reader:
            wait_for(lambda: stats(reader)["unproven"] != "0")
            wait_for(lambda: stats(reader).get("reason") == "the master does not know the secret")
            assert stats(reader, b"")["curr_items"] == "0" and stats(reader)["complete"] == "no"


def proof(master_nonce, slave_nonce, role=b"slave", secret=SECRET):
    mac = hmac.new(secret.encode(), b"fairway ".ljust(8) + role.ljust(8, b"\0") + master_nonce + slave_nonce, "sha256")
    return slave_nonce + mac.digest()


def heard(link):
    """One message of the master: opcode and value; nothing if it has ended the link."""
    with contextlib.suppress(ConnectionResetError), link.makefile("rb", buffering=0) as file:
        if header := read_all(file, 24):
            return header[1], read_all(file, struct.unpack(">I", header[8:12])[0])
    return None


def read_all(file, size):
    """So many bytes, or fewer if the link ends before."""
    found = b""
    while len(found) < size and (more := file.read(size - len(found))):
        found += more
    return found


@pytest.mark.parametrize("lie", ["none", "replay", "role", "secret", "garbage", "again", "early", "short"])
def test_only_a_fresh_proof_is_taken(fairway, tmp_path, lie):
    """What was overheard, made for the other role, or made up, is refused, logged and counted."""
    secret = ("--repl-secret-file", secret_file(tmp_path), "--repl-timeout", LONG)
    with served(fairway, *secret) as master, master.connect() as client:
        with link_to(master, HELLO_BYTES) as first:
            opcode, nonce = heard(first)
            assert (opcode, len(nonce)) == (0xf1, 16)
            overheard = proof(nonce, b"n" * 16)
            first.sendall(message(0xf2, value=overheard))
            opcode, answer = heard(first)
            assert opcode == 0xf2 and answer == proof(nonce, b"n" * 16, b"master")[16:]
            assert heard(first)[0] == 0xf0
        with link_to(master, HELLO_BYTES) as second:
            _, fresh = heard(second)
            assert fresh != nonce
            words = {"none": proof(fresh, b"m" * 16), "replay": overheard, "role": proof(fresh, b"m" * 16, b"master"),
                     "secret": proof(fresh, b"m" * 16, secret="another of sixteen"), "garbage": bytes(48)}
            if lie in words:
                second.sendall(message(0xf2, value=words[lie]))
            elif lie == "short":
                second.sendall(message(0xf2, value=bytes(47)))
            else:
                second.sendall(HELLO_BYTES if lie == "again" else message(SETQ, bytes(8), b"a", b"1"))
            if lie == "none":
                assert heard(second)[0] == 0xf2 and heard(second)[0] == 0xf0
                return
            assert heard(second) is None
        counter = "unproven" if lie in words else "damaged"
        wait_for(lambda: stats(client)[counter] == "1")


def strange(server, count, source="127.0.0.1"):
    """Peers that have greeted, were challenged, and prove nothing."""
    host, port = replication_address(server).rsplit(":", 1)
    peers = []
    for _ in range(count):
        peers.append(socket.create_connection((host, int(port)), START_S, (source, 0)))
        peers[-1].sendall(HELLO_BYTES)
    return peers


def test_unknown_peers_take_no_places_of_slaves(fairway, tmp_path):
    """There is one place, and six peers greet before the slave comes. They could prove something for an hour."""
    secret = ("--repl-secret-file", secret_file(tmp_path))
    with served(fairway, *secret, "--repl-slaves", "1", "--repl-timeout", "1h") as master, master.connect() as client:
        peers = strange(master, 6)
        for peer in peers:
            assert heard(peer)[0] == 0xf1
        assert stats(client)["slaves"] == "0"
        with following(fairway, master, *secret) as slave, slave.connect() as reader:
            settle(client, reader)
            assert stats(client)["slaves"] == "1"
            for peer in peers:  # Each is closed when its time is over.
                assert heard(peer) is None
            assert stats(reader)["link"] == "streaming"
        for peer in peers:
            peer.close()


def test_a_flood_of_unknown_peers_keeps_no_slave_out(fairway, tmp_path):
    """More peers than there are places even for those who only greet, and as many again for each that is closed."""
    secret = ("--repl-secret-file", secret_file(tmp_path))
    admitted = ("--repl-admit", "127.0.0.1,127.0.0.2", "--repl-timeout", "1h")
    with served(fairway, *secret, *admitted) as master, master.connect() as client:
        peers = strange(master, 100, "127.0.0.2")
        while stats(client)["refused"] == "0":  # On a busy machine the first have gone before the last come.
            peers += strange(master, 50, "127.0.0.2")
        with following(fairway, master, *secret) as slave, slave.connect() as reader:
            while stats(reader)["link"] != "streaming":
                peers += strange(master, 1, "127.0.0.2")
            settle(client, reader)
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("text", ["short", "x" * 2000])
def test_what_is_no_secret_is_refused_at_the_start(fairway, tmp_path, text):
    done = subprocess.run([fairway, "serve", "--listen", "127.0.0.1:0", "--repl-enable", "--repl-port", "0",
                           "--repl-secret-file", secret_file(tmp_path, text)], capture_output=True, text=True,
                          timeout=START_S, check=False)
    assert done.returncode != 0 and "--repl-secret-file" in done.stderr


def test_a_client_that_closes_its_half_is_answered_and_gone(fairway):
    """Also one that has more replies under way than its socket takes; none stays open when it has got them."""
    with served(fairway) as master, master.connect() as client:
        client.set(b"large", b"v" * 100000)
        for words, size in ((b"set a 0 0 1\r\n1\r\n", 8), (b"get large\r\n" * 100, 100 * 100029), (b"set b 0 0 9\r\nhalf", 0)):
            with master.connect() as half:
                half.send(words)
                half.socket.shutdown(socket.SHUT_WR)
                assert len(half.file.read()) == size
        wait_for(lambda: stats(client, b"")["curr_connections"] == "1")
        assert client.get(b"a") == b"1" and client.get(b"b") is None


def test_a_link_that_is_half_closed_is_gone(fairway):
    with served(fairway) as master, master.connect() as client:
        with link_to(master, HELLO_BYTES) as slave:
            assert slave.recv(1) + slave.recv(1) == b"\x81\xf0"
            slave.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while slave.recv(1000):
                    pass
        wait_for(lambda: stats(client)["slaves"] == "0")


def test_items_of_a_clean_stop_are_replicated(fairway, tmp_path):
    """A master begins with what it had, and tells its slaves; a slave forgets what it had, and keeps what it was told."""
    images = [tmp_path / "master", tmp_path / "slave"]
    with served(fairway, "--memory-file", images[0]) as master, master.connect() as client:
        fill(client, 500)
    with served(fairway, "--memory-file", images[1]) as server, server.connect() as client:
        client.set(b"other", b"1")
    with served(fairway, "--memory-file", images[0]) as master, master.connect() as client:
        with following(fairway, master, "--memory-file", images[1]) as slave, slave.connect() as reader:
            assert len(assert_same(client, reader)) == 500
            assert reader.get(b"other") is None
            client.set(b"new", b"1")
            settle(client, reader)
    with served(fairway, "--memory-file", images[1]) as server, server.connect() as client:
        assert len(table(client)) == 501 and client.get(b"new") == b"1"


def admin(fairway, path, *words):
    return subprocess.run([fairway, "admin", "--socket", path, *words], capture_output=True, text=True,
                          timeout=START_S, check=False)


def test_roles_change_by_command(fairway, tmp_path):
    paths = [tmp_path / "0.sock", tmp_path / "1.sock"]
    with served(fairway, "--admin-socket", paths[0]) as master, master.connect() as client:
        fill(client, 500)
        assert admin(fairway, paths[0], "demote").returncode == 1  # It knows no master.
        with following(fairway, master, "--admin-socket", paths[1]) as slave, slave.connect() as reader:
            before = assert_same(client, reader)
            highest = max(int(item[2]) for item in before.values())
            assert admin(fairway, paths[1], "promote").returncode == 0
            wait_for(lambda: stats(reader)["role"] == "master")
            wait_for(lambda: stats(client)["slaves"] == "0")
            # It has what the old one had, serves, and no CAS is given twice.
            assert table(reader).keys() == before.keys()
            client.set(b"unheard", b"1")
            reader.set(b"new", b"1")
            cas = int(reader.ask(b"mg new c\r\n").split()[1][1:])
            assert 2**30 < cas - highest < 2**32
            # A demoted server drops its clients at once and forgets what it had; no slave has that, and the command says so.
            demoted = admin(fairway, paths[1], "demote")
            assert demoted.returncode == 1 and "not every slave" in str(demoted.stderr)
            assert reader.at_end()
            wait_for(lambda: stats_of(slave).get("link") == "streaming")
            with slave.connect() as again:
                assert_same(client, again)
                assert again.get(b"new") is None and again.get(b"unheard") == b"1"


def test_a_file_makes_the_master(fairway, tmp_path):
    """Two that follow each other, by the address where the master is: a file says which of them that is."""
    with served(fairway) as first, first.connect() as client:
        client.set(b"a", b"1")
        file = tmp_path / "master"
        with following(fairway, first, "--repl-master-file", file) as server:
            for _ in range(3):
                wait_for(lambda: stats_of(server).get("complete") == "yes")
                file.write_text("")
                wait_for(lambda: stats_of(server).get("role") == "master")
                with server.connect() as writer:
                    assert writer.get(b"a") == b"1"
                    writer.set(b"b", b"1")
                    file.unlink()
                    assert writer.at_end()
                wait_for(lambda: stats_of(server).get("role") == "slave")
        file.write_text("")  # One that finds it begins as master.
        with following(fairway, first, "--repl-master-file", file) as server:
            wait_for(lambda: stats_of(server).get("role") == "master")


def stats_of(server, address=None):
    """By a new client; nothing while it is refused."""
    with server.connect(address) as client:
        try:
            return stats(client)
        except (ValueError, ConnectionResetError, BrokenPipeError):
            return {}


@pytest.mark.needs("user-namespaces")
def test_the_virtual_address_makes_the_master(fairway, tmp_path):
    program = tmp_path / "fairway"  # In a network of its own, which is the process's.
    program.write_text(f"#!/bin/sh\nexec unshare -Urn sh -c 'PATH=$PATH:/sbin:/usr/sbin; ip link set lo up;"
                       f" exec \"$@\"' sh {fairway} \"$@\"\n")
    program.chmod(0o755)
    path = tmp_path / "socket"
    with Served(program, "-t", "2", "--unix-socket", str(path), "--repl-enable", "--repl-serve-reads",
                "--repl-virtual-address", "10.9.8.7", "--repl-retry", "10ms", listen=None) as server:
        def move(what):
            subprocess.run(["nsenter", "-t", str(server.process.pid), "-U", "-n", "--preserve-credentials", "sh", "-c",
                            f"PATH=$PATH:/sbin:/usr/sbin; ip address {what} 10.9.8.7/32 dev lo"], check=True)
        for _ in range(3):
            wait_for(lambda: stats_of(server).get("role") == "slave")
            move("add")
            wait_for(lambda: stats_of(server).get("role") == "master")
            with server.connect() as client:
                client.set(b"a", b"1")
                move("delete")
                assert client.at_end()


def refused_at_start(fairway, *arguments):
    done = subprocess.run([fairway, "serve", "--listen", "127.0.0.1:0", *arguments], capture_output=True, text=True,
                          timeout=2 * START_S, check=False)
    assert done.returncode == 64
    return done.stderr


@pytest.mark.parametrize("arguments", [("--repl-master", "127.0.0.1"), ("--repl-virtual-address", "127.0.0.1"),
                                       ("--repl-master-file", "/tmp/master"), ("--repl-role", "slave")])
def test_who_is_master_needs_replication(fairway, arguments):
    """A server that was told so and does not replicate would serve alone."""
    words = refused_at_start(fairway, *arguments)
    assert arguments[0] in words and "add --repl-enable" in words


def test_a_secret_that_everyone_may_read_is_refused(fairway, tmp_path):
    path = secret_file(tmp_path)
    path.chmod(0o644)
    words = refused_at_start(fairway, "--repl-enable", "--repl-port", "0", "--repl-secret-file", path)
    assert "--repl-secret-file" in words and f"chmod o= {path}" in words


def logged(server, words):
    """The line with these words in the log of a server that runs. It may have come before the server listened."""
    for line in server.read_log().splitlines():
        if words in line:
            return line
    while words not in (line := server.process.stderr.readline()):
        assert line != ""
    return line


def test_the_port_for_clients_is_no_master(fairway):
    """That of a memcached, or of one of ours: the log says which port is meant."""
    with Served(fairway) as server:
        with served(fairway, "--repl-master", server.addresses[0]) as slave:
            line = logged(slave, "no link to the master")
            assert server.addresses[0] in line and "--repl-port" in line


def test_a_master_of_another_kind_is_named(fairway):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(START_S)
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        with served(fairway, "--repl-master", address, "--repl-retry", "1h") as slave:
            master, _ = listener.accept()
            with master:
                master.sendall(message(SETQ, bytes(8), b"a", b"abc"))
                assert "--repl-admit-others" in logged(slave, "no link to the master")


def test_a_master_that_refuses_is_told_so(fairway):
    with served(fairway, "--repl-admit", "127.0.0.2") as master:
        with served(fairway, "--repl-master", replication_address(master)) as slave:
            assert "its log says why" in logged(slave, "no link to the master")


def test_a_name_that_does_not_resolve_is_asked_for_again(fairway):
    """It may be the resolver that is not there yet: the slave starts, and says what it waits for."""
    with served(fairway, "--repl-master", "nobody.invalid:1234", "--repl-serve-reads") as slave:
        assert "nobody.invalid:1234: its name does not resolve; trying again" in logged(slave, "no link to the master")
        with slave.connect() as reader:
            rows = stats(reader)
            assert (rows["role"], rows["link"], rows["master"]) == ("slave", "connecting", "nobody.invalid:1234")
