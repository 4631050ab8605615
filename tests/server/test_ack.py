# SPDX-License-Identifier: Apache-2.0
"""Goal: in acknowledged mode a change is answered when enough slaves have it, and with an error when they do not; replies
keep their order, and who only reads does not wait.
Method: slaves that this test plays itself, byte by byte, so that it decides when a change is confirmed; and real ones. Nothing
is waited for by time: a reply that must not come is looked for behind others that do."""

import contextlib
import signal
import socket
import struct
import subprocess

import pytest
from served import START_S, wait_for
from test_repl import HELLO_BYTES, LONG, following, link_to, message, served, settle, stats, stats_of

NOOP, LATER, KNOWS_LATER = 0x0a, 0xf3, 1
WHOLE = 1 << 30
ERROR = b"SERVER_ERROR not confirmed by enough replicas\r\n"


class Slave:
    """One that says what it is told to say."""

    def __init__(self, master, greets=True, knows=0):
        self.socket = link_to(master, HELLO_BYTES[:26] + bytes([knows, 0]) + HELLO_BYTES[28:] if greets else b"")
        self.input = b""
        self.marks = []  # Not answered.
        self.keys = []
        self.flush_in_s = None  # A flush that is to come.

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def hear(self):
        """One message: its opcode."""
        while len(self.input) < 24 or len(self.input) < 24 + struct.unpack(">I", self.input[8:12])[0]:
            data = self.socket.recv(65536)
            assert data, "the master has ended the link"
            self.input += data
        opcode, length = self.input[1], struct.unpack(">I", self.input[8:12])[0]
        key_length, extras = struct.unpack(">H", self.input[2:4])[0], self.input[4]
        if opcode == NOOP:
            self.marks.append(struct.unpack(">I", self.input[12:16])[0])
        elif opcode == LATER:
            self.flush_in_s = struct.unpack(">I", self.input[24:28])[0]
        else:
            self.keys.append(self.input[24 + extras:24 + extras + key_length])
        self.input = self.input[24 + length:]
        return opcode

    def hear_key(self, key):
        """Until it was told of the key and of the mark behind it."""
        while key not in self.keys:
            self.hear()
        self.keys.clear()
        self.marks.clear()
        while not self.marks:
            self.hear()

    def confirm(self):
        opaque = self.marks[-1]
        self.marks.clear()
        self.socket.sendall(struct.pack(">BBHBBHIIQ", 0x81, NOOP, 0, 0, 0, 0, 0, opaque, 0))

    def become_whole(self, client):
        while not self.marks or not self.marks[-1] & WHOLE:
            self.hear()
        self.confirm()
        wait_for(lambda: any(name.endswith(":state") and value == "streaming" for name, value in stats(client).items()))
        # It counts when the answer was heard, and then a write is taken.
        wait_for(lambda: client.ask(b"delete nothing\r\n") == b"NOT_FOUND\r\n")


@contextlib.contextmanager
def acknowledged(fairway, *arguments, timeout=LONG, slaves="1"):
    with served(fairway, "--repl-ack", slaves, "--repl-ack-timeout", timeout, "--repl-timeout", LONG,
                *arguments) as master:
        with master.connect() as client:
            yield master, client


def wait_until_held(client, count):
    """Until so many replies have been held back. That begins after slaves can have heard of the changes."""
    wait_for(lambda: stats(client)["held"] == str(count))


def assert_not_answered(client):
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1, socket.MSG_PEEK)
    client.socket.settimeout(START_S)


def test_a_reply_waits_for_the_slave_and_others_do_not(fairway):
    with (acknowledged(fairway, "--repl-admit-others") as (master, client), Slave(master) as slave,
          master.connect() as other):
        slave.become_whole(client)
        client.send(b"get none\r\nset a 0 0 1\r\n1\r\nget a\r\n")
        slave.hear_key(b"a")
        wait_until_held(other, 1)
        # Another reads it, and is answered, however often; the writer is not.
        for _ in range(20):
            assert other.get(b"a") == b"1"
        assert stats(other)["unconfirmed"] == "0"
        assert_not_answered(client)
        slave.confirm()
        for line in (b"END\r\n", b"STORED\r\n", b"VALUE a 0 1\r\n", b"1\r\n", b"END\r\n"):
            assert client.line() == line


