# SPDX-License-Identifier: Apache-2.0
"""What part of a request's instructions is the scheduler's, where it has nothing to schedule.

The server runs under callgrind and answers one client's gets, one at a time. Counted as the
scheduler's is every instruction of a function or a line of src/sched, and every one of a line of
src/server/connection.c that exists because of it (SCHEDULER, below). All others of the server, the
kernel's apart, are what it is compared with. Two runs differ by a few instructions in a thousand, so
one is enough, on any machine and beside any load.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from . import measure, servers
from .context import Benchmark, Unavailable

REQUESTS = 20_000
BAR = 0.01
STOP_SECONDS = 60
CONNECTION = "src/server/connection.c"
SCHEDULER = re.compile(r"core->(is_open|admitted)\b|\bfw_(sched|flows)_\w+\(")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.compile(r"\((\d+)\)(?: (.*))?")


class Profile:
    """A file of callgrind's: instructions by (function, file of the line, line)."""

    def __init__(self, path):
        self.costs = collections.Counter()
        self.names = {}
        self.function = self.file = ""
        self.line = 0
        is_call = False
        for text in path.read_text().splitlines():
            key, _, value = text.partition("=")
            if key == "fn":
                self.function = self.name("function", value)
            elif key in ("fl", "fi", "fe"):
                self.file = self.name("file", value)
            elif key in ("cfi", "cfl"):
                self.name("file", value)  # May be where it is named.
            elif key == "cfn":
                self.name("function", value)
            elif key == "calls":
                is_call = True  # What follows was counted where it was executed.
            elif text[:1] in set("0123456789+-*"):
                self.count(text.split(), is_call)
                is_call = False

    def name(self, kind, value):
        number, name = NAMED.fullmatch(value).groups()
        if name is not None:
            self.names[kind, number] = name
        return self.names[kind, number]

    def count(self, words, is_call):
        place = words[0]
        if place[0] in "+-":
            self.line += int(place)
        elif place != "*":
            self.line = int(place)
        if not is_call and len(words) > 1:
            self.costs[self.function, self.file, self.line] += int(words[1])

    def of_scheduler(self, lines):
        """The sum that is the scheduler's; `lines` are those of CONNECTION."""
        functions = {function for function, file, _ in self.costs
                     if "/src/sched/" in file and file.endswith(".c")}
        return sum(cost for (function, file, line), cost in self.costs.items()
                   if function in functions or "/src/sched/" in file or
                   file.endswith(CONNECTION) and SCHEDULER.search(lines[line - 1]))


def control(server, state):
    subprocess.run(["callgrind_control", "-i", state, str(server.pid)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def load(context, server, requests, *more):
    subprocess.run([context.program("bench", "load"), "--port", str(server.port), "--connections",
                    "1", "--keys", "1000", "--sets", "0", "--warm-up", "0", "--requests",
                    str(requests), *more], check=True, stdout=subprocess.DEVNULL)


def profile(context, folder, requests):
    path = pathlib.Path(folder, "callgrind.out")

    def command(context, port):
        return ["valgrind", "--tool=callgrind", "--instr-atstart=no",
                f"--callgrind-out-file={path}", *servers.fairway(context, port)]

    with servers.running(command, context) as server:
        load(context, server, requests, "--prefill")
        control(server, "on")
        load(context, server, requests)
        control(server, "off")
        server.process.terminate()
        server.process.wait(STOP_SECONDS)
    deadline = time.monotonic() + STOP_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise Unavailable("callgrind left no profile")
        time.sleep(0.1)
    return Profile(path)


def run_share(context):
    if shutil.which("callgrind_control") is None:
        raise Unavailable("callgrind is missing: run `apt-get install valgrind`")
    requests = context.scaled(REQUESTS)
    lines = (SOURCE / CONNECTION).read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = profile(context, folder, requests)
        except (subprocess.SubprocessError, OSError) as error:
            raise Unavailable(f"callgrind could not be used: {error}") from error
    ours = found.of_scheduler(lines) / requests
    whole = sum(found.costs.values()) / requests
    share = ours / whole
    print(f"  of {whole:.0f} instructions per get {ours:.1f} are the scheduler's: {share:.2%}, bar "
          f"{BAR:.0%}: {'ok' if share <= BAR else 'NOT MET'}")
    return measure.combine("sched-fifo-share", [
        {"bench": "sched-fifo-share", "ratio": round(share, 5), "better": "lower",
         "peer": "all instructions of a get", "bar": BAR, "ok": share <= BAR, "runs": 1,
         "spread": 0.0, "instructions": round(ours, 1), "instructions_of_a_get": round(whole, 1)}])


BENCHMARKS = {
    "sched-fifo-share": Benchmark("the scheduler's part of a get's instructions, with nothing to "
                                  "schedule", run_share, differs=False),
}
