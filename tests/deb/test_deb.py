# SPDX-License-Identifier: Apache-2.0
"""Goal: the Debian packages install on a clean system, the services start and work inside their sandboxes, an upgrade keeps
what the administrator wrote and what the cache held, and a purge leaves nothing. lintian finds no error.
Method: `tools/deb`, then a Debian made by debootstrap whose own systemd runs in namespaces (machine.py)."""

import pathlib
import re
import shutil
import subprocess

import pytest
from machine import APT, Machine

pytestmark = pytest.mark.needs("debian-root")

TALK = "set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n"
NAMES = ("fairway", "libfairway0", "libfairway-dev", "nbdkit-plugin-fairway")


@pytest.fixture(scope="module")
def packages(source, build):
    """{name: file} of the packages of this tree."""
    done = subprocess.run([source / "tools" / "deb", build / "deb"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [pathlib.Path(line) for line in done.stdout.splitlines()]
    return {file.name.split("_")[0]: file for file in files}


@pytest.fixture
def machine(build):
    folder = build / "debian"
    folder.mkdir(exist_ok=True)
    with Machine(folder) as machine:
        yield machine


def newer(package, folder):
    """The package as its next version would be: it brings another configuration."""
    tree = folder / "newer"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    version = subprocess.run(["dpkg-deb", "-f", package, "Version"], stdout=subprocess.PIPE, text=True,
                             check=True).stdout.strip()
    control.write_text(control.read_text().replace(f"Version: {version}\n", f"Version: {version}+1\n"))
    with (tree / "etc/fairway/fairway.conf").open("a") as configuration:
        configuration.write("# Of the next version.\n")
    made = folder / "fairway_newer.deb"
    subprocess.run(["dpkg-deb", "-b", tree, made], stdout=subprocess.DEVNULL, check=True)
    return made


def loosened(source, what):
    """The drop-in that the manual shows under these words."""
    found = re.search(rf"^    # {what}\n((?:    .+\n)+)", (source / "docs" / "install.md").read_text(), re.MULTILINE)
    return re.sub("^    ", "", found[1], flags=re.MULTILINE)


def test_all_are_built(packages):
    assert sorted(packages) == sorted(NAMES)
    listed = subprocess.run(["dpkg-deb", "-c", packages["fairway"]], stdout=subprocess.PIPE, text=True, check=True).stdout
    for path in ("man/man1/fairway-serve.1.gz", "man/man5/fairway.conf.5.gz", "bash-completion/completions/fairway",
                 "zsh/vendor-completions/_fairway", "fairway/fairway.rules.yml"):
        assert f" ./usr/share/{path}\n" in listed


def test_lintian_finds_no_error(packages, build):
    changes, = (build / "deb").glob("*.changes")
    done = subprocess.run(["lintian", "--fail-on", "error", "--allow-root", changes], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_programs_are_built_with_the_library(packages, source, tmp_path):
    for name in ("libfairway0", "libfairway-dev"):
        subprocess.run(["dpkg-deb", "-x", packages[name], tmp_path], check=True)
    pkgconfig, = tmp_path.glob("usr/lib/*/pkgconfig")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fairway"], stdout=subprocess.PIPE, text=True, check=True,
                           env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": pkgconfig,
                                "PKG_CONFIG_SYSROOT_DIR": tmp_path}).stdout.split()
    program = tmp_path / "program"
    subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", source / "examples" / "hash_tree.c", "-o", program, *flags,
                    "-pthread"], check=True)
    done = subprocess.run([program, tmp_path / "usr/include"], stdout=subprocess.PIPE, text=True, check=True,
                          env={"LD_LIBRARY_PATH": str(pkgconfig.parent)})
    assert done.stdout


