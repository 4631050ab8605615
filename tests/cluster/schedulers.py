# SPDX-License-Identifier: Apache-2.0
"""Schedulers on the nodes of a cluster (epoch_node), and what must be true of all they are told.

Whoever is told of the same epoch of the same life is told the same data: the ledger remembers. Corosync's
delivery is agreed, not uniform: what a scheduler was told since its last view counts only when the next
view shows that it was not cut off meanwhile. That each question has one answer, with data that adds up,
epoch_node sees to itself; it says "wrong" and ends if not.
"""

import errno
import signal
import subprocess
import threading

from cluster import DEADLINE_S, thaw, wait_for

TIMEOUT_MS = 1000  # Longer than it takes to form a ring: token and consensus, 660 ms.
PACE_MS = 5


class Ledger:
    """What was told of each epoch, by all."""

    def __init__(self):
        self.lock = threading.Lock()
        self.data = {}
        self.problems = []
        self.checked = 0  # Answers that were compared with another scheduler's.

    def enter(self, who, told):
        with self.lock:
            for life, number, *data in told:
                before, by = self.data.setdefault((life, number), (data, who))
                self.checked += by != who
                if before != data:
                    self.problems.append(f"epoch {number} of life {life}: {by} was told {before}, {who} {data}")


class Scheduler:
    """An epoch_node. All but its constructor and read() are for the test's own thread."""

    def __init__(self, program, node, ledger, group, pace_ms):
        self.node = node
        self.ledger = ledger
        self.mask = 1 << (node.number - 1)
        self.told = []    # (life, number, mask, count, sum), all of them.
        self.told_ns = []  # When, of the machine's monotonic clock.
        self.errors = []
        self.views = []   # (is quorate, has joined, members).
        self.unsure = []
        self.last_line = ""
        self.is_frozen = False
        with open(node.folder / "epoch_node.log", "ab") as log:
            self.process = node.start([program, group, node.number - 1, TIMEOUT_MS, pace_ms],
                                      stdout=subprocess.PIPE, stderr=log, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # It was killed in the middle.
            at, kind, *words = line.split()
            self.last_line = line.strip()
            if kind == "told":
                epoch = tuple(map(int, words))
                self.told.append(epoch)
                self.told_ns.append(int(at))
                self.unsure.append(epoch)
            elif kind == "error":
                self.errors.append(int(words[0]))
            elif kind == "view":
                is_quorate, has_joined, *members = map(int, words[1:])
                if is_quorate:
                    self.ledger.enter(self.node.name, self.unsure)
                self.unsure = []
                self.views.append((is_quorate == 1, has_joined == 1, members))
            elif kind == "wrong":
                self.ledger.problems.append(f"{self.node.name}: {line.strip()}")

    def number(self):
        """Of the last epoch that it was told of."""
        return self.told[-1][1] if self.told else 0

    def kill(self):
        """Ends it by kill -9; it says no more once this returns."""
        self.process.kill()
        self.process.wait(timeout=DEADLINE_S)
        self.reader.join()
        self.process.stdout.close()

    def leave(self):
        """Ends it by SIGTERM, and demands that it went well."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=DEADLINE_S)
        self.reader.join()
        self.process.stdout.close()
        assert status == 0 and self.last_line.endswith(" over"), f"{self.node.name}: status {status}, {self.last_line}"

    def wait_for_error(self, *numbers, since=0):
        """Until it is told of one of these errors, after so many errors."""
        wait_for(lambda: not set(numbers).isdisjoint(self.errors[since:]),
                 f"{self.node.name} to be told {[errno.errorcode[number] for number in numbers]}")


class Schedulers:
    """One on each node, in one group."""

    def __init__(self, program, cluster, group="fairway", pace_ms=PACE_MS):
        self.program = program
        self.cluster = cluster
        self.group = group
        self.pace_ms = pace_ms
        self.ledger = Ledger()
        self.running = [None] * cluster.count

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        for scheduler in filter(None, self.running):
            thaw(scheduler.process)
            if kind is None:
                scheduler.leave()
            else:
                scheduler.kill()
                print(f"--- {scheduler.node.name}: {len(scheduler.told)} epochs, errors {scheduler.errors[-5:]}, "
                      f"last: {scheduler.last_line}\n    {scheduler.views[-5:]}")
                print((scheduler.node.folder / "epoch_node.log").read_text(encoding="utf-8")[-2000:])

    def start(self, *numbers):
        for number in numbers or range(1, self.cluster.count + 1):
            assert self.running[number - 1] is None
            self.running[number - 1] = Scheduler(self.program, self.cluster.nodes[number - 1], self.ledger,
                                                 self.group, self.pace_ms)
        return self.running[(numbers or (1,))[0] - 1]

    def kill(self, number):
        self.running[number - 1].kill()
        self.running[number - 1] = None

    def wait_in_step(self, *numbers):
        """Until these schedulers, all that run if none are named, are alone together in an epoch that begins
        from now on; and checks what all were told so far."""
        chosen = [scheduler for scheduler in self.running
                  if scheduler and (not numbers or scheduler.node.number in numbers)]
        wanted = sum(scheduler.mask for scheduler in chosen)
        first = [len(scheduler.told) for scheduler in chosen]

        def is_in_step():
            common = [{epoch[:2] for epoch in scheduler.told[start:] if epoch[2] == wanted}
                      for scheduler, start in zip(chosen, first)]
            return set.intersection(*common)

        def is_in_step_or_wrong():
            dead = [scheduler.node.name for scheduler in chosen if scheduler.process.poll() is not None]
            assert not dead and not self.ledger.problems, f"ended: {dead}; {self.ledger.problems}"
            return is_in_step()

        wait_for(is_in_step_or_wrong, f"mask {wanted} at {[scheduler.node.name for scheduler in chosen]}")
        self.check()

    def check(self):
        assert self.ledger.problems == []
