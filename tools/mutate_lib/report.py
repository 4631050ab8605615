# SPDX-License-Identifier: Apache-2.0
"""Counts the outcomes and prints them.

    kill ratio = killed / (all that were built, less the equivalent ones)

A survivor that mutants.allowed explains is shown apart and is not counted as killed: an explanation
is no test.
"""

import collections
import json

from mutate_lib import allowed
from mutate_lib.project import module_of

STATES = ("killed", "survived", "explained", "equivalent", "duplicate", "build-failed")
HEADINGS = ("killed", "survived", "explained", "equal", "twice", "unbuilt")


class Report:
    def __init__(self, results, entries, all_mutants):
        """`results`: pairs of mutant and outcome; `all_mutants`: of these files, tested or not."""
        self.results = results
        self.entries = entries
        self.reasons = {}
        for mutant, outcome in results:
            entry = next((e for e in entries if e.fits(mutant)), None)
            if outcome.state == "survived" and entry is not None:
                self.reasons[mutant] = entry.reason
        paths = {mutant.path for mutant in all_mutants}
        self.stale = [e for e in entries
                      if e.path in paths and not any(e.fits(m) for m in all_mutants)]
        killed = [m for m, outcome in results if outcome.state == "killed"]
        survived = [m for m, outcome in results if outcome.state == "survived"]
        self.needless = [e for e in entries if any(e.fits(m) for m in killed) and
                         not any(e.fits(m) for m in survived)]

    def state(self, mutant, outcome):
        return "explained" if mutant in self.reasons else outcome.state

    def counts(self, wanted=lambda mutant: True):
        return collections.Counter(self.state(m, o) for m, o in self.results if wanted(m))

    def unexplained(self):
        return [(m, o) for m, o in self.results if self.state(m, o) == "survived"]

    def text(self):
        lines = []
        width = max([len(m.path) for m, _ in self.results] + [12])
        lines.append(f'{"":{width}} ' + " ".join(f"{h:>9}" for h in HEADINGS) + "  kill ratio")
        modules = sorted({module_of(m.path) for m, _ in self.results})
        for module in modules:
            for path in sorted({m.path for m, _ in self.results if module_of(m.path) == module}):
                counts = self.counts(lambda m, path=path: m.path == path)
                lines.append(_row(path, width, counts))
            counts = self.counts(lambda m, module=module: module_of(m.path) == module)
            lines.append(_row(f"module {module}", width, counts))
        if len(modules) > 1:
            lines.append(_row("all", width, self.counts()))
        lines += self._survivors()
        return "\n".join(lines)

    def _survivors(self):
        lines = []
        if self.reasons:
            lines.append("\nSurvivors explained in tools/mutants*.allowed:\n")
            for mutant, reason in self.reasons.items():
                lines.append(f"{allowed.show(mutant)}\n{reason}\n")
        if self.unexplained():
            lines.append("\nSurvivors:\n")
            for mutant, outcome in self.unexplained():
                why = f"  ({outcome.why})" if outcome.why else ""
                lines.append(f"# {mutant.place}{why}\n{allowed.show(mutant)}\n")
        for entry in self.stale:
            lines.append(f"{entry.source}:{entry.line}: stale: no such mutant in {entry.path} "
                         f"any more")
        for entry in self.needless:
            lines.append(f"{entry.source}:{entry.line}: needless: that mutant is killed")
        return lines

    def json(self, seed):
        return json.dumps({
            "seed": seed,
            "kill_ratio": ratio(self.counts()),
            "counts": {state: self.counts()[state] for state in STATES},
            "modules": {module: ratio(self.counts(lambda m, module=module:
                                                  module_of(m.path) == module))
                        for module in sorted({module_of(m.path) for m, _ in self.results})},
            "mutants": [{
                "file": m.path, "line": m.line, "column": m.column, "function": m.function,
                "operator": m.operator, "before": m.before, "after": m.after,
                "state": self.state(m, o), "why": self.reasons.get(m, o.why),
            } for m, o in self.results],
        }, indent=2)


def ratio(counts):
    """The share of killed mutants, or None where there was none to kill."""
    total = counts["killed"] + counts["survived"] + counts["explained"]
    return counts["killed"] / total if total else None


def _row(name, width, counts):
    share = ratio(counts)
    shown = f"{100 * share:9.1f} %" if share is not None else "        none"
    return f"{name:{width}} " + " ".join(f"{counts[s]:9}" for s in STATES) + f" {shown}"
