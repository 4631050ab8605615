# SPDX-License-Identifier: Apache-2.0
"""Moves pytest into namespaces of its own before the first test of this folder, see cluster.py."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cluster as clusters  # noqa: E402
import entering  # noqa: E402


def pytest_configure(config):
    entering.enter(config, HERE)


@pytest.fixture
def cluster(tmp_path):
    """Three nodes on a switch, with nothing running on them."""
    if not clusters.inside():
        pytest.fail("these tests run in namespaces: give pytest this folder alone")
    with clusters.Cluster(tmp_path, 3) as made:
        yield made
