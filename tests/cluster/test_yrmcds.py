# SPDX-License-Identifier: Apache-2.0
"""Goal: yrmcds can be our slave and our master: it gets a copy and every change, understands all of it, and serves what
it has when the address moves to it; and the other way round.
Method: yrmcds as Debian ships it and a server of ours on two nodes; a third has the clients. Either can be read only as
master, so the first is killed and the virtual address given to the second; then every item is compared."""

import contextlib
import random
import re

import pytest

from cluster import DEADLINE_S, run, wait_for
from ha import ADDRESS, ask

pytestmark = pytest.mark.needs("user-namespaces", "yrmcds")

# A value beyond 256 KiB goes to a file.
CONFIG = """\
virtual_ip = {address}
temp_dir = "{folder}"
log.threshold = debug
log.file = "{folder}/yrmcds.log"
buckets = 10000
max_data_size = 2M
heap_data_limit = 256K
memory_limit = 128M
workers = 2
gc_interval = 1
"""
OURS = ["--listen", "0.0.0.0", "-t", "2", "-m", "64", "-I", "2m", "--repl-enable", "--repl-listen", "0.0.0.0",
        "--repl-admit", "10.99.0.1,10.99.0.2", "--repl-virtual-address", ADDRESS, "--repl-admit-others",
        "--repl-serve-reads"]


@pytest.fixture(scope="session")
def fairway(build):
    return build / "fairway"


@contextlib.contextmanager
def running(node, *command):
    """A server on a node; its log is shown if the test fails."""
    log = node.folder / "server.log"
    with open(log, "ab") as output:
        process = node.start(command, stdout=output, stderr=output)
    try:
        yield process
    except BaseException:
        print(f"--- {node.name}\n" + log.read_text(encoding="utf-8")[-3000:])
        raise
    finally:
        process.kill()
        process.wait(timeout=DEADLINE_S)


