# SPDX-License-Identifier: Apache-2.0
"""Keeps what samples have found, one after the other, and writes it as a table.

A draw stays as it was found, also when tests were written for its survivors since: it speaks for
the mutants that nobody has tried, and they would not be spoken for by tests made for those that
were. Draws of one module are added up. Drawing again with the same seed replaces the earlier draw.
"""

import json
import math
import os

from mutate_lib.project import module_of
from mutate_lib.report import STATES, ratio

DATA = os.path.join("docs", "mutation.json")
PAGE = os.path.join("docs", "mutation.md")
BEGIN = "<!-- From mutation.json: tools/mutate --record -->\n"
END = "<!-- End of what is from mutation.json -->\n"
COLUMNS = ("module", "mutants", "draws", "tried", "void", "killed", "explained", "open", "kill ratio",
           "95 % sure")
VOID = ("equivalent", "duplicate", "build-failed")
SURE = 1.96  # Standard deviations on each side that hold 95 % of a normal distribution.


def read(root):
    try:
        with open(os.path.join(root, DATA), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def add(modules, report, all_mutants, seed, commit):
    """Puts what `report` found into `modules`, which is what read() gave."""
    for module in sorted({module_of(m.path) for m, _ in report.results}):
        counts = report.counts(lambda m, module=module: module_of(m.path) == module)
        draw = {"seed": seed, "commit": (commit or "")[:12],
                "mutants": sum(module_of(m.path) == module for m in all_mutants),
                **{state: counts[state] for state in STATES if counts[state]}}
        earlier = [other for other in modules.get(module, []) if other["seed"] != seed]
        modules[module] = earlier + [draw]


def interval(killed, total):
    """Between which ratios that of all mutants is, by Wilson's formula, which holds near 1 too."""
    share = killed / total
    middle = share + SURE ** 2 / (2 * total)
    half = SURE * math.sqrt(share * (1 - share) / total + (SURE / (2 * total)) ** 2)
    return tuple(max(0.0, min(1.0, (middle + sign * half) / (1 + SURE ** 2 / total)))
                 for sign in (-1, 1))


def rows(modules):
    """The table's rows as lists of texts, a module each and all together."""
    sums = {module: _sum(draws) for module, draws in sorted(modules.items())}
    found = [_row(module, sums[module]) for module in sums]
    return found + [_row("all", _sum(sums.values()))] if len(sums) > 1 else found


def _sum(parts):
    """Draws of a module, or of modules, as one. A module has the mutants of its last draw."""
    parts = list(parts)
    drawn = [part for part in parts if "seed" in part]
    total = {state: sum(part.get(state, 0) for part in parts) for state in STATES}
    total["draws"] = len(drawn) or sum(part["draws"] for part in parts)
    total["mutants"] = drawn[-1]["mutants"] if drawn else sum(part["mutants"] for part in parts)
    return total


def _row(name, total):
    share = ratio(total)
    judged = total["killed"] + total["survived"] + total["explained"]
    low, high = interval(total["killed"], judged) if judged else (0, 1)
    return [name, f'{total["mutants"]:,}', str(total["draws"]),
            str(sum(total[state] for state in STATES)), str(sum(total[state] for state in VOID)),
            str(total["killed"]), str(total["explained"]), str(total["survived"]),
            "" if share is None else f"{100 * share:.1f} %", f"{100 * low:.0f} to {100 * high:.0f} %"]


def table(modules):
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " + "| ---: " * (len(COLUMNS) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(modules)]
    return "\n".join(lines) + "\n"


def page_with(text, modules):
    """The page `text` with the table as it is now; the page has the place for it."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has no place for the table: {BEGIN.strip()} ... {END.strip()}")
    return before + BEGIN + table(modules) + END + after


def write(root, modules):
    """The data, a draw to a line, and the page."""
    lines = []
    for module, draws in sorted(modules.items()):
        shown = ",\n  ".join(json.dumps(draw) for draw in draws)
        lines.append(f"{json.dumps(module)}: [\n  {shown}]")
    with open(os.path.join(root, DATA), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
    path = os.path.join(root, PAGE)
    with open(path, encoding="utf-8") as file:
        text = page_with(file.read(), modules)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
