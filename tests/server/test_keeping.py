# SPDX-License-Identifier: Apache-2.0
"""Goal: a slave drops an item only when its master says so, or says that it could not keep all; and a slave that
becomes master has the items that clients read, and goes on to keep them.
Method: masters that the test plays itself, which send more than there is memory for; and two servers of which one is
killed while clients read the same keys again and again, beside a stream of new ones."""

import contextlib
import socket
import struct
import threading
import time

import pytest
from served import START_S, wait_for
from test_repl import (LONG, NOOP, SETQ, TOUCH, FakeMaster, Wire, admin, assert_same, fill, following, heard, logged,
                       message, refused_at_start, replication_address, served, settle, stats, stats_of, table)
from test_replica import MasterKilled, greeted

EVICTED, ABOUT = 0xf4, 0xf6
KNOWS_EXPIRY, KNOWS_MEMORY, KNOWS_ECHO, KNOWS_DATES = 2, 4, 16, 32
MIB = 1 << 20
MANY = 1 << 20


def about(memory, items=0, origin=1, history=0, position=0, server=1, number=0, date=0):
    return message(ABOUT, b"", b"", struct.pack(">8Q", memory, items, origin, history, position, number, server, date))


def test_a_slave_of_less_memory_is_refused(fairway):
    with served(fairway, "-m", "8") as master, master.connect() as client:
        arguments = ("-m", "4", "--repl-master", replication_address(master), "--repl-serve-reads")
        with served(fairway, *arguments) as slave, slave.connect() as reader:
            assert "--repl-smaller" in logged(slave, "no link to the master")
            rows = stats(reader)
            assert (rows["complete"], rows["reason"]) == ("no", "less memory than the master")
            wait_for(lambda: stats(client)["slaves"] == "0")
        with served(fairway, *arguments, "-m", "8") as slave, slave.connect() as reader:
            wait_for(lambda: stats(reader)["complete"] == "yes")
            # The master gets more while it runs.
            assert client.ask(b"cache_memlimit 16\r\n") == b"OK\r\n"
            assert "--repl-smaller" in logged(slave, "no link to the master")


def test_the_memory_of_a_slave_is_not_changed(fairway):
    """With less than its master it could not keep all items."""
    with served(fairway, "-m", "16") as master, master.connect() as client, \
            following(fairway, master, "-m", "16") as slave, slave.connect() as reader:
        settle(client, reader)
        assert reader.ask(b"cache_memlimit 8\r\n").startswith(b"SERVER_ERROR this server is a slave")
        assert stats(reader, b"")["limit_maxbytes"] == str(16 * MIB) and stats(reader)["complete"] == "yes"


def test_a_slave_of_less_memory_that_is_allowed_is_never_complete(fairway, tmp_path):
    sock = tmp_path / "admin"
    with served(fairway, "-m", "8", "--repl-ack", "1") as master, master.connect() as client:
        with following(fairway, master, "-m", "4", "--repl-smaller", "--admin-socket", sock) as slave, \
                slave.connect() as reader:
            wait_for(lambda: stats(client).get("0:complete") == "no" and stats(reader)["link"] == "streaming")
            rows = stats(reader)
            assert (rows["complete"], rows["reason"]) == ("no", "less memory than the master")
            # It confirms nothing.
            assert client.ask(b"set a 0 0 1\r\n1\r\n") == b"SERVER_ERROR out of capacity, try again later\r\n"
            assert admin(fairway, sock, "promote").returncode == 1
            assert admin(fairway, sock, "promote", "force").returncode == 0


