# SPDX-License-Identifier: Apache-2.0
"""Goal: every rule of tidy.py can fail, and says where. Method: a small made-up tree that passes all
rules; each test breaks one thing in it and expects one complaint of the right rule."""

import json

import pytest

import requirements
import tidy
from tree import Tree

SPDX_C = "/* SPDX-License-Identifier: Apache-2.0 */\n"
SPDX = "# SPDX-License-Identifier: Apache-2.0\n"

GOOD_HEADER = SPDX_C + "#pragma once\n\nint fw_one(void);\n"
GOOD_SOURCE = SPDX_C + '#include "base/one.h"\n\nint fw_one(void)\n{\n    return 1;\n}\n'


def requirement_rows(changes):
    """All required lines, open, but for the cells in `changes`."""
    rows = []
    for letter, count in requirements.COUNTS.items():
        for number in (f"{letter}{index}" for index in range(1, count + 1)):
            rows.append(changes.get(number, f"| {number} | does something | | | open |"))
    return "\n".join(rows) + "\n"


class MadeUp:
    """A tree in a temporary folder, with the files of a build directory that the rules read."""

    def __init__(self, folder, source):
        self.root = folder / "tree"
        self.build = folder / "build"
        for name in ["src", "src/base", "src/io", "src/cache", "include", "docs", "tests"]:
            self.write(f"{name}/README.md", "# Rules\n")
        self.write(".clang-format", (source / ".clang-format").read_text())
        self.write("meson.build", SPDX)
        self.write("src/base/banned.h", SPDX_C + "#pragma once\n")
        self.write("src/base/one.h", GOOD_HEADER)
        self.write("src/base/one.c", GOOD_SOURCE)
        self.write("src/base/one_test.c", SPDX_C + "/* cmocka_unit_test(test_one) */\n")
        self.write("include/fairway/api.h", SPDX_C + "#pragma once\n")
        self.write("docs/requirements.md", requirement_rows({}))
        self.compile_command("src/base/one.c", "-include banned.h")
        self.meson_info()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def compile_command(self, path, flags):
        self.build.mkdir(exist_ok=True)
        command = {"file": path, "command": f"cc {flags} -c {path}"}
        (self.build / "compile_commands.json").write_text(json.dumps([command]))

    def meson_info(self):
        info = self.build / "meson-info"
        info.mkdir(exist_ok=True)
        program = str(self.build / "one_test")
        sources = [{"sources": [str(self.root / "src/base/one_test.c")]}]
        (info / "intro-targets.json").write_text(
            json.dumps([{"filename": [program], "target_sources": sources}]))
        (info / "intro-tests.json").write_text(json.dumps([{"name": "base/one", "cmd": [program]}]))

    def complaints(self):
        """From the name of each rule that complains to its complaints."""
        tree = Tree(self.root, self.build)
        found = {}
        for name, rule in tidy.RULES.items():
            try:
                found[name] = list(rule(tree))
            except tidy.Skip:
                pass
        return {name: complaints for name, complaints in found.items() if complaints}


@pytest.fixture
def tree(tmp_path, source):
    return MadeUp(tmp_path, source)


def expect(tree, rule, text):
    """Exactly this rule complains, once, and the complaint has the text in it."""
    found = tree.complaints()
    assert list(found) == [rule]
    assert len(found[rule]) == 1
    assert text in found[rule][0]


def test_the_good_tree_is_good(tree):
    assert tree.complaints() == {}


def includes(*names):
    return SPDX_C + "".join(f"#include {name}\n" for name in names)


