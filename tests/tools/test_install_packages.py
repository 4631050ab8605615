# SPDX-License-Identifier: Apache-2.0
"""Goal: the installer does nothing when all is there, says what it does when something is missing,
starts no daemon, asks for rights once, and ends with words a newcomer can act on when it cannot
install. Method: the real script runs with made-up system programs (dpkg-query, apt-get, sudo, id)
before all others on its PATH; they note how they were called."""

import os
import subprocess

import pytest

PROGRAMS = {
    # Knows as installed what the file `installed` lists, and as provided what `provided` lists.
    "dpkg-query": """case "$1" in
-W) shift 3; [ $# -gt 0 ] || [ ! -e $DIR/provided ] || sed 's/^/installed /' $DIR/provided
     for p in "$@"; do grep -qx "$p" $DIR/installed && echo "installed $p"; done ;;
-L) shift; echo /lib/systemd/system/$1.service ;;
esac; true""",
    "apt-cache": """shift; for p in "$@"; do
    [ -e $DIR/lists ] && echo "  Candidate: 1.0" || echo "  Candidate: (none)"
done""",
    "apt-get": """echo "apt-get $*" >>$DIR/calls
case "$*" in
*update*) [ ! -e $DIR/no-network ] && touch $DIR/lists ;;
*install*)
    cat $FAIRWAY_POLICY_RC_D >$DIR/policy-seen 2>/dev/null
    [ ! -e $DIR/no-network ] || { echo "E: Unable to fetch"; exit 100; } ;;
esac""",
    "systemctl": 'echo "systemctl $*" >>$DIR/calls',
    "id": "cat $DIR/uid",
    "sudo": """echo "sudo $*" >>$DIR/calls; echo 0 >$DIR/uid; exec "$@" """,
}


class Machine:
    """A made-up machine: which packages it has, who we are, and what was called on it."""

    def __init__(self, source, folder):
        self.source = source
        self.folder = folder
        self.policy = folder / "policy-rc.d"
        (folder / "bin").mkdir()
        for name, text in PROGRAMS.items():
            program = folder / "bin" / name
            program.write_text(f"#!/bin/sh\nDIR={folder}\n{text}\n")
            program.chmod(0o755)
        (folder / "installed").write_text("")
        (folder / "lists").touch()
        (folder / "uid").write_text("0\n")

    def remove_program(self, name):
        (self.folder / "bin" / name).unlink()

    def run(self, *groups, path="/usr/bin:/bin", **environment):
        environment["PATH"] = f"{self.folder}/bin:{path}"
        environment["FAIRWAY_POLICY_RC_D"] = str(self.policy)
        done = subprocess.run([self.source / "tools/install-packages", *groups], env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def calls(self):
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def machine(source, tmp_path):
    return Machine(source, tmp_path)


@pytest.fixture
def plain_path(tmp_path):
    """A PATH with the basic programs only: no apt, no sudo."""
    folder = tmp_path / "plain"
    folder.mkdir()
    for name in ["sh", "awk", "sed", "grep", "dirname", "cat", "rm", "chmod", "sort", "touch", "tr"]:
        for place in ["/usr/bin", "/bin"]:
            if os.path.exists(f"{place}/{name}") and not (folder / name).exists():
                (folder / name).symlink_to(f"{place}/{name}")
    return str(folder)


def all_packages(source, group):
    lines = (source / "packaging/packages").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith(f"{group} ")]


def test_nothing_to_do(machine, source):
    (machine.folder / "installed").write_text("\n".join(all_packages(source, "build")) + "\n")
    assert machine.run("build") == (0, "")
    assert machine.calls() == []


def test_installs_only_what_is_missing_and_says_why(machine, source):
    packages = all_packages(source, "build")
    (machine.folder / "installed").write_text("\n".join(packages[1:]) + "\n")
    status, text = machine.run("build")
    assert status == 0
    assert packages[0] in text and "the C compiler" in text
    installs = [call for call in machine.calls() if "install" in call]
    assert len(installs) == 1 and installs[0].endswith(f" {packages[0]}")
    assert not any("update" in call for call in machine.calls())  # The lists were there.


