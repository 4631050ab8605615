# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway admin` says in one line what is wrong with how it was called, and asks nobody then.
Method: run the built program without a server. What a server answers is in tests/server/test_admin.py."""

import socket
import subprocess

import pytest

from support.patience import PATIENCE_S

FAILED, USAGE = 1, 64


def admin(fairway, *arguments, **options):
    return subprocess.run([fairway, "admin", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


@pytest.mark.parametrize("arguments, message", [
    ([], "admin takes a command, such as help"),
    (["--json"], "admin takes a command, such as help"),
    (["--jso", "status"], "--jso: there is no such option; did you mean --json?"),
    (["--timeout", "soon", "status"], "--timeout: 'soon' is not understood; give a duration"),
    (["status\nset timing 1"], "a command is one line of at most 255 characters"),
    (["x" * 256], "a command is one line of at most 255 characters"),
    (["--json", "x" * 251], "a command is one line of at most 255 characters"),
    (["--socket", "y" * 200, "status"], "--socket: the path is too long"),
], ids=["nothing", "no command", "option", "duration", "two lines", "long", "long json", "path"])
def test_usage(fairway, arguments, message):
    done = admin(fairway, *arguments)
    assert done.stdout == "" and done.returncode == USAGE
    assert done.stderr.startswith(f"fairway: {message}") and done.stderr.count("\n") == 1


def test_longest_line_is_sent(fairway, tmp_path):
    done = admin(fairway, "--socket", "none.sock", "x" * 255, cwd=tmp_path)
    assert done.returncode == FAILED
    assert done.stderr == ("fairway: there is no socket none.sock: start the server with --admin-socket, and "
                           "give its path with --socket\n")


@pytest.fixture
def impostor(fairway, tmp_path):
    """A server of the test's own gives this answer and closes; returns what the program says of it."""
    def impostor(answer):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            with subprocess.Popen([fairway, "admin", "--socket", "s", "status"], cwd=tmp_path,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as asking:
                connection, _ = listener.accept()
                with connection:
                    assert connection.recv(100) == b"status\n"
                    connection.sendall(answer)
                out, errors = asking.communicate(timeout=PATIENCE_S)
        assert (out, asking.returncode) == ("", FAILED)
        return errors
    return impostor


@pytest.mark.parametrize("answer", [
    b"NO 3\nabc", b"OK x\n", b"OK -1\n", b"OK 99999999999999999999\n", b"OK 3000000\n", b"OK\n",
    b"ERROR 3\nabc", b"ERROR EINVAL \n", b"O" * 100, b"\n", b"ERROR E" + b"X" * 60 + b" 1\nx",
])
def test_nonsense_is_no_answer(impostor, answer):
    assert impostor(answer) == "fairway: s is not the administration socket of a fairway\n"


@pytest.mark.parametrize("answer", [b"", b"OK", b"OK 5\nabcd"])
def test_answer_that_breaks_off(impostor, answer):
    assert impostor(answer) == "fairway: s was closed before an answer came: the server ends\n"