def test_a_slave_that_is_full_says_so_and_drops_nothing(fairway):
    with FakeMaster() as master, served(fairway, "-m", "2", "--repl-master", master.address,
                                        "--repl-serve-reads") as slave, slave.connect() as reader:
        master.greet(KNOWS_MEMORY)
        master.link.sendall(about(2 * MIB))
        master.mark(5)
        wait_for(lambda: stats(reader)["complete"] == "yes")
        with contextlib.suppress(ConnectionError):
            for i in range(4 * MIB // 1000):
                master.link.sendall(message(SETQ, bytes(8), b"key-%d" % i, bytes(1000)))
        wait_for(lambda: stats(reader)["complete"] == "no")
        rows = stats(reader)
        assert (rows["overflows"], rows["reason"]) == ("1", "an item did not fit in memory")
        rows = stats(reader, b"")
        assert rows["evictions"] == "0" and int(rows["curr_items"]) > MIB // 1000
        # The next greeting asks for a copy, and when that fits all is well.
        master.greet(KNOWS_MEMORY)
        master.link.sendall(about(2 * MIB) + message(SETQ, bytes(8), b"a", b"1"))
        master.mark(5)
        wait_for(lambda: stats(reader)["complete"] == "yes")
        assert "reason" not in stats(reader) and stats(reader, b"")["curr_items"] == "1"


def test_evictions_are_told_before_what_needs_their_room(fairway):
    """So a slave never has more than its master had at any time: some, for what is under way."""
    with served(fairway, "-m", "2") as master, master.connect() as client:
        slave, answer = greeted(master, KNOWS_MEMORY)
        assert answer == bytes([KNOWS_MEMORY, 2])
        with slave:
            for i in range(20000):
                client.send(b"set key-%d 0 0 200 noreply\r\n%s\r\n" % (i, bytes(200)))
            assert client.ask(b"set last 0 0 1\r\n1\r\n") == b"STORED\r\n"
            held, most, batches, evicted = set(), 0, 0, 0
            while b"last" not in held:
                opcode, body = heard(slave)
                if opcode == SETQ:
                    held.add(body[8:].rstrip(b"\0") if body[8:] != b"last1" else b"last")
                elif opcode == EVICTED:
                    batches += 1
                    while body:
                        evicted += 1
                        held.discard(body[9:9 + body[8]])
                        body = body[9 + body[8]:]
                elif opcode == NOOP:
                    slave.sendall(struct.pack(">BBHBBHI4sQ", 0x81, NOOP, 0, 0, 0, 0, 0, bytes(4), 0))
                most = max(most, len(held))
            assert evicted > 8000 and batches < evicted / 2
            assert most < int(stats(client, b"")["curr_items"]) * 1.25


def test_reads_from_a_slave_are_bounded_by_age(fairway):
    """Of a master that says nothing nobody knows what it has by now."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads", "500ms",
                                        "--repl-timeout", LONG) as slave, slave.connect() as reader:
        where = master.address.encode()
        torn = b"SERVER_ERROR this server is a slave whose copy is not whole; its master replicates at %s\r\n" % where
        old = b"SERVER_ERROR this slave is too far behind its master, which replicates at %s\r\n" % where
        assert reader.ask(b"get a\r\n") == torn
        master.greet()
        master.link.sendall(message(SETQ, bytes(8), b"a", b"1"))
        assert reader.ask(b"mg a v\r\n") == torn
        for _ in range(2):
            # A machine that stands still between the two makes this old; then it is asked for again.
            answers = set()
            while b"VALUE a 0 1\r\n" not in answers:
                master.mark(5)
                wait_for(lambda: stats(reader)["complete"] == "yes")
                answers.add(answer := reader.ask(b"get a\r\n"))
                assert answer in (b"VALUE a 0 1\r\n", old)
            reader.ask(b"", 2)
            wait_for(lambda: reader.ask(b"mg a\r\n") == old)
        assert reader.ask(b"set a 0 0 1\r\n2\r\n").startswith(b"SERVER_ERROR this server is a slave and takes no writes")
        assert stats(reader)["complete"] == "yes"  # And figures are to be had.


def test_the_age_of_a_copy_counts_from_when_the_slave_asked(fairway):
    """Marks that were under way for long come again and again, and make nothing younger."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads", "500ms",
                                        "--repl-timeout", LONG) as slave, slave.connect() as reader:
        def mark(echo):
            """Sends one, and waits for the answer: what time it is at the slave."""
            master.link.sendall(struct.pack(">BBHBBHIIQQQ", 0x80, NOOP, 0, 16, 0, 0, 16, master.WHOLE, 1, 5, echo))
            answer = master.link.recv(24, socket.MSG_WAITALL)
            assert answer[:2] == b"\x81\x0a"
            return struct.unpack(">Q", answer[16:])[0]

        def is_old(key=b"a"):
            answer = reader.ask(b"mg %s\r\n" % key)
            assert answer == b"HD\r\n" or answer.startswith(b"SERVER_ERROR this slave is too far behind")
            return answer != b"HD\r\n"

        master.greet(KNOWS_ECHO)
        master.link.sendall(message(SETQ, bytes(8), b"a", b"1"))
        asked = mark(0)
        assert asked > 0 and stats(reader)["complete"] == "yes"
        for _ in range(2):
            while True:  # A machine that stands still between the two makes this old.
                asked = mark(asked)
                if not is_old():
                    break
            wait_for(lambda: mark(asked) and is_old())


