# SPDX-License-Identifier: Apache-2.0
"""Packages from npm, for tests that need one: installed once per build directory and lock file."""

import shutil
import subprocess

import pytest

from support import capabilities

LIMIT_S = 600


def install(source, folder):
    """Installs what source/package-lock.json says into `folder`. Returns where the modules are. Skips the test if they
    are not there yet and npm's registry cannot be used."""
    lock = (source / "package-lock.json").read_text()
    done = folder / "done"
    if not done.exists() or done.read_text() != lock:
        why = capabilities.why_missing("npm-registry")
        if why is not None:
            pytest.skip(f"npm-registry: {why}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        ended = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, timeout=LIMIT_S, check=False)
        assert ended.returncode == 0, ended.stdout
        done.write_text(lock)
    return folder / "node_modules"
