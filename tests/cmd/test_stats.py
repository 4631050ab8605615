# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway stats` shows what a server answers as a table that people can read, in full, and as JSON for programs.
Method: a server of the test's own answers what the test wants; what is printed is compared to the letter."""

import json
import socket
import subprocess
import threading

import pytest

from support.patience import PATIENCE_S

OK, FAILED, USAGE = 0, 1, 64


@pytest.fixture
def stats(fairway):
    """Runs the program beside a server that answers `lines` to what it is asked; returns the question and what became of it."""
    def stats(lines, *arguments):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            asked = []

            def answer():
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(200))
                    connection.sendall("".join(f"{line}\r\n" for line in lines).encode())

            server = threading.Thread(target=answer)
            server.start()
            done = subprocess.run([fairway, "stats", "--server", f"127.0.0.1:{listener.getsockname()[1]}", *arguments],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            server.join(PATIENCE_S)
        return asked[0], done
    return stats


GENERAL = ["STAT pid 4711", "STAT version 1.6.18 (fairway)", "STAT curr_items 5", "END"]
TENANTS = ["STAT policy wfq", "STAT web:class gold", "STAT web:requests 5", "STAT web:delay_under_10 3", "STAT batch:class b",
           "STAT batch:requests 123456", "STAT batch:wait 0.5", "END"]


def test_general(stats):
    asked, done = stats(GENERAL)
    assert asked == b"stats\r\n" and (done.returncode, done.stderr) == (OK, "")
    assert done.stdout == "pid         4711\nversion     1.6.18 (fairway)\ncurr_items  5\n"


def test_things_are_lines_of_a_table(stats):
    asked, done = stats(TENANTS, "tenants")
    assert asked == b"stats tenants\r\n" and (done.returncode, done.stderr) == (OK, "")
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "policy  wfq",
        "",
        "       class  requests  wait",
        "web    gold          5     -",
        "batch  b        123456   0.5",
    ]


def test_nothing_but_things(stats):
    """No empty line before the table."""
    _, done = stats([line for line in TENANTS if "policy" not in line], "tenants")
    assert done.stdout.startswith("       class ") and done.returncode == OK


def test_nothing(stats):
    _, done = stats(["END"])
    assert (done.stdout, done.stderr, done.returncode) == ("", "", OK)


def test_json(stats):
    _, done = stats(TENANTS, "tenants", "--json")
    assert json.loads(done.stdout) == {"policy": "wfq", "tenants": {
        "web": {"class": "gold", "requests": 5, "delay_under_10": 3},
        "batch": {"class": "b", "requests": 123456, "wait": "0.5"}}}
    _, done = stats(GENERAL, "--json")
    assert json.loads(done.stdout) == {"pid": 4711, "version": "1.6.18 (fairway)", "curr_items": 5}


def test_a_group_that_is_not_there(stats):
    _, done = stats(["ERROR"], "nonsense")
    assert done.returncode == FAILED and "no figures of the group 'nonsense'" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("arguments, message", [
    (["a", "b"], "stats takes one group of figures"),
    (["a b"], "'a b' is no group of figures"),
    (["x" * 65], "is no group of figures"),
], ids=["two", "space", "long"])
def test_usage(fairway, arguments, message):
    done = subprocess.run([fairway, "stats", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False)
    assert done.returncode == USAGE and message in done.stderr