@contextlib.contextmanager
def yrmcds(node):
    """A yrmcds on a node, and how to read its log."""
    config, log = node.folder / "yrmcds.conf", node.folder / "yrmcds.log"
    config.write_text(CONFIG.format(address=ADDRESS, folder=node.folder), encoding="ascii")
    with running(node, "yrmcdsd", "-f", config):
        try:
            yield lambda: log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        except BaseException:
            print(f"--- yrmcds\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
            raise


def give(node):
    """The address, and others forget who had it, as keepalived would have told them."""
    run("ip", "-n", node.space, "address", "add", f"{ADDRESS}/32", "dev", "eth0")
    for other in node.cluster.nodes:
        run("ip", "-n", other.space, "neighbour", "flush", "all")


def stats(node, address=ADDRESS):
    """Of ours; empty while nobody answers."""
    answer = ask(node, b"stats replication\r\n", b"END\r\n", address) or b""
    return dict(line.split(" ", 2)[1:] for line in answer.decode().splitlines() if line.count(" ") >= 2)


def store(node, items):
    """All of {key: (flags, seconds, value)}."""
    question = b"".join(b"set %s %d %d %d\r\n%s\r\n" % (key, flags, seconds, len(value), value)
                        for key, (flags, seconds, value) in items.items())
    assert ask(node, question, b"STORED\r\n" * len(items)) == b"STORED\r\n" * len(items)


def fetch(node, keys, address=ADDRESS):
    """{key: (flags, value)} of those that are there; None: nobody answers.

    yrmcds accepts connections while it becomes master, and then forgets them: better to ask again soon."""
    answer = ask(node, b"get %s\r\n" % b" ".join(keys), b"END\r\n", address, patience_s=5)
    found = {}
    while answer is not None and (head := re.match(rb"VALUE (\S+) (\d+) (\d+)\r\n", answer)):
        begin, length = head.end(), int(head[3])
        found[head[1]] = (int(head[2]), answer[begin:begin + length])
        answer = answer[begin + length + 2:]
    return None if answer is None else found


class Story:
    """Items, and what happens to them: some before there is a slave, some then."""

    def __init__(self):
        draws = random.Random(1)
        self.before = {b"flags": (2**32 - 1, 0, b"abc"), b"empty": (0, 0, b""), b"k" * 250: (1, 3600, b"long key"),
                       b"binary": (2, 0, bytes(range(256))), b"large": (3, 0, draws.randbytes(900_000)),
                       b"removed": (0, 0, b"1"), b"number": (0, 0, b"41"), b"text": (4, 0, b"a"),
                       b"kept": (0, 3600, b"k"), b"fleeting": (0, 0, b"f")}
        self.before.update((b"item%d" % i, (i, 0, draws.randbytes(100))) for i in range(50))
        self.after = {b"new": (6, 0, b"new"), b"item7": (70, 0, b"again"), b"big": (0, 0, draws.randbytes(500_000))}
        self.expected = {key: (flags, value) for key, (flags, _, value) in {**self.before, **self.after}.items()}
        self.expected.update({b"number": (0, b"42"), b"text": (4, b"ab"), b"last": (9, b"last")})
        self.gone = [b"removed", b"fleeting"]
        for key in self.gone:
            del self.expected[key]
        self.keys = [*self.expected, *self.gone]

    def begin(self, node):
        store(node, self.before)

    def go_on(self, node):
        for question, answer in ((b"touch kept 0", b"TOUCHED"), (b"touch fleeting 1", b"TOUCHED"), (b"incr number 1", b"42"),
                                 (b"append text 0 0 1\r\nb", b"STORED"), (b"delete removed", b"DELETED")):
            assert ask(node, question + b"\r\n", b"\r\n") == answer + b"\r\n"
        store(node, self.after)
        wait_for(lambda: fetch(node, self.gone) == {}, "an item to expire")
        store(node, {b"last": (9, 0, b"last")})

    def assert_told(self, node, address=ADDRESS):
        """Times to live are relative in the stream: an item that has expired at the master does so here a moment later."""
        wait_for(lambda: fetch(node, self.gone, address) == {}, "an item to expire")
        assert fetch(node, self.keys, address) == self.expected


def test_it_follows_us(cluster, fairway):
    story = Story()
    first, second, client = cluster.nodes
    give(first)
    with running(first, fairway, "serve", *OURS) as ours:
        wait_for(lambda: stats(client).get("role") == "master", "a master")
        story.begin(client)
        with yrmcds(second) as log:
            wait_for(lambda: stats(client).get("0:state") == "streaming", "a slave")
            story.go_on(client)
            wait_for(lambda: "repl: set last" in log(), "the slave to have the last item")
            assert log().count("repl: set kept") == 2  # Touched: yrmcds may have dropped it, and is told all of it.
            rows = stats(client)
            assert (rows["copies"], rows["damaged"], rows["silent"], rows["drops"]) == ("1", "0", "0", "0")
            ours.kill()
            ours.wait(timeout=DEADLINE_S)
            first.drop_address(ADDRESS)
            give(second)
            wait_for(lambda: fetch(client, [b"last"]), "yrmcds to serve")
            story.assert_told(client)
            assert re.findall(r" ERROR (.*)", log()) == []


def test_it_confirms_nothing(cluster, fairway):
    """In acknowledged mode it does not count: a client is refused, rather than told what is not so."""
    first, second, client = cluster.nodes
    give(first)
    with running(first, fairway, "serve", *OURS, "--repl-ack", "1"), yrmcds(second):
        wait_for(lambda: stats(client).get("0:state") == "streaming", "a slave")
        assert ask(client, b"set a 0 0 1\r\n1\r\n", b"\r\n") == b"SERVER_ERROR out of capacity, try again later\r\n"
        assert fetch(client, [b"a"]) == {}


def test_we_follow_it(cluster, fairway):
    story = Story()
    first, second, client = cluster.nodes
    give(first)
    with contextlib.ExitStack() as until:
        until.enter_context(yrmcds(first))
        wait_for(lambda: fetch(client, [b"x"]) == {}, "yrmcds to serve")
        story.begin(client)
        with running(second, fairway, "serve", *OURS):
            wait_for(lambda: fetch(client, [b"large"], second.address), "a copy")
            story.go_on(client)
            wait_for(lambda: fetch(client, [b"last"], second.address), "the last item")
            story.assert_told(client, second.address)
            assert ask(client, b"mg kept t\r\n", b"\r\n", second.address) == b"HD t-1\r\n"
            until.close()
            first.drop_address(ADDRESS)
            give(second)
            wait_for(lambda: stats(client).get("role") == "master", "ours to be master")
            story.assert_told(client)
            store(client, {b"written": (0, 0, b"since")})
