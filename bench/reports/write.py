# SPDX-License-Identifier: Apache-2.0
"""The report itself: report.md for people with a terminal, index.html with the plots in it, results.json for
programs, and the plots as files."""

import html
import json

from . import svg
from .rows import MET, MISSED, NOT_MEASURED, TOLERANCE, TOLD, rows

HOW = (f"A ratio is ours divided by the peer's, of the same run: below 1 is better for us. The bar is what was asked of it "
       f"before. Everything but what is counted was measured in three passes through all, and the one in the middle is shown. Spread is "
       f"(p75 - p25) / median of its rounds, or (max - min) / median of the passes if that is more. Two reports agree where their "
       f"ratios differ by no more than the larger spread, or {TOLERANCE:.0%}: `bench/report --compare A B`.")
NOTICED = ("How many small mistakes in each module its tests notice, of a sample drawn by chance: `docs/mutation.md` says how, and "
           "how it was drawn. Not measured by this run.")
COLUMNS = ("comparison", "peer", "ratio", "bar", "spread", "rounds", "ours", "peer's", "unit", "")


def number(value):
    """Three digits are what such a figure is worth."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(row):
    """A row of the table, as text."""
    if row.verdict == NOT_MEASURED:
        return [row.name, row.peer, "", "", "", "", "", "", "", f"not measured: {row.why}"]
    ratio = "no bound" if row.ratio is None else f"{row.ratio:.3f}"
    return [row.name, row.peer, ratio, f"{row.bar:.2f}", f"{row.spread:.1%}", str(row.runs), number(row.ours),
            number(row.theirs), row.unit, row.verdict]


def losses(found):
    """What was missed, worst first."""
    return sorted((row for row in found if row.verdict == MISSED),
                  key=lambda row: row.used if row.used is not None else float("inf"), reverse=True)


def summary(found):
    counts = {verdict: sum(row.verdict == verdict for row in found) for verdict in (MET, MISSED, TOLD, NOT_MEASURED)}
    return (f"{len(found)} comparisons: {counts[MET]} within their bar, {counts[MISSED]} missed, "
            f"{counts[TOLD]} for information, {counts[NOT_MEASURED]} not measured.")


def sentence(row):
    if row.bar_ns and row.ratio is not None and row.ratio <= row.bar:
        return f"{row.name}: {number(row.ours)} {row.unit} where {number(row.bar_ns)} were asked for (spread {row.spread:.1%})"
    ratio = "without bound" if row.ratio is None else f"{row.ratio:.3f}"
    return f"{row.name}: {ratio} where {row.bar:.2f} was asked for, beside {row.peer or 'its limit'} (spread {row.spread:.1%})"


def not_measured(results):
    """What could not be, and why; also what was measured in other passes."""
    return [f"{row.name}: {row.why}" for row in rows(results) if row.verdict == NOT_MEASURED] + [
        f"a pass of {result['bench']}: {why}" for result in results for why in result.get("lost", ())]


def groups(found):
    """(name, rows), in the order in which groups first appear."""
    by_name = {}
    for row in found:
        by_name.setdefault(row.group, []).append(row)
    return list(by_name.items())


def markdown(report):
    found = rows(report["results"])
    lines = ["# Benchmarks", "", summary(found), ""]
    lines += [f"**{note}**\n" for note in report["notes"]]
    lines += ["## Where we lose", ""]
    lines += [f"- {sentence(row)}" for row in losses(found)] or ["Nowhere: every bar was met."]
    if missing := not_measured(report["results"]):
        lines += ["", "## Not measured", "", *(f"- {what}" for what in missing)]
    lines += ["", "## Machine and versions", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in report["machine"].items()]
    lines += ["", "## All of them", "", HOW, ""]
    for name, some in groups(found):
        lines += [f"### {name}", "", "| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in some]
        if (svg_name := plot_name(name, some)) is not None:
            lines += ["", f"![{name}]({svg_name})"]
        lines.append("")
    if tests := report.get("tests"):
        lines += ["## What the tests notice", "", NOTICED, "", "| " + " | ".join(tests["columns"]) + " |",
                  "| --- " + "| ---: " * (len(tests["columns"]) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in tests["rows"]] + [""]
    return "\n".join(lines)


STYLE = """body { font-family: sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 90% } td, th { padding: 0.2em 0.7em; text-align: left; border-bottom: 1px solid #ddd }
.missed td:last-child, .loss { color: #b3001b; font-weight: bold } svg { max-width: 100%; height: auto }"""


def page(report):
    """The same as HTML, complete in one file."""
    found = rows(report["results"])
    escape = html.escape
    lines = ["<!DOCTYPE html>", '<html lang="en"><meta charset="utf-8"><title>Fairway: benchmarks</title>',
             f"<style>{STYLE}</style>", "<h1>Benchmarks</h1>", f"<p>{escape(summary(found))}</p>"]
    lines += [f"<p><strong>{escape(note)}</strong></p>" for note in report["notes"]]
    lines += ["<h2>Where we lose</h2>", "<ul>"]
    lines += [f'<li class="loss">{escape(sentence(row))}</li>' for row in losses(found)] or [
        "<li>Nowhere: every bar was met.</li>"]
    if missing := not_measured(report["results"]):
        lines += ["</ul>", "<h2>Not measured</h2>", "<ul>", *(f"<li>{escape(what)}</li>" for what in missing)]
    lines += ["</ul>", "<h2>Machine and versions</h2>", "<table>"]
    lines += [f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in report["machine"].items()]
    lines += ["</table>", "<h2>All of them</h2>", f"<p>{escape(HOW)}</p>"]
    for name, some in groups(found):
        lines += [f"<h3>{escape(name)}</h3>", svg.bars(f"{name}: how much of its bar each uses", some), "<table>",
                  "<tr>" + "".join(f"<th>{column}</th>" for column in COLUMNS) + "</tr>"]
        for row in some:
            lines.append(f'<tr class="{row.verdict.split()[0]}">'
                         + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) + "</tr>")
        lines.append("</table>")
    if tests := report.get("tests"):
        lines += ["<h2>What the tests notice</h2>", f"<p>{escape(NOTICED)}</p>", "<table>",
                  "<tr>" + "".join(f"<th>{escape(column)}</th>" for column in tests["columns"]) + "</tr>"]
        lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in tests["rows"]]
        lines.append("</table>")
    return "\n".join([*lines, "</html>", ""])


def plot_name(name, some):
    """The file of a group's plot, None if there is nothing to draw."""
    return f"{name}.svg" if any(row.used for row in some) else None


def publish(folder, report, name="README.md"):
    """Writes the page for people with its plots, as for a folder of docs/."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(markdown(report), encoding="utf-8")
    for group, some in groups(rows(report["results"])):
        if (file := plot_name(group, some)) is not None:
            (folder / file).write_text(svg.bars(f"{group}: how much of its bar each uses", some), encoding="utf-8")


def write(folder, report):
    """Writes all files of a report; `report` has `machine`, `notes` and `results`, and `tests` where they were measured."""
    publish(folder, report, "report.md")
    (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(page(report), encoding="utf-8")


def read(folder):
    """A report that was written."""
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))
