# SPDX-License-Identifier: Apache-2.0
"""Goal: items that somebody may have no other copy of are not destroyed, and no secret is read from a file that
everybody can read. Method: two servers with one image, images in places where none can be written, a server that
is killed after it read a dump, and files of passwords with all kinds of permissions."""

import os
import signal
import subprocess

import pytest

from served import Served

FAILED, USAGE = 1, 64


def refused(fairway, *arguments):
    """What a server says that does not start, and its status."""
    done = subprocess.run([fairway, "serve", "-l", "127.0.0.1:0", *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stderr


def stored(fairway, image, key):
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        client.set(key, b"1")


def test_two_servers_do_not_share_an_image(fairway, tmp_path):
    image = tmp_path / "items"
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        client.set(b"a", b"1")
        status, said = refused(fairway, "--memory-file", image)
        assert status == FAILED and f"another server uses {image}" in said
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        assert client.get(b"a") == b"1"


@pytest.mark.parametrize("path", ["missing/items", "folder", "file/items"])
def test_a_place_that_cannot_be_written_is_refused_at_start(fairway, tmp_path, path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    status, said = refused(fairway, "--memory-file", tmp_path / path)
    assert status == USAGE and "--memory-file: cannot " in said and str(tmp_path) in said
    config = tmp_path / "fairway.conf"
    config.write_text(f"[server]\nmemory-file = {tmp_path / path}\n")
    checked = subprocess.run([fairway, "config", "check", config], capture_output=True, text=True, check=False)
    assert checked.returncode != 0 and "--memory-file: cannot " in checked.stdout + checked.stderr


def test_a_dump_survives_a_server_that_is_killed(fairway, tmp_path):
    image = tmp_path / "items"
    stored(fairway, image, b"a")
    dump = image.read_bytes()
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        assert client.get(b"a") == b"1"
        server.process.kill()
        server.process.wait()
        server.process.returncode = 0  # As it was wanted.
    assert image.read_bytes() == dump
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        assert client.get(b"a") is None, "another server may have changed it"
        assert image.read_bytes() == dump
        client.set(b"b", b"1")
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        assert client.get(b"b") == b"1"  # A clean stop has replaced it.


def test_a_dump_that_a_person_puts_there_is_used(fairway, tmp_path):
    image = tmp_path / "items"
    stored(fairway, image, b"a")
    dump = image.read_bytes()
    with Served(fairway, "--memory-file", str(image)) as server:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.process.returncode = 0
    image.write_bytes(dump)
    with Served(fairway, "--memory-file", str(image)) as server, server.connect() as client:
        assert client.get(b"a") == b"1"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602])
def test_passwords_that_others_can_read_are_refused(fairway, tmp_path, mode):
    users = tmp_path / "users"
    users.write_text("anna:secret\n")
    users.chmod(mode)
    status, said = refused(fairway, "--auth-file", users)
    assert status != 0 and f"chmod o= {users}" in said
    done = subprocess.run([fairway, "stats", "--login", users, "--server", "127.0.0.1:1"], capture_output=True, text=True,
                          check=False)
    assert done.returncode != 0 and f"chmod o= {users}" in done.stderr
    os.chmod(users, 0o640)
    with Served(fairway, "--auth-file", str(users)):
        pass
