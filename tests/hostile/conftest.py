# SPDX-License-Identifier: Apache-2.0
"""Tests here start servers: `from served import Served`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