@pytest.mark.parametrize("path, name, complaint", [
    ("src/base/two.c", '"io/clock.h"', 'base may not include "io/clock.h"'),
    ("src/base/two.c", '"one.h"', 'base may not include "one.h"'),
    ("src/io/two.c", '"log/sink.h"', 'io may not include "log/sink.h"'),
    ("src/engine/two.c", '"jobs/pool.h"', 'engine may not include "jobs/pool.h"'),
    ("src/jobs/two.c", '"engine/fom.h"', 'jobs may not include "engine/fom.h"'),
    ("src/epoch/two.c", '"sched/head.h"', 'epoch may not include "sched/head.h"'),
    ("src/sched/two.c", '"jobs/pool.h"', 'sched may not include "jobs/pool.h"'),
    ("src/ring/two.c", '"jobs/pool.h"', 'ring may not include "jobs/pool.h"'),
    ("src/volume/two.c", '"sched/head.h"', 'volume may not include "sched/head.h"'),
    ("src/cache/two.c", '"server/config.h"', 'cache may not include "server/config.h"'),
    ("src/base/two_test.c", '"io/clock.h"', 'base may not include "io/clock.h"'),
    ("src/base/two.c", '"support/skip.h"', 'base may not include "support/skip.h"'),
    ("src/new/two.c", '"base/one.h"', "src/new is not a module"),
    ("src/cache/two.c", "<sys/socket.h>", "<sys/socket.h> leads outside"),
    ("src/cache/two.h", "<unistd.h>", "<unistd.h> leads outside"),
    ("src/base/two.c", "<pthread.h>", "<pthread.h> leads outside"),
    ("src/epoch/two.c", "<corosync/cpg.h>", "<corosync/cpg.h> leads outside"),
    ("src/io/two.c", "<fairway/log.h>", "io may not include <fairway/log.h>"),
    ("src/jobs/two.c", "<fairway/engine.h>", "jobs may not include <fairway/engine.h>"),
    ("src/cache/two.c", "<fairway/cache.h>", "<fairway/cache.h> is not a public header"),
    ("include/fairway/ring.h", "<fairway/jobs.h>", "ring may not include <fairway/jobs.h>"),
    ("include/fairway/ring.h", '"base/one.h"', '"base/one.h" is private'),
    ("include/fairway/ring.h", "<sys/socket.h>", "<sys/socket.h> would bind every user"),
    ("examples/two.c", '"base/one.h"', '"base/one.h" is private'),
])
def test_includes(tree, path, name, complaint):
    tree.write(path, includes(name))
    found = list(tidy.rule_includes(Tree(tree.root)))
    assert len(found) == 1 and complaint in found[0] and found[0].startswith(f"{path}:2:")


@pytest.mark.parametrize("path, name", [
    ("src/io/two.c", '"base/one.h"'),
    ("src/io/two.c", "<sys/epoll.h>"),
    ("src/volume/two.c", '"ring/ring.h"'),
    ("src/volume/two.c", "<fairway/journal.h>"),
    ("src/cache/two.c", "<fairway/engine.h>"),
    ("src/cache/two.c", "<stdint.h>"),
    ("src/base/two.c", "<fairway/api.h>"),
    ("src/base/two.c", "<fairway/types.h>"),
    ("src/base/thread.c", "<linux/futex.h>"),
    ("src/epoch/corosync.c", "<corosync/cpg.h>"),
    ("src/base/two_test.c", "<sys/socket.h>"),
    ("src/base/two_test.c", '"support/skip.h"'),
    ("include/fairway/sched.h", "<fairway/epoch.h>"),
    ("include/fairway/sched.h", "<stdint.h>"),
    ("examples/two.c", "<fairway/ring.h>"),
    ("tests/two.c", '"cache/table.h"'),
])
def test_includes_that_are_allowed(tree, path, name):
    tree.write(path, includes(name))
    assert not list(tidy.rule_includes(Tree(tree.root)))


def test_includes_of_commented_out_code_do_not_count(tree):
    tree.write("src/base/one.c", GOOD_SOURCE + '/* "io/clock.h" #include "io/clock.h" */\n')
    assert not list(tidy.rule_includes(Tree(tree.root)))


def test_length(tree):
    tree.write("docs/long.md", "x\n" * 1000)
    assert "length" not in tree.complaints()
    tree.write("docs/long.md", "x\n" * 1001)
    expect(tree, "length", "docs/long.md: 1001 lines")


def test_width(tree):
    tree.write("src/base/one.c", GOOD_SOURCE + "/* " + "é" * 94 + " */\n")
    assert "width" not in tree.complaints()
    tree.write("src/base/one.c", GOOD_SOURCE + "/* " + "x" * 95 + " */\n")
    found = list(tidy.rule_width(Tree(tree.root)))
    assert found == ["src/base/one.c:8: 101 columns, at most 100"]


