# SPDX-License-Identifier: Apache-2.0
"""Goal: a policy of the user's own works with the library as users see it.
Method: the example is run as a user would, and the order it prints is compared with the one that its
opening promises; its includes are read."""

import re
import subprocess


def test_only_public_headers(source):
    text = (source / "examples" / "shortest_first.c").read_text()
    assert not re.findall(r'#include "', text)
    assert re.findall(r"#include <fairway/(\w+)\.h>", text) == ["sched", "sched_policy"]


def run(build, *costs):
    done = subprocess.run([build / "examples" / "shortest_first", *map(str, costs)],
                          capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_order(build):
    assert run(build, 100, 3, 1, 50, 2, 70) == [
        "as they came: 100 3 1 50 2 70, waited 102.8 on average",
        "shortest first: 1 3 2 50 100 70, waited 37.2 on average",
    ]


def test_usage(build):
    done = subprocess.run([build / "examples" / "shortest_first"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith("usage:")
