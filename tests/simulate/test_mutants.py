# SPDX-License-Identifier: Apache-2.0
"""Goal: a mutant counts as caught only if it was made, ran, and a seed failed.
Method: the harness is given mutants of which that is known: one that changes nothing, one whose text is not
there, one that does not compile, and one that every seed notices. That each mutant of the table can be made is
seen here, at every change; that each is caught, by `make mutants`."""

import importlib.machinery
import importlib.util

import pytest


@pytest.fixture(scope="module")
def harness(source):
    path = str(source / "tests/simulate/mutants/mutants")
    loader = importlib.machinery.SourceFileLoader("mutants", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def judge(harness, build):
    workshop = harness.Workshop(build.resolve())

    def judge(old, new, file="src/engine/channel.c"):
        mutant = harness.MUTANTS[0]._replace(file=file, scenario="engine-wake", edits=[(old, new)])
        return harness.judge(workshop, mutant, 5)
    return judge


ACKNOWLEDGED = "    atomic_store_explicit(&clink->channel, NULL, memory_order_release);"


def test_a_mistake_is_caught(judge):
    caught, what = judge(ACKNOWLEDGED, "")
    assert caught and what.startswith("seed 1: ")


def test_each_of_the_table_fits_the_source(harness):
    for mutant in harness.MUTANTS:
        assert harness.mutate(mutant) != ""  # Raises, if what it changes is not there, or twice.


def test_a_header_is_mutated(judge):
    caught, what = judge("            return is_parked;", "            return true;",
                         file="src/engine/word.h")
    assert caught, what


def test_no_mistake_survives(judge):
    assert judge(ACKNOWLEDGED, ACKNOWLEDGED + " /* The same. */") == (False, "no seed of 1 to 5 notices")


def test_text_that_is_gone(judge):
    caught, what = judge("no such text", "")
    assert not caught and "0 times" in what


def test_text_that_is_ambiguous(judge):
    caught, what = judge("channel", "chanel")
    assert not caught and "times, and not once" in what


def test_what_does_not_compile(judge):
    caught, what = judge(ACKNOWLEDGED, "    this is no C;")
    assert not caught and "does not compile" in what


def test_names_are_used_once(harness):
    names = [mutant.name for mutant in harness.MUTANTS]
    assert len(names) == len(set(names))
