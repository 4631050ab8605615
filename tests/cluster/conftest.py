# SPDX-License-Identifier: Apache-2.0
"""Moves pytest into namespaces of its own before the first test of this folder, see cluster.py."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cluster as clusters  # noqa: E402
from support import capabilities  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def is_for_this_folder(config):
    """True if nothing but this folder was asked for: other tests are not to find themselves root."""
    files = [pathlib.Path(argument.split("::")[0]) for argument in config.args]
    return all(HERE in [file.resolve(), *file.resolve().parents] for file in files)


def pytest_configure(config):
    if clusters.inside():
        clusters.prepare()
    elif is_for_this_folder(config) and capabilities.why_missing("user-namespaces") is None:
        config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        command = clusters.command([sys.executable, "-m", "pytest", *config.invocation_params.args])
        os.execvp(command[0], command)


@pytest.fixture
def cluster(tmp_path):
    """Three nodes on a switch, with nothing running on them."""
    if not clusters.inside():
        pytest.fail("these tests run in namespaces: give pytest this folder alone")
    with clusters.Cluster(tmp_path, 3) as made:
        yield made