def test_install_upgrade_purge(machine, packages, source, tmp_path):
    first = machine.put(packages["fairway"], packages["nbdkit-plugin-fairway"])
    second = machine.put(newer(packages["fairway"], tmp_path))
    machine.fetch(*first)
    machine.boot()
    before = machine.files()

    # Installed, it serves: by its unit, in its sandbox, as its own user.
    machine.run(*APT, "install", *first)
    assert machine.run("systemctl", "is-active", "fairway").strip() == "active"
    assert machine.run("systemctl", "is-enabled", "fairway").strip() == "enabled"
    assert machine.talk(11211, TALK) == "STORED\nVALUE greeting 0 5\nhello\nEND\n"
    assert machine.talk(11280, "GET /readyz HTTP/1.0\r\n\r\n").endswith("ready\n")
    process = machine.run("systemctl", "show", "--value", "-p", "MainPID", "fairway").strip()
    assert machine.run("ps", "-o", "user=", "-p", process).strip() == "fairway"
    machine.run("fairway", "admin", "status")
    assert "fairway" in machine.run("nbdkit", "--dump-plugin", "fairway")
    machine.run("systemctl", "reload", "fairway")
    # The agent of a cluster waits to be asked for.
    assert machine.ask("systemctl", "is-enabled", "fairway-ha-agent").stdout.strip() == "disabled"
    assert machine.ask("systemctl", "is-active", "fairway-ha-agent").stdout.strip() == "inactive"

    # Changed by the administrator, by the manual, and upgraded to a version whose own configuration has changed.
    drop_in = machine.root / "etc/systemd/system/fairway.service.d"
    drop_in.mkdir()
    (drop_in / "port.conf").write_text(loosened(source, "A port below 1024."))
    machine.run("systemctl", "daemon-reload")
    edited = machine.root / "etc/fairway/fairway.conf"
    text = edited.read_text().replace("port = 11211", "port = 81").replace("#memory-file", "memory-file")
    edited.write_text(text)
    machine.run("systemctl", "restart", "fairway")
    assert machine.talk(81, TALK).startswith("STORED")
    machine.run(*APT, "install", *second)
    assert machine.run("dpkg-query", "-W", "-f", "${Version}", "fairway").endswith("+1")
    assert edited.read_text() == text
    assert machine.run("systemctl", "show", "--value", "-p", "MainPID", "fairway").strip() != process
    assert machine.talk(81, "get greeting\r\nquit\r\n") == "VALUE greeting 0 5\nhello\nEND\n"

    # Removed, it is gone but for what was written; purged, that is gone too.
    machine.run(*APT, "remove", "fairway")
    assert edited.read_text() == text
    assert machine.ask("systemctl", "is-active", "fairway").returncode != 0
    shutil.rmtree(drop_in)  # The administrator's own.
    machine.run(*APT, "purge", "fairway", "nbdkit-plugin-fairway")
    machine.run(*APT, "--purge", "autoremove")
    assert machine.files() - before == set()
    backups = ("--exclude=*-", "--exclude=*-old")  # Of passwd, group and dpkg's own status.
    assert machine.ask("grep", "-rl", *backups, "fairway", "/etc", "/var/lib").stdout == ""


def one_host(machine, name):
    """A sample of a cluster, as it was installed, for a cluster of this machine alone."""
    text = (machine.root / "usr/share/fairway/ha" / name).read_text()
    text = re.sub(r"    node \{\s+nodeid: [23].*?\}\n", "", text, flags=re.DOTALL)
    return text.replace("10.0.0.100", "127.0.0.1").replace("10.0.0.1", "127.0.0.1").replace("= 1g", "= 64m")


def test_the_agent_of_a_cluster(machine, packages):
    """By its unit and the samples: it speaks with Corosync and with the server, opens the gate, and is ended by systemd when
    it hangs. keepalived, which needs a network, is tested elsewhere."""
    ours = machine.put(packages["fairway"])
    wanted = [*ours, "corosync", "libcpg4", "libcmap4"]
    machine.fetch(*wanted)
    machine.boot()
    machine.run(*APT, "install", *wanted)
    etc = machine.root / "etc"
    for name, path in (("corosync.conf", "corosync/corosync.conf"), ("uidgid", "corosync/uidgid.d/fairway"),
                       ("fairway.conf", "fairway/fairway.conf")):
        (etc / path).write_text(one_host(machine, name))
    (etc / "default/fairway-ha-agent").write_text("OPTIONS=--lease 2s\n")  # For machines that are busy.
    machine.run("systemctl", "restart", "corosync", "fairway")
    machine.run("systemctl", "start", "fairway-ha-agent")

    def gate_is(state):
        return machine.ask("cat", "/run/fairway-ha/gate").stdout.strip() == state

    def process():
        return machine.run("systemctl", "show", "--value", "-p", "MainPID", "fairway-ha-agent").strip()

    machine.wait(lambda: gate_is("0"))
    machine.wait(lambda: "lease_left_ms 0\n" not in machine.run("fairway", "admin", "stats", "replication"))
    first = process()
    assert machine.run("ps", "-o", "user=,rtprio=", "-p", first).split() == ["fairway", "1"]
    assert "--lease\0002s" in machine.run("cat", f"/proc/{first}/cmdline")
    machine.run("kill", "-STOP", first)
    machine.wait(lambda: process() not in ("0", first))  # The watchdog has ended it, and another one runs.
    machine.wait(lambda: gate_is("0"))
    # A package that is installed again starts it again, since it runs; one that is removed ends it, and closes the gate.
    second = process()
    machine.run(*APT, "install", "--reinstall", *ours)
    machine.wait(lambda: gate_is("0"))
    assert process() not in ("0", second)
    machine.run(*APT, "remove", "fairway")
    assert machine.ask("systemctl", "is-active", "fairway-ha-agent").returncode != 0
    assert gate_is("1")
    machine.run(*APT, "purge", "fairway")
    assert machine.ask("ls", "/run/fairway-ha").returncode != 0
