# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway serve` reads its options from the command line and the file, refuses what is wrong with
one line that says where and what is allowed, and then has opened nothing.
Method: run the built program with mistakes, each of which ends it before it serves."""

import subprocess

import pytest

from support.patience import PATIENCE_S

FAILED, USAGE = 1, 64


@pytest.fixture
def serve(fairway, tmp_path):
    """Runs it in a folder of its own, where fairway.conf can be given by its text."""
    def serve(*arguments, config=None):
        if config is not None:
            (tmp_path / "fairway.conf").write_text(config, encoding="utf-8")
            arguments = ("--config", "fairway.conf", *arguments)
        return subprocess.run([fairway, "serve", *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
                              text=True, timeout=PATIENCE_S, check=False)
    return serve


def assert_refused(done, message, status=USAGE):
    assert done.stdout == ""
    assert done.stderr == f"fairway: {message}\n"
    assert done.returncode == status


@pytest.mark.parametrize("arguments, message", [
    (["--memory-limt", "256"],
     "--memory-limt: there is no such option; did you mean --memory-limit?"),
    (["-p", "65536"], "-p: '65536' is out of range; give a number from 0 to 65535"),
    (["--port=abc"], "--port: 'abc' is not understood; give a number from 0 to 65535"),
    (["-p"], "-p: a value is missing; give a number from 0 to 65535"),
    (["-?"], "-?: there is no such option; --help lists them"),
    (["--log-level=verbos"], "--log-level: 'verbos' is not understood; give one of error, warning, "
                             "notice, info, debug, trace"),
    (["--log-level=dbug"], "--log-level: 'dbug' is not known, did you mean 'debug'? Give one of "
                           "error, warning, notice, info, debug, trace"),
    (["--log-module-level", "sever=debug"],
     "--log-module-level: there is no module 'sever'; did you mean 'server'?"),
    (["now"], "'now' is not an option; only options are taken, see --help"),
    (["--help=maybe"], "--help: 'maybe' is not understood; give yes or no"),
])
def test_bad_options(serve, arguments, message):
    assert_refused(serve(*arguments), message)


@pytest.mark.parametrize("config, message", [
    ("[server]\nport = 70000\n",
     "fairway.conf:2: port: '70000' is out of range; give a number from 0 to 65535"),
    ("[server]\nlisen = 127.0.0.1\n",
     "fairway.conf:2: 'lisen' is no option of [server]; did you mean 'listen'?"),
    ("[sever]\n", "fairway.conf:1: 'sever' is no known section; did you mean [server]?"),
    ("[log]\nport = 1\n", "fairway.conf:2: 'port' belongs under [server], not [log]"),
    ("[server]\nconfig = x\n", "fairway.conf:2: 'config' is for the command line only"),
    ("\x7fELF", "fairway.conf:1: '?ELF' has a control character; is this a text file?"),
])
def test_bad_configuration(serve, config, message):
    assert_refused(serve(config=config), message)
    # What the command line says instead does not excuse the file.
    assert_refused(serve("-p", "0", config=config), message)


def test_configuration_that_cannot_be_read(serve, tmp_path):
    done = serve("--config", "nowhere.conf")
    assert done.returncode == FAILED
    assert done.stdout == ""
    assert done.stderr.startswith("fairway: ")
    assert "nowhere.conf" in done.stderr
    assert "No such file or directory" in done.stderr
    assert done.stderr.count("\n") == 1
    (tmp_path / "folder").mkdir()
    done = serve("--config=folder")
    assert done.returncode == FAILED
    assert "folder" in done.stderr


def test_log_that_cannot_be_opened(serve):
    done = serve("--log-file", "nowhere/log")
    assert done.returncode == FAILED
    assert "nowhere/log" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_shows_every_section(serve):
    done = serve("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\n[server]\n" in done.stdout
    assert "\n[log]\n" in done.stdout
    assert "  -p, --port NUMBER " in done.stdout
    # Wherever it stands, it wins over serving.
    assert serve("-p", "0", "--help").stdout == done.stdout
