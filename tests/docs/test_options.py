# SPDX-License-Identifier: Apache-2.0
"""Goal: what pages say about commands exists: subcommands and options of fairway, benchmarks, targets of make, also where no
test types them. Method: find them in the code of all pages, and ask the programs."""

import functools
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```(?P<words>[^\n]*)\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4,}|\t)(?=\$ |(?:build/)?(?:fairway|make|bench/run) )(.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
# Where a command begins: at the begin of a line, or behind what shells have between commands.
COMMAND = re.compile(r"(?:^|[|;&(] *|\b(?:until|do|exec) )(?:build/)?fairway ([a-z][a-z-]*)([^|;&]*)")
NO_COMMANDS = {"extents", "lease", "volumes"}  # Words by which blocks of a group are known, docs/volume.md.
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")


def pages():
    """All of them but what tells of the past, and what was built."""
    found = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.md")))
    return [str(path) for path in found
            if not path.parts[0].startswith(("build", ".")) and path.name != "CHANGELOG.md"]


def code(text):
    """The commands of a page, a line each, without prompts and comments. Mistakes that are shown as such are left out."""
    lines = []
    for block in FENCED.finditer(text):
        if "fails" not in block["words"].split():
            lines += re.sub(r"\\\n>?", " ", block["lines"]).splitlines()
    rest = FENCED.sub("", text)
    lines += INDENTED.findall(rest) + INLINE.findall(rest)
    return [re.sub(r"\s#.*", "", line.strip().removeprefix("$ ")) for line in lines]


class Programs:
    """What the programs say of themselves, each asked once."""

    def __init__(self, fairway, build):
        self.fairway, self.build = fairway, build

    @functools.cache
    def help(self, command):
        done = subprocess.run([self.fairway, "help", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    @functools.cache
    def benchmarks(self):
        return subprocess.run([ROOT / "bench" / "run", "--build", self.build, "--list"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def programs(fairway, build):
    return Programs(fairway, build)


def wrong_commands(text, programs):
    """What is not there."""
    for command, rest in (found for line in code(text) for found in COMMAND.findall(line)):
        told = programs.help(command)
        if told is None and command not in NO_COMMANDS:
            yield f"fairway {command}"
        if told is None:
            continue
        for option in OPTION.findall(rest):
            if not re.search(rf"--{re.escape(option)}(?![\w-])", told):
                yield f"fairway {command} --{option}"


def first_words(program, text):
    """What stands behind the program at the begin of a command; `NAME-...` stands for several and is left out."""
    found = (re.match(rf"{program} ([a-z][\w-]*\w)(?![\w-])", line) for line in code(text))
    return [match[1] for match in found if match]


def wrong_benchmarks(text, programs):
    return [f"bench/run {name}" for name in first_words("bench/run", text) if name not in programs.benchmarks()]


def wrong_targets(text):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return [f"make {name}" for name in first_words("make", text) if name not in targets]


@pytest.mark.parametrize("name", pages())
def test_exists(name, programs):
    text = (ROOT / name).read_text()
    assert [*wrong_commands(text, programs), *wrong_benchmarks(text, programs), *wrong_targets(text)] == []


@pytest.mark.parametrize("text, wrong", [
    ("`fairway serv`", ["fairway serv"]),
    ("    $ fairway serve --http-lisen 1 | fairway load --add -", ["fairway serve --http-lisen"]),
    ("```console\n$ fairway serve \\\n>   --repl 1\n```", ["fairway serve --repl"]),
    ("`fairway dump --server A F`, and fairway prose --nothing", []),
    ("```console fails\n$ fairway serve --wrong\n```", []),
    ("    $ until fairway stats --sever A; do sleep 1; done", ["fairway stats --sever"]),
])
def test_what_is_not_there_is_noticed(text, wrong, programs):
    assert list(wrong_commands(text, programs)) == wrong


def test_other_names_are_noticed(programs):
    assert list(wrong_benchmarks("`bench/run cache-99`, `bench/run cache-1`", programs)) == ["bench/run cache-99"]
    assert list(wrong_targets("`make rum`, `make run`")) == ["make rum"]
