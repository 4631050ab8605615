# SPDX-License-Identifier: Apache-2.0
"""Goal: a clean stop keeps the items for the next start, in as many ways as a server is stopped; what is damaged
or could be out of date is not used, and the log says so.
Method: the program with --memory-file, stopped by signals and by the command, killed at bad moments, and started
again. How many items the large one has: RESTART_ITEMS in the environment, 20,000 else."""

import os
import re
import resource
import signal
import subprocess

import pytest

from contents import Item, check, fill, some
from conform.peer import Peer, wait_until
from support.patience import PATIENCE_S

LARGE = int(os.environ.get("RESTART_ITEMS", 20000))


@pytest.fixture
def image(tmp_path):
    return tmp_path / "items"


@pytest.fixture
def serve(fairway, image):
    """A server that keeps its items; the log of the last one is read after its end."""
    return lambda *flags: Peer([str(fairway), "serve"], "-e", image, "--log-file", image.parent / "log", *flags)


def log_of(image):
    return (image.parent / "log").read_text()


def wait_for_log(image, text):
    """While it serves: lines are written by a thread of the log's own."""
    wait_until(lambda: text in log_of(image), text)


def files(image):
    return sorted(set(os.listdir(image.parent)) - {"log", "items.lock"})


@pytest.mark.parametrize("stop", ["SIGTERM", "SIGINT", "SIGUSR1", "shutdown"])
def test_items_outlive_a_clean_stop(serve, image, stop):
    items = some()
    with serve("-A") as server, server.connect() as client:
        wait_for_log(image, "starting empty: there is no ")
        fill(client, items)
        client.send(b"ms counted 1 c\r\n5\r\n")
        cas = int(client.line().split()[1][1:])
        if stop == "shutdown":
            client.send(b"shutdown\r\n")
        else:
            server.process.send_signal(getattr(signal, stop))
        assert server.process.wait(PATIENCE_S) == 0
    assert re.search(rf"kept {len(items) + 1} items in \S+, \d+ bytes, in \d+\.\d\d s", log_of(image))
    assert files(image) == ["items"] and image.stat().st_mode & 0o777 == 0o600
    with serve() as server, server.connect() as client:
        wait_for_log(image, f"read {len(items) + 1} items from ")
        client.settled()
        check(client, items)
        client.ask(b"mg counted c v\r\n", b"VA 1 c%d\r\n5\r\n" % cas)
        client.send(b"ms next 1 c\r\nx\r\n")
        assert int(client.line().split()[1][1:]) > cas


def test_killed_servers_bring_nothing_back(serve, image):
    """The image stays, since it may be the only copy, but is not read again unless a person says so."""
    with serve() as server, server.connect() as client:
        fill(client, [Item(b"a", b"1")])
    with serve() as server, server.connect() as client:
        client.ask(b"md a\r\n", b"HD\r\n")
        server.process.kill()
        server.process.wait()
        server.process.returncode = 0  # As it was wanted.
    kept = image.read_bytes()
    with serve() as server, server.connect() as client:
        wait_for_log(image, "was not stopped cleanly")
        assert client.get(b"a") is None
        assert image.read_bytes() == kept
        server.process.kill()
        server.process.wait()
        server.process.returncode = 0
    (image.parent / "items.lock").unlink()
    with serve() as server, server.connect() as client:
        check(client, [Item(b"a", b"1")])


def written(server, image):
    """How long the image that is being written is: it has no name yet. None: there is none."""
    descriptors = f"/proc/{server.process.pid}/fd"
    try:
        for name in os.listdir(descriptors):
            target = os.readlink(f"{descriptors}/{name}")
            if target.startswith(f"{image.parent}/") and not target.endswith(("/log", ".lock")):
                return os.stat(f"{descriptors}/{name}").st_size
    except OSError:
        pass  # It was closed, or the process has ended, while this looked.
    return None


