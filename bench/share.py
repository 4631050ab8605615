#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/run epoch-share runs inside namespaces: three servers that divide a tenant's rate.

    share.py BUILD RUNS

Demand moves from node to node, a server is killed, and returns. The last line is a JSON object: "seconds",
what was served in each second, and "settled", the least second of each run that began 2 s after each change;
both as parts of the rate.
"""

import json
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))

import cluster as clusters  # noqa: E402
from servers import Servers  # noqa: E402

SETTLE_S = 2
WATCH_S = 3  # Seconds that begin in so much time after that are looked at.


def settled(servers):
    """The least of the seconds that begin from 2 s after now."""
    since = time.monotonic() + SETTLE_S
    time.sleep(SETTLE_S + WATCH_S + 1.5)
    return min(part for begin, part in servers.seconds(since) if begin < since + WATCH_S)


def measured(folder, program, runs):
    found = {}
    with clusters.Cluster(folder, 3) as cluster, Servers(program, cluster) as servers:
        servers.start()
        servers.wait_in_step()
        servers.flood(1, 2, 3)
        for _ in range(runs):
            for name, change in [("all want it", lambda: servers.flood(1, 2, 3)),
                                 ("demand moves to one", lambda: servers.flood(1)),
                                 ("and to another", lambda: servers.flood(2)),
                                 ("a server is killed", lambda: (servers.flood(1, 2), servers.kill(1))),
                                 ("and returns", lambda: (servers.start(1), servers.flood(1, 2)))]:
                change()
                found.setdefault(name, []).append(settled(servers))
        seconds = [(begin, part) for begin, part in servers.seconds()]
    return {"settled": found, "seconds": [part for _, part in seconds]}


def main():
    build, runs = sys.argv[1:]
    clusters.prepare()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(folder, pathlib.Path(build) / "fairway", int(runs))))


if __name__ == "__main__":
    main()
