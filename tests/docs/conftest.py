# SPDX-License-Identifier: Apache-2.0
"""The pages say port 11211, and begin with an empty machine: pytest moves into namespaces, where that is so."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cluster")]

import entering  # noqa: E402


def pytest_configure(config):
    entering.enter(config, HERE)
