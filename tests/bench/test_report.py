# SPDX-License-Identifier: Apache-2.0
"""Goal: the report says what the benchmarks found, above all what was missed; nothing that a benchmark does keeps the others
from being run or the report from being written; and two reports are compared as is said.
Method: feed it with made-up results and made-up programs, and read what it writes; run the real thing with the
shortest benchmark there is."""

import html.parser
import json
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from reports import collect, noticed, passes, svg, write
from reports.rows import MET, MISSED, NOT_MEASURED, TOLD, pairs, rows
from suite import measure


def result(name, ratio, bar, **more):
    return {"bench": name, "ratio": ratio, "better": "lower", "peer": "a peer", "bar": bar, "ok": ratio <= bar, "runs": 7,
            "spread": 0.05, "ours_ns": 12.5, "peer_ns": 25.0, "unit": "ns", **more}


RESULTS = [
    result("base-good", 0.5, 1.0),
    result("base-bad", 1.5, 1.0),
    {**result("cache-parts", 3.0, 2.0), "parts": [result("cache-parts-a", 2.5, 2.0), result("cache-parts-b", 0.1, 1.0),
                                                  result("cache-parts-c", 9.0, 1.0, informational=True)]},
    result("ring-told", 5.0, 1.0, informational=True),
    collect.nothing("ring-gone", "fio <b> is not installed"),
]
NOTICED = {"columns": ["module", "kill ratio"], "rows": [["base <", "95.5 %"]]}
REPORT = {"machine": {"processor": "a & b", "commit": "abc"}, "notes": ["other work | is running"], "results": RESULTS,
          "tests": NOTICED}


def test_verdicts():
    assert [(row.name, row.verdict) for row in rows(RESULTS)] == [
        ("base-good", MET), ("base-bad", MISSED), ("cache-parts-a", MISSED), ("cache-parts-b", MET),
        ("cache-parts-c", TOLD), ("ring-told", TOLD), ("ring-gone", NOT_MEASURED)]
    parts = [{**RESULTS[2], "informational": True}]
    assert {row.verdict for row in rows(parts)} == {TOLD}
    assert [row.group for row in rows(RESULTS)] == ["base"] * 2 + ["cache"] * 3 + ["ring"] * 2


def test_losses_are_told_first_and_worst_first(tmp_path):
    write.write(tmp_path, REPORT)
    text = (tmp_path / "report.md").read_text()
    assert text.index("Where we lose") < text.index("Machine") < text.index("All of them")
    lost = [line for line in text.splitlines() if line.startswith("- ") and "asked for" in line]
    assert [line.split(":")[0] for line in lost] == ["- base-bad", "- cache-parts-a"]
    assert "base-bad: 1.500 where 1.00 was asked for, beside a peer" in text
    assert "7 comparisons: 2 within their bar, 2 missed, 2 for information, 1 not measured." in text
    assert "- ring-gone: fio <b> is not installed" in text
    assert "| processor | a & b |" in text and "other work | is running" in text


def test_a_bar_in_nanoseconds_is_told():
    """What uses little of the bar of its ratio may have missed this one."""
    slow = rows([{**result("base-slow", 0.5, 1.0, ours_ns=75.0, bar_ns=60.0, unit="ns per step"), "ok": False}])
    assert [write.sentence(row) for row in write.losses(slow)] == [
        "base-slow: 75 ns per step where 60 were asked for (spread 5.0%)"]
    assert slow[0].used == 1.25
    assert rows([result("base-quick", 0.5, 1.0, ours_ns=15.0, bar_ns=60.0)])[0].used == 0.5


def test_what_the_tests_notice_is_told(tmp_path):
    write.write(tmp_path, REPORT)
    assert "| module | kill ratio |\n| --- | ---: |\n| base < | 95.5 % |" in (tmp_path / "report.md").read_text()
    assert "<tr><td>base &lt;</td><td>95.5 %</td></tr>" in (tmp_path / "index.html").read_text()
    write.write(tmp_path, {**REPORT, "tests": None})
    assert "notice" not in (tmp_path / "report.md").read_text() + (tmp_path / "index.html").read_text()


def test_the_tests_are_told_as_recorded(tmp_path):
    assert noticed.table(tmp_path) is None
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mutation.json").write_text(
        '{"base": [{"seed": "1", "commit": "", "mutants": 9, "killed": 3, "survived": 1}]}')
    [row] = noticed.table(tmp_path)["rows"]
    assert row[0] == "base" and "75.0 %" in row


def test_nothing_lost_is_said(tmp_path):
    write.write(tmp_path, {**REPORT, "results": RESULTS[:1]})
    assert "Nowhere: every bar was met." in (tmp_path / "report.md").read_text()


def test_a_group_stands_together():
    apart = [RESULTS[0], RESULTS[3], RESULTS[1]]
    assert [(name, [row.name for row in some]) for name, some in write.groups(rows(apart))] == [
        ("base", ["base-good", "base-bad"]), ("ring", ["ring-told"])]


def test_what_is_written_can_be_read_again(tmp_path):
    write.write(tmp_path, REPORT)
    assert json.loads((tmp_path / "results.json").read_text()) == REPORT


