#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/run repl-failover runs inside namespaces: three hosts, of which the one that serves dies.

    failover.py BUILD RUNS REDIS_RUNS

First with the samples of packaging/ha (tests/cluster/ha.py), then with Redis and Sentinel on the same hosts. A probe
outside of them connects and asks every 10 ms (probe.py): what counts is when the first answer came. The last line is a
JSON object of seconds since the host died: "moved", when keepalived had the address at another host; "served", when the
server there answered; "redis", when a Redis took a write, without the time that its clients need to find it.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))

import cluster as clusters  # noqa: E402
from ha import ADDRESS, PORT, Ha  # noqa: E402

REDIS_PORT, SENTINEL_PORT = 6379, 26379
OLD_S = 0.2  # What comes sooner was on its way.
SETTLE_S = 1  # Two advertisements and more.

SENTINEL = """\
port {sentinel}
dir {folder}
protected-mode no
sentinel monitor cache {master} {port} 2
sentinel down-after-milliseconds cache 1000
sentinel failover-timeout cache 5000
sentinel parallel-syncs cache 1
"""


class Probe:
    """Asks these addresses from a node until it is ended; knows when each answer came."""

    def __init__(self, node, question, answer, *addresses):
        self.answers = []
        self.process = node.start([sys.executable, HERE / "probe.py", question, answer, *addresses],
                                  stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.append(float(line))

    def first_after(self, when):
        return clusters.wait_for(lambda: next((at for at in list(self.answers) if at > when), None), "an answer")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()


class Watch:
    """When the address came to a host."""

    def __init__(self, hosts):
        self.times = []
        self.processes = [host.node.start(["ip", "-o", "monitor", "address"], stdout=subprocess.PIPE, text=True)
                          for host in hosts]
        self.threads = [threading.Thread(target=self._read, args=(process,)) for process in self.processes]
        for thread in self.threads:
            thread.start()

    def _read(self, process):
        for line in process.stdout:
            if f" {ADDRESS}/" in line and not line.startswith("Deleted"):
                self.times.append(time.monotonic())

    def first_after(self, when):
        """Who serves there may be heard before `ip` has said that it moved."""
        return clusters.wait_for(lambda: min((at for at in list(self.times) if at > when), default=None), "the address")

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        for thread in self.threads:
            thread.join()


def ours(folder, program, runs):
    found = {"moved": [], "served": []}
    with clusters.Cluster(folder, 3) as cluster, Ha(program, HERE.parent, cluster) as ha:
        ha.start()
        for _ in range(runs):
            master = ha.wait_until_whole()
            # A host that has just come back may not succeed yet, nor has keepalived heard whom.
            clusters.wait_for(lambda: all(host.gate() == "0" for host in ha.hosts), "all gates to be open")
            time.sleep(SETTLE_S)
            watch = Watch([host for host in ha.hosts if host is not master])
            probe = Probe(ha.outside, "mn\r\n", "MN\r\n", f"{ADDRESS}:{PORT}")
            probe.first_after(0)
            begin = time.monotonic()
            master.kill()
            found["served"].append(probe.first_after(begin + OLD_S) - begin)
            found["moved"].append(watch.first_after(begin) - begin)
            probe.end()
            watch.end()
            master.revive()
    return found


def redis_start(node, folder, master):
    """A Redis and its Sentinel; returns both."""
    folder.mkdir()
    config = folder / "sentinel.conf"
    config.write_text(SENTINEL.format(sentinel=SENTINEL_PORT, port=REDIS_PORT, folder=folder, master=master.address),
                      encoding="ascii")
    follow = [] if node is master else ["--replicaof", master.address, str(REDIS_PORT)]
    with open(folder / "log", "ab") as log:
        return [node.start(["redis-server", "--port", REDIS_PORT, "--dir", folder, "--save", "", "--protected-mode", "no",
                            *follow], stdout=log, stderr=log),
                node.start(["redis-sentinel", config], stdout=log, stderr=log)]


def redis_is_ready(node):
    """Its Sentinel knows two others, and two replicas that have everything."""
    done = node.start(["redis-cli", "-p", SENTINEL_PORT, "info", "sentinel"], stdout=subprocess.PIPE,
                      stderr=subprocess.DEVNULL, text=True)
    output, _ = done.communicate()
    return "status=ok" in output and "slaves=2" in output and "sentinels=3" in output


def redis(folder, runs):
    found = []
    for number in range(runs):
        place = folder / f"redis-{number}"
        place.mkdir()
        with clusters.Cluster(place, 3) as cluster:
            outside = clusters.Node(cluster, 9)
            cluster.nodes.append(outside)
            hosts = cluster.nodes[:3]
            running = {node: redis_start(node, place / f"r{node.number}", hosts[0]) for node in hosts}
            try:
                for node in hosts:
                    clusters.wait_for(lambda node=node: redis_is_ready(node), "Sentinel")
                probe = Probe(outside, "SET probe 1\r\n", "+OK\r\n", *(f"{node.address}:{REDIS_PORT}" for node in hosts))
                probe.first_after(0)
                begin = time.monotonic()
                hosts[0].cut()
                for process in running.pop(hosts[0]):
                    process.kill()
                    process.wait()
                found.append(probe.first_after(begin + OLD_S) - begin)
                probe.end()
            finally:
                for process in sum(running.values(), []):
                    process.kill()
                    process.wait()
    return found


def main():
    build, runs, redis_runs = sys.argv[1:]
    clusters.prepare()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "ours").mkdir()
        found = ours(folder / "ours", pathlib.Path(build) / "fairway", int(runs))
        has_redis = all(shutil.which(name) for name in ("redis-server", "redis-sentinel", "redis-cli"))
        found["redis"] = redis(folder, int(redis_runs)) if has_redis else []
        print(json.dumps(found))


if __name__ == "__main__":
    main()