@pytest.mark.parametrize("bound", ["1ms", "soon", "2h"])
def test_bounds_that_make_no_sense(fairway, bound):
    answer = refused_at_start(fairway, "--repl-enable", "--repl-master", "127.0.0.1:1", f"--repl-serve-reads={bound}")
    assert "yes, no or a duration" in answer and "250ms" in answer


def test_a_slave_of_an_idle_master_is_read_from(fairway):
    """A master that has nothing to say says so, often enough for the least bound."""
    with served(fairway) as master, master.connect() as client, \
            served(fairway, "--repl-master", replication_address(master), "--repl-serve-reads", "250ms") as slave, \
            slave.connect() as reader:
        client.set(b"a", b"1")
        settle(client, reader)
        hits = 0
        while hits < 2000:  # A machine that is slow may miss the bound at times.
            hits += reader.ask(b"mg a\r\n") == b"HD\r\n"


def test_a_whole_slave_is_not_emptied_by_a_master_that_lost_everything(fairway, tmp_path):
    """It keeps its items, says why, confirms nothing, becomes master by an order only, and follows by an order only."""
    sock, file = tmp_path / "admin", tmp_path / "master"
    with contextlib.ExitStack() as slaves:
        with contextlib.suppress(MasterKilled), served(fairway) as master, master.connect() as client:
            fill(client, 500)
            slave = slaves.enter_context(following(fairway, master, "--admin-socket", sock, "--repl-master-file", file))
            reader = slaves.enter_context(slave.connect())
            settle(client, reader)
            where = replication_address(master)
            assert "nothing to accept" in admin(fairway, sock, "accept").stderr
            master.process.kill()
            raise MasterKilled
        again = slaves.enter_context(served(fairway, "--repl-listen", where, "--repl-ack", "1"))
        client = slaves.enter_context(again.connect())
        wait_for(lambda: stats(reader)["link"] == "held")
        rows = stats(reader)
        assert rows["reason"].startswith("the master has less") and rows["complete"] == "no"
        assert stats(reader, b"")["curr_items"] == "500"
        assert client.ask(b"set a 0 0 1\r\n1\r\n").startswith(b"SERVER_ERROR out of capacity")
        # What says who is master in its stead is no order.
        file.touch()
        logged(slave, "is there")
        assert stats(reader)["role"] == "slave" and stats(reader)["link"] == "held"
        file.unlink()
        logged(slave, "is gone")
        assert admin(fairway, sock, "accept").returncode == 0
        wait_for(lambda: stats(reader)["complete"] == "yes" and stats(reader)["link"] == "streaming")
        assert stats(reader, b"")["curr_items"] == "0" and "reason" not in stats(reader)


def test_a_slave_that_is_held_becomes_master_by_an_order(fairway, tmp_path):
    sock = tmp_path / "admin"
    with contextlib.ExitStack() as slaves:
        with contextlib.suppress(MasterKilled), served(fairway) as master, master.connect() as client:
            fill(client, 500)
            slave = slaves.enter_context(following(fairway, master, "--admin-socket", sock))
            reader = slaves.enter_context(slave.connect())
            settle(client, reader)
            where = replication_address(master)
            master.process.kill()
            raise MasterKilled
        slaves.enter_context(served(fairway, "--repl-listen", where))
        wait_for(lambda: stats(reader)["link"] == "held")
        assert admin(fairway, sock, "promote").returncode == 0
        wait_for(lambda: stats(reader)["role"] == "master")
        assert len(table(reader)) == 500


def test_a_restarted_master_fetches_its_items_back(fairway):
    """From the first that has them, before it serves; its slave follows it again, and loses nothing."""
    with contextlib.ExitStack() as slaves:
        with contextlib.suppress(MasterKilled), served(fairway) as master, master.connect() as client:
            fill(client, 500)
            slave = slaves.enter_context(following(fairway, master))
            reader = slaves.enter_context(slave.connect())
            before = assert_same(client, reader)
            where = replication_address(master)
            master.process.kill()
            raise MasterKilled
        nobody = slaves.enter_context(served(fairway, "--repl-master", "127.0.0.1:1"))
        again = slaves.enter_context(served(fairway, "--repl-listen", where, "--repl-fetch",
                                            f"127.0.0.1:1,{replication_address(nobody)},{replication_address(slave)}"))
        wait_for(lambda: stats_of(again).get("role") == "master")
        client = slaves.enter_context(again.connect())
        assert table(client).keys() == before.keys()
        client.set(b"new", b"1")
        settle(client, reader)
        assert len(assert_same(client, reader)) == 501
        highest = max(int(item[2]) for item in before.values())
        assert int(client.ask(b"mg new c\r\n").split()[1][1:]) > highest