def test_what_another_package_provides_is_there(machine, source):
    packages = all_packages(source, "build")
    (machine.folder / "installed").write_text("\n".join(packages[2:]) + "\n")
    (machine.folder / "provided").write_text(f"other, {packages[0]} (= 1.0), {packages[1]}\n")
    assert machine.run("build") == (0, "")
    (machine.folder / "provided").write_text(f"other, {packages[0]}-more\n")
    assert packages[0] in machine.run("build")[1]


def test_a_package_in_two_groups_is_installed_once(machine):
    assert machine.run("test", "bench")[0] == 0
    installs = [call for call in machine.calls() if " install " in call]
    assert len(installs) == 1 and installs[0].split().count("memcached") == 1


def test_a_group_has_parts(machine, source):
    packages = {name: all_packages(source, f"optional/{name}") for name in ("corosync", "lvm")}
    assert machine.run("optional/corosync")[0] == 0
    installs = [call for call in machine.calls() if " install " in call]
    assert installs[0].endswith(f" --no-install-recommends {' '.join(packages['corosync'])}")
    assert machine.run("optional")[0] == 0
    installs = [call for call in machine.calls() if " install " in call]
    assert set(packages["corosync"] + packages["lvm"]) <= set(installs[1].split())


def test_reads_the_lists_when_they_are_missing(machine):
    (machine.folder / "lists").unlink()
    assert machine.run("bench")[0] == 0
    kinds = ["update" if "update" in call else "install" for call in machine.calls()
             if call.startswith("apt-get")]
    assert kinds == ["update", "install"]


def test_daemons_are_neither_started_nor_enabled(machine):
    assert machine.run("bench")[0] == 0
    assert "exit 101" in (machine.folder / "policy-seen").read_text()
    assert not machine.policy.exists()
    assert "systemctl disable memcached.service" in machine.calls()


def test_the_machines_own_policy_stays(machine):
    machine.policy.write_text("#!/bin/sh\nexit 0\n")
    assert machine.run("bench")[0] == 0
    assert (machine.folder / "policy-seen").read_text() == "#!/bin/sh\nexit 0\n"
    assert machine.policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_without_root_sudo_is_asked_once(machine):
    (machine.folder / "uid").write_text("1000\n")
    assert machine.run("build", "test")[0] == 0
    assert sum(call.startswith("sudo ") for call in machine.calls()) == 1
    assert sum("install -y" in call for call in machine.calls()) == 1


def test_without_root_and_sudo_the_command_is_printed(machine, plain_path):
    (machine.folder / "uid").write_text("1000\n")
    machine.remove_program("sudo")
    status, text = machine.run("bench", path=plain_path)
    assert status == 1
    assert "apt-get install --no-install-recommends memcached" in text
    assert machine.calls() == []


def test_on_another_system_the_list_is_printed(machine, plain_path, source):
    machine.remove_program("apt-get")
    status, text = machine.run("build", path=plain_path)
    assert status == 1
    assert "not a Debian system" in text
    for package in all_packages(source, "build"):
        assert package in text


def test_without_network_apts_words_and_what_to_do(machine):
    (machine.folder / "no-network").touch()
    status, text = machine.run("bench")
    assert status == 1
    assert "E: Unable to fetch" in text
    assert "apt-get update && apt-get install --no-install-recommends memcached" in text
    assert not machine.policy.exists()


def test_can_be_switched_off(machine):
    assert machine.run("build", FAIRWAY_PACKAGES="skip") == (0, "")
    assert machine.calls() == []


def test_an_unknown_group_is_refused(machine):
    status, text = machine.run("everything")
    assert status == 1
    assert "no group 'everything'" in text
    assert machine.run("optional/every") == (1, "install-packages: no group 'optional/every' in packaging/packages\n")
    assert machine.run("option")[0] == 1
