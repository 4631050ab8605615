#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tree itself: tests/tidy/tidy.py [--build BUILD] ROOT [RULE...]

Each rule is a function that yields its complaints as text, and is one sub-test in the output (TAP).
README.md beside this file says why each rule exists; test_tidy.py shows that each can fail.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import requirements
from tree import Tree

LINES_MAX = 1000
COLUMNS_MAX = 100
COMPLAINTS_SHOWN = 50

C_FILES = r"(src|include|tests|bench|examples)/.*\.[ch]"
TEST_FILES = r"src/.*_(test|fuzz|bench)\.c"  # They stand beside the code but are not product.

# Which modules a module may look at. The order is that of the layers, the lowest first.
MODULES = {
    "base": "",
    "io": "base",
    "log": "base io",
    "http": "base io log",
    "engine": "base io log",
    "jobs": "base io log",
    "epoch": "base io log",
    "sched": "base io log epoch",
    "ring": "base io log",
    "volume": "base io log ring jobs",
    "cache": "base io log engine jobs epoch sched ring volume",
    "repl": "base io log engine jobs cache",
    "ha": "base io log epoch",
    "server": "base io log engine jobs epoch sched ring volume cache repl",
    "cmd": "base io log engine jobs epoch sched ring volume cache repl ha server http",
}

# The public headers, and the module each belongs to. All may use api.h.
PUBLIC_HEADERS = {
    "engine": "engine", "jobs": "jobs", "log": "log", "epoch": "epoch", "sched": "sched",
    "sched_policy": "sched",
    "ring": "ring", "journal": "ring", "volume": "volume",
}

# Headers that reach nothing outside the process. All others belong to src/io, or to a file below.
INSIDE = set("""
    assert.h ctype.h endian.h errno.h float.h inttypes.h limits.h math.h stdalign.h stdarg.h
    stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h strings.h
    sys/types.h sys/uio.h time.h
    arm_acle.h cpuid.h immintrin.h nmmintrin.h sanitizer/asan_interface.h
""".split())

# Files that may include other headers too: the threads, and the adapters to outside libraries.
ADAPTERS = {
    "src/base/thread.h": "pthread.h",
    "src/base/thread.c": "linux/futex.h pthread.h sched.h signal.h sys/syscall.h unistd.h",
    "src/base/fence.c": "linux/membarrier.h sys/syscall.h unistd.h",
    "src/base/mutex.h": "pthread.h",
    "src/base/mutex.c": "pthread.h",
    "src/base/hash.h": "xxhash.h",
    "src/base/hash.c": "xxhash.h",
    "src/epoch/corosync.c": "corosync/corotypes.h corosync/cpg.h unistd.h",
    "src/epoch/corosync_attempt.h": "corosync/cpg.h",
    "src/epoch/corosync_attempt.c":
        "corosync/cmap.h corosync/corotypes.h pthread.h signal.h sys/socket.h unistd.h",
    "src/volume/lvm.c": "libdevmapper.h",
    "src/volume/device_mapper.c": "libdevmapper.h",
    "src/volume/sanlock.c": "sanlock.h sanlock_admin.h sanlock_resource.h sanlock_rv.h",
    "src/volume/nbdkit.c": "nbdkit-plugin.h",
    "src/http/http.c": "microhttpd.h",
    "src/http/microhttpd.c": "microhttpd.h",
    "src/epoch/corosync_library.c": "corosync/cmap.h corosync/corotypes.h corosync/cpg.h",
    "src/volume/lvm_library.c": "libdevmapper.h",
}

# What banned.h cannot catch, because a later system header declares it. The last column is where it
# is allowed: folders end in '/', '*' stands for the tests beside the code.
BANNED = [
    (r"\b(u|nano|clock_nano)?sleep\s*\(", "wait with fw_park_for() or a timer", ""),
    (r"\b(system|popen|vfork)\s*\(", "no shell, no child that shares our memory", ""),
    (r"\b(tmpnam|mktemp)\s*\(", "mkstemp, through io/file", ""),
    (r"\b(strerror|inet_ntoa|inet_addr|gethostbyname)\s*\(", "hidden state: fw_reason, io/address", ""),
    (r"(?<![\w.>])(signal|select)\s*\(", "io/signal, io/reactor", "*"),
    (r"\b(gettimeofday|clock_gettime)\s*\(|(?<![\w.>])time\s*\(", "io/clock",
     "src/io/ src/base/thread.c *"),
    (r"\bpthread_\w+\s*\(", "base/thread, base/mutex",
     "src/base/thread.c src/base/mutex.c src/io/stack.c src/epoch/corosync_attempt.c *"),
    (r"\b(_Thread_local|__thread|thread_local)\b", "fw_thread_self()", "src/base/thread. *"),
    (r"(?<!\w)assert\s*\(", "FW_ASSERT", "*"),
    (r"\b(setjmp|longjmp)\s*\(", "an error is returned", "*"),
]

