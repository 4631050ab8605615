# SPDX-License-Identifier: Apache-2.0
"""Goal: `make check-fresh` is green only if a client got its value back and `make check` ended with its last line and
without a failure; as each account.
Method: the real tools/fresh in a made-up tree, whose tools/enter-root plays the bare root: it serves and counts as the
case says. Making a real root takes minutes; .ci/run does that."""

import shutil
import subprocess

import pytest

pytestmark = [pytest.mark.needs("root"), pytest.mark.needs("mounts")]

ENTER = """#!/usr/bin/python3
import re, socket, sys, time
script = sys.argv[-1]
with open("{calls}", "a") as calls:
    print(*sys.argv[3:-1], script.splitlines()[-1], file=calls)
if "make run" in script:
    listener = socket.create_server(("127.0.0.1", int(re.search("PORT=([0-9]+)", script)[1])))
    for _ in range({clients}):
        client, _ = listener.accept()
        client.recv(4096)
        client.sendall({reply})
        client.close()
elif "make check" in script:
    print({check}, end="", flush=True)
    sys.exit("0 failed" not in {check})
"""
GOOD = b"STORED\r\nVALUE fresh 0 5\r\nhello\r\nEND\r\n"
PASSED = "ring/a 1 passed\n\nSkipped:\n    a/b:c: fuse: no\n\n7 passed, 0 failed, 1 skipped\n"

BROKEN = "FAILED: a\n\n3 passed, 1 failed, 0 skipped\nmake: *** [Makefile:66: check] Error 1\n"


@pytest.fixture
def fresh(source, tmp_path):
    """Calls tools/fresh with a server that replies so and a `make check` that prints this."""
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(source / "tools" / "fresh", tools)
    (tools / "install-packages").write_text("#!/bin/sh\n")
    (tools / "bare-root").write_text("#!/bin/sh\nmkdir -p $(dirname $1) && d=$(mktemp -d) && mkdir -p $d/etc/dpkg/dpkg.cfg.d $d/srv &&\n"
                                     "tar -C $d -cf $1 . && rm -r $d\n")
    subprocess.run("git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a", shell=True,
                   cwd=tmp_path, check=True)

    def call(*arguments, reply=GOOD, check=PASSED, clients=1):
        (tools / "enter-root").write_text(ENTER.format(calls=tmp_path / "calls", reply=reply, check=repr(check),
                                                       clients=clients))
        for name in ("install-packages", "bare-root", "enter-root"):
            (tools / name).chmod(0o755)
        done = subprocess.run([tools / "fresh", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        calls = tmp_path / "calls"
        return done.returncode, done.stdout, calls.read_text() if calls.exists() else ""

    return call


def test_both_accounts_pass(fresh):
    status, output, calls = fresh()
    assert status == 0, output
    assert output.count("\n7 passed, 0 failed, 1 skipped\n") == 2
    assert output.count("a/b:c: fuse: no") == 2, "a skip comes with its reason"
    assert calls.count("exec make check") == 2
    assert calls.count("--reuid=user") == 2, "`make run` and `make check`, by the ordinary user"


def test_only_one_account_and_some_suites(fresh):
    status, output, calls = fresh("--as", "root", "--suite", "docs", "--suite", "tidy")
    assert status == 0, output
    assert "exec make check SUITES='docs tidy'" in calls
    assert "--reuid" not in calls


@pytest.mark.parametrize("check", ["FAILED: a\n\n1 passed, 1 failed, 0 skipped\n", BROKEN, "make: *** [check] Error 1\n", ""],
                         ids=["failed", "make-says-so", "no-sum", "nothing"])
def test_a_bad_check_is_a_failure(fresh, check):
    status, output, _ = fresh("--as", "root", check=check)
    assert status == 1
    assert output.rstrip().endswith("3 passed, 1 failed, 0 skipped" if check == BROKEN else "passed, 1 failed, 0 skipped")


@pytest.mark.parametrize("reply, clients", [(b"STORED\r\nEND\r\n", 1), (GOOD, 0)], ids=["lost", "gone"])
def test_a_server_that_does_not_answer_is_a_failure(fresh, reply, clients):
    status, output, calls = fresh("--as", "root", reply=reply, clients=clients)
    assert status == 1
    assert "`make run` did not answer" in output
    assert "make check" not in calls
