# SPDX-License-Identifier: Apache-2.0
"""As the tests of pages, this one finds port 11211 free: in namespaces of its own."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "docs"), str(HERE.parent / "cluster")]

import entering  # noqa: E402


def pytest_configure(config):
    entering.enter(config, HERE)
