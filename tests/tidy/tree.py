# SPDX-License-Identifier: Apache-2.0
"""The files that the rules look at, and what the build says about them."""

import functools
import json
import os
import pathlib
import re
import subprocess

# Comments, strings and characters of C, for rules about code.
_C_TOKENS = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""", re.DOTALL | re.VERBOSE)


class Tree:
    """A source tree, and the build directory of it if there is one."""

    def __init__(self, root, build=None):
        self.root = pathlib.Path(root).resolve()
        self.build = pathlib.Path(build).resolve() if build else None
        self.files = sorted(self._list())

    def _list(self):
        """What git tracks or would track; where git does not answer (an unpacked archive, a tree of
        another user's) all but builds."""
        if (self.root / ".git").exists():
            git = subprocess.run(
                ["git", "-C", self.root, "ls-files", "-z", "-co", "--exclude-standard"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            if git.returncode == 0:
                return {path for path in git.stdout.split("\0")
                        if path and (self.root / path).is_file()}
        found = set()
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders
                          if not re.match(r"build($|-)|\.git$|\.cache$|__pycache__$", name)]
            found |= {str(pathlib.Path(folder, name).relative_to(self.root)) for name in names}
        return found

    def matching(self, pattern):
        """The files whose path matches the whole of the regular expression."""
        return [path for path in self.files if re.fullmatch(pattern, path)]

    @functools.lru_cache(maxsize=None)
    def read(self, path):
        """The text of a file; empty for what is not text."""
        data = (self.root / path).read_bytes()
        return "" if b"\0" in data else data.decode("utf-8", errors="replace")

    def lines(self, path):
        """Pairs of line number and line."""
        return enumerate(self.read(path).splitlines(), 1)

    def code_lines(self, path):
        """The same for a C file, without comments and with strings emptied."""
        def blank(match):
            text = match[0]
            return '""' if text[0] == '"' else "0" if text[0] == "'" else "\n" * text.count("\n")
        return enumerate(_C_TOKENS.sub(blank, self.read(path)).splitlines(), 1)

    @functools.lru_cache(maxsize=None)
    def build_file(self, name):
        """A JSON file of the build directory, None if there is none."""
        path = self.build / name if self.build else None
        return json.loads(path.read_text()) if path and path.exists() else None

    @functools.lru_cache(maxsize=None)
    def tests(self):
        """From the name of each test program, as the runner names it, to its source files."""
        targets = self.build_file("meson-info/intro-targets.json") or []
        sources = {}
        for target in targets:
            files = [file for part in target["target_sources"] for file in part["sources"]]
            sources.update({name: files for name in target["filename"]})
        tests = {}
        for test in self.build_file("meson-info/intro-tests.json") or []:
            scripts = [word for word in test["cmd"][1:] if word.endswith(".py")]
            files = sources.get(test["cmd"][0], scripts)
            tests[test["name"]] = [os.path.relpath(file, self.root) for file in files]
        return tests
