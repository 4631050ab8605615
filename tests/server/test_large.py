# SPDX-License-Identifier: Apache-2.0
"""Goal: values that are too large for memory live in a file and are read back as they were, by every
protocol and beside writers; the file is bounded and leaves nothing behind; and whatever is wrong with its
disk is an error of those clients only.
Method: the shipped program with values whose bytes say which they are, so that a mixture of two is seen.
Full disks are small file systems of memory, mounted for one server alone."""

import os
import pathlib
import random
import re
import struct
import subprocess
import threading

import pytest

from served import START_S, Served, wait_for

MIB = 1 << 20
SIZES = [MIB, MIB + 1, 2 * MIB - 1, 4 * MIB, 4 * MIB + 17, 5_000_003]


def value(name, size):
    return random.Random(f"{name} {size}").randbytes(size)


def start(fairway, *arguments, **options):
    return Served(fairway, "-I", "16m", "-m", "64", *arguments, **options)


def stats(client):
    client.send(b"stats\r\n")
    lines = iter(client.line, b"END\r\n")
    return dict(line.decode().split(maxsplit=2)[1:] for line in lines)


def stat(client, name):
    return int(stats(client)[name])


@pytest.fixture
def server(fairway, tmp_path):
    with start(fairway, "--large-directory", str(tmp_path)) as server:
        yield server


@pytest.fixture
def client(server):
    with server.connect() as client:
        yield client


def test_values_come_back_as_they_were(client):
    for size in SIZES:
        client.set(b"k%d" % size, value("a", size))
    for size in SIZES:
        assert client.get(b"k%d" % size) == value("a", size)
    # One of them is short enough for memory.
    assert stat(client, "large_values") == len(SIZES) - 1


def test_many_in_one_get_between_small_ones(client):
    client.set(b"small", b"s")
    for size in SIZES:
        client.set(b"k%d" % size, value("b", size))
    keys = [b"small", *(b"k%d" % size for size in SIZES), b"none", b"k%d" % SIZES[1], b"small"]
    client.send(b"get " + b" ".join(keys) + b"\r\nget small\r\n")
    for key in keys:
        if key != b"none":
            wanted = b"s" if key == b"small" else value("b", int(key[1:]))
            assert client.line() == b"VALUE %s 0 %d\r\n" % (key, len(wanted))
            assert client.file.read(len(wanted) + 2) == wanted + b"\r\n"
    assert client.line() == b"END\r\n"
    assert client.line() == b"VALUE small 0 1\r\n"


def test_what_clients_can_do_to_one(client):
    one, two = value("one", 3 * MIB), value("two", 2 * MIB + 5)
    assert client.ask(b"set k 7 0 %d\r\n" % len(one) + one + b"\r\n") == b"STORED\r\n"
    _, _, flags, size, cas = client.ask(b"gets k\r\n").split()
    assert (flags, int(size)) == (b"7", len(one))
    assert client.file.read(len(one) + 7) == one + b"\r\nEND\r\n"
    assert client.ask(b"cas k 0 0 3 999\r\nabc\r\n") == b"EXISTS\r\n"
    assert client.ask(b"add k 0 0 %d\r\n%s\r\n" % (len(two), two)) == b"NOT_STORED\r\n"
    assert client.ask(b"cas k 0 0 %d %s\r\n%s\r\n" % (len(two), cas, two)) == b"STORED\r\n"
    assert client.get(b"k") == two
    for command in (b"append", b"prepend"):
        assert client.ask(command + b" k 0 0 3\r\nabc\r\n") == \
            b"SERVER_ERROR cannot append to a large value\r\n"
        assert client.ask(b"%s k 0 0 %d\r\n%s\r\n" % (command, len(one), one)) == \
            b"SERVER_ERROR cannot append to a large value\r\n"
    assert client.ask(b"incr k 1\r\n").startswith(b"CLIENT_ERROR cannot increment")
    assert client.ask(b"touch k 1000\r\n") == b"TOUCHED\r\n"
    assert client.ask(b"mg k s t\r\n") == b"HD s%d t1000\r\n" % len(two)
    assert client.get(b"k") == two
    assert client.ask(b"replace k 0 0 %d\r\n%s\r\n" % (len(one), one)) == b"STORED\r\n"
    assert client.get(b"k") == one
    assert stat(client, "large_values") == 1
    client.set(b"k", b"small")
    assert stat(client, "large_values") == 0 and stat(client, "large_bytes") == 0
    assert client.get(b"k") == b"small"


