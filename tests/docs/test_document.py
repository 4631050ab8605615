# SPDX-License-Identifier: Apache-2.0
"""Goal: what is written from the tables of options is complete and right: a manual page for each command and for the
configuration, which man and mandoc find nothing wrong with; a sample that is a configuration; completion that completes.
Method: the files of the build are read by the programs they are for, and compared with what the program says of itself."""

import json
import os
import pty
import re
import select
import subprocess
import time

import pytest

from support.patience import PATIENCE_S


def run(*command, **more):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False, **more)


@pytest.fixture(scope="module")
def docs(build):
    return build / "docs"


@pytest.fixture(scope="module")
def commands(fairway):
    """Each command, and the long names of its options."""
    names = re.findall(r"^  (\S+) +\S", run(fairway, "help").stdout, re.MULTILINE)
    assert {"serve", "stats", "top", "config", "help"} <= set(names)
    return {name: re.findall(r"^  (?:-\w, |    )--([a-z0-9-]+)", run(fairway, "help", name).stdout, re.MULTILINE)
            for name in names}


@pytest.fixture(scope="module")
def settings(fairway):
    """Section and name of every option that can stand in a file, with its default, or None."""
    found, section = {}, None
    for line in run(fairway, "config", "show").stdout.splitlines():
        if line.startswith("["):
            section = line
        elif line:
            name, _, value = line.removeprefix("# ").partition(" =")
            found[section, name] = value.strip() or None
    assert ("[server]", "port") in found
    return found


def rendered(page):
    done = run("man", "--warnings", "-l", page, env={**os.environ, "MANWIDTH": "2000", "LC_ALL": "C.UTF-8", "PAGER": "cat"})
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r".\x08", "", done.stdout)


def test_every_command_has_a_page_with_every_option(docs, commands):
    for name, options in commands.items():
        text = rendered(docs / f"fairway-{name}.1")
        assert f"fairway-{name} - " in text
        assert f"fairway {name}" in text.partition("SYNOPSIS")[2]
        for option in options:
            # The name, its value if it has one, and a sentence beside or below.
            found = re.search(rf"^ +(-\w, )?--{option}( [A-Z=]+)?\s+([A-Z]\S* [^\n]*)\.", text, re.MULTILINE)
            assert found, (name, option)
            assert len(found[3]) > 5
    assert len(commands["serve"]) > 80


def test_the_program_s_page_lists_all(docs, commands):
    text = rendered(docs / "fairway.1")
    for name in commands:
        assert re.search(rf"^ +fairway-{name}\(1\)\n +[A-Z]", text, re.MULTILINE), name


def test_no_page_without_a_command(docs, commands):
    pages = {path.name for path in docs.glob("*.[1-8]")}
    assert pages == {"fairway.1", "fairway.conf.5", *(f"fairway-{name}.1" for name in commands)}


def test_mandoc_finds_nothing_wrong(docs):
    pages = sorted(docs.glob("*.[1-8]"))
    complaints = [line for line in run("mandoc", "-Tlint", "-Wwarning", *pages).stdout.splitlines()
                  if "missing date" not in line]  # So that the same source gives the same page.
    assert not complaints


def test_the_configuration_s_page_has_every_option(docs, settings):
    text = rendered(docs / "fairway.conf.5")
    tenants = text.partition("[tenant NAME]")[2]
    assert re.search(r"^ +weight = NUMBER\n +[A-Z]", tenants, re.MULTILINE)
    for section, name in settings:
        part = text.partition(f"   {section}\n")[2]
        found = re.search(rf"^ +{name} = \S+\n +([A-Z][^\n]*)\.", part, re.MULTILINE)
        assert found and len(found[1]) > 5, (section, name)


def sample_options(text):
    """Each option of the sample by section, as a line."""
    section, found = None, {}
    for line in text.splitlines():
        if re.fullmatch(r"#?\[.*\]", line):
            section = line.lstrip("#")
        elif re.match(r"#[a-z0-9-]+ = ", line):
            found[section, line[1:].split(" = ")[0]] = line[1:]
    return found