def test_a_write_that_changes_nothing_waits_for_what_it_saw(fairway):
    """A delete that was not confirmed is tried again, and finds nothing: that must not be believed too early."""
    with acknowledged(fairway) as (master, client), Slave(master) as slave, master.connect() as other:
        slave.become_whole(client)
        client.send(b"set a 0 0 1\r\n1\r\n")
        slave.hear_key(b"a")
        wait_until_held(other, 1)
        slave.confirm()
        assert client.line() == b"STORED\r\n"
        client.send(b"delete a\r\n")
        slave.hear_key(b"a")
        wait_until_held(other, 2)
        for held, words in ((3, b"delete a\r\n"), (4, b"replace a 0 0 1\r\n1\r\n")):
            with master.connect() as again:
                again.send(words)
                wait_until_held(other, held)
        with master.connect() as again:
            again.send(b"delete a\r\n")
            wait_until_held(other, 5)
            slave.confirm()
            assert client.line() == b"DELETED\r\n" and again.line() == b"NOT_FOUND\r\n"
        # Now it is confirmed that it is gone, and nobody waits.
        assert client.ask(b"delete a\r\n") == b"NOT_FOUND\r\n" and stats(other)["held"] == "5"


def test_one_mark_confirms_a_whole_batch(fairway):
    with acknowledged(fairway) as (master, client), Slave(master) as slave:
        slave.become_whole(client)
        client.send(b"".join(b"set key-%d 0 0 1\r\n1\r\n" % i for i in range(50)))
        slave.hear_key(b"key-49")
        slave.confirm()
        for _ in range(50):
            assert client.line() == b"STORED\r\n"
        assert int(stats(client)["held"]) < 10


@pytest.mark.parametrize("words, replies", [
    (b"set a 0 0 1\r\n1\r\n", b""),
    (b"get none\r\nset a 0 0 1\r\n1\r\nget a\r\n", b"END\r\n"),
    (b"set a 0 0 1 noreply\r\n1\r\nget a\r\n", b""),
    (b"ms a 1\r\n1\r\n", b""),
    (b"set a 0 0 30000\r\n" + b"v" * 30000 + b"\r\n", b""),
    (b"mn\r\nflush_all\r\n", b"MN\r\n"),
    (b"mn\r\ntouch there 100\r\n", b"MN\r\n"),
    (b"gat 100 there\r\n", b""),
    (b"get there\r\ndelete there\r\n", b"VALUE there 0 1\r\n1\r\nEND\r\n"),
])
def test_at_the_time_out_the_client_is_told_an_error(fairway, words, replies):
    with acknowledged(fairway, timeout="1ms") as (master, client), Slave(master) as slave:
        slave.become_whole(client)
        client.send(b"set there 0 0 1\r\n1\r\n")
        slave.hear_key(b"there")
        slave.confirm()
        assert client.line() in (b"STORED\r\n", ERROR)  # Whoever was faster.
        with master.connect() as writer:
            writer.send(words)
            assert writer.file.read() == replies + ERROR
            with master.connect() as reader:
                assert int(stats(reader)["unconfirmed"]) >= 1


def test_the_binary_protocol_says_it_too(fairway):
    quiet, opaque = 0x11, 0xdeadbeef
    with acknowledged(fairway, timeout="1ms") as (master, client), Slave(master) as slave:
        slave.become_whole(client)
        with master.connect() as writer:
            request = bytearray(message(quiet, bytes(8), b"a", b"1"))
            request[12:16] = struct.pack(">I", opaque)
            writer.send(bytes(request) + message(NOOP))
            answer = writer.file.read()
            magic, opcode, _, _, _, status, length, tag, _ = struct.unpack(">BBHBBHIIQ", answer[:24])
            assert (magic, opcode, status, tag, length) == (0x81, quiet, 0x86, opaque, len(answer) - 24)


