# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway config check` refuses whatever `fairway serve` would refuse and nothing else, tells all of it at once, and
each with its line; `config show` prints a configuration that means the same.
Method: files with mistakes of every kind, given to both commands."""

import subprocess

import pytest

from served import START_S, Served

OK, FAILED, USAGE = 0, 1, 64


@pytest.fixture
def run(fairway):
    def run(*arguments):
        return subprocess.run([fairway, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=START_S, check=False)
    return run


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "fairway.conf"
        path.write_text(text)
        return str(path)
    return write


ALL = """port = 3
[server]
port = 70000
prot = 12
listen = 300.1.1.1:1
policy = fiffo
[servr]
port = 3
nothing at all
[tenant web]
match = adress 1.2.3.4
wieght = 3
[tenant web]
weight = 0
[log]
module-level = sever=info
file = "x
[http]
listen = nowhere
[repl]
enable = yes
role = slave
"""


def test_all_mistakes_at_once(run, write):
    path = write(ALL)
    done = run("config", "check", path)
    assert (done.returncode, done.stdout) == (USAGE, "")
    lines = done.stderr.splitlines()
    assert lines[-1] == f"fairway: {path} has 12 mistakes"
    told = {}
    for line in lines[:-1]:
        assert line.startswith(f"{path}:"), line
        number, text = line.removeprefix(f"{path}:").split(": ", 1)
        told[int(number)] = text
    # Not: what stands under a section that is unknown or there twice, and what one option needs of another.
    assert sorted(told) == [1, 3, 4, 5, 6, 7, 11, 12, 13, 16, 17, 19]
    assert told[4] == "'prot' is no option of [server]; did you mean 'port'?"
    assert told[7] == "'servr' is no known section; did you mean [server]?"
    assert "did you mean 'address'?" in told[11]
    assert told[16] == "--log-module-level: there is no module 'sever'; did you mean 'server'?"


# What is wrong, and on which line; 0: on none, since something is missing.
WRONG = [
    ("[server]\nprt = 1\n", 2),
    ("[server]\nport = 65536\n", 2),
    ("[server]\n\nlisten = 1.2.3\n", 3),
    ("[server]\nlisten = 127.0.0.1:0\nlisten = 127.0.0.1:x\n", 3),
    ("[server]\nunix-socket = " + 120 * "x" + "\n", 2),
    ("[server]\nadmin-socket = @abstract\n", 2),
    ("[server]\nadmin-socket = " + 120 * "x" + "\n", 2),
    ("[server]\nauth-file = /nonexistent/users\n", 2),
    ("[server]\nmemory-file = /nonexistent/items\n", 2),
    ("[server]\nenable-sasl = yes\n", 2),
    ("[server]\nenable-sasl = yes\nsasl-file = /nonexistent/users\n", 3),
    ("[server]\nenable-sasl = yes\nprotocol = ascii\nsasl-file = USERS\n", 2),
    ("[server]\nauth-file = USERS\nprotocol = binary\n", 2),
    ("[server]\nmemory-limit = 1\n", 2),
    ("[server]\nmemory-limit = 2t\n", 2),
    ("[jobs]\nservices-percent = 100\n", 0),
    ("[log]\nlevel = loud\n", 2),
    ("[log]\nmodule-level = server=loud\n", 2),
    ("[log]\nring-size = 10000\n", 2),
    ("[http]\nlisten = here\n", 2),
    ("[http]\nlisten = unix:/x\n", 2),
    ("[engine]\nwait-min = 2s\nwait-max = 1s\n", 2),
    ("[engine]\nlocalities = 200\ncores-per-locality = 100\n", 2),
    ("[tenant a]\nmatch = nobody\n", 2),
    ("[tenant a]\nweight = 2\n[tenant a]\n", 3),
    ("[volume]\nmanager = yes\n", 2),
    ("[volume]\nhost = a\n", 2),
    ("[cluster]\nname = c\nfallback = fair\n", 3),
    ("[cluster]\nname = c\nnodes = 2\nepoch = 1s\ntimeout = 100ms\n", 5),
    ("[repl]\nenable = yes\nrole = slave\n", 3),
    ("[repl]\nenable = yes\nlisten = 1.2.3\n", 3),
    ("[repl]\nenable = yes\nmaster = 1.2.3\n", 3),
    ("[repl]\nenable = yes\nvirtual-address = 1.2.3\n", 3),
    ("[repl]\nenable = yes\nadmit = somebody\n", 3),
    ("[counter]\nenable = yes\nlisten = 1.2.3\n", 3),
    ("[repl]\nenable = yes\nsecret-file = /nonexistent/secret\n", 3),
    ("[repl]\nenable = yes\nadmit-others = yes\nsecret-file = USERS\n", 3),
    ("[repl]\nenable = yes\nsecret-file = USERS\n", 3),
    ("[repl]\nmaster = 127.0.0.1\n", 2),
    ("[repl]\nvirtual-address = 127.0.0.1\n", 2),
    ("[repl]\nmaster-file = USERS\n", 2),
    ("[repl]\nrole = slave\n", 2),
    ("[repl]\nack = 1\n", 2),
    ("[repl]\nenable = yes\nslaves = 1\nack = 2\n", 4),
    ("[tenant a]\nrepl-ack = 1\n", 2),
    ("[server]\nconn-limit = 60\n[tenant a]\nconnections-guaranteed = 61\n", 4),
    ("[tenant a]\nconnections = 5\nconnections-guaranteed = 6\n", 3),
    # In lists of several lines it is the line of the item.
    ("[server]\nlisten = 127.0.0.1:x, 127.0.0.1:0\nlisten = [::1]:0\n", 2),
    ("[repl]\nenable = yes\nlisten = 127.0.0.1:0\n[server]\nlisten = 127.0.0.1:0\n  listen = 1.2.3\nlisten = 127.0.0.1:0\n", 6),
    ("[tenant b]\nmatch = prefix a\n[tenant a]\nmatch = prefix x\nmatch = nobody\nmatch = prefix y\n", 5),
    ("[config]\n", 1),
    ("[server]\nconfig = x\n", 2),
]


@pytest.mark.parametrize("text, line", WRONG)
def test_what_serve_refuses_is_refused(run, write, tmp_path, text, line):
    (tmp_path / "users").write_text("joe:secret\n")
    (tmp_path / "users").chmod(0o600)
    path = write(text.replace("USERS", str(tmp_path / "users")))
    listen = [] if "listen = " in text and "[server]" in text else ["--listen", "127.0.0.1:0"]
    served = run("serve", *listen, "--config", path)
    assert served.returncode in (USAGE, FAILED, 71), served.stderr
    checked = run("config", "check", path)
    assert checked.returncode == USAGE
    assert checked.stderr.splitlines()[-1] == f"fairway: {path} has 1 mistake"
    place = f"{path}:{line}: " if line > 0 else f"{path}: "
    assert checked.stderr.startswith(place), checked.stderr


RIGHT = """# What differs from the defaults in every way there is.
[server]
policy = tbf
listen = 127.0.0.1:0
memory-limit = 100
idle-timeout = 90
[log]
file = "FOLDER/log; # and \\"more\\""
[tenant web]
match = prefix web:
match = address 10.0.0.0/8 and command read
weight = 3
[tenant batch]
rate = 500
"""


def test_what_serve_takes_is_taken(fairway, run, write, tmp_path):
    path = write(RIGHT.replace("FOLDER", str(tmp_path)))
    done = run("config", "check", path)
    assert (done.returncode, done.stdout, done.stderr) == (OK, f"{path} has no mistakes\n", "")
    assert not list(tmp_path.glob("log*")), "it opens nothing"
    text = "".join(line for line in RIGHT.splitlines(True) if not line.startswith("file = "))
    with Served(fairway, "--config", write(text), listen=None, listeners=1):
        pass


def values(text):
    """Section and name of each option, with its value."""
    result, section = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip()
        elif line and not line.startswith("#"):
            name, value = line.split(" = ", 1)
            result[section, name] = value.split("  # line")[0]
    return result


def test_show_prints_a_configuration_that_means_the_same(run, write, tmp_path):
    path = write(RIGHT.replace("FOLDER", str(tmp_path)))
    shown = run("config", "show", path)
    assert (shown.returncode, shown.stderr) == (OK, "")
    first = values(shown.stdout)
    assert first["[server]", "memory-limit"] == "100MiB"
    assert first["[server]", "idle-timeout"] == "90s"
    assert first["[tenant web]", "weight"] == "3"
    assert first["[tenant web]", "match"] == "prefix web:,address 10.0.0.0/8 and command read"
    assert first["[server]", "port"] == "11211"
    assert "policy = tbf  # line 3\n" in shown.stdout
    path = write(shown.stdout)
    assert run("config", "check", path).returncode == OK
    assert values(run("config", "show", path).stdout) == first
    brief = values(run("config", "show", "--brief", write(RIGHT)).stdout)
    assert set(brief) < set(first) and ("[server]", "port") not in brief


def test_show_without_a_file_shows_defaults(run):
    shown = values(run("config", "show").stdout)
    assert shown["[server]", "memory-limit"] == "64MiB"
    assert not any(section.startswith("[tenant") for section, _ in shown)


@pytest.mark.parametrize("arguments, status, message", [
    ([], USAGE, "config takes 'check FILE' or 'show [FILE]'; see 'fairway help config'"),
    (["check"], USAGE, "config takes 'check FILE' or 'show [FILE]'; see 'fairway help config'"),
    (["check", "/nonexistent/file"], FAILED, "cannot open /nonexistent/file: No such file or directory; check the name"),
])
def test_wrong_calls(run, arguments, status, message):
    done = run("config", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", f"fairway: {message}\n")
