# SPDX-License-Identifier: Apache-2.0
"""Goal: systemd takes the units as they are, and finds nothing open in their sandboxes beyond what the server and its agent
need.
Method: systemd-analyze, on the units that the build made. That both work inside is seen in tests/deb."""

import json
import re
import subprocess

import pytest

# What a service keeps, as `systemd-analyze security` names it, and why.
VOLUME = {
    "UserOrDynamicUser": "a disk is root's, and so are the tools of LVM",
    "PrivateUsers": "the same",
    "PrivateDevices": "a group is on a disk",
    "DeviceAllow": "the administrator says on which",
    "ProcSubset": "the boot id is in /proc/sys",
    "RestrictAddressFamilies_AF_UNIX": "the sockets of NBD, the journal",
    "SystemCallFilter_resources": "as the server, whose program it is",
    "RootDirectoryOrRootImage": "its libraries are the system's",
}
KEPT = {
    "fairway-volume-manager.service": VOLUME,
    "fairway-volume-agent.service": VOLUME,
    "fairway-volume-attach.service": VOLUME,
    "fairway.service": {
        "PrivateNetwork": "it serves the network",
        "RestrictAddressFamilies_AF_INET_INET6": "the same",
        "IPAddressDeny": "who may connect is the firewall's business",
        "RestrictAddressFamilies_AF_UNIX": "the administration socket, --unix-socket, the journal",
        "RestrictAddressFamilies_AF_NETLINK": "a virtual address that comes and goes",
        "SystemCallFilter_resources": "threads on processors, memory from the nearest node",
        "RootDirectoryOrRootImage": "its libraries are the system's",
        "DeviceAllow": "of devices there are /dev/null and its like, and the clock to read",
    },
    "fairway-ha-agent.service": {
        "PrivateNetwork": "Corosync's sockets have abstract names, which belong to a network",
        "IPAddressDeny": "it has no sockets of that family",
        "RestrictAddressFamilies_AF_UNIX": "the server, Corosync, the journal",
        "SystemCallFilter_resources": "as the server, whose program it is",
        "RootDirectoryOrRootImage": "its libraries are the system's",
        "DeviceAllow": "of devices there are /dev/null and its like, and the clock to read",
    },
}


@pytest.fixture(params=KEPT)
def unit(request, build, fairway, tmp_path):
    """A unit as it is built, of a program that is not installed."""
    text = (build / "packaging" / request.param).read_text()
    text = re.sub(r"^(ExecStart|ExecStop)=\S*fairway ", rf"\1={fairway} ", text, flags=re.MULTILINE)
    unit = tmp_path / request.param
    unit.write_text(text)
    return unit


@pytest.mark.needs("systemd-analyze")
def test_it_is_a_unit(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "fairway" in line]
    assert (done.returncode, ours) == (0, [])


@pytest.mark.needs("systemd-analyze")
def test_nothing_is_open_without_need(unit):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--json=short", unit],
                          capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)
    assert len(rows) > 50
    assert {row["json_field"] for row in rows if row["set"] is False} <= set(KEPT[unit.name])


def command_of(build, name):
    """What ExecStart names, which is what `make install` installs."""
    text = (build / "packaging" / name).read_text()
    program, *arguments = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1].split()
    introspection = json.loads((build / "meson-info" / "intro-installed.json").read_text())
    assert introspection[str(build / "fairway")] == program
    return arguments


def test_their_commands_and_the_configuration_are_installed(source, build):
    assert command_of(build, "fairway-ha-agent.service") == ["ha-agent", "$OPTIONS"]
    assert command_of(build, "fairway-volume-manager.service") == ["volume", "manager", "$MANAGER_OPTIONS", "$GROUP"]
    assert command_of(build, "fairway-volume-agent.service") == ["volume", "agent", "$AGENT_OPTIONS", "$GROUP", "$HOST"]
    assert command_of(build, "fairway-volume-attach.service")[:4] == ["volume", "attach", "--nbd", "/run/fairway-volume/nbd"]
    assert command_of(build, "fairway.service") == ["serve", "--config", "/etc/fairway/fairway.conf"]
    done = subprocess.run([build / "fairway", "serve", "--config", source / "packaging" / "fairway.conf", "--version"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
