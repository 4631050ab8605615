# SPDX-License-Identifier: Apache-2.0
"""One Meson build directory of a private copy of the tree, with one set of sanitizers.

Tests are run directly and not through `meson test`, whose start takes longer than most of them.
"""

import hashlib
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from typing import NamedTuple

from mutate_lib import process, project
from mutate_lib.tokens import MutateError, OriginalFails, OutOfTime


class Flavour(NamedTuple):
    name: str
    sanitizers: str
    optimization: str
    environment: "dict[str, str]"


_memory = f"hard_rss_limit_mb={process.MEMORY_MAX_MB}"
# Leaks, overruns and undefined behaviour are failures in our continuous integration, so a mutant
# that has one counts as killed. TSan is the judge of memory orders: on x86 a missing acquire or
# release hardly ever shows, but to TSan the data it should have ordered is a data race. A little
# optimisation costs a second of compiling, and the longest tests take a third of the time with it.
FLAVOURS = {
    "checked": Flavour("checked", "address,undefined", "1", {
        "ASAN_OPTIONS": f"{_memory}:detect_leaks=1",
        "UBSAN_OPTIONS": "halt_on_error=1"}),
    "tsan": Flavour("tsan", "thread", "1", {
        "TSAN_OPTIONS": f"{_memory}:halt_on_error=1"}),
}

ORIGINAL_TRIES = 3  # A machine that stalls once does not condemn a module.
# Seconds that a test may take on the code as it is. One that takes longer is left out and told of:
# it would take as long for each mutant. Whether it hangs is for others to say.
ORIGINAL_LIMIT = 120
LEFT_OUT = float("inf")


@dataclass
class Test:
    name: str
    command: "list[str]"
    environment: "dict[str, str]"
    folder: str
    tap: bool
    targets: "list[str]"  # What to build before, relative to the build directory.
    seconds: "float | None" = None  # On the code as it is; LEFT_OUT, or None: not tried yet.
    digest: str = field(default="")  # Of all its targets, from the code as it is.


