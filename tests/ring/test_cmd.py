# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway ring` does for people what the library does for programs, reads what the prototype
wrote, and explains damage without touching it.
Method: the program on files; images of the prototype; images spoilt in known places."""

import json
import os
import shutil
import subprocess

import pytest

OK, FAILED, USAGE = 0, 1, 64
DATA = 3 * 512


@pytest.fixture
def ring(fairway):
    def ring(*arguments, stdin=b""):
        return subprocess.run([fairway, "ring", *map(str, arguments)], input=stdin,
                              capture_output=True, timeout=60, check=False)
    return ring


@pytest.fixture(params=["1", "2"])
def path(ring, tmp_path, request):
    path = tmp_path / "ring"
    assert ring("create", "--size", "64k", "--format", request.param, path).returncode == OK
    return path


def dump(ring, path, *options):
    done = ring("dump", "--json", *options, path)
    return json.loads(done.stdout)


def test_messages_go_through(ring, path):
    for text in (b"one", b"", b"two\n\x00\xff"):
        assert ring("push", path, stdin=text).returncode == OK
    told = dump(ring, path)
    assert [message["length"] for message in told["messages"]] == [3, 0, 6]
    assert [message["data"] for message in told["messages"]][:2] == ["one", ""]
    assert told["messages"][2]["hex"] == b"two\n\x00\xff".hex()
    assert told["messages"][0]["offset"] == told["consumer"] == 0
    assert not told["suspend"] and not told["suspend_ack"] and told["damage"] == []
    assert ring("pop", "--keep", path).stdout == b"one"
    for text in (b"one", b"", b"two\n\x00\xff"):
        done = ring("pop", path)
        assert (done.returncode, done.stdout) == (OK, text)
    done = ring("pop", path)
    assert (done.returncode, done.stdout) == (FAILED, b"")
    assert b"the ring is empty" in done.stderr
    told = dump(ring, path)
    assert told["producer"] == told["consumer"] > 0


def test_create_makes_format_1_and_leaves_what_is_there(ring, tmp_path):
    path = tmp_path / "ring"
    assert ring("create", "--size", "4096", path).returncode == OK
    assert path.read_bytes().startswith(b"mirage shared-block-device 1.0\0")
    assert ring("push", path, stdin=b"kept").returncode == OK
    assert ring("create", path).returncode == OK
    assert dump(ring, path)["messages"][0]["data"] == "kept"
    done = ring("create", "--format", "2", "--size", "64k", path)
    assert done.returncode == FAILED and b"another format" in done.stderr
    assert path.stat().st_size == 4096
    assert ring("create", "--format", "2", "--replace", "--size", "64k", path).returncode == OK
    assert dump(ring, path)["format"] == 2


@pytest.mark.parametrize("form", ["1", "2"])
def test_growth_keeps_what_waits(ring, tmp_path, form):
    """In a longer file the messages of format 1 are not where their positions say. So a ring with messages
    stays as it is; an empty one grows."""
    path = tmp_path / "ring"
    assert ring("create", "--format", form, "--size", "32k", path).returncode == OK
    for number in range(40):  # All around, so that what waits goes over the end.
        assert ring("push", path, stdin=bytes([number]) * 3000).returncode == OK
        if number < 36:
            assert ring("pop", path).returncode == OK
    before = path.read_bytes()
    done = ring("create", "--format", form, "--size", "64k", path)
    if form == "1":
        assert done.returncode == FAILED and b"messages wait in the ring" in done.stderr
        assert path.read_bytes() == before
    else:  # Which says itself how large it is.
        assert done.returncode == OK
    for number in range(36, 40):
        assert ring("pop", path).stdout == bytes([number]) * 3000
    assert ring("create", "--format", form, "--size", "64k", path).returncode == OK
    assert path.stat().st_size == 64 << 10
    for number in range(10):
        assert ring("push", path, stdin=bytes([number]) * 3000).returncode == OK
        assert ring("pop", path).stdout == bytes([number]) * 3000
    assert dump(ring, path)["damage"] == []


def test_a_ring_in_use_does_not_grow(ring, fairway, tmp_path):
    """Whoever is attached has its size in mind."""
    path = tmp_path / "ring"
    assert ring("create", "--size", "4096", path).returncode == OK
    with subprocess.Popen([fairway, "ring", "follow", path], stdout=subprocess.PIPE) as follower:
        ring("push", path, stdin=b"attached")
        assert follower.stdout.readline() == b"attached\n"
        done = ring("create", "--size", "8192", path)
        follower.terminate()
    assert done.returncode == FAILED and b"attached" in done.stderr
    assert path.stat().st_size == 4096


def test_create_makes_a_file_of_its_own_accord(ring, tmp_path):
    path = tmp_path / "ring"
    done = ring("create", "--size", "1k", path)
    assert done.returncode == FAILED and b"needs 4 sectors" in done.stderr
    assert not path.exists()
    assert ring("create", path).returncode == OK
    assert path.stat().st_size == 1 << 20
    done = ring("create", "/dev/no-such-device")
    assert done.returncode == FAILED and b"No such file" in done.stderr


def test_text_for_people(ring, tmp_path):
    path = tmp_path / "ring"
    ring("create", "--size", "4096", path)
    assert path.read_bytes()[512 + 128] == 0
    ring("push", path, stdin=b"hello")
    text = path.read_bytes()[512 + 128:1024].rstrip(b"\0")
    assert text == b"unknown used by unknown; producer = 12; suspend_ack = false"
    ring("pop", "--queue", "q", "--client", "gen", path)
    text = path.read_bytes()[1024 + 128:DATA].rstrip(b"\0")
    assert text == b"q used by gen; consumer = 12; suspend = false"


def test_what_is_no_disk_is_refused(ring, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for action in ("create", "info", "dump", "push", "pop", "suspend"):
        done = ring(action, path)
        assert done.returncode == FAILED and b"neither a block device" in done.stderr


def test_suspend_and_resume(ring, path):
    assert ring("suspend", path).returncode == OK
    done = ring("resume", path)
    assert done.returncode == FAILED and b"has not answered" in done.stderr
    done = ring("push", path, stdin=b"late")
    assert done.returncode == FAILED and b"suspended" in done.stderr
    told = dump(ring, path)
    assert told["suspend"] and told["suspend_ack"] and told["messages"] == []
    assert ring("resume", path).returncode == OK
    told = dump(ring, path)
    assert not told["suspend"] and told["suspend_ack"]
    assert ring("push", path, stdin=b"now").returncode == OK
    told = dump(ring, path)
    assert not told["suspend_ack"] and told["messages"][0]["data"] == "now"
    done = ring("suspend", "--wait", "20ms", "--interval", "5ms", path)
    assert done.returncode == FAILED and b"not answered in time" in done.stderr


def test_full_and_too_large(fairway, ring, tmp_path):
    path = tmp_path / "ring"
    assert ring("create", "--size", "4096", path).returncode == OK
    done = ring("push", path, stdin=bytes(2557))
    assert done.returncode == FAILED and b"never fit" in done.stderr
    assert ring("push", path, stdin=bytes(2556)).returncode == OK
    done = ring("push", path)
    assert done.returncode == FAILED and b"full" in done.stderr
    assert b"1 with 2556 bytes" in ring("info", path).stdout
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([fairway, "ring", "push", path], stdin=endless, capture_output=True,
                              timeout=60, check=False)
    assert done.returncode == FAILED and b"at most 256 MiB" in done.stderr


def test_follow(fairway, ring, path):
    ring("push", path, stdin=b"first")
    with subprocess.Popen([fairway, "ring", "follow", "--interval", "1ms", path],
                          stdout=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"first\n"
        assert ring("push", path, stdin=b"second").returncode == OK
        assert follower.stdout.readline() == b"second\n"
        done = ring("pop", path)
        assert done.returncode == FAILED and b"as its consumer already" in done.stderr
        while dump(ring, path)["messages"]:  # It gives a message back after it has printed it.
            pass
        follower.kill()
    assert ring("pop", path).stderr.endswith(b"the ring is empty\n")


def vectors(source):
    return source / "tests" / "ring" / "vectors"


@pytest.mark.parametrize("name, expected", [
    ("01-empty", []), ("03-push-noadvance", []),
    ("05-header-at-sector-end", [(0, 504), (508, 10)]),
    ("07-wraparound", [(2048, 1000), (3052, 10)]),
    ("13-offset-over-4g", [(4294971136, 21)]),
    ("15-journal-pending", [(0, 4), (8, 4), (16, 4)]),
])
def test_images_of_the_prototype(ring, source, name, expected):
    told = dump(ring, vectors(source) / f"{name}.img")
    assert [(message["offset"], message["length"]) for message in told["messages"]] == expected


def test_image_with_large_sectors(ring, source):
    path = vectors(source) / "14-sector4096.img"
    for options in ([], ["--sector-size", "4096"]):
        told = dump(ring, path, *options)
        assert told["sector_size"] == 4096
        assert [message["length"] for message in told["messages"]] == [6, 5000]


@pytest.mark.parametrize("offset, value, says", [
    (0, b"M", b"sector 0"),
    (512 + 8, b"\x07", b"sector 1 (producer): byte 8 is 7"),
    (1024, b"\x03", b"sector 2 (consumer): position 3"),
    (1024, b"\xfc", b"is ahead of the producer"),
    (DATA, b"\xff", b"message at 0 (sector 3): its length 255"),
])
def test_damage_is_explained_and_left_alone(ring, source, tmp_path, offset, value, says):
    path = tmp_path / "spoilt"
    shutil.copy(vectors(source) / "04-lengths.img", path)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(value)
    before = path.read_bytes()
    done = ring("dump", path)
    assert done.returncode == FAILED
    assert says in done.stdout + done.stderr
    for action in ("push", "pop", "suspend", "resume"):
        done = ring(action, path, stdin=b"x")
        assert done.returncode == FAILED or offset == DATA
    if offset != DATA:
        assert path.read_bytes() == before


@pytest.mark.parametrize("arguments", [[], ["create"], ["twist", "x"], ["dump", "a", "b"],
                                       ["create", "--format", "3", "x"]])
def test_wrong_calls(ring, arguments):
    done = ring(*arguments)
    assert done.returncode == USAGE
    assert done.stderr.startswith(b"fairway: ") and done.stderr.count(b"\n") == 1
