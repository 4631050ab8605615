# SPDX-License-Identifier: Apache-2.0
"""The rule about docs/requirements.md.

Its tables have one row per requirement: number, behaviour, source, test, state. The state is `open`,
`partly: what is missing`, or `done`. Sources and tests that a row names must exist, and a row that
says done must name both. A test is written as the runner names it (`base/spsc:test_race`, or
`base/spsc` for all of it), as `bench/run NAME`, or as `models/NAME.pml`; several are separated by
commas.
"""

import functools
import re
import subprocess

PATH = "docs/requirements.md"

# How many numbers each part has at least. More may be added; none may go.
COUNTS = {"F": 26, "J": 38, "L": 17, "E": 18, "R": 14, "V": 30, "C": 40, "H": 14}

ROW = re.compile(r"^\| *(?P<number>[A-Z]\d+) *\|(?P<rest>.*)\|\s*$")
STATE = re.compile(r"open|done|partly: \S.*")


def names(cell):
    """The names in a table cell, without their back-quotes."""
    return [name.strip().strip("`") for name in cell.split(",") if name.strip()]


def complaints(tree):
    if PATH not in tree.files:
        yield f"{PATH} is missing"
        return
    seen = {}
    for line_number, line in tree.lines(PATH):
        match = ROW.match(line)
        if match is None:
            continue
        place = f"{PATH}:{line_number}: {match['number']}"
        if match["number"] in seen:
            yield f"{place} stands in line {seen[match['number']]} too"
        seen[match["number"]] = line_number
        cells = [cell.strip() for cell in match["rest"].split("|")]
        if len(cells) != 4 or not cells[0]:
            yield f"{place}: needs behaviour, source, test, state"
            continue
        for complaint in row_complaints(tree, *cells[1:]):
            yield f"{place}: {complaint}"
    for letter, count in COUNTS.items():
        for index in range(1, count + 1):
            if f"{letter}{index}" not in seen:
                yield f"{PATH}: {letter}{index} is missing"


def row_complaints(tree, source, test, state):
    if not STATE.fullmatch(state):
        yield f"state '{state}' is none of: open, partly: what is missing, done"
    if state == "done" and not (names(source) and names(test)):
        yield "says done but does not name source and test"
    for path in names(source):
        if path not in tree.files:
            yield f"source {path} does not exist"
    for name in names(test):
        complaint = test_complaint(tree, name)
        if complaint:
            yield complaint


def test_complaint(tree, name):
    """Why the named test does not exist, or None."""
    if name.startswith("bench/run "):
        bench = name.removeprefix("bench/run ")
        return None if bench in benchmarks(tree) else f"bench/run --list does not name {bench}"
    if name.startswith("models/"):
        return None if name in tree.files else f"{name} does not exist"
    program, _, subtest = name.partition(":")
    if program not in tree.tests():
        return f"there is no test program {program}"
    if not subtest:
        return None
    subtest = re.escape(subtest.partition("[")[0])
    # In C as an entry of cmocka's table, in Python as a function or the name of a rule.
    entry = re.compile(rf"cmocka_unit_test\w*\(\s*{subtest}\b|def (rule_)?{subtest.replace('-', '_')}\(")
    if any(entry.search(tree.read(path)) for path in tree.tests()[program] if path in tree.files):
        return None
    return f"{program} has no sub-test {subtest}"


@functools.lru_cache
def benchmarks(tree):
    """The words that `bench/run --list` prints."""
    if "bench/run" not in tree.files:
        return []
    build = ["--build", str(tree.build)] if tree.build else []
    done = subprocess.run(["bench/run", "--list", *build], cwd=tree.root, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.split()
