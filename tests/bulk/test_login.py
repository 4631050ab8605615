# SPDX-License-Identifier: Apache-2.0
"""Goal: tools get into servers that demand a login, Fairway's and memcached's, and leave no password where none is asked for.
Method: real servers with -Y, and every tool that asks a server."""

import json
import subprocess

import pytest

from conform.peer import Peer
from support.patience import PATIENCE_S

FAILED, USAGE = 1, 64


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users"
    path.write_text("jane:another\njoe:secret\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def login(tmp_path):
    def login(text, name="login"):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)
    return login


@pytest.fixture
def run(fairway, tmp_path):
    def run(*arguments):
        return subprocess.run([str(fairway), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, cwd=tmp_path, timeout=PATIENCE_S, check=False)
    return run


@pytest.fixture(params=["fairway", "memcached"])
def start(request, fairway):
    """Starts a server with these flags."""
    commands = {"fairway": [str(fairway), "serve"], "memcached": ["memcached", "-U", "0"]}
    return lambda *flags: Peer(commands[request.param], *flags)


def place(peer):
    return f"{peer.address[0]}:{peer.address[1]}"


def test_tools_log_in(start, run, users, login):
    file = login("joe:secret\n")
    with start("-Y", users) as old, start("-Y", users) as new:
        with old.connect() as client:
            client.send(b"set x 0 0 10\r\njoe secret\r\nset key 5 0 5\r\nvalue\r\n")
            assert [client.line() for _ in range(2)] == [b"STORED\r\n"] * 2
        done = run("dump", "--server", place(old), "--login", file, "items")
        assert done.returncode == 0, done.stderr
        done = run("load", "--server", place(new), "--login", file, "items")
        assert done.returncode == 0, done.stderr
        done = run("stats", "--server", place(new), "--login", file, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["curr_items"] == 1
        done = run("top", "--server", place(new), "--login", file, "--once", "--json", "--interval", "100ms")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["items"] == 1


TOOLS = [("stats", []), ("top", ["--once", "--interval", "100ms"]), ("dump", ["items"])]


@pytest.mark.parametrize("tool, more", TOOLS)
def test_who_is_not_let_in_is_told(start, run, users, login, tool, more):
    with start("-Y", users) as server:
        done = run(tool, "--server", place(server), *more)
        assert done.returncode == FAILED and done.stdout == ""
        assert "unauthenticated" in done.stderr
        done = run(tool, "--server", place(server), "--login", login("joe:wrong"), *more)
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert "the server refuses the user or the password" in done.stderr
        assert done.stderr.count("\n") == 1 and "wrong" not in done.stderr


@pytest.mark.parametrize("tool, more", TOOLS)
def test_no_password_is_left_where_none_is_asked_for(start, run, login, tool, more):
    with start() as server:
        done = run(tool, "--server", place(server), "--login", login("joe:secret"), *more)
        assert done.returncode == 0, done.stderr
        assert server.stat("total_items") == "0"


@pytest.mark.parametrize("text", ["", "joe", ":secret", "jo e:secret", "joe:sec ret", f"joe:{'x' * 252}"])
def test_what_is_no_login(run, login, text):
    for tool, more in TOOLS:
        path = login(text)
        done = run(tool, "--login", path, *more)
        assert done.returncode in (FAILED, USAGE)
        assert f"{path} has no line user:password" in done.stderr
        assert "sec" not in done.stderr.replace(path, "")