def test_delete_flush_and_expiry_give_the_space_back(client):
    for key in (b"a", b"b", b"c"):
        client.set(key, value("c", 2 * MIB))
    assert client.ask(b"delete a\r\n") == b"DELETED\r\n"
    assert stat(client, "large_values") == 2
    assert client.ask(b"touch b -1\r\n") == b"TOUCHED\r\n"
    assert client.get(b"b") is None
    assert stat(client, "large_values") == 1
    assert client.ask(b"flush_all\r\n") == b"OK\r\n"
    assert client.get(b"c") is None
    assert stat(client, "large_bytes") == 0
    # A value that is refused for its end, or whose client goes, leaves nothing either.
    big = value("d", 2 * MIB)
    assert client.ask(b"set d 0 0 %d\r\n" % len(big) + big + b"xx") == b"CLIENT_ERROR bad data chunk\r\n"
    assert stat(client, "large_bytes") == 0


def test_a_client_that_goes_half_way(server, client):
    client.set(b"k", value("old", 2 * MIB))
    with server.connect() as other:
        other.send(b"set k 0 0 %d\r\n" % (8 * MIB) + bytes(3 * MIB))
        wait_for(lambda: stat(client, "large_writes") >= 5)
    wait_for(lambda: stat(client, "large_values") == 1)
    assert client.get(b"k") == value("old", 2 * MIB)


def test_meta(client):
    big = value("meta", 3 * MIB + 1)
    assert client.ask(b"ms k %d T0 c F5\r\n" % len(big) + big + b"\r\n").startswith(b"HD c")
    assert client.ask(b"mg k v f s\r\n") == b"VA %d f5 s%d\r\n" % (len(big), len(big))
    assert client.file.read(len(big) + 2) == big + b"\r\n"
    assert client.ask(b"ms k %d MA\r\n" % len(big) + big + b"\r\n") == \
        b"SERVER_ERROR cannot append to a large value\r\n"


def packet(opcode, key=b"", extras=b"", body=b""):
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0,
                       len(extras) + len(key) + len(body), 1, 0) + extras + key + body


def answer(client):
    _, _, key, extras, _, status, size, _, _ = struct.unpack(">BBHBBHIIQ", client.file.read(24))
    return status, client.file.read(size)[extras + key:]


def test_binary(server):
    big = value("binary", 3 * MIB + 3)
    with server.connect() as client:
        client.send(packet(0x01, b"k", bytes(8), big))
        assert answer(client) == (0, b"")
        client.send(packet(0x00, b"k") + packet(0x0a))
        assert answer(client) == (0, big)
        assert answer(client) == (0, b"")
        client.send(packet(0x0e, b"k", b"", b"more"))
        assert answer(client) == (0x82, b"cannot append to a large value")


def test_readers_beside_writers(server):
    """Each version of a value is one byte over and over: whoever reads sees one version."""
    size, rounds, keys = 2 * MIB + 11, 12, [b"x", b"y"]
    broken = []

    def write(key):
        with server.connect() as client:
            for number in range(rounds):
                client.set(key, bytes([number]) * size)

    def read(key):
        with server.connect() as client:
            for _ in range(rounds):
                seen = client.get(key)
                if len(seen) != size or seen.count(seen[0]) != size:
                    broken.append(key)

    for key in keys:
        with server.connect() as client:
            client.set(key, b"\xff" * size)
    threads = [threading.Thread(target=what, args=(key,)) for key in keys for what in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not broken


def test_who_reads_slowly_reads_what_there_was(server, client):
    """Most of the value is still to be read from the file when the item is replaced and the space used."""
    old = value("old", 12 * MIB)
    client.set(b"k", old)
    with server.connect() as slow:
        slow.send(b"get k\r\n")
        assert slow.line() == b"VALUE k 0 %d\r\n" % len(old)
        for number in range(8):
            client.set(b"k", value(number, 12 * MIB))
        assert slow.file.read(len(old) + 7) == old + b"\r\nEND\r\n"
    assert client.get(b"k") == value(7, 12 * MIB)
    wait_for(lambda: stat(client, "large_values") == 1)


def nice_by_thread(pid):
    """Names of threads and how nice each is."""
    found = {}
    for task in os.scandir(f"/proc/{pid}/task"):
        name, _, rest = pathlib.Path(task.path, "stat").read_text().partition("(")[2].rpartition(")")
        found[name] = int(rest.split()[16])
    return found


def test_who_moves_values_gives_way_to_who_serves(server, client):
    pid = server.process.pid
    usual = os.getpriority(os.PRIO_PROCESS, pid)
    data = value("way", 4 * MIB)
    client.set(b"way", data)
    assert client.get(b"way") == data
    assert nice_by_thread(pid)["core-0"] == usual

    def workers():
        return [nice for name, nice in nice_by_thread(pid).items() if name.startswith("job-")]
    assert max(workers()) == min(usual + 15, 19)
    wait_for(lambda: usual in workers())  # The sweeper's, as soon as it has its name.


def receive_buffer(server, client):
    """How much the kernel keeps for the server of what this client sends, at most."""
    ours, its = client.socket.getsockname()[1], int(server.addresses[0].rsplit(":", 1)[1])
    shown = subprocess.run(["ss", "-tmnH", f"sport = :{its} and dport = :{ours}"], capture_output=True, text=True,
                           check=True)
    return int(re.search(r"\brb(\d+)", shown.stdout)[1])


def test_who_sends_a_large_value_is_not_far_ahead(server, client):
    """From its first one on; who sends none is left alone."""
    ahead = min(256 * 1024, int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text()))
    client.set(b"k", value("small", 60_000))
    before = receive_buffer(server, client)
    client.set(b"k", value("large", 4 * MIB))
    with server.connect() as other:
        other.set(b"k", b"v")
        assert receive_buffer(server, other) == before
    assert receive_buffer(server, client) == 2 * ahead != before