class Tags(html.parser.HTMLParser):
    """Complains about tags that do not pair."""

    VOID = {"meta", "html"}

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_page(tmp_path):
    write.write(tmp_path, REPORT)
    tags = Tags()
    tags.feed((tmp_path / "index.html").read_text())
    assert tags.open == []
    assert "a & b" in tags.text and "not measured: fio <b> is not installed" in tags.text
    assert sum(tag == "tr" and attributes.get("class") == "missed" for tag, attributes in tags.seen) == 2
    assert sum(tag == "svg" for tag, _ in tags.seen) == 3
    # Nothing is fetched from elsewhere.
    assert not [attributes for _, attributes in tags.seen if "src" in attributes or "href" in attributes]


def test_plots(tmp_path):
    write.write(tmp_path, REPORT)
    assert sorted(file.name for file in tmp_path.glob("*.svg")) == ["base.svg", "cache.svg", "ring.svg"]
    text = (tmp_path / "report.md").read_text()
    for file in tmp_path.glob("*.svg"):
        xml.etree.ElementTree.parse(file)
        assert f"({file.name})" in text


def drawn(plot, name):
    """x, width and colour of a row's bar."""
    for shape in xml.etree.ElementTree.fromstring(plot).iter("{http://www.w3.org/2000/svg}rect"):
        title = shape.find("{http://www.w3.org/2000/svg}title")
        if title is not None and (title.text or "").startswith(f"{name}:"):
            return float(shape.get("x")), float(shape.get("width")), shape.get("fill")
    return None


def test_a_bar_that_is_missed_reaches_beyond_the_line():
    plot = svg.bars("title", rows(RESULTS))
    at_bar = next(float(line.get("x1")) for line in xml.etree.ElementTree.fromstring(plot).iter(
        "{http://www.w3.org/2000/svg}line") if line.get("stroke") == "#222" and line.get("x1") == line.get("x2"))
    for row in rows(RESULTS):
        found = drawn(plot, row.name)
        if row.verdict == NOT_MEASURED:
            assert found is None
            continue
        x, width, colour = found
        assert (x + width > at_bar) == (row.ratio > row.bar), row.name
        assert svg.LABELS <= x and x + width <= svg.WIDTH - svg.RIGHT
        assert colour == svg.COLOURS.get(row.verdict, svg.OTHER)


def test_no_bars_no_plot():
    assert svg.bars("title", rows([RESULTS[-1]])) == ""
    assert svg.bars("a < b", rows(RESULTS[:1])).count("a &lt; b") == 1


PROGRAMS = {
    "good": 'import sys; print("said much"); print(\'{"bench": "good", "ratio": 0.5, "bar": 1.0, "ok": true, "runs": 1, "spread": 0}\')',
    "silent": "pass",
    "garbled": "print('no JSON')",
    "other": "print('[1]')",
    "dies": "import os; os.abort()",
}


def run_programs(folder, names, again=(), **more):
    kept = []
    results = collect.run_all([names, list(again)], lambda name: [sys.executable, "-c", PROGRAMS.get(name, name)], folder,
                              lambda found: kept.append(len(found)), **more)
    assert kept == list(range(1, len(names) + 1)) + [len(names)] * len(again)
    return {each["bench"]: each for each in results}


def test_one_that_fails_does_not_spoil_the_others(tmp_path):
    found = run_programs(tmp_path, ["silent", "garbled", "other", "dies", "good"])
    assert found["good"]["ratio"] == 0.5 and "unavailable" not in found["good"]
    for name in ("silent", "garbled", "other", "dies"):
        assert "without a result" in found[name]["unavailable"]
    assert "said much" in (tmp_path / "good-1.txt").read_text()


def test_one_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "LIMIT_S", 0.2)
    found = run_programs(tmp_path, ["import time; time.sleep(1000)"])
    assert "did not end" in found["import time; time.sleep(1000)"]["unavailable"]


def test_the_budget_holds(tmp_path):
    """By a clock of its own, that goes on by 10 s whenever it is looked at."""
    now = iter(range(0, 10_000, 10))
    found = run_programs(tmp_path, ["good", "silent"], clock=lambda: next(now), budget_s=35)
    assert "unavailable" not in found["good"]
    assert "budget" in found["silent"]["unavailable"]


def test_what_the_first_pass_found_stays(tmp_path, monkeypatch):
    """Whether the second finds no time, or dies."""
    now = iter(range(0, 10_000, 10))
    found = run_programs(tmp_path, ["good"], again=["good"], clock=lambda: next(now), budget_s=35)
    assert found["good"]["ratio"] == 0.5 and found["good"]["passes"] == 1
    mark = str(tmp_path / "mark")
    monkeypatch.setitem(PROGRAMS, "fades", f"import os; os.path.exists({mark!r}) and os.abort(); open({mark!r}, 'w').close(); "
                        + PROGRAMS["good"])
    found = run_programs(tmp_path, ["fades"], again=["fades"])
    assert found["good"]["ratio"] == 0.5 and found["good"]["passes"] == 1
    assert ["without a result" in why for why in found["good"]["lost"]] == [True]
    write.write(tmp_path / "report", {**REPORT, "results": list(found.values())})
    for file in ("report.md", "index.html"):
        assert "a pass of good: it ended without a result" in (tmp_path / "report" / file).read_text()


