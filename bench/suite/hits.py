# SPDX-License-Identifier: Apache-2.0
"""Hit ratios: traces replayed to `fairway serve` and to memcached, beside simulated policies.

Memory is a share of what all objects of a trace take together. The ratio of a part is the better
side's hits to ours, so that lower is better here too; bench/hits says how hits are counted.
"""

import json
import pathlib
import re
import subprocess

from . import servers
from .context import Benchmark, Unavailable

OBJECTS = 1_000_000
REQUESTS = 3_000_000
REQUESTS_BRIEF = 1_000_000
PERCENTS = (1, 10, 30)
PERCENTS_BRIEF = (10, 30)  # So few requests name so few objects that 1 % is 2 to 4 MiB: no cache that anybody runs.
REFERENCES = ("lru", "s3-fifo", "sieve")
BAR_REFERENCE = 1 / 0.98  # At least 0.98 of the best policy's hits.
BAR_MEMCACHED = 1.0
NO_HITS = 0.001  # A loop leaves nothing to compare.
TAKEN_MORE = 1.05  # Beyond so much of its limit memcached is compared at what it took.
MIB = 1 << 20


def hits(context, *options):
    requests = REQUESTS_BRIEF if context.brief else REQUESTS
    command = [context.program("bench", "hits", "hits"), "--objects", str(context.scaled(OBJECTS)),
               "--requests", str(context.scaled(requests)), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise Unavailable(f"the replay gave up: {done.stderr.strip()}")
    return done.stdout


def which(context):
    """The traces, as (name, options): that of --trace, or all synthetic ones."""
    if context.trace is not None:
        return [(context.trace.name, ("--file", str(context.trace)))]
    return [(name, ("--trace", name)) for name in hits(context, "--list").split()]


def limited(make_command, mebibytes):
    """The server with so much memory; the last -m counts."""
    return lambda context, port: [*make_command(context, port), "-m", str(mebibytes)]


def part(name, peer, ours, theirs, bar):
    ratio = theirs / ours if ours > NO_HITS else 1.0 if theirs <= NO_HITS else float("inf")
    return {"bench": name, "ratio": round(ratio, 4), "better": "lower", "peer": peer,
            "bar": round(bar, 4), "ok": ratio <= bar, "runs": 1, "spread": 0.0,
            "ours_hits": ours, "peer_hits": theirs}


def resident(pid):
    """Bytes of the process that are in memory."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def replay(context, make_command, options, mebibytes):
    """The server's hit ratio, and by how much it grew, in MiB."""
    with servers.running(limited(make_command, mebibytes), context) as server:
        before = resident(server.pid)
        found = json.loads(hits(context, *options, "--port", str(server.port)))["server"]
        return found, round((resident(server.pid) - before) / MIB)


def measure(context, options, percent):
    """Hit ratios by name. memcached takes a page of 1 MiB for each size of items, whatever its
    limit: `same` is ours with as much memory as it took."""
    found = json.loads(hits(context, *options, "--percent", str(percent), "--policies"))
    limit = found["mebibytes"] = found["memory"] // MIB
    found["fairway"], _ = replay(context, servers.fairway, options, limit)
    found["memcached"], taken = replay(context, servers.memcached, options, limit)
    found["same"] = found["fairway"]
    if taken > limit * TAKEN_MORE:
        found["same"], _ = replay(context, servers.fairway, options, taken)
    return found


def run(context):
    parts = []
    columns = ("fairway", *REFERENCES, "same", "memcached")
    print(f"  {'trace':10} {'memory':>10} " + " ".join(f"{name:>9}" for name in columns)
          + f" {'to best':>8}")
    for trace, options in which(context):
        for percent in PERCENTS_BRIEF if context.brief else PERCENTS:
            found = measure(context, options, percent)
            best = max(REFERENCES, key=lambda name: found[name])
            name = f"hits-{trace}-{percent}"
            ours = found["fairway"]
            parts.append(part(f"{name}-policy", best, ours, found[best], BAR_REFERENCE))
            parts.append(part(f"{name}-memcached", "memcached", found["same"],
                              found["memcached"], BAR_MEMCACHED))
            verdict = "ok" if all(each["ok"] for each in parts[-2:]) else "NOT MET"
            to_best = ours / found[best] if found[best] > NO_HITS else 1.0
            print(f"  {trace:10} {found['mebibytes']:6} MiB "
                  + " ".join(f"{found[name]:9.4f}" for name in columns)
                  + f" {to_best:8.3f}  {verdict}", flush=True)
    worst = max(parts, key=lambda each: each["ratio"] / each["bar"])
    return {**worst, "worst": worst["bench"], "ok": all(each["ok"] for each in parts),
            "parts": parts}


BENCHMARKS = {
    "hits": Benchmark("hit ratio beside memcached and beside LRU, S3-FIFO and SIEVE", run, differs=False),
}