def orphans(fairway, slaves):
    """Two slaves of a master that was killed, one without its last change: where that was, the wire to it, both, and a
    client of the one that is ahead."""
    with contextlib.suppress(MasterKilled), served(fairway) as master, master.connect() as client:
        fill(client, 500)
        where = replication_address(master)
        wire = Wire(where)
        slaves.callback(wire.close)
        behind = slaves.enter_context(served(fairway, "--repl-master", wire.address, "--repl-serve-reads"))
        ahead = slaves.enter_context(following(fairway, master))
        reader = slaves.enter_context(ahead.connect())
        with behind.connect() as other:
            wait_for(lambda: stats(client)["slaves"] == "2")
            settle(client, other)
        wire.cut()
        wait_for(lambda: stats(client)["slaves"] == "1")
        client.set(b"acknowledged", b"1")
        settle(client, reader)
        master.process.kill()
        raise MasterKilled
    return where, wire, behind, ahead, reader


def test_a_restarted_master_fetches_from_the_newest(fairway):
    """One slave is ahead of the other, which is named first: nothing that it has is lost."""
    with contextlib.ExitStack() as slaves:
        where, wire, behind, ahead, reader = orphans(fairway, slaves)
        again = slaves.enter_context(served(
            fairway, "--repl-listen", where, "--repl-fetch", f"{replication_address(behind)},{replication_address(ahead)}"))
        wait_for(lambda: stats_of(again).get("role") == "master")
        wire.mend()
        client = slaves.enter_context(again.connect())
        assert client.get(b"acknowledged") == b"1"
        wait_for(lambda: stats(client)["slaves"] == "2")
        assert len(assert_same(client, reader)) == 501


def test_a_slave_that_is_ahead_of_what_was_fetched_is_held(fairway):
    """It could not be asked; it keeps what it has until somebody decides."""
    with contextlib.ExitStack() as slaves:
        where, wire, behind, _, reader = orphans(fairway, slaves)
        again = slaves.enter_context(served(fairway, "--repl-listen", where, "--repl-fetch", replication_address(behind)))
        wait_for(lambda: stats_of(again).get("role") == "master")
        wait_for(lambda: stats(reader)["link"] == "held")
        assert stats(reader, b"")["curr_items"] == "501" and stats(reader)["complete"] == "no"
        assert stats(reader)["reason"].startswith("the master was behind")
        wire.mend()  # The other had no more, and follows.
        with again.connect() as client, behind.connect() as other:
            settle(client, other)


class Breaking(FakeMaster):
    """A slave with much that can be fetched: it is asked what it has, and then for all of it, which breaks off in the
    middle. It takes so many connections, and then it is gone."""

    def __init__(self, connections):
        super().__init__()
        self.connections = connections
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def _run(self):
        with self.listener:
            for _ in range(self.connections):
                try:
                    self.greet(KNOWS_MEMORY)
                except OSError:
                    return
                with contextlib.suppress(ConnectionError), self.link:
                    self.link.sendall(about(MIB, 1000, 1, 7, 1, number=1 << 40))
                    for i in range(100):
                        self.link.sendall(message(SETQ, bytes(8), b"broken-%d" % i, b"1"))


def test_a_fetch_that_breaks_off_leaves_nothing(fairway):
    with Breaking(MANY) as slave, served(fairway, "--repl-fetch", slave.address) as master:
        wait_for(lambda: stats_of(master).get("role") == "master")
        with master.connect() as client:
            assert stats(client, b"")["curr_items"] == "0" and client.get(b"broken-1") is None
        assert "begins with nothing" in logged(master, "fetching items broke off")