README_FOLDERS = r"(src|tests|bench|docs|models|examples|tools|packaging|include)(/.*)?"
README_NOT_NEEDED = r"include/fairway|tests/fuzz/corpus(/.*)?|.*/(data|vectors)(/.*)?"

NEEDS_SPDX = (r".*\.(c|h|py|sh|pml|build|mk|js|html|css|conf|service)|(.*/)?Makefile|meson_options\.txt"
              r"|packaging/packages|\.clang-(format|tidy)")

# A class of one letter keeps this file from matching itself.
MACHINE = re.compile(r"/wor[k]/|/tmp/w[t]\b|(?<![\w.])/roo[t]/|(?<![\w.])/hom[e]/\w")
ORGANISATION = re.compile(r"\b(LL[M]|subagen[t]|AI assistan[t]|this sessio[n])\b")


class Skip(Exception):
    """The machine lacks what the rule needs; the text names the capability."""


def rule_includes(tree):
    """Includes follow the layers, and only io and the adapters look outside."""
    for path in tree.matching(C_FILES):
        for number, line in tree.lines(path):
            match = re.match(r'\s*#\s*include\s*(<(?P<system>[^>]+)>|"(?P<own>[^"]+)")', line)
            if match is None:
                continue
            if match["own"]:
                complaint = own_include(path, match["own"])
            else:
                complaint = system_include(path, match["system"])
            if complaint:
                yield f"{path}:{number}: {complaint}"


def own_include(path, name):
    """Complaint about an include in quotes, or None."""
    top, folder = path.split("/")[0], name.split("/")[0]
    if top in ("include", "examples"):
        return f'"{name}" is private; only <fairway/...> and system headers here'
    if top != "src":
        return None
    module = path.split("/")[1]
    if module not in MODULES:
        return f"src/{module} is not a module of tests/tidy/tidy.py"
    if re.fullmatch(TEST_FILES, path) and folder in ("support", "bench"):
        return None
    if folder == module or folder in MODULES[module].split():
        return None
    return f'{module} may not include "{name}"'


def system_include(path, name):
    """Complaint about an include in angle brackets, or None."""
    top = path.split("/")[0]
    if name.startswith("fairway/"):
        return public_include(path, name)
    if top == "include":
        return None if name in INSIDE else f"<{name}> would bind every user of the library to it"
    if top != "src" or path.startswith("src/io/") or re.fullmatch(TEST_FILES, path):
        return None
    if name in INSIDE or name in ADAPTERS.get(path, "").split():
        return None
    return f"<{name}> leads outside, and src/io is the only door"


def public_include(path, name):
    """Complaint about the include of a public header, or None."""
    header = name.removeprefix("fairway/").removesuffix(".h")
    if header in ("api", "types"):
        return None
    owner = PUBLIC_HEADERS.get(header)
    if owner is None:
        return f"<{name}> is not a public header of tests/tidy/tidy.py"
    parts = path.split("/")
    if parts[0] == "include":
        module = PUBLIC_HEADERS.get(parts[-1].removesuffix(".h"))
    elif parts[0] == "src":
        module = parts[1]
    else:
        return None
    if module in MODULES and (owner == module or owner in MODULES[module].split()):
        return None
    return f"{module or parts[-1]} may not include <{name}>"


def rule_length(tree):
    """No file is longer than people read."""
    for path in tree.files:
        count = tree.read(path).count("\n")
        if count > LINES_MAX:
            yield f"{path}: {count} lines, at most {LINES_MAX}"


def rule_width(tree):
    """No line of C is wider than two windows side by side allow."""
    for path in tree.matching(C_FILES):
        for number, line in tree.lines(path):
            if len(line) > COLUMNS_MAX:
                yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"


def rule_banned(tree):
    """Every C file is compiled with banned.h, and what that cannot catch is not used."""
    for command in tree.build_file("compile_commands.json") or []:
        words = command.get("command", "")
        if command["file"].endswith(".c") and not re.search(r"-include banned\.h", words):
            yield f"{command['file']}: compiled without -include banned.h"
    for path in tree.matching(r"src/.*\.[ch]"):
        is_test = re.fullmatch(TEST_FILES, path) is not None
        banned = [(re.compile(pattern), instead) for pattern, instead, where in BANNED
                  if not any(is_test if place == "*" else path.startswith(place) for place in where.split())]
        for number, line in tree.code_lines(path):
            for pattern, instead in banned:
                if match := pattern.search(line):
                    yield f"{path}:{number}: {match[0].rstrip('( ')} is banned: {instead}"


