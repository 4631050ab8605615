# SPDX-License-Identifier: Apache-2.0
"""On what it was measured: machine, system, compiler, versions of the peers."""

import datetime
import pathlib
import platform
import shutil
import subprocess

from suite.context import busy


def say(*command):
    """The first line of what a program prints; empty if it is not there."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False)
    return (done.stdout.splitlines() or [""])[0].strip()


def memory():
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return f"{int(line.split()[1]) / (1 << 20):.1f} GiB"
    return ""


def system():
    """The name of the distribution."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def peers(root):
    """Version by package, of the group `bench`."""
    lines = (root / "packaging" / "packages").read_text(encoding="utf-8").splitlines()
    names = [line.split()[1] for line in lines if line.startswith("bench")]
    versions = {name: say("dpkg-query", "-W", "-f", "${Version}\n", name) for name in names}
    return {name: version for name, version in versions.items() if version}


def describe(root, context):
    """Everything, as a dictionary of text. `context` is bench/run's."""
    found = context.machine()
    options = context.build_options()
    commit = say("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
    if commit and say("git", "-C", str(root), "status", "--porcelain"):
        commit += ", with changes"
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{found['processor']}, {found['processors']} of them",
        "memory": memory(),
        "system": f"{system()}, Linux {found['kernel']}",
        "compiler": say("cc", "--version"),
        "build": f"optimization {options.get('optimization', '?')}, "
                 f"link-time optimization {'on' if options.get('b_lto') else 'off'}",
        "commit": commit or "unknown",
        "processors busy at the beginning": f"{busy():.0%}",
        **{f"{name} (Debian)": version for name, version in peers(root).items()},
    }