def test_a_fetch_that_breaks_off_goes_on_with_another(fairway):
    with contextlib.ExitStack() as slaves:
        with contextlib.suppress(MasterKilled), served(fairway) as master, master.connect() as client:
            fill(client, 500)
            slave = slaves.enter_context(following(fairway, master))
            with slave.connect() as reader:
                settle(client, reader)
            master.process.kill()
            raise MasterKilled
        broken = slaves.enter_context(Breaking(2))
        again = slaves.enter_context(served(fairway, "--repl-fetch", f"{broken.address},{replication_address(slave)}"))
        wait_for(lambda: stats_of(again).get("role") == "master")
        with again.connect() as client:
            assert stats(client, b"")["curr_items"] == "500" and client.get(b"broken-1") is None
        logged(again, "what has come is dropped")


def test_clients_of_a_master_that_fetches_are_told_so(fairway):
    """Until it has its items; figures are to be had."""
    with FakeMaster() as slave, served(fairway, "--repl-fetch", slave.address, "--repl-timeout", LONG) as master, \
            master.connect() as client:
        for words in (b"get a\r\n", b"set a 0 0 1\r\n1\r\n", b"flush_all\r\n"):
            assert client.ask(words).startswith(b"SERVER_ERROR this server fetches its items")
        assert stats(client)["role"] == "fetching"
        slave.greet(KNOWS_MEMORY)
        slave.link.sendall(about(MIB))
        slave.greet(KNOWS_MEMORY)
        slave.link.sendall(about(MIB) + message(SETQ, bytes(8), b"a", b"1"))
        slave.mark(5)
        wait_for(lambda: stats(client)["role"] == "master")
        assert client.get(b"a") == b"1"


def test_a_master_that_finds_nothing_to_fetch_begins_anew(fairway):
    """A slave that has a master is not asked to give anything."""
    with served(fairway) as master, master.connect() as client, following(fairway, master) as slave:
        client.set(b"a", b"1")
        with slave.connect() as reader:
            settle(client, reader)
        with served(fairway, "--repl-fetch", replication_address(slave), "--repl-timeout", "300ms") as other:
            wait_for(lambda: stats_of(other).get("role") == "master")
            with other.connect() as reader:
                assert stats(reader, b"")["curr_items"] == "0"
            assert "begins with nothing" in logged(other, "nobody of --repl-fetch")


@pytest.mark.parametrize("origin, parent, items, server, is_held", [
    (1, (7, 1), 0, 2, False),   # A slave of the same master, as far as this one, took over.
    (1, (7, 0), 9, 2, True),    # One that was not as far did.
    (1, (8, 0), 0, 1, False),   # The same master, with a new log.
    (1, (8, 0), 3, 2, False),   # Another, of which nobody knows where it began, with as much.
    (1, (8, 0), 2, 2, True),
    (2, (0, 0), 3, 2, False),   # One of another origin, that has as much.
    (2, (0, 0), 2, 2, True),
])
def test_which_masters_are_followed(fairway, origin, parent, items, server, is_held):
    """A slave that has a whole copy, three items up to position 1 of history 7 with origin 1, meets another master."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads") as slave, \
            slave.connect() as reader:
        master.greet(KNOWS_MEMORY)
        master.link.sendall(about(MIB, 3, 1) + b"".join(message(SETQ, bytes(8), key, b"1") for key in (b"a", b"b", b"c")))
        master.mark(5)
        wait_for(lambda: stats(reader)["complete"] == "yes")
        master.link.close()
        master.greet(KNOWS_MEMORY, 9)
        master.link.sendall(about(MIB, items, origin, *parent, server))
        if is_held:
            wait_for(lambda: stats(reader)["link"] == "held")
        else:
            wait_for(lambda: stats(reader)["link"] == "copying")
        assert stats(reader, b"")["curr_items"] == ("3" if is_held else "0")


@pytest.mark.parametrize("knows", [0, KNOWS_MEMORY | KNOWS_EXPIRY])
def test_times_to_live_are_those_of_the_master(fairway, knows):
    """As much as was left when it was sent, or less by what the way took."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads",
                                        "--repl-timeout", LONG) as slave, slave.connect() as reader:
        def left(key):
            return int(reader.ask(b"mg %s t\r\n" % key).split()[1][1:])

        master.greet(knows)
        if knows:
            master.link.sendall(about(MIB))
        for key, seconds in ((b"a", 1000), (b"b", 1000), (b"never", 0)):
            master.link.sendall(message(SETQ, struct.pack(">II", 0, seconds), key, b"1"))
        master.link.sendall(message(TOUCH, struct.pack(">I", 2000), b"b"))
        master.mark(5)
        wait_for(lambda: stats(reader)["complete"] == "yes")
        master.mark(5)
        assert 1000 - START_S < left(b"a") <= 1000 and 2000 - START_S < left(b"b") <= 2000 and left(b"never") == -1