def test_the_file_is_bounded(fairway, tmp_path):
    with start(fairway, "--large-directory", str(tmp_path), "--large-limit", "16m") as server, \
            server.connect() as client:
        client.set(b"small", b"s")
        for number in range(20):
            client.set(b"k%d" % number, value(number, 2 * MIB))
            assert client.get(b"k0") == value(0, 2 * MIB)  # Who is read stays.
        assert client.get(b"k19") == value(19, 2 * MIB)
        assert client.get(b"k5") is None
        assert client.get(b"small") == b"s"
        figures = stats(client)
        assert int(figures["large_bytes"]) <= 16 * MIB == int(figures["large_limit"])
        assert int(figures["large_evictions"]) == int(figures["evictions"]) == 12
        with open(next(iter(nameless(server, tmp_path))), "rb") as file:
            assert os.fstat(file.fileno()).st_blocks * 512 <= 16 * MIB


def test_without_evictions_a_full_file_is_an_error(fairway, tmp_path):
    with start(fairway, "--large-directory", str(tmp_path), "--large-limit", "4m", "-M") as server, \
            server.connect() as client:
        big = value("m", 3 * MIB)
        client.set(b"a", big)
        full = b"SERVER_ERROR no space left for large values\r\n"
        assert client.ask(b"set b 0 0 %d\r\n" % len(big) + big + b"\r\n") == full
        assert client.ask(b"ms b %d\r\n" % len(big) + big + b"\r\n") == full
        client.set(b"small", b"s")
        assert client.get(b"a") == big
        assert client.ask(b"delete a\r\n") == b"DELETED\r\n"
        client.set(b"b", big)
        assert client.get(b"b") == big
        assert stat(client, "large_no_space") == 2


def test_a_value_longer_than_the_file(fairway, tmp_path):
    with start(fairway, "--large-directory", str(tmp_path), "--large-limit", "4m") as server, \
            server.connect() as client:
        client.set(b"a", value("n", 3 * MIB))
        big = bytes(5 * MIB)
        assert client.ask(b"set b 0 0 %d\r\n" % len(big) + big + b"\r\n") == \
            b"SERVER_ERROR no space left for large values\r\n"
        assert client.get(b"a") == value("n", 3 * MIB)


def nameless(server, folder):
    """The descriptors of the server that lead to files of the folder that have no name."""
    descriptors = f"/proc/{server.process.pid}/fd"
    for name in os.listdir(descriptors):
        try:
            target = os.readlink(f"{descriptors}/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{folder}/") and target.endswith("(deleted)"):
            yield f"{descriptors}/{name}"


class Killed(Exception):
    """So that nobody demands that the server ends well."""


def test_a_killed_server_leaves_no_file(fairway, tmp_path):
    with pytest.raises(Killed):
        with start(fairway, "--large-directory", str(tmp_path)) as server, server.connect() as client:
            client.set(b"k", value("k", 4 * MIB))
            assert list(nameless(server, tmp_path)) and not os.listdir(tmp_path)
            server.process.kill()
            server.process.wait()
            raise Killed
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("folder", ["/no/such/folder", "/proc"])
def test_where_no_file_can_be_made(fairway, folder):
    """The second is a file system on which nothing can be made, as one that is read-only."""
    big = bytes(2 * MIB)
    with start(fairway, "--large-directory", folder) as server, server.connect() as client:
        for _ in range(2):
            assert client.ask(b"set k 0 0 %d\r\n" % len(big) + big + b"\r\n") == \
                b"SERVER_ERROR disk error storing a large value\r\n"
        client.set(b"k", b"small")
        assert client.get(b"k") == b"small"
        assert "values of more than 1048576 bytes are refused: cannot make a file in" in server.read_log()


