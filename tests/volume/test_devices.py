# SPDX-License-Identifier: Apache-2.0
"""Goal: `volume format` and `ring create` destroy nothing that somebody may want: a device with a known
signature, one that is mounted or held, a file of other content. They say what they found, and leave it as it
was; --force says what it overwrites. A device that is mounted or held is refused in any case.
Method: loop devices and files with such content, made by other people's tools; both commands on each."""

import os
import pathlib
import struct
import subprocess

import pytest

from group import FAILED, OK
from lvm import QUIET, loop_device

SIZE = 64 << 20

COMMANDS = {"format": ["volume", "format", "--extent-size", "64k", "--ring-size", "64k"],
            "ring": ["ring", "create"]}

device_needs = pytest.mark.needs("root", "loop-devices")


@pytest.fixture(params=list(COMMANDS))
def make(fairway, request):
    """Gives one of the two commands."""
    def run(path, *options):
        return subprocess.run([fairway, *COMMANDS[request.param], *options, path], capture_output=True,
                              timeout=120, check=False)
    run.name = request.param
    return run


@pytest.fixture
def device(tmp_path):
    image = tmp_path / "disk"
    with open(image, "wb") as file:
        file.truncate(SIZE)
    with loop_device(image) as device:
        yield device


def tool(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=120, env=QUIET)


def swap(device):
    tool("mkswap", "-L", "mine", device)


def ext4(device):
    tool("mkfs.ext4", "-q", "-L", "mine", device)


def partitions(device):
    """One of DOS: an entry with type, first sector and sectors, and its magic."""
    entry = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0x83, b"\0\2\0", 2048, 2048)
    with open(device, "r+b") as file:
        file.write(bytes(446) + entry.ljust(64, b"\0") + b"\x55\xaa")


def physical_volume(device):
    tool("pvcreate", "-qq", "--driverloaded", "n", device)


def refused(make, path, says, *options):
    """Whatever it is: it says what it found, and nothing has changed."""
    before = pathlib.Path(path).read_bytes()
    done = make(path, *options)
    assert done.returncode == FAILED and says in done.stderr, done
    assert done.stderr.startswith(b"fairway: ") and done.stderr.count(b"\n") == 1
    assert pathlib.Path(path).read_bytes() == before


@device_needs
@pytest.mark.parametrize("sign, says", [
    (swap, b"swap, label 'mine'"), (ext4, b"ext4, label 'mine'"), (partitions, b"a partition table, dos"),
    pytest.param(physical_volume, b"LVM2_member", marks=pytest.mark.needs("lvm"))],
    ids=["swap", "ext4", "partitions", "lvm"])
def test_a_signature(make, device, sign, says):
    sign(device)
    refused(make, device, says)
    refused(make, device, says, "--replace")
    done = make(device, "--force")
    assert done.returncode == OK, done
    assert says in done.stderr and b"which is lost" in done.stderr


@device_needs
@pytest.mark.needs("mounts")
def test_mounted(make, device, tmp_path):
    ext4(device)
    place = tmp_path / "place"
    place.mkdir()
    tool("mount", device, place)
    try:
        (place / "file").write_bytes(b"precious")
        for options in ([], ["--force"], ["--force", "--replace"]):
            done = make(device, *options)
            assert done.returncode == FAILED and f"it is mounted on {place}".encode() in done.stderr, done
    finally:
        tool("umount", place)
    tool("e2fsck", "-fn", device)
    tool("mount", device, place)
    try:
        assert (place / "file").read_bytes() == b"precious"
    finally:
        tool("umount", place)


@device_needs
def test_held(make, device):
    """As a driver holds it: nobody else may have it for himself."""
    holder = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        refused(make, device, b"it is in use")
        done = make(device, "--force")
        assert done.returncode == FAILED and b"it is in use" in done.stderr, done
    finally:
        os.close(holder)
    assert make(device).returncode == OK


@device_needs
def test_a_device_without_a_signature(make, device):
    """It may hold anything: disks are rarely zeros."""
    with open(device, "r+b") as file:
        file.write(b"\xa5" * (1 << 20))
    assert make(device).returncode == OK


@pytest.mark.parametrize("content, says", [
    (b"notes\n", b"data of another program"), (b"notes\n" * 1000, b"data of another program"),
    (bytes(1 << 20) + b"far behind" + bytes(1 << 20), b"data of another program")],
    ids=["a-line", "a-text", "far-behind"])
def test_a_file_of_other_content(make, tmp_path, content, says):
    path = tmp_path / "file"
    path.write_bytes(content)
    refused(make, path, says)
    refused(make, path, says, "--size", "16m")
    refused(make, path, says, "--size", "16m", "--replace")
    done = make(path, "--size", "16m", "--force")
    assert done.returncode == OK and says in done.stderr, done


@pytest.mark.parametrize("content", [b"", bytes(100), bytes(1 << 20)], ids=["empty", "short", "zeros"])
def test_a_file_without_content(make, tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    done = make(path, "--size", "16m")
    assert done.returncode == OK and done.stderr == b"", done


def test_each_others(make, fairway, tmp_path):
    """A ring is not made over a group, nor a group over a ring."""
    path = tmp_path / "file"
    other, says = ("ring", b"a ring of format 1") if make.name == "format" else ("format", b"a group of volumes")
    subprocess.run([fairway, *COMMANDS[other], "--size", "16m", path], check=True, timeout=120)
    refused(make, path, says)
    refused(make, path, says, "--replace", "--size", "32m")
    assert make(path, "--force").returncode == OK


def test_a_group_is_not_extended_in_vain(fairway, tmp_path):
    path = tmp_path / "group"
    command = [fairway, *COMMANDS["format"], "--size"]
    subprocess.run([*command, "16m", path], check=True, timeout=120)
    done = subprocess.run([*command, "32m", path], capture_output=True, timeout=120, check=False)
    assert done.returncode == FAILED and b"there is a group of volumes already" in done.stderr
    assert path.stat().st_size == 16 << 20
