# SPDX-License-Identifier: Apache-2.0
"""Large values: who feels it when they come and go at full speed.

Eight connections store and fetch values of 4 MiB, which are in the server's file, without pause, while
the victim (bench/victim.c) asks for small values a thousand times a second. The server has one
processor, for the thread that serves and those of the job kernel; the clients have another. Beside it
stand the same with values that are in the server's memory, and in memcached's: what the network alone
costs, and what people are used to.

The victim has a higher priority than the load generator, but a kernel that is not preemptible lets
it have the processor only when a system call ends, and one that moves 4 MiB lasts a millisecond. So
the generator moves PIECE bytes per call; else the victim would measure its neighbour.
"""

import tempfile

from . import measure, sched, servers
from .context import Benchmark

ROUNDS = 5
KEYS = 16
VALUE_SIZE = 4 << 20
CONNECTIONS = 8
FIRST_S = 1  # The flood is under way then.
BAR = 1.5
PIECE = 16 << 10
KINDS = {"file": "1m", "memory": "1g", "memcached": None}  # From which size on values are in the file.


def server_of(kind, folder):
    if KINDS[kind] is None:
        return lambda context, port: [*servers.memcached(context, port), "-I", "8m"]
    return lambda context, port: [*servers.fairway(context, port), "-I", "8m", "--large-value-min", KINDS[kind],
                                  "--large-directory", folder]


def load(context, server, *more):
    return [context.program("bench", "load"), "--port", str(server.port), "--keys", str(KEYS), "--value-size",
            str(VALUE_SIZE), "--server-pid", str(server.pid), "--warm-up", "0", "--piece", str(PIECE),
            *sched.pinned(context), *more]


def flooded(context, server):
    """Large values on their way."""
    seconds = 2 * FIRST_S + (1 if context.quick else sched.VICTIM_SECONDS)
    command = load(context, server, "--connections", str(CONNECTIONS), "--in-flight", "1", "--sets", "50",
                   "--requests", str(1 << 60), "--seconds", str(seconds))
    return sched.at_work(command, FIRST_S)


def one_round(context, kind, folder):
    with servers.running(server_of(kind, folder), context) as server:
        sched.checked(load(context, server, "--connections", "1", "--in-flight", "1", "--requests", "1", "--prefill"))
        alone = sched.suffer(context, server.port, "--prefill")["latency_us"]["p99"]
        with flooded(context, server) as flood:
            beside = sched.suffer(context, server.port)["latency_us"]["p99"]
    rate = flood[0]["requests_per_second"] * VALUE_SIZE / 1e6
    print(f"  in {kind:9}: victim's p99 alone {alone:7.0f} us, beside {beside:7.0f}; {rate:6.0f} MB/s of large values",
          flush=True)
    return {"alone": alone, "beside": beside, "mb_per_second": round(rate)}


def run(context):
    rounds = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(dir=context.build) as folder:
        for number in range(context.rounds(ROUNDS)):
            for kind in measure.alternate(list(KINDS), number):
                rounds[kind].append(one_round(context, kind, folder))
    parts = [sched.judge(f"large-beside-{kind}", [found["beside"] / found["alone"] for found in rounds[kind]],
                         "the victim's p99 alone", BAR, figures=rounds[kind]) for kind in KINDS]
    for part in parts[1:]:
        part["informational"] = True
    for part in parts:
        print(f"  {part['bench']:30} {part['ratio']:6.2f}, bar {part['bar']:.2f}: {'ok' if part['ok'] else 'NOT MET'}")
    return measure.combine("large-beside", parts)


BENCHMARKS = {
    "large-beside": Benchmark("small gets beside values of 4 MiB on eight connections", run),
}