class Mounted(Served):
    """A server for which a file system of memory is mounted on a folder."""

    def __init__(self, fairway, folder, size, *arguments):
        super().__init__(fairway, *arguments)
        self.command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                        f'mount -t tmpfs -o size={size} none "$0" && exec "$@"', str(folder),
                        *self.command]


@pytest.mark.needs("user-namespaces")
def test_a_full_disk_is_one_clients_error(fairway, tmp_path):
    """The disk is smaller than the file may be."""
    with Mounted(fairway, tmp_path, "6m", "-I", "16m", "-m", "64", "--large-directory", str(tmp_path)) as server, \
            server.connect() as client, server.connect() as other:
        client.set(b"a", value("full", 4 * MIB))
        big = value("b", 4 * MIB)
        for _ in range(3):
            other.send(b"set b 0 0 %d\r\n" % len(big) + big + b"\r\nget b\r\nget a\r\n")
            client.set(b"small", b"s")
            assert client.get(b"small") == b"s"
            told = other.line()
            if told == b"STORED\r\n":
                break
            # It was not stored; another value made way, so that the next one finds room.
            assert told == b"SERVER_ERROR no space left for large values\r\n"
            assert other.line() == b"END\r\n" == other.line()
        assert told == b"STORED\r\n"
        assert client.get(b"b") == big
        assert stat(client, "large_write_errors") >= 1
        assert stat(client, "large_values") == 1


def test_a_volume_instead(fairway, tmp_path):
    path = tmp_path / "volume"
    path.write_bytes(b"\xee" * (8 * MIB))
    with start(fairway, "--large-volume", str(path)) as server, server.connect() as client:
        client.set(b"k", value("v", 4 * MIB))
        assert client.get(b"k") == value("v", 4 * MIB)
        assert stat(client, "large_limit") == 8 * MIB
        assert value("v", 4 * MIB)[:4096] in path.read_bytes()
        with start(fairway, "--large-volume", str(path)) as second, second.connect() as other:
            big = bytes(2 * MIB)
            assert other.ask(b"set k 0 0 %d\r\n" % len(big) + big + b"\r\n") == \
                b"SERVER_ERROR disk error storing a large value\r\n"
        for number in range(10):
            client.set(b"k%d" % number, value(number, 3 * MIB))
        assert client.get(b"k9") == value(9, 3 * MIB)


def test_a_disk_that_cannot_be_read(fairway, tmp_path):
    """What is behind the value goes: its client's connection is closed, once, and the item is gone."""
    path = tmp_path / "volume"
    path.write_bytes(bytes(8 * MIB))
    with start(fairway, "--large-volume", str(path)) as server, server.connect() as client, \
            server.connect() as other:
        client.set(b"k", value("v", 4 * MIB))
        os.truncate(path, 0)
        client.send(b"get k\r\n")
        assert len(client.file.read()) < 4 * MIB
        assert other.get(b"k") is None
        assert stat(other, "large_read_errors") == 1
        os.truncate(path, 8 * MIB)
        other.set(b"k", value("w", 4 * MIB))
        assert other.get(b"k") == value("w", 4 * MIB)
        assert stat(other, "large_values") == 1


def test_over_a_restart(fairway, tmp_path):
    arguments = ["--memory-file", str(tmp_path / "image"), "--large-directory", str(tmp_path)]
    with start(fairway, *arguments) as server, server.connect() as client:
        for size in SIZES:
            client.set(b"k%d" % size, value("r", size))
        client.set(b"small", b"s")
    with start(fairway, *arguments) as server, server.connect() as client:
        for size in SIZES:
            assert client.get(b"k%d" % size) == value("r", size)
        assert client.get(b"small") == b"s"
        assert stat(client, "large_values") == len(SIZES) - 1


def test_dump_and_load(fairway, tmp_path):
    with start(fairway, "--large-directory", str(tmp_path)) as old, start(fairway) as new, \
            old.connect() as client, new.connect() as other:
        for size in SIZES:
            client.set(b"k%d" % size, value("d", size))
        path = tmp_path / "items.dump"
        subprocess.run([fairway, "dump", "--server", old.addresses[0], path], check=True, timeout=START_S)
        subprocess.run([fairway, "load", "--server", new.addresses[0], path], check=True, timeout=START_S)
        for size in SIZES:
            assert other.get(b"k%d" % size) == value("d", size)
