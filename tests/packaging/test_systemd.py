# SPDX-License-Identifier: Apache-2.0
"""Goal: systemd takes the unit as it is, and finds nothing open in its sandbox beyond what the server needs.
Method: systemd-analyze, on the unit that the build made. That the server works inside is seen in tests/deb."""

import json
import re
import subprocess

import pytest

# What the service keeps, as `systemd-analyze security` names it, and why.
KEPT = {
    "PrivateNetwork": "it serves the network",
    "RestrictAddressFamilies_AF_INET_INET6": "the same",
    "IPAddressDeny": "who may connect is the firewall's business",
    "RestrictAddressFamilies_AF_UNIX": "the administration socket, --unix-socket, the journal",
    "RestrictAddressFamilies_AF_NETLINK": "a virtual address that comes and goes",
    "SystemCallFilter_resources": "threads on processors, memory from the nearest node",
    "RootDirectoryOrRootImage": "its libraries are the system's",
    "PrivateMounts": "it may not mount anyway, without the capability and the calls",
    "DeviceAllow": "of devices there are /dev/null and its like, and the clock to read",
}


@pytest.fixture
def unit(build, fairway, tmp_path):
    """The unit as it is built, of a server that is not installed."""
    text = (build / "packaging" / "fairway.service").read_text()
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={fairway}", text, flags=re.MULTILINE)
    unit = tmp_path / "fairway.service"
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
    assert {row["json_field"] for row in rows if row["set"] is False} <= set(KEPT)


def test_its_command_and_its_configuration_are_installed(source, build):
    """What ExecStart names is what `make install` installs, with options that the server has."""
    text = (build / "packaging" / "fairway.service").read_text()
    program, *arguments = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1].split()
    introspection = json.loads((build / "meson-info" / "intro-installed.json").read_text())
    assert introspection[str(build / "fairway")] == program
    assert arguments == ["serve", "--config", "/etc/fairway/fairway.conf"]
    done = subprocess.run([build / "fairway", "serve", "--config", source / "packaging" / "fairway.conf", "--version"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