def test_banned_header_is_not_used(tree):
    tree.compile_command("src/base/one.c", "-Wall")
    expect(tree, "banned", "src/base/one.c: compiled without -include banned.h")


@pytest.mark.parametrize("path, code, word", [
    ("src/io/two.c", "usleep(10);", "usleep"),
    ("src/base/two_test.c", "sleep(1);", "sleep"),
    ("src/cache/two.c", "int r = system(text);", "system"),
    ("src/cache/two.c", "clock_gettime(id, &now);", "clock_gettime"),
    ("src/cache/two.c", "now = time(NULL);", "time"),
    ("src/cache/two.c", "pthread_mutex_lock(&m);", "pthread_mutex_lock"),
    ("src/cache/two.c", "static _Thread_local int x;", "_Thread_local"),
    ("src/cache/two.c", "assert(x);", "assert"),
    ("src/cache/two.c", "text = strerror(e);", "strerror"),
    ("src/cache/two.c", "signal(SIGINT, f);", "signal"),
    ("src/io/two.c", "mktemp(name);", "mktemp"),
    ("src/io/two.c", "longjmp(b, 1);", "longjmp"),
])
def test_banned_functions(tree, path, code, word):
    tree.write(path, SPDX_C + f"/* {code} */\n{code}\n")
    found = list(tidy.rule_banned(Tree(tree.root)))
    assert len(found) == 1 and found[0].startswith(f"{path}:3: {word} is banned")


@pytest.mark.parametrize("path, code", [
    ("src/io/clock.c", "clock_gettime(id, &now);"),
    ("src/base/thread.c", "pthread_create(&t, NULL, f, x);"),
    ("src/base/two_test.c", "pthread_create(&t, NULL, f, x);"),
    ("src/cache/two.c", 'say("call sleep(1)");'),
    ("src/cache/two.c", "static_assert(x, 0);"),
    ("src/cache/two.c", "table->select(x); fw_time(y); run_time (z);"),
])
def test_banned_functions_where_they_are_allowed(tree, path, code):
    tree.write(path, SPDX_C + code + "\n")
    assert not list(tidy.rule_banned(Tree(tree.root)))


def test_headers(tree):
    tree.write("src/base/one.h", SPDX_C + "#pragma once\n\nint fw_one(uint8_t x);\n")
    expect(tree, "headers", "src/base/one.h does not compile alone")


def test_public_headers_compile_without_private_folders(tree):
    text = SPDX_C + "#pragma once\n\n/* clang-format off */\n#include <base/one.h>\n"
    tree.write("include/fairway/log.h", text)
    found = tree.complaints()
    assert len(found["headers"]) == 1


@pytest.mark.parametrize("path, text", [
    ("src/base/meson.build", "base = 1\n"),
    ("src/base/one.c", GOOD_SOURCE.removeprefix(SPDX_C)),
    ("tool", "#!/bin/sh\n# Does something.\n"),
    ("Makefile", "all:\n"),
    ("tests/late.py", "\n\n\n" + SPDX),
])
def test_spdx(tree, path, text):
    tree.write(path, text)
    expect(tree, "spdx", f"{path}: no line")


@pytest.mark.parametrize("path, folder", [
    ("src/log/meson.build", "src/log"),
    ("tests/cluster/three.conf", "tests/cluster"),
    ("packaging/ha/one.conf", "packaging"),
])
def test_readme(tree, path, folder):
    tree.write(path, SPDX)
    if folder == "packaging":
        tree.write("packaging/ha/README.md", "# Rules\n")
    expect(tree, "readme", f"{folder}: no README.md")


def test_folders_of_data_need_no_readme(tree):
    tree.write("tests/fuzz/README.md", "# Rules\n")
    tree.write("tests/fuzz/corpus/README.md", "# Rules\n")
    tree.write("tests/fuzz/corpus/io-address/1", "x")
    assert tree.complaints() == {}


@pytest.mark.parametrize("link", ["[x](nowhere.md)", "[a](notes.md), [b](../src/two.c#L1)"])
def test_links(tree, link):
    tree.write("docs/notes.md", f"# Notes\n\n{link}\n")
    expect(tree, "links", "docs/notes.md:3: links to")


