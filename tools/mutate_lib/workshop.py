# SPDX-License-Identifier: Apache-2.0
"""A private copy of the tree in which one mutant after the other is built and tested.

The user's tree is never written to. A workshop keeps its build directories, so that a mutant costs
one compilation, the links of the tests that contain it, and their runs.
"""

import os
from dataclasses import dataclass

from mutate_lib.build import FLAVOURS, LEFT_OUT, Build
from mutate_lib.project import module_of
from mutate_lib.tokens import OutOfTime

SLOWDOWN_MAX = 5  # A test that takes this many times longer than it should is taken as hanging.


@dataclass
class Outcome:
    state: str  # killed, survived, equivalent, duplicate or build-failed
    why: str


def own_tests(path, tests):
    """Those named after the file, or else after what it is a part of: option_file.c after option.

    With none, all the module's tests would be linked for each mutant before the first one runs.
    """
    stem = os.path.splitext(path.split("/", 1)[1])[0]
    while stem:
        own = [test for test in tests
               if test.name == stem or test.name.startswith(stem + "-")]
        if own:
            return own
        stem = stem.rpartition("_")[0]
    return []


class Workshop:
    def __init__(self, project, folder, options):
        self.project = project
        self.folder = os.path.realpath(folder)
        self.options = options
        self.tree = os.path.join(self.folder, "tree")
        self.builds = {}
        self.original_code = {}

    def _build(self, flavour):
        if not os.path.isdir(self.tree):
            os.makedirs(self.tree)
            self.project.copy_to(self.tree)
        if flavour not in self.builds:
            ninja_jobs = max(1, (os.cpu_count() or 1) // self.options.jobs)
            self.builds[flavour] = Build(self.tree, os.path.join(self.folder, flavour),
                                         FLAVOURS[flavour], self.options.compiler, ninja_jobs)
        return self.builds[flavour]

    def _flavours(self, mutant):
        """Under which sanitizers a mutant is tested, in turn until one kills it."""
        tsan = self.options.tsan
        if tsan != "never" and mutant.operator == "order":
            return ["tsan"]
        if tsan == "always" or tsan == "auto" and mutant.operator == "lock":
            return ["checked", "tsan"]
        return ["checked"]

    def has_tests(self, module):
        return bool(self._build("checked").prepare(module))

    def _write(self, path, text):
        with open(os.path.join(self.tree, path), "w", encoding="utf-8") as file:
            file.write(text)

    def _with_mutant(self, mutant, action):
        original = self.project.read(mutant.path)
        self._write(mutant.path, mutant.apply(original))
        try:
            return action()
        finally:
            self._write(mutant.path, original)

    # Screening: does the mutant compile, and to something new?

    def screen(self, mutant):
        """An outcome if there is nothing to test, else None; and the object code's digest.

        The digest is '' where two mutants with the same one need not be the same.
        """
        build = self._build(self._flavours(mutant)[0])
        build.prepare(module_of(mutant.path))
        units = build.units(mutant.path)
        originals = [self._original(build, unit) for unit in units]
        return self._with_mutant(mutant, lambda: self._compare(build, units, originals))

    def _original(self, build, unit):
        key = (build.folder, unit["output"])
        if key not in self.original_code:
            self.original_code[key] = build.object_code(unit)
        return self.original_code[key]

    def _compare(self, build, units, originals):
        for unit, original in zip(units, originals):
            code = build.object_code(unit)
            if code is None:
                return Outcome("build-failed", "does not compile"), ""
            if code != original:
                return None, code if len(units) == 1 else ""
        if not units:
            return None, ""
        return Outcome("equivalent", "same object code"), ""

    # Testing.

    def test(self, mutant, in_time):
        """OutOfTime when in_time() says so before it is known."""
        for flavour in self._flavours(mutant):
            outcome = self._test(mutant, self._build(flavour), in_time)
            if outcome.state != "survived":
                break
        return outcome

    def _test(self, mutant, build, in_time):
        """The test of the same name goes first and is built alone: it kills most mutants.

        So most mutants are judged without the module's other tests, which then are not even tried
        out on the code as it is.
        """
        tests = build.prepare(module_of(mutant.path))
        own = own_tests(mutant.path, tests)
        others = [test for test in tests
                  if test not in own and build.may_contain(test, mutant.path)]
        linked = 0
        for group in filter(None, (own, others)):
            build.try_out(group, in_time)
            group = sorted((test for test in group if test.seconds != LEFT_OUT),
                           key=lambda test: test.seconds)
            outcome, more = self._with_mutant(mutant, lambda: self._run(build, group, in_time))
            linked += more
            if outcome is not None:
                return outcome
        return Outcome("survived", "" if linked > 0 else "part of no test program")

    def _run(self, build, group, in_time):
        """An outcome, or None if all pass; and how many of them have the mutant in them."""
        linked = 0
        if not build.ninja([target for test in group for target in test.targets]):
            return Outcome("build-failed", "does not link"), linked
        for test in group:
            if test.targets and build.digest(test) == test.digest:
                continue  # The same binary would do the same.
            if not in_time():
                raise OutOfTime("the time is over")
            linked += 1
            limit = max(self.options.time_limit, SLOWDOWN_MAX * test.seconds)
            why, _ = build.run_test(test, limit)
            if why is not None:
                return Outcome("killed", f"{test.name} ({build.flavour.name}): {why}"), linked
        return None, linked
