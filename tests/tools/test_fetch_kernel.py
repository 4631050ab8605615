# SPDX-License-Identifier: Apache-2.0
"""Goal: a machine that has a kernel of Debian's is asked for nothing; where there is none the package is unpacked in
the build directory, once, and nothing is installed; where it cannot be had one line says why.
Method: the real script runs with made-up programs (apt-get, apt-cache, dpkg-deb) before all others on its PATH; they
note how they were called, and their package is a small one."""

import subprocess

import pytest

VERSION = "6.1.0-9-amd64"
MODULES = f"lib/modules/{VERSION}/kernel"
PROGRAMS = {
    "apt-cache": f"""[ -e $DIR/lists ] || exit 100
echo linux-image-amd64; echo '  Depends: linux-image-{VERSION}'""",
    "apt-get": """echo "apt-get $*" >>$DIR/calls
[ ! -e $DIR/no-network ] || { echo 'W: the first word'; echo 'E: Unable to fetch' >&2; exit 100; }
case "$*" in
*update*) touch $DIR/lists $DIR/new ;;
*download*) [ ! -e $DIR/old ] || [ -e $DIR/new ] || { echo 'E: 404' >&2; exit 100; }
    echo package >"${*##* }_1_amd64.deb" ;;
esac""",
    "dpkg-deb": """[ ! -e $DIR/damaged ] || { echo "dpkg-deb: error: that is none" >&2; exit 2; }
[ "$1" = --fsys-tarfile ] && grep -q package "$2" && tar -c -C $DIR/package .""",
}


class Machine:
    """A made-up machine: whether it has a kernel, and what was called on it."""

    def __init__(self, source, folder):
        self.source, self.folder = source, folder
        self.build, self.root = folder / "a build", folder / "root"
        for place in ("bin", "a build", "root"):
            (folder / place).mkdir()
        self.put(folder / "package", f"{MODULES}/drivers/md/dm-mod.ko", f"{MODULES}/drivers/gpu/one.ko", "usr/share/doc",
                 f"boot/vmlinuz-{VERSION}")
        (folder / "lists").touch()
        for name, text in PROGRAMS.items():
            program = folder / "bin" / name
            program.write_text(f"#!/bin/sh\nDIR={folder}\n{text}\n")
            program.chmod(0o755)

    def put(self, root, *names):
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)

    def run(self, **environment):
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "FAIRWAY_KERNEL_ROOT": str(self.root), **environment}
        done = subprocess.run([self.source / "tools/fetch-kernel", self.build], env=environment, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, check=False)
        assert (done.returncode == 0) == (done.stderr == ""), done
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    def answer(self, root):
        return 0, [f"{root}/boot/vmlinuz-{VERSION}", f"{root}/lib/modules/{VERSION}"], []

    def calls(self):
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def machine(source, tmp_path):
    return Machine(source, tmp_path)


def test_one_that_is_installed(machine):
    machine.put(machine.root, f"boot/vmlinuz-{VERSION}", f"{MODULES}/drivers/md/dm-mod.ko")
    assert machine.run() == machine.answer(machine.root)
    assert machine.calls() == [] and list(machine.build.iterdir()) == []


def test_fetched_once_and_not_installed(machine):
    machine.put(machine.root, f"boot/vmlinuz-{VERSION}")  # Of no use: its modules are not there.
    kernel = machine.build / "kernel"
    assert machine.run() == machine.answer(kernel)
    assert [call.split()[-2:] for call in machine.calls()] == [["download", f"linux-image-{VERSION}"]]
    assert list(machine.build.iterdir()) == [kernel]
    assert (kernel / MODULES / "drivers/md/dm-mod.ko").exists()
    assert not (kernel / MODULES / "drivers/gpu").exists() and not (kernel / "usr").exists()
    assert machine.run() == machine.answer(kernel)
    assert len(machine.calls()) == 1
    # What is there needs nobody's leave.
    assert machine.run(FAIRWAY_PACKAGES="skip") == machine.answer(kernel)


@pytest.mark.parametrize("lists", ["none", "old"])
def test_the_machines_lists_are_left_alone(machine, lists):
    if lists == "none":
        (machine.folder / "lists").unlink()
    else:
        (machine.folder / "old").touch()
    assert machine.run() == machine.answer(machine.build / "kernel")
    update, download = machine.calls()[-2:]
    assert update.endswith(" update") and download.endswith(f" download linux-image-{VERSION}")
    assert all(f"Dir::State::lists={machine.build}/kernel." in call for call in (update, download))


def test_what_cannot_be_had_is_told_in_a_line(machine):
    def told(**environment):
        status, printed, lines = machine.run(**environment)
        assert status == 1 and printed == [] and len(lines) == 1 and list(machine.build.iterdir()) == []
        return lines[0]

    assert "FAIRWAY_PACKAGES=skip" in told(FAIRWAY_PACKAGES="skip") and machine.calls() == []
    (machine.folder / "no-network").touch()
    assert told().endswith("cannot be fetched: E: Unable to fetch")
    (machine.folder / "no-network").unlink()
    (machine.folder / "damaged").touch()
    assert told().endswith("cannot be unpacked: dpkg-deb: error: that is none")
    (machine.folder / "damaged").unlink()
    (machine.folder / "package" / f"boot/vmlinuz-{VERSION}").unlink()
    assert "has no kernel that can be used" in told()
    plain = machine.folder / "plain"
    plain.mkdir()
    (plain / "sh").symlink_to("/bin/sh")
    assert "no Debian" in told(PATH=str(plain))