def rule_headers(tree):
    """Every header compiles alone, and the public ones without our private folders."""
    compiler = os.environ.get("CC") or "cc"
    private = ["-Isrc", "-Itests", "-I.", "-include", "src/base/banned.h"]

    def complaint(path):
        public = path.startswith("include/")
        command = [compiler, "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                   "-fsyntax-only", "-Iinclude", *([] if public else private), "-x", "c", "-"]
        done = subprocess.run(command, input=f'#include "{tree.root / path}"\n', cwd=tree.root,
                              stderr=subprocess.PIPE, text=True, check=False)
        return f"{path} does not compile alone:\n{done.stderr}" if done.returncode else None

    headers = tree.matching(C_FILES.replace("[ch]", "h"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(complaint, headers))


def rule_spdx(tree):
    """Every file of code says under which licence it is."""
    for path in tree.files:
        text = tree.read(path)
        if re.fullmatch(NEEDS_SPDX, path) or text.startswith("#!"):
            if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.splitlines()[:3]):
                yield f"{path}: no line 'SPDX-License-Identifier: Apache-2.0' at its top"


def rule_readme(tree):
    """Every folder says what its rules are."""
    folders = set()
    for path in tree.files:
        parts = path.split("/")[:-1]
        folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    for folder in sorted(folders):
        if re.fullmatch(README_FOLDERS, folder) and not re.fullmatch(README_NOT_NEEDED, folder):
            if f"{folder}/README.md" not in tree.files:
                yield f"{folder}: no README.md"


def rule_links(tree):
    """Links between our pages lead somewhere."""
    for path in tree.matching(r".*\.md"):
        for number, line in tree.lines(path):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                linked = (tree.root / path).parent / target
                if not re.match(r"\w+:", target) and not linked.exists():
                    yield f"{path}:{number}: links to {target}, which does not exist"


def rule_words(tree):
    """The files speak of the project, not of a machine or of how the work was organised."""
    for path in tree.files:
        for number, line in tree.lines(path):
            if match := MACHINE.search(line):
                yield f"{path}:{number}: a path of one machine: {match[0]}"
            if match := ORGANISATION.search(line):
                yield f"{path}:{number}: speaks of how the work was organised: {match[0]}"


def rule_format(tree):
    """clang-format has nothing to change."""
    if shutil.which("clang-format") is None:
        raise Skip("clang-format: clang-format is not installed")
    files = tree.matching(C_FILES)

    def complaints(some):
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", *some], cwd=tree.root,
                              stderr=subprocess.PIPE, text=True, check=False)
        return re.findall(r"^(\S+:\d+):\d+: error", done.stderr, re.MULTILINE)

    chunks = [files[first::os.cpu_count()] for first in range(os.cpu_count())]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(complaints, filter(None, chunks)):
            yield from (f"{place}: differs from clang-format's layout; `make format`"
                        for place in found)


def rule_tests_run(tree):
    """Every test file belongs to a test that the runner runs."""
    if tree.build_file("meson-info/intro-tests.json") is None:
        return
    known = {file for files in tree.tests().values() for file in files}
    for path in tree.matching(r"src/.*_test\.c|tests/.*test_[^/]*\.py|tests/.*_test\.c"):
        if path not in known:
            yield f"{path}: no test in a meson.build runs it"


def rule_requirements(tree):
    """docs/requirements.md is complete, and what it calls done exists."""
    yield from requirements.complaints(tree)


RULES = {name.removeprefix("rule_").replace("_", "-"): rule
         for name, rule in list(globals().items()) if name.startswith("rule_")}


def main():
    parser = argparse.ArgumentParser(description="Checks the tree against the project's rules.")
    parser.add_argument("root")
    parser.add_argument("rules", nargs="*", help=f"of {', '.join(RULES)}; all by default")
    parser.add_argument("--build", help="the build directory, for rules about what is built")
    arguments = parser.parse_args()

    tree = Tree(arguments.root, arguments.build)
    names = arguments.rules or list(RULES)
    failed = 0
    print(f"1..{len(names)}")
    for number, name in enumerate(names, 1):
        try:
            found = list(RULES[name](tree))
        except Skip as skip:
            print(f"ok {number} - {name} # SKIP {skip}")
            continue
        failed += 1 if found else 0
        print(f"{'not ok' if found else 'ok'} {number} - {name}")
        for complaint in found[:COMPLAINTS_SHOWN]:
            print("# " + complaint.replace("\n", "\n#   "))
        if len(found) > COMPLAINTS_SHOWN:
            print(f"# and {len(found) - COMPLAINTS_SHOWN} more")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
