# SPDX-License-Identifier: Apache-2.0
"""Goal: the program says what it can do; a wrong call gets one line on stderr that helps, and status 64;
and nothing but `serve` ever starts a server.
Method: run the built program and compare stdout, stderr and exit status."""

import re
import subprocess

import pytest

from support.patience import PATIENCE_S

OK, FAILED, USAGE = 0, 1, 64


@pytest.fixture
def run(fairway):
    def run(*arguments, stdout=subprocess.PIPE):
        return subprocess.run([fairway, *arguments], stdin=subprocess.DEVNULL, stdout=stdout,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    return run


def assert_refused(done, message):
    """One line, on stderr only, and the status of a wrong call."""
    assert done.stdout == ""
    assert done.stderr == f"fairway: {message}\n"
    assert done.returncode == USAGE


@pytest.mark.parametrize("arguments", [["help"], ["--help"], ["-h"], ["help", "--help"]])
def test_help(run, arguments):
    done = run(*arguments)
    assert done.returncode == OK
    assert done.stderr == ""
    assert "usage: fairway COMMAND" in done.stdout
    for command in ("serve", "log", "help", "version"):
        assert re.search(rf"^  {command} +\S", done.stdout, re.MULTILINE)


def test_help_is_at_most_80_columns_wide(run):
    for arguments in (["help"], ["help", "serve"], ["help", "log"], ["help", "version"]):
        lines = run(*arguments).stdout.splitlines()
        assert lines
        assert [line for line in lines if len(line) > 80] == []


def test_no_arguments_are_a_wrong_call_but_get_the_help(run):
    done = run()
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert done.stderr == run("help").stdout


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["-V"], ["serve", "-V"],
                                       ["serve", "--version"]])
def test_version(run, arguments, source):
    version = re.search(r"^  version: '(.+)',$", (source / "meson.build").read_text(), re.MULTILINE)
    done = run(*arguments)
    assert done.returncode == OK
    assert done.stdout == f"fairway {version[1]}\n"
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["serve", "log", "version", "help"])
def test_help_of_a_command(run, command):
    done = run("help", command)
    assert done.returncode == OK
    assert done.stderr == ""
    assert done.stdout.startswith(("usage: fairway " + command, "Fairway"))
    assert run(command, "--help").stdout == done.stdout
    assert run(command, "-h").stdout == done.stdout


@pytest.mark.parametrize("arguments, message", [
    (["srve"], "there is no command 'srve'; did you mean 'fairway serve'?"),
    (["verison", "-x"], "there is no command 'verison'; did you mean 'fairway version'?"),
    (["frobnicate"], "there is no command 'frobnicate'; 'fairway help' lists them"),
    ([""], "there is no command ''; 'fairway help' lists them"),
    (["help", "srve"], "there is no command 'srve'; did you mean 'fairway serve'?"),
    (["help", "serve", "x"], "help takes one command, but got 'x' too"),
    (["version", "x"], "version takes no arguments, but got 'x'"),
    (["log"], "log takes 'recover' and one file; see 'fairway help log'"),
    (["log", "recover"], "log takes 'recover' and one file; see 'fairway help log'"),
    (["log", "recover", "a", "b"], "log takes 'recover' and one file; see 'fairway help log'"),
    (["log", "rescue", "a"], "log takes 'recover' and one file; see 'fairway help log'"),
    (["log", "recover", "a", "--format", "xml"],
     "--format: 'xml' is not understood; give one of text, json"),
    (["--hlep"], "'--hlep' stands before the command; try 'fairway serve --hlep ...'"),
    (["-p", "1"], "'-p' stands before the command; try 'fairway serve -p ...'"),
])
def test_wrong_calls(run, arguments, message):
    assert_refused(run(*arguments), message)


def test_recover_what_is_no_file_of_rings(run, tmp_path):
    for name, contents, why in (
            ("none", None, "open .*: No such file or directory; check the name"),
            ("short", b"x", "recover .*: it is too short to be a log's rings"),
            ("other", bytes(5000), "recover .*: it does not begin as a log's rings do; .*")):
        if contents is not None:
            (tmp_path / name).write_bytes(contents)
        done = run("log", "recover", tmp_path / name)
        assert done.returncode == FAILED
        assert done.stdout == ""
        assert re.fullmatch(f"fairway: cannot {why}\n", done.stderr), done.stderr


@pytest.mark.parametrize("arguments", [["version"], ["help"], ["help", "serve"]])
def test_output_that_cannot_be_written(run, arguments):
    with open("/dev/full", "w", encoding="ascii") as full:
        done = run(*arguments, stdout=full)
    assert done.returncode == FAILED
    assert done.stderr == "fairway: cannot write to standard output: No space left on device\n"