def test_the_answer_to_a_noop_covers_the_quiet_ones_before(fairway):
    with acknowledged(fairway) as (master, client), Slave(master) as slave, master.connect() as writer:
        slave.become_whole(client)
        writer.send(message(0x11, bytes(8), b"a", b"1"))
        slave.hear_key(b"a")  # It was done, in a turn of its own, and nothing was replied.
        writer.send(message(NOOP))
        wait_until_held(client, 1)
        slave.confirm()
        assert writer.file.read(24)[:2] == b"\x81\x0a"


def test_a_slave_that_has_to_copy_confirms_nothing_by_its_greeting(fairway):
    """A change waits for one slave while another comes, which stands behind that change and has nothing before it."""
    with acknowledged(fairway) as (master, client), Slave(master) as slave, master.connect() as other:
        slave.become_whole(client)
        client.send(b"set a 0 0 1\r\n1\r\n")
        slave.hear_key(b"a")
        with Slave(master) as second:
            second.hear_key(b"a")  # The copy, and a mark that it does not answer.
            for _ in range(20):
                assert other.get(b"a") == b"1"
            assert_not_answered(client)
        slave.confirm()
        assert client.line() == b"STORED\r\n"


def test_without_enough_slaves_writes_are_refused_before_they_begin(fairway):
    with acknowledged(fairway, slaves="2") as (master, client), Slave(master):
        refused = b"SERVER_ERROR out of capacity, try again later\r\n"
        with following(fairway, master) as slave, slave.connect() as reader:
            wait_for(lambda: stats(reader)["link"] == "streaming")
            # The other has confirmed nothing: it is copying, whatever it was sent.
            assert client.ask(b"set a 0 0 1\r\n1\r\n") == refused
            assert client.get(b"a") is None
            with following(fairway, master) as third, third.connect() as reader:
                wait_for(lambda: client.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n")
                assert reader.get(b"a") == b"1"
        wait_for(lambda: stats(client)["slaves"] == "1")  # A write before that would wait for those who have gone.
        assert client.ask(b"set a 0 0 1\r\n2\r\n") == refused
        for command in (b"gat 100 a", b"mg a T100 v", b"mg new N30 v"):  # Reads that change something.
            assert client.ask(command + b"\r\n") == refused
        for command in (b"flush_all", b"flush_all 0", b"flush_all 1"):
            assert client.ask(command + b"\r\n") == refused and client.get(b"a") == b"1"
        client.send(b"flush_all noreply\r\n")
        with master.connect() as binary:
            for opcode in (0x08, 0x18):
                binary.send(message(opcode))
                header = binary.file.read(24)
                assert header[6:8] == b"\0\x85"
                binary.file.read(struct.unpack(">I", header[8:12])[0])
        assert client.get(b"a") == b"1"
        assert client.ask(b"mg a t\r\n") == b"HD t-1\r\n"


def test_two_of_three_slaves_suffice(fairway):
    with acknowledged(fairway, slaves="2") as (master, client), Slave(master) as mute:
        with following(fairway, master) as first, following(fairway, master) as second:
            with first.connect() as one, second.connect() as two:
                wait_for(lambda: client.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n")
                for i in range(100):
                    assert client.ask(b"set a 0 0 3\r\n%03d\r\n" % i) == b"STORED\r\n"
                    assert one.get(b"a") == two.get(b"a") == b"%03d" % i
        assert not mute.marks


def test_a_frozen_slave_makes_errors_and_no_silence(fairway):
    with acknowledged(fairway, timeout="50ms") as (master, client), following(fairway, master) as slave:
        def is_taken():
            with master.connect() as writer:
                return writer.ask(b"set a 0 0 1\r\n3\r\n") == b"STORED\r\n"
        wait_for(is_taken)
        slave.stop()
        try:
            for i in range(3):
                with master.connect() as writer:
                    assert writer.ask(b"set a 0 0 1\r\n%d\r\n" % i) == ERROR and writer.at_end()
        finally:
            slave.process.send_signal(signal.SIGCONT)
        with slave.connect() as reader:
            settle(client, reader)
            assert reader.get(b"a") == b"2"
        wait_for(is_taken)


def test_a_tenant_may_want_it_otherwise(fairway, tmp_path):
    configuration = tmp_path / "conf"
    configuration.write_text("[tenant careful]\nmatch = prefix careful:\nrepl-ack = 1\n")
    with served(fairway, "--config", configuration, "--repl-timeout", LONG) as master, master.connect() as client:
        # There is no slave, and only the one who wants one is refused.
        assert client.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        assert client.ask(b"set careful:a 0 0 1\r\n1\r\n").startswith(b"SERVER_ERROR")
        assert client.get(b"a") == b"1" and client.get(b"careful:a") is None
        with Slave(master) as slave:
            while not slave.marks or not slave.marks[-1] & WHOLE:
                slave.hear()
            slave.confirm()
            wait_for(lambda: client.ask(b"delete careful:none\r\n") == b"NOT_FOUND\r\n")
            client.send(b"set b 0 0 1\r\n1\r\nset careful:a 0 0 1\r\n1\r\n")
            slave.hear_key(b"careful:a")
            slave.confirm()
            assert client.line() == b"STORED\r\n" and client.line() == b"STORED\r\n"
            assert client.ask(b"set c 0 0 1\r\n1\r\n") == b"STORED\r\n"  # Confirmed by nobody.


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_master_that_resigns_waits_for_its_slaves(fairway, tmp_path, is_patient):
    """The slave has not heard of most of what was written. It gets all, or the administrator is told."""
    sock, count = tmp_path / "admin", 30
    with served(fairway, "--repl-master", "127.0.0.1:1", "--repl-role", "master", "--admin-socket", sock, "--repl-ack-timeout",
                LONG if is_patient else "50ms", "--repl-timeout", LONG) as master, Slave(master) as slave:
        with master.connect() as client:
            while not slave.marks or not slave.marks[-1] & WHOLE:
                slave.hear()
            slave.confirm()
            for i in range(count):  # More than the sockets hold.
                client.set(b"key-%d" % i, b"v" * 1000000)
            with subprocess.Popen([fairway, "admin", "--socket", sock, "demote"], stderr=subprocess.PIPE, text=True) as demote:
                assert client.at_end()  # Nothing more is taken.
                if is_patient:
                    while b"key-%d" % (count - 1) not in slave.keys or not slave.marks:
                        if slave.marks:  # There are only so many that are not answered.
                            slave.confirm()
                        slave.hear()
                    slave.confirm()
                _, error = demote.communicate(timeout=START_S)
            assert (demote.returncode == 0) == is_patient, error
            assert is_patient or "compare their positions" in error
        wait_for(lambda: stats_of(master).get("role") == "slave")


@pytest.mark.parametrize("arguments", [["--repl-ack", "1"], ["--repl-enable", "--repl-slaves", "1", "--repl-ack", "2"]])
def test_what_cannot_be_had_is_refused_at_the_start(fairway, arguments):
    done = subprocess.run([fairway, "serve", "--listen", "127.0.0.1:0", *arguments], capture_output=True, text=True,
                          timeout=START_S, check=False)
    assert done.returncode != 0 and "--repl-ack" in done.stderr


def test_a_master_that_resigns_tells_of_a_flush_that_is_to_come(fairway, tmp_path):
    """The slave hears of it only then, and would never flush if the master had given it up before."""
    sock = tmp_path / "admin"
    with served(fairway, "--repl-master", "127.0.0.1:1", "--repl-role", "master", "--admin-socket", sock, "--repl-ack-timeout",
                LONG, "--repl-timeout", LONG) as master, Slave(master, knows=KNOWS_LATER) as slave:
        with master.connect() as client:
            while not slave.marks or not slave.marks[-1] & WHOLE:
                slave.hear()
            slave.confirm()
            slave.flush_in_s = None  # So far it was told that none is to come.
            for i in range(30):  # More than the sockets hold.
                client.set(b"key-%d" % i, b"v" * 1000000)
            assert client.ask(b"flush_all 100000\r\n") == b"OK\r\n"
            with subprocess.Popen([fairway, "admin", "--socket", sock, "demote"], stderr=subprocess.DEVNULL) as demote:
                assert client.at_end()
                while b"key-29" not in slave.keys or slave.flush_in_s is None:
                    if slave.marks:  # There are only so many that are not answered.
                        slave.confirm()
                    slave.hear()
                slave.socket.close()  # It is waited for no longer.
                assert demote.wait(timeout=START_S) == 1
            assert 50000 < slave.flush_in_s <= 100000
