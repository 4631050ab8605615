# SPDX-License-Identifier: Apache-2.0
"""Goal: with --secure-erase no value that is gone is anywhere in the process's memory, whichever way it
went; and without it some are, or this test would not see them.
Method: values begin with a word that nothing else has. Once their items are gone all memory that the
process can write and has touched is searched for it, the buffers of the network included."""

import mmap

import pytest

from served import Served, wait_for

SHADOW_MIN = 1 << 34  # Nothing but what a sanitizer knows about memory is that long.
PIECE = 1 << 21  # Of memory, searched or passed over as one.
ENTRY = 8  # Bytes that /proc/PID/pagemap has for a page; in the highest, whether there is one.
NO_PAGE = bytes(top for top in range(256) if not top & 0xC0)  # Neither in memory nor swapped out.
FILLER = bytes(range(256)) * 32


def found(server, word):
    """How often the word is in the server's memory.

    A piece without a page is passed over: what a sanitizer reserves is thousands of times what is used.
    """
    count = 0
    with open(f"/proc/{server.process.pid}/maps", encoding="ascii") as maps, \
            open(f"/proc/{server.process.pid}/pagemap", "rb", buffering=0) as pages, \
            open(f"/proc/{server.process.pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if "w" not in rights:
                continue
            at, end = (int(address, 16) for address in span.split("-"))
            if end - at > SHADOW_MIN:
                continue
            for begin in range(at, end, PIECE):
                length = min(end - begin, PIECE)
                pages.seek(begin // mmap.PAGESIZE * ENTRY)
                tops = pages.read(length // mmap.PAGESIZE * ENTRY)[ENTRY - 1::ENTRY]
                if not tops.translate(None, NO_PAGE):
                    continue
                try:
                    memory.seek(begin)
                    count += memory.read(length).count(word)
                except OSError:
                    break  # The kernel's, and not to be read.
    return count


def secret(way, size):
    """A word, and a value of it alone and of bytes that say nothing."""
    word = b"secret-%s-%d-" % (way.encode(), size) + b"7fd1c0a94be2"
    return word, word + b"." * (size - 2 * len(word)) + word


def store(client, size, way):
    word, value = secret(way, size)
    client.set(b"k", value)
    return word, value


def delete(client):
    assert client.ask(b"delete k\r\n") == b"DELETED\r\n"


def replace(client):
    client.set(b"k", b"other")


def replace_by_a_large_one(client):
    client.set(b"k", FILLER * 3)


def append(client):
    """The item is copied to a longer record, and that goes."""
    assert client.ask(b"append k 0 0 3\r\nabc\r\n") == b"STORED\r\n"
    delete(client)


def touch(client):
    """The same: when it expires has to be noted in the record."""
    assert client.ask(b"touch k 1000\r\n") == b"TOUCHED\r\n"
    delete(client)


def expire(client):
    assert client.ask(b"touch k -1\r\n") == b"TOUCHED\r\n"
    assert client.get(b"k") is None


def flush(client):
    assert client.ask(b"flush_all\r\n") == b"OK\r\n"
    assert client.get(b"k") is None


def evict(client):
    """So much comes that nothing stays of what nobody reads; of `k` somebody has."""
    _, value = secret("evict", len(client.get(b"k")))
    client.set(b"unread", value)
    delete(client)
    for number in range(100_000):
        client.send(b"set filler-%d 0 0 %d noreply\r\n%s\r\n" % (number, len(FILLER), FILLER))
        if number % 1000 == 999 and client.ask(b"me unread\r\n") == b"EN\r\n":
            return
    assert False, "nothing goes"


def read_slowly(client):
    """The reply is kept by the server, for more has been asked for than sockets hold."""
    _, value = secret("read_slowly", len(client.get(b"k")))
    gets = 20000000 // len(value)
    client.send(b"get k\r\n" * gets)
    for _ in range(gets):
        client.line()
        assert client.file.read(len(value) + 2) == value + b"\r\n"
        client.line()
    delete(client)


WAYS = [delete, replace, replace_by_a_large_one, append, touch, expire, flush, evict, read_slowly]


@pytest.mark.parametrize("size", [100, 5000, 100_000, 3_000_000])
def test_nothing_is_left(fairway, size):
    with Served(fairway, "-m", "16", "-t", "1", "-I", "8m", "--secure-erase") as server, server.connect() as client:
        for way in WAYS:
            if size > 1 << 20 and way in (append, touch):
                continue  # A large value cannot be appended to; and its record has only its place.
            word, value = store(client, size, way.__name__)
            assert client.get(b"k") == value
            if size <= 1 << 20:
                assert found(server, word) >= 2  # It is there, and seen.
            way(client)
            wait_for(lambda: found(server, word) == 0)


def test_without_it_something_is(fairway):
    with Served(fairway, "-m", "16", "-t", "1") as server, server.connect() as client:
        word, _ = store(client, 5000, "without")
        client.get(b"k")
        delete(client)
        assert found(server, word) > 0


def test_half_a_command(fairway):
    """A value of which not all has come is kept for its connection, and goes with it."""
    with Served(fairway, "-t", "1", "--secure-erase") as server, server.connect() as other:
        word, _ = secret("half", 2000)
        with server.connect() as client:
            # In the middle: the heap writes its links into the first bytes of what is freed.
            client.send(b"set k 0 0 2000\r\n" + b"." * 900 + word + b"." * 900)
            wait_for(lambda: other.ask(b"mn\r\n") == b"MN\r\n" and found(server, word) == 1)
        wait_for(lambda: found(server, word) == 0)