@pytest.mark.parametrize("ahead", [0, 86400, -86400])
def test_times_to_live_are_dates(fairway, ahead):
    """However long an item was under way: one that had 1,000 seconds to live 300 seconds ago has 700. A master whose clock
    is wrong is no exception."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads",
                                        "--repl-timeout", LONG) as slave, slave.connect() as reader:
        def left(key):
            return int(reader.ask(b"mg %s t\r\n" % key).split()[1][1:])

        master.greet(KNOWS_MEMORY | KNOWS_EXPIRY | KNOWS_DATES)
        now = time.time_ns() + ahead * 10**9
        begin = time.monotonic()
        master.link.sendall(about(MIB, date=now))
        date = now // 10**9 + 700
        for key in (b"a", b"b"):
            master.link.sendall(message(SETQ, struct.pack(">II", 0, date), key, b"1"))
        master.link.sendall(message(TOUCH, struct.pack(">I", date + 100), b"b"))
        master.mark(5)
        wait_for(lambda: stats(reader)["complete"] == "yes")
        first, second = left(b"a"), left(b"b")
        took = time.monotonic() - begin
        # The clock of a slave may be wrong by a second, and the one of the master too, if it was corrected.
        assert 700 - took - 3 <= first <= 703 and 99 <= second - first <= 100


def test_a_master_sends_dates(fairway):
    with served(fairway) as master, master.connect() as client:
        slave, _ = greeted(master, KNOWS_MEMORY | KNOWS_EXPIRY | KNOWS_DATES)
        with slave:
            before = int(time.time())
            assert client.ask(b"set a 0 1000 1\r\n1\r\n") == b"STORED\r\n"
            while (found := heard(slave))[0] != SETQ:
                pass
            date = struct.unpack(">I", found[1][4:8])[0]
            assert before + 999 <= date <= int(time.time()) + 1001


HOT, NEW = 400, 6000  # A third of what there is room for, and as many as fit twice.


def read_hot(client):
    """How many of them are there; the others are stored again, as a cache's client does."""
    hits = 0
    for first in range(0, HOT, 50):
        keys = [b"hot-%d" % i for i in range(first, first + 50)]
        client.send(b"get %s\r\n" % b" ".join(keys))
        there = set()
        while (line := client.line()) != b"END\r\n":
            there.add(line.split()[1])
            client.file.read(int(line.split()[3]) + 2)
        hits += len(there)
        for key in set(keys) - there:
            client.set(key, bytes(1000))
    return hits


def write_and_read(client, first, count):
    """The share of reads of the hot keys that were hits, between writes of others."""
    hits = asked = 0
    for i in range(first, first + count):
        client.set(b"new-%d" % i, bytes(1000))
        if i % 100 == 0:
            hits += read_hot(client)
            asked += HOT
    return hits / asked


def is_fetched(client, key):
    return b"fetch=yes" in client.ask(b"me %s\r\n" % key)


def test_what_clients_read_is_there_after_a_takeover(fairway, tmp_path):
    sock = tmp_path / "admin"
    with contextlib.ExitStack() as slaves:
        with contextlib.suppress(MasterKilled), served(fairway, "-m", "4", "--repl-ack", "1") as master, \
                master.connect() as client:
            slave = slaves.enter_context(following(fairway, master, "-m", "4", "--admin-socket", sock))
            reader = slaves.enter_context(slave.connect())
            wait_for(lambda: client.ask(b"set begin 0 0 1\r\n1\r\n") == b"STORED\r\n")  # Before, it is refused.
            write_and_read(client, 0, NEW)
            before = write_and_read(client, NEW, NEW)
            assert int(stats(client, b"")["evictions"]) > NEW
            wait_for(lambda: all(is_fetched(reader, b"hot-%d" % i) for i in range(HOT)
                                 if is_fetched(client, b"hot-%d" % i)))
            assert stats(reader, b"")["evictions"] == "0" and stats(reader)["complete"] == "yes"
            master.process.kill()
            raise MasterKilled
        assert admin(fairway, sock, "promote").returncode == 0
        wait_for(lambda: stats(reader)["role"] == "master")
        assert write_and_read(reader, 2 * NEW, NEW) >= 0.98 * before
