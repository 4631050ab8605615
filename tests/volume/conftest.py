# SPDX-License-Identifier: Apache-2.0
"""The server of tests/server is used here too."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
