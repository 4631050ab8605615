# SPDX-License-Identifier: Apache-2.0
"""Hit ratios: traces replayed to `fairway serve` and to memcached, beside simulated policies.

Memory is a share of what all objects of a trace take together. The ratio of a part is the better
side's hits to ours, so that lower is better here too; bench/hits says how hits are counted.
"""

import json
import subprocess

from . import servers
from .context import Benchmark, Unavailable

OBJECTS = 1_000_000
REQUESTS = 3_000_000
PERCENTS = (1, 10, 30)
REFERENCES = ("lru", "s3-fifo", "sieve")
BAR_REFERENCE = 1 / 0.98  # At least 0.98 of the best policy's hits.
BAR_MEMCACHED = 1.0
NO_HITS = 0.001  # A loop leaves nothing to compare.
MIB = 1 << 20


def hits(context, *options):
    command = [context.program("bench", "hits", "hits"), "--objects", str(context.scaled(OBJECTS)),
               "--requests", str(context.scaled(REQUESTS)), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise Unavailable(f"the replay gave up: {done.stderr.strip()}")
    return done.stdout


def limited(make_command, mebibytes):
    """The server with so much memory; the last -m counts."""
    return lambda context, port: [*make_command(context, port), "-m", str(mebibytes)]


def part(name, peer, ours, theirs, bar):
    ratio = theirs / ours if ours > NO_HITS else 1.0 if theirs <= NO_HITS else float("inf")
    return {"bench": name, "ratio": round(ratio, 4), "better": "lower", "peer": peer,
            "bar": round(bar, 4), "ok": ratio <= bar, "runs": 1, "spread": 0.0,
            "ours_hits": ours, "peer_hits": theirs}


def run(context):
    parts = []
    print(f"  {'trace':10} {'memory':>10} {'fairway':>9} {'memcached':>9} "
          + " ".join(f"{name:>9}" for name in REFERENCES))
    for trace in hits(context, "--list").split():
        footprint = json.loads(hits(context, "--trace", trace, "--footprint"))["footprint"]
        for percent in PERCENTS:
            mebibytes = max(round(footprint * percent / 100 / MIB), 2)
            found = {}
            for side, make_command in (("fairway", servers.fairway),
                                       ("memcached", servers.memcached)):
                with servers.running(limited(make_command, mebibytes), context) as server:
                    found[side] = json.loads(hits(
                        context, "--trace", trace, "--memory", str(mebibytes * MIB), "--port",
                        str(server.port)))
            ours, theirs = (found[side]["server"] for side in ("fairway", "memcached"))
            best = max(REFERENCES, key=lambda name: found["fairway"][name])
            name = f"hits-{trace}-{percent}"
            parts.append(part(f"{name}-policy", best, ours, found["fairway"][best], BAR_REFERENCE))
            parts.append(part(f"{name}-memcached", "memcached", ours, theirs, BAR_MEMCACHED))
            verdict = "ok" if all(each["ok"] for each in parts[-2:]) else "NOT MET"
            print(f"  {trace:10} {mebibytes:6} MiB {ours:9.4f} {theirs:9.4f} "
                  + " ".join(f"{found['fairway'][name]:9.4f}" for name in REFERENCES)
                  + f"  {verdict}", flush=True)
    worst = max(parts, key=lambda each: each["ratio"] / each["bar"])
    return {**worst, "worst": worst["bench"], "ok": all(each["ok"] for each in parts),
            "parts": parts}


BENCHMARKS = {
    "hits": Benchmark("hit ratio beside memcached and beside LRU, S3-FIFO and SIEVE", run),
}
