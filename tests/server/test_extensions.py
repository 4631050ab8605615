# SPDX-License-Identifier: Apache-2.0
"""Goal: yrmcds' commands of the text protocol, lock, unlock, unlock_all and keys, answer as its documents
say, across connections and their ends; a server that was not asked for them does not know them.
Method: clients of one server, which wait for each other's replies; no step depends on time, but that the
end of a connection is noticed, which is waited for."""

import socket
import struct

from served import Served


def keys(client, prefix=b""):
    client.send(b"keys %s\r\n" % prefix if prefix else b"keys\r\n")
    found = []
    while (line := client.line()) != b"END\r\n":
        assert line.startswith(b"VALUE ") and line.endswith(b"\r\n"), line
        found.append(line[6:-2])
    return sorted(found)


def test_unknown_unless_enabled(fairway):
    with Served(fairway) as server, server.connect() as client:
        client.set(b"k", b"v")
        for line in (b"lock k", b"unlock k", b"unlock_all", b"keys", b"keys k"):
            assert client.ask(line + b"\r\n") == b"ERROR\r\n", line
        assert client.get(b"k") == b"v"


def test_locks(fairway):
    with Served(fairway, "--enable-locking", "-t", "2") as server:
        with server.connect() as one, server.connect() as two:
            assert one.ask(b"lock k\r\n") == b"NOT_FOUND\r\n"
            one.set(b"k", b"1")
            assert one.ask(b"unlock k\r\n").startswith(b"CLIENT_ERROR ")
            assert one.ask(b"lock k\r\n") == b"OK\r\n"
            assert two.ask(b"lock k\r\n") == b"LOCKED\r\n"
            assert two.ask(b"unlock k\r\n").startswith(b"CLIENT_ERROR ")
            assert two.get(b"k") == b"1"
            for change in (b"set k 0 0 1\r\n2", b"replace k 0 0 1\r\n2", b"append k 0 0 1\r\n2",
                           b"prepend k 0 0 1\r\n2", b"delete k", b"incr k 1", b"decr k 1"):
                assert two.ask(change + b"\r\n") == b"LOCKED\r\n", change
            one.set(b"k", b"3")
            assert one.ask(b"unlock_all\r\n") == b"OK\r\n"
            assert two.ask(b"lock k\r\n") == b"OK\r\n"
            assert one.ask(b"delete k\r\n") == b"LOCKED\r\n"


def ask_until(client, question, answer):
    """Asks until the answer is this; a test that waits in vain is ended by its time limit."""
    while client.ask(question) != answer:
        pass


def test_locks_end_with_their_connection(fairway):
    """However it ends: by quit, by closing, by a reset."""
    with Served(fairway, "--enable-locking", "-t", "2") as server, server.connect() as other:
        other.set(b"k", b"1")
        for end in ("quit", "close", "reset"):
            client = server.connect()
            assert client.ask(b"lock k\r\n") == b"OK\r\n"
            assert other.ask(b"set k 0 0 1\r\n2\r\n") == b"LOCKED\r\n"
            if end == "quit":
                client.send(b"quit\r\n")
                assert client.at_end()
            elif end == "reset":
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                         struct.pack("ii", 1, 0))
            client.close()
            ask_until(other, b"set k 0 0 1\r\n2\r\n", b"STORED\r\n")


def test_keys(fairway):
    with Served(fairway, "--enable-locking") as server, server.connect() as client:
        assert keys(client) == []
        names = [b"%s:%05d" % (kind, i) for kind in (b"a", b"b") for i in range(3000)]
        for name in names:
            client.send(b"set %s 0 0 1 noreply\r\nv\r\n" % name)
        assert keys(client) == names
        assert keys(client, b"a:") == names[:3000]
        assert keys(client, b"b:0001") == [b"b:%05d" % i for i in range(10, 20)]
        assert keys(client, b"c") == []
        assert client.ask(b"delete a:00000\r\n") == b"DELETED\r\n"
        assert keys(client, b"a:") == names[1:3000]
    with Served(fairway, "--enable-locking", "-X") as server, server.connect() as client:
        assert client.ask(b"keys\r\n") == b"CLIENT_ERROR keys not allowed\r\n"