def test_passes_are_run_and_merged(tmp_path):
    found = run_programs(tmp_path, ["good", "silent"], again=["good"])
    assert (found["good"]["passes"], found["good"]["runs"]) == (2, 2)
    assert (tmp_path / "good-2.txt").exists() and not (tmp_path / "silent-2.txt").exists()


def test_the_middle_pass_speaks_for_all():
    merged = passes.merge([result("a", 1.3, 1.25, ours_ns=13.0), result("a", 0.9, 1.25), result("a", 1.2, 1.25, ours_ns=12.0)])
    assert (merged["ratio"], merged["ok"], merged["ours_ns"], merged["runs"], merged["passes"]) == (1.2, True, 12.0, 21, 3)
    assert merged["spread"] == pytest.approx((1.3 - 0.9) / 1.2, abs=1e-4)
    two = passes.merge([result("a", 0.9, 1.0), result("a", 1.1, 1.0)])
    assert two["ratio"] == 1.1 and not two["ok"], "of two the worse"


def test_the_larger_spread_is_told():
    merged = passes.merge([result("a", 1.0, 2, spread=0.3), result("a", 1.01, 2, spread=0.2), result("a", 1.02, 2)])
    assert merged["spread"] == 0.2, "that of the middle pass' rounds"
    merged = passes.merge([result("a", ratio, 2) for ratio in (1.0, 1.1, float("inf"))])
    assert merged["ratio"] == 1.1 and merged["spread"] == passes.SPREAD_MAX
    merged = passes.merge([result("a", float("inf"), 2)] * 3)
    assert merged["spread"] == passes.SPREAD_MAX and not merged["ok"]
    assert svg.bars("title", rows([merged, RESULTS[0]])).startswith("<svg")


def test_parts_are_merged_one_by_one():
    def whole(one, other):
        return measure.combine("p", [result("p-a", one, 1.0), result("p-b", other, 1.0)])
    merged = passes.merge([whole(0.2, 0.9), whole(1.5, 0.8), whole(0.3, 0.7), collect.nothing("p", "gone")])
    assert {row.name: (row.ratio, row.verdict, row.runs) for row in rows([merged])} == {
        "p-a": (0.3, MET, 21), "p-b": (0.8, MET, 21)}
    assert (merged["worst"], merged["ratio"], merged["ok"]) == ("p-b", 0.8, True)
    assert passes.merge([collect.nothing("p", "gone")] * 2)["unavailable"] == "gone"


def test_pairs_agree_within_their_spread():
    first = rows([result("a", 1.0, 1), result("b", 1.0, 1, spread=0.3), result("c", 1.0, 1), result("d", 1.0, 1),
                  collect.nothing("e", ""), result("g", 1.0, 1)])
    second = rows([result("a", 1.09, 1), result("b", 1.29, 1), result("c", 1.11, 1), result("f", 1.0, 1), result("e", 1.0, 1),
                   result("g", 0.71, 1, spread=0.3)])
    assert {pair.name: pair.agrees for pair in pairs(first, second)} == {"a": True, "b": True, "c": False, "g": True}


def report(source, *arguments):
    return subprocess.run([source / "bench" / "report", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)


def test_whole(source, build, tmp_path):
    done = report(source, "--build", build, "--quick", "--output", tmp_path / "a", "noise")
    assert done.returncode == 0, done.stderr
    assert "[1/1] noise" in done.stdout
    text = (tmp_path / "a" / "report.md").read_text()
    assert "a quick run" in text and "| commit |" in text and "### noise" in text
    done = report(source, "--compare", tmp_path / "a", tmp_path / "a")
    assert done.returncode == 0 and "1 comparisons in both, 1 agree, 0 do not" in done.stdout


def test_whole_with_a_difference(source, tmp_path):
    write.write(tmp_path / "a", REPORT)
    write.write(tmp_path / "b", {**REPORT, "results": [result("base-good", 0.8, 1.0)]})
    done = report(source, "--compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and "DIFFERS" in done.stdout


def test_published(source, tmp_path):
    write.write(tmp_path / "a", REPORT)
    done = report(source, "--publish", tmp_path / "a", tmp_path / "docs" / "bench")
    assert done.returncode == 0, done.stderr
    published = tmp_path / "docs" / "bench"
    assert sorted(file.name for file in published.iterdir()) == ["README.md", "base.svg", "cache.svg", "ring.svg"]
    assert (published / "README.md").read_text() == (tmp_path / "a" / "report.md").read_text()


@pytest.mark.parametrize("arguments", [["no-such-benchmark"], ["--publish", "/nowhere", "/nowhere"], ["--compare", "/nowhere", "/nowhere"]])
def test_wrong(source, build, arguments):
    done = report(source, "--build", build, *arguments)
    assert done.returncode == 2 and done.stderr.startswith("bench/report: ")
