# SPDX-License-Identifier: Apache-2.0
"""Goal: a slave forgets only what its master has forgotten, and what was ordered at the master comes true at the new
one; with a server of the release before at the other end nothing new is said.
Method: a master or a slave that the test plays itself, and two servers of which one is killed. What takes time is
waited for: an item that expires, or a flush that is due."""

import contextlib
import socket
import struct

import pytest
from served import START_S, wait_for
from test_repl import (DELETEQ, HELLO_BYTES, NOOP, SETQ, TOUCH, FakeMaster, admin, following, heard, message,
                       replication_address, served, settle, stats)


class MasterKilled(Exception):
    """Leaves the block of a server of which no orderly end is expected."""


LATER, FLUSHQ = 0xf3, 0x18
KNOWS_LATER, KNOWS_EXPIRY, KNOWS_MEMORY = 1, 2, 4


@pytest.mark.parametrize("is_early", [True, False])
def test_a_flush_that_was_put_off_outlives_its_master(fairway, tmp_path, is_early):
    """Whether the slave was there when it was ordered, or came later."""
    sock = tmp_path / "admin"
    with contextlib.ExitStack() as slaves:
        with contextlib.suppress(MasterKilled), served(fairway) as master, master.connect() as client:
            def follow():
                return slaves.enter_context(following(fairway, master, "--admin-socket", sock))
            slave = follow() if is_early else None
            client.set(b"a", b"1")
            assert client.ask(b"flush_all 3\r\n") == b"OK\r\n"
            slave = slave or follow()
            reader = slaves.enter_context(slave.connect())
            settle(client, reader)
            master.process.kill()  # Without a word, as a machine that fails.
            raise MasterKilled
        assert admin(fairway, sock, "promote").returncode == 0
        wait_for(lambda: stats(reader)["role"] == "master")
        wait_for(lambda: reader.get(b"a") is None)
        reader.set(b"b", b"1")
        assert reader.get(b"b") == b"1"


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_slave_does_not_flush_by_itself(fairway, tmp_path, is_cancelled):
    """What its master stored after the flush would be gone. When it becomes master it does what is overdue, unless
    the master has told that it is to come no more."""
    sock = tmp_path / "admin"
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads",
                                        "--admin-socket", sock) as slave, slave.connect() as reader:
        master.greet(KNOWS_LATER)
        master.link.sendall(message(SETQ, bytes(8), b"a", b"1") + message(LATER, struct.pack(">I", 1)) +
                            message(SETQ, struct.pack(">II", 0, 3), b"clock", b"1"))
        master.mark(5)
        wait_for(lambda: stats(reader)["complete"] == "yes" and reader.get(b"clock") is None)
        assert reader.get(b"a") == b"1"
        if is_cancelled:
            master.link.sendall(message(LATER, struct.pack(">I", 0)) + message(SETQ, bytes(8), b"b", b"1"))
            wait_for(lambda: reader.get(b"b") == b"1")
        assert admin(fairway, sock, "promote").returncode == 0
        wait_for(lambda: stats(reader)["role"] == "master")
        wait_for(lambda: (reader.get(b"a") == b"1") == is_cancelled)
        reader.set(b"c", b"1")
        assert reader.get(b"c") == b"1"