class Build:
    def __init__(self, tree, folder, flavour, compiler, ninja_jobs):
        self.tree = tree
        self.folder = folder
        self.flavour = flavour
        self.compiler = compiler
        self.ninja_jobs = ninja_jobs
        self.output = folder + ".output"
        # Short, since tests make UNIX sockets there, whose paths are limited to 107 bytes.
        self.temporary = os.path.join(os.path.dirname(folder), "t")
        self._tests = None
        self._prepared = {}
        self._commands = None
        self._units = {}
        self._symbols = {}

    # Meson and Ninja.

    def _environment(self, extra):
        environment = dict(os.environ)
        for name, value in extra.items():
            own = environment.get(name, "") if name.endswith("SAN_OPTIONS") else ""
            environment[name] = f"{value}:{own}" if own else value
        environment["TMPDIR"] = self.temporary
        return environment

    def _run(self, command, what):
        ended = process.run(command, self.tree, self._environment({"CC": self.compiler}),
                            output=self.output)
        if ended.status != 0:
            raise MutateError(f"{what} failed:\n{self.output_tail(40)}")

    def output_tail(self, lines):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def set_up(self):
        """Configures once. Warnings are no errors here: an unused variable hides no mutant."""
        if self._tests is not None:
            return
        os.makedirs(self.temporary, exist_ok=True)
        os.chmod(self.temporary, 0o1777)  # Some tests give up their privileges.
        self._run(["meson", "setup", self.folder, self.tree, "-Dwerror=false", "-Dchecks=true",
                   f"-Doptimization={self.flavour.optimization}", "-Ddebug=false",
                   "-Db_lundef=false",
                   f"-Db_sanitize={self.flavour.sanitizers}"], f"meson setup ({self.compiler})")
        self._run(["meson", "introspect", "--tests", "--targets", self.folder], "meson introspect")
        with open(self.output, encoding="utf-8") as file:
            found = json.load(file)
        files = {target["id"]: [os.path.relpath(name, self.folder) for name in target["filename"]]
                 for target in found["targets"]}
        self._tests = [self._test(raw, files) for raw in found["tests"]]
        with open(os.path.join(self.folder, "compile_commands.json"), encoding="utf-8") as file:
            self._commands = json.load(file)

    def _test(self, raw, files):
        targets = [name for target in raw["depends"] for name in files.get(target, [])]
        return Test(name=raw["name"], command=raw["cmd"], environment=raw["env"],
                    folder=raw["workdir"] or self.folder, tap=raw["protocol"] == "tap",
                    targets=sorted(set(targets)))

    def ninja(self, targets):
        """True if all could be built."""
        ended = process.run(["ninja", "-C", self.folder, f"-j{self.ninja_jobs}", *targets],
                            self.tree, self._environment({}), output=self.output)
        return ended.status == 0

    # Tests.

    def prepare(self, module):
        """Builds the module's tests from the code as it is, and returns them."""
        if module not in self._prepared:
            self.set_up()
            tests = [test for test in self._tests if project.is_test_of(module, test.name)]
            targets = [target for test in tests for target in test.targets]
            if targets and not self.ninja(targets):
                raise MutateError(f"the code as it is does not build:\n{self.output_tail(40)}")
            for test in tests:
                test.digest = self.digest(test)
            self._prepared[module] = tests
        return self._prepared[module]

    def try_out(self, tests, in_time):
        """Runs those that were not run yet on the code as it is, where all must pass."""
        new = [test for test in tests if test.seconds is None]
        if new and not self.ninja([target for test in new for target in test.targets]):
            raise MutateError(f"the code as it is does not build:\n{self.output_tail(40)}")
        for test in new:
            if not in_time():
                raise OutOfTime("the time is over")
            for _ in range(ORIGINAL_TRIES):
                why, seconds = self.run_test(test, ORIGINAL_LIMIT)
                if why is None or seconds >= ORIGINAL_LIMIT:
                    break
            if seconds >= ORIGINAL_LIMIT:
                print(f"{test.name} is left out: it takes more than {ORIGINAL_LIMIT} s "
                      f"({self.flavour.name})", file=sys.stderr, flush=True)
                seconds = LEFT_OUT
            elif why is not None:
                raise OriginalFails(f"{test.name} fails on the code as it is ({why}, "
                                    f"{self.flavour.name}):\n{self.output_tail(40)}")
            test.seconds = seconds

    def digest(self, test):
        """Changes with the binaries a test consists of."""
        total = hashlib.sha256()
        for target in test.targets:
            with open(os.path.join(self.folder, target), "rb") as file:
                total.update(file.read())
        return total.hexdigest()

    def run_test(self, test, limit):
        """Why the test failed, or None; and how long it took."""
        environment = self._environment({**self.flavour.environment, **test.environment})
        ended = process.run(test.command, test.folder, environment, limit, self.output)
        return self._failure(test, ended), ended.seconds

    def _failure(self, test, ended):
        if ended.timed_out:
            return f"still running after {ended.seconds:.0f} s"
        if ended.status < 0:
            return f"signal {-ended.status}"
        if ended.status not in (0, 77):  # 77: skipped.
            return f"exit status {ended.status}"
        if test.tap and re.search(r"^not ok(?!.*# *(SKIP|TODO))", self.output_tail(10000),
                                  re.MULTILINE):
            return "not ok"
        return None

    # Single compilations.

    def units(self, path):
        """The translation units (entries of the compilation database) that `path` is part of."""
        if path not in self._units:
            self._units[path] = self._find_units(path)
        return self._units[path]

    def _find_units(self, path):
        full = os.path.join(self.tree, path)
        if path.endswith(".c"):
            return [c for c in self._commands if self._source(c) == full][:1]
        objects = self._objects_with(full)
        stem = os.path.basename(path)[:-2]
        found = [c for c in self._commands if c["output"] in objects]
        return sorted(found, key=lambda c: (stem not in os.path.basename(c["file"]), c["file"]))

    def _source(self, command):
        return os.path.realpath(os.path.join(command["directory"], command["file"]))

    def _objects_with(self, header):
        """The objects built so far that include `header`, as Ninja has noted."""
        process.run(["ninja", "-C", self.folder, "-t", "deps"], self.tree, output=self.output)
        objects = set()
        current = None
        with open(self.output, encoding="utf-8") as file:
            for line in file:
                if not line.startswith(" "):
                    current = line.split(":")[0]
                elif os.path.realpath(os.path.join(self.folder, line.strip())) == header:
                    objects.add(current)
        return objects

    def may_contain(self, test, path):
        """False if the test links nothing of the file, so that no change of it can matter.

        A linker takes all of an object or nothing, so one of its names is enough to know. Inline
        functions of a header have no names that would tell.
        """
        if path.endswith(".h"):
            return True
        names = set()
        for unit in self.units(path):
            names |= self._names(unit["output"], "--extern-only")
        linked = [self._names(target) for target in test.targets]
        return not names or not all(linked) or any(names & other for other in linked)

    def _names(self, file, *options):
        """What a binary as built from the original defines; nothing if it is no binary."""
        if file not in self._symbols:
            ended = process.run(["nm", "--format=posix", "--defined-only", *options, file],
                                self.folder, output=self.output)
            with open(self.output, encoding="utf-8") as lines:
                self._symbols[file] = {line.split(" ")[0] for line in lines if ended.status == 0}
        return self._symbols[file]

    def object_code(self, command):
        """A digest of what the unit compiles to, optimised; None if it does not compile.

        Without debugging data, so that only what runs is compared. ASan and UBSan go too, as they
        would tell apart what the optimiser makes equal; TSan stays, since its calls carry the
        memory order that x86 code does not.
        """
        target = self.folder + ".o"
        arguments = []
        skip = False
        for word in shlex.split(command["command"]):
            if skip or word in ("-MD", "-MMD"):
                skip = False
            elif word in ("-o", "-MQ", "-MF", "-MT"):
                skip = True
            elif not word.startswith("-fsanitize=address"):
                arguments.append(word)
        arguments += ["-O2", "-g0", "-w", "-o", target]
        ended = process.run(arguments, command["directory"], output=self.output)
        if ended.status != 0:
            return None
        with open(target, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