def test_links_that_are_fine(tree):
    tree.write("docs/notes.md", "[a](../src), [b](README.md#rules), [c](#x), [d](https://a.example)\n")
    assert tree.complaints() == {}


@pytest.mark.parametrize("text", [
    "see /wor" + "k/main", "in /roo" + "t/.ssh", "cd /hom" + "e/anna", "from /tmp/w" + "t/x",
    "an LL" + "M wrote it", "in this sessio" + "n",
])
def test_words(tree, text):
    tree.write("docs/notes.md", f"# Notes\n\n{text}\n")
    expect(tree, "words", "docs/notes.md:3:")


@pytest.mark.parametrize("text", ["an LLVM tool", "src/roo" + "t/x", "these sessions"])
def test_words_that_are_allowed(tree, text):
    tree.write("docs/notes.md", f"# Notes\n\n{text}\n")
    assert tree.complaints() == {}


@pytest.mark.needs("clang-format")
def test_format(tree):
    tree.write("src/base/one.c", GOOD_SOURCE.replace("    return", "  return"))
    expect(tree, "format", "src/base/one.c:5: differs from clang-format's layout")


@pytest.mark.parametrize("path, text", [
    ("src/base/two_test.c", SPDX_C), ("tests/test_two.py", SPDX)])
def test_tests_run(tree, path, text):
    tree.write(path, text)
    expect(tree, "tests-run", f"{path}: no test")


def requirement(tree, row):
    tree.write("docs/requirements.md", requirement_rows({"F1": row}))


@pytest.mark.parametrize("row, complaint", [
    ("", "F1 is missing"),
    ("| F1 | does it | | | | open |", "needs behaviour, source, test, state"),
    ("| F1 | | | | open |", "needs behaviour, source, test, state"),
    ("| F1 | does it | | | nearly |", "state 'nearly' is none of"),
    ("| F1 | does it | | | done, mostly |", "state 'done, mostly' is none of"),
    ("| F1 | does it | | | partly: |", "state 'partly:' is none of"),
    ("| F1 | does it | | `base/one` | done |", "does not name source and test"),
    ("| F1 | does it | `src/base/one.c` | | done |", "does not name source and test"),
    ("| F1 | does it | `src/base/two.c` | `base/one` | done |", "src/base/two.c does not exist"),
    ("| F1 | does it | `src/base/one.c` | `base/two` | done |", "no test program base/two"),
    ("| F1 | does it | `src/base/one.c` | `base/one:test_two` | done |", "no sub-test test_two"),
    ("| F1 | does it | `src/base/one.c` | `base/one:test_on` | done |", "no sub-test test_on"),
    ("| F1 | does it | `src/base/one.c` | `bench/run one` | done |", "does not name one"),
    ("| F1 | does it | `src/base/one.c` | `models/one.pml` | done |", "models/one.pml does not exist"),
    ("| F1 | does it | | `base/one`, `base/two` | partly: half |", "no test program base/two"),
    ("| F1 | a | | | open |\n| F1 | b | | | open |", "F1 stands in line 1 too"),
])
def test_requirements(tree, row, complaint):
    requirement(tree, row)
    expect(tree, "requirements", complaint)


@pytest.mark.parametrize("row", [
    "| F1 | does it | `src/base/one.c` | `base/one` | done |",
    "| F1 | does it | `src/base/one.c`, `src/base/one.h` | `base/one:test_one` | done |",
    "| F1 | does it | | | partly: the second half |",
])
def test_requirements_that_are_fine(tree, row):
    requirement(tree, row)
    assert tree.complaints() == {}


def test_requirements_know_the_benchmarks(tree):
    tree.write("bench/README.md", "# Rules\n")
    tree.write("bench/run", "#!/bin/sh\n" + SPDX + "echo io-one\n")
    (tree.root / "bench/run").chmod(0o755)
    requirement(tree, "| F1 | does it | `src/base/one.c` | `bench/run io-one` | done |")
    assert tree.complaints() == {}


def test_requirements_file_is_missing(tree):
    (tree.root / "docs/requirements.md").unlink()
    expect(tree, "requirements", "docs/requirements.md is missing")