def test_a_touch_finds_what_has_expired_at_the_slave_only(fairway):
    """The slave's clock is ahead, or the touch came late. It shows nobody what has expired, and keeps it until the
    master says that it is gone."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads") as slave:
        with slave.connect() as reader:
            master.greet(KNOWS_EXPIRY)
            large = b"x" * 9000
            for key, value in ((b"a", b"1"), (b"b", b"2"), (b"large", large)):
                master.link.sendall(message(SETQ, struct.pack(">II", 0, 1), key, value))
            master.mark(5)
            wait_for(lambda: stats(reader)["complete"] == "yes" and reader.get(b"a") is None)
            wait_for(lambda: reader.get(b"b") is None and reader.get(b"large") is None)
            assert stats(reader, b"")["curr_items"] == "3"
            for key in (b"a", b"large"):
                master.link.sendall(message(TOUCH, struct.pack(">I", 1000), key))
            wait_for(lambda: reader.get(b"large") == large)
            assert reader.get(b"a") == b"1" and reader.get(b"b") is None
            master.link.sendall(message(DELETEQ, b"", b"b") + message(DELETEQ, b"", b"a"))
            wait_for(lambda: stats(reader, b"")["curr_items"] == "1")


def greeted(server, knows):
    """A slave that knows so much, and what it was answered: what follows, and what both know."""
    host, port = replication_address(server).rsplit(":", 1)
    slave = socket.create_connection((host, int(port)), START_S)
    slave.sendall(HELLO_BYTES[:26] + bytes([knows, 0]) + HELLO_BYTES[28:])
    opcode, extras = heard(slave)
    assert opcode == 0xf0
    return slave, extras[2:4]


def test_a_master_tells_what_has_expired(fairway):
    with served(fairway) as master, master.connect() as client:
        slave, answer = greeted(master, KNOWS_EXPIRY | 0x80)  # And something that this release does not know.
        assert answer == bytes([KNOWS_EXPIRY, 2])
        with slave:
            assert client.ask(b"set a 0 1 1\r\n1\r\n") == b"STORED\r\n"
            assert client.ask(b"flush_all 1000\r\n") == b"OK\r\n"
            while (found := heard(slave)) != (DELETEQ, b"a"):
                assert found is not None and found[0] != LATER
                client.get(b"a")  # So it is met sooner.


@pytest.mark.parametrize("knows, opcode", [(0, SETQ), (KNOWS_EXPIRY, SETQ), (KNOWS_EXPIRY | KNOWS_MEMORY, TOUCH)])
def test_a_touch_brings_the_item_where_it_may_be_missing(fairway, knows, opcode):
    """At a slave that drops items by itself."""
    with served(fairway) as master, master.connect() as client:
        client.set(b"a", b"1")
        slave, _ = greeted(master, knows)
        with slave:
            while heard(slave) != (SETQ, bytes(8) + b"a1"):
                pass
            assert client.ask(b"touch a 1000\r\n") == b"TOUCHED\r\n"
            while (found := heard(slave))[0] == NOOP:
                pass
            assert found[0] == opcode and found[1].endswith(b"a1" if opcode == SETQ else b"a")


def test_a_slave_of_the_release_before_is_told_what_it_knows(fairway):
    with served(fairway) as master, master.connect() as client:
        slave, answer = greeted(master, 0)
        assert answer == b"\0\2"
        with slave:
            for words in (b"set a 0 0 1\r\n1\r\n", b"flush_all 1000\r\n", b"flush_all\r\n", b"set b 0 0 1\r\n1\r\n"):
                client.ask(words)
            opcodes = set()
            while (found := heard(slave))[1][-2:] != b"b1":
                opcodes.add(found[0])
            # What is told of a key is what there is then: it may be flushed already.
            assert opcodes <= {SETQ, DELETEQ, NOOP, FLUSHQ} and FLUSHQ in opcodes


def test_a_master_of_the_release_before_is_followed(fairway):
    """It does not tell what expires, so the slave's own clock says it."""
    with FakeMaster() as master, served(fairway, "--repl-master", master.address, "--repl-serve-reads") as slave:
        with slave.connect() as reader:
            master.greet()
            master.link.sendall(message(SETQ, struct.pack(">II", 0, 1), b"a", b"1"))
            master.mark(5)
            wait_for(lambda: stats(reader)["complete"] == "yes" and reader.get(b"a") is None)
            assert stats(reader, b"")["curr_items"] == "0"


@pytest.mark.parametrize("command", [b"gat 1 a", b"gats 1 a", b"mg a T1 v", b"mg a v R90000", b"mg new N30 v"])
def test_reads_that_change_something_are_refused_at_a_slave(fairway, command):
    """They would change the copy alone: what the master has would be gone after a takeover."""
    with served(fairway) as master, master.connect() as client, following(fairway, master) as slave, slave.connect() as reader:
        client.set(b"a", b"1")
        settle(client, reader)
        assert b"takes no writes" in reader.ask(command + b"\r\n")
        assert client.ask(b"mg a t\r\n") == reader.ask(b"mg a t\r\n") == b"HD t-1\r\n"
        assert reader.ask(b"mg new v\r\n") == b"EN\r\n"


def test_a_binary_get_that_touches_is_refused_at_a_slave(fairway):
    with served(fairway) as master, master.connect() as client, following(fairway, master) as slave, slave.connect() as reader:
        client.set(b"a", b"1")
        settle(client, reader)
        with slave.connect() as binary:
            binary.send(struct.pack(">BBHBBHIIQI", 0x80, 0x1d, 1, 4, 0, 0, 5, 0, 0, 1) + b"a")
            header = binary.file.read(24)
            assert b"takes no writes" in binary.file.read(struct.unpack(">I", header[8:12])[0])
        assert reader.ask(b"mg a t\r\n") == b"HD t-1\r\n"
