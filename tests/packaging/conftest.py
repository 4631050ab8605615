# SPDX-License-Identifier: Apache-2.0
"""Servers for these tests are started as in tests/server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
