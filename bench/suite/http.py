# SPDX-License-Identifier: Apache-2.0
"""What it costs to be watched: processor time of a server's HTTP, beside the same server without it."""

import contextlib
import http.client
import pathlib
import tempfile
import time

from . import measure, servers
from .context import Benchmark

SECONDS = 10  # Of one look; each of the two servers is looked at for as long.
ROUNDS = 3
TENANTS = 100
# Shares of a core: when nobody looks, and with a page open and a scrape per second.
IDLE_LIMIT, WATCHED_LIMIT = 0.01, 0.03
SMALLEST = 0.0001  # Of a limit; less is not measured.


def cpu_seconds(pid):
    """Processor time of all threads."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def tenants(count):
    return "".join(f"[tenant application-{i}]\nmatch = prefix {i}:\nweight = 2\n" for i in range(count))


class Watcher:
    """A page that is open, and a Prometheus: each asks once a second, on a connection that it keeps."""

    def __init__(self, port):
        self.connections = [(http.client.HTTPConnection("127.0.0.1", port), path) for path in ("/status.json", "/metrics")]

    def ask(self):
        for connection, path in self.connections:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != 200 or len(answer.read()) == 0:
                raise RuntimeError(f"{path}: {answer.status}")


def share(pids, seconds, watcher=None):
    """The share of a core that each process takes, for so many seconds."""
    before, begin = [cpu_seconds(pid) for pid in pids], time.monotonic()
    for second in range(seconds):
        if watcher is not None:
            watcher.ask()
        time.sleep(max(0, begin + second + 1 - time.monotonic()))
    passed = time.monotonic() - begin
    return [(cpu_seconds(pid) - cpu) / passed for pid, cpu in zip(pids, before)]


def part(name, limit, watched, plain):
    """How much of its limit HTTP takes: what the watched server needs beyond the plain one."""
    costs = [max((ours - theirs) / limit, SMALLEST) for ours, theirs in zip(watched, plain)]
    ratio = measure.median(costs)
    print(f"  {name}: {ratio * limit:.3%} of a core, at most {limit:.0%}: {'ok' if ratio <= 1 else 'NOT MET'}")
    return {"bench": name, "ratio": round(ratio, 4), "better": "lower", "peer": "the same server without HTTP, and a limit",
            "bar": 1.0, "ok": ratio <= 1, "runs": len(costs), "spread": round(measure.spread(costs), 4),
            "core_share": round(ratio * limit, 6), "core_share_plain": round(measure.median(plain), 6), "limit": limit}


def run(context):
    seconds = 1 if context.quick else SECONDS
    rounds = context.rounds(ROUNDS)
    figures = {(kind, side): [] for kind in ("idle", "watched") for side in ("http", "plain")}
    with contextlib.ExitStack() as stack:
        configuration = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".conf"))
        configuration.write(tenants(TENANTS))
        configuration.flush()
        options = ["--config", configuration.name]
        port = servers.free_port()
        plain = stack.enter_context(servers.running(
            lambda context, number: servers.fairway(context, number) + options, context))
        watched = stack.enter_context(servers.running(
            lambda context, number: servers.fairway(context, number) + options + ["--http-listen", f"127.0.0.1:{port}"],
            context))
        pids = [watched.pid, plain.pid]
        for number in range(rounds):
            for kind in measure.alternate(["idle", "watched"], number):
                shares = share(pids, seconds, Watcher(port) if kind == "watched" else None)
                for side, figure in zip(("http", "plain"), shares):
                    figures[kind, side].append(figure)
                print(f"  round {number + 1} of {rounds}: {kind}: {shares[0]:.3%} of a core, {shares[1]:.3%} without HTTP",
                      flush=True)
    print(f"http-cost: {TENANTS} tenants; a page open and a scrape per second")
    return measure.combine("http-cost", [
        part("idle", IDLE_LIMIT, figures["idle", "http"], figures["idle", "plain"]),
        part("watched", WATCHED_LIMIT, figures["watched", "http"], figures["watched", "plain"]),
    ])


BENCHMARKS = {
    "http-cost": Benchmark("processor time of HTTP: nobody looks; a page open and a scrape per second", run),
}
