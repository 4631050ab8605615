# SPDX-License-Identifier: Apache-2.0
"""What the tests of each module notice, as the mutation tester has recorded it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from mutate_lib import record  # noqa: E402


def table(root):
    """Columns and rows of texts; None if nothing was recorded."""
    modules = record.read(root)
    return {"columns": list(record.COLUMNS), "rows": record.rows(modules)} if modules else None
