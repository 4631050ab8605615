# SPDX-License-Identifier: Apache-2.0
"""Which files are a module's, which tests are a module's, and how to copy the tree."""

import fnmatch
import os
import shutil
import subprocess

from mutate_lib.operators import mutants_of
from mutate_lib.tokens import MutateError

# A module's tests are the Meson tests named MODULE/*, and the corpora of its fuzz targets. Tests
# elsewhere that are meant to catch what the module does wrong are added here, as patterns of names.
EXTRA_TESTS = {
    "cmd": ["bulk/*", "docs/document", "ring/cmd", "volume/cmd"],
    "ha": ["cmd/ha_agent"],
    "http": ["server/http"],
    "repl": ["server/repl", "server/ack"],
    "sched": ["server/tenants"],
    "server": ["volume/serve", "cluster/share"],
}

NOT_SHIPPED = ("_test.c", "_fuzz.c", "_bench.c")


class Project:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        if not os.path.exists(os.path.join(self.root, "meson.build")):
            raise MutateError(f"{self.root}: no meson.build here; is this the source tree?")

    def modules(self):
        src = os.path.join(self.root, "src")
        return [name for name in sorted(os.listdir(src)) if self.sources(name)]

    def sources(self, module):
        folder = os.path.join(self.root, "src", module)
        if not os.path.isdir(folder):
            return []
        return [f"src/{module}/{name}" for name in sorted(os.listdir(folder))
                if name.endswith((".c", ".h")) and not name.endswith(NOT_SHIPPED)]

    def files(self, arguments):
        """The files that the command line means, sorted: names of modules, of files, or `all`."""
        found = set()
        for argument in arguments:
            if argument == "all":
                for module in self.modules():
                    found.update(self.sources(module))
            elif self.sources(argument):
                found.update(self.sources(argument))
            else:
                found.add(self._file(argument))
        return sorted(found)

    def _file(self, argument):
        path = argument  # As the report writes it, or as the shell completes it.
        if not os.path.isfile(os.path.join(self.root, path)) or os.path.isabs(path):
            path = os.path.relpath(os.path.abspath(argument), self.root)
        if not os.path.isfile(os.path.join(self.root, path)):
            raise MutateError(f"{argument}: neither a file nor a module; the modules are "
                              f'{", ".join(self.modules())}')
        if path.split(os.sep)[0] != "src" or not path.endswith((".c", ".h")) or (
                path.endswith(NOT_SHIPPED)):
            raise MutateError(f"{argument}: only src/MODULE/*.c and *.h are mutated, no tests")
        return path

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def mutants(self, paths):
        return [mutant for path in paths for mutant in mutants_of(path, self.read(path))]

    def commit(self):
        """The commit that is checked out, or None outside git."""
        done = self._git("rev-parse", "HEAD")
        return done.strip() if done is not None else None

    def copy_to(self, destination):
        """Copies what git knows or would add, in its present state: builds stay behind."""
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if listed is None:
            shutil.copytree(self.root, destination, symlinks=True, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("build", "build-*", ".git"))
            return
        for path in filter(None, listed.split("\0")):
            source = os.path.join(self.root, path)
            if os.path.isfile(source):  # Not a deleted one, nor a submodule.
                target = os.path.join(destination, path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def _git(self, *arguments):
        done = subprocess.run(["git", "-C", self.root, *arguments], capture_output=True, text=True,
                              check=False)
        return done.stdout if done.returncode == 0 else None


def module_of(path):
    return path.split("/")[1]


def is_test_of(module, test_name):
    patterns = [f"{module}/*", f"fuzz/{module}-*"] + EXTRA_TESTS.get(module, [])
    return any(fnmatch.fnmatchcase(test_name, pattern) for pattern in patterns)