@pytest.mark.parametrize("share", [None, 0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_killed_while_it_saves(serve, image, share):
    """At the order to stop, and when so much of the image is written, or a little more. Then the next server has
    all items or none, and says which; never a part of them."""
    items = [Item(b"k%d" % number, b"%d" % (number % 10) * 900_000) for number in range(50)]
    whole = sum(len(item.value) for item in items)
    with serve("-m", "128") as server, server.connect() as client:
        fill(client, items)
        server.process.send_signal(signal.SIGTERM)
        while share is not None and server.process.poll() is None and not image.exists():
            length = written(server, image)
            if length is not None and length >= share * whole:
                break
        server.process.kill()
        server.process.wait()
        server.process.returncode = 0  # As it was wanted.
    is_whole = image.exists()
    assert files(image) == (["items"] if is_whole else [])
    with serve("-m", "128") as server, server.connect() as client:
        said, times = ("read 50 items from ", 1) if is_whole else ("starting empty: there is no ", 2)
        wait_until(lambda: log_of(image).count(said) == times, said)
        check(client, items if is_whole else [])
        if not is_whole:
            client.ask(b"mg k0\r\n", b"EN\r\n")


@pytest.mark.parametrize("spoil, words", [
    (lambda data: data[:-1], "cut short at byte "),
    (lambda data: data[:1000], "cut short at byte 1000"),
    (lambda data: data[:-100] + b"?" + data[-99:], "damaged at byte "),
    (lambda data: b"", "this is no dump"),
    (lambda data: data + b"\0", "something follows the end"),
], ids=["cut", "cut in a block", "changed", "empty", "longer"])
def test_damaged_images_are_refused(serve, image, spoil, words):
    with serve() as server, server.connect() as client:
        fill(client, some(500))
    image.write_bytes(spoil(image.read_bytes()))
    with serve() as server, server.connect() as client:
        wait_for_log(image, f"starting empty: cannot use {image}: ")
        assert words in log_of(image)
        client.ask(b"dump 0 1\r\n", b"EN\r\n")
        fill(client, [Item(b"new", b"1")])
    with serve() as server, server.connect() as client:
        check(client, [Item(b"new", b"1")])
        assert server.stat("curr_items") == "1"


def test_a_start_that_fails_keeps_the_image(serve, image, fairway):
    with serve() as server, server.connect() as client:
        fill(client, [Item(b"a", b"1")])
    done = subprocess.run([str(fairway), "serve", "-e", str(image), "-l", "192.0.2.1"], capture_output=True, check=False)
    assert done.returncode == 71 and files(image) == ["items"]
    with serve() as server, server.connect() as client:
        check(client, [Item(b"a", b"1")])


def test_full_disk(serve, image):
    """The items are lost, which the log and the exit status say. The image of the last stop stays, and no half one."""
    with serve() as server, server.connect() as client:
        fill(client, some(500))
    old = image.read_bytes()
    with serve() as server, server.connect() as client:
        client.settled()
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (50000, 50000))
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 1
        server.process.returncode = 0
    assert "error" in log_of(image) and "the items are not kept: cannot write " in log_of(image)
    assert files(image) == ["items"] and image.read_bytes() == old


def test_dumps_are_images(serve, image, fairway):
    """What `fairway dump` wrote, of whichever server, starts another."""
    items = some(500)
    with Peer(["memcached", "-U", "0"]) as old, old.connect() as client:
        fill(client, items)
        subprocess.run([str(fairway), "dump", "--server", "{}:{}".format(*old.address), str(image)], check=True,
                       stdout=subprocess.DEVNULL)
    with serve() as server, server.connect() as client:
        check(client, items)


def test_many_items(serve, image):
    """Nothing is lost of a large table; the log tells how long it took."""
    with serve("-m", "1024") as server, server.connect() as client:
        for first in range(0, LARGE, 1000):
            client.send(b"".join(b"ms key:%d 20 q\r\n%020d\r\n" % (i, i) for i in range(first, first + 1000)))
        client.settled()
    with serve("-m", "1024") as server, server.connect() as client:
        wait_for_log(image, f"read {LARGE} items from ")
        assert server.stat("curr_items") == str(LARGE)
        for first in range(0, LARGE, 1000):
            client.send(b"".join(b"mg key:%d v\r\n" % i for i in range(first, first + 1000)))
            client.expect(b"".join(b"VA 20\r\n%020d\r\n" % i for i in range(first, first + 1000)))
    print(log_of(image))