def test_the_sample_has_every_option_and_is_a_configuration(fairway, docs, settings, tmp_path):
    text = (docs / "fairway.conf").read_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    options = sample_options(text)
    assert set(settings) <= set(options)
    assert ("[tenant NAME]", "match") in options
    done = run(fairway, "config", "check", docs / "fairway.conf")
    assert done.returncode == 0, done.stderr
    # With all defaults written out it means the same as with none.
    used = "".join(f"{section}\n{options[section, name]}\n" for (section, name), value in settings.items()
                   if value is not None)
    path = tmp_path / "used.conf"
    path.write_text(used)
    done = run(fairway, "config", "check", path)
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"  # line \d+", "", run(fairway, "config", "show", path).stdout)
    assert shown == run(fairway, "config", "show").stdout


def completed(docs, *words):
    """What bash would offer for the last word."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fairway; printf "%s\\n" "${COMPREPLY[@]}"'
    done = run("bash", "--norc", "-c", script, "bash", docs / "fairway", "fairway", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_bash_offers_commands_actions_options_and_values(docs, commands, tmp_path):
    assert completed(docs, "") == {*commands, "--help", "--version"}
    assert completed(docs, "st") == {"stats"}
    assert completed(docs, "help", "se") == {"serve"}
    assert completed(docs, "config", "") == {"check", "show"}
    assert completed(docs, "ring", "p") == {"push", "pop"}
    for name, options in commands.items():
        assert completed(docs, name, "--") == {"--help", *(f"--{option}" for option in options)}, name
    assert completed(docs, "serve", "--policy", "") == {"fifo", "crr", "wfq", "tbf", "share", "gang"}
    assert completed(docs, "serve", "--policy", "=", "f") == {"fifo"}
    assert completed(docs, "serve", "--policy", "=") == completed(docs, "serve", "--policy", "")
    assert completed(docs, "serve", "-p", "") == set()
    (tmp_path / "one.conf").touch()
    assert completed(docs, "serve", "--config", f"{tmp_path}/o") == {f"{tmp_path}/one.conf"}
    assert completed(docs, "config", "check", f"{tmp_path}/o") == {f"{tmp_path}/one.conf"}


def test_bash_completes_what_is_typed(docs):
    """An interactive shell on a terminal, and the key Tab."""
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "> ", "TERM": "dumb"})
    try:
        seen = b""

        def wait(text):
            nonlocal seen
            deadline = time.monotonic() + PATIENCE_S
            while text not in seen:
                assert time.monotonic() < deadline, seen
                if select.select([terminal], [], [], 0.1)[0]:
                    seen += os.read(terminal, 4096)
            seen = b""

        wait(b"> ")
        os.write(terminal, b"source '%s' && echo re''ady\n" % os.fsencode(docs / "fairway"))
        wait(b"ready\r\n")
        os.write(terminal, b"echo fairway | cat; fairway sta\t")
        wait(b"fairway stats ")
        os.write(terminal, b"--ti\t")
        wait(b"--timeout ")
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def test_zsh_reads_its_completion(docs, commands):
    done = run("zsh", "-n", docs / "_fairway")
    assert (done.returncode, done.stderr) == (0, "")
    text = (docs / "_fairway").read_text()
    for name, options in commands.items():
        part = re.search(rf"^    {name}\)\n(.*?)^        ;;", text, re.MULTILINE | re.DOTALL)[1]
        assert sorted(re.findall(r"'\*?--([a-z0-9-]+)\[", part)) == sorted(["help", *options])


def test_all_is_installed(build):
    done = run("meson", "introspect", "--installed", build)
    assert done.returncode == 0, done.stderr
    installed = {os.path.relpath(source, build): target for source, target in json.loads(done.stdout).items()}
    assert installed["docs/fairway-serve.1"].endswith("share/man/man1/fairway-serve.1")
    assert installed["docs/fairway.conf.5"].endswith("share/man/man5/fairway.conf.5")
    assert installed["docs/fairway.conf"].endswith("share/doc/fairway/examples/fairway.conf")
    assert installed["docs/fairway"].endswith("share/bash-completion/completions/fairway")
    assert installed["docs/_fairway"].endswith("share/zsh/site-functions/_fairway")
