# SPDX-License-Identifier: Apache-2.0
"""Goal: `make` ends with a line for each optional part that was left out and the command that adds it, and with nothing when
all parts are there; and every such command, here and in the messages of the programs, names a group of packages.
Method: the real Makefile configures the real tree on made-up machines, on which pkg-config finds what the test wants. ninja
compiles nothing, and dpkg-query says which packages are there."""

import re
import shutil
import subprocess

import pytest

REQUIRED = ["libxxhash", "hwloc", "blkid"]
LEFT_OUT = re.compile(r"left out: (?P<what>.*?) +to add: make packages GROUP=(?P<group>optional/(?P<part>\w+)) && make")


def parts_of(source):
    """The optional parts, by the packages' list."""
    lines = (source / "packaging/packages").read_text().splitlines()
    return sorted({line.split()[0].removeprefix("optional/") for line in lines if line.startswith("optional/")})


class Machine:
    """A made-up machine: the libraries that pkg-config finds there, and a build directory."""

    def __init__(self, source, folder):
        self.source = source
        self.folder = folder
        self.libraries = folder / "pkgconfig"
        for name in ("bin", "pkgconfig"):
            (folder / name).mkdir()
        for name in REQUIRED:
            self.add(name)
        self.program("ninja", f'[ "$1" != --version ] || exec {shutil.which("ninja")} --version')
        self.program("libgcrypt-config", "exit 1")  # Meson would ask it, too.
        self.program("dpkg-query", f"ls {self.libraries}")

    def program(self, name, text):
        program = self.folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)

    def add(self, library):
        (self.libraries / f"{library}.pc").write_text(f"plugindir=/plugins\nName: {library}\nDescription: {library}\nVersion: 9\n")

    def make(self, target):
        """What the last lines of `make` say is left out: part and text."""
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "PKG_CONFIG_LIBDIR": str(self.libraries),
                       "FAIRWAY_PACKAGES": "skip"}
        done = subprocess.run(["make", "--no-print-directory", "-C", self.source, f"BUILD={self.folder}/build", target],
                              env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        assert done.returncode == 0, done.stdout
        lines = done.stdout.splitlines()
        found = [match for match in map(LEFT_OUT.fullmatch, lines) if match]
        assert [match[0] for match in found] == lines[len(lines) - len(found):], "they come last"
        return {match["part"]: match["what"] for match in found}


@pytest.fixture
def machine(source, tmp_path):
    return Machine(source, tmp_path)


def test_what_is_left_out_is_said_until_it_is_added(machine, source):
    """One test, since each configuration takes seconds."""
    found = machine.make("server")
    assert sorted(found) == parts_of(source)
    assert "failover" in found["corosync"]
    assert machine.make("all") == found, "also when nothing is to be done"

    machine.add("libcpg")  # One of Corosync's two libraries is not enough.
    machine.add("libsanlock")
    subprocess.run(["meson", "configure", machine.folder / "build", "-Dlvm=disabled"], check=True, stdout=subprocess.DEVNULL)
    del found["sanlock"], found["lvm"]  # The second was disabled on purpose, and is not missed.
    assert machine.make("all") == found

    for library in ("libcmap", "liburing", "nbdkit", "libmicrohttpd", "libgcrypt"):
        machine.add(library)
    assert machine.make("all") == {}


def test_programs_name_groups_that_exist(source):
    named = set()
    for file in source.glob("src/**/*.[ch]"):
        named |= set(re.findall(r'FW_REASON_(?:ADD\(|ABSENT\("[^"]+", )"(\w+)"', file.read_text()))
    assert sorted(named) == parts_of(source)


def test_pages_name_groups_that_exist(source):
    named = set()
    for file in [source / "README.md", *source.glob("docs/**/*.md"), *source.glob("bench/**/*.py")]:
        named |= set(re.findall(r"GROUP=optional/(\w+)", file.read_text()))
    assert named <= set(parts_of(source))
    assert {"corosync", "nbdkit"} <= named
    table = re.findall(r"^\| `(\w+)` \|", (source / "docs/install.md").read_text(), re.MULTILINE)
    assert set(parts_of(source)) <= set(table)
